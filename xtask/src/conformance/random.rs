//! Random stories: operations drawn by chance are put to Kafka one by one, each chosen with its answers so far in mind,
//! and the story that comes of it is then played to kseg.
//!
//! Marks and truncations stay at ends of batches: inside one, kseg means to differ (row 6 of the table).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::compare::View;
use super::golden::{temporary, verdict};
use super::oracle::Oracle;
use super::story::Story;
use crate::replay::base64;
use crate::workspace;

/// The beginning of every random story's name; its `files` are compared without the stale bytes of open indexes.
pub(crate) const PREFIX: &str = "random-";

/// Bytes of an index that hold an entry for every batch of the largest segment there is here: 1800 bytes, of batches of at
/// least 69.
const INDEX_ROOM: u64 = 400;

const START: i64 = 1_700_000_000_000;

/// Repeatable numbers, spread well enough for choosing (xorshift64*).
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % bound.max(1)
    }

    pub(super) fn long(&mut self, bound: i64) -> i64 {
        i64::try_from(self.below(u64::try_from(bound).unwrap_or(1))).unwrap_or(0)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let n = self.below(of.len() as u64);
        of.get(usize::try_from(n).unwrap_or(0))
    }
}

/// A story in the making.
struct Making {
    chance: Chance,
    oracle: Oracle,
    place: String,
    story: Story,
    answers: Vec<Value>,
    /// The offsets behind batches that are there, ascending.
    ends: Vec<i64>,
    start: i64,
    end: i64,
    high: i64,
    epoch: i64,
    now: i64,
    flushed: i64,
}

/// Makes the story of `seed` and plays it. Where they differ, the story is kept and named.
///
/// # Errors
/// The oracle ends, or a file cannot be written.
pub(crate) fn story(seed: u64, length: u32) -> Result<Vec<String>, String> {
    let folder = temporary()?;
    let mut making = Making {
        chance: Chance::new(seed),
        oracle: Oracle::start(&["replay"])?,
        place: folder.path().to_string_lossy().into_owned(),
        story: Story { name: format!("{PREFIX}{seed}"), lines: Vec::new() },
        answers: Vec::new(),
        ends: Vec::new(),
        start: 0,
        end: 0,
        high: 0,
        epoch: 0,
        now: START,
        flushed: 0,
    };
    let mut config = making.config();
    making.open(&config, true, 0)?;
    for _ in 0..length {
        making.step(&mut config)?;
    }
    making.put(json!({"op": "state"}))?;
    making.put(json!({"op": "close"}))?;
    making.put(json!({"op": "files"}))?;
    let Making { oracle, story, answers, .. } = making;
    drop(oracle);
    judged(&story, &answers, folder.path())
}

/// Plays a story to kseg. Where it differs from Kafka's answers and what Kafka left, the story is kept and named.
///
/// # Errors
/// A file cannot be read or written.
pub(super) fn judged(story: &Story, answers: &[Value], left: &Path) -> Result<Vec<String>, String> {
    let verdict = verdict(story, answers, left)?;
    if verdict.agrees == Some(View::Whole) {
        return Ok(Vec::new());
    }
    let kept: PathBuf = workspace::load()?.target.join(format!("{}.jsonl", story.name));
    let text = format!("# a random story in which kseg and Kafka differ\n{}\n", story.lines.join("\n"));
    fs::write(&kept, text).map_err(|e| format!("{}: {e}", kept.display()))?;
    let mut found = verdict.found;
    found.truncate(5);
    found.push(format!("{}: the story is kept as {}", story.name, kept.display()));
    Ok(found)
}

impl Making {
    /// Puts one operation to Kafka.
    fn put(&mut self, op: Value) -> Result<Value, String> {
        let line = op.to_string();
        let answer = self.oracle.ask(&line.replace("$DIR", &self.place))?;
        self.story.lines.push(line);
        self.answers.push(answer.clone());
        if let Some(now) = answer.pointer("/ok/now").and_then(Value::as_i64) {
            self.now = now;
        }
        Ok(answer)
    }

    /// Asks for the offsets as they are, which an operation may have moved.
    fn look(&mut self) -> Result<(), String> {
        let op = json!({"op": "state", "indexes": self.chance.one_in(2)});
        let state = self.put(op)?;
        let number = |name: &str| state["ok"][name].as_i64();
        self.start = number("logStart").unwrap_or(self.start);
        self.end = number("logEnd").unwrap_or(self.end);
        self.high = number("highWatermark").unwrap_or(self.high);
        let (start, end) = (self.start, self.end);
        self.ends.retain(|e| (start..=end).contains(e));
        Ok(())
    }

    fn config(&mut self) -> Value {
        let mut config = Map::new();
        let mut set = |key: &str, value: i64| {
            config.insert(key.to_owned(), Value::String(value.to_string()));
        };
        set("internal.segment.bytes", 300 + self.chance.long(1500));
        set("index.interval.bytes", self.chance.long(400));
        set("segment.index.bytes", 48 + self.chance.long(400));
        set("file.delete.delay.ms", [0, 1000, 60_000][usize::try_from(self.chance.below(3)).unwrap_or(0)]);
        if self.chance.one_in(2) {
            set("retention.bytes", 500 + self.chance.long(3000));
        }
        if self.chance.one_in(2) {
            set("retention.ms", 1000 + self.chance.long(20_000));
        }
        if self.chance.one_in(3) {
            set("segment.ms", 500 + self.chance.long(10_000));
        }
        if self.chance.one_in(4) {
            config.insert("message.timestamp.type".to_owned(), Value::from("LogAppendTime"));
        }
        if self.chance.one_in(5) {
            config.insert("preallocate".to_owned(), Value::from("true"));
        }
        Value::Object(config)
    }

