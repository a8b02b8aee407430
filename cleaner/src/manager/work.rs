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
use crate::sync::{AtomicBool, JoinHandle, Ordering, panicking, sleep, spawn};

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
    /// Errors of any kind: of selection, of rounds, of checkpoints, of retention. The last one is
    /// [`last_trouble`](Manager::last_trouble).
    pub troubles: u64,
}

/// What one pass of a thread did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Pass {
    /// The log that was cleaned, from where, up to where, and how.
    pub cleaned: Option<(TopicPartition, Offset, Round)>,
    /// The log whose round was told to stop.
    pub aborted: Option<TopicPartition>,
    /// Each log with which something failed, and the error: a look at it, its round, its checkpoint, its retention. It is left
    /// alone from now on.
    pub failed: Vec<(TopicPartition, Error)>,
    /// Segments removed by retention.
    pub deleted: usize,
}

impl Pass {
    /// Whether there may be more to do at once.
    pub fn did_something(&self) -> bool {
        self.cleaned.is_some() || self.aborted.is_some()
    }
}

/// What tells some threads, and nobody else, to end.
#[derive(Debug)]
pub(super) struct Stop(AtomicBool);

impl Stop {
    pub(super) fn new() -> Stop {
        Stop(AtomicBool::new(false))
    }

    fn told(&self) -> bool {
        // Pairs with the Release of `tell_to_stop`.
        self.0.load(Ordering::Acquire)
    }
}

/// Work that was begun on a partition, which ends with this even where it panics: nobody waits for it for ever.
struct Taken<'m> {
    manager: &'m Manager,
    partition: TopicPartition,
    /// A round, not a deletion of old segments.
    round: bool,
    ended: bool,
}

impl<'m> Taken<'m> {
    fn new(manager: &'m Manager, partition: TopicPartition, round: bool) -> Self {
        Taken { manager, partition, round, ended: false }
    }

    fn cleaned(mut self, end: Option<Offset>) -> Result<Ended> {
        self.ended = true;
        self.manager.done_cleaning(&self.partition, end)
    }

    fn deleted(mut self) -> Result<Ended> {
        self.ended = true;
        self.manager.done_deleting(&self.partition)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let partition = &self.partition;
        let mut shared = self.manager.shared.lock();
        shared.totals.failed += u64::from(self.round);
        let ended = shared.states.done(partition);
        let error = ended.err().unwrap_or_else(|| Error::Panicked { partition: partition.clone() });
        self.manager.mark(&mut shared, partition, &error);
        drop(shared);
        self.manager.changed.notify_all();
    }
}

/// Stops and slows one round.
struct Watched<'m> {
    manager: &'m Manager,
    stop: &'m Stop,
    partition: &'m TopicPartition,
    log: &'m Log,
}

