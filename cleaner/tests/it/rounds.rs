//! What a round keeps, drops and rebuilds.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use kseg_cleaner::{Cleaner, Dirty, Error, NullKey, Pace, Result};
use kseg_format::legacy::{LegacyOptions, LegacyRecord, encode};
use kseg_format::{
    Batch, BatchOptions, Codec, LeaderEpoch, Magic, Offset, ProducerEpoch, ProducerId, RecordBatchBuilder,
    Timestamp, TimestampType,
};
use kseg_io_backends::{Call, MemoryBackend, Moment, OpenHow, Watched, write_all};

use crate::bed::*;

fn strings(data: &[(i64, String, Option<String>)]) -> Vec<String> {
    data.iter()
        .map(|(offset, key, value)| format!("{offset} {key}={}", value.as_deref().unwrap_or("-")))
        .collect()
}

#[test]
fn cleaner_edge_1_and_2_and_160_what_is_superseded_goes_and_the_last_batch_keeps_its_header() {
    let bed = Bed::new(&[]);
    for _ in 0..3 {
        bed.keys(0..5);
        bed.roll();
    }
    bed.keys([1, 3]);
    bed.roll();
    let sizes: u64 = bed.log.sealed_segments().unwrap().0.iter().map(|s| s.size()).sum();
    let round = bed.round(0, NOW).unwrap();
    assert_eq!((bed.data_keys(), bed.offsets()), (vec![0, 2, 4, 1, 3], vec![10, 12, 14, 15, 16]));
    assert_eq!(round.stats.bytes_read, sizes);
    assert_eq!(round.stats.bytes_written, bed.log.sealed_segments().unwrap().0[0].size());
    assert_eq!((round.stats.records_read, round.stats.records_written), (17, 5));
    assert_eq!((round.stats.segments_read, round.stats.segments_written), (4, 1));

    // Of a log of which nothing is kept, the header of the last batch is.
    let bed = Bed::new(&[("cleanup.policy", "delete")]);
    for _ in 0..3 {
        bed.put(&[(None, Some("a"))]);
        bed.put(&[(None, Some("b")), (None, Some("c"))]);
        bed.roll();
    }
    bed.round(0, NOW).unwrap();
    assert_eq!((bed.segments(), bed.batches()), (vec![0, 9], vec![(7, 8)]));
    assert_eq!(bed.batch(8).unwrap().len(), 61);

    // A group of which nothing is kept is an empty segment.
    let bed = Bed::new(&[("internal.segment.bytes", "100")]);
    bed.keys([1]);
    bed.roll();
    let time = UNIX_EPOCH + Duration::from_millis(77);
    bed.backend.names().set_modified(&bed.path("00000000000000000000.log"), time).unwrap();
    bed.keys([1]);
    bed.clean();
    assert_eq!(bed.segments(), [0, 1, 2]);
    for ending in ["log", "index", "timeindex"] {
        let stat =
            bed.backend.names().stat(&bed.path(&format!("00000000000000000000.{ending}"))).unwrap().unwrap();
        assert_eq!((stat.len, stat.modified), (0, time), "{ending}");
    }
}

#[test]
fn cleaner_edge_3_a_round_that_is_stopped_leaves_the_log_as_it_was() {
    struct After(Cell<u32>);
    impl Pace for After {
        fn check(&self) -> Result<()> {
            self.0.set(self.0.get().saturating_sub(1));
            if self.0.get() > 0 {
                return Ok(());
            }
            Err(Error::Aborted { partition: kseg_log::TopicPartition::new("t", 0) })
        }
        fn moved(&self, _: u64) {}
    }
    let bed = Bed::new(&[]);
    bed.keys([1, 2, 1, 2]);
    bed.roll();
    bed.keys([1]);
    bed.roll();
    let before = bed.bytes();
    let dirty = Dirty { first: Offset::ZERO, first_uncleanable: Offset::new(5), now: Timestamp::new(NOW) };
    let mut stopped = 0;
    for checks in 1.. {
        let done =
            Cleaner::new(bed.options.clone()).unwrap().clean(&bed.log, dirty, &After(Cell::new(checks)));
        match done {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kafka_name(), "LogCleaningAbortedException"),
        }
        stopped += 1;
        assert_eq!(bed.bytes(), before);
        assert!(bed.files().iter().all(|(name, _)| !name.ends_with(".cleaned")));
    }
    assert!(stopped > 5);
    assert_eq!(bed.offsets(), [3, 4]);
}

