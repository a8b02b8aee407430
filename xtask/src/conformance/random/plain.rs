//! Stories of one log: appends of many producers and of a leader, transactions, markers, verifications, rolls, truncation,
//! retention, epochs, expiry, orderly and other reopening, and damage in between.
//!
//! Marks and truncations stay at ends of batches: inside one, kseg means to differ (row 6 of the table). Damage comes only
//! where both recover: after an orderly stop kseg mends what Kafka takes as it is (rows 1, 2 and 4).

use serde_json::{Map, Value, json};

use super::super::story::Story;
use super::tale::Tale;
use crate::replay::{base64, decoded};

/// Bytes of an index that hold an entry for every batch of the largest segment there is here: 1800 bytes, of batches of at
/// least 69.
const INDEX_ROOM: u64 = 400;

/// Producers with an id, 1 and up; below 16, where Kafka's snapshots have them in order (row 14).
const PRODUCERS: usize = 5;

/// Sequences go round behind 2^31 - 1.
const SEQUENCES: i64 = 1 << 31;

/// What a story is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Batches without producers.
    Plain,
    /// Idempotent and transactional producers too.
    Producers,
    /// As that, and files are damaged when the process has died.
    Damage,
}

/// A producer as the story knows it.
#[derive(Debug, Clone, Default)]
struct Producer {
    epoch: i64,
    /// The next one.
    sequence: i64,
    /// Uses transactions.
    transactional: bool,
    open: bool,
    coordinator_epoch: i64,
    /// The guard of its next transaction.
    guard: Option<i64>,
    /// Batches of late, to be sent again.
    sent: Vec<Value>,
}

/// A story in the making.
struct Making<'a> {
    tale: Tale<'a>,
    kind: Kind,
    producers: [Producer; PRODUCERS],
    /// Transactions begin only when verified.
    verification: bool,
    /// Each transaction has an epoch of its own (KIP-890).
    version_2: bool,
    /// Several batches come in one append; then an index always has room for all of them (row 7).
    sets: bool,
    expiration: i64,
    /// The offsets behind batches that are there, ascending.
    ends: Vec<i64>,
    segments: Vec<i64>,
    start: i64,
    end: i64,
    high: i64,
    epoch: i64,
    flushed: i64,
}

/// Makes a story: its lines and Kafka's answers.
///
/// # Errors
/// The oracle ends.
pub(super) fn made(mut tale: Tale<'_>, steps: u32, kind: Kind) -> Result<(Story, Vec<Value>), String> {
    let mut producers: [Producer; PRODUCERS] = Default::default();
    for producer in &mut producers {
        producer.transactional = tale.chance.one_in(2);
        if tale.chance.one_in(4) {
            producer.sequence = SEQUENCES - 1 - tale.chance.long(12);
        }
    }
    let (verification, version_2) = (tale.chance.one_in(3), tale.chance.one_in(2));
    let sets = tale.chance.one_in(3);
    let expiration = if tale.chance.one_in(3) { 1000 + tale.chance.long(600_000) } else { 86_400_000 };
    let mut making = Making {
        tale,
        kind,
        producers,
        verification,
        version_2,
        sets,
        expiration,
        ends: Vec::new(),
        segments: vec![0],
        start: 0,
        end: 0,
        high: 0,
        epoch: 0,
        flushed: 0,
    };
    let mut config = making.config();
    making.open(&config, true, 0, 0)?;
    for _ in 0..steps {
        making.step(&mut config)?;
    }
    making.put(json!({"op": "state"}))?;
    making.put(json!({"op": "close"}))?;
    making.put(json!({"op": "files"}))?;
    Ok((making.tale.story, making.tale.answers))
}

