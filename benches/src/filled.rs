//! A log of a known shape, filled once and read by several scenarios.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Backend, OpenHow};
use kseg_log::{Log, LogConfig, OpenOptions};

use crate::bench::Medium;
use crate::error::{BenchError, expect};
use crate::reference::{IndexEntry, Indexed, Store};
use crate::supply::Supply;

/// Bytes of a batch, and of a record's value.
const BATCH_BYTES: usize = 16 << 10;
const VALUE_LEN: usize = 1 << 10;

/// A log with one sealed segment of batches of 16 KiB, each of records with 1 KiB of noise, and an empty active segment.
///
/// Durable and in the page cache when it is handed out, so that no write-back disturbs those who read it.
#[derive(Debug)]
pub(crate) struct Filled {
    backend: Arc<dyn Backend>,
    medium: Medium,
    dir: PathBuf,
    log: Arc<Log>,
    len: u64,
    batch_len: u64,
    records: u64,
}

impl Filled {
    /// Fills a new log in `dir` with as many whole batches as `bytes` bytes hold.
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        medium: Medium,
        dir: &Path,
        bytes: u64,
    ) -> Result<Filled, BenchError> {
        let mut supply = Supply::new(BATCH_BYTES, VALUE_LEN)?;
        let (batch_len, records) = (supply.batch_len() as u64, supply.records() as u64);
        let batches = bytes / batch_len;
        let log = open(&backend, dir, LogConfig::default())?;
        for _ in 0..batches {
            log.append_as_leader(supply.one(), LeaderEpoch::new(0), Origin::Client)?;
        }
        log.roll(None)?;
        log.flush(true)?;
        expect("the log end offset", batches * records, log.log_end_offset().get() as u64)?;
        let len = batches * batch_len;
        Ok(Filled { backend, medium, dir: dir.to_owned(), log: Arc::new(log), len, batch_len, records })
    }

    /// The log.
    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The backend it is on.
    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Bytes of the sealed segment.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The offset after the last record.
    pub(crate) fn end(&self) -> u64 {
        self.len / self.batch_len * self.records
    }

    /// Where the batch of `offset` begins.
    pub(crate) fn position_of(&self, offset: u64) -> u64 {
        offset / self.records * self.batch_len
    }

    /// The sealed segment's bytes for a bare loop: the same file, or the same memory.
    pub(crate) fn store(&self) -> Result<Store, BenchError> {
        match self.medium {
            Medium::File => Store::open(&self.segment("log")),
            Medium::Memory => self.in_memory(),
        }
    }

    /// The sealed segment's bytes as memory; those of a file are mapped, all at once.
    pub(crate) fn in_memory(&self) -> Result<Store, BenchError> {
        let file = self.backend.open(&self.segment("log"), OpenHow::Read)?;
        Ok(Store::Memory(file.map_bytes(0..self.len)?))
    }

    /// Drops the sealed segment's bytes from the page cache; such as are mapped stay there.
    pub(crate) fn evict(&self) -> Result<(), BenchError> {
        let path = self.segment("log");
        let file = fs::File::open(&path).map_err(BenchError::io("open", &path))?;
        let dropped = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        dropped.map_err(|error| BenchError::io("drop from the page cache", &path)(error.into()))
    }

    /// The sealed segment's bytes as those of [`store`](Self::store), and the entries of its offset index.
    pub(crate) fn indexed(&self) -> Result<Indexed, BenchError> {
        let entries = entries(&self.backend, &self.segment("index"))?;
        Ok(Indexed { base: 0, place: 0, entries, store: self.store()? })
    }

    fn segment(&self, suffix: &str) -> PathBuf {
        segment_file(&self.dir, 0, suffix)
    }
}

/// A file of the segment that begins with offset `base`.
pub(crate) fn segment_file(dir: &Path, base: u64, suffix: &str) -> PathBuf {
    dir.join(format!("{base:020}.{suffix}"))
}

/// The entries of the offset index of a sealed segment.
pub(crate) fn entries(backend: &Arc<dyn Backend>, path: &Path) -> Result<Vec<IndexEntry>, BenchError> {
    let bytes = backend.names().read(path, u64::MAX)?.unwrap_or_default();
    let field = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let entry = |entry: &[u8]| IndexEntry { relative: field(entry), position: field(&entry[4..]) };
    Ok(bytes.chunks_exact(8).map(entry).collect())
}

/// Opens a new or cleanly closed log over `backend`, whose background work is done where it comes up.
pub(crate) fn open(backend: &Arc<dyn Backend>, dir: &Path, config: LogConfig) -> Result<Log, BenchError> {
    open_with(OpenOptions { config, ..OpenOptions::new(backend.clone()) }, dir)
}

/// Opens a new or cleanly closed log.
pub(crate) fn open_with(options: OpenOptions, dir: &Path) -> Result<Log, BenchError> {
    options.backend.names().create_dir_all(dir)?;
    Ok(Log::open(dir, options)?)
}

/// The `.log` files in `dir`, in order.
pub(crate) fn segments(dir: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let failed = BenchError::io("list", dir);
    let entries = fs::read_dir(dir).and_then(Iterator::collect::<std::io::Result<Vec<_>>>).map_err(failed)?;
    let mut found: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
    found.sort();
    Ok(found)
}

/// The last offset as a number, for checks.
pub(crate) fn number(offset: Offset) -> u64 {
    offset.get() as u64
}
