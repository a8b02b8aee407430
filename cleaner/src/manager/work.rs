//! A thread's work: the dirtiest log, then retention of all compacted ones; and the threads.

use std::sync::Arc;
use std::time::Duration;

use kseg_format::{Offset, Timestamp};
use kseg_log::{Log, TopicPartition};

use super::{Job, Manager};
use crate::error::{Error, Result};
use crate::round::{Cleaner, Dirty, Pace, Round};
use crate::states::Ended;
use crate::stats::RoundStats;
use crate::sync::{JoinHandle, Ordering, panicking, sleep, spawn};

/// Sums over rounds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Rounds that came to their end.
    pub rounds: u64,
    /// Rounds that were told to stop.
    pub aborted: u64,
    /// Rounds that failed.
    pub failed: u64,
    /// Bytes read by copying.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Segments removed by retention of compacted logs.
    pub segments_deleted: u64,
    /// The longest round.
    pub time_max: Duration,
    /// The fullest map, 0 to 1.
    pub map_utilization_max: f64,
    /// How long rounds have waited because appends had become slow.
    pub yielded: Duration,
    /// Threads that ended by a panic.
    pub dead_threads: u64,
}

/// What one pass of a thread did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Pass {
    /// The log that was cleaned, from where, up to where, and how.
    pub cleaned: Option<(TopicPartition, Offset, Round)>,
    /// The log whose round was told to stop.
    pub aborted: Option<TopicPartition>,
    /// The log whose round failed, and the error. It is left alone from now on.
    pub failed: Option<(TopicPartition, Error)>,
    /// Segments removed by retention.
    pub deleted: usize,
}

impl Pass {
    /// Whether there may be more to do at once.
    pub fn did_something(&self) -> bool {
        self.cleaned.is_some() || self.aborted.is_some()
    }
}

/// Stops and slows one round.
struct Watched<'m> {
    manager: &'m Manager,
    partition: &'m TopicPartition,
    log: &'m Log,
}

impl Pace for Watched<'_> {
    fn check(&self) -> Result<()> {
        // Pairs with the Release of `stop`.
        if self.manager.stopping.load(Ordering::Acquire) {
            return Err(Error::ShuttingDown);
        }
        self.manager.shared.lock().states.check(self.partition)
    }

    fn moved(&self, bytes: u64) {
        let now_ms = self.manager.clock.now_ms();
        let mut wait = self.manager.throttle.moved(bytes, now_ms);
        wait = wait.max(self.manager.backpressure.wait_ms(|| self.log.pressure(), now_ms));
        // In pieces, so that nobody who wants the round to end waits for it.
        while wait > 0 && self.check().is_ok() {
            let piece = wait.min(50);
            sleep(Duration::from_millis(piece));
            wait -= piece;
        }
    }
}

impl Manager {
    /// Cleans the dirtiest log, if one is worth it, then lets retention pass over all compacted logs that nobody has.
    ///
    /// # Errors
    /// [`Error::Io`] where a checkpoint cannot be read or written. What goes wrong with one log is in the result.
    pub fn pass(&self, cleaner: &mut Cleaner) -> Result<Pass> {
        let mut pass = Pass::default();
        if let Some(job) = self.select()? {
            self.clean(&job, cleaner, &mut pass)?;
            if pass.failed.is_some() {
                return Ok(pass);
            }
        }
        self.delete_old_segments(&mut pass)?;
        Ok(pass)
    }

    fn clean(&self, job: &Job, cleaner: &mut Cleaner, pass: &mut Pass) -> Result<()> {
        let dirty = Dirty {
            first: job.first_dirty,
            first_uncleanable: job.first_uncleanable,
            now: Timestamp::new(self.clock.now_ms()),
        };
        let watched = Watched { manager: self, partition: &job.partition, log: &job.log };
        let cleaned = cleaner.clean(&job.log, dirty, &watched);
        let end = cleaned.as_ref().ok().and_then(|round| round.end);
        let ended = self.done_cleaning(&job.partition, end);
        let mut shared = self.shared.lock();
        match cleaned {
            Ok(round) => {
                shared.totals.rounds += 1;
                shared.totals.add(&round.stats);
                shared.marks.remove(&job.partition);
                shared
                    .rounds
                    .insert(job.partition.clone(), (round.end.unwrap_or(job.first_dirty), round.stats));
                pass.cleaned = Some((job.partition.clone(), job.first_dirty, round));
            }
            Err(error) if error.is_abort() => {
                shared.totals.aborted += 1;
                pass.aborted = Some(job.partition.clone());
            }
            Err(error) => {
                shared.totals.failed += 1;
                self.mark(&mut shared, &job.partition, &error);
                pass.failed = Some((job.partition.clone(), error));
            }
        }
        drop(shared);
        ended.map(|_| ())
    }

