//! Data directories that a real broker left, stopped or killed: every record, offset, lookup by time and committed read is
//! what a real consumer saw.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use kseg_format::{AbortedTransaction, BatchHeader, Batches, Offset, Record, Timestamp, TimestampType};
use kseg_log::{Isolation, Log, LogDir, LogDirOptions, TimestampQuery, TopicPartition};
use serde_json::{Value, json};

use super::golden::temporary;
use super::story;
use crate::replay::Ground;

/// The directories under `kafka/golden-broker`.
pub(crate) const ALL: [&str; 2] = ["clean", "killed"];

/// Opens a copy of one directory, and says in what it differs from what the consumer saw.
///
/// # Errors
/// The directory cannot be unpacked, or does not open.
pub(crate) fn check(name: &str) -> Result<Vec<String>, String> {
    let golden = story::harness().join("golden-broker");
    let expected = golden.join(format!("{name}.expected.json.gz"));
    let expected: Value =
        serde_json::from_slice(&unpacked(&expected)?).map_err(|e| format!("{}: {e}", expected.display()))?;
    let folder = temporary()?;
    let archive = golden.join(format!("{name}.tar.gz"));
    let done = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()).status();
    if !done.as_ref().is_ok_and(|status| status.success()) {
        return Err(format!("tar -xzf {}: {done:?}", archive.display()));
    }
    let data = folder.path().join(name).join("data");
    let ground = Ground::new()?;
    ground.take(&data)?;
    // What a killed process leaves is the file, not the lock on it.
    let options = LogDirOptions::new(ground.backend().clone());
    let dir = LogDir::open(&data, options).map_err(|e| e.to_string())?;
    let mut wrong = Vec::new();
    if dir.was_clean() != (name == "clean") {
        wrong.push(format!("{name}: taken for clean: {}", dir.was_clean()));
    }
    let expected = expected.as_object().ok_or("expected: no object")?;
    let partitions: BTreeSet<&str> = expected.keys().filter_map(|key| key.split(' ').next()).collect();
    for partition in &partitions {
        let (topic, number) =
            partition.rsplit_once('-').ok_or_else(|| format!("{partition}: no partition"))?;
        let number = number.parse().map_err(|e| format!("{partition}: {e}"))?;
        let log = dir.get(&TopicPartition::new(topic, number)).map_err(|e| e.to_string())?;
        let Some(log) = log else {
            wrong.push(format!("{name}: {partition}: not there"));
            continue;
        };
        for line in log.load_report().to_string().lines() {
            wrong.push(format!("{name}: {partition}: {line}"));
        }
        // The only replica: its leader takes all there is for committed.
        log.update_high_watermark(log.log_end_offset());
        let times = expected.get(&format!("{partition} times")).and_then(Value::as_array);
        let times: Vec<i64> = times.into_iter().flatten().filter_map(|pair| pair[0].as_i64()).collect();
        for (what, seen) in seen(&log, &times)? {
            let key = format!("{partition} {what}");
            let nothing = if what == "times" { json!([]) } else { Value::Null };
            if let Some(difference) = difference(expected.get(&key).unwrap_or(&nothing), &seen) {
                wrong.push(format!("{name}: {key}: {difference}"));
            }
        }
    }
    let report = dir.shutdown().map_err(|e| e.to_string())?;
    wrong.extend(report.failed.into_iter().map(|(p, e)| format!("{name}: {p} does not close: {e}")));
    Ok(wrong)
}

fn unpacked(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| GzDecoder::new(file).read_to_end(&mut bytes));
    read.map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(bytes)
}

