use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_log::{HeldBack, Log, LogConfig};

use crate::support::*;

/// Segments 0, 10, 20 and so on of ten records each, with these times; the last one is active.
fn with_times(bench: &Bench, times: &[i64]) -> kseg_log::Log {
    let log = bench.open();
    for (n, &time) in times.iter().enumerate() {
        if n > 0 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 10, time, 1000);
    }
    log.update_high_watermark(log.log_end_offset());
    log
}

#[test]
fn log_01_time_counts_from_the_newest_record_of_a_segment() {
    let bench =
        Bench::new(&[("retention.ms", "3600000"), ("message.timestamp.after.max.ms", "9223372036854775807")]);
    let log = bench.open();
    lead(&log, 1, 36_000_000, 100);
    lead(&log, 1, 39_000_000, 100);
    log.roll(None).expect("a roll");
    lead(&log, 1, 42_600_000, 100);
    log.update_high_watermark(Offset::new(3));
    bench.clock.set(42_600_000);
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 0);
    bench.clock.set(42_600_001);
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 1);
    assert_eq!((log.log_start_offset().get(), bases(&log)), (2, vec![2]));
}

#[test]
fn log_03_a_time_in_the_future_is_named() {
    let bench =
        Bench::new(&[("retention.ms", "1000"), ("message.timestamp.after.max.ms", "9223372036854775807")]);
    let log = with_times(&bench, &[10_000_000 + 31_536_000_000, 9_998_000, 10_000_000]);
    let outcome = log.delete_old_segments().expect("retention");
    assert_eq!(outcome.deleted, 0);
    let future = HeldBack::WithinLimit { time_ms: Some(10_000_000 + 31_536_000_000) };
    assert!(outcome.held_back.iter().any(|(_, base, why)| *base == Offset::ZERO && *why == future));
    log.update_config(config(&[("retention.bytes", "1"), ("retention.ms", "-1")])).expect("valid");
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 2);
    assert_eq!(bases(&log), [20]);
}

#[test]
fn log_04_and_log_edge_148_retention_bytes_0_removes_everything() {
    let bench = Bench::new(&[("retention.bytes", "0"), ("retention.ms", "-1")]);
    let log = with_times(&bench, &[1, 2, 3]);
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 3);
    assert_eq!((offsets(&log), bases(&log), log.size()), ((30, 30, 30), vec![30], 0));
    assert_eq!(log.delete_old_segments().expect("again").deleted, 0);
    assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(30)));
}

#[test]
fn log_05_a_compacted_log_loses_only_what_lies_below_its_start() {
    let bench = Bench::new(&[("cleanup.policy", "compact"), ("retention.ms", "1"), ("retention.bytes", "1")]);
    let log = bench.open();
    for (base, last) in [(0, 99), (100, 199), (200, 249)] {
        if base > 0 {
            log.roll(None).expect("a roll");
        }
        follow(&log, base, last).expect("an append");
    }
    log.update_high_watermark(Offset::new(250));
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 0);
    log.increment_log_start_offset(Offset::new(150)).expect("moved");
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 1);
    assert_eq!(bases(&log), [100, 200]);
    log.increment_log_start_offset(Offset::new(200)).expect("moved");
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 1);
    assert_eq!(bases(&log), [200]);
}

#[test]
fn log_02_the_high_watermark_bounds_retention() {
    let bench = Bench::new(&[("retention.ms", "1")]);
    let log = with_times(&bench, &[1, 2, 3]);
    log.update_high_watermark(Offset::ZERO);
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 0);
    log.update_high_watermark(Offset::new(15));
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 1);
    assert_eq!((log.log_start_offset().get(), bases(&log)), (10, vec![10, 20]));
}

