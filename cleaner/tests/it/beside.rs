//! Truncation, retention, a close, appends and another configuration at every step of a round: what the log owes its readers is
//! there, and nothing else.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::BytesMut;
use kseg_cleaner::{Cleaner, Dirty, Pace, Result};
use kseg_format::{BatchOptions, LeaderEpoch, Offset, Origin, Timestamp};
use kseg_io_backends::{Backend, MemoryBackend, Moment, Watched};
use kseg_log::{Log, LogConfig};

use crate::bed::*;

/// What happens beside a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Truncate,
    TruncateFully,
    Retain,
    Close,
    Append,
    Configure,
}

const ALL: [Beside; 6] = [
    Beside::Truncate,
    Beside::TruncateFully,
    Beside::Retain,
    Beside::Close,
    Beside::Append,
    Beside::Configure,
];

/// In the middle of the second of four segments.
const CUT: i64 = 7;
/// Where a log begins that was truncated fully.
const AGAIN: i64 = 3;
/// The base of the third segment.
const START: i64 = 10;

fn one(key: &str, value: &str) -> BytesMut {
    batch(BatchOptions::default(), &[NOW], &[kv(key, value)])
}

fn append(log: &Log, key: &str) {
    log.append_as_leader(one(key, "late"), LeaderEpoch::new(0), Origin::Client).unwrap();
    log.update_high_watermark(log.log_end_offset());
}

impl Beside {
    fn happen(self, log: &Log) {
        match self {
            Beside::Truncate => assert!(log.truncate_to(Offset::new(CUT)).unwrap()),
            Beside::TruncateFully => log.truncate_fully_and_start_at(Offset::new(AGAIN), None).unwrap(),
            Beside::Retain => {
                log.increment_log_start_offset(Offset::new(START)).unwrap();
                log.delete_old_segments().unwrap();
            }
            Beside::Close => log.close().unwrap(),
            Beside::Append => {
                append(log, "1");
                log.roll(None).unwrap();
                append(log, "late");
            }
            Beside::Configure => {
                let config = [("cleanup.policy", "delete"), ("segment.index.bytes", "240")];
                log.update_config(LogConfig::from_pairs(config).unwrap()).unwrap();
            }
        }
    }
}

/// Three sealed segments of five records with three keys, and an active one of one record. Each segment is a group.
fn filled(backend: Arc<dyn Backend>, parallel: bool) -> Bed {
    let pairs =
        [("internal.segment.bytes", "400"), ("segment.index.bytes", "240"), ("file.delete.delay.ms", "0")];
    let mut bed = Bed::on(backend, &pairs);
    (bed.options.io_buffer_bytes, bed.options.parallel) = (512, parallel);
    for n in 0..3 {
        bed.keys([1, 2, 3, 1, 10 + n]);
        bed.roll();
    }
    bed.keys([99]);
    bed.log.flush(true).unwrap();
    bed
}

type Data = Vec<(i64, String, Option<String>)>;

fn latest(data: &Data) -> BTreeMap<String, i64> {
    data.iter().map(|(offset, key, _)| (key.clone(), *offset)).collect()
}

/// What the log has to have after `what` happened at any step of a round over `before`.
fn check(bed: &Bed, before: &Data, what: Beside, stopped: bool, at: &str) {
    let after = bed.data();
    let (start, end) = (bed.log.log_start_offset().get(), bed.log.log_end_offset().get());
    let (from, to) = match what {
        Beside::Truncate => (0, CUT),
        Beside::TruncateFully => (AGAIN, AGAIN),
        Beside::Retain => (START, 16),
        Beside::Append => (0, 18),
        Beside::Close | Beside::Configure => (0, 16),
    };
    // A gap at the end, where a truncation has cut into what had been compacted, does not outlive a stop.
    let gap = what == Beside::Truncate && stopped && end < to;
    assert_eq!((start, if gap { to } else { end }), (from, to), "{at}");
    assert!(after.is_sorted_by(|a, b| a.0 < b.0), "{at}: {after:?}");
    for seen in after.iter().filter(|seen| seen.2.as_deref() != Some("late")) {
        assert!(before.contains(seen) && seen.0 < to, "{at}: {seen:?}");
    }
    // A key's latest value, where it is still in the log's range.
    let kept = latest(&after);
    for (key, offset) in latest(before).into_iter().filter(|(_, offset)| (from..to).contains(offset)) {
        let found = kept.get(&key);
        assert!(found.is_some_and(|found| *found >= offset), "{at}: {key} at {offset}: {found:?}");
    }
    let late = after.iter().filter(|seen| seen.2.as_deref() == Some("late")).count();
    assert_eq!(late, if what == Beside::Append { 2 } else { 0 }, "{at}");
}

