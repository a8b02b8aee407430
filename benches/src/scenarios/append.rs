//! Appending whole batches as the leader.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures::executor::block_on;
use futures::stream::{FuturesUnordered, TryStreamExt};
use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Backend, BackendSpec, Cache};
use kseg_log::{Isolation, Log, Observer, OpenOptions, ThreadScheduler, TransactionVersion};

use super::Scenario;
use crate::bench::{Bench, Medium};
use crate::contest::{Entrant, Slice, Unit, Watch, Work};
use crate::error::{BenchError, expect};
use crate::filled;
use crate::reference::{MemoryAppendLoop, ThreadsLoop, WriteLoop};
use crate::state::{FileState, ready};
use crate::supply::{self, Supply};

pub(super) fn scenarios() -> Vec<Scenario> {
    let appended =
        "appended as leader, readable but not durable; a bare write of the same bytes after one CRC pass";
    vec![
        Scenario::new("append-16k", format!("16 KiB batches {appended}"), Unit::Bytes, |bench| {
            entrants(bench, 16 << 10, Sync::Never, FileState::Extending)
        }),
        Scenario::new("append-128k", format!("128 KiB batches {appended}"), Unit::Bytes, |bench| {
            entrants(bench, 128 << 10, Sync::Never, FileState::Extending)
        }),
        Scenario::new(
            "append-durable-4k",
            "4 KiB batches, each flushed before the next, one writer; a bare write and fdatasync of the same bytes",
            Unit::Appends,
            |bench| entrants(bench, 4 << 10, Sync::Each, FileState::Extending),
        ),
        Scenario::new(
            "append-durable-4k-64",
            "64 producers on one log, each flushing its 4 KiB batch before the next; a bare loop that writes 64 of them \
             and syncs once, and 64 bare threads that do",
            Unit::Appends,
            |bench| many(bench, Producers::Threads, PRODUCERS, GOAL_OF_MANY),
        ),
        Scenario::new(
            "append-durable-4k-64-to-1",
            "the same 64 producers; the bare loop of one writer, which syncs after each batch",
            Unit::Appends,
            |bench| many(bench, Producers::Threads, 1, GOAL_TO_ONE),
        )
        .on_request(),
        Scenario::new(
            "append-durable-4k-64-tasks",
            "64 producers as tasks of one thread on one log, each awaiting the durability of its 4 KiB batch before the \
             next; a bare loop that writes 64 of them and syncs once",
            Unit::Appends,
            |bench| many(bench, Producers::Tasks, PRODUCERS, GOAL_OF_MANY),
        ),
        Scenario::new(
            "append-durable-4k-64-tasks-to-1",
            "the same 64 tasks; the bare loop of one writer, which syncs after each batch",
            Unit::Appends,
            |bench| many(bench, Producers::Tasks, 1, GOAL_TO_ONE),
        )
        .on_request(),
        Scenario::new(
            "append-durable-4k-unwritten",
            "as append-durable-4k, both in files whose blocks are taken beforehand and not written",
            Unit::Appends,
            |bench| {
                let state = FileState::Unwritten(ready(bench.scale(), READY));
                entrants(bench, 4 << 10, Sync::Each, state)
            },
        )
        .on_request(),
        Scenario::new(
            "append-durable-4k-zeroed",
            "as append-durable-4k, both in files whose blocks are written beforehand, with zeros",
            Unit::Appends,
            |bench| {
                let state = FileState::Zeroed(ready(bench.scale(), READY));
                entrants(bench, 4 << 10, Sync::Each, state)
            },
        )
        .on_request(),
    ]
}

/// What is made ready in a file for small durable appends: more than half of it is not reached in a slice.
const READY: u32 = 64 << 20;

/// When a work syncs what it has appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    Never,
    Each,
    /// With the last batch of a file.
    Last,
}

/// What the project asks of an append.
pub(super) const GOAL: f64 = 0.95;

