//! The time index: what is appended, ignored, found, refused and kept.

use kseg_format::{Offset, Timestamp};
use kseg_index::{IndexError, MemoryRegion, TimeIndex, entries_in, round_down};

use crate::{M, resized_time, time_index, when};

fn append(index: &TimeIndex<MemoryRegion>, timestamp: i64, offset: i64) -> Result<bool, IndexError> {
    index.maybe_append(Timestamp::from_raw(timestamp), Offset::new(offset), false)
}

fn append_at_roll(index: &TimeIndex<MemoryRegion>, timestamp: i64, offset: i64) -> Result<bool, IndexError> {
    index.maybe_append(Timestamp::from_raw(timestamp), Offset::new(offset), true)
}

/// (10, 55), (20, 65), …, as many as are asked for, base 45, room for 30.
fn with(entries: i64) -> TimeIndex<MemoryRegion> {
    let index = time_index(45, 30);
    for n in 1..=entries {
        assert_eq!(append(&index, 10 * n, 45 + 10 * n), Ok(true));
    }
    index
}

fn name_of<T: std::fmt::Debug>(result: Result<T, IndexError>) -> &'static str {
    result.unwrap_err().kafka_name()
}

#[test]
fn log_edge_20_empty_index_knows_no_time() {
    let index = time_index(45, 30);
    assert_eq!(index.lookup(Timestamp::new(100)), when(-1, 45));
    assert_eq!(index.last_entry(), when(-1, 45));
    assert_eq!(index.last_offset(), Offset::new(45));
}

#[test]
fn log_edge_21_lookup_finds_the_greatest_timestamp_at_or_below() {
    let index = with(29);
    assert_eq!(index.lookup(Timestamp::new(9)), when(-1, 45));
    assert_eq!(index.lookup(Timestamp::new(25)), when(20, 65));
    assert_eq!(index.lookup(Timestamp::new(30)), when(30, 75));
    assert_eq!(index.lookup(Timestamp::new(i64::MAX)), when(290, 335));
    assert_eq!(index.lookup(Timestamp::new(i64::MIN)), when(-1, 45));
}

#[test]
fn log_edge_22_last_slot_is_kept_for_the_entry_of_a_roll() {
    let index = with(29);
    assert!(index.is_full());
    assert_eq!(name_of(append(&index, 10_000, 1000)), "IllegalArgumentException");
    assert_eq!(name_of(append_at_roll(&index, 10_000, 280)), "InvalidOffsetException");
    assert_eq!(append_at_roll(&index, 10_000, 1000), Ok(true));
    assert_eq!(index.last_entry(), when(10_000, 1000));
    assert_eq!(index.entries(), 30);
    let no_room = append_at_roll(&index, 10_001, 1000);
    assert_eq!(no_room, Err(IndexError::Full { entries: 30, max_entries: 30 }));
    assert_eq!(append_at_roll(&index, 10_000, 1001), Ok(false));
}

#[test]
fn log_edge_23_truncation_to_the_first_entry_leaves_none() {
    let index = with(29);
    index.truncate_to(Offset::new(55));
    assert_eq!((index.entries(), index.last_entry()), (0, when(-1, 45)));
    let index = with(29);
    index.clear();
    assert_eq!((index.entries(), index.last_entry()), (0, when(-1, 45)));
    assert_eq!(append(&index, 5, 46), Ok(true));
}

#[test]
fn log_edge_24_only_a_later_timestamp_is_stored() {
    for (timestamp, offset, stored) in [(20, 65, false), (20, 70, false), (21, 65, true)] {
        let index = with(2);
        assert_eq!(append(&index, timestamp, offset), Ok(stored));
        assert_eq!(index.entries(), 2 + usize::from(stored));
        assert_eq!(index.last_entry(), if stored { when(timestamp, offset) } else { when(20, 65) });
    }
    let index = with(2);
    assert_eq!(name_of(append(&index, 19, 70)), "IllegalStateException");
    assert_eq!(name_of(append(&index, 25, 64)), "InvalidOffsetException");
    assert_eq!(name_of(append(&index, 19, 64)), "InvalidOffsetException");
    assert_eq!(index.entries(), 2);
}

#[test]
fn log_edge_25_no_timestamp_is_never_stored() {
    let index = time_index(45, 30);
    assert_eq!(append(&index, -1, 45), Ok(false));
    assert_eq!(append(&index, -5, 45), Ok(false));
    assert_eq!(append(&index, -1, 45 + M + 1), Ok(false));
    assert_eq!(index.entries(), 0);
    assert_eq!(append(&index, 0, 45), Ok(true));
}

#[test]
fn log_edge_26_checks_find_offset_below_base_descending_time_and_stray_bytes() {
    assert_eq!(time_index(45, 30).check(360), Ok(()));
    assert_eq!(with(5).check(60), Ok(()));
    assert_eq!(name_of(with(5).check(61)), "CorruptIndexException");

    let bytes = with(2).region().to_bytes();
    let with_words = |changes: &[(usize, u8)]| {
        let mut bytes = bytes.clone();
        for &(place, byte) in changes {
            bytes[place] = byte;
        }
        TimeIndex::new(Offset::new(45), MemoryRegion::from_bytes(&bytes), 2)
    };
    let below_base = with_words(&[(12 + 8, 0xff)]).check(24).unwrap_err();
    assert!(below_base.to_string().starts_with("corrupt index at position 12: offset is -"));
    let descending = with_words(&[(7, 200)]).check(24).unwrap_err();
    assert_eq!(
        descending.to_string(),
        "corrupt index at position 12: timestamp is 20, expected at least 200"
    );
}

