//! The limits: bare loops over system calls and memory that do the least a scenario's work asks for.
//!
//! None of them knows a log. They take the same buffers as the log, in the same state and order, and their files are in the
//! same folder and state. Each reads its result back, as the log must.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::bench::Scale;
use crate::contest::{Slice, Watch, Work};
use crate::error::{BenchError, expect};
use crate::payload::Random;
use crate::state::FileState;
use crate::supply::{self, Supply};

/// Where bare bytes are: the same two media that backends have.
#[derive(Clone)]
pub(crate) enum Store {
    /// A file, by its path and handle.
    File(PathBuf, std::sync::Arc<File>),
    /// A run of memory.
    Memory(Bytes),
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Store::File(path, _) => write!(f, "File({})", path.display()),
            Store::Memory(bytes) => write!(f, "Memory({} bytes)", bytes.len()),
        }
    }
}

impl Store {
    /// An existing file, for reading.
    pub(crate) fn open(path: &Path) -> Result<Store, BenchError> {
        let file = File::open(path).map_err(BenchError::io("open", path))?;
        Ok(Store::File(path.to_owned(), file.into()))
    }

    /// Fills `into` from `at`: one pread (more only where the kernel gives less), or a copy.
    pub(crate) fn read(&self, into: &mut [u8], at: u64) -> Result<(), BenchError> {
        match self {
            Store::File(path, file) => file.read_exact_at(into, at).map_err(BenchError::io("read", path)),
            Store::Memory(bytes) => {
                let at = at as usize;
                into.copy_from_slice(&bytes[at..at + into.len()]);
                Ok(())
            }
        }
    }
}

/// Whether the CRC-32C of a v2 batch is right: the pass over the bytes that an append cannot do without.
pub(crate) fn crc_is_right(batch: &[u8]) -> bool {
    let stored = u32::from_be_bytes([batch[17], batch[18], batch[19], batch[20]]);
    crc32c::crc32c(&batch[21..]) == stored
}

/// One write call for each batch, after one CRC pass; a sync after every so many on request.
#[derive(Debug)]
pub(crate) struct WriteLoop {
    path: PathBuf,
    supply: Supply,
    scale: Scale,
    state: FileState,
    sync_every: usize,
    /// Buffers are made while the watch runs.
    makes_buffers: bool,
}

impl WriteLoop {
    /// Writes batches of `supply` to `path`, beginning again with a fresh file where the scale says, and syncs after
    /// every `sync_every` of them; never if that is 0.
    pub(crate) fn new(path: PathBuf, supply: Supply, scale: Scale, sync_every: usize) -> WriteLoop {
        WriteLoop { path, supply, scale, state: FileState::Extending, sync_every, makes_buffers: false }
    }

    /// The same beside works that make their buffers while the watch runs, so that it does, too. It must sync.
    pub(crate) fn making_buffers(self) -> WriteLoop {
        WriteLoop { makes_buffers: true, ..self }
    }

    /// The same in files of another state.
    pub(crate) fn in_state(self, state: FileState) -> WriteLoop {
        WriteLoop { state, ..self }
    }

    pub(crate) fn fresh(&self) -> Result<File, BenchError> {
        let options = OpenOptions::new().read(true).write(true).create_new(true).clone();
        let file = options.open(&self.path).map_err(BenchError::io("create", &self.path))?;
        self.state.prepare(&file, &self.path)?;
        Ok(file)
    }

    pub(crate) fn write(&self, file: &File, batch: &[u8], at: u64) -> Result<(), BenchError> {
        if !crc_is_right(batch) {
            return Err(wrong_crc(at));
        }
        file.write_all_at(batch, at).map_err(BenchError::io("write", &self.path))
    }

    pub(crate) fn sync(&self, file: &File) -> Result<(), BenchError> {
        match self.sync_every {
            0 => Ok(()),
            _ => file.sync_data().map_err(BenchError::io("sync", &self.path)),
        }
    }

    /// Checks that the file has `last` before `end`.
    pub(crate) fn check_last(&self, file: &File, end: u64, last: &[u8]) -> Result<(), BenchError> {
        let mut found = vec![0; last.len()];
        file.read_exact_at(&mut found, end - last.len() as u64)
            .map_err(BenchError::io("read", &self.path))?;
        expect("the last batch's hash", supply::hash(0, last), supply::hash(0, &found))
    }

    pub(crate) fn remove(&self, file: File) -> Result<(), BenchError> {
        drop(file);
        fs::remove_file(&self.path).map_err(BenchError::io("remove", &self.path))
    }
}

