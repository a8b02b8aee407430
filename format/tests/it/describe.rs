//! A buffer of batches in words, as the harness describes what Kafka's classes read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kseg_format::{Batch, Batches, DecodeError, LeaderEpoch, ProducerEpoch, ProducerId, Sequence, Timestamp};
use serde_json::{Value, json};

use crate::support::LIMIT;

pub(crate) fn base64(bytes: Option<&[u8]>) -> Value {
    bytes.map_or(Value::Null, |bytes| Value::String(STANDARD.encode(bytes)))
}

pub(crate) fn from_base64(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|text| STANDARD.decode(text).unwrap())
}

/// All batches, header fields first, or the first error of any.
pub(crate) fn describe(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut batches = Batches::new(bytes);
    let mut described = Vec::new();
    loop {
        let position = batches.position();
        let Some(batch) = batches.next() else { return Ok(Value::Array(described)) };
        described.push(describe_batch(position, batch?)?);
    }
}

fn describe_batch(position: usize, batch: Batch<'_>) -> Result<Value, DecodeError> {
    let mut scratch = Vec::new();
    let mut value = json!({
        "position": position,
        "size": batch.size(),
        "magic": batch.magic().get(),
        "baseOffset": batch.base_offset_deep(&mut scratch, LIMIT)?.get(),
        "lastOffset": batch.last_offset().get(),
        "count": batch.records_count(),
        "leaderEpoch": LeaderEpoch::to_raw(batch.leader_epoch()),
        "codec": batch.codec()?.name(),
        "timestampType": batch.timestamp_type().map_or("NoTimestampType", |kind| kind.name()),
        "maxTimestamp": Timestamp::to_raw(batch.max_timestamp()),
        "producerId": ProducerId::to_raw(batch.producer_id()),
        "producerEpoch": ProducerEpoch::to_raw(batch.producer_epoch()),
        "baseSequence": Sequence::to_raw(batch.base_sequence()),
        "lastSequence": Sequence::to_raw(batch.last_sequence()),
        "transactional": batch.is_transactional(),
        "control": batch.is_control(),
        "deleteHorizon": batch.delete_horizon().map(Timestamp::get),
        "crc": batch.crc(),
    });
    match batch.verify() {
        Ok(_) => {
            value["valid"] = true.into();
            value["records"] = describe_records(&batch, &mut scratch)?;
        }
        Err(_) => value["valid"] = false.into(),
    }
    Ok(value)
}

fn describe_records(batch: &Batch<'_>, scratch: &mut Vec<u8>) -> Result<Value, DecodeError> {
    let mut described = Vec::new();
    for record in batch.records(scratch, LIMIT)? {
        let record = record?;
        let mut headers = Vec::new();
        for header in record.headers() {
            headers.push(json!([header.key_lossy(), base64(header.value)]));
        }
        assert_eq!(headers.len(), record.header_count());
        described.push(json!({
            "offset": record.offset().get(),
            "timestamp": Timestamp::to_raw(record.timestamp()),
            "sequence": Sequence::to_raw(record.sequence()),
            "key": base64(record.key()),
            "value": base64(record.value()),
            "headers": headers,
        }));
    }
    Ok(Value::Array(described))
}
