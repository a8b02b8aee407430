//! Stories of compaction: many producers with and without transactions, tombstones, records without keys, rounds of
//! the cleaner with large and with small maps, crashes and truncations between them.
//!
//! Nothing is compressed: what a rebuilt batch takes depends on the library, and with it positions and index entries. Index
//! files are large enough for every round (row 8 of the table), transactions begin behind the log start (row 9), marks lie at
//! ends of batches that no round has touched (row 6), and a round begins with a segment (row 35).

use std::path::Path;

use serde_json::{Map, Value, json};

use super::super::compare::View;
use super::super::folders::copied;
use super::super::golden::temporary;
use super::super::story::Story;
use super::tale::{Chance, Tale};
use crate::replay::base64;

/// The partition.
const FOLDER: &str = "random-0";
const PRODUCERS: usize = 5;
const KEYS: u64 = 9;

/// A producer as the story knows it.
#[derive(Debug, Clone, Copy, Default)]
struct Producer {
    epoch: i64,
    sequence: i64,
    /// Uses transactions.
    transactional: bool,
    open: bool,
}

/// A story in the making.
struct Making<'a> {
    tale: Tale<'a>,
    producers: [Producer; PRODUCERS],
    /// Markers carry the next epoch (KIP-890).
    version_2: bool,
    config: Value,
    end: i64,
    active: i64,
    /// Base offsets of the segments.
    bases: Vec<i64>,
    dirty: i64,
    stable: i64,
    /// Offset of the last marker.
    marked: i64,
    written: u64,
}

/// Makes a story: its lines and Kafka's answers.
///
/// # Errors
/// The oracle ends.
pub(super) fn made(tale: Tale<'_>, steps: u32) -> Result<(Story, Vec<Value>), String> {
    let mut making = Making::begin(tale);
    making.open(true, 0)?;
    for _ in 0..steps {
        making.step()?;
    }
    making.end()
}

/// Has Kafka fill a folder below `place` as a story says, and lets Kafka clean it, and kseg a copy of it: the same records at
/// the same offsets, in the same files. Returns how many lines there were, and what differs.
///
/// # Errors
/// As [`made`], or a file cannot be read or written.
pub(super) fn same_folder(tale: Tale<'_>, steps: u32, place: &Path) -> Result<(usize, Vec<String>), String> {
    let copy = temporary()?;
    let mut making = Making::begin(tale);
    making.open(true, 0)?;
    for _ in 0..steps {
        making.step()?;
    }
    making.put(json!({"op": "close"}))?;
    copied(&place.join(FOLDER), &copy.path().join(FOLDER))?;
    let begun = making.tale.story.lines.len();
    making.open(true, 1 << 40)?;
    making.dirty = 0;
    let (mut story, mut answers) = making.end()?;
    let lines = story.lines.len();
    story.lines.drain(..begun);
    Ok((lines, story.play(copy.path(), &answers.split_off(begun), View::Whole)?))
}

impl<'a> Making<'a> {
    /// A story that begins in a folder that is empty.
    fn begin(mut tale: Tale<'a>) -> Making<'a> {
        let mut producers = [Producer::default(); PRODUCERS];
        for producer in producers.iter_mut().skip(1) {
            producer.transactional = tale.chance.one_in(2);
        }
        let version_2 = tale.chance.one_in(3);
        let config = config(&mut tale.chance);
        Making {
            tale,
            producers,
            version_2,
            config,
            end: 0,
            active: 0,
            bases: Vec::new(),
            dirty: 0,
            stable: 0,
            marked: -1,
            written: 0,
        }
    }

    /// A last round, and all that it left.
    fn end(mut self) -> Result<(Story, Vec<Value>), String> {
        self.clean()?;
        self.put(json!({"op": "aborted", "from": 0, "to": self.end}))?;
        self.put(json!({"op": "sleep", "ms": 60_000}))?;
        self.put(json!({"op": "close"}))?;
        self.put(json!({"op": "files"}))?;
        Ok((self.tale.story, self.tale.answers))
    }
}

fn config(chance: &mut Chance) -> Value {
    let mut config = Map::new();
    let mut set = |key: &str, value: i64| {
        config.insert(key.to_owned(), Value::String(value.to_string()));
    };
    set("internal.segment.bytes", 300 + chance.long(1500));
    set("index.interval.bytes", chance.long(400));
    set("segment.index.bytes", 8192);
    set("file.delete.delay.ms", if chance.one_in(2) { 0 } else { 1000 });
    set("delete.retention.ms", 500 + chance.long(4000));
    if chance.one_in(4) {
        config.insert("message.timestamp.type".to_owned(), Value::from("LogAppendTime"));
    }
    if chance.one_in(5) {
        config.insert("preallocate".to_owned(), Value::from("true"));
    }
    Value::Object(config)
}

impl Making<'_> {
    /// Puts one operation to Kafka.
    fn put(&mut self, op: Value) -> Result<Value, String> {
        self.tale.put(op)
    }

    fn open(&mut self, clean: bool, recovery_point: i64) -> Result<(), String> {
        let config = self.config.clone();
        self.put(json!({
            "op": "open", "dir": "$DIR/random-0", "config": config, "clean": clean,
            "recoveryPoint": recovery_point, "now": self.tale.now,
        }))?;
        self.look()
    }

    fn look(&mut self) -> Result<(), String> {
        self.put(json!({"op": "highWatermark", "offset": self.end + 1}))?;
        let op = json!({"op": "state", "indexes": self.tale.chance.one_in(2)});
        let state = self.put(op)?;
        let number = |name: &str| state["ok"][name].as_i64();
        self.end = number("logEnd").unwrap_or(self.end);
        self.stable = number("lastStable").unwrap_or(self.stable);
        self.dirty = self.dirty.min(self.end);
        let segments = state["ok"]["segments"].as_array();
        self.bases = segments.into_iter().flatten().filter_map(|s| s["base"].as_i64()).collect();
        self.active = self.bases.last().copied().unwrap_or(self.active);
        Ok(())
    }

