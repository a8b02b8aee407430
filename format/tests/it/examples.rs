//! The worked byte examples, byte for byte. T0 is 1 700 000 000 000.

use bytes::BytesMut;
use kseg_format::legacy::{self, LegacyOptions, LegacyRecord};
use kseg_format::{
    Batch, BatchOptions, Codec, EndTransactionMarker, LeaderEpoch, Offset, Producer, ProducerEpoch,
    ProducerId, RecordBatchBuilder, Sequence, Timestamp, kraft,
};

use crate::support::{build, hex, offsets, records, timestamps};

const T0: i64 = 1_700_000_000_000;

const A: &str = "
    00 00 00 00 00 00 00 05 00 00 00 50 00 00 00 03 02 4b 77 dd 27 00 00 00 00 00 01 00 00 01 8b cf
    e5 68 00 00 00 01 8b cf e5 68 fa ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 02 14 00 00
    00 04 6b 31 04 76 31 00 26 00 f4 03 02 01 0a 68 65 6c 6c 6f 04 02 68 02 78 02 6e 01";

const B: &str = "
    00 00 00 00 00 00 00 64 00 00 00 4b 00 00 00 07 02 1e 18 58 7f 00 10 00 00 00 02 00 00 01 8b cf
    e5 68 00 00 00 01 8b cf e5 68 01 00 00 00 00 00 00 03 e9 00 02 7f ff ff fe 00 00 00 03 10 00 00
    00 02 61 02 31 00 10 00 02 02 02 62 02 32 00 0e 00 01 04 02 63 01 00";

fn options_a() -> BatchOptions {
    BatchOptions {
        base_offset: Offset::new(5),
        leader_epoch: Some(LeaderEpoch::new(3)),
        ..BatchOptions::default()
    }
}

fn append_a(builder: &mut RecordBatchBuilder) {
    builder.append(Some(Timestamp::new(T0)), Some(b"k1"), Some(b"v1"), &[]).unwrap();
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", Some(b"x")), (b"n", None)];
    builder.append(Some(Timestamp::new(T0 + 250)), None, Some(b"hello"), &headers).unwrap();
}

fn options_b() -> BatchOptions {
    BatchOptions {
        base_offset: Offset::new(100),
        leader_epoch: Some(LeaderEpoch::new(7)),
        producer: Some(Producer {
            id: ProducerId::new(1001),
            epoch: ProducerEpoch::new(2),
            base_sequence: Some(Sequence::new(2_147_483_646)),
        }),
        transactional: true,
        ..BatchOptions::default()
    }
}

#[test]
fn a_a_plain_batch_of_two_records_one_with_headers() {
    let mut builder = RecordBatchBuilder::new(options_a());
    append_a(&mut builder);
    assert_eq!(builder.uncompressed_size(), 92);
    let mut out = BytesMut::new();
    assert_eq!(builder.finish(&mut out).unwrap(), Some(92));
    assert_eq!(out, hex(A));

    let batch = Batch::parse(&out).unwrap().verify().unwrap();
    assert_eq!((batch.base_offset().unwrap().get(), batch.last_offset().get()), (5, 6));
    assert_eq!(batch.crc(), 0x4b77_dd27);
    assert_eq!(batch.max_timestamp(), Some(Timestamp::new(T0 + 250)));
    let read = records(&out).unwrap();
    assert_eq!((read[0].offset, read[0].size, read[1].size), (5, 11, 20));
    assert_eq!(read[1].headers, [(b"h".to_vec(), Some(b"x".to_vec())), (b"n".to_vec(), None)]);
    assert_eq!((&read[1].key, read[1].value.as_deref()), (&None, Some(&b"hello"[..])));
}

#[test]
fn b_a_transactional_batch_whose_sequences_wrap() {
    let out = build(
        options_b(),
        &[(T0, Some(b"a"), Some(b"1")), (T0 + 1, Some(b"b"), Some(b"2")), (T0 - 1, Some(b"c"), None)],
    );
    assert_eq!(out, hex(B));
    let sequences: Vec<_> = records(&out).unwrap().iter().map(|record| record.sequence.unwrap()).collect();
    assert_eq!(sequences, [2_147_483_646, 2_147_483_647, 0]);
    assert_eq!(Batch::parse(&out).unwrap().last_sequence(), Some(Sequence::new(0)));
    assert_eq!(timestamps(&out), [Some(T0), Some(T0 + 1), Some(T0 - 1)]);
}

