//! Building batches: sizes, orders and contradictions.

use bytes::BytesMut;
use kseg_format::{
    Batch, BatchOptions, Codec, EncodeError, Offset, Producer, ProducerEpoch, ProducerId, RecordBatchBuilder,
    Sequence, Timestamp, TimestampType,
};

use crate::support::{Row, at, build, offsets, records, three, timestamps};

fn illegal<T: std::fmt::Debug>(result: Result<T, EncodeError>) {
    assert_eq!(result.unwrap_err().kafka_name(), "IllegalArgumentException");
}

fn append(builder: &mut RecordBatchBuilder, offset: i64, timestamp: i64) -> Result<(), EncodeError> {
    let timestamp = Timestamp::from_raw(timestamp);
    builder.append_at(Offset::new(offset), timestamp, Some(b"k"), Some(b"v"), &[])
}

#[test]
fn format_edge_41_offsets_increase_and_timestamps_are_not_negative() {
    let mut builder = RecordBatchBuilder::new(at(5));
    append(&mut builder, 7, 0).unwrap();
    illegal(append(&mut builder, 7, 0));
    illegal(append(&mut builder, 6, 0));
    illegal(append(&mut builder, 8, -2));
    illegal(append(&mut builder, 5 + i64::from(i32::MAX) + 1, 0));
    append(&mut builder, 5 + i64::from(i32::MAX), -1).unwrap();
    let mut out = BytesMut::new();
    builder.finish(&mut out).unwrap();
    assert_eq!(offsets(&out), [7, 5 + i64::from(i32::MAX)]);
    assert_eq!(timestamps(&out), [Some(0), None]);
}

#[test]
fn a_negative_timestamp_is_refused_also_above_a_negative_delete_horizon() {
    let horizon = Some(Timestamp::new(-10));
    let mut builder =
        RecordBatchBuilder::new(BatchOptions { delete_horizon: horizon, ..BatchOptions::default() });
    let mut append = |time| builder.append(Some(Timestamp::new(time)), None, Some(b"v"), &[]);
    append(5).unwrap();
    illegal(append(-5));
    append(6).unwrap();
    assert_eq!(builder.record_count(), 2);
    let mut out = BytesMut::new();
    builder.finish(&mut out).unwrap();
    assert_eq!(timestamps(&out), [Some(5), Some(6)]);
}

#[test]
fn offsets_go_on_behind_a_gap() {
    let mut builder = RecordBatchBuilder::new(at(5));
    for (offset, records) in [(5, 1), (9, 2)] {
        append(&mut builder, offset, 100).unwrap();
        assert_eq!(builder.append(Some(Timestamp::new(101)), None, None, &[]), Ok(Offset::new(offset + 1)));
        assert_eq!(builder.last_offset(), Some(Offset::new(offset + 1)));
        assert_eq!(builder.record_count(), 2 * records);
    }
    let mut out = BytesMut::new();
    builder.finish(&mut out).unwrap();
    assert_eq!(offsets(&out), [5, 6, 9, 10]);
    let batch = Batch::parse(&out).unwrap();
    assert_eq!((batch.records_count(), batch.last_offset()), (Some(4), Offset::new(10)));
}

#[test]
fn format_edge_42_without_records_there_is_no_batch() {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    assert!(builder.is_empty());
    let mut out = BytesMut::from(&b"before"[..]);
    assert_eq!(builder.finish(&mut out), Ok(None));
    assert_eq!(out, &b"before"[..]);
}

#[test]
fn format_edge_43_one_record_fits_whatever_the_limit() {
    let mut builder = RecordBatchBuilder::new(at(0));
    let room = |builder: &RecordBatchBuilder| builder.has_room_for(0, 1.0, None, Some(b"k"), None, &[]);
    assert!(room(&builder));
    append(&mut builder, 0, 0).unwrap();
    assert!(!room(&builder));
    builder.clear();
    assert!(room(&builder));
}

#[test]
fn format_edge_177_room_for_one_record_more() {
    let (key, value) = (Some(&b"a"[..]), Some(&b"1"[..]));
    let mut builder = RecordBatchBuilder::new(at(0));
    builder.append(None, key, value, &[]).unwrap();
    assert!(builder.has_room_for(1024, 1.0, None, key, value, &[]));
    let header: (&[u8], Option<&[u8]>) = (b"hello", Some(b"world.world"));
    assert!(builder.has_room_for(120, 1.0, None, key, value, &[]));
    assert!(!builder.has_room_for(120, 1.0, None, key, value, &[header; 10]));
    // The estimate is the size that the record then takes.
    let exact = builder.uncompressed_size();
    builder.append(Some(Timestamp::new(1 << 40)), key, None, &[header; 10]).unwrap();
    let grown = builder.uncompressed_size();
    builder.clear();
    builder.append(None, key, value, &[]).unwrap();
    for (limit, room) in [(grown - 1, false), (grown, true)] {
        let timestamp = Some(Timestamp::new(1 << 40));
        assert_eq!(builder.has_room_for(limit, 1.0, timestamp, key, None, &[header; 10]), room);
    }
    // A finished builder is an empty one again, in which the first record always has room.
    assert_eq!(builder.finish(&mut BytesMut::new()), Ok(Some(exact)));
    assert!(builder.is_empty());
}

