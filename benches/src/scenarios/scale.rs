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
use crate::reference::{Indexed, SearchLoop, Store, crc_is_right, wrong_crc};
use crate::supply::{self, Supply};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "many-partitions",
            "1 KiB batches to 10 000 partitions in turn, and to one; a bare write of the same bytes after one CRC pass, to as \
             many files, which costs more where they are many",
            Unit::Bytes,
            partitions,
        )
        .on_request(),
        Scenario::new(
            "many-segments",
            "the position of a random offset in a hot log of 10 000 segments, and of one; a binary search over the same entries \
             in memory, then reading the headers that lie between, in as many files, which costs more where they are many",
            Unit::Lookups,
            segments,
        )
        .on_request(),
    ]
}

const BATCH_BYTES: usize = 1 << 10;
const VALUE_LEN: usize = 100;
/// Of bare loops over as many files: what the kernel takes to go from file to file is in both.
const GOAL: f64 = 0.8;
/// Descriptors that a process needs beside those of the works.
const OTHER_FILES: u64 = 100;

/// How many files the bare loop and each backend's logs may have open, at most the scale's `many`; the limit is raised as far
/// as this process may.
fn many_files(bench: &Bench) -> Result<usize, BenchError> {
    let (holders, wanted) = (bench.backends().len() as u64 + 1, bench.scale().many as u64);
    let needed = wanted * holders + OTHER_FILES;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(bench.scale().many);
    }
    let allowed = limit.maximum.map_or(needed, |most| most.min(needed));
    limit.current = Some(allowed);
    setrlimit(Resource::Nofile, limit).map_err(|e| {
        BenchError::Unsuited(format!("the limit of open files cannot be raised to {allowed}: {e}"))
    })?;
    match allowed.saturating_sub(OTHER_FILES) / holders {
        0 | 1 => Err(BenchError::Unsuited(format!("{allowed} open files are allowed (ulimit -Hn): too few"))),
        many => Ok(many as usize),
    }
}

/// What does the work.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A loop over files.
    Bare,
    /// The log, or logs.
    Log,
}

/// The entrants of one and of many: the bare loop over one file, each backend's one, the bare loop over many, each backend's
/// many. The first backend's one is what all else is held against in the last column.
///
/// `work` makes the work of a backend over so many, or the bare loop beside it.
fn one_and_many(
    bench: &mut Bench,
    many: usize,
    mut work: impl FnMut(&mut Bench, &Arc<dyn Backend>, usize, Kind) -> Result<Box<dyn Work>, BenchError>,
) -> Result<Vec<Entrant>, BenchError> {
    let mut backends = Vec::new();
    for backend in bench.backends() {
        if Medium::of(backend, bench.dir())? == Medium::File {
            backends.push(backend.clone());
        }
    }
    let Some(first) = backends.first() else {
        return Err(BenchError::Unsuited("none of the backends keeps its bytes in files".to_owned()));
    };
    let mut entrants = Vec::new();
    let mut reference = None;
    for count in [1, many] {
        let at = entrants.len();
        // Many files are held against one, so that what they cost the kernel is seen.
        entrants.push(Entrant {
            name: format!("bare, {count}"),
            reference: reference.replace(at),
            goal: None,
            work: work(bench, first, count, Kind::Bare)?,
        });
        for backend in &backends {
            entrants.push(Entrant {
                name: format!("{}, {count}", backend.name()),
                reference,
                goal: (count > 1).then_some(GOAL),
                work: work(bench, backend, count, Kind::Log)?,
            });
        }
    }
    Ok(entrants)
}

fn partitions(bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
    let (supply, many) = (Supply::new(BATCH_BYTES, VALUE_LEN)?, many_files(bench)?);
    one_and_many(bench, many, |bench, backend, count, kind| {
        let (dir, cap, supply) = (bench.dir(), bench.scale().file_cap, supply.clone());
        Ok(match kind {
            Kind::Bare => {
                let dir = dir.join("reference").join(count.to_string());
                Box::new(InTurn::new(Bare { dir, count, files: Vec::new() }, supply, cap))
            }
            Kind::Log => {
                let (backend, place) = (backend.clone(), dir.join(backend.name()).join(count.to_string()));
                Box::new(InTurn::new(Logs { backend, place, count, open: Vec::new() }, supply, cap))
            }
        })
    })
}

/// What takes batches in turn.
trait Takers: std::fmt::Debug {
    fn count(&self) -> usize;
    /// Makes new, empty ones.
    fn open(&mut self) -> Result<(), BenchError>;
    fn append(&mut self, to: usize, batch: BytesMut) -> Result<(), BenchError>;
    /// All the bytes of one.
    fn read(&self, from: usize) -> Result<Vec<u8>, BenchError>;
    /// The last `len` bytes of one.
    fn last(&self, from: usize, len: usize) -> Result<Vec<u8>, BenchError>;
    fn remove(&mut self) -> Result<(), BenchError>;
}

/// Appends to each of the takers in turn.
///
/// They go on from slice to slice and are made anew only when they have grown to the cap: making 10 000 of them takes much
/// longer than a slice. Each has one batch before it is measured.
#[derive(Debug)]
struct InTurn<T> {
    takers: T,
    supply: Supply,
    cap: u64,
    /// Bytes that the takers hold; none are there yet at 0.
    written: u64,
    /// The taker of the next batch.
    next: usize,
}

impl<T: Takers> InTurn<T> {
    fn new(takers: T, supply: Supply, cap: u64) -> InTurn<T> {
        InTurn { takers, supply, cap, written: 0, next: 0 }
    }

