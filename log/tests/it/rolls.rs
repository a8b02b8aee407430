//! When a segment rolls, and what a roll leaves behind.

use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Call, Fault, Faulty};
use kseg_log::Log;

use crate::support::*;

/// Room for any timestamp.
const ANY_TIME: (&str, &str) = ("message.timestamp.after.max.ms", "9223372036854775807");

fn count(bench: &Bench, ending: &str) -> usize {
    bench.files().iter().filter(|(name, _)| name.ends_with(ending)).count()
}

fn at(log: &Log, time: i64) -> usize {
    lead(log, 1, time, 100);
    bases(log).len()
}

#[test]
fn log_edge_88_a_roll_below_the_active_base_is_refused() {
    let log = Bench::new(&[]).open();
    lead(&log, 1, 1, 100);
    log.roll(Some(Offset::new(3))).expect("a roll");
    assert_eq!((bases(&log), log.log_end_offset().get()), (vec![0, 3], 1));
    assert_eq!(kafka_name(log.roll(None)), "KafkaException");
    assert_eq!(bases(&log), [0, 3]);
}

#[test]
fn log_edge_90_a_stray_file_of_the_new_name_goes_and_is_reported() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    overwrite(&bench, &name(1, "log"), b"junk");
    assert_eq!(log.roll(None).expect("a roll"), Offset::new(1));
    assert_eq!((bench.size_of(&name(1, "log")), bases(&log)), (Some(0), vec![0, 1]));
    let trouble = log.last_trouble().expect("it is reported");
    assert!(trouble.to_string().contains(&name(1, "log")), "{trouble}");
}

#[test]
fn log_edge_117_without_timestamps_the_wall_clock_rules() {
    let bench = Bench::new(&[("segment.ms", "3600000")]);
    let log = bench.open();
    bench.clock.set(10_000_000 + 3_600_001);
    assert_eq!((at(&log, -1), at(&log, -1)), (1, 2));
}

#[test]
fn log_edge_118_a_first_batch_without_a_timestamp_leaves_it_to_the_wall_clock() {
    let bench = Bench::new(&[("segment.ms", "3600000"), ANY_TIME]);
    let log = bench.open();
    assert_eq!((at(&log, -1), at(&log, 10_000_000 + 3_600_000)), (1, 1));
}

#[test]
fn log_edge_119_with_timestamps_the_wall_clock_does_not_count() {
    let bench = Bench::new(&[("segment.ms", "3600000"), ANY_TIME]);
    let log = bench.open();
    let first = 10_000_000;
    assert_eq!(at(&log, first), 1);
    bench.clock.set(first + 10 * 3_600_000);
    assert_eq!((at(&log, first), at(&log, first + 3_600_001)), (1, 2));
}

#[test]
fn log_edge_120_an_append_of_nothing_rolls_nothing() {
    let bench = Bench::new(&[("segment.ms", "3600000")]);
    let log = bench.open();
    lead(&log, 1, -1, 100);
    bench.clock.set(10_000_000 + 10 * 3_600_000);
    let info = log.append_as_leader(BytesMut::new(), LeaderEpoch::new(0), Origin::Client).expect("nothing");
    assert_eq!((info.last_offset, bases(&log)), (None, vec![0]));
}

#[test]
fn log_edge_121_jitter_takes_off_less_than_its_most() {
    let config = [("segment.ms", "100000"), ("segment.jitter.ms", "20000"), ANY_TIME];
    for _ in 0..20 {
        let log = Bench::new(&config).open();
        assert_eq!((at(&log, 0), at(&log, 80_000)), (1, 1), "at least segment.ms less the jitter");
        assert_eq!(at(&log, 100_001), 2, "at most segment.ms");
    }
    let most = crate::support::config(&config);
    let drawn: Vec<_> = (0..1000).map(|n| most.segment_jitter(n * 7919)).collect();
    assert!(drawn.iter().all(|j| (0..20_000).contains(j)) && drawn.iter().any(|&j| j > 0));
}

