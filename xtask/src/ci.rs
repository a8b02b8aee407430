//! `cargo xtask ci`: all that CI runs, in order, each step with its time; the first failure ends it.
//!
//! Every step shares one target folder, so later steps find what earlier ones have built; only loom has its own.
//! Warnings are denied through clippy's and rustdoc's own flags, not through `RUSTFLAGS`, which would rebuild everything.

use std::time::{Duration, Instant};

use crate::conformance::Asked;
use crate::flags::Flags;
use crate::workspace::{LIBRARIES, Workspace};
use crate::{Outcome, conformance, crash, fuzz, loom, rivals, shell, tidy, workspace};

pub(crate) const ABOUT: &str = "runs all that CI runs, in order, and stops at the first failure
  --list             prints the steps
  --only STEP        one step
  --from STEP        this step and those after it
  --without-tests    leaves out `cargo test --workspace` (for a caller that has run it)
  --skip-live        leaves out what needs Java";

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Context) -> Outcome,
}

struct Context {
    workspace: Workspace,
    skip_live: bool,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", about: "rustfmt, --check", run: fmt },
    Step { name: "tidy", about: "the rules that no tool knows", run: |_| tidy::check() },
    Step { name: "clippy", about: "clippy, warnings denied, all targets and features", run: clippy },
    Step { name: "test", about: "all tests, debug", run: test },
    Step { name: "doc", about: "rustdoc, warnings denied", run: doc },
    Step { name: "features", about: "each feature alone, and none", run: features },
    Step { name: "msrv", about: "the library crates with the oldest toolchain they promise", run: msrv },
    Step {
        name: "loom",
        about: "models of what runs beside a writer",
        run: |c| loom::models(&c.workspace, None, 2, None),
    },
    Step {
        name: "kills",
        about: "writers killed while they wait for durability, over every backend",
        run: kills,
    },
    Step {
        name: "conformance",
        about: "golden stories over three backends, and a real Kafka",
        run: held_against_kafka,
    },
    Step {
        name: "bench",
        about: "every benchmark, tiny; 512 MiB of unique keys under a map of 8 MiB",
        run: bench,
    },
    Step { name: "fuzz", about: "the fuzz targets compile", run: |_| fuzz::compile() },
    Step { name: "rivals", about: "the bench beside other crates compiles", run: |_| rivals::compile() },
    Step { name: "package", about: "every crate packs", run: package },
];

pub(crate) fn run(mut flags: Flags) -> Outcome {
    let only = flags.value("--only")?;
    let from = flags.value("--from")?;
    let without_tests = flags.switch("--without-tests");
    let skip_live = flags.switch("--skip-live");
    let list = flags.switch("--list");
    flags.finish()?;
    if list {
        for step in STEPS {
            println!("{:<12} {}", step.name, step.about);
        }
        return Ok(());
    }
    let place =
        |name: &str| STEPS.iter().position(|s| s.name == name).ok_or(format!("no step {name}; see --list"));
    let mut steps: Vec<&Step> = STEPS.iter().collect();
    if let Some(name) = only {
        steps = vec![&STEPS[place(&name)?]];
    } else if let Some(name) = from {
        steps.drain(..place(&name)?);
    }
    steps.retain(|s| !(without_tests && s.name == "test"));

    let context = Context { workspace: workspace::load()?, skip_live };
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for step in steps {
        println!("== {}: {}", step.name, step.about);
        let start = Instant::now();
        let outcome = (step.run)(&context);
        times.push((step.name, start.elapsed()));
        println!(
            "== {}: {} in {:.1} s",
            step.name,
            if outcome.is_ok() { "ok" } else { "FAILED" },
            start.elapsed().as_secs_f64()
        );
        outcome.map_err(|e| format!("step {}: {e}", step.name))?;
    }
    println!("== all steps passed");
    for (name, time) in &times {
        println!("{name:<12} {:>7.1} s", time.as_secs_f64());
    }
    println!("{:<12} {:>7.1} s", "in all", times.iter().map(|(_, t)| t.as_secs_f64()).sum::<f64>());
    Ok(())
}

fn fmt(_: &Context) -> Outcome {
    shell::run(&mut shell::cargo(["fmt", "--all", "--check"]))
}

