//! `kseg append` is killed with SIGKILL again and again, and what is left must be a beginning of what went in: no line
//! lost before another, none doubled, none torn.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Chance;
use crate::{Outcome, shell, workspace};

/// # Errors
/// The round and the line at which something is missing, doubled or torn.
pub(crate) fn kill_loop(rounds: u64, seed: u64) -> Outcome {
    shell::run(&mut shell::cargo(["build", "--release", "-p", "kseg"]))?;
    let kseg = workspace::load()?.target.join("release/kseg");
    let folder = tempfile::tempdir().map_err(|e| format!("temporary folder: {e}"))?;
    let codecs = ["none", "lz4", "zstd"];
    let mut kept = vec![0; codecs.len()];
    let mut chance = Chance(seed);
    for round in 0..rounds {
        let which = usize::try_from(round).unwrap_or(0) % codecs.len();
        let partition = folder.path().join(format!("killed-{which}"));
        let patience = Duration::from_millis(20 + chance.below(400));
        append_and_kill(&kseg, &partition, codecs[which], kept[which], patience)?;
        let left = left(&kseg, &partition).map_err(|e| format!("round {round}, {}: {e}", codecs[which]))?;
        if left < kept[which] {
            return Err(format!("round {round}: {} lines were there, {left} are left", kept[which]));
        }
        println!(
            "round {round}: {} killed after {patience:?}, {} lines, {} new",
            codecs[which],
            left,
            left - kept[which]
        );
        kept[which] = left;
    }
    Ok(())
}

fn line(number: u64) -> String {
    format!("line {number} {}", "x".repeat(usize::try_from(number % 97).unwrap_or(0)))
}

fn append_and_kill(kseg: &Path, partition: &PathBuf, codec: &str, from: u64, patience: Duration) -> Outcome {
    let failed = |e: std::io::Error| format!("kseg append: {e}");
    let mut command = Command::new(kseg);
    command.arg("append").arg(partition).args(["--codec", codec]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed)?;
    let input = child.stdin.take().ok_or("kseg append: no standard input")?;
    let feeder = std::thread::spawn(move || {
        let mut input = BufWriter::new(input);
        // Ends when the pipe breaks.
        (from..).take_while(|n| writeln!(input, "{}", line(*n)).is_ok()).last()
    });
    std::thread::sleep(patience);
    child.kill().map_err(failed)?;
    child.wait().map_err(failed)?;
    feeder.join().map_err(|_| "the thread that feeds kseg append panicked".to_owned())?;
    Ok(())
}

/// How many lines are there, all of which must be right.
fn left(kseg: &Path, partition: &Path) -> Result<u64, String> {
    if !partition.exists() {
        return Ok(0);
    }
    let text = shell::output(Command::new(kseg).arg("cat").arg(partition))?;
    let mut count = 0;
    for found in text.lines() {
        if found != line(count) {
            return Err(format!("line {count} reads {found:?}"));
        }
        count += 1;
    }
    Ok(count)
}
