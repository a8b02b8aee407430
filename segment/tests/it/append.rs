use kseg_format::{Offset, Timestamp};
use kseg_io_backends::{Op, OpenHow, Through};
use kseg_segment::{FileKind, RollReason, Segment, SegmentConfig, Suffix, file_name, roll_reason};

use crate::support::*;

#[test]
fn log_edge_37_an_offset_out_of_range_is_refused_before_anything_is_written() {
    for (base, largest) in [
        (0, -2_147_483_648),
        (0, 2_147_483_648),
        (1, 0),
        (100, 10),
        (2_147_483_648, 0),
        (-2_147_483_648, 0),
        (2_147_483_648, 4_294_967_296),
    ] {
        let segment = segment(base, 4096, 1024);
        let refused =
            segment.append(Offset::new(largest), sized(largest, 1, 1, 100)).expect_err("out of range");
        assert_eq!(refused.kafka_name(), "LogSegmentOffsetOverflowException", "{refused}");
        assert!(refused.to_string().contains(".log") && refused.to_string().contains(&largest.to_string()));
        assert_eq!(segment.size(), 0);
    }
}

#[test]
fn log_edge_63_and_64_every_batch_but_the_first_is_indexed_with_interval_0() {
    let one_by_one = segment(0, 0, 1024);
    let at_once = segment(0, 0, 1024);
    let mut all = Vec::new();
    for n in 0..5 {
        let batch = sized(n, 1, 10 + n, 69);
        append(&one_by_one, n, &batch);
        all.extend_from_slice(&batch);
    }
    append(&at_once, 4, &all.into());
    let expected = [(1, 69), (2, 138), (3, 207), (4, 276)];
    assert_eq!(offset_entries(&one_by_one), expected);
    assert_eq!(offset_entries(&at_once), expected);
}

#[test]
fn log_edge_228_time_entries_hold_the_largest_time_so_far() {
    let segment = segment(0, 1, 1024);
    let mut all = Vec::new();
    for (n, time) in [10, 9, 30, 30, 40].into_iter().enumerate() {
        all.extend_from_slice(&sized(n as i64, 1, time, 69));
    }
    append(&segment, 4, &all.into());
    assert_eq!(offset_entries(&segment), [(1, 69), (2, 138), (3, 207), (4, 276)]);
    assert_eq!(time_entries(&segment), [(10, 0), (30, 2), (40, 4)]);
}

#[test]
fn the_spacing_of_entries_is_more_than_the_interval() {
    let segment = segment(0, 4096, 10_485_760);
    twelve(&segment);
    assert_eq!(offset_entries(&segment), [(5, 5000), (10, 10000)]);
    assert_eq!(time_entries(&segment), [(105, 5), (110, 10)]);
}

#[test]
fn idx_06_only_the_active_segment_holds_preallocated_index_space() {
    let backend = memory();
    let dir = std::path::Path::new(DIR);
    let segment =
        Segment::create(backend.clone(), dir, Offset::ZERO, SegmentConfig::default(), 0).expect("new");
    twelve(&segment);
    assert_eq!(len(&*backend, 0, FileKind::OffsetIndex), Some(10_485_760));
    assert_eq!(len(&*backend, 0, FileKind::TimeIndex), Some(10_485_756));
    segment.seal().expect("sealed");
    let trimmed = || (len(&*backend, 0, FileKind::OffsetIndex), len(&*backend, 0, FileKind::TimeIndex));
    assert_eq!(trimmed(), (Some(16), Some(36)));
    segment.close().expect("closed");
    assert_eq!(trimmed(), (Some(16), Some(36)));
    let again = reopen(backend.clone(), 0, SegmentConfig::default());
    assert_eq!(time_entries(&again), [(105, 5), (110, 10), (111, 11)]);
    again.close().expect("closed");
    assert_eq!(trimmed(), (Some(16), Some(36)));
}

#[test]
fn log_edge_229_a_full_index_gets_no_entry_and_loses_no_batch() {
    let segment = segment(0, 0, 24);
    let mut all = Vec::new();
    for n in 0..6 {
        all.extend_from_slice(&sized(n, 1, 10 + n, 69));
    }
    append(&segment, 5, &all.into());
    assert_eq!(offset_entries(&segment), [(1, 69), (2, 138), (3, 207)]);
    for n in 0..6 {
        assert_eq!(position_of(&segment, n), Some(69 * n as u64));
    }
    let check = segment.roll_check(0, 69, None, Offset::new(6), 1 << 30, i64::MAX).expect("a check");
    assert!(roll_reason(&check).is_some());
}

#[test]
fn log_edge_28_the_size_of_the_indexes_decides_when_to_roll() {
    let tiny = segment(0, 0, 8);
    let refused =
        tiny.append(Offset::ZERO, sized(0, 1, 1, 69)).and_then(|_| tiny.seal()).expect_err("no room");
    assert_eq!(refused.kafka_name(), "IllegalArgumentException");
    assert!(refused.to_string().contains("segment.index.bytes"), "{refused}");
    let one_entry = segment(0, 0, 12);
    let check = one_entry.roll_check(0, 69, None, Offset::ZERO, 1 << 30, i64::MAX).expect("a check");
    assert!(check.time_index_full);
}

