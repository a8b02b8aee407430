//! `cargo xtask loom`: the models of every crate that has `tests/loom.rs`, each interleaving up to a bound.
//!
//! `--cfg loom` reaches every crate of the build, so the models have a target folder of their own beside the usual one;
//! otherwise each switch would rebuild the workspace.

use crate::Outcome;
use crate::flags::Flags;
use crate::shell;
use crate::workspace::{self, Workspace};

pub(crate) const ABOUT: &str = "runs the loom models
  [CRATE]            only this package (default: all that have tests/loom.rs)
  --preemptions N    how often a thread may be interrupted (default 2)
  --filter TEXT      only models whose name contains TEXT";

pub(crate) fn run(mut flags: Flags) -> Outcome {
    let preemptions = flags.number("--preemptions")?.unwrap_or(2);
    let filter = flags.value("--filter")?;
    let only = flags.positional();
    flags.finish()?;
    models(&workspace::load()?, only.as_deref(), preemptions, filter.as_deref())
}

/// Runs the models of one crate or of all.
pub(crate) fn models(
    workspace: &Workspace,
    only: Option<&str>,
    preemptions: u64,
    filter: Option<&str>,
) -> Outcome {
    let named = |name: &str| only.is_none_or(|o| name == o || name.strip_prefix("kseg-") == Some(o));
    let mut found = false;
    for package in workspace.packages.iter().filter(|p| named(&p.name)) {
        if !package.folder.join("tests/loom.rs").exists() {
            continue;
        }
        found = true;
        let mut target = workspace.target.clone().into_os_string();
        target.push("-loom");
        let mut cargo = shell::cargo(["test", "--release", "--test", "loom", "-p"]);
        cargo.arg(&package.name).arg("--").args(filter);
        cargo.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target);
        cargo.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
        // Linked once, run once: link-time optimisation would cost more than it saves.
        cargo.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
        shell::run(&mut cargo)?;
    }
    if found {
        Ok(())
    } else {
        Err(format!("no package {}with tests/loom.rs", only.map(|o| format!("{o} ")).unwrap_or_default()))
    }
}
