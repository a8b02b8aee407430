//! `kseg dump`: what is in a file, and what is wrong with it.

mod indexes;
mod log;
mod problem;
mod report;

use std::path::{Path, PathBuf};

use clap::Args;
use kseg_format::Offset;
use kseg_segment::{FileKind, Suffix, parse_file_name};

use crate::error::{Error, Result};
use crate::tell::tell;
use report::Report;

/// Shows .log, .index and .timeindex files, and names what is wrong in them.
///
/// Only reads. A .log is shown a batch a line; every checksum is compared, offsets must ascend, and behind damage the
/// next batch with a right checksum is looked for. Every entry of an index is compared with the .log beside it. Files
/// with the suffix .deleted, .cleaned, .swap or .cut are shown as what they were.
///
/// With --json every line is an object with a type (batch, record, control, index_entry, time_index_entry, finding,
/// file) and "v":1; bytes are {"enc":"utf8"|"base64","data":..}.
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

Examples:
  kseg dump data/words-0/00000000000000000000.log
  kseg dump data/words-0/*.log --records --json | jq 'select(.type == "finding")'
  kseg dump data/words-0/*.index data/words-0/*.timeindex"#;

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

/// A file by its name: what it holds, and the base offset of its segment.
fn dump(path: &Path, args: &DumpArgs, report: &mut Report) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some((kind, base)) = kind(&name) else {
        let expected = "a file that ends in .log, .index or .timeindex";
        // A file that is not there is missed rather than misnamed.
        std::fs::metadata(path).map_err(|error| Error::io(path, "open", error))?;
        return Err(Error::bad(path, expected, format!("{name:?}")));
    };
    match kind {
        FileKind::OffsetIndex => indexes::dump_offsets(path, base, report),
        FileKind::TimeIndex => indexes::dump_times(path, base, report),
        _ => log::dump(path, base, args.records, report),
    }
}

/// What a name says: the kind, and the base offset if there is one in it.
fn kind(name: &str) -> Option<(FileKind, Option<Offset>)> {
    // The second cut of a file ends in .cut.1, and so on.
    let name = match name.rsplit_once('.') {
        Some((cut, number)) if cut.ends_with(".cut") && number.bytes().all(|b| b.is_ascii_digit()) => cut,
        _ => name,
    };
    let name = name.strip_suffix(".cut").unwrap_or(name);
    let known = [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex];
    if let Some(parsed) = parse_file_name(name) {
        return known.contains(&parsed.kind).then_some((parsed.kind, Some(parsed.offset)));
    }
    let plain = [Suffix::Deleted, Suffix::Cleaned, Suffix::Swap]
        .into_iter()
        .find_map(|suffix| name.strip_suffix(suffix.as_str()))
        .unwrap_or(name);
    let (_, extension) = plain.rsplit_once('.')?;
    known.into_iter().find(|kind| kind.extension() == extension).map(|kind| (kind, None))
}
