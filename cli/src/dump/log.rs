//! A `.log` file: its batches, and what is wrong between and in them.

use std::path::Path;

use kseg_format::{Batch, BatchHeader, DecodeError, Offset};

use super::problem::Problem;
use super::report::{Finding, Place, Report};
use crate::error::{Result, words};
use crate::read::{DECOMPRESSED_MAX, PreadFile, Step, Walk, WalkError};

/// Shows a log file whose name says that it begins at `base`.
pub(super) fn dump(path: &Path, base: Option<Offset>, records: bool, report: &mut Report) -> Result<()> {
    let mut walk = Walk::new(PreadFile::open(path)?)?;
    walk.headers_only(false);
    let problems = report.problems();
    report.named(path, base, walk.end())?;
    let mut dump = Dump { path, walk, floor: base, records, scratch: Vec::new(), report };
    let batches = dump.batches()?;
    report.file_end(path, "batches", batches, problems)
}

#[derive(Debug)]
struct Dump<'d> {
    path: &'d Path,
    walk: Walk,
    /// What the next batch must reach at least.
    floor: Option<Offset>,
    records: bool,
    scratch: Vec<u8>,
    report: &'d mut Report,
}

impl Dump<'_> {
    /// Goes through the file; how many batches there were.
    fn batches(&mut self) -> Result<u64> {
        let mut count = 0;
        loop {
            match self.walk.peek() {
                Ok(Step::Batch(header)) => {
                    self.batch(&header)?;
                    self.walk.advance(&header);
                    count += 1;
                }
                Ok(Step::End) => return Ok(count),
                Ok(Step::Torn { have, needed }) => {
                    let expected =
                        needed.map_or("a whole batch".to_owned(), |n| format!("a batch of {n} bytes"));
                    self.finding(Problem::TornTail, expected, format!("{have} bytes"))?;
                    // A damaged size field reaches past the end too.
                    if !self.next_good_batch()? {
                        return Ok(count);
                    }
                }
                Ok(Step::Zeros { have }) => {
                    if self.zeros_to_the_end()? {
                        self.finding(
                            Problem::PreallocTail,
                            "a batch or the end",
                            format!("{have} bytes of zeros"),
                        )?;
                        return Ok(count);
                    }
                    self.finding(Problem::Framing, "a batch", "zeros")?;
                    if !self.next_good_batch()? {
                        return Ok(count);
                    }
                }
                Err(WalkError::Decode(error)) => {
                    match self.walk.unwritten_from()? {
                        Some(zeros) => {
                            self.finding(Problem::TornTail, "a batch", format!("zeros from {zeros} on"))?
                        }
                        None => {
                            let (expected, found) = words(&error);
                            self.finding(Problem::of_batch(&error), expected, found)?;
                        }
                    }
                    if !self.next_good_batch()? {
                        return Ok(count);
                    }
                }
                Err(WalkError::Io(error)) => return Err(error),
            }
        }
    }

    fn batch(&mut self, header: &BatchHeader) -> Result<()> {
        let position = self.walk.position();
        let bytes = self.walk.bytes(header)?;
        let (batch, wrong) = match Batch::parse(bytes).map(|batch| (batch, batch.verify())) {
            Ok((batch, verified)) => (batch, verified.err()),
            Err(error) => return self.wrong(&error, header),
        };
        self.report.batch(self.path, position, &batch, wrong.is_none())?;
        let unreadable = if self.records && wrong.is_none() {
            print_records(self.path, &batch, &mut self.scratch, self.report)?
        } else {
            None
        };
        let intact = wrong.is_none();
        if let Some(error) = wrong {
            match self.walk.unwritten_from()? {
                Some(zeros) => {
                    let expected = format!("a batch of {} bytes", header.size());
                    self.at(header, Problem::TornTail, expected, format!("zeros from {zeros} on"))?;
                }
                None => self.wrong(&error, header)?,
            }
        } else if let Err(error) = header.codec() {
            self.wrong(&error, header)?;
        } else if let Some(error) = unreadable {
            let (expected, found) = words(&error);
            self.at(header, Problem::Record, expected, found)?;
        }
        let lowest = header.base_offset().unwrap_or(header.last_offset());
        if let Some(floor) = self.floor.filter(|floor| lowest < *floor || header.last_offset() < lowest) {
            let found = format!("{lowest} to {}", header.last_offset());
            self.at(header, Problem::OffsetOrder, format!("offsets of {floor} and up"), found)?;
        } else if intact {
            self.floor = Some(header.next_offset());
        }
        Ok(())
    }

    fn wrong(&mut self, error: &DecodeError, header: &BatchHeader) -> Result<()> {
        let (expected, found) = words(error);
        self.at(header, Problem::of_batch(error), expected, found)
    }

    /// A problem of the batch at the walk's position.
    fn at(&mut self, header: &BatchHeader, problem: Problem, expected: String, found: String) -> Result<()> {
        let offset = header.base_offset().unwrap_or(header.last_offset());
        let (path, place) = (self.path, Place::Byte(self.walk.position()));
        self.report.finding(Finding { problem, path, place, offset: Some(offset.get()), expected, found })
    }

    /// A problem at the walk's position, where no batch is.
    fn finding(
        &mut self,
        problem: Problem,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Result<()> {
        self.report.finding(Finding {
            problem,
            path: self.path,
            place: Place::Byte(self.walk.position()),
            offset: self.floor.map(Offset::get),
            expected: expected.into(),
            found: found.into(),
        })
    }

    fn zeros_to_the_end(&mut self) -> Result<bool> {
        let mut at = self.walk.position();
        loop {
            let bytes = self.walk.bytes_at(at, SCAN)?;
            if bytes.is_empty() {
                return Ok(true);
            }
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
    }

    /// Moves behind damage, to the next place that holds a batch of magic 2 with a right checksum. Whether there is one.
    fn next_good_batch(&mut self) -> Result<bool> {
        let damaged = self.walk.position();
        let Some(found) = self.walk.good_batch_behind()? else { return Ok(false) };
        self.finding(Problem::Skipped, "batches", format!("{} bytes that are none", found - damaged))?;
        self.walk.seek(found);
        Ok(true)
    }
}

/// Bytes looked at at once where zeros are counted.
const SCAN: usize = 64 * 1024;

/// Shows the records of a batch up to one that cannot be read, whose error is returned.
fn print_records(
    path: &Path,
    batch: &Batch<'_>,
    scratch: &mut Vec<u8>,
    report: &mut Report,
) -> Result<Option<DecodeError>> {
    let records = match batch.records(scratch, DECOMPRESSED_MAX) {
        Ok(records) => records,
        Err(error) => return Ok(Some(error)),
    };
    for record in records {
        match record {
            Ok(record) => report.record(path, batch, &record)?,
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(None)
}
