use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use kseg_format::legacy::{self, LegacyOptions, LegacyRecord};
use kseg_format::{
    BatchOptions, Batches, Codec, LeaderEpoch, Magic, Offset, Origin, RecordBatchBuilder, Timestamp,
    ValidationError,
};
use kseg_log::{Error, Log, Observer, OpenOptions};

use crate::support::*;

#[test]
fn seg_03_a_set_of_batches_larger_than_a_segment_is_refused() {
    let bench = Bench::new(&[("internal.segment.bytes", "1000"), ("max.message.bytes", "1048576")]);
    let log = bench.open();
    let before = bench.files();
    let refused =
        log.append_as_leader(batch(1, 1, 1001), LeaderEpoch::new(0), Origin::Client).expect_err("too large");
    assert_eq!(refused.kafka_name(), "RecordBatchTooLargeException");
    assert!(refused.to_string().contains("1001") && refused.to_string().contains("1000"), "{refused}");
    assert_eq!((offsets(&log), bases(&log)), ((0, 0, 0), vec![0]));
    // The epoch of the refused batch stays, as in Kafka.
    assert_eq!(bench.files().len(), before.len());
    assert_eq!(lead(&log, 1, 1, 1000).size, 1000);
}

#[test]
fn format_edge_88_and_log_edge_138_limits_of_a_batch_and_of_a_set() {
    let bench = Bench::new(&[("max.message.bytes", "200")]);
    let log = bench.open();
    let refused =
        log.append_as_leader(batch(1, 1, 201), LeaderEpoch::new(0), Origin::Client).expect_err("too large");
    assert_eq!(refused.kafka_name(), "RecordTooLargeException");
    log.append_as_follower(batch(1, 1, 201).freeze(), LeaderEpoch::new(0)).expect("followers take it");
    log.update_config(config(&[("internal.segment.bytes", "300")])).expect("valid");
    let leads = log.append_as_leader(batch(1, 1, 301), LeaderEpoch::new(0), Origin::Client);
    assert_eq!(kafka_name(leads), "RecordBatchTooLargeException");
    let follows = log.append_as_follower(batch_at(1, 1, 1, 301).freeze(), LeaderEpoch::new(0));
    assert_eq!((kafka_name(follows), log.log_end_offset().get()), ("RecordBatchTooLargeException", 1));
}

#[test]
fn seg_04_a_lowered_segment_size_holds_for_the_next_append() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    for _ in 0..5 {
        lead(&log, 1, 1, 1000);
    }
    log.update_config(config(&[("internal.segment.bytes", "1000")])).expect("valid");
    lead(&log, 1, 1, 100);
    assert_eq!(bases(&log), [0, 5]);
    assert_eq!(bench.size_of("00000000000000000000.log"), Some(5000));
}

#[test]
fn seg_01_equality_with_segment_bytes_does_not_roll() {
    let bench = Bench::new(&[("internal.segment.bytes", "3000")]);
    let log = bench.open();
    for _ in 0..7 {
        lead(&log, 1, 1, 1000);
    }
    assert_eq!(bases(&log), [0, 3, 6]);
}

#[test]
fn log_edge_105_a_raft_leader_gives_its_offsets() {
    let log = Bench::new(&[]).open();
    lead(&log, 3, 1, 200);
    let raft =
        |base| log.append_as_leader(batch_at(base, 1, 1, 100), LeaderEpoch::new(0), Origin::RaftLeader);
    assert_eq!(kafka_name(raft(1)), "UnexpectedAppendOffsetException");
    assert_eq!(raft(3).expect("at the log end").last_offset, Some(Offset::new(3)));
}

#[test]
fn log_edge_107_a_high_watermark_that_was_there_is_no_change() {
    let log = Bench::new(&[]).open();
    lead(&log, 100, 1, 2000);
    let changed = [99, 99, 100, 100, 101].map(|offset| {
        let before = log.high_watermark();
        log.update_high_watermark(Offset::new(offset)) != before
    });
    assert_eq!(changed, [true, false, true, false, false]);
}