#[test]
fn log_edge_95_and_159_files_are_renamed_now_and_removed_later() {
    let bench = Bench::new(&[("retention.ms", "1"), ("file.delete.delay.ms", "500")]);
    let log = with_times(&bench, &[1, 2]);
    log.delete_old_segments().expect("retention");
    let deleted = || bench.files().into_iter().filter(|(n, _)| n.ends_with(".deleted")).count();
    assert_eq!(bench.size_of("00000000000000000000.log"), None);
    assert!(deleted() >= 6, "{:?}", bench.files());
    bench.scheduler.advance(499);
    assert!(deleted() >= 6);
    bench.scheduler.advance(1);
    assert_eq!(deleted(), 0);
    // Of the snapshots only the last one stays.
    let snapshots: Vec<_> =
        bench.files().into_iter().filter(|(n, _)| n.ends_with(".snapshot")).map(|f| f.0).collect();
    assert_eq!(snapshots, ["00000000000000000020.snapshot"]);
}

#[test]
fn log_edge_241_an_empty_policy_removes_by_the_start_offset_alone() {
    let bench = Bench::new(&[("cleanup.policy", ""), ("retention.ms", "1"), ("retention.bytes", "1")]);
    let log = with_times(&bench, &[1, 2, 3]);
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 0);
    log.increment_log_start_offset(Offset::new(12)).expect("moved");
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 1);
    assert_eq!(log.delete_records_before(Some(Offset::new(15))).expect("allowed").get(), 15);
}

fn retained(log: &Log) -> usize {
    log.delete_old_segments().expect("retention").deleted
}

/// Segments of five records of 100 bytes each, all at time 1; the last one is active.
fn fives(log: &Log, segments: usize) {
    for n in 0..segments {
        if n > 0 {
            log.roll(None).expect("a roll");
        }
        for _ in 0..5 {
            lead(log, 1, 1, 100);
        }
    }
}

#[test]
fn log_edge_147_and_148_time_removes_what_lies_below_the_high_watermark() {
    let bench = Bench::new(&[("retention.ms", "1")]);
    let log = bench.open();
    for n in 0..100 {
        if n > 0 && n % 5 == 0 {
            log.roll(None).expect("a roll");
        }
        let epoch = LeaderEpoch::new(n / 10);
        log.append_as_leader(batch(1, 1, 100), epoch, Origin::Client).expect("an append");
    }
    assert_eq!(retained(&log), 0, "the high watermark is 0");
    log.update_high_watermark(Offset::new(25));
    assert_eq!((retained(&log), log.log_start_offset().get()), (5, 25));
    log.update_high_watermark(Offset::new(100));
    assert_eq!(retained(&log), 15);
    assert_eq!((bases(&log), offsets(&log), epochs(&log)), (vec![100], (100, 100, 100), vec![(9, 100)]));
    assert_eq!(retained(&log), 0);
    assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(100)));
}

#[test]
fn log_edge_149_the_start_offset_goes_before_the_time() {
    // 1000 is the older of the two times; retention 900 and a clock 901 behind it.
    let bench = Bench::new(&[("retention.ms", "900")]);
    let log = bench.open();
    for (n, time) in [1100, 1000, 1100].into_iter().enumerate() {
        if n > 0 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 1, time, 100);
    }
    bench.clock.set(1000 + 901);
    log.update_high_watermark(Offset::new(3));
    log.increment_log_start_offset(Offset::new(1)).expect("moved");
    assert_eq!((retained(&log), retained(&log)), (2, 0));
    assert_eq!((bases(&log), log.log_start_offset().get()), (vec![2], 2));
}

#[test]
fn log_edge_150_size_keeps_at_least_the_limit() {
    for (limit, left) in [("1000", 2), ("1500", 3)] {
        let log = Bench::new(&[("retention.bytes", limit)]).open();
        fives(&log, 3);
        log.update_high_watermark(Offset::new(15));
        retained(&log);
        assert_eq!(bases(&log).len(), left, "{limit}");
    }
}

