//! Producers of a log: duplicates, sequences, epochs, expiry, what a reopening remembers.

use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_log::{AppendInfo, Log, OpenOptions};

use crate::support::*;

fn first_and_last(info: &AppendInfo) -> (i64, i64) {
    (info.first_offset.expect("first").get(), info.last_offset.expect("last").get())
}

/// (first, last) offset of the batches that are remembered of the one producer.
fn remembered(log: &Log) -> Vec<(i64, i64)> {
    let state = log.state(false).expect("state");
    state.producers[0].batches.iter().map(|b| (b.first_offset().get(), b.last_offset().get())).collect()
}

#[test]
fn log_08_a_producer_outlives_its_deleted_records() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let ten = Draft::new(10).of(7, 0, 0);
    ten.lead(&log).expect("an append");
    log.update_high_watermark(Offset::new(10));
    log.delete_records_before(Some(Offset::new(10))).expect("deleted");
    assert_eq!(first_and_last(&Draft::new(1).of(7, 0, 10).lead(&log).expect("an append")), (10, 10));
    assert_eq!(first_and_last(&ten.lead(&log).expect("a duplicate")), (0, 9));
    assert_eq!(kafka_name(Draft::new(1).of(7, 0, 12).lead(&log)), "OutOfOrderSequenceException");
    assert_eq!(log.log_end_offset().get(), 11);
    log.close().expect("closed");
    let log = bench.open_at(true, 11, 10);
    Draft::new(1).of(7, 0, 11).lead(&log).expect("an append");
    assert_eq!(kafka_name(ten.lead(&log)), "OutOfOrderSequenceException");
}

#[test]
fn log_09_and_log_edge_141_the_last_five_batches_are_known_again() {
    let log = Bench::new(&[]).open();
    let one = |sequence| Draft::new(1).of(7, 0, sequence);
    for sequence in 0..7 {
        one(sequence).lead(&log).expect("an append");
    }
    for sequence in 2..7 {
        let again = one(sequence).lead(&log).expect("a duplicate");
        assert_eq!(first_and_last(&again), (sequence.into(), sequence.into()));
    }
    assert_eq!(kafka_name(one(1).lead(&log)), "OutOfOrderSequenceException");
    assert_eq!(kafka_name(Draft::new(2).of(7, 0, 5).lead(&log)), "OutOfOrderSequenceException");
    assert_eq!((log.log_end_offset().get(), log.size()), (7, 7 * 69));
}

#[test]
fn log_10_a_follower_takes_a_producer_that_began_elsewhere() {
    let first = Draft::new(4).of(7, 3, 57);
    for follower in [true, false] {
        let log = Bench::new(&[]).open();
        if follower { first.follow(&log) } else { first.lead(&log) }.expect("an append");
        assert_eq!(producers(&log), [(7, 60, None)]);
        assert_eq!(kafka_name(Draft::new(1).of(7, 4, 5).lead(&log)), "OutOfOrderSequenceException");
        Draft::new(1).of(7, 4, 0).lead(&log).expect("a new epoch begins at 0");
        assert_eq!(kafka_name(Draft::new(1).of(7, 2, 0).lead(&log)), "InvalidProducerEpochException");
    }
}

#[test]
fn log_edge_142_a_follower_takes_duplicates() {
    let log = Bench::new(&[]).open();
    for base in [0, 1] {
        Draft::new(1).base(base).of(1, 0, 0).follow(&log).expect("an append");
    }
    assert_eq!((log.log_end_offset().get(), remembered(&log)), (2, vec![(0, 0), (1, 1)]));
}

#[test]
fn log_edge_143_older_producers_and_coordinators_are_fenced() {
    let log = Bench::new(&[]).open();
    Draft::new(1).of(1, 3, 0).transactional().lead(&log).expect("an append");
    assert_eq!(kafka_name(Draft::new(1).of(1, 2, 1).lead(&log)), "InvalidProducerEpochException");
    let end = |coordinator| {
        let bytes = marker_bytes(0, (1, 3), true, coordinator);
        log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Coordinator)
    };
    end(5).expect("a marker");
    assert_eq!(kafka_name(end(4)), "TransactionCoordinatorFencedException");
    assert_eq!(log.log_end_offset().get(), 2);
}

#[test]
fn log_edge_146_the_latest_snapshot_after_a_truncation() {
    for (to, left) in [(2, vec![2]), (1, vec![1]), (0, vec![])] {
        let bench = Bench::new(&[("file.delete.delay.ms", "0")]);
        let log = bench.open();
        for sequence in 0..4 {
            if sequence == 2 || sequence == 3 {
                log.roll(None).expect("a roll");
            }
            Draft::new(1).of(1, 0, sequence).lead(&log).expect("an append");
        }
        assert_eq!(snapshots(&bench), [2, 3]);
        log.truncate_to(Offset::new(to)).expect("truncated");
        // None of those that were there is above the new end; the rebuilt state has one of its own.
        assert_eq!(snapshots(&bench), left, "{to}");
    }
}

