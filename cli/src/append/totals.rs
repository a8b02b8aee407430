//! What has become of the lines of an input: appended, waiting in a batch, or refused.

use std::path::Path;

use kseg_format::Offset;
use kseg_log::{AppendInfo, BatchWriter};

use super::line::Wrong;
use crate::error::{Error, Result};

/// Some lines, and their bytes without the newlines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
}

impl Lines {
    fn add(&mut self, other: Lines) {
        self.lines += other.lines;
        self.bytes += other.bytes;
    }
}

/// Every line that was read is in one of these.
#[derive(Debug)]
pub(crate) struct Totals {
    /// The end of the log behind the last batch that went out.
    end: Offset,
    appended: Lines,
    /// In the batch that the writer fills.
    waiting: Lines,
    /// The line being looked at; none once it is known what becomes of it.
    current: Lines,
    refused: Lines,
}

impl Totals {
    /// Nothing yet, for a log that ends at `end`.
    pub(crate) fn new(end: Offset) -> Totals {
        let none = Lines::default();
        Totals { end, appended: none, waiting: none, current: none, refused: none }
    }

    /// Lines read, whatever became of them.
    pub(crate) fn lines(&self) -> u64 {
        self.appended.lines + self.waiting.lines + self.current.lines + self.refused.lines
    }

    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended.bytes
    }

    /// Lines that are not in the log and will not be.
    pub(crate) fn refused(&self) -> Lines {
        self.refused
    }

    /// A line of this length comes.
    pub(crate) fn read(&mut self, len: usize) {
        self.current = Lines { lines: 1, bytes: len as u64 };
    }

    /// The line that came is not what the format asks for.
    pub(crate) fn malformed(&mut self, input: &Path, wrong: Wrong) -> Error {
        let line = self.lines();
        self.refused.add(std::mem::take(&mut self.current));
        Error::line(input, line, wrong.expected, wrong.found)
    }

    /// The writer was given the line that came, and has answered.
    ///
    /// # Errors
    /// Its refusal, with the lines that it is about: the line that came, or those of the batch that was to go out first; the
    /// line that came is then not taken either.
    pub(crate) fn taken(
        &mut self,
        input: &Path,
        answer: kseg_log::Result<Option<AppendInfo>>,
        writer: &BatchWriter,
    ) -> Result<()> {
        let current = std::mem::take(&mut self.current);
        let alone = self.lines() + 1;
        match answer {
            Err(error) if self.is_in_the_log(writer) || writer.waiting() as u64 == self.waiting.lines => {
                // What went before went well: nothing had to go out, or it did.
                if writer.waiting() == 0 {
                    self.end = writer.log().log_end_offset();
                    self.appended.add(std::mem::take(&mut self.waiting));
                }
                self.refused.add(current);
                Err(refusal(input, alone, alone, error))
            }
            answer => {
                let refused = answer.is_err();
                let sent = self.sent(input, answer, writer);
                if refused {
                    self.refused.add(current)
                } else {
                    self.waiting.add(current)
                }
                sent
            }
        }
    }

    /// The writer was asked to let a batch go, and has answered.
    ///
    /// # Errors
    /// Its refusal, with the lines of the batch; or what went wrong once they were in the log.
    pub(crate) fn sent(
        &mut self,
        input: &Path,
        answer: kseg_log::Result<Option<AppendInfo>>,
        writer: &BatchWriter,
    ) -> Result<()> {
        let through = self.lines();
        match answer {
            Ok(None) => Ok(()),
            Err(error) if !self.is_in_the_log(writer) => {
                let lines = std::mem::take(&mut self.waiting);
                self.refused.add(lines);
                Err(refusal(input, through - lines.lines + 1, through, error))
            }
            answer => {
                self.end = writer.log().log_end_offset();
                self.appended.add(std::mem::take(&mut self.waiting));
                answer.map(|_| ()).map_err(Error::from)
            }
        }
    }

    /// Whether the batch that waited has got its offsets.
    fn is_in_the_log(&self, writer: &BatchWriter) -> bool {
        writer.log().log_end_offset() > self.end
    }
}

fn refusal(input: &Path, first: u64, last: u64, source: kseg_log::Error) -> Error {
    Error::Refused { input: input.to_owned(), first, last, source: Box::new(source) }
}
