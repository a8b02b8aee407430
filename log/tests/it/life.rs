//! A partition's life, with something going wrong at every call of it: the power is cut, and every kind of loss follows;
//! or the call fails in one of the ways in which it can. What was promised is there afterwards, byte for byte, and
//! nothing is there that was never written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_format::{Batches, LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Backend, Fault, Faulty, Loss, PowerLoss};
use kseg_log::{Isolation, Log, LogDir, LogDirOptions, Result, TopicPartition};

use crate::support::*;

const DATA: &str = "/mnt/disk/data";
/// How many random losses follow each cut. More, and every fault at every call, where `KSEG_LIVES` gives a number.
const SEEDS: u64 = 1;

fn lives() -> Option<u64> {
    std::env::var("KSEG_LIVES").ok().map(|n| n.parse().expect("KSEG_LIVES: a number of random losses"))
}

fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn bench(disk: Arc<dyn Backend>) -> Bench {
    Bench::on(
        disk,
        &[
            ("internal.segment.bytes", "1500"),
            ("segment.index.bytes", "120"),
            ("index.interval.bytes", "300"),
            ("retention.bytes", "6000"),
            ("retention.ms", "-1"),
        ],
    )
}

fn open(bench: &Bench) -> Result<(LogDir, Arc<Log>)> {
    let dir = LogDir::open(
        Path::new(DATA),
        LogDirOptions {
            config: bench.config.clone(),
            clock: bench.clock.clone(),
            scheduler: bench.scheduler.clone(),
            ..LogDirOptions::new(bench.backend.clone())
        },
    )?;
    let log = dir.get_or_create(&partition(), None)?;
    Ok((dir, log))
}

/// What the log owes its user.
#[derive(Default)]
struct Owed {
    /// Every batch that was ever given an offset, by that offset.
    written: BTreeMap<i64, Vec<Bytes>>,
    /// Those appended and not cut since.
    live: BTreeMap<i64, Bytes>,
    /// Those that must be there after a cut.
    durable: BTreeMap<i64, Bytes>,
}

impl Owed {
    fn append(&mut self, log: &Log, count: usize, tag: i64) -> Result<()> {
        let end = log.log_end_offset().get();
        // The time tells batches apart that have the same offset at different times.
        let mut sent = batch(count, 1000 + tag, 260);
        let info = log.append_as_leader(sent.clone(), LeaderEpoch::new(0), Origin::Client);
        let stored = {
            let mut batch = kseg_format::BatchMut::parse(&mut sent).expect("a batch");
            batch.set_last_offset(Offset::new(end + count as i64 - 1));
            sent.freeze()
        };
        // Also where the call failed: it may be there.
        self.written.entry(end).or_default().push(stored.clone());
        assert_eq!(info?.first_offset, Some(Offset::new(end)));
        self.live.insert(end, stored);
        Ok(())
    }

    /// As [`append`](Self::append), and waits until it is durable; with it all that came before.
    fn append_durable(&mut self, log: &Log, count: usize, tag: i64) -> Result<()> {
        self.append(log, count, tag)?;
        // Of the log end, so that what the call before has done cannot be told of another batch.
        log.durability()?.wait()?;
        self.durable = self.live.clone();
        Ok(())
    }

    /// Appends two batches, with a roll between the second one and the wait for the first.
    fn append_durable_over_a_roll(&mut self, log: &Log, tag: i64) -> Result<()> {
        self.append(log, 1, tag)?;
        let handle = log.durability()?;
        let promised = self.live.clone();
        log.roll(None)?;
        self.append(log, 1, tag)?;
        handle.wait()?;
        self.durable = promised;
        Ok(())
    }

    fn flush(&mut self, log: &Log) -> Result<()> {
        log.flush(true)?;
        self.durable = self.live.clone();
        Ok(())
    }

    fn cut(&mut self, dir: &LogDir, to: i64) -> Result<()> {
        // From the call on, nobody is owed what lies behind.
        self.live.split_off(&to);
        self.durable.split_off(&to);
        dir.truncate_to(&partition(), Offset::new(to))?;
        Ok(())
    }

