//! Compaction of a log whose keys come again and again.

use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use kseg_cleaner::{Cleaner, CleanerOptions, Dirty, Unhindered};
use kseg_format::{BatchOptions, LeaderEpoch, Offset, Origin, RecordBatchBuilder, Timestamp};
use kseg_io_backends::Backend;
use kseg_log::{Log, LogConfig};
use twox_hash::XxHash3_128;

use super::Scenario;
use crate::bench::Medium;
use crate::contest::{Entrant, Slice, Unit, Watch, Work};
use crate::error::{BenchError, expect};
use crate::filled;
use crate::payload::Random;
use crate::reference::crc_is_right;

/// As Kafka's side of the comparison has it (`clean` of `xtask/kafka/kafka bench`).
const VALUE_LEN: usize = 1 << 10;
const BATCH_RECORDS: usize = 15;
const SEGMENT_BYTES: usize = 64 << 20;
/// Each key comes about ten times.
const RECORDS_PER_KEY: u64 = 10;
const MAP_BYTES: usize = 128 << 20;
const CHUNK: usize = 256 << 10;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new(
        "clean",
        "a round of the cleaner over segments of 64 MiB, values of 1 KiB, each key ten times, a map of 128 MiB; a loop that \
         reads the same bytes twice, does a CRC of each batch, hashes each key into a table of the same size, and writes and \
         syncs what is kept",
        Unit::Bytes,
        |bench| {
            let bytes = bench.scale().log_bytes / 4;
            bench.entrants(
                Some(0.7),
                &[Medium::File],
                |bench, _, backend| {
                    let dirty = Arc::new(DirtyLog::new(backend, &bench.dir().join("dirty"), bytes)?);
                    let work = Box::new(BareLoop::new(dirty, bench.dir().join("kept"))?);
                    Ok(Entrant {
                        name: "read, CRC, hash, write".to_owned(),
                        reference: None,
                        goal: None,
                        work,
                    })
                },
                |bench, backend| {
                    let place = bench.dir().join("dirty").join(backend.name());
                    let dirty = DirtyLog::new(backend, &place, bytes)?;
                    Ok(Box::new(Cleaning { dirty, backend: backend.clone() }))
                },
            )
        },
    )]
}

/// The files of a log that was never cleaned, and where its records are.
#[derive(Debug)]
struct DirtyLog {
    dir: PathBuf,
    keys: u64,
    records: u64,
    len: u64,
}

impl DirtyLog {
    fn new(backend: &Arc<dyn Backend>, place: &Path, bytes: u64) -> Result<DirtyLog, BenchError> {
        let dir = place.join("clean-0");
        let config = LogConfig { segment_bytes: SEGMENT_BYTES as i32, ..LogConfig::default() };
        let log = filled::open(backend, &dir, config)?;
        let batches = bytes / (BATCH_RECORDS * (VALUE_LEN + 24)) as u64;
        let records = batches * BATCH_RECORDS as u64;
        let keys = (records / RECORDS_PER_KEY).max(1);
        let mut random = Random::new(7);
        let mut builder = RecordBatchBuilder::new(BatchOptions::default());
        for _ in 0..batches {
            for n in 0..BATCH_RECORDS {
                let key = format!("key-{:010}", random.below(keys));
                let time = Some(Timestamp::new(1_700_000_000_000 + n as i64));
                let value = random.noise(VALUE_LEN);
                builder.append(time, Some(key.as_bytes()), Some(&value), &[]).map_err(built)?;
            }
            let mut batch = BytesMut::new();
            builder.finish(&mut batch).map_err(built)?;
            log.append_as_leader(batch, LeaderEpoch::new(0), Origin::Client)?;
        }
        log.roll(None)?;
        log.flush(true)?;
        let len = log.size();
        log.close()?;
        Ok(DirtyLog { dir, keys, records, len })
    }

    /// A copy of all files in a new folder.
    fn copy_to(&self, dir: &Path) -> Result<(), BenchError> {
        fs::create_dir_all(dir).map_err(BenchError::io("create", dir))?;
        let entries = fs::read_dir(&self.dir).map_err(BenchError::io("list", &self.dir))?;
        for entry in entries {
            let entry = entry.map_err(BenchError::io("list", &self.dir))?;
            let to = dir.join(entry.file_name());
            fs::copy(entry.path(), &to).map_err(BenchError::io("copy", &to))?;
            let copy = File::open(&to).map_err(BenchError::io("open", &to))?;
            copy.sync_all().map_err(BenchError::io("sync", &to))?;
        }
        Ok(())
    }
}

