//! There and back: a data directory that kseg has made is given to a real broker, which serves it to a real client and
//! writes to it; kseg opens what the stopped broker leaves, and writes to it; the broker takes it back, writes, and is
//! killed; kseg opens that too, and writes to it; the broker takes it back once more. At every stage both must see the
//! same: records with offsets, timestamps and epochs, committed ones, first and last offsets, and what lies at a time.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use kseg_format::{MetaProperties, PartitionMetadata, TopicPartition};
use kseg_io_backends::StdBackend;
use kseg_log::{LoadOptions, Log, LogDir, LogDirOptions};
use serde_json::{Map, Value, json};

use super::broker::{Broker, CODECS, asked, complaints};
use super::broker_folders;
use super::dump;
use super::golden::temporary;
use super::oracle::Oracle;
use crate::Outcome;
use crate::replay::{base64, on_log};

/// 2023-11-14; a real broker's clock is later.
const START: i64 = 1_700_000_000_000;

/// What a topic holds before the broker gets it.
struct Topic {
    name: String,
    config: Map<String, Value>,
    /// Operations of the replay protocol on its one partition.
    ops: Vec<Value>,
}

/// Never cleaned nor trimmed by the broker, so that both see the same.
fn topic(name: &str, config: Value, ops: Vec<Value>) -> Topic {
    let mut all = json!({"segment.bytes": "1048576", "retention.ms": "-1"});
    for (key, value) in config.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    Topic { name: name.to_owned(), config: all.as_object().cloned().unwrap_or_default(), ops }
}

/// As many records: keys and values that are null, empty and long, headers, a timestamp that goes back.
fn records(first: i64, count: i64) -> Value {
    let record = |n: i64| {
        let text = format!("value {n} of many, many, many, many");
        let value = if n % 7 == 3 { Value::Null } else { base64(text.as_bytes()).into() };
        let key = if n % 5 == 4 { Value::Null } else { base64(format!("key {}", n % 11).as_bytes()).into() };
        let headers = if n % 3 == 0 { json!([["h", base64(b"1")], ["\u{1f980}", null]]) } else { json!([]) };
        json!({"timestamp": START + 10 * n - 25 * (n % 4), "key": key, "value": value, "headers": headers})
    };
    (first..first + count).map(record).collect()
}

fn append(batch: Value) -> Value {
    json!({"op": "append", "epoch": 0, "batch": batch})
}

/// A batch of a producer. Ids are far from those that a broker gives out.
fn produced(producer: i64, sequence: i64, transactional: bool, first: i64, count: i64) -> Value {
    append(json!({
        "producerId": 1000 + producer, "producerEpoch": 2, "baseSequence": sequence, "transactional": transactional,
        "records": records(first, count),
    }))
}

fn ended(producer: i64, kind: &str, at: i64) -> Value {
    let marker = json!({
        "kind": kind, "producerId": 1000 + producer, "producerEpoch": 2, "coordinatorEpoch": 3, "timestamp": START + at,
    });
    json!({"op": "append", "epoch": 0, "origin": "coordinator", "marker": marker})
}

fn roll() -> Value {
    json!({"op": "roll"})
}

/// Producers whose transactions lie in each other, two of them aborted, over three segments.
fn transactions() -> Vec<Value> {
    vec![
        produced(1, 0, true, 0, 3),
        produced(2, 0, true, 3, 2),
        append(json!({"records": records(5, 2)})),
        ended(1, "commit", 80),
        produced(1, 3, true, 7, 2),
        roll(),
        produced(2, 2, true, 9, 4),
        ended(1, "abort", 140),
        produced(3, 0, true, 13, 1),
        roll(),
        ended(2, "abort", 150),
        produced(1, 5, true, 14, 2),
        ended(3, "commit", 170),
        ended(1, "commit", 180),
        append(json!({"records": records(16, 3)})),
    ]
}

