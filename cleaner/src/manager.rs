//! Which log is cleaned when, and what stands in the way: selection, states, checkpoints, partitions that cannot be cleaned.
//!
//! One lock guards states, marks and checkpoints; no round holds it. A round asks at each read whether it is to stop; whoever
//! wants to truncate or remove a log pauses it first and resumes it afterwards.
//!
//! Source: Kafka `LogCleanerManager`, `LogCleaner`.

mod hold;
#[cfg(loom)]
pub(crate) mod model;
mod told;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kseg_format::{CheckpointError, Offset, Timestamp};
use kseg_io_backends::Backend;
use kseg_log::{Clock, Log, TopicPartition};

use crate::backpressure::Backpressure;
use crate::checkpoints::Checkpoints;
use crate::dirty::{Rules, Sections};
use crate::error::{Error, Result};
use crate::options::CleanerOptions;
use crate::select::{Selection, select};
use crate::states::{PartitionState, States};
use crate::stats::RoundStats;
use crate::status::{Next, Status, Uncleanable};
use crate::steady::Steady;
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::throttle::Throttle;
pub use work::{Pass, Threads, Totals};

/// How a manager works.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ManagerOptions {
    /// Settings of each thread's cleaner: sizes are per thread.
    pub cleaner: CleanerOptions,
    /// Bytes a second that all threads together read and write (`log.cleaner.io.max.bytes.per.second`). Default: no limit.
    /// Minimum: above 0.
    pub max_bytes_per_second: Option<f64>,
    /// Mean milliseconds of an append, or of a flush, above which cleaning makes way for them: it waits between two reads, longer
    /// each time that they are found slow. It never stops for good. `None`: it does not look. Default: 50.
    pub yield_above_ms: Option<f64>,
    /// How long a thread waits when there was nothing to do (`log.cleaner.backoff.ms`). Default: 15000.
    pub backoff_ms: u64,
    /// How long a partition is left alone after a failure before it is tried again; doubled with each further failure, up
    /// to a day. `None`: until somebody clears the mark, as in Kafka. Default: 600000, ten minutes.
    pub retry_ms: Option<i64>,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        ManagerOptions {
            cleaner: CleanerOptions::default(),
            max_bytes_per_second: None,
            yield_above_ms: Some(50.0),
            backoff_ms: 15_000,
            retry_ms: Some(600_000),
        }
    }
}

impl ManagerOptions {
    /// Refuses what cannot work.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn validate(&self) -> Result<()> {
        self.cleaner.validate()?;
        for (name, value) in
            [("max_bytes_per_second", self.max_bytes_per_second), ("yield_above_ms", self.yield_above_ms)]
        {
            if let Some(value) = value.filter(|value| value.is_nan() || *value <= 0.0) {
                let expected = "a number above 0".to_owned();
                return Err(Error::Config { name, expected, found: value.to_string() });
            }
        }
        Ok(())
    }
}

/// The logs of one or more data directories, as far as they are to be cleaned.
pub struct Manager {
    options: ManagerOptions,
    clock: Arc<dyn Clock>,
    /// For how long something lasts.
    steady: Steady,
    shared: Mutex<Shared>,
    /// Some state changed.
    changed: Condvar,
    throttle: Throttle,
    backpressure: Backpressure,
    /// Threads that ended by a panic.
    dead: AtomicU64,
}

struct Shared {
    logs: BTreeMap<TopicPartition, Pooled>,
    /// Partitions without a log here whose lines stay.
    absent: BTreeSet<(PathBuf, TopicPartition)>,
    states: States,
    marks: HashMap<TopicPartition, Mark>,
    checkpoints: Checkpoints,
    rounds: HashMap<TopicPartition, (Offset, RoundStats)>,
    totals: Totals,
    last_selection: Option<Selection>,
    last_trouble: Option<(TopicPartition, Uncleanable)>,
    /// By the steady time.
    last_run_ms: i64,
}

/// That a partition is left alone. It stays, for its count of failures, while the partition is tried again.
struct Mark {
    told: Uncleanable,
    /// From when on it is tried again, by the steady time.
    due_ms: Option<i64>,
}

