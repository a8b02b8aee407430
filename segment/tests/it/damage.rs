//! Whatever an index file holds, lookups are right.

use kseg_format::Offset;
use kseg_segment::{FileKind, Segment};
use proptest::prelude::*;

use crate::support::*;

/// A sealed segment of twelve batches of 1000 bytes, closed.
fn closed() -> std::sync::Arc<dyn kseg_io_backends::Backend> {
    let backend = memory();
    let dir = std::path::Path::new(DIR);
    let segment = Segment::create(backend.clone(), dir, Offset::ZERO, config(4096, 1024), 0).expect("new");
    twelve(&segment);
    segment.seal().expect("sealed");
    segment.close().expect("closed");
    backend
}

fn all_lookups_are_right(segment: &Segment) {
    for n in 0..12i64 {
        assert_eq!(position_of(segment, n), Some(n as u64 * 1000), "offset {n}");
        assert_eq!(at_time(segment, 100 + n, 0), Some((100 + n, n)), "time {}", 100 + n);
    }
    assert_eq!((position_of(segment, 12), at_time(segment, 112, 0)), (None, None));
}

#[test]
fn log_edge_50_indexes_of_junk_are_rebuilt() {
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        for junk in [vec![0xff; 48], vec![0; 48], vec![1; 16], Vec::new(), vec![0; 10_485_760], vec![7; 3]] {
            let backend = closed();
            overwrite(&*backend, 0, kind, &junk);
            let segment = reopen(backend, 0, config(4096, 1024));
            all_lookups_are_right(&segment);
            // An empty offset index is right, if slow, and stays.
            if kind == FileKind::TimeIndex || !junk.is_empty() {
                assert_eq!(
                    offset_entries(&segment),
                    [(5, 5000), (10, 10000)],
                    "{kind:?} with {} bytes",
                    junk.len()
                );
            }
            assert_eq!(time_entries(&segment), [(105, 5), (110, 10), (111, 11)]);
        }
    }
}

#[test]
fn a_missing_index_is_rebuilt_at_its_first_use() {
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        let backend = closed();
        assert!(backend.names().remove(&path(0, kind)).expect("removed"));
        let segment = reopen(backend, 0, config(4096, 1024));
        all_lookups_are_right(&segment);
        assert_eq!(time_entries(&segment), [(105, 5), (110, 10), (111, 11)]);
    }
}

#[test]
fn idx_02_a_padded_index_is_not_taken_for_a_full_one() {
    let backend = memory();
    let dir = std::path::Path::new(DIR);
    let config = kseg_segment::SegmentConfig::default();
    let segment = Segment::create(backend.clone(), dir, Offset::ZERO, config.clone(), 0).expect("new");
    for n in 0..3 {
        append(&segment, n, &sized(n, 1, 100 + n, 1000));
    }
    segment.abandon();
    assert_eq!(len(&*backend, 0, FileKind::OffsetIndex), Some(10_485_760));
    let segment = reopen(backend.clone(), 0, config);
    segment.activate().expect("active");
    assert_eq!(offset_entries(&segment), []);
    append(&segment, 3, &sized(3, 1, 103, 1000));
    segment.seal().expect("sealed");
    // A rebuilt time index ends with the largest time, as after Kafka's recovery; the roll adds that of the append.
    assert_eq!(time_entries(&segment), [(102, 2), (103, 3)]);
    assert_eq!(
        (len(&*backend, 0, FileKind::OffsetIndex), len(&*backend, 0, FileKind::TimeIndex)),
        (Some(0), Some(24))
    );
}

#[test]
fn idx_10_a_part_of_an_entry_is_never_read() {
    let backend = closed();
    let mut offsets = contents(&*backend, 0, FileKind::OffsetIndex);
    offsets.extend_from_slice(&[1, 2, 3, 4]);
    let mut times = contents(&*backend, 0, FileKind::TimeIndex);
    times.push(9);
    overwrite(&*backend, 0, FileKind::OffsetIndex, &offsets);
    overwrite(&*backend, 0, FileKind::TimeIndex, &times);
    let segment = reopen(backend.clone(), 0, config(4096, 1024));
    all_lookups_are_right(&segment);
    segment.activate().expect("active");
    for n in 12..18 {
        append(&segment, n, &sized(n, 1, 100 + n, 1000));
    }
    segment.seal().expect("sealed");
    assert_eq!(offset_entries(&segment)[..2], [(5, 5000), (10, 10000)]);
    assert_eq!(len(&*backend, 0, FileKind::OffsetIndex).map(|l| l % 8), Some(0));
    assert_eq!(len(&*backend, 0, FileKind::TimeIndex).map(|l| l % 12), Some(0));
}

