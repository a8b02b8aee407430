//! Why an append was refused.

use std::error::Error;
use std::fmt;

use super::fault::BatchFault;
use crate::codec::Magic;
use crate::error::{DecodeError, EncodeError};
use crate::number::Timestamp;

/// What is wrong with a record that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum RecordFaultKind {
    /// The timestamp is too far from the clock. Kafka: `InvalidTimestampException`.
    Timestamp {
        /// The timestamp.
        found: Timestamp,
        /// The smallest that is taken: `message.timestamp.before.max.ms` before now.
        least: Timestamp,
        /// The largest that is taken: `message.timestamp.after.max.ms` behind now.
        most: Timestamp,
    },
    /// The producer claims an append time. Kafka: `InvalidTimestampException`.
    AppendTime {
        /// What it claims.
        found: Option<Timestamp>,
    },
    /// The topic is compacted and the record has no key.
    Key,
    /// A message in a wrapper has another magic than the wrapper.
    Magic {
        /// The wrapper's.
        expected: Magic,
        /// Its own.
        found: i8,
    },
}

impl fmt::Display for RecordFaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordFaultKind::Timestamp { found, least, most } => write!(
                f,
                "timestamp {found}: expected {least} to {most} (message.timestamp.before.max.ms and \
                 message.timestamp.after.max.ms from now)"
            ),
            RecordFaultKind::AppendTime { found } => {
                let found = Timestamp::to_raw(*found);
                write!(
                    f,
                    "timestamp {found}: expected the time of a producer, found one of a broker's append"
                )
            }
            RecordFaultKind::Key => f.write_str("a compacted topic takes no record without a key"),
            RecordFaultKind::Magic { expected, found } => {
                write!(f, "magic: expected {expected} as in the wrapper, found {found}")
            }
        }
    }
}

/// A record that may not be appended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct RecordFault {
    /// Its place in its batch, from 0.
    pub batch_index: u64,
    /// What is wrong; shown it is the same in words.
    pub kind: RecordFaultKind,
}

/// An append that was refused as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ValidationError {
    /// A batch that may not be appended. Kafka: `InvalidRecordException`.
    Batch {
        /// Why.
        fault: BatchFault,
    },
    /// Records that may not be appended; all of one batch. Kafka: `RecordValidationException`.
    Records {
        /// Which and why, by place; at least one.
        faults: Vec<RecordFault>,
    },
    /// A message in a wrapper has a wrong checksum. Kafka: `CorruptRecordException`.
    InnerChecksum {
        /// Its place in the wrapper, from 0.
        batch_index: u64,
        /// The checksum in the message.
        stored: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// Records that cannot be read.
    Decode(DecodeError),
    /// The batch has to be built anew and cannot.
    Encode(EncodeError),
}

impl ValidationError {
    #[cold]
    pub(super) fn batch(fault: BatchFault) -> ValidationError {
        ValidationError::Batch { fault }
    }

    /// The simple name of the exception that Kafka raises for it.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            ValidationError::Batch { .. } => "InvalidRecordException",
            ValidationError::Records { .. } => "RecordValidationException",
            ValidationError::InnerChecksum { .. } => "CorruptRecordException",
            ValidationError::Decode(error) => error.kafka_name(),
            ValidationError::Encode(error) => error.kafka_name(),
        }
    }

    /// The simple name of the exception that a `RecordValidationException` carries as its reason; of other errors
    /// their own.
    pub fn cause_name(&self) -> &'static str {
        match self {
            ValidationError::Records { faults } => {
                let of_time = |kind| {
                    matches!(kind, RecordFaultKind::Timestamp { .. } | RecordFaultKind::AppendTime { .. })
                };
                if faults.iter().any(|fault| of_time(fault.kind)) {
                    "InvalidTimestampException"
                } else {
                    "InvalidRecordException"
                }
            }
            other => other.kafka_name(),
        }
    }

    /// The records that are wrong, where it is they.
    pub fn record_faults(&self) -> &[RecordFault] {
        match self {
            ValidationError::Records { faults } => faults,
            _ => &[],
        }
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValidationError::Batch { fault } => fault.fmt(f),
            ValidationError::Records { faults } => {
                write!(f, "{} records may not be appended", faults.len())?;
                for (i, fault) in faults.iter().take(3).enumerate() {
                    let separator = if i == 0 { ": " } else { "; " };
                    write!(f, "{separator}record {}: {}", fault.batch_index, fault.kind)?;
                }
                if faults.len() > 3 { f.write_str("; ...") } else { Ok(()) }
            }
            ValidationError::InnerChecksum { batch_index, stored, computed } => write!(
                f,
                "checksum of message {batch_index} of the wrapper: stored {stored:#010x}, computed {computed:#010x}"
            ),
            ValidationError::Decode(_) => f.write_str("the records cannot be read"),
            ValidationError::Encode(_) => f.write_str("the batch cannot be built anew"),
        }
    }
}

impl Error for ValidationError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ValidationError::Decode(error) => Some(error),
            ValidationError::Encode(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DecodeError> for ValidationError {
    fn from(error: DecodeError) -> ValidationError {
        ValidationError::Decode(error)
    }
}

impl From<EncodeError> for ValidationError {
    fn from(error: EncodeError) -> ValidationError {
        ValidationError::Encode(error)
    }
}

/// The faults of a batch's records so far.
#[derive(Default)]
pub(super) struct Faults(Vec<RecordFault>);

impl Faults {
    #[cold]
    pub(super) fn add(&mut self, batch_index: u64, kind: RecordFaultKind) {
        self.0.push(RecordFault { batch_index, kind });
    }

    pub(super) fn into_result(self) -> Result<(), ValidationError> {
        if self.0.is_empty() { Ok(()) } else { Err(ValidationError::Records { faults: self.0 }) }
    }
}
