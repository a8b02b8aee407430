//! Records that own their bytes.

use bytes::Bytes;

use super::{Header, Record};
use crate::number::{Offset, Sequence, Timestamp};

/// A record that owns its bytes: to be kept, sent to another thread, or, with the feature `serde`, written elsewhere.
///
/// With `serde` a name or value is a byte string, in formats that have none a list of numbers, and a missing one a null.
///
/// ```
/// use bytes::BytesMut;
/// use kseg_format::{Batch, BatchOptions, OwnedRecord, RecordBatchBuilder};
///
/// let mut builder = RecordBatchBuilder::new(BatchOptions::default());
/// builder.append(None, Some(b"key"), None, &[(b"why", Some(b"old"))])?;
/// let mut bytes = BytesMut::new();
/// builder.finish(&mut bytes)?;
///
/// let mut scratch = Vec::new();
/// let records: Vec<OwnedRecord> = Batch::parse(&bytes)?
///     .records(&mut scratch, 1 << 20)?
///     .map(|record| record.map(OwnedRecord::from))
///     .collect::<Result<_, _>>()?;
/// assert_eq!(records[0].key.as_deref(), Some(&b"key"[..]));
///
/// builder.append_owned(&records[0])?;
/// let mut again = BytesMut::new();
/// builder.finish(&mut again)?;
/// assert_eq!(again, bytes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[allow(
    clippy::exhaustive_structs,
    reason = "a record has these parts; to be used with `..OwnedRecord::default()`"
)]
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OwnedRecord {
    /// Its number in the partition.
    pub offset: Offset,
    /// Its own time or, where its batch has LogAppendTime, the batch's.
    pub timestamp: Option<Timestamp>,
    /// Its producer's number for it.
    pub sequence: Option<Sequence>,
    /// The key.
    pub key: Option<Bytes>,
    /// The value; without one it is a tombstone.
    pub value: Option<Bytes>,
    /// The headers, in order.
    pub headers: Vec<OwnedHeader>,
}

/// A record's header that owns its bytes.
#[allow(clippy::exhaustive_structs, reason = "a header is this pair")]
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OwnedHeader {
    /// The name's bytes, which ought to be UTF-8.
    pub key: Bytes,
    /// The value.
    pub value: Option<Bytes>,
}

impl From<Header<'_>> for OwnedHeader {
    fn from(header: Header<'_>) -> OwnedHeader {
        OwnedHeader {
            key: Bytes::copy_from_slice(header.key),
            value: header.value.map(Bytes::copy_from_slice),
        }
    }
}

impl From<Record<'_>> for OwnedRecord {
    fn from(record: Record<'_>) -> OwnedRecord {
        OwnedRecord {
            offset: record.offset(),
            timestamp: record.timestamp(),
            sequence: record.sequence(),
            key: record.key().map(Bytes::copy_from_slice),
            value: record.value().map(Bytes::copy_from_slice),
            headers: record.headers().map(OwnedHeader::from).collect(),
        }
    }
}
