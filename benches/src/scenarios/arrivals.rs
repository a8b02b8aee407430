//! Appends that arrive at a fixed rate, whether or not those before them are done.
//!
//! A loop that appends as fast as it can measures no latency that anybody sees: while it waits it asks for nothing. Here each
//! batch has a moment at which it is due, and its latency counts from that moment, also when the log was still busy with
//! others then. Whoever appends takes all that are due, and where durability is asked for one flush serves them, as in a broker
//! whose requests have queued. The bare loop does the same with system calls.

use std::fs::File;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kseg_log::Log;

use super::Scenario;
use super::append::{self, LogAppend, Sync};
use crate::bench::{Bench, Medium};
use crate::contest::{Entrant, Latency, Slice, Unit, Watch, Work};
use crate::error::BenchError;
use crate::reference::WriteLoop;
use crate::state::FileState;
use crate::supply::Supply;

pub(super) fn scenarios() -> Vec<Scenario> {
    let arrive = |count: f64| format!("{count} a second, or `--rate`; latency from when each is due");
    vec![
        Scenario::new(
            "arrivals-durable-4k",
            format!(
                "4 KiB batches that arrive {}, until it is durable, one flush for all that have queued; bare writes and \
                 one fdatasync likewise",
                arrive(DURABLE_RATE)
            ),
            Unit::Arrivals,
            |bench| entrants(bench, 4 << 10, Sync::Each, DURABLE_RATE),
        )
        .on_request(),
        Scenario::new(
            "arrivals-16k",
            format!(
                "16 KiB batches that arrive {}, until it can be read; a bare write after one CRC pass likewise",
                arrive(READABLE_RATE)
            ),
            Unit::Arrivals,
            |bench| entrants(bench, 16 << 10, Sync::Never, READABLE_RATE),
        )
        .on_request(),
    ]
}

/// Arrivals a second where nothing is said: about a third of what a writer that syncs after each batch reaches on a disk
/// with a fast cache, and a twentieth of what the page cache takes.
const DURABLE_RATE: f64 = 2_000.0;
const READABLE_RATE: f64 = 5_000.0;

fn entrants(
    bench: &mut Bench,
    batch_bytes: usize,
    sync: Sync,
    rate: f64,
) -> Result<Vec<Entrant>, BenchError> {
    let supply = Supply::new(batch_bytes, 1 << 10)?;
    let interval = Duration::from_secs_f64(1.0 / bench.rate().unwrap_or(rate));
    bench.entrants(
        None,
        &[Medium::File],
        |bench, _, _| {
            let path = bench.dir().join("reference");
            let every = usize::from(sync == Sync::Each);
            let target = WriteLoop::new(path, supply.clone(), bench.scale(), every);
            let name = if sync == Sync::Each { "pwrite + fdatasync" } else { "pwrite + CRC" };
            let work = Box::new(Arrivals { target, supply: supply.clone(), interval });
            Ok(Entrant { name: name.to_owned(), reference: None, goal: None, work })
        },
        |bench, backend| {
            let target = LogAppend::new(bench, backend, supply.clone(), sync, FileState::Extending)?;
            Ok(Box::new(Arrivals { target, supply: supply.clone(), interval }))
        },
    )
}

/// What batches arrive at.
trait Target: Work {
    /// A file or a log that is open.
    type Open;

    fn open(&self) -> Result<Self::Open, BenchError>;

    /// Takes a batch that goes behind `before` others.
    fn take(&self, open: &Self::Open, batch: BytesMut, before: u64) -> Result<(), BenchError>;

    /// Makes durable what was taken, where that is asked for.
    fn settle(&self, open: &Self::Open) -> Result<(), BenchError>;

    /// Checks that all `batches` are there, the last of them `last`, and removes them.
    fn close(&self, open: Self::Open, batches: u64, last: &[u8]) -> Result<(), BenchError>;
}

impl Target for WriteLoop {
    type Open = File;

    fn open(&self) -> Result<File, BenchError> {
        self.fresh()
    }

    fn take(&self, file: &File, batch: BytesMut, before: u64) -> Result<(), BenchError> {
        self.write(file, &batch, before * batch.len() as u64)
    }

    fn settle(&self, file: &File) -> Result<(), BenchError> {
        self.sync(file)
    }

    fn close(&self, file: File, batches: u64, last: &[u8]) -> Result<(), BenchError> {
        self.check_last(&file, batches * last.len() as u64, last)?;
        self.remove(file)
    }
}

impl Target for LogAppend {
    type Open = Log;

    fn open(&self) -> Result<Log, BenchError> {
        self.fresh()
    }