#[test]
fn c_a_commit_marker() {
    let expected = hex("
        00 00 00 00 00 00 00 67 00 00 00 42 00 00 00 07 02 ce 55 06 04 00 30 00 00 00 00 00 00 01 8b cf
        e5 68 05 00 00 01 8b cf e5 68 05 00 00 00 00 00 00 03 e9 00 02 ff ff ff ff 00 00 00 01 20 00 00
        00 08 00 00 00 01 0c 00 00 00 00 00 09 00");
    let marker = EndTransactionMarker { committed: true, coordinator_epoch: 9 };
    let mut out = BytesMut::new();
    let producer = (ProducerId::new(1001), ProducerEpoch::new(2));
    let size = marker.encode_batch(
        Offset::new(103),
        Timestamp::new(T0 + 5),
        Some(LeaderEpoch::new(7)),
        producer,
        &mut out,
    );
    assert_eq!(size, Ok(78));
    assert_eq!(out, expected);
    let record = &records(&out).unwrap()[0];
    assert_eq!(EndTransactionMarker::parse(record.key.as_deref(), record.value.as_deref()), Ok(marker));
}

#[test]
fn d_b_compacted_to_its_tombstone_with_a_delete_horizon() {
    let expected = hex("
        00 00 00 00 00 00 00 64 00 00 00 3c 00 00 00 07 02 55 49 30 c5 00 50 00 00 00 02 00 00 01 8b d5
        0b c4 00 00 00 01 8b cf e5 67 ff 00 00 00 00 00 00 03 e9 00 02 7f ff ff fe 00 00 00 01 14 00 81
        f0 b2 52 04 02 63 01 00");
    let horizon = Timestamp::new(T0 + 86_400_000);
    let mut builder = RecordBatchBuilder::new(BatchOptions {
        delete_horizon: Some(horizon),
        last_offset: Some(Offset::new(102)),
        ..options_b()
    });
    builder.append_at(Offset::new(102), Some(Timestamp::new(T0 - 1)), Some(b"c"), None, &[]).unwrap();
    let mut out = BytesMut::new();
    builder.finish(&mut out).unwrap();
    assert_eq!(out, expected);
    assert_eq!(Batch::parse(&out).unwrap().delete_horizon(), Some(horizon));
    assert_eq!(timestamps(&out), [Some(T0 - 1)]);
}

#[test]
fn e_b_emptied_and_kept() {
    let expected = hex("
        00 00 00 00 00 00 00 64 00 00 00 31 00 00 00 07 02 bb c7 16 be 00 10 00 00 00 02 ff ff ff ff ff
        ff ff ff 00 00 01 8b cf e5 68 01 00 00 00 00 00 00 03 e9 00 02 7f ff ff fe 00 00 00 00");
    let mut out = BytesMut::new();
    let size = RecordBatchBuilder::new(options_b()).finish_empty(
        &mut out,
        Offset::new(102),
        Some(Timestamp::new(T0 + 1)),
    );
    assert_eq!(size, Ok(61));
    assert_eq!(out, expected);
}

#[test]
#[cfg(feature = "lz4")]
fn f_a_compressed_by_lz4_is_a_stored_block() {
    let mut builder = RecordBatchBuilder::new(BatchOptions { codec: Codec::Lz4, ..options_a() });
    append_a(&mut builder);
    let mut out = BytesMut::new();
    builder.finish(&mut out).unwrap();
    let batch = Batch::parse(&out).unwrap();
    assert_eq!((batch.size(), batch.crc(), batch.attributes().get()), (107, 0x0bb4_fc3b, 3));
    assert_eq!(&out[61..72], hex("04 22 4d 18 60 40 82 1f 00 00 80"));
    assert_eq!(records(&out), records(&hex(A)));
}

#[test]
#[cfg(feature = "lz4")]
fn g_an_lz4_batch() {
    let bytes = hex("
        00 00 00 00 00 00 00 00 00 00 00 5f ff ff ff ff 02 06 ab 51 ed 00 03 00 00 00 02 00 00 01 8b cf
        e5 68 00 00 00 01 8b cf e5 68 00 ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 03 04 22 4d
        18 60 40 82 1f 00 00 00 7f 5c 00 00 00 01 50 61 01 00 14 5f 00 5c 00 00 02 2f 00 1b 1f 04 2f 00
        13 50 61 61 61 61 00 00 00 00 00");
    let batch = Batch::parse(&bytes).unwrap().verify().unwrap();
    assert_eq!(batch.codec(), Ok(Codec::Lz4));
    let read = records(&bytes).unwrap();
    assert_eq!(read.len(), 3);
    for (offset, record) in (0..).zip(read) {
        assert_eq!((record.offset, record.timestamp, record.size), (offset, Some(T0), 47));
        assert_eq!((record.key, record.value), (None, Some(vec![b'a'; 40])));
    }
}

#[test]
fn legacy_messages_of_both_versions() {
    let record = LegacyRecord {
        offset: Offset::ZERO,
        timestamp: Some(Timestamp::new(T0)),
        key: Some(b"k"),
        value: Some(b"v"),
    };
    let v0 = hex("00 00 00 00 00 00 00 00 00 00 00 10 1f ec d7 0a 00 00 00 00 00 01 6b 00 00 00 01 76");
    let v1 = hex("
        00 00 00 00 00 00 00 00 00 00 00 18 39 26 8c 33 01 00 00 00 01 8b cf e5 68 00 00 00 00 01 6b 00
        00 00 01 76");
    for (magic, bytes, timestamp) in
        [(kseg_format::Magic::V0, v0, None), (kseg_format::Magic::V1, v1, Some(T0))]
    {
        let mut out = BytesMut::new();
        legacy::encode(&LegacyOptions { magic, ..LegacyOptions::default() }, &[record], &mut out).unwrap();
        assert_eq!(out, bytes);
        Batch::parse(&out).unwrap().verify().unwrap();
        let read = records(&out).unwrap();
        assert_eq!(read[0].timestamp, timestamp);
        assert_eq!((read[0].key.as_deref(), read[0].value.as_deref()), (Some(&b"k"[..]), Some(&b"v"[..])));
    }
}

#[test]
#[cfg(feature = "lz4")]
fn a_legacy_lz4_wrapper_of_two_messages() {
    let mut bytes = hex("
        00 00 00 00 00 00 00 0b 00 00 00 5b e5 5f 4b 15 01 03 00 00 01 8b cf e5 68 05 ff ff ff ff 00 00
        00 45 04 22 4d 18 60 40 82 36 00 00 00 16 00 01 00 e0 18 39 26 8c 33 01 00 00 00 01 8b cf e5 68
        19 00 73 01 6b 00 00 00 01 76 23 00 95 01 00 00 00 17 50 49 d1 17 24 00 a0 05 ff ff ff ff 00 00
        00 01 77 00 00 00 00");
    let batch = Batch::parse(&bytes).unwrap().verify().unwrap();
    assert_eq!(batch.base_offset(), None);
    let mut scratch = Vec::new();
    assert_eq!(batch.base_offset_deep(&mut scratch, 1 << 20), Ok(Offset::new(10)));
    assert_eq!(offsets(&bytes), [10, 11]);
    assert_eq!(timestamps(&bytes), [Some(T0), Some(T0 + 5)]);
    bytes[..8].fill(0);
    Batch::parse(&bytes).unwrap().verify().unwrap();
    assert_eq!(offsets(&bytes), [0, 1]);
}

#[test]
fn a_leader_change_batch() {
    let expected = hex("
        00 00 00 00 00 00 00 00 00 00 00 54 00 00 00 03 02 72 53 19 f0 00 20 00 00 00 00 00 00 01 8b cf
        e5 68 00 00 00 01 8b cf e5 68 00 ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 01 44 00 00
        00 08 00 00 00 02 30 00 00 00 00 00 01 03 00 00 00 01 00 00 00 00 02 00 02 00 00 00 01 00 00 00");
    let message = kraft::Message::LeaderChange(kraft::LeaderChange {
        version: 0,
        leader_id: 1,
        voters: vec![1, 2],
        granting_voters: vec![1],
    });
    let mut out = BytesMut::new();
    let size = message.encode_batch(Offset::ZERO, Timestamp::new(T0), Some(LeaderEpoch::new(3)), &mut out);
    assert_eq!(size, Ok(96));
    assert_eq!(out, expected);
}
