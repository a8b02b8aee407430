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
    let scenarios = [
        Scenario::new(
            "many-partitions",
            "1 KiB batches in turn to 64 of 10 000 partitions, whose state fits the processor's caches; to one",
            Unit::Bytes,
            |bench| partitions_of(bench, Spread::Few),
        ),
        Scenario::new(
            "many-partitions-all",
            "1 KiB batches in turn to all of 10 000 partitions, and to one; a bare write of the same bytes after one CRC pass, to \
             as many files, which costs more where they are many",
            Unit::Bytes,
            |bench| partitions_of(bench, Spread::All),
        ),
        Scenario::new(
            "many-segments",
            "the position of a random offset in the last 64 of 10 000 segments, which fit the processor's caches; the same \
             batches in a log of one segment",
            Unit::Lookups,
            |bench| segments_of(bench, Spread::Few),
        ),
        Scenario::new(
            "many-segments-all",
            "the position of a random offset in all of 10 000 segments, and of one; a binary search over the same entries in \
             memory, then reading the headers that lie between, in as many files, which costs more where they are many",
            Unit::Lookups,
            |bench| segments_of(bench, Spread::All),
        ),
    ];
    scenarios.into_iter().map(Scenario::on_request).collect()
}

const BATCH_BYTES: usize = 1 << 10;
const VALUE_LEN: usize = 100;
/// What the project asks of one of many beside the only one.
const GOAL: f64 = 0.8;
/// Descriptors that a process needs beside those of the works.
const OTHER_FILES: u64 = 100;
/// How many of the many are used where they are few.
const FEW: usize = 64;

/// How many of the many are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    /// [`FEW`]. The cost of many that are there is seen alone.
    Few,
    /// All, which drives each one's state from the processor's caches before its next turn, the kernel's too: so a bare loop
    /// shows what the kernel takes to go from file to file.
    All,
}

impl Spread {
    fn used(self, count: usize) -> usize {
        match self {
            Spread::Few => count.min(FEW),
            Spread::All => count,
        }
    }
}

/// How many files each backend's logs may have open, and the bare loop as many; at most the scale's `many`. The limit is
/// raised as far as this process may.
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
        many => Ok(many.min(wanted) as usize),
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

/// The entrants of one and of many.
///
/// Where few of them are used, each backend's one and its many. Where all are, the bare loop over one file, each backend's one,
/// the bare loop over many, each backend's many; the first backend's one is what all else is held against in the last column.
///
/// `work` makes the work of a backend over so many, or the bare loop beside it.
fn one_and_many(
    bench: &mut Bench,
    spread: Spread,
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
    let mut add = |name: String, reference, goal, work| {
        entrants.push(Entrant { name, reference, goal, work });
        entrants.len() - 1
    };
    match spread {
        Spread::Few => {
            for backend in &backends {
                let name = backend.name();
                let one = add(format!("{name}, 1"), None, None, work(bench, backend, 1, Kind::Log)?);
                let used = format!("{name}, {} of {many}", spread.used(many));
                add(used, Some(one), Some(GOAL), work(bench, backend, many, Kind::Log)?);
            }
        }
        Spread::All => {
            let mut reference = None;
            for count in [1, many] {
                let bare = work(bench, first, count, Kind::Bare)?;
                reference = Some(add(format!("bare, {count}"), reference, None, bare));
                for backend in &backends {
                    let work = work(bench, backend, count, Kind::Log)?;
                    add(format!("{}, {count}", backend.name()), reference, None, work);
                }
            }
        }
    }
    Ok(entrants)
}

fn partitions_of(bench: &mut Bench, spread: Spread) -> Result<Vec<Entrant>, BenchError> {
    let (supply, many) = (Supply::new(BATCH_BYTES, VALUE_LEN)?, many_files(bench)?);
    one_and_many(bench, spread, many, |bench, backend, count, kind| {
        let (dir, cap, supply) = (bench.dir(), bench.scale().file_cap, supply.clone());
        let used = spread.used(count);
        Ok(match kind {
            Kind::Bare => {
                // Not `reference`, which is a file of other scenarios.
                let dir = dir.join("references").join(count.to_string());
                Box::new(InTurn::new(Bare { dir, count, files: Vec::new() }, used, supply, cap))
            }
            Kind::Log => {
                let (backend, place) = (backend.clone(), dir.join(backend.name()).join(count.to_string()));
                Box::new(InTurn::new(Logs { backend, place, count, open: Vec::new() }, used, supply, cap))
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

/// Appends in turn to some of the takers.
///
/// They go on from slice to slice and are made anew only when they have grown to the cap: making 10 000 of them takes much
/// longer than a slice. Each has one batch before it is measured.
#[derive(Debug)]
struct InTurn<T> {
    takers: T,
    /// How many of them get batches, at equal distances.
    used: usize,
    supply: Supply,
    cap: u64,
    /// Bytes that the takers hold; none are there yet at 0.
    written: u64,
    /// Which of the used ones gets the next batch.
    next: usize,
}

impl<T: Takers> InTurn<T> {
    fn new(takers: T, used: usize, supply: Supply, cap: u64) -> InTurn<T> {
        InTurn { takers, used, supply, cap, written: 0, next: 0 }
    }

    /// The taker that is the `n`-th of those that are used.
    fn taker(&self, n: usize) -> usize {
        n * (self.takers.count() / self.used)
    }

    fn begin(&mut self) -> Result<(), BenchError> {
        self.takers.open()?;
        (self.written, self.next) = (0, 0);
        for _ in 0..self.used {
            let batch = self.supply.one();
            self.append(batch)?;
        }
        Ok(())
    }

    fn append(&mut self, batch: BytesMut) -> Result<u64, BenchError> {
        let bytes = batch.len() as u64;
        self.takers.append(self.taker(self.next), batch)?;
        self.next = if self.next + 1 == self.used { 0 } else { self.next + 1 };
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
        let (used, len) = (self.used, self.supply.batch_len());
        let batches = self.supply.different();
        for _ in 0..batches {
            let batch = self.supply.one();
            self.append(batch)?;
        }
        let mut hash = 0;
        for n in 0..batches {
            let all = self.takers.read(self.taker(n % used))?;
            let at = n / used * len;
            let batch = all.get(at..at + len).ok_or(BenchError::Wrong {
                what: format!("the bytes of taker {} of {used}", n % used),
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
            let before = if self.next == 0 { self.used - 1 } else { self.next - 1 };
            let last = self.takers.last(self.taker(before), self.supply.batch_len())?;
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

fn segments_of(bench: &mut Bench, spread: Spread) -> Result<Vec<Entrant>, BenchError> {
    let many = many_files(bench)?;
    let mut logs: Vec<(PathBuf, Arc<Segmented>)> = Vec::new();
    one_and_many(bench, spread, many, |bench, backend, count, kind| {
        // A scenario's own: what another one has filled is there until the run ends.
        let dir = bench.dir().join(backend.name()).join(format!("segments-{spread:?}-{count}"));
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
            Kind::Log => {
                // The same batches, however many segments they are in.
                let used = (spread.used(many) * SEGMENT_BATCHES) as u64 * log.records;
                Box::new(LogLookup::new(log.clone()).starting_at(log.end - used))
            }
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
