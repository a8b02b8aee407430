//! Both indexes against sorted maps: any calls, in any order, with any padding behind the entries.

use std::collections::BTreeMap;

use kseg_format::{Offset, Timestamp};
use kseg_index::{MemoryRegion, OffsetIndex, TimeIndex};
use proptest::prelude::*;

use crate::{at, when};

const BASE: i64 = 1000;
const ROOM: usize = 40;

#[derive(Debug, Clone)]
enum Step {
    /// Appends so far behind the last entry; 0 and below are refused.
    Append {
        offset_step: i64,
        other_step: i64,
    },
    /// Truncates at an offset so far from the base.
    TruncateTo(i64),
    Clear,
    /// Trims to the entries and extends again.
    Trim,
    /// Reopens with so many bytes of this value behind the entries, and has them zeroed.
    ReopenOver(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (-1_i64..9, -1_i64..50)
            .prop_map(|(offset_step, other_step)| Step::Append { offset_step, other_step }),
        2 => (-5_i64..200).prop_map(Step::TruncateTo),
        1 => Just(Step::Clear),
        1 => Just(Step::Trim),
        1 => any::<u8>().prop_map(Step::ReopenOver),
    ];
    proptest::collection::vec(step, 0..120)
}

/// The first `valid` bytes of a region, then `fill` up to `len`.
fn refilled(region: &MemoryRegion, valid: usize, len: usize, fill: u8) -> MemoryRegion {
    let mut bytes = region.to_bytes();
    bytes.truncate(valid);
    bytes.resize(len, fill);
    MemoryRegion::from_bytes(&bytes)
}

fn zero_behind(region: &MemoryRegion, valid: usize) -> bool {
    region.to_bytes()[valid..].iter().all(|&byte| byte == 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn offset_index_is_a_sorted_map(steps in steps()) {
        let mut index = OffsetIndex::new(Offset::new(BASE), MemoryRegion::new(ROOM * 8), 0);
        let mut map: BTreeMap<i64, u32> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Append { offset_step, other_step } => {
                    let last = map.last_key_value().map_or((BASE - 1, 0), |(&offset, &position)| (offset, position));
                    let offset = last.0 + offset_step;
                    let position = last.1 + other_step.max(1) as u32;
                    let fits = map.len() < ROOM && offset > last.0;
                    prop_assert_eq!(index.append(Offset::new(offset), position).is_ok(), fits);
                    if fits {
                        map.insert(offset, position);
                    }
                }
                Step::TruncateTo(ahead) => {
                    index.truncate_to(Offset::new(BASE + ahead));
                    map.split_off(&(BASE + ahead));
                }
                Step::Clear => {
                    index.clear();
                    map.clear();
                }
                Step::Trim => {
                    let trimmed = refilled(index.region(), index.valid_len(), index.valid_len(), 0);
                    let trimmed = OffsetIndex::new(Offset::new(BASE), trimmed, usize::MAX);
                    prop_assert_eq!(trimmed.entries(), map.len());
                    prop_assert!(trimmed.is_full());
                    let longer = refilled(trimmed.region(), trimmed.valid_len(), ROOM * 8, 0);
                    index = OffsetIndex::new(Offset::new(BASE), longer, trimmed.entries());
                }
                Step::ReopenOver(fill) => {
                    let stale = refilled(index.region(), index.valid_len(), ROOM * 8, fill);
                    index = OffsetIndex::new(Offset::new(BASE), stale, map.len());
                    index.zero_behind();
                }
            }
            prop_assert_eq!(index.entries(), map.len());
            prop_assert_eq!(index.is_full(), map.len() == ROOM);
            prop_assert_eq!(index.last_offset().get(), map.last_key_value().map_or(BASE, |(&offset, _)| offset));
            prop_assert!(zero_behind(index.region(), index.valid_len()));
            prop_assert_eq!(index.check_against(u64::from(u32::MAX)), Ok(()));
        }
        for target in BASE - 2..BASE + 40 * 9 {
            let floor = map.range(..=target).next_back().map_or(at(BASE, 0), |(&offset, &position)| at(offset, position));
            prop_assert_eq!(index.lookup(Offset::new(target)), floor);
        }
        for end in 0..40 * 50_u32 {
            let bound = map.iter().find(|&(_, &position)| position >= end).map(|(&offset, &position)| at(offset, position));
            prop_assert_eq!(index.upper_bound(end / 3, u64::from(end - end / 3)), bound);
        }
    }

    #[test]
    fn time_index_is_a_sorted_map(steps in steps()) {
        let mut index = TimeIndex::new(Offset::new(BASE), MemoryRegion::new(ROOM * 12), 0);
        // Timestamp to offset; offsets never descend.
        let mut map: BTreeMap<i64, i64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Append { offset_step, other_step } => {
                    let last = map.last_key_value().map_or((-1, BASE), |(&time, &offset)| (time, offset));
                    let (time, offset) = (last.0 + other_step, last.1 + offset_step);
                    let full = map.len() + 1 >= ROOM;
                    let refused = full || (!map.is_empty() && (offset < last.1 || time < last.0))
                        || (time > last.0 && offset < BASE);
                    let done = index.maybe_append(Timestamp::from_raw(time), Offset::new(offset), false);
                    prop_assert_eq!(done.is_err(), refused);
                    if let Ok(stored) = done {
                        prop_assert_eq!(stored, time > last.0);
                        if stored {
                            map.insert(time, offset);
                        }
                    }
                }
                Step::TruncateTo(ahead) => {
                    index.truncate_to(Offset::new(BASE + ahead));
                    map.retain(|_, offset| *offset < BASE + ahead);
                }
                Step::Clear => {
                    index.clear();
                    map.clear();
                }
                Step::Trim => {
                    let trimmed = refilled(index.region(), index.valid_len(), index.valid_len(), 0);
                    let trimmed = TimeIndex::new(Offset::new(BASE), trimmed, usize::MAX);
                    prop_assert_eq!(trimmed.entries(), map.len());
                    let longer = refilled(trimmed.region(), trimmed.valid_len(), ROOM * 12, 0);
                    index = TimeIndex::new(Offset::new(BASE), longer, trimmed.entries());
                }
                Step::ReopenOver(fill) => {
                    let stale = refilled(index.region(), index.valid_len(), ROOM * 12, fill);
                    index = TimeIndex::new(Offset::new(BASE), stale, map.len());
                    index.zero_behind();
                }
            }
            let last = map.last_key_value().map_or(when(-1, BASE), |(&time, &offset)| when(time, offset));
            prop_assert_eq!((index.entries(), index.last_entry()), (map.len(), last));
            prop_assert!(zero_behind(index.region(), index.valid_len()));
            prop_assert_eq!(index.check_against(Offset::new(i64::MAX)), Ok(()));
        }
        for target in -2..40 * 50 {
            let floor = map.range(..=target).next_back().map_or(when(-1, BASE), |(&time, &offset)| when(time, offset));
            prop_assert_eq!(index.lookup(Timestamp::new(target)), floor);
        }
    }
}
