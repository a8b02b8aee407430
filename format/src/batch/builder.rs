//! Building batches of magic 2.
//!
//! Records are written once, behind room for the header, in a buffer that the builder keeps from batch to batch; it keeps
//! another for compressed records. [`RecordBatchBuilder::build`] fills in the header, computes the checksum in one
//! pass over the result, and lends it; [`RecordBatchBuilder::finish`] copies it to where the caller wants it, and
//! [`RecordBatchBuilder::exchange`] gives it away with its memory.

mod copy;
mod room;

use std::mem;

use bytes::BytesMut;

use super::Attributes;
use super::header::{
    ATTRIBUTES, BASE_OFFSET, BASE_SEQUENCE, BASE_TIMESTAMP, BATCH_OVERHEAD, CRC, EPOCH, LAST_OFFSET_DELTA,
    LENGTH, LOG_OVERHEAD, MAGIC, MAX_TIMESTAMP, PRODUCER_EPOCH, PRODUCER_ID, RECORDS_COUNT, put_at,
};
use crate::codec::{Codec, Magic, TimestampType};
use crate::compression::{self, Output};
use crate::crc;
use crate::error::EncodeError;
use crate::number::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use crate::varint::{self, Short};

/// Who wrote a batch: the producer fields of its header.
#[allow(clippy::exhaustive_structs, reason = "the header has these three fields")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Producer {
    /// The producer's id.
    pub id: ProducerId,
    /// The id's epoch.
    pub epoch: ProducerEpoch,
    /// The sequence number of the first record; none in control batches.
    pub base_sequence: Option<Sequence>,
}

/// What a batch says of itself in its header.
#[allow(clippy::exhaustive_structs, reason = "a batch's header; to be used with `..BatchOptions::default()`")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BatchOptions {
    /// How the records are compressed. Default: not at all.
    pub codec: Codec,
    /// The codec's level; `None` for its own default.
    pub level: Option<i32>,
    /// What the timestamps mean. Default: CreateTime.
    pub timestamp_type: TimestampType,
    /// The largest timestamp of a LogAppendTime batch; without use in others.
    pub log_append_time: Option<Timestamp>,
    /// The base offset. Default: 0.
    pub base_offset: Offset,
    /// The leader epoch. Default: none.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The producer. Default: none.
    pub producer: Option<Producer>,
    /// Whether the batch belongs to a transaction. Default: no.
    pub transactional: bool,
    /// Whether the records are control records. Default: no.
    pub control: bool,
    /// What the base timestamp is then. Default: none.
    pub delete_horizon: Option<Timestamp>,
    /// The batch's last offset, where it is not that of the last record.
    pub last_offset: Option<Offset>,
}

/// Builds batches of magic 2, one after the other.
///
/// The base offset and the delete horizon are taken from the options when the first record of a batch is appended,
/// all others when it is finished.
///
/// # Examples
/// ```
/// use bytes::BytesMut;
/// use kseg_format::{Batch, BatchOptions, RecordBatchBuilder, Timestamp};
///
/// let mut builder = RecordBatchBuilder::new(BatchOptions::default());
/// builder.append(Some(Timestamp::new(1000)), Some(b"k"), Some(b"v"), &[])?;
/// let mut out = BytesMut::new();
/// assert_eq!(builder.finish(&mut out)?, Some(70));
/// assert_eq!(Batch::parse(&out)?.verify()?.crc(), 0x716a_6189);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: Kafka `MemoryRecordsBuilder`.
#[derive(Debug)]
pub struct RecordBatchBuilder {
    options: BatchOptions,
    /// Room for the header, the records so far, and zeroes or records of earlier batches.
    buffer: BytesMut,
    /// Where the records end; the header's size where there are none.
    len: usize,
    /// The last batch that was compressed.
    compressed: Output,
    base_offset: i64,
    /// The offset behind the last record, less the base offset; 0 where there are no records.
    next_delta: i64,
    /// How many offsets have no record: `next_delta` less the number of records.
    skipped: i64,
    base_timestamp: i64,
    /// The base timestamp, or [`NO_BASE`], so far below all timestamps that no delta to it is a small one: where there are no
    /// records, and where the base is below -1, for then a small delta may lead to a negative timestamp.
    usual_base: i64,
    max_timestamp: i64,
}

