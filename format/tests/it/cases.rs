//! Cases taken from public bug reports, by their ids.

use bytes::BytesMut;
use kseg_format::{
    Batch, BatchOptions, Batches, Codec, DecodeError, LeaderRules, Offset, RecordBatchBuilder, Timestamp,
    TimestampType, assign_offsets,
};

use crate::support::{around, at, build, failure, forge, hex, offsets, records, three, timestamps};

#[test]
fn fmt_01_a_header_value_may_be_null_or_empty_but_a_header_key_not_null() {
    let null = hex("16 00 00 00 02 6b 02 76 02 02 68 01");
    let empty = hex("16 00 00 00 02 6b 02 76 02 02 68 00");
    for (bytes, value) in [(null, None), (empty, Some(vec![]))] {
        let batch = around(1, 0, &bytes);
        let record = records(&batch).unwrap().remove(0);
        assert_eq!(record.headers, [(b"h".to_vec(), value.clone())]);
        let mut builder = RecordBatchBuilder::new(BatchOptions::default());
        builder
            .append(record.timestamp.map(Timestamp::new), Some(b"k"), Some(b"v"), &[(b"h", value.as_deref())])
            .unwrap();
        let mut out = BytesMut::new();
        builder.finish(&mut out).unwrap();
        assert_eq!(out[61..], bytes);
    }
    assert_eq!(
        failure(&around(1, 0, &hex("14 00 00 00 02 6b 02 76 02 01 00"))),
        (0, "InvalidRecordException")
    );
}

#[test]
fn fmt_02_a_null_value_is_a_tombstone_and_an_empty_one_is_not() {
    for (value, bytes) in [(None, "0e 00 00 00 02 6b 01 00"), (Some(&b""[..]), "0e 00 00 00 02 6b 00 00")] {
        let out = build(BatchOptions::default(), &[(10, Some(b"k"), value)]);
        assert_eq!(out[61..], hex(bytes));
        assert_eq!(records(&out).unwrap()[0].value.as_deref(), value);
    }
}

#[test]
#[cfg(feature = "snappy")]
fn fmt_03_snappy_with_and_without_framing() {
    let ten = |codec, len: usize| {
        let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
        for i in 0..10i64 {
            builder.append(Some(Timestamp::new(i)), None, Some(&vec![b'a'; len]), &[]).unwrap();
        }
        let mut out = BytesMut::new();
        builder.finish(&mut out).unwrap();
        out
    };
    let plain = ten(Codec::None, 50);
    let framed = ten(Codec::Snappy, 50);
    assert_eq!(framed[61..69], hex("82 53 4e 41 50 50 59 00"));
    assert_eq!(records(&framed), records(&plain));
    let raw = forge(&framed, |bytes| drop(bytes.drain(61..61 + 20)));
    assert!(raw.len() - 61 >= 16);
    assert_eq!(records(&raw), records(&plain));

    // One record of 7 bytes makes a raw block of 9.
    let small = build(BatchOptions { codec: Codec::Snappy, ..BatchOptions::default() }, &[(0, None, None)]);
    let raw = forge(&small, |bytes| drop(bytes.drain(61..61 + 20)));
    assert!(raw.len() - 61 < 16);
    assert_eq!(records(&raw), records(&small));

    for payload in [&b"neither nor"[..], &[0x55; 40]] {
        let bytes = forge(&framed, |bytes| {
            bytes.truncate(61);
            bytes.extend_from_slice(payload);
        });
        assert_eq!(failure(&bytes), (0, "KafkaException"));
    }
}

#[test]
#[cfg(feature = "lz4")]
fn fmt_04_the_lz4_header_checksum_leaves_out_the_magic() {
    let batch = three(BatchOptions { codec: Codec::Lz4, ..BatchOptions::default() });
    assert_eq!(batch[61..68], hex("04 22 4d 18 60 40 82"));
    let old = forge(&batch, |bytes| bytes[67] = 0x1a);
    assert_eq!(failure(&old), (0, "KafkaException"));
}

