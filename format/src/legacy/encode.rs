//! Writing messages of magic 0 and 1.

use bytes::{BufMut, BytesMut};

use crate::batch::Attributes;
use crate::batch::builder::check_size;
use crate::batch::header::{LEGACY_CRC, LENGTH, LOG_OVERHEAD, put_at};
use crate::codec::{Codec, Magic, TimestampType};
use crate::compression::{self, Output};
use crate::crc;
use crate::error::EncodeError;
use crate::number::{Offset, Timestamp};

/// What the messages of one call have in common.
#[allow(clippy::exhaustive_structs, reason = "to be used with `..LegacyOptions::default()`")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LegacyOptions {
    /// 0 or 1. Default: 1.
    pub magic: Magic,
    /// Whether and how all messages are wrapped into one. Default: not at all.
    pub codec: Codec,
    /// The codec's level; `None` for its own default.
    pub level: Option<i32>,
    /// What the timestamps mean (magic 1). Default: CreateTime.
    pub timestamp_type: TimestampType,
    /// The timestamp of a LogAppendTime wrapper, or of each plain LogAppendTime message.
    pub log_append_time: Option<Timestamp>,
    /// What the offsets in a wrapper of magic 1 count from. Default: 0.
    pub base_offset: Offset,
}

impl Default for LegacyOptions {
    fn default() -> LegacyOptions {
        LegacyOptions {
            magic: Magic::V1,
            codec: Codec::None,
            level: None,
            timestamp_type: TimestampType::CreateTime,
            log_append_time: None,
            base_offset: Offset::ZERO,
        }
    }
}

/// A message to be written.
#[allow(clippy::exhaustive_structs, reason = "a message has these four parts")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LegacyRecord<'a> {
    /// Its offset; above that of the one before.
    pub offset: Offset,
    /// Its time; left out with magic 0.
    pub timestamp: Option<Timestamp>,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
}

/// Appends messages to `out`, with a codec wrapped into one. For tools and tests: no log takes new ones.
///
/// # Errors
/// [`EncodeError::Unsupported`] for magic 2, [`EncodeError::Contradiction`] for zstd; offsets that do not increase or,
/// in a wrapper of magic 1, do not fit; a negative timestamp; a codec's own. `out` is then as it was.
///
/// Source: Kafka `MemoryRecordsBuilder`, `LegacyRecord.write`.
pub fn encode(
    options: &LegacyOptions,
    records: &[LegacyRecord<'_>],
    out: &mut BytesMut,
) -> Result<(), EncodeError> {
    let start = out.len();
    let result = if options.magic == Magic::V2 {
        Err(EncodeError::Unsupported { magic: Magic::V2, what: "legacy messages" })
    } else if options.codec == Codec::Zstd {
        Err(EncodeError::Contradiction { what: "zstd in a message of magic 0 or 1" })
    } else {
        match options.codec {
            Codec::None => plain(options, records, false, out).map(drop),
            codec => wrapped(codec, options, records, out),
        }
    };
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Writes one message after the other and returns the largest timestamp.
fn plain(
    options: &LegacyOptions,
    records: &[LegacyRecord<'_>],
    inner: bool,
    out: &mut BytesMut,
) -> Result<Option<Timestamp>, EncodeError> {
    let mut last: Option<Offset> = None;
    let mut largest = None;
    for record in records {
        if let Some(last) = last
            && record.offset <= last
        {
            return Err(EncodeError::OffsetNotIncreasing { last, found: record.offset });
        }
        last = Some(record.offset);
        if let Some(timestamp) = record.timestamp.filter(|timestamp| timestamp.get() < -1) {
            return Err(EncodeError::NegativeTimestamp { found: timestamp });
        }
        let stamped = if !inner && options.timestamp_type == TimestampType::LogAppendTime {
            options.log_append_time
        } else {
            record.timestamp
        };
        largest = largest.max(stamped);
        let offset = if inner && options.magic == Magic::V1 {
            let base = options.base_offset;
            let relative = record.offset.get().checked_sub(base.get());
            relative.ok_or(EncodeError::OffsetOutOfRange { base, found: record.offset })?
        } else {
            record.offset.get()
        };
        message(options, Codec::None, offset, stamped, record.key, record.value, out)?;
    }
    Ok(largest)
}

fn wrapped(
    codec: Codec,
    options: &LegacyOptions,
    records: &[LegacyRecord<'_>],
    out: &mut BytesMut,
) -> Result<(), EncodeError> {
    let Some(last) = records.last() else { return Ok(()) };
    let mut inner = BytesMut::new();
    let largest = plain(options, records, true, &mut inner)?;
    let timestamp = match options.timestamp_type {
        TimestampType::LogAppendTime => options.log_append_time,
        TimestampType::CreateTime => largest,
    };
    let mut value = Output::default();
    compression::compress(codec, options.level, options.magic, &inner, &mut value)?;
    message(options, codec, last.offset.get(), timestamp, None, Some(value.as_slice()), out)
}

fn message(
    options: &LegacyOptions,
    codec: Codec,
    offset: i64,
    timestamp: Option<Timestamp>,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    out: &mut BytesMut,
) -> Result<(), EncodeError> {
    let start = out.len();
    let timestamp_type =
        if options.magic == Magic::V0 { TimestampType::CreateTime } else { options.timestamp_type };
    out.put_i64(offset);
    out.put_i32(0);
    out.put_u32(0);
    out.put_i8(options.magic.get());
    out.put_u8(Attributes::of(codec, timestamp_type, false, false, false).get() as u8);
    if options.magic == Magic::V1 {
        out.put_i64(Timestamp::to_raw(timestamp));
    }
    for bytes in [key, value] {
        match bytes {
            Some(bytes) => {
                let too_large = EncodeError::TooLarge { size: bytes.len() as u64 };
                out.put_i32(i32::try_from(bytes.len()).map_err(|_| too_large)?);
                out.put_slice(bytes);
            }
            None => out.put_i32(-1),
        }
    }
    let batch = &mut out[start..];
    check_size(batch.len())?;
    put_at(batch, LENGTH, ((batch.len() - LOG_OVERHEAD) as i32).to_be_bytes());
    let crc = crc::of_batch(options.magic, batch);
    put_at(batch, LEGACY_CRC, crc.to_be_bytes());
    Ok(())
}
