use kseg_format::Offset;
use kseg_log::HeldBack;

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
fn log_04_retention_bytes_0_removes_everything() {
    let bench = Bench::new(&[("retention.bytes", "0"), ("retention.ms", "-1")]);
    let log = with_times(&bench, &[1, 2, 3]);
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 3);
    assert_eq!((offsets(&log), bases(&log), log.size()), ((30, 30, 30), vec![30], 0));
    assert_eq!(log.delete_old_segments().expect("log_edge_148: again").deleted, 0);
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
    // log_edge_153: of the snapshots only the last one stays.
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
}
