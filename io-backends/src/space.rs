//! [`Reserved`]: space ahead of the end of a file, taken in steps.

use crate::backend::RawFile;
use crate::error::{IoError, Verdict};
use crate::op::{Op, Reserve};
use crate::plan::Space;

/// Keeps the taken space ahead of what is appended. Used under the writer's lock.
#[derive(Debug)]
pub(crate) struct Reserved {
    space: Space,
    /// Up to here space is taken.
    end: u64,
}

impl Reserved {
    pub(crate) fn new(space: Space, end: u64) -> Self {
        Self { space, end }
    }

    /// Whether the file may be longer than its contents until it is sealed.
    pub(crate) fn stays_ahead(&self) -> bool {
        matches!(self.space, Space::Zeroed(_))
    }

    /// Takes space, if need be, so that it reaches `end`.
    ///
    /// # Errors
    /// There is no space: nothing changed. A file system that takes none ahead is not an error; it is not asked again.
    pub(crate) fn reach(&mut self, file: &dyn RawFile, end: u64) -> Result<(), IoError> {
        if end <= self.end {
            return Ok(());
        }
        let (step, how) = match self.space {
            Space::None => return Ok(()),
            Space::Blocks(step) => (step, Reserve::Blocks),
            Space::Ahead(step) => (step, Reserve::BlocksAndLen),
            Space::Zeroed(step) => (step, Reserve::Zeroed),
        };
        let start = self.end;
        let far = end.saturating_add(u64::from(step)).min(crate::appender::LEN_MAX);
        let taken = take(file, start, far, how).map(|()| far).or_else(|error| match error.verdict() {
            // As much as is needed may still be there.
            Verdict::NoSpace => take(file, start, end, how).map(|()| end),
            _ => Err(error),
        });
        match taken {
            Ok(end) => self.end = end,
            Err(error) if error.verdict() == Verdict::Unsupported => self.space = Space::None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The file was cut to `len`, and with it what was taken behind.
    pub(crate) fn cut(&mut self, len: u64) {
        self.end = len;
    }
}

fn take(file: &dyn RawFile, start: u64, end: u64, how: Reserve) -> Result<(), IoError> {
    file.submit(Op::Reserve { range: start..end, how }).wait().result.map(drop)
}
