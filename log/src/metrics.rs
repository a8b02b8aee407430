//! What there is to measure, as plain numbers that any library can export.

use std::path::PathBuf;
use std::time::Duration;

use kseg_format::{Offset, Rejections, TopicPartition};

use crate::dir::LogDir;
use crate::error::Error;
use crate::log::Log;
use crate::manager::DirStatus;
use crate::sync::{AtomicU64, Ordering};

/// A snapshot: directories, logs that are open, and counts since the directories were opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Each data directory.
    pub dirs: Vec<DirMetrics>,
    /// Each log that is open, ascending within a directory.
    pub logs: Vec<LogMetrics>,
    /// What was refused and flushed.
    pub counts: Counts,
}

impl Metrics {
    /// Data directories that are out of service (Kafka's `OfflineLogDirectoryCount`).
    pub fn offline_dirs(&self) -> usize {
        self.dirs.iter().filter(|dir| dir.offline).count()
    }

    /// Data directories that take no new partitions (Kafka's `CordonedLogDirectoryCount`).
    pub fn cordoned_dirs(&self) -> usize {
        self.dirs.iter().filter(|dir| dir.cordoned).count()
    }

    pub(crate) fn add(&mut self, other: &Metrics) {
        self.logs.extend(other.logs.iter().cloned());
        self.counts.add(&other.counts);
    }
}

/// One data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirMetrics {
    /// Its path.
    pub path: PathBuf,
    /// Whether it is out of service (Kafka's `LogDirectoryOffline`).
    pub offline: bool,
    /// Whether it takes no new partitions (Kafka's `LogDirectoryCordoned`).
    pub cordoned: bool,
    /// How many partitions it has.
    pub partitions: usize,
}

impl From<DirStatus> for DirMetrics {
    fn from(status: DirStatus) -> Self {
        DirMetrics {
            path: status.path,
            offline: status.offline.is_some(),
            cordoned: status.cordoned,
            partitions: status.partitions,
        }
    }
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogMetrics {
    /// The partition.
    pub partition: TopicPartition,
    /// Whether it is a copy that is being moved in (Kafka's tag `is-future`).
    pub is_future: bool,
    /// Bytes in its segments (`Size`).
    pub size: u64,
    /// How many segments it has (`NumLogSegments`).
    pub segments: usize,
    /// The first offset that may be read (`LogStartOffset`).
    pub log_start_offset: Offset,
    /// The next offset to be written (`LogEndOffset`).
    pub log_end_offset: Offset,
    /// Size in percent of `retention.bytes`, rounded down; 0 without a limit (`RetentionSizeInPercent`).
    pub retention_size_percent: u64,
    /// Producers that it remembers (`ProducerIdCount` is the sum).
    pub producers: usize,
}

/// Counts since a directory was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Bytes of appends that were refused for a batch above `max.message.bytes` (`BytesRejectedPerSec`).
    pub bytes_rejected: u64,
    /// Records without a key on compacted topics (`NoKeyCompactedTopicRecordsPerSec`).
    pub no_key_records: u64,
    /// Records of the wrong format version (`InvalidMagicNumberRecordsPerSec`).
    pub invalid_magic_records: u64,
    /// Batches or records with a wrong checksum (`InvalidMessageCrcRecordsPerSec`).
    pub invalid_crc_records: u64,
    /// Records whose offsets or sequences do not fit (`InvalidOffsetOrSequenceRecordsPerSec`).
    pub invalid_offset_or_sequence_records: u64,
    /// Flushes of a segment (`LogFlushRateAndTimeMs`).
    pub flushes: u64,
    /// Time spent in them.
    pub flush_time: Duration,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.bytes_rejected += other.bytes_rejected;
        self.no_key_records += other.no_key_records;
        self.invalid_magic_records += other.invalid_magic_records;
        self.invalid_crc_records += other.invalid_crc_records;
        self.invalid_offset_or_sequence_records += other.invalid_offset_or_sequence_records;
        self.flushes += other.flushes;
        self.flush_time += other.flush_time;
    }
}

/// The counters of a directory. Each counts by itself, and a snapshot may fall between two of them: Relaxed.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    bytes_rejected: AtomicU64,
    no_key: AtomicU64,
    invalid_magic: AtomicU64,
    invalid_crc: AtomicU64,
    invalid_offset_or_sequence: AtomicU64,
    flushes: AtomicU64,
    flush_ns: AtomicU64,
}

impl Meters {
    /// Counts an append of `size` bytes that was refused.
    #[cold]
    pub(crate) fn refused(&self, error: &Error, size: usize) {
        let rejections = match error {
            Error::Decode { source, .. } => Rejections::from(source),
            Error::Validation { source, .. } => Rejections::from(source),
            Error::OffsetsOutOfOrder { .. } | Error::InvalidRecord { .. } => {
                Rejections { invalid_offset_or_sequence: 1, ..Rejections::default() }
            }
            Error::RecordTooLarge { .. } => {
                self.bytes_rejected.fetch_add(size as u64, Ordering::Relaxed);
                return;
            }
            _ => return,
        };
        for (counter, by) in [
            (&self.no_key, rejections.no_key),
            (&self.invalid_magic, rejections.invalid_magic),
            (&self.invalid_crc, rejections.invalid_checksum),
            (&self.invalid_offset_or_sequence, rejections.invalid_offset_or_sequence),
        ] {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }

    pub(crate) fn flushed(&self, took: Duration) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.flush_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn counts(&self) -> Counts {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            bytes_rejected: now(&self.bytes_rejected),
            no_key_records: now(&self.no_key),
            invalid_magic_records: now(&self.invalid_magic),
            invalid_crc_records: now(&self.invalid_crc),
            invalid_offset_or_sequence_records: now(&self.invalid_offset_or_sequence),
            flushes: now(&self.flushes),
            flush_time: Duration::from_nanos(now(&self.flush_ns)),
        }
    }
}

impl LogDir {
    /// What there is to measure, of the directory and the logs that are open in it.
    pub fn metrics(&self) -> Metrics {
        let dir = &self.inner;
        let open = dir.open_logs();
        let futures: Vec<_> = dir.futures.lock().values().cloned().collect();
        let logs = open.iter().map(|(_, log)| log.metrics(false));
        let logs: Vec<_> = logs.chain(futures.iter().map(|log| log.metrics(true))).collect();
        let this = DirMetrics {
            path: dir.path.clone(),
            offline: dir.health.cause().is_some(),
            cordoned: false,
            partitions: logs.len(),
        };
        Metrics { dirs: vec![this], logs, counts: dir.health.meters.counts() }
    }
}

impl Log {
    fn metrics(&self, is_future: bool) -> LogMetrics {
        let (marks, segments) = (self.inner.marks(), self.inner.segments());
        let size = segments.size();
        let limit = self.inner.config().retention_size_max();
        LogMetrics {
            partition: self.partition().clone(),
            is_future,
            size,
            segments: segments.as_slice().len(),
            log_start_offset: marks.log_start,
            log_end_offset: marks.log_end.offset,
            retention_size_percent: limit.map_or(0, |limit| size.saturating_mul(100) / limit.max(1)),
            producers: self.inner.writer.lock().producers.producers().len(),
        }
    }
}
