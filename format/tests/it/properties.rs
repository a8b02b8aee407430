//! What holds for any bytes.

use bytes::BytesMut;
use kseg_format::{
    Batch, BatchOptions, Codec, ControlType, LeaderRules, Offset, RecordBatchBuilder, Timestamp,
    TimestampType, assign_offsets, kraft,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::describe::describe;
use crate::fuzzed;
use crate::support::{build, forge, records};

type Row = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let bytes = || option::of(vec(any::<u8>(), 0..40));
    let headers = vec((vec(any::<u8>(), 0..8), bytes()), 0..3);
    vec((-1i64..i64::MAX, bytes(), bytes(), headers), 1..12)
}

fn codec() -> impl Strategy<Value = Codec> {
    let enabled: Vec<Codec> = Codec::ALL.into_iter().filter(|codec| codec.is_enabled()).collect();
    proptest::sample::select(enabled)
}

fn batch(rows: &[Row], options: BatchOptions) -> BytesMut {
    let mut builder = RecordBatchBuilder::new(options);
    for (timestamp, key, value, headers) in rows {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            headers.iter().map(|(name, value)| (&name[..], value.as_deref())).collect();
        builder.append(Timestamp::from_raw(*timestamp), key.as_deref(), value.as_deref(), &headers).unwrap();
    }
    let mut out = BytesMut::new();
    builder.finish(&mut out).unwrap();
    out
}

/// Does with the bytes all that can be done.
fn read_everything(bytes: &[u8]) {
    let _ = describe(bytes);
    fuzzed::walk(bytes);
    fuzzed::decode(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        read_everything(&bytes);
    }

    #[test]
    fn arbitrary_fields_under_a_right_checksum_are_read_or_refused(
        payload in vec(any::<u8>(), 0..80),
        count in prop_oneof![0i32..6, any::<i32>()],
        fields in any::<[u8; 36]>(),
        attributes in any::<u8>(),
    ) {
        let bytes = forge(&build(BatchOptions::default(), &[(0, None, None)]), |bytes| {
            bytes.truncate(61);
            bytes.extend_from_slice(&payload);
            bytes[21..57].copy_from_slice(&fields);
            bytes[22] = attributes;
            bytes[57..61].copy_from_slice(&count.to_be_bytes());
        });
        read_everything(&bytes);
    }

    #[test]
    fn arbitrary_payloads_are_decompressed_or_refused(codec in 0u8..8, payload in vec(any::<u8>(), 0..120)) {
        fuzzed::decompress(&[&[codec][..], &payload].concat());
    }

    #[test]
    fn a_damaged_payload_is_decompressed_or_refused(
        codec in codec(),
        contents in vec(0u8..4, 0..300),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let batch = batch(&[(0, None, Some(contents), Vec::new())], BatchOptions { codec, ..BatchOptions::default() });
        let mut input = [&[codec as u8][..], &batch[61..]].concat();
        let at = 1 + at.index(input.len() - 1);
        input[at] = byte;
        fuzzed::decompress(&input);
    }

    #[test]
    fn arbitrary_old_messages_are_read_or_refused_and_written_again(bytes in vec(any::<u8>(), 1..120)) {
        fuzzed::legacy(&bytes);
    }

    #[test]
    fn arbitrary_snapshots_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        fuzzed::snapshot(&bytes);
    }

    #[test]
    fn arbitrary_small_files_are_read_or_refused(text in "[0-9a-z=\\-:{}\" \\n\\\\]{0,60}", bytes in vec(any::<u8>(), 0..60)) {
        fuzzed::checkpoints(text.as_bytes());
        fuzzed::checkpoints(&bytes);
    }

    #[test]
    fn an_old_message_of_arbitrary_bytes_is_read_or_refused(
        mut bytes in vec(any::<u8>(), 26..120),
        magic in 0u8..2,
        codec in 0u8..8,
    ) {
        let size = bytes.len() as i32 - 12;
        bytes[8..12].copy_from_slice(&size.to_be_bytes());
        (bytes[16], bytes[17]) = (magic, codec);
        let crc = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_be_bytes());
        read_everything(&bytes);
    }

    #[test]
    fn a_damaged_batch_is_read_or_refused(
        rows in rows(),
        codec in codec(),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let bytes = batch(&rows, BatchOptions { codec, ..BatchOptions::default() });
        let bytes = forge(&bytes, |bytes| {
            let at = 21 + at.index(bytes.len() - 21);
            bytes[at] = byte;
        });
        read_everything(&bytes);
    }

    #[test]
    fn a_flipped_bit_behind_the_magic_breaks_the_checksum(
        rows in rows(),
        codec in codec(),
        at in any::<proptest::sample::Index>(),
        bit in 0u32..8,
    ) {
        let mut bytes = batch(&rows, BatchOptions { codec, ..BatchOptions::default() });
        prop_assert!(Batch::parse(&bytes).unwrap().verify().is_ok());
        let at = 17 + at.index(bytes.len() - 17);
        bytes[at] ^= 1u8 << bit;
        prop_assert!(Batch::parse(&bytes).unwrap().verify().is_err());
    }

    #[test]
    fn what_is_built_is_read(
        rows in rows(),
        codec in codec(),
        base in 0..i64::MAX - 100,
        append_time in option::of(0..i64::MAX),
    ) {
        let bytes = batch(&rows, BatchOptions {
            codec,
            base_offset: Offset::new(base),
            timestamp_type: append_time.map_or(TimestampType::CreateTime, |_| TimestampType::LogAppendTime),
            log_append_time: append_time.map(Timestamp::new),
            ..BatchOptions::default()
        });
        let read = records(&bytes).unwrap();
        prop_assert_eq!(read.len(), rows.len());
        let mut size = 61;
        for ((offset, record), (timestamp, key, value, headers)) in (base..).zip(&read).zip(rows) {
            prop_assert_eq!(record.offset, offset);
            prop_assert_eq!(record.timestamp, append_time.or(Some(timestamp).filter(|time| *time != -1)));
            prop_assert_eq!(&record.key, &key);
            prop_assert_eq!(&record.value, &value);
            prop_assert_eq!(&record.headers, &headers);
            size += record.size;
        }
        if codec == Codec::None {
            prop_assert_eq!(size, bytes.len());
        }
        prop_assert_eq!(Batch::parse(&bytes).unwrap().last_offset().get(), base + read.len() as i64 - 1);
    }

    #[test]
    fn what_a_leader_stores_has_the_same_records(rows in rows(), source in codec(), target in codec()) {
        let mut bytes = batch(&rows, BatchOptions { codec: source, ..BatchOptions::default() });
        let before = records(&bytes).unwrap();
        let rules = LeaderRules {
            target_codec: Some(target),
            timestamp_after_max_ms: i64::MAX,
            ..LeaderRules::default()
        };
        let assigned = assign_offsets(&mut bytes, Offset::new(77), source, &rules).unwrap();
        prop_assert_eq!(assigned.next_offset, Offset::new(77 + rows.len() as i64));
        prop_assert!(Batch::parse(&bytes).unwrap().verify().is_ok());
        let mut after = records(&bytes).unwrap();
        after.iter_mut().for_each(|record| record.offset -= 77);
        prop_assert_eq!(before, after);
    }

    #[test]
    fn control_values_of_arbitrary_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..60), kind in 0i16..8) {
        if let Ok(message) = kraft::Message::parse(ControlType::from_raw(kind), &bytes) {
            let again = message.encode_value();
            prop_assert_eq!(kraft::Message::parse(message.kind(), &again), Ok(message));
        }
    }
}