fn clippy(_: &Context) -> Outcome {
    shell::run(&mut shell::cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ]))
}

/// Where they can be mounted, tests want an xfs and an ext4 of their own; what makes an xfs is installed for them. Where that
/// fails they say what they skip.
fn file_systems() {
    let root = shell::output(shell::command("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if root && !shell::answers("mkfs.xfs", "-V") {
        let mut install = shell::command("apt-get");
        install.args(["install", "--yes", "--no-install-recommends", "xfsprogs"]);
        if let Err(error) = shell::run(&mut install) {
            println!("tests do without xfs: {error}");
        }
    }
}

fn test(_: &Context) -> Outcome {
    file_systems();
    shell::run(&mut shell::cargo(["test", "--workspace"]))
}

fn doc(_: &Context) -> Outcome {
    let mut cargo = shell::cargo(["doc", "--workspace", "--all-features", "--no-deps"]);
    shell::run(cargo.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Clippy once without features and once for each feature, of every library crate that has any.
fn features(context: &Context) -> Outcome {
    for package in context.workspace.packages.iter().filter(|p| LIBRARIES.contains(&p.name.as_str())) {
        let named: Vec<&str> =
            package.features.iter().map(String::as_str).filter(|f| *f != "default").collect();
        if named.is_empty() {
            continue;
        }
        for feature in std::iter::once(None).chain(named.iter().map(Some)) {
            let mut cargo = shell::cargo(["clippy", "-p", &package.name, "--no-default-features"]);
            if let Some(feature) = feature {
                cargo.args(["--features", feature]);
            }
            shell::run(cargo.args(["--", "-D", "warnings"]))?;
        }
    }
    Ok(())
}

/// Checks the library crates with the toolchain of `rust-version`, which rustup installs if it is missing.
fn msrv(context: &Context) -> Outcome {
    let version = context.workspace.rust_version.as_str();
    if !shell::answers("rustup", "--version") {
        return Err(format!("rustup is not on the PATH; it is needed to check with Rust {version}"));
    }
    let there = shell::output(shell::command("rustup").args(["run", version, "rustc", "--version"])).is_ok();
    if !there {
        let mut install = shell::command("rustup");
        install.args(["toolchain", "install", version, "--profile", "minimal", "--no-self-update"]);
        shell::run(&mut install).map_err(|e| {
            format!("Rust {version}, the oldest toolchain that the library crates promise, cannot be installed: {e}")
        })?;
    }
    let mut cargo = shell::command("rustup");
    cargo.args(["run", version, "cargo", "check", "--all-features"]);
    for library in LIBRARIES {
        cargo.args(["-p", library]);
    }
    shell::run(&mut cargo)
}

fn kills(_: &Context) -> Outcome {
    crash::BACKENDS.iter().try_for_each(|backend| crash::kill_acknowledged(backend, 20, 1))
}

fn held_against_kafka(context: &Context) -> Outcome {
    conformance::golden_over_backends(false)?;
    conformance::compare(&Asked { live: !context.skip_live, ..Asked::default() })
}

/// The benchmark program at its smallest, then every criterion target in its test mode: each body once.
fn bench(context: &Context) -> Outcome {
    shell::run(&mut shell::cargo(["run", "--release", "-p", "kseg-bench", "--", "--tiny"]))?;
    let mut keys = shell::cargo(["test", "--release", "-p", "kseg-cleaner", "--test", "memory"]);
    shell::run(keys.env("KSEG_UNIQUE", "512/8"))?;
    for package in context.workspace.packages.iter().filter(|p| !p.benches.is_empty()) {
        let mut cargo = shell::cargo(["bench", "-p", &package.name]);
        for bench in &package.benches {
            cargo.args(["--bench", bench]);
        }
        shell::run(cargo.args(["--", "--test"]))?;
    }
    Ok(())
}

/// Packs every crate that is published. Building the packed crates is the nightly run's.
fn package(context: &Context) -> Outcome {
    let mut cargo = shell::cargo(["package", "--workspace", "--no-verify", "--allow-dirty"]);
    for package in context.workspace.packages.iter().filter(|p| !p.publish) {
        cargo.args(["--exclude", &package.name]);
    }
    shell::run(&mut cargo)
}
