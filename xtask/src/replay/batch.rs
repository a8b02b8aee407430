//! Batches built from their descriptions, as Kafka's own builders write them.

use bytes::BytesMut;
use kseg_format::kraft::{Endpoint, LeaderChange, Message, Voter, Voters};
use kseg_format::{
    BatchOptions, Codec, EncodeError, EndTransactionMarker, LeaderEpoch, Offset, Producer, ProducerEpoch,
    ProducerId, RecordBatchBuilder, Sequence, Timestamp, TimestampType, Uuid,
};

use super::protocol::{Failure, Fields, decoded};

impl From<EncodeError> for Failure {
    fn from(error: EncodeError) -> Failure {
        Failure::new(error.kafka_name(), error.to_string())
    }
}

/// A header, its value or null.
type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);

/// A record as described.
pub(crate) struct Described {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    headers: Vec<OwnedHeader>,
}

/// The batches of an append: bytes as given, or one batch or one marker as described.
///
/// # Errors
/// The description is incomplete, or Kafka would refuse to build it.
pub(crate) fn given(op: Fields<'_>) -> Result<Vec<u8>, Failure> {
    if let Some(bytes) = op.bytes("bytes")? {
        return Ok(bytes);
    }
    match op.get("marker") {
        Some(described) => marker(Fields(described)),
        None => build(Fields(op.need("batch")?)),
    }
}

/// A batch of any magic. No records and no `lastOffset`: no bytes.
///
/// # Errors
/// Kafka would refuse to build it.
pub(crate) fn build(op: Fields<'_>) -> Result<Vec<u8>, Failure> {
    let magic = op.long_or("magic", 2);
    let records = described(op)?;
    let codec = codec(op)?;
    let header_only = records.is_empty() && op.has("lastOffset");
    if magic < 2 && !header_only {
        return super::legacy::build(op, magic, codec, &records);
    }
    let mut out = BytesMut::new();
    let mut builder = RecordBatchBuilder::new(options(op, codec));
    if header_only {
        let last = Offset::new(op.long_or("lastOffset", 0));
        builder.finish_empty(&mut out, last, Timestamp::from_raw(op.long_or("maxTimestamp", -1)))?;
        return Ok(out.to_vec());
    }
    for record in &records {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            record.headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder.append_at(
            Offset::new(record.offset),
            Timestamp::from_raw(record.timestamp),
            key,
            value,
            &headers,
        )?;
    }
    builder.finish(&mut out)?;
    Ok(out.to_vec())
}

fn described(op: Fields<'_>) -> Result<Vec<Described>, Failure> {
    let mut next = op.long_or("baseOffset", 0);
    let mut out = Vec::new();
    for record in op.list("records").iter().map(Fields) {
        let offset = record.long_or("offset", next);
        let mut headers = Vec::new();
        for header in record.list("headers") {
            let name = header[0].as_str().unwrap_or_default().as_bytes().to_vec();
            let value = if header[1].is_null() { None } else { Some(decoded(&header[1])?) };
            headers.push((name, value));
        }
        let timestamp = record.long_or("timestamp", 0);
        out.push(Described {
            offset,
            timestamp,
            key: record.bytes("key")?,
            value: record.bytes("value")?,
            headers,
        });
        next = offset.wrapping_add(1);
    }
    Ok(out)
}

fn codec(op: Fields<'_>) -> Result<Codec, Failure> {
    let name = op.text("codec").unwrap_or("none");
    name.parse().map_err(|_| Failure::argument(format!("unknown codec {name}")))
}

/// What the timestamps of the batch mean.
pub(crate) fn timestamp_type(op: Fields<'_>) -> TimestampType {
    if op.text("timestampType") == Some("append") {
        TimestampType::LogAppendTime
    } else {
        TimestampType::CreateTime
    }
}

fn options(op: Fields<'_>, codec: Codec) -> BatchOptions {
    let producer = ProducerId::from_raw(op.long_or("producerId", -1)).map(|id| Producer {
        id,
        epoch: ProducerEpoch::new(op.short_or("producerEpoch", -1)),
        base_sequence: Sequence::from_raw(op.int_or("baseSequence", -1)),
    });
    BatchOptions {
        codec,
        level: op.long("level").and_then(|l| i32::try_from(l).ok()),
        timestamp_type: timestamp_type(op),
        log_append_time: Timestamp::from_raw(op.long_or("logAppendTime", -1)),
        base_offset: Offset::new(op.long_or("baseOffset", 0)),
        leader_epoch: LeaderEpoch::from_raw(op.int_or("leaderEpoch", -1)),
        producer,
        transactional: op.bool_or("transactional", false),
        control: op.bool_or("control", false),
        delete_horizon: op.long("deleteHorizon").and_then(Timestamp::from_raw),
        last_offset: op.long("lastOffset").map(Offset::new),
    }
}

/// The end of a transaction.
///
/// # Errors
/// The description lacks the producer, or Kafka would refuse to build it.
pub(crate) fn marker(op: Fields<'_>) -> Result<Vec<u8>, Failure> {
    let marker = EndTransactionMarker {
        committed: op.text("kind") != Some("abort"),
        coordinator_epoch: op.int_or("coordinatorEpoch", 0),
    };
    op.need("producerEpoch")?;
    let producer =
        (ProducerId::new(op.need_long("producerId")?), ProducerEpoch::new(op.short_or("producerEpoch", 0)));
    let offset = Offset::new(op.long_or("offset", 0));
    let timestamp = Timestamp::new(op.long_or("timestamp", 0));
    let mut out = BytesMut::new();
    marker.encode_batch(
        offset,
        timestamp,
        LeaderEpoch::from_raw(op.int_or("leaderEpoch", -1)),
        producer,
        &mut out,
    )?;
    Ok(out.to_vec())
}

/// A control batch of the metadata log, its contents as the protocol fixes them.
///
/// # Errors
/// The kind is unknown.
pub(crate) fn kraft(op: Fields<'_>) -> Result<Vec<u8>, Failure> {
    let timestamp = Timestamp::new(op.long_or("timestamp", 0));
    let message = match op.need_text("kind")? {
        "leader_change" => Message::LeaderChange(LeaderChange {
            version: 0,
            leader_id: op.int_or("leader", 1),
            voters: vec![1, 2],
            granting_voters: vec![2],
        }),
        "snapshot_header" => Message::SnapshotHeader { version: 0, last_contained_log_timestamp: timestamp },
        "snapshot_footer" => Message::SnapshotFooter { version: 0 },
        "kraft_version" => Message::KraftVersion { version: 0, kraft_version: 1 },
        "voters" => Message::Voters(voters()),
        other => return Err(Failure::argument(format!("unknown kind {other}"))),
    };
    let mut out = BytesMut::new();
    let epoch = LeaderEpoch::from_raw(op.int_or("leaderEpoch", 0));
    message.encode_batch(Offset::new(op.long_or("offset", 0)), timestamp, epoch, &mut out)?;
    Ok(out.to_vec())
}

fn voters() -> Voters {
    let directory_id = Uuid::from_bytes((7u128 << 64 | 9).to_be_bytes());
    let endpoint = Endpoint { name: "CONTROLLER".to_owned(), host: "localhost".to_owned(), port: 9093 };
    let voter = Voter { id: 3, directory_id, endpoints: vec![endpoint], min_version: 0, max_version: 0 };
    Voters { version: 0, voters: vec![voter] }
}