#[test]
fn log_edge_27_another_length_keeps_the_entries() {
    let index = with(3);
    let last = index.last_entry();
    for len in [360, 180, 720, 36] {
        let resized = resized_time(&index, len);
        assert_eq!((resized.entries(), resized.last_entry()), (3, last));
        assert_eq!(resized.max_entries(), len / 12);
    }
}

#[test]
fn log_edge_28_smallest_sizes_of_a_time_index() {
    assert_eq!(round_down(8, 12), 0);
    let one = time_index(0, round_down(12, 12) / 12);
    assert_eq!((one.max_entries(), one.is_full()), (1, true));
    assert_eq!(name_of(append(&one, 1, 0)), "IllegalArgumentException");
    assert_eq!(append_at_roll(&one, 1, 0), Ok(true));
    let two = time_index(0, round_down(24, 12) / 12);
    assert_eq!((two.max_entries(), two.is_full()), (2, false));
    assert_eq!(append(&two, 1, 0), Ok(true));
    assert!(two.is_full());
    assert_eq!(append_at_roll(&two, 2, 1), Ok(true));
    let none = time_index(0, 0);
    assert_eq!((none.max_entries(), none.is_full()), (0, true));
}

#[test]
fn log_edge_263_entries_and_their_bytes() {
    let index = time_index(45, 30);
    assert_eq!(index.entry(0), Err(IndexError::NoSuchEntry { entry: 0, entries: 0 }));
    assert_eq!(name_of(index.entry(0)), "IllegalArgumentException");
    let pairs = [(10, 55), (20, 65), (30, 75), (40, 85)];
    for (timestamp, offset) in pairs {
        append(&index, timestamp, offset).unwrap();
    }
    for (n, (timestamp, offset)) in pairs.into_iter().enumerate() {
        assert_eq!(index.entry(n), Ok(when(timestamp, offset)));
    }
    assert!(index.iter().eq(pairs.map(|(timestamp, offset)| when(timestamp, offset))));

    let index = time_index(45, 30);
    append(&index, 1, 46).unwrap();
    assert_eq!(index.region().to_bytes()[..12], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
}

#[test]
fn offset_out_of_range_writes_nothing() {
    for offset in [44, 45 + M + 1, i64::MIN, i64::MAX] {
        let index = time_index(45, 30);
        assert_eq!(name_of(append(&index, 10, offset)), "IndexOffsetOverflowException");
        assert_eq!(index.region().to_bytes(), [0; 360]);
        assert!(!index.can_append(Offset::new(offset)));
    }
    let index = time_index(45, 30);
    assert_eq!(append(&index, i64::MAX, 45 + M), Ok(true));
    assert_eq!(index.lookup(Timestamp::new(i64::MAX)), when(i64::MAX, 45 + M));
}

#[test]
fn truncation_drops_all_entries_of_equal_offsets() {
    let index = time_index(45, 30);
    for (timestamp, offset) in [(1, 50), (2, 60), (3, 60), (4, 60), (5, 70)] {
        append(&index, timestamp, offset).unwrap();
    }
    let keep = |target, entries, last| {
        let copy = resized_time(&index, 360);
        copy.truncate_to(Offset::new(target));
        assert_eq!((copy.entries(), copy.last_entry()), (entries, last), "{target}");
        let kept = copy.valid_len();
        assert!(copy.region().to_bytes()[kept..].iter().all(|&byte| byte == 0));
    };
    keep(71, 5, when(5, 70));
    keep(70, 4, when(4, 60));
    keep(61, 4, when(4, 60));
    keep(60, 1, when(1, 50));
    keep(50, 0, when(-1, 45));
    keep(45, 0, when(-1, 45));
    keep(0, 0, when(-1, 45));
    keep(i64::MAX, 5, when(5, 70));
    keep(i64::MIN, 0, when(-1, 45));
}

#[test]
fn warm_section_answers_as_a_plain_search() {
    let index = time_index(0, 3001);
    for n in 0..3000 {
        append(&index, 10 + 3 * n, n).unwrap();
    }
    let first_warm = 3000 - 1 - 682;
    for n in (0..50).chain(first_warm - 50..first_warm + 50).chain(2950..3000) {
        assert_eq!(index.lookup(Timestamp::new(10 + 3 * n)), when(10 + 3 * n, n));
        assert_eq!(index.lookup(Timestamp::new(12 + 3 * n)), when(10 + 3 * n, n));
        let below = if n == 0 { when(-1, 0) } else { when(7 + 3 * n, n - 1) };
        assert_eq!(index.lookup(Timestamp::new(9 + 3 * n)), below);
    }
}

#[test]
fn trimmed_file_is_reopened_with_all_its_entries() {
    let index = with(4);
    let trimmed = resized_time(&index, index.valid_len());
    let bytes = trimmed.region().to_bytes();
    let reopened =
        TimeIndex::new(Offset::new(45), MemoryRegion::from_bytes(&bytes), entries_in(bytes.len() as u64, 12));
    assert_eq!((reopened.entries(), reopened.last_entry()), (4, when(40, 85)));
    assert!(reopened.is_full());
    assert_eq!(name_of(append_at_roll(&reopened, 50, 95)), "IllegalArgumentException");
}