#[test]
fn cln_12_cleaner_edge_5_preallocated_segments_are_cut_to_what_they_hold() {
    let bed = Bed::new(&[("preallocate", "true"), ("internal.segment.bytes", "1024")]);
    bed.keys([0, 1, 0, 1, 0]);
    bed.roll();
    bed.round(2, NOW).unwrap();
    let size = bed.files().into_iter().find(|(name, _)| name.ends_with("0000.log")).unwrap().1;
    assert_eq!(size, bed.bytes()[0].len() as u64);
    assert!(size < 1024);
}

#[test]
fn cleaner_edge_15_and_42_what_is_not_cleanable_stays_byte_for_byte() {
    let bed = Bed::new(&[]);
    for _ in 0..5 {
        bed.keys([1, 2, 1, 2]);
        bed.roll();
    }
    let before = bed.bytes();
    let dirty = Dirty { first: Offset::ZERO, first_uncleanable: Offset::new(9), now: Timestamp::new(NOW) };
    assert_eq!(bed.round_of(dirty).unwrap().end, Some(Offset::new(8)));
    let after = bed.bytes();
    assert_eq!((after.len(), &after[1..]), (5, &before[2..]));
    assert!(after[0].len() < before[0].len());
    // The newest of key 1 lies behind: the older ones follow the map alone.
    assert_eq!(bed.offsets()[..2], [6, 7]);
}

#[test]
fn cleaner_edge_18_and_161_new_segment_has_the_time_of_the_last_old_one() {
    let bed = Bed::new(&[]);
    for keys in [[1, 2], [1, 3], [1, 4]] {
        bed.keys(keys);
        bed.roll();
    }
    let time = UNIX_EPOCH + Duration::from_millis(1_234_567);
    let names = bed.backend.names();
    names.set_modified(&bed.path("00000000000000000004.log"), time).unwrap();
    bed.round(0, NOW).unwrap();
    for ending in ["log", "index", "timeindex"] {
        let stat = names.stat(&bed.path(&format!("00000000000000000000.{ending}"))).unwrap().unwrap();
        assert_eq!(stat.modified, time, "{ending}");
    }
    assert_eq!(bed.segments(), [0, 6]);
    let deleted =
        |n: i64, kind: &str| bed.files().iter().any(|(name, _)| *name == format!("{n:020}.{kind}.deleted"));
    for base in [2, 4] {
        assert!(deleted(base, "log") && deleted(base, "snapshot"), "{base}");
    }
    assert!(bed.files().iter().any(|(name, _)| name == "00000000000000000006.snapshot"));
}

#[test]
fn cleaner_edge_34_and_35_tombstones_take_their_keys_with_them_and_keyless_records_go() {
    let bed = Bed::new(&[("delete.retention.ms", "0")]);
    bed.keys(0..10);
    for key in [0, 2, 4, 6, 8] {
        bed.put(&[gone(&key.to_string())]);
    }
    bed.keys([100]);
    bed.clean();
    assert_eq!(bed.data_keys(), [1, 3, 5, 7, 9, 100]);

    let bed = Bed::new(&[("cleanup.policy", "delete")]);
    for _ in 0..5 {
        bed.put(&[(None, Some("nobody's"))]);
    }
    bed.keys(0..5);
    bed.roll();
    let round = bed.round(0, NOW).unwrap();
    assert_eq!((round.stats.invalid_records, bed.data_keys()), (5, vec![0, 1, 2, 3, 4]));
    assert_eq!(round.stats.bytes_written, bed.bytes()[0].len() as u64);
}

#[test]
fn records_without_a_key_are_kept_unless_the_option_says_otherwise() {
    let mut bed = Bed::new(&[("cleanup.policy", "delete")]);
    bed.options.null_key = NullKey::Keep;
    bed.put(&[(None, Some("a")), kv("k", "1"), (None, None)]);
    bed.put(&[kv("k", "2")]);
    bed.clean();
    let kept = strings(&bed.data());
    assert_eq!(kept, ["0 -=a", "2 -=-", "3 k=2"]);
    bed.clean_twice(NOW);
    assert_eq!(strings(&bed.data()), kept);
}

