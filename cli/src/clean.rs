//! `kseg clean`: compaction of the logs of a data directory.

mod look;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use kseg_cleaner::{
    Cleaner, CleanerOptions, Dirty, Manager, ManagerOptions, Next, NullKey, RoundReport, Sections, Status,
    Unhindered,
};
use kseg_format::Timestamp;
use kseg_io_backends::Backend;
use kseg_log::{Clock, Log, LogConfig, LogDir, LogDirOptions, SystemClock, TopicPartition};

use crate::append::key_values;
use crate::data_dir::{self, Access};
use crate::error::{Error, Result};
use crate::json::Line;
use crate::stop::Stop;
use crate::tell::tell;

/// Compacts the logs of a data directory, or says why they are not compacted.
///
/// `status` and `plan` change nothing, take no lock, and may look at a directory that a broker has open: they see what is on the
/// disk then, and look again at what changed beneath them. `run` locks the directory, as append does: it is for one at rest. What is in its logs counts as committed, but
/// for transactions that are open. Which topics are compacted, and when, is their configuration (`kseg topics`), over which
/// --set counts; a broker keeps that of its own topics in its metadata log, where it is not looked for.
///
/// Exit code: 0 done, 1 something failed or a log could not be read (what could be done was done), 2 wrong usage.
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
    ///
    /// Clean bytes are those of segments that begin below the first dirty offset, dirty ones those of segments from there to
    /// what cannot be cleaned now. A segment that the first dirty offset divides counts as both, in the ratio too, as in Kafka.
    Status {
        #[command(flatten)]
        common: Common,
        /// Say it as if each log had been rolled now: what is in its active segment counts too. Nothing is rolled
        #[arg(long)]
        roll: bool,
    },
    /// Reads what the next round over each log that is worth it would read, and says what it would leave
    Plan {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        cleaning: Cleaning,
        /// Plan as if each log had been rolled now: what is in its active segment counts too. Nothing is rolled
        #[arg(long)]
        roll: bool,
    },
    /// Cleans the logs that are worth it, the dirtiest first, until none is left
    Run {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        cleaning: Cleaning,
        /// Roll each log first, so that what is in its active segment is cleaned too
        #[arg(long)]
        roll: bool,
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
    /// Topic configuration, over what the topics have; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// A JSON object a line
    #[arg(long)]
    json: bool,
}

/// How a log is cleaned.
#[derive(Debug, Args)]
struct Cleaning {
    /// Memory of the offset map, 24 bytes a key
    #[arg(long, default_value_t = 128 << 20, value_name = "BYTES")]
    map_bytes: usize,
    /// Also logs that are not dirty enough
    #[arg(long)]
    all: bool,
    /// Drop records without a key, as Kafka does
    #[arg(long)]
    discard_null_keys: bool,
    /// Look at the key before a record is dropped, not at its hash alone
    #[arg(long)]
    verify_keys: bool,
}

impl Cleaning {
    fn options(&self) -> CleanerOptions {
        let mut options = CleanerOptions::default();
        options.map_bytes = self.map_bytes;
        options.verify_keys = self.verify_keys;
        options.null_key = if self.discard_null_keys { NullKey::Discard } else { NullKey::Keep };
        options
    }
}

/// Runs the command.
pub(crate) fn run(args: &CleanArgs) -> Result<bool> {
    match &args.action {
        Action::Status { common, roll } => {
            let work = Work { common, cleaning: None, roll: *roll, rate: None };
            look::over(&work, |_, status, next| Ok(say_status(common, status, next)))
        }
        Action::Plan { common, cleaning, roll } => {
            let work = Work { common, cleaning: Some(cleaning), roll: *roll, rate: None };
            let mut cleaner = work.cleaner()?;
            look::over(&work, |log, status, next| say_plan(common, &mut cleaner, log, status, next))
        }
        Action::Run { write: false, .. } => {
            Err(Error::Usage("clean run changes files: say --write, or use clean plan".to_owned()))
        }
        Action::Run { common, cleaning, roll, rate, .. } => {
            let work = Work { common, cleaning: Some(cleaning), roll: *roll, rate: *rate };
            if common.partitions.is_empty() && work.pairs()?.iter().any(|(key, _)| *key == "cleanup.policy") {
                return Err(Error::Usage(
                    "--set cleanup.policy: expected partitions to clean, found none: it would be in force for every topic of the directory"
                        .to_owned(),
                ));
            }
            work.run()
        }
    }
}