#[test]
fn log_edge_134_every_batch_of_a_followers_append_is_indexed() {
    let batches: Vec<_> = (0..100).map(|n| batch_at(n, 1, 100 + n, 100)).collect();
    for at_once in [false, true] {
        let log = Bench::new(&[("index.interval.bytes", "1")]).open();
        let follow = |bytes: bytes::BytesMut| {
            log.append_as_follower(bytes.freeze(), LeaderEpoch::new(0)).expect("an append")
        };
        if at_once {
            follow(batches.iter().fold(bytes::BytesMut::new(), |mut all, bytes| {
                all.extend_from_slice(bytes);
                all
            }));
        } else {
            for bytes in &batches {
                follow(bytes.clone());
            }
        }
        let state = log.state(true).expect("state");
        let segment = &state.segments[0];
        assert_eq!((segment.offset_entries.len(), segment.time_entries.len()), (99, 99), "{at_once}");
    }
}

/// Three records at `base` and up, in every format, plain and compressed.
fn three_of_every_format(base: i64) -> Vec<bytes::BytesMut> {
    let records: Vec<_> = (base..base + 3).map(|offset| (offset, 1)).collect();
    let mut all = Vec::new();
    for codec in [Codec::None, Codec::Lz4] {
        all.push(Draft::new(3).base(base).codec(codec).bytes());
        all.extend([Magic::V0, Magic::V1].map(|magic| messages(magic, codec, &records)));
    }
    all
}

#[test]
fn log_edge_136_offsets_below_the_log_end_are_refused_in_every_format() {
    for bytes in three_of_every_format(0) {
        let log = Bench::new(&[]).open();
        lead(&log, 3, 1, 200);
        let refused = log.append_as_follower(bytes.freeze(), LeaderEpoch::new(0));
        assert_eq!((kafka_name(refused), log.log_end_offset().get()), ("UnexpectedAppendOffsetException", 3));
    }
}

#[test]
fn log_edge_137_the_refusal_carries_the_first_and_last_offset_in_every_format() {
    for bytes in three_of_every_format(4) {
        let log = Bench::new(&[]).open();
        log.truncate_fully_and_start_at(Offset::new(7), None).expect("an empty log");
        let refused = log.append_as_follower(bytes.freeze(), LeaderEpoch::new(0)).expect_err("below the end");
        let Error::UnexpectedAppendOffset { first, last, .. } = refused else { panic!("{refused}") };
        assert_eq!((first.get(), last.get()), (4, 6));
    }
}

#[test]
fn log_edge_139_a_compacted_log_wants_keys_and_names_the_records_without() {
    for missing in [0, 1] {
        let log = Bench::new(&[("cleanup.policy", "compact")]).open();
        let mut builder = RecordBatchBuilder::new(BatchOptions::default());
        for n in 0..2 {
            let key = (n != missing).then_some(&b"key"[..]);
            builder.append(Some(Timestamp::new(1)), key, Some(b"v"), &[]).expect("a record");
        }
        let mut bytes = bytes::BytesMut::new();
        builder.finish(&mut bytes).expect("a batch");
        let refused = log
            .append_as_leader(bytes, LeaderEpoch::new(0), Origin::Client)
            .expect_err("a record without a key");
        assert_eq!((refused.kafka_name(), log.log_end_offset().get()), ("RecordValidationException", 0));
        let Error::Validation { source: ValidationError::Records { faults, .. }, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!(faults.iter().map(|f| f.batch_index).collect::<Vec<_>>(), [missing]);
    }
}

#[test]
fn log_edge_140_a_clients_batch_begins_at_0() {
    let log = Bench::new(&[]).open();
    let refused = log.append_as_leader(batch_at(1, 1, 1, 100), LeaderEpoch::new(0), Origin::Client);
    assert_eq!(kafka_name(refused), "InvalidRecordException");
}

#[test]
fn log_edge_158_and_278_an_old_format_empties_the_leader_epochs() {
    let log = Bench::new(&[]).open();
    lead(&log, 1, 1, 100);
    assert_eq!(epochs(&log), [(0, 0)]);
    log.append_as_follower(messages(Magic::V1, Codec::None, &[(1, 1)]).freeze(), LeaderEpoch::new(0))
        .expect("an append");
    assert_eq!(epochs(&log), []);
    log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(5), Origin::Client).expect("an append");
    assert_eq!(epochs(&log), [(5, 2)]);
}

