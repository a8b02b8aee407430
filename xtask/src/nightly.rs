//! `cargo xtask nightly`: the longer versions of what CI runs, for a machine that has the night.
//!
//! Each part runs alone too (`--only`). All are run, whatever becomes of those before; what failed is told at the end.

use std::path::Path;
use std::time::Instant;

use crate::conformance::Asked;
use crate::flags::Flags;
use crate::workspace::{LIBRARIES, Workspace};
use crate::{Outcome, conformance, crash, loom, shell, workspace};

pub(crate) const ABOUT: &str = "longer versions of what CI runs, part by part; goes on behind a failure
  --list             prints the parts
  --only PART        one part
  --cases N          tests: random cases a property (default 4096)
  --preemptions N    loom: how often a thread may be interrupted (default 3)
  --kills N          kills: runs of kseg append that are killed, and a tenth as many writers that wait for durability
                     over each backend (default 2000)
  --losses N         power: random losses after each cut (default 50)
  --scale N          scale: partitions, and segments (default 10000)
  --random N         stories: random stories put to a live Kafka as well (default 1000)
  --seed N           kills, stories: the first of the random numbers (default: another each time, which is printed)
  --lines N          lines: lines a partition for a live broker (default 1000000)
  --file PATH        mutants: one source file (default: those that little code stands on and much depends on)
  --shard K/N        mutants: the K-th of N shares, from 0";

struct Part {
    name: &'static str,
    about: &'static str,
    run: fn(&Wanted) -> Outcome,
}

struct Wanted {
    workspace: Workspace,
    cases: u64,
    preemptions: u64,
    kills: u64,
    losses: u64,
    scale: u64,
    random: u64,
    seed: u64,
    lines: u64,
    file: Option<String>,
    shard: Option<String>,
}

const PARTS: &[Part] = &[
    Part { name: "tests", about: "all tests, optimized, with many random cases", run: tests },
    Part { name: "powerset", about: "every set of features of every library crate", run: powerset },
    Part { name: "loom", about: "the models, with more preemptions", run: models },
    Part { name: "kills", about: "writers killed at random moments, over every backend", run: kills },
    Part {
        name: "power",
        about: "the power cut, and every fault, at every call of a log's life",
        run: power,
    },
    Part {
        name: "sanitizer",
        about: "the ring, direct writes and a full disk under the address sanitizer",
        run: sanitizer,
    },
    Part { name: "keys", about: "8 GiB of unique keys under a map of 128 MiB", run: keys },
    Part {
        name: "scale",
        about: "what idle partitions and sealed segments hold, and the recovery of 4 GiB",
        run: scale,
    },
    Part {
        name: "stories",
        about: "golden stories over every backend, and random ones beside a live Kafka",
        run: stories,
    },
    Part { name: "lines", about: "a live broker adopts large partitions", run: lines },
    Part { name: "mutants", about: "changes to the code that no test notices", run: mutants },
    Part { name: "bench", about: "the full benchmarks", run: bench },
    Part {
        name: "kafka-clean",
        about: "the cleaner beside Kafka's, timed on the same directory",
        run: kafka_clean,
    },
    Part { name: "package", about: "packed crates are built", run: package },
];

