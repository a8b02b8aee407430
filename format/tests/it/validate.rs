//! A leader's append.

use bytes::BytesMut;
use kseg_format::legacy::{self, LegacyOptions, LegacyRecord};
use kseg_format::{
    Assigned, Batch, BatchFault, BatchOptions, Codec, EndTransactionMarker, LeaderEpoch, LeaderRules, Magic,
    Offset, Origin, Producer, ProducerEpoch, ProducerId, RecordBatchBuilder, RecordFaultKind, Rejections,
    Sequence, Timestamp, TimestampType, ValidationError, assign_offsets,
};

use crate::support::{around, build, forge, hex, offsets, records, three, timestamps};

const NOW: i64 = 1_000_000;
const INVALID: &str = "InvalidRecordException";

fn rules() -> LeaderRules {
    LeaderRules { now: Timestamp::new(NOW), leader_epoch: LeaderEpoch::new(9), ..LeaderRules::default() }
}

fn to(codec: Codec) -> LeaderRules {
    LeaderRules { target_codec: Some(codec), ..rules() }
}

fn append(bytes: &[u8], source: Codec, rules: &LeaderRules) -> Result<(BytesMut, Assigned), ValidationError> {
    let mut bytes = BytesMut::from(bytes);
    let assigned = assign_offsets(&mut bytes, Offset::new(1_234_567), source, rules)?;
    Batch::parse(&bytes).unwrap().verify().unwrap();
    Ok((bytes, assigned))
}

fn refused(bytes: &[u8], source: Codec, rules: &LeaderRules) -> ValidationError {
    append(bytes, source, rules).unwrap_err()
}

fn codecs() -> impl Iterator<Item = Codec> {
    Codec::ALL.into_iter().filter(|codec| codec.is_enabled())
}

fn of(codec: Codec) -> BatchOptions {
    BatchOptions { codec, ..BatchOptions::default() }
}

fn producer() -> Option<Producer> {
    Some(Producer {
        id: ProducerId::new(1324),
        epoch: ProducerEpoch::new(10),
        base_sequence: Some(Sequence::new(984)),
    })
}

fn old(magic: Magic, codec: Codec, count: i64) -> BytesMut {
    let records: Vec<LegacyRecord<'_>> = (0..count)
        .map(|i| LegacyRecord {
            offset: Offset::new(i),
            timestamp: Some(Timestamp::new(NOW + i)),
            key: Some(b"k"),
            value: Some(b"abc"),
        })
        .collect();
    let mut out = BytesMut::new();
    legacy::encode(&LegacyOptions { magic, codec, ..LegacyOptions::default() }, &records, &mut out).unwrap();
    out
}

#[test]
fn format_edge_71_and_72_one_batch_and_not_an_empty_one() {
    assert_eq!(refused(&[], Codec::None, &rules()).kafka_name(), INVALID);
    for codec in codecs() {
        let one = three(of(codec));
        let two = [&one[..], &one[..]].concat();
        for rules in [rules(), to(Codec::None)] {
            assert_eq!(refused(&two, codec, &rules).kafka_name(), INVALID);
        }
        let mut empty = BytesMut::new();
        RecordBatchBuilder::new(of(codec)).finish_empty(&mut empty, Offset::ZERO, None).unwrap();
        for target in codecs() {
            assert_eq!(refused(&empty, Codec::None, &to(target)).kafka_name(), INVALID);
        }
    }
}

#[test]
fn format_edge_73_the_count_and_the_last_offset_must_agree() {
    let with = |delta: i32, count: i32| {
        forge(&three(BatchOptions::default()), |bytes| {
            bytes[23..27].copy_from_slice(&delta.to_be_bytes());
            bytes[57..61].copy_from_slice(&count.to_be_bytes());
        })
    };
    for target in codecs() {
        assert!(append(&with(2, 3), Codec::None, &to(target)).is_ok());
        for (delta, count) in [(0, 3), (15, 3), (-3, 3), (5, 6), (1, 2), (2, 0), (2, -1)] {
            let error = refused(&with(delta, count), Codec::None, &to(target));
            assert_eq!(error.kafka_name(), INVALID, "{delta} {count}");
            // Where count and offsets agree it is the records that show it, and no meter counts that.
            let ticks = u64::from(!matches!((delta, count), (5, 6) | (1, 2)));
            let expected = Rejections { invalid_offset_or_sequence: ticks, ..Rejections::default() };
            assert_eq!(Rejections::from(&error), expected, "{delta} {count}");
        }
    }
}

