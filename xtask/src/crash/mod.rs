//! `cargo xtask crash`: writers are killed with SIGKILL again and again, and what they have left is read.
//!
//! The page cache outlives a killed process, so this says nothing about power cuts; it says that whatever order the
//! writes came in, recovery ends at a whole batch, and that what was acknowledged had left the process.

mod acknowledged;
mod lines;

use crate::Outcome;
use crate::flags::Flags;

pub(crate) use acknowledged::{BACKENDS, kill_loop as kill_acknowledged};
pub(crate) use lines::kill_loop as kill_lines;

pub(crate) const ABOUT: &str = "kills writers at random moments and reads what is left
  --rounds N         how often, each (default 20)
  --seed N           the first of the random numbers (default 1)
  --backend SPEC     only writers that wait for durability, over this I/O backend
                     (default: kseg append, and such writers over a backend of each kind)
  --writer FOLDER    is such a writer, until it is killed; --from N,N.. says where its producers go on";

pub(crate) fn run(mut flags: Flags) -> Outcome {
    let rounds = flags.number("--rounds")?.unwrap_or(20);
    let seed = flags.number("--seed")?.unwrap_or(1);
    let backend = flags.value("--backend")?;
    let writer = flags.value("--writer")?;
    let from = flags.value("--from")?;
    flags.finish()?;
    match (writer, backend) {
        (Some(folder), backend) => acknowledged::write(
            folder.as_ref(),
            backend.as_deref().unwrap_or("std"),
            from.as_deref().unwrap_or_default(),
        ),
        (None, Some(backend)) => kill_acknowledged(&backend, rounds, seed),
        (None, None) => {
            kill_lines(rounds, seed)?;
            BACKENDS.iter().try_for_each(|backend| kill_acknowledged(backend, rounds, seed))
        }
    }
}

/// A linear congruential generator: enough to spread moments and sizes, and repeatable.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}
