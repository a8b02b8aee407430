//! The offset index: what is appended, found, refused and kept.

use std::collections::BTreeMap;

use kseg_format::Offset;
use kseg_index::{IndexError, MemoryRegion, OffsetIndex, Region, entries_in, round_down};

use crate::{M, at, offset_index, resized};

fn filled(base: i64, max_entries: usize, entries: &[(i64, u32)]) -> OffsetIndex<MemoryRegion> {
    let index = offset_index(base, max_entries);
    for &(offset, position) in entries {
        index.append(Offset::new(offset), position).unwrap();
    }
    index
}

#[test]
fn log_edge_1_lookup_in_an_empty_index_gives_the_base_and_position_0() {
    let index = offset_index(45, 30);
    assert_eq!(index.lookup(Offset::new(45)), at(45, 0));
    assert_eq!(index.lookup(Offset::new(92)), at(45, 0));
    assert_eq!(index.last_offset(), Offset::new(45));
    assert_eq!(index.entries(), 0);
}

#[test]
fn log_edge_2_lookup_finds_every_one_of_thirty_entries() {
    let index = offset_index(45, 30);
    for n in 0..30 {
        index.append(Offset::new(46 + i64::from(n)), n).unwrap();
    }
    assert_eq!(index.lookup(Offset::new(45)), at(45, 0));
    for n in 0..30 {
        assert_eq!(index.lookup(Offset::new(46 + i64::from(n))), at(46 + i64::from(n), n));
    }
    assert_eq!(index.lookup(Offset::new(75)), at(75, 29));
    assert_eq!(index.lookup(Offset::new(i64::MAX)), at(75, 29));
}

#[test]
fn log_edge_3_lookup_is_the_floor_of_a_sorted_map() {
    let index = offset_index(45, 30);
    let mut map = BTreeMap::new();
    // A fixed scramble of steps in place of random ones; the property tests draw theirs.
    let (mut offset, mut position) = (45, 0);
    for n in 0..30_u32 {
        offset += 1 + i64::from(n * 7919 % 13);
        position += 1 + n * 104_729 % 997;
        index.append(Offset::new(offset), position).unwrap();
        map.insert(offset, position);
    }
    for target in 0..offset + 20 {
        let floor =
            map.range(..=target).next_back().map_or(at(45, 0), |(&offset, &position)| at(offset, position));
        assert_eq!(index.lookup(Offset::new(target)), floor, "{target}");
    }
}

#[test]
fn log_edge_4_entry_0_of_an_empty_index_is_refused() {
    let error = offset_index(45, 30).entry(0).unwrap_err();
    assert_eq!(error, IndexError::NoSuchEntry { entry: 0, entries: 0 });
    assert_eq!(error.kafka_name(), "IllegalArgumentException");
}

#[test]
fn log_edge_5_entry_past_the_last_slot_is_refused() {
    let index = offset_index(45, 30);
    for n in 0..30 {
        assert!(!index.is_full());
        index.append(Offset::new(46 + i64::from(n)), n).unwrap();
    }
    assert!(index.is_full());
    let error = index.append(Offset::new(46 + 30), 30).unwrap_err();
    assert_eq!(error, IndexError::Full { entries: 30, max_entries: 30 });
    assert_eq!(error.kafka_name(), "IllegalArgumentException");
}

#[test]
fn log_edge_6_offset_at_or_below_the_last_is_refused() {
    for offset in [50, 51] {
        let index = filled(45, 30, &[(51, 0)]);
        let error = index.append(Offset::new(offset), 1).unwrap_err();
        assert!(matches!(error, IndexError::NotIncreasing { last: 51, .. }), "{error:?}");
        assert_eq!(error.kafka_name(), "InvalidOffsetException");
        assert_eq!(index.entries(), 1);
    }
}

#[test]
fn log_edge_7_first_entry_may_be_at_the_base_offset() {
    let index = filled(20, 30, &[(20, 0)]);
    assert_eq!(index.check(8), Ok(()));
    assert_eq!(index.check_against(1), Ok(()));
    assert_eq!(index.lookup(Offset::new(20)), at(20, 0));
}

#[test]
fn log_edge_8_upper_bound_is_the_first_entry_at_or_behind_the_end() {
    let index = filled(45, 30, &[(45, 0), (46, 10), (47, 23), (48, 37)]);
    assert_eq!(index.upper_bound(0, 5), Some(at(46, 10)));
    assert_eq!(index.upper_bound(0, 10), Some(at(46, 10)));
    assert_eq!(index.upper_bound(0, 22), Some(at(47, 23)));
    assert_eq!(index.upper_bound(0, 23), Some(at(47, 23)));
    assert_eq!(index.upper_bound(0, 200), None);
    assert_eq!(index.upper_bound(0, 0), Some(at(45, 0)));
}

#[test]
fn log_edge_9_upper_bound_from_a_position_inside() {
    let index = filled(45, 30, &[(45, 0), (46, 10), (47, 23), (48, 37)]);
    assert_eq!(index.upper_bound(10, 24), Some(at(48, 37)));
    assert_eq!(index.upper_bound(37, 1), None);
    assert_eq!(index.upper_bound(10, 200), None);
    assert_eq!(offset_index(45, 30).upper_bound(0, 5), None);
}