fn topics() -> Vec<Topic> {
    let mut all = Vec::new();
    for codec in CODECS {
        let ops = (0..12_i64).flat_map(|n| {
            let batch = append(json!({"codec": codec, "records": records(20 * n, 1 + 3 * (n % 6))}));
            if n % 5 == 4 { vec![batch, roll()] } else { vec![batch] }
        });
        all.push(topic(&format!("round-{codec}"), json!({}), ops.collect()));
    }
    all.push(topic("round-transactions", json!({}), transactions()));
    let mut open = transactions();
    open.extend([produced(3, 1, true, 19, 2), append(json!({"records": records(21, 4)}))]);
    all.push(topic("round-open", json!({}), open));
    let wrap = i64::from(i32::MAX) - 1;
    all.push(topic(
        "round-idempotent",
        json!({}),
        vec![
            produced(4, 0, false, 0, 3),
            produced(5, wrap, false, 3, 4),
            roll(),
            produced(4, 3, false, 7, 2),
            produced(5, 2, false, 9, 1),
        ],
    ));
    all.push(topic(
        "round-append-time",
        json!({"message.timestamp.type": "LogAppendTime"}),
        vec![
            append(json!({"records": records(0, 4)})),
            roll(),
            append(json!({"codec": "lz4", "records": records(4, 3)})),
        ],
    ));
    let mut trimmed: Vec<Value> =
        (0..6).flat_map(|n| [append(json!({"records": records(5 * n, 5)})), roll()]).collect();
    trimmed
        .extend([json!({"op": "highWatermark", "offset": 30}), json!({"op": "startOffset", "offset": 13})]);
    // A lookup by time ends in a segment below the start, where there still is one.
    trimmed.push(json!({"op": "retain"}));
    all.push(topic("round-trimmed", json!({}), trimmed));
    let sparse = |base: i64, offsets: [i64; 3]| {
        let mut records = records(base % 90, 3);
        for (record, offset) in records.as_array_mut().into_iter().flatten().zip(offsets) {
            record["offset"] = json!(base + offset);
        }
        json!({"op": "follow", "epoch": 0, "batch": {"baseOffset": base, "leaderEpoch": 0, "records": records}})
    };
    all.push(topic(
        "round-sparse",
        json!({}),
        vec![sparse(5, [0, 2, 9]), sparse(40, [0, 1, 2]), roll(), sparse(5_000_000_000, [1, 4, 5])],
    ));
    let mut compacted = transactions();
    compacted.extend([produced(4, 0, false, 30, 20), roll(), append(json!({"records": records(50, 5)}))]);
    compacted.retain(|op| {
        op["batch"]["records"].as_array().is_none_or(|all| all.iter().all(|r| !r["key"].is_null()))
    });
    compacted.push(roll());
    compacted.push(json!({"op": "clean", "dirty": 0}));
    let never = json!({"cleanup.policy": "compact", "min.compaction.lag.ms": "9223372036854775807"});
    all.push(topic("round-compacted", never, compacted));
    all
}

fn partition(topic: &Topic) -> TopicPartition {
    TopicPartition::new(topic.name.as_str(), 0)
}

fn opened(data: &Path) -> Result<LogDir, String> {
    LogDir::open(data, LogDirOptions::new(Arc::new(StdBackend::new()))).map_err(|e| e.to_string())
}

/// Every partition of a directory, those that are the broker's own included.
fn loaded(dir: &LogDir) -> Outcome {
    let options = LoadOptions { threads: 2, is_stray: &|_, _| false, progress: &|_| {} };
    let summary = dir.load_all(options).map_err(|e| e.to_string())?;
    let failed: Vec<String> = summary.failed.iter().map(|(p, e)| format!("{p}: {e}")).collect();
    if failed.is_empty() && summary.stray.is_empty() {
        Ok(())
    } else {
        Err(format!("not loaded: {failed:?}, stray: {:?}", summary.stray))
    }
}

