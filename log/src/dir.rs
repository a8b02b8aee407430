//! A data directory: many partition logs, one lock, the marker of a clean stop, and the checkpoints.
//!
//! | file | content |
//! |---|---|
//! | `.lock` | held for as long as the directory is open |
//! | `.kafka_cleanshutdown` | there after an orderly stop; taken away when the directory is opened |
//! | `recovery-point-offset-checkpoint` | the first offset of each partition that is not known to be durable |
//! | `log-start-offset-checkpoint` | the log start offset, of partitions where it is not the first segment's base |
//! | `replication-offset-checkpoint` | the high watermark of each partition |
//!
//! Logs are opened when they are asked for. What the checkpoints say of those that are not stays as it is.
//!
//! Source: Kafka `LogManager`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::{CleanShutdown, Offset, TopicPartition, parse_offsets, print_offsets};
use kseg_io_backends::{Backend, Kind};

use crate::clock::Clock;
use crate::config::LogConfig;
use crate::error::{Error, Result};
use crate::log::{DirLock, Log};
use crate::open::OpenOptions;
use crate::scheduler::Scheduler;
use crate::sync::Mutex;
use crate::topic::{DirKind, check_topic_name, parse_dir_name};

const LOCK: &str = ".lock";
const CLEAN_MARKER: &str = ".kafka_cleanshutdown";
const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";

/// Largest checkpoint that is read: far above a line for each of a million partitions.
const CHECKPOINT_SIZE_MAX: u64 = 512 * 1024 * 1024;
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
    /// Takes background work.
    pub scheduler: Arc<dyn Scheduler>,
}

impl LogDirOptions {
    /// The defaults, on `backend`; see [`OpenOptions`].
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let OpenOptions { backend, config, clock, scheduler, .. } = OpenOptions::new(backend);
        LogDirOptions { backend, config, clock, scheduler }
    }
}

/// A data directory that is open: no broker and no other process can open it meanwhile.
///
/// Dropping it without [`shutdown`](Self::shutdown) is as if the process had died: the next one to open it recovers.
pub struct LogDir {
    path: PathBuf,
    options: LogDirOptions,
    clean: bool,
    marker: CleanShutdown,
    recovery_points: Offsets,
    log_starts: Offsets,
    high_watermarks: Offsets,
    /// The logs that are open. Held for a lookup, never across I/O.
    logs: Mutex<BTreeMap<TopicPartition, Arc<Log>>>,
    /// What is held while one partition's log is opened, which may take as long as a recovery does: others go on.
    opening: Mutex<BTreeMap<TopicPartition, Arc<Mutex<()>>>>,
    /// Released once this is dropped and every log in it has been closed or dropped.
    lock: DirLock,
    /// Held while the checkpoints are written.
    checkpoints: Mutex<()>,
}

type Offsets = BTreeMap<TopicPartition, Offset>;