/// What is to be done.
struct Work<'a> {
    common: &'a Common,
    cleaning: Option<&'a Cleaning>,
    roll: bool,
    rate: Option<f64>,
}

impl Work<'_> {
    /// What the command line sets over the topics' configuration. Refused before anything is opened; over that of a topic it
    /// counts once that is known.
    fn pairs(&self) -> Result<Vec<(&str, &str)>> {
        let pairs = key_values("--set", &self.common.settings)?;
        LogConfig::from_pairs(pairs.iter().copied())
            .map_err(|error| Error::Usage(format!("--set: {error}")))?;
        Ok(pairs)
    }

    fn options(&self) -> CleanerOptions {
        self.cleaning.map(Cleaning::options).unwrap_or_default()
    }

    /// A cleaner as the command line wants it.
    fn cleaner(&self) -> Result<Cleaner> {
        Cleaner::new(self.options()).map_err(|error| match error {
            kseg_cleaner::Error::Config { .. } => Error::Usage(error.to_string()),
            other => Error::from(other),
        })
    }

    fn manager(&self, backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Result<Arc<Manager>> {
        let mut options = ManagerOptions::default();
        options.cleaner = self.options();
        options.max_bytes_per_second = self.rate;
        Manager::new(options, backend, clock).map_err(|e| Error::Usage(e.to_string()))
    }

    /// The partitions of the directory, and of each whether it was asked for.
    fn partitions(&self, dir: &LogDir) -> Result<Vec<(TopicPartition, bool)>> {
        let there = dir.partitions()?;
        let asked = &self.common.partitions;
        if let Some(missing) = asked.iter().find(|asked| there.iter().all(|p| p.to_string() != **asked)) {
            return Err(Error::bad(&dir.path().join(missing), "a folder of a partition", "none"));
        }
        let is_asked = |p: &TopicPartition| asked.is_empty() || asked.contains(&p.to_string());
        Ok(there.into_iter().map(|p| (p.clone(), is_asked(&p))).collect())
    }

    /// The configuration that a log is to have: the topic's, and the command line's over it.
    fn config_of(&self, log: &Log) -> Result<LogConfig> {
        let mut config = (*log.config()).clone();
        if self.cleaning.is_some_and(|cleaning| cleaning.all) {
            config.min_cleanable_dirty_ratio = 0.0;
        }
        let config = config.with_pairs(self.pairs()?);
        let mut config = config.map_err(|error| Error::Usage(format!("--set: {error}")))?;
        // Nobody else reads here: what is replaced goes at once.
        config.file_delete_delay_ms = 0;
        Ok(config)
    }

    /// Puts a configuration in force, rolls if that was asked for, and takes all for committed.
    fn prepare(&self, log: &Log, config: LogConfig) -> Result<()> {
        log.update_config(config)?;
        if self.roll && log.active_size()? > 0 {
            log.roll(None)?;
        }
        log.update_high_watermark(log.log_end_offset());
        Ok(())
    }

    /// Opens the directory, cleans, and closes it in an orderly way whatever came of that.
    fn run(&self) -> Result<bool> {
        // What can be refused is refused before anything is touched.
        let mut cleaner = self.cleaner()?;
        self.pairs()?;
        let (access, path) = (Access::Change, &self.common.dir);
        let backend = access.backend();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let manager = self.manager(backend.clone(), clock.clone())?;
        let stop = Stop::listen().map_err(|error| Error::io(path, "listen for signals", error))?;
        let options = LogDirOptions { clock, ..LogDirOptions::new(backend.clone()) };
        let done = data_dir::with(path, access, options, |dir| {
            let good = self.open_logs(dir, &manager)?;
            for damage in manager.damaged_checkpoints() {
                data_dir::tell_damaged(&damage, access);
            }
            if let Some(note) = unknown_configuration(&*backend, dir)? {
                tell!("kseg: {note}");
            }
            // Who asks for one of these, or for all, takes it for cleaned otherwise.
            if self.cleaning.is_some_and(|cleaning| cleaning.all) || !self.common.partitions.is_empty() {
                let configured = configured(dir)?;
                for status in manager.status().iter().filter(|status| status.next == Next::NotCompacted) {
                    tell!("kseg: {}: {}", status.partition, next(self.common, &configured, status));
                }
            }
            let end = || end_rounds(&manager);
            Ok(stop.ending(end, || rounds(self.common, &manager, &mut cleaner))? && good)
        })?;
        if let Some(signal) = stop.asked() {
            std::process::exit(128 + signal);
        }
        Ok(done)
    }

    /// Opens the logs that were asked for; whether all of them could be. The others are told.
    fn open_logs(&self, dir: &LogDir, manager: &Manager) -> Result<bool> {
        let (mut logs, mut good) = (Vec::new(), true);
        let mut failed = |partition: &TopicPartition, error: Error| match error {
            // Wrong for all of them; and no log can be opened any more.
            error @ Error::Usage(_) => Err(error),
            error if dir.offline().is_some() => Err(error),
            error => {
                tell!("kseg: {partition}: {error}");
                manager.keep_checkpoint(dir.path(), partition);
                good = false;
                Ok(())
            }
        };
        for (partition, asked) in self.partitions(dir)? {
            if !asked {
                // Its line in the checkpoint stays, whether it is asked for or not.
                manager.keep_checkpoint(dir.path(), &partition);
                continue;
            }
            let opened = dir.get(&partition).map_err(Error::from);
            match opened.and_then(|log| log.map(|log| Ok((self.config_of(&log)?, log))).transpose()) {
                Ok(log) => logs.extend(log),
                Err(error) => failed(&partition, error)?,
            }
        }
        // Only once it is known that the command line does for all of them.
        for (config, log) in logs {
            let ready = self.prepare(&log, config);
            if let Err(error) = ready.and_then(|()| Ok(manager.add(dir.path(), log.clone())?)) {
                failed(log.partition(), error)?;
            }
        }
        Ok(good)
    }
}

