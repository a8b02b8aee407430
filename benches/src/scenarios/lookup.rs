//! Finding the batch of an offset.

use std::sync::Arc;
use std::time::Duration;

use kseg_format::Offset;
use kseg_log::{Isolation, Log};

use super::Scenario;
use crate::bench::{Bench, Medium};
use crate::contest::{Entrant, Slice, Unit, Watch, Work};
use crate::error::{BenchError, expect};
use crate::filled::Filled;
use crate::payload::Random;
use crate::reference::{CHECKED_LOOKUPS, LOOKUP_SEED, LOOKUPS, SearchLoop};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new(
        "lookup",
        "the position of a random offset in a hot log of 1 GiB, by a read of one batch whose bytes are not looked at; a \
         binary search over the same entries in memory, then reading the headers that lie between",
        Unit::Lookups,
        entrants,
    )]
}

const GOAL: f64 = 0.8;

fn entrants(bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
    bench.entrants(
        Some(GOAL),
        &[Medium::File, Medium::Memory],
        |bench, medium, backend| {
            let filled = bench.filled(backend)?;
            let name = match medium {
                Medium::File => "search + pread",
                Medium::Memory => "search + memory copy",
            };
            let work = Box::new(SearchLoop::new(vec![filled.indexed()?], filled.end()));
            Ok(Entrant { name: name.to_owned(), reference: None, goal: None, work })
        },
        |bench, backend| {
            let filled = bench.filled(backend)?;
            Ok(Box::new(LogLookup::new(filled)))
        },
    )
}

/// A log whose batches lie where they are expected.
pub(super) trait Laid: std::fmt::Debug {
    fn log(&self) -> &Log;
    /// The offset after the last record.
    fn end(&self) -> u64;
    /// Where the batch of `offset` begins in its segment.
    fn position_of(&self, offset: u64) -> u64;
    /// Where it begins in the log, all segments behind each other.
    fn place_of(&self, offset: u64) -> u64 {
        self.position_of(offset)
    }
}

impl Laid for Arc<Filled> {
    fn log(&self) -> &Log {
        Filled::log(self)
    }

    fn end(&self) -> u64 {
        Filled::end(self)
    }

    fn position_of(&self, offset: u64) -> u64 {
        Filled::position_of(self, offset)
    }
}

/// Finds random offsets.
#[derive(Debug)]
pub(super) struct LogLookup<L> {
    laid: L,
    /// The least offset that is looked for.
    from: u64,
    random: Random,
}

impl<L: Laid> LogLookup<L> {
    pub(super) fn new(laid: L) -> Self {
        LogLookup { laid, from: 0, random: Random::new(LOOKUP_SEED) }
    }

    /// Offsets from `from` on.
    pub(super) fn starting_at(self, from: u64) -> Self {
        LogLookup { from, ..self }
    }

    fn find(&self, offset: u64) -> Result<u64, BenchError> {
        let fetch = self.laid.log().read(Offset::new(offset as i64), 1, Isolation::LogEnd, true)?;
        Ok(fetch.region.map_or(u64::MAX, |region| region.position()))
    }
}

impl<L: Laid> Work for LogLookup<L> {
    fn check(&mut self) -> Result<u64, BenchError> {
        let mut random = Random::new(LOOKUP_SEED);
        let mut hash = 0;
        for _ in 0..CHECKED_LOOKUPS {
            let offset = self.from + random.below(self.laid.end() - self.from);
            let (expected, found) = (self.laid.position_of(offset), self.find(offset)?);
            expect(&format!("the position of offset {offset}"), expected, found)?;
            hash = crc32c::crc32c_append(hash, &self.laid.place_of(offset).to_be_bytes());
        }
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            let mut wrong = 0;
            watch.time(|| {
                for _ in 0..LOOKUPS {
                    let offset = self.from + self.random.below(self.laid.end() - self.from);
                    wrong += u64::from(self.find(offset)? != self.laid.position_of(offset));
                }
                Ok(LOOKUPS)
            })?;
            expect("the number of wrong positions", 0, wrong)?;
        }
        Ok(watch.stop())
    }
}
