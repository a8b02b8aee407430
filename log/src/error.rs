//! What can go wrong with a log or a data directory.

use std::fmt;
use std::path::PathBuf;

use kseg_format::{
    CheckpointError, DecodeError, Offset, SmallFileError, TopicPartition, Uuid, ValidationError,
};
use kseg_io_backends::IoError;

use crate::config::ConfigError;
use crate::producer_state::ProducerStateError;
use crate::topic::{DirNameError, TopicNameError};
use crate::topics::TopicProblem;

/// Short form of a result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a log or a data directory.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A call to the operating system failed; the inner error names the operation, file and place.
    Io(IoError),
    /// A segment of the log reported an error.
    Segment {
        /// The partition's directory.
        dir: PathBuf,
        /// The segment's error, with file and position.
        source: kseg_segment::Error,
    },
    /// Batches given to an append are not what batches must be. Nothing was written.
    Decode {
        /// The partition's directory.
        dir: PathBuf,
        /// Byte at which the batch begins in what was given.
        position: usize,
        /// What was expected and found, and where in the batch.
        source: DecodeError,
    },
    /// Batches given to a leader's append break a rule of the topic. Nothing was written.
    Validation {
        /// The partition's directory.
        dir: PathBuf,
        /// Which records break which rule.
        source: ValidationError,
    },
    /// A batch given to an append does not fit its origin. Nothing was written.
    InvalidRecord {
        /// The partition's directory.
        dir: PathBuf,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// A batch is larger than `max.message.bytes`. Nothing was written.
    RecordTooLarge {
        /// The partition's directory.
        dir: PathBuf,
        /// Size of the batch in bytes.
        size: usize,
        /// The limit.
        limit: i32,
    },
    /// The batches of one append are larger than `segment.bytes`. Nothing was written.
    RecordSetTooLarge {
        /// The partition's directory.
        dir: PathBuf,
        /// Their size in bytes.
        size: usize,
        /// The limit.
        limit: u64,
    },
    /// The offsets given with batches do not ascend from batch to batch. Nothing was written.
    OffsetsOutOfOrder {
        /// The partition's directory.
        dir: PathBuf,
        /// Byte at which the batch begins in what was given.
        position: usize,
        /// Its last offset.
        last_offset: Offset,
    },
    /// The offsets given with batches begin below the log end offset. Nothing was written.
    UnexpectedAppendOffset {
        /// The partition's directory.
        dir: PathBuf,
        /// First offset given.
        first: Offset,
        /// Last offset given.
        last: Offset,
        /// What the first offset has to reach.
        log_end: Offset,
    },
    /// A producer's batch breaks the rules of its sequence, epoch or transaction. Nothing was written.
    Producer {
        /// The partition's directory.
        dir: PathBuf,
        /// The rule, with what was expected and found.
        source: ProducerStateError,
    },
    /// An offset lies outside the log.
    OffsetOutOfRange {
        /// The partition's directory.
        dir: PathBuf,
        /// The offset asked for.
        offset: Offset,
        /// The first offset allowed.
        log_start: Offset,
        /// The last offset allowed.
        log_end: Offset,
    },
    /// Records of this log are not a client's to delete.
    Policy {
        /// The partition's directory.
        dir: PathBuf,
        /// Why.
        reason: PolicyReason,
    },
    /// A roll to a base offset that is taken, or lies below the active segment.
    Roll {
        /// The partition's directory.
        dir: PathBuf,
        /// The base offset wanted.
        base: Offset,
        /// Base offset of the active segment.
        active: Offset,
    },
    /// A write or sync of this log failed before; it takes no changes until it is opened again.
    Fenced {
        /// The partition's directory.
        dir: PathBuf,
        /// The first error, in words.
        cause: String,
    },
    /// Records are not known to be durable, and will not be told to be: a flush failed, they were truncated, or the log was
    /// abandoned.
    NotDurable {
        /// The partition's directory.
        dir: PathBuf,
        /// The records lie below this offset.
        end: Offset,
        /// Why, in words.
        cause: String,
    },
    /// The log has been closed.
    Closed {
        /// The partition's directory.
        dir: PathBuf,
    },
    /// A segment that was to be replaced is not any more what it was when its replacement was begun.
    Replaced {
        /// The partition's directory.
        dir: PathBuf,
        /// Base offset of the segment.
        base: Offset,
    },
    /// The caller asked for something that has no meaning.
    InvalidArgument {
        /// What was wrong with it.
        what: String,
    },
    /// A configuration is out of range or contradicts itself.
    Config(ConfigError),
    /// A directory's name is not that of a partition.
    DirName {
        /// The directory.
        dir: PathBuf,
        /// What is wrong with its name.
        source: DirNameError,
    },
    /// A path that has to be a directory is something else, or is missing.
    NotADirectory {
        /// The path.
        path: PathBuf,
        /// What was found there.
        found: &'static str,
    },
    /// A path that has to be a data directory is a partition's folder. Nothing was changed.
    PartitionFolder {
        /// The path.
        path: PathBuf,
    },
    /// A topic has a name that Kafka refuses.
    TopicName {
        /// The name.
        topic: String,
        /// Which rule it breaks.
        source: TopicNameError,
    },
    /// A checkpoint file is malformed.
    Checkpoint(CheckpointError),
    /// One of the small files of a directory is malformed.
    SmallFile {
        /// The file.
        path: PathBuf,
        /// What was expected and found.
        source: SmallFileError,
    },
    /// The file with a directory's topics is malformed.
    Topics {
        /// The file.
        path: PathBuf,
        /// What was expected and found, and where.
        what: String,
    },
    /// A topic cannot be made, found or changed as asked. Nothing was changed.
    Topic {
        /// The topic.
        topic: String,
        /// Why not.
        problem: TopicProblem,
    },
    /// A partition's directory belongs to another topic of the same name.
    TopicId {
        /// The partition's directory.
        dir: PathBuf,
        /// The id asked for.
        expected: Uuid,
        /// The id in its `partition.metadata`.
        found: Uuid,
    },
    /// Two directories hold the same partition.
    Duplicate {
        /// The partition.
        partition: TopicPartition,
        /// The directories.
        dirs: [PathBuf; 2],
    },
    /// The data directory has failed: none of its logs can be used until it is opened again.
    Offline {
        /// The data directory.
        dir: PathBuf,
        /// The first error, in words.
        cause: String,
    },
    /// The data directory has been shut down.
    ShutDown {
        /// The data directory.
        dir: PathBuf,
    },
    /// The log is open already, in this process.
    AlreadyOpen {
        /// The partition's directory.
        dir: PathBuf,
    },
    /// Somebody else has the data directory open.
    Locked {
        /// The lock file.
        path: PathBuf,
    },
}