#[test]
fn format_edge_74_a_gap_in_the_offsets_counts_once() {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    for offset in [0, 2] {
        builder
            .append_at(Offset::new(offset), Some(Timestamp::new(NOW)), Some(b"k"), Some(b"v"), &[])
            .unwrap();
    }
    let mut bytes = BytesMut::new();
    builder.finish(&mut bytes).unwrap();
    let error = refused(&bytes, Codec::None, &rules());
    let fault = BatchFault::CountAndOffsets { expected: 3, found: 2 };
    assert_eq!(error, ValidationError::Batch { fault });
    assert_eq!(error.to_string(), "records count: expected 3 by the offsets, found 2");
    assert_eq!(Rejections::from(&error).invalid_offset_or_sequence, 1);
}

#[test]
fn format_edge_75_and_150_deltas_that_repeat() {
    let repeated = hex("0c 00 00 00 01 01 00 0c 00 00 00 01 01 00");
    let plain = around(2, 1, &repeated);
    let (stored, _) = append(&plain, Codec::None, &rules()).unwrap();
    assert_eq!(stored[61..], plain[61..]);
    assert_eq!(offsets(&stored), [1_234_567, 1_234_567]);
    #[cfg(feature = "gzip")]
    {
        let payload = crate::records::gzip(&repeated);
        let gzip = forge(&around(2, 1, &payload), |bytes| bytes[22] = 1);
        assert_eq!(refused(&gzip, Codec::Gzip, &rules()).kafka_name(), INVALID);
        let (stored, assigned) = append(&gzip, Codec::Gzip, &to(Codec::None)).unwrap();
        assert_eq!(offsets(&stored), [1_234_567, 1_234_568]);
        assert!(assigned.sizes_may_have_changed);
    }
}

fn marker() -> BytesMut {
    let mut out = BytesMut::new();
    let marker = EndTransactionMarker { committed: true, coordinator_epoch: 1 };
    let producer = (ProducerId::new(5), ProducerEpoch::new(0));
    marker.encode_batch(Offset::ZERO, Timestamp::new(NOW), None, producer, &mut out).unwrap();
    out
}

