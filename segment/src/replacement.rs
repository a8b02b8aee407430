//! Writing a segment that is to take the place of others: compaction, and the split of a segment whose offsets have grown
//! too far apart.
//!
//! It is written under names with `.cleaned`, which whoever opens the directory removes; so nothing has happened before the
//! files are renamed, and that is the log's business.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use kseg_format::{AbortedTransaction, Batches, Offset};
use kseg_index::TimestampOffset;
use kseg_io_backends::{Advice, Backend, Op};

use crate::config::{MAX_SEGMENT_SIZE, SegmentConfig};
use crate::error::{Error, Result};
use crate::files::{FileKind, Suffix, file_name};
use crate::log_file::FileRegion;
use crate::segment::Segment;
use crate::sync::{AtomicU64, Ordering};

/// A segment in the making. Dropping it lets go of its files and leaves them.
///
/// Source: Kafka `UnifiedLog.createNewCleanedSegment`.
pub struct Replacement {
    segment: Segment,
    aborted: bool,
    /// Bytes for which the kernel was told to begin writing back. Of whoever appends alone: Relaxed.
    behind: AtomicU64,
}

/// So many bytes are left to be written by the sync at the end, and by others' syncs in between.
const WRITE_BEHIND: u64 = 4 << 20;

impl Replacement {
    /// Begins an empty one in `dir`; what has the same names from before is removed first.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn create(
        backend: Arc<dyn Backend>,
        dir: &Path,
        base: Offset,
        config: SegmentConfig,
        now_ms: i64,
    ) -> Result<Replacement> {
        for kind in FileKind::OF_SEGMENT {
            backend.names().remove(&dir.join(file_name(base, kind, Suffix::Cleaned)))?;
        }
        let segment = Segment::create_as(backend, dir, base, Suffix::Cleaned, config, now_ms)?;
        Ok(Replacement { segment, aborted: false, behind: AtomicU64::new(0) })
    }

    /// The `.log` file of the copy.
    pub fn path(&self) -> PathBuf {
        self.segment.path()
    }

    /// The base offset.
    pub fn base_offset(&self) -> Offset {
        self.segment.base_offset()
    }

    /// Bytes of batches so far.
    pub fn size(&self) -> u64 {
        self.segment.size()
    }

    /// How many bytes at the beginning of `batches` it takes: whole batches whose offsets are in range, with which it
    /// stays a file of a segment's size, and whose index entries all have room.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for what is no batch; [`Error::Io`] where an index cannot be opened.
    pub fn room_for(&self, batches: &[u8]) -> Result<usize> {
        let segment = &self.segment;
        let tail = segment.tail_of_appends()?;
        let (mut largest, mut since_entry) = (tail.largest, tail.bytes_since_index_entry);
        let (mut offset_room, mut time_room, mut last_time) = segment.with_indexes(|offsets, times| {
            let times_left = times.max_entries().saturating_sub(1).saturating_sub(times.entries());
            Ok((offsets.max_entries() - offsets.entries(), times_left, times.last_entry().timestamp))
        })?;
        let mut walk = Batches::new(batches);
        loop {
            let at = walk.position();
            let Some(batch) = walk.next() else { return Ok(at) };
            let batch = batch.map_err(|e| Error::corrupt(&segment.path(), segment.size() + at as u64, e))?;
            let header = batch.header();
            let end = segment.size() + walk.position() as u64;
            let in_range = segment.can_hold(header.last_offset());
            if !in_range || end > MAX_SEGMENT_SIZE {
                return Ok(at);
            }
            if header.max_timestamp() > largest.timestamp {
                largest = TimestampOffset { timestamp: header.max_timestamp(), offset: header.last_offset() };
            }
            if since_entry > u64::from(segment.config.index_interval_bytes) {
                if offset_room == 0 || time_room == 0 {
                    return Ok(at);
                }
                offset_room -= 1;
                if largest.timestamp > last_time {
                    time_room -= 1;
                    last_time = largest.timestamp;
                }
                since_entry = 0;
            }
            since_entry += header.size() as u64;
        }
    }

    /// Adds whole batches, of which the last offset is `last`, with one write call.
    ///
    /// # Errors
    /// As [`Segment::append`].
    pub fn append(&self, last: Offset, batches: Bytes) -> Result<()> {
        self.segment.append(last, batches)?;
        let (behind, size) = (self.behind.load(Ordering::Relaxed), self.segment.size());
        if size >= behind + WRITE_BEHIND {
            // A hint: what it does not do the sync at the end will.
            let op = Op::Advise { range: behind..size, how: Advice::WriteBack };
            drop(self.segment.log.open()?.file().submit(op).wait());
            self.behind.store(size, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds an aborted transaction whose marker is in this segment.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn append_aborted(&mut self, transaction: &AbortedTransaction) -> Result<()> {
        self.aborted = true;
        self.segment.append_aborted(transaction)
    }

    /// Removes its files.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn discard(self) -> Result<()> {
        let names = self.segment.backend.names();
        let paths = FileKind::OF_SEGMENT.map(|kind| self.segment.path_of(kind));
        self.segment.abandon();
        for path in &paths {
            names.remove(path)?;
        }
        Ok(())
    }

    /// Adds the last time-index entry, cuts all files to what they hold, gives them `modified` as the time of their last
    /// change, makes their contents durable and lets go of them. Their names are not durable yet.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self, modified: Option<SystemTime>) -> Result<Finished> {
        let segment = &self.segment;
        segment.seal()?;
        let names = segment.backend.names();
        let mut kinds = vec![FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex];
        if let Some(modified) = modified {
            for &kind in &kinds {
                names.set_modified(&segment.path_of(kind), modified)?;
            }
        }
        // Through the handle that wrote: it tells of errors that another one may not see.
        segment.flush(false)?;
        if self.aborted {
            kinds.push(FileKind::TxnIndex);
        }
        // Lengths that shrank and times of change are no part of what a flush of data makes durable; indexes, none of which
        // has been synced yet, are caches of the log.
        for &kind in &kinds {
            names.sync_file(&segment.path_of(kind))?;
        }
        let finished = Finished { base: segment.base_offset(), size: segment.size(), kinds };
        segment.abandon();
        Ok(finished)
    }
}