fn built(error: kseg_format::EncodeError) -> BenchError {
    BenchError::Unsuited(format!("a batch cannot be built: {error}"))
}

/// A round of the cleaner over a fresh copy each time.
#[derive(Debug)]
struct Cleaning {
    dirty: DirtyLog,
    backend: Arc<dyn Backend>,
}

impl Cleaning {
    fn opened(&self) -> Result<Log, BenchError> {
        let dir = self.dirty.dir.with_file_name("copy-0");
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(BenchError::io("remove", &dir))?;
        }
        self.dirty.copy_to(&dir)?;
        let config = LogConfig { segment_bytes: SEGMENT_BYTES as i32, ..LogConfig::default() };
        let log = filled::open(&self.backend, &dir, config)?;
        log.update_high_watermark(log.log_end_offset());
        Ok(log)
    }

    fn round(cleaner: &mut Cleaner, log: &Log) -> Result<(u64, u64), BenchError> {
        let dirty = Dirty {
            first: Offset::ZERO,
            first_uncleanable: log.log_end_offset(),
            now: Timestamp::new(1_700_000_100_000),
        };
        let stats = cleaner.clean(log, dirty, &Unhindered).map_err(cleaning)?.stats;
        Ok((stats.bytes_read, stats.records_written))
    }
}

fn cleaner() -> Result<Cleaner, BenchError> {
    let mut options = CleanerOptions::default();
    options.map_bytes = MAP_BYTES;
    Cleaner::new(options).map_err(cleaning)
}

fn cleaning(error: kseg_cleaner::Error) -> BenchError {
    BenchError::Unsuited(format!("a round failed: {error}"))
}

impl Work for Cleaning {
    fn check(&mut self) -> Result<u64, BenchError> {
        let log = self.opened()?;
        let (read, kept) = Cleaning::round(&mut cleaner()?, &log)?;
        expect("bytes of the log", self.dirty.len, read)?;
        log.close()?;
        Ok(kept)
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        let mut cleaner = cleaner()?;
        while watch.runs() {
            let log = self.opened()?;
            watch.time(|| Ok(Cleaning::round(&mut cleaner, &log)?.0))?;
            log.close()?;
        }
        Ok(watch.stop())
    }
}

/// The same work without a log: the places of the records are known beforehand.
#[derive(Debug)]
struct BareLoop {
    segments: Vec<Places>,
    out: PathBuf,
    table: Vec<[u64; 3]>,
    dirty: Arc<DirtyLog>,
}

/// Where a record's key begins and ends in its batch, and how many bytes the record has.
type RecordPlace = (usize, usize, usize);

/// One file: for each batch its length, and for each of its records where it begins, and its key.
#[derive(Debug)]
struct Places {
    path: PathBuf,
    batches: Vec<(usize, Vec<RecordPlace>)>,
}

impl BareLoop {
    fn new(dirty: Arc<DirtyLog>, out: PathBuf) -> Result<BareLoop, BenchError> {
        let mut segments = Vec::new();
        let mut records = 0;
        for path in filled::segments(&dirty.dir)? {
            let bytes = fs::read(&path).map_err(BenchError::io("read", &path))?;
            let mut batches = Vec::new();
            for batch in kseg_format::Batches::new(&bytes) {
                let batch = batch?;
                let whole = batch.as_bytes();
                let mut scratch = Vec::new();
                let mut places = Vec::new();
                for record in batch.records(&mut scratch, 0)? {
                    let record = record?;
                    let key = record.key().unwrap_or_default();
                    let at = key.as_ptr() as usize - whole.as_ptr() as usize;
                    places.push((at, at + key.len(), record.size()));
                }
                records += places.len() as u64;
                batches.push((whole.len(), places));
            }
            segments.push(Places { path, batches });
        }
        expect("records", dirty.records, records)?;
        Ok(BareLoop { segments, out, table: Vec::new(), dirty })
    }

