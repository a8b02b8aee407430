use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kseg_format::{Batches, Codec, LeaderEpoch, Magic, Offset, Origin, Timestamp};
use kseg_log::{Isolation, Log, TimestampQuery};
use proptest::prelude::*;

use crate::support::*;

#[test]
fn log_edge_104_reads_end_at_the_high_watermark() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for _ in 0..3 {
        lead(&log, 1, 1, 100);
    }
    let read =
        |offset, isolation| log.read(Offset::new(offset), 1 << 20, isolation, true).expect("a read").len();
    assert_eq!((read(0, Isolation::HighWatermark), read(0, Isolation::LogEnd)), (0, 300));
    assert_eq!(log.update_high_watermark(Offset::new(5)), Offset::new(3));
    assert_eq!(read(0, Isolation::HighWatermark), 300);
    log.roll(None).expect("a roll");
    assert_eq!(read(0, Isolation::HighWatermark), 300);
    assert_eq!(read(0, Isolation::Committed), 300);
    lead(&log, 1, 1, 100);
    assert_eq!((read(3, Isolation::HighWatermark), read(3, Isolation::LogEnd)), (0, 100));
}

#[test]
fn log_edge_231_a_lookup_never_moves_the_high_watermark() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    follow(&log, 0, 3).expect("an append");
    follow(&log, 7, 9).expect("an append");
    log.update_high_watermark(Offset::new(5));
    let fetch = log.read(Offset::ZERO, 1 << 20, Isolation::HighWatermark, true).expect("a read");
    assert_eq!((fetch.len(), log.high_watermark().get()), (100, 5));
    log.update_high_watermark(Offset::new(8));
    let fetch = log.read(Offset::ZERO, 1 << 20, Isolation::HighWatermark, true).expect("a read");
    assert_eq!((fetch.len(), log.high_watermark().get()), (100, 8));
}

#[test]
fn log_06_the_log_start_may_lie_inside_a_batch() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 10, 1, 200);
    lead(&log, 10, 1, 200);
    log.update_high_watermark(Offset::new(20));
    assert!(log.increment_log_start_offset(Offset::new(5)).expect("moved"));
    assert_eq!(read(&log, 5), (0, 400));
    for offset in [4, 0] {
        let refused =
            log.read(Offset::new(offset), 100, Isolation::LogEnd, true).expect_err("below the log start");
        assert_eq!(refused.kafka_name(), "OffsetOutOfRangeException");
    }
    let beyond = log.increment_log_start_offset(Offset::new(21)).expect_err("above the high watermark");
    assert_eq!(beyond.kafka_name(), "OffsetOutOfRangeException");

    // A follower whose empty log begins at 5 refuses the batch, and its layer starts the log over.
    let follower = Bench::new(&[]);
    let log = follower.open();
    log.truncate_fully_and_start_at(Offset::new(5), None).expect("an empty log at 5");
    let refused = follow(&log, 0, 9).expect_err("below the log end");
    assert_eq!(refused.kafka_name(), "UnexpectedAppendOffsetException");
    assert!(refused.to_string().contains("offsets 0 to 9"), "{refused}");
    log.truncate_fully_and_start_at(Offset::ZERO, None).expect("started over");
    follow(&log, 0, 9).expect("an append");
    log.update_high_watermark(Offset::new(10));
    assert!(log.increment_log_start_offset(Offset::new(5)).expect("moved"));
    assert_eq!(offsets(&log), (5, 10, 10));
}

fn place(log: &Log, offset: i64, isolation: Isolation) -> (i64, i64, u64, usize) {
    let fetch = log.read(Offset::new(offset), 1 << 20, isolation, true).expect("a read");
    let place = fetch.place.expect("a place");
    (fetch.offset.get(), place.segment.get(), place.position, fetch.len())
}

#[test]
fn log_edge_96_a_read_at_or_beyond_the_mark_tells_the_place() {
    let log = Bench::new(&[]).open();
    for n in 0..6 {
        if n == 2 || n == 4 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 1, 1, 69);
    }
    log.update_high_watermark(Offset::new(4));
    let read = |offset| place(&log, offset, Isolation::HighWatermark);
    assert_eq!((read(3), read(4), read(5)), ((3, 2, 69, 69), (4, 4, 0, 0), (5, 4, 69, 0)));
}

#[test]
fn log_edge_126_bounds_of_a_log_that_begins_elsewhere() {
    let log = Bench::new(&[]).open();
    log.truncate_fully_and_start_at(Offset::new(1024), None).expect("an empty log");
    lead(&log, 1, 1, 100);
    assert_eq!(self::read(&log, 1025), (1025, 0));
    for offset in [0, 1026] {
        let refused = log.read(Offset::new(offset), 1, Isolation::LogEnd, true);
        assert_eq!(kafka_name(refused), "OffsetOutOfRangeException", "{offset}");
    }
}

#[test]
fn log_edge_127_a_read_goes_on_in_the_next_segment() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for n in 0..6 {
        if n == 3 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 1, 1, 100);
    }
    log.close().expect("closed");
    overwrite(&bench, &name(0, "log"), &contents(&bench, &name(0, "log"))[..100]);
    let log = bench.open();
    assert_eq!((self::read(&log, 0), self::read(&log, 1)), ((0, 100), (3, 300)));
}

