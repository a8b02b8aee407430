//! Reading a hot log from one end to the other.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use kseg_format::{Batches, Offset};
use kseg_io_backends::Backend;
use kseg_log::Isolation;

use super::Scenario;
use crate::bench::{Bench, Medium};
use crate::contest::{Entrant, Slice, Unit, Watch, Work};
use crate::environment;
use crate::error::{BenchError, expect};
use crate::filled::{self, Filled};
use crate::reference::{ReadLoop, Reader, Use, sum};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "read-sequential",
            "reads of 1 MiB in whole batches, copied into one buffer, and their framing; bare reads of 1 MiB",
            Unit::Bytes,
            |bench| entrants(bench, Use::Copy),
        ),
        Scenario::new(
            "read-zero-copy",
            "reads of 64 MiB in whole batches, mapped and added up in place; adding up the same bytes, mapped once",
            Unit::Bytes,
            |bench| entrants(bench, Use::Sum),
        ),
        Scenario::new(
            "scan-crc",
            "as read-sequential, and each batch's CRC; bare reads of 1 MiB and a CRC over each, on one core",
            Unit::Bytes,
            |bench| entrants(bench, Use::CopyAndCrc),
        ),
        Scenario::new(
            "read-cold",
            "as read-sequential, from a log of 256 MiB that is not in the page cache",
            Unit::Bytes,
            cold,
        )
        .on_request(),
    ]
}

/// The most that one read asks for.
const COPIED: usize = 1 << 20;
/// The most that one read asks for where its bytes are mapped: a mapping costs system calls, however long it is.
const MAPPED: usize = 64 << 20;

fn entrants(bench: &mut Bench, how: Use) -> Result<Vec<Entrant>, BenchError> {
    let goal = if how == Use::CopyAndCrc { 0.85 } else { 0.8 };
    bench.entrants(
        Some(goal),
        &[Medium::File, Medium::Memory],
        |bench, medium, backend| {
            let filled = bench.filled(backend)?;
            let name = match (how, medium) {
                (Use::Copy, Medium::File) => "pread",
                (Use::Copy, Medium::Memory) => "memory copy",
                (Use::CopyAndCrc, Medium::File) => "pread + CRC",
                (Use::CopyAndCrc, Medium::Memory) => "memory copy + CRC",
                (Use::Sum, _) => "memory read",
            };
            let store = match how {
                // The limit of reading in place is memory, whatever the medium.
                Use::Sum => filled.in_memory()?,
                _ => filled.store()?,
            };
            let work = Box::new(ReadLoop::new(store, filled.len(), how));
            Ok(Entrant { name: name.to_owned(), reference: None, goal: None, work })
        },
        |bench, backend| {
            let filled = bench.filled(backend)?;
            Ok(Box::new(LogRead::new(filled, how)))
        },
    )
}

/// Bytes of the log that is read from the device, again and again.
const COLD: u64 = 256 << 20;

fn cold(bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
    // Logs that nobody has mapped: what is mapped stays in the page cache.
    let mut logs: Vec<Arc<Filled>> = Vec::new();
    for backend in bench.backends() {
        let known = logs.iter().any(|log| Arc::ptr_eq(log.backend(), backend));
        if !known && Medium::of(backend, bench.dir())? == Medium::File {
            let dir = bench.dir().join(backend.name()).join("cold-0");
            let bytes = bench.scale().log_bytes.min(COLD);
            logs.push(Arc::new(Filled::new(backend.clone(), Medium::File, &dir, bytes)?));
        }
    }
    let log = |backend: &Arc<dyn Backend>| {
        let log = logs.iter().find(|log| Arc::ptr_eq(log.backend(), backend));
        log.cloned().ok_or_else(|| BenchError::Unsuited(format!("{} keeps no file", backend.name())))
    };
    bench.entrants(
        None,
        &[Medium::File],
        |_, _, backend| {
            let filled = log(backend)?;
            let reader = ReadLoop::new(filled.store()?, filled.len(), Use::Copy);
            let work = Box::new(Cold { filled, reader });
            Ok(Entrant { name: "pread".to_owned(), reference: None, goal: None, work })
        },
        |_, backend| {
            let filled = log(backend)?;
            Ok(Box::new(Cold { reader: LogRead::new(filled.clone(), Use::Copy), filled }))
        },
    )
}

