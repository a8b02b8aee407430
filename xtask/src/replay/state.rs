//! Operations on an open log.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kseg_format::{LeaderEpoch, Offset, Origin, ProducerEpoch, ProducerId, Sequence, Timestamp};
use kseg_io_backends::Backend;
use kseg_log::{
    AbortedTransaction, AppendInfo, ConfigError, Error, Isolation, Log, LogConfig, OpenOptions,
    ProducerBatch, ProducerInfo, SegmentState, TimestampQuery, TransactionRequest, TransactionVersion,
    VerificationGuard,
};
use serde_json::{Map, Value, json};

use super::clean;
use super::protocol::{Answer, Failure, Fields, base64};
use super::time::Time;
use super::{batch, describe};

/// A described batch with more text than this has no `given` in its answer.
const GIVEN_LIMIT: usize = 200_000;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(error.kafka_name(), error.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::new(error.kafka_name(), error.to_string())
    }
}

/// Opens the log that `op` names.
pub(crate) fn open(backend: &Arc<dyn Backend>, time: &Arc<Time>, op: Fields<'_>) -> Result<Log, Failure> {
    let dir = Path::new(op.need_text("dir")?);
    let mut options = OpenOptions::new(Arc::clone(backend));
    options.config = config(op)?;
    options.clean = op.bool_or("clean", true);
    options.recovery_point = Offset::new(op.long_or("recoveryPoint", 0));
    options.log_start_offset = Offset::new(op.long_or("logStart", 0));
    options.clock = Arc::clone(time) as _;
    options.scheduler = Arc::clone(time) as _;
    options.producer_expiration_ms = op.long_or("producerExpirationMs", 86_400_000);
    options.verify_transactions = op.bool_or("verification", false);
    Ok(Log::open(dir, options)?)
}

fn config(op: Fields<'_>) -> Result<LogConfig, Failure> {
    let mut pairs = Vec::new();
    if let Some(config) = op.get("config").and_then(Value::as_object) {
        for (key, value) in config {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            pairs.push((key.as_str(), value));
        }
    }
    Ok(LogConfig::from_pairs(pairs.iter().map(|(k, v)| (*k, v.as_str())))?)
}

/// An operation that needs an open log.
///
/// # Errors
/// As Kafka fails.
pub(crate) fn on_log(log: &Log, op: Fields<'_>, guard: Option<VerificationGuard>) -> Answer {
    let offset = || op.need_long("offset").map(Offset::new);
    let name = op.need_text("op")?;
    match name {
        "append" | "follow" => append(log, op, guard, name == "follow"),
        "roll" => Ok(json!({"base": log.roll(op.long("offset").map(Offset::new))?.get()})),
        "flush" => {
            log.flush(op.bool_or("force", false))?;
            Ok(json!({"recoveryPoint": log.recovery_point().get()}))
        }
        "highWatermark" => Ok(json!({"highWatermark": log.update_high_watermark(offset()?).get()})),
        "startOffset" => Ok(json!({"moved": log.increment_log_start_offset(offset()?)?})),
        "truncate" => Ok(json!({"truncated": log.truncate_to(offset()?)?})),
        "truncateFully" => {
            log.truncate_fully_and_start_at(offset()?, op.long("logStart").map(Offset::new))?;
            Ok(json!({}))
        }
        "retain" => Ok(json!({"deleted": log.delete_old_segments()?.deleted})),
        "config" => {
            log.update_config(config(op)?)?;
            Ok(json!({}))
        }
        "epoch" => {
            log.assign_epoch(LeaderEpoch::new(op.int_or("epoch", 0)), offset()?)?;
            Ok(json!({}))
        }
        "epochEnd" => {
            let end = log.end_offset_for_epoch(LeaderEpoch::new(op.int_or("epoch", 0)));
            Ok(end.map_or(Value::Null, |e| json!({"epoch": e.epoch.get(), "offset": e.end_offset.get()})))
        }
        "read" => read(log, op),
        "timestamp" => timestamp(log, op),
        "state" => shown(log, op.bool_or("indexes", true)),
        "clean" => clean::round(log, op),
        "expire" => Ok(json!({"producers": log.expire_producers()})),
        "snapshot" => {
            log.take_producer_snapshot()?;
            Ok(json!({}))
        }
        "aborted" => {
            let (from, to) = (Offset::new(op.need_long("from")?), Offset::new(op.need_long("to")?));
            Ok(json!(log.aborted_transactions(from, to)?.iter().map(aborted_entry).collect::<Vec<_>>()))
        }
        other => Err(Failure::argument(format!("unknown op {other}"))),
    }
}

