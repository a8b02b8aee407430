//! Writers that wait until their batches are durable, and say so, are killed: each batch that one of them has spoken of is
//! there, whole and in its order, whatever backend it went through.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kseg_format::{BatchOptions, Batches, LeaderEpoch, Offset, Origin, RecordBatchBuilder, Timestamp};
use kseg_io_backends::{Backend, BackendSpec};
use kseg_log::{Isolation, Log, LogConfig, LogDir, LogDirOptions, TopicPartition, TransactionVersion};

use super::Chance;
use crate::{Outcome, shell};

/// One of each kind whose files outlive a process, and one with each option that changes how bytes become durable.
pub(crate) const BACKENDS: &[&str] = &[
    "std",
    "std,zeroed=1m,dsync=on",
    "std+direct",
    "std+dontcache",
    "uring",
    "uring+direct",
    "uring+direct,chunk=16k,zeroed=1m,dsync=on",
];

/// Threads that append at the same time. The last one waits for the last of a few batches only.
const PRODUCERS: usize = 4;
const UNAWAITED: u64 = 5;
/// Small, so that segments roll in between.
const SEGMENT_BYTES: &str = "300000";
/// Writers killed over one partition before the next one is begun.
const LIVES: u64 = 10;

fn partition() -> TopicPartition {
    TopicPartition::new("killed", 0)
}

fn opened(folder: &Path, backend: Arc<dyn Backend>) -> Result<(LogDir, Arc<Log>), String> {
    let config =
        LogConfig::from_pairs([("internal.segment.bytes", SEGMENT_BYTES)]).map_err(|e| e.to_string())?;
    let options = LogDirOptions { config, ..LogDirOptions::new(backend) };
    let dir = LogDir::open(folder, options).map_err(|e| e.to_string())?;
    let log = dir.get_or_create(&partition(), None).map_err(|e| e.to_string())?;
    Ok((dir, log))
}

fn backend(spec: &str, folder: &Path) -> Result<Option<Arc<dyn Backend>>, String> {
    let asked: BackendSpec = spec.parse().map_err(|e| format!("{spec}: {e}"))?;
    match asked.open_in(folder) {
        Ok(opened) => Ok(Some(opened.backend)),
        Err(error) if error.unavailable().is_some() => {
            println!("kills: not over {spec}: {error}");
            Ok(None)
        }
        Err(error) => Err(format!("{spec}: {error}")),
    }
}

/// What a producer's `number`-th record holds: no two alike, of many sizes.
fn value(producer: usize, number: u64) -> Vec<u8> {
    let mut chance = Chance(number.wrapping_mul(31).wrapping_add(producer as u64));
    let size = if chance.below(8) == 0 { chance.below(9000) } else { chance.below(300) };
    let mut value = format!("{producer} {number} ").into_bytes();
    value.extend((0..size).map(|_| chance.below(256) as u8));
    value
}

/// Appends with several producers, and tells on standard output of each batch that is durable: its producer, and the
/// number of the last record in it. Ends by being killed.
///
/// # Errors
/// Those of the log.
pub(super) fn write(folder: &Path, spec: &str, from: &str) -> Outcome {
    let backend = backend(spec, folder)?.ok_or_else(|| format!("{spec}: not to be had"))?;
    let mut first = [0; PRODUCERS];
    for (first, given) in first.iter_mut().zip(from.split(',').filter(|given| !given.is_empty())) {
        *first = given.parse().map_err(|_| format!("--from wants numbers, not {given}"))?;
    }
    let (_dir, log) = opened(folder, backend)?;
    let told = Mutex::new(std::io::stdout());
    thread::scope(|scope| {
        for (producer, first) in first.into_iter().enumerate() {
            let (log, told) = (&*log, &told);
            scope.spawn(move || {
                let Err(error) = produce(log, told, producer, first);
                // The others would go on for ever.
                eprintln!("producer {producer}: {error}");
                std::process::exit(1);
            });
        }
    });
    Err("all producers have ended".to_owned())
}

fn produce(log: &Log, told: &Mutex<impl Write>, producer: usize, first: u64) -> Result<Infallible, String> {
    let mut chance = Chance(first);
    let mut number = first;
    let mut round = 0;
    loop {
        round += 1;
        let mut batch = RecordBatchBuilder::new(BatchOptions::default());
        for _ in 0..=chance.below(4) {
            let time = Some(Timestamp::new(i64::try_from(number).unwrap_or(0)));
            batch.append(time, None, Some(&value(producer, number)), &[]).map_err(|e| e.to_string())?;
            number += 1;
        }
        let mut bytes = BytesMut::new();
        batch.finish(&mut bytes).map_err(|e| e.to_string())?;
        let (_, durability) = log
            .append_as_leader_durable(bytes, LeaderEpoch::new(0), Origin::Client, TransactionVersion::V0)
            .map_err(|e| e.to_string())?;
        if producer + 1 == PRODUCERS && round % UNAWAITED != 0 {
            continue;
        }
        durability.wait().map_err(|e| e.to_string())?;
        // In one write, or a kill in between would tear it.
        let line = format!("{producer} {}\n", number - 1);
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        told.write_all(line.as_bytes()).and_then(|()| told.flush()).map_err(|e| e.to_string())?;
    }
}

