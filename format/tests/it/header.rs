//! The header: what it says, and what changes in place.

use bytes::BytesMut;
use kseg_format::{
    Batch, BatchHeader, BatchMut, BatchOptions, LeaderEpoch, Magic, Offset, Producer, ProducerEpoch,
    ProducerId, RecordBatchBuilder, Sequence, Timestamp, TimestampType,
};

use crate::support::{at, forge, hex, offsets, records, three, timestamps};

fn valid(bytes: &[u8]) -> bool {
    Batch::parse(bytes).unwrap().verify().is_ok()
}

#[test]
fn format_edge_10_a_changed_last_offset_delta_breaks_the_checksum() {
    let mut bytes = three(at(0));
    bytes[26] = 23;
    assert!(!valid(&bytes));
}

#[test]
fn format_edge_11_and_12_offsets_and_leader_epoch_are_set_without_touching_the_checksum() {
    let mut bytes = three(at(0));
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    batch.set_last_offset(Offset::new(500));
    assert_eq!(batch.header().base_offset(), Some(Offset::new(498)));
    batch.set_leader_epoch(Some(LeaderEpoch::new(500))).unwrap();
    assert_eq!(offsets(&bytes), [498, 499, 500]);
    assert!(valid(&bytes));
    assert_eq!(Batch::parse(&bytes).unwrap().leader_epoch(), Some(LeaderEpoch::new(500)));
    BatchMut::parse(&mut bytes).unwrap().set_base_offset(Offset::new(7)).unwrap();
    assert_eq!(offsets(&bytes), [7, 8, 9]);
    BatchMut::parse(&mut bytes).unwrap().set_leader_epoch(None).unwrap();
    assert_eq!(Batch::parse(&bytes).unwrap().leader_epoch(), None);
}

#[test]
fn format_edge_13_17_and_21_the_timestamp_is_set_under_a_new_checksum() {
    let mut bytes = forge(&three(at(0)), |bytes| {
        bytes[21] = 0xff;
        bytes[22] |= 0x80;
    });
    // Bits without a meaning are read over.
    assert_eq!(records(&bytes).unwrap().len(), 3);
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    batch.set_max_timestamp(TimestampType::LogAppendTime, Some(Timestamp::new(15))).unwrap();
    let header = *batch.header();
    assert_eq!(Batch::parse(&bytes).unwrap().header(), &header);
    assert!(valid(&bytes));
    assert_eq!(bytes[21..23], [0, 0x08]);
    assert_eq!(timestamps(&bytes), [Some(15); 3]);
}

#[test]
fn setting_what_is_there_already_changes_nothing() {
    let mut bytes = forge(&three(at(0)), |bytes| bytes[21] = 0xff);
    bytes[17] ^= 1;
    let before = bytes.clone();
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    batch.set_max_timestamp(TimestampType::CreateTime, Some(Timestamp::new(12))).unwrap();
    assert_eq!(bytes, before);
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    batch.set_max_timestamp(TimestampType::CreateTime, Some(Timestamp::new(13))).unwrap();
    assert!(valid(&bytes));
}

#[test]
fn a_batch_of_unknown_codec_is_not_restamped() {
    let mut bytes = forge(&three(at(0)), |bytes| bytes[22] = 6);
    let mut batch = BatchMut::parse(&mut bytes).unwrap();
    let error = batch.set_max_timestamp(TimestampType::LogAppendTime, None).unwrap_err();
    assert_eq!(error.kafka_name(), "IllegalArgumentException");
}

#[test]
fn format_edge_15_a_header_alone_keeps_all_but_the_records() {
    for timestamp_type in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
        for (transactional, control) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut builder = RecordBatchBuilder::new(BatchOptions {
                timestamp_type,
                transactional,
                control,
                base_offset: Offset::new(15),
                leader_epoch: Some(LeaderEpoch::new(9)),
                producer: Some(Producer {
                    id: ProducerId::new(1),
                    epoch: ProducerEpoch::new(2),
                    base_sequence: Some(Sequence::new(983)),
                }),
                ..BatchOptions::default()
            });
            let mut out = BytesMut::new();
            let max = Some(Timestamp::new(1234));
            assert_eq!(builder.finish_empty(&mut out, Offset::new(37), max), Ok(61));
            let batch = Batch::parse(&out).unwrap().verify().unwrap();
            assert_eq!(batch.records_count(), Some(0));
            assert_eq!((batch.base_offset().unwrap().get(), batch.last_offset().get()), (15, 37));
            assert_eq!((batch.base_timestamp(), batch.max_timestamp()), (None, max));
            assert_eq!(batch.last_sequence(), Some(Sequence::new(1005)));
            assert_eq!(batch.timestamp_type(), Some(timestamp_type));
            assert_eq!((batch.is_transactional(), batch.is_control()), (transactional, control));
            assert_eq!((batch.producer_id().unwrap().get(), batch.producer_epoch().unwrap().get()), (1, 2));
            assert_eq!(batch.leader_epoch(), Some(LeaderEpoch::new(9)));
            assert_eq!(records(&out), Ok(vec![]));
        }
    }
}

#[test]
fn format_edge_16_sequences_wrap() {
    let bytes = three(BatchOptions {
        producer: Some(Producer {
            id: ProducerId::new(1),
            epoch: ProducerEpoch::new(0),
            base_sequence: Some(Sequence::new(i32::MAX - 1)),
        }),
        ..BatchOptions::default()
    });
    let sequences: Vec<_> = records(&bytes).unwrap().iter().map(|record| record.sequence).collect();
    assert_eq!(sequences, [Some(i32::MAX - 1), Some(i32::MAX), Some(0)]);
    assert_eq!(Batch::parse(&bytes).unwrap().last_sequence(), Some(Sequence::new(0)));
}

#[test]
fn a_header_is_read_from_its_bytes_alone() {
    let bytes = three(at(3));
    let header = BatchHeader::read(&bytes[..61]).unwrap();
    assert_eq!(header.size(), bytes.len());
    assert_eq!(header.next_offset(), Offset::new(6));
    let error = BatchHeader::read(&bytes[..60]).unwrap_err();
    assert_eq!(error.to_string(), "header at byte 0 of the batch: expected 61 bytes, found 60 bytes");
    assert_eq!(BatchHeader::read(&bytes[..16]).unwrap_err().kafka_name(), "CorruptRecordException");
    // The smallest message of magic 0.
    let message = hex("00 00 00 00 00 00 00 07 00 00 00 0e 00 00 00 00 00 00 ff ff ff ff ff ff ff ff");
    let header = BatchHeader::read(&message).unwrap();
    assert_eq!((header.magic(), header.size(), header.last_offset().get()), (Magic::V0, 26, 7));
}
