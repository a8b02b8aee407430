//! Batches and records as the protocol shows them: fields in Kafka's order, raw numbers, -1 where there is none.

use std::borrow::Cow;

use kseg_format::{
    Batch, Batches, DecodeError, Framed, HEADER_UP_TO_MAGIC, LeaderEpoch, Magic, Offset, ProducerEpoch,
    ProducerId, Record, Sequence, Timestamp, TimestampType, frame,
};
use serde_json::{Map, Value, json};

use super::protocol::{Failure, base64, base64_or_null};

/// The most that one batch may decompress to; stories stay far below.
pub(crate) const DECOMPRESSED_LIMIT: usize = 256 << 20;

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Failure {
        Failure::new(error.kafka_name(), error.to_string())
    }
}

/// The batches of a buffer, up to a torn one.
///
/// # Errors
/// The first error of any batch; what was read before it is not shown.
pub(crate) fn buffer(bytes: &[u8]) -> Result<Value, Failure> {
    let mut batches = Batches::new(bytes);
    let mut out = Vec::new();
    loop {
        let position = batches.position();
        match batches.next() {
            None => return Ok(Value::Array(out)),
            Some(found) => out.push(batch(&found?, position, true)?),
        }
    }
}

/// The batches of a whole file, by the rules of a file: a torn tail ends it quietly.
///
/// # Errors
/// As for [`buffer`].
pub(crate) fn file(bytes: &[u8], records: bool) -> Result<Value, Failure> {
    let (batches, end) = walk(bytes, records);
    end.map(|_| Value::Array(batches))
}

/// The batches of a file up to whatever ends it, and whether that is the end of the file.
pub(crate) fn batches_before_damage(bytes: &[u8]) -> (Vec<Value>, bool) {
    let (batches, end) = walk(bytes, true);
    (batches, end.is_ok_and(|end| end == bytes.len()))
}

/// The batches, and the place where they end or why.
fn walk(bytes: &[u8], records: bool) -> (Vec<Value>, Result<usize, Failure>) {
    let mut out = Vec::new();
    let mut position = 0;
    loop {
        let rest = &bytes[position..];
        let prefix = &rest[..rest.len().min(HEADER_UP_TO_MAGIC)];
        let size = match frame(prefix, rest.len() as u64) {
            Ok(Framed::Whole { size, .. }) => size,
            Ok(_) => return (out, Ok(position)),
            Err(error) => return (out, Err(error.into())),
        };
        let described =
            Batch::parse(&rest[..size]).map_err(Failure::from).and_then(|b| batch(&b, position, records));
        match described {
            Ok(described) => out.push(described),
            Err(failure) => return (out, Err(failure)),
        }
        position += size;
    }
}

fn batch(batch: &Batch<'_>, position: usize, records: bool) -> Result<Value, Failure> {
    let header = batch.header();
    let mut scratch = Vec::new();
    let base = match header.base_offset() {
        Some(base) => base,
        None => batch.base_offset_deep(&mut scratch, DECOMPRESSED_LIMIT)?,
    };
    let checked = batch.verify();
    let valid = checked.is_ok();
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| {
        out.insert(name.to_owned(), value);
    };
    put("position", json!(position));
    put("size", json!(header.size()));
    put("magic", json!(magic(header.magic())));
    put("baseOffset", json!(base.get()));
    put("lastOffset", json!(header.last_offset().get()));
    put("count", json!(header.records_count()));
    put("leaderEpoch", json!(LeaderEpoch::to_raw(header.leader_epoch())));
    put("codec", json!(header.codec()?.to_string()));
    put("timestampType", json!(timestamp_type(header.timestamp_type())));
    put("maxTimestamp", json!(Timestamp::to_raw(header.max_timestamp())));
    put("producerId", json!(ProducerId::to_raw(header.producer_id())));
    put("producerEpoch", json!(ProducerEpoch::to_raw(header.producer_epoch())));
    put("baseSequence", json!(Sequence::to_raw(header.base_sequence())));
    put("lastSequence", json!(Sequence::to_raw(header.last_sequence())));
    put("transactional", json!(header.is_transactional()));
    put("control", json!(header.is_control()));
    put("deleteHorizon", json!(header.delete_horizon().map(Timestamp::get)));
    put("crc", json!(header.crc()));
    put("valid", json!(valid));
    if records && valid {
        let list: Result<Vec<Value>, Failure> =
            batch.records(&mut scratch, DECOMPRESSED_LIMIT)?.map(|r| Ok(record(&r?))).collect();
        put("records", Value::Array(list?));
    }
    Ok(Value::Object(out))
}

fn record(record: &Record<'_>) -> Value {
    let mut headers = Vec::new();
    for header in record.headers() {
        let key: Cow<'_, str> = header.key_lossy();
        headers.push(json!([key, header.value.map(base64)]));
    }
    json!({
        "offset": Offset::get(record.offset()),
        "timestamp": Timestamp::to_raw(record.timestamp()),
        "sequence": Sequence::to_raw(record.sequence()),
        "key": base64_or_null(record.key()),
        "value": base64_or_null(record.value()),
        "headers": headers,
    })
}

fn magic(magic: Magic) -> u8 {
    match magic {
        Magic::V0 => 0,
        Magic::V1 => 1,
        Magic::V2 => 2,
    }
}

fn timestamp_type(kind: Option<TimestampType>) -> &'static str {
    match kind {
        None => "NoTimestampType",
        Some(TimestampType::CreateTime) => "CreateTime",
        Some(TimestampType::LogAppendTime) => "LogAppendTime",
    }
}