#[test]
fn cln_16_records_without_a_key_are_refused_by_a_compacted_log_and_dropped_when_met() {
    let bed = Bed::new(&[("cleanup.policy", "delete")]);
    bed.put(&[(None, Some("a"))]);
    bed.put(&[(None, Some("b"))]);
    bed.roll();
    let config = kseg_log::LogConfig::from_pairs([("cleanup.policy", "compact")]).unwrap();
    bed.log.update_config(config).unwrap();
    for codec in [Codec::None, Codec::Gzip] {
        let bytes = batch(
            BatchOptions { codec, ..BatchOptions::default() },
            &[NOW, NOW],
            &[kv("k", "v"), (None, Some("c"))],
        );
        bed.log.append_as_leader(bytes, LeaderEpoch::new(0), kseg_format::Origin::Client).unwrap_err();
    }
    assert_eq!(bed.log.log_end_offset().get(), 2);
    let round = bed.round(0, NOW).unwrap();
    assert_eq!((round.stats.invalid_records, bed.last_offsets()), (2, vec![1]));
}

#[test]
fn cleaner_edge_36_timestamps_of_records_do_not_age_tombstones() {
    let bed = Bed::new(&[("message.timestamp.after.max.ms", "9223372036854775807")]);
    bed.append_at(BatchOptions::default(), &[NOW + 100 * DAY], &[kv("0", "v")]);
    bed.clean();
    bed.append_at(BatchOptions::default(), &[1], &[gone("0")]);
    bed.clean();
    assert_eq!(strings(&bed.data()), ["1 0=-"]);
    bed.keys([1]);
    bed.clean();
    assert_eq!(bed.batches()[0], (1, 1));
}

#[test]
fn cln_06_and_cln_07_cleaner_edge_37_and_38_and_39_life_of_a_tombstone() {
    let bed = Bed::new(&[("delete.retention.ms", "100")]);
    bed.put(&[kv("k", "v")]);
    bed.put(&[gone("k")]);
    bed.keys([7]);
    bed.clean();
    for (now, left) in [(NOW, 2), (NOW + 99, 2), (NOW + 100, 1)] {
        bed.round(0, now).unwrap();
        assert_eq!(bed.all_offsets().len(), left, "{}", now - NOW);
        if left == 2 {
            assert_eq!(bed.horizons()[0], Some(NOW + 100));
        }
    }

    // The times of the records are what they were.
    let bed = Bed::new(&[]);
    bed.keys([1, 2, 3, 4, 5]);
    bed.append_at(BatchOptions::default(), &[1000, 1010], &[gone("k"), kv("m", "v")]);
    bed.roll();
    bed.round(0, 1_000_000).unwrap();
    let rebuilt = bed.batch(6).unwrap();
    let header = Batch::parse(&rebuilt).unwrap().verify().unwrap();
    assert_eq!(header.delete_horizon(), Some(Timestamp::new(87_400_000)));
    let mut scratch = Vec::new();
    let times: Vec<_> = header
        .records(&mut scratch, 1 << 20)
        .unwrap()
        .map(|r| r.unwrap().timestamp().unwrap().get())
        .collect();
    assert_eq!(times, [1000, 1010]);
    bed.round(0, 87_399_999).unwrap();
    assert_eq!(bed.batch(6).unwrap(), rebuilt);
    bed.round(0, 87_400_000).unwrap();
    assert_eq!(bed.all_offsets(), [0, 1, 2, 3, 4, 6]);
    // Superseded once more, the batch keeps a horizon that is over and that nothing in it needs.
    assert_eq!(bed.horizons()[5], Some(87_400_000));

    // Behind what the map reaches a tombstone is not looked at, and its batch gets a horizon all the same.
    let mut bed = Bed::new(&[]);
    bed.options = options(2);
    bed.put(&[kv("a", "1")]);
    bed.put(&[kv("b", "1"), gone("c")]);
    bed.roll();
    assert_eq!(bed.round(0, NOW).unwrap().end, Some(Offset::new(1)));
    assert_eq!(bed.horizons(), [None, Some(NOW + 86_400_000)]);
}