#[test]
fn log_edge_253_times_of_clients_within_the_next_hour() {
    let log = Bench::new(&[]).open();
    let at = |time| log.append_as_leader(batch(1, time, 100), LeaderEpoch::new(0), Origin::Client);
    at(10_000_000 + 3_600_000).expect("an hour ahead");
    assert_eq!(kafka_name(at(10_000_000 + 3_600_001)), "RecordValidationException");
}

#[test]
fn log_edge_276_an_append_tells_its_first_offset() {
    let log = Bench::new(&[]).open();
    let firsts = [0, 1, 2].map(|n| {
        if n == 2 {
            log.roll(None).expect("a roll");
        }
        lead(&log, 3, 1, 200).first_offset.map(Offset::get)
    });
    assert_eq!(firsts, [Some(0), Some(3), Some(6)]);
}

#[test]
fn log_edge_288_a_follower_takes_batches_of_several_producers_at_once() {
    let log = Bench::new(&[("message.timestamp.type", "LogAppendTime")]).open();
    let mut all = bytes::BytesMut::new();
    for id in 1..=4 {
        all.extend_from_slice(&Draft::new(2).base(2 * (id - 1)).of(id, 0, 10 * id as i32).bytes());
    }
    log.append_as_follower(all.freeze(), LeaderEpoch::new(0)).expect("an append");
    let bytes = bytes_of(&log, 0).expect("data");
    let seen: Vec<_> = Batches::new(&bytes)
        .map(|batch| {
            let header = *batch.expect("framing").header();
            let id = header.producer_id().expect("a producer").get();
            (id, header.base_offset().expect("V2").get(), header.base_sequence().expect("one").get())
        })
        .collect();
    assert_eq!(seen, [(1, 0, 10), (2, 2, 20), (3, 4, 30), (4, 6, 40)]);
}

#[test]
fn log_edge_297_an_observer_is_told_of_each_new_high_watermark() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observer = || {
        let seen = seen.clone();
        Observer::new(move |offset| seen.lock().expect("a list").push(offset.get()))
    };
    let taken = || std::mem::take(&mut *seen.lock().expect("a list"));
    let bench = Bench::new(&[]);
    let options = OpenOptions { observer: Some(observer()), ..bench.options() };
    let log = Log::open(std::path::Path::new(DIR), options).expect("a log");
    for _ in 0..6 {
        lead(&log, 1, 1, 100);
    }
    log.update_high_watermark(Offset::new(4));
    log.truncate_to(Offset::new(3)).expect("truncated");
    for _ in 0..3 {
        lead(&log, 1, 1, 100);
    }
    log.truncate_fully_and_start_at(Offset::new(4), None).expect("truncated");
    assert_eq!(taken(), [0, 4, 3, 4]);

    let log = Bench::new(&[]).open();
    lead(&log, 6, 1, 200);
    log.update_high_watermark(Offset::new(2));
    log.observe(Some(observer()));
    assert!(taken().is_empty());
    log.update_high_watermark(Offset::new(4));
    log.update_high_watermark(Offset::new(4));
    assert_eq!(taken(), [4]);
}

#[test]
fn idx_04_a_segment_rolls_when_a_relative_offset_would_overflow() {
    const M: i64 = i32::MAX as i64;
    let bench = Bench::new(&[]);
    let log = bench.open();
    follow(&log, 0, 0).expect("an append");
    follow(&log, M, M).expect("an append");
    assert_eq!(bases(&log), [0]);
    follow(&log, M + 1, M + 3).expect("an append");
    assert_eq!(bases(&log), [0, M + 1]);
    assert!(bench.size_of("00000000002147483648.log").is_some());

    let bench = Bench::new(&[]);
    let log = bench.open();
    follow(&log, 0, 0).expect("an append");
    follow(&log, M - 7, M + 3).expect("an append");
    assert_eq!(bases(&log), [0, M - 7]);
}

