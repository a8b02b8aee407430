//! A data directory: many partition logs, one lock, the marker of a clean stop, and the checkpoints.
//!
//! | file | content |
//! |---|---|
//! | `.lock` | held for as long as the directory is open |
//! | `.kafka_cleanshutdown` | there after an orderly stop; taken away when the directory is opened |
//! | `recovery-point-offset-checkpoint` | the first offset of each partition that is not known to be durable |
//! | `log-start-offset-checkpoint` | the log start offset, of partitions where it is not the first segment's base |
//! | `replication-offset-checkpoint` | the high watermark of each partition |
//! | `kseg-topics.json` | the topics and their configuration, where no cluster keeps them |
//!
//! A checkpoint that cannot be read is taken for one without entries, and kept aside before it is written anew; see
//! [`OffsetCheckpoint`].
//!
//! Logs are opened when they are asked for, or all at once by [`LogDir::load_all`]. What the checkpoints say of those that are
//! not stays as it is.
//!
//! The first error of the device takes the whole directory out of service: every call then fails with
//! [`Error::Offline`] until it is opened again.
//!
//! Lock order: a partition's turn, then the topics, then the tables; a table's lock is never held across I/O.
//!
//! Source: Kafka `LogManager`.

mod background;
mod calls;
mod load;
mod look;
mod moving;
mod remove;
mod topic_calls;

pub use load::{LoadOptions, LoadSummary, Loaded};
pub use look::DirLook;
pub use topic_calls::TopicSurvey;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::checkpoint_files::{CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS};
use kseg_format::{
    CheckpointError, CleanShutdown, MetaProperties, Offset, PartitionMetadata, TopicPartition, Uuid,
};
use kseg_io_backends::{Backend, Kind};
use tracing::{info, warn};

use self::calls::Calls;
pub(crate) use self::calls::Inside;
use crate::clock::Clock;
use crate::compaction::Compaction;
use crate::config::{BrokerConfig, LogConfig};
use crate::error::{Error, Result};
use crate::health::Health;
use crate::log::{DirLock, Log};
use crate::offset_checkpoint::OffsetCheckpoint;
use crate::open::OpenOptions;
use crate::scheduler::{InlineScheduler, Scheduler};
use crate::sync::{Mutex, for_each};
use crate::topic::{
    CLUSTER_METADATA_TOPIC, DirKind, REMOTE_LOG_INDEX_CACHE, check_topic_name, parse_dir_name,
};
use crate::topics::{TOPICS, Topics};
use crate::trouble::Troubles;

const LOCK: &str = ".lock";

const MARKER_SIZE_MAX: u64 = 64 * 1024;

/// How a data directory is opened.
#[derive(Clone, Debug)]
pub struct LogDirOptions {
    /// The I/O backend.
    pub backend: Arc<dyn Backend>,
    /// Configuration of all topics that have none of their own.
    pub config: LogConfig,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Takes background work. Default: [`InlineScheduler`].
    pub scheduler: Arc<dyn Scheduler>,
    /// How long an idle producer is remembered, in milliseconds; see [`OpenOptions`].
    pub producer_expiration_ms: i64,
    /// How often idle producers are looked for, in milliseconds; see [`OpenOptions`].
    pub producer_expiration_check_ms: u64,
    /// Whether a client's transaction may begin only once it has been verified; see [`OpenOptions`].
    pub verify_transactions: bool,
    /// Threads that close the logs of a directory at an orderly stop (`num.recovery.threads.per.data.dir`). Default: 2; 0 is
    /// taken for 1.
    pub shutdown_threads: usize,
}

impl LogDirOptions {
    /// The defaults, on `backend`; those of [`OpenOptions`], but for the scheduler.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let OpenOptions {
            backend,
            config,
            clock,
            producer_expiration_ms,
            producer_expiration_check_ms,
            verify_transactions,
            ..
        } = OpenOptions::new(backend);
        LogDirOptions {
            backend,
            config,
            clock,
            scheduler: Arc::new(InlineScheduler::default()),
            producer_expiration_ms,
            producer_expiration_check_ms,
            verify_transactions,
            shutdown_threads: 2,
        }
    }

    /// The same, with what a broker's configuration says of topics, of producers and of the threads of an orderly stop:
    /// transactions are then verified unless it says otherwise.
    pub fn for_broker(self, config: &BrokerConfig) -> Self {
        LogDirOptions {
            config: config.topic_defaults.clone(),
            producer_expiration_ms: config.producer_id_expiration_ms.into(),
            producer_expiration_check_ms: config
                .producer_id_expiration_check_interval_ms
                .try_into()
                .unwrap_or(1),
            verify_transactions: config.transaction_partition_verification_enable,
            shutdown_threads: config.num_recovery_threads_per_data_dir.try_into().unwrap_or(1),
            ..self
        }
    }
}