/// What an orderly stop left undone.
#[derive(Debug, Default)]
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
    /// [`Error::Checkpoint`] for a malformed checkpoint; [`Error::Io`].
    pub fn open(path: &Path, options: LogDirOptions) -> Result<LogDir> {
        options.config.validate()?;
        let names = options.backend.names();
        match names.stat(path)? {
            None => {
                // Each directory that is made is durable only once the one above it is synced.
                let mut made = vec![path];
                for above in path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
                    made.push(above);
                    if names.stat(above)?.is_some() {
                        break;
                    }
                }
                names.create_dir_all(path)?;
                for above in &made[1..] {
                    names.sync_dir(above)?;
                }
            }
            Some(stat) if stat.kind != Kind::Dir => {
                return Err(Error::NotADirectory { path: path.to_path_buf(), found: "a file" });
            }
            Some(_) => {}
        }
        let lock_path = path.join(LOCK);
        let lock = names.lock(&lock_path).map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked { path: lock_path.clone() },
            _ => Error::Io(e),
        })?;
        let marker_path = path.join(CLEAN_MARKER);
        let marker = names.read(&marker_path, MARKER_SIZE_MAX)?;
        let clean = marker.is_some() || !has_partitions(&*options.backend, path)?;
        let dir = LogDir {
            recovery_points: read_offsets(&*options.backend, path, RECOVERY_POINTS)?,
            log_starts: read_offsets(&*options.backend, path, LOG_STARTS)?,
            high_watermarks: read_offsets(&*options.backend, path, HIGH_WATERMARKS)?,
            path: path.to_path_buf(),
            clean,
            marker: CleanShutdown::parse(&marker.unwrap_or_default()),
            logs: Mutex::new(BTreeMap::new()),
            opening: Mutex::new(BTreeMap::new()),
            options,
            lock: Arc::new(lock),
            checkpoints: Mutex::new(()),
        };
        // From here on only an orderly stop makes the directory clean again.
        if dir.options.backend.names().remove(&marker_path)? {
            dir.options.backend.names().sync_dir(path)?;
        }
        Ok(dir)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory had been stopped in an orderly way, or was new.
    pub fn was_clean(&self) -> bool {
        self.clean
    }

    /// The partitions that have a folder here, ascending: those in use, not the ones renamed for deletion, set aside or
    /// being moved in.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn partitions(&self) -> Result<Vec<TopicPartition>> {
        let mut found = Vec::new();
        for entry in self.options.backend.names().list(&self.path)? {
            let Some(name) = entry.name.to_str().filter(|_| entry.kind == Kind::Dir) else { continue };
            if let Ok((partition, DirKind::Current)) = parse_dir_name(name)
                && check_topic_name(&partition.topic).is_ok()
            {
                found.push(partition);
            }
        }
        found.sort();
        Ok(found)
    }

    /// The log of a partition, opened if it is not yet; `None` where it has no folder.
    ///
    /// A call for a log that another thread is opening waits for it; one for any other log does not.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn get(&self, partition: &TopicPartition) -> Result<Option<Arc<Log>>> {
        check_partition(partition)?;
        let folder = self.path.join(partition.to_string());
        self.opened_once(partition, || match self.options.backend.names().stat(&folder)? {
            None => Ok(None),
            Some(_) => self.open_log(partition, self.options.config.clone()).map(Some),
        })
    }

    /// The log of a partition; made, with `config`, where there is none.
    ///
    /// `config` holds for a log that is opened by this call; `None` for the directory's own. Waits as [`get`](Self::get)
    /// does.
    ///
    /// # Errors
    /// [`Error::TopicName`] for a name that Kafka refuses; else as [`Log::open`].
    pub fn get_or_create(&self, partition: &TopicPartition, config: Option<LogConfig>) -> Result<Arc<Log>> {
        check_partition(partition)?;
        let folder = self.path.join(partition.to_string());
        let opened = self.opened_once(partition, || {
            let names = self.options.backend.names();
            if names.stat(&folder)?.is_none() {
                names.create_dir_all(&folder)?;
                names.sync_dir(&self.path)?;
            }
            self.open_log(partition, config.unwrap_or_else(|| self.options.config.clone())).map(Some)
        })?;
        // There is always one: it was made above.
        opened.ok_or(Error::Closed { dir: folder })
    }

    /// The log of a partition from the table, or what `open` gives, which then is in the table. One thread at a time opens
    /// the log of one partition.
    fn opened_once(
        &self,
        partition: &TopicPartition,
        open: impl FnOnce() -> Result<Option<Arc<Log>>>,
    ) -> Result<Option<Arc<Log>>> {
        let known = || self.logs.lock().get(partition).cloned();
        if let Some(log) = known() {
            return Ok(Some(log));
        }
        loop {
            let turn = self.turn_of(partition);
            let _held = turn.lock();
            if let Some(log) = known() {
                return Ok(Some(log));
            }
            // A turn that was given back while this thread waited is nobody's any more.
            if !Arc::ptr_eq(&turn, &self.turn_of(partition)) {
                continue;
            }
            let opened = open();
            if let Ok(Some(log)) = &opened {
                self.logs.lock().insert(partition.clone(), log.clone());
            }
            self.opening.lock().remove(partition);
            return opened;
        }
    }

    /// What is held while the log of a partition is opened.
    fn turn_of(&self, partition: &TopicPartition) -> Arc<Mutex<()>> {
        let mut opening = self.opening.lock();
        opening.entry(partition.clone()).or_insert_with(|| Arc::new(Mutex::new(()))).clone()
    }

    fn open_log(&self, partition: &TopicPartition, config: LogConfig) -> Result<Arc<Log>> {
        let at = |offsets: &Offsets| offsets.get(partition).copied().unwrap_or(Offset::ZERO);
        let log = Log::open_under(
            &self.path.join(partition.to_string()),
            OpenOptions {
                backend: self.options.backend.clone(),
                config,
                clean: self.clean,
                recovery_point: at(&self.recovery_points),
                log_start_offset: at(&self.log_starts),
                clock: self.options.clock.clone(),
                scheduler: self.options.scheduler.clone(),
                ..OpenOptions::new(self.options.backend.clone())
            },
            Some(self.lock.clone()),
        )?;
        if let Some(&high_watermark) = self.high_watermarks.get(partition) {
            log.update_high_watermark(high_watermark);
        }
        Ok(Arc::new(log))
    }

    /// Truncates a partition's log and writes the recovery points at once: one above the log end would let recovery pass
    /// over what is written later.
    ///
    /// # Errors
    /// As [`Log::truncate_to`] and [`checkpoint`](Self::checkpoint).
    pub fn truncate_to(&self, partition: &TopicPartition, offset: Offset) -> Result<bool> {
        let Some(log) = self.get(partition)? else { return Ok(false) };
        let truncated = log.truncate_to(offset)?;
        self.checkpoint()?;
        Ok(truncated)
    }

    /// As [`Log::truncate_fully_and_start_at`], and writes the recovery points at once.
    ///
    /// # Errors
    /// As there, and as [`checkpoint`](Self::checkpoint).
    pub fn truncate_fully_and_start_at(
        &self,
        partition: &TopicPartition,
        offset: Offset,
        log_start: Option<Offset>,
    ) -> Result<()> {
        let Some(log) = self.get(partition)? else { return Ok(()) };
        log.truncate_fully_and_start_at(offset, log_start)?;
        self.checkpoint()
    }

    /// Writes the three checkpoints, each atomically and durably.
    ///
    /// # Errors
    /// [`Error::Io`]; a checkpoint that could not be written has its old content.
    pub fn checkpoint(&self) -> Result<()> {
        let _one_at_a_time = self.checkpoints.lock();
        let logs: Vec<_> = self.logs.lock().iter().map(|(p, log)| (p.clone(), log.clone())).collect();
        let mut recovery_points = self.recovery_points.clone();
        let mut log_starts = self.log_starts.clone();
        let mut high_watermarks = self.high_watermarks.clone();
        for (partition, log) in logs {
            let marks = log.inner.marks();
            recovery_points.insert(partition.clone(), marks.recovery_point);
            high_watermarks.insert(partition.clone(), marks.high_watermark.offset);
            let first = log.inner.segments().as_slice().first().map(|s| s.base_offset());
            if first.is_some_and(|first| marks.log_start > first) {
                log_starts.insert(partition, marks.log_start);
            } else {
                log_starts.remove(&partition);
            }
        }
        self.write_offsets(RECOVERY_POINTS, &recovery_points)?;
        self.write_offsets(LOG_STARTS, &log_starts)?;
        self.write_offsets(HIGH_WATERMARKS, &high_watermarks)
    }

    fn write_offsets(&self, name: &str, offsets: &Offsets) -> Result<()> {
        let text = print_offsets(offsets.iter().map(|(p, &o)| (p, o)));
        self.options.backend.names().replace(&self.path.join(name), &text)?;
        Ok(())
    }

    /// Stops in an orderly way: flushes and closes every log that is open, writes the checkpoints, then the marker of a
    /// clean stop, and lets go of the lock.
    ///
    /// Where the directory had not been stopped in an orderly way before, the marker is written only if every partition
    /// in it has been opened, and so recovered.
    ///
    /// # Errors
    /// [`Error::Io`] where a checkpoint or the marker cannot be written. A log that does not close is in the report.
    pub fn shutdown(self) -> Result<ShutdownReport> {
        let mut report = ShutdownReport::default();
        let logs: Vec<_> = self.logs.lock().iter().map(|(p, log)| (p.clone(), log.clone())).collect();
        for (partition, log) in &logs {
            if let Err(e) = log.flush(true).and_then(|()| log.close()) {
                report.failed.push((partition.clone(), e));
            }
        }
        if !report.failed.is_empty() {
            return Ok(report);
        }
        self.checkpoint()?;
        let all_opened =
            || Ok::<_, Error>(self.partitions()?.iter().all(|p| logs.iter().any(|(q, _)| p == q)));
        if self.clean || all_opened()? {
            let names = self.options.backend.names();
            names.write(&self.path.join(CLEAN_MARKER), &self.marker.to_bytes(), true)?;
            names.sync_dir(&self.path)?;
            report.clean = true;
        }
        // As Kafka does: the file goes, then the lock on it.
        self.options.backend.names().remove(&self.path.join(LOCK))?;
        Ok(report)
    }
}

impl fmt::Debug for LogDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogDir").field("path", &self.path).field("clean", &self.clean).finish_non_exhaustive()
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

/// Whether any folder in the directory is a partition's.
fn has_partitions(backend: &dyn Backend, path: &Path) -> Result<bool> {
    let entries = backend.names().list(path)?;
    Ok(entries
        .iter()
        .any(|e| e.kind == Kind::Dir && e.name.to_str().is_some_and(|name| parse_dir_name(name).is_ok())))
}

fn read_offsets(backend: &dyn Backend, dir: &Path, name: &str) -> Result<Offsets> {
    let path = dir.join(name);
    match backend.names().read(&path, CHECKPOINT_SIZE_MAX)? {
        None => Ok(Offsets::new()),
        Some(bytes) => parse_offsets(&bytes).map_err(|e| Error::Checkpoint(e.in_file(&path))),
    }
}