impl fmt::Debug for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replacement")
            .field("base", &self.segment.base_offset())
            .field("size", &self.segment.size())
            .finish_non_exhaustive()
    }
}

/// A replacement that is complete, under its names with `.cleaned`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// Its base offset.
    pub base: Offset,
    /// Size of its `.log` file in bytes.
    pub size: u64,
    /// Which files it consists of, in the order in which they are renamed.
    pub kinds: Vec<FileKind>,
}

/// What [`Replacement::room_for`] goes on from.
#[derive(Clone, Copy, Debug)]
struct TailOfAppends {
    largest: TimestampOffset,
    bytes_since_index_entry: u64,
}

impl Segment {
    fn tail_of_appends(&self) -> Result<TailOfAppends> {
        let largest = self.largest()?;
        let bytes_since_index_entry = self.tail.lock().bytes_since_index_entry;
        Ok(TailOfAppends { largest, bytes_since_index_entry })
    }

    /// One of its files, under the suffix that the segment has now.
    fn path_of(&self, kind: FileKind) -> PathBuf {
        let log = self.path();
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        log.with_file_name(name.replacen(".log", &format!(".{}", kind.extension()), 1))
    }

    /// Bytes of entries in the offset index and in the time index, whatever the sizes of their files. Opens both.
    ///
    /// # Errors
    /// [`Error::Io`] where one cannot be opened.
    pub fn index_sizes(&self) -> Result<(u64, u64)> {
        self.with_indexes(|offsets, times| Ok((offsets.valid_len() as u64, times.valid_len() as u64)))
    }

    /// When the `.log` file was last changed; `None` where it is gone.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn modified(&self) -> Result<Option<SystemTime>> {
        Ok(self.backend.names().stat(&self.path())?.map(|s| s.modified))
    }

    /// Its bytes, from the batch of the offset-index entry at or below `from` on; all of them with `None`.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`] where the way to `from` cannot be read.
    pub fn region_from(&self, from: Option<Offset>) -> Result<FileRegion> {
        let start = match from {
            None => 0,
            Some(offset) => {
                // Looks at what the index leads to, and mends it.
                self.translate(offset)?;
                u64::from(self.with_offset_index(|index| Ok(index.lookup(offset)))?.position)
            }
        };
        let file = self.log.open()?;
        let size = self.size();
        Ok(FileRegion::new(file, start.min(size)..size))
    }
}
