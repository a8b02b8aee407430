//! `kseg append`: lines of an input become records of a partition.

mod input;
mod line;
mod progress;
mod totals;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use kseg_format::{Codec, Offset, Timestamp};
use kseg_io_backends::BackendSpec;
use kseg_log::{
    BatchWriter, Clock, DirKind, Log, LogConfig, LogDir, LogDirOptions, SystemClock, TopicPartition,
    WriterOptions, check_topic_name, parse_dir_name,
};

use crate::data_dir::{self, Access};
use crate::error::{Error, Result};
use crate::read::{Cursor, Partition};
use crate::stop::Stop;
use crate::tell::tell;
use input::{Input, Wait};
use line::Fields;
use progress::Progress;
use totals::Totals;

/// Appends lines to a partition, which is made where it is missing.
///
/// DIR is the partition's folder: its name is topic-partition, the folder around it is the data directory. The data
/// directory is locked meanwhile, so that neither a broker nor another kseg writes to it.
///
/// A line ends with a newline and may hold any other bytes; the last one may lack its newline. What was taken, and the
/// offsets it got, is told on standard error at the end.
///
/// Exit code: 0 all lines are in the log, 1 something failed (what was told as appended is there), 2 wrong usage.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct AppendArgs {
    /// The partition's folder, such as data/topic-0
    dir: PathBuf,
    /// Compression: none, gzip, snappy, lz4 or zstd
    #[arg(long, default_value = "none", value_name = "CODEC")]
    codec: Codec,
    /// Level of the compression, in the codec's own scale
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    level: Option<i32>,
    /// What a line is
    #[arg(long, value_enum, default_value_t = Format::Lines)]
    format: Format,
    /// File to read instead of standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Bytes of a batch before compression, header included
    #[arg(long, default_value_t = 16 * 1024, value_name = "BYTES")]
    batch_size: usize,
    /// Milliseconds that a record waits for others at most
    #[arg(long, default_value_t = 5, value_name = "MS", value_parser = clap::value_parser!(i64).range(0..))]
    linger: i64,
    /// Where the records' timestamps come from
    #[arg(long, value_enum, default_value_t = Timestamps::Now)]
    timestamps: Timestamps,
    /// I/O backend: std, std+direct, std+dontcache, uring, uring+direct, uring+dontcache, memory, auto, with options as in
    /// uring+direct,depth=16,zeroed=1m (depth, entries, inline, registered, chunk, tail, preallocate, zeroed, dsync,
    /// writebehind); memory keeps nothing behind the end of the run
    #[arg(long, default_value = "std", value_name = "SPEC")]
    backend: String,
    /// Configuration over the topic's own, for this run, under Kafka's keys, such as segment.bytes=1048576; may be
    /// repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Make every batch durable before the next one is taken (sets flush.messages=1)
    #[arg(long)]
    durable: bool,
    /// Tell nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  kseg append data/words-0 < /usr/share/dict/words
  kseg append data/pairs-0 --format key-value --codec zstd --input pairs.tsv
  kseg cat data/a-0 --json | kseg append data/b-0 --format json --timestamps field
  journalctl -f | kseg append data/journal-0 --linger 1000 --durable";

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The line is the value
    Lines,
    /// Key, a tab, value
    KeyValue,
    /// A JSON object: value, and optionally key, headers, ts; as kseg cat --json prints them
    Json,
}

/// Where the records' timestamps come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Timestamps {
    /// The clock, when the line was read
    Now,
    /// Records have none
    None,
    /// The line: its first field, milliseconds before a tab; in JSON the field ts
    Field,
}