#[test]
fn log_07_and_log_edge_135_and_format_edge_91_given_offsets_have_to_go_on_from_the_log_end() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    follow(&log, 0, 99).expect("an append");
    let size = log.size();
    let mut equal = batch_at(100, 6, 1, 100);
    equal.extend_from_slice(&batch_at(105, 1, 1, 100));
    let refused = log.append_as_follower(equal.freeze(), LeaderEpoch::new(0)).expect_err("105 and 105");
    assert_eq!(refused.kafka_name(), "OffsetsOutOfOrderException");
    let refused = follow(&log, 90, 95).expect_err("below the log end");
    assert_eq!(refused.kafka_name(), "UnexpectedAppendOffsetException");
    assert!(refused.to_string().contains("90") && refused.to_string().contains("100"), "{refused}");
    // Kafka compares last offsets: that of the second batch has to be above that of the first.
    let mut two = batch_at(100, 4, 1, 100);
    two.extend_from_slice(&batch_at(101, 3, 1, 100));
    let refused = log.append_as_follower(two.freeze(), LeaderEpoch::new(0)).expect_err("out of order");
    assert_eq!(refused.kafka_name(), "OffsetsOutOfOrderException");
    assert_eq!((log.size(), log.log_end_offset().get()), (size, 100));
    follow(&log, 120, 125).expect("gaps are legal");
    assert_eq!(log.log_end_offset().get(), 126);
}

#[test]
fn log_14_records_whose_time_is_absurd_are_refused() {
    let bench = Bench::new(&[
        ("message.timestamp.before.max.ms", "3600000"),
        ("message.timestamp.after.max.ms", "60000"),
    ]);
    let log = bench.open(); // the clock shows 10000000
    let append = |time| log.append_as_leader(batch(1, time, 100), LeaderEpoch::new(0), Origin::Client);
    for (time, accepted) in
        [(6_400_000, true), (6_399_999, false), (10_060_000, true), (10_060_001, false), (-1, true)]
    {
        match append(time) {
            Ok(_) => assert!(accepted, "{time}"),
            Err(e) => {
                assert!(!accepted, "{time}: {e}");
                assert_eq!(e.kafka_name(), "RecordValidationException");
                assert!(e.to_string().contains('0'), "it names the index of the record: {e}");
            }
        }
    }
    log.update_config(config(&[("message.timestamp.type", "LogAppendTime")])).expect("valid");
    let info = append(0).expect("the record's time does not count");
    assert_eq!(info.log_append_time, Some(Timestamp::new(10_000_000)));
}

#[test]
fn format_edge_92_a_flipped_bit_is_refused_and_names_its_batch() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let mut two = batch_at(0, 1, 1, 100);
    two.extend_from_slice(&batch_at(1, 1, 1, 100));
    two[190] ^= 4;
    let refused = log.append_as_follower(two.freeze(), LeaderEpoch::new(0)).expect_err("a wrong checksum");
    assert_eq!(refused.kafka_name(), "CorruptRecordException");
    assert!(refused.to_string().contains("byte 100"), "{refused}");
    assert_eq!(log.size(), 0);
}

#[test]
fn format_edge_92_an_incomplete_batch_at_the_end_is_left_out() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let mut bytes = batch_at(0, 2, 1, 100);
    bytes.extend_from_slice(&batch_at(2, 1, 1, 100)[..60]);
    let info = log.append_as_follower(bytes.freeze(), LeaderEpoch::new(0)).expect("an append");
    assert_eq!((info.size, info.last_offset), (100, Some(Offset::new(1))));
    let none = log
        .append_as_leader(batch(1, 1, 100).split_to(40), LeaderEpoch::new(0), Origin::Client)
        .expect("nothing");
    assert_eq!((none.last_offset, log.log_end_offset().get()), (None, 2));
}