#[test]
fn log_edge_10_upper_bound_does_not_wrap_around() {
    let index = filled(45, 30, &[(45, 0), (46, 10), (47, M as u32)]);
    assert_eq!(index.upper_bound(M as u32, M as u64), None);
    assert_eq!(index.upper_bound(u32::MAX, u64::MAX), None);
    assert_eq!(index.upper_bound(M as u32, 0), Some(at(47, M as u32)));
}

#[test]
fn log_edge_11_trimmed_and_reopened_index_is_full_and_answers_as_before() {
    let index = filled(45, 30, &[(51, 0), (52, 1)]);
    assert_eq!(index.valid_len(), 16);
    let trimmed = resized(&index, index.valid_len());
    let reopened = OffsetIndex::new(
        Offset::new(45),
        MemoryRegion::from_bytes(&trimmed.region().to_bytes()),
        entries_in(16, 8),
    );
    assert_eq!(reopened.entries(), 2);
    assert_eq!(reopened.last_offset(), Offset::new(52));
    assert_eq!(reopened.lookup(Offset::new(50)), at(45, 0));
    assert_eq!(reopened.lookup(Offset::new(51)), at(51, 0));
    assert_eq!(reopened.lookup(Offset::new(60)), at(52, 1));
    let error = reopened.append(Offset::new(53), 2).unwrap_err();
    assert_eq!(error.kafka_name(), "IllegalArgumentException");
}

#[test]
fn log_edge_12_truncation_behind_the_last_entry_changes_nothing() {
    let entries: Vec<_> = (1..10).map(|n| (n, n as u32)).collect();
    let index = filled(0, 30, &entries);
    index.truncate_to(Offset::new(12));
    assert_eq!(index.entries(), 9);
    assert_eq!(index.lookup(Offset::new(10)), at(9, 9));
}

#[test]
fn log_edge_13_truncation_at_on_and_between_entries_leaves_room_to_append() {
    let entries: Vec<_> = (1..10).map(|n| (n, n as u32)).collect();
    let index = filled(0, 30, &entries);
    index.append(Offset::new(10), 10).unwrap();
    index.truncate_to(Offset::new(10));
    assert_eq!(index.last_offset(), Offset::new(9));
    index.append(Offset::new(10), 10).unwrap();
    index.truncate_to(Offset::new(9));
    assert_eq!(index.last_offset(), Offset::new(8));
    index.append(Offset::new(9), 9).unwrap();
    index.truncate_to(Offset::new(5));
    assert_eq!(index.last_offset(), Offset::new(4));
    index.append(Offset::new(5), 5).unwrap();
    index.clear();
    assert_eq!((index.entries(), index.last_offset()), (0, Offset::new(0)));
    index.append(Offset::new(1), 1).unwrap();
    assert_eq!(index.lookup(Offset::new(1)), at(1, 1));
}

#[test]
fn log_edge_15_lengths_are_rounded_down_to_whole_entries() {
    assert_eq!(round_down(30, 8), 24);
    assert_eq!(round_down(7, 8), 0);
    assert_eq!(round_down(10_485_760, 8), 10_485_760);
    assert_eq!(round_down(10_485_760, 12), 10_485_756);
    assert_eq!((entries_in(10_485_760, 8), entries_in(10_485_756, 12)), (1_310_720, 873_813));
}

#[test]
fn log_edge_16_relative_offsets_reach_from_0_to_the_greatest_i32() {
    for base in [0, 45, 1 << 40, i64::MAX - M] {
        let index = offset_index(base, 30);
        index.append(Offset::new(base + M), 7).unwrap();
        assert_eq!(index.lookup(Offset::new(i64::MAX)), at(base + M, 7));
        assert!(index.can_append(Offset::new(base)) && index.can_append(Offset::new(base + M)));
    }
    for offset in [45 + M + 1, 44, i64::MIN, i64::MAX, 45 - (1 << 33)] {
        let index = offset_index(45, 30);
        let error = index.append(Offset::new(offset), 7).unwrap_err();
        assert_eq!(error, IndexError::OffsetOverflow { base: Offset::new(45), offset: Offset::new(offset) });
        assert_eq!(error.kafka_name(), "IndexOffsetOverflowException");
        assert!(!index.can_append(Offset::new(offset)));
        assert!(index.region().to_bytes().iter().all(|&byte| byte == 0), "nothing is written");
        assert_eq!(index.entries(), 0);
    }
}

#[test]
fn log_edge_17_region_of_no_bytes_is_full_and_empty() {
    let index = OffsetIndex::new(Offset::new(45), MemoryRegion::new(0), 5);
    assert!(index.region().is_empty());
    assert_eq!((index.entries(), index.max_entries(), index.is_full()), (0, 0, true));
    assert_eq!(index.lookup(Offset::new(99)), at(45, 0));
    let index = resized(&index, 240);
    assert!(!index.is_full());
    index.append(Offset::new(46), 1).unwrap();
    assert_eq!(index.lookup(Offset::new(99)), at(46, 1));
}