/// Has a round that is under way end at its next read, and none begin.
fn end_rounds(manager: &Manager) {
    for partition in manager.partitions() {
        manager.abort_and_pause(&partition);
    }
}

/// Topics whose configuration is known.
fn configured(dir: &LogDir) -> Result<BTreeSet<String>> {
    let topics = dir.survey()?.topics.into_iter();
    Ok(topics.filter(|(_, topic)| !topic.config.is_empty()).map(|(name, _)| name).collect())
}

/// What happens to a log next, in words. Where nothing is known of its topic's configuration, the policy is a default.
fn next(args: &Common, configured: &BTreeSet<String>, status: &Status) -> String {
    let given = || args.settings.iter().any(|setting| setting.starts_with("cleanup.policy="));
    match &status.next {
        Next::NotCompacted if !configured.contains(&status.partition.topic) && !given() => {
            "not compacted: nothing is known here of its configuration, and the default cleanup.policy has no compact"
                .to_owned()
        }
        next => next.to_string(),
    }
}

fn say_status(args: &Common, status: &Status, next: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let sections = status.sections;
    if args.json {
        let mut line = Line::new(&mut out, "clean-status");
        line.text("partition", &status.partition.to_string()).text("next", next);
        if let Some(s) = sections {
            line.number("first_dirty", s.first_dirty.offset.get())
                .number("first_uncleanable", s.first_uncleanable_offset.get())
                .number("clean_bytes", s.clean_bytes)
                .number("cleanable_bytes", s.cleanable_bytes);
        }
        line.end();
        return out;
    }
    let text = sections.map_or_else(String::new, |s| {
        let (dirty, end) = (s.first_dirty.offset, s.first_uncleanable_offset);
        // A log whose start was moved is dirty from there on, which may lie in the active segment.
        let offsets = if dirty < end {
            format!("dirty offsets {dirty} to {end}")
        } else {
            format!("no dirty offsets from {dirty} on")
        };
        format!(
            "  ratio {:.3}  dirty {} bytes, clean {} bytes, {offsets}",
            s.cleanable_ratio(),
            s.cleanable_bytes,
            s.clean_bytes,
        )
    });
    let _ = writeln!(out, "{}{text}\n  {next}", status.partition);
    out
}