/// What a client would see: records of both isolations, first and last offsets, and what lies at each of `times`.
///
/// # Errors
/// The log cannot be read.
pub(super) fn seen(log: &Log, times: &[i64]) -> Result<[(&'static str, Value); 4], String> {
    let at = |time: &i64| Ok(json!([time, found(log, TimestampQuery::At(Timestamp::new(*time)))?]));
    Ok([
        ("read_uncommitted", Value::Array(records(log, Isolation::HighWatermark)?)),
        ("read_committed", Value::Array(records(log, Isolation::Committed)?)),
        ("offsets", offsets(log)?),
        ("times", times.iter().map(at).collect::<Result<Value, String>>()?),
    ])
}

/// The records as a consumer of this isolation gets them.
fn records(log: &Log, isolation: Isolation) -> Result<Vec<Value>, String> {
    let mut out = Vec::new();
    let mut scratch = Vec::new();
    let mut next = log.log_start_offset();
    loop {
        let fetch = log.read(next, 1 << 20, isolation, true).map_err(|e| e.to_string())?;
        let Some(region) = fetch.region else { return Ok(out) };
        let bytes = region.to_bytes().map_err(|e| e.to_string())?;
        let aborted = fetch.aborted.unwrap_or_default();
        let before = next;
        for batch in Batches::new(&bytes) {
            let batch = batch.map_err(|e| e.to_string())?.verify().map_err(|e| e.to_string())?;
            next = batch.last_offset().next();
            if batch.is_control() || is_aborted(&batch, &aborted) {
                continue;
            }
            for record in batch.records(&mut scratch, 1 << 26).map_err(|e| e.to_string())? {
                let record = record.map_err(|e| e.to_string())?;
                if record.offset() >= log.log_start_offset() {
                    out.push(described(&batch, &record));
                }
            }
        }
        if next == before {
            return Ok(out);
        }
    }
}

/// Whether a consumer of committed records leaves the batch out: its producer's transaction around it was aborted.
fn is_aborted(batch: &BatchHeader, aborted: &[AbortedTransaction]) -> bool {
    let base = batch.base_offset().unwrap_or(Offset::ZERO);
    batch.is_transactional()
        && aborted.iter().any(|transaction| {
            batch.producer_id() == Some(transaction.producer_id)
                && (transaction.first_offset..=transaction.last_offset).contains(&base)
        })
}

fn described(batch: &BatchHeader, record: &Record<'_>) -> Value {
    let bytes = |bytes: Option<&[u8]>| bytes.map_or(Value::Null, |bytes| STANDARD.encode(bytes).into());
    let mut headers = Vec::new();
    for header in record.headers() {
        headers.push(json!([String::from_utf8_lossy(header.key), bytes(header.value)]));
    }
    let kind = match batch.timestamp_type() {
        Some(TimestampType::LogAppendTime) => "LogAppendTime",
        Some(TimestampType::CreateTime) => "CreateTime",
        None => "NoTimestampType",
    };
    json!({
        "offset": record.offset().get(),
        "timestamp": Timestamp::to_raw(record.timestamp()),
        "timestampType": kind,
        "leaderEpoch": batch.leader_epoch().map(|epoch| epoch.get()),
        "key": bytes(record.key()),
        "value": bytes(record.value()),
        "headers": headers,
    })
}

fn offsets(log: &Log) -> Result<Value, String> {
    Ok(json!({
        "earliest": found(log, TimestampQuery::Earliest)?,
        "latest": found(log, TimestampQuery::Latest)?,
        "max_timestamp": found(log, TimestampQuery::Max)?,
    }))
}

fn found(log: &Log, query: TimestampQuery) -> Result<Value, String> {
    let found = log.offset_for_timestamp(query).map_err(|e| e.to_string())?;
    let (offset, timestamp) =
        found.map_or((-1, -1), |found| (found.offset.get(), Timestamp::to_raw(found.timestamp)));
    Ok(json!({"offset": offset, "timestamp": timestamp}))
}

/// Where two answers first differ.
pub(super) fn difference(expected: &Value, seen: &Value) -> Option<String> {
    if expected == seen {
        return None;
    }
    if let (Value::Array(expected), Value::Array(seen)) = (expected, seen) {
        let at =
            expected.iter().zip(seen).position(|(a, b)| a != b).unwrap_or(expected.len().min(seen.len()));
        let (want, have) = (expected.get(at), seen.get(at));
        let (all, found) = (expected.len(), seen.len());
        return Some(format!(
            "of {all} records {found} are found; at {at} expected {want:?}, found {have:?}"
        ));
    }
    Some(format!("expected {expected}, found {seen}"))
}

/// Every directory.
///
/// # Errors
/// What differs, or why a directory cannot be looked at.
pub(crate) fn run() -> Result<(), String> {
    let mut wrong = Vec::new();
    for name in ALL {
        wrong.extend(check(name)?);
    }
    println!("golden: {} data directories of a broker opened", ALL.len());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ")) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_directory_that_a_broker_stopped_in_order_reads_as_its_consumer_saw() {
        assert_eq!(super::check("clean").expect("opened"), Vec::<String>::new());
    }

    #[test]
    fn a_directory_of_a_killed_broker_reads_as_its_consumer_saw() {
        assert_eq!(super::check("killed").expect("opened"), Vec::<String>::new());
    }
}