/// A data directory that is open: no broker and no other process can open it meanwhile.
///
/// Shared by reference, as in an `Arc`: also [`shutdown`](Self::shutdown) takes no more. Dropping it without one is as if the
/// process had died: the next one to open it recovers.
pub struct LogDir {
    pub(crate) inner: Arc<DirInner>,
}

/// What background tasks share with the handle.
pub(crate) struct DirInner {
    pub(crate) path: PathBuf,
    pub(crate) options: LogDirOptions,
    clean: bool,
    marker: CleanShutdown,
    damaged_checkpoints: Vec<CheckpointError>,
    /// Who compacts the logs.
    compaction: Mutex<Option<Arc<dyn Compaction>>>,
    /// What the checkpoints said, for the logs that are not open.
    marks: Mutex<Checkpointed>,
    pub(crate) topics: Mutex<Topics>,
    pub(crate) health: Arc<Health>,
    pub(crate) troubles: Troubles,
    /// Ended by an orderly stop.
    calls: Calls,
    /// What came of the orderly stop: whether the marker was written. Held while it is going on.
    stopped: Mutex<Option<bool>>,
    /// The logs that are open. Held for a lookup, never across I/O.
    pub(crate) logs: Mutex<BTreeMap<TopicPartition, Arc<Log>>>,
    /// Copies that are being moved in.
    pub(crate) futures: Mutex<BTreeMap<TopicPartition, Arc<Log>>>,
    /// What is held while one partition's log is opened, which may take as long as a recovery does: others go on.
    opening: Mutex<BTreeMap<TopicPartition, Arc<Mutex<()>>>>,
    /// Partitions that another directory of the node has too, and which: nobody knows which is the right one.
    twice: Mutex<BTreeMap<TopicPartition, PathBuf>>,
    /// Released once this has been shut down or dropped, and every log in it closed or dropped.
    lock: Mutex<Option<DirLock>>,
    /// Held while the checkpoints are written.
    checkpoints: Mutex<Checkpoints>,
    /// Names found at opening that are no partition's and none of ours.
    pub(crate) unknown: Vec<String>,
}

type Offsets = BTreeMap<TopicPartition, Offset>;

#[derive(Clone, Debug, Default)]
struct Checkpointed {
    recovery_points: Offsets,
    log_starts: Offsets,
    high_watermarks: Offsets,
}

/// The files that the directory itself keeps.
#[derive(Debug)]
struct Checkpoints {
    recovery_points: OffsetCheckpoint,
    log_starts: OffsetCheckpoint,
    high_watermarks: OffsetCheckpoint,
}

impl Checkpoints {
    fn of(dir: &Path) -> Checkpoints {
        let at = |name| OffsetCheckpoint::new(dir.join(name));
        Checkpoints {
            recovery_points: at(RECOVERY_POINTS),
            log_starts: at(LOG_STARTS),
            high_watermarks: at(HIGH_WATERMARKS),
        }
    }

    fn damaged(&self) -> Vec<CheckpointError> {
        let all = [&self.recovery_points, &self.log_starts, &self.high_watermarks];
        all.into_iter().filter_map(OffsetCheckpoint::damage).cloned().collect()
    }
}

/// What an orderly stop left undone.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Logs that did not close, with the error. The directory then has no marker of a clean stop.
    pub failed: Vec<(TopicPartition, Error)>,
    /// Whether the marker of a clean stop was written.
    pub clean: bool,
}

impl LogDir {
    /// Opens the data directory at `path`, which is made where it is missing, and takes its lock.
    ///
    /// # Errors
    /// [`Error::Locked`] where a broker, another process or this one has it open; [`Error::NotADirectory`];
    /// [`Error::PartitionFolder`], in which nothing is made; [`Error::Io`]; [`Error::Topics`]. The marker of a clean stop is
    /// still there then, unless only its removal failed. A malformed checkpoint is no error: it is taken for one without entries, so that recovery begins at
    /// offset 0 and a log at its first segment, [`damaged_checkpoints`](Self::damaged_checkpoints) names it, and it is kept
    /// aside before it is written anew.
    pub fn open(path: &Path, options: LogDirOptions) -> Result<LogDir> {
        LogDir::prepare(path, options)?.begin()
    }

