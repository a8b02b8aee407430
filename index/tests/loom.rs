//! Lookups beside an append, in every interleaving that loom explores.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test -p kseg-index --test loom --release`
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

#[test]
fn lookup_beside_append_is_never_wrong() {
    loom::model(|| {
        let index = Arc::new(OffsetIndex::new(Offset::new(BASE), MemoryRegion::new(OFFSETS.len() * 8), 0));
        let (offset, position) = OFFSETS[0];
        index.append(Offset::new(offset), position).unwrap();

        let writer = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                for (offset, position) in &OFFSETS[1..] {
                    index.append(Offset::new(*offset), *position).unwrap();
                }
            })
        };

        let mut before = BASE;
        for target in [112, 120] {
            let found = index.lookup(Offset::new(target));
            let appended =
                |(offset, position)| found == OffsetPosition { offset: Offset::new(offset), position };
            assert!(OFFSETS.into_iter().any(appended), "{found:?} was never appended");
            assert!(found.offset <= Offset::new(target), "{found:?} lies behind {target}");
            assert!(found.offset >= Offset::new(before), "{found:?} is less than was seen before");
            before = found.offset.get();
        }
        assert!(index.last_offset() >= Offset::new(before));
        if let Some(bound) = index.upper_bound(1000, 1) {
            assert_eq!(bound, OffsetPosition { offset: Offset::new(110), position: 2000 });
        }

        writer.join().unwrap();
        let last = index.lookup(Offset::new(120));
        assert_eq!(last, OffsetPosition { offset: Offset::new(115), position: 3000 });
    });
}

#[test]
fn time_lookup_beside_append_is_never_wrong() {
    loom::model(|| {
        let index = Arc::new(TimeIndex::new(Offset::new(BASE), MemoryRegion::new(TIMES.len() * 12), 0));

        let writer = {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                for (timestamp, offset) in TIMES {
                    index.maybe_append(Timestamp::from_raw(timestamp), Offset::new(offset), true).unwrap();
                }
            })
        };

        let none = TimestampOffset { timestamp: None, offset: Offset::new(BASE) };
        let mut before = none;
        for target in [(2 << 40) + 5, i64::MAX] {
            let found = index.lookup(Timestamp::new(target));
            let appended = |(timestamp, offset)| {
                found
                    == TimestampOffset {
                        timestamp: Timestamp::from_raw(timestamp),
                        offset: Offset::new(offset),
                    }
            };
            assert!(found == none || TIMES.into_iter().any(appended), "{found:?} was never appended");
            assert!(Timestamp::to_raw(found.timestamp) <= target, "{found:?} lies behind {target}");
            assert!(found.timestamp >= before.timestamp, "{found:?} is less than was seen before");
            before = found;
        }
        let last = index.last_entry();
        assert!(last.offset >= before.offset);

        writer.join().unwrap();
        assert_eq!(index.lookup(Timestamp::new(i64::MAX)).offset, Offset::new(115));
    });
}