impl Pace for Watched<'_> {
    fn check(&self) -> Result<()> {
        if self.stop.told() {
            return Err(Error::ShuttingDown);
        }
        self.manager.shared.lock().states.check(self.partition)
    }

    fn moved(&self, bytes: u64) {
        let now_ms = self.manager.steady.now_ms();
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
    /// What goes wrong with a log is in the result, and that log is left alone from then on. A round that fails puts retention
    /// off until the next pass.
    pub fn pass(&self, cleaner: &mut Cleaner) -> Pass {
        self.pass_until(&Stop::new(), cleaner)
    }

    fn pass_until(&self, stop: &Stop, cleaner: &mut Cleaner) -> Pass {
        let mut pass = Pass::default();
        let good = match self.select(&mut pass.failed) {
            Some(job) => self.clean(&job, stop, cleaner, &mut pass),
            None => true,
        };
        if good {
            self.delete_old_segments(stop, &mut pass);
        }
        pass
    }

    /// Returns whether nothing failed.
    fn clean(&self, job: &Job, stop: &Stop, cleaner: &mut Cleaner, pass: &mut Pass) -> bool {
        let taken = Taken::new(self, job.partition.clone(), true);
        let dirty = Dirty {
            first: job.first_dirty,
            first_uncleanable: job.first_uncleanable,
            now: Timestamp::new(self.clock.now_ms()),
        };
        let watched = Watched { manager: self, stop, partition: &job.partition, log: &job.log };
        let cleaned = cleaner.clean(&job.log, dirty, &watched);
        let end = cleaned.as_ref().ok().and_then(|round| round.end);
        let ended = taken.cleaned(end);
        let mut shared = self.shared.lock();
        let failed = match cleaned {
            Ok(round) => {
                shared.totals.rounds += 1;
                shared.totals.add(&round.stats);
                if ended.is_ok() {
                    shared.marks.remove(&job.partition);
                }
                shared
                    .rounds
                    .insert(job.partition.clone(), (round.end.unwrap_or(job.first_dirty), round.stats));
                pass.cleaned = Some((job.partition.clone(), job.first_dirty, round));
                None
            }
            Err(error) if error.is_abort() => {
                shared.totals.aborted += 1;
                pass.aborted = Some(job.partition.clone());
                None
            }
            Err(error) => {
                shared.totals.failed += 1;
                Some(error)
            }
        };
        let before = pass.failed.len();
        for error in failed.into_iter().chain(ended.err()) {
            self.mark(&mut shared, &job.partition, &error);
            pass.failed.push((job.partition.clone(), error));
        }
        pass.failed.len() == before
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
    fn take_deletable(&self) -> Vec<(Taken<'_>, Arc<Log>)> {
        let mut taken = Vec::new();
        let now_ms = self.steady.now_ms();
        let mut shared = self.shared.lock();
        for (partition, pooled) in shared.candidates(now_ms) {
            if shared.states.begin(&partition) {
                taken.push((Taken::new(self, partition, false), pooled.log));
            }
        }
        taken
    }

    /// Ends what [`take_deletable`](Self::take_deletable) began.
    ///
    /// # Errors
    /// [`Error::State`].
    fn done_deleting(&self, partition: &TopicPartition) -> Result<Ended> {
        let ended = self.shared.lock().states.done(partition);
        self.changed.notify_all();
        ended
    }

    fn delete_old_segments(&self, stop: &Stop, pass: &mut Pass) {
        for (taken, log) in self.take_deletable() {
            let partition = taken.partition.clone();
            let stopped = Watched { manager: self, stop, partition: &partition, log: &log }.check().is_err();
            let deleted = if stopped { Ok(0) } else { log.delete_old_segments().map(|done| done.deleted) };
            let ended = taken.deleted();
            let mut shared = self.shared.lock();
            let failed = match deleted {
                Ok(count) => {
                    pass.deleted += count;
                    shared.totals.segments_deleted += count as u64;
                    None
                }
                Err(error) => Some(Error::Log(error)),
            };
            for error in failed.into_iter().chain(ended.err()) {
                self.mark(&mut shared, &partition, &error);
                pass.failed.push((partition.clone(), error));
            }
        }
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
        let stop = Arc::new(Stop::new());
        let mut threads = Threads { manager: self.clone(), stop: stop.clone(), handles: Vec::new() };
        for number in 0..count {
            let (manager, stop) = (self.clone(), stop.clone());
            let mut cleaner = Cleaner::new(self.options.cleaner.clone())?;
            let started = spawn(format!("kseg-cleaner-{number}"), move || {
                let living = Living(manager);
                while !stop.told() {
                    // Its errors are in the marks, the totals and the last trouble.
                    let pass = living.0.pass_until(&stop, &mut cleaner);
                    if !pass.did_something() || !pass.failed.is_empty() {
                        living.0.back_off(&stop);
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

    pub(super) fn tell_to_stop(&self, stop: &Stop) {
        // Pairs with the Acquire of `told`.
        stop.0.store(true, Ordering::Release);
        // A thread that has looked at the flag and not begun to wait holds the lock.
        let _shared = self.shared.lock();
        self.changed.notify_all();
    }

    pub(super) fn back_off(&self, stop: &Stop) {
        let shared = self.shared.lock();
        if !stop.told() {
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

/// Threads that clean. Dropping this stops them, and no other threads of the manager: a round under way ends at its next read, and its log is as it was but for
/// the groups that had been swapped in.
pub struct Threads {
    manager: Arc<Manager>,
    stop: Arc<Stop>,
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
        self.manager.tell_to_stop(&self.stop);
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Threads").field("count", &self.handles.len()).finish_non_exhaustive()
    }
}