#[derive(Clone)]
struct Pooled {
    log: Arc<Log>,
    dir: PathBuf,
}

/// A log that was chosen; whoever has it must end the work.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) partition: TopicPartition,
    pub(crate) log: Arc<Log>,
    pub(crate) first_dirty: Offset,
    pub(crate) first_uncleanable: Offset,
}

impl Manager {
    /// A manager without logs.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn new(
        options: ManagerOptions,
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Manager>> {
        options.validate()?;
        let steady = Steady::new(clock.clone());
        let now_ms = steady.now_ms();
        Ok(Arc::new(Manager {
            throttle: Throttle::new(options.max_bytes_per_second, now_ms),
            backpressure: Backpressure::new(options.yield_above_ms, now_ms),
            options,
            clock,
            steady,
            shared: Mutex::new(Shared {
                logs: BTreeMap::new(),
                absent: BTreeSet::new(),
                states: States::default(),
                marks: HashMap::new(),
                checkpoints: Checkpoints::new(backend),
                rounds: HashMap::new(),
                totals: Totals::default(),
                last_selection: None,
                last_trouble: None,
                last_run_ms: now_ms,
            }),
            changed: Condvar::new(),
            dead: AtomicU64::new(0),
        }))
    }

    /// The settings.
    pub fn options(&self) -> &ManagerOptions {
        &self.options
    }

    /// The throttle of all threads.
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// Takes a log in. `dir` is the data directory that it lies in, whose checkpoint is made where there is none.
    ///
    /// # Errors
    /// [`Error::Io`] where the checkpoint cannot be made.
    pub fn add(&self, dir: &Path, log: Arc<Log>) -> Result<()> {
        let mut shared = self.shared.lock();
        shared.checkpoints.add(dir)?;
        shared.absent.remove(&(dir.to_path_buf(), log.partition().clone()));
        shared.logs.insert(log.partition().clone(), Pooled { log, dir: dir.to_path_buf() });
        Ok(())
    }

    /// Keeps the line of a partition in its directory's checkpoint, whose log is not here and may be another time: one that
    /// could not be opened. The lines of all other partitions that are not here go with the next one that is written.
    pub fn keep_checkpoint(&self, dir: &Path, partition: &TopicPartition) {
        self.shared.lock().absent.insert((dir.to_path_buf(), partition.clone()));
    }

    /// The partitions, ascending.
    pub fn partitions(&self) -> Vec<TopicPartition> {
        self.shared.lock().logs.keys().cloned().collect()
    }

    /// Who has a partition; `None` for nobody.
    pub fn state(&self, partition: &TopicPartition) -> Option<PartitionState> {
        self.shared.lock().states.get(partition)
    }

