//! A Kafka partition log on real files.
//!
//! [`Log`] is one partition: whole record batches go in at the end, as a leader or as a follower, and are found again by
//! offset and by time; segments roll, are recovered after a crash, truncated and removed by retention. [`LogDir`] is a
//! data directory of many logs with its lock, its marker of a clean stop and its checkpoints. [`BatchWriter`] takes single
//! records and makes batches of them. The files are Kafka's: a broker opens what this crate wrote, and the reverse.
//!
//! The high watermark is the caller's to move ([`Log::update_high_watermark`]): consumers' reads end there, and nothing at or
//! above it is removed or compacted. Without replicas it follows the log end.
//!
//! Time and background work come in from outside ([`Clock`], [`Scheduler`]): the crate starts no thread of its own accord,
//! and tests drive both by hand.
//!
//! ```
//! use bytes::BytesMut;
//! use kseg_format::{BatchOptions, LeaderEpoch, Offset, Origin, RecordBatchBuilder, Timestamp};
//! use kseg_log::{Isolation, Log, OpenOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backend = kseg_io_backends::open("memory")?;
//! let log = Log::open(std::path::Path::new("/data/orders-0"), OpenOptions::new(backend))?;
//!
//! let mut batch = RecordBatchBuilder::new(BatchOptions::default());
//! batch.append(Some(Timestamp::new(1_700_000_000_000)), Some(b"key"), Some(b"value"), &[])?;
//! let mut bytes = BytesMut::new();
//! batch.finish(&mut bytes)?;
//!
//! let info = log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Client)?;
//! assert_eq!(info.first_offset, Some(Offset::ZERO));
//! log.flush(false)?; // durable from here on
//!
//! let fetch = log.read(Offset::ZERO, 1 << 20, Isolation::LogEnd, true)?;
//! assert_eq!(fetch.len() as u64, log.size());
//! log.close()?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

/// The examples of the crate's README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod append;
mod cleaning;
mod clock;
mod compaction;
mod config;
mod counted;
mod dir;
mod doubts;
mod durability;
mod error;
mod fence;
mod health;
mod kept;
mod leader_epoch;
mod log;
mod manager;
mod marks;
mod metrics;
mod observer;
mod offset_checkpoint;
mod open;
mod pressure;
mod producer_state;
mod producers;
mod read;
mod retain;
mod retention;
mod roll;
mod scheduler;
mod segments;
mod state;
mod sync;
mod times;
mod topic;
mod topics;
mod trouble;
mod truncate;
mod writer;

pub use append::AppendInfo;
pub use cleaning::{LastRecord, Sealed};
pub use clock::{Clock, ManualClock, SystemClock};
pub use compaction::Compaction;
pub use config::{BrokerConfig, CleanupPolicy, CompressionType, ConfigError, LogConfig, ThrottledReplicas};
pub use dir::{
    DirLook, LoadOptions, LoadSummary, Loaded, LogDir, LogDirOptions, ShutdownReport, TopicSurvey,
};
pub use doubts::{Doubt, DoubtReason};
pub use durability::Durability;
pub use error::{Error, PolicyReason, Result};
pub use kseg_format::{
    AbortedTransaction, EpochEntry, SnapshotBatch, SnapshotEntry, SnapshotError, TopicPartition,
};
pub use kseg_segment::{Cut, CutReason, FileRegion as Region, Finished, Replacement, TimestampedOffset};
pub use leader_epoch::{EpochChange, EpochEnd, FileWrite, LeaderEpochCache, LeaderEpochError};
pub use log::Log;
pub use manager::{DirStatus, LogManager};
pub use marks::Place;
pub use metrics::{Counts, DirMetrics, LogMetrics, Metrics};
pub use observer::Observer;
pub use offset_checkpoint::OffsetCheckpoint;
pub use open::{LoadReport, OpenOptions};
pub use pressure::Pressure;
pub use producer_state::{
    BatchEffect, CompletedTransaction, DiscardedSnapshot, EndMarker, ProducerBatch, ProducerEntry,
    ProducerState, ProducerStateError, ProducerUpdate, SegmentPosition, SnapshotStore, TransactionRequest,
    TransactionStart, TransactionVersion, VerificationGuard,
};
pub use read::{Fetch, Isolation};
pub use retain::Retained;
pub use retention::{Decision, HeldBack, Limit, SegmentFacts, decide};
pub use scheduler::{InlineScheduler, ManualScheduler, Scheduler, Task, ThreadScheduler};
pub use state::{LogState, ProducerInfo, SegmentState};
pub use times::TimestampQuery;
pub use topic::{
    CLUSTER_METADATA_TOPIC, DirKind, DirNameError, REMOTE_LOG_INDEX_CACHE, TopicNameError, check_topic_name,
    dir_name, parse_dir_name, topic_names_collide,
};
pub use topics::{Topic, TopicProblem};
pub use trouble::Trouble;
pub use writer::{BatchWriter, WriterOptions};
