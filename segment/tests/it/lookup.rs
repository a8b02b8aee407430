use std::path::Path;
use std::sync::Arc;

use kseg_format::{Codec, Magic, Offset, Timestamp};
use kseg_io_backends::{Call, Metered};
use kseg_segment::{Segment, SegmentConfig};
use proptest::prelude::*;

use crate::support::*;

#[test]
fn log_edge_38_and_39_and_40_and_41_a_lookup_finds_the_batch_or_the_next_one() {
    let segment = segment(40, 4096, 1024);
    let read = |offset| read(&segment, offset, 300, Some(segment.size()), false);
    assert_eq!(read(40), None);
    append(&segment, 53, &sized(50, 4, 1, 100));
    assert_eq!(read(41), Some(((50, 0), 100)));
    assert_eq!((read(53), read(54)), (read(41), None));

    let segment = self::segment(40, 4096, 1024);
    let read = |offset| self::read(&segment, offset, 300, Some(segment.size()), false);
    append(&segment, 51, &sized(50, 2, 1, 100));
    assert_eq!(read(52), None);
    append(&segment, 61, &sized(60, 2, 1, 100));
    assert_eq!(read(55), Some(((60, 100), 100)));
    assert_eq!(read(62), None);
}

#[test]
fn log_edge_42_without_a_bound_a_read_tells_the_place_and_no_bytes() {
    let segment = segment(40, 4096, 1024);
    let bytes = messages(Magic::V1, Codec::None, &[(50, 1), (51, 1)]);
    assert_eq!(bytes.len(), 2 * 39);
    append(&segment, 51, &bytes);
    for min_one in [false, true] {
        let read = |offset| read(&segment, offset, 1, None, min_one);
        assert_eq!((read(48), read(50)), (Some(((50, 0), 0)), Some(((50, 0), 0))));
        assert_eq!(read(51), Some(((51, 39), 0)));
        assert_eq!((read(52), read(53)), (None, None));
    }
}

#[test]
fn log_edge_79_a_search_goes_on_from_where_it_is_told_and_finds_the_next_batch() {
    let segment = segment(0, 1, 1024);
    for (n, offset) in [0, 1, 2, 50].into_iter().enumerate() {
        append(&segment, offset, &sized(offset, 1, n as i64, 69));
    }
    for (asked, found, position) in [(3, 50, 207), (50, 50, 207), (1, 1, 69)] {
        let read = read(&segment, asked, 300, Some(segment.size()), false);
        assert_eq!(read.map(|(place, _)| place), Some((found, position)), "{asked}");
    }
}

#[test]
fn log_edge_81_a_search_by_time_finds_the_first_record_that_reaches_it() {
    for magic in [Magic::V2, Magic::V1, Magic::V0] {
        let segment = segment(0, 1, 1024);
        for (offset, time) in [(5, 10), (6, 11)] {
            let bytes = match magic {
                Magic::V2 => sized(offset, 1, time, 69),
                old => messages(old, Codec::None, &[(offset, time)]),
            };
            append(&segment, offset, &bytes);
        }
        let find = |time| segment.find_by_timestamp(Timestamp::new(time), Offset::ZERO).expect("a lookup");
        let offsets = [9, 10, 11, 12].map(|time| find(time).map(|f| f.offset.get()));
        if magic == Magic::V0 {
            assert_eq!(offsets, [None; 4], "records of format 0 have no time");
            continue;
        }
        assert_eq!(offsets, [Some(5), Some(5), Some(6), None], "{magic:?}");
        // Only batches of format 2 tell of a leader epoch.
        assert_eq!(find(9).and_then(|f| f.leader_epoch).is_some(), magic == Magic::V2);
    }
}

#[test]
fn log_edge_272_a_walk_takes_the_first_batch_that_reaches_the_offset() {
    let filled = |batches: &[(i64, i64)]| {
        let segment = segment(0, 4096, 1024);
        for &(base, last) in batches {
            append(&segment, last, &sized(base, (last - base + 1) as usize, 1, 200));
        }
        segment
    };
    let find = |batches: &[(i64, i64)], offset| {
        read(&filled(batches), offset, 1, None, false).map(|(place, _)| place)
    };
    let two = [(5, 12), (15, 20)];
    assert_eq!(
        (find(&two, 10), find(&two, 13), find(&two, 20)),
        (Some((5, 0)), Some((15, 200)), Some((15, 200)))
    );
    assert_eq!((find(&[(5, 8)], 5), find(&[(10, 12)], 5)), (Some((5, 0)), Some((10, 0))));
    assert_eq!(find(&[(5, 7), (8, 9)], 10), None);
    assert_eq!(find(&[(5, 7), (8, 12)], 10), Some((8, 200)));
    assert_eq!(find(&[(5, 7), (10, 12)], 10), Some((10, 200)));
}

