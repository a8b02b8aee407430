//! `kseg cat`: the records of a partition, a line each.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use kseg_format::{Offset, Record, Timestamp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::json::Line;
use crate::read::{Cursor, DECOMPRESSED_MAX, Found, Partition, Start};
use crate::time;

/// Prints the records of a partition: the values, a line each.
///
/// Only reads, also while a broker or kseg append writes to the partition: files are opened for reading, nothing is
/// mapped, no lock is taken. A batch that is not whole yet at the end is left out quietly; one with a wrong checksum is an
/// error that names file, position and offset, and so is one that claims to reach beyond the end of the file and has whole
/// batches behind it or none before it. Transaction markers are not shown; records of aborted
/// transactions are.
///
/// With several of --offsets, --timestamps, --headers and --key the fields stand in this order in front of the value,
/// each followed by a tab. A null key or value prints as nothing; --json tells it from an empty one.
///
/// Exit code: 0 done (also when the reader of the output has seen enough), 1 something could not be read, 2 wrong usage.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct CatArgs {
    /// The partition's folder, such as data/topic-0
    dir: PathBuf,
    /// Where to begin: an offset, earliest or latest
    #[arg(long, short, default_value = "earliest", value_name = "OFFSET", allow_negative_numbers = true)]
    offset: Place,
    /// Begin with the first record of this time or later: milliseconds since 1970, or RFC 3339
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "offset", allow_negative_numbers = true)]
    time: Option<Timestamp>,
    /// Stop after this many records
    #[arg(long, short, value_name = "N")]
    count: Option<u64>,
    /// At the end, wait for more
    #[arg(long, short)]
    follow: bool,
    /// Print keys
    #[arg(long, short)]
    key: bool,
    /// Print headers, as name=value separated by commas
    #[arg(long)]
    headers: bool,
    /// Print offsets
    #[arg(long)]
    offsets: bool,
    /// Print timestamps in milliseconds, -1 for none
    #[arg(long)]
    timestamps: bool,
    /// Print everything as JSON lines
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  kseg cat data/words-0 --offset 1000 --count 10
  kseg cat data/words-0 --time 2024-10-05T02:00:00Z --timestamps
  kseg cat data/words-0 --offset latest --follow --json";

/// Pause between two looks at the end of a partition that is followed.
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
enum Place {
    Earliest,
    Latest,
    At(Offset),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        match text {
            "earliest" | "beginning" => Ok(Place::Earliest),
            "latest" | "end" => Ok(Place::Latest),
            number => match number.parse() {
                Ok(offset) if offset >= 0 => Ok(Place::At(Offset::new(offset))),
                _ => Err("expected an offset of 0 or more, earliest or latest".to_owned()),
            },
        }
    }
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    let expected = "expected milliseconds since 1970, or a time such as 2024-10-05T02:00:00Z";
    time::parse(text).map(Timestamp::new).ok_or_else(|| expected.to_owned())
}

/// Runs the command.
pub(crate) fn run(args: &CatArgs) -> Result<bool> {
    let start = match (args.time, args.offset) {
        (Some(time), _) => Start::Time(time),
        (None, Place::Earliest) => Start::Earliest,
        (None, Place::Latest) => Start::Latest,
        (None, Place::At(offset)) => Start::At(offset),
    };
    let mut cursor = Cursor::new(Partition::open(&args.dir)?, start)?;
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut out = io::stdout().lock();
    let mut scratch = Vec::new();
    // Lines of a batch go out together; what was printed before an error is seen.
    let mut lines = Vec::with_capacity(LINES_SIZE);
    while left > 0 {
        let printed = match cursor.next() {
            Err(error) => Err(error),
            Ok(Some(found)) => print_batch(args, &found, &mut scratch, &mut lines, &mut out, &mut left),
            Ok(None) if args.follow => {
                send(&mut out, &mut lines)?;
                out.flush().map_err(Error::output)?;
                pause(&out)?;
                continue;
            }
            Ok(None) => {
                send(&mut out, &mut lines)?;
                cursor.check_end()?;
                break;
            }
        };
        if printed.is_err() {
            send(&mut out, &mut lines)?;
        }
        printed?;
    }
    send(&mut out, &mut lines)?;
    out.flush().map_err(Error::output)?;
    Ok(true)
}

/// Waits for a while, or until nobody reads the output any more.
fn pause(out: &impl AsFd) -> Result<()> {
    let nothing_but_errors = PollFlags::empty();
    let timeout = Timespec::try_from(FOLLOW_PAUSE).ok();
    match poll(&mut [PollFd::new(out, nothing_but_errors)], timeout.as_ref()) {
        Ok(0) | Err(Errno::INTR) => Ok(()),
        Ok(_) => Err(Error::OutputClosed),
        Err(error) => Err(Error::Output(error.into())),
    }
}

/// Bytes of lines that are written at once.
const LINES_SIZE: usize = 64 * 1024;

fn send(out: &mut impl Write, lines: &mut Vec<u8>) -> Result<()> {
    out.write_all(lines).map_err(Error::output)?;
    lines.clear();
    Ok(())
}

/// Prints the lines of a batch's records, of as many as are left; some may still wait in `lines`.
fn print_batch(
    args: &CatArgs,
    found: &Found<'_>,
    scratch: &mut Vec<u8>,
    lines: &mut Vec<u8>,
    out: &mut impl Write,
    left: &mut u64,
) -> Result<()> {
    if found.batch.is_control() {
        return Ok(());
    }
    let mut next = found.from;
    let wrong = |error, offset: Offset| Error::batch(found.path, found.position, Some(offset.get()), &error);
    for record in found.batch.records(scratch, DECOMPRESSED_MAX).map_err(|error| wrong(error, next))? {
        let record = record.map_err(|error| wrong(error, next))?;
        if record.offset() < found.from {
            continue;
        }
        if *left == 0 {
            break;
        }
        *left -= 1;
        next = record.offset().next();
        if args.json {
            json_line(found, &record, lines);
        } else {
            text_line(args, &record, lines);
        }
        if lines.len() >= LINES_SIZE {
            send(out, lines)?;
        }
    }
    Ok(())
}

fn text_line(args: &CatArgs, record: &Record<'_>, lines: &mut Vec<u8>) {
    if args.offsets {
        lines.extend_from_slice(record.offset().to_string().as_bytes());
        lines.push(b'\t');
    }
    if args.timestamps {
        lines.extend_from_slice(Timestamp::to_raw(record.timestamp()).to_string().as_bytes());
        lines.push(b'\t');
    }
    if args.headers {
        for (n, header) in record.headers().enumerate() {
            if n > 0 {
                lines.push(b',');
            }
            lines.extend_from_slice(header.key);
            lines.push(b'=');
            lines.extend_from_slice(header.value.unwrap_or_default());
        }
        lines.push(b'\t');
    }
    if args.key {
        lines.extend_from_slice(record.key().unwrap_or_default());
        lines.push(b'\t');
    }
    lines.extend_from_slice(record.value().unwrap_or_default());
    lines.push(b'\n');
}

fn json_line(found: &Found<'_>, record: &Record<'_>, lines: &mut Vec<u8>) {
    Line::new(lines, "record")
        .number("offset", record.offset().get())
        .maybe("ts", record.timestamp().map(Timestamp::get))
        .bytes("key", record.key())
        .bytes("value", record.value())
        .pairs("headers", record.headers().map(|header| (header.key, header.value)))
        .maybe("seq", record.sequence().map(kseg_format::Sequence::get))
        .maybe("batch", found.batch.base_offset().map(Offset::get))
        .end();
}