    /// Does what [`open`](Self::open) does as far as it changes nothing: the directory is made where it is missing, locked and
    /// read.
    pub(crate) fn prepare(path: &Path, options: LogDirOptions) -> Result<Prepared> {
        options.config.validate()?;
        let names = options.backend.names();
        match names.stat(path)? {
            None => names.create_dir_durably(path)?,
            Some(stat) if stat.kind != Kind::Dir => {
                return Err(Error::NotADirectory { path: path.to_path_buf(), found: "a file" });
            }
            Some(_) if LogDir::look(&*options.backend, path)? == DirLook::Partition => {
                return Err(Error::PartitionFolder { path: path.to_path_buf() });
            }
            Some(_) => {}
        }
        let lock_path = path.join(LOCK);
        let lock = names.lock(&lock_path).map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked { path: lock_path.clone() },
            _ => Error::Io(e),
        })?;
        let marker_path = path.join(CleanShutdown::FILE_NAME);
        let marker = names.read(&marker_path, MARKER_SIZE_MAX)?;
        let clean = marker.is_some() || !has_partitions(&*options.backend, path)?;
        let mut checkpoints = Checkpoints::of(path);
        let marks = Checkpointed {
            recovery_points: checkpoints.recovery_points.read(names)?,
            log_starts: checkpoints.log_starts.read(names)?,
            high_watermarks: checkpoints.high_watermarks.read(names)?,
        };
        let dir = DirInner {
            damaged_checkpoints: checkpoints.damaged(),
            compaction: Mutex::new(None),
            marks: Mutex::new(marks),
            topics: Mutex::new(Topics::read(&*options.backend, path, &options.config)?),
            health: Arc::new(Health::new(path)),
            troubles: Troubles::new(options.clock.clone()),
            calls: Calls::default(),
            stopped: Mutex::new(None),
            path: path.to_path_buf(),
            clean,
            marker: CleanShutdown::parse(&marker.unwrap_or_default()),
            logs: Mutex::new(BTreeMap::new()),
            futures: Mutex::new(BTreeMap::new()),
            opening: Mutex::new(BTreeMap::new()),
            unknown: Vec::new(),
            options,
            twice: Mutex::new(BTreeMap::new()),
            lock: Mutex::new(Some(Arc::new(lock))),
            checkpoints: Mutex::new(checkpoints),
        };
        Ok(Prepared(dir))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The checkpoints that could not be read when the directory was opened, each with its file and line.
    pub fn damaged_checkpoints(&self) -> &[CheckpointError] {
        &self.inner.damaged_checkpoints
    }

    /// The broker's epoch in the marker that the directory had when it was opened; `None` without a marker, or where it
    /// tells of none. The next orderly stop writes the same one.
    pub fn broker_epoch(&self) -> Option<i64> {
        self.inner.marker.broker_epoch
    }

    /// Whether the directory had been stopped in an orderly way, or was new.
    pub fn was_clean(&self) -> bool {
        self.inner.clean
    }

    /// Why the directory is out of service; `None` while it serves.
    pub fn offline(&self) -> Option<String> {
        self.inner.health.cause()
    }

    /// Names found when the directory was opened that are neither a partition's nor a file of Kafka's or of this crate.
    /// They are left alone.
    pub fn unknown(&self) -> &[String] {
        &self.inner.unknown
    }

    /// The id of the directory and its node, where it has been formatted for a broker.
    ///
    /// # Errors
    /// [`Error::SmallFile`] for a malformed `meta.properties`; [`Error::Io`].
    pub fn meta_properties(&self) -> Result<Option<MetaProperties>> {
        let _inside = self.inner.enter()?;
        let path = self.inner.path.join(MetaProperties::FILE_NAME);
        let Some(bytes) = self.inner.options.backend.names().read(&path, MARKER_SIZE_MAX)? else {
            return Ok(None);
        };
        let parsed = MetaProperties::parse(&bytes);
        parsed.map(Some).map_err(|source| Error::SmallFile { path, source })
    }

    /// The partitions that have a folder here, ascending: those in use, not the ones renamed for deletion, set aside or
    /// being moved in.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn partitions(&self) -> Result<Vec<TopicPartition>> {
        let _inside = self.inner.enter()?;
        self.inner.partitions()
    }

    /// Whether the partition has a folder here.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn has(&self, partition: &TopicPartition) -> Result<bool> {
        check_partition(partition)?;
        let dir = &self.inner;
        let _inside = dir.enter()?;
        Ok(dir
            .noted(dir.options.backend.names().stat(&dir.folder(partition)).map_err(Error::from))?
            .is_some())
    }

    /// How many partitions are here, those that are being moved in included.
    pub(crate) fn load(&self) -> Result<usize> {
        let _inside = self.inner.enter()?;
        let counts = |kind: &DirKind| matches!(kind, DirKind::Current | DirKind::Future);
        Ok(self.inner.folders()?.iter().filter(|(.., kind)| counts(kind)).count())
    }

    /// The log of a partition, opened if it is not yet; `None` where it has no folder.
    ///
    /// A call for a log that another thread is opening waits for it; one for any other log does not.
    ///
    /// # Errors
    /// As [`Log::open`]; [`Error::Offline`].
    pub fn get(&self, partition: &TopicPartition) -> Result<Option<Arc<Log>>> {
        self.inner.get(partition)
    }

    /// The log of a partition; made, with `config`, where there is none.
    ///
    /// `config` holds for a log that is opened by this call; `None` for the topic's, over the directory's own. Waits as
    /// [`get`](Self::get) does. The folder's name is durable on return.
    ///
    /// # Errors
    /// [`Error::TopicName`] for a name that Kafka refuses; else as [`Log::open`]; [`Error::Offline`].
    pub fn get_or_create(&self, partition: &TopicPartition, config: Option<LogConfig>) -> Result<Arc<Log>> {
        self.inner.get_or_create(partition, config)
    }

    /// Puts `compaction` in the place of the one who is told of truncations, deletions, moves and changes of configuration; it
    /// is told from the next one on.
    pub fn set_compaction(&self, compaction: Option<Arc<dyn Compaction>>) {
        *self.inner.compaction.lock() = compaction;
    }

    /// Truncates a partition's log and writes the recovery points at once: one above the log end would let recovery pass
    /// over what is written later. Where a sealed segment is reached, compaction of the log is held off meanwhile.
    ///
    /// # Errors
    /// As [`Log::truncate_to`] and [`checkpoint`](Self::checkpoint).
    pub fn truncate_to(&self, partition: &TopicPartition, offset: Offset) -> Result<bool> {
        let _inside = self.inner.serve()?;
        let Some(log) = self.get(partition)? else { return Ok(false) };
        let truncated = match log.truncate_active_to(offset)? {
            Some(truncated) => truncated,
            None => self.inner.cut(partition, &log, || log.truncate_to(offset))?,
        };
        self.checkpoint()?;
        Ok(truncated)
    }

    /// As [`Log::truncate_fully_and_start_at`], with compaction held off, and writes the recovery points at once.
    ///
    /// # Errors
    /// As there, and as [`checkpoint`](Self::checkpoint).
    pub fn truncate_fully_and_start_at(
        &self,
        partition: &TopicPartition,
        offset: Offset,
        log_start: Option<Offset>,
    ) -> Result<()> {
        let _inside = self.inner.serve()?;
        let Some(log) = self.get(partition)? else { return Ok(()) };
        self.inner.cut(partition, &log, || log.truncate_fully_and_start_at(offset, log_start))?;
        self.checkpoint()
    }

    /// Writes the three checkpoints, each atomically and durably.
    ///
    /// # Errors
    /// [`Error::Io`]; a checkpoint that could not be written has its old content. [`Error::Offline`].
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.checkpoint(&[RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS])
    }

    /// Stops in an orderly way: waits for the calls of other threads that are under way, flushes and closes every log that is
    /// open, on [`shutdown_threads`](LogDirOptions::shutdown_threads) threads, then writes the checkpoints, then the marker of a
    /// clean stop, and lets go of the lock.
    ///
    /// Where the directory had not been stopped in an orderly way before, the marker is written only if every partition
    /// in it has been opened, and so recovered. A directory that is out of service gets neither checkpoints nor marker;
    /// its logs are let go of as they are.
    ///
    /// Whatever becomes of it, the directory is not to be used any more: calls are refused with [`Error::ShutDown`], and a second
    /// stop does nothing. Not to be called by what a call of the directory calls, as a [`Compaction`].
    ///
    /// # Errors
    /// [`Error::Io`] where a checkpoint or the marker cannot be written. A log that does not close is in the report.
    pub fn shutdown(&self) -> Result<ShutdownReport> {
        let dir = &self.inner;
        let mut stopped = dir.stopped.lock();
        if let Some(clean) = *stopped {
            return Ok(ShutdownReport { failed: Vec::new(), clean });
        }
        dir.calls.end();
        let done = dir.stop();
        *stopped = Some(done.as_ref().is_ok_and(|report| report.clean));
        dir.logs.lock().clear();
        dir.futures.lock().clear();
        *dir.lock.lock() = None;
        done
    }
}

