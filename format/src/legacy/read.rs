//! Reading messages, plain and wrapped.
//!
//! ```text
//! entry:   0 offset i64   8 size i32   12 message
//! message: 0 crc u32   4 magic i8   5 attributes i8   (magic 1: 6 timestamp i64)   key length i32, key, value length i32, value
//! ```
//!
//! A wrapper of magic 0 holds messages with their offsets; one of magic 1 with offsets from 0 up, and its own offset is
//! the last one's. Inner checksums are looked at by the leader's validation alone.

use crate::batch::Batch;
use crate::batch::header::{BatchHeader, LENGTH, LOG_OVERHEAD, MIN_SIZE_FIELD, i32_at, i64_at};
use crate::codec::{Codec, Magic, TimestampType};
use crate::compression::{Pieces, Stream};
use crate::error::{DecodeError, Expected, Found, Place};
use crate::number::Offset;
use crate::record::Record;

const CRC: usize = 0;
const MAGIC: usize = CRC + 4;
const ATTRIBUTES: usize = MAGIC + 1;
const TIMESTAMP: usize = ATTRIBUTES + 1;

/// A message without the entry around it, at least [`MIN_SIZE_FIELD`] bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'s> {
    bytes: &'s [u8],
    /// Where its first byte stands.
    place: Place,
}

impl<'s> Message<'s> {
    /// Any magic but 0 has the layout of 1.
    pub(crate) fn magic(&self) -> i8 {
        self.bytes[MAGIC] as i8
    }

    pub(crate) fn attributes(&self) -> i8 {
        self.bytes[ATTRIBUTES] as i8
    }

    pub(crate) fn codec_id(&self) -> u8 {
        self.bytes[ATTRIBUTES] & 0x07
    }

    /// The checksum that stands in it, and that of its bytes.
    pub(crate) fn checksums(&self) -> (u32, u32) {
        (i32_at(self.bytes, CRC) as u32, crc32fast::hash(&self.bytes[MAGIC..]))
    }

    /// Its bytes with the entry around it.
    pub(crate) fn size(&self) -> usize {
        LOG_OVERHEAD + self.bytes.len()
    }

    fn timestamp(&self) -> i64 {
        if self.magic() == 0 { -1 } else { i64_at(self.bytes, TIMESTAMP) }
    }

    fn key_at(&self) -> usize {
        if self.magic() == 0 { TIMESTAMP } else { TIMESTAMP + 8 }
    }

    fn value_at(&self) -> Result<usize, DecodeError> {
        let key_at = self.key_at();
        let length = self.length_at("key length", key_at)?;
        Ok(key_at + 4 + length.max(0) as usize)
    }

    pub(crate) fn key(&self) -> Result<Option<&'s [u8]>, DecodeError> {
        self.bytes_at("key length", self.key_at())
    }

    pub(crate) fn value(&self) -> Result<Option<&'s [u8]>, DecodeError> {
        self.bytes_at("value length", self.value_at()?)
    }

    fn length_at(&self, field: &'static str, at: usize) -> Result<i32, DecodeError> {
        match self.bytes.get(at..).and_then(|rest| rest.get(..4)) {
            Some(length) => Ok(i32_at(length, 0)),
            None => {
                let left = self.bytes.len().saturating_sub(at) as u64;
                Err(DecodeError::corrupt(field, self.place_of(at), Expected::Bytes(4), Found::Bytes(left)))
            }
        }
    }

    fn bytes_at(&self, field: &'static str, at: usize) -> Result<Option<&'s [u8]>, DecodeError> {
        let length = self.length_at(field, at)?;
        if length < 0 {
            return Ok(None);
        }
        let rest = &self.bytes[at + 4..];
        rest.get(..length as usize).map(Some).ok_or_else(|| {
            let expected = Expected::AtMost(rest.len() as i64);
            DecodeError::corrupt(field, self.place_of(at), expected, Found::Value(i64::from(length)))
        })
    }

    fn place_of(&self, at: usize) -> Place {
        match self.place {
            Place::Records(base) => Place::Records(base + at),
            Place::Batch(base) => Place::Batch(base + at),
            other => other,
        }
    }

    fn record(&self, offset: i64, timestamp: i64) -> Result<Record<'s>, DecodeError> {
        Ok(Record {
            offset,
            timestamp,
            key: self.key()?,
            value: self.value()?,
            headers: &[],
            header_count: 0,
            sequence: -1,
            size: self.size() as u32,
            attributes: self.attributes(),
        })
    }
}

/// The one record of an uncompressed message.
#[derive(Clone, Debug)]
pub(crate) struct Single<'s> {
    message: Message<'s>,
    offset: i64,
    done: bool,
}