    fn take(&self, log: &Log, batch: BytesMut, _: u64) -> Result<(), BenchError> {
        append::take(log, batch)
    }

    fn settle(&self, log: &Log) -> Result<(), BenchError> {
        LogAppend::settle(self, log)
    }

    fn close(&self, log: Log, batches: u64, last: &[u8]) -> Result<(), BenchError> {
        self.check_end(&log, batches, batches * last.len() as u64, last)?;
        self.remove(log)
    }
}

/// Batches that arrive at a target, one in each interval.
#[derive(Debug)]
struct Arrivals<T> {
    target: T,
    supply: Supply,
    interval: Duration,
}

impl<T: Target> Work for Arrivals<T> {
    fn check(&mut self) -> Result<u64, BenchError> {
        self.target.check()
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let open = self.target.open()?;
        let count = at_least.div_duration_f64(self.interval).ceil().max(1.0) as u32;
        let mut latencies = Vec::with_capacity(count as usize);
        let mut busy = Watch::new(at_least);
        let begin = Instant::now();
        let mut done = 0;
        while done < count {
            let mut ready = Some(self.supply.one());
            wait_until(begin + self.interval * done);
            let arrived = arrived(begin.elapsed(), self.interval).clamp(done + 1, count);
            busy.time(|| {
                for taken in done..arrived {
                    let batch = ready.take().unwrap_or_else(|| self.supply.one());
                    self.target.take(&open, batch, u64::from(taken))?;
                }
                self.target.settle(&open)?;
                Ok(u64::from(arrived - done))
            })?;
            let now = begin.elapsed();
            latencies.extend((done..arrived).map(|i| now.saturating_sub(self.interval * i)));
            done = arrived;
        }
        let seconds = begin.elapsed().as_secs_f64();
        self.target.close(open, u64::from(count), self.supply.last())?;
        Ok(Slice { seconds, latency: Latency::of(&mut latencies), ..busy.stop() })
    }
}

/// How many have arrived after `elapsed`: the first at the beginning, the next after an interval.
fn arrived(elapsed: Duration, interval: Duration) -> u32 {
    elapsed.div_duration_f64(interval).floor() as u32 + 1
}

/// A sleep ends late by some tens of microseconds: so much of the time is spent awake.
const AWAKE: Duration = Duration::from_micros(150);

fn wait_until(due: Instant) {
    if let Some(asleep) = due.checked_duration_since(Instant::now() + AWAKE) {
        std::thread::sleep(asleep);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Takes a batch at once, and a while for what is settled.
    struct Slow {
        settles: Duration,
        taken: Cell<u64>,
    }

    impl Work for Slow {
        fn check(&mut self) -> Result<u64, BenchError> {
            Ok(0)
        }
        fn slice(&mut self, _: Duration) -> Result<Slice, BenchError> {
            unreachable!("its batches arrive")
        }
    }

    impl Target for Slow {
        type Open = ();
        fn open(&self) -> Result<(), BenchError> {
            Ok(())
        }
        fn take(&self, (): &(), _: BytesMut, before: u64) -> Result<(), BenchError> {
            assert_eq!(before, self.taken.replace(before + 1));
            Ok(())
        }
        fn settle(&self, (): &()) -> Result<(), BenchError> {
            std::thread::sleep(self.settles);
            Ok(())
        }
        fn close(&self, (): (), batches: u64, _: &[u8]) -> Result<(), BenchError> {
            assert_eq!(batches, self.taken.get());
            Ok(())
        }
    }

    #[test]
    fn what_queued_while_the_target_was_busy_counts_from_when_it_was_due() {
        let target = Slow { settles: Duration::from_millis(20), taken: Cell::new(0) };
        let supply = Supply::new(4 << 10, 1 << 10).unwrap();
        let mut work = Arrivals { target, supply, interval: Duration::from_millis(1) };
        let slice = work.slice(Duration::from_millis(50)).unwrap();
        let latency = slice.latency.unwrap();
        assert_eq!(slice.units, 50);
        // The first is settled after 20 ms; of those that came meanwhile the first waits for nearly two turns.
        assert!(latency.max_us >= 38_000.0, "{latency:?}");
        assert!(latency.p50_us >= 20_000.0, "{latency:?}");
    }

    #[test]
    fn the_first_arrives_at_the_beginning() {
        let interval = Duration::from_micros(500);
        for (us, count) in [(0, 1), (499, 1), (500, 2), (1_700, 4)] {
            assert_eq!(arrived(Duration::from_micros(us), interval), count, "{us}");
        }
    }
}