#[test]
fn format_edge_76_only_the_coordinator_writes_control_batches() {
    assert_eq!(refused(&marker(), Codec::None, &rules()).kafka_name(), INVALID);
    for target in codecs() {
        let rules = LeaderRules { origin: Origin::Coordinator, ..to(target) };
        let (stored, assigned) = append(&marker(), Codec::None, &rules).unwrap();
        let batch = Batch::parse(&stored).unwrap();
        assert_eq!((batch.codec(), batch.is_control(), batch.size()), (Ok(Codec::None), true, 78));
        assert_eq!((assigned.next_offset.get(), assigned.sizes_may_have_changed), (1_234_568, false));
    }
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_147_a_compressed_control_batch() {
    let plain = marker();
    let payload = crate::records::gzip(&plain[61..]);
    let gzip = forge(&plain, |bytes| {
        bytes.truncate(61);
        bytes.extend_from_slice(&payload);
        bytes[22] |= 1;
    });
    let coordinator = |rules| LeaderRules { origin: Origin::Coordinator, ..rules };
    let (stored, _) = append(&gzip, Codec::Gzip, &coordinator(to(Codec::Gzip))).unwrap();
    assert_eq!(stored[61..], gzip[61..]);
    let error = refused(&gzip, Codec::Gzip, &coordinator(to(Codec::None)));
    assert_eq!(error.kafka_name(), "IllegalArgumentException");
}

#[test]
fn format_edge_77_a_producer_needs_a_sequence() {
    let bytes = three(BatchOptions { producer: producer(), ..BatchOptions::default() });
    assert!(append(&bytes, Codec::None, &rules()).is_ok());
    let first = forge(&bytes, |bytes| bytes[53..57].fill(0));
    assert!(append(&first, Codec::None, &rules()).is_ok());
    for sequence in [-1i32, -2] {
        let bytes = forge(&bytes, |bytes| bytes[53..57].copy_from_slice(&sequence.to_be_bytes()));
        let error = refused(&bytes, Codec::None, &rules());
        assert_eq!(error.kafka_name(), INVALID);
        assert_eq!(Rejections::from(&error).invalid_offset_or_sequence, 1);
    }
}

#[test]
fn format_edge_79_a_compacted_topic_takes_no_null_keys() {
    let rules = LeaderRules { compacted: true, ..rules() };
    for codec in codecs() {
        let empty: &[u8] = b"";
        let bytes =
            build(of(codec), &[(NOW, None, None), (NOW, Some(empty), None), (NOW, None, Some(empty))]);
        let error = refused(&bytes, codec, &rules);
        assert_eq!((error.kafka_name(), error.cause_name()), ("RecordValidationException", INVALID));
        let places: Vec<_> = error.record_faults().iter().map(|fault| fault.batch_index).collect();
        assert_eq!(places, [0, 2]);
        assert_eq!(Rejections::from(&error), Rejections { no_key: 2, ..Rejections::default() });
    }
}

#[test]
fn format_edge_80_timestamps_out_of_range_are_all_listed() {
    let rules = LeaderRules { timestamp_before_max_ms: 1000, timestamp_after_max_ms: 500, ..rules() };
    for codec in codecs() {
        let at = |time: i64| build(of(codec), &[(time, Some(&b"k"[..]), None); 3]);
        for time in [NOW - 1001, NOW + 501, 0, i64::MAX] {
            let error = refused(&at(time), codec, &rules);
            assert_eq!(error.kafka_name(), "RecordValidationException");
            assert_eq!((error.cause_name(), error.record_faults().len()), ("InvalidTimestampException", 3));
        }
        for time in [NOW - 1000, NOW + 500, -1] {
            assert!(append(&at(time), codec, &rules).is_ok());
        }
    }
    let four = build(BatchOptions::default(), &[(0, None, None); 4]);
    let reason = "timestamp 0: expected 999000 to 1000500 (message.timestamp.before.max.ms and \
                  message.timestamp.after.max.ms from now)";
    assert_eq!(
        refused(&four, Codec::None, &rules).to_string(),
        format!(
            "4 records may not be appended: record 0: {reason}; record 1: {reason}; record 2: {reason}; ..."
        )
    );
}

#[test]
fn format_edge_82_records_without_a_timestamp_are_accepted() {
    let rules = LeaderRules { timestamp_before_max_ms: 0, timestamp_after_max_ms: 0, ..rules() };
    for codec in codecs() {
        let bytes = build(of(codec), &[(-1, Some(&b"k"[..]), None); 2]);
        let (stored, assigned) = append(&bytes, codec, &rules).unwrap();
        assert_eq!(assigned.max_timestamp, None);
        assert_eq!(timestamps(&stored), [None, None]);
    }
}

#[test]
fn format_edge_83_86_and_188_a_wrong_maximum_is_corrected() {
    for codec in codecs() {
        let options = BatchOptions { producer: producer(), transactional: true, ..of(codec) };
        let rows = [NOW - 1, NOW + 1, NOW].map(|time| (time, Some(&b"k"[..]), Some(&b"v"[..])));
        let bytes = build(options, &rows);
        let wrong = forge(&bytes, |bytes| bytes[35..43].copy_from_slice(&i64::MAX.to_be_bytes()));
        for target in codecs() {
            let (stored, assigned) = append(&wrong, codec, &to(target)).unwrap();
            let batch = Batch::parse(&stored).unwrap();
            assert_eq!(batch.max_timestamp(), Some(Timestamp::new(NOW + 1)));
            assert_eq!(batch.base_timestamp(), Some(Timestamp::new(NOW - 1)));
            assert_eq!(timestamps(&stored), [Some(NOW - 1), Some(NOW + 1), Some(NOW)]);
            assert_eq!(offsets(&stored), [1_234_567, 1_234_568, 1_234_569]);
            assert_eq!(batch.producer_id(), Some(ProducerId::new(1324)));
            assert_eq!(batch.producer_epoch(), Some(ProducerEpoch::new(10)));
            assert_eq!(batch.base_sequence(), Some(Sequence::new(984)));
            assert_eq!(batch.leader_epoch(), Some(LeaderEpoch::new(9)));
            assert!(batch.is_transactional());
            assert_eq!(batch.codec(), Ok(target));
            assert_eq!(assigned.max_timestamp, Some(Timestamp::new(NOW + 1)));
            assert_eq!((assigned.record_count, assigned.log_append_time), (3, None));
            assert_eq!(assigned.next_offset, Offset::new(1_234_570));
            assert_eq!(assigned.sizes_may_have_changed, codec != target);
            // Looked at and built anew, or looked at only, or neither.
            let plain = 61 + 3 * 9;
            assert_eq!(
                (assigned.converted_records, assigned.temporary_bytes),
                match codec == target {
                    true if codec == Codec::None => (0, 0),
                    true => (0, plain),
                    false => (3, 2 * plain),
                }
            );
        }
    }
}

#[test]
fn format_edge_84_append_time() {
    let topic = LeaderRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
    for codec in codecs() {
        let bytes = three(of(codec));
        let (stored, assigned) = append(&bytes, codec, &topic).unwrap();
        assert_eq!(stored.len(), bytes.len());
        let batch = Batch::parse(&stored).unwrap();
        assert_eq!(batch.timestamp_type(), Some(TimestampType::LogAppendTime));
        assert_eq!(batch.base_timestamp(), Some(Timestamp::new(10)));
        assert_eq!(timestamps(&stored), [Some(NOW); 3]);
        assert_eq!(assigned.log_append_time, Some(Timestamp::new(NOW)));

        let flagged = BatchOptions {
            timestamp_type: TimestampType::LogAppendTime,
            log_append_time: Some(Timestamp::new(NOW)),
            ..of(codec)
        };
        let error = refused(&three(flagged), codec, &topic);
        assert_eq!(error.cause_name(), "InvalidTimestampException");
        let words = "timestamp 1000000: expected the time of a producer, found one of a broker's append";
        assert!(error.record_faults().iter().all(|fault| fault.kind.to_string() == words), "{error}");
        // Without a time it is the flag that is wrong, whatever the topic's type.
        let without = build(BatchOptions { log_append_time: None, ..flagged }, &[(-1, None, None)]);
        let words = "1 records may not be appended: record 0: timestamp -1: expected the time of a producer, \
                     found one of a broker's append";
        for rules in [&topic, &rules()] {
            assert_eq!(refused(&without, codec, rules).to_string(), words);
        }
        let (stored, _) = append(&three(flagged), codec, &rules()).unwrap();
        assert_eq!(Batch::parse(&stored).unwrap().timestamp_type(), Some(TimestampType::CreateTime));
        assert_eq!(timestamps(&stored), [Some(10), Some(11), Some(12)]);
    }
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_85_another_level_is_no_reason_to_compress_anew() {
    let nine = three(BatchOptions { level: Some(9), ..of(Codec::Gzip) });
    let mut topic = to(Codec::Gzip);
    topic.levels.gzip = 1;
    let (stored, assigned) = append(&nine, Codec::Gzip, &topic).unwrap();
    assert_eq!(stored[16..], nine[16..]);
    assert!(!assigned.sizes_may_have_changed);
}

#[test]
#[cfg(feature = "gzip")]
fn a_batch_built_anew_has_the_level_of_the_topic() {
    let value: Vec<u8> = (0..20_000u32).flat_map(|i| (i * i % 1009).to_be_bytes()).collect();
    let rows = [(NOW, None, Some(&value[..]))];
    let stored = |level: i32| {
        let mut topic = to(Codec::Gzip);
        topic.levels.gzip = level;
        append(&build(of(Codec::None), &rows), Codec::None, &topic).unwrap().0
    };
    for level in [1, 9] {
        let options = BatchOptions {
            level: Some(level),
            base_offset: Offset::new(1_234_567),
            leader_epoch: Some(LeaderEpoch::new(9)),
            ..of(Codec::Gzip)
        };
        assert_eq!(stored(level), build(options, &rows));
    }
    assert_ne!(stored(1).len(), stored(9).len());
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_86_148_and_89_a_delete_horizon_survives_in_place_only() {
    let bytes = forge(&three(BatchOptions::default()), |bytes| bytes[22] |= 0x40);
    let (stored, _) = append(&bytes, Codec::None, &rules()).unwrap();
    assert!(Batch::parse(&stored).unwrap().delete_horizon().is_some());
    let (stored, assigned) = append(&bytes, Codec::None, &to(Codec::Gzip)).unwrap();
    assert!(Batch::parse(&stored).unwrap().delete_horizon().is_none());
    assert_eq!((assigned.record_count, assigned.converted_records), (3, 3));
}

#[test]
fn format_edge_187_offsets_are_assigned_in_place() {
    for codec in codecs() {
        let bytes = three(of(codec));
        let (stored, assigned) = append(&bytes, codec, &rules()).unwrap();
        assert_eq!(offsets(&stored), [1_234_567, 1_234_568, 1_234_569]);
        assert_eq!((stored.len(), &stored[61..]), (bytes.len(), &bytes[61..]));
        assert_eq!((assigned.converted_records, assigned.sizes_may_have_changed), (0, false));
    }
}

#[test]
fn format_edge_149_a_negative_timestamp() {
    let bytes = forge(&build(BatchOptions::default(), &[(0, Some(b"k"), None)]), |bytes| {
        bytes[27..35].copy_from_slice(&(-5i64).to_be_bytes());
    });
    let (stored, assigned) = append(&bytes, Codec::None, &rules()).unwrap();
    assert_eq!((timestamps(&stored), assigned.max_timestamp), (vec![Some(-5)], None));
    #[cfg(feature = "gzip")]
    assert_eq!(refused(&bytes, Codec::None, &to(Codec::Gzip)).kafka_name(), "IllegalArgumentException");
}

#[test]
fn of_several_old_messages_the_first_at_fault_decides() {
    let message = |time: i64, key: Option<&[u8]>| {
        let record = LegacyRecord {
            offset: Offset::ZERO,
            timestamp: Some(Timestamp::new(time.max(0))),
            key,
            value: Some(b"v"),
        };
        let mut out = BytesMut::new();
        legacy::encode(&LegacyOptions::default(), &[record], &mut out).unwrap();
        // The encoder takes no such time.
        out[18..26].copy_from_slice(&time.to_be_bytes());
        let crc = crc32fast::hash(&out[16..]);
        out[12..16].copy_from_slice(&crc.to_be_bytes());
        out
    };
    let key = Some(&b"k"[..]);
    let (fine, negative, keyless, late) =
        (message(NOW, key), message(-5, key), message(NOW, None), message(i64::MAX, key));
    let v0 = old(Magic::V0, Codec::None, 1);
    let topic = LeaderRules { compacted: true, ..rules() };
    let invalid_timestamp = "IllegalArgumentException";
    for (messages, name) in [
        ([&fine, &negative], invalid_timestamp),
        ([&negative, &keyless], invalid_timestamp),
        ([&negative, &late], invalid_timestamp),
        ([&negative, &v0], invalid_timestamp),
        ([&keyless, &negative], "RecordValidationException"),
        ([&late, &negative], "RecordValidationException"),
        ([&keyless, &v0], "RecordValidationException"),
        ([&v0, &negative], INVALID),
    ] {
        let set = messages.map(|message| &message[..]).concat();
        assert_eq!(refused(&set, Codec::None, &topic).kafka_name(), name);
    }
    // Where the batch is compressed, all messages are looked at before it is built.
    #[cfg(feature = "gzip")]
    for (messages, name) in [
        ([&negative, &keyless], "RecordValidationException"),
        ([&negative, &v0], INVALID),
        ([&fine, &negative], invalid_timestamp),
    ] {
        let set = messages.map(|message| &message[..]).concat();
        let topic = LeaderRules { target_codec: Some(Codec::Gzip), ..topic.clone() };
        assert_eq!(refused(&set, Codec::None, &topic).kafka_name(), name);
    }
}

#[test]
#[cfg(feature = "gzip")]
fn a_batch_without_records_that_would_be_built_anew_is_no_bytes() {
    let mut empty = BytesMut::new();
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    builder.finish_empty(&mut empty, Offset::new(3), None).unwrap();
    let coordinator = LeaderRules { origin: Origin::Coordinator, ..to(Codec::Gzip) };
    let assigned = assign_offsets(&mut empty, Offset::new(1_234_567), Codec::None, &coordinator).unwrap();
    assert_eq!(empty.len(), 0);
    assert_eq!((assigned.next_offset.get(), assigned.max_timestamp), (1_234_567, None));
}

#[test]
fn format_edge_191_old_messages_become_one_batch() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4] {
        if !codec.is_enabled() {
            continue;
        }
        for magic in [Magic::V0, Magic::V1] {
            let (stored, assigned) = append(&old(magic, codec, 3), codec, &rules()).unwrap();
            let batch = Batch::parse(&stored).unwrap();
            assert_eq!((batch.magic(), batch.codec()), (Magic::V2, Ok(codec)));
            assert_eq!(batch.size(), stored.len());
            assert_eq!(offsets(&stored), [1_234_567, 1_234_568, 1_234_569]);
            assert_eq!((batch.producer_id(), batch.base_sequence()), (None, None));
            let times = [0, 1, 2].map(|i| (magic == Magic::V1).then_some(NOW + i));
            assert_eq!(timestamps(&stored), times);
            assert_eq!(assigned.max_timestamp, times[2].map(Timestamp::new));
            assert!(assigned.sizes_may_have_changed);
            assert_eq!(assigned.converted_records, 3);
            if codec == Codec::None {
                assert_eq!((stored.len(), assigned.temporary_bytes), (94, 94));
            }
            let append_time = LeaderRules { timestamp_type: TimestampType::LogAppendTime, ..rules() };
            let (stored, _) = append(&old(magic, codec, 3), codec, &append_time).unwrap();
            assert_eq!(timestamps(&stored), [Some(NOW); 3]);
        }
    }
    #[cfg(feature = "gzip")]
    {
        let (stored, _) = append(&old(Magic::V1, Codec::None, 3), Codec::None, &to(Codec::Gzip)).unwrap();
        assert_eq!(records(&stored).unwrap().len(), 3);
        let two = [&old(Magic::V1, Codec::Gzip, 1)[..], &old(Magic::V1, Codec::Gzip, 1)[..]].concat();
        assert_eq!(refused(&two, Codec::Gzip, &rules()).kafka_name(), INVALID);
    }
    let mixed = [&old(Magic::V1, Codec::None, 1)[..], &old(Magic::V0, Codec::None, 1)[..]].concat();
    assert_eq!(refused(&mixed, Codec::None, &rules()).kafka_name(), INVALID);
}

/// A gzip wrapper of this magic around messages of another, the time of each too old by far.
#[cfg(feature = "gzip")]
fn mismatched(outer: Magic, inner: Magic, count: i64) -> Vec<u8> {
    wrapped(outer, &old(inner, Codec::None, count), count)
}

/// A gzip wrapper of this magic around the bytes of messages.
#[cfg(feature = "gzip")]
fn wrapped(outer: Magic, inner: &[u8], count: i64) -> Vec<u8> {
    let payload = crate::records::gzip(inner);
    let mut bytes = (count - 1).to_be_bytes().to_vec();
    bytes.extend([0; 8]);
    bytes.extend([outer.get() as u8, 1]);
    if outer == Magic::V1 {
        bytes.extend(NOW.to_be_bytes());
    }
    bytes.extend([0xff; 4]);
    bytes.extend((payload.len() as i32).to_be_bytes());
    bytes.extend(payload);
    let size = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&size.to_be_bytes());
    let crc = crc32fast::hash(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_be_bytes());
    bytes
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_190_and_81_messages_of_another_magic_than_their_wrapper() {
    for (outer, inner) in [(Magic::V1, Magic::V0), (Magic::V0, Magic::V1)] {
        let error = refused(&mismatched(outer, inner, 20), Codec::Gzip, &rules());
        assert_eq!((error.kafka_name(), error.cause_name()), ("RecordValidationException", INVALID));
        assert_eq!(error.record_faults().len(), 20);
        assert_eq!(Rejections::from(&error), Rejections { invalid_magic: 20, ..Rejections::default() });
    }
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_81_a_bad_timestamp_decides_what_a_mix_of_faults_is_called() {
    // Two messages with good and two with bad times of either magic, and one magic is wrong.
    let mut payload = BytesMut::new();
    for (magic, offset) in [(Magic::V1, 0), (Magic::V0, 3)] {
        let records = [0, 1, 2].map(|i| LegacyRecord {
            offset: Offset::new(offset + i),
            timestamp: Some(Timestamp::new(0)),
            key: Some(b"k"),
            value: Some(b"v"),
        });
        legacy::encode(&LegacyOptions { magic, ..LegacyOptions::default() }, &records, &mut payload).unwrap();
    }
    let bytes = wrapped(Magic::V1, &payload, 6);
    let rules = LeaderRules { timestamp_before_max_ms: 1000, ..rules() };
    let error = refused(&bytes, Codec::Gzip, &rules);
    assert_eq!((error.kafka_name(), error.cause_name()), {
        ("RecordValidationException", "InvalidTimestampException")
    });
    let faults: Vec<_> = error.record_faults().iter().map(|fault| (fault.batch_index, fault.kind)).collect();
    assert_eq!(faults, {
        let time = RecordFaultKind::Timestamp {
            found: Timestamp::new(0),
            least: Timestamp::new(NOW - 1000),
            most: Timestamp::new(NOW + 3_600_000),
        };
        let magic = RecordFaultKind::Magic { expected: Magic::V1, found: 0 };
        let kind = |i| if i < 3 { time } else { magic };
        (0..6).map(|i| (i, kind(i))).collect::<Vec<_>>()
    });
    assert_eq!(Rejections::from(&error), Rejections { invalid_magic: 3, ..Rejections::default() });
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_189_a_wrong_inner_checksum_is_corruption_at_once() {
    for magic in [Magic::V0, Magic::V1] {
        let mut inner = old(magic, Codec::None, 2);
        inner[12] ^= 1;
        let payload = crate::records::gzip(&inner);
        let mut bytes = mismatched(magic, magic, 2);
        let value_at = if magic == Magic::V0 { 22 } else { 30 };
        bytes.truncate(value_at);
        bytes.extend((payload.len() as i32).to_be_bytes());
        bytes.extend(payload);
        let size = bytes.len() as i32 - 12;
        bytes[8..12].copy_from_slice(&size.to_be_bytes());
        assert_eq!(records(&bytes).unwrap().len(), 2);
        let error = refused(&bytes, Codec::Gzip, &rules());
        assert_eq!(error.kafka_name(), "CorruptRecordException");
        let ValidationError::InnerChecksum { batch_index: 0, stored, computed } = error else {
            panic!("{error}");
        };
        assert_eq!(stored, computed ^ 1 << 24);
        assert_eq!(Rejections::from(&error), Rejections { invalid_checksum: 1, ..Rejections::default() });
    }
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_70_inner_offsets_that_are_not_consecutive_are_made_so() {
    let mut out = BytesMut::new();
    let records = [3, 8, 20].map(|offset| LegacyRecord {
        offset: Offset::new(offset),
        timestamp: Some(Timestamp::new(NOW)),
        key: Some(b"k"),
        value: None,
    });
    let options = LegacyOptions { codec: Codec::Gzip, ..LegacyOptions::default() };
    legacy::encode(&options, &records, &mut out).unwrap();
    let (stored, _) = append(&out, Codec::Gzip, &rules()).unwrap();
    assert_eq!(offsets(&stored), [1_234_567, 1_234_568, 1_234_569]);
}

#[test]
fn format_edge_186_the_codec_of_the_topic() {
    for batch in codecs() {
        for topic in codecs() {
            let bytes = three(of(batch));
            let (stored, _) = append(&bytes, batch, &to(topic)).unwrap();
            assert_eq!(Batch::parse(&stored).unwrap().codec(), Ok(topic));
            assert_eq!(records(&stored).unwrap().len(), 3);
        }
        let (stored, _) = append(&three(of(batch)), batch, &rules()).unwrap();
        assert_eq!(Batch::parse(&stored).unwrap().codec(), Ok(batch));
    }
}

#[test]
#[cfg(feature = "gzip")]
fn a_fault_far_inside_a_compressed_append_has_its_place() {
    let value = [7; 100_000];
    let three = build(of(Codec::None), &[(NOW, None, Some(&value[..])); 3]);
    let (payload, size) = (&three[61..], (three.len() - 61) / 3);
    let failed = |payload: &[u8], count: i32, field: &str, at: usize| {
        let error = refused(&crate::records::gzipped(count, payload), Codec::Gzip, &rules());
        let ValidationError::Decode(source) = error else { panic!("{error}") };
        let place = format!("{field} at byte {at} of the decompressed records: ");
        assert!(source.to_string().starts_with(&place), "{source}");
    };
    // A header that is not there.
    let mut headed = payload.to_vec();
    headed[2 * size - 1] = 2;
    failed(&headed, 3, "record headers count", 2 * size - 1);
    // What looks like the length of a record that goes on and on.
    let more = [&payload[..size], &hex("fe ff ff ff 0f"), &[0; 200_000]].concat();
    failed(&more, 1, "end of the records", size);
}

#[test]
fn records_that_cannot_be_read_are_refused_in_every_path() {
    let damaged = forge(&three(BatchOptions::default()), |bytes| bytes[61] = 0x7e);
    for target in codecs() {
        assert_eq!(refused(&damaged, Codec::None, &to(target)).kafka_name(), INVALID);
    }
}