    /// Returns the bytes of the log, and how many records were kept.
    fn pass(&mut self) -> Result<(u64, u64), BenchError> {
        let mut buffer = vec![0; CHUNK];
        // As the cleaner gets a map for a round: fresh pages.
        self.table = vec![[0; 3]; MAP_BYTES / 24];
        let (mut number, mut bytes, mut kept) = (0, 0, 0);
        for segment in &self.segments {
            let table = &mut self.table;
            bytes += each_batch(segment, &mut buffer, |batch, places| {
                for &(from, to, _) in places {
                    number += 1;
                    let slot = find(table, &batch[from..to]);
                    table[slot][2] = number;
                }
                Ok(())
            })?;
        }
        number = 0;
        for (n, segment) in self.segments.iter().enumerate() {
            let path = self.out.with_extension(n.to_string());
            let out = File::create(&path).map_err(BenchError::io("create", &path))?;
            let (mut pending, mut at) = (Vec::with_capacity(CHUNK), 0);
            let table = &mut self.table;
            each_batch(segment, &mut buffer, |batch, places| {
                for &(from, to, size) in places {
                    number += 1;
                    let slot = find(table, &batch[from..to]);
                    if table[slot][2] == number {
                        kept += 1;
                        let start = from.saturating_sub(8);
                        pending.extend_from_slice(&batch[start..(start + size).min(batch.len())]);
                    }
                }
                if pending.len() >= CHUNK {
                    black_box(crc32c::crc32c(&pending));
                    out.write_all_at(&pending, at).map_err(BenchError::io("write", &path))?;
                    at += pending.len() as u64;
                    pending.clear();
                }
                Ok(())
            })?;
            out.write_all_at(&pending, at).map_err(BenchError::io("write", &path))?;
            out.sync_data().map_err(BenchError::io("sync", &path))?;
        }
        Ok((bytes, kept))
    }

    fn remove(&self) -> Result<(), BenchError> {
        for n in 0..self.segments.len() {
            let path = self.out.with_extension(n.to_string());
            fs::remove_file(&path).map_err(BenchError::io("remove", &path))?;
        }
        Ok(())
    }
}

/// Reads a file in pieces and calls `f` for each batch whose checksum is right.
fn each_batch(
    places: &Places,
    buffer: &mut [u8],
    mut f: impl FnMut(&[u8], &[RecordPlace]) -> Result<(), BenchError>,
) -> Result<u64, BenchError> {
    let file = File::open(&places.path).map_err(BenchError::io("open", &places.path))?;
    let (mut at, mut from, mut have) = (0_u64, 0, 0);
    for (len, records) in &places.batches {
        if have - from < *len {
            have = file.read_at(buffer, at).map_err(BenchError::io("read", &places.path))?;
            from = 0;
        }
        let batch = &buffer[from..from + len];
        if !crc_is_right(batch) {
            return Err(BenchError::Unsuited(format!("a wrong CRC at {at} of {}", places.path.display())));
        }
        f(batch, records)?;
        from += len;
        at += *len as u64;
    }
    Ok(at)
}

/// The slot of a key, by linear probing from a 128-bit hash.
fn find(table: &mut [[u64; 3]], key: &[u8]) -> usize {
    let hash = XxHash3_128::oneshot(key);
    let (high, low) = ((hash >> 64) as u64, hash as u64);
    let mut at = ((u128::from(high) * table.len() as u128) >> 64) as usize;
    loop {
        let slot = &mut table[at];
        if slot[2] == 0 {
            (slot[0], slot[1]) = (high, low);
            return at;
        }
        if (slot[0], slot[1]) == (high, low) {
            return at;
        }
        at = if at + 1 == table.len() { 0 } else { at + 1 };
    }
}

impl Work for BareLoop {
    fn check(&mut self) -> Result<u64, BenchError> {
        let (bytes, kept) = self.pass()?;
        expect("bytes of the log", self.dirty.len, bytes)?;
        assert!(kept <= self.dirty.keys);
        self.remove()?;
        Ok(kept)
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            watch.time(|| Ok(self.pass()?.0))?;
            self.remove()?;
        }
        Ok(watch.stop())
    }
}