/// A directory that is locked and has been read; nothing in it has been changed.
pub(crate) struct Prepared(DirInner);

impl Prepared {
    /// The topics of its list.
    pub(crate) fn topics(&self) -> &Mutex<Topics> {
        &self.0.topics
    }

    /// Takes the marker of a clean stop away, and what the last process left undone in hand.
    pub(crate) fn begin(self) -> Result<LogDir> {
        let Prepared(mut dir) = self;
        dir.name_folders()?;
        dir.unknown = unknown_names(&*dir.options.backend, &dir.path)?;
        let folders = dir.folders()?;
        // From here on only an orderly stop makes the directory clean again.
        if dir.options.backend.names().remove(&dir.path.join(CleanShutdown::FILE_NAME))? {
            dir.options.backend.names().sync_dir(&dir.path)?;
        }
        let path = dir.path.display();
        if dir.clean {
            info!(dir = %path, "stopped in an orderly way: no log is recovered");
        } else {
            info!(dir = %path, "not stopped in an orderly way: logs are recovered when they are opened");
        }
        for name in &dir.unknown {
            warn!(dir = %path, name, "not a name of a data directory; left alone");
        }
        let dir = Arc::new(dir);
        for (name, _, kind) in folders {
            match kind {
                DirKind::Deleted => dir.remove_later(name),
                DirKind::Future => {
                    let dir = dir.path.display();
                    info!(%dir, name, "the copy of an interrupted move: it goes when the partition is moved again or deleted");
                }
                DirKind::Current | DirKind::Stray => {}
            }
        }
        Ok(LogDir { inner: dir })
    }
}