impl Work for WriteLoop {
    fn check(&mut self) -> Result<u64, BenchError> {
        let file = self.fresh()?;
        self.supply.restart();
        let len = self.supply.batch_len();
        for i in 0..self.supply.different() {
            let batch = self.supply.one();
            self.write(&file, &batch, (i * len) as u64)?;
            self.sync(&file)?;
        }
        let mut all = vec![0; self.supply.different() * len];
        file.read_exact_at(&mut all, 0).map_err(BenchError::io("read", &self.path))?;
        self.remove(file)?;
        Ok(all.chunks(len).fold(0, supply::hash))
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        let cap = self.state.cap(self.scale);
        while watch.runs() {
            let file = self.fresh()?;
            let mut at = 0;
            while watch.runs() && at < cap {
                let ready = match self.sync_every {
                    _ if self.makes_buffers => Vec::new(),
                    0 => self.supply.group(),
                    count => (0..count).map(|_| self.supply.one()).collect(),
                };
                watch.time(|| {
                    let begin = at;
                    let mut batches = 0;
                    let count = if self.makes_buffers { self.sync_every } else { ready.len() };
                    let mut ready = ready.into_iter();
                    for _ in 0..count {
                        let batch = ready.next().unwrap_or_else(|| self.supply.one());
                        self.write(&file, &batch, at)?;
                        at += batch.len() as u64;
                        batches += 1;
                    }
                    self.sync(&file)?;
                    Ok(if self.sync_every > 0 { batches } else { at - begin })
                })?;
            }
            self.check_last(&file, at, self.supply.last())?;
            self.remove(file)?;
        }
        Ok(watch.stop())
    }
}

/// A thread for each of the batches between two syncs: each writes its own, waits until the last that comes has synced for
/// all, and begins again.
///
/// A woken thread has the lock that it writes under, and one call wakes all: whoever has a thread wait for each batch cannot
/// do with less.
#[derive(Debug)]
pub(crate) struct ThreadsLoop {
    one: WriteLoop,
}

/// What the threads share.
#[derive(Debug, Default)]
struct Round {
    at: u64,
    came: usize,
    number: u64,
    /// No other round begins.
    over: bool,
}

impl ThreadsLoop {
    /// The work of `one`, on so many threads as it writes batches between two syncs.
    pub(crate) fn new(one: WriteLoop) -> ThreadsLoop {
        ThreadsLoop { one }
    }

    /// Writes a batch in each round until `runs` says no; returns how many that were.
    fn produce(
        &self,
        file: &File,
        round: &(Mutex<Round>, Condvar),
        runs: impl Fn() -> bool,
    ) -> Result<u64, BenchError> {
        let (round, ended) = round;
        let mut supply = self.one.supply.clone();
        let mut batches = 0;
        let mut now = round.lock().expect("nobody panics with it");
        while !now.over {
            let batch = supply.one();
            let mut done = self.one.write(file, &batch, now.at);
            now.at += batch.len() as u64;
            now.came += 1;
            batches += 1;
            let last = now.came == self.one.sync_every;
            if last && done.is_ok() {
                done = self.one.sync(file);
            }
            if last || done.is_err() {
                now.over = done.is_err() || !runs();
                (now.came, now.number) = (0, now.number + 1);
                ended.notify_all();
                done?;
            } else {
                let number = now.number;
                let waited = ended.wait_while(now, |now| now.number == number && !now.over);
                now = waited.expect("nobody panics with it");
            }
        }
        Ok(batches)
    }
}

impl Work for ThreadsLoop {
    fn check(&mut self) -> Result<u64, BenchError> {
        self.one.check()
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        let file = self.one.fresh()?;
        watch.time(|| {
            let begin = Instant::now();
            let round = (Mutex::default(), Condvar::new());
            let produce = || self.produce(&file, &round, || begin.elapsed() < at_least);
            thread::scope(|scope| {
                let threads: Vec<_> = (0..self.one.sync_every).map(|_| scope.spawn(produce)).collect();
                threads.into_iter().map(|thread| thread.join().expect("a producer does not panic")).sum()
            })
        })?;
        let slice = watch.stop();
        let len = file.metadata().map_err(BenchError::io("look at", &self.one.path))?.len();
        expect("the file's length", slice.units * self.one.supply.batch_len() as u64, len)?;
        self.one.remove(file)?;
        Ok(slice)
    }
}

/// Batches copied behind each other into memory that grows by whole pieces, after one CRC pass.
#[derive(Debug)]
pub(crate) struct MemoryAppendLoop {
    supply: Supply,
    cap: u64,
}