#[test]
fn cln_17_rebuilt_batch_keeps_its_header() {
    let bed = Bed::new(&[]);
    bed.keys(20..30);
    let epoch = LeaderEpoch::new(4);
    let options =
        BatchOptions { base_offset: Offset::new(10), leader_epoch: Some(epoch), ..producer(9, 2, 20, false) };
    let times = [100, 110, 120, 130, 140];
    let five = ["a", "b", "c", "d", "e"].map(|key| kv(key, "v"));
    bed.log.append_as_follower(batch(options, &times, &five).freeze(), epoch).unwrap();
    for key in ["a", "c", "e"] {
        bed.put(&[kv(key, "w")]);
    }
    bed.clean();
    let bytes = bed.batch(14).unwrap();
    let rebuilt = Batch::parse(&bytes).unwrap().verify().unwrap();
    assert_eq!(rebuilt.base_offset(), Some(Offset::new(10)));
    assert_eq!((rebuilt.last_offset_delta(), rebuilt.records_count()), (4, Some(2)));
    let sequences = (rebuilt.base_sequence().unwrap().get(), rebuilt.last_sequence().unwrap().get());
    assert_eq!(sequences, (20, 24));
    assert_eq!(rebuilt.producer_id(), Some(ProducerId::new(9)));
    assert_eq!(rebuilt.producer_epoch(), Some(ProducerEpoch::new(2)));
    assert_eq!(rebuilt.leader_epoch(), Some(epoch));
    let times = (rebuilt.base_timestamp().unwrap().get(), rebuilt.max_timestamp().unwrap().get());
    assert_eq!(times, (110, 130));
    let mut scratch = Vec::new();
    let records: Vec<_> = rebuilt
        .records(&mut scratch, 1 << 20)
        .unwrap()
        .map(|r| r.map(|r| (r.offset().get(), r.sequence().unwrap().get())).unwrap())
        .collect();
    assert_eq!(records, [(11, 21), (13, 23)]);
}

#[test]
fn cln_01_and_cln_02_last_sequence_of_a_producer_survives_compaction_and_a_crash() {
    let bed = Bed::new(&[]);
    bed.append(producer(7, 0, 0, false), &[kv("a", "1")]);
    bed.append(producer(7, 0, 1, false), &[kv("a", "2")]);
    bed.append(producer(8, 0, 0, false), &[kv("a", "3")]);
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.batch(1).unwrap().len()), (vec![1, 2], 61));
    let bed = bed.reopened(true, false);
    bed.append(producer(7, 0, 2, false), &[kv("a", "4")]);
    assert_eq!(bed.append(producer(7, 0, 1, false), &[kv("a", "2")]), 1);

    let bed = Bed::new(&[]);
    for offset in 0..3 {
        let options = BatchOptions {
            base_offset: Offset::new(offset),
            leader_epoch: Some(LeaderEpoch::new(0)),
            ..producer(5, 0, 0, false)
        };
        bed.follow(batch(options, &[NOW], &[kv("x", "v")]).freeze());
    }
    bed.clean();
    assert_eq!(bed.last_offsets(), [2]);
}

#[test]
fn cln_11_control_batch_without_records_is_no_trouble() {
    let bed = Bed::new(&[]);
    bed.keys(0..7);
    let mut bytes = BytesMut::new();
    let id =
        kseg_format::Producer { id: ProducerId::new(1), epoch: ProducerEpoch::new(0), base_sequence: None };
    let mut builder = RecordBatchBuilder::new(BatchOptions {
        base_offset: Offset::new(7),
        leader_epoch: Some(LeaderEpoch::new(0)),
        producer: Some(id),
        transactional: true,
        control: true,
        ..BatchOptions::default()
    });
    builder.finish_empty(&mut bytes, Offset::new(7), Some(Timestamp::new(NOW))).unwrap();
    bed.follow(bytes.freeze());
    bed.keys(0..7);
    let bed = bed.reopened(true, false);
    bed.clean();
    assert_eq!(bed.data_keys(), [0, 1, 2, 3, 4, 5, 6]);
    assert!(!bed.log.read(Offset::ZERO, 1 << 20, kseg_log::Isolation::Committed, true).unwrap().is_empty());
}

fn damaged(bed: &Bed, at: u64, byte: u8) {
    let file = bed.backend.open(&bed.path("00000000000000000000.log"), OpenHow::Write).unwrap();
    write_all(&*file, at, Bytes::copy_from_slice(&[byte]).into()).unwrap();
}