/// Runs `f` while a partition is not compacted.
pub(crate) fn paused<T>(
    compaction: &dyn Compaction,
    partition: &TopicPartition,
    f: impl FnOnce() -> Result<T>,
) -> Result<T> {
    compaction.pause(partition);
    let held = Held { compaction, partition, resumed: false };
    let done = f();
    held.resume()?;
    done
}

/// A pause, which ends with this even where what is done in it panics.
struct Held<'c> {
    compaction: &'c dyn Compaction,
    partition: &'c TopicPartition,
    resumed: bool,
}

impl Held<'_> {
    fn resume(mut self) -> Result<()> {
        self.resumed = true;
        self.compaction.resume(self.partition)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.resumed
            && let Err(error) = self.compaction.resume(self.partition)
        {
            warn!(partition = %self.partition, %error, "compaction not resumed after a panic");
        }
    }
}

impl DirInner {
    /// Begins a call: it may make others of its own, whatever comes meanwhile.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub(crate) fn enter(&self) -> Result<Inside<'_>> {
        self.calls.enter().ok_or_else(|| Error::ShutDown { dir: self.path.clone() })
    }

    /// Begins a call for which the directory must be in service.
    ///
    /// # Errors
    /// [`Error::Offline`], [`Error::ShutDown`].
    pub(crate) fn serve(&self) -> Result<Inside<'_>> {
        self.health.check()?;
        self.enter()
    }

    /// Closes the logs and leaves the directory in order. No call is under way.
    fn stop(&self) -> Result<ShutdownReport> {
        let mut report = ShutdownReport::default();
        let logs = self.open_logs();
        let futures: Vec<_> = self.futures.lock().iter().map(|(p, log)| (p.clone(), log.clone())).collect();
        if self.health.check().is_err() {
            logs.iter().chain(&futures).for_each(|(_, log)| log.abandon());
            return Ok(report);
        }
        let all: Vec<_> = logs.iter().chain(&futures).collect();
        let failed = Mutex::new(Vec::new());
        // All of them, also behind one that fails.
        for_each(self.options.shutdown_threads, &all, |(partition, log)| {
            // One that cannot be flushed is let go of all the same, and of the lock with it.
            let flushed = log.flush(true);
            if let Err(e) = flushed.and(log.close()) {
                failed.lock().push((partition.clone(), e));
            }
        });
        report.failed = std::mem::take(&mut *failed.lock());
        report.failed.sort_by(|a, b| a.0.cmp(&b.0));
        if !report.failed.is_empty() {
            for (partition, error) in &report.failed {
                warn!(dir = %self.path.display(), %partition, %error, "log not closed: no marker of a clean stop");
            }
            return Ok(report);
        }
        self.write_checkpoints(&[RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS])?;
        let all_opened =
            || Ok::<_, Error>(self.partitions()?.iter().all(|p| logs.iter().any(|(q, _)| p == q)));
        let names = self.options.backend.names();
        if self.clean || all_opened()? {
            names.write(&self.path.join(CleanShutdown::FILE_NAME), &self.marker.to_bytes(), true)?;
            names.sync_dir(&self.path)?;
            report.clean = true;
        }
        // As Kafka does: the file goes, then the lock on it.
        names.remove(&self.path.join(LOCK))?;
        Ok(report)
    }

    /// The result, of which the directory's health takes note.
    pub(crate) fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result {
            self.health.note(e);
        }
        result
    }

    pub(crate) fn compaction(&self) -> Option<Arc<dyn Compaction>> {
        self.compaction.lock().clone()
    }

    /// Runs `truncate` while the log is not compacted, and tells where its active segment begins then.
    fn cut<T>(
        &self,
        partition: &TopicPartition,
        log: &Log,
        truncate: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(compaction) = self.compaction() else { return truncate() };
        paused(&*compaction, partition, || {
            let done = truncate()?;
            compaction.cut(partition, log.active_base_offset()?)?;
            Ok(done)
        })
    }

    pub(crate) fn open_logs(&self) -> Vec<(TopicPartition, Arc<Log>)> {
        self.logs.lock().iter().map(|(p, log)| (p.clone(), log.clone())).collect()
    }

    pub(crate) fn folder(&self, partition: &TopicPartition) -> PathBuf {
        self.path.join(partition.to_string())
    }

    /// The folders of partitions, and the state that their names tell.
    pub(crate) fn folders(&self) -> Result<Vec<(String, TopicPartition, DirKind)>> {
        let mut folders = self.folders_however_named()?;
        folders.retain(|(name, partition, kind)| has_its_name(name, partition, *kind));
        Ok(folders)
    }

    /// Gives the folders of partitions in use the names by which they are looked for: Kafka takes `t-007` and `t-+7` for
    /// partition 7 too. One whose place is taken is left alone.
    fn name_folders(&self) -> Result<()> {
        let names = self.options.backend.names();
        let mut renamed = false;
        for (name, partition, kind) in self.folders_however_named()? {
            let folder = self.folder(&partition);
            if !has_its_name(&name, &partition, kind) && names.stat(&folder)?.is_none() {
                names.rename(&self.path.join(&name), &folder)?;
                info!(dir = %self.path.display(), name, to = %partition, "partition's folder given its usual name");
                renamed = true;
            }
        }
        if renamed {
            names.sync_dir(&self.path)?;
        }
        Ok(())
    }

    fn folders_however_named(&self) -> Result<Vec<(String, TopicPartition, DirKind)>> {
        let mut found = Vec::new();
        for entry in self.options.backend.names().list(&self.path)? {
            let Some(name) = entry.name.to_str().filter(|_| entry.kind == Kind::Dir) else { continue };
            if let Ok((partition, kind)) = parse_dir_name(name)
                && check_topic_name(&partition.topic).is_ok()
            {
                found.push((name.to_owned(), partition, kind));
            }
        }
        Ok(found)
    }

    pub(crate) fn partitions(&self) -> Result<Vec<TopicPartition>> {
        let folders = self.folders()?.into_iter();
        let mut found: Vec<_> =
            folders.filter(|(.., kind)| *kind == DirKind::Current).map(|(_, p, _)| p).collect();
        found.sort();
        Ok(found)
    }

    pub(crate) fn get(&self, partition: &TopicPartition) -> Result<Option<Arc<Log>>> {
        check_partition(partition)?;
        let folder = self.folder(partition);
        self.opened_once(partition, true, || match self.options.backend.names().stat(&folder)? {
            None => Ok(None),
            Some(_) => self.open_log(partition, None).map(Some),
        })
    }

    pub(crate) fn get_or_create(
        &self,
        partition: &TopicPartition,
        config: Option<LogConfig>,
    ) -> Result<Arc<Log>> {
        check_partition(partition)?;
        let folder = self.folder(partition);
        let opened = self.opened_once(partition, config.is_none(), || {
            let names = self.options.backend.names();
            if names.stat(&folder)?.is_none() {
                let id = self.topics.lock().0.get(&partition.topic).map(|topic| topic.id);
                self.make_folder(partition, id)?;
            }
            self.open_log(partition, config).map(Some)
        })?;
        // There is always one: it was made above.
        opened.ok_or(Error::Closed { dir: folder })
    }

    /// Makes a partition's folder, durably, with its topic's id where there is one. What the checkpoints say of a log that was
    /// there once is not of the new one.
    pub(crate) fn make_folder(&self, partition: &TopicPartition, id: Option<Uuid>) -> Result<()> {
        self.forget(partition);
        self.make_folder_at(&self.folder(partition), id)
    }

    pub(crate) fn make_folder_at(&self, folder: &Path, id: Option<Uuid>) -> Result<()> {
        let names = self.options.backend.names();
        names.create_dir_all(folder)?;
        if let Some(id) = id {
            self.write_id(folder, id)?;
        }
        names.sync_dir(&self.path)?;
        Ok(())
    }

    /// Writes the topic's id to a partition's folder, durably.
    fn write_id(&self, folder: &Path, id: Uuid) -> Result<()> {
        let path = folder.join(PartitionMetadata::FILE_NAME);
        Ok(self.options.backend.names().replace(&path, &PartitionMetadata::new(id).to_bytes())?)
    }

    /// The log of a partition from the table, or what `open` gives, which then is in the table. One thread at a time opens
    /// the log of one partition. With `of_topic` the configuration is the topic's.
    fn opened_once(
        &self,
        partition: &TopicPartition,
        of_topic: bool,
        open: impl FnOnce() -> Result<Option<Arc<Log>>>,
    ) -> Result<Option<Arc<Log>>> {
        self.health.check()?;
        if let Some(other) = self.twice.lock().get(partition) {
            let dirs = [self.path.clone(), other.clone()];
            return Err(Error::Duplicate { partition: partition.clone(), dirs });
        }
        let known = || self.logs.lock().get(partition).cloned();
        if let Some(log) = known() {
            return Ok(Some(log));
        }
        let _inside = self.enter()?;
        self.in_turn(partition, || {
            if let Some(log) = known() {
                return Ok(Some(log));
            }
            let opened = self.noted(open());
            if let Ok(Some(log)) = &opened {
                self.logs.lock().insert(partition.clone(), log.clone());
                // A topic that was changed meanwhile did not find this log in the table.
                if of_topic
                    && let Some(topic) = self.topics.lock().0.get(&partition.topic)
                    && let Ok(now) = topic.log_config(&self.options.config)
                {
                    log.update_config(now)?;
                }
            }
            opened
        })
    }

    /// Does what one thread at a time may do for a partition: opening its log, removing it.
    pub(crate) fn in_turn<T>(&self, partition: &TopicPartition, f: impl FnOnce() -> Result<T>) -> Result<T> {
        loop {
            let turn = self.turn_of(partition);
            let _held = turn.lock();
            // A turn that was given back while this thread waited is nobody's any more.
            if !Arc::ptr_eq(&turn, &self.turn_of(partition)) {
                continue;
            }
            let done = f();
            self.opening.lock().remove(partition);
            return done;
        }
    }

    /// What is held while the log of a partition is opened.
    fn turn_of(&self, partition: &TopicPartition) -> Arc<Mutex<()>> {
        let mut opening = self.opening.lock();
        opening.entry(partition.clone()).or_insert_with(|| Arc::new(Mutex::new(()))).clone()
    }

    fn open_log(&self, partition: &TopicPartition, config: Option<LogConfig>) -> Result<Arc<Log>> {
        let config = match config {
            Some(config) => config,
            None => self.topics.lock().log_config(&partition.topic, &self.options.config)?,
        };
        self.check_id(partition)?;
        let (recovery_point, log_start_offset, high_watermark) = {
            let marks = self.marks.lock();
            let at = |offsets: &Offsets| offsets.get(partition).copied();
            (at(&marks.recovery_points), at(&marks.log_starts), at(&marks.high_watermarks))
        };
        let options = OpenOptions {
            config,
            clean: self.clean,
            recovery_point: recovery_point.unwrap_or(Offset::ZERO),
            log_start_offset: log_start_offset.unwrap_or(Offset::ZERO),
            ..self.log_options()
        };
        let log = self.open_at(&self.folder(partition), options)?;
        if let Some(high_watermark) = high_watermark {
            log.update_high_watermark(high_watermark);
        }
        Ok(log)
    }

    /// Holds the id in a partition's folder against its topic's. Where the folder has lost it, it is written again.
    ///
    /// # Errors
    /// [`Error::TopicId`]; [`Error::SmallFile`] for a malformed file: nobody knows whose records these are then.
    ///
    /// Source: Kafka `UnifiedLog.initializeTopicId`.
    fn check_id(&self, partition: &TopicPartition) -> Result<()> {
        let found = self.topic_id(partition)?;
        let expected = self.topics.lock().0.get(&partition.topic).map(|topic| topic.id);
        match (expected, found) {
            (Some(expected), Some(found)) if expected != found => {
                Err(Error::TopicId { dir: self.folder(partition), expected, found })
            }
            (Some(expected), None) => {
                let folder = self.folder(partition);
                warn!(dir = %folder.display(), id = %expected, "partition.metadata was missing; written again");
                self.write_id(&folder, expected)
            }
            _ => Ok(()),
        }
    }

    /// Options of a log that is new, or was closed in an orderly way.
    pub(crate) fn log_options(&self) -> OpenOptions {
        OpenOptions {
            config: self.options.config.clone(),
            clock: self.options.clock.clone(),
            scheduler: self.options.scheduler.clone(),
            producer_expiration_ms: self.options.producer_expiration_ms,
            producer_expiration_check_ms: self.options.producer_expiration_check_ms,
            verify_transactions: self.options.verify_transactions,
            ..OpenOptions::new(self.options.backend.clone())
        }
    }

    pub(crate) fn open_at(&self, folder: &Path, options: OpenOptions) -> Result<Arc<Log>> {
        let lock = self.lock.lock().clone();
        let log = Log::open_under(folder, options, lock, Some(self.health.clone()))?;
        Ok(Arc::new(log))
    }

    /// Writes the checkpoints of these names, as a call of its own.
    pub(crate) fn checkpoint(&self, which: &[&str]) -> Result<()> {
        let _inside = self.serve()?;
        self.write_checkpoints(which)
    }

    /// Writes the checkpoints of these names.
    pub(crate) fn write_checkpoints(&self, which: &[&str]) -> Result<()> {
        self.health.check()?;
        let mut files = self.checkpoints.lock();
        let mut now = self.marks.lock().clone();
        for (partition, log) in self.open_logs() {
            let marks = log.inner.marks();
            now.recovery_points.insert(partition.clone(), marks.recovery_point);
            now.high_watermarks.insert(partition.clone(), marks.high_watermark.offset);
            let first = log.inner.segments().as_slice().first().map(|s| s.base_offset());
            if first.is_some_and(|first| marks.log_start > first) {
                now.log_starts.insert(partition, marks.log_start);
            } else {
                now.log_starts.remove(&partition);
            }
        }
        for name in which {
            let (file, offsets) = match *name {
                RECOVERY_POINTS => (&mut files.recovery_points, &now.recovery_points),
                LOG_STARTS => (&mut files.log_starts, &now.log_starts),
                _ => (&mut files.high_watermarks, &now.high_watermarks),
            };
            self.noted(file.write(self.options.backend.names(), offsets.iter().map(|(p, &o)| (p, o))))?;
        }
        Ok(())
    }

    /// Up to where a partition was compacted, as the file of whoever compacts the logs says.
    pub(crate) fn compacted(&self, partition: &TopicPartition) -> Result<Option<Offset>> {
        let mut file = OffsetCheckpoint::new(self.path.join(CLEANER_OFFSETS));
        Ok(file.read(self.options.backend.names())?.get(partition).copied())
    }

    /// Writes that in the place of whoever compacts the logs, where there is nobody who does; `None` takes the line out.
    pub(crate) fn note_compacted(&self, partition: &TopicPartition, offset: Option<Offset>) -> Result<()> {
        let _one_at_a_time = self.checkpoints.lock();
        let mut file = OffsetCheckpoint::new(self.path.join(CLEANER_OFFSETS));
        file.set(self.options.backend.names(), partition, offset)
    }

    /// Another directory has the partition too: its log is not to be had from here.
    pub(crate) fn note_twice(&self, partition: &TopicPartition, other: &Path) {
        self.twice.lock().insert(partition.clone(), other.to_path_buf());
    }

    /// The checkpoints know the partition no more.
    pub(crate) fn forget(&self, partition: &TopicPartition) {
        self.twice.lock().remove(partition);
        let mut marks = self.marks.lock();
        marks.recovery_points.remove(partition);
        marks.log_starts.remove(partition);
        marks.high_watermarks.remove(partition);
    }

    /// What the checkpoints will say of a partition whose log is closed for a while.
    pub(crate) fn remember(&self, partition: &TopicPartition, log: &Log) {
        let now = log.inner.marks();
        let mut marks = self.marks.lock();
        marks.recovery_points.insert(partition.clone(), now.recovery_point);
        marks.high_watermarks.insert(partition.clone(), now.high_watermark.offset);
        marks.log_starts.insert(partition.clone(), now.log_start);
    }
}