#[test]
fn log_edge_230_and_format_edge_90_a_follower_leaves_out_newer_epochs() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    let with_epoch = |base, epoch| {
        let mut bytes = batch_at(base, 1, 1, 100);
        let mut batch = kseg_format::BatchMut::parse(&mut bytes).expect("a batch");
        batch.set_leader_epoch(Some(LeaderEpoch::new(epoch))).expect("set");
        bytes
    };
    let mut three = with_epoch(0, 3);
    three.extend_from_slice(&with_epoch(1, 5));
    three.extend_from_slice(&with_epoch(2, 3));
    let info = log.append_as_follower(three.freeze(), LeaderEpoch::new(3)).expect("an append");
    assert_eq!((info.last_offset, log.log_end_offset().get()), (Some(Offset::ZERO), 1));
    assert_eq!(log.latest_epoch(), Some(LeaderEpoch::new(3)));
    let info = log.append_as_follower(with_epoch(1, 9).freeze(), LeaderEpoch::new(3)).expect("no error");
    assert_eq!((info.last_offset, log.log_end_offset().get()), (None, 1));
}

#[test]
fn log_edge_277_a_leader_stamps_its_epoch_and_a_follower_keeps_it() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(72), Origin::Client).expect("an append");
    let bytes = bytes_of(&log, 0).expect("data");
    let epoch = Batches::new(&bytes).next().expect("a batch").expect("whole").header().leader_epoch();
    assert_eq!(epoch, Some(LeaderEpoch::new(72)));
    let end = log.end_offset_for_epoch(LeaderEpoch::new(72)).expect("known");
    assert_eq!(end.end_offset, Offset::new(1));
}

#[test]
fn an_append_below_the_base_of_the_active_segment_is_refused() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 1, 1, 100);
    assert_eq!(log.roll(Some(Offset::new(10))).expect("a roll"), Offset::new(10));
    assert_eq!(log.log_end_offset().get(), 1);
    assert!(log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client).is_err());
    assert!(follow(&log, 5, 12).is_err());
    assert_eq!(log.size(), 100);
    follow(&log, 10, 12).expect("from the base on");
}

#[test]
fn log_edge_86_and_87_a_roll_replaces_an_empty_segment_or_starts_one() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    log.roll(None).expect("an empty active segment is replaced");
    assert_eq!(bases(&log), [0]);
    assert!(bench.size_of("00000000000000000000.log.deleted").is_some());
    lead(&log, 1, 1, 100);
    assert_eq!(log.roll(None).expect("a roll"), Offset::new(1));
    lead(&log, 1, 1, 100);
    assert_eq!(log.roll(Some(Offset::new(1))).expect("the log end wins"), Offset::new(2));
    // A snapshot at each base but the first.
    assert!(bench.size_of("00000000000000000001.snapshot").is_some());
    assert_eq!(bench.size_of("00000000000000000002.snapshot"), Some(10));
}

#[test]
fn offsets_at_the_end_of_their_range_are_refused() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    assert!(follow(&log, i64::MAX, i64::MAX).is_err());
    follow(&log, i64::MAX - 1, i64::MAX - 1).expect("the last one there is");
    assert!(log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client).is_err());
    assert_eq!(log.log_end_offset().get(), i64::MAX);
    // A last offset below the base offset names no record.
    let mut backwards = batch_at(10, 1, 1, 100);
    backwards[23..27].copy_from_slice(&(-5_i32).to_be_bytes());
    let crc = crc32c::crc32c(&backwards[21..]);
    backwards[17..21].copy_from_slice(&crc.to_be_bytes());
    let bench = Bench::new(&[]);
    let log = bench.open();
    let refused = log.append_as_follower(backwards.freeze(), LeaderEpoch::new(0)).expect_err("backwards");
    assert_eq!((refused.kafka_name(), log.size()), ("InvalidRecordException", 0));
}

#[test]
fn a_configuration_that_contradicts_itself_is_not_put_in_force() {
    let log = Bench::new(&[]).open();
    let before = log.config();
    let wrong = kseg_log::LogConfig { segment_bytes: -1, ..(*before).clone() };
    assert_eq!(log.update_config(wrong).expect_err("out of range").kafka_name(), "ConfigException");
    assert_eq!(*log.config(), *before);
}