/// How long a silent input keeps a signal waiting.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) fn run(args: &AppendArgs) -> Result<bool> {
    let (data_dir, partition) = place(&args.dir)?;
    let options = log_dir_options(args)?;
    let clock = options.clock.clone();
    // First the input: nothing is made for a file that is not there.
    let mut input = Input::open(args.input.as_deref())?;
    let stop = Stop::listen().map_err(|error| Error::io(&data_dir, "listen for signals", error))?;
    let dir = LogDir::open(&data_dir, options)?;
    data_dir::tell_damage(&dir, Access::Change);
    let log = match open_log(args, &dir, &partition) {
        Ok(log) => log,
        Err(error) => {
            // The directory is left as it was found.
            return data_dir::ended(Err(error), data_dir::close(dir));
        }
    };
    tell_recovery(args, &log);
    let first = log.log_end_offset();
    let mut totals = Totals::new(first);
    let begun = Instant::now();
    let done = append_all(args, &mut input, &log, &*clock, &stop, &mut totals);
    // Whatever happened, what is in the log is closed in an orderly way if it can be.
    let next = log.log_end_offset();
    let closed = data_dir::close(dir);
    let durable = log.recovery_point().max(first);
    drop(log);
    let kept = if closed.is_ok() || first == next { Ok(next) } else { kept(&args.dir, first, next) };
    match kept {
        Ok(kept) if args.quiet && kept == next && durable == next => {}
        Ok(kept) => {
            let text = summary(first..next, kept, durable, &totals, begun.elapsed());
            tell!("{partition}: {text}");
        }
        Err(error) => {
            let last = next.get() - 1;
            tell!("{partition}: which of the offsets {first}..{last} the log has cannot be read: {error}");
        }
    }
    data_dir::ended(done, closed)?;
    if let Some(signal) = stop.asked() {
        std::process::exit(128 + signal);
    }
    Ok(true)
}

/// The partition's log, with the configuration of this run.
fn open_log(args: &AppendArgs, dir: &LogDir, partition: &TopicPartition) -> Result<Arc<Log>> {
    let config = dir.config_of(&partition.topic)?.with_pairs(pairs(args)?);
    let config = config.map_err(|error| Error::Usage(format!("--set: {error}")))?;
    Ok(dir.get_or_create(partition, Some(config))?)
}

/// The data directory and the partition that a folder's path means.
fn place(dir: &Path) -> Result<(PathBuf, TopicPartition)> {
    let whole = std::path::absolute(dir).map_err(|error| Error::io(dir, "resolve", error))?;
    let name = whole.file_name().and_then(|name| name.to_str());
    let (Some(name), Some(parent)) = (name, whole.parent()) else {
        return Err(Error::bad(dir, "a folder named topic-partition in a data directory", "no such name"));
    };
    let expected = "a folder named topic-partition";
    let (partition, kind) = parse_dir_name(name)
        .map_err(|error| Error::bad(dir, expected, format!("{name:?}: {}", error.reason)))?;
    if kind != DirKind::Current || partition.partition < 0 || partition.to_string() != name {
        return Err(Error::bad(dir, expected, format!("{name:?}")));
    }
    check_topic_name(&partition.topic)
        .map_err(|error| Error::bad(dir, "a legal topic name", error.to_string()))?;
    // The path as the user gave it, so that messages name it so.
    let data_dir = match dir.parent() {
        Some(parent) if dir.file_name().is_some() && parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) if dir.file_name().is_some() => parent.to_owned(),
        _ => parent.to_owned(),
    };
    Ok((data_dir, partition))
}

fn log_dir_options(args: &AppendArgs) -> Result<LogDirOptions> {
    if let Some(level) = args.level {
        args.codec.check_level(level).map_err(|error| Error::Usage(format!("--level: {error}")))?;
    }
    // Refused before anything is made; over the topic's own configuration they count once that is known.
    LogConfig::from_pairs(pairs(args)?).map_err(|error| Error::Usage(format!("--set: {error}")))?;
    let refused = |error| Error::Usage(format!("--backend: {error}"));
    let spec: BackendSpec = args.backend.parse().map_err(refused)?;
    let opened = spec.open_in(&args.dir).map_err(refused)?;
    if opened.got != spec && !args.quiet {
        tell!("kseg: backend {spec} is {}", opened.got);
        for (_, error) in &opened.passed_over {
            tell!("kseg: not {error}");
        }
    }
    let backend = opened.backend;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Ok(LogDirOptions { clock, ..LogDirOptions::new(backend) })
}

/// What the command line sets over the topic's configuration.
fn pairs(args: &AppendArgs) -> Result<Vec<(&str, &str)>> {
    let mut pairs = key_values("--set", &args.settings)?;
    if args.durable {
        pairs.push(("flush.messages", "1"));
    }
    Ok(pairs)
}

/// Keys and values given as `KEY=VALUE` with `option`.
pub(crate) fn key_values<'a>(option: &str, given: &'a [String]) -> Result<Vec<(&'a str, &'a str)>> {
    let split = |setting: &'a String| {
        let refused = || Error::Usage(format!("{option} {setting}: expected key=value, found no ="));
        setting.split_once('=').ok_or_else(refused)
    };
    given.iter().map(split).collect()
}