fn entrants(
    bench: &mut Bench,
    batch_bytes: usize,
    sync: Sync,
    state: FileState,
) -> Result<Vec<Entrant>, BenchError> {
    let supply = Supply::new(batch_bytes, 1 << 10)?;
    let scale = bench.scale();
    let media: &[Medium] = if sync == Sync::Each { &[Medium::File] } else { &[Medium::File, Medium::Memory] };
    let mut entrants = bench.entrants(
        Some(GOAL),
        media,
        |bench, medium, _| {
            let path = bench.dir().join("reference");
            let supply = supply.clone();
            let (name, work): (_, Box<dyn Work>) = match (medium, sync) {
                (Medium::File, Sync::Never | Sync::Last) => {
                    ("pwrite + CRC", Box::new(WriteLoop::new(path, supply, scale, 0).in_state(state)))
                }
                (Medium::File, Sync::Each) => {
                    ("pwrite + fdatasync", Box::new(WriteLoop::new(path, supply, scale, 1).in_state(state)))
                }
                (Medium::Memory, _) => {
                    ("memory copy + CRC", Box::new(MemoryAppendLoop::new(supply, scale.file_cap)))
                }
            };
            Ok(Entrant { name: name.to_owned(), reference: None, goal: None, work })
        },
        |bench, backend| Ok(Box::new(LogAppend::new(bench, backend, supply.clone(), sync, state)?)),
    )?;
    if sync == Sync::Never {
        // The bare loop fills the page cache and no more: nothing is asked of those that write to the device meanwhile.
        let goes_past =
            |name: &str| name.parse::<BackendSpec>().is_ok_and(|spec| spec.cache != Cache::Buffered);
        entrants
            .iter_mut()
            .filter(|entrant| goes_past(&entrant.name))
            .for_each(|entrant| entrant.goal = None);
    }
    Ok(entrants)
}

/// Producers of the scenario with many, and what the project asks of it: beside a loop that syncs once for as many, and
/// beside one that syncs after each batch.
const PRODUCERS: usize = 64;
const GOAL_OF_MANY: f64 = 0.8;
const GOAL_TO_ONE: f64 = 10.0;

/// What each of many producers is.
#[derive(Clone, Copy, Debug)]
enum Producers {
    /// A thread that blocks until its batch is durable.
    Threads,
    /// A task that awaits it. All run on one thread.
    Tasks,
}

/// Many producers, beside a bare loop that syncs once for `every` of its writes.
fn many(
    bench: &mut Bench,
    producers: Producers,
    every: usize,
    goal: f64,
) -> Result<Vec<Entrant>, BenchError> {
    let supply = Supply::new(4 << 10, 1 << 10)?;
    let bare = |bench: &Bench| {
        let path = bench.dir().join("reference");
        WriteLoop::new(path, supply.clone(), bench.scale(), every).making_buffers()
    };
    let mut entrants = bench.entrants(
        Some(goal),
        &[Medium::File],
        |bench, _, _| {
            let work = Box::new(bare(bench));
            let name = if every == 1 {
                "pwrite + fdatasync".to_owned()
            } else {
                format!("{every} pwrite + fdatasync")
            };
            Ok(Entrant { name, reference: None, goal: None, work })
        },
        |bench, backend| {
            let mut one = LogAppend::new(bench, backend, supply.clone(), Sync::Each, FileState::Extending)?;
            if matches!(producers, Producers::Tasks) {
                // Those who await run no flush themselves.
                one.scheduler = Some(ThreadScheduler::start().map_err(BenchError::io("start", bench.dir()))?);
            }
            Ok(Box::new(ManyAppend { one, producers }))
        },
    )?;
    if matches!(producers, Producers::Threads) && every == PRODUCERS {
        let work = Box::new(ThreadsLoop::new(bare(bench)));
        let name = "(bare threads)".to_owned();
        entrants.push(Entrant { name, reference: Some(0), goal: None, work });
    }
    Ok(entrants)
}

/// Many producers append to one log, which is new in each slice, each waiting until its batch is durable.
#[derive(Debug)]
struct ManyAppend {
    one: LogAppend,
    producers: Producers,
}

