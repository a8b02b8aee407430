use kseg_format::{LeaderEpoch, Offset, Origin};

use crate::support::*;

#[test]
fn idx_03_a_truncation_to_nothing_gives_the_index_its_capacity_back() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for n in 0..12 {
        lead(&log, 1, n, 1000);
    }
    log.roll(None).expect("a roll");
    lead(&log, 1, 12, 1000);
    assert_eq!(bench.size_of("00000000000000000000.index"), Some(16));
    assert!(log.truncate_to(Offset::ZERO).expect("truncated"));
    assert_eq!(bench.size_of("00000000000000000000.index"), Some(10_485_760));
    lead(&log, 1, 1, 1000);
    assert_eq!((bases(&log), log.log_end_offset().get()), (vec![0], 1));
}

#[test]
fn log_edge_98_segments_above_the_target_go() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for n in 0..12 {
        if n > 0 && n % 3 == 0 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 1, n, 100);
    }
    log.roll(None).expect("a roll");
    assert!(log.truncate_to(Offset::new(7)).expect("truncated"));
    assert_eq!((bases(&log), log.log_end_offset().get()), (vec![0, 3, 6], 7));
    assert_eq!(log.recovery_point().get(), 7);
    assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(7)));
}

#[test]
fn log_edge_274_truncations_of_one_segment() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for n in 0..10 {
        lead(&log, 1, n, 100);
    }
    for (target, end, size) in [(10, 10, 1000), (11, 10, 1000), (5, 5, 500), (0, 0, 0)] {
        log.truncate_to(Offset::new(target)).expect("truncated");
        assert_eq!((log.log_end_offset().get(), log.size()), (end, size));
    }
    for n in 0..10 {
        lead(&log, 1, n, 100);
    }
    log.truncate_fully_and_start_at(Offset::new(1), None).expect("truncated");
    assert_eq!((offsets(&log), log.size()), ((1, 1, 1), 0));
    for n in 0..10 {
        lead(&log, 1, n, 100);
    }
    log.truncate_to(Offset::ZERO).expect("below the log start: it begins anew there");
    assert_eq!((offsets(&log), log.size()), ((0, 0, 0), 0));
    assert!(log.truncate_to(Offset::new(-1)).is_err());
}

#[test]
fn log_edge_106_and_260_the_high_watermark_goes_with_the_log() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 6, 1, 200);
    assert_eq!(log.update_high_watermark(Offset::new(9)).get(), 6);
    log.truncate_to(Offset::new(3)).expect("truncated");
    assert_eq!(log.high_watermark().get(), 3);
    log.truncate_fully_and_start_at(Offset::new(4), None).expect("truncated");
    assert_eq!(offsets(&log), (4, 4, 4));
    log.truncate_fully_and_start_at(Offset::new(400), Some(Offset::new(450))).expect("truncated");
    assert_eq!(offsets(&log), (450, 450, 400));
}

#[test]
fn log_edge_124_and_157_epochs_go_with_their_records() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let epochs = || log.state(false).expect("state").epochs.len();
    for epoch in [0, 0, 1, 1, 2] {
        log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(epoch), Origin::Client).expect("an append");
    }
    log.assign_epoch(LeaderEpoch::new(9), Offset::new(5)).expect("assigned");
    assert_eq!(epochs(), 4);
    assert!(!log.truncate_to(Offset::new(5)).expect("nothing to drop"));
    assert_eq!(epochs(), 3);
    for (target, left) in [(4, 2), (3, 2), (2, 1), (0, 0)] {
        log.truncate_to(Offset::new(target)).expect("truncated");
        assert_eq!(epochs(), left, "{target}");
    }
}

#[test]
fn format_edge_127_a_directory_that_has_vanished_is_no_trouble_for_the_epochs() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = temp.path().join("t-0");
    let bench = Bench::on(kseg_io_backends::open("std").expect("files"), &[]);
    let moved = |log: &kseg_log::Log, to: i64| {
        log.update_high_watermark(Offset::new(3));
        log.increment_log_start_offset(Offset::new(to)).expect("moved");
    };
    let log = kseg_log::Log::open(&dir, bench.options()).expect("a log");
    lead(&log, 3, 1, 100);
    // Something in the way is a trouble.
    let file = dir.join("leader-epoch-checkpoint");
    std::fs::remove_file(&file).expect("gone");
    std::fs::create_dir_all(file.join("in the way")).expect("made");
    moved(&log, 1);
    bench.scheduler.advance(1);
    let trouble = log.last_trouble().expect("a trouble");
    assert_eq!(trouble.task, "leader-epoch-cache-flush");
    std::fs::remove_dir_all(&dir).expect("gone");
    moved(&log, 2);
    bench.scheduler.advance(1);
    assert_eq!(log.last_trouble().expect("the same"), trouble);
    log.abandon();
}