#[test]
fn format_edge_87_a_client_s_batch_begins_at_0() {
    let bench = Bench::new(&[("max.message.bytes", "200")]);
    let log = bench.open();
    // Nor does its size count yet, or its checksum.
    let mut bytes = batch_at(5, 1, 1, 300);
    bytes[17] ^= 1;
    let refused =
        log.append_as_leader(bytes.clone(), LeaderEpoch::new(0), Origin::Client).expect_err("it begins at 5");
    assert_eq!(refused.kafka_name(), "InvalidRecordException");
    assert!(refused.to_string().contains("expected base offset 0"), "{refused}");
    let refused = log
        .append_as_leader(bytes, LeaderEpoch::new(0), Origin::Coordinator)
        .expect_err("now the size counts");
    assert_eq!(refused.kafka_name(), "RecordTooLargeException");
    log.append_as_leader(batch_at(5, 1, 1, 100), LeaderEpoch::new(0), Origin::Coordinator).expect("its own");
    assert_eq!(log.log_end_offset().get(), 1);
}

#[test]
fn format_edge_88_a_set_too_large_leaves_its_epoch() {
    let bench = Bench::new(&[("internal.segment.bytes", "1000")]);
    let log = bench.open();
    let refused = log
        .append_as_leader(batch(1, 1, 1001), LeaderEpoch::new(7), Origin::Client)
        .expect_err("larger than a segment");
    assert_eq!(refused.kafka_name(), "RecordBatchTooLargeException");
    assert_eq!((log.latest_epoch(), log.size()), (Some(LeaderEpoch::new(7)), 0));
}

#[test]
fn an_epoch_of_a_refused_set_begins_anew_with_the_next_batch() {
    for (base, starts) in [(2, vec![2]), (5, vec![5]), (7, vec![5])] {
        let bench = Bench::new(&[("internal.segment.bytes", "1000")]);
        let log = bench.open();
        let refused = log
            .append_as_follower(batch_at(5, 1, 1, 1001).freeze(), LeaderEpoch::new(0))
            .expect_err("larger than a segment");
        assert_eq!(refused.kafka_name(), "RecordBatchTooLargeException");
        follow(&log, base, base).expect("an append");
        follow(&log, base + 1, base + 1).expect("an append");
        let epochs = log.state(false).expect("state").epochs;
        assert_eq!(epochs.iter().map(|e| e.start_offset.get()).collect::<Vec<_>>(), starts, "at {base}");
    }
}

#[test]
fn format_edge_85_a_batch_compressed_anew_must_keep_to_the_limit_too() {
    let mut builder = RecordBatchBuilder::new(BatchOptions { codec: Codec::Gzip, ..BatchOptions::default() });
    builder.append(Some(Timestamp::new(1)), None, Some(&[b'v'; 4000]), &[]).expect("a record");
    let mut bytes = BytesMut::new();
    builder.finish(&mut bytes).expect("a batch");
    assert!(bytes.len() < 200);
    for (codec, fits) in [("producer", true), ("lz4", true), ("uncompressed", false)] {
        let log = Bench::new(&[("max.message.bytes", "200"), ("compression.type", codec)]).open();
        match log.append_as_leader(bytes.clone(), LeaderEpoch::new(0), Origin::Client) {
            Ok(_) => assert!(fits, "{codec}"),
            Err(refused) => {
                assert!(!fits, "{codec}: {refused}");
                assert_eq!((refused.kafka_name(), log.size()), ("RecordTooLargeException", 0));
            }
        }
    }
}

#[test]
fn format_edge_93_an_old_message_empties_the_leader_epochs() {
    for magic in [Magic::V0, Magic::V1] {
        let bench = Bench::new(&[]);
        let log = bench.open();
        lead(&log, 1, 1, 100);
        assert_eq!(log.latest_epoch(), Some(LeaderEpoch::new(0)));
        let record = LegacyRecord {
            offset: Offset::new(1),
            timestamp: Some(Timestamp::new(1)),
            key: Some(b"k"),
            value: Some(b"v"),
        };
        let mut bytes = BytesMut::new();
        let options = LegacyOptions { magic, ..LegacyOptions::default() };
        legacy::encode(&options, &[record], &mut bytes).expect("a message");
        log.append_as_follower(bytes.clone().freeze(), LeaderEpoch::new(0)).expect("an append");
        assert_eq!((log.latest_epoch(), bytes_of(&log, 1)), (None, Some(bytes.freeze())));
        assert_eq!(bench.size_of("leader-epoch-checkpoint"), Some(4));
    }
}