/// The log as it is, as it is after a stop, and after another round.
fn check_all(bed: Bed, before: &Data, what: Beside, at: &str) {
    if what != Beside::Close {
        check(&bed, before, what, false, at);
    }
    let bed = bed.opened_again(true, true);
    check(&bed, before, what, true, at);
    let leftover = |name: &str| [".cleaned", ".swap", ".sources"].iter().any(|part| name.contains(part));
    assert!(bed.files().iter().all(|(name, _)| !leftover(name)), "{at}: {:?}", bed.files());
    bed.clean_at(bed.log.log_start_offset().get(), NOW);
    if what != Beside::Append {
        check(&bed, before, what, true, at);
    }
}

fn dirty(bed: &Bed) -> Dirty {
    let first_uncleanable = Offset::new(bed.active());
    Dirty { first: Offset::ZERO, first_uncleanable, now: Timestamp::new(NOW) }
}

/// Lets something happen at one of a round's own looks around.
struct At<'a> {
    left: Cell<u32>,
    what: Beside,
    log: &'a Log,
}

impl At<'_> {
    fn step(&self) {
        self.left.set(self.left.get().wrapping_sub(1));
        if self.left.get() == 0 {
            self.what.happen(self.log);
        }
    }
}

impl Pace for At<'_> {
    fn check(&self) -> Result<()> {
        self.step();
        Ok(())
    }

    fn moved(&self, _: u64) {
        self.step();
    }
}

#[test]
fn whatever_happens_between_two_reads_of_a_round_harms_nothing() {
    for (parallel, what) in [false, true].into_iter().flat_map(|p| ALL.map(|what| (p, what))) {
        for step in 1.. {
            let bed = filled(Arc::new(MemoryBackend::new()), parallel);
            let before = bed.data();
            let at = At { left: Cell::new(step), what, log: &bed.log };
            let round = Cleaner::new(bed.options.clone()).unwrap().clean(&bed.log, dirty(&bed), &at);
            if (1..=step).contains(&at.left.get()) {
                round.unwrap();
                assert!(step > 10, "{step}");
                break;
            }
            check_all(
                bed,
                &before,
                what,
                &format!("{what:?} at step {step}, parallel {parallel}: {round:?}"),
            );
        }
    }
}

/// Another thread does it while a call of the round is held back: for as long as it takes, or for a moment where it has to
/// wait for the swap that the call is a part of.
#[test]
fn whatever_happens_at_any_call_of_a_round_harms_nothing() {
    const MOMENT: Duration = Duration::from_millis(3);
    for (parallel, what) in [false, true].into_iter().flat_map(|p| ALL.map(|what| (p, what))) {
        // Every call of the round in the fixed order; some of them where threads make their own.
        for call in (1..).step_by(if parallel { 7 } else { 1 }) {
            let (begun, at_call) = mpsc::channel();
            let over = begun.clone();
            let (done, held) = mpsc::channel();
            let (begun, held) = (Mutex::new(begun), Mutex::new(held));
            let left = Arc::new(AtomicU64::new(0));
            let count = left.clone();
            let watched = Watched::new(Arc::new(MemoryBackend::new()), move |moment, _, _| {
                if moment != Moment::Before {
                    return;
                }
                let counted =
                    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                if counted == Ok(1) {
                    begun.lock().unwrap().send(true).unwrap();
                    // Whether it has happened by now is for the other thread to find out.
                    let _ = held.lock().unwrap().recv_timeout(MOMENT);
                }
            });
            let bed = filled(Arc::new(watched), parallel);
            let (before, dirty) = (bed.data(), dirty(&bed));
            let (log, options) = (bed.log.clone(), bed.options.clone());
            left.store(call, Ordering::SeqCst);
            let (round, reached) = std::thread::scope(|scope| {
                scope.spawn(move || {
                    if at_call.recv().unwrap() {
                        what.happen(&log);
                        // Nobody listens where the moment is over.
                        let _ = done.send(());
                    }
                });
                let mut cleaner = Cleaner::new(options).unwrap();
                let round = cleaner.clean(&bed.log, dirty, &kseg_cleaner::Unhindered);
                let reached = left.swap(0, Ordering::SeqCst) == 0;
                // Nobody listens where it has happened.
                let _ = over.send(false);
                (round, reached)
            });
            if !reached {
                round.unwrap();
                assert!(call > 60, "{call}");
                break;
            }
            check_all(
                bed,
                &before,
                what,
                &format!("{what:?} at call {call}, parallel {parallel}: {round:?}"),
            );
        }
    }
}