    fn retain(&mut self, log: &Log) -> Result<()> {
        let before = self.durable.clone();
        self.durable.clear();
        log.update_high_watermark(log.log_end_offset());
        let retained = log.delete_old_segments();
        let start = log.log_start_offset().get();
        self.live = self.live.split_off(&start);
        retained?;
        self.durable = before;
        self.durable = self.durable.split_off(&start);
        Ok(())
    }
}

fn stop(dir: LogDir) -> Result<()> {
    match dir.shutdown()?.failed.pop() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// Everything that changes files: rolls, flushes, checkpoints, truncation, retention, delayed deletion, an orderly stop, a
/// start after it.
fn life(bench: &Bench, owed: &mut Owed) -> Result<()> {
    let (dir, log) = open(bench)?;
    for n in 0..4 {
        owed.append(&log, 2, n)?;
    }
    owed.flush(&log)?;
    for n in 4..12 {
        owed.append(&log, 3, n)?;
    }
    bench.scheduler.advance(0);
    owed.flush(&log)?;
    dir.checkpoint()?;
    for n in 12..16 {
        owed.append(&log, 1, n)?;
    }
    owed.cut(&dir, 17)?;
    for n in 16..19 {
        owed.append(&log, 2, n)?;
    }
    owed.flush(&log)?;
    owed.append_durable(&log, 1, 50)?;
    owed.append_durable_over_a_roll(&log, 51)?;
    owed.append(&log, 2, 19)?;
    bench.scheduler.advance(60_000);
    stop(dir)?;

    let (dir, log) = open(bench)?;
    for n in 20..40 {
        owed.append(&log, 1, n)?;
    }
    owed.flush(&log)?;
    owed.retain(&log)?;
    dir.checkpoint()?;
    bench.scheduler.advance(60_000);
    for n in 40..43 {
        owed.append(&log, 1, n)?;
    }
    owed.append_durable(&log, 2, 52)?;
    owed.append(&log, 5, 43)?;
    stop(dir)?;
    Ok(())
}

/// A file system on which the data directory's place is durable.
fn disk() -> Arc<PowerLoss> {
    Arc::new(PowerLoss::new())
}

/// The batches of a log, by base offset.
fn batches(log: &Log, what: &str) -> BTreeMap<i64, Bytes> {
    let mut found = BTreeMap::new();
    let mut next = log.log_start_offset();
    while next < log.log_end_offset() {
        let fetch = log.read(next, 1 << 20, Isolation::LogEnd, true).expect("a read");
        let Some(region) = fetch.region else {
            // The tail of a sealed segment may be gone where the next one is empty: the log ends behind the gap.
            assert_eq!(fetch.offset, log.log_end_offset(), "{what}: nothing at {next}");
            break;
        };
        let bytes = region.to_bytes().expect("bytes");
        for batch in Batches::new(&bytes) {
            let batch = batch.expect("framing").verify().expect("checksum");
            let at = batch.as_bytes().as_ptr() as usize - bytes.as_ptr() as usize;
            let base = batch.base_offset().expect("a batch of magic 2").get();
            found.insert(base, bytes.slice(at..at + batch.as_bytes().len()));
            next = batch.last_offset().next();
        }
    }
    found
}

/// `must` is there, and what else is there was written.
fn check(found: Arc<dyn Backend>, owed: &Owed, must: &BTreeMap<i64, Bytes>, what: &str) {
    let bench = bench(found);
    let (dir, log) = open(&bench).unwrap_or_else(|e| panic!("{what}: it does not open: {e}"));
    let there = batches(&log, what);
    let start = log.log_start_offset().get();
    for (base, bytes) in must.range(start..) {
        assert_eq!(there.get(base), Some(bytes), "{what}: the batch at {base}");
    }
    if let Some((first, _)) = must.first_key_value() {
        assert!(start <= *first, "{what}: the log begins at {start}, {first} is owed");
    }
    let mut after = start;
    for (base, bytes) in &there {
        let written = owed.written.get(base).is_some_and(|all| all.contains(bytes));
        assert!(written, "{what}: the batch at {base} was never written");
        assert!(*base >= after || after == start, "{what}: offsets go back at {base}");
        let last = Batches::new(bytes).next().expect("one").expect("framing").last_offset();
        for offset in *base..=last.get() {
            let fetch = log.read(Offset::new(offset.max(start)), 1, Isolation::LogEnd, true).expect("a read");
            assert_eq!(fetch.offset.get(), *base, "{what}: offset {offset}");
        }
        after = last.get() + 1;
    }
    // Life goes on behind what was found.
    let end = log.log_end_offset();
    assert_eq!(lead(&log, 1, 9999, 200).first_offset, Some(end), "{what}");
    log.flush(true).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(dir.shutdown().unwrap_or_else(|e| panic!("{what}: {e}")).clean, "{what}");
    let (_dir, log) = open(&bench).unwrap_or_else(|e| panic!("{what}: not once more: {e}"));
    assert_eq!(log.log_end_offset(), end.next(), "{what}");
}

#[test]
fn iob_11_rec_nothing_durable_is_lost_wherever_the_power_goes() {
    let whole = disk();
    let mut owed = Owed::default();
    life(&bench(whole.clone()), &mut owed).expect("a life without a cut");
    let calls = whole.calls();
    assert!(calls > 150 && owed.written.len() > 30, "{calls} calls, {} batches", owed.written.len());
    check(Arc::new(whole.after(Loss::Nothing)), &owed, &owed.durable, "without a cut");

    let seeds = lives().unwrap_or(SEEDS);
    for n in 0..=calls {
        let disk = disk();
        disk.cut_at(n);
        let mut owed = Owed::default();
        let lived = life(&bench(disk.clone()), &mut owed);
        assert!(lived.is_err() || n == calls, "cut at {n}, and nobody noticed");
        let losses = [Loss::Everything, Loss::Names, Loss::Bytes];
        for loss in losses.into_iter().chain((0..seeds).map(|seed| Loss::Random(n << 32 | seed))) {
            check(Arc::new(disk.after(loss)), &owed, &owed.durable, &format!("cut at call {n}, {loss:?}"));
        }
    }
}

/// The number of a call that a signal broke off.
const EINTR: i32 = 4;

#[test]
fn whatever_call_fails_what_was_acknowledged_is_there() {
    let faults = [
        ("EIO", Fault::on_any().error(Fault::EIO)),
        ("ENOSPC", Fault::on_any().error(Fault::ENOSPC)),
        ("EINTR", Fault::on_any().error(EINTR)),
        ("EIO after 100 bytes", Fault::on_any().error_after(100, Fault::EIO)),
        ("short", Fault::on_any().short(100)),
    ];
    // Every call meets one of the faults; with `KSEG_LIVES` each meets all of them.
    let step = if lives().is_some() { 1 } else { faults.len() };
    for (first, (name, fault)) in (1..).zip(faults) {
        for n in (first..).step_by(step) {
            let memory = kseg_io_backends::open("memory").expect("memory");
            let faulty = Arc::new(Faulty::new(memory.clone()));
            faulty.inject(fault.clone().nth(n));
            let mut owed = Owed::default();
            let lived = life(&bench(faulty.clone()), &mut owed);
            if faulty.fired() == 0 {
                lived.unwrap_or_else(|e| panic!("{name} at no call: {e}"));
                assert!(n > 100, "{name}: only {n} calls");
                break;
            }
            let what = format!("{name} at call {n}");
            if let Err(error) = lived {
                assert!(
                    error.to_string().contains("/mnt") || error.to_string().contains("of /:"),
                    "{what}: the error names no file: {error}"
                );
            }
            // The process goes on and stops without a word: what the caches hold is there.
            check(memory, &owed, &owed.live, &what);
        }
    }
}