impl fmt::Debug for LogDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogDir")
            .field("path", &self.inner.path)
            .field("clean", &self.inner.clean)
            .finish_non_exhaustive()
    }
}

/// Names that Kafka refuses, and numbers that a folder's name cannot hold, never become a path.
fn check_partition(partition: &TopicPartition) -> Result<()> {
    let topic = &partition.topic;
    check_topic_name(topic).map_err(|source| Error::TopicName { topic: topic.clone(), source })?;
    if partition.partition < 0 {
        return Err(Error::InvalidArgument {
            what: format!("partition {partition}: expected a number from 0 on"),
        });
    }
    Ok(())
}

/// Checkpoints of a data directory, the cleaner's among them.
const CHECKPOINTS: [&str; 4] = [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS];

/// Whether a name belongs to a data directory, apart from the partitions' folders.
fn is_ours(name: &str) -> bool {
    let others = [
        LOCK,
        CleanShutdown::FILE_NAME,
        TOPICS,
        MetaProperties::FILE_NAME,
        "bootstrap.checkpoint",
        REMOTE_LOG_INDEX_CACHE,
    ];
    let plain = name.strip_suffix(".tmp").unwrap_or(name);
    others.contains(&plain)
        || CHECKPOINTS.iter().any(|ours| *ours == plain || OffsetCheckpoint::is_kept(plain, ours))
}