impl<'s> Single<'s> {
    pub(crate) fn open<'a: 's>(batch: &Batch<'a>) -> Single<'s> {
        Single { message: message_of(batch), offset: batch.header().raw_base_offset(), done: false }
    }

    pub(crate) fn next(&mut self) -> Option<Result<Record<'s>, DecodeError>> {
        if std::mem::replace(&mut self.done, true) {
            return None;
        }
        Some(self.message.record(self.offset, self.message.timestamp()))
    }
}

/// The message of a legacy batch. Its header has been read, so the message has its minimum length.
fn message_of<'a>(batch: &Batch<'a>) -> Message<'a> {
    Message { bytes: &batch.as_bytes()[LOG_OVERHEAD..], place: Place::Batch(LOG_OVERHEAD) }
}

/// The codec and the bytes of a wrapper's messages.
fn payload_of<'a>(batch: &Batch<'a>) -> Result<(Codec, &'a [u8]), DecodeError> {
    let codec = batch.header().codec()?;
    let message = message_of(batch);
    if codec == Codec::Zstd {
        let place = message.place_of(ATTRIBUTES);
        let expected = Expected::Words("none, gzip, snappy or lz4 in a message of magic 0 or 1");
        return Err(DecodeError::invalid("codec", place, expected, Found::Value(i64::from(codec.id()))));
    }
    match message.value()? {
        Some(value) => Ok((codec, value)),
        None => {
            let place = message.place_of(message.value_at()?);
            Err(DecodeError::invalid("value length", place, Expected::AtLeast(0), Found::Value(-1)))
        }
    }
}

/// A message in a wrapper, with the offset and the time that it has there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner<'s> {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) message: Message<'s>,
}

impl<'s> Inner<'s> {
    pub(crate) fn record(self) -> Result<Record<'s>, DecodeError> {
        self.message.record(self.offset, self.timestamp)
    }
}

/// What the messages in a wrapper have from it.
#[derive(Clone, Copy, Debug)]
struct Outer {
    /// What is added to the inner offsets; they are absolute where it is negative.
    base: i64,
    /// The time of all messages of magic 1.
    append_time: Option<i64>,
}

impl Outer {
    /// `last` is the offset of the last message in it, and `len` how many bytes it was decompressed to.
    fn of(header: &BatchHeader, last: Option<i64>, len: usize) -> Result<Outer, DecodeError> {
        let Some(last) = last else {
            let expected = Expected::Words("one message or more");
            let found = Found::Bytes(len as u64);
            return Err(DecodeError::invalid("inner messages", Place::Records(0), expected, found));
        };
        let wrapper = header.raw_base_offset();
        let base = match header.magic() {
            Magic::V0 => -1,
            _ if wrapper == 0 => 0,
            _ if wrapper < last => {
                let expected = Expected::AtLeast(last);
                return Err(DecodeError::invalid("offset", Place::Batch(0), expected, Found::Value(wrapper)));
            }
            _ => wrapper.wrapping_sub(last),
        };
        let append_time = match header.timestamp_type() {
            Some(TimestampType::LogAppendTime) => Some(header.raw_max_timestamp()),
            _ => None,
        };
        Ok(Outer { base, append_time })
    }

    /// A message with its offset as it stands there. One that is compressed itself is an error.
    fn inner<'s>(self, offset: i64, message: Message<'s>) -> Result<Inner<'s>, DecodeError> {
        let place = message.place_of(ATTRIBUTES);
        match Codec::from_id(message.codec_id()) {
            Some(Codec::None) => {}
            Some(codec) => {
                let found = Found::Value(i64::from(codec.id()));
                return Err(DecodeError::invalid("inner codec", place, Expected::Exactly(0), found));
            }
            None => return Err(DecodeError::UnknownCodec { id: message.codec_id(), place }),
        }
        Ok(Inner {
            offset: if self.base >= 0 { self.base.wrapping_add(offset) } else { offset },
            timestamp: match self.append_time {
                Some(time) if message.magic() == 1 => time,
                _ => message.timestamp(),
            },
            message,
        })
    }
}

/// The messages in a wrapper that has been decompressed whole.
///
/// Source: Kafka `AbstractLegacyRecordBatch.DeepRecordsIterator`.
#[derive(Clone, Debug)]
pub(crate) struct Wrapped<'s> {
    data: &'s [u8],
    at: usize,
    outer: Outer,
    ended: bool,
}