#[test]
fn idx_11_opening_and_closing_changes_no_file() {
    let backend = closed();
    let files =
        || (contents(&*backend, 0, FileKind::OffsetIndex), contents(&*backend, 0, FileKind::TimeIndex));
    let before = files();
    for _ in 0..5 {
        let segment = reopen(backend.clone(), 0, config(4096, 1024));
        segment.activate().expect("active");
        assert_eq!(position_of(&segment, 7), Some(7000));
        segment.close().expect("closed");
        assert_eq!(files(), before);
    }
    let segment = reopen(backend.clone(), 0, config(4096, 1024));
    segment.activate().expect("active");
    append(&segment, 12, &sized(12, 1, 112, 1000));
    segment.close().expect("closed");
    assert_eq!(len(&*backend, 0, FileKind::TimeIndex), Some(48));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One changed byte anywhere in either index.
    #[test]
    fn a_flipped_byte_in_an_index_changes_no_answer(at in 0..52usize, with in 1..=255u8) {
        let backend = closed();
        let (kind, at) = if at < 16 { (FileKind::OffsetIndex, at) } else { (FileKind::TimeIndex, at - 16) };
        let mut bytes = contents(&*backend, 0, kind);
        bytes[at] ^= with;
        overwrite(&*backend, 0, kind, &bytes);
        all_lookups_are_right(&reopen(backend, 0, config(4096, 1024)));
    }

    /// Arbitrary bytes in both indexes.
    #[test]
    fn arbitrary_indexes_change_no_answer(
        offsets in prop::collection::vec(any::<u8>(), 0..64),
        times in prop::collection::vec(any::<u8>(), 0..96),
    ) {
        let backend = closed();
        overwrite(&*backend, 0, FileKind::OffsetIndex, &offsets);
        overwrite(&*backend, 0, FileKind::TimeIndex, &times);
        all_lookups_are_right(&reopen(backend, 0, config(4096, 1024)));
    }

    /// Arbitrary bytes as a log: recovery ends, keeps only good batches and never panics.
    #[test]
    fn arbitrary_logs_are_recovered(log in prop::collection::vec(any::<u8>(), 0..600), good in 0..3usize) {
        let backend = memory();
        let mut bytes: Vec<u8> = (0..good as i64).flat_map(|n| sized(n, 1, 1, 69).to_vec()).collect();
        bytes.extend_from_slice(&log);
        overwrite(&*backend, 0, FileKind::Log, &bytes);
        let segment = reopen(backend, 0, config(0, 1024));
        let recovered = segment.recover(&mut |_, _| {}).expect("a recovery");
        prop_assert!(recovered.valid_bytes >= good as u64 * 69);
        prop_assert_eq!(segment.size(), recovered.valid_bytes);
        let _ = segment.next_offset();
        let _ = segment.translate(Offset::ZERO);
    }
}

#[test]
fn a_batch_that_reaches_beyond_the_segment_is_an_error_and_not_the_end() {
    let backend = closed();
    let mut log = contents(&*backend, 0, FileKind::Log);
    log[3000 + 8..3000 + 12].copy_from_slice(&0x7fff_0000_i32.to_be_bytes());
    overwrite(&*backend, 0, FileKind::Log, &log);
    let segment = reopen(backend, 0, config(4096, 1024));
    assert_eq!(position_of(&segment, 2), Some(2000));
    for offset in [3, 4] {
        let damaged = segment.translate(Offset::new(offset)).expect_err("a damaged length");
        assert_eq!(damaged.kafka_name(), "CorruptRecordException");
        assert!(damaged.to_string().contains("position 3000"), "{damaged}");
    }
    // From the next index entry on the segment can be read.
    assert_eq!(position_of(&segment, 5), Some(5000));
}
