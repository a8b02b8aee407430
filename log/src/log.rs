//! The handle of a partition log: what it consists of, its offsets, closing.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::checkpoint_files::LEADER_EPOCHS;
use kseg_format::{LeaderEpoch, Offset, TopicPartition, print_epochs};
use kseg_io_backends::{Backend, Held};
use kseg_segment::{FileKind, Segment, SegmentConfig, Suffix, file_name};
use tracing::{info, warn};

use crate::clock::Clock;
use crate::config::LogConfig;
use crate::counted::Counted;
use crate::durability::Committer;
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::health::Health;
use crate::kept::Kept;
use crate::leader_epoch::{EpochEnd, FileWrite, LeaderEpochCache};
use crate::marks::{Mark, Marks};
use crate::observer::Observer;
use crate::open::LoadReport;
use crate::pressure::PressureGauge;
use crate::producer_state::ProducerState;
use crate::scheduler::{Scheduler, Task};
use crate::segments::Segments;
use crate::sync::{AtomicBool, AtomicI64, AtomicU64, Mutex, Ordering, RwLock};
use crate::trouble::{Trouble, Troubles};

/// A partition log: segments with ascending base offsets, of which the last one takes the appends.
///
/// One thread at a time changes a log (its methods see to that with a mutex); any number may read beside it, and none
/// of them waits for an append, a flush or a roll. Handles are cheap to share behind an `Arc`.
///
/// What an append accepted can be read when the call returns. It is durable once [`flush`](Log::flush) has returned, or
/// once the flush that a roll schedules has run; after a flush that failed the log takes no more appends until it is
/// opened again.
///
/// Source: Kafka `UnifiedLog` over `LocalLog`.
pub struct Log {
    pub(crate) inner: Arc<Inner>,
    pub(crate) report: LoadReport,
}

/// What background tasks share with the handle.
pub(crate) struct Inner {
    pub(crate) dir: PathBuf,
    pub(crate) partition: TopicPartition,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) scheduler: Arc<dyn Scheduler>,
    pub(crate) producer_expiration_ms: i64,
    pub(crate) config: Counted<Arc<LogConfig>>,
    /// Its `max.message.bytes`, for those who hold no lock; see [`batch_size_max`](Inner::batch_size_max).
    pub(crate) batch_size_max: AtomicU64,
    /// All offsets. Held for a copy or an assignment, never across I/O.
    pub(crate) marks: Counted<Marks>,
    /// The segment list, replaced as a whole. A segment is in the list before a mark lies in it, and the log start has
    /// moved on before a segment leaves: so a reader takes the marks first and the list second.
    pub(crate) segments: Counted<Arc<Segments>>,
    pub(crate) epochs: Counted<LeaderEpochCache>,
    /// The sealed segments' mutex: whoever removes, renames, cuts or replaces some holds it, also across syncs; appends and
    /// rolls do not. Taken before the log's mutex.
    pub(crate) sealed: Mutex<()>,
    /// The log's mutex: whoever changes the log holds it.
    pub(crate) writer: Mutex<Writer>,
    /// Set once by the first failed sync or write; the log is read-only from then on.
    pub(crate) fence: Fence,
    /// The clock's time of the last flush, or of the opening. Orders nothing: Relaxed. Beside the log's mutex, so that
    /// producers whom one sync has served do not queue for it.
    pub(crate) last_flush_ms: AtomicI64,
    /// Who waits for records to be durable.
    pub(crate) committer: Committer,
    /// Errors of work that nobody waits for.
    pub(crate) troubles: Troubles,
    pub(crate) closed: AtomicBool,
    /// Closed without a write, as if the process had died.
    pub(crate) abandoned: AtomicBool,
    /// Transactions begin only with the guard of their verification.
    pub(crate) verify_transactions: AtomicBool,
    /// Held while the epoch file is written: background work writes it too.
    pub(crate) epoch_file: Mutex<()>,
    /// Background work that changes files of the directory holds it shared, and looks first whether the log is closed. Who
    /// closes the log takes it alone once: from then on another log may have the directory's name.
    pub(crate) late: RwLock<()>,
    /// Counts what has changed the names in the directory: each made segment, each swap.
    pub(crate) names_made: AtomicU64,
    /// The count at the beginning of the last sync of the directory.
    pub(crate) names_synced: AtomicU64,
    /// How long appends and flushes take, of all logs of the directory.
    pub(crate) pressure: Arc<PressureGauge>,
    /// The state of the data directory that the log is in; none for a log on its own.
    pub(crate) health: Option<Arc<Health>>,
    /// What keeps others away, until the log is closed or abandoned. Last, so that all else is gone first where the log is
    /// dropped.
    pub(crate) hold: Mutex<Option<Hold>>,
}