#[test]
fn log_edge_227_the_answer_names_the_base_of_the_batch_found() {
    let segment = segment(40, 4096, 1024);
    append(&segment, 53, &sized(50, 4, 1, 93));
    append(&segment, 61, &sized(60, 2, 1, 93));
    let read = |offset| {
        let read = segment.read(Offset::new(offset), 1000, Some(segment.size()), false).expect("a read");
        read.map(|r| (r.batch_base_offset.get(), r.position))
    };
    for offset in [41, 51, 53] {
        assert_eq!(read(offset), Some((50, 0)));
    }
    for offset in [54, 61] {
        assert_eq!(read(offset), Some((60, 93)));
    }
    assert_eq!(read(62), None);
}

#[test]
fn a_read_is_bounded_by_its_size_the_mark_and_the_first_batch() {
    let segment = segment(0, 4096, 1024);
    for n in 0..3 {
        append(&segment, n, &sized(n, 1, 1, 100));
    }
    let read = |max, end, min_one| {
        let read = segment.read(Offset::new(1), max, end, min_one).expect("a read").expect("a batch");
        (read.region.len(), read.first_incomplete)
    };
    assert_eq!(read(1000, Some(300), false), (200, false));
    assert_eq!(read(150, Some(300), false), (150, false));
    assert_eq!(read(1000, Some(200), false), (100, false));
    assert_eq!(read(1000, None, false), (0, false));
    assert_eq!(read(0, Some(300), false), (0, false));
    assert_eq!(read(1, Some(300), false), (1, true));
    assert_eq!(read(1, Some(300), true), (100, false));
}

#[test]
fn seg_02_a_slice_never_reaches_beyond_its_region() {
    let segment = segment(0, 4096, 1024);
    append(&segment, 0, &sized(0, 1, 1, 1000));
    let region =
        segment.read(Offset::ZERO, usize::MAX, Some(1000), false).expect("a read").expect("a batch").region;
    assert_eq!(region.slice(500, 1_000_000_000).expect("a slice").len(), 500);
    let slice = region.slice(200, 300).and_then(|s| s.slice(100, 1000)).expect("a slice of a slice");
    assert_eq!((slice.position(), slice.len()), (300, 200));
    assert_eq!(slice.to_bytes().expect("bytes"), region.to_bytes().expect("bytes").slice(300..500));
    assert!(region.slice(1001, 1).is_err());
    append(&segment, 1, &sized(1, 1, 1, 1000));
    assert_eq!(region.len(), 1000);
}

#[test]
fn idx_09_a_lookup_by_time_looks_at_every_record() {
    let segment = segment(10, 4096, 1024);
    let times = |list: &[i64]| list.iter().map(|&t| Some(t)).collect::<Vec<_>>();
    append(&segment, 14, &batch(10, &times(&[100, 200, 300, 400, 500]), None));
    append(&segment, 16, &batch(15, &times(&[510, 520]), None));
    let at = |time| at_time(&segment, time, 10).map(|(t, o)| (o, t));
    assert_eq!(at(250), Some((12, 300)));
    assert_eq!(at(100), Some((10, 100)));
    assert_eq!(at(50), Some((10, 100)));
    assert_eq!(at(500), Some((14, 500)));
    assert_eq!(at(501), Some((15, 510)));
    assert_eq!(at(520), Some((16, 520)));
    assert_eq!(at(521), None);
    assert_eq!(at_time(&segment, 250, 13), Some((400, 13)));
}

#[test]
fn log_edge_47_lookups_by_time_over_batches_of_one_record() {
    let segment = segment(40, 100, 1024);
    for n in 40..50 {
        append(&segment, n, &sized(n, 1, n * 10, 69));
    }
    let at = |time| at_time(&segment, time, 40).map(|(_, o)| o);
    let expected = [(420, 42), (421, 43), (430, 43), (431, 44), (401, 41), (399, 40)];
    for (time, offset) in expected {
        assert_eq!(at(time), Some(offset), "{time}");
    }
    assert_eq!(at(491), None);
}