/// A reader of a log that is put out of the page cache before each pass.
#[derive(Debug)]
struct Cold<R> {
    reader: R,
    filled: Arc<Filled>,
}

impl<R: Reader> Work for Cold<R> {
    fn check(&mut self) -> Result<u64, BenchError> {
        self.reader.check()
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let before = environment::read_from_devices()?;
        let mut watch = Watch::new(at_least);
        self.reader.rewind();
        while watch.runs() {
            if self.reader.is_at_beginning() {
                self.filled.evict()?;
            }
            watch.time(|| self.reader.step())?;
        }
        let slice = watch.stop();
        let read = environment::read_from_devices()?.saturating_sub(before);
        if read < slice.units / 2 {
            let why = "the page cache keeps what it is told to drop, or there is no device behind it";
            return Err(BenchError::Unsuited(format!(
                "{read} of {} bytes came from a device: {why}",
                slice.units
            )));
        }
        Ok(slice)
    }
}

/// Reads a filled log from its beginning to its end, and again.
#[derive(Debug)]
struct LogRead {
    filled: Arc<Filled>,
    how: Use,
    at: Offset,
    buffer: Vec<u8>,
    /// The CRC of all bytes read, where it is asked for.
    hash: Option<u32>,
}

impl LogRead {
    fn new(filled: Arc<Filled>, how: Use) -> LogRead {
        let buffer = if how == Use::Sum { Vec::new() } else { vec![0; COPIED] };
        LogRead { filled, how, at: Offset::ZERO, buffer, hash: None }
    }
}

impl Reader for LogRead {
    fn rewind(&mut self) {
        self.at = Offset::ZERO;
    }

    fn is_at_beginning(&self) -> bool {
        self.at == Offset::ZERO
    }

    /// Reads from the offset at hand, moves on behind the last whole batch, and returns the size of all whole batches.
    fn step(&mut self) -> Result<u64, BenchError> {
        let max = if self.how == Use::Sum { MAPPED } else { COPIED };
        let fetch = self.filled.log().read(self.at, max, Isolation::LogEnd, true)?;
        let region = fetch.region.ok_or_else(|| nothing(self.at))?;
        let mapped;
        let bytes = if self.how == Use::Sum {
            let range = region.position()..region.position() + region.len() as u64;
            mapped = region.file().file().map_bytes(range)?;
            &mapped[..]
        } else {
            let got = region.read_at(&mut self.buffer[..region.len()], 0)?;
            &self.buffer[..got]
        };
        let mut batches = Batches::new(bytes);
        let mut next = None;
        for batch in batches.by_ref() {
            let batch = batch?;
            if self.how == Use::CopyAndCrc {
                batch.verify()?;
            }
            next = Some(batch.next_offset());
        }
        let whole = &bytes[..batches.position()];
        if self.how == Use::Sum {
            black_box(sum(whole));
        }
        self.hash = self.hash.map(|hash| crc32c::crc32c_append(hash, whole));
        let next = next.ok_or_else(|| nothing(self.at))?;
        self.at = if filled::number(next) < self.filled.end() { next } else { Offset::ZERO };
        Ok(whole.len() as u64)
    }
}

/// A read at `offset` that gave no whole batch, though the log has one there.
fn nothing(offset: Offset) -> BenchError {
    BenchError::Wrong { what: format!("the whole batches read at offset {offset}"), expected: 1, found: 0 }
}

impl Work for LogRead {
    fn check(&mut self) -> Result<u64, BenchError> {
        self.at = Offset::ZERO;
        self.hash = Some(0);
        let mut len = 0;
        loop {
            len += self.step()?;
            if self.at == Offset::ZERO {
                break;
            }
        }
        expect("the bytes read", self.filled.len(), len)?;
        Ok(self.hash.take().unwrap_or_default().into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            watch.time(|| self.step())?;
        }
        Ok(watch.stop())
    }
}