fn done(log: &Log, op: &Value) -> Outcome {
    on_log(log, op).map(drop).map_err(|failure| format!("{op}: {}: {}", failure.class, failure.message))
}

fn stopped(dir: LogDir) -> Outcome {
    let report = dir.shutdown().map_err(|e| e.to_string())?;
    if report.clean && report.failed.is_empty() {
        Ok(())
    } else {
        Err(format!("not an orderly stop: {:?}", report.failed))
    }
}

fn get(dir: &LogDir, topic: &Topic) -> Result<Arc<Log>, String> {
    let log = dir.get(&partition(topic)).map_err(|e| e.to_string())?;
    let log = log.ok_or_else(|| format!("{}: not there", topic.name))?;
    // The only replica: its leader takes all there is for committed.
    log.update_high_watermark(log.log_end_offset());
    Ok(log)
}

/// Times that are looked up: before all, among what kseg wrote, when the broker's clients wrote, and later than all.
const TIMES: &[i64] =
    &[0, START + 35, START + 131, START + 2000, START + 1_000_002, START + 2_000_000, 4_000_000_000_000];

/// What kseg sees in a directory.
fn seen_by_kseg(dir: &LogDir, topics: &[Topic]) -> Result<Map<String, Value>, String> {
    let mut out = Map::new();
    for topic in topics {
        let log = get(dir, topic)?;
        for (what, value) in broker_folders::seen(&log, TIMES)? {
            out.insert(format!("{} {what}", topic.name), value);
        }
    }
    Ok(out)
}

/// What a client of the broker sees.
fn seen_by_client(client: &mut Oracle, topics: &[Topic]) -> Result<Map<String, Value>, String> {
    let mut out = Map::new();
    for topic in topics {
        let name = &topic.name;
        for isolation in ["read_uncommitted", "read_committed"] {
            let records = asked(client, json!({"op": "fetch", "topic": name, "isolation": isolation}))?;
            out.insert(format!("{name} {isolation}"), records);
        }
        let mut offsets = Map::new();
        for at in ["earliest", "latest", "max_timestamp"] {
            offsets.insert(at.to_owned(), asked(client, json!({"op": "offset", "topic": name, "at": at}))?);
        }
        out.insert(format!("{name} offsets"), Value::Object(offsets));
        let mut times = Vec::new();
        for time in TIMES {
            times.push(json!([
                time,
                asked(client, json!({"op": "offset", "topic": name, "timestamp": time}))?
            ]));
        }
        out.insert(format!("{name} times"), Value::Array(times));
    }
    Ok(out)
}

fn same(stage: &str, broker: &Map<String, Value>, kseg: &Map<String, Value>) -> Outcome {
    let keys = broker.keys().chain(kseg.keys().filter(|key| !broker.contains_key(*key)));
    let wrong: Vec<String> = keys
        .filter_map(|key| {
            let (theirs, ours) =
                (broker.get(key).unwrap_or(&Value::Null), kseg.get(key).unwrap_or(&Value::Null));
            broker_folders::difference(theirs, ours).map(|what| format!("{key}: {what}"))
        })
        .collect();
    if wrong.is_empty() {
        let records = |map: &Map<String, Value>| -> usize {
            map.iter()
                .filter(|(k, _)| k.contains(" read_"))
                .filter_map(|(_, v)| v.as_array())
                .map(Vec::len)
                .sum()
        };
        println!("broker: {stage}: {} records and lookups the same", records(broker));
        Ok(())
    } else {
        Err(format!("{stage}:\n    {}", wrong.join("\n    ")))
    }
}