/// Why a client may not delete records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyReason {
    /// Records of a log that is only compacted go by their keys.
    CompactOnly,
    /// Kafka's own topics are not touched.
    InternalTopic,
}

impl Error {
    /// Simple name of the exception that Kafka raises in this place; for errors of the storage the cause's, as
    /// `IOException`.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            Error::Io(_) => "IOException",
            Error::Segment { source, .. } => source.kafka_name(),
            Error::Decode { source, .. } => source.kafka_name(),
            Error::Validation { source, .. } => source.kafka_name(),
            Error::InvalidRecord { .. } => "InvalidRecordException",
            Error::RecordTooLarge { .. } => "RecordTooLargeException",
            Error::RecordSetTooLarge { .. } => "RecordBatchTooLargeException",
            Error::OffsetsOutOfOrder { .. } => "OffsetsOutOfOrderException",
            Error::UnexpectedAppendOffset { .. } => "UnexpectedAppendOffsetException",
            Error::Producer { source, .. } => source.kafka_name(),
            Error::OffsetOutOfRange { .. } => "OffsetOutOfRangeException",
            Error::Policy { reason: PolicyReason::CompactOnly, .. } => "PolicyViolationException",
            Error::Policy { reason: PolicyReason::InternalTopic, .. } => "InvalidTopicException",
            Error::Roll { .. } | Error::DirName { .. } | Error::AlreadyOpen { .. } | Error::Locked { .. } => {
                "KafkaException"
            }
            Error::Fenced { .. }
            | Error::NotDurable { .. }
            | Error::Closed { .. }
            | Error::Offline { .. }
            | Error::ShutDown { .. } => "KafkaStorageException",
            Error::Replaced { .. } => "LogCleaningAbortedException",
            Error::Topics { .. } => "IOException",
            Error::Topic { problem, .. } => problem.kafka_name(),
            Error::TopicId { .. } => "InconsistentTopicIdException",
            Error::Duplicate { .. } => "IllegalStateException",
            Error::InvalidArgument { .. } => "IllegalArgumentException",
            Error::Config(source) => source.kafka_name(),
            Error::NotADirectory { .. } | Error::PartitionFolder { .. } => "IOException",
            Error::TopicName { source, .. } => source.kafka_name(),
            Error::Checkpoint(source) => source.kafka_name(),
            Error::SmallFile { source, .. } => source.kafka_name(),
        }
    }

    /// Whether the log may not be written any more: a sync failed, or a write whose extent is not known.
    pub(crate) fn fences(&self) -> bool {
        use kseg_io_backends::Verdict;
        let io = match self {
            Error::Io(io) | Error::Segment { source: kseg_segment::Error::Io(io), .. } => io,
            _ => return false,
        };
        matches!(io.verdict(), Verdict::Damaged | Verdict::Fenced)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(source) => source.fmt(f),
            Error::Segment { source, .. } => source.fmt(f),
            Error::Decode { dir, position, source } => {
                write!(f, "{}: in an append, batch at byte {position}: {source}", dir.display())
            }
            Error::Validation { dir, source } => write!(f, "{}: in an append: {source}", dir.display()),
            Error::InvalidRecord { dir, expected, found } => {
                write!(f, "{}: in an append: expected {expected}, found {found}", dir.display())
            }
            Error::RecordTooLarge { dir, size, limit } => write!(
                f,
                "{}: in an append: a batch of {size} bytes: expected at most max.message.bytes = {limit}",
                dir.display()
            ),
            Error::RecordSetTooLarge { dir, size, limit } => write!(
                f,
                "{}: in an append: batches of {size} bytes: expected at most segment.bytes = {limit}",
                dir.display()
            ),
            Error::OffsetsOutOfOrder { dir, position, last_offset } => write!(
                f,
                "{}: in an append, batch at byte {position}: last offset {last_offset} is not above that of the batch before it",
                dir.display()
            ),
            Error::UnexpectedAppendOffset { dir, first, last, log_end } => write!(
                f,
                "{}: in an append: offsets {first} to {last}: expected {log_end} or higher",
                dir.display()
            ),
            Error::Producer { dir, source } => write!(f, "{}: in an append: {source}", dir.display()),
            Error::OffsetOutOfRange { dir, offset, log_start, log_end } => {
                write!(f, "{}: offset {offset}: expected {log_start} to {log_end}", dir.display())
            }
            Error::Policy { dir, reason } => {
                let why = match reason {
                    PolicyReason::CompactOnly => {
                        "cleanup.policy is compact: expected one with delete, or none"
                    }
                    PolicyReason::InternalTopic => "the topic is one of Kafka's own",
                };
                write!(f, "{}: records cannot be deleted by offset: {why}", dir.display())
            }
            Error::Roll { dir, base, active } => write!(
                f,
                "{}: cannot start a segment at offset {base}: the active one begins at {active}",
                dir.display()
            ),
            Error::Fenced { dir, cause } => write!(
                f,
                "{}: read-only since a write or sync failed ({cause}); opening the log again recovers it",
                dir.display()
            ),
            Error::NotDurable { dir, end, cause } => {
                write!(
                    f,
                    "{}: records below offset {end} are not known to be durable: {cause}",
                    dir.display()
                )
            }
            Error::Closed { dir } => write!(f, "{}: the log is closed", dir.display()),
            Error::Replaced { dir, base } => write!(
                f,
                "{}: the segment at offset {base} was truncated or replaced while a replacement was written",
                dir.display()
            ),
            Error::InvalidArgument { what } => f.write_str(what),
            Error::Config(source) => source.fmt(f),
            Error::DirName { dir, source } => write!(f, "{}: {source}", dir.display()),
            Error::NotADirectory { path, found } => {
                write!(f, "{}: expected a directory, found {found}", path.display())
            }
            Error::PartitionFolder { path } => {
                write!(f, "{}: expected a data directory, found a partition's folder", path.display())
            }
            Error::TopicName { source, .. } => source.fmt(f),
            Error::Checkpoint(source) => source.fmt(f),
            Error::SmallFile { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Topics { path, what } => write!(f, "{}: {what}", path.display()),
            Error::Topic { topic, problem } => write!(f, "topic {topic}: {problem}"),
            Error::TopicId { dir, expected, found } => {
                write!(f, "{}: topic id {found}: expected {expected}", dir.display())
            }
            Error::Duplicate { partition, dirs: [one, other] } => write!(
                f,
                "{partition}: in {} and in {}: expected in one; remove one by hand",
                one.display(),
                other.display()
            ),
            Error::Offline { dir, cause } => {
                write!(f, "{}: the data directory is out of service since: {cause}", dir.display())
            }
            Error::ShutDown { dir } => {
                write!(f, "{}: the data directory has been shut down: open it again", dir.display())
            }
            Error::AlreadyOpen { dir } => write!(
                f,
                "{}: expected a log that is not open, found one that is open already in this process",
                dir.display()
            ),
            Error::Locked { path } => {
                write!(
                    f,
                    "{}: held by another process, or by this one: the data directory is in use",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(source) => source.source(),
            Error::Segment { source, .. } => Some(source),
            Error::Decode { source, .. } => Some(source),
            Error::Validation { source, .. } => Some(source),
            Error::Producer { source, .. } => Some(source),
            Error::Config(source) => Some(source),
            Error::DirName { source, .. } => Some(source),
            Error::TopicName { source, .. } => Some(source),
            Error::Checkpoint(source) => Some(source),
            Error::SmallFile { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<IoError> for Error {
    fn from(source: IoError) -> Self {
        Error::Io(source)
    }
}

impl From<ConfigError> for Error {
    fn from(source: ConfigError) -> Self {
        Error::Config(source)
    }
}
