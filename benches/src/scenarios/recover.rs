//! Recovery of a log that was not closed.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::Backend;
use kseg_log::{Isolation, Log, LogConfig, OpenOptions};

use super::Scenario;
use crate::bench::{Bench, Medium};
use crate::contest::{Entrant, Slice, Unit, Watch, Work};
use crate::error::{BenchError, expect};
use crate::filled;
use crate::reference::{PIECE, Store};
use crate::supply::Supply;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "recover",
            "opening a hot log of four segments (4 GiB) after a stop in which nothing was known to be durable: every batch \
             is checked, the indexes are made anew; bare reads of 1 MiB and a CRC over each, on one core",
            Unit::Bytes,
            entrants,
        )
        .on_request(),
    ]
}

const GOAL: f64 = 0.85;
const SEGMENTS: u64 = 4;
const BATCH_BYTES: usize = 16 << 10;
const VALUE_LEN: usize = 1 << 10;

fn entrants(bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
    let segment_bytes = bench.scale().log_bytes;
    // The references read what the first backend of their medium wrote.
    bench.entrants(
        Some(GOAL),
        &[Medium::File],
        |bench, _, backend| {
            let place = bench.dir().join("unclean");
            let log = UncleanLog::new(bench, backend, &place, segment_bytes)?;
            let work = Box::new(ReadAndCheck { stores: log.stores()?, buffer: vec![0; PIECE], _log: log });
            Ok(Entrant { name: "pread + CRC".to_owned(), reference: None, goal: None, work })
        },
        |bench, backend| {
            let place = bench.dir().join(backend.name());
            Ok(Box::new(Recovery(UncleanLog::new(bench, backend, &place, segment_bytes)?)))
        },
    )
}

/// The folder of a log whose bytes are all on disk and in the page cache; what tells so is not used.
#[derive(Debug)]
struct UncleanLog {
    backend: Arc<dyn Backend>,
    dir: PathBuf,
    len: u64,
    end: Offset,
}

impl UncleanLog {
    fn new(
        bench: &mut Bench,
        backend: &Arc<dyn Backend>,
        place: &Path,
        segment_bytes: u64,
    ) -> Result<UncleanLog, BenchError> {
        bench.take_memory(segment_bytes * SEGMENTS)?;
        let dir = place.join("unclean-0");
        let mut supply = Supply::new(BATCH_BYTES, VALUE_LEN)?;
        let log = filled::open(backend, &dir, LogConfig::default())?;
        for _ in 0..SEGMENTS {
            for _ in 0..segment_bytes / supply.batch_len() as u64 {
                log.append_as_leader(supply.one(), LeaderEpoch::new(0), Origin::Client)?;
            }
            log.roll(None)?;
        }
        log.flush(true)?;
        let (len, end) = (log.size(), log.log_end_offset());
        log.close()?;
        Ok(UncleanLog { backend: backend.clone(), dir, len, end })
    }

    /// The `.log` files, in order, for bare reads.
    fn stores(&self) -> Result<Vec<(Store, u64)>, BenchError> {
        let mut stores = Vec::new();
        for path in filled::segments(&self.dir)? {
            let len = fs::metadata(&path).map_err(BenchError::io("look at", &path))?.len();
            stores.push((Store::open(&path)?, len));
        }
        Ok(stores)
    }

    fn recover(&self) -> Result<Log, BenchError> {
        let mut options = OpenOptions::new(self.backend.clone());
        options.clean = false;
        Ok(Log::open(&self.dir, options)?)
    }
}

impl Drop for UncleanLog {
    fn drop(&mut self) {
        // The whole working folder goes at the end; what stays until then only takes room.
        let _ = self.backend.names().remove_dir_all(&self.dir);
    }
}

#[derive(Debug)]
struct Recovery(UncleanLog);

impl Work for Recovery {
    fn check(&mut self) -> Result<u64, BenchError> {
        let log = self.0.recover()?;
        expect("the recovered bytes", self.0.len, log.size())?;
        let (mut at, mut hash) = (Offset::ZERO, 0);
        let mut bytes = Vec::new();
        while at < self.0.end {
            bytes.clear();
            let fetch = log.read(at, PIECE, Isolation::LogEnd, true)?;
            if let Some(region) = fetch.region {
                region.copy_into(&mut bytes)?;
            }
            let mut batches = kseg_format::Batches::new(&bytes);
            let mut next = at;
            for batch in batches.by_ref() {
                next = batch?.next_offset();
            }
            hash = crc32c::crc32c_append(hash, &bytes[..batches.position()]);
            expect("a batch at an offset below the end", 1, u64::from(next > at))?;
            at = next;
        }
        log.abandon();
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            let mut opened = None;
            watch.time(|| {
                opened = Some(self.0.recover()?);
                Ok(self.0.len)
            })?;
            if let Some(log) = opened {
                expect(
                    "the log end offset",
                    filled::number(self.0.end),
                    filled::number(log.log_end_offset()),
                )?;
                log.abandon();
            }
        }
        Ok(watch.stop())
    }
}

/// Reads files from end to end, with a CRC over each piece.
#[derive(Debug)]
struct ReadAndCheck {
    stores: Vec<(Store, u64)>,
    buffer: Vec<u8>,
    /// Its files go with it.
    _log: UncleanLog,
}

impl ReadAndCheck {
    fn pass(&mut self, mut each: impl FnMut(&[u8])) -> Result<u64, BenchError> {
        let mut all = 0;
        for (store, len) in &self.stores {
            for at in (0..*len).step_by(PIECE) {
                let piece = &mut self.buffer[..(len - at).min(PIECE as u64) as usize];
                store.read(piece, at)?;
                each(piece);
            }
            all += len;
        }
        Ok(all)
    }
}

impl Work for ReadAndCheck {
    fn check(&mut self) -> Result<u64, BenchError> {
        let mut hash = 0;
        self.pass(|piece| hash = crc32c::crc32c_append(hash, piece))?;
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            watch.time(|| {
                self.pass(|piece| {
                    black_box(crc32c::crc32c(piece));
                })
            })?;
        }
        Ok(watch.stop())
    }
}