#[test]
fn cleaner_edge_71_and_72_large_batches_go_through_small_buffers() {
    let mut bed = Bed::new(&[("max.message.bytes", "2097152")]);
    bed.options.io_buffer_bytes = 1024;
    let large = "x".repeat(1 << 20);
    for key in ["a", "b", "a"] {
        bed.put(&[kv(key, &large)]);
        bed.put(&[kv("small", "v")]);
    }
    bed.roll();
    let config =
        kseg_log::LogConfig::from_pairs([("cleanup.policy", "compact"), ("max.message.bytes", "524288")]);
    bed.log.update_config(config.unwrap()).unwrap();
    bed.round(0, NOW).unwrap();
    assert_eq!(bed.offsets(), [2, 4, 5]);
}

#[test]
fn cln_03_batch_above_every_limit_is_cleaned() {
    let mut bed = Bed::new(&[("max.message.bytes", "60000")]);
    bed.options.io_buffer_bytes = 1024;
    let large = "x".repeat(50_000);
    bed.keys([1, 2]);
    bed.put(&[kv("large", &large)]);
    bed.keys([1]);
    let config =
        kseg_log::LogConfig::from_pairs([("cleanup.policy", "compact"), ("max.message.bytes", "1000")]);
    bed.log.update_config(config.unwrap()).unwrap();
    bed.clean();
    assert_eq!(bed.offsets(), [1, 2, 3]);
}

#[test]
fn cleaner_edge_73_and_74_and_158_and_168_damage_is_an_error_of_its_batch() {
    for (what, at, byte) in [("magic", 16, 0xff_u8), ("length", 8, 0x7f), ("value", 69, b'!')] {
        let bed = Bed::new(&[]);
        bed.put(&[kv("k", "v")]);
        bed.put(&[kv("k", "w")]);
        bed.roll();
        damaged(&bed, at, byte);
        let before = bed.bytes();
        let error = bed.round(0, NOW).unwrap_err();
        assert_eq!(error.kafka_name(), "CorruptRecordException", "{what}");
        assert!(matches!(&error, Error::Corrupt { position: 0, .. }), "{what}: {error}");
        assert!(error.to_string().contains("00000000000000000000.log"), "{error}");
        assert_eq!(bed.bytes(), before, "{what}");
        assert!(bed.files().iter().all(|(name, _)| !name.ends_with(".cleaned")), "{what}");
    }
    // In the part that was cleaned before, which the first pass does not read.
    let bed = Bed::new(&[]);
    bed.put(&[kv("k", "v")]);
    bed.roll();
    bed.put(&[kv("l", "w")]);
    bed.roll();
    damaged(&bed, 69, b'!');
    assert_eq!(bed.round(1, NOW).unwrap_err().kafka_name(), "CorruptRecordException");
}

#[test]
fn cleaner_edge_186_and_27_buffers_do_not_show_in_the_files() {
    let run = |buffer: usize, slots: usize| {
        let mut bed = Bed::new(&[("index.interval.bytes", "200")]);
        bed.options = options(slots);
        bed.options.io_buffer_bytes = buffer;
        for n in 0..60_i64 {
            let keys: Vec<String> = (0..=n % 5).map(|k| ((n * 7 + k) % 23).to_string()).collect();
            let entries: Vec<_> = keys.iter().map(|k| kv(k, "some value")).collect();
            bed.put(&entries);
        }
        bed.roll();
        let stats = bed.round(0, NOW).unwrap().stats;
        let counts = (stats.bytes_read, stats.bytes_written, stats.records_read, stats.map_records_read);
        let state = bed.log.state(true).unwrap();
        let segments: Vec<_> =
            state.segments.iter().map(|s| (s.offset_entries.clone(), s.time_entries.clone())).collect();
        (bed.bytes(), segments, counts)
    };
    for slots in [12, 1000] {
        let whole = run(1 << 20, slots);
        for buffer in [512, 600, 1000] {
            assert!(run(buffer, slots) == whole, "{buffer} {slots}");
        }
    }
}

