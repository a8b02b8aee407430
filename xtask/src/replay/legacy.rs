//! Messages of magic 0 and 1 from their descriptions.

use bytes::BytesMut;
use kseg_format::legacy::{self, LegacyOptions, LegacyRecord};
use kseg_format::{Codec, Magic, Offset, Timestamp};

use super::batch::Described;
use super::protocol::{Failure, Fields};

/// Plain messages, or with a codec one wrapper around all of them.
///
/// # Errors
/// Kafka would refuse to build it.
pub(crate) fn build(
    op: Fields<'_>,
    magic: i64,
    codec: Codec,
    records: &[Described],
) -> Result<Vec<u8>, Failure> {
    let options = LegacyOptions {
        magic: if magic == 0 { Magic::V0 } else { Magic::V1 },
        codec,
        level: op.long("level").and_then(|l| i32::try_from(l).ok()),
        timestamp_type: super::batch::timestamp_type(op),
        log_append_time: Timestamp::from_raw(op.long_or("logAppendTime", -1)),
        base_offset: Offset::new(op.long_or("baseOffset", 0)),
    };
    let stamped = |r: &Described| match options.magic {
        Magic::V0 => None,
        _ => Timestamp::from_raw(r.timestamp),
    };
    let messages: Vec<LegacyRecord<'_>> = records
        .iter()
        .map(|r| LegacyRecord {
            offset: Offset::new(r.offset),
            timestamp: stamped(r),
            key: r.key.as_deref(),
            value: r.value.as_deref(),
        })
        .collect();
    let mut out = BytesMut::new();
    legacy::encode(&options, &messages, &mut out)?;
    Ok(out.to_vec())
}
