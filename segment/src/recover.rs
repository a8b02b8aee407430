//! Recovery of a segment: check every batch, cut at the first bad one, keep what is cut, rebuild the indexes.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kseg_format::{BatchHeader, CheckedBatch, Offset};
use kseg_index::{TimeIndex, TimestampOffset};
use kseg_io_backends::{Backend, Gather, Namespace, Op, OpenHow, RawFile, write_all};

use crate::error::{Error, Result};
use crate::indexes::MapRegion;
use crate::lookup::Tail;
use crate::scan::{BatchReader, ReadAt};
use crate::segment::{Indexes, Segment};

/// Why a segment was cut.
#[derive(Debug)]
#[non_exhaustive]
pub enum CutReason {
    /// The last bytes are the beginning of a batch.
    TornTail,
    /// All bytes from there on are zero: space that was set aside and never written.
    ZeroTail,
    /// A batch is not what a batch must be; the error says what was expected and found.
    Corrupt(Error),
    /// The offsets of a batch go back, or lie outside the segment.
    OffsetsGoBack {
        /// Last offset of the batch before it, or the base offset.
        after: Offset,
        /// The first or last offset of the batch, the one that is too low.
        found: Offset,
    },
    /// The last offset of a batch is farther from the base offset than any batch of the segment can be.
    TooFar {
        /// The segment's base offset.
        base: Offset,
        /// Last offset of the batch.
        found: Offset,
    },
}

/// What a check makes of whole, ascending batches that lie too far from the base offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// An error: the segment may have to be split ([`Segment::overflow`]).
    Refuse,
    /// Damage: the caller knows that the segment has no such batches.
    Cut,
}

impl fmt::Display for CutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CutReason::TornTail => f.write_str("the last batch is incomplete"),
            CutReason::ZeroTail => f.write_str("only zeros follow"),
            CutReason::Corrupt(e) => write!(f, "{e}"),
            CutReason::OffsetsGoBack { after, found } => {
                write!(f, "offsets go back: expected offsets above {after}, found {found}")
            }
            CutReason::TooFar { base, found } => {
                write!(f, "expected a last offset of at most {} above {base}, found {found}", i32::MAX)
            }
        }
    }
}

/// A cut: what was dropped from a `.log` file, and where it went.
#[derive(Debug)]
pub struct Cut {
    /// The file that was cut.
    pub path: PathBuf,
    /// Its new length: the position of the first byte that went.
    pub position: u64,
    /// How many bytes went.
    pub len: u64,
    /// The first offset that the segment no longer has.
    pub offset: Offset,
    /// Why.
    pub reason: CutReason,
    /// The file that holds them now; `None` where they were all zero.
    pub kept: Option<PathBuf>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, position, len) = (self.path.display(), self.position, self.len);
        write!(
            f,
            "{path}: cut {len} bytes at position {position} (offset {}): {}",
            self.offset, self.reason
        )?;
        match &self.kept {
            Some(kept) => write!(f, "; kept in {}", kept.display()),
            None => Ok(()),
        }
    }
}

/// Outcome of a check.
#[derive(Debug)]
#[must_use = "what is damaged has to be cut"]
pub struct Checked {
    /// Bytes of whole, checked batches.
    pub valid_bytes: u64,
    /// Offset behind the last of them; the base offset where there is none.
    pub next_offset: Offset,
    /// What is wrong with the bytes behind them, if there are any.
    pub damage: Option<CutReason>,
}

/// Outcome of a recovery.
#[derive(Debug)]
pub struct Recovered {
    /// Bytes of whole, checked batches: the segment's size now.
    pub valid_bytes: u64,
    /// Offset behind the last batch; the base offset where there is none.
    pub next_offset: Offset,
    /// What was cut, if anything.
    pub cut: Option<Cut>,
}

