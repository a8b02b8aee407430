//! Records that own their bytes.

use bytes::{Bytes, BytesMut};
use kseg_format::{
    Batch, BatchOptions, Offset, OwnedHeader, OwnedRecord, Producer, ProducerEpoch, ProducerId,
    RecordBatchBuilder, Sequence, Timestamp,
};

use crate::support::LIMIT;

fn options() -> BatchOptions {
    BatchOptions {
        base_offset: Offset::new(40),
        producer: Some(Producer {
            id: ProducerId::new(7),
            epoch: ProducerEpoch::new(1),
            base_sequence: Some(Sequence::new(i32::MAX)),
        }),
        ..BatchOptions::default()
    }
}

fn records() -> Vec<OwnedRecord> {
    let header = |key: &'static [u8], value: Option<&'static [u8]>| OwnedHeader {
        key: Bytes::from_static(key),
        value: value.map(Bytes::from_static),
    };
    vec![
        OwnedRecord {
            offset: Offset::new(40),
            timestamp: Some(Timestamp::new(1_700_000_000_000)),
            sequence: Some(Sequence::new(i32::MAX)),
            key: Some(Bytes::from_static(b"\0\xff")),
            value: None,
            headers: vec![header(b"a", Some(b"")), header(b"a", None), header(b"\xff", Some(b"x"))],
        },
        OwnedRecord {
            offset: Offset::new(42),
            timestamp: None,
            sequence: Some(Sequence::new(1)),
            key: None,
            value: Some(Bytes::new()),
            headers: Vec::new(),
        },
    ]
}

fn built(records: &[OwnedRecord]) -> BytesMut {
    let mut builder = RecordBatchBuilder::new(options());
    for record in records {
        builder.append_owned(record).unwrap();
    }
    let mut bytes = BytesMut::new();
    builder.finish(&mut bytes).unwrap();
    bytes
}

#[test]
fn owned_records_go_into_a_batch_and_come_out_of_it() {
    let bytes = built(&records());
    let mut scratch = Vec::new();
    let read = Batch::parse(&bytes).unwrap().records(&mut scratch, LIMIT).unwrap();
    let read: Vec<_> = read.map(|record| OwnedRecord::from(record.unwrap())).collect();
    assert_eq!(read, records());
    assert_eq!(built(&read), bytes);
}

#[test]
#[cfg(feature = "serde")]
fn owned_records_go_through_serde() {
    let text = serde_json::to_string(&records()).unwrap();
    let read: Vec<OwnedRecord> = serde_json::from_str(&text).unwrap();
    assert_eq!(read, records());
    // Numbers stand for themselves, and what is missing is null.
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json[0]["offset"], 40);
    assert_eq!(json[0]["key"], serde_json::json!([0, 255]));
    assert_eq!(
        (&json[0]["value"], &json[1]["timestamp"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert!(serde_json::from_str::<OwnedRecord>(r#"{"offset":"x"}"#).is_err());
}