#[test]
fn cleaner_edge_150_and_151_last_batch_of_a_round_keeps_its_header_until_the_next_one() {
    let bed = Bed::new(&[("cleanup.policy", "delete")]);
    bed.put(&[(None, Some("a")), (None, Some("b"))]);
    bed.put(&[kv("k1", "a"), (None, Some("b")), kv("k1", "c")]);
    bed.put(&[(None, Some("d"))]);
    let round = bed.clean();
    assert_eq!((bed.batches(), bed.offsets()), (vec![(2, 4), (5, 5)], vec![4]));
    let last = bed.batch(5).unwrap();
    let header = Batch::parse(&last).unwrap();
    assert_eq!(
        (last.len(), header.base_timestamp(), header.max_timestamp()),
        (61, None, Some(Timestamp::new(NOW)))
    );
    let stats = round.stats;
    assert_eq!((stats.invalid_records, stats.records_read, stats.records_written), (4, 6, 1));

    let bed = Bed::new(&[("cleanup.policy", "delete")]);
    bed.keys([1]);
    bed.put(&[(None, Some("a"))]);
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.batch(1).unwrap().len()), (vec![0, 1], 61));
    bed.roll();
    bed.keys([2]);
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.log.log_end_offset().get()), (vec![0, 2], 3));
}