impl Segment {
    /// Checks every batch from the first byte on and rebuilds both indexes, then cuts the file before the first bad batch:
    /// [`check`](Self::check) and [`cut`](Self::cut) in one.
    ///
    /// # Errors
    /// As there.
    ///
    /// Source: Kafka `LogSegment.recover`; where kseg differs: what is cut is kept, and an I/O error cuts nothing.
    pub fn recover(&self, each: &mut dyn FnMut(u64, CheckedBatch<'_>)) -> Result<Recovered> {
        let checked = self.check(Overflow::Refuse, each)?;
        self.cut(checked)
    }

    /// Checks every batch from the first byte on (framing, checksum, ascending offsets), hands each good one to `each` and
    /// rebuilds both indexes. What follows the first bad batch stays in the file, for [`cut`](Self::cut) to take off.
    ///
    /// # Errors
    /// [`Error::Io`] where a file cannot be read or written. [`Error::OffsetOverflow`] where whole, ascending batches lie too
    /// far from the base offset, with [`Overflow::Refuse`]: the segment may have to be split.
    pub fn check(&self, overflow: Overflow, each: &mut dyn FnMut(u64, CheckedBatch<'_>)) -> Result<Checked> {
        self.with_fresh_indexes()?;
        self.reset_aborted()?;
        let file = self.log.open()?;
        let size = self.size();
        let mut walk = BatchReader::new(&*file, 0, size);
        let mut writer = IndexWriter::new(self.base, self.config.index_interval_bytes);
        let mut next = self.base;
        let mut after: Option<Offset> = None;
        let indexes = self.indexes();
        let (reason, valid) = loop {
            let at = walk.position();
            let batch = match walk.next() {
                Ok(Some((_, batch))) => batch.verify().map_err(|e| Error::corrupt(&self.path(), at, e)),
                Ok(None) => break ((at < size).then_some(CutReason::TornTail), at),
                Err(e) => Err(e),
            };
            let batch = match batch {
                Ok(batch) => batch,
                Err(e @ Error::Corrupt { .. }) => break (Some(CutReason::Corrupt(e)), at),
                Err(e) => return Err(e),
            };
            let last = batch.header().last_offset();
            if let Some(found) = goes_back(batch.header(), next) {
                let after = after.unwrap_or(self.base);
                break (Some(CutReason::OffsetsGoBack { after, found }), at);
            }
            if !self.can_hold(last) {
                if self.stray_offset(at + batch.header().size() as u64, last)? {
                    let after = after.unwrap_or(self.base);
                    break (Some(CutReason::OffsetsGoBack { after, found: last }), at);
                }
                if overflow == Overflow::Cut {
                    break (Some(CutReason::TooFar { base: self.base, found: last }), at);
                }
                return Err(Error::OffsetOverflow {
                    path: self.path(),
                    base_offset: self.base,
                    offset: last,
                });
            }
            writer.add(at, batch.header(), &indexes)?;
            each(at, batch);
            after = Some(last);
            next = last.next();
        };
        let largest = writer.finish(&indexes)?;
        drop(indexes);
        let mut tail = self.tail.lock();
        tail.largest = Some(largest);
        tail.bytes_since_index_entry = 0;
        drop(tail);
        let mut indexes = self.indexes_mut();
        indexes.offset.trim(self.base)?;
        indexes.time.trim(self.base)?;
        Ok(Checked { valid_bytes: valid, next_offset: next, damage: reason })
    }

    /// Cuts off what [`check`](Self::check) found wanting; the bytes are kept in a file beside it, `<name>.cut`, before
    /// they go.
    ///
    /// # Errors
    /// [`Error::Io`]: nothing is cut then.
    pub fn cut(&self, checked: Checked) -> Result<Recovered> {
        let Checked { valid_bytes, next_offset, damage } = checked;
        let cut = match damage {
            Some(reason) => Some(self.cut_at(valid_bytes, next_offset, reason)?),
            None => None,
        };
        Ok(Recovered { valid_bytes, next_offset, cut })
    }

    /// After a clean stop: walks the framing of the batches behind the last index entry, and cuts what is no whole
    /// batch. Checksums are not looked at, and batches are not cut for them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn recover_tail(&self) -> Result<Recovered> {
        let Tail { next_offset, valid_bytes, fault, .. } = self.walk_tail()?;
        let size = self.size();
        let cut = if valid_bytes < size {
            let reason = fault.map_or(CutReason::TornTail, CutReason::Corrupt);
            Some(self.cut_at(valid_bytes, next_offset, reason)?)
        } else {
            None
        };
        Ok(Recovered { valid_bytes, next_offset, cut })
    }

    /// Whether the last segment of a log can be taken as an orderly stop left it. Its end is then `expected`; where that is not
    /// known, the batches behind the last index entry go on from each other. Where it is another, all batches are looked at, and
    /// their checksums, since only what is damaged is a reason to doubt them. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_as_left(&self, expected: Option<Offset>) -> Result<bool> {
        let tail = self.walk_tail()?;
        if expected.map_or(tail.in_order, |end| end == tail.next_offset) {
            return Ok(true);
        }
        let file = self.log.open()?;
        let mut walk = BatchReader::new(&*file, 0, self.size());
        let mut next = self.base;
        loop {
            let last = match walk.next() {
                Ok(Some((_, batch))) if batch.verify().is_err() => return Ok(false),
                Ok(Some((_, batch))) if goes_back(batch.header(), next).is_some() => return Ok(false),
                Ok(Some((_, batch))) => batch.header().last_offset(),
                Ok(None) => return Ok(walk.position() == self.size()),
                Err(Error::Corrupt { .. }) => return Ok(false),
                Err(e) => return Err(e),
            };
            if !self.can_hold(last) {
                return Ok(false);
            }
            next = last.next();
        }
    }