    fn open(&mut self, config: &Value, clean: bool, recovery_point: i64) -> Result<(), String> {
        let start = self.start;
        let mut config = config.clone();
        let room = config["segment.index.bytes"].as_str().and_then(|room| room.parse().ok()).unwrap_or(0);
        if !clean && room < INDEX_ROOM {
            // Segments that were filled under other settings: Kafka does not start where their indexes are full (row 10).
            config["segment.index.bytes"] = Value::from(INDEX_ROOM.to_string());
        }
        self.put(json!({
            "op": "open", "dir": "$DIR/random-0", "config": config, "clean": clean,
            "recoveryPoint": recovery_point, "logStart": start, "now": self.now,
        }))?;
        self.look()
    }

    fn records(&mut self) -> Value {
        let count = 1 + self.chance.below(4);
        let codec = if self.chance.one_in(5) { "gzip" } else { "none" };
        let records: Vec<Value> = (0..count)
            .map(|_| {
                let size = usize::try_from(self.chance.below(120)).unwrap_or(0);
                let value = if self.chance.one_in(10) { Value::Null } else { Value::from(base64(&vec![b'v'; size])) };
                json!({"timestamp": self.now - 2000 + self.chance.long(4000), "key": base64(b"k"), "value": value})
            })
            .collect();
        json!({"codec": codec, "records": records})
    }

    fn step(&mut self, config: &mut Value) -> Result<(), String> {
        match self.chance.below(40) {
            0..=11 => {
                if self.chance.one_in(12) {
                    self.epoch += 1 + self.chance.long(2);
                }
                let batch = self.records();
                let answer = self.put(json!({"op": "append", "epoch": self.epoch, "batch": batch}))?;
                self.appended(&answer);
            }
            12..=14 => {
                let mut batch = self.records();
                // A gap behind a mark would leave that mark in it.
                let marked = self.high == self.end || self.start == self.end;
                let gap = if !marked && self.chance.one_in(3) { self.chance.long(50) } else { 0 };
                if gap > 0 {
                    let end = self.end;
                    self.ends.retain(|e| *e != end);
                }
                batch["baseOffset"] = json!(self.end + gap);
                batch["leaderEpoch"] = json!(self.epoch);
                let answer = self.put(json!({"op": "follow", "epoch": self.epoch, "batch": batch}))?;
                self.appended(&answer);
            }
            15 => drop(self.put(json!({"op": "roll"}))?),
            16 => {
                let op = json!({"op": "flush", "force": self.chance.one_in(2)});
                let answer = self.put(op)?;
                self.flushed = answer["ok"]["recoveryPoint"].as_i64().unwrap_or(self.flushed);
            }
            17..=19 => {
                let to = self.chance.pick(&self.ends).copied().unwrap_or(self.start);
                self.put(json!({"op": "highWatermark", "offset": to}))?;
                self.look()?;
            }
            20 => {
                let high = self.high;
                let below: Vec<i64> = self.ends.iter().copied().filter(|e| *e <= high).collect();
                let to = self.chance.pick(&below).copied().unwrap_or(self.start);
                self.put(json!({"op": "startOffset", "offset": to}))?;
                self.look()?;
            }
            21 => {
                let to = self.chance.pick(&self.ends).copied().unwrap_or(self.end);
                self.put(json!({"op": "truncate", "offset": to}))?;
                self.look()?;
            }
            22 if self.chance.one_in(4) => {
                let op = json!({"op": "truncateFully", "offset": self.end + self.chance.long(100)});
                self.put(op)?;
                self.look()?;
            }
            23 | 24 => {
                self.put(json!({"op": "retain"}))?;
                self.look()?;
            }
            25 | 26 => {
                let op = json!({"op": "sleep", "ms": 1 + self.chance.long(5000)});
                self.put(op)?;
            }
            27 => {
                *config = self.config();
                self.put(json!({"op": "config", "config": config}))?;
            }
            28 => {
                let op = json!({"op": "epochEnd", "epoch": self.chance.long(self.epoch + 3) - 1});
                self.put(op)?;
            }
            29 if self.chance.one_in(3) => {
                self.epoch += 1;
                self.put(json!({"op": "epoch", "epoch": self.epoch, "offset": self.end}))?;
            }
            30..=33 => {
                let isolation = ["log_end", "high_watermark", "committed"];
                let isolation = isolation[usize::try_from(self.chance.below(3)).unwrap_or(0)];
                let offset = self.start - 1 + self.chance.long(self.end - self.start + 3);
                let max = 1 + self.chance.long(2000);
                let op = json!({
                    "op": "read", "offset": offset, "max": max, "isolation": isolation,
                    "minOne": self.chance.one_in(2), "records": self.chance.one_in(3),
                });
                self.put(op)?;
            }
            34 | 35 => {
                let at = if self.chance.one_in(4) {
                    -1 - self.chance.long(4)
                } else {
                    self.now - 10_000 + self.chance.long(12_000)
                };
                self.put(json!({"op": "timestamp", "timestamp": at}))?;
            }
            36 => drop(self.put(json!({"op": "files"}))?),
            37 => self.look()?,
            38 => {
                self.put(json!({"op": "close"}))?;
                let all = 1 << 40;
                self.open(&config.clone(), true, all)?;
            }
            39 => {
                self.put(json!({"op": "abandon"}))?;
                let point = if self.chance.one_in(2) { 0 } else { self.flushed.min(self.end) };
                self.open(&config.clone(), false, point)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn appended(&mut self, answer: &Value) {
        if let Some(last) = answer["ok"]["last"].as_i64().filter(|l| *l >= 0) {
            self.end = last + 1;
            self.ends.push(last + 1);
        }
    }
}