/// Makes the directory.
fn made(data: &Path, topics: &[Topic]) -> Result<Map<String, Value>, String> {
    let dir = opened(data)?;
    for topic in topics {
        let config = topic.config.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()));
        dir.create_topic(&topic.name, 1, config).map_err(|e| e.to_string())?;
        let log = dir.get_or_create(&partition(topic), None).map_err(|e| e.to_string())?;
        for op in &topic.ops {
            done(&log, op).map_err(|e| format!("{}: {e}", topic.name))?;
        }
    }
    let seen = seen_by_kseg(&dir, topics)?;
    stopped(dir)?;
    Ok(seen)
}

/// Puts kseg's directory in the place of the broker's. Of that one only what names it is kept: ids of topics, which its
/// metadata log knows, and the directory's own.
fn hand_over(ours: &Path, data: &Path, topics: &[Topic]) -> Outcome {
    let failed = |e: std::io::Error| format!("{}: {e}", data.display());
    for topic in topics {
        let file = Path::new(&format!("{}-0", topic.name)).join(PartitionMetadata::FILE_NAME);
        fs::copy(data.join(&file), ours.join(&file)).map_err(failed)?;
    }
    fs::copy(data.join(MetaProperties::FILE_NAME), ours.join(MetaProperties::FILE_NAME)).map_err(failed)?;
    // From here on the cluster says what topics there are.
    fs::remove_file(ours.join("kseg-topics.json")).map_err(failed)?;
    fs::remove_dir_all(data).map_err(failed)?;
    fs::rename(ours, data).map_err(failed)
}

/// The broker's own clients write: an idempotent producer, and a transactional one that commits and aborts; with `open` its
/// last transaction is under way when the broker ends.
fn written(client: &mut Oracle, topics: &[Topic], round: i64, open: bool) -> Outcome {
    let (plain, transactional) = (format!("p{round}"), format!("t{round}"));
    asked(client, json!({"op": "producer", "name": plain, "config": {"compression.type": "zstd"}}))?;
    let config = json!({"transactional.id": "round", "transaction.timeout.ms": "900000"});
    asked(client, json!({"op": "producer", "name": transactional, "config": config}))?;
    let mut send = |name: &str, topic: &Topic, count: i64| {
        let mut records = records(100 * round, count);
        for (n, record) in records.as_array_mut().into_iter().flatten().enumerate() {
            record["timestamp"] = json!(START + 1_000_000 * round + n as i64);
            if record["key"].is_null() {
                record["key"] = json!(base64(b"key"));
            }
        }
        asked(client, json!({"op": "send", "name": name, "topic": topic.name, "records": records}))
    };
    for topic in topics {
        send(&plain, topic, 5)?;
    }
    let ends = if open { &["commit", "abort", ""][..] } else { &["abort", "commit"][..] };
    for end in ends {
        asked(client, json!({"op": "begin", "name": transactional}))?;
        for topic in topics.iter().step_by(2) {
            let mut records = records(100 * round + 50, 3);
            records.as_array_mut().into_iter().flatten().for_each(|r| r["key"] = json!(base64(b"t")));
            let op = json!({"op": "send", "name": transactional, "topic": topic.name, "records": records});
            asked(client, op)?;
        }
        if !end.is_empty() {
            asked(client, json!({"op": end, "name": transactional}))?;
        }
    }
    // In the first segment, so that none goes while both are asked.
    let trimmed = json!({"op": "deleteRecords", "topic": "round-trimmed", "offset": 14});
    asked(client, trimmed).map(drop)
}

/// kseg writes to what a broker left.
fn written_here(dir: &LogDir, topics: &[Topic], round: i64) -> Outcome {
    for topic in topics {
        let log = get(dir, topic)?;
        let keyed = |mut op: Value| {
            let records = op["batch"]["records"].as_array_mut();
            records.into_iter().flatten().for_each(|r| r["key"] = json!(base64(b"here")));
            op
        };
        let state = log.state(false).map_err(|e| e.to_string())?;
        let epoch = state.epochs.last().map_or(0, |entry| entry.epoch.get());
        let producer = 100 + round;
        for mut op in [
            keyed(append(json!({"codec": "snappy", "records": records(300 * round, 4)}))),
            keyed(produced(producer, 0, true, 310 * round, 2)),
            ended(producer, "abort", 5000),
            keyed(produced(producer, 2, true, 320 * round, 2)),
            ended(producer, "commit", 5010),
        ] {
            op["epoch"] = json!(epoch);
            done(&log, &op).map_err(|e| format!("{}: {e}", topic.name))?;
        }
    }
    Ok(())
}