    fn begin(&mut self) -> Result<(), BenchError> {
        self.takers.open()?;
        (self.written, self.next) = (0, 0);
        for _ in 0..self.takers.count() {
            let batch = self.supply.one();
            self.append(batch)?;
        }
        Ok(())
    }

    fn append(&mut self, batch: BytesMut) -> Result<u64, BenchError> {
        let (bytes, to) = (batch.len() as u64, self.next);
        self.next = if to + 1 == self.takers.count() { 0 } else { to + 1 };
        self.takers.append(to, batch)?;
        self.written += bytes;
        Ok(bytes)
    }

    fn end(&mut self) -> Result<(), BenchError> {
        self.written = 0;
        self.takers.remove()
    }
}

impl<T: Takers> Work for InTurn<T> {
    fn check(&mut self) -> Result<u64, BenchError> {
        self.takers.open()?;
        self.supply.restart();
        let (count, len) = (self.takers.count(), self.supply.batch_len());
        let batches = self.supply.different();
        for _ in 0..batches {
            let batch = self.supply.one();
            self.append(batch)?;
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
        self.next = 0;
        self.end()?;
        Ok(hash)
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            if self.written == 0 {
                self.begin()?;
            }
            while watch.runs() && self.written < self.cap {
                let group = self.supply.group();
                watch
                    .time(|| group.into_iter().try_fold(0, |bytes, batch| Ok(bytes + self.append(batch)?)))?;
            }
            let before = if self.next == 0 { self.takers.count() - 1 } else { self.next - 1 };
            let last = self.takers.last(before, self.supply.batch_len())?;
            expect("the last batch's hash", supply::hash(0, self.supply.last()), supply::hash(0, &last))?;
            if self.written >= self.cap {
                self.end()?;
            }
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
        fs::create_dir_all(&self.dir).map_err(BenchError::io("create", &self.dir))?;
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

    fn last(&self, from: usize, len: usize) -> Result<Vec<u8>, BenchError> {
        let (file, end) = &self.files[from];
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, end - len as u64).map_err(BenchError::io("read", &self.dir))?;
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
        read_from(&self.open[from], Offset::ZERO)
    }

    fn last(&self, from: usize, _: usize) -> Result<Vec<u8>, BenchError> {
        let log = &self.open[from];
        read_from(log, Offset::new(log.log_end_offset().get() - 1))
    }

    fn remove(&mut self) -> Result<(), BenchError> {
        for log in self.open.drain(..) {
            log.abandon();
        }
        Ok(self.backend.names().remove_dir_all(&self.place)?)
    }
}

/// The bytes from the batch that holds `offset` on.
fn read_from(log: &Log, offset: Offset) -> Result<Vec<u8>, BenchError> {
    let mut bytes = Vec::new();
    if let Some(region) = log.read(offset, usize::MAX, Isolation::LogEnd, true)?.region {
        region.copy_into(&mut bytes)?;
    }
    Ok(bytes)
}

fn segments(bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
    let many = many_files(bench)?;
    let mut logs: Vec<(PathBuf, Arc<Segmented>)> = Vec::new();
    one_and_many(bench, many, |bench, backend, count, kind| {
        let dir = bench.dir().join(backend.name()).join(format!("segments-{count}"));
        let known = logs.iter().find(|(known, _)| *known == dir).map(|(_, log)| log.clone());
        let log = match known {
            Some(log) => log,
            None => {
                let log = Arc::new(Segmented::new(backend, &dir, many * SEGMENT_BATCHES, count)?);
                logs.push((dir, log.clone()));
                log
            }
        };
        Ok(match kind {
            Kind::Bare => Box::new(SearchLoop::new(log.files()?, log.end)),
            Kind::Log => Box::new(LogLookup::new(log)),
        })
    })
}

/// Batches of a segment of which there are many.
const SEGMENT_BATCHES: usize = 8;

/// A log of sealed segments that are all alike.
#[derive(Debug)]
struct Segmented {
    backend: Arc<dyn Backend>,
    dir: PathBuf,
    log: Log,
    end: u64,
    records: u64,
    batch_len: u64,
    segment_batches: u64,
}

impl Segmented {
    /// A log of `count` sealed segments and an empty active one, which hold this many batches.
    fn new(
        backend: &Arc<dyn Backend>,
        dir: &Path,
        batches: usize,
        count: usize,
    ) -> Result<Segmented, BenchError> {
        let mut supply = Supply::new(BATCH_BYTES, VALUE_LEN)?;
        let log = filled::open(backend, dir, LogConfig::default())?;
        let segment_batches = batches / count;
        for _ in 0..count {
            for _ in 0..segment_batches {
                log.append_as_leader(supply.one(), LeaderEpoch::new(0), Origin::Client)?;
            }
            log.roll(None)?;
        }
        let found = log.state(false)?.segments.len();
        expect("the segments", count as u64 + 1, found as u64)?;
        log.flush(true)?;
        Ok(Segmented {
            backend: backend.clone(),
            dir: dir.to_owned(),
            end: filled::number(log.log_end_offset()),
            log,
            records: supply.records() as u64,
            batch_len: supply.batch_len() as u64,
            segment_batches: segment_batches as u64,
        })
    }

    /// The sealed segments for a bare loop.
    fn files(&self) -> Result<Vec<Indexed>, BenchError> {
        let records = self.segment_batches * self.records;
        (0..self.end / records)
            .map(|n| {
                let base = n * records;
                let file = |suffix| filled::segment_file(&self.dir, base, suffix);
                Ok(Indexed {
                    base,
                    place: n * self.segment_batches * self.batch_len,
                    entries: filled::entries(&self.backend, &file("index"))?,
                    store: Store::open(&file("log"))?,
                })
            })
            .collect()
    }
}

impl Laid for Arc<Segmented> {
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
