//! `cargo xtask fuzz`: the fuzz targets of `format/fuzz`, by cargo-fuzz with a nightly toolchain.
//!
//! The bodies are those of the property tests, in `format/tests/it/fuzzed.rs`. What is found stays in
//! `format/fuzz/artifacts`, what the fuzzer has learned in `format/fuzz/corpus`.

use crate::Outcome;
use crate::flags::Flags;
use crate::shell;
use crate::workspace;

pub(crate) const ABOUT: &str = "runs fuzz targets: walk, decode, decompress, legacy, snapshot, checkpoints
  [TARGET]           only this one (default: one after the other)
  --seconds N        how long each (default 60)
  --check            only compiles them, with the usual toolchain and without libFuzzer";

const TARGETS: &[&str] = &["walk", "decode", "decompress", "legacy", "snapshot", "checkpoints"];
const FOLDER: &str = "format/fuzz";

pub(crate) fn run(mut flags: Flags) -> Outcome {
    let seconds = flags.number("--seconds")?.unwrap_or(60);
    let check = flags.switch("--check");
    let only = flags.positional();
    flags.finish()?;
    if let Some(name) = &only
        && !TARGETS.contains(&name.as_str())
    {
        return Err(format!("no target {name}; there are {}", TARGETS.join(", ")));
    }
    if check {
        return compile();
    }
    prepare()?;
    for target in TARGETS.iter().filter(|target| only.as_deref().is_none_or(|only| only == **target)) {
        let mut cargo = shell::command("cargo");
        cargo.args(["+nightly", "fuzz", "run", "--fuzz-dir", FOLDER, target, "--"]);
        cargo.arg(format!("-max_total_time={seconds}"));
        // Batches of some records; more would only be slower.
        shell::run(cargo.args(["-max_len=4096", "-print_final_stats=1"]))?;
    }
    Ok(())
}

/// Compiles the targets without running them, and without libFuzzer, in a target folder of their own.
pub(crate) fn compile() -> Outcome {
    let target = workspace::root().join("target/fuzz");
    let manifest = format!("{FOLDER}/Cargo.toml");
    let mut cargo = shell::cargo(["check", "--bins", "--no-default-features"]);
    cargo.args(["--manifest-path", &manifest, "--target-dir"]);
    shell::run(cargo.arg(target))
}

/// Sees to a nightly toolchain, cargo-fuzz and a C++ compiler, which libFuzzer is built with.
fn prepare() -> Outcome {
    let works =
        |program: &str, arguments: &[&str]| shell::output(shell::command(program).args(arguments)).is_ok();
    if !works("c++", &["--version"]) {
        return Err("there is no c++ on the PATH; libFuzzer is built with it (Debian: g++)".to_owned());
    }
    if !works("rustup", &["run", "nightly", "rustc", "--version"]) {
        let install = ["toolchain", "install", "nightly", "--profile", "minimal", "--no-self-update"];
        shell::run(shell::command("rustup").args(install))
            .map_err(|e| format!("libFuzzer needs a nightly toolchain, which cannot be installed: {e}"))?;
    }
    if !works("cargo", &["fuzz", "--version"]) {
        shell::run(&mut shell::cargo(["install", "cargo-fuzz", "--locked"]))
            .map_err(|e| format!("cargo-fuzz cannot be installed: {e}"))?;
    }
    Ok(())
}
