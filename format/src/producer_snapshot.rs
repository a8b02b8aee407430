//! A producer snapshot as bytes.
//!
//! | at | width | field |
//! |---|---|---|
//! | 0 | 2 | version, 1 |
//! | 2 | 4 | CRC-32C of everything behind |
//! | 6 | 4 | number of entries |
//! | 10 | 46 each | producer id 8, epoch 2, last sequence 4, last offset 8, offset delta 4, timestamp 8, coordinator epoch 4, first offset of the open transaction 8 |
//!
//! Of a producer's batches only the last is kept. -1 stands for what there is none of; a batch and a transaction with another
//! negative offset are none either.
//!
//! Source: Kafka `ProducerStateManager.writeSnapshot`, `readSnapshot`.

use std::fmt;

use crate::crc;
use crate::number::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// What a snapshot tells of a producer.
#[allow(clippy::exhaustive_structs, reason = "an entry of version 1 has these fields")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its epoch; `None` where only markers that say nothing were met.
    pub producer_epoch: Option<ProducerEpoch>,
    /// Its last batch of data, where it has one.
    pub last_batch: Option<SnapshotBatch>,
    /// Timestamp of its last batch or marker.
    pub timestamp: Option<Timestamp>,
    /// Epoch of the coordinator that wrote its last marker.
    pub coordinator_epoch: Option<i32>,
    /// First offset of its open transaction.
    pub transaction_start: Option<Offset>,
}

impl SnapshotEntry {
    /// Where the entry at `index` begins in a snapshot, in bytes.
    pub const fn position(index: usize) -> usize {
        HEADER_LEN + index * ENTRY_LEN
    }
}

/// What a snapshot tells of a producer's last batch of data.
#[allow(clippy::exhaustive_structs, reason = "an entry of version 1 has these fields")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotBatch {
    /// Sequence of its last record; `None` where it has none (a coordinator's batch).
    pub last_sequence: Option<Sequence>,
    /// Its last offset.
    pub last_offset: Offset,
    /// That offset minus the batch's base offset.
    pub offset_delta: i32,
}

const VERSION: i16 = 1;

const VERSION_AT: usize = 0;
const CRC_AT: usize = VERSION_AT + 2;
const COUNT_AT: usize = CRC_AT + 4;
const HEADER_LEN: usize = COUNT_AT + 4;
const _: () = assert!(HEADER_LEN == 10);

const ID_AT: usize = 0;
const EPOCH_AT: usize = ID_AT + 8;
const LAST_SEQUENCE_AT: usize = EPOCH_AT + 2;
const LAST_OFFSET_AT: usize = LAST_SEQUENCE_AT + 4;
const OFFSET_DELTA_AT: usize = LAST_OFFSET_AT + 8;
const TIMESTAMP_AT: usize = OFFSET_DELTA_AT + 4;
const COORDINATOR_EPOCH_AT: usize = TIMESTAMP_AT + 8;
const TRANSACTION_START_AT: usize = COORDINATOR_EPOCH_AT + 4;
const ENTRY_LEN: usize = TRANSACTION_START_AT + 8;
const _: () = assert!(ENTRY_LEN == 46);

