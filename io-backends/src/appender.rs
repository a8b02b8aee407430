//! [`Appender`]: the append side of one file, with its three marks and its fence.
//!
//! [`PlainAppender`] stands on files whose writes need no alignment. Its appends are written when they return, so
//! accepted and stable are one. What its writer and its sync know of the marks they hold under their own locks, and
//! only publish through the marks: they never load what they store. (A model depends on that, too: loom forgets that
//! another thread has loaded an atomic once the storing thread loads it.) Lock order: the sync lock, then the writer lock; neither is held while the other
//! side waits for the device, except that a truncation waits for the sync that is going on.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::backend::{RawFile, write_all};
use crate::error::{IoError, Verdict};
use crate::marks::Marks;
use crate::op::{Gather, Op};
use crate::sync::{AtomicBool, Mutex, Ordering};

/// Files are no longer than Java's `long` can say.
const LEN_MAX: u64 = i64::MAX as u64;

/// The append side of one file above [`RawFile`].
///
/// Marks only rise, but for [`Appender::truncate`]. Once fenced, by the first failed sync or the first write whose
/// extent is not known, every append, flush, truncation and seal fails with the first error, without asking the
/// operating system; reading goes on.
pub trait Appender: Debug + Send + Sync {
    /// Appends `data` and returns the range of positions it took.
    ///
    /// The positions are final and the bytes readable through [`Appender::read_at`] on return; durable after a
    /// [`Appender::flush`] that began later. One write call, unless the data needs more, or a write was short.
    /// Appends are one at a time: the caller serialises them, and a second one at the same moment waits.
    ///
    /// # Errors
    /// [`Verdict::NoSpace`]: nothing was appended, and a later append may succeed. Any other error of the write
    /// fences the file: how far it got is not known.
    fn append(&self, data: Gather) -> Result<Range<u64>, IoError>;

    /// The marks, to be read by anybody.
    fn marks(&self) -> &Marks;

    /// Reads at `at` what was accepted; never past that mark, even where the file is longer. Fewer bytes than asked
    /// only at the mark, 0 at or behind it.
    ///
    /// # Errors
    /// [`Verdict::Damaged`] where the file ends before the mark: somebody else has cut it.
    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError>;

    /// Makes durable the bytes, and the length, that were stable when it began, and returns the durable mark. No
    /// call to the operating system where nothing was appended or cut since the last one. Appends go on meanwhile.
    ///
    /// # Errors
    /// The sync failed: the file is fenced, the durable mark stays.
    fn flush(&self) -> Result<u64, IoError>;

    /// Drops what lies behind `len`. Waits for a sync that is going on. The operating system is asked only where
    /// the file is longer. The new length is durable after the next flush.
    ///
    /// # Errors
    /// [`Verdict::Misuse`] for a `len` beyond the accepted mark, or one that would cut a live view: nothing changed.
    /// Any other error fences the file.
    fn truncate(&self, len: u64) -> Result<(), IoError>;

    /// Cuts reserved space behind the accepted mark and returns the length. Durable after the next flush, in this
    /// order: a length that is cut after its sync may come back.
    ///
    /// # Errors
    /// As [`Appender::truncate`].
    fn seal(&self) -> Result<u64, IoError>;

    /// The file below.
    fn file(&self) -> &Arc<dyn RawFile>;
}

/// The appender that fits `file`, whose bytes below `len` are there; what lies behind `len` is reserved space and
/// will be overwritten.
///
/// # Errors
/// [`Verdict::Damaged`] for a file shorter than `len`; [`Verdict::Unsupported`] for one whose writes need alignment.
pub fn appender(file: Arc<dyn RawFile>, len: u64) -> Result<Arc<dyn Appender>, IoError> {
    if !file.align().is_none() {
        let why = "writes to this file must be aligned, and no appender here aligns them";
        return Err(IoError::because("append", file.path(), io::ErrorKind::Unsupported, why));
    }
    let physical = file.len()?;
    if physical < len || len > LEN_MAX {
        let why = format!("the file has {physical} bytes, expected {len}");
        return Err(IoError::because("append", file.path(), io::ErrorKind::UnexpectedEof, why));
    }
    Ok(Arc::new(PlainAppender {
        file,
        marks: Marks::new(len),
        writer: Mutex::new(len),
        sync: Mutex::new(Synced { durable: 0, ever: false }),
        resized: AtomicBool::new(false),
    }))
}

/// Appends through writes that are done when they return.
#[derive(Debug)]
struct PlainAppender {
    file: Arc<dyn RawFile>,
    marks: Marks,
    /// The accepted mark. Held across the write of an append and the cut of a truncation.
    writer: Mutex<u64>,
    /// Held across a sync, so that there is at most one in flight.
    sync: Mutex<Synced>,
    /// Set by a cut, whose length no sync has covered yet.
    resized: AtomicBool,
}