/// Says what opening the log found and did, if anything.
fn tell_recovery(args: &AppendArgs, log: &Log) {
    if args.quiet {
        return;
    }
    for line in log.load_report().to_string().lines() {
        tell!("kseg: {line}");
    }
}

fn append_all(
    args: &AppendArgs,
    input: &mut Input,
    log: &Arc<Log>,
    clock: &dyn Clock,
    stop: &Stop,
    totals: &mut Totals,
) -> Result<()> {
    // A record too large for the topic is refused alone, not together with those before it.
    let largest = usize::try_from(log.config().max_message_bytes).unwrap_or_default();
    let options = WriterOptions {
        batch_size: args.batch_size.min(largest),
        linger_ms: args.linger,
        codec: args.codec,
        level: args.level,
        ..WriterOptions::default()
    };
    let mut writer = BatchWriter::new(log.clone(), options);
    let progress = Progress::new(input.len(), args.quiet);
    let name = input.name().to_owned();
    let mut fields = Fields::default();
    let done = loop {
        if stop.asked().is_some() {
            break Ok(());
        }
        let linger = Duration::from_millis(args.linger.unsigned_abs());
        let wait = if writer.waiting() > 0 { linger.min(SIGNAL_CHECK) } else { SIGNAL_CHECK };
        match input.next(Some(wait)) {
            Ok(Wait::Line(line)) => {
                totals.read(line.len());
                let record = match line::parse(line, args.format, args.timestamps, &mut fields) {
                    Ok(record) => record,
                    Err(wrong) => break Err(totals.malformed(&name, wrong)),
                };
                let timestamp = match args.timestamps {
                    Timestamps::Now => Some(Timestamp::new(clock.now_ms())),
                    Timestamps::None => None,
                    Timestamps::Field => record.timestamp,
                };
                let taken = writer.append(timestamp, record.key, record.value, &record.headers);
                if let Err(error) = totals.taken(&name, taken, &writer) {
                    break Err(error);
                }
                if totals.lines().is_multiple_of(1024) {
                    progress.at(totals.lines(), input.bytes_read());
                    let sent = writer.poll();
                    if let Err(error) = totals.sent(&name, sent, &writer) {
                        break Err(error);
                    }
                }
            }
            Ok(Wait::Nothing) => {
                let sent = writer.poll();
                if let Err(error) = totals.sent(&name, sent, &writer) {
                    break Err(error);
                }
            }
            Ok(Wait::End) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // The lines before a bad one are kept.
    let flushed = writer.flush();
    let flushed = totals.sent(&name, flushed, &writer);
    progress.finish();
    done.and(flushed)
}

/// Where a log ends that could not be closed: what was appended may have been in this process's memory only.
fn kept(dir: &Path, first: Offset, next: Offset) -> Result<Offset> {
    Ok(Partition::open(dir).and_then(Cursor::log_end)?.clamp(first, next))
}

/// What was done, in a line: records of the offsets `taken` were taken, the log has those below `kept`, and those below `durable`
/// for good.
fn summary(taken: Range<Offset>, kept: Offset, durable: Offset, totals: &Totals, time: Duration) -> String {
    let (first, kept, next, durable) = (taken.start.get(), kept.get(), taken.end.get(), durable.get());
    let offsets = match kept - first {
        0 => format!("next offset {kept}"),
        _ => format!("offsets {first}..{}", kept - 1),
    };
    let (appended, lines) = (kept - first, totals.lines());
    let mut text = if kept < next {
        let lost = format!("lost {} records, offsets {kept}..{}", next - kept, next - 1);
        format!("appended {appended} records of {lines} lines, {offsets}; {lost}, when the log was closed")
    } else {
        let seconds = time.as_secs_f64();
        let bytes = totals.appended_bytes();
        let rate = bytes as f64 / 1e6 / seconds.max(1e-9);
        format!(
            "appended {appended} records of {lines} lines, {bytes} bytes, {offsets}, in {seconds:.3} s ({rate:.1} MB/s)"
        )
    };
    if durable < kept {
        text.push_str(&format!("; offsets {durable}..{} may not survive a loss of power", kept - 1));
    }
    let refused = totals.refused();
    if refused.lines > 0 {
        text.push_str(&format!("; refused {} lines, {} bytes", refused.lines, refused.bytes));
    }
    text
}