/// An aborted transaction: producer, first, last, last stable offset.
fn aborted_entry(t: &AbortedTransaction) -> Value {
    json!([t.producer_id.get(), t.first_offset.get(), t.last_offset.get(), t.last_stable_offset.get()])
}

/// The guard of a transaction that is to be verified; none where it has begun.
///
/// # Errors
/// As Kafka fails.
pub(crate) fn verify(log: &Log, op: Fields<'_>) -> Result<Option<VerificationGuard>, Failure> {
    let producer = ProducerId::new(op.need_long("producerId")?);
    let epoch = ProducerEpoch::new(op.short_or("epoch", 0));
    let sequence = Sequence::new(op.int_or("sequence", 0));
    let version = TransactionVersion::new(if op.bool_or("bumps", false) { 2 } else { 0 });
    Ok(log.start_verification(producer, epoch, sequence, version)?)
}

fn append(log: &Log, op: Fields<'_>, guard: Option<VerificationGuard>, follower: bool) -> Answer {
    let bytes = batch::given(op)?;
    let text = base64(&bytes);
    let epoch = LeaderEpoch::new(op.int_or("epoch", 0));
    let info = if follower {
        log.append_as_follower(Bytes::from(bytes), epoch)?
    } else {
        let version = TransactionVersion::new(u16::try_from(op.int_or("transactionVersion", 0)).unwrap_or(0));
        let request = TransactionRequest { version, guard };
        log.append_as_leader_in(BytesMut::from(bytes.as_slice()), epoch, origin(op), request)?
    };
    let mut out = Map::new();
    if !op.has("bytes") && text.len() < GIVEN_LIMIT {
        out.insert("given".to_owned(), Value::String(text));
    }
    let Value::Object(rest) = appended(&info) else { return Ok(Value::Null) };
    out.extend(rest);
    Ok(Value::Object(out))
}

fn appended(info: &AppendInfo) -> Value {
    let first = info.first_offset.map_or(-1, Offset::get);
    // Of a batch without records Kafka tells the offset in front of the next.
    let last = info.last_offset.map_or((first - 1).max(-1), Offset::get);
    json!({
        "first": first,
        "last": last,
        "maxTimestamp": Timestamp::to_raw(info.max_timestamp),
        "logAppendTime": Timestamp::to_raw(info.log_append_time),
        "logStart": info.log_start_offset.get(),
        "bytes": info.size,
        // The mark moves by itself only where a leader counts replicas.
        "highWatermark": "NONE",
    })
}

fn origin(op: Fields<'_>) -> Origin {
    match op.text("origin") {
        Some("coordinator") => Origin::Coordinator,
        Some("replication") => Origin::Replication,
        Some("raft_leader") => Origin::RaftLeader,
        _ => Origin::Client,
    }
}

