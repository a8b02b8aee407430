//! Entries that no index would have written: found by the checks, survived by everything else.

use kseg_format::{Offset, Timestamp};
use kseg_index::{Expected, Field, IndexError, MemoryRegion, OffsetIndex, TimeIndex};
use proptest::prelude::*;

fn offsets(base: i64, entries: &[(i32, i32)]) -> OffsetIndex<MemoryRegion> {
    let bytes: Vec<u8> = entries
        .iter()
        .flat_map(|(relative, position)| [relative.to_be_bytes(), position.to_be_bytes()].concat())
        .collect();
    OffsetIndex::new(Offset::new(base), MemoryRegion::from_bytes(&bytes), entries.len())
}

fn times(base: i64, entries: &[(i64, i32)]) -> TimeIndex<MemoryRegion> {
    let bytes: Vec<u8> = entries
        .iter()
        .flat_map(|(time, relative)| [&time.to_be_bytes()[..], &relative.to_be_bytes()].concat())
        .collect();
    TimeIndex::new(Offset::new(base), MemoryRegion::from_bytes(&bytes), entries.len())
}

fn corrupt(position: u64, field: Field, expected: Expected, found: i64) -> Result<(), IndexError> {
    Err(IndexError::Corrupt { position, field, expected, found })
}

#[test]
fn full_check_of_an_offset_index_names_the_first_wrong_column() {
    use Field::{Offset, Position};
    assert_eq!(offsets(100, &[]).check_against(0), Ok(()));
    assert_eq!(offsets(100, &[(0, 0)]).check_against(0), corrupt(0, Position, Expected::Below(0), 0));
    assert_eq!(offsets(100, &[(5, 10), (9, 20)]).check_against(21), Ok(()));
    assert_eq!(
        offsets(100, &[(5, 10), (9, 20)]).check_against(20),
        corrupt(8, Position, Expected::Below(20), 20)
    );
    assert_eq!(
        offsets(100, &[(5, 10), (5, 20)]).check_against(99),
        corrupt(8, Offset, Expected::Above(105), 105)
    );
    assert_eq!(
        offsets(100, &[(5, 10), (6, 10), (7, 20)]).check_against(99),
        corrupt(8, Position, Expected::Above(10), 10)
    );
    assert_eq!(
        offsets(100, &[(-5, 10), (6, 11)]).check_against(99),
        corrupt(0, Offset, Expected::AtLeast(100), 95)
    );
    assert_eq!(
        offsets(100, &[(5, -1)]).check_against(99),
        corrupt(0, Position, Expected::Below(99), i64::from(u32::MAX))
    );
    let past_the_end = offsets(i64::MAX - 3, &[(4, 10)]);
    assert!(past_the_end.check_against(99).is_err());
    assert_eq!(past_the_end.lookup(kseg_format::Offset::new(i64::MAX)).position, 0);
}

#[test]
fn kafkas_check_of_an_offset_index_looks_at_the_last_entry_alone() {
    assert_eq!(offsets(100, &[(-5, 10), (6, 11)]).check(16), Ok(()));
    assert_eq!(
        offsets(100, &[(5, 10), (-6, 11)]).check(16),
        corrupt(8, Field::Offset, Expected::AtLeast(100), 94)
    );
}

#[test]
fn full_check_of_a_time_index_names_the_first_wrong_column() {
    let end = Offset::new(110);
    assert_eq!(times(100, &[]).check_against(Offset::new(100)), Ok(()));
    assert_eq!(times(100, &[(0, 0), (1, 9), (2, 9)]).check_against(end), Ok(()));
    assert_eq!(
        times(100, &[(0, 0), (0, 9)]).check_against(end),
        corrupt(12, Field::Timestamp, Expected::Above(0), 0)
    );
    assert_eq!(
        times(100, &[(5, 9), (6, 8), (7, 9)]).check_against(end),
        corrupt(12, Field::Offset, Expected::AtLeast(109), 108)
    );
    assert_eq!(
        times(100, &[(5, 9), (6, 10)]).check_against(end),
        corrupt(12, Field::Offset, Expected::Below(110), 110)
    );
    assert_eq!(
        times(100, &[(-1, 0)]).check_against(end),
        corrupt(0, Field::Timestamp, Expected::AtLeast(0), -1)
    );
    assert_eq!(
        times(100, &[(1, -1)]).check_against(end),
        corrupt(0, Field::Offset, Expected::AtLeast(100), 99)
    );
}

#[test]
fn padding_behind_good_entries_is_found() {
    let mut bytes = offsets(100, &[(5, 10), (9, 20)]).region().to_bytes();
    bytes.resize(800, 0);
    let padded = OffsetIndex::new(Offset::new(100), MemoryRegion::from_bytes(&bytes), 100);
    assert_eq!(padded.check_against(1000), corrupt(792, Field::Offset, Expected::Above(100), 100));
    let two = OffsetIndex::new(Offset::new(100), MemoryRegion::from_bytes(&bytes), 2);
    assert_eq!(two.check_against(1000), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        entries in 0_usize..40,
        base in prop_oneof![any::<i64>(), Just(0), Just(i64::MAX), Just(i64::MIN)],
        target in any::<i64>(),
        position in any::<u32>(),
        size in any::<u64>(),
    ) {
        let base = Offset::new(base);
        let target_offset = Offset::new(target);

        let index = OffsetIndex::new(base, MemoryRegion::from_bytes(&bytes), entries);
        let valid = index.valid_len();
        prop_assert!(valid <= bytes.len());
        index.lookup(target_offset);
        index.upper_bound(position, size);
        index.last_offset();
        prop_assert_eq!(index.iter().count(), index.entries());
        let (_, _) = (index.check(bytes.len() as u64), index.check_against(size));
        prop_assert_eq!(&index.region().to_bytes(), &bytes, "nothing but a change changes a byte");
        let _ = index.append(target_offset, position);
        index.truncate_to(target_offset);
        index.zero_behind();

        let index = TimeIndex::new(base, MemoryRegion::from_bytes(&bytes), entries);
        index.lookup(Timestamp::new(target));
        index.last_entry();
        prop_assert_eq!(index.iter().count(), index.entries());
        let (_, _) = (index.check(bytes.len() as u64), index.check_against(target_offset));
        prop_assert_eq!(&index.region().to_bytes(), &bytes, "nothing but a change changes a byte");
        let _ = index.maybe_append(Timestamp::from_raw(size as i64), target_offset, true);
        index.truncate_to(target_offset);
        index.zero_behind();
    }
}
