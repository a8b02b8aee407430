//! `.index` and `.timeindex` files: their entries, compared with the log file beside them.

use std::path::{Path, PathBuf};

use kseg_format::{Offset, Timestamp};

use super::problem::Problem;
use super::report::{Field, Finding, Place, Report};
use crate::error::{Error, Result};
use crate::read::{PreadFile, Step, Walk};

const OFFSET_ENTRY: usize = 8;
const TIME_ENTRY: usize = 12;

/// Shows an offset index.
pub(super) fn dump_offsets(path: &Path, base: Option<Offset>, report: &mut Report) -> Result<()> {
    let mut index = Index::open(path, base, OFFSET_ENTRY, report)?;
    let mut log = index.log();
    let mut before: Option<(Offset, i64)> = None;
    while let Some(entry) = index.next()? {
        let [o0, o1, o2, o3, p0, p1, p2, p3] = entry;
        let relative = i32::from_be_bytes([o0, o1, o2, o3]);
        let position = i32::from_be_bytes([p0, p1, p2, p3]);
        if (relative, position) == (0, 0) && index.only_zeros_follow()? {
            return index.end_of_padding(Problem::IndexPadding, report);
        }
        let (offset, position) = (index.absolute(relative), i64::from(position));
        report.entry(
            "index_entry",
            path,
            &[Field::Number("offset", offset.get()), Field::Number("pos", position)],
        )?;
        let here = |problem, expected: String, found: String| Finding {
            problem,
            path,
            place: Place::Byte(index.at - OFFSET_ENTRY as u64),
            offset: Some(offset.get()),
            expected,
            found,
        };
        if relative < 0 || before.is_some_and(|(last, _)| offset <= last) {
            let last = before.map_or(index.base.get() - 1, |(last, _)| last.get());
            report.finding(here(
                Problem::IndexOrder,
                format!("an offset above {last}"),
                offset.to_string(),
            ))?;
        }
        if before.is_some_and(|(_, last)| position <= last) {
            let last = before.map_or(-1, |(_, last)| last);
            report.finding(here(
                Problem::IndexOrder,
                format!("a position above {last}"),
                position.to_string(),
            ))?;
        }
        before = Some((offset, position));
        if let Ok(log) = &mut log {
            match ends_at(log, position)? {
                Ok(last) if last == offset => {}
                Ok(last) => {
                    let expected = format!("last offset {last} of the batch at position {position}");
                    report.finding(here(Problem::IndexMismatch, expected, offset.to_string()))?;
                }
                Err(found) => {
                    report.finding(here(
                        Problem::IndexPosition,
                        "the position of a batch".to_owned(),
                        format!("{position}, {found}"),
                    ))?;
                }
            }
        }
        index.entries += 1;
    }
    index.end(Problem::IndexLength, report)?;
    log.map(|_| ())
}

/// Shows a time index.
pub(super) fn dump_times(path: &Path, base: Option<Offset>, report: &mut Report) -> Result<()> {
    let mut index = Index::open(path, base, TIME_ENTRY, report)?;
    let mut log = index.log();
    let mut before: Option<(i64, Offset)> = None;
    while let Some(entry) = index.next()? {
        let [t0, t1, t2, t3, t4, t5, t6, t7, o0, o1, o2, o3] = entry;
        let timestamp = i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
        let relative = i32::from_be_bytes([o0, o1, o2, o3]);
        if (timestamp, relative) == (0, 0) && index.only_zeros_follow()? {
            return index.end_of_padding(Problem::TimePadding, report);
        }
        let offset = index.absolute(relative);
        report.entry(
            "time_index_entry",
            path,
            &[Field::Time(Some(timestamp)), Field::Number("offset", offset.get())],
        )?;
        let here = |problem, expected: String, found: String| Finding {
            problem,
            path,
            place: Place::Byte(index.at - TIME_ENTRY as u64),
            offset: Some(offset.get()),
            expected,
            found,
        };
        if before.is_some_and(|(last, _)| timestamp <= last) {
            let last = before.map_or(-1, |(last, _)| last);
            report.finding(here(
                Problem::TimeOrder,
                format!("a timestamp above {last}"),
                timestamp.to_string(),
            ))?;
        }
        if relative < 0 || before.is_some_and(|(_, last)| offset <= last) {
            let last = before.map_or(index.base.get() - 1, |(_, last)| last.get());
            report.finding(here(
                Problem::TimeOrder,
                format!("an offset above {last}"),
                offset.to_string(),
            ))?;
        }
        before = Some((timestamp, offset));
        if let Ok(log) = &mut log {
            match largest_timestamp(log, offset)? {
                Some(largest) if largest == timestamp => {}
                Some(largest) => {
                    let expected = format!("largest timestamp {largest} of the batch with offset {offset}");
                    report.finding(here(Problem::TimeMismatch, expected, timestamp.to_string()))?;
                }
                None => {
                    let expected = "an offset that the log has".to_owned();
                    report.finding(here(Problem::TimeOffset, expected, offset.to_string()))?;
                }
            }
        }
        index.entries += 1;
    }
    index.end(Problem::TimeLength, report)?;
    log.map(|_| ())
}