/// A broker takes the directory, has to serve `expected`, and writes to it in a round of its own and is ended; returns what it
/// served last. It must have complained of nothing.
fn taken(
    broker: &mut Broker,
    topics: &[Topic],
    what: &str,
    expected: &Map<String, Value>,
    (round, leaves_open): (i64, bool),
    end: fn(&mut Broker) -> Outcome,
) -> Result<Map<String, Value>, String> {
    let said = broker.log().len();
    broker.start()?;
    let mut client = broker.client()?;
    same(what, &seen_by_client(&mut client, topics)?, expected)?;
    written(&mut client, topics, round, leaves_open)?;
    let served = seen_by_client(&mut client, topics)?;
    drop(client);
    end(broker)?;
    complaints(&broker.log()[said..])?;
    Ok(served)
}

/// kseg opens what a broker left, has to see `served`, and writes to it with `round`; returns what is there then.
fn taken_here(
    data: &Path,
    topics: &[Topic],
    what: &str,
    served: &Map<String, Value>,
    (clean, round): (bool, Option<i64>),
) -> Result<Map<String, Value>, String> {
    let dir = opened(data)?;
    loaded(&dir)?;
    if dir.was_clean() != clean {
        return Err(format!(
            "{what}: expected a marker of an orderly stop: {clean}, found: {}",
            dir.was_clean()
        ));
    }
    same(what, served, &seen_by_kseg(&dir, topics)?)?;
    if let Some(round) = round {
        written_here(&dir, topics, round)?;
    }
    let here = seen_by_kseg(&dir, topics)?;
    stopped(dir)?;
    dump::sound(data)?;
    Ok(here)
}

/// # Errors
/// The first thing that is not as it should be.
pub(super) fn run() -> Outcome {
    let begun = Instant::now();
    let (topics, folder) = (topics(), temporary()?);
    let ours = folder.path().join("kseg");
    let made_here = made(&ours, &topics)?;
    dump::sound(&ours)?;

    let mut broker = Broker::new(&folder.path().join("broker"))?;
    broker.start()?;
    let mut client = broker.client()?;
    for topic in &topics {
        asked(&mut client, json!({"op": "createTopic", "topic": topic.name, "config": topic.config}))?;
    }
    drop(client);
    broker.stop()?;
    let data = broker.folder.join("data");
    hand_over(&ours, &data, &topics)?;

    let served = taken(
        &mut broker,
        &topics,
        "made by kseg, served by a broker",
        &made_here,
        (1, false),
        Broker::stop,
    )?;
    let what = "written and stopped by a broker, opened by kseg";
    let here = taken_here(&data, &topics, what, &served, (true, Some(1)))?;

    let served = taken(
        &mut broker,
        &topics,
        "written by kseg, taken back by the broker",
        &here,
        (2, true),
        Broker::kill,
    )?;
    let what = "written by a broker and killed, opened by kseg";
    let here = taken_here(&data, &topics, what, &served, (false, Some(2)))?;

    // The transaction that the killed broker had under way ends as its producer begins anew.
    let served = taken(
        &mut broker,
        &topics,
        "recovered and written by kseg, taken back",
        &here,
        (3, false),
        Broker::stop,
    )?;
    taken_here(&data, &topics, "written by a broker and stopped, opened by kseg", &served, (true, None))?;
    println!("broker: {} topics there and back in {:.1} s", topics.len(), begun.elapsed().as_secs_f64());
    Ok(())
}