/// Names that are neither a partition's folder nor a file that belongs here.
fn unknown_names(backend: &dyn Backend, path: &Path) -> Result<Vec<String>> {
    let mut unknown = Vec::new();
    for entry in backend.names().list(path)? {
        let name = entry.name.to_string_lossy().into_owned();
        let partitions =
            || parse_dir_name(&name).is_ok_and(|(partition, kind)| has_its_name(&name, &partition, kind));
        let known = is_ours(&name) || (entry.kind == Kind::Dir && partitions());
        if !known {
            unknown.push(name);
        }
    }
    Ok(unknown)
}

/// Whether any folder in the directory is a partition's, other than the metadata quorum's.
fn has_partitions(backend: &dyn Backend, path: &Path) -> Result<bool> {
    let is_one = |name: &str| {
        parse_dir_name(name).is_ok_and(|(partition, _)| partition.topic != CLUSTER_METADATA_TOPIC)
    };
    let entries = backend.names().list(path)?;
    Ok(entries.iter().any(|e| e.kind == Kind::Dir && e.name.to_str().is_some_and(is_one)))
}

/// Whether the folder of a partition in use has the name by which it is looked for; the others have names of their own.
fn has_its_name(name: &str, partition: &TopicPartition, kind: DirKind) -> bool {
    kind != DirKind::Current || *name == partition.to_string()
}
