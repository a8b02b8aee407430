//! `cargo xtask rivals --kafka-clean`: the same dirty directory cleaned by Kafka's cleaner and by kseg's, in turns.
//!
//! Kafka makes the directory. Each round copies it, synced and in the page cache, for either side, one after the other and every
//! second round the other way round; what is timed is one round of the cleaner alone (`Cleaner.doClean`, `Cleaner::clean`): reading
//! twice, writing, syncing, swapping. Each side has a map of 128 MiB, made before, and the same buffers; what they keep has to be as
//! many bytes. kseg looks at every checksum, twice, which Kafka does not, and syncs the directory at each swap's commit. Kafka's
//! side is one JVM that lives for all rounds and has cleaned twice before the first that counts; it has its collector's threads,
//! kseg two of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use kseg_cleaner::{Cleaner, CleanerOptions, Dirty, NullKey, Unhindered};
use kseg_format::{Offset, Timestamp};
use kseg_log::{Clock, Log, LogConfig, OpenOptions, SystemClock};

use crate::Outcome;
use crate::conformance::Oracle;
use crate::flags::Flags;
use crate::shell;
use crate::workspace;

/// What the project asks of the ratio: it fails where all of the interval lies below.
const GOAL: f64 = 2.5;
/// Rounds before the first that counts.
const WARMING: usize = 2;
const SEGMENT_BYTES: &str = "67108864";

/// Bytes of the dirty log, and how many keys it has.
struct Size {
    bytes: u64,
    keys: u64,
}

pub(crate) fn run(mut flags: Flags) -> Outcome {
    let rounds = usize::try_from(flags.number("--rounds")?.unwrap_or(15)).unwrap_or(15);
    let size = Size {
        bytes: flags.number("--bytes")?.unwrap_or(1 << 30),
        keys: flags.number("--keys")?.unwrap_or(100_000),
    };
    let parallel = !flags.switch("--one-thread");
    flags.finish()?;
    if cfg!(debug_assertions) {
        return Err(
            "rivals --kafka-clean times this very program: cargo run --release -p xtask -- rivals …".into()
        );
    }
    let failed = |e: std::io::Error| e.to_string();
    let folder = tempfile::tempdir_in(workspace::load()?.target).map_err(failed)?;
    let dirty = make_dirty(folder.path(), &size)?;
    let mut kafka = Kafka::start(folder.path(), rounds)?;
    let mut ratios = Vec::new();
    let mut rates = (Vec::new(), Vec::new());
    for round in 0..rounds + WARMING {
        let ours_first = round % 2 == 0;
        let mut kseg = None;
        if ours_first {
            kseg = Some(ours(&dirty, folder.path(), parallel)?);
        }
        let theirs = kafka.clean(&dirty)?;
        let kseg = match kseg {
            Some(kseg) => kseg,
            None => ours(&dirty, folder.path(), parallel)?,
        };
        if kseg.bytes_written != theirs.bytes_written {
            return Err(format!(
                "{} bytes were kept here and {} by Kafka",
                kseg.bytes_written, theirs.bytes_written
            ));
        }
        if round >= WARMING {
            ratios.push(theirs.seconds / kseg.seconds);
            rates.0.push(kseg.bytes as f64 / kseg.seconds / 1e9);
            rates.1.push(theirs.bytes as f64 / theirs.seconds / 1e9);
        }
    }
    let (low, high) = interval(&mut ratios);
    println!(
        "clean, {} MiB, {} keys, values of 1 KiB: kseg {:.2} GB/s, Kafka {:.2} GB/s; ratio {:.2} [{low:.2}, {high:.2}] of {rounds} rounds",
        size.bytes >> 20,
        size.keys,
        middle(&mut rates.0),
        middle(&mut rates.1),
        middle(&mut ratios),
    );
    if high < GOAL {
        return Err(format!("the cleaner: expected {GOAL} times Kafka's rate, found at most {high:.2}"));
    }
    Ok(())
}

/// One round of a cleaner.
struct Cleaned {
    seconds: f64,
    bytes: u64,
    bytes_written: u64,
}

fn bench(folder: &Path, works: &str, size: Option<&Size>) -> Command {
    let mut kafka = shell::command(workspace::root().join("xtask/kafka/kafka"));
    kafka.arg("bench").arg(folder).arg(format!("works={works}"));
    if let Some(size) = size {
        kafka.args([format!("bytes={}", size.bytes), format!("keys={}", size.keys), "rounds=-1".to_owned()]);
    }
    kafka
}