#[test]
fn log_edge_48_the_next_offset_is_behind_the_last_batch() {
    let segment = segment(40, 4096, 1024);
    assert_eq!(segment.next_offset().expect("walk"), Offset::new(40));
    append(&segment, 52, &sized(50, 3, 1, 100));
    assert_eq!(segment.next_offset().expect("walk"), Offset::new(53));
}

#[test]
fn a_large_batch_between_small_ones_is_passed_over() {
    let segment = segment(0, 0, 4096);
    let sizes = [100, 70_000, 100, 4096, 4097, 61 + 8, 20_000, 69];
    let mut starts = Vec::new();
    for (n, size) in sizes.into_iter().enumerate() {
        starts.push(segment.size());
        append(&segment, n as i64, &sized(n as i64, 1, 1, size));
    }
    for (n, start) in starts.into_iter().enumerate() {
        assert_eq!(position_of(&segment, n as i64), Some(start));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Against a plain list of batches: every offset and every time is found, whatever the interval and the gaps.
    #[test]
    fn lookups_agree_with_a_list(
        batches in prop::collection::vec((1..4i64, 0..3i64, 69..300usize, prop::option::of(0..50i64)), 1..40),
        interval in 0..600u32,
        sealed: bool,
    ) {
        let segment: Segment = {
            let config = SegmentConfig { index_interval_bytes: interval, index_size_max: 4096, ..SegmentConfig::default() };
            Segment::create(memory(), std::path::Path::new(DIR), Offset::ZERO, config, 0).expect("new")
        };
        let mut list = Vec::new();
        let mut next = 0;
        for (count, gap, size, time) in batches {
            let (base, last) = (next + gap, next + gap + count - 1);
            let times: Vec<_> = (0..count).map(|n| time.map(|t| t + n)).collect();
            let position = segment.size();
            append(&segment, last, &batch(base, &times, Some(size + 40)));
            list.push((base, last, position, times));
            next = last + 1;
        }
        if sealed {
            segment.seal().expect("sealed");
        }
        for offset in 0..next + 2 {
            let expected = list.iter().find(|b| b.1 >= offset).map(|b| b.2);
            prop_assert_eq!(position_of(&segment, offset), expected);
        }
        for time in 0..55 {
            let records = list.iter().flat_map(|b| b.3.iter().enumerate().map(move |(n, t)| (b.0 + n as i64, *t)));
            let expected = records.filter_map(|(o, t)| Some((t?, o))).find(|&(t, _)| t >= time);
            prop_assert_eq!(at_time(&segment, time, 0), expected);
        }
    }
}

#[test]
fn a_lookup_reads_once_between_entries_that_are_near_each_other() {
    // A batch takes 1000 bytes: an entry every fifth one, 5000 bytes apart. Of 20 000 bytes each batch has an entry.
    for size in [1000, 20_000] {
        let metered = Arc::new(Metered::new(memory()));
        let config = config(4096, 1024);
        let segment = Segment::create(metered.clone(), Path::new(DIR), Offset::new(0), config, 0);
        let segment = segment.expect("a new segment");
        for n in 0..60 {
            append(&segment, n, &sized(n, 1, 100, size));
        }
        let reads = || metered.calls(Call::Read, "log").calls;
        for offset in 0..60 {
            let before = reads();
            assert_eq!(position_of(&segment, offset), Some(offset as u64 * size as u64));
            let expected = if offset == 0 && size > 1000 { 2 } else { 1 };
            assert_eq!(reads() - before, expected, "offset {offset}, batches of {size} bytes");
        }
    }
}

#[test]
fn a_read_that_its_bound_leaves_nothing_of_says_that_the_batch_is_larger_than_what_was_asked_for() {
    let segment = segment(0, 4096, 1024);
    for base in [0, 50] {
        append(&segment, base + 1, &sized(base, 2, 1, 100));
    }
    // Offset 20 lies in the gap before the second batch, where the bound is.
    let read = |max, end, min_one| {
        let read = segment.read(Offset::new(20), max, end, min_one).expect("a read").expect("a batch");
        (read.batch_base_offset.get(), read.region.len(), read.first_incomplete)
    };
    assert_eq!(read(99, Some(100), false), (50, 0, true));
    assert_eq!(read(100, Some(100), false), (50, 0, false));
    assert_eq!(read(99, Some(100), true), (50, 0, false));
    assert_eq!(read(99, Some(200), false), (50, 99, true));
    // Without a bound, or where nothing was asked for, only the place is told.
    assert_eq!(read(99, None, false), (50, 0, false));
    assert_eq!(read(0, Some(200), false), (50, 0, false));
}
