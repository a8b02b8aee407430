//! [`PlainAppender`]: appends through writes that are done when they return.
//!
//! Accepted and stable are one. What its writer and its sync know of the marks they hold under their own locks, and
//! only publish through the marks: they never load what they store. (A model depends on that, too: loom forgets that
//! another thread has loaded an atomic once the storing thread loads it.) Lock order: the sync lock, then the writer
//! lock; neither is held while the other side waits for the device, except that a truncation waits for the sync that
//! is going on.

use std::ops::Range;
use std::sync::Arc;

use crate::appender::{Appender, append_failed, end_of, ended, read_accepted, truncate_beyond, write_behind};
use crate::backend::{RawFile, write_through};
use crate::commit::{Commits, Committer, Durability};
use crate::error::{IoError, Verdict};
use crate::marks::Marks;
use crate::op::{Gather, Through};
use crate::plan::{AppendPlan, Space};
use crate::space::Reserved;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::synced::Synced;

#[derive(Debug)]
pub(crate) struct PlainAppender {
    file: Arc<dyn RawFile>,
    plan: AppendPlan,
    marks: Marks,
    /// Held across the write of an append and the cut of a truncation.
    writer: Mutex<Writer>,
    /// Held across a sync, so that there is at most one in flight.
    sync: Mutex<Synced>,
    /// Set by a cut, whose length no sync has covered yet.
    resized: AtomicBool,
    committer: Committer,
}

#[derive(Debug)]
struct Writer {
    /// The accepted mark.
    accepted: u64,
    reserved: Reserved,
    /// Bytes for which the kernel was told to begin writing back.
    behind: u64,
}

impl PlainAppender {
    /// An appender of a file that has at least `len` bytes.
    pub(crate) fn new(file: Arc<dyn RawFile>, len: u64) -> Self {
        let plan = file.caps().plan;
        // A length that goes ahead between flushes is for those who write several blocks at a time.
        let space = match plan.space {
            Space::Ahead(step) => Space::Blocks(step),
            space => space,
        };
        let writer = Writer { accepted: len, reserved: Reserved::new(space, len, 1), behind: len };
        Self {
            file,
            plan,
            marks: Marks::new(len),
            writer: Mutex::new(writer),
            sync: Mutex::new(Synced::new()),
            resized: AtomicBool::new(false),
            committer: Committer::new(),
        }
    }

    /// What a failed write of `[start, start + size)` leads to: all or nothing, or the fence.
    #[cold]
    fn write_failed(&self, writer: &mut Writer, start: u64, size: u64, error: IoError) -> IoError {
        let error = error.with_range(start, size);
        append_failed(&*self.file, &self.marks, error, || self.cut_file(writer, start))
    }

    /// Cuts the file, not the marks, if it is longer than `len`, or has space behind it.
    fn cut_file(&self, writer: &mut Writer, len: u64) -> Result<(), IoError> {
        if writer.reserved.cut_file(&*self.file, len)? {
            // Read by the next flush, which either is not running yet or leaves it to the one after. Pairs with the
            // swap there.
            self.resized.store(true, Ordering::Release);
        }
        writer.reserved.cut(len);
        Ok(())
    }

    /// Cuts the file for a caller who can be told that nothing changed.
    fn cut_or_fence(&self, writer: &mut Writer, op: &'static str, len: u64) -> Result<(), IoError> {
        self.cut_file(writer, len).map_err(|error| match error.verdict() {
            Verdict::Misuse => error,
            _ => self.marks.fence(op, &self.file.path(), error),
        })
    }
}

impl Appender for PlainAppender {
    fn append(&self, data: Gather) -> Result<Range<u64>, IoError> {
        let mut writer = self.writer.lock();
        self.marks.check("append", || self.file.path())?;
        let start = writer.accepted;
        let size = data.len();
        let end = end_of(&*self.file, start, size)?;
        writer.reserved.reach(&self.file, end, true, || self.marks.durable()).map_err(|error| match error
            .verdict()
        {
            Verdict::NoSpace | Verdict::Misuse => error.with_range(start, size),
            _ => self.marks.fence("append", &self.file.path(), error),
        })?;
        let through = if self.plan.through { Through::Data } else { Through::No };
        match write_through(&*self.file, start, data, through) {
            Ok(_) => {
                writer.accepted = end;
                self.marks.accept(end);
                write_behind(&*self.file, self.plan.write_behind, &mut writer.behind, end);
                Ok(start..end)
            }
            Err(error) => Err(self.write_failed(&mut writer, start, size, error)),
        }
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        let read = |into: &mut [u8], place| self.file.read_at(into, place);
        let missing = |place, want| {
            let writer = self.writer.lock();
            let cut_by_others = place < writer.accepted && self.file.len()? <= place;
            if cut_by_others {
                Err(ended(&*self.file, place, want, writer.accepted))
            } else {
                Ok(writer.accepted)
            }
        };
        read_accepted(&self.marks, into, at, read, missing, || drop(self.writer.lock()))
    }

    fn flush(&self) -> Result<u64, IoError> {
        self.marks.check("flush", || self.file.path())?;
        Committer::flush(self)
    }

    fn durability(self: Arc<Self>, upto: u64) -> Durability {
        Durability::new(self, upto)
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        let mut synced = self.sync.lock();
        let mut writer = self.writer.lock();
        self.marks.check("truncate", || self.file.path())?;
        if len > writer.accepted {
            return Err(truncate_beyond(&*self.file, len, writer.accepted));
        }
        let cutting = self.marks.begin_cutting();
        self.cut_or_fence(&mut writer, "truncate", len)?;
        writer.accepted = len;
        writer.behind = writer.behind.min(len);
        synced.durable = synced.durable.min(len);
        self.marks.cut(len, len, synced.durable);
        drop(cutting);
        drop((writer, synced));
        self.committer.disturb();
        Ok(())
    }

    fn seal(&self) -> Result<u64, IoError> {
        let _syncing = self.sync.lock();
        let mut writer = self.writer.lock();
        self.marks.check("seal", || self.file.path())?;
        let len = writer.accepted;
        self.cut_or_fence(&mut writer, "seal", len)?;
        Ok(len)
    }

    fn file(&self) -> &Arc<dyn RawFile> {
        &self.file
    }
}

impl Commits for PlainAppender {
    fn committer(&self) -> &Committer {
        &self.committer
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn is_cut(&self) -> bool {
        // Pairs with the store in `cut_file`.
        self.resized.load(Ordering::Acquire)
    }

    fn sync(&self) -> Result<u64, IoError> {
        let mut synced = self.sync.lock();
        self.marks.check("flush", || self.file.path())?;
        let target = self.marks.stable();
        synced.bring_to(target, &*self.file, &self.marks, &self.resized, self.plan.through)
    }

    fn refused(&self, op: &'static str) -> Option<IoError> {
        self.marks.check(op, || self.file.path()).err()
    }

    fn file(&self) -> &dyn RawFile {
        &*self.file
    }
}

impl Drop for PlainAppender {
    /// Gives back the space that was taken ahead.
    fn drop(&mut self) {
        let mut writer = self.writer.lock();
        // A step that is being taken holds the file; then it is waited for, and cut with the rest.
        let settled = writer.reserved.settle().is_ok();
        let len = writer.accepted;
        let ahead = writer.reserved.is_ahead() || writer.reserved.holds_behind(len);
        if settled && ahead && !self.marks.fenced() {
            // Nobody is left to hear of an error; zeros behind the end are expected after a stop.
            let _ = self.cut_file(&mut writer, len);
        }
    }
}
