use kseg_format::Offset;
use kseg_segment::FileKind;

use crate::support::*;

#[test]
fn log_edge_56_batches_that_hold_or_follow_the_offset_go() {
    let segment = segment(40, 0, 1024);
    append(&segment, 40, &sized(40, 1, 5, 100));
    append(&segment, 45, &sized(43, 3, 6, 100));
    assert_eq!(segment.truncate_to(Offset::new(41), 0).expect("truncated"), 100);
    assert_eq!((segment.size(), segment.next_offset().expect("walk").get()), (100, 41));
    append(&segment, 44, &sized(43, 2, 7, 100));
    assert_eq!(segment.truncate_to(Offset::new(44), 0).expect("a target inside a batch"), 100);
    assert_eq!(segment.size(), 100);
}

#[test]
fn log_edge_43_append_and_truncate_thirty_times() {
    let segment = segment(40, 50, 4096);
    for offset in 40..70 {
        append(&segment, offset, &sized(offset, 1, offset, 69));
        append(&segment, offset + 1, &sized(offset + 1, 1, offset + 1, 69));
        assert!(position_of(&segment, offset + 1).is_some());
        segment.truncate_to(Offset::new(offset + 1), 0).expect("truncated");
        assert_eq!(position_of(&segment, offset + 1), None);
    }
    assert_eq!(segment.size(), 30 * 69);
}

#[test]
fn log_edge_45_the_largest_timestamp_follows_a_truncation() {
    let segment = segment(40, 137, 4096);
    for n in 40..70 {
        append(&segment, n, &sized(n, 1, n * 10, 69));
    }
    assert_eq!(time_entries(&segment).len(), 14);
    segment.truncate_to(Offset::new(41), 0).expect("truncated");
    assert_eq!(time_entries(&segment), []);
    let largest = segment.largest().expect("largest");
    assert_eq!((largest.timestamp.map(|t| t.get()), largest.offset.get()), (Some(400), 40));
    assert_eq!(segment.next_offset().expect("walk").get(), 41);
}

#[test]
fn log_edge_46_an_emptied_segment_begins_to_wait_anew() {
    let segment = segment(40, 4096, 1024);
    append(&segment, 40, &batch(40, &[None], Some(69)));
    assert_eq!(segment.time_waited(500, None).expect("waited"), 500);
    segment.truncate_to(Offset::ZERO, 500).expect("truncated");
    assert_eq!(segment.time_waited(500, None).expect("waited"), 0);
    assert_eq!(position_of(&segment, 40), None);
    append(&segment, 41, &sized(41, 1, 1, 69));
    assert_eq!(position_of(&segment, 40), Some(0));
}

#[test]
fn a_truncation_gives_the_indexes_their_full_size() {
    let backend = memory();
    let config = config(100, 1024);
    let segment =
        kseg_segment::Segment::create(backend.clone(), std::path::Path::new(DIR), Offset::ZERO, config, 0)
            .expect("new");
    for n in 0..10 {
        append(&segment, n, &sized(n, 1, n, 100));
    }
    segment.seal().expect("sealed");
    let lens = || (len(&*backend, 0, FileKind::OffsetIndex), len(&*backend, 0, FileKind::TimeIndex));
    assert_ne!(lens(), (Some(1024), Some(1020)));
    segment.truncate_to(Offset::ZERO, 0).expect("truncated");
    assert_eq!(lens(), (Some(1024), Some(1020)));
    assert_eq!((segment.size(), offset_entries(&segment)), (0, vec![]));
}

#[test]
fn a_reader_can_tell_that_a_truncation_came_between() {
    let segment = segment(0, 4096, 1024);
    append(&segment, 0, &sized(0, 1, 1, 100));
    let before = segment.truncations();
    append(&segment, 1, &sized(1, 1, 1, 100));
    assert_eq!(segment.truncations(), before);
    segment.truncate_to(Offset::new(1), 0).expect("truncated");
    assert_ne!(segment.truncations(), before);
}