    /// Counts the batches behind the last index entry towards the next one, as if they had just been appended. An opening
    /// begins to count anew.
    ///
    /// # Errors
    /// [`Error::Io`] where an index cannot be opened.
    pub fn count_from_last_entry(&self) -> Result<()> {
        let entry = self.with_indexes(|offsets, _| Ok(offsets.lookup(offsets.last_offset()).position))?;
        self.tail.lock().bytes_since_index_entry = self.size().saturating_sub(u64::from(entry));
        Ok(())
    }

    /// Whether an offset too far from the base is a damaged one: whatever follows is below it again.
    fn stray_offset(&self, behind: u64, last: Offset) -> Result<bool> {
        let file = self.log.open()?;
        match BatchReader::new(&*file, behind, self.size()).next() {
            Ok(Some((_, batch))) => Ok(batch.header().last_offset() <= last),
            Ok(None) | Err(Error::Corrupt { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Keeps the bytes from `position` on aside, then cuts them off.
    fn cut_at(&self, position: u64, offset: Offset, reason: CutReason) -> Result<Cut> {
        let (path, len) = (self.path(), self.size() - position);
        let file = self.log.open()?;
        let kept = keep_aside(&*self.backend, &*file, &path, position, self.size())?;
        let reason = if kept.is_none() { CutReason::ZeroTail } else { reason };
        self.log.truncate(position)?;
        Ok(Cut { path, position, len, offset, reason, kept })
    }

    /// Takes a whole segment out of its log: its batches are kept as `<name>.cut` (or `<name>.cut.1` and so on), which is the
    /// `.log` file itself, its indexes are removed. Returns the file, or `None` where there were no batches or all bytes were
    /// zero. The names are durable after a sync of the directory.
    ///
    /// # Errors
    /// [`Error::Io`]: the batches are under the one name or the other.
    pub fn set_aside(&self) -> Result<Option<PathBuf>> {
        let path = self.path();
        let kept = if self.has_bytes()? { Some(free_name(self.backend.names(), &path)?) } else { None };
        if let Some(kept) = &kept {
            self.backend.names().rename(&path, kept)?;
        }
        self.remove()?;
        Ok(kept)
    }

    /// Whether a byte is not zero.
    fn has_bytes(&self) -> Result<bool> {
        let mut found = false;
        each_chunk(&*self.log.open()?, 0..self.size(), |_, bytes| {
            found = !is_zero(bytes);
            Ok(!found)
        })?;
        Ok(found)
    }

    /// Opens both indexes at full size and without an entry, whatever their files hold.
    fn with_fresh_indexes(&self) -> Result<()> {
        let mut indexes = self.indexes_mut();
        let size = self.config.index_size_max;
        if indexes.offset.get().is_none() {
            indexes.offset.open(self.base, size)?;
        }
        if indexes.time.get().is_none() {
            indexes.time.open(self.base, size)?;
        }
        indexes.offset.reset(self.base, size as usize)?;
        indexes.time.reset(self.base, size as usize)
    }
}

/// The offset of a batch that is too low, where one is: no batch begins below the end of the one before it, `next`, or ends
/// below its own beginning.
pub(crate) fn goes_back(header: &BatchHeader, next: Offset) -> Option<Offset> {
    let (base, last) = (header.base_offset(), header.last_offset());
    base.filter(|&base| base < next).or((last < base.unwrap_or(next)).then_some(last))
}

/// Bytes that are looked at, or copied, at once.
const CHUNK: u64 = 256 * 1024;

/// Copies `[from, to)` of a file into a new one beside it, `<name>.cut` (or `<name>.cut.1` and so on where that
/// exists), and makes the copy durable. Returns its path, or `None`, with nothing made, where all bytes are zero. Long stretches
/// of zeros take no space: what was cut may be space that was set aside and never written.
///
/// Kafka ignores files of such names.
///
/// # Errors
/// [`Error::Io`]; a copy that is not complete is removed.
fn keep_aside<F: ReadAt + ?Sized>(
    backend: &dyn Backend,
    file: &F,
    path: &Path,
    from: u64,
    to: u64,
) -> Result<Option<PathBuf>> {
    let names = backend.names();
    let mut kept: Option<(PathBuf, Arc<dyn RawFile>)> = None;
    let mut copy = || -> Result<()> {
        let read = each_chunk(file, from..to, |at, bytes| {
            if is_zero(bytes) {
                return Ok(true);
            }
            if kept.is_none() {
                let name = free_name(names, path)?;
                let out = backend.open(&name, OpenHow::CreateNew)?;
                kept = Some((name, out));
            }
            if let Some((_, out)) = &kept {
                write_all(&**out, at - from, Gather::from(Bytes::copy_from_slice(bytes)))?;
            }
            Ok(true)
        })?;
        if let Some((_, out)) = &kept {
            out.submit(Op::SetLen { len: read - from }).wait().result?;
            out.submit(Op::Flush { metadata: true }).wait().result?;
        }
        Ok(())
    };
    let copied = copy();
    let Some((name, _)) = kept else { return copied.map(|()| None) };
    if let Err(e) = copied {
        // What is left of it says nothing, and the error that is told is the one that matters.
        let _ = names.remove(&name);
        return Err(e);
    }
    if let Some(dir) = name.parent() {
        names.sync_dir(dir)?;
    }
    Ok(Some(name))
}

/// Gives `each` the bytes of `range`, with their position, a chunk after the other, for as long as it returns `true`. Returns where
/// that ended: before the end of the range also where the file does.
fn each_chunk<F: ReadAt + ?Sized>(
    file: &F,
    range: Range<u64>,
    mut each: impl FnMut(u64, &[u8]) -> Result<bool>,
) -> Result<u64> {
    let mut chunk = vec![0; range.end.saturating_sub(range.start).min(CHUNK) as usize];
    let mut at = range.start;
    while at < range.end {
        let want = (range.end - at).min(CHUNK) as usize;
        let got = file.read_at(&mut chunk[..want], at)?;
        if got == 0 || !each(at, &chunk[..got])? {
            break;
        }
        at += got as u64;
    }
    Ok(at)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| b == 0)
}

/// The first of the names for what is cut off `path` that nothing has.
fn free_name(names: &dyn Namespace, path: &Path) -> Result<PathBuf> {
    let mut number = 0;
    loop {
        let mut name = path.as_os_str().to_os_string();
        name.push(if number == 0 { ".cut".to_string() } else { format!(".cut.{number}") });
        let name = PathBuf::from(name);
        if names.stat(&name)?.is_none() {
            return Ok(name);
        }
        number += 1;
    }
}

/// Makes the index entries of a walk over all batches, as an append one batch at a time would.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    base: Offset,
    interval: u64,
    last_indexed: u64,
    largest: TimestampOffset,
}

impl IndexWriter {
    pub(crate) fn new(base: Offset, interval: u32) -> Self {
        let largest = TimestampOffset { timestamp: None, offset: base };
        IndexWriter { base, interval: u64::from(interval), last_indexed: 0, largest }
    }

    /// Takes the timestamp of a batch into account, and makes no entry.
    pub(crate) fn note_time(&mut self, header: &BatchHeader) {
        if header.max_timestamp() > self.largest.timestamp {
            self.largest =
                TimestampOffset { timestamp: header.max_timestamp(), offset: header.last_offset() };
        }
    }

    pub(crate) fn add(&mut self, position: u64, header: &BatchHeader, indexes: &Indexes) -> Result<()> {
        self.note_time(header);
        if position - self.last_indexed > self.interval {
            if let Some(index) = indexes.offset.get().filter(|i| !i.is_full())
                && (index.entries() == 0 || header.last_offset() > index.last_offset())
            {
                indexes.offset.reach(1)?;
                index
                    .append(header.last_offset(), position as u32)
                    .map_err(|e| Error::index(indexes.offset.path(), e))?;
            }
            let times = indexes.time.get().filter(|i| !i.is_full());
            self.add_time(times, indexes, false)?;
            self.last_indexed = position;
        }
        Ok(())
    }

    /// The last entry of the time index, and the largest timestamp.
    pub(crate) fn finish(&self, indexes: &Indexes) -> Result<TimestampOffset> {
        debug_assert!(self.largest.offset >= self.base);
        self.add_time(indexes.time.get(), indexes, true)?;
        Ok(self.largest)
    }

    fn add_time(&self, index: Option<&TimeIndex<MapRegion>>, indexes: &Indexes, last: bool) -> Result<()> {
        if let Some(index) = index.filter(|i| self.largest.offset >= i.last_entry().offset) {
            indexes.time.reach(1)?;
            index
                .maybe_append(self.largest.timestamp, self.largest.offset, last)
                .map_err(|e| Error::index(indexes.time.path(), e))?;
        }
        Ok(())
    }
}
