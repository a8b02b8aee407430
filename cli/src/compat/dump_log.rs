//! `kseg compat dump-log`: a run of the tool over its files.
//!
//! Source: Kafka 4.3.1 `DumpLogSegments`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use super::abort::Abort;
use super::options::{self, Options, Parsed};
use super::{indexes, java, records};
use crate::tell::{say, tell};

/// Runs the tool. Exit code 0 also where mismatches were found, as the original has it; 1 for everything else.
pub(super) fn run(args: &[OsString]) -> ExitCode {
    let options = match options::parse(args) {
        Ok(Parsed::Run(options)) => options,
        Ok(Parsed::Version) => return print_version(),
        Ok(Parsed::Usage { why }) => {
            say(format_args!("{why}\n{}", options::usage()));
            return ExitCode::FAILURE;
        }
        Err(abort) => {
            tell!("{abort}");
            return ExitCode::FAILURE;
        }
    };
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut findings = Findings::default();
    let done = dump_files(&options, &mut out, &mut findings);
    // What was printed before an exception is seen, be it half a line.
    let flushed = out.flush();
    match done.and_then(|complete| flushed.map(|()| complete).map_err(Abort::from)) {
        Ok(complete) => {
            say(findings.report());
            if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(Abort::Pipe) => ExitCode::SUCCESS,
        Err(abort) => {
            tell!("{abort}");
            ExitCode::FAILURE
        }
    }
}

fn print_version() -> ExitCode {
    match writeln!(io::stdout(), "4.3.1").map_err(Abort::from) {
        Ok(()) | Err(Abort::Pipe) => ExitCode::SUCCESS,
        Err(abort) => {
            tell!("{abort}");
            ExitCode::FAILURE
        }
    }
}

/// Dumps the files in order; whether all of them could be.
fn dump_files(options: &Options, out: &mut impl Write, findings: &mut Findings) -> Result<bool, Abort> {
    let mut complete = true;
    for path in &options.files {
        let file = java::file(path);
        writeln!(out, "Dumping {file}")?;
        let name = java::name(&file);
        match name.rfind('.').map_or("", |dot| &name[dot..]) {
            ".log" => records::dump(&file, options, out, findings)?,
            ".index" => indexes::dump_offsets(&file, options, out, findings)?,
            ".timeindex" => indexes::dump_times(&file, options, out, findings)?,
            suffix @ (".snapshot" | ".txnindex" | ".checkpoint") => {
                out.flush()?;
                tell!("kseg: {file}: {suffix} files are not supported");
                complete = false;
            }
            _ => {
                out.flush()?;
                tell!("Ignoring unknown file {file}");
            }
        }
    }
    Ok(complete)
}

/// What was found to be wrong, by file in the order of the command line. It is told at the very end, or never.
#[derive(Debug, Default)]
pub(super) struct Findings {
    index_mismatches: ByFile<BTreeMap<i64, i64>>,
    time_mismatches: ByFile<Vec<(i64, i64)>>,
    time_disorder: ByFile<Vec<(i64, i64)>>,
    offsets_not_found: ByFile<Vec<(i64, i64)>>,
    gaps: ByFile<BTreeMap<i64, i64>>,
}

type ByFile<T> = Vec<(String, T)>;

impl Findings {
    pub(super) fn index_mismatch(&mut self, file: &str, index_offset: i64, log_offset: i64) {
        entry(&mut self.index_mismatches, file).insert(index_offset, log_offset);
    }

    pub(super) fn time_mismatch(&mut self, file: &str, index_timestamp: i64, log_timestamp: i64) {
        entry(&mut self.time_mismatches, file).push((index_timestamp, log_timestamp));
    }

    pub(super) fn time_disorder(&mut self, file: &str, index_timestamp: i64, previous: i64) {
        entry(&mut self.time_disorder, file).push((index_timestamp, previous));
    }

    pub(super) fn offset_not_found(&mut self, file: &str, index_offset: i64, log_offset: i64) {
        entry(&mut self.offsets_not_found, file).push((index_offset, log_offset));
    }

    pub(super) fn gap(&mut self, file: &str, first: i64, second: i64) {
        entry(&mut self.gaps, file).insert(first, second);
    }

    fn report(&self) -> String {
        let mut text = String::new();
        for (file, pairs) in &self.index_mismatches {
            text += &format!("Mismatches in :{file}\n");
            for (index, log) in pairs.iter().rev() {
                text += &format!("  Index offset: {index}, log offset: {log}\n");
            }
        }
        for (file, pairs) in &self.time_mismatches {
            text += &format!("Found timestamp mismatch in :{file}\n");
            for (index, log) in pairs {
                text += &format!("  Index timestamp: {index}, log timestamp: {log}\n");
            }
        }
        for (file, pairs) in &self.time_disorder {
            text += &format!("Found out of order timestamp in :{file}\n");
            for (index, previous) in pairs {
                text += &format!("  Index timestamp: {index}, Previously indexed timestamp: {previous}\n");
            }
        }
        for (file, pairs) in &self.offsets_not_found {
            text += &format!("The following indexed offsets are not found in :{file}\n");
            for (index, log) in pairs {
                text += &format!("Indexed offset: {index}, found log offset: {log}\n");
            }
        }
        for (file, pairs) in &self.gaps {
            text += &format!("Non-consecutive offsets in {file}\n");
            for (first, second) in pairs {
                text += &format!("  {first} is followed by {second}\n");
            }
        }
        text
    }
}

fn entry<'m, T: Default>(map: &'m mut ByFile<T>, file: &str) -> &'m mut T {
    let file = java::absolute(file);
    let at = match map.iter().position(|(name, _)| *name == file) {
        Some(at) => at,
        None => {
            map.push((file, T::default()));
            map.len() - 1
        }
    };
    &mut map[at].1
}
