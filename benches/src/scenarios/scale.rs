//! Many partitions, and many segments in one log, beside one: what an operation costs must not grow with them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::Backend;
use kseg_log::{Isolation, Log, LogConfig};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::Scenario;
use super::lookup::{Laid, LogLookup};
use crate::bench::{Bench, Medium};
use crate::contest::{Entrant, Slice, Unit, Watch, Work};
use crate::error::{BenchError, expect};
use crate::filled;
use crate::reference::{crc_is_right, wrong_crc};
use crate::supply::{self, Supply};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "many-partitions",
            "1 KiB batches to 10 000 partitions in turn, and to one; a bare write of the same bytes after one CRC pass, to as \
             many files",
            Unit::Bytes,
            partitions,
        )
        .on_request(),
        Scenario::new(
            "many-segments",
            "the position of a random offset in a hot log of 10 000 segments; the same in a log of one segment",
            Unit::Lookups,
            segments,
        )
        .on_request(),
    ]
}

const BATCH_BYTES: usize = 1 << 10;
const VALUE_LEN: usize = 100;
/// What the project asks: that it stays as it is for one.
const GOAL: f64 = 0.8;
/// Descriptors that a process needs beside those of the works.
const OTHER_FILES: u64 = 100;

/// Sees to it that `files` may be open at the same time.
fn allow_files(files: u64) -> Result<(), BenchError> {
    let mut limit = getrlimit(Resource::Nofile);
    let needed = files + OTHER_FILES;
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(most) = limit.maximum.filter(|most| *most < needed) {
        return Err(BenchError::Unsuited(format!(
            "{needed} open files are needed, {most} are allowed here (ulimit -Hn)"
        )));
    }
    limit.current = Some(needed);
    setrlimit(Resource::Nofile, limit).map_err(|e| {
        BenchError::Unsuited(format!("the limit of open files cannot be raised to {needed}: {e}"))
    })
}

fn partitions(bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
    let many = bench.scale().many;
    allow_files(many as u64)?;
    let supply = Supply::new(BATCH_BYTES, VALUE_LEN)?;
    let cap = bench.scale().file_cap;
    let bare = |count: usize, dir: PathBuf| Bare { dir, count, files: Vec::new() };
    let mut entrants = Vec::new();
    for (count, name) in [(1, "bare, 1 file"), (many, "bare, many files")] {
        let work = InTurn::new(bare(count, bench.dir().join("reference")), supply.clone(), cap);
        let reference = (count > 1).then_some(0);
        entrants.push(Entrant { name: name.to_owned(), reference, goal: None, work: Box::new(work) });
    }
    for backend in bench.backends() {
        if Medium::of(backend, bench.dir())? != Medium::File {
            continue;
        }
        for (reference, count) in [(0, 1), (1, many)] {
            let place = bench.dir().join(backend.name());
            let logs = Logs { backend: backend.clone(), place, count, open: Vec::new() };
            let name = if count == 1 {
                format!("{}, 1", backend.name())
            } else {
                format!("{}, many", backend.name())
            };
            let work = Box::new(InTurn::new(logs, supply.clone(), cap));
            entrants.push(Entrant { name, reference: Some(reference), goal: None, work });
        }
    }
    Ok(entrants)
}

/// What takes batches in turn.
trait Takers: std::fmt::Debug {
    fn count(&self) -> usize;
    /// Makes new, empty ones.
    fn open(&mut self) -> Result<(), BenchError>;
    fn append(&mut self, to: usize, batch: BytesMut) -> Result<(), BenchError>;
    /// All the bytes of one.
    fn read(&self, from: usize) -> Result<Vec<u8>, BenchError>;
    fn remove(&mut self) -> Result<(), BenchError>;
}

/// Appends to each of the takers in turn; they are new in each slice, and have one batch each before it begins.
#[derive(Debug)]
struct InTurn<T> {
    takers: T,
    supply: Supply,
    cap: u64,
}

impl<T: Takers> InTurn<T> {
    fn new(takers: T, supply: Supply, cap: u64) -> InTurn<T> {
        InTurn { takers, supply, cap }
    }
}

impl<T: Takers> Work for InTurn<T> {
    fn check(&mut self) -> Result<u64, BenchError> {
        self.takers.open()?;
        self.supply.restart();
        let (count, len) = (self.takers.count(), self.supply.batch_len());
        let batches = self.supply.different();
        for n in 0..batches {
            let batch = self.supply.one();
            self.takers.append(n % count, batch)?;
        }
        let mut hash = 0;
        for n in 0..batches {
            let all = self.takers.read(n % count)?;
            let at = n / count * len;
            let batch = all.get(at..at + len).ok_or(BenchError::Wrong {
                what: format!("the bytes of taker {} of {count}", n % count),
                expected: (at + len) as u64,
                found: all.len() as u64,
            })?;
            hash = supply::hash(hash, batch);
        }
        self.takers.remove()?;
        Ok(hash)
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            self.takers.open()?;
            let count = self.takers.count();
            for to in 0..count {
                let batch = self.supply.one();
                self.takers.append(to, batch)?;
            }
            let (mut to, mut written) = (0, 0);
            while watch.runs() && written < self.cap {
                let group = self.supply.group();
                watch.time(|| {
                    let mut bytes = 0;
                    for batch in group {
                        bytes += batch.len() as u64;
                        self.takers.append(to, batch)?;
                        to = if to + 1 == count { 0 } else { to + 1 };
                    }
                    written += bytes;
                    Ok(bytes)
                })?;
            }
            let before = if to == 0 { count - 1 } else { to - 1 };
            let all = self.takers.read(before)?;
            let last = &all[all.len().saturating_sub(self.supply.batch_len())..];
            expect("the last batch's hash", supply::hash(0, self.supply.last()), supply::hash(0, last))?;
            self.takers.remove()?;
        }
        Ok(watch.stop())
    }
}

