//! Messages of magic 0 and 1, plain and wrapped.

use bytes::BytesMut;
use kseg_format::legacy::{self, LegacyOptions, LegacyRecord};
use kseg_format::{
    Batch, BatchMut, Batches, Codec, DecodeError, LeaderEpoch, Magic, Offset, Timestamp, TimestampType,
};

use crate::support::{LIMIT, failure, hex, offsets, records, timestamps};
#[cfg(feature = "gzip")]
use crate::support::{streamed, whole};

const CORRUPT: &str = "CorruptRecordException";
const INVALID: &str = "InvalidRecordException";

fn encode(options: LegacyOptions, records: &[(i64, i64)]) -> Vec<u8> {
    let records: Vec<LegacyRecord<'_>> = records
        .iter()
        .map(|(offset, timestamp)| LegacyRecord {
            offset: Offset::new(*offset),
            timestamp: Timestamp::from_raw(*timestamp),
            key: Some(b"k"),
            value: Some(b"v"),
        })
        .collect();
    let mut out = BytesMut::new();
    legacy::encode(&options, &records, &mut out).unwrap();
    out.to_vec()
}

/// Three messages at offsets 0 to 2 and times 1 to 3.
fn three(magic: Magic, codec: Codec) -> Vec<u8> {
    encode(LegacyOptions { magic, codec, ..LegacyOptions::default() }, &[(0, 1), (1, 2), (2, 3)])
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let size = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&size.to_be_bytes());
    let crc = crc32fast::hash(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// A message of these bytes behind the attributes, with a right size and checksum.
fn message(offset: i64, magic: u8, attributes: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = offset.to_be_bytes().to_vec();
    bytes.extend([0; 8]);
    bytes.extend([magic, attributes]);
    bytes.extend(rest);
    sealed(bytes)
}

/// A gzip wrapper around these bytes.
#[cfg(feature = "gzip")]
fn wrapper(offset: i64, magic: u8, attributes: u8, inner: &[u8]) -> Vec<u8> {
    wrap(offset, magic, attributes | 1, &crate::records::gzip(inner))
}

fn wrap(offset: i64, magic: u8, attributes: u8, value: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    if magic != 0 {
        rest.extend(99i64.to_be_bytes());
    }
    rest.extend([0xff; 4]);
    rest.extend((value.len() as i32).to_be_bytes());
    rest.extend(value);
    message(offset, magic, attributes, &rest)
}

/// An inner message of magic 1 or, by the layout, any but 0: key null, value "w".
fn inner(offset: i64, magic: u8, timestamp: i64) -> Vec<u8> {
    let mut rest = timestamp.to_be_bytes().to_vec();
    rest.extend(hex("ff ff ff ff 00 00 00 01 77"));
    message(offset, magic, 0, &rest)
}

fn inner_v0(offset: i64) -> Vec<u8> {
    message(offset, 0, 0, &hex("ff ff ff ff 00 00 00 01 77"))
}

fn valid(bytes: &[u8]) -> bool {
    Batch::parse(bytes).unwrap().verify().is_ok()
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_63_the_last_offset_of_a_wrapper_moves_all_its_messages() {
    let mut bytes = three(Magic::V1, Codec::Gzip);
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    batch.set_last_offset(Offset::new(500));
    assert!(batch.set_base_offset(Offset::ZERO).is_err());
    assert!(valid(&bytes));
    assert_eq!(offsets(&bytes), [498, 499, 500]);
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_64_and_65_the_offset_of_a_wrapper() {
    for magic in [Magic::V0, Magic::V1] {
        let mut bytes = three(magic, Codec::Gzip);
        bytes[..8].fill(0);
        assert_eq!(offsets(&bytes), [0, 1, 2]);
        bytes[7] = 1;
        if magic == Magic::V1 {
            assert_eq!(failure(&bytes), (0, INVALID));
        } else {
            assert_eq!(offsets(&bytes), [0, 1, 2]);
        }
    }
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_66_timestamps_of_a_wrapper_are_set_those_of_magic_0_not() {
    let set = |bytes: &mut Vec<u8>, kind| {
        BatchMut::parse(bytes).unwrap().set_max_timestamp(kind, Some(Timestamp::new(15)))
    };
    let mut v0 = three(Magic::V0, Codec::Gzip);
    for kind in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
        assert_eq!(set(&mut v0, kind).unwrap_err().kafka_name(), "UnsupportedOperationException");
    }
    let mut v1 = three(Magic::V1, Codec::Gzip);
    for bytes in [&mut v0, &mut v1] {
        let error = BatchMut::parse(bytes).unwrap().set_leader_epoch(Some(LeaderEpoch::new(1))).unwrap_err();
        assert_eq!(error.kafka_name(), "UnsupportedOperationException");
    }
    set(&mut v1, TimestampType::LogAppendTime).unwrap();
    assert!(valid(&v1));
    assert_eq!(timestamps(&v1), [Some(15); 3]);
    let mut v1 = three(Magic::V1, Codec::Gzip);
    set(&mut v1, TimestampType::CreateTime).unwrap();
    assert!(valid(&v1));
    assert_eq!(Batch::parse(&v1).unwrap().max_timestamp(), Some(Timestamp::new(15)));
    assert_eq!(timestamps(&v1), [Some(1), Some(2), Some(3)]);
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_67_a_wrapper_of_nothing_is_refused() {
    let null = message(3, 1, 1, &hex("00 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff"));
    assert!(valid(&null));
    assert_eq!(failure(&null), (0, INVALID));
    let error = Batch::parse(&null).unwrap().stream_records(LIMIT).unwrap_err();
    assert_eq!(error.to_string(), "value length at byte 30 of the batch: expected at least 0, found -1");
    assert_eq!(failure(&wrapper(3, 1, 0, &[])), (0, INVALID));
    assert_eq!(failure(&wrap(3, 1, 4, &[0; 20])), (0, INVALID));
    assert_eq!(failure(&wrap(3, 1, 6, &[0; 20])), (0, "IllegalArgumentException"));
}

#[test]
fn format_edge_68_a_message_of_a_few_bytes_is_corrupt() {
    for len in [2, 4] {
        let mut bytes = vec![0; 12 + len];
        bytes[11] = len as u8;
        assert_eq!(Batch::parse(&bytes).unwrap_err().kafka_name(), CORRUPT);
        assert_eq!(Batches::new(&bytes).next().unwrap().unwrap_err().kafka_name(), CORRUPT);
    }
}

#[test]
fn format_edge_69_every_changed_byte_behind_the_checksum_shows() {
    for magic in [Magic::V0, Magic::V1] {
        let bytes = three(magic, Codec::None);
        let size = Batch::parse(&bytes).unwrap().size();
        for at in 17..size {
            let mut changed = bytes.clone();
            changed[at] = !changed[at];
            assert!(!valid(&changed), "byte {at}");
        }
        let mut changed = bytes.clone();
        changed[16] ^= 1;
        assert!(!valid(&changed));
    }
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_146_messages_too_short_or_too_plain() {
    let short = message(0, 1, 0, &[0; 8 + 2]);
    assert!(valid(&short));
    assert_eq!(failure(&short), (0, CORRUPT));
    assert_eq!(failure(&wrap(0, 1, 1, b"plain")), (0, "KafkaException"));
    let mut thirteen = inner(0, 1, 5);
    thirteen[11] = 13;
    assert_eq!(failure(&wrapper(0, 1, 0, &thirteen)), (0, CORRUPT));
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_164_lengths_inside_a_message() {
    for length in ["00 00 00 64", "7f ff ff ff"] {
        assert_eq!(failure(&message(0, 0, 0, &hex(&format!("{length} 61 00 00 00 00")))), (0, CORRUPT));
    }
    assert_eq!(failure(&message(0, 1, 0, &hex("00 00 00 00 00 00 00 05 ff ff ff ff 00 00"))), (0, CORRUPT));
    let negative = message(0, 0, 0, &hex("ff ff ff fb ff ff ff f7"));
    let read = &records(&negative).unwrap()[0];
    assert_eq!((&read.key, &read.value), (&None, &None));
    let longer = message(0, 0, 0, &hex("ff ff ff ff 00 00 00 01 77 01 02 03 04"));
    assert_eq!(records(&longer).unwrap()[0].value.as_deref(), Some(&b"w"[..]));

    let mut rest = 7i64.to_be_bytes().to_vec();
    rest.extend(hex("00 00 00 03 6b 65 79"));
    let value = crate::records::gzip(&inner(0, 1, 5));
    rest.extend((value.len() as i32).to_be_bytes());
    rest.extend(value);
    assert_eq!(offsets(&message(4, 1, 1, &rest)), [4]);
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_165_what_follows_the_last_whole_message() {
    let two = [inner(0, 1, 5), inner(1, 1, 6)].concat();
    let more = [&two[..], &[1, 2, 3, 4, 5]].concat();
    assert_eq!(offsets(&wrapper(9, 1, 0, &more)), [8, 9]);
    assert_eq!(offsets(&wrapper(9, 1, 0, &two[..two.len() - 3])), [9]);
    assert_eq!(failure(&wrapper(9, 1, 0, &[1, 2, 3, 4, 5])), (0, INVALID));

    let whole = crate::records::gzip(&two);
    for cut in 1..=12 {
        assert_eq!(failure(&wrap(9, 1, 1, &whole[..whole.len() - cut])), (0, "KafkaException"));
    }
    let mut wrong = two.clone();
    wrong[12] ^= 1;
    assert_eq!(offsets(&wrapper(9, 1, 0, &wrong)), [8, 9]);
    let compressed = |codec| {
        let mut second = inner(1, 1, 6);
        second[17] = codec;
        [inner(0, 1, 5), second].concat()
    };
    assert_eq!(failure(&wrapper(9, 1, 0, &compressed(7))), (1, "IllegalArgumentException"));
    assert_eq!(failure(&wrapper(9, 1, 0, &compressed(1))), (1, INVALID));
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_166_messages_of_another_magic_in_a_wrapper() {
    let mixed = [inner(0, 2, 5), inner_v0(1), inner(2, 1, 7)].concat();
    assert_eq!(timestamps(&wrapper(2, 1, 8, &mixed)), [Some(5), None, Some(99)]);
    assert_eq!(timestamps(&wrapper(2, 1, 0, &mixed)), [Some(5), None, Some(7)]);
}

#[test]
#[cfg(feature = "gzip")]
fn inner_offsets_may_go_back_and_be_negative() {
    let odd = [inner(5, 1, 1), inner(-3, 1, 1), inner(2, 1, 1)].concat();
    assert_eq!(offsets(&wrapper(12, 1, 0, &odd)), [15, 7, 12]);
    assert_eq!(offsets(&wrapper(12, 0, 0, &[inner_v0(5), inner_v0(-3)].concat())), [5, -3]);
    let mut scratch = Vec::new();
    let bytes = wrapper(12, 1, 0, &odd);
    let batch = Batch::parse(&bytes).unwrap();
    assert_eq!(batch.base_offset_deep(&mut scratch, LIMIT), Ok(Offset::new(15)));
    assert!(matches!(batch.base_offset_deep(&mut scratch, 10), Err(DecodeError::TooLarge { .. })));
}

/// A message of magic 1 with a value of 100 000 bytes.
#[cfg(feature = "gzip")]
fn large(offset: i64) -> Vec<u8> {
    let mut rest = offset.to_be_bytes().to_vec();
    rest.extend([0xff; 4]);
    rest.extend(100_000i32.to_be_bytes());
    rest.resize(rest.len() + 100_000, offset as u8);
    message(offset, 1, 0, &rest)
}

#[test]
#[cfg(feature = "gzip")]
fn a_wrapper_beyond_the_window_is_read_as_a_stream_as_it_is_whole() {
    const COUNT: i64 = 12;
    let all: Vec<u8> = (0..COUNT).flat_map(large).collect();
    let size = all.len() / COUNT as usize;
    let (tenth, last) = (9 * size, 11 * size);
    // What is changed where, how many records are read, and the error behind them, if there is one.
    let cases = [
        (0, &[0][..], 12, ""),
        (tenth + 8, &[0, 0, 0, 13], 0, CORRUPT),
        (last + 8, &[0x7f, 0, 0, 0], 11, ""),
        (tenth + 17, &[1], 9, INVALID),
        (tenth + 17, &[7], 9, "IllegalArgumentException"),
        (last + 26, &[0x7f, 0, 0, 0], 11, CORRUPT),
    ];
    for (at, change, count, error) in cases {
        let mut inner = all.clone();
        inner[at..at + change.len()].copy_from_slice(change);
        for (offset, magic, attributes) in [(0, 1, 0), (40, 1, 0), (40, 1, 8), (40, 0, 0)] {
            let bytes = wrapper(offset, magic, attributes, &inner);
            let batch = Batch::parse(&bytes).unwrap();
            let (rows, end) = whole(&batch, inner.len());
            let name = end.as_ref().map_or("", DecodeError::kafka_name);
            assert_eq!((rows.len(), name), (count, error), "{change:?} at {at}");
            let place = format!(" at byte {at} of the decompressed records: ");
            assert!(end.as_ref().is_none_or(|end| end.to_string().contains(&place)), "{end:?}");
            assert_eq!(streamed(&batch, inner.len()), (rows, end), "{change:?} at {at}");
        }
    }
    let refused = |bytes: &[u8], limit: usize, name: &str| {
        let batch = Batch::parse(bytes).unwrap();
        let (rows, error) = whole(&batch, limit);
        assert_eq!((rows.len(), error.as_ref().map(DecodeError::kafka_name)), (0, Some(name)));
        assert_eq!(streamed(&batch, limit), (rows, error));
    };
    refused(&wrapper(COUNT - 2, 1, 0, &all), all.len(), INVALID);
    refused(&wrapper(40, 1, 0, &all), all.len() - 1, INVALID);
    let payload = crate::records::gzip(&all);
    refused(&wrap(40, 1, 1, &payload[..payload.len() - 9]), all.len(), "KafkaException");
    // What is wrong in front of the codec's fault comes first.
    let mut inner = all.clone();
    inner[size + 11] = 13;
    inner[size + 8..size + 11].fill(0);
    let payload = crate::records::gzip(&inner);
    refused(&wrap(40, 1, 1, &payload[..payload.len() - 9]), all.len(), CORRUPT);
}

#[test]
fn format_edge_171_the_checksums_of_old_messages() {
    for (magic, crc) in [(Magic::V1, 109_425_508), (Magic::V0, 1_978_725_405)] {
        let mut out = BytesMut::new();
        let record = LegacyRecord {
            offset: Offset::ZERO,
            timestamp: Some(Timestamp::new(283_843)),
            key: Some(b"key1"),
            value: Some(b"value1"),
        };
        legacy::encode(&LegacyOptions { magic, ..LegacyOptions::default() }, &[record], &mut out).unwrap();
        assert_eq!(Batch::parse(&out).unwrap().crc(), crc);
    }
}

#[test]
fn format_edge_175_what_old_messages_do_not_have() {
    for magic in [Magic::V0, Magic::V1] {
        let bytes = encode(LegacyOptions { magic, ..LegacyOptions::default() }, &[(57, 1000)]);
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!(batch.base_offset(), Some(Offset::new(57)));
        assert_eq!((batch.records_count(), batch.leader_epoch()), (None, None));
        assert_eq!((batch.producer_id(), batch.producer_epoch()), (None, None));
        assert_eq!((batch.base_sequence(), batch.last_sequence()), (None, None));
        assert!(!batch.is_transactional() && !batch.is_control() && batch.delete_horizon().is_none());
        let v1 = magic == Magic::V1;
        assert_eq!(batch.timestamp_type(), v1.then_some(TimestampType::CreateTime));
        assert_eq!(timestamps(&bytes), [v1.then_some(1000)]);
    }
}

#[test]
fn format_edge_45_old_messages_have_no_zstd() {
    let options = LegacyOptions { codec: Codec::Zstd, ..LegacyOptions::default() };
    let error = legacy::encode(&options, &[], &mut BytesMut::new()).unwrap_err();
    assert_eq!(error.kafka_name(), "IllegalArgumentException");
    let options = LegacyOptions { magic: Magic::V2, ..LegacyOptions::default() };
    assert!(legacy::encode(&options, &[], &mut BytesMut::new()).is_err());
}