#[test]
fn log_edge_151_the_start_offset_keeps_the_active_segment() {
    let log = Bench::new(&[]).open();
    fives(&log, 3);
    log.update_high_watermark(Offset::new(15));
    for (start, left) in [(1, 3), (6, 2), (15, 1)] {
        log.increment_log_start_offset(Offset::new(start)).expect("moved");
        retained(&log);
        assert_eq!(bases(&log).len(), left, "{start}");
    }
    assert_eq!(log.size(), 500);
}

#[test]
fn log_edge_152_a_log_that_is_only_compacted_goes_by_its_start() {
    let bench = Bench::new(&[("retention.ms", "1")]);
    let log = bench.open();
    fives(&log, 3);
    log.update_high_watermark(Offset::new(15));
    let compact = LogConfig::from_pairs([("retention.ms", "1"), ("cleanup.policy", "compact")]);
    log.update_config(compact.expect("valid")).expect("valid");
    assert_eq!(retained(&log), 0);
    log.increment_log_start_offset(Offset::new(5)).expect("moved");
    assert_eq!((retained(&log), bases(&log)), (1, vec![5, 10]));
}

#[test]
fn log_edge_153_retention_bytes_0_leaves_one_snapshot() {
    for empty_active in [false, true] {
        let bench = Bench::new(&[("retention.bytes", "0"), ("file.delete.delay.ms", "100")]);
        let log = bench.open();
        for n in 0..3 {
            if n > 0 {
                log.roll(None).expect("a roll");
            }
            Draft::new(1).of(1, 0, n).lead(&log).expect("an append");
        }
        if empty_active {
            log.roll(None).expect("a roll");
        }
        log.update_high_watermark(Offset::new(3));
        assert_eq!(retained(&log), 3);
        bench.scheduler.advance(100);
        assert_eq!((log.log_start_offset().get(), bases(&log), snapshots(&bench)), (3, vec![3], vec![3]));
    }
}

#[test]
fn log_edge_154_ten_of_ten_go_once_the_active_one_has_data() {
    for (data, gone) in [(false, 9), (true, 10)] {
        let log = Bench::new(&[("retention.ms", "1")]).open();
        for _ in 0..9 {
            lead(&log, 1, 1, 100);
            log.roll(None).expect("a roll");
        }
        if data {
            lead(&log, 1, 1, 100);
        }
        log.update_high_watermark(log.log_end_offset());
        assert_eq!(retained(&log), gone);
    }
}

#[test]
fn log_edge_155_the_log_start_stays_below_the_high_watermark() {
    let log = Bench::new(&[]).open();
    fives(&log, 1);
    log.update_high_watermark(Offset::new(3));
    assert_eq!(kafka_name(log.increment_log_start_offset(Offset::new(4))), "OffsetOutOfRangeException");
    assert_eq!(log.log_start_offset(), Offset::ZERO);
}

#[test]
fn log_edge_207_a_log_that_expired_as_a_whole_has_four_files_and_its_epochs() {
    let bench = Bench::new(&[("internal.segment.bytes", "1000"), ("retention.ms", "1")]);
    let log = bench.open();
    for _ in 0..200 {
        lead(&log, 1, 1, 100);
    }
    log.update_high_watermark(Offset::new(200));
    assert_eq!(retained(&log), 20);
    bench.scheduler.advance(60_000);
    log.flush(true).expect("the indexes are touched");
    let files: Vec<_> = bench.files().into_iter().map(|f| f.0).collect();
    let mut expected: Vec<_> =
        ["index", "log", "snapshot", "timeindex"].iter().map(|ending| name(200, ending)).collect();
    expected.push("leader-epoch-checkpoint".into());
    assert_eq!(files, expected);
    let read = |offset| log.read(Offset::new(offset), 1 << 20, kseg_log::Isolation::LogEnd, true);
    assert_eq!(kafka_name(read(0)), "OffsetOutOfRangeException");
    assert!(read(200).expect("at the end").is_empty());
}

