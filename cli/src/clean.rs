//! `kseg clean`: compaction of the logs of a data directory.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use kseg_cleaner::{
    Cleaner, CleanerOptions, Dirty, Manager, ManagerOptions, NullKey, RoundReport, Sections, Status,
    Unhindered,
};
use kseg_format::Timestamp;
use kseg_io_backends::{Backend, Overlay, StdBackend};
use kseg_log::{Clock, Log, LogDir, LogDirOptions, SystemClock, TopicPartition};

use crate::append::key_values;
use crate::error::{Error, Result};
use crate::json::Line;

/// Compacts the logs of a data directory, or says why they are not compacted.
///
/// `status` and `plan` change nothing, take no lock, and may look at a directory that a broker has open: they see what is on the
/// disk then. `run` locks the directory, as append does: it is for one at rest. What is in its logs counts as committed, but
/// for transactions that are open. Which topics are compacted, and when, is their configuration (`kseg topics`), over which
/// --set counts.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CleanArgs {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  kseg clean status data
  kseg clean plan data orders-0 --roll
  kseg clean run data --write
  kseg clean run data orders-0 --write --all --set cleanup.policy=compact --map-bytes 1073741824";

#[derive(Debug, Subcommand)]
enum Action {
    /// Says of each log what is dirty and what it waits for
    Status(Common),
    /// Reads what a round would read, and says what it would leave
    Plan(Common),
    /// Cleans the logs that are worth it, the dirtiest first, until none is left
    Run {
        #[command(flatten)]
        common: Common,
        /// Yes, change the files
        #[arg(long)]
        write: bool,
        /// Bytes a second to read and write at most
        #[arg(long, value_name = "BYTES")]
        rate: Option<f64>,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// The data directory
    dir: PathBuf,
    /// Partitions as topic-partition; without any, all
    partitions: Vec<String>,
    /// Memory of the offset map, 24 bytes a key
    #[arg(long, default_value_t = 128 << 20, value_name = "BYTES")]
    map_bytes: usize,
    /// Also logs that are not dirty enough
    #[arg(long)]
    all: bool,
    /// Roll each log first, so that what is in its active segment counts
    #[arg(long)]
    roll: bool,
    /// Drop records without a key, as Kafka does
    #[arg(long)]
    discard_null_keys: bool,
    /// Look at the key before a record is dropped, not at its hash alone
    #[arg(long)]
    verify_keys: bool,
    /// Topic configuration, over what the topics have; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// A JSON object a line
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &CleanArgs) -> Result<bool> {
    match &args.action {
        Action::Status(common) => with(common, Access::Look, |open| open.status()),
        Action::Plan(common) => with(common, Access::Look, |open| open.plan()),
        Action::Run { write: false, .. } => {
            Err(Error::Usage("clean run changes files: say --write, or use clean plan".to_owned()))
        }
        Action::Run { common, rate, .. } => with(common, Access::Change { rate: *rate }, |open| open.run()),
    }
}

/// What a command does to the directory.
#[derive(Clone, Copy)]
enum Access {
    /// Nothing: what opening a log mends stays in memory.
    Look,
    Change {
        rate: Option<f64>,
    },
}

/// A data directory with the logs that were asked for.
struct Open<'a> {
    args: &'a Common,
    manager: Arc<Manager>,
    logs: Vec<Arc<Log>>,
}

