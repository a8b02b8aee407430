//! Finding the batch of an offset.

use std::sync::Arc;
use std::time::Duration;

use kseg_format::Offset;
use kseg_log::Isolation;

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
            let work = Box::new(SearchLoop::new(filled.entries()?, filled.store()?, filled.end()));
            Ok(Entrant { name: name.to_owned(), reference: None, goal: None, work })
        },
        |bench, backend| {
            let filled = bench.filled(backend)?;
            Ok(Box::new(LogLookup { filled, random: Random::new(LOOKUP_SEED) }))
        },
    )
}

#[derive(Debug)]
struct LogLookup {
    filled: Arc<Filled>,
    random: Random,
}

impl LogLookup {
    fn find(&self, offset: u64) -> Result<u64, BenchError> {
        let fetch = self.filled.log().read(Offset::new(offset as i64), 1, Isolation::LogEnd, true)?;
        Ok(fetch.region.map_or(u64::MAX, |region| region.position()))
    }
}

impl Work for LogLookup {
    fn check(&mut self) -> Result<u64, BenchError> {
        let mut random = Random::new(LOOKUP_SEED);
        let mut hash = 0;
        for _ in 0..CHECKED_LOOKUPS {
            let offset = random.below(self.filled.end());
            let position = self.find(offset)?;
            expect(&format!("the position of offset {offset}"), self.filled.position_of(offset), position)?;
            hash = crc32c::crc32c_append(hash, &position.to_be_bytes());
        }
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            let mut wrong = 0;
            watch.time(|| {
                for _ in 0..LOOKUPS {
                    let offset = self.random.below(self.filled.end());
                    wrong += u64::from(self.find(offset)? != self.filled.position_of(offset));
                }
                Ok(LOOKUPS)
            })?;
            expect("the number of wrong positions", 0, wrong)?;
        }
        Ok(watch.stop())
    }
}