/// Files.
#[derive(Debug)]
struct Bare {
    dir: PathBuf,
    count: usize,
    /// Each with its length.
    files: Vec<(File, u64)>,
}

impl Takers for Bare {
    fn count(&self) -> usize {
        self.count
    }

    fn open(&mut self) -> Result<(), BenchError> {
        fs::create_dir(&self.dir).map_err(BenchError::io("create", &self.dir))?;
        for n in 0..self.count {
            let path = self.dir.join(n.to_string());
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
            self.files.push((file.map_err(BenchError::io("create", &path))?, 0));
        }
        Ok(())
    }

    fn append(&mut self, to: usize, batch: BytesMut) -> Result<(), BenchError> {
        let (file, len) = &mut self.files[to];
        if !crc_is_right(&batch) {
            return Err(wrong_crc(*len));
        }
        file.write_all_at(&batch, *len).map_err(BenchError::io("write", &self.dir))?;
        *len += batch.len() as u64;
        Ok(())
    }

    fn read(&self, from: usize) -> Result<Vec<u8>, BenchError> {
        let (file, len) = &self.files[from];
        let mut bytes = vec![0; *len as usize];
        file.read_exact_at(&mut bytes, 0).map_err(BenchError::io("read", &self.dir))?;
        Ok(bytes)
    }

    fn remove(&mut self) -> Result<(), BenchError> {
        self.files.clear();
        fs::remove_dir_all(&self.dir).map_err(BenchError::io("remove", &self.dir))
    }
}

/// Logs.
#[derive(Debug)]
struct Logs {
    backend: Arc<dyn Backend>,
    place: PathBuf,
    count: usize,
    open: Vec<Log>,
}

impl Takers for Logs {
    fn count(&self) -> usize {
        self.count
    }

    fn open(&mut self) -> Result<(), BenchError> {
        for n in 0..self.count {
            self.open.push(filled::open(
                &self.backend,
                &self.place.join(format!("t-{n}")),
                LogConfig::default(),
            )?);
        }
        Ok(())
    }

    fn append(&mut self, to: usize, batch: BytesMut) -> Result<(), BenchError> {
        self.open[to].append_as_leader(batch, LeaderEpoch::new(0), Origin::Client)?;
        Ok(())
    }

    fn read(&self, from: usize) -> Result<Vec<u8>, BenchError> {
        let mut bytes = Vec::new();
        if let Some(region) = self.open[from].read(Offset::ZERO, usize::MAX, Isolation::LogEnd, true)?.region
        {
            region.copy_into(&mut bytes)?;
        }
        Ok(bytes)
    }

    fn remove(&mut self) -> Result<(), BenchError> {
        for log in self.open.drain(..) {
            log.abandon();
        }
        Ok(self.backend.names().remove_dir_all(&self.place)?)
    }
}

fn segments(bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
    let many = bench.scale().many;
    allow_files(many as u64)?;
    let path =
        |bench: &Bench, backend: &Arc<dyn Backend>, name: &str| bench.dir().join(backend.name()).join(name);
    bench.entrants(
        Some(GOAL),
        &[Medium::File],
        |bench, _, backend| {
            let log = Segmented::new(backend, &path(bench, backend, "one-0"), many, many)?;
            Ok(Entrant {
                name: "1 segment".to_owned(),
                reference: None,
                goal: None,
                work: Box::new(LogLookup::new(log)),
            })
        },
        |bench, backend| {
            Ok(Box::new(LogLookup::new(Segmented::new(backend, &path(bench, backend, "many-0"), many, 1)?)))
        },
    )
}

/// Batches of a segment of which there are many.
const SEGMENT_BATCHES: usize = 8;

/// A log of sealed segments that are all alike.
#[derive(Debug)]
struct Segmented {
    log: Log,
    end: u64,
    records: u64,
    batch_len: u64,
    segment_batches: u64,
}

impl Segmented {
    /// A log of `units` times 8 batches, `per_segment` of these units in each segment.
    fn new(
        backend: &Arc<dyn Backend>,
        dir: &Path,
        units: usize,
        per_segment: usize,
    ) -> Result<Segmented, BenchError> {
        let mut supply = Supply::new(BATCH_BYTES, VALUE_LEN)?;
        let log = filled::open(backend, dir, LogConfig::default())?;
        for unit in 0..units {
            for _ in 0..SEGMENT_BATCHES {
                log.append_as_leader(supply.one(), LeaderEpoch::new(0), Origin::Client)?;
            }
            if (unit + 1) % per_segment == 0 {
                log.roll(None)?;
            }
        }
        let found = log.state(false)?.segments.len();
        expect("the segments", (units / per_segment + 1) as u64, found as u64)?;
        Ok(Segmented {
            end: filled::number(log.log_end_offset()),
            log,
            records: supply.records() as u64,
            batch_len: supply.batch_len() as u64,
            segment_batches: (per_segment * SEGMENT_BATCHES) as u64,
        })
    }
}

impl Laid for Segmented {
    fn log(&self) -> &Log {
        &self.log
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn position_of(&self, offset: u64) -> u64 {
        offset / self.records % self.segment_batches * self.batch_len
    }

    fn place_of(&self, offset: u64) -> u64 {
        offset / self.records * self.batch_len
    }
}