#[test]
fn fmt_05_the_count_and_the_records_must_agree() {
    let of = |codec| three(BatchOptions { codec, ..BatchOptions::default() });
    let count =
        |batch: &[u8], count: i32| forge(batch, |bytes| bytes[57..61].copy_from_slice(&count.to_be_bytes()));
    let plain = of(Codec::None);
    assert_eq!(failure(&count(&plain, 4)), (3, "InvalidRecordException"));
    assert_eq!(failure(&count(&plain, 2)), (2, "InvalidRecordException"));
    assert_eq!(failure(&count(&plain, -1)), (0, "InvalidRecordException"));
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let batch = of(codec);
        for wrong in [4, 2, -1] {
            assert_eq!(failure(&count(&batch, wrong)).1, "InvalidRecordException", "{codec} {wrong}");
        }
    }
    let batch = count(&plain, 4);
    let mut scratch = Vec::new();
    let error =
        Batch::parse(&batch).unwrap().records(&mut scratch, 0).unwrap().find_map(Result::err).unwrap();
    assert_eq!(error.to_string(), "records count at byte 57 of the batch: expected 4, found 3");
}

#[test]
fn fmt_07_the_last_offset_delta_is_the_last_records() {
    for count in [1, 2, 5] {
        let out = build(at(40), &vec![(0, None, Some(&b"v"[..])); count]);
        let batch = Batch::parse(&out).unwrap();
        assert_eq!(batch.last_offset_delta(), count as i32 - 1);
        assert_eq!(batch.last_offset(), Offset::new(39 + count as i64));
        assert_eq!(batch.records_count(), Some(count as i32));
    }
}

#[test]
fn fmt_08_offsets_come_from_the_deltas() {
    let mut builder =
        RecordBatchBuilder::new(BatchOptions { last_offset: Some(Offset::new(109)), ..at(100) });
    for offset in [103, 107] {
        builder.append_at(Offset::new(offset), None, None, Some(b"v"), &[]).unwrap();
    }
    let mut out = BytesMut::new();
    builder.finish(&mut out).unwrap();
    assert_eq!(offsets(&out), [103, 107]);
    let batch = Batch::parse(&out).unwrap();
    assert_eq!((batch.last_offset().get(), batch.next_offset().get()), (109, 110));
}

