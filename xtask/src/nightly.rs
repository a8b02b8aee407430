//! `cargo xtask nightly`: the longer versions of what CI runs, for a machine that has the night.

use crate::conformance::Asked;
use crate::flags::Flags;
use crate::{Outcome, conformance, crash, loom, shell, workspace};

pub(crate) const ABOUT: &str =
    "longer versions of what CI runs: loom with 3 preemptions, many random cases, full benchmarks,
                     200 killed writers, packed crates built
  --cases N          random cases a property (default 4096)";

pub(crate) fn run(mut flags: Flags) -> Outcome {
    let cases = flags.number("--cases")?.unwrap_or(4096);
    flags.finish()?;
    let mut tests = shell::cargo(["test", "--workspace", "--release"]);
    shell::run(tests.env("PROPTEST_CASES", cases.to_string()))?;
    loom::models(&workspace::load()?, None, 3, None)?;
    conformance::compare(&Asked {
        random: 500,
        seed: u64::from(std::process::id()) << 16,
        ..Asked::default()
    })?;
    crash::kill_loop(200, std::process::id().into())?;
    shell::run(&mut shell::cargo(["run", "--release", "-p", "kseg-bench"]))?;
    shell::run(&mut shell::cargo(["bench", "--workspace", "--benches"]))?;
    shell::run(&mut shell::cargo(["package", "--workspace", "--allow-dirty", "--exclude", "xtask"]))
}
