use kseg_format::{BatchMut, Offset};
use kseg_segment::{CutReason, FileKind, Recovered, Segment, SegmentConfig};

use crate::support::*;

/// Recovers a segment with these bytes as its `.log` file.
fn recovered(base: i64, log: &[u8], config: SegmentConfig) -> (Segment, Recovered) {
    let backend = memory();
    overwrite(&*backend, base, FileKind::Log, log);
    let segment = reopen(backend, base, config);
    let recovered = segment.recover(&mut |_, _| {}).expect("a recovery");
    (segment, recovered)
}

fn ten() -> Vec<u8> {
    (0..10).flat_map(|n| sized(n, 1, 100 + n, 100).to_vec()).collect()
}

#[test]
fn log_edge_53_recovery_keeps_the_batches_before_the_junk() {
    for k in 0..10usize {
        for within in [0, 1, 12, 17, 30, 61, 99] {
            let mut log = ten();
            let from = k * 100 + within;
            for byte in &mut log[from..] {
                *byte = 0xab;
            }
            let (segment, recovered) = recovered(0, &log, config(150, 1024));
            // A changed base offset is not under the checksum, and 0xab.. is negative: offsets go back.
            assert_eq!(recovered.valid_bytes as usize, k * 100, "junk at {from}");
            assert_eq!(recovered.next_offset.get(), k as i64);
            let cut = recovered.cut.expect("a cut");
            assert_eq!((cut.position, cut.len), (k as u64 * 100, 1000 - k as u64 * 100));
            assert_eq!(segment.size() as usize, k * 100);
        }
    }
}

#[test]
fn what_is_cut_is_kept_aside_byte_for_byte() {
    let backend = memory();
    let mut log = ten();
    log[450] ^= 1;
    overwrite(&*backend, 0, FileKind::Log, &log);
    let segment = reopen(backend.clone(), 0, config(4096, 1024));
    let cut = segment.recover(&mut |_, _| {}).expect("a recovery").cut.expect("a cut");
    assert!(matches!(cut.reason, CutReason::Corrupt(_)), "{cut}");
    assert!(cut.to_string().contains("00000000000000000000.log"), "{cut}");
    let kept = cut.kept.expect("kept");
    assert_eq!(kept.file_name().and_then(|n| n.to_str()), Some("00000000000000000000.log.cut"));
    assert_eq!(backend.names().read(&kept, 1 << 20).expect("read"), Some(log[400..].to_vec()));
    // A second cut does not overwrite the first.
    overwrite(&*backend, 0, FileKind::Log, &log[..450]);
    let again = reopen(backend, 0, config(4096, 1024)).recover(&mut |_, _| {}).expect("a recovery");
    let cut = again.cut.expect("a cut");
    assert!(matches!(cut.reason, CutReason::TornTail));
    assert_eq!(cut.kept.and_then(|k| k.extension().map(|e| e.to_os_string())), Some("1".into()));
}

#[test]
fn log_edge_55_zeros_at_the_end_go_without_a_trace() {
    let mut log = ten();
    log.resize(5000, 0);
    let (segment, recovered) = recovered(0, &log, config(4096, 1024));
    let cut = recovered.cut.expect("a cut");
    assert!(matches!(cut.reason, CutReason::ZeroTail), "{cut}");
    assert_eq!((segment.size(), cut.kept), (1000, None));
}

#[test]
fn idx_05_a_rebuilt_index_is_the_one_that_was_written() {
    let backend = memory();
    let dir = std::path::Path::new(DIR);
    let segment = Segment::create(backend.clone(), dir, Offset::ZERO, config(4096, 1024), 0).expect("new");
    for n in 0..12 {
        append(&segment, n * 10 + 9, &sized(n * 10, 10, 100 + n, 1000));
    }
    segment.close().expect("closed");
    let files =
        || (contents(&*backend, 0, FileKind::OffsetIndex), contents(&*backend, 0, FileKind::TimeIndex));
    let written = files();
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        assert!(backend.names().remove(&path(0, kind)).expect("removed"));
    }
    let segment = reopen(backend.clone(), 0, config(4096, 1024));
    let recovered = segment.recover(&mut |_, _| {}).expect("a recovery");
    assert!(recovered.cut.is_none());
    assert_eq!(offset_entries(&segment), [(59, 5000), (109, 10000)]);
    assert_eq!(files(), written);
    assert_eq!(
        (position_of(&segment, 55), position_of(&segment, 59), position_of(&segment, 60)),
        (Some(5000), Some(5000), Some(6000))
    );
}

