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
use crate::batch::header::{LENGTH, LOG_OVERHEAD, MIN_SIZE_FIELD, i32_at, i64_at};
use crate::codec::{Codec, Magic, TimestampType};
use crate::compression;
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

    pub(crate) fn has_right_crc(&self) -> bool {
        i32_at(self.bytes, CRC) as u32 == crc32fast::hash(&self.bytes[MAGIC..])
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

/// The messages in a wrapper.
#[derive(Clone, Debug)]
pub(crate) struct Wrapped<'s> {
    entries: Entries<'s>,
    /// What is added to the inner offsets; they are absolute where it is negative.
    base: i64,
    /// The time of all messages of magic 1.
    append_time: Option<i64>,
    ended: bool,
}

impl<'s> Wrapped<'s> {
    /// Decompresses a wrapper into `scratch` and looks at all inner offsets and sizes.
    ///
    /// Source: Kafka `AbstractLegacyRecordBatch.DeepRecordsIterator`.
    pub(crate) fn open(
        batch: &Batch<'_>,
        scratch: &'s mut Vec<u8>,
        limit: usize,
    ) -> Result<Wrapped<'s>, DecodeError> {
        let header = batch.header();
        let codec = header.codec()?;
        let message = message_of(batch);
        if codec == Codec::Zstd {
            let place = message.place_of(ATTRIBUTES);
            let expected = Expected::Words("none, gzip, snappy or lz4 in a message of magic 0 or 1");
            return Err(DecodeError::invalid("codec", place, expected, Found::Value(i64::from(codec.id()))));
        }
        let Some(value) = message.value()? else {
            let place = message.place_of(message.value_at()?);
            return Err(DecodeError::invalid("value length", place, Expected::AtLeast(0), Found::Value(-1)));
        };
        scratch.clear();
        compression::decompress(codec, header.magic(), value, scratch, limit)?;

        let data: &'s [u8] = scratch;
        let entries = Entries { data, at: 0 };
        let mut last = None;
        let mut scan = entries.clone();
        while let Some((offset, _)) = scan.next()? {
            last = Some(offset);
        }
        let Some(last) = last else {
            let expected = Expected::Words("one message or more");
            let found = Found::Bytes(data.len() as u64);
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
        Ok(Wrapped {
            entries,
            base,
            append_time: match header.timestamp_type() {
                Some(TimestampType::LogAppendTime) => Some(header.raw_max_timestamp()),
                _ => None,
            },
            ended: false,
        })
    }

    /// The walk without its bytes.
    pub(crate) fn into_walk(self) -> Walk {
        Walk { at: self.entries.at, base: self.base, append_time: self.append_time, ended: self.ended }
    }

    /// The offset of the first message.
    pub(crate) fn first_offset(mut self) -> Result<Offset, DecodeError> {
        match self.next_message() {
            Some(Ok((offset, _))) => Ok(Offset::new(offset)),
            Some(Err(error)) => Err(error),
            // There is one: `open` has seen it.
            None => Ok(Offset::new(self.base)),
        }
    }

    /// The next message with its absolute offset. One that is compressed itself is an error.
    pub(crate) fn next_message(&mut self) -> Option<Result<(i64, Message<'s>), DecodeError>> {
        if self.ended {
            return None;
        }
        let item = self.step().transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }

    fn step(&mut self) -> Result<Option<(i64, Message<'s>)>, DecodeError> {
        let Some((offset, message)) = self.entries.next()? else { return Ok(None) };
        let place = message.place_of(ATTRIBUTES);
        match Codec::from_id(message.codec_id()) {
            Some(Codec::None) => {}
            Some(codec) => {
                let found = Found::Value(i64::from(codec.id()));
                return Err(DecodeError::invalid("inner codec", place, Expected::Exactly(0), found));
            }
            None => return Err(DecodeError::UnknownCodec { id: message.codec_id(), place }),
        }
        let offset = if self.base >= 0 { self.base.wrapping_add(offset) } else { offset };
        Ok(Some((offset, message)))
    }

    /// The time of a message in this wrapper.
    pub(crate) fn timestamp(&self, message: &Message<'_>) -> i64 {
        match self.append_time {
            Some(time) if message.magic() == 1 => time,
            _ => message.timestamp(),
        }
    }

    /// The record of a message that [`next_message`](Wrapped::next_message) gave.
    pub(crate) fn record(&self, offset: i64, message: &Message<'s>) -> Result<Record<'s>, DecodeError> {
        message.record(offset, self.timestamp(message))
    }

    pub(crate) fn next(&mut self) -> Option<Result<Record<'s>, DecodeError>> {
        let (offset, message) = match self.next_message()? {
            Ok(next) => next,
            Err(error) => return Some(Err(error)),
        };
        let record = self.record(offset, &message);
        self.ended = record.is_err();
        Some(record)
    }
}

/// How far a walk over the messages of a wrapper has come, the bytes apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    at: usize,
    base: i64,
    append_time: Option<i64>,
    ended: bool,
}

impl Walk {
    /// The next record; `data` is always what the wrapper was decompressed into.
    pub(crate) fn next<'s>(&mut self, data: &'s [u8]) -> Option<Result<Record<'s>, DecodeError>> {
        let Walk { at, base, append_time, ended } = *self;
        let mut messages = Wrapped { entries: Entries { data, at }, base, append_time, ended };
        let record = messages.next();
        (self.at, self.ended) = (messages.entries.at, messages.ended);
        record
    }
}

/// The entries in decompressed bytes; a cut one ends them.
#[derive(Clone, Debug)]
struct Entries<'s> {
    data: &'s [u8],
    at: usize,
}

impl<'s> Entries<'s> {
    fn next(&mut self) -> Result<Option<(i64, Message<'s>)>, DecodeError> {
        let rest = &self.data[self.at..];
        let Some((start, rest)) = rest.split_first_chunk::<LOG_OVERHEAD>() else { return Ok(None) };
        let size = i32_at(start, LENGTH);
        if size < MIN_SIZE_FIELD as i32 {
            return Err(DecodeError::corrupt(
                "inner message size",
                Place::Records(self.at + LENGTH),
                Expected::AtLeast(MIN_SIZE_FIELD as i64),
                Found::Value(i64::from(size)),
            ));
        }
        let Some(bytes) = rest.get(..size as usize) else { return Ok(None) };
        let place = Place::Records(self.at + LOG_OVERHEAD);
        self.at += LOG_OVERHEAD + bytes.len();
        Ok(Some((i64_at(start, 0), Message { bytes, place })))
    }
}
