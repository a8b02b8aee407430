//! The batches of `tests/golden/batches.jsonl.gz`: what Kafka read is read, what it refused is refused, and what it
//! wrote is written again.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use bytes::BytesMut;
use flate2::read::MultiGzDecoder;
use kseg_format::legacy::{self, LegacyOptions, LegacyRecord};
use kseg_format::{
    Batch, BatchOptions, Batches, Codec, ControlKey, ControlType, DecodeError, EndTransactionMarker,
    LeaderEpoch, Magic, Offset, Producer, ProducerEpoch, ProducerId, RecordBatchBuilder, Sequence, Timestamp,
    TimestampType, kraft,
};
use serde_json::Value;

use crate::describe::{describe, from_base64};
use crate::support::{LIMIT, Owned};

struct Line {
    number: usize,
    build: Option<Value>,
    damage: Option<String>,
    bytes: Vec<u8>,
    describe: Value,
}

fn lines() -> Vec<Line> {
    let lines = read_lines(include_bytes!("../golden/batches.jsonl.gz"));
    assert_eq!(lines.len(), 1389);
    lines
}

/// Every level of every codec, every combination of attributes, every kind of old message.
fn levels() -> Vec<Line> {
    read_lines(include_bytes!("../golden/levels.jsonl.gz"))
}

fn read_lines(file: &[u8]) -> Vec<Line> {
    BufReader::new(MultiGzDecoder::new(file))
        .lines()
        .enumerate()
        .map(|(index, line)| {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            Line {
                number: index + 1,
                build: line.get("build").cloned(),
                damage: line.get("damage").map(|damage| damage.as_str().unwrap().to_owned()),
                bytes: from_base64(&line["bytes"]).unwrap(),
                describe: line["describe"].clone(),
            }
        })
        .collect()
}

/// Lines that Kafka reads and this crate refuses, with the reason. None so far.
const STRICTER: &[(usize, &str)] = &[];

/// Lines with a fault of the codec shortly behind a fault of the records, where Kafka's buffers decide which of the two
/// comes first: the refusal counts, not its class.
const TWO_FAULTS: &[usize] = &[137, 151, 166, 215, 290, 308];

/// Exceptions that are accidents of the JVM: the refusal counts, not its class.
fn is_accident(damage: &str, class: &str) -> bool {
    match class {
        "OutOfMemoryError"
        | "IndexOutOfBoundsException"
        | "BufferUnderflowException"
        | "NegativeArraySizeException"
        | "SnappyError" => true,
        // A header or message that is too short for its fields.
        "IllegalArgumentException" => matches!(damage, "length" | "magic"),
        _ => false,
    }
}