fn say_plan(args: &Common, cleaner: &mut Cleaner, log: &Log, status: &Status, next: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let partition = &status.partition;
    let say = |out: &mut Vec<u8>, text: &str| {
        if args.json {
            Line::new(out, "clean-plan").text("partition", &partition.to_string()).text("next", text).end();
        } else {
            let _ = writeln!(out, "{partition}: {text}");
        }
    };
    let (Next::Waiting { .. }, Some(sections)) = (&status.next, status.sections) else {
        say(&mut out, next);
        return Ok(out);
    };
    let dirty = dirty(&sections);
    let round = cleaner.plan(log, dirty, &Unhindered)?;
    let stats = round.stats;
    let end = round.end.unwrap_or(dirty.first);
    if args.json {
        Line::new(&mut out, "clean-plan")
            .text("partition", &partition.to_string())
            .number("from", dirty.first.get())
            .number("to", end.get())
            .number("bytes_read", stats.bytes_read)
            .number("bytes_written", stats.bytes_written)
            .number("records_read", stats.records_read)
            .number("records_written", stats.records_written)
            .flag("last_round", end >= sections.first_uncleanable_offset)
            .end();
        return Ok(out);
    }
    let more =
        if end < sections.first_uncleanable_offset { ", then more rounds: the map is full" } else { "" };
    let text = format!(
        "dirty {} to {end}: {} of {} bytes and {} of {} records stay, map {:.1} % full{more}",
        dirty.first,
        stats.bytes_written,
        stats.bytes_read,
        stats.records_written,
        stats.records_read,
        100.0 * stats.map_utilization
    );
    say(&mut out, &text);
    Ok(out)
}

fn rounds(args: &Common, manager: &Manager, cleaner: &mut Cleaner) -> Result<bool> {
    let mut out = Vec::new();
    let mut good = true;
    loop {
        let pass = manager.pass(cleaner);
        if let Some((partition, first, round)) = &pass.cleaned {
            let end = round.end.unwrap_or(*first);
            if args.json {
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
        for (partition, error) in &pass.failed {
            tell!("kseg: {partition}: {error}");
            good = false;
        }
        if pass.failed.is_empty() && !pass.did_something() {
            break;
        }
    }
    print(&out)?;
    Ok(good)
}

/// What to say of a directory that keeps no topics of its own: what a broker knows of them is not here.
fn unknown_configuration(backend: &dyn Backend, dir: &LogDir) -> Result<Option<String>> {
    let file = dir.path().join(LogDir::TOPICS_FILE);
    let there = backend.names().stat(&file).map_err(kseg_log::Error::from)?.is_some();
    Ok((!there).then(|| {
        format!(
            "{}: no {}: the configuration of a broker's topics is in its metadata log and not known here, so the defaults and --set are in force",
            dir.path().display(),
            LogDir::TOPICS_FILE
        )
    }))
}

fn dirty(sections: &Sections) -> Dirty {
    Dirty {
        first: sections.first_dirty.offset,
        first_uncleanable: sections.first_uncleanable_offset,
        now: Timestamp::new(SystemClock.now_ms()),
    }
}

fn print(out: &[u8]) -> Result<()> {
    std::io::stdout().write_all(out).map_err(Error::output)
}

impl From<kseg_cleaner::Error> for Error {
    fn from(error: kseg_cleaner::Error) -> Error {
        match error {
            kseg_cleaner::Error::Log(error) => Error::from(error),
            other => Error::bad(Path::new("clean"), "a round that ends", other.to_string()),
        }
    }
}
