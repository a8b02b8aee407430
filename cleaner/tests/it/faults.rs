//! A fault at each call of a round, and the power gone at each: the log is as it was, or cleaned in part, and right. Of a round
//! that makes its calls in a fixed order, and of one whose threads make them beside each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kseg_io_backends::{Backend, Call, Fault, Faulty, Loss, MemoryBackend, Moment, PowerLoss, Watched};
use kseg_log::{Log, LogConfig, OpenOptions};

use crate::bed::*;

/// Three sealed segments of which each is a group of its own, with superseded keys and an aborted transaction.
fn filled(backend: Arc<dyn Backend>, parallel: bool) -> Bed {
    let pairs =
        [("internal.segment.bytes", "400"), ("segment.index.bytes", "240"), ("file.delete.delay.ms", "0")];
    let mut bed = Bed::on(backend, &pairs);
    bed.options.parallel = parallel;
    for _ in 0..3 {
        bed.keys([1, 2, 3]);
        bed.txn(1, &[4]);
        bed.abort(1);
        bed.roll();
    }
    bed.log.flush(true).unwrap();
    bed
}

/// The last value of each key, of what a reader of committed transactions sees.
fn last_values(bed: &Bed) -> Vec<(i64, String, Option<String>)> {
    let aborted = [3, 8, 13];
    let mut last = std::collections::BTreeMap::new();
    for (offset, key, value) in bed.data() {
        if !aborted.contains(&offset) {
            last.insert(key.clone(), (offset, key, value));
        }
    }
    last.into_values().collect()
}

#[test]
fn a_fault_at_any_call_of_a_round_loses_nothing() {
    fault_at_any_call(false);
}

#[test]
fn a_fault_at_any_call_of_a_round_with_threads_loses_nothing() {
    fault_at_any_call(true);
}

fn fault_at_any_call(parallel: bool) {
    let expected = last_values(&filled(Arc::new(MemoryBackend::new()), parallel));
    let calls = [
        Call::Write,
        Call::Flush,
        Call::SetLen,
        Call::Read,
        Call::Len,
        Call::Map,
        Call::Open,
        Call::List,
        Call::Stat,
        Call::Rename,
        Call::Remove,
        Call::SyncDir,
        Call::SyncFile,
        Call::ReadFile,
        Call::WriteFile,
        Call::SetModified,
    ];
    let (mut failed, mut fenced) = (0, 0);
    for call in calls {
        for nth in 1..200 {
            let faulty = Arc::new(Faulty::new(Arc::new(MemoryBackend::new())));
            let bed = filled(faulty.clone(), parallel);
            faulty.inject(Fault::on(call).nth(nth));
            let round = bed.round(0, NOW);
            let fired = faulty.fired();
            faulty.clear();
            assert_eq!(last_values(&bed), expected, "{call:?} {nth}");
            if fired == 0 {
                break;
            }
            if let Err(error) = round {
                failed += 1;
                assert!(!error.is_abort() && error.io().is_some(), "{call:?} {nth}: {error}");
            }
            // Where the log takes changes, the next round comes to its end; else opening it settles what it is.
            if bed.log.begin_replacement(kseg_format::Offset::ZERO).is_ok() {
                bed.log.remove_unfinished_replacements().unwrap();
                bed.round(0, NOW).unwrap_or_else(|e| panic!("{call:?} {nth}: {e}"));
            } else {
                fenced += 1;
            }
            let bed = bed.reopened(true, true);
            assert_eq!(last_values(&bed), expected, "{call:?} {nth}");
            let leftover =
                |name: &str| [".cleaned", ".swap", ".sources"].iter().any(|part| name.contains(part));
            assert!(bed.files().iter().all(|(name, _)| !leftover(name)), "{call:?} {nth}: {:?}", bed.files());
        }
    }
    assert!(failed > 50 && fenced > 5, "{failed} {fenced}");
}

#[test]
fn nothing_is_lost_wherever_the_power_goes_in_a_round() {
    power_gone_at_any_call(false);
}