#[test]
fn log_edge_122_a_segment_that_is_one_byte_a_batch_short_of_ten_takes_nine() {
    let log = Bench::new(&[("internal.segment.bytes", "990")]).open();
    for _ in 0..11 {
        lead(&log, 1, 1, 100);
    }
    assert_eq!(bases(&log), [0, 9]);
}

#[test]
fn log_edge_123_an_empty_segment_whose_index_is_full_is_replaced() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    log.roll(None).expect("a roll");
    // Nobody has opened the new segment's index yet: it is then taken for full, with room for nothing.
    overwrite(&bench, &name(1, "index"), b"");
    assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(1)));
    assert_eq!((bases(&log), bench.size_of(&name(1, "index"))), (vec![0, 1], Some(10_485_760)));
}

#[test]
fn log_edge_132_only_a_forced_flush_touches_an_empty_active_segment() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    log.roll(None).expect("a roll");
    log.flush(false).expect("flushed");
    assert_eq!(count(&bench, ".index"), 1);
    log.flush(true).expect("flushed");
    assert_eq!(count(&bench, ".index"), 2);
}

#[test]
fn log_edge_133_indexes_are_cut_by_a_roll_and_get_their_room_back_from_a_truncation() {
    let bench = Bench::new(&[("index.interval.bytes", "99")]);
    let log = bench.open();
    for n in 0..10 {
        lead(&log, 1, 1000 + n, 100);
    }
    log.roll(None).expect("a roll");
    lead(&log, 1, 2000, 100);
    let lens = || (bench.size_of(&name(0, "index")), bench.size_of(&name(0, "timeindex")));
    assert_eq!(lens(), (Some(9 * 8), Some(9 * 12)));
    log.truncate_to(Offset::ZERO).expect("truncated");
    assert_eq!(lens(), (Some(10_485_760 / 8 * 8), Some(10_485_760 / 12 * 12)));
    assert_eq!(bases(&log), [0]);
}

#[test]
fn log_edge_144_each_roll_takes_a_snapshot_and_a_flush_removes_none() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for _ in 0..3 {
        lead(&log, 1, 1, 100);
        log.roll(None).expect("a roll");
    }
    assert_eq!(snapshots(&bench), [1, 2, 3]);
    log.flush(false).expect("flushed");
    assert_eq!(snapshots(&bench), [1, 2, 3]);
}

#[test]
fn log_edge_145_a_snapshot_that_is_not_durable_keeps_the_recovery_point() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    log.flush(false).expect("flushed");
    lead(&log, 1, 1, 100);
    faulty.inject(Fault::on(Call::SyncFile).role("snapshot"));
    log.roll(None).expect("a roll");
    assert_eq!((faulty.fired(), log.recovery_point().get()), (1, 1));
    assert!(log.last_trouble().is_some_and(|t| t.task == "flush-log"));
    assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(2)));
    log.flush(false).expect("flushed");
    assert_eq!(log.recovery_point().get(), 3);
}

#[test]
fn log_edge_229_an_append_that_fills_the_indexes_is_readable_and_the_next_one_rolls() {
    let log = Bench::new(&[("index.interval.bytes", "0"), ("segment.index.bytes", "24")]).open();
    let mut four = BytesMut::new();
    for n in 0..4 {
        four.extend_from_slice(&batch_at(n, 1, 10 + n, 69));
    }
    log.append_as_follower(four.freeze(), LeaderEpoch::new(0)).expect("an append");
    assert_eq!((log.log_end_offset().get(), spans(&log, 0)), (4, (0..4).map(|n| (n, n)).collect()));
    let state = log.state(true).expect("state");
    assert_eq!((state.segments[0].offset_entries.len(), state.segments[0].time_entries.len()), (3, 1));
    lead(&log, 1, 20, 69);
    assert_eq!((bases(&log), spans(&log, 0).len()), (vec![0, 4], 5));
}