impl Making<'_> {
    /// Puts one operation to Kafka.
    fn put(&mut self, op: Value) -> Result<Value, String> {
        self.tale.put(op)
    }

    /// Asks for the offsets and producers as they are, which an operation may have moved.
    fn look(&mut self) -> Result<(), String> {
        let op = json!({"op": "state", "indexes": self.tale.chance.one_in(2)});
        let state = self.put(op)?;
        let number = |name: &str| state["ok"][name].as_i64();
        self.start = number("logStart").unwrap_or(self.start);
        self.end = number("logEnd").unwrap_or(self.end);
        self.high = number("highWatermark").unwrap_or(self.high);
        let (start, end) = (self.start, self.end);
        self.ends.retain(|e| (start..=end).contains(e));
        let bases = state["ok"]["segments"].as_array().into_iter().flatten();
        self.segments = bases.filter_map(|s| s["base"].as_i64()).collect();
        let known: Vec<&Value> = state["ok"]["producers"].as_array().into_iter().flatten().collect();
        for (n, producer) in self.producers.iter_mut().enumerate() {
            let Some(entry) = known.iter().find(|p| p["id"].as_i64() == Some(n as i64 + 1)) else {
                producer.open = false;
                continue;
            };
            producer.epoch = entry["epoch"].as_i64().unwrap_or(producer.epoch);
            producer.open = entry["txnFirstOffset"].is_i64();
            let last = entry["batches"].as_array().and_then(|b| b.last()).and_then(|b| b[1].as_i64());
            producer.sequence = last.map_or(0, |last| (last + 1) % SEQUENCES);
        }
        Ok(())
    }

    /// After a truncation: Kafka finds the first unstable offset anew when the high watermark is set or a read looks for it.
    fn refresh(&mut self, end: i64) -> Result<(), String> {
        self.put(json!({"op": "highWatermark", "offset": self.high.min(end)}))?;
        self.look()
    }

    fn config(&mut self) -> Value {
        let mut config = Map::new();
        let mut set = |key: &str, value: i64| {
            config.insert(key.to_owned(), Value::String(value.to_string()));
        };
        set("internal.segment.bytes", 300 + self.tale.chance.long(1500));
        set("index.interval.bytes", self.tale.chance.long(400));
        let least = if self.sets { INDEX_ROOM.cast_signed() } else { 48 };
        set("segment.index.bytes", least + self.tale.chance.long(400));
        // What Kafka cuts away it deletes, and kseg keeps it (row 3): not to be seen where it is deleted at once.
        let delays = if self.kind == Kind::Damage { 1 } else { 3 };
        set(
            "file.delete.delay.ms",
            [0, 1000, 60_000][usize::try_from(self.tale.chance.below(delays)).unwrap_or(0)],
        );
        if self.tale.chance.one_in(2) {
            set("retention.bytes", 500 + self.tale.chance.long(3000));
        }
        if self.tale.chance.one_in(2) {
            set("retention.ms", 1000 + self.tale.chance.long(20_000));
        }
        if self.tale.chance.one_in(3) {
            set("segment.ms", 500 + self.tale.chance.long(10_000));
        }
        if self.tale.chance.one_in(4) {
            config.insert("message.timestamp.type".to_owned(), Value::from("LogAppendTime"));
        }
        if self.tale.chance.one_in(5) {
            config.insert("preallocate".to_owned(), Value::from("true"));
        }
        Value::Object(config)
    }

    /// With room for indexes of `least` bytes.
    fn open(&mut self, config: &Value, clean: bool, recovery_point: i64, least: u64) -> Result<(), String> {
        let start = self.start;
        let mut config = config.clone();
        let room = config["segment.index.bytes"].as_str().and_then(|room| room.parse().ok()).unwrap_or(0);
        if room < least {
            config["segment.index.bytes"] = Value::from(least.to_string());
        }
        self.put(json!({
            "op": "open", "dir": "$DIR/random-0", "config": config, "clean": clean,
            "recoveryPoint": recovery_point, "logStart": start, "now": self.tale.now,
            "verification": self.verification, "producerExpirationMs": self.expiration,
        }))?;
        self.producers.iter_mut().for_each(|p| p.guard = None);
        self.look()
    }

    fn records(&mut self) -> Value {
        let count = 1 + self.tale.chance.below(4);
        let codec = if self.tale.chance.one_in(5) { "gzip" } else { "none" };
        let records: Vec<Value> = (0..count)
            .map(|_| {
                let size = usize::try_from(self.tale.chance.below(120)).unwrap_or(0);
                let value = if self.tale.chance.one_in(10) { Value::Null } else { Value::from(base64(&vec![b'v'; size])) };
                json!({"timestamp": self.tale.now - 2000 + self.tale.chance.long(4000), "key": base64(b"k"), "value": value})
            })
            .collect();
        json!({"codec": codec, "records": records})
    }

    fn step(&mut self, config: &mut Value) -> Result<(), String> {
        let ops = if self.kind == Kind::Plain { 40 } else { 64 };
        match self.tale.chance.below(ops) {
            0..=11 => {
                if self.tale.chance.one_in(12) {
                    self.epoch += 1 + self.tale.chance.long(2);
                }
                let batch = self.records();
                let answer = self.put(json!({"op": "append", "epoch": self.epoch, "batch": batch}))?;
                self.appended(&answer);
            }
            12..=14 if self.sets && self.tale.chance.one_in(3) => self.follow_set()?,
            12..=14 => {
                let mut batch = self.records();
                // A gap behind a mark would leave that mark in it.
                let marked = self.high == self.end || self.start == self.end;
                let far = if self.tale.chance.one_in(20) { 3 << 30 } else { 50 };
                let gap = if !marked && self.tale.chance.one_in(3) { self.tale.chance.long(far) } else { 0 };
                if gap > 0 {
                    let end = self.end;
                    self.ends.retain(|e| *e != end);
                }
                batch["baseOffset"] = json!(self.end + gap);
                batch["leaderEpoch"] = json!(self.epoch);
                if self.tale.chance.one_in(8) {
                    let far = if self.tale.chance.one_in(4) { i64::from(i32::MAX) } else { 50 };
                    self.sparse(&mut batch, far);
                }
                let answer = self.put(json!({"op": "follow", "epoch": self.epoch, "batch": batch}))?;
                self.appended(&answer);
            }
            15 => drop(self.put(json!({"op": "roll"}))?),
            16 => {
                let op = json!({"op": "flush", "force": self.tale.chance.one_in(2)});
                let answer = self.put(op)?;
                self.flushed = answer["ok"]["recoveryPoint"].as_i64().unwrap_or(self.flushed);
            }
            17..=19 => {
                let to = self.tale.chance.pick(&self.ends).copied().unwrap_or(self.start);
                self.put(json!({"op": "highWatermark", "offset": to}))?;
                self.look()?;
            }
            20 => {
                let high = self.high;
                let below: Vec<i64> = self.ends.iter().copied().filter(|e| *e <= high).collect();
                let to = self.tale.chance.pick(&below).copied().unwrap_or(self.start);
                self.put(json!({"op": "startOffset", "offset": to}))?;
                self.look()?;
            }
            21 => {
                let to = self.tale.chance.pick(&self.ends).copied().unwrap_or(self.end);
                self.put(json!({"op": "truncate", "offset": to}))?;
                self.refresh(to)?;
            }
            22 if self.tale.chance.one_in(4) => {
                let to = self.end + self.tale.chance.long(100);
                self.put(json!({"op": "truncateFully", "offset": to}))?;
                self.refresh(to)?;
            }
            23 | 24 => {
                self.put(json!({"op": "retain"}))?;
                self.look()?;
            }
            25 | 26 => {
                let op = json!({"op": "sleep", "ms": 1 + self.tale.chance.long(5000)});
                self.put(op)?;
            }
            27 => {
                *config = self.config();
                self.put(json!({"op": "config", "config": config}))?;
            }
            28 => {
                let op = json!({"op": "epochEnd", "epoch": self.tale.chance.long(self.epoch + 3) - 1});
                self.put(op)?;
            }
            29 if self.tale.chance.one_in(3) => {
                self.epoch += 1;
                self.put(json!({"op": "epoch", "epoch": self.epoch, "offset": self.end}))?;
            }
            30..=33 => {
                let isolation = ["log_end", "high_watermark", "committed"];
                let isolation = isolation[usize::try_from(self.tale.chance.below(3)).unwrap_or(0)];
                let offset = self.start - 1 + self.tale.chance.long(self.end - self.start + 3);
                let max = 1 + self.tale.chance.long(2000);
                let op = json!({
                    "op": "read", "offset": offset, "max": max, "isolation": isolation,
                    "minOne": self.tale.chance.one_in(2), "records": self.tale.chance.one_in(3),
                });
                self.put(op)?;
            }
            34 | 35 => {
                let at = if self.tale.chance.one_in(4) {
                    -1 - self.tale.chance.long(4)
                } else {
                    self.tale.now - 10_000 + self.tale.chance.long(12_000)
                };
                self.put(json!({"op": "timestamp", "timestamp": at}))?;
            }
            36 => drop(self.put(json!({"op": "files"}))?),
            37 => self.look()?,
            38 => {
                self.tale.let_delays_pass()?;
                self.put(json!({"op": "close"}))?;
                // Filled under other settings, perhaps: Kafka does not start where they have less room now (row 10).
                let filled = self.last_indexes()?;
                if self.kind == Kind::Damage && self.tale.chance.one_in(2) {
                    self.forget()?;
                }
                let all = 1 << 40;
                self.open(&config.clone(), true, all, filled)?;
            }
            39 => self.crash(&config.clone())?,
            40..=50 => self.produce()?,
            51..=56 => self.end_transaction()?,
            57 => self.follow_producer()?,
            58 => {
                let from = self.start + self.tale.chance.long(self.end - self.start + 1);
                let to = from + self.tale.chance.long(self.end - from + 2);
                self.put(json!({"op": "aborted", "from": from, "to": to}))?;
            }
            59 => drop(self.put(json!({"op": "snapshot"}))?),
            60 => {
                if self.tale.chance.one_in(2) {
                    let op = json!({"op": "sleep", "ms": 1 + self.tale.chance.long(700_000)});
                    self.put(op)?;
                }
                self.put(json!({"op": "expire"}))?;
                self.look()?;
            }
            61 | 62 => self.verify()?,
            63 if self.kind == Kind::Damage => self.crash(&config.clone())?,
            _ => {}
        }
        Ok(())
    }

    fn appended(&mut self, answer: &Value) {
        // A batch that was there already has its old offsets in the answer.
        if let Some(last) = answer["ok"]["last"].as_i64().filter(|l| *l >= self.end) {
            self.end = last + 1;
            self.ends.push(last + 1);
        }
    }

    /// Leaves gaps between the records of a batch whose base offset is known, `far` in all at most, as compaction does.
    fn sparse(&mut self, batch: &mut Value, far: i64) {
        let base = batch["baseOffset"].as_i64().unwrap_or(0);
        let count = batch["records"].as_array().map_or(0, Vec::len) as i64;
        // As many offsets behind the records, ascending.
        let mut gaps: Vec<i64> = (0..=count).map(|_| self.tale.chance.long(far - count)).collect();
        gaps.sort_unstable();
        let records = batch["records"].as_array_mut().into_iter().flatten();
        for (n, (record, gap)) in (0_i64..).zip(records.zip(&gaps)) {
            record["offset"] = json!(base + n + gap);
        }
        if self.tale.chance.one_in(2) {
            batch["lastOffset"] = json!(base + count - 1 + gaps.last().copied().unwrap_or(0));
        }
    }

    /// A batch of a producer; now and then one that is not to be taken.
    fn produce(&mut self) -> Result<(), String> {
        let n = usize::try_from(self.tale.chance.below(PRODUCERS as u64)).unwrap_or(0);
        let mut batch = self.records();
        let producer = self.producers[n].clone();
        let (mut epoch, mut sequence) = (producer.epoch, producer.sequence);
        match self.tale.chance.below(40) {
            0..=2 => (epoch, sequence) = (epoch + 1, 0),
            3 => (epoch, sequence) = (epoch + 1, self.tale.chance.long(3)),
            4 => epoch = (epoch - 1).max(0),
            5 | 6 => sequence = (sequence + 1 + self.tale.chance.long(5)) % SEQUENCES,
            _ => {}
        }
        batch["producerId"] = json!(n + 1);
        batch["producerEpoch"] = json!(epoch);
        batch["baseSequence"] = json!(sequence);
        let transactional = producer.transactional != self.tale.chance.one_in(40);
        if transactional {
            batch["transactional"] = json!(true);
        }
        if self.tale.chance.one_in(8)
            && let Some(sent) = self.tale.chance.pick(&producer.sent)
        {
            batch = sent.clone();
        }
        let mut op = json!({"op": "append", "epoch": self.epoch, "batch": batch});
        if let Some(guard) = producer.guard.filter(|_| !self.tale.chance.one_in(20)) {
            op["guard"] = json!(guard);
        }
        if self.version_2 && transactional {
            op["transactionVersion"] = json!(2);
        }
        let answer = self.put(op)?;
        if answer["ok"]["last"].as_i64().is_some_and(|last| last >= self.end) {
            let count = batch["records"].as_array().map_or(0, Vec::len) as i64;
            let producer = &mut self.producers[n];
            producer.epoch = batch["producerEpoch"].as_i64().unwrap_or(epoch);
            producer.sequence = (batch["baseSequence"].as_i64().unwrap_or(0) + count) % SEQUENCES;
            producer.open |= transactional;
            producer.guard = None;
            producer.sent.push(batch);
            if producer.sent.len() > 7 {
                producer.sent.remove(0);
            }
        }
        self.appended(&answer);
        Ok(())
    }

    /// Begins the verification of a producer's next transaction.
    fn verify(&mut self) -> Result<(), String> {
        let n = usize::try_from(self.tale.chance.below(PRODUCERS as u64)).unwrap_or(0);
        let producer = &self.producers[n];
        let (epoch, sequence) = (producer.epoch, producer.sequence);
        let epoch = if self.tale.chance.one_in(10) { (epoch - 1).max(0) } else { epoch };
        let sequence =
            if self.tale.chance.one_in(4) { sequence + self.tale.chance.long(4) } else { sequence };
        let answer = self.put(json!({
            "op": "verify", "producerId": n + 1, "epoch": epoch, "sequence": sequence % SEQUENCES,
            "bumps": self.version_2,
        }))?;
        self.producers[n].guard = answer["ok"]["guard"].as_i64();
        Ok(())
    }

    /// The marker of a producer; now and then one of a coordinator or an epoch that is gone by.
    fn end_transaction(&mut self) -> Result<(), String> {
        let open: Vec<usize> = (0..PRODUCERS).filter(|n| self.producers[*n].open).collect();
        let n = match self.tale.chance.pick(&open) {
            Some(n) => *n,
            // A marker of nothing, now and then.
            None if self.tale.chance.one_in(3) => 0,
            None => return Ok(()),
        };
        let producer = self.producers[n].clone();
        let kind = if self.tale.chance.one_in(2) { "commit" } else { "abort" };
        let version = match self.tale.chance.below(12) {
            0 => 1,
            1 => 2,
            _ if self.version_2 => 2,
            _ => 0,
        };
        let mut epoch = producer.epoch + i64::from(version == 2);
        let mut coordinator = producer.coordinator_epoch;
        match self.tale.chance.below(24) {
            0 => epoch -= 1,
            1 => epoch += 1,
            2 => coordinator -= 1,
            3 | 4 => coordinator += 1,
            _ => {}
        }
        let marker = json!({
            "kind": kind, "producerId": n + 1, "producerEpoch": epoch.max(0), "timestamp": self.tale.now,
            "coordinatorEpoch": coordinator,
        });
        let answer = self.put(json!({
            "op": "append", "epoch": self.epoch, "origin": "coordinator", "marker": marker,
            "transactionVersion": version,
        }))?;
        if answer.get("ok").is_some() {
            let producer = &mut self.producers[n];
            producer.open = false;
            producer.coordinator_epoch = coordinator;
            if epoch.max(0) != producer.epoch {
                (producer.epoch, producer.sequence) = (epoch.max(0), 0);
            }
        }
        self.appended(&answer);
        Ok(())
    }

    /// Several batches in one append, as a fetch brings them: of nobody, of producers, and markers. The last ones may be of an
    /// epoch that the follower does not know yet, and are left out.
    fn follow_set(&mut self) -> Result<(), String> {
        let (mut next, mut epoch) = (self.end, self.epoch);
        let mut bytes = Vec::new();
        for _ in 0..2 + self.tale.chance.below(3) {
            if self.tale.chance.one_in(8) {
                epoch += 1;
            }
            let (kind, mut given) = if self.kind == Kind::Plain || self.tale.chance.one_in(2) {
                ("build", self.records())
            } else {
                self.of_producer(next)
            };
            let kind = if kind == "batch" { "build" } else { kind };
            given["op"] = json!(kind);
            given["codec"] = json!("none");
            given["leaderEpoch"] = json!(epoch);
            given[if kind == "build" { "baseOffset" } else { "offset" }] = json!(next);
            next += given["records"].as_array().map_or(1, Vec::len) as i64;
            if self.tale.chance.one_in(6) {
                next += self.tale.chance.long(20);
            }
            let built = self.put(given)?;
            let built = built["ok"]["bytes"].as_str().map_or(Value::Null, Value::from);
            bytes.extend(decoded(&built).map_err(|e| e.message)?);
        }
        let known = self.epoch + self.tale.chance.long(2);
        let answer = self.put(json!({"op": "follow", "epoch": known, "bytes": base64(&bytes)}))?;
        if answer["ok"]["last"].as_i64().is_some_and(|last| last >= self.end) {
            self.epoch = epoch.min(known);
        }
        self.appended(&answer);
        self.look()
    }

    /// A batch of a producer, or where a transaction is under way perhaps its marker, as a leader sends it: nothing is asked.
    /// Which of the two, and what describes it.
    fn of_producer(&mut self, offset: i64) -> (&'static str, Value) {
        let n = usize::try_from(self.tale.chance.below(PRODUCERS as u64)).unwrap_or(0);
        let producer = self.producers[n].clone();
        if producer.open && self.tale.chance.one_in(2) {
            let kind = if self.tale.chance.one_in(2) { "commit" } else { "abort" };
            self.producers[n].open = false;
            let marker = json!({
                "kind": kind, "producerId": n + 1, "producerEpoch": producer.epoch, "timestamp": self.tale.now,
                "coordinatorEpoch": producer.coordinator_epoch, "offset": offset, "leaderEpoch": self.epoch,
            });
            return ("marker", marker);
        }
        let mut batch = self.records();
        batch["producerId"] = json!(n + 1);
        batch["producerEpoch"] = json!(producer.epoch);
        batch["baseSequence"] = json!(producer.sequence);
        batch["transactional"] = json!(producer.transactional);
        batch["baseOffset"] = json!(offset);
        batch["leaderEpoch"] = json!(self.epoch);
        let count = batch["records"].as_array().map_or(0, Vec::len) as i64;
        self.producers[n].sequence = (producer.sequence + count) % SEQUENCES;
        self.producers[n].open = producer.transactional;
        ("batch", batch)
    }

    /// A batch or a marker of a producer as a leader sends it.
    fn follow_producer(&mut self) -> Result<(), String> {
        let (what, given) = self.of_producer(self.end);
        let answer = self.put(json!({"op": "follow", "epoch": self.epoch, what: given}))?;
        self.appended(&answer);
        self.look()
    }

    /// The process dies, and something may have happened to the files.
    fn crash(&mut self, config: &Value) -> Result<(), String> {
        let (batch, tail) = (self.somewhere()?, self.tail()?);
        self.tale.let_delays_pass()?;
        self.put(json!({"op": "abandon"}))?;
        let mut point = if self.tale.chance.one_in(2) { 0 } else { self.flushed.min(self.end) };
        if self.kind == Kind::Damage {
            // What was checked before is not looked at again by either.
            point = 0;
            // One thing at a time: where two come together Kafka may not start.
            if self.tale.chance.one_in(12) {
                self.raise(&tail)?;
            } else if !self.tale.chance.one_in(3) {
                self.damage(batch)?;
            }
        }
        // As above; and what is recovered may get an entry for every batch.
        self.open(config, false, point, INDEX_ROOM)
    }

    /// The size of the larger index of the last segment of a closed log.
    fn last_indexes(&mut self) -> Result<u64, String> {
        let listed = self.put(json!({"op": "files"}))?;
        let files = listed["ok"].as_array().into_iter().flatten();
        let of = |file: &Value| {
            let name = file["file"].as_str()?;
            let (base, kind) = name.split_once('.')?;
            let index = ["index", "timeindex"].contains(&kind);
            Some((base.to_owned(), file["size"].as_u64()?)).filter(|_| index)
        };
        Ok(files.filter_map(of).max_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1))).map_or(0, |(_, size)| size))
    }

    /// A batch that is there: its segment, its position in it and its size.
    fn somewhere(&mut self) -> Result<Option<(i64, i64, i64)>, String> {
        if self.kind != Kind::Damage || self.end == self.start {
            return Ok(None);
        }
        let offset = self.start + self.tale.chance.long(self.end - self.start);
        let answer = self.put(json!({"op": "read", "offset": offset, "max": 1, "records": true}))?;
        let number = |of: &str| answer.pointer(of).and_then(Value::as_i64);
        let size = number("/ok/batches/0/size");
        Ok(number("/ok/segment").zip(number("/ok/position")).zip(size).map(|((s, p), n)| (s, p, n)))
    }

    /// The batches of the last segment: position, base offset, last offset. None where something lies behind them (Kafka does
    /// not start where such a segment is to be split: row 33), or a gap before them (row 34).
    fn tail(&mut self) -> Result<Vec<(i64, i64, i64)>, String> {
        if self.kind != Kind::Damage {
            return Ok(Vec::new());
        }
        // An append may have rolled since.
        self.look()?;
        let base = self.segments.last().copied().unwrap_or(0);
        if self.end == base || base < self.start {
            return Ok(Vec::new());
        }
        let answer = self.put(json!({"op": "read", "offset": base, "max": 1 << 20, "records": true}))?;
        let listed = self.put(json!({"op": "files"}))?;
        let name = format!("{base:020}.log");
        let mut files = listed["ok"].as_array().into_iter().flatten();
        let exact = files.any(|file| file["file"] == json!(name) && file["size"] == answer["ok"]["bytes"]);
        if !exact || answer.pointer("/ok/batches/0/baseOffset") != Some(&json!(base)) {
            return Ok(Vec::new());
        }
        let number = |batch: &Value, name: &str| batch[name].as_i64();
        let batches = answer["ok"]["batches"].as_array().into_iter().flatten();
        let place = |batch| {
            let base = number(batch, "baseOffset")?;
            Some((number(batch, "position")?, base, number(batch, "lastOffset")?))
        };
        Ok(batches.filter_map(place).collect())
    }

    /// Moves the last batches of a log so far from the base of their segment that it must be split, as releases before 1.1
    /// could write it (KAFKA-6264). The base offset of a batch lies before what its checksum covers. Two at least: of one
    /// alone kseg takes the offset for damaged (row 11).
    fn raise(&mut self, tail: &[(i64, i64, i64)]) -> Result<(), String> {
        let Some(file) = self.segments.last().map(|base| format!("{base:020}.log")) else { return Ok(()) };
        let Some(choices) = tail.len().checked_sub(1) else { return Ok(()) };
        let first = usize::try_from(self.tale.chance.below(choices as u64)).unwrap_or(0);
        let by = i64::from(i32::MAX) + 1 + self.tale.chance.long(1 << 31);
        for (position, base, last) in tail.get(first..).filter(|far| far.len() > 1).into_iter().flatten() {
            let bytes = base64(&(base + by).to_be_bytes());
            self.damaged(json!({"file": file, "at": position, "bytes": bytes}))?;
            self.ends.retain(|end| end != base && *end != last + 1);
            self.ends.push(last + 1 + by);
        }
        Ok(())
    }

    fn a_segment(&mut self) -> i64 {
        self.tale.chance.pick(&self.segments).copied().unwrap_or(0)
    }

    /// Something that a crash or a bad disk does.
    fn damage(&mut self, batch: Option<(i64, i64, i64)>) -> Result<(), String> {
        let (any, last) = (self.a_segment(), self.segments.last().copied().unwrap_or(0));
        let garbage = base64(&self.tale.chance.below(1 << 40).to_be_bytes());
        let op = match self.tale.chance.below(14) {
            0 | 1 => json!({"file": format!("{last:020}.log"), "grow": 1 + self.tale.chance.long(300)}),
            2..=5 => {
                let Some((segment, position, size)) = batch else { return Ok(()) };
                let file = format!("{segment:020}.log");
                if self.tale.chance.one_in(3) {
                    json!({"file": file, "length": position + self.tale.chance.long(size)})
                } else {
                    // Under the checksum, which itself may be hit; the offset before it is not (row 11).
                    let at = position + 17 + self.tale.chance.long(size - 17);
                    let byte = [u8::try_from(self.tale.chance.below(256)).unwrap_or(0)];
                    json!({"file": file, "at": at, "bytes": base64(&byte)})
                }
            }
            6 => {
                json!({"file": format!("{any:020}.index"), "at": self.tale.chance.long(32), "bytes": garbage})
            }
            7 => {
                json!({"file": format!("{any:020}.timeindex"), "at": self.tale.chance.long(48), "bytes": garbage})
            }
            8 => json!({"file": format!("{any:020}.index"), "length": self.tale.chance.long(40)}),
            9 => json!({"file": format!("{any:020}.timeindex"), "length": self.tale.chance.long(40)}),
            10 => {
                // Of another process, or left behind.
                let kinds =
                    ["log.cleaned", "index.cleaned", "timeindex.cleaned", "log.deleted", "snapshot.tmp"];
                let kind = self.tale.chance.pick(&kinds).copied().unwrap_or_default();
                let grow = self.tale.chance.long(100);
                self.put(json!({"op": "damage", "file": format!("{any:020}.{kind}"), "grow": grow}))?;
                return Ok(());
            }
            _ => return self.forget(),
        };
        self.damaged(op)
    }

    /// A file is gone that can be made anew, or holds something else. One that is not there is not touched. Not an `.index`
    /// (row 30): the stories `recover-clean-no-index*` have that.
    fn forget(&mut self) -> Result<(), String> {
        let listed = self.put(json!({"op": "files"}))?;
        let names = listed["ok"].as_array().into_iter().flatten().filter_map(|f| f["file"].as_str());
        let kinds = [".snapshot", "leader-epoch-checkpoint"];
        let there: Vec<String> =
            names.filter(|n| kinds.iter().any(|k| n.ends_with(k))).map(str::to_owned).collect();
        let Some(file) = self.tale.chance.pick(&there).cloned() else { return Ok(()) };
        let op = if file.ends_with(".snapshot") && self.tale.chance.one_in(2) {
            let byte = [u8::try_from(self.tale.chance.below(256)).unwrap_or(0)];
            json!({"file": file, "at": self.tale.chance.long(60), "bytes": base64(&byte)})
        } else {
            json!({"file": file, "remove": true})
        };
        self.damaged(op)
    }

    fn damaged(&mut self, mut op: Value) -> Result<(), String> {
        op["op"] = Value::from("damage");
        op["existing"] = Value::from(true);
        self.put(op)?;
        Ok(())
    }
}