    /// The checkpoint of a partition.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn checkpoint(&self, partition: &TopicPartition) -> Result<Option<Offset>> {
        let mut shared = self.shared.lock();
        let Some(pooled) = shared.logs.get(partition).cloned() else { return Ok(None) };
        Ok(shared.checkpoints.read(&pooled.dir)?.get(partition).copied())
    }

    /// Checkpoint files that could not be read and have not been written since, each with its file and line. Their logs are
    /// cleaned from their start; a file is kept aside, with the suffix `.damaged`, before it is written anew.
    pub fn damaged_checkpoints(&self) -> Vec<CheckpointError> {
        self.shared.lock().checkpoints.damaged().cloned().collect()
    }

    /// A data directory failed: its checkpoint is left as it is, and its logs are not cleaned any more.
    pub fn directory_failed(&self, dir: &Path) {
        let mut shared = self.shared.lock();
        shared.checkpoints.forget(dir);
        shared.absent.retain(|(of, _)| of != dir);
        shared.logs.retain(|_, pooled| pooled.dir != dir);
    }

    /// Partitions that are left alone, and why.
    pub fn uncleanable(&self) -> Vec<(TopicPartition, Uncleanable)> {
        let mut marks: Vec<_> =
            self.shared.lock().marks.iter().map(|(p, mark)| (p.clone(), mark.told.clone())).collect();
        marks.sort_by(|a, b| a.0.cmp(&b.0));
        marks
    }

    /// Cleanable bytes of partitions that are left alone; one that is gone, or cannot be looked at, counts as 0.
    pub fn uncleanable_bytes(&self) -> u64 {
        let mut shared = self.shared.lock();
        let now = Timestamp::new(self.clock.now_ms());
        let marked: Vec<Pooled> =
            shared.marks.keys().filter_map(|partition| shared.logs.get(partition).cloned()).collect();
        let mut bytes: u64 = 0;
        for pooled in marked {
            if let Ok((sections, _)) = shared.sections(&pooled, now) {
                bytes = bytes.saturating_add(sections.cleanable_bytes);
            }
        }
        bytes
    }

    /// Lets a partition be tried again. Returns whether it had been left alone.
    pub fn clear_uncleanable(&self, partition: &TopicPartition) -> bool {
        self.shared.lock().marks.remove(partition).is_some()
    }

    /// What last went wrong, and with which partition, whether or not that is left alone still; `None` where nothing did since the
    /// manager began. How often something did is in [`totals`](Self::totals).
    pub fn last_trouble(&self) -> Option<(TopicPartition, Uncleanable)> {
        self.shared.lock().last_trouble.clone()
    }

    /// What selection last saw; `None` before it first looked, and where nothing was there to see.
    pub fn last_selection(&self) -> Option<Selection> {
        self.shared.lock().last_selection
    }

    /// Milliseconds since selection last looked, or since the manager began.
    pub fn since_last_run_ms(&self) -> u64 {
        let last = self.shared.lock().last_run_ms;
        u64::try_from(self.steady.now_ms().saturating_sub(last)).unwrap_or(0)
    }

    /// Sums over all rounds since the manager began.
    pub fn totals(&self) -> Totals {
        let mut totals = self.shared.lock().totals;
        // Counted by the threads alone: Relaxed.
        totals.dead_threads = self.dead.load(Ordering::Relaxed);
        totals.yielded = Duration::from_millis(self.backpressure.waited_ms());
        totals
    }

    /// What happens to each log next, and why; by partition.
    pub fn status(&self) -> Vec<Status> {
        let now = Timestamp::new(self.clock.now_ms());
        let mut shared = self.shared.lock();
        let logs: Vec<_> = shared.logs.iter().map(|(p, pooled)| (p.clone(), pooled.clone())).collect();
        logs.into_iter().map(|(partition, pooled)| shared.status(partition, &pooled, now)).collect()
    }

    /// Chooses the dirtiest log that is worth cleaning, and takes it. Checkpoints that do not fit their logs are corrected,
    /// also of logs that are not chosen. One that cannot be looked at is left alone and put into `failed`; the others count.
    fn select(&self, failed: &mut Vec<(TopicPartition, Error)>) -> Option<Job> {
        let now_ms = self.clock.now_ms();
        let mut shared = self.shared.lock();
        let steady_ms = self.steady.now_ms();
        shared.last_run_ms = steady_ms;
        shared.forget_old_marks();
        let candidates = shared.candidates(steady_ms);
        let (mut seen, mut jobs) = (Vec::new(), Vec::new());
        for (partition, pooled) in candidates {
            let looked = shared.sections(&pooled, Timestamp::new(now_ms));
            let sections = match looked.and_then(|(sections, reset)| {
                if reset {
                    let first = sections.first_dirty.offset;
                    shared.write_checkpoint(&partition, &pooled.dir, Some(first), None)?;
                }
                Ok(sections)
            }) {
                Ok(sections) => sections,
                Err(error) => {
                    self.mark(&mut shared, &partition, &error);
                    failed.push((partition, error));
                    continue;
                }
            };
            seen.push((sections, Rules::of(&pooled.log.config())));
            jobs.push(Job {
                partition,
                log: pooled.log,
                first_dirty: sections.first_dirty.offset,
                first_uncleanable: sections.first_uncleanable_offset,
            });
        }
        let selection = select(seen.iter().map(|(sections, rules)| (sections, rules)));
        shared.last_selection = Some(selection);
        let job = jobs.swap_remove(selection.chosen?);
        shared.states.begin(&job.partition);
        Some(job)
    }

    /// Leaves a partition alone, and remembers why.
    fn mark(&self, shared: &mut MutexGuard<'_, Shared>, partition: &TopicPartition, error: &Error) {
        let now_ms = self.clock.now_ms();
        let failures = shared.marks.get(partition).map_or(0, |mark| mark.told.failures).saturating_add(1);
        let wait_ms = self.options.retry_ms.map(|after| {
            const DAY_MS: i64 = 86_400_000;
            let times = 1_i64 << (failures - 1).min(16);
            after.saturating_mul(times).min(DAY_MS.max(after))
        });
        let told = Uncleanable {
            reason: error.to_string(),
            kafka_name: error.kafka_name(),
            since_ms: now_ms,
            failures,
            retry_ms: wait_ms.map(|wait_ms| now_ms.saturating_add(wait_ms)),
        };
        shared.totals.troubles += 1;
        shared.last_trouble = Some((partition.clone(), told.clone()));
        let due_ms = wait_ms.map(|wait_ms| self.steady.now_ms().saturating_add(wait_ms));
        shared.marks.insert(partition.clone(), Mark { told, due_ms });
    }
}

