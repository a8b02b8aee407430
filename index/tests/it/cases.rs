//! Faults that were reported against storage layers, as far as an index alone can have them.

use kseg_format::{Offset, Timestamp};
use kseg_index::{IndexError, MemoryRegion, OffsetIndex, TimeIndex, entries_in};

use crate::{M, at, offset_index, resized, resized_time, time_index, when};

#[test]
fn idx_01_single_entry_at_the_base_offset_is_sound() {
    let bytes = [0, 0, 0, 0, 0, 0, 0x10, 0x68];
    let index = OffsetIndex::new(Offset::new(6_911_940), MemoryRegion::from_bytes(&bytes), 1);
    assert_eq!(index.check(8), Ok(()));
    assert_eq!(index.check_against(4201), Ok(()));
    assert_eq!(index.lookup(Offset::new(6_911_940)), at(6_911_940, 4200));
}

#[test]
fn idx_02_untrimmed_padding_is_not_taken_for_entries() {
    let offsets = OffsetIndex::new(
        Offset::ZERO,
        MemoryRegion::new(10_485_760),
        entries_in(10_485_760, OffsetIndex::<MemoryRegion>::ENTRY_LEN),
    );
    assert_eq!((offsets.entries(), offsets.is_full()), (1_310_720, true));
    assert_eq!(offsets.check(10_485_760), Ok(()), "Kafka's own check passes it");
    let error = offsets.check_against(3000).unwrap_err();
    assert!(matches!(error, IndexError::Corrupt { position: 10_485_752, .. }), "{error:?}");

    let times = TimeIndex::new(
        Offset::ZERO,
        MemoryRegion::new(10_485_756),
        entries_in(10_485_756, TimeIndex::<MemoryRegion>::ENTRY_LEN),
    );
    assert_eq!((times.entries(), times.is_full()), (873_813, true));
    assert_eq!(times.check(10_485_756), Ok(()));
    assert!(matches!(times.check_against(Offset::new(3)), Err(IndexError::Corrupt { .. })));

    // Rebuilding begins with no entries at all.
    offsets.clear();
    assert!(!offsets.is_full());
    assert_eq!(offsets.check_against(3000), Ok(()));
}

#[test]
fn idx_03_emptied_index_has_its_capacity_back_over_a_full_length_region() {
    let index = offset_index(0, 1_310_720);
    index.append(Offset::new(5), 5000).unwrap();
    index.append(Offset::new(10), 10_000).unwrap();
    let trimmed = resized(&index, 16);
    assert!(trimmed.is_full());
    trimmed.truncate_to(Offset::ZERO);
    let index = OffsetIndex::new(Offset::ZERO, MemoryRegion::new(10_485_760), trimmed.entries());
    assert_eq!((index.entries(), index.max_entries(), index.is_full()), (0, 1_310_720, false));
}

#[test]
fn idx_04_offsets_fit_up_to_the_greatest_relative_offset() {
    let index = offset_index(0, 30);
    assert!(index.can_append(Offset::new(M)));
    assert!(!index.can_append(Offset::new(M + 1)));
    assert!(!index.can_append(Offset::new(M + 3)));
    assert!(!index.can_append(Offset::new(-1)));
    assert!(!offset_index(5_000_000_000, 30).can_append(Offset::new(0)));
}

#[test]
fn idx_05_entry_of_a_batch_is_found_from_its_last_offset_on() {
    let index = offset_index(0, 30);
    index.append(Offset::new(59), 5000).unwrap();
    index.append(Offset::new(109), 10_000).unwrap();
    assert_eq!(index.lookup(Offset::new(55)), at(0, 0));
    assert_eq!(index.lookup(Offset::new(59)), at(59, 5000));
    assert_eq!(index.lookup(Offset::new(60)), at(59, 5000));
    assert_eq!(index.lookup(Offset::new(109)), at(109, 10_000));
}

#[test]
fn idx_06_length_without_padding_is_known() {
    let offsets = offset_index(0, 1_310_720);
    offsets.append(Offset::new(5), 5000).unwrap();
    offsets.append(Offset::new(10), 10_000).unwrap();
    assert_eq!(offsets.valid_len(), 16);
    let times = time_index(0, 873_813);
    for n in [5, 10, 11] {
        times.maybe_append(Some(Timestamp::new(1000 + n)), Offset::new(n), n == 11).unwrap();
    }
    assert_eq!(times.valid_len(), 36);
}

#[test]
fn idx_07_truncation_keeps_exactly_the_entries_below_the_target() {
    let cuts = [(115, 2, 110), (112, 2, 110), (110, 1, 105), (105, 0, 100), (101, 0, 100), (120, 3, 115)];
    for (target, entries, last) in cuts {
        let index = offset_index(100, 30);
        for (offset, position) in [(105, 1000), (110, 2000), (115, 3000)] {
            index.append(Offset::new(offset), position).unwrap();
        }
        index.truncate_to(Offset::new(target));
        assert_eq!((index.entries(), index.last_offset()), (entries, Offset::new(last)), "{target}");
        index.append(Offset::new(300), 4000).unwrap();
        assert_eq!(index.entry(entries), Ok(at(300, 4000)));
        let stored = [0, 0, 0, 200, 0, 0, 0x0f, 0xa0];
        assert_eq!(index.region().to_bytes()[entries * 8..][..8], stored);

        let index = time_index(100, 30);
        for (timestamp, offset) in [(1000, 105), (2000, 110), (3000, 115)] {
            index.maybe_append(Some(Timestamp::new(timestamp)), Offset::new(offset), false).unwrap();
        }
        index.truncate_to(Offset::new(target));
        assert_eq!((index.entries(), index.last_offset()), (entries, Offset::new(last)), "{target}");
        index.maybe_append(Some(Timestamp::new(4000)), Offset::new(300), false).unwrap();
        assert_eq!(index.entry(entries), Ok(when(4000, 300)));
    }
}

#[test]
fn idx_10_partial_entry_is_corruption_and_never_read() {
    let mut bytes = vec![0, 0, 0, 5, 0, 0, 0x13, 0x88, 0, 0, 0, 10, 0, 0, 0x27, 0x10];
    bytes.extend([1, 2, 3, 4]);
    let offsets = OffsetIndex::new(Offset::ZERO, MemoryRegion::from_bytes(&bytes), entries_in(20, 8));
    assert!(matches!(offsets.check(20), Err(IndexError::Corrupt { position: 20, .. })));
    assert_eq!(offsets.entries(), 2);
    assert_eq!(offsets.lookup(Offset::new(i64::MAX)), at(10, 10_000));
    assert!(matches!(offsets.append(Offset::new(11), 11_000), Err(IndexError::Full { .. })));
    let longer = resized(&offsets, 80);
    longer.zero_behind();
    longer.append(Offset::new(15), 15_000).unwrap();
    assert_eq!(longer.region().to_bytes()[16..24], [0, 0, 0, 15, 0, 0, 0x3a, 0x98]);
    assert_eq!(longer.region().to_bytes()[24..], [0; 56]);

    let times = time_index(0, 30);
    for (timestamp, offset) in [(7, 5), (9, 10)] {
        times.maybe_append(Some(Timestamp::new(timestamp)), Offset::new(offset), false).unwrap();
    }
    let times = resized_time(&times, 25);
    assert!(matches!(times.check(25), Err(IndexError::Corrupt { position: 25, .. })));
    assert_eq!((times.entries(), times.last_entry()), (2, when(9, 10)));
}
