//! Control batches.

use bytes::BytesMut;
use kseg_format::{
    BatchOptions, ControlType, EncodeError, EndTransactionMarker, LeaderEpoch, Offset, Producer,
    ProducerEpoch, ProducerId, RecordBatchBuilder, Timestamp, kraft,
};

use crate::support::records;

const MARKER: EndTransactionMarker = EndTransactionMarker { committed: false, coordinator_epoch: 3 };

fn illegal<T: std::fmt::Debug>(result: Result<T, EncodeError>) {
    assert_eq!(result.unwrap_err().kafka_name(), "IllegalArgumentException");
}

#[test]
fn format_edge_39_a_marker_batch_has_78_bytes() {
    let mut out = BytesMut::new();
    let producer = (ProducerId::new(1), ProducerEpoch::new(0));
    let size = MARKER.encode_batch(Offset::new(1 << 40), Timestamp::new(1 << 50), None, producer, &mut out);
    assert_eq!((size, out.len()), (Ok(78), 78));
    let nobody = (ProducerId::new(-1), ProducerEpoch::new(0));
    illegal(MARKER.encode_batch(Offset::ZERO, Timestamp::new(0), None, nobody, &mut out));
    let epochless = (ProducerId::new(1), ProducerEpoch::new(-1));
    illegal(MARKER.encode_batch(Offset::ZERO, Timestamp::new(0), None, epochless, &mut out));
    assert_eq!(out.len(), 78);
}

#[test]
fn format_edge_40_and_139_control_records_in_the_wrong_batch() {
    let producer =
        Some(Producer { id: ProducerId::new(1), epoch: ProducerEpoch::new(0), base_sequence: None });
    let options = BatchOptions { producer, transactional: true, control: true, ..BatchOptions::default() };
    assert!(RecordBatchBuilder::new(options).append_marker(None, &MARKER).is_ok());
    for options in [
        BatchOptions { transactional: false, ..options },
        BatchOptions { control: false, ..options },
        BatchOptions { producer: None, ..options },
    ] {
        illegal(RecordBatchBuilder::new(options).append_marker(None, &MARKER));
    }
    illegal(RecordBatchBuilder::new(options).append_control(None, ControlType::Unknown(7), &[]));

    let change = kraft::LeaderChange { version: 0, leader_id: 1, voters: vec![], granting_voters: vec![] };
    let message = kraft::Message::LeaderChange(change);
    illegal(message.encode_batch(Offset::ZERO, Timestamp::new(0), None, &mut BytesMut::new()));
}

#[test]
fn format_edge_183_a_leader_change_is_read_back() {
    let change = kraft::LeaderChange { version: 0, leader_id: 5, voters: vec![6], granting_voters: vec![] };
    let message = kraft::Message::LeaderChange(change);
    let mut out = BytesMut::new();
    message.encode_batch(Offset::new(983), Timestamp::new(1), Some(LeaderEpoch::new(20)), &mut out).unwrap();
    let read = &records(&out).unwrap()[0];
    assert_eq!(read.offset, 983);
    assert_eq!(read.key.as_deref(), Some(&[0, 0, 0, 2][..]));
    let value = read.value.as_deref().unwrap();
    assert_eq!(kraft::Message::parse(ControlType::LeaderChange, value), Ok(message));
}