fn read(log: &Log, op: Fields<'_>) -> Answer {
    let isolation = match op.text("isolation") {
        Some("high_watermark") => Isolation::HighWatermark,
        Some("committed") => Isolation::Committed,
        _ => Isolation::LogEnd,
    };
    let max = usize::try_from(op.int_or("max", 1 << 20))
        .map_err(|_| Failure::argument("a negative size to read"))?;
    let fetch = log.read(Offset::new(op.need_long("offset")?), max, isolation, op.bool_or("minOne", true))?;
    let bytes = match &fetch.region {
        Some(region) => region.to_bytes().map_err(Error::from)?,
        None => Bytes::new(),
    };
    let place = fetch.place.map(|p| (p.segment.get(), i64::try_from(p.position).unwrap_or(-1)));
    let (segment, position) = place.unwrap_or((-1, -1));
    let aborted = fetch.aborted.as_ref().map(|list| {
        list.iter().map(|t| json!([t.producer_id.get(), t.first_offset.get()])).collect::<Vec<_>>()
    });
    let mut out = json!({
        "segment": segment,
        "position": position,
        "bytes": bytes.len(),
        "firstIncomplete": fetch.first_incomplete,
        "crc32c": crc32c::crc32c(&bytes),
        "aborted": aborted,
    });
    if op.bool_or("records", false) {
        out["batches"] = describe::buffer(&bytes)?;
    }
    Ok(out)
}

fn timestamp(log: &Log, op: Fields<'_>) -> Answer {
    let query = match op.need_long("timestamp")? {
        -1 => TimestampQuery::Latest,
        -2 => TimestampQuery::Earliest,
        -3 => TimestampQuery::Max,
        -4 => TimestampQuery::EarliestLocal,
        -5 => TimestampQuery::LatestTiered,
        -6 => TimestampQuery::EarliestPendingUpload,
        at => TimestampQuery::At(Timestamp::new(at)),
    };
    let found = log.offset_for_timestamp(query)?;
    if matches!(query, TimestampQuery::LatestTiered | TimestampQuery::EarliestPendingUpload) {
        return Ok(json!({"offset": -1, "timestamp": -1, "leaderEpoch": -1}));
    }
    Ok(found.map_or(Value::Null, |f| {
        json!({
            "offset": f.offset.get(),
            "timestamp": Timestamp::to_raw(f.timestamp),
            "leaderEpoch": f.leader_epoch.map(LeaderEpoch::get),
        })
    }))
}

/// The state of a log; with `indexes` each segment's entries too.
pub(crate) fn shown(log: &Log, indexes: bool) -> Answer {
    let state = log.state(indexes)?;
    let epochs: Vec<Value> =
        state.epochs.iter().map(|e| json!([e.epoch.get(), e.start_offset.get()])).collect();
    Ok(json!({
        "logStart": state.log_start.get(),
        "logEnd": state.log_end.get(),
        "highWatermark": state.high_watermark.get(),
        "lastStable": state.last_stable.get(),
        "recoveryPoint": state.recovery_point.get(),
        "size": state.size,
        "firstUnstable": state.first_unstable.map(Offset::get),
        "epochs": epochs,
        "producers": state.producers.iter().map(producer).collect::<Vec<_>>(),
        "segments": state.segments.iter().map(|s| segment(s, indexes)).collect::<Vec<_>>(),
    }))
}

fn producer(producer: &ProducerInfo) -> Value {
    let batch = |b: &ProducerBatch| {
        json!([
            Sequence::to_raw(b.first_sequence()),
            Sequence::to_raw(b.last_sequence()),
            b.first_offset().get(),
            b.last_offset().get(),
            Timestamp::to_raw(b.timestamp()),
        ])
    };
    json!({
        "id": producer.id.get(),
        "epoch": producer.epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "lastTimestamp": Timestamp::to_raw(producer.last_timestamp),
        "txnFirstOffset": producer.transaction_start.map(Offset::get),
        "batches": producer.batches.iter().map(batch).collect::<Vec<_>>(),
    })
}

fn segment(segment: &SegmentState, indexes: bool) -> Value {
    let mut out = json!({
        "base": segment.base_offset.get(),
        "size": segment.size,
        "largestTimestamp": segment.largest_timestamp.map(Timestamp::get),
    });
    if indexes {
        let offsets = segment.offset_entries.iter().map(|e| json!([e.offset.get(), e.position]));
        let times =
            segment.time_entries.iter().map(|e| json!([Timestamp::to_raw(e.timestamp), e.offset.get()]));
        out["index"] = offsets.collect();
        out["timeindex"] = times.collect();
        out["aborted"] = segment.aborted.iter().map(aborted_entry).collect();
    }
    out
}