#[test]
fn fmt_09_the_checksum_covers_the_bytes_from_the_attributes_on() {
    let golden = hex("
        00000000000000000000003a0000000002716a618900000000000000000000000003e800000000000003e8ffffffff
        ffffffffffffffffffff0000000110000000026b027600");
    assert_eq!(golden.len(), 70);
    assert_eq!(
        build(
            BatchOptions { leader_epoch: Some(kseg_format::LeaderEpoch::new(0)), ..BatchOptions::default() },
            &[(1000, Some(b"k"), Some(b"v"))]
        ),
        golden
    );
    let valid = |bytes: &[u8]| Batch::parse(bytes).is_ok_and(|batch| batch.verify().is_ok());
    assert!(valid(&golden));
    for at in (0..8).chain(12..16) {
        let mut bytes = golden.clone();
        bytes[at] ^= 0x5a;
        assert!(valid(&bytes), "byte {at}");
    }
    for at in 17..70 {
        for bit in 0..8 {
            let mut bytes = golden.clone();
            bytes[at] ^= 1 << bit;
            assert!(!valid(&bytes), "byte {at} bit {bit}");
        }
    }
}

#[test]
fn fmt_10_an_append_time_is_the_time_of_all_records() {
    let mut bytes = build(BatchOptions::default(), &[(1000, None, Some(b"a")), (1010, None, Some(b"b"))]);
    let rules = LeaderRules {
        timestamp_type: TimestampType::LogAppendTime,
        now: Timestamp::new(5000),
        ..LeaderRules::default()
    };
    let before = bytes.clone();
    let assigned = assign_offsets(&mut bytes, Offset::ZERO, Codec::None, &rules).unwrap();
    assert_eq!(assigned.log_append_time, Some(Timestamp::new(5000)));
    let batch = Batch::parse(&bytes).unwrap().verify().unwrap();
    assert_eq!(batch.timestamp_type(), Some(TimestampType::LogAppendTime));
    assert_eq!(batch.base_timestamp(), Some(Timestamp::new(1000)));
    assert_eq!(batch.max_timestamp(), Some(Timestamp::new(5000)));
    assert_eq!(timestamps(&bytes), [Some(5000), Some(5000)]);
    assert_eq!(bytes[61..], before[61..]);
}

#[test]
fn fmt_12_a_cut_batch_ends_the_walk_quietly() {
    let batch = build(BatchOptions::default(), &[(0, None, Some(&[b'a'; 32]))]);
    assert_eq!(batch.len(), 100);
    for kept in [99, 60, 17, 16, 12, 11] {
        let mut bytes = batch.to_vec();
        bytes.extend_from_slice(&batch[..kept]);
        let mut walk = Batches::new(&bytes);
        assert_eq!(walk.next().unwrap().unwrap().size(), 100);
        assert!(walk.next().is_none());
        assert_eq!((walk.position(), walk.rest().len()), (100, kept));
        if kept >= 12 {
            bytes[108..112].copy_from_slice(&13i32.to_be_bytes());
            let mut walk = Batches::new(&bytes);
            assert!(walk.next().unwrap().is_ok());
            assert_eq!(walk.next().unwrap().unwrap_err().kafka_name(), "CorruptRecordException");
            assert!(walk.next().is_none());
        }
    }
}

#[test]
fn fmt_13_another_magic_is_never_read_as_magic_2() {
    let batch = three(BatchOptions::default());
    for magic in [3, 0xff] {
        let mut bytes = batch.to_vec();
        bytes[16] = magic;
        let error = Batch::parse(&bytes).unwrap_err();
        assert_eq!(error.kafka_name(), "CorruptRecordException");
        assert!(
            error.to_string().starts_with("magic at byte 16 of the batch: expected 0 to 2, found"),
            "{error}"
        );
        assert!(Batches::new(&bytes).next().unwrap().is_err());
        assert!(kseg_format::frame(&bytes, bytes.len() as u64).is_err());
    }
    for magic in [0, 1] {
        let mut bytes = batch.to_vec();
        bytes[16] = magic;
        let read = Batch::parse(&bytes).unwrap();
        assert_eq!(read.magic().get(), magic as i8);
        assert_eq!(read.records_count(), None);
        assert!(read.verify().is_err());
    }
}

#[test]
fn fmt_15_a_wrong_checksum_says_which_batch_and_where_the_next_begins() {
    let mut bytes = Vec::new();
    for base in [0, 10, 20] {
        let value = [b'v'; 85];
        let mut records = vec![(0, None, Some(&value[..])); 10];
        // Filled up to 1000 bytes.
        let plain = build(at(base), &records).len();
        let last = vec![b'v'; 85 + 1000 - plain];
        records[9].2 = Some(&last);
        bytes.extend_from_slice(&build(at(base), &records));
    }
    assert_eq!(bytes.len(), 3000);
    let stored = Batch::parse(&bytes[1000..]).unwrap().crc();
    bytes[1500] ^= 1;
    let mut walk = Batches::new(&bytes);
    assert!(walk.next().unwrap().unwrap().verify().is_ok());
    let position = walk.position();
    let error = walk.next().unwrap().unwrap().verify().unwrap_err();
    assert_eq!(position, 1000);
    let DecodeError::Checksum { stored: says, computed, base_offset, last_offset, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((says, base_offset.get(), last_offset.get()), (stored, 10, 19));
    assert_ne!(computed, stored);
    assert_eq!(walk.next().unwrap().unwrap().verify().unwrap().base_offset(), Some(Offset::new(20)));
}
