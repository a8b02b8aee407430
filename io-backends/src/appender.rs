//! [`Appender`]: the append side of one file, with its three marks and its fence.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::backend::RawFile;
use crate::commit::Durability;
use crate::error::{IoError, Verdict};
use crate::marks::Marks;
use crate::op::{Advice, Gather, Op};
use crate::plain::PlainAppender;
use crate::queued::QueuedAppender;

/// Files are no longer than Java's `long` can say.
pub(crate) const LEN_MAX: u64 = i64::MAX as u64;

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
    /// The sync failed: the file is fenced, the durable mark stays. [`Verdict::NoSpace`]: some of what was accepted is in
    /// memory still, where it can be read; a later flush tries again.
    fn flush(&self) -> Result<u64, IoError>;

    /// A handle on bytes below `upto`, which were accepted before, becoming durable; asks for nothing yet. The sync that makes
    /// them so serves all who wait at that time, flushes included. On bytes that are not there it answers with
    /// [`Verdict::Misuse`]. See [`Durability`].
    fn durability(self: Arc<Self>, upto: u64) -> Durability;

    /// Drops what lies behind `len`. Waits for a sync that is going on. The operating system is asked only where
    /// the file is longer, or space was taken ahead. The new length is durable after the next flush.
    ///
    /// # Errors
    /// [`Verdict::Misuse`] for a `len` beyond the accepted mark, or one that would cut a live view: nothing changed.
    /// Any other error fences the file.
    fn truncate(&self, len: u64) -> Result<(), IoError>;

    /// Cuts reserved space behind the accepted mark and returns the length. Durable after the next flush, in this
    /// order: a length that is cut after its sync may come back.
    ///
    /// It closes nothing: a later append is taken, and may take space ahead again.
    ///
    /// # Errors
    /// As [`Appender::truncate`].
    fn seal(&self) -> Result<u64, IoError>;

    /// The file below.
    fn file(&self) -> &Arc<dyn RawFile>;
}

impl dyn Appender {
    /// Appends `data`, as [`Appender::append`], and returns also the handle on its becoming durable.
    ///
    /// # Errors
    /// Those of the append; those of the sync go to the handle.
    pub fn append_durable(self: &Arc<Self>, data: Gather) -> Result<(Range<u64>, Durability), IoError> {
        // Before the append: the handle tells of a cut right behind it, which may have taken the bytes.
        let cuts = self.marks().cuts();
        let range = self.append(data)?;
        let durability = Arc::clone(self).durability(range.end).appended_after(cuts);
        Ok((range, durability))
    }
}

/// The appender that fits `file`, whose bytes below `len` are there; what lies behind `len` is reserved space and
/// will be overwritten.
///
/// One at a time for a file: each goes by its own marks, so a second one writes over what the first appends, and neither notices.
/// [`Namespace::lock`](crate::Namespace::lock) and [`claim`](crate::Namespace::claim) are there to keep others away.
///
/// # Errors
/// [`Verdict::Damaged`] for a file shorter than `len`.
pub fn appender(file: Arc<dyn RawFile>, len: u64) -> Result<Arc<dyn Appender>, IoError> {
    let physical = file.len()?;
    if physical < len || len > LEN_MAX {
        let why = format!("the file has {physical} bytes, expected {len}");
        return Err(IoError::because("append", file.path(), io::ErrorKind::UnexpectedEof, why));
    }
    if file.align().is_none() && !file.caps().parallel_append {
        Ok(Arc::new(PlainAppender::new(file, len)))
    } else {
        Ok(Arc::new(QueuedAppender::new(file, len, physical > len)?))
    }
}

/// Where `size` bytes at `start` end.
pub(crate) fn end_of(file: &dyn RawFile, start: u64, size: u64) -> Result<u64, IoError> {
    start.checked_add(size).filter(|end| *end <= LEN_MAX).ok_or_else(|| {
        let error = IoError::because("append", file.path(), io::ErrorKind::FileTooLarge, "beyond 2^63");
        error.with_range(start, size)
    })
}