    fn records(&mut self) -> Vec<Value> {
        let count = 1 + self.tale.chance.below(4);
        (0..count)
            .map(|_| {
                let key = base64(format!("key{}", self.tale.chance.below(KEYS)).as_bytes());
                let key = if self.tale.chance.one_in(25) { Value::Null } else { Value::from(key) };
                let size = usize::try_from(self.tale.chance.below(80)).unwrap_or(0);
                self.written += 1;
                let value = base64(&[format!("{}-", self.written).as_bytes(), &vec![b'v'; size]].concat());
                let value = if self.tale.chance.one_in(6) { Value::Null } else { Value::from(value) };
                json!({"timestamp": self.tale.now - 2000 + self.tale.chance.long(4000), "key": key, "value": value})
            })
            .collect()
    }

    /// A batch of one of the producers; number 0 writes without an id.
    fn append(&mut self) -> Result<(), String> {
        let number = usize::try_from(self.tale.chance.below(PRODUCERS as u64)).unwrap_or(0);
        let records = self.records();
        let mut batch = json!({"records": records});
        let producer = self.producers[number];
        if number > 0 {
            batch["producerId"] = json!(number);
            batch["producerEpoch"] = json!(producer.epoch);
            batch["baseSequence"] = json!(producer.sequence);
            if producer.transactional {
                batch["transactional"] = json!(true);
            }
        }
        let answer = self.put(json!({"op": "append", "epoch": 0, "batch": batch}))?;
        if let Some(last) = answer["ok"]["last"].as_i64().filter(|last| *last >= 0) {
            self.end = self.end.max(last + 1);
            self.producers[number].sequence += records.len() as i64;
            self.producers[number].open = producer.transactional;
        }
        Ok(())
    }

    fn end_transaction(&mut self) -> Result<(), String> {
        let open: Vec<usize> = (0..PRODUCERS).filter(|n| self.producers[*n].open).collect();
        let number = match self.tale.chance.pick(&open) {
            Some(number) => *number,
            // A marker of nothing, now and then.
            None if self.tale.chance.one_in(4) => 1,
            None => return Ok(()),
        };
        let kind = if self.tale.chance.one_in(2) { "commit" } else { "abort" };
        let epoch = self.producers[number].epoch + i64::from(self.version_2);
        let marker = json!({
            "kind": kind, "producerId": number, "producerEpoch": epoch, "timestamp": self.tale.now, "coordinatorEpoch": 0,
        });
        let version = if self.version_2 { 2 } else { 0 };
        let answer = self.put(json!({
            "op": "append", "epoch": 0, "origin": "coordinator", "marker": marker, "transactionVersion": version,
        }))?;
        if answer.get("ok").is_some() {
            self.marked = self.end;
            self.end += 1;
            let producer = &mut self.producers[number];
            producer.open = false;
            if epoch != producer.epoch {
                (producer.epoch, producer.sequence) = (epoch, 0);
            }
        }
        Ok(())
    }

    /// A round up to the last stable offset, from where the last one ended.
    fn clean(&mut self) -> Result<(), String> {
        self.look()?;
        let uncleanable = self.stable.min(self.active);
        if self.dirty > uncleanable {
            self.dirty = 0;
        }
        let mut op = json!({"op": "clean", "dirty": self.dirty, "uncleanable": uncleanable});
        if self.tale.chance.one_in(3) {
            op["mapBytes"] = json!(24 * (3 + self.tale.chance.below(9)));
        }
        let answer = self.put(op)?;
        if let Some(next) = answer["ok"]["nextDirty"].as_i64().filter(|next| *next > 0) {
            self.dirty = next;
        }
        self.look()?;
        // From inside a segment Kafka may take committed transactions for aborted (row 35).
        self.dirty = self.bases.iter().copied().filter(|base| *base <= self.dirty).max().unwrap_or(0);
        let read =
            json!({"op": "read", "offset": 0, "max": 1 << 20, "records": true, "isolation": "committed"});
        self.put(read)?;
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        match self.tale.chance.below(40) {
            0..=17 => self.append()?,
            18..=23 => self.end_transaction()?,
            24..=27 => drop(self.put(json!({"op": "roll"}))?),
            28..=32 => self.clean()?,
            33 | 34 => {
                let op = json!({"op": "sleep", "ms": 1 + self.tale.chance.long(3000)});
                self.put(op)?;
            }
            35 => {
                let op = json!({"op": "timestamp", "timestamp": self.tale.now - 3000 + self.tale.chance.long(4000)});
                self.put(op)?;
            }
            36 => {
                let offset = self.tale.chance.long(self.end + 1);
                self.put(json!({"op": "read", "offset": offset, "max": 2000, "records": true}))?;
            }
            37 => {
                self.tale.let_delays_pass()?;
                self.put(json!({"op": "close"}))?;
                self.open(true, 1 << 40)?;
            }
            38 => {
                self.tale.let_delays_pass()?;
                self.put(json!({"op": "abandon"}))?;
                self.open(false, 0)?;
            }
            39 if self.marked < self.active => {
                // The active segment's batches go; were a marker among them, its transaction would be open again though a
                // round has dropped its data.
                let to = self.active;
                self.put(json!({"op": "truncate", "offset": to}))?;
                self.producers.iter_mut().for_each(|p| p.open = false);
                self.look()?;
            }
            _ => {}
        }
        Ok(())
    }
}
