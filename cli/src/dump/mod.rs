//! `kseg dump`: what is in a file, and what is wrong with it.

mod aborted;
mod indexes;
mod log;
mod problem;
mod report;
mod small;

use std::path::{Path, PathBuf};

use clap::Args;
use kseg_format::Offset;
use kseg_segment::{FileKind, Suffix, parse_file_name};

use crate::error::{Error, Result};
use crate::tell::tell;
use report::Report;
use small::Small;

/// Shows the files of a partition and of a data directory, and names what is wrong in them.
///
/// Only reads. A .log is shown a batch a line, and so is the .checkpoint of a metadata log; every checksum is compared, offsets
/// must ascend, and behind damage the next batch with a right checksum is looked for. Every entry of an .index, .timeindex or
/// .txnindex is compared with the .log beside it. A .snapshot is shown a producer a line. The small files are
/// leader-epoch-checkpoint, the four offset checkpoints, partition.metadata, meta.properties and .kafka_cleanshutdown. Files with
/// the suffix .deleted, .cleaned, .swap, .cut, .tmp or .damaged are shown as what they were.
///
/// With --json every line is an object with a type (batch, record, control, index_entry, time_index_entry, aborted, producer,
/// leader_epoch, checkpoint, partition_metadata, meta_properties, clean_shutdown, finding, file) and "v":1; bytes are
/// {"enc":"utf8"|"base64","data":..}.
///
/// Exit code: 0 everything is well, 1 a problem was found or a file could not be read, 2 wrong usage.
#[derive(Debug, Args)]
#[command(after_long_help = PROBLEMS_AND_EXAMPLES)]
pub(crate) struct DumpArgs {
    /// Files to show
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also show records, decompressed if need be
    #[arg(long, short)]
    records: bool,
    /// Do not shorten long keys and values
    #[arg(long)]
    full: bool,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

const PROBLEMS_AND_EXAMPLES: &str = r#"Problems have a code and a name; info does not count as one:
  K001 file-name       the name is no base offset
  K002 content         a line of a small file cannot be read
  K010 checksum        the CRC of a batch is wrong
  K011 framing         no batch where one should be
  K012 torn-tail       the last batch is not whole
  K013 offset-order    offsets go back
  K014 attributes      a codec that does not exist
  K017 prealloc-tail   info: zeros up to the end
  K018 skipped         info: bytes up to the next good batch
  K020 record          a record cannot be read (looked for with --records)
  K030 index-length    the file is not made of whole entries
  K031 index-order     entries do not ascend
  K032 index-mismatch  the batch at the position ends with another offset
  K033 index-position  there is no batch at the position
  K035 index-padding   info: zeros behind the entries
  K040 time-length     the file is not made of whole entries
  K041 time-order      entries do not ascend
  K042 time-mismatch   the batch with the offset has another largest timestamp
  K043 time-offset     the log does not have the offset
  K045 time-padding    info: zeros behind the entries
  K050 txn-length      the file is not made of whole entries
  K051 txn-order       markers do not ascend, or lie below the segment
  K052 txn-range       a first or last stable offset that cannot be
  K053 txn-version     an entry of a later version
  K054 txn-mismatch    the log has no such abort marker
  K055 txn-missing     the log has an abort marker, and records that it ends, without an entry
  K060 snapshot        the snapshot cannot be read; nothing of it is shown
  K061 snapshot-offset an offset that the name says is not covered
  K070 epoch-order     epochs or their first offsets do not ascend

Examples:
  kseg dump data/words-0/00000000000000000000.log
  kseg dump data/words-0/*.log --records --json | jq 'select(.type == "finding")'
  kseg dump data/words-0/*.index data/words-0/*.timeindex
  kseg dump data/*-checkpoint data/words-0/*.snapshot data/words-0/leader-epoch-checkpoint"#;

/// Runs the command; whether no problem was found.
pub(crate) fn run(args: &DumpArgs) -> Result<bool> {
    let mut report = Report::new(args.json, args.full);
    let mut good = true;
    for path in &args.files {
        match dump(path, args, &mut report) {
            Ok(()) => {}
            Err(error @ (Error::OutputClosed | Error::Output(_))) => return Err(error),
            Err(error) => {
                // What was printed of this file comes first.
                report.send()?;
                tell!("kseg: {error}");
                good = false;
            }
        }
    }
    report.send()?;
    Ok(good && report.problems() == 0)
}

/// What a file holds, by its name.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    /// A file of a partition, and the offset in its name if there is one.
    Partition(FileKind, Option<Offset>),
    /// Batches that a metadata log begins with, from offset 0 on.
    MetadataSnapshot,
    Small(Small),
}

/// Shows a file.
fn dump(path: &Path, args: &DumpArgs, report: &mut Report) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(content) = content(&name) else {
        let expected = "a file of a kind that is shown (kseg dump --help)";
        // A file that is not there is missed rather than misnamed.
        std::fs::metadata(path).map_err(|error| Error::io(path, "open", error))?;
        return Err(Error::bad(path, expected, format!("{name:?}")));
    };
    match content {
        Content::Partition(FileKind::Log, base) => log::dump(path, base, args.records, report),
        Content::Partition(FileKind::OffsetIndex, base) => indexes::dump_offsets(path, base, report),
        Content::Partition(FileKind::TimeIndex, base) => indexes::dump_times(path, base, report),
        Content::Partition(FileKind::TxnIndex, base) => aborted::dump(path, base, report),
        Content::Partition(FileKind::Snapshot, end) => small::dump_snapshot(path, end, report),
        Content::MetadataSnapshot => log::dump(path, Some(Offset::ZERO), args.records, report),
        Content::Small(small) => small::dump(path, small, report),
    }
}

/// What a name says.
fn content(name: &str) -> Option<Content> {
    if let Some(small) = Small::of(name) {
        return Some(Content::Small(small));
    }
    // The second cut of a file ends in .cut.1, and so on.
    let name = match name.rsplit_once('.') {
        Some((cut, number)) if cut.ends_with(".cut") && number.bytes().all(|b| b.is_ascii_digit()) => cut,
        _ => name,
    };
    let name = name.strip_suffix(".cut").unwrap_or(name);
    if let Some(parsed) = parse_file_name(name) {
        return Some(Content::Partition(parsed.kind, Some(parsed.offset)));
    }
    let plain = [Suffix::Deleted, Suffix::Cleaned, Suffix::Swap]
        .into_iter()
        .find_map(|suffix| name.strip_suffix(suffix.as_str()))
        .unwrap_or(name);
    match plain.rsplit_once('.')?.1 {
        "checkpoint" => Some(Content::MetadataSnapshot),
        extension => {
            let kind = FileKind::ALL.into_iter().find(|kind| kind.extension() == extension)?;
            Some(Content::Partition(kind, None))
        }
    }
}
