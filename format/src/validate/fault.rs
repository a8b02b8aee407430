//! What is wrong with a batch as a whole, and what Kafka's meters count of a refused append.

use std::fmt;

use super::error::{RecordFaultKind, ValidationError};
use crate::codec::Magic;
use crate::error::DecodeError;
use crate::number::Offset;

/// Why a batch may not be appended, its records apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BatchFault {
    /// There is no batch.
    Missing,
    /// There is another batch behind one that has to be alone.
    Second,
    /// Its magic is not that of the first batch.
    Magic {
        /// The first batch's.
        expected: Magic,
        /// Its own.
        found: Magic,
    },
    /// Its last offset is below its base offset.
    LastOffset {
        /// Its base offset.
        base: Offset,
        /// Its last offset.
        found: Offset,
    },
    /// It says that it has no records, or fewer than none.
    Count {
        /// The count.
        found: i32,
    },
    /// The count is not what the offsets say.
    CountAndOffsets {
        /// Last offset minus base offset plus one.
        expected: i64,
        /// The count.
        found: i32,
    },
    /// A client may not write control batches.
    Control,
    /// It has a producer id and no sequence.
    Sequence {
        /// What stands for the base sequence.
        found: i32,
    },
    /// It is compressed and would stay as it is, but the offsets of its records do not follow each other.
    OffsetDeltas,
}

impl fmt::Display for BatchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchFault::Missing => f.write_str("expected a batch, found none"),
            BatchFault::Second => f.write_str("expected one batch, found more"),
            BatchFault::Magic { expected, found } => {
                write!(f, "magic: expected {expected} as in the first batch, found {found}")
            }
            BatchFault::LastOffset { base, found } => {
                write!(f, "last offset: expected at least the base offset {base}, found {found}")
            }
            BatchFault::Count { found } => write!(f, "records count: expected at least 1, found {found}"),
            BatchFault::CountAndOffsets { expected, found } => {
                write!(f, "records count: expected {expected} by the offsets, found {found}")
            }
            BatchFault::Control => f.write_str("attributes: expected no control batch from a client"),
            BatchFault::Sequence { found } => {
                write!(f, "base sequence: expected at least 0 beside a producer id, found {found}")
            }
            BatchFault::OffsetDeltas => {
                f.write_str("offset deltas: expected 0, 1, 2 and so on in a compressed batch")
            }
        }
    }
}

/// What a refused append adds to the meters of a broker, by Kafka's names.
///
/// The bytes rejected are those of the whole append, which its owner knows.
///
/// Source: Kafka `LogValidator.MetricsRecorder`, `BrokerTopicMetrics`.
#[allow(clippy::exhaustive_structs, reason = "the four meters of validation")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rejections {
    /// `InvalidMessageCrcRecordsPerSec`.
    pub invalid_checksum: u64,
    /// `InvalidMagicNumberRecordsPerSec`.
    pub invalid_magic: u64,
    /// `InvalidOffsetOrSequenceRecordsPerSec`.
    pub invalid_offset_or_sequence: u64,
    /// `NoKeyCompactedTopicRecordsPerSec`.
    pub no_key: u64,
}

impl From<&ValidationError> for Rejections {
    /// Each record that is at fault counts, of a batch at fault the batch. Where an append ends with a record that cannot be
    /// read, faults in front of it are not told, and not counted.
    fn from(error: &ValidationError) -> Rejections {
        let mut counts = Rejections::default();
        match error {
            ValidationError::Batch { fault } => match fault {
                BatchFault::Magic { .. } => counts.invalid_magic = 1,
                BatchFault::LastOffset { .. }
                | BatchFault::Count { .. }
                | BatchFault::CountAndOffsets { .. }
                | BatchFault::Control
                | BatchFault::Sequence { .. } => counts.invalid_offset_or_sequence = 1,
                BatchFault::Missing | BatchFault::Second | BatchFault::OffsetDeltas => {}
            },
            ValidationError::Records { faults } => {
                for fault in faults {
                    match fault.kind {
                        RecordFaultKind::Key => counts.no_key += 1,
                        RecordFaultKind::Magic { .. } => counts.invalid_magic += 1,
                        RecordFaultKind::Timestamp { .. } | RecordFaultKind::AppendTime { .. } => {}
                    }
                }
            }
            ValidationError::InnerChecksum { .. } => counts.invalid_checksum = 1,
            ValidationError::Decode(_) | ValidationError::Encode(_) => {}
        }
        counts
    }
}

impl From<&DecodeError> for Rejections {
    /// A batch with a wrong checksum counts once; all else not at all.
    fn from(error: &DecodeError) -> Rejections {
        let wrong = matches!(error, DecodeError::Checksum { .. });
        Rejections { invalid_checksum: u64::from(wrong), ..Rejections::default() }
    }
}