#[test]
fn log_edge_128_compressed_batches_are_read_from_their_beginning() {
    let log = Bench::new(&[]).open();
    for _ in 0..2 {
        Draft::new(2).codec(Codec::Gzip).value(200).lead(&log).expect("an append");
    }
    assert_eq!((self::read(&log, 1).0, self::read(&log, 3).0), (0, 2));
}

#[test]
fn log_edge_129_sizes_that_hold_no_batch() {
    let log = Bench::new(&[]).open();
    lead(&log, 1, 1, 100);
    lead(&log, 1, 1, 100);
    let read = |max, min_one| {
        let fetch = log.read(Offset::ZERO, max, Isolation::LogEnd, min_one).expect("a read");
        (fetch.len(), fetch.first_incomplete)
    };
    assert_eq!((read(0, false), read(1, false), read(1, true)), ((0, false), (1, true), (100, false)));
}

#[test]
fn log_edge_130_a_missing_offset_gives_the_next_one() {
    let log = Bench::new(&[("internal.segment.bytes", "300")]).open();
    for base in [0, 30, 50, 90] {
        follow(&log, base, base + 9).expect("an append");
    }
    assert_eq!(bases(&log).len(), 2);
    assert_eq!([27, 35, 40, 60, 99].map(|offset| self::read(&log, offset).0), [30, 30, 50, 90, 90]);
}

#[test]
fn log_edge_164_the_largest_timestamp_after_a_truncation_is_of_a_record_that_is_there() {
    let log = Bench::new(&[]).open();
    let max = || {
        let found = log.offset_for_timestamp(TimestampQuery::Max).expect("a lookup");
        found.map(|f| (Timestamp::to_raw(f.timestamp), f.offset.get()))
    };
    for (n, time) in [10, 12, 30, 11].into_iter().enumerate() {
        if n == 2 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 1, time, 100);
    }
    assert_eq!(max(), Some((30, 2)));
    for (to, expected) in [(3, Some((30, 2))), (2, Some((12, 1))), (1, Some((10, 0))), (0, None)] {
        log.truncate_to(Offset::new(to)).expect("truncated");
        // An empty segment whose largest timestamp is the first one found answers with nothing.
        let found = max();
        assert!(found == expected || found.is_none_or(|(_, offset)| offset < to), "{to}: {found:?}");
    }
}

#[test]
fn log_edge_165_and_242_offsets_that_are_asked_for_by_name() {
    let log = Bench::new(&[]).open();
    lead(&log, 2, 1, 100);
    let ask = |query| {
        log.offset_for_timestamp(query)
            .expect("a lookup")
            .map(|f| (Timestamp::to_raw(f.timestamp), f.offset.get(), f.leader_epoch.map(LeaderEpoch::get)))
    };
    assert_eq!(ask(TimestampQuery::Latest), Some((-1, 2, Some(0))));
    log.assign_epoch(LeaderEpoch::new(7), Offset::new(2)).expect("assigned");
    assert_eq!(ask(TimestampQuery::Latest), Some((-1, 2, Some(7))));
    assert_eq!(ask(TimestampQuery::EarliestLocal), ask(TimestampQuery::Earliest));
    assert_eq!((ask(TimestampQuery::LatestTiered), ask(TimestampQuery::EarliestPendingUpload)), (None, None));
}

#[test]
fn log_edge_255_the_largest_timestamp_where_there_is_none() {
    let find = |log: &Log| {
        let found = log.offset_for_timestamp(TimestampQuery::Max).expect("a lookup");
        found.map(|f| (Timestamp::to_raw(f.timestamp), f.offset.get(), f.leader_epoch.map(LeaderEpoch::get)))
    };
    let log = Bench::new(&[]).open();
    lead(&log, 3, -1, 100);
    lead(&log, 3, -1, 100);
    assert_eq!(find(&log), Some((-1, 0, Some(0))));

    let old = |log: &Log, base| {
        let bytes = messages(Magic::V0, Codec::None, &[(base, -1)]).freeze();
        log.append_as_follower(bytes, LeaderEpoch::new(0)).expect("an append");
    };
    let log = Bench::new(&[]).open();
    old(&log, 0);
    assert_eq!(find(&log), None);
    log.roll(None).expect("a roll");
    Draft::new(1).base(1).times(&[-1]).follow(&log).expect("an append");
    assert_eq!(find(&log), None, "the first of the segments with no timestamp is asked");

    let log = Bench::new(&[]).open();
    assert_eq!(log.roll(Some(Offset::new(5))).expect("a roll"), Offset::new(5));
    Draft::new(1).base(5).times(&[-1]).follow(&log).expect("an append");
    assert_eq!((bases(&log), find(&log)), (vec![0, 5], None));
}