#[test]
fn what_kafka_reads_is_read_and_what_it_refuses_is_refused() {
    let mut wrong = Vec::new();
    for line in lines().into_iter().chain(levels()) {
        let damage = line.damage.as_deref().unwrap_or("none");
        let got = describe(&line.bytes);
        let stricter = STRICTER.iter().any(|(number, _)| *number == line.number);
        let right = match (&got, line.describe.get("ok"), line.describe["error"].as_str()) {
            (Ok(batches), Some(expected), _) => !stricter && batches == expected,
            (Err(_), Some(_), _) => stricter,
            (Err(error), _, Some(class)) => {
                error.kafka_name() == class || is_accident(damage, class) || TWO_FAULTS.contains(&line.number)
            }
            _ => false,
        };
        if !right {
            let got =
                got.map_or_else(|error| format!("{}: {error}", error.kafka_name()), |ok| ok.to_string());
            wrong.push(format!("line {} ({damage}): {:.600}\n   got {got:.600}", line.number, line.describe));
        }
    }
    assert!(wrong.is_empty(), "{} lines differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_stream_of_records_reads_what_records_read_and_refuses_what_they_refuse() {
    let (mut batches, mut refused) = (0, 0);
    for line in lines() {
        for batch in Batches::new(&line.bytes) {
            let Ok(batch) = batch else { continue };
            let mut scratch = Vec::new();
            let whole: Result<Vec<_>, DecodeError> = batch
                .records(&mut scratch, LIMIT)
                .and_then(|records| records.map(|r| r.map(|r| Owned::of(&r))).collect());
            let streamed = batch.stream_records(LIMIT).and_then(|mut stream| {
                let mut rows = Vec::new();
                while let Some(record) = stream.next() {
                    rows.push(Owned::of(&record?));
                }
                Ok(rows)
            });
            match (&whole, &streamed) {
                (Ok(whole), Ok(streamed)) => assert_eq!(whole, streamed, "line {}", line.number),
                (Err(_), Err(_)) => refused += 1,
                _ => panic!("line {}: {whole:?} and {streamed:?}", line.number),
            }
            batches += 1;
        }
    }
    assert!(batches > 1000 && refused > 300, "{batches} {refused}");
}

/// A described batch of magic 2, built from its description with this codec.
fn rebuilt(batch: &Value, codec: Codec, level: Option<i32>) -> BytesMut {
    let int = |field: &str| batch[field].as_i64().unwrap();
    let flag = |field: &str| batch[field].as_bool().unwrap();
    let max_timestamp = Timestamp::from_raw(int("maxTimestamp"));
    let mut builder = RecordBatchBuilder::new(BatchOptions {
        codec,
        level,
        timestamp_type: timestamp_type(batch),
        log_append_time: max_timestamp,
        base_offset: Offset::new(int("baseOffset")),
        leader_epoch: LeaderEpoch::from_raw(int("leaderEpoch") as i32),
        producer: ProducerId::from_raw(int("producerId")).map(|id| Producer {
            id,
            epoch: ProducerEpoch::new(int("producerEpoch") as i16),
            base_sequence: Sequence::from_raw(int("baseSequence") as i32),
        }),
        transactional: flag("transactional"),
        control: flag("control"),
        delete_horizon: batch["deleteHorizon"].as_i64().map(Timestamp::new),
        last_offset: Some(Offset::new(int("lastOffset"))),
    });
    let mut out = BytesMut::new();
    if int("count") == 0 {
        builder.finish_empty(&mut out, Offset::new(int("lastOffset")), max_timestamp).unwrap();
        return out;
    }
    for record in batch["records"].as_array().unwrap() {
        let headers: Vec<(Vec<u8>, Option<Vec<u8>>)> = record["headers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|header| (header[0].as_str().unwrap().as_bytes().to_vec(), from_base64(&header[1])))
            .collect();
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            headers.iter().map(|(name, value)| (&name[..], value.as_deref())).collect();
        builder
            .append_at(
                Offset::new(record["offset"].as_i64().unwrap()),
                Timestamp::from_raw(record["timestamp"].as_i64().unwrap()),
                from_base64(&record["key"]).as_deref(),
                from_base64(&record["value"]).as_deref(),
                &headers,
            )
            .unwrap();
    }
    assert_eq!(builder.finish(&mut out).unwrap(), Some(out.len()));
    out
}

fn timestamp_type(batch: &Value) -> TimestampType {
    match batch["timestampType"].as_str().unwrap() {
        "LogAppendTime" => TimestampType::LogAppendTime,
        _ => TimestampType::CreateTime,
    }
}

/// Described messages of magic 0 or 1, encoded from their descriptions.
fn rebuilt_legacy(batches: &[Value], codec: Codec) -> BytesMut {
    let mut owned = Vec::new();
    for record in batches.iter().flat_map(|batch| batch["records"].as_array().unwrap()) {
        owned.push((
            record["offset"].as_i64().unwrap(),
            record["timestamp"].as_i64().unwrap(),
            from_base64(&record["key"]),
            from_base64(&record["value"]),
        ));
    }
    let records: Vec<LegacyRecord<'_>> = owned
        .iter()
        .map(|(offset, timestamp, key, value)| LegacyRecord {
            offset: Offset::new(*offset),
            timestamp: Timestamp::from_raw(*timestamp),
            key: key.as_deref(),
            value: value.as_deref(),
        })
        .collect();
    let options = LegacyOptions {
        magic: if batches[0]["magic"] == 0 { Magic::V0 } else { Magic::V1 },
        codec,
        timestamp_type: timestamp_type(&batches[0]),
        log_append_time: Timestamp::from_raw(batches[0]["maxTimestamp"].as_i64().unwrap()),
        base_offset: Offset::new(batches[0]["baseOffset"].as_i64().unwrap()),
        ..LegacyOptions::default()
    };
    let mut out = BytesMut::new();
    legacy::encode(&options, &records, &mut out).unwrap();
    out
}

/// What a description says apart from what compressed bytes decide.
fn content(mut batches: Value) -> Value {
    for batch in batches.as_array_mut().unwrap() {
        let batch = batch.as_object_mut().unwrap();
        for field in ["size", "crc", "position"] {
            batch.remove(field);
        }
    }
    batches
}

#[test]
fn what_kafka_writes_is_written_again() {
    assert_eq!(write_again(&lines()), (29, 124));
}

#[test]
fn what_kafka_writes_at_every_level_and_with_every_attribute_is_written_again() {
    let lines = levels();
    assert_eq!(write_again(&lines), (11, 96));
    // Nothing was left out.
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let of_codec = |line: &&Line| line.build.as_ref().unwrap()["codec"] == codec.to_string();
        let seen: Vec<i64> = lines
            .iter()
            .filter(of_codec)
            .filter_map(|line| line.build.as_ref().unwrap().get("level")?.as_i64())
            .collect();
        let expected: Vec<i64> = match codec {
            Codec::Gzip => [-1].into_iter().chain(1..=9).collect(),
            Codec::Lz4 => (1..=17).collect(),
            _ => [-131_072, -100, -7, -3, -1].into_iter().chain(0..=22).collect(),
        };
        assert_eq!(seen, expected, "{codec}");
    }
    let kinds: BTreeSet<String> = lines
        .iter()
        .map(|line| &line.describe["ok"][0])
        .map(|batch| {
            let of = |field: &str| batch[field].to_string();
            let horizon = !batch["deleteHorizon"].is_null();
            format!(
                "{} {} {} {} {horizon}",
                of("magic"),
                of("codec"),
                of("timestampType"),
                of("transactional")
            )
        })
        .collect();
    // Five codecs with three flags, four codecs under magic 0, and with either time under magic 1.
    assert_eq!(kinds.len(), 5 * 8 + 4 + 8, "{kinds:?}");
}

/// Writes batches from their descriptions; how many came out the same byte for byte, and how many the same in content.
fn write_again(lines: &[Line]) -> (usize, usize) {
    let (mut identical, mut equal) = (0, 0);
    for line in lines {
        let Some(build) = &line.build else { continue };
        let described = &line.describe["ok"];
        let batches = described.as_array().unwrap();
        let [first, ..] = &batches[..] else {
            assert!(line.bytes.is_empty(), "line {}", line.number);
            continue;
        };
        let codec: Codec = first["codec"].as_str().unwrap().parse().unwrap();
        let level = build.get("level").map(|level| level.as_i64().unwrap() as i32);
        let rebuild = |codec| {
            if first["magic"] == 2 {
                // The records of an append-time batch all read as its time; their own is in the recipe.
                let mut batch = first.clone();
                if let (TimestampType::LogAppendTime, Some(given)) =
                    (timestamp_type(first), build.get("records"))
                {
                    for (record, given) in
                        batch["records"].as_array_mut().unwrap().iter_mut().zip(given.as_array().unwrap())
                    {
                        record["timestamp"] = given.get("timestamp").cloned().unwrap_or(0.into());
                    }
                }
                rebuilt(&batch, codec, level)
            } else {
                rebuilt_legacy(batches, codec)
            }
        };
        let out = rebuild(codec);
        if codec == Codec::None {
            assert!(out == line.bytes, "line {}: {out:x?}\ninstead of {:x?}", line.number, line.bytes);
            identical += 1;
        } else {
            let again = describe(&out).unwrap();
            assert_eq!(content(again), content(described.clone()), "line {}", line.number);
            equal += 1;
        }
    }
    (identical, equal)
}

#[test]
fn control_batches_are_parsed_and_encoded_as_kafka_does() {
    let mut kinds = Vec::new();
    for line in lines() {
        let Some(build) = line.build.filter(|build| build["op"] != "build") else { continue };
        let int = |field: &str| build.get(field).map_or(0, |value| value.as_i64().unwrap());
        let batch = Batch::parse(&line.bytes).unwrap();
        let mut scratch = Vec::new();
        let record = batch.records(&mut scratch, LIMIT).unwrap().next().unwrap().unwrap();
        let kind = ControlKey::parse(record.key().unwrap()).unwrap().kind;
        let epoch = batch.leader_epoch();
        let offset = batch.base_offset().unwrap();
        let timestamp = record.timestamp().unwrap();
        let mut out = BytesMut::new();
        if matches!(kind, ControlType::Commit | ControlType::Abort) {
            let marker = EndTransactionMarker::parse(record.key(), record.value()).unwrap();
            assert_eq!(marker.committed, build["kind"] == "commit");
            assert_eq!(i64::from(marker.coordinator_epoch), int("coordinatorEpoch"));
            let producer = (batch.producer_id().unwrap(), batch.producer_epoch().unwrap());
            marker.encode_batch(offset, timestamp, epoch, producer, &mut out).unwrap();
        } else {
            let message = kraft::Message::parse(kind, record.value().unwrap()).unwrap();
            message.encode_batch(offset, timestamp, epoch, &mut out).unwrap();
        }
        assert_eq!(out, line.bytes, "{build}");
        kinds.push(kind.name());
    }
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        [
            "ABORT",
            "COMMIT",
            "KRAFT_VERSION",
            "KRAFT_VOTERS",
            "LEADER_CHANGE",
            "SNAPSHOT_FOOTER",
            "SNAPSHOT_HEADER"
        ]
    );
}