#[test]
fn log_edge_44_an_empty_segment_that_was_closed_can_take_appends_again() {
    let backend = memory();
    let config = config(4096, 1024);
    let segment =
        Segment::create(backend.clone(), std::path::Path::new(DIR), Offset::new(57), config.clone(), 0)
            .expect("new");
    segment.open_indexes().expect("opened");
    segment.close().expect("closed");
    assert_eq!(len(&*backend, 57, FileKind::OffsetIndex), Some(0));
    let segment = reopen(backend.clone(), 57, config);
    segment.truncate_to(Offset::new(57), 1000).expect("truncated");
    let check = |last: i64, now| {
        segment.roll_check(now, 100, None, Offset::new(last), 1 << 30, 500).expect("a check")
    };
    assert!(!check(57, 1000).offset_index_full && !check(57, 1000).time_index_full);
    assert_eq!(roll_reason(&check(57, 1000)), None);
    assert_eq!(roll_reason(&check(57, 5000)), None);
    assert!(roll_reason(&check(2_147_483_647 + 257, 1000)).is_some());
}

#[test]
fn log_edge_49_and_59_and_65_renaming_and_printing_make_no_index_file() {
    let backend = memory();
    let dir = std::path::Path::new(DIR);
    let segment = Segment::create(backend.clone(), dir, Offset::new(40), config(4096, 1024), 0).expect("new");
    let _ = format!("{segment:?}");
    segment.rename(Suffix::Deleted).expect("renamed");
    let names: Vec<_> = backend.names().list(dir).expect("list").into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["00000000000000000040.log.deleted"]);
    segment.open_indexes().expect("opened");
    let index = dir.join(file_name(Offset::new(40), FileKind::OffsetIndex, Suffix::Deleted));
    assert!(backend.names().stat(&index).expect("stat").is_some());
    segment.remove().expect("removed");
    assert!(backend.names().list(dir).expect("list").is_empty());
    segment.remove().expect("removing what is gone is no error");
}

#[test]
fn seg_01_the_file_never_exceeds_what_a_position_can_name() {
    const SIZE: u64 = 2_147_482_800;
    let dir = tempfile::tempdir().expect("a directory");
    let backend = kseg_io_backends::open("std").expect("std is always there");
    // A sparse file of that size which begins with a batch; the rest is never looked at.
    let file = backend.open(&dir.path().join("00000000000000000000.log"), OpenHow::Create).expect("a file");
    file.submit(Op::Write { at: 0, data: sized(0, 1, 1, 100).into(), through: Through::No })
        .wait()
        .result
        .expect("written");
    file.submit(Op::SetLen { len: SIZE }).wait().result.expect("lengthened");
    let open = |size| Segment::open(backend.clone(), dir.path(), Offset::ZERO, config(4096, 1024), 0, size);
    let near = open(SIZE).expect("a segment");
    near.activate().expect("active");
    let check = |appending| {
        near.roll_check(0, appending, None, Offset::new(1), 2_147_483_647, i64::MAX).expect("a check")
    };
    assert_eq!(roll_reason(&check(847)), None);
    assert_eq!(roll_reason(&check(848)), Some(RollReason::Size));
    let refused = near.append(Offset::new(1), sized(1, 1, 1, 1000)).expect_err("too large");
    assert_eq!(refused.kafka_name(), "IllegalArgumentException", "{refused}");
    assert_eq!((near.size(), file.len().expect("a length")), (SIZE, SIZE));
    assert!(open(2_147_483_648).is_err());
}

#[test]
fn log_edge_60_timestamps_of_minus_1_are_in_no_index() {
    let segment = segment(0, 0, 1024);
    for n in 0..3 {
        append(&segment, n, &batch(n, &[None], Some(69)));
    }
    assert_eq!(time_entries(&segment), []);
    assert_eq!(segment.largest().expect("largest").timestamp, None);
    assert!(segment.retention_time_ms().is_ok());
}

#[test]
fn log_edge_58_the_time_of_the_first_batch() {
    let segment = segment(0, 4096, 1024);
    assert_eq!(segment.first_batch_timestamp().expect("read"), None);
    append(&segment, 0, &sized(0, 1, 1000, 69));
    assert_eq!(segment.first_batch_timestamp().expect("read"), Some(Timestamp::new(1000)));
    assert_eq!(segment.time_waited(0, Some(Timestamp::new(1500))).expect("waited"), 500);
}

#[test]
fn log_edge_54_preallocated_space_goes_with_the_close() {
    let backend = memory();
    let dir = std::path::Path::new(DIR);
    let config = SegmentConfig { preallocate: Some(65_536), ..config(4096, 1024) };
    let segment = Segment::create(backend.clone(), dir, Offset::ZERO, config.clone(), 0).expect("new");
    append(&segment, 0, &sized(0, 1, 1, 100));
    assert_eq!((len(&*backend, 0, FileKind::Log), segment.size()), (Some(65_536), 100));
    segment.close().expect("closed");
    assert_eq!(len(&*backend, 0, FileKind::Log), Some(100));
    assert_eq!(reopen(backend, 0, config).size(), 100);
}

#[test]
fn preallocated_space_stays_with_a_segment_that_is_set_aside() {
    let dir = tempfile::tempdir().expect("a directory");
    let backend = kseg_io_backends::open("std").expect("files");
    let config = SegmentConfig { preallocate: Some(65_536), ..config(4096, 1024) };
    let segment = Segment::create(backend, dir.path(), Offset::ZERO, config, 0).expect("new");
    append(&segment, 0, &sized(0, 1, 1, 100));
    segment.rename(Suffix::Deleted).expect("renamed");
    let log = dir.path().join(file_name(Offset::ZERO, FileKind::Log, Suffix::Deleted));
    assert_eq!(std::fs::metadata(log).expect("the file").len(), 65_536);
}