#[test]
fn log_edge_275_reads_up_to_the_high_watermark() {
    let log = Bench::new(&[]).open();
    Draft::new(3).value(2).lead(&log).expect("an append");
    let first = log.size();
    Draft::new(2).lead(&log).expect("an append");
    log.update_high_watermark(Offset::new(3));
    let read = |offset| {
        let fetch = log.read(Offset::new(offset), 4096, Isolation::HighWatermark, true).expect("a read");
        assert!(!fetch.first_incomplete);
        (fetch.offset.get(), fetch.place.expect("a place").position, fetch.len() as u64)
    };
    assert_eq!((read(0), read(2)), ((0, 0, first), (0, 0, first)));
    assert_eq!((read(3), read(4)), ((3, first, 0), (3, first, 0)));
    assert_eq!(read(5), (5, log.size(), 0));
}

#[test]
fn a_region_can_be_read_after_its_segment_has_been_deleted() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    let region =
        log.read(Offset::ZERO, 1 << 20, Isolation::LogEnd, true).expect("a read").region.expect("data");
    let before = region.to_bytes().expect("bytes");
    log.update_high_watermark(Offset::new(1));
    log.update_config(config(&[("retention.ms", "1")])).expect("valid");
    assert_eq!(log.delete_old_segments().expect("retention").deleted, 1);
    bench.scheduler.advance(60_000);
    assert!(!bench.files().iter().any(|(name, _)| name.ends_with(".deleted")));
    assert_eq!(region.to_bytes().expect("bytes"), before);
}

#[test]
fn log_edge_163_and_291_offsets_by_time() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let find = |query| {
        log.offset_for_timestamp(query)
            .expect("a lookup")
            .map(|f| (Timestamp::to_raw(f.timestamp), f.offset.get(), f.leader_epoch.map(LeaderEpoch::get)))
    };
    assert_eq!(find(TimestampQuery::Max), None);
    assert_eq!(find(TimestampQuery::At(Timestamp::new(5))), None);
    let append = |time, epoch| {
        log.append_as_leader(batch(1, time, 100), LeaderEpoch::new(epoch), Origin::Client).expect("an append")
    };
    append(1000, 0);
    append(1001, 1);
    assert_eq!(find(TimestampQuery::At(Timestamp::new(1000))), Some((1000, 0, Some(0))));
    assert_eq!(find(TimestampQuery::At(Timestamp::new(1001))), Some((1001, 1, Some(1))));
    assert_eq!(find(TimestampQuery::Earliest), Some((-1, 0, Some(0))));
    assert_eq!(find(TimestampQuery::Latest), Some((-1, 2, Some(1))));
    assert_eq!(find(TimestampQuery::Max), Some((1001, 1, Some(1))));
    log.assign_epoch(LeaderEpoch::new(2), Offset::new(2)).expect("assigned");
    assert_eq!(find(TimestampQuery::Latest), Some((-1, 2, Some(2))));
}

#[test]
fn log_edge_169_readers_beside_a_writer_see_whole_batches_in_order() {
    let bench = Bench::new(&[("internal.segment.bytes", "2000"), ("index.interval.bytes", "300")]);
    let log = Arc::new(bench.open());
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (log, done) = (log.clone(), done.clone());
            std::thread::spawn(move || {
                let mut next = 0;
                while !(done.load(Ordering::SeqCst) && next == log.log_end_offset().get()) {
                    let Some(bytes) = bytes_of(&log, next) else { continue };
                    for batch in Batches::new(&bytes) {
                        let batch = batch.expect("framing").verify().expect("a checksum");
                        assert_eq!(batch.header().base_offset(), Some(Offset::new(next)));
                        next = batch.header().next_offset().get();
                    }
                    assert!(next <= log.log_end_offset().get());
                }
                next
            })
        })
        .collect();
    for n in 0..300 {
        lead(&log, 1 + n % 3, n as i64, 100 + n % 90);
    }
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        assert_eq!(reader.join().expect("no panic"), log.log_end_offset().get());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Against a list of batches: whatever rolls between them, each offset is found, before and after reopening.
    #[test]
    fn every_offset_is_found(
        sizes in prop::collection::vec((1..4usize, 69..400usize), 1..40),
        segment_bytes in 500..3000u32,
        interval in 0..500u32,
        crash: bool,
    ) {
        let bytes = segment_bytes.to_string();
        let bench = Bench::new(&[("internal.segment.bytes", &bytes), ("index.interval.bytes", &interval.to_string())]);
        let mut log = bench.open();
        let mut list = Vec::new();
        for (n, (count, size)) in sizes.into_iter().enumerate() {
            let info = lead(&log, count, n as i64, size + 40);
            list.push((info.first_offset.expect("first").get(), info.last_offset.expect("last").get()));
        }
        for again in [false, true] {
            if again && crash {
                log.abandon();
                log = bench.open_unclean(0);
            } else if again {
                log.close().expect("closed");
                log = bench.open();
            }
            for &(first, last) in &list {
                for offset in first..=last {
                    prop_assert_eq!(read(&log, offset).0, first);
                }
            }
            prop_assert_eq!(log.log_end_offset().get(), list.last().expect("one").1 + 1);
            prop_assert!(log.load_report().is_quiet(), "{}", log.load_report());
        }
    }
}
