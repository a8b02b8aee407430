use kseg_format::{LeaderEpoch, Offset, Origin};

use crate::places;
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

#[test]
fn log_edge_99_a_full_truncation_leaves_one_empty_segment() {
    let bench = Bench::new(&[("file.delete.delay.ms", "1000")]);
    let log = bench.open();
    for n in 0..13 {
        if n > 0 && n % 3 == 0 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 1, n, 100);
    }
    assert_eq!(bases(&log).len(), 5);
    log.truncate_fully_and_start_at(Offset::new(10), None).expect("truncated");
    let deleted = bench.files().into_iter().filter(|(name, _)| name.ends_with(".log.deleted")).count();
    assert_eq!((deleted, bases(&log), log.log_end_offset().get()), (5, vec![10], 10));
    // What the rolls have flushed lies above: the recovery point comes down to the end.
    assert_eq!(log.recovery_point().get(), 10);
}

#[test]
fn log_edge_269_the_old_segment_goes_when_a_new_one_takes_its_place() {
    let bench = Bench::new(&[("file.delete.delay.ms", "1000")]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    log.truncate_fully_and_start_at(Offset::new(1), None).expect("truncated");
    assert_eq!((bases(&log), log.log_end_offset().get(), log.recovery_point().get()), (vec![1], 1, 0));
    assert!(bench.size_of(&format!("{}.deleted", name(0, "log"))).is_some());
    assert_eq!(read(&log, 1), (1, 0));
}

#[test]
fn log_edge_284_producers_are_rebuilt_from_the_log_where_no_snapshot_helps() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for sequence in 0..2 {
        Draft::new(1).of(1, 0, sequence).lead(&log).expect("an append");
    }
    log.take_producer_snapshot().expect("taken");
    for at in snapshots(&bench) {
        remove(&bench, &name(at, "snapshot"));
    }
    log.truncate_to(Offset::new(1)).expect("truncated");
    assert_eq!(producers(&log), [(1, 0, None)]);
}

#[test]
fn log_edge_285_a_full_truncation_removes_the_snapshots() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for sequence in 0..4 {
        if sequence == 1 || sequence == 3 {
            log.roll(None).expect("a roll");
        }
        Draft::new(1).of(1, 0, sequence).lead(&log).expect("an append");
    }
    assert_eq!(snapshots(&bench), [1, 3]);
    log.truncate_fully_and_start_at(Offset::new(29), None).expect("truncated");
    assert_eq!((bases(&log), snapshots(&bench), producers(&log)), (vec![29], vec![], vec![]));
    log.roll(Some(Offset::new(30))).expect("the map ends at 29, so the next roll takes one");
    assert_eq!(snapshots(&bench), [30]);
}

#[test]
fn con_11_a_late_removal_leaves_newer_files_of_the_same_name_alone() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let fill = |to| {
        while log.log_end_offset().get() < to {
            Draft::new(50).base(log.log_end_offset().get()).follow(&log).expect("an append");
            if log.log_end_offset().get() % 100 == 0 {
                log.roll(None).expect("a roll");
            }
        }
    };
    fill(200);
    assert_eq!((bases(&log), snapshots(&bench)), (vec![0, 100, 200], vec![100, 200]));
    log.truncate_to(Offset::new(50)).expect("truncated");
    assert!(!snapshots(&bench).contains(&100) && bases(&log) == [0]);
    fill(100);
    bench.scheduler.advance(60_000);
    assert_eq!(bases(&log), [0, 100]);
    for ending in ["log", "snapshot"] {
        assert!(bench.size_of(&name(100, ending)).is_some(), "{ending}");
    }
    assert!(!bench.files().iter().any(|(name, _)| name.ends_with(".deleted")), "{:?}", bench.files());
    assert_eq!(spans(&log, 0), [(0, 49), (50, 99)]);
}

#[test]
fn a_segment_that_is_cut_off_goes_with_all_its_bytes_whatever_was_in_memory() {
    places::with_each(|spec, backend, dir| {
        let bench = Bench::below(dir, backend, &[]);
        let log = bench.open();
        let size = |n: i64| (n as usize + 1) * 777;
        lead(&log, 2, 1, size(0));
        log.roll(None).expect(spec);
        for n in 1..5 {
            lead(&log, 1, 1, size(n));
        }
        let appended = bytes_of(&log, 2).expect(spec);
        log.truncate_to(Offset::new(1)).expect(spec);
        let gone = contents(&bench, &format!("{}.deleted", name(2, "log")));
        assert!(gone == appended, "{spec}: {} bytes of {}", gone.len(), appended.len());
        lead(&log, 1, 1, size(5));
        let appended = bytes_of(&log, 0).expect(spec);
        log.truncate_fully_and_start_at(Offset::new(40), None).expect(spec);
        let gone = contents(&bench, &format!("{}.deleted", name(0, "log")));
        assert!(gone == appended, "{spec}: {} bytes of {}", gone.len(), appended.len());
    });
}
