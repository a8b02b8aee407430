//! `cargo xtask conformance`: kseg held against a real Kafka.
//!
//! Without Java: the recorded answers and folders under `kafka/` (module `golden`), which the tests of this package run
//! too. With Java: the same stories put to a live Kafka, Kafka's dump tool over what kseg wrote, and a broker that
//! adopts a folder of kseg's (module `live`). Where kseg means to differ stands in one table (module `differences`).

mod broker;
mod broker_folders;
mod broker_round;
mod compare;
mod differences;
mod dump;
mod folders;
mod golden;
mod live;
mod oracle;
pub(crate) mod random;
mod story;

pub(crate) use oracle::Oracle;

use kseg_io_backends::BackendSpec;

use crate::flags::Flags;
use crate::{Outcome, shell};

pub(crate) const ABOUT: &str = "compares kseg with Kafka: recorded answers and folders, then a live one
  --story NAME       one story only (and nothing besides stories)
  --random N         how many random stories (default 100)
  --seed N           the number of the first of them (default 1)
  --part NAME        one part of the live ones: stories, random, same-folder, dump-tool or broker
  --lines N          how many lines a partition the broker is given, from the texts under /usr/share/doc
                     (default: this workspace's own text)
  --backend SPEC     kseg's side stands on this I/O backend (default std)
  --skip-live        leaves out what needs Java
  --only-live        leaves out what does not";

/// How many random stories CI plays, and the number of the first.
const RANDOM: u64 = 100;
const SEED: u64 = 1;

/// What to compare.
#[derive(Debug)]
pub(crate) struct Asked {
    /// One story only, and nothing besides stories.
    pub(crate) story: Option<String>,
    /// The part that needs no Java.
    pub(crate) golden: bool,
    /// The part that does.
    pub(crate) live: bool,
    /// Random stories: how many, and the number of the first.
    pub(crate) random: u64,
    pub(crate) seed: u64,
    /// One part of the live ones, by name.
    pub(crate) part: Option<String>,
    /// Lines a partition that the broker is given; `None` for this workspace's own text.
    pub(crate) lines: Option<u64>,
}

impl Default for Asked {
    fn default() -> Asked {
        Asked { story: None, golden: true, live: true, random: RANDOM, seed: SEED, part: None, lines: None }
    }
}

pub(crate) fn run(mut flags: Flags) -> Outcome {
    let asked = Asked {
        story: flags.value("--story")?,
        golden: !flags.switch("--only-live"),
        live: !flags.switch("--skip-live"),
        random: flags.number("--random")?.unwrap_or(RANDOM),
        seed: flags.number("--seed")?.unwrap_or(SEED),
        part: flags.value("--part")?,
        lines: flags.number("--lines")?,
    };
    crate::replay::choose(&mut flags)?;
    flags.finish()?;
    if let Some(part) = asked.part.as_deref().filter(|part| !live::PARTS.contains(part)) {
        return Err(format!("no live part {part}: expected one of {}", live::PARTS.join(", ")));
    }
    compare(&asked)
}

/// The backends besides the default over which the golden stories are played, those that CI takes the time for first.
const BACKENDS: &[&str] = &["uring+direct", "memory", "uring", "std+direct", "std+dontcache"];
/// How many of them CI plays over.
const BACKENDS_OF_CI: usize = 2;

/// Plays the golden stories over backends of every kind, or over some of each, each in a process of its own; where one
/// is not to be had here, that is told.
///
/// # Errors
/// What differs.
pub(crate) fn golden_over_backends(all: bool) -> Outcome {
    let folder = golden::temporary()?;
    let this = std::env::current_exe().map_err(|e| format!("the path of this program: {e}"))?;
    for name in &BACKENDS[..if all { BACKENDS.len() } else { BACKENDS_OF_CI }] {
        let spec: BackendSpec = name.parse().map_err(|e| format!("{name}: {e}"))?;
        match spec.open_in(folder.path()) {
            Ok(_) => {
                let mut stories = std::process::Command::new(&this);
                stories.args(["conformance", "--skip-live", "--backend", name]);
                shell::run(&mut stories).map_err(|e| format!("over {name}: {e}"))?;
            }
            Err(error) if error.unavailable().is_some() => {
                println!("golden stories: not over {name}: {error}");
            }
            Err(error) => return Err(format!("{name}: {error}")),
        }
    }
    Ok(())
}

/// The recorded part, the live part, or both. Each is run to its end before the differences of either are told.
///
/// # Errors
/// What differs, and that Java is missing where the live part was asked for.
pub(crate) fn compare(asked: &Asked) -> Outcome {
    let mut failed = Vec::new();
    if asked.golden {
        failed.extend(golden::run(asked.story.as_deref()).err());
        if asked.story.is_none() {
            failed.extend(broker_folders::run().err());
        }
    }
    if !asked.live {
        println!("live: left out");
    } else if !shell::answers("java", "-version") || !shell::answers("mvn", "--version") {
        let missing = "java (17 or later) and mvn are needed for the live part and are not both on the PATH; \
                       --skip-live leaves it out";
        failed.push(missing.to_owned());
    } else {
        failed.extend(live::run(asked).err());
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}