#[test]
fn format_edge_178_a_batch_without_room_takes_records_all_the_same() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
        let mut append = |timestamp: i64| {
            let (key, value) = (format!("{timestamp}"), format!("{}", timestamp + 1));
            let timestamp = Some(Timestamp::new(timestamp));
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            let room = builder.has_room_for(64, 0.5, timestamp, key, value, &[]);
            builder.append(timestamp, key, value, &[]).unwrap();
            room
        };
        assert!(append(0));
        append(1);
        assert!(!append(2));
        let mut out = BytesMut::new();
        builder.finish(&mut out).unwrap();
        assert_eq!(timestamps(&out), [Some(0), Some(1), Some(2)]);
        assert_eq!(Batch::parse(&out).unwrap().max_timestamp(), Some(Timestamp::new(2)));
    }
}

#[test]
fn format_edge_180_records_that_were_dropped_leave_the_buffer_as_it_was() {
    for before in [0, 15] {
        let mut out = BytesMut::zeroed(before);
        let mut builder = RecordBatchBuilder::new(at(7));
        append(&mut builder, 8, 1).unwrap();
        builder.clear();
        assert_eq!((builder.finish(&mut out), out.len()), (Ok(None), before));
        // There is no aborted or closed builder, as Kafka has it: it begins a new batch.
        append(&mut builder, 7, 2).unwrap();
        let size = builder.finish(&mut out).unwrap().unwrap();
        assert_eq!(out.len(), before + size);
        assert_eq!((offsets(&out[before..]), timestamps(&out[before..])), (vec![7], vec![Some(2)]));
    }
}

#[test]
fn format_edge_44_contradictions_show_at_the_end() {
    let producer = |id, epoch, sequence: i32| {
        Some(Producer {
            id: ProducerId::new(id),
            epoch: ProducerEpoch::new(epoch),
            base_sequence: Sequence::from_raw(sequence),
        })
    };
    let finish = |options| {
        let mut builder = RecordBatchBuilder::new(options);
        append(&mut builder, 0, 0).unwrap();
        let mut out = BytesMut::from(&b"before"[..]);
        let result = builder.finish(&mut out);
        assert!(builder.is_empty());
        assert!(result.is_ok() || out == b"before"[..]);
        result
    };
    let plain = BatchOptions::default();
    illegal(finish(BatchOptions { transactional: true, ..plain }));
    illegal(finish(BatchOptions { transactional: true, producer: producer(-1, 0, 0), ..plain }));
    illegal(finish(BatchOptions { producer: producer(7, -1, 0), ..plain }));
    illegal(finish(BatchOptions { producer: producer(7, 0, -1), ..plain }));
    illegal(finish(BatchOptions { last_offset: Some(Offset::new(1 << 40)), ..plain }));
    assert!(finish(BatchOptions { producer: producer(7, 0, -1), control: true, ..plain }).is_ok());
    assert!(finish(BatchOptions { producer: producer(7, 0, 0), transactional: true, ..plain }).is_ok());
}

#[test]
fn format_edge_171_the_checksums_of_two_records() {
    let out = build(
        BatchOptions::default(),
        &[(283_843, Some(b"key1"), Some(b"value1")), (1234, Some(b"key2"), Some(b"value2"))],
    );
    let batch = Batch::parse(&out).unwrap();
    assert_eq!((batch.size(), batch.crc()), (97, 3_851_219_455));
    assert_eq!(batch.base_timestamp(), Some(Timestamp::new(283_843)));
}

#[test]
fn format_edge_172_and_179_the_size_is_known_before_the_end() {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    let t = 1_700_000_000_000;
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"foo", Some(b"value")), (b"bar", None)];
    let mut sizes = vec![builder.uncompressed_size()];
    let rows: [(Row<'_>, &[_]); 4] = [
        ((t, Some(b"key"), Some(b"value")), &[]),
        ((t + 30_000, None, Some(b"value")), &[]),
        ((t + 60_000, Some(b"key"), None), &[]),
        ((t + 60_000, Some(b"key"), Some(b"value")), &headers),
    ];
    for ((timestamp, key, value), headers) in rows {
        builder.append(Some(Timestamp::new(timestamp)), key, value, headers).unwrap();
        sizes.push(builder.uncompressed_size());
    }
    assert_eq!(sizes, [61, 76, 90, 102, 134]);
    assert_eq!(builder.estimated_size(0.5), 134);
    let mut out = BytesMut::new();
    assert_eq!(builder.finish(&mut out), Ok(Some(134)));
    let read: Vec<_> = records(&out).unwrap().iter().map(|record| record.size).collect();
    assert_eq!(read, [15, 14, 12, 32]);
}

