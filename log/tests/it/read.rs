use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kseg_format::{Batches, LeaderEpoch, Offset, Origin, Timestamp};
use kseg_log::{Isolation, TimestampQuery};
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

#[test]
fn log_edge_126_to_130_bounds_and_gaps() {
    let bench = Bench::new(&[("internal.segment.bytes", "200")]);
    let log = bench.open();
    log.truncate_fully_and_start_at(Offset::new(1024), None).expect("an empty log");
    lead(&log, 1, 1, 100);
    assert_eq!(read(&log, 1025), (1025, 0));
    for offset in [0, 1026] {
        assert!(log.read(Offset::new(offset), 1, Isolation::LogEnd, true).is_err(), "{offset}");
    }
    follow(&log, 1030, 1039).expect("a gap");
    follow(&log, 1050, 1059).expect("a gap, in the next segment");
    assert_eq!((read(&log, 1027).0, read(&log, 1035).0, read(&log, 1040).0), (1030, 1030, 1050));
    let short = log.read(Offset::new(1030), 1, Isolation::LogEnd, false).expect("a read");
    assert_eq!((short.len(), short.first_incomplete), (1, true));
    assert_eq!(log.read(Offset::new(1030), 0, Isolation::LogEnd, false).expect("a read").len(), 0);
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
