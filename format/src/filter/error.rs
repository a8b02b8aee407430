//! Why batches could not be filtered.

use std::error::Error;
use std::fmt;

use crate::codec::Magic;
use crate::error::{DecodeError, EncodeError};

/// A batch that a filter could not deal with.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FilterError {
    /// It cannot be read.
    Decode {
        /// Its first byte in what was given.
        position: usize,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// What is kept of it cannot be built anew.
    Encode {
        /// Its first byte in what was given.
        position: usize,
        /// Why not.
        source: EncodeError,
    },
    /// A message of magic 0 or 1 of which nothing was kept was to be retained; there is no such thing. Kafka:
    /// `IllegalStateException`.
    EmptiedLegacy {
        /// Its first byte in what was given.
        position: usize,
        /// Its version.
        magic: Magic,
    },
}

impl FilterError {
    /// The first byte of the batch in what was given.
    pub fn position(&self) -> usize {
        match self {
            FilterError::Decode { position, .. }
            | FilterError::Encode { position, .. }
            | FilterError::EmptiedLegacy { position, .. } => *position,
        }
    }

    /// The simple name of the exception that Kafka raises for it.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            FilterError::Decode { source, .. } => source.kafka_name(),
            FilterError::Encode { source, .. } => source.kafka_name(),
            FilterError::EmptiedLegacy { .. } => "IllegalStateException",
        }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterError::Decode { position, .. } => write!(f, "the batch at byte {position} cannot be read"),
            FilterError::Encode { position, .. } => {
                write!(f, "the batch at byte {position} cannot be built anew")
            }
            FilterError::EmptiedLegacy { position, magic } => write!(
                f,
                "the batch at byte {position}: expected magic 2 to keep a header alone, found magic {magic}"
            ),
        }
    }
}

impl Error for FilterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            FilterError::Decode { source, .. } => Some(source),
            FilterError::Encode { source, .. } => Some(source),
            FilterError::EmptiedLegacy { .. } => None,
        }
    }
}