#[test]
fn log_edge_244_and_259_offsets_that_go_back_end_the_segment() {
    let bytes =
        |offsets: &[i64]| offsets.iter().flat_map(|&o| sized(o, 1, 1, 69).to_vec()).collect::<Vec<_>>();
    let (segment, recovered) = recovered(0, &bytes(&[0, 1, 2, 0, 1, 2]), config(0, 1024));
    assert_eq!((segment.size(), recovered.next_offset.get()), (3 * 69, 3));
    assert!(matches!(recovered.cut.expect("a cut").reason, CutReason::OffsetsGoBack { .. }));
    let (segment, recovered) = self::recovered(10, &bytes(&[10, 3, 11]), config(4096, 1024));
    assert_eq!((segment.size(), recovered.next_offset.get()), (69, 11));
}

#[test]
fn a_flipped_base_offset_is_damage_and_an_overflowing_segment_is_not() {
    const M: i64 = i32::MAX as i64;
    let mut log = ten();
    let mut batch = BatchMut::parse(&mut log[300..400]).expect("a batch");
    batch.set_base_offset(Offset::new(1 << 40)).expect("set");
    let (segment, recovered) = recovered(0, &log, config(4096, 1024));
    assert_eq!((segment.size(), recovered.next_offset.get()), (300, 3));

    let backend = memory();
    let overflowing: Vec<u8> =
        [0, M, M + 1, M + 2].iter().flat_map(|&o| sized(o, 1, 1, 69).to_vec()).collect();
    overwrite(&*backend, 0, FileKind::Log, &overflowing);
    let refused =
        reopen(backend.clone(), 0, config(4096, 1024)).recover(&mut |_, _| {}).expect_err("to be split");
    assert_eq!(refused.kafka_name(), "LogSegmentOffsetOverflowException");
    assert_eq!(contents(&*backend, 0, FileKind::Log), overflowing);
}

#[test]
fn after_a_clean_stop_only_the_framing_of_the_tail_is_looked_at() {
    let backend = memory();
    let mut log = ten();
    log[950] ^= 1; // under the checksum of the last batch
    log.extend_from_slice(&sized(10, 1, 1, 100)[..93]);
    overwrite(&*backend, 0, FileKind::Log, &log);
    let segment = reopen(backend, 0, config(4096, 1024));
    let recovered = segment.recover_tail().expect("a recovery");
    assert_eq!((recovered.next_offset.get(), segment.size()), (10, 1000));
    assert!(matches!(recovered.cut.expect("a cut").reason, CutReason::TornTail));
}

#[test]
fn nothing_of_an_older_index_is_in_the_file_while_it_is_made_anew() {
    let backend = memory();
    overwrite(&*backend, 0, FileKind::Log, &ten());
    let kinds = [FileKind::OffsetIndex, FileKind::TimeIndex];
    for old in [0, 3, 600, 5000] {
        for kind in kinds {
            overwrite(&*backend, 0, kind, &vec![0xee; old]);
        }
        let segment = reopen(backend.clone(), 0, config(4096, 1020));
        let mut looked = 0;
        let each = &mut |_, _: kseg_format::CheckedBatch<'_>| {
            looked += 1;
            for kind in kinds {
                let bytes = contents(&*backend, 0, kind);
                assert!(bytes.iter().all(|&b| b == 0), "{kind:?} of {old} bytes: {bytes:?}");
                assert!(bytes.len() >= 1016, "{kind:?}");
            }
        };
        let recovered = segment.recover(each).expect("a recovery");
        assert!(recovered.cut.is_none());
        assert_eq!(looked, 10);
    }
}

#[test]
fn recovery_hands_over_every_good_batch_once() {
    let backend = memory();
    overwrite(&*backend, 0, FileKind::Log, &ten());
    let mut seen = Vec::new();
    let segment = reopen(backend, 0, config(4096, 1024));
    segment
        .recover(&mut |position, batch| seen.push((position, batch.header().last_offset().get())))
        .expect("a recovery");
    assert_eq!(seen, (0..10).map(|n| (n as u64 * 100, n)).collect::<Vec<_>>());
}

#[test]
fn log_edge_292_the_record_with_the_largest_timestamp_is_named_not_the_last_of_its_batch() {
    let segment = segment(0, 4096, 1024);
    append(&segment, 2, &batch(0, &[Some(0), Some(2), Some(1)], None));
    let found = segment.find_largest_timestamp().expect("a lookup").expect("a record");
    assert_eq!((found.timestamp.map(|t| t.get()), found.offset.get()), (Some(2), 1));
    assert_eq!(at_time(&segment, 2, 0), Some((2, 1)));
}