    /// Ends the cleaning of a log that [`select`](Self::select) gave out: keeps up to where it went, unless it was told to
    /// stop.
    ///
    /// # Errors
    /// [`Error::State`] where nothing was begun; [`Error::Io`] where the checkpoint cannot be written.
    pub(crate) fn done_cleaning(&self, partition: &TopicPartition, end: Option<Offset>) -> Result<Ended> {
        let mut shared = self.shared.lock();
        let ended = shared.states.done(partition);
        let written = match (&ended, end, shared.logs.get(partition).cloned()) {
            (Ok(Ended::Whole), Some(end), Some(pooled)) => {
                shared.write_checkpoint(partition, &pooled.dir, Some(end), None)
            }
            _ => Ok(()),
        };
        drop(shared);
        self.changed.notify_all();
        let ended = ended?;
        written?;
        Ok(ended)
    }

    /// Takes all compacted logs that nobody has and that are not left alone, for retention.
    ///
    /// Source: Kafka `LogCleanerManager.deletableLogs`.
    pub(crate) fn take_deletable(&self) -> Vec<(TopicPartition, Arc<Log>)> {
        let mut shared = self.shared.lock();
        let mut taken = Vec::new();
        for (partition, pooled) in shared.candidates() {
            if shared.states.begin(&partition) {
                taken.push((partition, pooled.log));
            }
        }
        taken
    }

    /// Ends what [`take_deletable`](Self::take_deletable) began.
    ///
    /// # Errors
    /// [`Error::State`].
    pub(crate) fn done_deleting(&self, partition: &TopicPartition) -> Result<Ended> {
        let ended = self.shared.lock().states.done(partition);
        self.changed.notify_all();
        ended
    }

    fn delete_old_segments(&self, pass: &mut Pass) -> Result<()> {
        for (partition, log) in self.take_deletable() {
            let stopped = Watched { manager: self, partition: &partition, log: &log }.check().is_err();
            let deleted = if stopped { Ok(0) } else { log.delete_old_segments().map(|done| done.deleted) };
            self.done_deleting(&partition)?;
            match deleted {
                Ok(count) => {
                    pass.deleted += count;
                    self.shared.lock().totals.segments_deleted += count as u64;
                }
                Err(error) => {
                    let error = Error::Log(error);
                    self.mark(&mut self.shared.lock(), &partition, &error);
                    pass.failed = Some((partition, error));
                }
            }
        }
        Ok(())
    }

    /// Starts `count` threads that make passes until they are stopped; each takes the memory of a cleaner.
    ///
    /// # Errors
    /// [`Error::Config`] for 0 threads; [`Error::Io`] where the system gives none.
    pub fn start(self: &Arc<Self>, count: usize) -> Result<Threads> {
        if count == 0 {
            let (name, expected) = ("threads", "1 or more".to_owned());
            return Err(Error::Config { name, expected, found: "0".to_owned() });
        }
        self.stopping.store(false, Ordering::Release);
        let mut threads = Threads { manager: self.clone(), handles: Vec::new() };
        for number in 0..count {
            let manager = self.clone();
            let mut cleaner = Cleaner::new(self.options.cleaner.clone())?;
            let started = spawn(format!("kseg-cleaner-{number}"), move || {
                let living = Living(manager);
                while !living.0.stopping.load(Ordering::Acquire) {
                    let did_something = living.0.pass(&mut cleaner).is_ok_and(|pass| pass.did_something());
                    if !did_something {
                        living.0.back_off();
                    }
                }
            });
            match started {
                Ok(handle) => threads.handles.push(handle),
                Err(error) => {
                    let path = std::path::Path::new("");
                    return Err(Error::Io(kseg_io_backends::IoError::new("spawn", path, error)));
                }
            }
        }
        Ok(threads)
    }

    pub(super) fn tell_to_stop(&self) {
        // Pairs with the Acquire of the threads.
        self.stopping.store(true, Ordering::Release);
        // A thread that has looked at the flag and not begun to wait holds the lock.
        let _shared = self.shared.lock();
        self.changed.notify_all();
    }

    pub(super) fn back_off(&self) {
        let shared = self.shared.lock();
        if !self.stopping.load(Ordering::Acquire) {
            drop(self.changed.wait_for(shared, Duration::from_millis(self.options.backoff_ms)));
        }
    }
}

/// Counts a thread that ends by a panic.
struct Living(Arc<Manager>);

impl Drop for Living {
    fn drop(&mut self) {
        if panicking() {
            self.0.dead.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Totals {
    fn add(&mut self, stats: &RoundStats) {
        self.bytes_read += stats.bytes_read;
        self.bytes_written += stats.bytes_written;
        self.time_max = self.time_max.max(stats.time);
        self.map_utilization_max = self.map_utilization_max.max(stats.map_utilization);
    }
}

/// Threads that clean. Dropping this stops them: a round under way ends at its next read, and its log is as it was but for
/// the groups that had been swapped in.
pub struct Threads {
    manager: Arc<Manager>,
    handles: Vec<JoinHandle>,
}

impl Threads {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.handles.len()
    }

    /// Stops them and waits for that.
    pub fn stop(self) {}
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.manager.tell_to_stop();
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
        self.manager.stopping.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Threads").field("count", &self.handles.len()).finish_non_exhaustive()
    }
}