impl<'s> Wrapped<'s> {
    /// Decompresses a wrapper into `scratch` and looks at all inner offsets and sizes.
    pub(crate) fn open(
        batch: &Batch<'_>,
        scratch: &'s mut Vec<u8>,
        limit: usize,
    ) -> Result<Wrapped<'s>, DecodeError> {
        let header = batch.header();
        let (codec, payload) = payload_of(batch)?;
        let mut stream = Stream::open(codec, header.magic(), payload, limit)?;
        let decompressed = stream.read_all(scratch);
        let data: &'s [u8] = scratch;
        // Kafka looks at them while it decompresses, so what is wrong in front of the codec's fault comes first.
        let (mut last, mut at) = (None, 0);
        while let Some((offset, message)) = entry(&data[at..], at)? {
            last = Some(offset);
            at += message.size();
        }
        decompressed?;
        Ok(Wrapped { data, at: 0, outer: Outer::of(header, last, data.len())?, ended: false })
    }

    /// The offset of the first message.
    pub(crate) fn first_offset(mut self) -> Result<Offset, DecodeError> {
        // There is one: `open` has seen it.
        Ok(Offset::new(self.step()?.map_or(self.outer.base, |inner| inner.offset)))
    }

    pub(crate) fn next(&mut self) -> Option<Result<Record<'s>, DecodeError>> {
        if self.ended {
            return None;
        }
        let record = self.step().and_then(|inner| inner.map(Inner::record).transpose()).transpose();
        self.ended = !matches!(record, Some(Ok(_)));
        record
    }

    fn step(&mut self) -> Result<Option<Inner<'s>>, DecodeError> {
        let Some((offset, message)) = entry(&self.data[self.at..], self.at)? else { return Ok(None) };
        self.at += message.size();
        self.outer.inner(offset, message).map(Some)
    }
}

/// The messages in a wrapper, decompressed as they are asked for.
///
/// What offsets of magic 1 count from hangs on the last message, so all are passed over first. A wrapper of more than
/// [`KEPT_LEN`] bytes is decompressed a second time for the messages themselves.
#[derive(Debug)]
pub(crate) struct WrapperStream<'a> {
    pieces: Pieces<'a>,
    outer: Outer,
    /// How many messages are still to come.
    left: u64,
}

/// Of the first pass over a wrapper so much is kept for the second.
const KEPT_LEN: usize = 512 * 1024;

impl<'a> WrapperStream<'a> {
    /// Looks at all inner offsets and sizes.
    pub(crate) fn open(batch: &Batch<'a>, limit: usize) -> Result<WrapperStream<'a>, DecodeError> {
        let header = batch.header();
        let (codec, payload) = payload_of(batch)?;
        let open = || Stream::open(codec, header.magic(), payload, limit);
        let mut pieces = Pieces::new(open()?, KEPT_LEN);
        let (mut last, mut left) = (None, 0);
        loop {
            pieces.until(|rest| rest.len() >= LOG_OVERHEAD)?;
            let Some((offset, size)) = entry_head(pieces.rest(), pieces.position())? else { break };
            if !pieces.skip(LOG_OVERHEAD + size)? {
                break;
            }
            last = Some(offset);
            left += 1;
        }
        let outer = Outer::of(header, last, pieces.produced())?;
        if !pieces.rewind() {
            pieces = Pieces::new(open()?, 0);
        }
        Ok(WrapperStream { pieces, outer, left })
    }

    /// What `of` makes of the next message; none comes after an error.
    pub(crate) fn next<'s, T>(
        &'s mut self,
        of: impl FnOnce(Inner<'s>) -> Result<T, DecodeError>,
    ) -> Option<Result<T, DecodeError>> {
        self.left = self.left.checked_sub(1)?;
        let next = next_of(&mut self.pieces, self.outer).and_then(|inner| inner.map(of).transpose());
        if next.is_err() {
            self.left = 0;
        }
        next.transpose()
    }
}

fn next_of<'s>(pieces: &'s mut Pieces<'_>, outer: Outer) -> Result<Option<Inner<'s>>, DecodeError> {
    pieces.until(|rest| !matches!(entry(rest, 0), Ok(None)))?;
    let at = pieces.position();
    let (rest, taken) = pieces.rest_and_taken();
    let Some((offset, message)) = entry(rest, at)? else { return Ok(None) };
    *taken += message.size();
    outer.inner(offset, message).map(Some)
}

/// The first entry of decompressed bytes, which stand at `at` of all: its offset and message. `None` where it is cut.
fn entry(bytes: &[u8], at: usize) -> Result<Option<(i64, Message<'_>)>, DecodeError> {
    let Some((offset, size)) = entry_head(bytes, at)? else { return Ok(None) };
    let place = Place::Records(at + LOG_OVERHEAD);
    Ok(bytes[LOG_OVERHEAD..].get(..size).map(|bytes| (offset, Message { bytes, place })))
}

/// The offset of an entry and the size of its message.
fn entry_head(bytes: &[u8], at: usize) -> Result<Option<(i64, usize)>, DecodeError> {
    let Some(head) = bytes.first_chunk::<LOG_OVERHEAD>() else { return Ok(None) };
    let size = i32_at(head, LENGTH);
    if size < MIN_SIZE_FIELD as i32 {
        return Err(DecodeError::corrupt(
            "inner message size",
            Place::Records(at + LENGTH),
            Expected::AtLeast(MIN_SIZE_FIELD as i64),
            Found::Value(i64::from(size)),
        ));
    }
    Ok(Some((i64_at(head, 0), size as usize)))
}