#[test]
fn format_edge_181_append_time_and_create_time() {
    let out = build(
        BatchOptions {
            timestamp_type: TimestampType::LogAppendTime,
            log_append_time: Some(Timestamp::new(77)),
            ..BatchOptions::default()
        },
        &[(0, None, None), (0, None, None), (0, None, None)],
    );
    assert_eq!(Batch::parse(&out).unwrap().max_timestamp(), Some(Timestamp::new(77)));
    assert_eq!(timestamps(&out), [Some(77); 3]);
    let out = build(BatchOptions::default(), &[(0, None, None), (2, None, None), (1, None, None)]);
    assert_eq!(Batch::parse(&out).unwrap().max_timestamp(), Some(Timestamp::new(2)));
    assert_eq!(timestamps(&out), [Some(0), Some(2), Some(1)]);
}

#[test]
fn format_edge_182_a_delete_horizon_leaves_the_timestamps_alone() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let horizon = Some(Timestamp::new(100));
        let out = build(
            BatchOptions { codec, delete_horizon: horizon, ..BatchOptions::default() },
            &[(50, None, Some(b"a")), (100, Some(b"k"), None), (150, None, Some(b"c"))],
        );
        assert_eq!(Batch::parse(&out).unwrap().delete_horizon(), horizon);
        assert_eq!(timestamps(&out), [Some(50), Some(100), Some(150)]);
    }
}

#[test]
fn a_builder_makes_one_batch_after_the_other() {
    let mut builder = RecordBatchBuilder::new(at(0));
    let mut out = BytesMut::new();
    let value = vec![b'x'; 5000];
    builder.append(None, None, Some(&value), &[]).unwrap();
    assert_eq!((builder.record_count(), builder.last_offset()), (1, Some(Offset::ZERO)));
    let first = builder.finish(&mut out).unwrap().unwrap();
    builder.options_mut().base_offset = Offset::new(40);
    assert_eq!(builder.append(Some(Timestamp::new(3)), None, Some(b"y"), &[]), Ok(Offset::new(40)));
    assert_eq!(builder.max_timestamp(), Some(Timestamp::new(3)));
    builder.finish(&mut out).unwrap();
    assert_eq!(offsets(&out), [0]);
    assert_eq!(offsets(&out[first..]), [40]);
    assert_eq!(out[first..], build(at(40), &[(3, None, Some(b"y"))]));
}

#[test]
fn every_codec_gives_the_records_back() {
    let plain = records(&three(at(9))).unwrap();
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let out = three(BatchOptions { codec, ..at(9) });
        let batch = Batch::parse(&out).unwrap().verify().unwrap();
        assert_eq!(batch.codec(), Ok(codec));
        assert_eq!(records(&out).unwrap(), plain);
    }
}

#[test]
fn a_codec_that_is_off_is_named_and_a_level_out_of_range_as_well() {
    for codec in Codec::ALL {
        let mut builder = RecordBatchBuilder::new(BatchOptions {
            codec,
            level: Some(if codec == Codec::Lz4 { 18 } else { 23 }),
            ..BatchOptions::default()
        });
        append(&mut builder, 0, 0).unwrap();
        let result = builder.finish(&mut BytesMut::new());
        match codec {
            _ if !codec.is_enabled() => {
                let message = result.unwrap_err().to_string();
                assert_eq!(
                    message,
                    format!("{codec}: this build lacks the feature `{codec}` of kseg-format")
                );
            }
            Codec::Gzip | Codec::Lz4 | Codec::Zstd => illegal(result),
            Codec::None | Codec::Snappy => assert!(result.is_ok()),
        }
    }
}

#[test]
fn a_batch_that_is_lent_is_the_one_that_is_copied() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
        for sizes in [&[3usize, 0, 9000][..], &[20_000], &[1]] {
            let fill = |builder: &mut RecordBatchBuilder| {
                for (size, time) in sizes.iter().zip(100..) {
                    let value = vec![b'v'; *size];
                    builder.append(Some(Timestamp::new(time)), Some(b"k"), Some(&value), &[]).unwrap();
                }
            };
            fill(&mut builder);
            let mut copied = BytesMut::from(&b"in front"[..]);
            assert_eq!(builder.finish(&mut copied).unwrap(), Some(copied.len() - 8));
            fill(&mut builder);
            assert_eq!(builder.build().unwrap(), Some(&copied[8..]));
            assert!(builder.is_empty());
            assert_eq!(builder.build().unwrap(), None);
        }
    }
}