/// What the memory of [`MemoryAppendLoop`] grows by.
pub(crate) const PIECE: usize = 1 << 20;

impl MemoryAppendLoop {
    /// Appends batches of `supply`, beginning again with no memory after `cap` bytes.
    pub(crate) fn new(supply: Supply, cap: u64) -> MemoryAppendLoop {
        MemoryAppendLoop { supply, cap }
    }

    fn append(pieces: &mut Vec<Vec<u8>>, mut batch: &[u8]) -> Result<(), BenchError> {
        if !crc_is_right(batch) {
            return Err(wrong_crc((pieces.len() * PIECE) as u64));
        }
        while !batch.is_empty() {
            match pieces.last_mut().filter(|piece| piece.len() < PIECE) {
                Some(piece) => {
                    let (now, later) = batch.split_at(batch.len().min(PIECE - piece.len()));
                    piece.extend_from_slice(now);
                    batch = later;
                }
                None => pieces.push(Vec::with_capacity(PIECE)),
            }
        }
        Ok(())
    }
}

impl Work for MemoryAppendLoop {
    fn check(&mut self) -> Result<u64, BenchError> {
        let mut pieces = Vec::new();
        self.supply.restart();
        for _ in 0..self.supply.different() {
            Self::append(&mut pieces, &self.supply.one())?;
        }
        Ok(pieces.concat().chunks(self.supply.batch_len()).fold(0, supply::hash))
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            let mut pieces = Vec::new();
            let mut written = 0;
            while watch.runs() && written < self.cap {
                let group = self.supply.group();
                watch.time(|| {
                    let begin = written;
                    for batch in group {
                        Self::append(&mut pieces, &batch)?;
                        written += batch.len() as u64;
                    }
                    Ok(written - begin)
                })?;
            }
            let found: usize = pieces.iter().map(Vec::len).sum();
            expect("the bytes in memory", written, found as u64)?;
        }
        Ok(watch.stop())
    }
}

/// A batch of the bench's own that is not what it was.
pub(crate) fn wrong_crc(at: u64) -> BenchError {
    BenchError::Wrong {
        what: format!("whether the CRC of the batch at {at} is right"),
        expected: 1,
        found: 0,
    }
}

/// What a reading loop does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Copies them into one buffer that is used again.
    Copy,
    /// Copies them so, and takes a CRC-32C of the copy.
    CopyAndCrc,
    /// Adds them up, in place where the store is memory.
    Sum,
}

/// Reads a store from its beginning to its end, and again, in pieces of 1 MiB.
#[derive(Debug)]
pub(crate) struct ReadLoop {
    store: Store,
    len: u64,
    how: Use,
    buffer: Vec<u8>,
    at: u64,
}

impl ReadLoop {
    /// Reads the first `len` bytes of `store`.
    pub(crate) fn new(store: Store, len: u64, how: Use) -> ReadLoop {
        ReadLoop { store, len, how, buffer: vec![0; PIECE], at: 0 }
    }
}

/// What reads a log step by step, from its beginning to its end, and again.
pub(crate) trait Reader: Work {
    /// Goes back to the beginning.
    fn rewind(&mut self);

    /// Whether the next step is the first of a pass.
    fn is_at_beginning(&self) -> bool;

    /// Reads some of the log; how many bytes that were.
    fn step(&mut self) -> Result<u64, BenchError>;
}

impl Reader for ReadLoop {
    fn rewind(&mut self) {
        self.at = 0;
    }

    fn is_at_beginning(&self) -> bool {
        self.at == 0
    }

    /// Reads the piece at hand, moves on, and returns its size.
    fn step(&mut self) -> Result<u64, BenchError> {
        let len = (self.len - self.at).min(PIECE as u64) as usize;
        match (self.how, &self.store) {
            (Use::Sum, Store::Memory(bytes)) => {
                black_box(sum(&bytes[self.at as usize..][..len]));
            }
            _ => self.store.read(&mut self.buffer[..len], self.at)?,
        }
        match self.how {
            Use::Copy => drop(black_box(&self.buffer)),
            Use::CopyAndCrc => drop(black_box(crc32c::crc32c(&self.buffer[..len]))),
            Use::Sum if matches!(self.store, Store::File(..)) => drop(black_box(sum(&self.buffer[..len]))),
            Use::Sum => (),
        }
        self.at = if self.at + len as u64 == self.len { 0 } else { self.at + len as u64 };
        Ok(len as u64)
    }
}

