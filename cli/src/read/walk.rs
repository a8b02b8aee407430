//! A walk over the batches of one `.log` file.

use std::path::Path;

use kseg_format::{Batch, BatchHeader, CheckedBatch, DecodeError, Framed, HEADER_UP_TO_MAGIC, frame};

use super::file::PreadFile;
use crate::error::{Error, Result};

/// Bytes looked at at once where batches are searched for.
const SCAN: usize = 64 * 1024;

/// What a device writes whole. Writers that go past the page cache write in multiples of it.
const BLOCK: u64 = 512;

/// What stands at the walk's position.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// A whole batch, by its framing; its checksum has not been looked at.
    Batch(BatchHeader),
    /// Bytes that are fewer than a batch needs.
    Torn { have: u64, needed: Option<u64> },
    /// Zeros where a batch would begin: space that was set aside and not written yet.
    Zeros { have: u64 },
    /// The end of the file.
    End,
}

/// Why a step could not be told.
#[derive(Debug)]
pub(crate) enum WalkError {
    /// The file could not be read.
    Io(Error),
    /// The bytes at the position are no batch.
    Decode(DecodeError),
}

/// Where a walk over a log file is.
#[derive(Debug)]
pub(crate) struct Walk {
    file: PreadFile,
    position: u64,
    end: u64,
}

impl Walk {
    /// A walk from the start of the file to where it ends now.
    pub(crate) fn new(file: PreadFile) -> Result<Walk> {
        let end = file.len()?;
        Ok(Walk { file, position: 0, end })
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of the file that the walk knows of.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Goes to the start of a batch.
    pub(crate) fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// Reads headers only, so that large batches in between are not read.
    pub(crate) fn headers_only(&mut self, headers_only: bool) {
        self.file.set_read_size(if headers_only { 4096 } else { 256 * 1024 });
    }

    /// Looks at the file anew; whether it ends elsewhere than before.
    pub(crate) fn refresh(&mut self) -> Result<bool> {
        let end = self.file.len()?;
        self.file.forget();
        Ok(std::mem::replace(&mut self.end, end) != end)
    }

    /// Says what stands at the position.
    pub(crate) fn peek(&mut self) -> Result<Step, WalkError> {
        let have = self.end.saturating_sub(self.position);
        let prefix = self.file.bytes(self.position, have.min(BatchHeader::MAX_LEN as u64) as usize);
        let prefix = prefix.map_err(WalkError::Io)?;
        // Shorter than it was: what is gone is not there.
        let have = if (prefix.len() as u64) < have.min(BatchHeader::MAX_LEN as u64) {
            prefix.len() as u64
        } else {
            have
        };
        if have > 0 && prefix.iter().all(|byte| *byte == 0) {
            return Ok(Step::Zeros { have });
        }
        match frame(prefix, have).map_err(WalkError::Decode)? {
            Framed::Whole { .. } => BatchHeader::read(prefix).map(Step::Batch).map_err(WalkError::Decode),
            Framed::Torn { needed } => Ok(Step::Torn { have, needed }),
            Framed::End => Ok(Step::End),
        }
    }

    /// The bytes of the batch at the position, `header` being what [`peek`](Self::peek) said of it.
    pub(crate) fn bytes(&mut self, header: &BatchHeader) -> Result<&[u8]> {
        self.file.bytes(self.position, header.size())
    }

    /// The batch at the position, its checksum compared.
    pub(crate) fn batch(&mut self, header: &BatchHeader) -> Result<CheckedBatch<'_>, WalkError> {
        let bytes = self.file.bytes(self.position, header.size()).map_err(WalkError::Io)?;
        Batch::parse(bytes).and_then(Batch::verify).map_err(WalkError::Decode)
    }

    /// Where zeros begin in the batch at the position, if it cannot be read and looks like one whose rest has not been written:
    /// from a block on there are zeros only, in the batch and behind it.
    ///
    /// So it looks beside a writer that writes whole blocks into space set aside before, and after such a one was killed.
    pub(crate) fn unwritten_from(&mut self) -> Result<Option<u64>> {
        let size = match self.peek() {
            Ok(Step::Batch(header)) if self.batch(&header).is_ok() => return Ok(None),
            Ok(Step::Batch(header)) => header.size(),
            // Its size is among what is not there.
            Err(WalkError::Decode(_)) => BatchHeader::MAX_LEN,
            Err(WalkError::Io(error)) => return Err(error),
            Ok(Step::Torn { .. } | Step::Zeros { .. } | Step::End) => return Ok(None),
        };
        let position = self.position;
        let bytes = self.bytes_at(position, size.saturating_add(SCAN))?;
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let zeros = (position + written as u64).next_multiple_of(BLOCK);
        Ok((zeros < position + (size as u64).min(bytes.len() as u64)).then_some(zeros))
    }

    /// Steps over the batch at the position.
    pub(crate) fn advance(&mut self, header: &BatchHeader) {
        self.position += header.size() as u64;
    }

    /// The first place behind the position that holds a batch of magic 2 with a right checksum, if there is one. The position
    /// stays.
    pub(crate) fn good_batch_behind(&mut self) -> Result<Option<u64>> {
        let from = self.position;
        let found = self.search_behind(from);
        self.position = from;
        found
    }

    fn search_behind(&mut self, from: u64) -> Result<Option<u64>> {
        let mut at = from + 1;
        loop {
            let end = self.end;
            let window = self.bytes_at(at, SCAN)?;
            if window.len() <= HEADER_UP_TO_MAGIC {
                return Ok(None);
            }
            let plausible = |skip: &usize| {
                let prefix = &window[*skip..];
                prefix[HEADER_UP_TO_MAGIC - 1] == 2
                    && matches!(frame(prefix, end - at - *skip as u64), Ok(Framed::Whole { .. }))
            };
            let places = window.len() - HEADER_UP_TO_MAGIC;
            let Some(skip) = (0..places).find(plausible) else {
                at += places as u64;
                continue;
            };
            self.position = at + skip as u64;
            let good = match self.peek() {
                Ok(Step::Batch(header)) => self.batch(&header).is_ok(),
                _ => false,
            };
            if good {
                return Ok(Some(self.position));
            }
            at += skip as u64 + 1;
        }
    }

    /// Bytes at any place of the file, for a search.
    pub(crate) fn bytes_at(&mut self, position: u64, len: usize) -> Result<&[u8]> {
        let have = self.end.saturating_sub(position);
        self.file.bytes(position, have.min(len as u64) as usize)
    }

    /// `error` as one of this file at the position.
    pub(crate) fn error(&self, error: WalkError, offset: Option<i64>) -> Error {
        match error {
            WalkError::Io(error) => error,
            WalkError::Decode(error) => Error::batch(self.path(), self.position, offset, &error),
        }
    }
}