/// A message of magic 1 at each of these offsets, its time ten thousand times its place among them.
fn messages_at(offsets: &[i64]) -> Bytes {
    let mut bytes = BytesMut::new();
    for (time, offset) in (0..).step_by(10_000).zip(offsets) {
        let record = LegacyRecord {
            offset: Offset::new(*offset),
            timestamp: Some(Timestamp::new(time)),
            key: None,
            value: Some(b"v"),
        };
        legacy::encode(&LegacyOptions::default(), &[record], &mut bytes).expect("a message");
    }
    bytes.freeze()
}

#[test]
fn old_messages_whose_offsets_no_segment_can_hold_together_go_into_several() {
    const SPAN: i64 = i32::MAX as i64;
    let all = [3, 4, 4 + SPAN, 5 + SPAN, 5 + 4 * SPAN];
    let bytes = messages_at(&all);
    let each = (bytes.len() / all.len()) as u64;
    let bench = Bench::new(&[]);
    let log = bench.open();
    let info = log.append_as_follower(bytes, LeaderEpoch::new(0)).expect("an append");
    assert_eq!((info.first_offset, info.last_offset.map(Offset::get)), (None, Some(5 + 4 * SPAN)));
    assert_eq!((info.max_timestamp, info.size as u64), (Some(Timestamp::new(40_000)), 5 * each));
    // The first holds what lies at most so far above its first message.
    let found = |log: &Log| {
        assert_eq!((bases(log), log.size()), (vec![0, 5, 5 + 3 * SPAN], 5 * each));
        for (n, offset) in all.iter().enumerate() {
            let behind = if n == 0 { 0 } else { all[n - 1] + 1 };
            for asked in [behind, *offset] {
                assert_eq!(read(log, asked).0, *offset, "{asked}");
            }
        }
    };
    found(&log);
    // Nothing of it is lost in a crash.
    log.flush(false).expect("a flush");
    drop(log);
    found(&bench.open_unclean(0));
}

#[test]
fn of_old_messages_too_many_for_a_segment_none_is_appended() {
    let bytes = messages_at(&[0, i64::from(i32::MAX) + 1]);
    let limit = (bytes.len() - 1).to_string();
    let log = Bench::new(&[("internal.segment.bytes", &limit)]).open();
    let refused = log.append_as_follower(bytes, LeaderEpoch::new(0));
    assert_eq!((kafka_name(refused), log.size()), ("RecordBatchTooLargeException", 0));
}

#[test]
fn of_a_batch_without_records_that_has_to_be_compressed_nothing_is_left() {
    let bench = Bench::new(&[("compression.type", "gzip")]);
    let log = bench.open();
    lead(&log, 2, 1, 100);
    let mut empty = BytesMut::new();
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    let size = builder.finish_empty(&mut empty, Offset::new(3), None).expect("a header");
    let before = (log.size(), bench.files());
    let info =
        log.append_as_leader(empty, LeaderEpoch::new(5), Origin::Coordinator).expect("an append of nothing");
    assert_eq!((info.first_offset, info.last_offset, info.size), (Some(Offset::new(2)), None, size));
    assert_eq!((offsets(&log).2, log.latest_epoch()), (2, Some(LeaderEpoch::new(0))));
    assert_eq!((log.size(), bench.files()), before);
    assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(2)));
}

#[test]
fn format_edge_168_random_bytes_never_get_into_a_follower_s_log() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    // Numerical Recipes' generator: the same bytes in every run.
    let mut state = 0x5eed_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    let mut refused = 0;
    for _ in 0..100 {
        let len = usize::from(next()) / 2 + 1;
        let bytes: Bytes = (0..len).map(|_| next()).collect();
        match log.append_as_follower(bytes, LeaderEpoch::new(i32::MAX)) {
            Ok(info) => assert_eq!(info.last_offset, None),
            Err(error) => {
                let name = error.kafka_name();
                assert!(matches!(name, "CorruptRecordException" | "IllegalArgumentException"), "{error}");
                refused += 1;
            }
        }
        assert_eq!((log.log_end_offset().get(), log.size()), (0, 0));
    }
    assert!(refused > 50, "{refused}");
}