impl ManyAppend {
    /// Each of `supplies` on a thread of its own; returns how many batches that were.
    fn on_threads(
        &self,
        log: &Log,
        supplies: &mut [Supply],
        runs: impl Fn() -> bool + std::marker::Sync,
    ) -> Result<u64, BenchError> {
        let produce = |supply: &mut Supply| {
            let mut batches = 0;
            while runs() {
                self.one.append(log, supply.one())?;
                batches += 1;
            }
            Ok::<u64, BenchError>(batches)
        };
        thread::scope(|scope| {
            let threads: Vec<_> =
                supplies.iter_mut().map(|supply| scope.spawn(move || produce(supply))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a producer does not panic")).sum()
        })
    }

    /// Each of `supplies` as a task of this thread; returns how many batches that were.
    fn as_tasks(log: &Log, supplies: &mut [Supply], runs: impl Fn() -> bool) -> Result<u64, BenchError> {
        let produce = async |supply: &mut Supply| {
            let mut batches = 0;
            while runs() {
                let (epoch, version) = (LeaderEpoch::new(0), TransactionVersion::V0);
                let (_, durability) =
                    log.append_as_leader_durable(supply.one(), epoch, Origin::Client, version)?;
                durability.await?;
                batches += 1;
            }
            Ok::<u64, BenchError>(batches)
        };
        let tasks: FuturesUnordered<_> = supplies.iter_mut().map(produce).collect();
        block_on(tasks.try_fold(0, async |total, batches| Ok(total + batches)))
    }
}

impl Work for ManyAppend {
    fn check(&mut self) -> Result<u64, BenchError> {
        self.one.check()
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        let log = self.one.fresh()?;
        let mut supplies: Vec<Supply> = (0..PRODUCERS).map(|_| self.one.supply.clone()).collect();
        watch.time(|| {
            let begin = Instant::now();
            let runs = || begin.elapsed() < at_least;
            match self.producers {
                Producers::Threads => self.on_threads(&log, &mut supplies, runs),
                Producers::Tasks => Self::as_tasks(&log, &mut supplies, runs),
            }
        })?;
        let slice = watch.stop();
        let end = slice.units * self.one.supply.records() as u64;
        expect("the log end offset", end, filled::number(log.log_end_offset()))?;
        expect("the recovery point", end, filled::number(log.recovery_point()))?;
        self.one.remove(log)?;
        Ok(slice)
    }
}

/// Appends to a log that is new in each slice.
#[derive(Debug)]
pub(super) struct LogAppend {
    backend: Arc<dyn Backend>,
    dir: PathBuf,
    supply: Supply,
    cap: u64,
    sync: Sync,
    /// The file is brought into its state by a first append, which is not measured.
    prepared: bool,
    /// Threads that read what is appended as it comes.
    readers: usize,
    /// Does the log's background work on a thread of its own; where there is none it is done where it comes up.
    scheduler: Option<Arc<ThreadScheduler>>,
}

impl LogAppend {
    /// Appends batches of `supply` over `backend`, set to files in `state` unless that is how it works by default.
    ///
    /// # Errors
    /// [`BenchError::Unsuited`] where it cannot be set.
    pub(super) fn new(
        bench: &Bench,
        backend: &Arc<dyn Backend>,
        supply: Supply,
        sync: Sync,
        state: FileState,
    ) -> Result<LogAppend, BenchError> {
        let prepared = state != FileState::Extending;
        let backend = if prepared { state.of_backend(backend, bench)? } else { backend.clone() };
        let dir = bench.dir().join(backend.name()).join("append-0");
        let cap = state.cap(bench.scale());
        Ok(LogAppend { backend, dir, supply, cap, sync, prepared, readers: 0, scheduler: None })
    }

    /// The same beside so many readers that follow the end of the log.
    pub(super) fn beside_readers(self, readers: usize) -> LogAppend {
        LogAppend { readers, ..self }
    }

    pub(super) fn fresh(&self) -> Result<Log, BenchError> {
        let mut options = OpenOptions::new(self.backend.clone());
        if let Some(scheduler) = &self.scheduler {
            options.scheduler = scheduler.clone();
        }
        filled::open_with(options, &self.dir)
    }

    fn append(&self, log: &Log, batch: BytesMut) -> Result<(), BenchError> {
        take(log, batch)?;
        self.settle(log)
    }

    /// Makes durable what was appended, where that is to be done each time.
    pub(super) fn settle(&self, log: &Log) -> Result<(), BenchError> {
        if self.sync == Sync::Each {
            log.flush(false)?;
        }
        Ok(())
    }

    /// Checks that the log holds as many batches and bytes, and the last batch of the supply at its end.
    pub(super) fn check_end(
        &self,
        log: &Log,
        batches: u64,
        bytes: u64,
        last: &[u8],
    ) -> Result<(), BenchError> {
        let end = batches * self.supply.records() as u64;
        expect("the log end offset", end, filled::number(log.log_end_offset()))?;
        expect("the log's size", bytes, log.size())?;
        if self.sync != Sync::Never {
            expect("the recovery point", end, filled::number(log.recovery_point()))?;
        }
        let found = read(log, Offset::new(end as i64 - 1), 1)?;
        expect("the last batch's hash", supply::hash(0, last), supply::hash(0, &found))
    }

    /// Appends until the time is up or the file is full; returns how many bytes and batches it holds.
    fn fill(&mut self, log: &Log, watch: &mut Watch) -> Result<(u64, u64), BenchError> {
        let (mut written, mut batches) = (0, 0);
        if self.prepared {
            let first = self.supply.one();
            (written, batches) = (first.len() as u64, 1);
            self.append(log, first)?;
            log.flush(false)?;
        }
        while watch.runs() && written < self.cap {
            let group = if self.sync == Sync::Each { vec![self.supply.one()] } else { self.supply.group() };
            watch.time(|| {
                let begin = (written, batches);
                for batch in group {
                    written += batch.len() as u64;
                    batches += 1;
                    self.append(log, batch)?;
                }
                Ok(if self.sync == Sync::Each { batches - begin.1 } else { written - begin.0 })
            })?;
        }
        if self.sync == Sync::Last {
            watch.time(|| Ok(log.flush(false).map(|()| 0)?))?;
        }
        Ok((written, batches))
    }

