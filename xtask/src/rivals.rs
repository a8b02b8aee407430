//! `cargo xtask rivals`: kseg-format beside other crates, beside bare loops, and beside Kafka's own classes.
//!
//! The other crates are compiled in a workspace of their own, `benches/rivals`. Kafka's classes run in a JVM that is started
//! for each round and warmed up by its harness; a slice of kseg-format follows, and the ratio is taken round by round.

use std::ffi::OsString;

use kseg_format::{BatchOptions, RecordBatchBuilder, Timestamp};
use serde_json::Value;

use crate::Outcome;
use crate::cleaners;
use crate::flags::Flags;
use crate::shell;
use crate::workspace;

pub(crate) const ABOUT: &str = "holds kseg-format against other crates that read and write record batches
  --contests NAMES   by comma, or beginnings with a star (default: all; --list names them)
  --rounds N, --seconds S, --tiny
  --check            only compiles, the criterion bench included
  --crc-fast         kseg-format with the feature of that name
  --kafka            instead, against Kafka's own classes (wants Java; --rounds, default 9)
  --kafka-clean      instead, kseg's cleaner against Kafka's on the same directory (wants Java; --rounds, default 15;
                     --bytes, --keys; --one-thread: without threads beside the cleaner's)";

const MANIFEST: &str = "benches/rivals/Cargo.toml";

pub(crate) fn run(mut flags: Flags) -> Outcome {
    if flags.switch("--check") {
        flags.finish()?;
        return compile();
    }
    let crc_fast = flags.switch("--crc-fast");
    if flags.switch("--kafka-clean") {
        return cleaners::run(flags);
    }
    if flags.switch("--kafka") {
        let rounds = flags.number("--rounds")?.unwrap_or(9);
        flags.finish()?;
        return beside_kafka(rounds, crc_fast);
    }
    let mut rest = Vec::new();
    for name in ["--contests", "--rounds", "--seconds"] {
        if let Some(value) = flags.value(name)? {
            rest.extend([name.to_owned(), value]);
        }
    }
    rest.extend(["--tiny", "--list"].into_iter().filter(|name| flags.switch(name)).map(str::to_owned));
    flags.finish()?;
    shell::run(cargo("run", crc_fast).arg("--").args(rest))
}

/// Compiles the program and the criterion bench without running them.
pub(crate) fn compile() -> Outcome {
    shell::run(apart("check").arg("--all-targets"))
}

fn cargo(what: &str, crc_fast: bool) -> std::process::Command {
    let mut cargo = apart(what);
    cargo.arg("--release");
    if crc_fast {
        cargo.args(["--features", "crc-fast"]);
    }
    cargo
}

/// Cargo for the workspace of the other crates. One of them says that it needs a newer compiler than it does.
fn apart(what: &str) -> std::process::Command {
    let mut cargo = shell::cargo([what, "--ignore-rust-version", "--manifest-path", MANIFEST]);
    cargo.arg("--target-dir").arg(workspace::root().join("target/rivals"));
    cargo
}

/// Works of Kafka's harness: its name, the field of its answer, ours, and the bytes of a record's value.
const CELLS: [(&str, &str, &str, usize); 4] = [
    ("encode", "gbps_100", "encode-none-100x100b", 100),
    ("encode", "gbps_1024", "encode-none-100x1k", 1024),
    ("decode", "gbps_100", "decode-none-100x100b", 100),
    ("decode", "gbps_1024", "decode-none-100x1k", 1024),
];

fn beside_kafka(rounds: u64, crc_fast: bool) -> Outcome {
    shell::run(&mut cargo("build", crc_fast))?;
    let program: OsString = workspace::root().join("target/rivals/release/kseg-bench-rivals").into();
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut ratios = vec![Vec::new(); CELLS.len()];
    for _ in 0..rounds {
        let mut kafka = shell::command(workspace::root().join("xtask/kafka/kafka"));
        kafka.arg("bench").arg(folder.path()).args(["works=encode,decode", "rounds=3"]);
        let lines = shell::output(&mut kafka)?;
        let rows: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        for ((work, field, contest, len), ratios) in CELLS.iter().zip(&mut ratios) {
            let theirs =
                rows.iter().filter(|row| row["work"] == *work).filter_map(|row| row[*field].as_f64());
            let theirs = median(theirs.collect()).ok_or("Kafka's harness gave no rate")?;
            let mut ours = shell::command(&program);
            let ours = shell::output(ours.args(["--alone", "--contests", contest]))?;
            let ours: f64 = ours.trim().parse().map_err(|e| format!("{ours}: {e}"))?;
            // Kafka's rate counts the bytes of batches, ours those of values.
            let whole = batch_len(*len)? as f64 / (100 * len) as f64;
            ratios.push(ours * whole / 1e9 / theirs);
        }
    }
    println!("kseg-format over Kafka's classes: median [least, largest] of {rounds} rounds");
    for ((_, _, contest, _), ratios) in CELLS.iter().zip(ratios) {
        let of = |pick: fn(f64, f64) -> f64| ratios.iter().copied().reduce(pick).unwrap_or_default();
        let (least, largest) = (of(f64::min), of(f64::max));
        let middle = median(ratios).unwrap_or_default();
        println!("{contest:24} {middle:.2} [{least:.2}, {largest:.2}]");
    }
    Ok(())
}

/// The bytes of a batch of 100 records.
fn batch_len(value_len: usize) -> Result<usize, String> {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    for i in 0..100 {
        let time = Some(Timestamp::new(1_700_000_000_000 + i));
        builder.append(time, None, Some(&vec![0; value_len]), &[]).map_err(|e| e.to_string())?;
    }
    Ok(builder.uncompressed_size())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