/// Writes a snapshot of `entries`, in their order.
pub fn encode_snapshot(entries: impl IntoIterator<Item = SnapshotEntry>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    let mut count: i32 = 0;
    for entry in entries {
        let (sequence, offset, delta) = match entry.last_batch {
            Some(batch) => {
                (Sequence::to_raw(batch.last_sequence), batch.last_offset.get(), batch.offset_delta)
            }
            None => (-1, -1, 0),
        };
        bytes.extend(entry.producer_id.get().to_be_bytes());
        bytes.extend(ProducerEpoch::to_raw(entry.producer_epoch).to_be_bytes());
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(delta.to_be_bytes());
        bytes.extend(Timestamp::to_raw(entry.timestamp).to_be_bytes());
        bytes.extend(entry.coordinator_epoch.unwrap_or(-1).to_be_bytes());
        bytes.extend(entry.transaction_start.map_or(-1, Offset::get).to_be_bytes());
        count += 1;
    }
    bytes[VERSION_AT..CRC_AT].copy_from_slice(&VERSION.to_be_bytes());
    bytes[COUNT_AT..HEADER_LEN].copy_from_slice(&count.to_be_bytes());
    let crc = crc::crc32c(&bytes[COUNT_AT..]);
    bytes[CRC_AT..COUNT_AT].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Reads a snapshot.
///
/// ```
/// use kseg_format::{
///     Offset, ProducerEpoch, ProducerId, Sequence, SnapshotBatch, SnapshotEntry, Timestamp, decode_snapshot,
///     encode_snapshot,
/// };
///
/// let producer = SnapshotEntry {
///     producer_id: ProducerId::new(1001),
///     producer_epoch: Some(ProducerEpoch::new(2)),
///     last_batch: Some(SnapshotBatch {
///         last_sequence: Some(Sequence::new(9)),
///         last_offset: Offset::new(102),
///         offset_delta: 2,
///     }),
///     timestamp: Some(Timestamp::new(1_700_000_000_001)),
///     coordinator_epoch: None,
///     transaction_start: Some(Offset::new(100)),
/// };
/// let bytes = encode_snapshot([producer]);
/// assert_eq!(decode_snapshot(&bytes)?, [producer]);
/// assert!(decode_snapshot(&bytes[..bytes.len() - 1]).is_err());
/// # Ok::<(), kseg_format::SnapshotError>(())
/// ```
///
/// # Errors
/// [`SnapshotError`]: a damaged snapshot is to be removed and an older one taken, or the log read.
pub fn decode_snapshot(bytes: &[u8]) -> Result<Vec<SnapshotEntry>, SnapshotError> {
    let short = |needed: usize| SnapshotError::Short { needed: needed as u64, found: bytes.len() as u64 };
    let version = bytes.first_chunk().ok_or_else(|| short(HEADER_LEN))?;
    let version = i16::from_be_bytes(*version);
    if version != VERSION {
        return Err(SnapshotError::Version { expected: VERSION, found: version });
    }
    if bytes.len() < HEADER_LEN {
        return Err(short(HEADER_LEN));
    }
    let count = i32::from_be_bytes(field(bytes, COUNT_AT));
    let entries_len = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(ENTRY_LEN))
        .ok_or(SnapshotError::Count { found: count })?;
    let body = &bytes[HEADER_LEN..];
    let entries = body.get(..entries_len).ok_or_else(|| short(HEADER_LEN.saturating_add(entries_len)))?;

    let expected = u32::from_be_bytes(field(bytes, CRC_AT));
    let found = crc::crc32c(&bytes[COUNT_AT..]);
    if expected != found {
        return Err(SnapshotError::Crc { expected, found });
    }
    Ok(entries.chunks_exact(ENTRY_LEN).map(entry).collect())
}

fn entry(bytes: &[u8]) -> SnapshotEntry {
    let offset_at =
        |at| Some(i64::from_be_bytes(field(bytes, at))).filter(|offset| *offset >= 0).map(Offset::new);
    let last_batch = offset_at(LAST_OFFSET_AT).map(|last_offset| SnapshotBatch {
        last_sequence: Sequence::from_raw(i32::from_be_bytes(field(bytes, LAST_SEQUENCE_AT))),
        last_offset,
        offset_delta: i32::from_be_bytes(field(bytes, OFFSET_DELTA_AT)),
    });
    let coordinator_epoch = i32::from_be_bytes(field(bytes, COORDINATOR_EPOCH_AT));
    SnapshotEntry {
        producer_id: ProducerId::new(i64::from_be_bytes(field(bytes, ID_AT))),
        producer_epoch: ProducerEpoch::from_raw(i16::from_be_bytes(field(bytes, EPOCH_AT))),
        last_batch,
        timestamp: Timestamp::from_raw(i64::from_be_bytes(field(bytes, TIMESTAMP_AT))),
        coordinator_epoch: (coordinator_epoch != -1).then_some(coordinator_epoch),
        transaction_start: offset_at(TRANSACTION_START_AT),
    }
}

/// `N` bytes at a place that the caller has checked to be there.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// A snapshot that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is shorter than its header, or than its number of entries asks for.
    Short {
        /// Bytes there should be.
        needed: u64,
        /// Bytes there are.
        found: u64,
    },
    /// It has another version.
    Version {
        /// The version that can be read.
        expected: i16,
        /// Its version.
        found: i16,
    },
    /// Its number of entries is negative.
    Count {
        /// The number.
        found: i32,
    },
    /// Its checksum is wrong. Bytes behind the entries count too.
    Crc {
        /// The checksum it carries.
        expected: u32,
        /// The checksum of its bytes.
        found: u32,
    },
}

impl SnapshotError {
    /// Kafka's name for this error.
    pub fn kafka_name(&self) -> &'static str {
        "CorruptSnapshotException"
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Short { needed, found } => {
                write!(f, "producer snapshot at byte {found}: expected {needed} bytes, found {found}")
            }
            SnapshotError::Version { expected, found } => {
                write!(f, "version at byte 0 of the producer snapshot: expected {expected}, found {found}")
            }
            SnapshotError::Count { found } => {
                write!(
                    f,
                    "number of entries at byte 6 of the producer snapshot: expected 0 or more, found {found}"
                )
            }
            SnapshotError::Crc { expected, found } => {
                write!(
                    f,
                    "checksum at byte 2 of the producer snapshot: expected {expected:#010x}, found {found:#010x}"
                )
            }
        }
    }
}

impl std::error::Error for SnapshotError {}

#[cfg(test)]
mod tests;
