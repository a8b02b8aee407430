//! What can go wrong with a segment.

use std::fmt;
use std::path::{Path, PathBuf};

use kseg_format::{AbortedError, DecodeError, Offset};
use kseg_index::IndexError;
use kseg_io_backends::IoError;

/// Short form of a result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a segment, with the file and the place that it is about.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A call to the operating system failed; the inner error names the operation, file and place.
    Io(IoError),
    /// The bytes of a batch are not what a batch must be.
    Corrupt {
        /// The `.log` file.
        path: PathBuf,
        /// Byte position at which the batch begins.
        position: u64,
        /// What was expected and found, and where in the batch.
        source: DecodeError,
    },
    /// An index refused an entry or a lookup.
    Index {
        /// The index file.
        path: PathBuf,
        /// What was expected and found.
        source: IndexError,
    },
    /// An entry of the transaction index cannot be read.
    Aborted {
        /// The transaction index.
        path: PathBuf,
        /// What was expected and found, and where in the file.
        source: AbortedError,
    },
    /// An offset is farther from the base offset than 2147483647, or below it.
    OffsetOverflow {
        /// The `.log` file.
        path: PathBuf,
        /// The segment's base offset.
        base_offset: Offset,
        /// The offset that does not fit.
        offset: Offset,
    },
    /// The `.log` file would exceed, or exceeds, [`MAX_SEGMENT_SIZE`](crate::MAX_SEGMENT_SIZE) bytes.
    TooLarge {
        /// The `.log` file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// Bytes that were to be added.
        adding: u64,
    },
    /// The caller asked for something that has no meaning.
    InvalidArgument {
        /// What was wrong with it.
        what: String,
    },
    /// The segment has been closed.
    Closed {
        /// The `.log` file.
        path: PathBuf,
    },
}

impl Error {
    /// Simple name of the exception that Kafka raises in this place.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            Error::Io(_) => "IOException",
            Error::Corrupt { source, .. } => source.kafka_name(),
            Error::Index { source, .. } => source.kafka_name(),
            Error::Aborted { source, .. } => source.kafka_name(),
            Error::OffsetOverflow { .. } => "LogSegmentOffsetOverflowException",
            Error::TooLarge { adding: 0, .. } => "KafkaException",
            Error::TooLarge { .. } | Error::InvalidArgument { .. } => "IllegalArgumentException",
            Error::Closed { .. } => "KafkaStorageException",
        }
    }

    pub(crate) fn corrupt(path: &Path, position: u64, source: DecodeError) -> Self {
        Error::Corrupt { path: path.to_path_buf(), position, source }
    }

    pub(crate) fn index(path: &Path, source: IndexError) -> Self {
        Error::Index { path: path.to_path_buf(), source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(e) => e.fmt(f),
            Error::Corrupt { path, position, source } => {
                write!(f, "{}: at position {position}: {source}", path.display())
            }
            Error::Index { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Aborted { path, source } => write!(f, "{}: {source}", path.display()),
            Error::OffsetOverflow { path, base_offset, offset } => write!(
                f,
                "{}: offset {offset} does not fit a segment with base offset {base_offset}: expected {base_offset} to base + {}",
                path.display(),
                i32::MAX
            ),
            Error::TooLarge { path, size, adding } => write!(
                f,
                "{}: {adding} bytes on top of {size}: expected at most {} bytes in one file",
                path.display(),
                crate::MAX_SEGMENT_SIZE
            ),
            Error::InvalidArgument { what } => f.write_str(what),
            Error::Closed { path } => write!(f, "{}: the segment is closed", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(e) => e.source(),
            Error::Corrupt { source, .. } => Some(source),
            Error::Index { source, .. } => Some(source),
            Error::Aborted { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<IoError> for Error {
    fn from(error: IoError) -> Self {
        Error::Io(error)
    }
}