#[test]
fn records_at_the_edges_of_the_short_way_are_written_like_all_others() {
    let base = 1_000_000;
    let lengths = [None, Some(0), Some(63), Some(64), Some(8190), Some(8191), Some(8192), Some(20_000)];
    let times = [0, 63, 64, 8191, 8192, -1, -8192, -999_999];
    for (key, value) in lengths.into_iter().flat_map(|key| lengths.map(|value| (key, value))) {
        let bytes = |length: Option<usize>, byte| length.map(|length| vec![byte; length]);
        let (key, value) = (bytes(key, b'k'), bytes(value, b'v'));
        let mut next = RecordBatchBuilder::new(BatchOptions::default());
        let mut at = RecordBatchBuilder::new(BatchOptions::default());
        for (time, offset) in times.into_iter().zip(0..) {
            let time = Some(Timestamp::new(base + time));
            let offset = Offset::new(offset);
            assert_eq!(next.append(time, key.as_deref(), value.as_deref(), &[]), Ok(offset));
            at.append_at(offset, time, key.as_deref(), value.as_deref(), &[]).unwrap();
        }
        assert_eq!(next.build().unwrap(), at.build().unwrap());
    }
}

#[test]
fn deltas_at_the_edge_of_the_short_way_are_written_like_all_others() {
    let append = |far: i64, time: i64, next: bool| {
        let mut builder = RecordBatchBuilder::new(BatchOptions::default());
        append(&mut builder, 0, 0).unwrap();
        append(&mut builder, far - 1, 0).unwrap();
        let time = Some(Timestamp::new(time));
        if next {
            assert_eq!(builder.append(time, Some(b"k"), None, &[]), Ok(Offset::new(far)));
        } else {
            builder.append_at(Offset::new(far), time, Some(b"k"), None, &[]).unwrap();
        }
        builder.build().unwrap().unwrap().to_vec()
    };
    for far in [8191, 8192, 8193, 16_384] {
        for time in [0, 8191, 8192, 8193, 16_384] {
            assert_eq!(append(far, time, true), append(far, time, false), "{far} {time}");
        }
    }
}

#[test]
fn without_records_there_is_no_largest_timestamp() {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    assert_eq!((builder.max_timestamp(), builder.last_offset()), (None, None));
    append(&mut builder, 3, 5).unwrap();
    assert_eq!((builder.max_timestamp(), builder.last_offset()), {
        (Some(Timestamp::new(5)), Some(Offset::new(3)))
    });
    builder.clear();
    assert_eq!((builder.max_timestamp(), builder.last_offset()), (None, None));
}

#[test]
fn a_batch_that_is_given_away_is_the_one_that_is_copied() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let options = BatchOptions { codec, ..BatchOptions::default() };
        let (mut gives, mut lends) = (RecordBatchBuilder::new(options), RecordBatchBuilder::new(options));
        let mut buffer = BytesMut::from(&b"before"[..]);
        assert_eq!(gives.exchange(&mut buffer), Ok(None));
        assert_eq!(buffer, b"before"[..]);
        let mut memory = Vec::new();
        for time in 1..5 {
            append(&mut gives, 0, time).unwrap();
            append(&mut lends, 0, time).unwrap();
            let size = gives.exchange(&mut buffer).unwrap().unwrap();
            assert_eq!(&buffer[..size], lends.build().unwrap().unwrap(), "{codec}");
            assert!(gives.is_empty());
            memory.push(buffer.as_ptr());
        }
        // What was given back is written into again.
        if codec == Codec::None {
            assert_eq!((memory[0], memory[1]), (memory[2], memory[3]));
        }
    }
}

#[test]
fn the_estimate_of_a_compressed_size_is_rather_too_high() {
    let options = BatchOptions { codec: Codec::Lz4, ..BatchOptions::default() };
    let mut builder = RecordBatchBuilder::new(options);
    assert_eq!(builder.estimated_size(0.5), 61);
    builder.append(None, None, Some(&[7; 1000]), &[]).unwrap();
    assert_eq!(builder.uncompressed_size(), 61 + 1009);
    // A twentieth is added to half of 1009 bytes.
    assert_eq!(builder.estimated_size(0.5), 61 + 529);
    let next = 7 + 1;
    for (limit, room) in [(61 + 529 + next - 1, false), (61 + 529 + next, true)] {
        assert_eq!(builder.has_room_for(limit, 0.5, None, None, Some(b"v"), &[]), room);
    }
}