#[test]
fn log_edge_208_size_leaves_one_segment_more_than_fits() {
    let bench = Bench::new(&[("internal.segment.bytes", "1000"), ("retention.bytes", "5010")]);
    let log = bench.open();
    for _ in 0..200 {
        lead(&log, 1, 1, 100);
    }
    assert_eq!(bases(&log).len(), 20);
    log.update_high_watermark(Offset::new(200));
    retained(&log);
    assert_eq!(bases(&log).len(), 6);
}

#[test]
fn log_edge_286_snapshots_below_the_start_go_and_producers_stay() {
    let bench = Bench::new(&[("file.delete.delay.ms", "100")]);
    let log = bench.open();
    for (n, (id, sequence)) in [(1, 0), (2, 0), (2, 1)].into_iter().enumerate() {
        if n > 0 {
            log.roll(None).expect("a roll");
        }
        Draft::new(1).of(id, 0, sequence).lead(&log).expect("an append");
    }
    assert_eq!((bases(&log), snapshots(&bench)), (vec![0, 1, 2], vec![1, 2]));
    log.update_high_watermark(Offset::new(3));
    log.increment_log_start_offset(Offset::new(2)).expect("moved");
    assert_eq!(retained(&log), 2);
    bench.scheduler.advance(100);
    assert_eq!((snapshots(&bench), producers(&log)), (vec![2], vec![(1, 0, None), (2, 1, None)]));
}

#[test]
fn log_edge_296_no_segment_at_or_above_the_high_watermark_goes() {
    let log = Bench::new(&[("internal.segment.bytes", "512"), ("retention.ms", "1")]).open();
    for _ in 0..100 {
        lead(&log, 1, 1, 100);
    }
    for high_watermark in 0..=100 {
        log.update_high_watermark(Offset::new(high_watermark));
        retained(&log);
        let bases = bases(&log);
        assert!(log.log_start_offset().get() <= high_watermark);
        assert!(bases[0] <= high_watermark);
        assert!(bases[1..].iter().all(|&base| base > high_watermark), "{bases:?} at {high_watermark}");
    }
    assert_eq!((bases(&log), offsets(&log), log.size()), (vec![100], (100, 100, 100), 0));
}

#[test]
fn log_edge_298_compact_and_delete_deletes_too() {
    let log = Bench::new(&[("retention.ms", "1")]).open();
    fives(&log, 3);
    log.update_high_watermark(Offset::new(15));
    let both = LogConfig::from_pairs([("retention.ms", "1"), ("cleanup.policy", "compact, delete")]);
    log.update_config(both.expect("a blank behind the comma is fine")).expect("valid");
    assert_eq!((retained(&log), bases(&log), offsets(&log)), (3, vec![15], (15, 15, 15)));
}

#[test]
fn records_are_deleted_by_a_clients_rules() {
    let log = Bench::new(&[]).open();
    fives(&log, 3);
    log.update_high_watermark(Offset::new(12));
    assert_eq!(log.delete_records_before(Some(Offset::new(7))).expect("deleted").get(), 7);
    assert_eq!(log.delete_records_before(Some(Offset::new(3))).expect("nothing below").get(), 7);
    for beyond in [-1, 13] {
        let refused = log.delete_records_before(Some(Offset::new(beyond)));
        assert_eq!(kafka_name(refused), "OffsetOutOfRangeException", "{beyond}");
    }
    assert_eq!(log.delete_records_before(None).expect("all that is committed").get(), 12);
    assert_eq!((retained(&log), bases(&log)), (2, vec![10]));

    let compacted = Bench::new(&[("cleanup.policy", "compact")]).open();
    assert_eq!(kafka_name(compacted.delete_records_before(None)), "PolicyViolationException");
    let bench = Bench::new(&[]);
    let internal = Log::open(std::path::Path::new("/data/__consumer_offsets-0"), bench.options());
    let refused = internal.expect("a log").delete_records_before(None).expect_err("Kafka's own");
    assert_eq!(refused.kafka_name(), "InvalidTopicException");
    assert!(refused.to_string().contains("__consumer_offsets-0"), "{refused}");
}