#[derive(Debug)]
struct Synced {
    /// The durable mark.
    durable: u64,
    /// Whether there was a sync through this appender. Before it, what is there may be in a cache only.
    ever: bool,
}

impl PlainAppender {
    /// What a failed write of `[start, start + size)` leads to: all or nothing, or the fence.
    #[cold]
    fn write_failed(&self, start: u64, size: u64, error: IoError) -> IoError {
        let error = error.with_range(start, size);
        if error.verdict() == Verdict::NoSpace {
            // Nothing behind it is in flight: what was written of it can be taken back.
            return match self.cut_file(start) {
                Ok(()) => error,
                Err(_) => self.marks.fence("append", &self.file.path(), error),
            };
        }
        self.marks.fence("append", &self.file.path(), error)
    }

    /// Cuts the file, not the marks, if it is longer than `len`.
    fn cut_file(&self, len: u64) -> Result<(), IoError> {
        if self.file.len()? > len {
            self.file.submit(Op::SetLen { len }).wait().result?;
            // Read by the next flush, which either is not running yet or leaves it to the one after. Pairs with the
            // swap there.
            self.resized.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Cuts the file for a caller who can be told that nothing changed.
    fn cut_or_fence(&self, op: &'static str, len: u64) -> Result<(), IoError> {
        self.cut_file(len).map_err(|error| match error.verdict() {
            Verdict::Misuse => error,
            _ => self.marks.fence(op, &self.file.path(), error),
        })
    }
}

impl Appender for PlainAppender {
    fn append(&self, data: Gather) -> Result<Range<u64>, IoError> {
        let mut accepted = self.writer.lock();
        self.marks.check("append", || self.file.path())?;
        let start = *accepted;
        let size = data.len();
        let Some(end) = start.checked_add(size).filter(|end| *end <= LEN_MAX) else {
            let error =
                IoError::because("append", self.file.path(), io::ErrorKind::FileTooLarge, "beyond 2^63");
            return Err(error.with_range(start, size));
        };
        match write_all(&*self.file, start, data) {
            Ok(_) => {
                *accepted = end;
                self.marks.accept(end);
                Ok(start..end)
            }
            Err(error) => Err(self.write_failed(start, size, error)),
        }
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        // Read once: the answer ends at the mark seen here, however far the writer gets meanwhile.
        let mut accepted = self.marks.accepted();
        let mut done = 0;
        loop {
            let place = at.saturating_add(done as u64);
            let left = usize::try_from(accepted.saturating_sub(place)).unwrap_or(usize::MAX);
            let want = left.min(into.len() - done);
            if want == 0 {
                return Ok(done);
            }
            match self.file.read_at(&mut into[done..done + want], place)? {
                0 => {
                    // Cut behind our back, or by a truncation that has not lowered the mark yet: wait for that.
                    let now = *self.writer.lock();
                    if now >= accepted {
                        let why = format!("the file ends before its accepted mark, {accepted}");
                        let error =
                            IoError::because("read", self.file.path(), io::ErrorKind::UnexpectedEof, why);
                        return Err(error.with_range(place, want as u64));
                    }
                    accepted = now;
                }
                count => done += count,
            }
        }
    }

    fn flush(&self) -> Result<u64, IoError> {
        let mut synced = self.sync.lock();
        self.marks.check("flush", || self.file.path())?;
        let target = self.marks.stable();
        // Pairs with the store in `cut_file`: a cut seen here happened before the sync below.
        let resized = self.resized.swap(false, Ordering::AcqRel);
        if synced.ever && !resized && synced.durable >= target {
            return Ok(synced.durable);
        }
        match self.file.submit(Op::Flush { metadata: resized }).wait().result {
            Ok(_) => {
                *synced = Synced { durable: target, ever: true };
                self.marks.sync_to(target);
                Ok(target)
            }
            Err(error) => {
                Err(self.marks.fence("flush", &self.file.path(), error.with_verdict(Verdict::Damaged)))
            }
        }
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        let mut synced = self.sync.lock();
        let mut accepted = self.writer.lock();
        self.marks.check("truncate", || self.file.path())?;
        if len > *accepted {
            let why = format!("cannot truncate to {len}: the file ends at {accepted}", accepted = *accepted);
            return Err(IoError::because("truncate", self.file.path(), io::ErrorKind::InvalidInput, why));
        }
        self.cut_or_fence("truncate", len)?;
        *accepted = len;
        synced.durable = synced.durable.min(len);
        self.marks.cut(len, synced.durable);
        Ok(())
    }

    fn seal(&self) -> Result<u64, IoError> {
        let _syncing = self.sync.lock();
        let accepted = self.writer.lock();
        self.marks.check("seal", || self.file.path())?;
        let len = *accepted;
        self.cut_or_fence("seal", len)?;
        Ok(len)
    }

    fn file(&self) -> &Arc<dyn RawFile> {
        &self.file
    }
}