/// An index file that is gone through from its first entry.
#[derive(Debug)]
pub(super) struct Index<'p> {
    path: &'p Path,
    pub(super) base: Offset,
    file: PreadFile,
    len: u64,
    entry: usize,
    /// Behind the entry that was read last.
    pub(super) at: u64,
    pub(super) entries: u64,
    /// Problems told before this file.
    problems: u64,
}

impl<'p> Index<'p> {
    pub(super) fn open(
        path: &'p Path,
        base: Option<Offset>,
        entry: usize,
        report: &mut Report,
    ) -> Result<Index<'p>> {
        let file = PreadFile::open(path)?;
        let len = file.len()?;
        let problems = report.problems();
        report.named(path, base, len)?;
        Ok(Index { path, base: base.unwrap_or(Offset::ZERO), file, len, entry, at: 0, entries: 0, problems })
    }

    /// The log file beside the index, under the same suffix if it has one.
    pub(super) fn log(&self) -> Result<Walk> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let mut words: Vec<&str> = name.split('.').collect();
        if let Some(kind) =
            words.iter_mut().rfind(|word| matches!(**word, "index" | "timeindex" | "txnindex"))
        {
            *kind = "log";
        }
        let log: PathBuf = self.path.with_file_name(words.join("."));
        let mut walk = Walk::new(PreadFile::open(&log)?)?;
        walk.headers_only(true);
        Ok(walk)
    }

    pub(super) fn next<const N: usize>(&mut self) -> Result<Option<[u8; N]>> {
        let Some(entry) = self.file.bytes(self.at, N)?.first_chunk().copied() else { return Ok(None) };
        self.at += N as u64;
        Ok(Some(entry))
    }

    fn absolute(&self, relative: i32) -> Offset {
        Offset::new(self.base.get().wrapping_add(i64::from(relative)))
    }

    fn only_zeros_follow(&mut self) -> Result<bool> {
        let mut at = self.at;
        loop {
            let bytes = self.file.bytes(at, 64 * 1024)?;
            if bytes.is_empty() {
                return Ok(true);
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
    }

    /// The entry read last was padding.
    fn end_of_padding(mut self, problem: Problem, report: &mut Report) -> Result<()> {
        self.at -= self.entry as u64;
        let found = format!("{} bytes of zeros, which are padding", self.len.saturating_sub(self.at));
        self.tell(problem, "entries or the end", found, report)?;
        report.file_end(self.path, "entries", self.entries, self.problems)
    }

    /// No whole entry is left.
    pub(super) fn end(&self, problem: Problem, report: &mut Report) -> Result<()> {
        let rest = self.len.saturating_sub(self.at);
        if rest > 0 {
            let expected = format!("whole entries of {} bytes", self.entry);
            self.tell(problem, &expected, format!("{rest} bytes more"), report)?;
        }
        report.file_end(self.path, "entries", self.entries, self.problems)
    }

    fn tell(&self, problem: Problem, expected: &str, found: String, report: &mut Report) -> Result<()> {
        report.finding(Finding {
            problem,
            path: self.path,
            place: Place::Byte(self.at),
            offset: None,
            expected: expected.to_owned(),
            found,
        })
    }
}

/// The last offset of the batch at a position, or what is there instead.
fn ends_at(log: &mut Walk, position: i64) -> Result<Result<Offset, String>> {
    let end = log.end();
    match u64::try_from(position) {
        Ok(position) if position < end => log.seek(position),
        _ => return Ok(Err(format!("in a log of {end} bytes"))),
    }
    match log.peek() {
        Ok(Step::Batch(header)) => Ok(Ok(header.last_offset())),
        Ok(Step::Torn { .. }) => Ok(Err("where a batch is not whole".to_owned())),
        Ok(Step::Zeros { .. }) => Ok(Err("where the log has zeros".to_owned())),
        Ok(Step::End) => Ok(Err("where the log ends".to_owned())),
        Err(error) => match log.error(error, None) {
            Error::Damage(damage) => {
                Ok(Err(format!("where the log has {} instead of {}", damage.found, damage.expected)))
            }
            other => Err(other),
        },
    }
}

/// The largest timestamp of the batch that holds `offset`, -1 where it has none; `None` where there is no such batch.
///
/// Entries ascend, so the walk goes on where it is; it begins anew for one that goes back.
fn largest_timestamp(log: &mut Walk, offset: Offset) -> Result<Option<i64>> {
    let mut anew = log.position() == 0;
    loop {
        match log.peek() {
            Ok(Step::Batch(header)) => {
                let lowest = header.base_offset().unwrap_or(header.last_offset());
                if offset < lowest && header.base_offset().is_some() {
                    if anew {
                        return Ok(None);
                    }
                    log.seek(0);
                    anew = true;
                } else if offset <= header.last_offset() {
                    return Ok(Some(Timestamp::to_raw(header.max_timestamp())));
                } else {
                    log.advance(&header);
                }
            }
            Ok(_) => {
                if anew {
                    return Ok(None);
                }
                log.seek(0);
                anew = true;
            }
            Err(error) => match log.error(error, None) {
                // Told by the dump of the log itself.
                Error::Damage(_) => return Ok(None),
                other => return Err(other),
            },
        }
    }
}