impl Work for ReadLoop {
    fn check(&mut self) -> Result<u64, BenchError> {
        let mut hash = 0;
        for at in (0..self.len).step_by(PIECE) {
            let len = (self.len - at).min(PIECE as u64) as usize;
            self.store.read(&mut self.buffer[..len], at)?;
            hash = crc32c::crc32c_append(hash, &self.buffer[..len]);
        }
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            watch.time(|| self.step())?;
        }
        Ok(watch.stop())
    }
}

/// The sum of the 8-byte words of `bytes`, in the processor's order: every byte is loaded, and little else done.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_be_bytes(*word)));
    rest.iter().fold(words, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

/// An entry of an offset index as bare numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// Offset minus the segment's base offset.
    pub(crate) relative: u32,
    /// The batch's place in the file.
    pub(crate) position: u32,
}

/// A file of batches and the index of it.
#[derive(Debug)]
pub(crate) struct Indexed {
    /// Offset of its first record.
    pub(crate) base: u64,
    /// Where its first byte lies, all files behind each other.
    pub(crate) place: u64,
    pub(crate) entries: Vec<IndexEntry>,
    pub(crate) store: Store,
}

/// Finds batches by offset: a binary search in an array, of files and then of entries, then a read of each header up to the
/// right one.
#[derive(Debug)]
pub(crate) struct SearchLoop {
    bases: Vec<u64>,
    files: Vec<Indexed>,
    end: u64,
    random: Random,
}

/// Lookups between two looks at the clock.
pub(crate) const LOOKUPS: u64 = 256;
/// Lookups whose positions make the hash.
pub(crate) const CHECKED_LOOKUPS: u64 = 10_000;
/// The seed of the offsets looked up.
pub(crate) const LOOKUP_SEED: u64 = 11;

impl SearchLoop {
    /// Looks up offsets from 0 to `end`, exclusive, in files in ascending order, the first of which begins with offset 0.
    pub(crate) fn new(files: Vec<Indexed>, end: u64) -> SearchLoop {
        let bases = files.iter().map(|file| file.base).collect();
        SearchLoop { bases, files, end, random: Random::new(LOOKUP_SEED) }
    }

    fn find(&self, offset: u64) -> Result<u64, BenchError> {
        let file = &self.files[self.bases.partition_point(|&base| base <= offset) - 1];
        let relative = offset - file.base;
        let after = file.entries.partition_point(|entry| u64::from(entry.relative) <= relative);
        let mut position = after.checked_sub(1).map_or(0, |i| u64::from(file.entries[i].position));
        let mut header = [0; kseg_format::BATCH_OVERHEAD];
        loop {
            file.store.read(&mut header, position)?;
            let field =
                |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let base = u64::from(field(0)) << 32 | u64::from(field(4));
            if base + u64::from(field(23)) >= offset {
                return Ok(file.place + position);
            }
            position += kseg_format::LOG_OVERHEAD as u64 + u64::from(field(8));
        }
    }
}

impl Work for SearchLoop {
    fn check(&mut self) -> Result<u64, BenchError> {
        let mut random = Random::new(LOOKUP_SEED);
        let mut hash = 0;
        for _ in 0..CHECKED_LOOKUPS {
            let position = self.find(random.below(self.end))?;
            hash = crc32c::crc32c_append(hash, &position.to_be_bytes());
        }
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            watch.time(|| {
                for _ in 0..LOOKUPS {
                    let offset = self.random.below(self.end);
                    black_box(self.find(offset)?);
                }
                Ok(LOOKUPS)
            })?;
        }
        Ok(watch.stop())
    }
}

/// Copies values behind each other into one buffer that is used again, and takes a CRC-32C of it.
#[derive(Debug)]
pub(crate) struct CopyLoop {
    values: Vec<Vec<u8>>,
    out: Vec<u8>,
}

impl CopyLoop {
    /// Copies `values`.
    pub(crate) fn new(values: Vec<Vec<u8>>) -> CopyLoop {
        CopyLoop { values, out: Vec::new() }
    }

    fn pass(&mut self) -> u32 {
        self.out.clear();
        for value in &self.values {
            self.out.extend_from_slice(value);
        }
        crc32c::crc32c(&self.out)
    }
}

impl Work for CopyLoop {
    fn check(&mut self) -> Result<u64, BenchError> {
        Ok(self.pass().into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let len: usize = self.values.iter().map(Vec::len).sum();
        let passes = passes(len);
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            watch.time(|| {
                for _ in 0..passes {
                    black_box(self.pass());
                }
                Ok((passes * len) as u64)
            })?;
        }
        Ok(watch.stop())
    }
}