#[test]
fn log_edge_168_producers_that_have_expired_are_not_loaded() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    Draft::new(2).of(1, 0, 0).times(&[10_000_000, 10_000_000]).lead(&log).expect("an append");
    log.close().expect("closed");
    bench.clock.set(10_000_000 + 86_400_000);
    let log = bench.open();
    assert_eq!((producers(&log), log.log_end_offset().get()), (vec![], 2));
    // The state reaches up to the end all the same: the next snapshot is that of the next record.
    lead(&log, 1, 10_000_000 + 86_400_000, 100);
    log.take_producer_snapshot().expect("taken");
    assert_eq!(snapshots(&bench), [2, 3]);
}

#[test]
fn log_edge_191_deleted_records_and_the_producers_that_wrote_them() {
    for (start, left) in [(1, vec![(1, 1, None), (2, 0, None)]), (2, vec![(2, 0, None)])] {
        let bench = Bench::new(&[("file.delete.delay.ms", "0")]);
        let log = bench.open();
        Draft::new(1).of(1, 0, 0).lead(&log).expect("an append");
        Draft::new(1).of(1, 0, 1).lead(&log).expect("an append");
        log.roll(None).expect("a roll");
        Draft::new(1).of(2, 0, 0).lead(&log).expect("an append");
        log.update_high_watermark(Offset::new(3));
        log.delete_records_before(Some(Offset::new(start))).expect("deleted");
        log.delete_old_segments().expect("retention");
        log.abandon();
        for at in snapshots(&bench) {
            remove(&bench, &name(at, "snapshot"));
        }
        // Rebuilt from what is left of the log.
        assert_eq!(producers(&bench.open_at(false, 0, start)), left, "{start}");
    }
}

#[test]
fn log_edge_192_a_coordinator_epoch_that_goes_back_inside_the_log_is_recovered() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for (offset, coordinator) in [(0, 5), (1, 2)] {
        let bytes = marker_bytes(offset, (1, 0), true, coordinator).freeze();
        log.append_as_follower(bytes, LeaderEpoch::new(0)).expect("an append");
    }
    log.abandon();
    let log = bench.open_unclean(0);
    assert!(log.load_report().is_quiet(), "{}", log.load_report());
    assert_eq!(log.state(false).expect("state").producers[0].coordinator_epoch, 2);
}

#[test]
fn log_edge_282_and_283_a_compacted_batch_keeps_its_range() {
    let log = Bench::new(&[]).open();
    let thinned = Draft::new(4).base(23).of(1, 0, 0).only(&[0, 2]);
    thinned.follow(&log).expect("an append");
    assert_eq!((producers(&log), remembered(&log)), (vec![(1, 3, None)], vec![(23, 26)]));
    Draft::new(2).base(27).of(1, 0, 4).follow(&log).expect("an append");
    log.truncate_to(Offset::new(27)).expect("truncated");
    assert_eq!((producers(&log), remembered(&log)), (vec![(1, 3, None)], vec![(23, 26)]));

    let log = Bench::new(&[]).open();
    let header = Draft::new(2).base(23).of(1, 0, 0).empty();
    log.append_as_follower(header.freeze(), LeaderEpoch::new(0)).expect("an append");
    Draft::new(2).base(25).of(1, 0, 2).follow(&log).expect("an append");
    log.truncate_to(Offset::new(25)).expect("truncated");
    assert_eq!((producers(&log), remembered(&log)), (vec![(1, 1, None)], vec![(23, 24)]));
}

#[test]
fn log_edge_287_idle_producers_are_forgotten_on_the_scheduler_until_the_log_is_closed() {
    let bench = Bench::new(&[]);
    let open = || {
        let options =
            OpenOptions { producer_expiration_ms: 200, producer_expiration_check_ms: 1, ..bench.options() };
        Log::open(std::path::Path::new(DIR), options).expect("a log")
    };
    let log = open();
    Draft::new(1).of(1, 0, 0).times(&[10_000_000]).lead(&log).expect("an append");
    bench.scheduler.advance(199);
    assert_eq!(producers(&log).len(), 1);
    bench.scheduler.advance(1);
    assert_eq!(producers(&log).len(), 0);
    assert_eq!(bench.scheduler.waiting(), 1);
    log.close().expect("closed");
    bench.scheduler.advance(1);
    assert_eq!(bench.scheduler.waiting(), 0, "a closed log looks no more");
    drop(open());
    bench.scheduler.advance(1);
    assert_eq!(bench.scheduler.waiting(), 0, "nor does one that was dropped");
}