/// What keeps a partition's folder from others.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The claim that nobody else in this process can have.
    pub(crate) _claim: Box<dyn Held>,
    /// The data directory's lock, where the log is in one.
    pub(crate) _lock: Option<DirLock>,
}

/// A data directory's lock, shared by the directory and the logs that are open in it.
pub(crate) type DirLock = Arc<Box<dyn Held>>;

/// What only the thread that changes the log looks at.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) producers: ProducerState,
    /// Counts truncations that reached a sealed segment.
    pub(crate) cuts: u64,
    /// Counts appends.
    pub(crate) appends: u64,
    pub(crate) observer: Option<Observer>,
    /// What the last append went by.
    pub(crate) kept: Option<Box<Kept>>,
}

/// Work for the scheduler, handed over once the log's mutex has been released.
#[derive(Default)]
pub(crate) struct Deferred(Vec<(&'static str, u64, Task)>);

impl Deferred {
    pub(crate) fn push(&mut self, name: &'static str, delay_ms: u64, task: impl FnOnce() + Send + 'static) {
        self.0.push((name, delay_ms, Box::new(task)));
    }
}

impl Inner {
    /// Runs `f` under the log's mutex, then hands over the work that it put off.
    pub(crate) fn locked<T>(&self, f: impl FnOnce(&mut Writer, &mut Deferred) -> Result<T>) -> Result<T> {
        let mut deferred = Deferred::default();
        let mut writer = self.writer.lock();
        let before = writer.observer.as_ref().map(|_| self.marks().high_watermark.offset);
        // One value from here to the caller: it is as large as an error, and would be copied each time it is passed on.
        let result = match self.check_health() {
            Ok(()) => f(&mut writer, &mut deferred),
            Err(offline) => Err(offline),
        };
        self.note(&result);
        if let (Some(before), Some(observer)) = (before, &writer.observer) {
            let now = self.marks().high_watermark.offset;
            if now != before {
                observer.tell(now);
            }
        }
        drop(writer);
        self.hand_over(deferred);
        result
    }

    /// As [`locked`](Self::locked), for whoever may remove, rename or cut sealed segments.
    pub(crate) fn locked_alone<T>(
        &self,
        f: impl FnOnce(&mut Writer, &mut Deferred) -> Result<T>,
    ) -> Result<T> {
        let _sealed_ones = self.sealed.lock();
        self.locked(f)
    }

    #[inline]
    pub(crate) fn hand_over(&self, deferred: Deferred) {
        if !deferred.0.is_empty() {
            self.schedule(deferred);
        }
    }

    #[cold]
    fn schedule(&self, deferred: Deferred) {
        for (name, delay_ms, task) in deferred.0 {
            self.scheduler.schedule(name, delay_ms, task);
        }
    }

    /// # Errors
    /// [`Error::Offline`] where the data directory has failed.
    #[inline]
    pub(crate) fn check_health(&self) -> Result<()> {
        match &self.health {
            Some(health) => health.check(),
            None => Ok(()),
        }
    }

    /// The data directory's health takes note of a result.
    #[inline]
    fn note<T>(&self, result: &Result<T>) {
        if let (Err(error), Some(health)) = (result, &self.health) {
            health.note(error);
        }
    }

    /// The result, of which the data directory's health takes note.
    #[inline]
    pub(crate) fn noted<T>(&self, result: Result<T>) -> Result<T> {
        self.note(&result);
        result
    }

    pub(crate) fn last_flush_ms(&self) -> i64 {
        self.last_flush_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn marks(&self) -> Marks {
        *self.marks.read()
    }

    /// One of the marks, without a copy of all.
    #[inline]
    pub(crate) fn log_end(&self) -> Offset {
        self.marks.read().log_end.offset
    }

    pub(crate) fn segments(&self) -> Arc<Segments> {
        self.segments.read().clone()
    }

    pub(crate) fn config(&self) -> Arc<LogConfig> {
        self.config.read().clone()
    }

    /// The most bytes that a batch may have.
    #[inline]
    pub(crate) fn batch_size_max(&self) -> u64 {
        // A number by itself, which publishes nothing: Relaxed.
        self.batch_size_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_config(&self, config: LogConfig) {
        let batch_size_max = batch_size_max(&config);
        let mut in_force = self.config.write();
        *in_force = Arc::new(config);
        // Under the lock, so that of two changes at once the same one wins in both.
        self.batch_size_max.store(batch_size_max, Ordering::Relaxed);
    }

    pub(crate) fn active(&self) -> Result<Arc<Segment>> {
        let active = self.segments.read().active().cloned();
        active.ok_or_else(|| Error::Closed { dir: self.dir.clone() })
    }

    /// Refuses a change of a log that is closed or fenced.
    pub(crate) fn check_writable(&self) -> Result<()> {
        // Both flags are set under the mutex that the caller holds, or by a flush beside it, whose failure need not be
        // seen by an append that began before: Relaxed would do; Acquire pairs with the Release stores for readers.
        if self.closed.load(Ordering::Acquire) {
            return Err(self.is_closed());
        }
        if self.fence.is_set() {
            return Err(self.fenced());
        }
        Ok(())
    }

    #[cold]
    fn is_closed(&self) -> Error {
        Error::Closed { dir: self.dir.clone() }
    }

    /// The error of whoever meets the fence.
    #[cold]
    pub(crate) fn fenced(&self) -> Error {
        Error::Fenced { dir: self.dir.clone(), cause: self.fence.cause() }
    }

    /// Takes note of an error of a write or sync: the log is read-only from then on.
    pub(crate) fn fence_on<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && error.fences()
        {
            self.fence.set(error);
        }
        result
    }

    pub(crate) fn segment_config(&self) -> SegmentConfig {
        segment_config(&self.config())
    }

    pub(crate) fn new_segment(&self, base: Offset) -> Result<Arc<Segment>> {
        let config = self.segment_config();
        let segment = Segment::create(self.backend.clone(), &self.dir, base, config, self.clock.now_ms());
        // Before the segment is in the list: a flush that finds it there finds the count. Pairs with `sync_new_names`.
        self.names_made.fetch_add(1, Ordering::Release);
        Ok(Arc::new(segment.map_err(|e| self.wrap(e))?))
    }

    #[cold]
    pub(crate) fn wrap(&self, source: kseg_segment::Error) -> Error {
        Error::Segment { dir: self.dir.clone(), source }
    }

    /// Writes the leader epochs to their file, atomically and durably.
    pub(crate) fn write_epochs(&self) -> Result<()> {
        let _one_at_a_time = self.epoch_file.lock();
        let text = print_epochs(self.epochs.read().entries());
        self.backend.names().replace(&self.dir.join(LEADER_EPOCHS), &text)?;
        Ok(())
    }

    /// Renames the files of `segments` to `.deleted` now, and removes them after `file.delete.delay.ms`.
    pub(crate) fn delete_later(
        self: &Arc<Self>,
        segments: Vec<Arc<Segment>>,
        deferred: &mut Deferred,
    ) -> Result<()> {
        let delay = u64::try_from(self.config().file_delete_delay_ms).unwrap_or(0);
        let mut renamed = Ok(());
        for segment in segments {
            if let Err(e) = segment.rename(Suffix::Deleted) {
                // A file that still has its name may by then be another segment's: it is left.
                renamed = renamed.and(Err(self.wrap(e)));
                continue;
            }
            info!(file = %segment.path().display(), delay_ms = delay, "segment will be deleted");
            self.push_late(deferred, "delete-file", delay, move |log| {
                segment.remove().map_err(|e| log.wrap(e))
            });
        }
        renamed
    }

    /// Renames the snapshots at `offsets` to `.deleted` now, and removes them after `file.delete.delay.ms`.
    pub(crate) fn delete_snapshots_later(
        self: &Arc<Self>,
        writer: &mut Writer,
        offsets: &[Offset],
        deferred: &mut Deferred,
    ) -> Result<()> {
        let delay = u64::try_from(self.config().file_delete_delay_ms).unwrap_or(0);
        for &offset in offsets {
            if !writer.producers.mark_snapshot_deleted(&mut self.snapshots(), offset)? {
                continue;
            }
            let to = self.dir.join(file_name(offset, FileKind::Snapshot, Suffix::Deleted));
            self.push_late(deferred, "delete-producer-snapshot", delay, move |log| {
                Ok(log.backend.names().remove(&to).map(drop)?)
            });
        }
        Ok(())
    }

    /// Puts off work that changes files of the directory. It is not done once the log has been closed or dropped: what is
    /// left is removed when the log is opened next.
    fn push_late(
        self: &Arc<Self>,
        deferred: &mut Deferred,
        task: &'static str,
        delay_ms: u64,
        work: impl FnOnce(&Inner) -> Result<()> + Send + 'static,
    ) {
        let log = Arc::downgrade(self);
        deferred.push(task, delay_ms, move || {
            let Some(log) = log.upgrade() else { return };
            let _not_closed_meanwhile = log.late.read();
            if !log.closed.load(Ordering::Acquire) {
                log.troubles.note(task, work(&log));
            }
        });
    }

    /// Waits for background work that changes files; the log has been closed, so that there will be no more of it.
    fn end_late_work(&self) {
        drop(self.late.write());
    }
}

/// The part of a topic's configuration that a segment takes over when it is opened.
pub(crate) fn segment_config(config: &LogConfig) -> SegmentConfig {
    SegmentConfig {
        index_interval_bytes: u32::try_from(config.index_interval_bytes).unwrap_or(0),
        index_size_max: u32::try_from(config.segment_index_bytes).unwrap_or(0),
        preallocate: config.preallocate.then(|| u64::try_from(config.segment_size_max()).unwrap_or(0)),
        roll_jitter_ms: config.segment_jitter(random() as u32),
        ..SegmentConfig::default()
    }
}

/// `max.message.bytes`.
pub(crate) fn batch_size_max(config: &LogConfig) -> u64 {
    u64::try_from(config.max_message_bytes).unwrap_or(0)
}

/// A number that nobody foresees: std seeds its hashers with one.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

impl Log {
    /// The partition's directory.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Topic and partition, from the directory's name.
    pub fn partition(&self) -> &TopicPartition {
        &self.inner.partition
    }

    /// What was found and done when the log was opened.
    pub fn load_report(&self) -> &LoadReport {
        &self.report
    }

    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> Offset {
        self.inner.marks().log_start
    }

    /// The next offset to be written: every record below it can be read.
    pub fn log_end_offset(&self) -> Offset {
        self.inner.marks().log_end.offset
    }

    /// Exclusive bound of committed records, as it was set.
    pub fn high_watermark(&self) -> Offset {
        self.inner.marks().high_watermark.offset
    }

    /// Exclusive bound of decided transactions: the high watermark, or the first offset of a transaction below it that
    /// is not decided.
    pub fn last_stable_offset(&self) -> Offset {
        self.inner.marks().last_stable().offset
    }

    /// First offset of a transaction that is not decided, or whose decision lies at or above the high watermark.
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        self.inner.marks().first_unstable.map(|m| m.offset)
    }

    /// First offset that is not known to be durable: recovery after a crash begins in its segment.
    pub fn recovery_point(&self) -> Offset {
        self.inner.marks().recovery_point
    }

    /// Bytes in all segments.
    pub fn size(&self) -> u64 {
        self.inner.segments().size()
    }

    /// The last error of work in the background, which no call returned: a flush that a roll had scheduled, the removal of a
    /// file, the epoch file. It stays until the log is opened again.
    pub fn last_trouble(&self) -> Option<Trouble> {
        self.inner.troubles.last()
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<LogConfig> {
        self.inner.config()
    }

    /// The clock's time of the last flush, or of the opening, in milliseconds.
    pub fn last_flush_ms(&self) -> i64 {
        self.inner.last_flush_ms()
    }

    /// Puts a new configuration in force: roll checks, retention and flushes go by it at once, index sizes and
    /// intervals from the next segment on.
    ///
    /// # Errors
    /// [`Error::Config`] where it is out of range or contradicts itself; the old one stays in force.
    pub fn update_config(&self, config: LogConfig) -> Result<()> {
        config.validate()?;
        self.inner.set_config(config);
        Ok(())
    }

    /// Sets the high watermark, clamped to the log, and returns the offset set. A lower one than before is taken too.
    ///
    /// Source: Kafka `UnifiedLog.updateHighWatermark`; unlike there, a later lookup never moves it.
    pub fn update_high_watermark(&self, offset: Offset) -> Offset {
        let set = self.inner.locked(|writer, _| {
            let (before, set) = {
                let mut marks = self.inner.marks.write();
                (marks.high_watermark.offset, marks.set_high_watermark(offset))
            };
            if set < before {
                let dir = self.inner.dir.display();
                warn!(%dir, before = before.get(), now = set.get(), "the high watermark has moved backwards");
            }
            self.inner.high_watermark_moved(writer);
            Ok(set)
        });
        // Refused where the directory is out of service: the mark stays where it is.
        set.unwrap_or_else(|_| self.high_watermark())
    }

    /// Puts `observer` in the place of the one that is told of the high watermark; it is told from the next change on.
    pub fn observe(&self, observer: Option<Observer>) {
        self.inner.writer.lock().observer = observer;
    }

    /// Raises the log start offset: what lies below can no longer be read, and segments wholly below go with the next
    /// pass of retention. Returns whether it moved.
    ///
    /// Held in memory; a data directory writes it to its checkpoint.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] above the high watermark.
    ///
    /// Source: Kafka `UnifiedLog.maybeIncrementLogStartOffset`.
    pub fn increment_log_start_offset(&self, offset: Offset) -> Result<bool> {
        self.inner.locked(|writer, deferred| self.inner.increment_log_start(writer, deferred, offset))
    }

    /// Notes that `epoch` begins at `offset`, and writes the epoch file.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a negative epoch or offset; [`Error::Closed`], [`Error::Fenced`]; [`Error::Io`].
    ///
    /// Source: Kafka `LeaderEpochFileCache.assign`.
    pub fn assign_epoch(&self, epoch: LeaderEpoch, offset: Offset) -> Result<()> {
        self.inner.locked(|_, _| {
            self.inner.check_writable()?;
            self.inner.assign_epoch(epoch, offset)
        })
    }

    /// The greatest epoch at or below `epoch`, and the offset at which it ends; `None` where nothing is known of it.
    ///
    /// Source: Kafka `UnifiedLog.endOffsetForEpoch`.
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<EpochEnd> {
        let log_end = self.log_end_offset();
        self.inner.epochs.read().end_offset_for(epoch, log_end)
    }

    /// The newest leader epoch.
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.inner.epochs.read().latest().map(|e| e.epoch)
    }

    /// Lets `f` do the last thing before the log takes no more changes, with no append in between. Where it fails the log
    /// goes on. What fails in `f` is not held against the log's directory.
    pub(crate) fn close_after(&self, f: impl FnOnce() -> Result<()>) -> Result<()> {
        self.inner.locked_alone(|_, _| {
            let done = f();
            if done.is_ok() {
                self.inner.closed.store(true, Ordering::Release);
                self.inner.end_late_work();
                self.inner.settle_failed(&"the partition has moved to another data directory");
            }
            Ok(done)
        })?
    }

    /// The offset from which on truncations have dropped anything since this was last asked.
    pub(crate) fn take_dropped(&self) -> Option<Offset> {
        self.inner.marks.write().dropped_from.take()
    }

    /// Closes the log: a producer snapshot at the log end offset, the last index entries, index files cut, `.log` files
    /// synced: all records are durable then, and whoever waits for that is told. A second close does nothing.
    ///
    /// # Errors
    /// The first error; all files are closed all the same. [`Error::Closed`] for a log that was abandoned. [`Error::Fenced`] after a failed write or flush: nothing is
    /// written then.
    ///
    /// Source: Kafka `UnifiedLog.close`.
    pub fn close(&self) -> Result<()> {
        let closed = self.inner.locked_alone(|writer, _| {
            if self.inner.abandoned.load(Ordering::Acquire) {
                return Err(Error::Closed { dir: self.inner.dir.clone() });
            }
            if self.inner.closed.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
            self.inner.end_late_work();
            writer.observer = None;
            if self.inner.fence.is_set() {
                // What the files hold is not what this value knows: only recovery makes them agree, so nothing is written.
                for segment in self.inner.segments().as_slice() {
                    segment.abandon();
                }
                *self.inner.hold.lock() = None;
                let fenced = self.inner.fenced();
                self.inner.settle_failed(&fenced);
                return Err(fenced);
            }
            let mut first = self.inner.take_snapshot(writer, true);
            for segment in self.inner.segments().as_slice() {
                let closed = segment.close().map_err(|e| self.inner.wrap(e));
                first = first.and(closed);
            }
            first = first.and_then(|()| self.inner.sync_new_names());
            match &first {
                Ok(()) => {
                    let end = self.inner.log_end();
                    let mut marks = self.inner.marks.write();
                    let begun = *marks;
                    marks.flushed(end, &begun);
                    drop(marks);
                    self.inner.settle_durable();
                }
                Err(error) => {
                    self.inner.fence.set(error);
                    self.inner.settle_failed(error);
                }
            }
            *self.inner.hold.lock() = None;
            first
        });
        if matches!(closed, Err(Error::Offline { .. })) {
            // Out of service: nothing more is written there, and nothing is held on to.
            self.abandon();
        }
        closed
    }

    /// Lets go of all files without a write, as if the process had died.
    pub fn abandon(&self) {
        let _sealed_ones = self.inner.sealed.lock();
        let mut writer = self.inner.writer.lock();
        if !self.inner.closed.swap(true, Ordering::AcqRel) {
            self.inner.abandoned.store(true, Ordering::Release);
        }
        self.inner.end_late_work();
        writer.observer = None;
        for segment in self.inner.segments().as_slice() {
            segment.abandon();
        }
        self.inner.settle_failed(&"the log was abandoned");
        *self.inner.hold.lock() = None;
    }
}

impl Inner {
    pub(crate) fn assign_epoch(&self, epoch: LeaderEpoch, offset: Offset) -> Result<()> {
        let before = self.epochs.read().clone();
        let changed = self.epochs.write().assign(epoch, offset);
        let changed = changed.map_err(|e| Error::InvalidArgument { what: e.to_string() })?;
        if changed.write == FileWrite::Now
            && let Err(e) = self.write_epochs()
        {
            // Not noted: the next one to try writes it.
            *self.epochs.write() = before;
            return Err(e);
        }
        Ok(())
    }

    /// Looks for idle producers every so often, until the log is closed or dropped.
    pub(crate) fn expire_producers_every(self: &Arc<Self>, interval_ms: u64) {
        let log = Arc::downgrade(self);
        let task = move || {
            let Some(log) = log.upgrade() else { return };
            if log.closed.load(Ordering::Acquire) {
                return;
            }
            log.expire_producers();
            log.expire_producers_every(interval_ms);
        };
        // A scheduler by hand runs what has no delay at once: that would never end.
        self.scheduler.schedule("expire-producers", interval_ms.max(1), Box::new(task));
    }

    /// Writes the epoch file in the background: the file may name epochs that are gone, never miss one.
    pub(crate) fn write_epochs_later(self: &Arc<Self>, deferred: &mut Deferred) {
        self.push_late(deferred, "leader-epoch-cache-flush", 0, |log| {
            let written = log.write_epochs();
            // A directory that has vanished meanwhile needs no file.
            let vanished = written.is_err() && matches!(log.backend.names().stat(&log.dir), Ok(None));
            if vanished { Ok(()) } else { written }
        });
    }

    pub(crate) fn increment_log_start(
        self: &Arc<Self>,
        writer: &mut Writer,
        deferred: &mut Deferred,
        offset: Offset,
    ) -> Result<bool> {
        self.check_writable()?;
        {
            let mut marks = self.marks.write();
            if offset > marks.high_watermark.offset {
                let (dir, log_start, log_end) =
                    (self.dir.clone(), marks.log_start, marks.high_watermark.offset);
                return Err(Error::OffsetOutOfRange { dir, offset, log_start, log_end });
            }
            if offset <= marks.log_start {
                return Ok(false);
            }
            marks.log_start = offset;
            if marks.high_watermark.offset < offset {
                marks.high_watermark = Mark::at(offset);
            }
            marks.recovery_point = marks.recovery_point.max(offset);
        }
        info!(dir = %self.dir.display(), offset = offset.get(), "log start offset raised");
        if self.epochs.write().truncate_from_start(offset).write == FileWrite::Background {
            self.write_epochs_later(deferred);
        }
        writer.producers.log_start_moved(offset);
        self.refresh_first_unstable(writer);
        Ok(true)
    }

    /// What follows from a high watermark that moved.
    pub(crate) fn high_watermark_moved(&self, writer: &mut Writer) {
        let high_watermark = self.marks().high_watermark.offset;
        writer.producers.high_watermark_moved(high_watermark);
        self.refresh_first_unstable(writer);
    }

    pub(crate) fn refresh_first_unstable(&self, writer: &Writer) {
        let first = self.first_unstable_mark(writer);
        let mut marks = self.marks.write();
        let log_start = marks.log_start;
        marks.first_unstable =
            first.map(|mark| if mark.offset < log_start { Mark::at(log_start) } else { mark });
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks = self.inner.marks();
        f.debug_struct("Log")
            .field("dir", &self.inner.dir)
            .field("log_start", &marks.log_start)
            .field("log_end", &marks.log_end.offset)
            .field("high_watermark", &marks.high_watermark.offset)
            .finish_non_exhaustive()
    }
}