/// What a failed write of an append leads to that nothing is in flight behind: all or nothing, or the fence.
#[cold]
pub(crate) fn append_failed(
    file: &dyn RawFile,
    marks: &Marks,
    error: IoError,
    take_back: impl FnOnce() -> Result<(), IoError>,
) -> IoError {
    if error.verdict() == Verdict::NoSpace && take_back().is_ok() {
        error
    } else {
        marks.fence("append", &file.path(), error)
    }
}

/// Has the kernel begin to write back what lies before `upto`, once that is `step` bytes more than it was told of; never for 0.
#[inline]
pub(crate) fn write_behind(file: &dyn RawFile, step: u32, behind: &mut u64, upto: u64) {
    if step > 0 && upto >= *behind + u64::from(step) {
        // A hint: what it does not do a sync will.
        let op = Op::Advise { range: *behind..upto, how: Advice::WriteBack };
        drop(file.submit(op).wait());
        *behind = upto;
    }
}

/// Reads at `at` what was accepted, in pieces that `read` gives. Where it finds nothing though there should be something,
/// `missing` tells what is wrong, if it is no truncation that has not lowered the mark yet, and else the mark. `settled` waits
/// for a truncation that is going on: of a page that is being cut the kernel may give zeros.
#[inline]
pub(crate) fn read_accepted(
    marks: &Marks,
    into: &mut [u8],
    at: u64,
    read: impl Fn(&mut [u8], u64) -> Result<usize, IoError>,
    missing: impl Fn(u64, usize) -> Result<u64, IoError>,
    settled: impl Fn(),
) -> Result<usize, IoError> {
    loop {
        let cutting = marks.cutting();
        if !cutting.is_multiple_of(2) {
            settled();
            continue;
        }
        // Read once: the answer ends at the mark seen here, however far the writer gets meanwhile.
        let mut accepted = marks.accepted();
        let mut done = 0;
        loop {
            let place = at.saturating_add(done as u64);
            let left = usize::try_from(accepted.saturating_sub(place)).unwrap_or(usize::MAX);
            let want = left.min(into.len() - done);
            if want == 0 {
                break;
            }
            match read(&mut into[done..done + want], place)? {
                0 => accepted = accepted.min(missing(place, want)?),
                count => done += count,
            }
        }
        // Where something was cut off meanwhile, and perhaps appended to anew, what was read may be of both, or zeros.
        if marks.cutting() == cutting {
            return Ok(done);
        }
    }
}

/// The error of a read of `want` bytes at `place` that found the end of the file there.
#[cold]
pub(crate) fn ended(file: &dyn RawFile, place: u64, want: usize, accepted: u64) -> IoError {
    let why = format!("the file ends before its accepted mark, {accepted}");
    IoError::because("read", file.path(), io::ErrorKind::UnexpectedEof, why).with_range(place, want as u64)
}

/// The error of a truncation to a length that the file does not have.
#[cold]
pub(crate) fn truncate_beyond(file: &dyn RawFile, len: u64, accepted: u64) -> IoError {
    let why = format!("cannot truncate to {len}: the file ends at {accepted}");
    IoError::because("truncate", file.path(), io::ErrorKind::InvalidInput, why)
}

/// The error of a wait for bytes below `upto` that a truncation interrupted.
#[cold]
pub(crate) fn truncated(file: &dyn RawFile, upto: u64) -> IoError {
    let why = "the file was truncated before these bytes were known to be durable";
    IoError::because("flush", file.path(), io::ErrorKind::Interrupted, why).with_range(0, upto)
}

/// The error of a wait for bytes below `upto` that are not there.
#[cold]
pub(crate) fn not_appended(file: &dyn RawFile, upto: u64) -> IoError {
    let why = "not all of these bytes had been appended when they were asked for";
    IoError::because("flush", file.path(), io::ErrorKind::InvalidInput, why).with_range(0, upto)
}
