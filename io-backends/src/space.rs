//! [`Reserved`]: space ahead of the end of a file, taken in steps.
//!
//! Zeros are written ahead of need by a thread of the background, while half of the last step is left; whoever needs them
//! before they are there waits, and where no thread has come to them yet, writes them itself: the threads of the background
//! may be waiting for the writer. No sync is made for them here: an error of the device is told to a descriptor once, and
//! must be told to the one who makes appended bytes durable.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use crate::backend::RawFile;
use crate::error::{IoError, Verdict};
use crate::op::{Op, Reserve};
use crate::plan::Space;
use crate::sync::{Condvar, Mutex, in_background};

/// [`Space::Grown`]: a step is this part of what the file holds, and none is taken for less than so many bytes: to take it costs
/// as much as it saves writes of 1 MiB.
const GROWN_PART: u64 = 4;
const GROWN_LEAST: u64 = 2 << 20;

/// Keeps the taken space ahead of what is appended. Used under the writer's lock.
#[derive(Debug)]
pub(crate) struct Reserved {
    space: Space,
    /// Up to here space is taken.
    end: u64,
    /// Whatever ends up to here takes none.
    idle: u64,
    /// The length went ahead with it.
    extended: bool,
    /// Blocks up to here may have been taken that the length does not tell of; 0 for none.
    blocks: u64,
    /// Where the last flush that set the length right was, and whether such flushes come soon after each other.
    flushed: u64,
    often: bool,
    coming: Option<Arc<Coming>>,
}

/// A step that the background takes.
#[derive(Debug)]
struct Coming {
    range: Range<u64>,
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Debug)]
enum Stage {
    /// No thread has come to it yet.
    Asked,
    /// Nor will one: it was needed before.
    Withdrawn,
    Begun,
    Ended(Result<(), IoError>),
}

impl Reserved {
    /// Space ahead of `len`, in whole blocks: where writes go past the page cache, that is not to hold what lies in a block
    /// beside one of theirs.
    pub(crate) fn new(space: Space, len: u64, block: u32) -> Self {
        let end = len.next_multiple_of(block.into());
        let whole = |step: u32| step.checked_next_multiple_of(block).unwrap_or(step - step % block);
        let space = match space {
            Space::None => Space::None,
            Space::Blocks(step) => Space::Blocks(whole(step)),
            Space::Grown(most) => Space::Grown(whole(most)),
            Space::Queued(step) => Space::Queued(whole(step)),
            Space::Ahead(step) => Space::Ahead(whole(step)),
            Space::Zeroed(step) => Space::Zeroed(whole(step)),
        };
        Self { space, end, idle: 0, extended: false, blocks: 0, flushed: end, often: false, coming: None }
    }

    /// Whether the file may be longer than its contents until it is sealed.
    pub(crate) fn stays_ahead(&self) -> bool {
        matches!(self.space, Space::Zeroed(_))
    }

    /// Whether the file may be longer than its contents now.
    pub(crate) fn is_ahead(&self) -> bool {
        self.extended
    }

    /// Whether space may have been taken behind `len` that the file's length does not tell of. It goes back when the file is
    /// given its length once more.
    pub(crate) fn holds_behind(&self, len: u64) -> bool {
        self.blocks > len
    }

    /// Takes space, if need be, so that it reaches `end`, for an append that is written `at_once` or later, in a file that is
    /// `durable` up to there.
    ///
    /// # Errors
    /// There is no space: nothing changed. A file system that takes none ahead is not an error; it is not asked again.
    #[inline]
    pub(crate) fn reach(
        &mut self,
        file: &Arc<dyn RawFile>,
        end: u64,
        at_once: bool,
        durable: impl FnOnce() -> u64,
    ) -> Result<(), IoError> {
        match self.space {
            Space::None => Ok(()),
            Space::Queued(_) if at_once => Ok(()),
            Space::Grown(_) if at_once && end <= self.idle => Ok(()),
            Space::Grown(most) if at_once => self.grow(file, end, u64::from(most), durable()),
            _ => self.reach_ahead(file, end),
        }
    }