#[test]
fn log_edge_18_stray_bytes_behind_whole_entries_are_found_and_never_read() {
    let mut bytes = filled(45, 2, &[(50, 10), (60, 20)]).region().to_bytes();
    bytes.extend([0xff; 5]);
    let index = OffsetIndex::new(Offset::new(45), MemoryRegion::from_bytes(&bytes), entries_in(21, 8));
    assert_eq!((index.entries(), index.is_full()), (2, true));
    assert_eq!(index.lookup(Offset::new(1000)), at(60, 20));
    let error = index.check(21).unwrap_err();
    assert_eq!(error.kafka_name(), "CorruptIndexException");
    assert_eq!(error.to_string(), "corrupt index at position 21: length is 21, expected a multiple of 8");
}

#[test]
fn log_edge_19_warm_section_answers_as_a_plain_search() {
    let index = offset_index(0, 5000);
    for n in 0..5000_i64 {
        index.append(Offset::new(10 + 3 * n), (100 * n) as u32).unwrap();
    }
    let first_warm = 5000 - 1 - 1024;
    for n in (0..60).chain(first_warm - 60..first_warm + 60).chain(4940..5000) {
        for (target, slot) in [(10 + 3 * n, n), (11 + 3 * n, n), (9 + 3 * n, n - 1)] {
            let found = if slot < 0 { at(0, 0) } else { at(10 + 3 * slot, (100 * slot) as u32) };
            assert_eq!(index.lookup(Offset::new(target)), found, "{target}");
        }
        let behind = |slot: i64| (slot < 5000).then(|| at(10 + 3 * slot, (100 * slot) as u32));
        assert_eq!(index.upper_bound((100 * n) as u32, 0), behind(n));
        assert_eq!(index.upper_bound((100 * n) as u32, 1), behind(n + 1));
    }
}

#[test]
fn log_edge_262_entry_at_the_base_offset_is_returned_like_any_other() {
    let index = offset_index(45, 30);
    for n in 0..30 {
        index.append(Offset::new(45 + i64::from(n)), n).unwrap();
    }
    for n in 0..30 {
        assert_eq!(index.entry(n), Ok(at(45 + n as i64, n as u32)));
    }
    assert!(index.iter().eq((0..30).map(|n| at(45 + n, n as u32))));
}

#[test]
fn entries_lie_in_the_region_as_in_kafkas_file() {
    let index = filled(45, 3, &[(0x0102_0304 + 45, 0x0a0b_0c0d), (M + 45, M as u32)]);
    let expected = [1, 2, 3, 4, 0x0a, 0x0b, 0x0c, 0x0d, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff];
    assert_eq!(index.region().to_bytes()[..16], expected);
    assert_eq!(index.region().to_bytes()[16..], [0; 8]);
}

#[test]
fn position_past_the_greatest_i32_is_refused() {
    let index = offset_index(45, 30);
    let error = index.append(Offset::new(46), 1 << 31).unwrap_err();
    assert_eq!(error, IndexError::PositionOverflow { position: 1 << 31 });
    assert_eq!(index.region().to_bytes(), [0; 240]);
}

#[test]
fn truncation_zeroes_the_entries_it_drops() {
    let index = filled(45, 4, &[(50, 1), (60, 2), (70, 3)]);
    index.truncate_to(Offset::new(60));
    assert_eq!(index.region().to_bytes()[8..], [0; 24]);
    index.clear();
    assert_eq!(index.region().to_bytes(), [0; 32]);
}

#[test]
fn bytes_that_someone_else_left_behind_the_entries_are_zeroed_on_request() {
    let mut bytes = filled(45, 3, &[(50, 1), (60, 2), (70, 3)]).region().to_bytes();
    bytes.extend([9, 9]);
    let index = OffsetIndex::new(Offset::new(45), MemoryRegion::from_bytes(&bytes), 1);
    assert_eq!(index.lookup(Offset::new(99)), at(50, 1));
    index.zero_behind();
    assert_eq!(index.region().to_bytes()[..24], [&bytes[..8], &[0; 16]].concat());
    assert_eq!(index.entries(), 1);
}

#[test]
fn index_that_claims_more_entries_than_it_has_room_for_has_as_many_as_fit() {
    let index = OffsetIndex::new(Offset::new(45), MemoryRegion::new(20), usize::MAX);
    assert_eq!((index.entries(), index.max_entries()), (2, 2));
}

#[test]
fn a_lookup_gives_the_entry_behind_too_where_there_is_one() {
    let index = filled(100, 4, &[(105, 10), (110, 20), (120, 30)]);
    assert_eq!(index.base(), Offset::new(100));
    let between = |target| index.lookup_between(Offset::new(target));
    assert_eq!(between(104), (at(100, 0), Some(at(105, 10))));
    assert_eq!(between(105), (at(105, 10), Some(at(110, 20))));
    assert_eq!(between(119), (at(110, 20), Some(at(120, 30))));
    assert_eq!(between(120), (at(120, 30), None));
    assert_eq!(filled(100, 4, &[]).lookup_between(Offset::new(104)), (at(100, 0), None));
}
