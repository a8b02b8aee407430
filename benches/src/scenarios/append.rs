//! Appending whole batches as the leader.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::Backend;
use kseg_log::{Isolation, Log, LogConfig};

use super::Scenario;
use crate::bench::{Bench, Medium};
use crate::contest::{Entrant, Slice, Unit, Watch, Work};
use crate::error::{BenchError, expect};
use crate::filled;
use crate::reference::{MemoryAppendLoop, WriteLoop};
use crate::supply::{self, Supply};

pub(super) fn scenarios() -> Vec<Scenario> {
    let appended =
        "appended as leader, readable but not durable; a bare write of the same bytes after one CRC pass";
    vec![
        Scenario::new("append-16k", format!("16 KiB batches {appended}"), Unit::Bytes, |bench| {
            entrants(bench, 16 << 10, Sync::Never)
        }),
        Scenario::new("append-128k", format!("128 KiB batches {appended}"), Unit::Bytes, |bench| {
            entrants(bench, 128 << 10, Sync::Never)
        }),
        Scenario::new(
            "append-durable-4k",
            "4 KiB batches, each flushed before the next, one writer; a bare write and fdatasync of the same bytes",
            Unit::Appends,
            |bench| entrants(bench, 4 << 10, Sync::Each),
        ),
        Scenario::new(
            "append-durable-4k-64",
            "64 producers on one log, each flushing its 4 KiB batch before the next; a bare loop that writes 64 of them \
             and syncs once",
            Unit::Appends,
            many,
        ),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    Never,
    Each,
}

/// What the project asks of an append.
const GOAL: f64 = 0.95;

fn entrants(bench: &mut Bench, batch_bytes: usize, sync: Sync) -> Result<Vec<Entrant>, BenchError> {
    let supply = Supply::new(batch_bytes, 1 << 10)?;
    let cap = bench.scale().file_cap;
    let media: &[Medium] = if sync == Sync::Each { &[Medium::File] } else { &[Medium::File, Medium::Memory] };
    bench.entrants(
        Some(GOAL),
        media,
        |bench, medium, _| {
            let path = bench.dir().join("reference");
            let supply = supply.clone();
            let (name, work): (_, Box<dyn Work>) = match (medium, sync) {
                (Medium::File, Sync::Never) => {
                    ("pwrite + CRC", Box::new(WriteLoop::new(path, supply, cap, 0)))
                }
                (Medium::File, Sync::Each) => {
                    ("pwrite + fdatasync", Box::new(WriteLoop::new(path, supply, cap, 1)))
                }
                (Medium::Memory, _) => ("memory copy + CRC", Box::new(MemoryAppendLoop::new(supply, cap))),
            };
            Ok(Entrant { name: name.to_owned(), reference: None, goal: None, work })
        },
        |bench, backend| {
            let dir = bench.dir().join(backend.name()).join("append-0");
            Ok(Box::new(LogAppend { backend: backend.clone(), dir, supply: supply.clone(), cap, sync }))
        },
    )
}

/// Producers of the scenario with many, and what the project asks of it.
const PRODUCERS: usize = 64;
const GOAL_OF_MANY: f64 = 0.8;

fn many(bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
    let supply = Supply::new(4 << 10, 1 << 10)?;
    let cap = bench.scale().file_cap;
    bench.entrants(
        Some(GOAL_OF_MANY),
        &[Medium::File],
        |bench, _, _| {
            let path = bench.dir().join("reference");
            let work = Box::new(WriteLoop::new(path, supply.clone(), cap, PRODUCERS));
            Ok(Entrant { name: "64 pwrite + fdatasync".to_owned(), reference: None, goal: None, work })
        },
        |bench, backend| {
            let dir = bench.dir().join(backend.name()).join("append-0");
            let (backend, supply) = (backend.clone(), supply.clone());
            Ok(Box::new(ManyAppend(LogAppend { backend, dir, supply, cap, sync: Sync::Each })))
        },
    )
}

/// Many threads append to one log, which is new in each slice, each waiting until its batch is durable.
#[derive(Debug)]
struct ManyAppend(LogAppend);

impl Work for ManyAppend {
    fn check(&mut self) -> Result<u64, BenchError> {
        self.0.check()
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        let work = &self.0;
        let log = work.fresh()?;
        let mut supplies: Vec<Supply> = (0..PRODUCERS).map(|_| work.supply.clone()).collect();
        watch.time(|| {
            let begin = Instant::now();
            let produce = |supply: &mut Supply| {
                let mut batches = 0;
                while begin.elapsed() < at_least {
                    work.append(&log, supply.one())?;
                    batches += 1;
                }
                Ok::<u64, BenchError>(batches)
            };
            thread::scope(|scope| {
                let threads: Vec<_> =
                    supplies.iter_mut().map(|supply| scope.spawn(move || produce(supply))).collect();
                threads.into_iter().map(|thread| thread.join().expect("a producer does not panic")).sum()
            })
        })?;
        let slice = watch.stop();
        let end = slice.units * work.supply.records() as u64;
        expect("the log end offset", end, filled::number(log.log_end_offset()))?;
        expect("the recovery point", end, filled::number(log.recovery_point()))?;
        work.remove(log)?;
        Ok(slice)
    }
}

/// Appends to a log that is new in each slice.
#[derive(Debug)]
struct LogAppend {
    backend: Arc<dyn Backend>,
    dir: PathBuf,
    supply: Supply,
    cap: u64,
    sync: Sync,
}

impl LogAppend {
    fn fresh(&self) -> Result<Log, BenchError> {
        filled::open(&self.backend, &self.dir, LogConfig::default())
    }

    fn append(&self, log: &Log, batch: BytesMut) -> Result<(), BenchError> {
        log.append_as_leader(batch, LeaderEpoch::new(0), Origin::Client)?;
        if self.sync == Sync::Each {
            log.flush(false)?;
        }
        Ok(())
    }

    fn remove(&self, log: Log) -> Result<(), BenchError> {
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
            let (mut written, mut batches) = (0, 0);
            while watch.runs() && written < self.cap {
                let group =
                    if self.sync == Sync::Each { vec![self.supply.one()] } else { self.supply.group() };
                watch.time(|| {
                    let begin = (written, batches);
                    for batch in group {
                        written += batch.len() as u64;
                        batches += 1;
                        self.append(&log, batch)?;
                    }
                    Ok(if self.sync == Sync::Each { batches - begin.1 } else { written - begin.0 })
                })?;
            }
            let end = batches * self.supply.records() as u64;
            expect("the log end offset", end, filled::number(log.log_end_offset()))?;
            expect("the log's size", written, log.size())?;
            if self.sync == Sync::Each {
                expect("the recovery point", end, filled::number(log.recovery_point()))?;
            }
            let last = read(&log, Offset::new(end as i64 - 1), 1)?;
            expect("the last batch's hash", supply::hash(0, self.supply.last()), supply::hash(0, &last))?;
            self.remove(log)?;
        }
        Ok(watch.stop())
    }
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