const NO_BASE: i64 = i64::MIN;

const FIRST_CAPACITY: usize = 4096;
/// What is written for a record may be this much more than its key and its value.
const SLACK: usize = 24;

impl RecordBatchBuilder {
    /// A builder without records.
    pub fn new(options: BatchOptions) -> RecordBatchBuilder {
        RecordBatchBuilder {
            options,
            buffer: BytesMut::new(),
            len: BATCH_OVERHEAD,
            compressed: Output::default(),
            base_offset: 0,
            next_delta: 0,
            skipped: 0,
            base_timestamp: 0,
            usual_base: NO_BASE,
            max_timestamp: -1,
        }
    }

    /// The options.
    #[inline]
    pub fn options(&self) -> &BatchOptions {
        &self.options
    }

    /// The options, to be changed.
    #[inline]
    pub fn options_mut(&mut self) -> &mut BatchOptions {
        &mut self.options
    }

    /// Whether no record has been appended since the last batch.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.record_count() == 0
    }

    /// How many records have been appended since the last batch.
    #[inline]
    pub fn record_count(&self) -> usize {
        self.next_delta.wrapping_sub(self.skipped) as usize
    }

    /// The size of the batch as it is, before compression.
    #[inline]
    pub fn uncompressed_size(&self) -> usize {
        self.len
    }

    /// The largest timestamp of the records so far, or the append time of a LogAppendTime batch.
    #[inline]
    pub fn max_timestamp(&self) -> Option<Timestamp> {
        match self.options.timestamp_type {
            TimestampType::LogAppendTime => self.options.log_append_time,
            TimestampType::CreateTime => Timestamp::from_raw(self.max_timestamp),
        }
    }

    /// The offset of the last record so far.
    #[inline]
    pub fn last_offset(&self) -> Option<Offset> {
        if self.is_empty() { None } else { Some(self.offset_of(self.next_delta.wrapping_sub(1))) }
    }

    /// Appends a record at the offset after the last one, the base offset at first, and returns that offset.
    ///
    /// # Errors
    /// Those of [`append_at`](RecordBatchBuilder::append_at).
    #[inline(always)]
    pub fn append(
        &mut self,
        timestamp: Option<Timestamp>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<Offset, EncodeError> {
        if headers.is_empty()
            && let Some(offset) = self.append_usual(Timestamp::to_raw(timestamp), key, value)
        {
            return Ok(offset);
        }
        self.append_any(timestamp, key, value, headers)
    }

    /// Appends a record as nearly all are: not the first, at the next offset, without headers, its deltas and all its
    /// lengths below 8192. `None`, and nothing is changed, where it is not one.
    #[inline(always)]
    fn append_usual(&mut self, time: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Option<Offset> {
        let timestamp_delta = time.wrapping_sub(self.usual_base) as u64;
        let offset_delta = self.next_delta as u64;
        let (key_len, value_len) = (key.map_or(0, <[u8]>::len), value.map_or(0, <[u8]>::len));
        let together = key_len + value_len;
        if (timestamp_delta | offset_delta) >= Short::END as u64 || together >= Short::END - 16 {
            return None;
        }
        // The attributes are 0.
        let timestamp_field = Short::new(timestamp_delta as usize).behind(0);
        let offset_field = Short::new(offset_delta as usize);
        let value_field = if value.is_some() { Short::new(value_len) } else { Short::NULL };
        let key_field = if key.is_some() { Short::new(key_len) } else { Short::NULL };
        let deltas = timestamp_field.len() + offset_field.len();
        let body = deltas + key_field.len() + value_field.len() + together + 1;
        let body_field = Short::new(body);

        let start = self.len;
        let into = self.buffer.get_mut(start..)?.get_mut(..together + SLACK)?;
        // Numbers are written four bytes at a time; those too many are zeroes, and written over by what comes next.
        let front = into.first_chunk_mut::<SLACK>()?;
        let mut at = 0;
        body_field.put(front, &mut at);
        timestamp_field.put(front, &mut at);
        offset_field.put(front, &mut at);
        if let Some(key) = key {
            key_field.put(front, &mut at);
            into[at..at + key_len].copy_from_slice(key);
            at += key_len;
            value_field.put(into, &mut at);
        } else {
            value_field.behind(1).put(front, &mut at);
        }
        if let Some(value) = value {
            into[at..at + value_len].copy_from_slice(value);
        }
        // No headers.
        into[at + value_len] = 0;
        self.len = start + body_field.len() + body;
        self.next_delta += 1;
        if time > self.max_timestamp {
            self.max_timestamp = time;
        }
        Some(self.offset_of(offset_delta as i64))
    }

    #[inline(never)]
    fn append_any(
        &mut self,
        timestamp: Option<Timestamp>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<Offset, EncodeError> {
        let offset = self.last_offset().map_or(self.options.base_offset, Offset::next);
        self.append_at(offset, timestamp, key, value, headers)?;
        Ok(offset)
    }

    #[inline]
    fn offset_of(&self, delta: i64) -> Offset {
        Offset::new(self.base_offset.wrapping_add(delta))
    }

    /// Appends a record. The bytes are copied; nothing changes where it fails.
    ///
    /// # Errors
    /// [`EncodeError::OffsetNotIncreasing`] unless the offset is above the last record's;
    /// [`EncodeError::OffsetOutOfRange`] where it is too far from the base offset; [`EncodeError::NegativeTimestamp`];
    /// [`EncodeError::TooLarge`] where the records would exceed what a 32-bit size can say.
    #[inline(never)]
    pub fn append_at(
        &mut self,
        offset: Offset,
        timestamp: Option<Timestamp>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<(), EncodeError> {
        self.append_parts(offset, timestamp, key, value, (headers.len(), headers.iter().copied()))
    }

    /// The same with headers that stand in no slice; so many as it says are there.
    fn append_parts<'h>(
        &mut self,
        offset: Offset,
        timestamp: Option<Timestamp>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: (usize, impl HeaderParts<'h>),
    ) -> Result<(), EncodeError> {
        let time = Timestamp::to_raw(timestamp);
        if time < -1 {
            return Err(EncodeError::NegativeTimestamp { found: Timestamp::new(time) });
        }
        let (base_offset, base_timestamp) = match self.last_offset() {
            None => {
                (self.options.base_offset.get(), self.options.delete_horizon.map_or(time, Timestamp::get))
            }
            Some(last) if offset <= last => {
                return Err(EncodeError::OffsetNotIncreasing { last, found: offset });
            }
            Some(_) => (self.base_offset, self.base_timestamp),
        };
        let offset_delta = delta(base_offset, offset)?;
        self.write(time.wrapping_sub(base_timestamp), offset_delta, key, value, headers)?;
        if self.is_empty() {
            self.base_offset = base_offset;
            self.base_timestamp = base_timestamp;
            self.usual_base = if base_timestamp < -1 { NO_BASE } else { base_timestamp };
            self.max_timestamp = -1;
        }
        let count = self.record_count() as i64 + 1;
        self.next_delta = i64::from(offset_delta) + 1;
        self.skipped = self.next_delta - count;
        self.max_timestamp = self.max_timestamp.max(time);
        Ok(())
    }

    fn write<'h>(
        &mut self,
        timestamp_delta: i64,
        offset_delta: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        (header_count, headers): (usize, impl HeaderParts<'h>),
    ) -> Result<(), EncodeError> {
        let offset_delta = i64::from(offset_delta);
        let body = body_size(timestamp_delta, offset_delta, key, value, (header_count, headers.clone()));
        let start = self.len;
        let end = start + varint::size(body as i64) + body;
        check_size(end)?;
        if end + SLACK > self.buffer.len() {
            self.grow(end);
        }
        let into = &mut self.buffer[start..end];
        let mut at = 0;
        varint::put(into, &mut at, body as i64);
        into[at] = 0;
        at += 1;
        varint::put(into, &mut at, timestamp_delta);
        varint::put(into, &mut at, offset_delta);
        put_len(into, &mut at, key);
        put_bytes(into, &mut at, key);
        put_len(into, &mut at, value);
        put_bytes(into, &mut at, value);
        varint::put(into, &mut at, header_count as i64);
        for (name, value) in headers {
            put_len(into, &mut at, Some(name));
            put_bytes(into, &mut at, Some(name));
            put_len(into, &mut at, value);
            put_bytes(into, &mut at, value);
        }
        debug_assert_eq!(at, into.len());
        self.len = end;
        Ok(())
    }

    #[cold]
    fn grow(&mut self, needed: usize) {
        self.buffer.resize((needed + SLACK).max(self.buffer.len() * 2).max(FIRST_CAPACITY), 0);
    }

    /// Drops the records appended since the last batch; the buffer is kept.
    pub fn clear(&mut self) {
        self.len = BATCH_OVERHEAD;
        self.next_delta = 0;
        self.skipped = 0;
        self.usual_base = NO_BASE;
        self.max_timestamp = -1;
    }

    /// The batch, in the builder's own buffer: nothing is copied, and nothing allocated once the buffer is large enough.
    /// The builder is empty again, also after an error. `None` without records.
    ///
    /// # Errors
    /// [`EncodeError::Contradiction`] for a transactional batch without producer id, and for a producer id without
    /// epoch or, unless it is a control batch, without base sequence; [`EncodeError::OffsetOutOfRange`] for the
    /// `last_offset` of the options; [`EncodeError::Level`], [`EncodeError::Codec`], [`EncodeError::CodecDisabled`];
    /// [`EncodeError::TooLarge`].
    pub fn build(&mut self) -> Result<Option<&[u8]>, EncodeError> {
        if self.is_empty() {
            return Ok(None);
        }
        let sealed = match self.options.codec {
            Codec::None => self.seal_records(),
            _ => self.compress(),
        };
        self.clear();
        let size = sealed?;
        match self.options.codec {
            Codec::None => Ok(Some(&self.buffer[..size])),
            _ => Ok(Some(self.compressed.as_slice())),
        }
    }

    /// The batch at the beginning of `buffer`, in exchange for the memory that was in it, with which the builder goes on:
    /// nothing is copied, unless it is compressed. Returns the batch's size; what is behind it in the buffer is of no use. The
    /// builder is empty again, also after an error. `None`, and no exchange, without records.
    ///
    /// ```
    /// use bytes::BytesMut;
    /// use kseg_format::{Batch, BatchOptions, RecordBatchBuilder};
    ///
    /// let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    /// let mut buffer = BytesMut::new();
    /// for value in [b"one", b"two"] {
    ///     builder.append(None, None, Some(value), &[])?;
    ///     let size = builder.exchange(&mut buffer)?.unwrap_or_default();
    ///     assert_eq!(Batch::parse(&buffer[..size])?.verify()?.size(), size);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`build`](RecordBatchBuilder::build); there is no exchange then.
    pub fn exchange(&mut self, buffer: &mut BytesMut) -> Result<Option<usize>, EncodeError> {
        if self.options.codec != Codec::None {
            let Some(batch) = self.build()? else { return Ok(None) };
            buffer.clear();
            buffer.extend_from_slice(batch);
            return Ok(Some(batch.len()));
        }
        let size = self.build()?.map(<[u8]>::len);
        if size.is_some() {
            mem::swap(buffer, &mut self.buffer);
        }
        Ok(size)
    }

    /// Appends the batch to `out` and returns its size; the builder is empty again, also after an error, and keeps its
    /// buffers. Without records nothing is written.
    ///
    /// # Errors
    /// Those of [`build`](RecordBatchBuilder::build). `out` is then as it was.
    pub fn finish(&mut self, out: &mut BytesMut) -> Result<Option<usize>, EncodeError> {
        let batch = self.build()?;
        Ok(batch.map(|batch| {
            out.extend_from_slice(batch);
            batch.len()
        }))
    }

    fn header(&self) -> Result<[u8; BATCH_OVERHEAD], EncodeError> {
        let options = &self.options;
        check_producer(options)?;
        let last_offset = options.last_offset.unwrap_or(self.offset_of(self.next_delta.wrapping_sub(1)));
        let header = HeaderFields {
            codec: options.codec,
            base_offset: self.base_offset,
            last_offset_delta: delta(self.base_offset, last_offset)?,
            base_timestamp: self.base_timestamp,
            max_timestamp: Timestamp::to_raw(self.max_timestamp()),
            delete_horizon: options.delete_horizon.is_some(),
            count: self.record_count() as u32,
        };
        Ok(header.encode(options))
    }

    /// Puts the header in front of the records; returns the batch's size.
    fn seal_records(&mut self) -> Result<usize, EncodeError> {
        let header = self.header()?;
        put_at(&mut self.buffer, 0, header);
        seal(&mut self.buffer[..self.len])
    }

    /// Puts header and compressed records into the buffer for them; returns the batch's size.
    fn compress(&mut self) -> Result<usize, EncodeError> {
        let BatchOptions { codec, level, .. } = self.options;
        let header = self.header()?;
        let out = &mut self.compressed;
        out.truncate(0);
        out.put(&header);
        compression::compress(codec, level, Magic::V2, &self.buffer[BATCH_OVERHEAD..self.len], out)?;
        seal(out.as_mut_slice())
    }

    /// Appends a batch of its header alone, as compaction leaves one whose records are all gone: of the options' base
    /// offset, timestamp type, leader epoch, producer, transactional and control flags. Returns its size. Records
    /// appended before are dropped.
    ///
    /// # Errors
    /// [`EncodeError::OffsetOutOfRange`].
    ///
    /// Source: Kafka `DefaultRecordBatch.writeEmptyHeader`.
    pub fn finish_empty(
        &mut self,
        out: &mut BytesMut,
        last_offset: Offset,
        max_timestamp: Option<Timestamp>,
    ) -> Result<usize, EncodeError> {
        self.clear();
        let base_offset = self.options.base_offset.get();
        let header = HeaderFields {
            codec: Codec::None,
            base_offset,
            last_offset_delta: delta(base_offset, last_offset)?,
            base_timestamp: -1,
            max_timestamp: Timestamp::to_raw(max_timestamp),
            delete_horizon: false,
            count: 0,
        };
        let start = out.len();
        out.extend_from_slice(&header.encode(&self.options));
        seal(&mut out[start..])
    }
}

/// The fields of a header that do not come from the options as they are.
struct HeaderFields {
    codec: Codec,
    base_offset: i64,
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    delete_horizon: bool,
    count: u32,
}

impl HeaderFields {
    /// The header, but for length and checksum.
    fn encode(&self, options: &BatchOptions) -> [u8; BATCH_OVERHEAD] {
        let attributes = Attributes::of(
            self.codec,
            options.timestamp_type,
            options.transactional,
            options.control,
            self.delete_horizon,
        );
        let (id, epoch, sequence) = match options.producer {
            Some(producer) => {
                (producer.id.get(), producer.epoch.get(), Sequence::to_raw(producer.base_sequence))
            }
            None => (-1, -1, -1),
        };
        let mut bytes = [0; BATCH_OVERHEAD];
        put_at(&mut bytes, BASE_OFFSET, self.base_offset.to_be_bytes());
        put_at(&mut bytes, EPOCH, LeaderEpoch::to_raw(options.leader_epoch).to_be_bytes());
        put_at(&mut bytes, MAGIC, Magic::V2.get().to_be_bytes());
        put_at(&mut bytes, ATTRIBUTES, attributes.get().to_be_bytes());
        put_at(&mut bytes, LAST_OFFSET_DELTA, self.last_offset_delta.to_be_bytes());
        put_at(&mut bytes, BASE_TIMESTAMP, self.base_timestamp.to_be_bytes());
        put_at(&mut bytes, MAX_TIMESTAMP, self.max_timestamp.to_be_bytes());
        put_at(&mut bytes, PRODUCER_ID, id.to_be_bytes());
        put_at(&mut bytes, PRODUCER_EPOCH, epoch.to_be_bytes());
        put_at(&mut bytes, BASE_SEQUENCE, sequence.to_be_bytes());
        put_at(&mut bytes, RECORDS_COUNT, self.count.to_be_bytes());
        bytes
    }
}

/// Checks that a batch of `size` bytes has a size that 32 bits can say; before compression its records must fit as well.
#[inline]
pub(crate) fn check_size(size: usize) -> Result<(), EncodeError> {
    if i32::try_from(size).is_err() { Err(EncodeError::TooLarge { size: size as u64 }) } else { Ok(()) }
}

/// Writes length and checksum of a batch that is whole otherwise.
fn seal(batch: &mut [u8]) -> Result<usize, EncodeError> {
    let size = batch.len();
    check_size(size)?;
    put_at(batch, LENGTH, ((size - LOG_OVERHEAD) as i32).to_be_bytes());
    let crc = crc::of_batch(Magic::V2, batch);
    put_at(batch, CRC, crc.to_be_bytes());
    Ok(size)
}

fn check_producer(options: &BatchOptions) -> Result<(), EncodeError> {
    let producer = options.producer.filter(|producer| producer.id.get() != -1);
    let what = match producer {
        None if options.transactional => "a transactional batch without a producer id",
        Some(producer) if producer.epoch.get() == -1 => "a producer id without an epoch",
        Some(producer) if Sequence::to_raw(producer.base_sequence) < 0 && !options.control => {
            "a producer id without a base sequence"
        }
        _ => return Ok(()),
    };
    Err(EncodeError::Contradiction { what })
}

#[inline]
fn delta(base: i64, offset: Offset) -> Result<i32, EncodeError> {
    offset
        .get()
        .checked_sub(base)
        .and_then(|delta| i32::try_from(delta).ok())
        .ok_or(EncodeError::OffsetOutOfRange { base: Offset::new(base), found: offset })
}

/// Names and values of a record's headers, which are gone over twice.
trait HeaderParts<'h>: Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone {}

impl<'h, I: Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone> HeaderParts<'h> for I {}

/// The bytes of a record behind its length field.
#[inline(always)]
fn body_size<'h>(
    timestamp_delta: i64,
    offset_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    (header_count, headers): (usize, impl HeaderParts<'h>),
) -> usize {
    let mut size = 1 + varint::size(timestamp_delta) + varint::size(offset_delta);
    size += size_with_length(key) + size_with_length(value) + varint::size(header_count as i64);
    for (name, value) in headers {
        size += size_with_length(Some(name)) + size_with_length(value);
    }
    size
}

/// The bytes of a length field and what it counts.
#[inline(always)]
fn size_with_length(bytes: Option<&[u8]>) -> usize {
    match bytes {
        Some(bytes) => varint::size(bytes.len() as i64) + bytes.len(),
        None => 1,
    }
}

#[inline(always)]
fn put_len(into: &mut [u8], at: &mut usize, bytes: Option<&[u8]>) {
    varint::put(into, at, bytes.map_or(-1, |bytes| bytes.len() as i64));
}

#[inline(always)]
fn put_bytes(into: &mut [u8], at: &mut usize, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        into[*at..*at + bytes.len()].copy_from_slice(bytes);
        *at += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_at_most_the_bytes_that_32_bits_can_say() {
        for size in [0, 61, i32::MAX as usize] {
            assert_eq!(check_size(size), Ok(()));
        }
        for size in [i32::MAX as usize + 1, u32::MAX as usize + 2, usize::MAX] {
            assert_eq!(check_size(size), Err(EncodeError::TooLarge { size: size as u64 }));
        }
    }
}