/// Opens the directory, does the work, and closes it in an orderly way whatever came of that.
fn with(args: &Common, access: Access, work: impl FnOnce(&Open<'_>) -> Result<bool>) -> Result<bool> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let files: Arc<dyn Backend> = Arc::new(StdBackend::new());
    let (backend, rate) = match access {
        Access::Look => (Arc::new(Overlay::new(files)) as Arc<dyn Backend>, None),
        Access::Change { rate } => (files, rate),
    };
    if !args.dir.is_dir() {
        return Err(Error::bad(&args.dir, "a data directory", "no directory"));
    }
    let mut options = ManagerOptions::default();
    options.cleaner = cleaner_options(args);
    options.max_bytes_per_second = rate;
    let manager =
        Manager::new(options, backend.clone(), clock.clone()).map_err(|e| Error::Usage(e.to_string()))?;
    let dir = LogDir::open(&args.dir, LogDirOptions { clock, ..LogDirOptions::new(backend) })?;
    let done = open_logs(args, &dir, &manager).and_then(|logs| work(&Open { args, manager, logs }));
    let report = dir.shutdown()?;
    let done = done?;
    match report.failed.into_iter().next() {
        Some((_, error)) => Err(Error::from(error)),
        None => Ok(done),
    }
}

fn cleaner_options(args: &Common) -> CleanerOptions {
    let mut options = CleanerOptions::default();
    options.map_bytes = args.map_bytes;
    options.verify_keys = args.verify_keys;
    options.null_key = if args.discard_null_keys { NullKey::Discard } else { NullKey::Keep };
    options
}

fn open_logs(args: &Common, dir: &LogDir, manager: &Manager) -> Result<Vec<Arc<Log>>> {
    let pairs = key_values("--set", &args.settings)?;
    let there = dir.partitions()?;
    if let Some(asked) = args.partitions.iter().find(|asked| there.iter().all(|p| p.to_string() != **asked)) {
        return Err(Error::bad(&dir.path().join(asked), "a folder of a partition", "none"));
    }
    let mut logs = Vec::new();
    for partition in there {
        let Some(log) = dir.get(&partition)? else { continue };
        // Its line in the checkpoint stays, whether it is asked for or not.
        manager.add(dir.path(), log.clone()).map_err(Error::from)?;
        if !args.partitions.is_empty() && !args.partitions.contains(&partition.to_string()) {
            manager.abort_and_pause(&partition);
            continue;
        }
        let mut config = (*log.config()).clone();
        if args.all {
            config.min_cleanable_dirty_ratio = 0.0;
        }
        let config = config.with_pairs(pairs.iter().copied());
        log.update_config(config.map_err(|error| Error::Usage(format!("--set: {error}")))?)?;
        if args.roll && log.active_size()? > 0 {
            log.roll(None)?;
        }
        log.update_high_watermark(log.log_end_offset());
        logs.push(log);
    }
    Ok(logs)
}

impl Open<'_> {
    fn asked(&self) -> Vec<Status> {
        let asked = |status: &Status| self.logs.iter().any(|log| *log.partition() == status.partition);
        self.manager.status().into_iter().filter(asked).collect()
    }

    fn status(&self) -> Result<bool> {
        let mut out = Vec::new();
        for status in self.asked() {
            let sections = status.sections;
            if self.args.json {
                let mut line = Line::new(&mut out, "clean-status");
                line.text("partition", &status.partition.to_string()).text("next", &status.next.to_string());
                if let Some(s) = sections {
                    line.number("first_dirty", s.first_dirty.offset.get())
                        .number("first_uncleanable", s.first_uncleanable_offset.get())
                        .number("clean_bytes", s.clean_bytes)
                        .number("cleanable_bytes", s.cleanable_bytes);
                }
                line.end();
                continue;
            }
            let text = sections.map_or_else(String::new, |s| {
                format!(
                    "  ratio {:.3}  dirty {} of {} bytes, offsets {} to {}",
                    s.cleanable_ratio(),
                    s.cleanable_bytes,
                    s.total_bytes(),
                    s.first_dirty.offset,
                    s.first_uncleanable_offset
                )
            });
            let _ = writeln!(out, "{}{text}\n  {}", status.partition, status.next);
        }
        print(&out)
    }

    fn plan(&self) -> Result<bool> {
        let mut out = Vec::new();
        let mut cleaner = Cleaner::new(cleaner_options(self.args)).map_err(Error::from)?;
        for (log, status) in self.logs.iter().zip(self.asked()) {
            let Some(sections) = status.sections.filter(|s| s.cleanable_bytes > 0) else {
                self.say(&mut out, &status.partition, &status.next.to_string());
                continue;
            };
            let dirty = dirty(&sections);
            let round = cleaner.plan(log, dirty, &Unhindered).map_err(Error::from)?;
            let stats = round.stats;
            let end = round.end.unwrap_or(dirty.first);
            if self.args.json {
                Line::new(&mut out, "clean-plan")
                    .text("partition", &status.partition.to_string())
                    .number("from", dirty.first.get())
                    .number("to", end.get())
                    .number("bytes_read", stats.bytes_read)
                    .number("bytes_written", stats.bytes_written)
                    .number("records_read", stats.records_read)
                    .number("records_written", stats.records_written)
                    .flag("last_round", end >= sections.first_uncleanable_offset)
                    .end();
                continue;
            }
            let more = if end < sections.first_uncleanable_offset {
                ", then more rounds: the map is full"
            } else {
                ""
            };
            let text = format!(
                "dirty {} to {end}: {} of {} bytes and {} of {} records stay, map {:.1} % full{more}",
                dirty.first,
                stats.bytes_written,
                stats.bytes_read,
                stats.records_written,
                stats.records_read,
                100.0 * stats.map_utilization
            );
            self.say(&mut out, &status.partition, &text);
        }
        print(&out)
    }

    fn run(&self) -> Result<bool> {
        let mut out = Vec::new();
        let mut cleaner = Cleaner::new(cleaner_options(self.args)).map_err(Error::from)?;
        let mut good = true;
        loop {
            let pass = self.manager.pass(&mut cleaner).map_err(Error::from)?;
            if let Some((partition, first, round)) = &pass.cleaned {
                let end = round.end.unwrap_or(*first);
                if self.args.json {
                    Line::new(&mut out, "clean-round")
                        .text("partition", &partition.to_string())
                        .number("from", first.get())
                        .number("to", end.get())
                        .number("bytes_read", round.stats.bytes_read)
                        .number("bytes_written", round.stats.bytes_written)
                        .number("records_read", round.stats.records_read)
                        .number("records_written", round.stats.records_written)
                        .number("invalid_records", round.stats.invalid_records)
                        .end();
                } else {
                    let log = partition.to_string();
                    let (first_dirty, end) = (first.get(), end.get());
                    let report = RoundReport { thread: 0, log: &log, first_dirty, end, stats: &round.stats };
                    let _ = writeln!(out, "{}", report.to_string().trim_start());
                }
            }
            if let Some((partition, error)) = &pass.failed {
                eprintln!("kseg: {partition}: {error}");
                good = false;
            } else if !pass.did_something() {
                break;
            }
        }
        print(&out)?;
        Ok(good)
    }

    fn say(&self, out: &mut Vec<u8>, partition: &TopicPartition, text: &str) {
        if self.args.json {
            Line::new(out, "clean-plan").text("partition", &partition.to_string()).text("next", text).end();
        } else {
            let _ = writeln!(out, "{partition}: {text}");
        }
    }
}

fn dirty(sections: &Sections) -> Dirty {
    Dirty {
        first: sections.first_dirty.offset,
        first_uncleanable: sections.first_uncleanable_offset,
        now: Timestamp::new(SystemClock.now_ms()),
    }
}

fn print(out: &[u8]) -> Result<bool> {
    std::io::stdout().write_all(out).map_err(Error::output)?;
    Ok(true)
}

impl From<kseg_cleaner::Error> for Error {
    fn from(error: kseg_cleaner::Error) -> Error {
        match error {
            kseg_cleaner::Error::Log(error) => Error::from(error),
            other => Error::bad(Path::new("clean"), "a round that ends", other.to_string()),
        }
    }
}