impl Shared {
    /// Compacted logs that nobody has and that are not left alone at this steady time.
    fn candidates(&self, now_ms: i64) -> Vec<(TopicPartition, Pooled)> {
        let free = self.logs.iter().filter(|(partition, pooled)| {
            pooled.log.config().cleanup_policy.compact
                && self.states.get(partition).is_none()
                && self.marks.get(partition).is_none_or(|mark| mark.due_ms.is_some_and(|due| due <= now_ms))
        });
        free.map(|(partition, pooled)| (partition.clone(), pooled.clone())).collect()
    }

    /// Marks of partitions that are gone go.
    fn forget_old_marks(&mut self) {
        let logs = &self.logs;
        self.marks.retain(|partition, _| logs.contains_key(partition));
    }

    /// A log's sections, and whether its checkpoint has to be corrected.
    fn sections(&mut self, pooled: &Pooled, now: Timestamp) -> Result<(Sections, bool)> {
        let checkpoint = self.checkpoints.read(&pooled.dir)?.get(pooled.log.partition()).copied();
        let sections = Sections::of_log(&pooled.log, checkpoint, now)?;
        Ok((sections, sections.first_dirty.reset.is_some()))
    }

    fn write_checkpoint(
        &mut self,
        partition: &TopicPartition,
        dir: &Path,
        set: Option<Offset>,
        remove: Option<&TopicPartition>,
    ) -> Result<()> {
        let Shared { logs, absent, checkpoints, .. } = self;
        let there = |p: &TopicPartition| {
            logs.get(p).is_some_and(|pooled| pooled.dir == dir)
                || (!absent.is_empty() && absent.contains(&(dir.to_path_buf(), p.clone())))
        };
        checkpoints.update(dir, there, set.map(|offset| (partition, offset)), remove)
    }

    fn status(&mut self, partition: TopicPartition, pooled: &Pooled, now: Timestamp) -> Status {
        let last_round = self.rounds.get(&partition).copied();
        let config = pooled.log.config();
        let looked = self.sections(pooled, now).and_then(|(sections, _)| {
            let active = (pooled.log.sealed_segments()?.1, pooled.log.active_size()?);
            Ok((sections, active))
        });
        let next = match (&looked, self.states.get(&partition), self.marks.get(&partition)) {
            _ if !config.cleanup_policy.compact => Next::NotCompacted,
            (_, Some(state), _) => Next::Taken(state),
            (_, None, Some(mark)) => Next::Uncleanable(mark.told.clone()),
            (Err(error), None, None) => Next::Unknown { reason: error.to_string() },
            (Ok((sections, active)), None, None) => {
                Next::of(sections, &Rules::of(&config), pooled.log.last_stable_offset(), *active)
            }
        };
        Status { partition, next, sections: looked.ok().map(|(sections, _)| sections), last_round }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("options", &self.options).finish_non_exhaustive()
    }
}