pub(crate) fn run(mut flags: Flags) -> Outcome {
    let only = flags.value("--only")?;
    let list = flags.switch("--list");
    let wanted = Wanted {
        workspace: workspace::load()?,
        cases: flags.number("--cases")?.unwrap_or(4096),
        preemptions: flags.number("--preemptions")?.unwrap_or(3),
        kills: flags.number("--kills")?.unwrap_or(2000),
        losses: flags.number("--losses")?.unwrap_or(50),
        scale: flags.number("--scale")?.unwrap_or(10_000),
        random: flags.number("--random")?.unwrap_or(1000),
        seed: flags.number("--seed")?.unwrap_or(u64::from(std::process::id()) << 16),
        lines: flags.number("--lines")?.unwrap_or(1_000_000),
        file: flags.value("--file")?,
        shard: flags.value("--shard")?,
    };
    flags.finish()?;
    if list {
        PARTS.iter().for_each(|part| println!("{:<12} {}", part.name, part.about));
        return Ok(());
    }
    let parts: Vec<&Part> = PARTS.iter().filter(|p| only.as_deref().is_none_or(|o| o == p.name)).collect();
    if parts.is_empty() {
        return Err(format!("no part {}; see --list", only.unwrap_or_default()));
    }
    println!("seed {}", wanted.seed);
    let mut failed = Vec::new();
    for part in parts {
        println!("== {}: {}", part.name, part.about);
        let start = Instant::now();
        let outcome = (part.run)(&wanted);
        let word = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("== {}: {word} in {:.1} s", part.name, start.elapsed().as_secs_f64());
        failed.extend(outcome.err().map(|e| format!("{}: {e}", part.name)));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn tests(wanted: &Wanted) -> Outcome {
    let mut tests = shell::cargo(["test", "--workspace", "--release"]);
    shell::run(tests.env("PROPTEST_CASES", wanted.cases.to_string()))
}

/// Clippy over every set of features but those that CI looks at: none, and each alone.
fn powerset(wanted: &Wanted) -> Outcome {
    for package in wanted.workspace.packages.iter().filter(|p| LIBRARIES.contains(&p.name.as_str())) {
        for set in sets(&package.features) {
            let mut cargo = shell::cargo(["clippy", "-p", &package.name, "--no-default-features"]);
            shell::run(cargo.args(["--features", &set.join(","), "--", "-D", "warnings"]))?;
        }
    }
    Ok(())
}

/// Every set of two or more of the features, `default` aside.
fn sets(features: &[String]) -> Vec<Vec<&str>> {
    let named: Vec<&str> = features.iter().map(String::as_str).filter(|f| *f != "default").collect();
    let set = |bits: usize| (0..named.len()).filter(move |n| bits >> n & 1 == 1).map(|n| named[n]).collect();
    (0..1_usize << named.len()).map(set).filter(|set: &Vec<&str>| set.len() > 1).collect()
}

fn models(wanted: &Wanted) -> Outcome {
    loom::models(&wanted.workspace, None, wanted.preemptions, None)
}

fn kills(wanted: &Wanted) -> Outcome {
    crash::kill_lines(wanted.kills, wanted.seed)?;
    let each = |backend: &&str| crash::kill_acknowledged(backend, wanted.kills.div_ceil(10), wanted.seed);
    crash::BACKENDS.iter().try_for_each(each)
}

/// Optimized: the cuts are many, and each is followed by as many openings.
fn power(wanted: &Wanted) -> Outcome {
    let mut tests = shell::cargo(["test", "--release", "-p", "kseg-log", "--test", "it", "--"]);
    tests.args(["life::", "whatever_call_fails", "con_12"]);
    shell::run(tests.env("KSEG_LIVES", wanted.losses.to_string()))
}

/// With a nightly toolchain and a target folder of its own. Nothing the kernel may still use is freed: the buffers of writes that
/// nobody waits for among them.
fn sanitizer(wanted: &Wanted) -> Outcome {
    let mut target = wanted.workspace.target.clone().into_os_string();
    target.push("-asan");
    let mut tests = shell::command("rustup");
    tests.args(["run", "nightly", "cargo", "test", "-p", "kseg-io-backends", "--features", "testing"]);
    tests.args(["--target", "x86_64-unknown-linux-gnu", "--lib", "--test", "it", "--"]);
    tests.args(["uring::", "slots::", "direct::", "durability::", "model::", "full::"]);
    shell::run(tests.env("RUSTFLAGS", "-Zsanitizer=address").env("CARGO_TARGET_DIR", target))
}

fn keys(_: &Wanted) -> Outcome {
    let mut tests =
        shell::cargo(["test", "--release", "-p", "kseg-cleaner", "--test", "memory", "--", "--nocapture"]);
    shell::run(tests.env("KSEG_UNIQUE", "8192/128"))
}

/// Times this program, which has to be an optimized one.
fn kafka_clean(_: &Wanted) -> Outcome {
    shell::run(&mut shell::cargo(["run", "--release", "-p", "xtask", "--", "rivals", "--kafka-clean"]))
}

fn scale(wanted: &Wanted) -> Outcome {
    let mut tests =
        shell::cargo(["test", "--release", "-p", "kseg-log", "--test", "scale", "--", "--nocapture"]);
    shell::run(tests.env("KSEG_SCALE", wanted.scale.to_string()).env("KSEG_RECOVER", "4096"))
}

fn stories(wanted: &Wanted) -> Outcome {
    conformance::golden_over_backends(true)?;
    conformance::compare(&Asked { random: wanted.random, seed: wanted.seed, ..Asked::default() })
}

fn lines(wanted: &Wanted) -> Outcome {
    conformance::compare(&Asked {
        golden: false,
        part: Some("broker".to_owned()),
        lines: Some(wanted.lines),
        ..Asked::default()
    })
}

/// Files whose every branch a test must hold: searches, arithmetic of offsets, what is read from disk first.
const CRITICAL: &[&str] = &[
    "format/src/varint.rs",
    "format/src/framing.rs",
    "format/src/number.rs",
    "index/src/*.rs",
    "segment/src/lookup.rs",
    "segment/src/roll.rs",
    "segment/src/scan.rs",
    "log/src/marks.rs",
    "log/src/retention.rs",
    "log/src/segments.rs",
];

/// Changes the code a thousandfold, and runs the package's tests on each change.
fn mutants(wanted: &Wanted) -> Outcome {
    if shell::output(&mut shell::cargo(["mutants", "--version"])).is_err() {
        shell::run(&mut shell::cargo(["install", "--locked", "cargo-mutants"]))?;
    }
    let files: Vec<&str> = wanted.file.as_deref().map_or(CRITICAL.to_vec(), |file| vec![file]);
    let mut failed = Vec::new();
    for package in &wanted.workspace.packages {
        let folder = package.folder.strip_prefix(workspace::root()).unwrap_or(Path::new(""));
        let own: Vec<&str> = files.iter().copied().filter(|f| Path::new(f).starts_with(folder)).collect();
        if own.is_empty() {
            continue;
        }
        let mut cargo =
            shell::cargo(["mutants", "--package", &package.name, "--no-shuffle", "--timeout", "120"]);
        cargo.arg("--output").arg(wanted.workspace.target.join("mutants").join(&package.name));
        for file in own {
            cargo.args(["--file", file]);
        }
        if let Some(shard) = &wanted.shard {
            cargo.args(["--shard", shard]);
        }
        std::fs::create_dir_all(wanted.workspace.target.join("mutants").join(&package.name))
            .map_err(|e| format!("folder for the mutants: {e}"))?;
        failed.extend(shell::run(&mut cargo).err());
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn bench(_: &Wanted) -> Outcome {
    shell::run(&mut shell::cargo(["run", "--release", "-p", "kseg-bench"]))?;
    shell::run(&mut shell::cargo(["bench", "--workspace", "--benches"]))
}

fn package(_: &Wanted) -> Outcome {
    shell::run(&mut shell::cargo(["package", "--workspace", "--allow-dirty", "--exclude", "xtask"]))
}

#[cfg(test)]
mod tests {
    use super::sets;

    #[test]
    fn every_set_of_features_is_met_once() {
        let features = ["default", "a", "b", "c"].map(str::to_owned);
        assert_eq!(sets(&features), [vec!["a", "b"], vec!["a", "c"], vec!["b", "c"], vec!["a", "b", "c"]]);
        assert!(sets(&["default".to_owned(), "testing".to_owned()]).is_empty());
    }
}