/// # Errors
/// The round, and what of that which was acknowledged is missing, or what is there that should not be.
pub(crate) fn kill_loop(spec: &str, rounds: u64, seed: u64) -> Outcome {
    let above = tempfile::tempdir().map_err(|e| format!("temporary folder: {e}"))?;
    let Some(backend) = backend(spec, above.path())? else { return Ok(()) };
    let mut chance = Chance(seed);
    let mut next = [0; PRODUCERS];
    let (mut acknowledged, mut recovered) = (0, 0);
    for round in 0..rounds {
        if round % LIVES == 0 {
            next = [0; PRODUCERS];
        }
        let folder = above.path().join((round / LIVES).to_string());
        let wrong = |what: String| format!("{spec}: seed {seed}, round {round}: {what}");
        let owed = killed(&folder, spec, next, &mut chance).map_err(wrong)?;
        acknowledged += owed.lines;
        let (dir, log) = opened(&folder, backend.clone()).map_err(wrong)?;
        recovered += u64::from(!dir.was_clean());
        let there = records(&log).map_err(wrong)?;
        for (producer, (there, owed)) in there.iter().zip(owed.next).enumerate() {
            if *there < owed {
                let what = format!("producer {producer}: {owed} records are acknowledged, {there} are there");
                return Err(wrong(what));
            }
        }
        next = there;
        // The next writer finds a directory that was stopped in order, or one that was not.
        if chance.below(3) == 0 {
            drop(log);
            dir.shutdown().map_err(|e| wrong(e.to_string()))?;
        }
    }
    println!("kills over {spec}: {rounds} writers, {acknowledged} acknowledgements, {recovered} recoveries");
    Ok(())
}

/// What a killed writer has acknowledged.
struct Owed {
    /// Of each producer: the number behind the last record.
    next: [u64; PRODUCERS],
    lines: u64,
}

/// Starts a writer whose producers go on at `from`, and kills it.
fn killed(folder: &Path, spec: &str, from: [u64; PRODUCERS], chance: &mut Chance) -> Result<Owed, String> {
    let this = std::env::current_exe().map_err(|e| format!("the path of this program: {e}"))?;
    let mut command = Command::new(this);
    command.args(["crash", "--backend", spec, "--from", &from.map(|n| n.to_string()).join(",")]);
    command.arg("--writer").arg(folder).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", shell::shown(&command)))?;
    let output = child.stdout.take().ok_or("the writer has no standard output")?;
    let mut lines = BufReader::new(output).lines();
    let mut owed = Owed { next: from, lines: 0 };
    // Once it has told of so many, or at any moment, also before it has opened the log.
    let patience = if chance.below(4) == 0 {
        Patience::For(chance.below(150))
    } else {
        Patience::Until(chance.below(120))
    };
    let result = match patience {
        Patience::For(ms) => {
            thread::sleep(Duration::from_millis(ms));
            Ok(())
        }
        Patience::Until(count) => owed.take(&mut lines, count),
    };
    let within = Duration::from_micros(chance.below(3000));
    let begun = Instant::now();
    while begun.elapsed() < within {
        std::hint::spin_loop();
    }
    end(&mut child)?;
    result?;
    owed.take(&mut lines, u64::MAX)?;
    Ok(owed)
}

enum Patience {
    For(u64),
    Until(u64),
}

impl Owed {
    /// Reads up to `count` lines of what a writer tells.
    fn take(&mut self, lines: &mut impl Iterator<Item = std::io::Result<String>>, count: u64) -> Outcome {
        for line in lines.take(usize::try_from(count).unwrap_or(usize::MAX)) {
            let line = line.map_err(|e| format!("what a writer told: {e}"))?;
            let parsed = line
                .split_once(' ')
                .and_then(|(a, b)| Some((a.parse::<usize>().ok()?, b.parse::<u64>().ok()?)));
            let (producer, last) = parsed.ok_or_else(|| format!("a writer told {line:?}"))?;
            let next = self.next.get_mut(producer).ok_or_else(|| format!("a writer told {line:?}"))?;
            *next = (*next).max(last + 1);
            self.lines += 1;
        }
        Ok(())
    }
}

/// # Errors
/// It had ended by itself.
fn end(child: &mut Child) -> Outcome {
    child.kill().map_err(|e| format!("kill: {e}"))?;
    let status = child.wait().map_err(|e| format!("wait: {e}"))?;
    if status.code().is_some() { Err(format!("the writer ended by itself: {status}")) } else { Ok(()) }
}

/// Reads everything: how many records of each producer are there, all of which must be right and in order.
fn records(log: &Log) -> Result<[u64; PRODUCERS], String> {
    let mut next = [0; PRODUCERS];
    let mut scratch = Vec::new();
    let mut at = Offset::ZERO;
    while at < log.log_end_offset() {
        let fetch = log.read(at, 1 << 20, Isolation::LogEnd, true).map_err(|e| e.to_string())?;
        let region = fetch.region.ok_or_else(|| format!("nothing at offset {at}"))?;
        let bytes = region.to_bytes().map_err(|e| e.to_string())?;
        for batch in Batches::new(&bytes) {
            let batch = batch.map_err(|e| e.to_string())?.verify().map_err(|e| e.to_string())?;
            for record in batch.records(&mut scratch, 1 << 20).map_err(|e| e.to_string())? {
                let record = record.map_err(|e| e.to_string())?;
                let found = record.value().unwrap_or_default();
                let producer = found.first().map_or(PRODUCERS, |digit| usize::from(digit.wrapping_sub(b'0')));
                let number =
                    next.get_mut(producer).ok_or_else(|| format!("offset {at}: a record of nobody"))?;
                if record.offset() != at || found != value(producer, *number) {
                    return Err(format!("offset {at}: expected record {number} of producer {producer}"));
                }
                *number += 1;
                at = at.next();
            }
        }
    }
    Ok(next)
}