    /// [`Space::Grown`] for an append that is written at once: what is taken is not needed, only welcome.
    #[cold]
    fn grow(&mut self, file: &Arc<dyn RawFile>, end: u64, most: u64, durable: u64) -> Result<(), IoError> {
        let (step, least) = ((end / GROWN_PART).min(most), GROWN_LEAST.min(most));
        if step < least || end <= self.end {
            self.idle = self.end.max(least * GROWN_PART);
            return Ok(());
        }
        let far = end.saturating_add(step).min(crate::appender::LEN_MAX);
        self.idle = far;
        // Where flushes are frequent none is taken: a sync has less to do where the file system has not promised blocks.
        if durable.saturating_add(step) > end {
            self.end = end;
            return Ok(());
        }
        self.blocks = self.blocks.max(far);
        match take(&**file, self.end..far, Reserve::Blocks) {
            Ok(()) => self.end = far,
            // Not asked again before the file is cut.
            Err(error)
                if matches!(error.verdict(), Verdict::NoSpace | Verdict::Misuse | Verdict::Unsupported) =>
            {
                self.idle = u64::MAX;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn reach_ahead(&mut self, file: &Arc<dyn RawFile>, end: u64) -> Result<(), IoError> {
        let (step, how) = match self.space {
            Space::None => return Ok(()),
            // Each flush that cuts the file gives back what was taken: where they are frequent, taking it costs more than
            // it brings.
            Space::Blocks(step) | Space::Ahead(step)
                if self.often && end - self.flushed < u64::from(step) =>
            {
                return Ok(());
            }
            Space::Blocks(step) | Space::Queued(step) => (step.into(), Reserve::Blocks),
            Space::Grown(most) => {
                let most = u64::from(most);
                ((end / GROWN_PART).clamp(GROWN_LEAST.min(most), most), Reserve::Blocks)
            }
            Space::Ahead(step) => (step.into(), Reserve::BlocksAndLen),
            Space::Zeroed(step) => (step.into(), Reserve::Zeroed),
        };
        let result = self.take(file, end, step, how);
        match result {
            Err(error) if error.verdict() == Verdict::Unsupported => {
                (self.space, self.blocks) = (Space::None, 0);
                Ok(())
            }
            result => result,
        }
    }

    fn take(&mut self, file: &Arc<dyn RawFile>, end: u64, step: u64, how: Reserve) -> Result<(), IoError> {
        if end > self.end {
            self.settle()?;
        }
        if end > self.end {
            let far = end.saturating_add(step).min(crate::appender::LEN_MAX);
            // Also where there is too little of it: some may have been taken.
            match how {
                Reserve::Blocks => self.blocks = self.blocks.max(far),
                Reserve::BlocksAndLen | Reserve::Zeroed => self.extended = true,
            }
            self.end = take(&**file, self.end..far, how).map(|()| far).or_else(|error| {
                match error.verdict() {
                    // As much as is needed may still be there.
                    Verdict::NoSpace => take(&**file, self.end..end, how).map(|()| end),
                    _ => Err(error),
                }
            })?;
        }
        if how == Reserve::Zeroed && self.coming.is_none() && self.end - end < step / 2 {
            self.begin(file, step);
        }
        Ok(())
    }

    /// Has the background take one more step.
    fn begin(&mut self, file: &Arc<dyn RawFile>, step: u64) {
        let range = self.end..self.end.saturating_add(step).min(crate::appender::LEN_MAX);
        let coming = Arc::new(Coming { range, stage: Mutex::new(Stage::Asked), changed: Condvar::new() });
        self.coming = Some(Arc::clone(&coming));
        let file = Arc::clone(file);
        in_background(move || {
            match &mut *coming.stage.lock() {
                stage @ Stage::Asked => *stage = Stage::Begun,
                _ => return,
            }
            let result = take(&*file, coming.range.clone(), Reserve::Zeroed);
            *coming.stage.lock() = Stage::Ended(result);
            coming.changed.notify_all();
        });
    }

    /// Sees to it that no step is coming: waits for one that was begun. A full disk there is no error yet: what is needed may
    /// fit.
    pub(crate) fn settle(&mut self) -> Result<(), IoError> {
        let Some(coming) = self.coming.take() else { return Ok(()) };
        let mut stage = coming.stage.lock();
        let result = loop {
            match mem::replace(&mut *stage, Stage::Withdrawn) {
                Stage::Asked | Stage::Withdrawn => return Ok(()),
                Stage::Begun => {
                    *stage = Stage::Begun;
                    coming.changed.wait(&mut stage);
                }
                Stage::Ended(result) => break result,
            }
        };
        self.extended = true;
        match result {
            Ok(()) => self.end = coming.range.end,
            Err(error) if matches!(error.verdict(), Verdict::NoSpace | Verdict::Unsupported) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Bytes up to `end` were written, whether space was taken for them before or not.
    pub(crate) fn written(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// A flush has made the file exactly `len` bytes long, for which it was `cut` or not.
    pub(crate) fn flushed(&mut self, len: u64, cut: bool) {
        let step = match self.space {
            Space::Ahead(step) => step,
            // What is never given back costs nothing.
            Space::Blocks(step) if cut => step,
            _ => return,
        };
        self.often = len - self.flushed.min(len) < u64::from(step) / 4;
        self.flushed = len;
    }

    /// Cuts the file if it is longer than `len`, or has space behind it. Whether it was.
    pub(crate) fn cut_file(&mut self, file: &dyn RawFile, len: u64) -> Result<bool, IoError> {
        self.settle()?;
        let longer = file.len()? > len || self.holds_behind(len);
        if longer {
            file.submit(Op::SetLen { len }).wait().result?;
        }
        Ok(longer)
    }

    /// The file was cut to `len`, and with it what was taken behind. No step is coming.
    pub(crate) fn cut(&mut self, len: u64) {
        (self.end, self.idle) = (len, 0);
        self.flushed = self.flushed.min(len);
        (self.extended, self.blocks) = (false, 0);
    }
}

fn take(file: &dyn RawFile, range: Range<u64>, how: Reserve) -> Result<(), IoError> {
    file.submit(Op::Reserve { range, how }).wait().result.map(drop)
}