/// How often to go over `len` bytes between two looks at the clock.
pub(crate) fn passes(len: usize) -> usize {
    ((256 << 10) / len.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_millis(2);

    #[test]
    fn write_loops_to_a_file_and_to_memory_give_one_hash_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let supply = Supply::new(4 << 10, 1024).unwrap();
        let scale = Scale { file_cap: 64 << 10, ..Scale::TINY };
        let file = |sync| WriteLoop::new(dir.path().join("reference"), supply.clone(), scale, sync);
        let mut memory = MemoryAppendLoop::new(supply.clone(), 64 << 10);
        let hash = memory.check().unwrap();
        assert_eq!(file(0).check().unwrap(), hash);
        assert_eq!(file(1).check().unwrap(), hash);
        assert!(memory.slice(MOMENT).unwrap().units > 0);
        let slice = file(0).slice(MOMENT).unwrap();
        assert_eq!(slice.units % supply.batch_len() as u64, 0);
        assert!(file(3).slice(MOMENT).unwrap().units > 0);
        let mut threads = ThreadsLoop::new(file(3));
        assert_eq!(threads.check().unwrap(), hash);
        let units = threads.slice(MOMENT).unwrap().units;
        assert!(units > 0 && units.is_multiple_of(3));
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
    }

    #[test]
    fn a_damaged_batch_stops_the_loop() {
        let mut batch = Supply::new(4 << 10, 1024).unwrap().one();
        assert!(crc_is_right(&batch));
        batch[200] ^= 1;
        assert!(!crc_is_right(&batch));
        assert!(MemoryAppendLoop::append(&mut Vec::new(), &batch).is_err());
    }

    #[test]
    fn reading_a_file_and_memory_gives_one_hash() {
        let bytes = Random::new(1).noise(PIECE * 2 + 12_345);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bytes");
        fs::write(&path, &bytes).unwrap();
        let len = bytes.len() as u64;
        for how in [Use::Copy, Use::CopyAndCrc, Use::Sum] {
            let mut file = ReadLoop::new(Store::open(&path).unwrap(), len, how);
            let mut memory = ReadLoop::new(Store::Memory(bytes.clone().into()), len, how);
            assert_eq!(file.check().unwrap(), u64::from(crc32c::crc32c(&bytes)));
            assert_eq!(file.check().unwrap(), memory.check().unwrap());
            // Three pieces are the whole, then it begins again.
            let pieces: Vec<u64> = (0..4).map(|_| memory.step().unwrap()).collect();
            assert_eq!(pieces, [PIECE as u64, PIECE as u64, 12_345, PIECE as u64]);
            assert!(file.slice(MOMENT).unwrap().units > 0);
        }
    }

    #[test]
    fn the_sum_reaches_every_byte() {
        let mut bytes = vec![0u8; 19];
        for i in 0..bytes.len() {
            bytes[i] = 1;
            assert_ne!(sum(&bytes), 0, "byte {i}");
            bytes[i] = 0;
        }
    }

    #[test]
    fn a_search_finds_the_batch_that_holds_the_offset() {
        let mut supply = Supply::new(1 << 10, 100).unwrap();
        let (len, records) = (supply.batch_len() as u32, supply.records() as u32);
        let mut files = Vec::new();
        for first in [0, 20u32] {
            let mut file = Vec::new();
            for i in first..first + 20 {
                let mut batch = supply.one();
                batch[..8].copy_from_slice(&u64::from(i * records).to_be_bytes());
                file.extend_from_slice(&batch);
            }
            // An entry for every fourth batch, none for the first.
            let entries =
                (1..5).map(|i| IndexEntry { relative: i * 4 * records + records - 1, position: i * 4 * len });
            let (base, place) = ((first * records).into(), (first * len).into());
            files.push(Indexed {
                base,
                place,
                entries: entries.collect(),
                store: Store::Memory(file.into()),
            });
        }
        let end = u64::from(40 * records);
        let mut search = SearchLoop::new(files, end);
        for offset in 0..end {
            assert_eq!(
                search.find(offset).unwrap(),
                offset / u64::from(records) * u64::from(len),
                "offset {offset}"
            );
        }
        assert_eq!(search.check().unwrap(), search.check().unwrap());
        assert!(search.slice(MOMENT).unwrap().units >= LOOKUPS);
    }

    #[test]
    fn a_copy_has_the_checksum_of_its_values() {
        let values = vec![b"ab".to_vec(), Vec::new(), b"cde".to_vec()];
        let mut copy = CopyLoop::new(values);
        assert_eq!(copy.check().unwrap(), u64::from(crc32c::crc32c(b"abcde")));
        assert_eq!(copy.slice(MOMENT).unwrap().units % 5, 0);
    }
}