#[test]
fn log_edge_248_a_segment_that_overflows_is_loaded_after_a_clean_stop_and_rolls() {
    const M: i64 = i32::MAX as i64;
    let bench = Bench::new(&[]);
    bench.open().close().expect("closed");
    let bytes = [batch_at(0, 1, 1, 100), batch_at(M + 1, 1, 1, 100)].concat();
    overwrite(&bench, &name(0, "log"), &bytes);
    let log = bench.open();
    assert_eq!((bases(&log), log.log_end_offset().get()), (vec![0], M + 2));
    lead(&log, 1, 1, 100);
    assert_eq!((bases(&log), spans(&log, 0)), (vec![0, M + 2], vec![(0, 0), (M + 1, M + 1), (M + 2, M + 2)]));
}

#[test]
fn log_edge_254_rolls_of_an_empty_segment_replace_it() {
    let bench = Bench::new(&[("file.delete.delay.ms", "1000")]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    log.roll(None).expect("a roll");
    assert_eq!((bench.size_of(&name(1, "index")), bases(&log)), (None, vec![0, 1]));
    log.roll(None).expect("a roll that replaces it");
    let deleted = |ending: &str| bench.size_of(&format!("{}.deleted", name(1, ending)));
    assert_eq!(
        (deleted("log"), deleted("index"), deleted("timeindex")),
        (Some(0), Some(10_485_760), Some(10_485_756))
    );
    assert_eq!(bases(&log), [0, 1]);
}

#[test]
fn log_edge_267_a_flush_moves_the_recovery_point_and_notes_the_time() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    assert_eq!((log.recovery_point().get(), log.last_flush_ms()), (0, 10_000_000));
    bench.clock.set(10_000_001);
    log.flush(false).expect("flushed");
    assert_eq!((log.recovery_point().get(), log.last_flush_ms()), (1, 10_000_001));
}

#[test]
fn log_edge_280_and_281_a_snapshot_holds_what_came_before_the_roll() {
    let bench = Bench::new(&[("internal.segment.bytes", "1024")]);
    let log = bench.open();
    let data = |sequence| Draft::new(1).of(1, 0, sequence).value(512).lead(&log).expect("an append");
    data(0);
    data(1);
    assert_eq!((bases(&log), snapshots(&bench), producers(&log)), (vec![0, 1], vec![1], vec![(1, 1, None)]));
    let before = contents(&bench, &name(1, "snapshot"));
    assert!(log.truncate_to(Offset::new(1)).expect("truncated"));
    assert_eq!((bases(&log), contents(&bench, &name(1, "snapshot"))), (vec![0, 1], before));
    let state = log.state(false).expect("state");
    let known = &state.producers[0].batches;
    assert_eq!(
        known.iter().map(|b| (b.first_offset().get(), b.last_offset().get())).collect::<Vec<_>>(),
        [(0, 0)]
    );

    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    log.take_producer_snapshot().expect("taken");
    assert_eq!(bench.size_of(&name(1, "snapshot")), Some(10));
}

#[test]
fn log_edge_290_every_batch_rolls_and_what_rolled_is_flushed_in_the_background() {
    let bench = Bench::new(&[("internal.segment.bytes", "100")]);
    let log = bench.open();
    for n in 0..100 {
        lead(&log, 1, n, 100);
    }
    assert_eq!(spans(&log, 0), (0..100).map(|n| (n, n)).collect::<Vec<_>>());
    let active = *bases(&log).last().expect("a segment");
    assert_eq!((bases(&log).len(), active), (100, 99));
    assert!(log.recovery_point().get() >= active);
}

#[test]
fn log_edge_93_a_flush_of_a_folder_that_has_gone_is_no_error() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    bench.backend.names().remove_dir_all(Path::new(DIR)).expect("removed");
    log.flush(false).expect("it is about to go, or has been renamed");
}