    /// As [`fill`](Self::fill), beside readers, who must have got every byte in the end.
    fn fill_beside(
        &mut self,
        readers: usize,
        log: &Log,
        watch: &mut Watch,
    ) -> Result<(u64, u64), BenchError> {
        let end = Arc::new(End::default());
        let told = Arc::clone(&end);
        log.observe(Some(Observer::new(move |offset| told.set(offset, false))));
        let shape = (self.supply.batch_len(), self.supply.records());
        thread::scope(|scope| {
            let follow = || follow(log, &end, shape);
            let readers: Vec<_> = (0..readers).map(|_| scope.spawn(follow)).collect();
            let filled = self.fill(log, watch);
            end.set(log.log_end_offset(), true);
            for reader in readers {
                let read = reader.join().expect("a reader does not panic")?;
                if let Ok((written, _)) = filled {
                    expect("the bytes that a reader got", written, read)?;
                }
            }
            filled
        })
    }

    pub(super) fn remove(&self, log: Log) -> Result<(), BenchError> {
        log.abandon();
        drop(log);
        Ok(self.backend.names().remove_dir_all(&self.dir)?)
    }
}

impl Work for LogAppend {
    fn check(&mut self) -> Result<u64, BenchError> {
        let log = self.fresh()?;
        self.supply.restart();
        for _ in 0..self.supply.different() {
            let batch = self.supply.one();
            self.append(&log, batch)?;
        }
        let all = read(&log, Offset::ZERO, usize::MAX)?;
        let len = self.supply.batch_len();
        expect("the bytes read back", (self.supply.different() * len) as u64, all.len() as u64)?;
        for (i, batch) in all.chunks(len).enumerate() {
            let expected = (i * self.supply.records()) as u64;
            expect("the base offset", expected, filled::number(base_offset(batch)?))?;
        }
        self.remove(log)?;
        Ok(all.chunks(len).fold(0, supply::hash))
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            let log = self.fresh()?;
            let (written, batches) = match self.readers {
                0 => self.fill(&log, &mut watch)?,
                readers => self.fill_beside(readers, &log, &mut watch)?,
            };
            self.check_end(&log, batches, written, self.supply.last())?;
            self.remove(log)?;
        }
        Ok(watch.stop())
    }
}

/// Appends a batch: it can be read then.
pub(super) fn take(log: &Log, batch: BytesMut) -> Result<(), BenchError> {
    log.append_as_leader(batch, LeaderEpoch::new(0), Origin::Client)?;
    Ok(())
}

/// Where a log ends, for those who wait for more; and whether it ends there for good.
#[derive(Debug, Default)]
struct End {
    at: Mutex<(u64, bool)>,
    moved: Condvar,
}

impl End {
    fn set(&self, offset: Offset, for_good: bool) {
        *self.at.lock().expect("nobody panics with it") = (filled::number(offset), for_good);
        self.moved.notify_all();
    }

    /// Waits until there is more than `at`; where it is, or none if there never will be.
    fn beyond(&self, at: u64) -> Option<u64> {
        let end = self.at.lock().expect("nobody panics with it");
        let end = self.moved.wait_while(end, |(end, for_good)| *end <= at && !*for_good);
        let (end, _) = *end.expect("nobody panics with it");
        (end > at).then_some(end)
    }
}

/// The most that a reader of the tail asks for.
const READ: usize = 1 << 20;

/// Reads from the log's beginning to its end, as it moves; returns how many bytes that were.
fn follow(log: &Log, end: &End, (batch_len, records): (usize, usize)) -> Result<u64, BenchError> {
    let (mut at, mut total) = (0, 0);
    let mut bytes = Vec::new();
    while end.beyond(at).is_some() {
        bytes.clear();
        if let Some(region) = log.read(Offset::new(at as i64), READ, Isolation::LogEnd, true)?.region {
            region.copy_into(&mut bytes)?;
        }
        // Whole batches but for the last, which is read again.
        let batches = bytes.len() / batch_len;
        at += (batches * records) as u64;
        total += (batches * batch_len) as u64;
    }
    Ok(total)
}

/// The stored bytes of the batches from `start` on, at most `max` of them but at least one batch.
fn read(log: &Log, start: Offset, max: usize) -> Result<Vec<u8>, BenchError> {
    let mut bytes = Vec::new();
    if let Some(region) = log.read(start, max, Isolation::LogEnd, true)?.region {
        region.copy_into(&mut bytes)?;
    }
    Ok(bytes)
}

/// The base offset of an uncompressed batch whose CRC is right.
fn base_offset(batch: &[u8]) -> Result<Offset, BenchError> {
    let checked = kseg_format::Batch::parse(batch)?.verify()?;
    checked.base_offset().ok_or_else(|| BenchError::Wrong {
        what: "the magic".to_owned(),
        expected: 2,
        found: 1,
    })
}