#[test]
fn cleaner_edge_157_codecs_stay() {
    let bed = Bed::new(&[]);
    let gzip = BatchOptions { level: Some(9), ..codec(Codec::Gzip) };
    bed.append(gzip, &[kv("a", "1"), kv("b", "1")]);
    bed.append(codec(Codec::Zstd), &[kv("c", "1"), kv("d", "1")]);
    bed.append(codec(Codec::Lz4), &[kv("e", "1"), kv("f", "1")]);
    bed.append(codec(Codec::Snappy), &[kv("g", "1"), gone("h")]);
    bed.put(&[kv("a", "2")]);
    let untouched = [bed.batch(3), bed.batch(5)];
    bed.clean();
    assert_eq!([bed.batch(3), bed.batch(5)], untouched);
    for (last, expected) in [(1, Codec::Gzip), (7, Codec::Snappy)] {
        assert_eq!(Batch::parse(&bed.batch(last).unwrap()).unwrap().codec().unwrap(), expected);
    }
    assert_eq!(bed.horizons(), [None, None, None, Some(NOW + 86_400_000), None]);
    assert_eq!(bed.all_offsets(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn cleaner_edge_187_control_batches_of_other_kinds_stay() {
    let bed = Bed::new(&[]);
    bed.keys([1]);
    let mut bytes = BytesMut::new();
    let mut builder = RecordBatchBuilder::new(BatchOptions {
        base_offset: Offset::new(1),
        leader_epoch: Some(LeaderEpoch::new(0)),
        control: true,
        ..BatchOptions::default()
    });
    builder.append(Some(Timestamp::new(NOW)), Some(&[0, 0, 0, 2]), Some(b"leader"), &[]).unwrap();
    builder.finish(&mut bytes).unwrap();
    bed.follow(bytes.freeze());
    bed.keys([1]);
    let before = bed.batch(1);
    for now in [NOW, NOW + DAY, NOW + 2 * DAY] {
        bed.clean_at(0, now);
        assert_eq!(bed.batch(1), before);
    }
}

#[test]
fn cleaner_edge_182_a_batch_whose_newest_record_went_is_as_old_as_what_is_left() {
    let bed = Bed::new(&[]);
    let old = NOW - 1_000_000_000;
    bed.append_at(producer(1, 0, 0, false), &[old, NOW], &[kv("a", "1"), kv("b", "1")]);
    bed.put(&[kv("b", "2")]);
    bed.clean();
    let bytes = bed.batch(1).unwrap();
    let rebuilt = Batch::parse(&bytes).unwrap();
    assert_eq!(
        (rebuilt.max_timestamp(), rebuilt.last_sequence().unwrap().get()),
        (Some(Timestamp::new(old)), 1)
    );
    let bed = bed.reopened(true, false);
    assert_eq!(bed.last_sequence(1), None);
}

fn legacy(magic: Magic, codec: Codec, base: i64, entries: &[Entry<'_>]) -> Bytes {
    let mut out = BytesMut::new();
    let records: Vec<_> = (0_i64..)
        .zip(entries)
        .map(|(n, (key, value))| LegacyRecord {
            offset: Offset::new(base + n),
            timestamp: (magic == Magic::V1).then(|| Timestamp::new(1000 + n)),
            key: key.map(str::as_bytes),
            value: value.map(str::as_bytes),
        })
        .collect();
    let options = LegacyOptions { magic, codec, base_offset: Offset::new(base), ..LegacyOptions::default() };
    encode(&options, &records, &mut out).unwrap();
    out.freeze()
}

#[test]
fn cleaner_edge_154_and_155_and_19_and_139_old_formats_leave_a_round_as_magic_2() {
    let bed = Bed::new(&[("delete.retention.ms", "1000")]);
    bed.follow(legacy(Magic::V0, Codec::None, 0, &[kv("a", "0"), kv("b", "1")]));
    bed.follow(legacy(Magic::V1, Codec::None, 2, &[kv("c", "2"), gone("d")]));
    bed.follow(legacy(Magic::V1, Codec::Gzip, 4, &[kv("e", "4"), kv("b", "5"), kv("f", "6")]));
    bed.follow(legacy(Magic::V0, Codec::Gzip, 7, &[kv("g", "7"), gone("h")]));
    bed.follow(at(9, &[kv("b", "9")]));
    let verbatim = bed.batch(9);
    bed.clean();
    assert_eq!(bed.batches(), [(0, 0), (2, 2), (3, 3), (4, 6), (7, 8), (9, 9)]);
    assert_eq!(bed.all_offsets(), [0, 2, 3, 4, 6, 7, 8, 9]);
    let horizon = Some(NOW + 1000);
    assert_eq!(bed.horizons(), [None, None, horizon, None, horizon, None]);
    assert_eq!(bed.batch(9), verbatim);
    for last in bed.last_offsets() {
        let bytes = bed.batch(last).unwrap();
        let batch = Batch::parse(&bytes).unwrap().verify().unwrap();
        assert_eq!(batch.magic(), Magic::V2);
        assert_eq!(batch.leader_epoch().is_some(), last == 9);
    }
    bed.round(0, NOW + 1000).unwrap();
    assert_eq!(bed.all_offsets(), [0, 2, 4, 6, 7, 9]);
    assert_eq!((bed.batches()[3], bed.horizons()[3]), ((7, 8), horizon));
}

#[test]
fn cleaner_edge_156_old_tombstones_go_by_the_age_of_their_segment() {
    for (age, left) in [(999, vec![0, 1, 2]), (1000, vec![2])] {
        let bed = Bed::new(&[("delete.retention.ms", "1000")]);
        bed.follow(legacy(Magic::V1, Codec::None, 0, &[gone("a")]));
        bed.follow(legacy(Magic::V1, Codec::None, 1, &[gone("b")]));
        bed.roll();
        let name = bed.path("00000000000000000000.log");
        bed.keys([2]);
        bed.roll();
        let names = bed.backend.names();
        let clean = UNIX_EPOCH + Duration::from_millis(10_000);
        names.set_modified(&name, clean - Duration::from_millis(age)).unwrap();
        names.set_modified(&bed.path("00000000000000000002.log"), clean).unwrap();
        bed.keys([3]);
        bed.roll();
        bed.round(3, NOW).unwrap();
        assert_eq!(bed.all_offsets()[..left.len()], left, "{age}");
    }
}

#[test]
fn cleaner_edge_90_an_old_batch_of_which_nothing_stays_goes() {
    let bed = Bed::new(&[("cleanup.policy", "delete")]);
    bed.keys([1]);
    bed.follow(legacy(Magic::V1, Codec::None, 1, &[(None, Some("nobody's"))]));
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.log.log_end_offset().get()), (vec![0], 2));
}

#[test]
fn cleaner_edge_190_append_time_stays_append_time() {
    let bed = Bed::new(&[("message.timestamp.type", "LogAppendTime")]);
    bed.follow(legacy(Magic::V0, Codec::None, 0, &[kv("old", "0"), kv("b", "1")]));
    bed.put(&[kv("b", "2"), kv("c", "3")]);
    bed.put(&[kv("c", "4")]);
    bed.clean();
    let types: Vec<_> = bed
        .last_offsets()
        .into_iter()
        .map(|last| {
            let bytes = bed.batch(last).unwrap();
            let batch = Batch::parse(&bytes).unwrap();
            (batch.timestamp_type().unwrap(), batch.max_timestamp().map(Timestamp::get))
        })
        .collect();
    assert_eq!(types[0], (TimestampType::CreateTime, None));
    for (kind, time) in &types[1..] {
        assert_eq!((*kind, *time), (TimestampType::LogAppendTime, Some(NOW)));
    }
}

#[test]
fn keys_are_looked_at_on_request_before_a_record_goes() {
    let mut bed = Bed::new(&[]);
    bed.options.verify_keys = true;
    bed.append(codec(Codec::Gzip), &[kv("a", "1"), kv("b", "1")]);
    bed.roll();
    bed.append(codec(Codec::Gzip), &[kv("b", "2"), kv("a", "2")]);
    let round = bed.clean();
    assert_eq!(
        (strings(&bed.data()), round.stats.hash_collisions),
        (vec!["2 b=2".into(), "3 a=2".into()], 0)
    );
}

/// A swap costs syncs of the directory: copies share one until they are as large as a segment together.
#[test]
fn groups_whose_copies_are_small_are_swapped_in_together() {
    for (parallel, kept, swaps) in [(false, 1, 1), (true, 1, 1), (false, 6, 2), (true, 6, 2)] {
        let syncs = Arc::new(AtomicU64::new(0));
        let count = syncs.clone();
        let watched = Watched::new(Arc::new(MemoryBackend::new()), move |moment, call, _| {
            if (moment, call) == (Moment::Done, Call::SyncDir) {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut bed = Bed::on(Arc::new(watched), &[("internal.segment.bytes", "600")]);
        bed.options.parallel = parallel;
        for n in 0..4 {
            bed.keys((0..7).map(|key| if key < kept { 100 * n + key } else { 7 }));
            bed.roll();
        }
        let before = syncs.load(Ordering::SeqCst);
        let round = bed.round(0, NOW).unwrap();
        assert_eq!((round.stats.segments_read, round.stats.segments_written), (4, 4));
        assert_eq!(syncs.load(Ordering::SeqCst) - before, 3 * swaps, "{kept}");
        assert_eq!(bed.data_keys().len() as i64, 4 * kept + 1);
    }
}

#[test]
fn a_log_in_another_directory_is_none_of_the_round() {
    let bed = Bed::new(&[]);
    bed.keys([1, 1]);
    let other = Path::new("/data/u-0");
    let log = kseg_log::Log::open(other, kseg_log::OpenOptions::new(Arc::clone(&bed.backend))).unwrap();
    bed.clean();
    assert_eq!((bed.offsets(), log.log_end_offset()), (vec![1], Offset::ZERO));
}

/// Writes into the sealed segment at 0.
fn overwrite(bed: &Bed, at: u64, bytes: impl Into<Bytes>) {
    let file = bed.backend.open(&bed.path("00000000000000000000.log"), OpenHow::Write).unwrap();
    write_all(&*file, at, bytes.into().into()).unwrap();
}

#[test]
fn a_batch_whose_offsets_cannot_be_where_it_is_ends_the_round_and_changes_nothing() {
    let size = |bed: &Bed| bed.batch(0).unwrap().len() as u64;
    let delta = |bed: &Bed, delta: i32| {
        let mut batch = bed.batch(1).unwrap();
        batch[23..27].copy_from_slice(&delta.to_be_bytes());
        let crc = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        batch
    };
    type Damage<'d> = (&'d dyn Fn(&Bed) -> Vec<u8>, &'d str);
    let cases: [Damage<'_>; 4] = [
        (&|bed| delta(bed, -5), "last offset at byte 23 of the batch: expected 1 to 3, found -4"),
        (&|bed| delta(bed, 7), "last offset at byte 23 of the batch: expected 1 to 3, found 8"),
        (
            &|_| (1_i64 << 40).to_be_bytes().to_vec(),
            "base offset at byte 0 of the batch: expected 0 to 3, found 1099511627776",
        ),
        (
            &|_| (-3_i64).to_be_bytes().to_vec(),
            "base offset at byte 0 of the batch: expected 0 to 3, found -3",
        ),
    ];
    for (n, (damage, expected)) in cases.into_iter().enumerate() {
        for parallel in [false, true] {
            for first in [0, 3] {
                let mut bed = Bed::new(&[]);
                bed.options.parallel = parallel;
                bed.keys([1, 2, 1, 2]);
                bed.roll();
                let at = size(&bed);
                overwrite(&bed, at, damage(&bed));
                let before = bed.files();
                let error = bed.round(first, NOW).unwrap_err().to_string();
                assert!(
                    error.contains(&format!("00000000000000000000.log: at position {at}: ")),
                    "{n}: {error}"
                );
                assert!(error.contains(expected), "{n}: {error}");
                assert_eq!(bed.files(), before);
            }
        }
    }
}
