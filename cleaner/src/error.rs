//! What can go wrong while a log is compacted.

use std::fmt;
use std::path::{Path, PathBuf};

use kseg_format::{DecodeError, FilterError, Offset};
use kseg_io_backends::IoError;
use kseg_log::TopicPartition;

/// Short form of a result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of compaction, with the place that it is about.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The log reported an error. Where a step of a swap failed, its documentation says what the log is then.
    Log(kseg_log::Error),
    /// A segment reported an error.
    Segment(kseg_segment::Error),
    /// A call to the operating system failed.
    Io(IoError),
    /// A batch cannot be read, or its checksum is wrong: nothing was copied from it.
    Corrupt {
        /// The `.log` file.
        path: PathBuf,
        /// Byte position of the batch.
        position: u64,
        /// What was expected and found.
        source: DecodeError,
    },
    /// What is kept of a batch cannot be built anew.
    Rebuild {
        /// The `.log` file.
        path: PathBuf,
        /// Byte position of the batch.
        position: u64,
        /// Why not.
        source: FilterError,
    },
    /// Somebody asked that the cleaning of this log stop.
    Aborted {
        /// The partition.
        partition: TopicPartition,
    },
    /// The cleaner is being stopped.
    ShuttingDown,
    /// A thread of the round ended before its work: it panicked. The log is as it was, but for groups swapped in before.
    Thread {
        /// What it was doing.
        work: &'static str,
    },
    /// A range of offsets that ends below its start.
    Range {
        /// Where the dirty section would begin.
        first_dirty: Offset,
        /// Where it would end.
        end: Offset,
    },
    /// A setting out of its range.
    Config {
        /// The setting.
        name: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// Work on this log ended by a panic: a fault of the program. What it was has gone to standard error.
    Panicked {
        /// The partition.
        partition: TopicPartition,
    },
    /// A partition is not in a state that allows what was asked for.
    State {
        /// The partition.
        partition: TopicPartition,
        /// What it has to be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
}

impl Error {
    /// Simple name of the exception that Kafka raises in this place.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            Error::Log(source) => source.kafka_name(),
            Error::Segment(source) => source.kafka_name(),
            Error::Io(_) => "IOException",
            Error::Corrupt { source, .. } => source.kafka_name(),
            Error::Rebuild { source, .. } => source.kafka_name(),
            Error::Aborted { .. } => "LogCleaningAbortedException",
            Error::ShuttingDown => "ThreadShutdownException",
            Error::Range { .. } => "IllegalArgumentException",
            Error::Config { .. } => "ConfigException",
            Error::State { .. } | Error::Thread { .. } => "IllegalStateException",
            Error::Panicked { .. } => "RuntimeException",
        }
    }

    /// Whether the log was told to stop being cleaned, or was changed so that the round came to nothing: no fault of
    /// the log, which may be cleaned again.
    pub fn is_abort(&self) -> bool {
        matches!(
            self,
            Error::Aborted { .. } | Error::ShuttingDown | Error::Log(kseg_log::Error::Replaced { .. })
        )
    }

    /// The error of the system that it comes from, if it does.
    pub fn io(&self) -> Option<&IoError> {
        match self {
            Error::Io(io)
            | Error::Segment(kseg_segment::Error::Io(io))
            | Error::Log(kseg_log::Error::Io(io))
            | Error::Log(kseg_log::Error::Segment { source: kseg_segment::Error::Io(io), .. }) => Some(io),
            _ => None,
        }
    }

    pub(crate) fn corrupt(path: &Path, position: u64, source: DecodeError) -> Error {
        Error::Corrupt { path: path.to_path_buf(), position, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Log(source) => source.fmt(f),
            Error::Segment(source) => source.fmt(f),
            Error::Io(source) => source.fmt(f),
            Error::Corrupt { path, position, source } => {
                write!(f, "{}: at position {position}: {source}", path.display())
            }
            Error::Rebuild { path, position, source } => {
                write!(f, "{}: at position {position}: {source}", path.display())
            }
            Error::Aborted { partition } => write!(f, "{partition}: told to stop cleaning it"),
            Error::ShuttingDown => f.write_str("the cleaner is being stopped"),
            Error::Thread { work } => write!(f, "the thread that was {work} ended before its work"),
            Error::Range { first_dirty, end } => {
                write!(
                    f,
                    "a dirty section from {first_dirty} to {end}: expected an end at or above its start"
                )
            }
            Error::Config { name, expected, found } => {
                write!(f, "{name}: expected {expected}, found {found}")
            }
            Error::Panicked { partition } => write!(f, "{partition}: cleaning it ended by a panic"),
            Error::State { partition, expected, found } => {
                write!(f, "{partition}: expected {expected}, found {found}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Log(source) => source.source(),
            Error::Segment(source) => source.source(),
            Error::Io(source) => source.source(),
            Error::Corrupt { source, .. } => Some(source),
            Error::Rebuild { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<kseg_log::Error> for Error {
    fn from(source: kseg_log::Error) -> Error {
        Error::Log(source)
    }
}

impl From<kseg_segment::Error> for Error {
    fn from(source: kseg_segment::Error) -> Error {
        match source {
            kseg_segment::Error::Corrupt { path, position, source } => {
                Error::Corrupt { path, position, source }
            }
            other => Error::Segment(other),
        }
    }
}

impl From<IoError> for Error {
    fn from(source: IoError) -> Error {
        Error::Io(source)
    }
}
