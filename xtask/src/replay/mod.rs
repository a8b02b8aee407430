//! `cargo xtask replay`: this project's side of the protocol in `kafka/README.md`.
//!
//! One JSON object a line in, one answer a line out. Everything goes through the public API of the crates, so what an
//! operation needs a user has too. Time stands still; tasks run inside the line that lets them come due.

mod batch;
mod clean;
mod describe;
mod files;
mod ground;
mod legacy;
mod protocol;
mod state;
mod time;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use kseg_log::{Clock, Log, VerificationGuard};
use serde_json::{Value, json};

use crate::Outcome;
use crate::conformance::random;
use crate::flags::Flags;
pub(crate) use describe::batches_before_damage;
pub(crate) use files::is_kept_aside;
pub(crate) use ground::{Ground, choose, goes_ahead};
use protocol::{Answer, Failure, Fields};
pub(crate) use protocol::{base64, decoded};
use time::Time;

pub(crate) const ABOUT: &str =
    "answers the replay protocol of xtask/kafka/README.md, lines from stdin, answers to stdout
  --backend SPEC     over this I/O backend (default std)
  --random SEEDS     instead: puts the random stories of these seeds (FIRST..END, or one) to a live Kafka and to kseg;
                     one that differs is made short and kept under target/
  --steps N          operations of a random story (default 200)
  --jobs N           random stories at a time (default 2)";

pub(crate) fn run(mut flags: Flags) -> Outcome {
    choose(&mut flags)?;
    if let Some(seeds) = flags.value("--random")? {
        let mut seeds = random::Seeds::parse(&seeds)?;
        seeds.steps =
            flags.number("--steps")?.map_or(Ok(seeds.steps), u32::try_from).map_err(|e| e.to_string())?;
        seeds.jobs =
            flags.number("--jobs")?.map_or(Ok(seeds.jobs), usize::try_from).map_err(|e| e.to_string())?;
        flags.finish()?;
        return random::run(&seeds);
    }
    flags.finish()?;
    let mut replay = Replay::new()?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| format!("standard input: {e}"))?;
        if let Some(answer) = replay.answer(&line) {
            writeln!(out, "{answer}")
                .and_then(|()| out.flush())
                .map_err(|e| format!("standard output: {e}"))?;
        }
    }
    Ok(())
}

/// An operation on a log that is open, as a line describes it.
///
/// # Errors
/// As Kafka fails.
pub(crate) fn on_log(log: &Log, op: &Value) -> Result<Value, Failure> {
    state::on_log(log, Fields(op), None)
}

/// The logs that the lines so far have opened, and their common time.
#[derive(Debug)]
pub(crate) struct Replay {
    ground: Ground,
    time: Arc<Time>,
    logs: BTreeMap<String, Log>,
    current: String,
    /// Handed out, by number.
    guards: Vec<VerificationGuard>,
}

impl Replay {
    /// No log is open, the clock stands at 0.
    ///
    /// # Errors
    /// The backend for files cannot be had.
    pub(crate) fn new() -> Result<Replay, String> {
        let (time, logs) = (Arc::new(Time::default()), BTreeMap::new());
        Ok(Replay { ground: Ground::new()?, time, logs, current: String::new(), guards: Vec::new() })
    }

    /// What its logs stand on.
    pub(crate) fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The answer to a line; none to an empty line or a comment.
    pub(crate) fn answer(&mut self, line: &str) -> Option<Value> {
        if line.trim().is_empty() || line.starts_with('#') {
            return None;
        }
        let answer = serde_json::from_str::<Value>(line)
            .map_err(|e| Failure::new("JsonParseException", e.to_string()))
            .and_then(|op| self.apply(Fields(&op)));
        Some(protocol::line(answer))
    }

    fn apply(&mut self, op: Fields<'_>) -> Answer {
        match op.need_text("op")? {
            "build" => Ok(json!({"bytes": base64(&batch::build(op)?)})),
            "marker" => Ok(json!({"bytes": base64(&batch::marker(op)?)})),
            "kraft" => Ok(json!({"bytes": base64(&batch::kraft(op)?)})),
            "describe" => describe::buffer(&op.need_bytes("bytes")?),
            "file" => files::file(
                self.ground.names(),
                Path::new(op.need_text("path")?),
                op.bool_or("records", true),
            ),
            "files" => {
                let dir = op.text("dir").unwrap_or(&self.current);
                let open = self.logs.get(dir).filter(|_| goes_ahead());
                files::list(self.ground.names(), Path::new(dir), open)
            }
            "damage" => files::damage(&**self.ground.backend(), op, &self.current),
            "time" => {
                self.time.set(op.need_long("ms")?);
                Ok(json!({"now": self.time.now_ms()}))
            }
            "sleep" => {
                self.time.sleep(op.need_long("ms")?);
                Ok(json!({"now": self.time.now_ms()}))
            }
            "open" => self.open(op),
            "reset" => {
                std::mem::take(&mut self.logs).values().for_each(Log::abandon);
                self.time = Arc::new(Time::default());
                self.current.clear();
                self.guards.clear();
                Ok(json!({}))
            }
            "use" => {
                self.current = op.need_text("dir")?.to_owned();
                self.log().map(|_| json!({}))
            }
            "close" => {
                self.log()?.close()?;
                self.logs.remove(&self.current);
                Ok(json!({}))
            }
            "abandon" => {
                self.log()?;
                if let Some(log) = self.logs.remove(&self.current) {
                    log.abandon();
                }
                Ok(json!({}))
            }
            "verify" => {
                let guard = state::verify(self.log()?, op)?;
                Ok(json!({"guard": guard.map(|guard| self.number_of(guard))}))
            }
            _ => {
                let guard = op.long("guard").and_then(|n| self.guards.get(usize::try_from(n).ok()?)).copied();
                state::on_log(self.log()?, op, guard)
            }
        }
    }

    /// Guards go by the order in which they were handed out.
    fn number_of(&mut self, guard: VerificationGuard) -> usize {
        self.guards.iter().position(|g| *g == guard).unwrap_or_else(|| {
            self.guards.push(guard);
            self.guards.len() - 1
        })
    }

    fn log(&self) -> Result<&Log, Failure> {
        self.logs.get(&self.current).ok_or_else(|| Failure::new("IllegalStateException", "no open log"))
    }

    fn open(&mut self, op: Fields<'_>) -> Answer {
        let dir = op.need_text("dir")?;
        if let Some(now) = op.long("now") {
            self.time.set(now);
        }
        if self.logs.contains_key(dir) {
            return Err(Failure::new("IllegalStateException", format!("already open: {dir}")));
        }
        let log = state::open(self.ground.backend(), &self.time, op)?;
        let state = state::shown(&log, op.bool_or("indexes", false))?;
        self.logs.insert(dir.to_owned(), log);
        self.current = dir.to_owned();
        Ok(state)
    }
}