/// Has Kafka fill a log.
fn make_dirty(folder: &Path, size: &Size) -> Result<PathBuf, String> {
    shell::output(&mut bench(folder, "dirty", Some(size)))?;
    Ok(folder.join("dirty-0"))
}

/// A copy whose contents are on the disk and in the page cache.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("a copy of {}: {e}", from.display());
    if to.exists() {
        fs::remove_dir_all(to).map_err(failed)?;
    }
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let copy = to.join(entry.file_name());
        fs::copy(entry.path(), &copy).map_err(failed)?;
        File::open(&copy).and_then(|file| file.sync_all()).map_err(failed)?;
    }
    File::open(to).and_then(|dir| dir.sync_all()).map_err(failed)
}

/// Kafka's side, which cleans `clean-0` whenever it is told to.
struct Kafka {
    oracle: Oracle,
    place: PathBuf,
}

impl Kafka {
    fn start(folder: &Path, rounds: usize) -> Result<Kafka, String> {
        let mut command = bench(folder, "clean", None);
        command.arg("given=true").arg(format!("rounds={rounds}"));
        Ok(Kafka { oracle: Oracle::of(command)?, place: folder.join("clean-0") })
    }

    fn clean(&mut self, dirty: &Path) -> Result<Cleaned, String> {
        copy(dirty, &self.place)?;
        let row = self.oracle.ask("clean")?;
        let number = |name: &str| row[name].as_f64().ok_or_else(|| format!("no {name} in {row}"));
        Ok(Cleaned {
            seconds: number("seconds")?,
            bytes: number("bytes")? as u64,
            bytes_written: number("bytesWritten")? as u64,
        })
    }
}

fn ours(dirty: &Path, folder: &Path, parallel: bool) -> Result<Cleaned, String> {
    let place = folder.join("kseg").join("clean-0");
    copy(dirty, &place)?;
    let failed = |e: kseg_log::Error| e.to_string();
    let backend = kseg_io_backends::open("std").map_err(|e| e.to_string())?;
    let config = LogConfig::from_pairs([("cleanup.policy", "compact"), ("segment.bytes", SEGMENT_BYTES)]);
    let config = config.map_err(|e| e.to_string())?;
    let log = Log::open(&place, OpenOptions { config, ..OpenOptions::new(backend) }).map_err(failed)?;
    log.update_high_watermark(log.log_end_offset());
    log.roll(None).map_err(failed)?;
    log.flush(true).map_err(failed)?;
    let mut options = CleanerOptions::default();
    options.null_key = NullKey::Discard;
    options.parallel = parallel;
    let mut cleaner = Cleaner::new(options).map_err(|e| e.to_string())?;
    let dirty = Dirty {
        first: Offset::ZERO,
        first_uncleanable: log.log_end_offset(),
        now: Timestamp::new(SystemClock.now_ms()),
    };
    let bytes = log.size();
    let begun = Instant::now();
    let round = cleaner.clean(&log, dirty, &Unhindered).map_err(|e| e.to_string())?;
    let seconds = begun.elapsed().as_secs_f64();
    log.close().map_err(failed)?;
    drop(log);
    fs::remove_dir_all(&place).map_err(|e| e.to_string())?;
    Ok(Cleaned { seconds, bytes, bytes_written: round.stats.bytes_written })
}

/// The median.
pub(crate) fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The interval that holds the true median with 95 % confidence, whatever the distribution; all of them where they are too few.
pub(crate) fn interval(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // So many of fair coins at most fall on one side, with a chance of 2.5 %.
    let (mut below, mut chance, mut sum) = (0, 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX)), 0.0);
    while below < count && sum + chance <= 0.025 {
        sum += chance;
        chance *= (count - below) as f64 / (below + 1) as f64;
        below += 1;
    }
    let low = below.saturating_sub(1);
    let at = |n: usize| values.get(n).copied().unwrap_or_default();
    (at(low), at(count.saturating_sub(low + 1)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_interval_is_that_of_order_statistics() {
        let mut values: Vec<f64> = (1..=15).map(f64::from).collect();
        assert_eq!((super::interval(&mut values), super::middle(&mut values)), ((4.0, 12.0), 8.0));
        assert_eq!(super::interval(&mut [1.0, 3.0, 2.0]), (1.0, 3.0));
    }
}
