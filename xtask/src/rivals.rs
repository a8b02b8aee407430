//! `cargo xtask rivals`: kseg-format beside other crates, beside bare loops, and beside Kafka's own classes.
//!
//! The other crates are compiled in a workspace of their own, `benches/rivals`. Kafka's classes run in a JVM, one for each cell,
//! beside a process of kseg-format. Both write, or read, the same batch; slice follows slice, either side first in every second
//! round, and the ratio is taken round by round. Neither side's first slices count: in them the JVM compiles.

use std::path::Path;

use crate::Outcome;
use crate::cleaners::{self, interval, middle};
use crate::conformance::Oracle;
use crate::flags::Flags;
use crate::shell;
use crate::workspace;

pub(crate) const ABOUT: &str = "holds kseg-format against other crates that read and write record batches
  --contests NAMES   by comma, or beginnings with a star (default: all; --list names them)
  --rounds N, --seconds S, --tiny
  --check            only compiles, the criterion bench included
  --crc-fast         kseg-format with the feature of that name
  --kafka            instead, against Kafka's own classes (wants Java; of the contests those that encode and decode)
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
        let asked = BesideKafka {
            contests: flags.value("--contests")?.unwrap_or_else(|| "*".to_owned()),
            rounds: flags.number("--rounds")?.unwrap_or(15) as usize,
            seconds: flags.value("--seconds")?.unwrap_or_else(|| "0.3".to_owned()),
        };
        flags.finish()?;
        return asked.run(crc_fast);
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

/// What is to be held against Kafka's classes.
struct BesideKafka {
    contests: String,
    rounds: usize,
    seconds: String,
}

/// Rounds before the first that counts.
const WARMING: usize = 6;

impl BesideKafka {
    fn run(&self, crc_fast: bool) -> Outcome {
        shell::run(&mut cargo("build", crc_fast))?;
        let program = workspace::root().join("target/rivals/release/kseg-bench-rivals");
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut batches = shell::command(&program);
        batches.arg("--batches").arg(folder.path()).args(["--contests", &self.contests]);
        let names = shell::output(&mut batches)?;
        println!("Kafka's rate over kseg-format's: median and 95 % interval of {} rounds", self.rounds);
        names.lines().try_for_each(|name| self.cell(&program, folder.path(), name))
    }

    /// One cell, whose batch is a file of its name.
    fn cell(&self, program: &Path, folder: &Path, name: &str) -> Outcome {
        let work = name.split('-').next().unwrap_or_default();
        let mut kafka = shell::command(workspace::root().join("xtask/kafka/kafka"));
        kafka.arg("bench").arg(folder.join("logs")).args([
            format!("works={work}"),
            format!("batch={}", folder.join(name).display()),
            format!("seconds={}", self.seconds),
            format!("rounds={}", WARMING + self.rounds),
            "given=true".to_owned(),
        ]);
        let mut kseg = shell::command(program);
        kseg.args(["--alone", "--contests", name, "--seconds", &self.seconds]);
        let (mut kafka, mut kseg) = (Oracle::of(kafka)?, Oracle::of(kseg)?);
        let mut slice = |theirs: bool| {
            let answer = if theirs { kafka.ask("slice")?["rate"].clone() } else { kseg.ask("slice")? };
            answer.as_f64().ok_or_else(|| format!("{name}: no rate but {answer}"))
        };
        let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..WARMING + self.rounds {
            let kafka_first = round % 2 == 0;
            let (first, second) = (slice(kafka_first)?, slice(!kafka_first)?);
            let (kafka, kseg) = if kafka_first { (first, second) } else { (second, first) };
            if round >= WARMING {
                ratios.push(kafka / kseg);
                ours.push(kseg / 1e9);
                theirs.push(kafka / 1e9);
            }
        }
        let (low, high) = interval(&mut ratios);
        println!(
            "{name:24} {:.2} [{low:.2}, {high:.2}]   kseg-format {:.3} GB/s, Kafka {:.3} GB/s of values",
            middle(&mut ratios),
            middle(&mut ours),
            middle(&mut theirs),
        );
        Ok(())
    }
}