#[test]
fn nothing_is_lost_wherever_the_power_goes_in_a_round_with_threads() {
    power_gone_at_any_call(true);
}

fn power_gone_at_any_call(parallel: bool) {
    let disk = || {
        let disk = Arc::new(PowerLoss::new());
        disk.names().create_dir_all(std::path::Path::new(DIR)).unwrap();
        for dir in ["/data", "/"] {
            disk.names().sync_dir(std::path::Path::new(dir)).unwrap();
        }
        disk
    };
    let whole = disk();
    let bed = filled(whole.clone(), parallel);
    let expected = last_values(&bed);
    let end = bed.log.log_end_offset();
    let begun = whole.calls();
    bed.round(0, NOW).unwrap();
    let calls = whole.calls() - begun;
    assert!(calls > 60, "{calls}");
    let mut stopped = 0;
    // With threads the n-th call is now this and now that one.
    for n in (0..=calls).step_by(if parallel { 4 } else { 1 }) {
        let disk = disk();
        let bed = filled(disk.clone(), parallel);
        disk.cut_at(begun + n);
        let round = bed.round(0, NOW);
        stopped += u64::from(round.is_err());
        let losses = [Loss::Nothing, Loss::Everything, Loss::Names, Loss::Bytes];
        for loss in losses.into_iter().chain((0..3).map(|seed| Loss::Random(n << 16 | seed))) {
            let found: Arc<dyn Backend> = Arc::new(disk.after(loss));
            let pairs = [("cleanup.policy", "compact"), ("segment.index.bytes", "240")];
            let open = OpenOptions {
                config: LogConfig::from_pairs(pairs).unwrap(),
                clean: false,
                recovery_point: end,
                ..OpenOptions::new(found.clone())
            };
            let log =
                Log::open(std::path::Path::new(DIR), open).unwrap_or_else(|e| panic!("{n} {loss:?}: {e}"));
            assert_eq!(log.log_end_offset(), end, "{n} {loss:?}");
            drop(log);
            let bed = Bed::on(found, &[("segment.index.bytes", "240")]);
            assert_eq!(last_values(&bed), expected, "cut at call {n}, {loss:?}");
            bed.log.update_high_watermark(end);
            bed.round(0, NOW).unwrap_or_else(|e| panic!("{n} {loss:?}: {e}"));
            assert_eq!(last_values(&bed), expected, "cut at call {n}, {loss:?}, cleaned");
        }
    }
    assert!(stopped > if parallel { 15 } else { 60 }, "{stopped}");
}

#[test]
fn a_panic_in_a_thread_of_a_round_loses_nothing() {
    for (thread, call) in [("kseg-cleaner-read", Call::Read), ("kseg-cleaner-write", Call::Write)] {
        let mut reached = 0;
        for nth in 1.. {
            let left = Arc::new(AtomicU64::new(0));
            let count = left.clone();
            let watched = Watched::new(Arc::new(MemoryBackend::new()), move |moment, at, _| {
                let there = moment == Moment::Before
                    && at == call
                    && std::thread::current().name() == Some(thread)
                    && count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                        == Ok(1);
                assert!(!there, "a fault below the cleaner");
            });
            let mut bed = filled(Arc::new(watched), true);
            bed.options.io_buffer_bytes = 512;
            let expected = last_values(&bed);
            left.store(nth, Ordering::SeqCst);
            let round = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bed.round(0, NOW)));
            assert_eq!(last_values(&bed), expected, "{thread}, call {nth}");
            if left.swap(0, Ordering::SeqCst) > 0 {
                round.expect("nothing panicked").unwrap();
                break;
            }
            assert!(round.is_err(), "whoever asked for the round hears of it");
            reached = nth;
            bed.round(0, NOW).unwrap();
            assert_eq!(last_values(&bed), expected, "{thread}, call {nth}, and the round after it");
        }
        assert!(reached > 5, "{thread}: {reached} calls");
    }
}
