//! Lookups beside an append, in every interleaving that loom explores.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test -p kseg-index --test loom --release`
//!
//! The reader is the spawned thread on purpose. Of the loads of an atomic, loom remembers the last one only when it looks
//! for a race with a store, and the writer loads the entry count before it stores it: were the reader to run first, its
//! loads would be forgotten and nothing explored.
#![cfg(loom)]

use kseg_format::{Offset, Timestamp};
use kseg_index::{MemoryRegion, OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset};
use loom::sync::Arc;
use loom::thread;

const BASE: i64 = 100;

/// What the writer appends: (offset, position). Every field differs from zero, so that a torn entry shows.
const OFFSETS: [(i64, u32); 3] = [(105, 1000), (110, 2000), (115, 3000)];

/// (timestamp, offset). The timestamps fill both words of their field.
const TIMES: [(i64, i64); 3] = [((1 << 40) + 1, 105), ((2 << 40) + 2, 110), ((3 << 40) + 3, 115)];

fn entry((offset, position): (i64, u32)) -> OffsetPosition {
    OffsetPosition { offset: Offset::new(offset), position }
}

fn time_entry((timestamp, offset): (i64, i64)) -> TimestampOffset {
    TimestampOffset { timestamp: Timestamp::from_raw(timestamp), offset: Offset::new(offset) }
}

/// Runs `body` in every interleaving and fails if there was only one.
fn model(body: impl Fn() + Send + Sync + 'static) {
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    loom::model(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        body();
    });
    assert!(runs.load(std::sync::atomic::Ordering::Relaxed) > 10, "nothing was explored");
}

#[test]
fn lookup_beside_append_is_never_wrong() {
    model(|| {
        let index = Arc::new(OffsetIndex::new(Offset::new(BASE), MemoryRegion::new(OFFSETS.len() * 8), 0));
        index.append(Offset::new(OFFSETS[0].0), OFFSETS[0].1).unwrap();

        let reader = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let mut before = BASE;
                for target in [112, 120] {
                    let found = index.lookup(Offset::new(target));
                    assert!(OFFSETS.into_iter().any(|appended| found == entry(appended)), "{found:?}");
                    assert!(found.offset <= Offset::new(target), "{found:?} lies behind {target}");
                    assert!(found.offset >= Offset::new(before), "{found:?} is less than was seen before");
                    before = found.offset.get();
                }
            })
        };

        for (offset, position) in &OFFSETS[1..] {
            index.append(Offset::new(*offset), *position).unwrap();
        }
        reader.join().unwrap();
        assert_eq!(index.lookup(Offset::new(120)), entry(OFFSETS[2]));
    });
}

#[test]
fn upper_bound_beside_append_is_never_wrong() {
    model(|| {
        let index = Arc::new(OffsetIndex::new(Offset::new(BASE), MemoryRegion::new(OFFSETS.len() * 8), 0));
        let reader = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                if let Some(bound) = index.upper_bound(1000, 1) {
                    assert_eq!(bound, entry(OFFSETS[1]));
                }
                let last = index.last_offset();
                assert!(last == Offset::new(BASE) || OFFSETS.into_iter().any(|e| last == entry(e).offset));
            })
        };

        for (offset, position) in OFFSETS {
            index.append(Offset::new(offset), position).unwrap();
        }
        reader.join().unwrap();
    });
}

#[test]
fn time_lookup_beside_append_is_never_wrong() {
    model(|| {
        let index = Arc::new(TimeIndex::new(Offset::new(BASE), MemoryRegion::new(TIMES.len() * 12), 0));
        let reader = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let none = TimestampOffset { timestamp: None, offset: Offset::new(BASE) };
                let mut before = none;
                for target in [(2 << 40) + 5, i64::MAX] {
                    let found = index.lookup(Timestamp::new(target));
                    assert!(found == none || TIMES.into_iter().any(|e| found == time_entry(e)), "{found:?}");
                    assert!(
                        found.timestamp <= Some(Timestamp::new(target)),
                        "{found:?} lies behind {target}"
                    );
                    assert!(found.timestamp >= before.timestamp, "{found:?} is less than was seen before");
                    before = found;
                }
                assert!(index.last_entry().timestamp >= before.timestamp);
            })
        };

        for (timestamp, offset) in TIMES {
            index.maybe_append(Timestamp::from_raw(timestamp), Offset::new(offset), true).unwrap();
        }
        reader.join().unwrap();
        assert_eq!(index.lookup(Timestamp::new(i64::MAX)), time_entry(TIMES[2]));
    });
}
