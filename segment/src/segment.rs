//! A segment: opening, appending, flushing, sealing, renaming, removing.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kseg_format::{BatchHeader, Batches, HEADER_UP_TO_MAGIC, Offset, Timestamp};
use kseg_index::{OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset};
use kseg_io_backends::{Backend, Verdict};

use crate::config::SegmentConfig;
use crate::error::{Error, Result};
use crate::files::{FileKind, Suffix, file_name};
use crate::indexes::{Lazy, MapRegion};
use crate::log_file::LogFile;
use crate::roll::RollCheck;
use crate::scan::Headers;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock};

/// One base offset: a `.log` file and its indexes.
///
/// One caller at a time may change a segment (the log's mutex sees to that); any number may read beside it. A reader
/// takes no lock that an append holds across I/O: it loads the published size, and shares a lock on the indexes that
/// only their opening, resizing and truncation take exclusively.
///
/// Source: Kafka `LogSegment`.
#[derive(Debug)]
pub struct Segment {
    pub(crate) base: Offset,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) config: SegmentConfig,
    pub(crate) log: LogFile,
    /// Taken alone by [`indexes_mut`](Self::indexes_mut).
    indexes: RwLock<Indexes>,
    pub(crate) fullness: Fullness,
    pub(crate) tail: Mutex<Tail>,
    pub(crate) first_timestamp: FirstTimestamp,
    /// Both indexes have been opened: set once, by the appending side and for it alone, so Relaxed. A segment that has been
    /// closed since says so when it is used.
    pub(crate) indexes_open: AtomicBool,
    /// So many entries at least can be added to both indexes without taking space. Of the appending side, so Relaxed; it looks
    /// again where it adds one, since a reader may make the indexes anew in between.
    entries_ahead: AtomicU64,
    /// Counts truncations, so that a reader can tell that bytes changed beneath it.
    pub(crate) truncations: AtomicU64,
    /// The offset behind the last abort that was noted since the segment was opened, 0 before; the appending side's alone, so
    /// Relaxed.
    pub(crate) aborted_end: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Indexes {
    pub(crate) offset: Lazy<OffsetIndex<MapRegion>>,
    pub(crate) time: Lazy<TimeIndex<MapRegion>>,
    /// The segment takes appends: its index files have their full size.
    pub(crate) active: bool,
    pub(crate) closed: bool,
}

/// What only the appending side needs.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Bytes of batches since the last index entry, since the segment was opened, or since it was truncated.
    pub(crate) bytes_since_index_entry: u64,
    /// Largest timestamp of a batch and the last offset of the first batch that has it; `None` until asked for.
    pub(crate) largest: Option<TimestampOffset>,
    /// Clock, in milliseconds, when this object came to be or the segment was emptied.
    pub(crate) created_ms: i64,
}

/// What an append takes note of, batch by batch.
#[derive(Clone, Copy, Debug)]
struct Noted {
    size: usize,
    last: Offset,
    newest: Option<Timestamp>,
}

impl Noted {
    #[inline]
    fn of(header: &BatchHeader) -> Self {
        Noted { size: header.size(), last: header.last_offset(), newest: header.max_timestamp() }
    }
}

/// Timestamp of the first batch, once it is known.
///
/// Changed under the tail's lock. The appending side, which alone truncates and adds a first batch, also looks without it.
#[derive(Debug)]
pub(crate) struct FirstTimestamp(AtomicU64);

impl FirstTimestamp {
    /// No batch, or one that was not looked at. A batch that has this for its timestamp is read each time.
    const UNKNOWN: u64 = i64::MIN as u64;

    fn new() -> Self {
        FirstTimestamp(AtomicU64::new(Self::UNKNOWN))
    }

    /// Whoever looks beside a change holds the lock, which orders them: so Relaxed.
    #[inline]
    fn known(&self) -> Option<Option<Timestamp>> {
        let raw = self.0.load(Ordering::Relaxed);
        (raw != Self::UNKNOWN).then(|| Timestamp::from_raw(raw as i64))
    }

    fn note(&self, _under_lock: &mut Tail, timestamp: Option<Timestamp>) {
        self.0.store(Timestamp::to_raw(timestamp) as u64, Ordering::Relaxed);
    }

    pub(crate) fn forget(&self, _under_lock: &mut Tail) {
        self.0.store(Self::UNKNOWN, Ordering::Relaxed);
    }
}

/// Which indexes take no further entry, so that an append need not take their lock to ask.
///
/// Noted by a holder of the shared lock on the indexes, forgotten by whoever takes it alone: so what is known is true.
#[derive(Debug)]
pub(crate) struct Fullness(AtomicU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Full {
    offset: bool,
    time: bool,
}

impl Fullness {
    const UNKNOWN: u64 = 4;

    fn new() -> Self {
        Fullness(AtomicU64::new(Self::UNKNOWN))
    }

    /// The lock orders the notes; the appending side, which alone asks, adds the entries too: so Relaxed.
    fn known(&self) -> Option<Full> {
        let bits = self.0.load(Ordering::Relaxed);
        (bits & Self::UNKNOWN == 0).then_some(Full { offset: bits & 1 != 0, time: bits & 2 != 0 })
    }

    fn note(&self, offsets: &OffsetIndex<MapRegion>, times: &TimeIndex<MapRegion>) -> Full {
        let full = Full { offset: offsets.is_full(), time: times.is_full() };
        self.0.store(u64::from(full.offset) | u64::from(full.time) << 1, Ordering::Relaxed);
        full
    }

    fn forget(&self) {
        self.0.store(Self::UNKNOWN, Ordering::Relaxed);
    }
}

impl Segment {
    /// Makes a new, empty segment in `dir`, which exists; its `.log` file must not.
    ///
    /// Nothing is durable before [`flush`](Self::flush) and a sync of the directory. Index files come when first used.
    ///
    /// # Errors
    /// [`Error::Io`]; nothing is left open.
    ///
    /// Source: Kafka `LogSegment.open`.
    pub fn create(
        backend: Arc<dyn Backend>,
        dir: &Path,
        base: Offset,
        config: SegmentConfig,
        now_ms: i64,
    ) -> Result<Segment> {
        Self::create_as(backend, dir, base, Suffix::None, config, now_ms)
    }

    /// Takes over a segment whose `.log` file has `size` bytes. No file is opened before something needs it.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a file beyond 2147483647 bytes.
    pub fn open(
        backend: Arc<dyn Backend>,
        dir: &Path,
        base: Offset,
        config: SegmentConfig,
        now_ms: i64,
        size: u64,
    ) -> Result<Segment> {
        let path = dir.join(file_name(base, FileKind::Log, Suffix::None));
        let log = LogFile::existing(backend.clone(), path, size)?;
        Ok(Self::over(backend, dir, base, Suffix::None, config, now_ms, log, false))
    }

    pub(crate) fn create_as(
        backend: Arc<dyn Backend>,
        dir: &Path,
        base: Offset,
        suffix: Suffix,
        config: SegmentConfig,
        now_ms: i64,
    ) -> Result<Segment> {
        let path = dir.join(file_name(base, FileKind::Log, suffix));
        let log = LogFile::create(backend.clone(), path, config.preallocate)?;
        Ok(Self::over(backend, dir, base, suffix, config, now_ms, log, true))
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a segment, from two callers")]
    fn over(
        backend: Arc<dyn Backend>,
        dir: &Path,
        base: Offset,
        suffix: Suffix,
        config: SegmentConfig,
        now_ms: i64,
        log: LogFile,
        new: bool,
    ) -> Segment {
        let path = |kind| dir.join(file_name(base, kind, suffix));
        Segment {
            base,
            backend: backend.clone(),
            config,
            log,
            fullness: Fullness::new(),
            indexes: RwLock::new(Indexes {
                offset: Lazy::new(backend.clone(), path(FileKind::OffsetIndex)),
                time: Lazy::new(backend.clone(), path(FileKind::TimeIndex)),
                active: new,
                closed: false,
            }),
            tail: Mutex::new(Tail { bytes_since_index_entry: 0, largest: None, created_ms: now_ms }),
            first_timestamp: FirstTimestamp::new(),
            indexes_open: AtomicBool::new(false),
            entries_ahead: AtomicU64::new(0),
            truncations: AtomicU64::new(0),
            aborted_end: AtomicU64::new(0),
        }
    }

    /// The base offset: the number in the file names, at or below every offset in the segment.
    #[inline]
    pub fn base_offset(&self) -> Offset {
        self.base
    }

    /// Size of its batches in bytes: every byte below it belongs to a whole append and can be read.
    #[inline]
    pub fn size(&self) -> u64 {
        self.log.size()
    }

    /// Path of the `.log` file, as it is named now.
    pub fn path(&self) -> PathBuf {
        self.log.path()
    }

    /// How often the segment has been truncated: a reader that finds the number changed has to look again.
    pub fn truncations(&self) -> u64 {
        // Pairs with the Release in `truncate_to`: a reader that saw bytes written after a truncation sees its count.
        self.truncations.load(Ordering::Acquire)
    }

    /// Appends `batches`, whole batches of which the last offset is `largest`, with one write call; makes the index
    /// entries that fall due, per batch. Returns the position of the first byte.
    ///
    /// On return the bytes can be read; they are durable after [`flush`](Self::flush). An index that is full gets no
    /// entry: lookups walk farther, nothing is lost.
    ///
    /// # Errors
    /// [`Error::OffsetOverflow`], [`Error::TooLarge`]: nothing is written. [`Error::Io`]: the size has not moved; if
    /// the extent of the write is unknown the file takes no further write. Where the disk is full, be it for the index entries,
    /// nothing is written.
    ///
    /// Source: Kafka `LogSegment.append`.
    pub fn append(&self, largest: Offset, batches: Bytes) -> Result<u64> {
        if batches.is_empty() {
            return Ok(self.size());
        }
        if !self.can_hold(largest) {
            let (path, base_offset) = (self.path(), self.base);
            return Err(Error::OffsetOverflow { path, base_offset, offset: largest });
        }
        // Before the bytes are there: an index that is missing is rebuilt from them.
        if !self.indexes_open.load(Ordering::Relaxed) {
            self.open_indexes()?;
            self.largest()?;
        }
        self.entries_for(batches.len())?;
        let mut walk = Batches::new(&batches);
        let corrupt = |at: usize| move |e| Error::corrupt(&self.path(), at as u64, e);
        let first = match walk.next() {
            Some(batch) => Noted::of(batch.map_err(corrupt(0))?.header()),
            None => return Ok(self.size()),
        };
        if first.size == batches.len() {
            // One batch, as nearly always: its bytes are given away, and their owner is the only one.
            let start = self.log.append(batches)?;
            let mut tail = self.tail.lock();
            self.note(&mut tail, start, first)?;
            return Ok(start);
        }
        let start = self.log.append(batches.clone())?;
        let mut tail = self.tail.lock();
        let mut walk = Batches::new(&batches);
        loop {
            let at = walk.position();
            let Some(batch) = walk.next() else { break };
            let batch = Noted::of(batch.map_err(corrupt(at))?.header());
            self.note(&mut tail, start + at as u64, batch)?;
        }
        Ok(start)
    }

    /// What the appending side keeps of a batch that has been written, and its index entry if one is due.
    fn note(&self, tail: &mut Tail, position: u64, batch: Noted) -> Result<()> {
        if position == 0 {
            self.first_timestamp.note(tail, batch.newest);
        }
        // Known since the indexes were opened, so that nothing can fail here that did not before the write.
        let mut so_far = self.largest_in(tail)?;
        if batch.newest > so_far.timestamp {
            so_far = TimestampOffset { timestamp: batch.newest, offset: batch.last };
            tail.largest = Some(so_far);
        }
        if tail.bytes_since_index_entry > u64::from(self.config.index_interval_bytes) {
            self.or_anew(self.add_entry(batch.last, position as u32, so_far))?;
            tail.bytes_since_index_entry = 0;
        }
        tail.bytes_since_index_entry += batch.size as u64;
        Ok(())
    }

    /// Takes space for the index entries that `len` bytes of batches can have, and for the one that ends the time index.
    #[inline]
    fn entries_for(&self, len: usize) -> Result<()> {
        let apart = (self.config.index_interval_bytes as usize).max(HEADER_UP_TO_MAGIC);
        let most = len / apart + 1;
        if self.entries_ahead.load(Ordering::Relaxed) >= most as u64 {
            return Ok(());
        }
        let indexes = self.indexes();
        let reach = || indexes.offset.reach(most).and_then(|()| indexes.time.reach(most + 1));
        match reach() {
            // What the log file's engine took ahead may be all that there was: it is given back, and taken again in smaller steps.
            Err(Error::Io(full)) if full.verdict() == Verdict::NoSpace => {
                self.log.give_back()?;
                reach()?;
            }
            reached => reached?,
        }
        let ahead = indexes.offset.ahead().min(indexes.time.ahead().saturating_sub(1));
        self.entries_ahead.store(ahead, Ordering::Relaxed);
        Ok(())
    }

    /// An index that refuses the entry of a batch that is in the segment holds what is not the segment's: both are made anew from
    /// the batches, that one included.
    fn or_anew(&self, added: Result<()>) -> Result<()> {
        match added {
            Err(Error::Index { .. }) => self.rebuild_indexes(),
            added => added,
        }
    }

    /// Both indexes get the entry of a batch, as far as they have room.
    fn add_entry(&self, last: Offset, position: u32, largest: TimestampOffset) -> Result<()> {
        let ahead = self.entries_ahead.load(Ordering::Relaxed);
        self.entries_ahead.store(ahead.saturating_sub(1), Ordering::Relaxed);
        self.with_both(|indexes, offsets, times| {
            if !offsets.is_full() {
                indexes.offset.reach(1)?;
                offsets.append(last, position).map_err(|e| Error::index(indexes.offset.path(), e))?;
            }
            if !times.is_full() {
                indexes.time.reach(1)?;
                times
                    .maybe_append(largest.timestamp, largest.offset, false)
                    .map_err(|e| Error::index(indexes.time.path(), e))?;
            }
            self.fullness.note(offsets, times);
            Ok(())
        })
    }

    /// Whether `offset` is at most 2147483647 above the base offset, and not below it.
    #[inline]
    pub fn can_hold(&self, offset: Offset) -> bool {
        offset.relative_to(self.base).is_some()
    }

    /// What [`roll_reason`](crate::roll_reason) looks at, for an append of `appending` bytes with the given last offset
    /// and largest timestamp. Opens both indexes.
    ///
    /// # Errors
    /// [`Error::Io`] where the first batch or an index cannot be read.
    #[inline]
    pub fn roll_check(
        &self,
        now_ms: i64,
        appending: u64,
        newest: Option<Timestamp>,
        last: Offset,
        size_max: u64,
        age_max_ms: i64,
    ) -> Result<RollCheck> {
        let size = self.size();
        let full = match self.fullness.known() {
            Some(known) => known,
            None => self.with_indexes(|offsets, times| Ok(self.fullness.note(offsets, times)))?,
        };
        Ok(RollCheck {
            size,
            appending,
            size_max,
            waited_ms: if size > 0 { self.time_waited(now_ms, newest)? } else { 0 },
            age_max_ms,
            jitter_ms: self.config.roll_jitter_ms,
            offset_index_full: full.offset,
            time_index_full: full.time,
            offset_fits: self.can_hold(last),
        })
    }

    /// How long the segment has been filling, by its records' time where it has one, else by the clock.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`] where the first batch cannot be read.
    ///
    /// Source: Kafka `LogSegment.timeWaitedForRoll`.
    #[inline]
    pub fn time_waited(&self, now_ms: i64, newest: Option<Timestamp>) -> Result<i64> {
        let first = match self.first_timestamp.known() {
            Some(Some(first)) => Some(first),
            _ => self.first_timestamp_in(&mut self.tail.lock())?,
        };
        Ok(match first {
            Some(first) if first.get() >= 0 => Timestamp::to_raw(newest).wrapping_sub(first.get()),
            _ => now_ms.wrapping_sub(self.tail.lock().created_ms),
        })
    }

    #[inline(never)]
    fn first_timestamp_in(&self, tail: &mut Tail) -> Result<Option<Timestamp>> {
        if let Some(known) = self.first_timestamp.known() {
            return Ok(known);
        }
        let size = self.size();
        if size == 0 {
            return Ok(None);
        }
        let file = self.log.open()?;
        let Some((_, header)) = Headers::new(&*file, 0, size).next()? else { return Ok(None) };
        let first = header.max_timestamp();
        self.first_timestamp.note(tail, first);
        Ok(first)
    }

    /// Largest timestamp of the first batch, where it has one that is not negative.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`] where the first batch cannot be read.
    pub fn first_batch_timestamp(&self) -> Result<Option<Timestamp>> {
        Ok(self.first_timestamp_in(&mut self.tail.lock())?.filter(|t| t.get() >= 0))
    }

    /// Largest timestamp in the segment and the last offset of the batch that has it. Opens the time index at its
    /// first use.
    ///
    /// # Errors
    /// [`Error::Io`] where the time index cannot be opened.
    pub fn largest(&self) -> Result<TimestampOffset> {
        self.largest_in(&mut self.tail.lock())
    }

    pub(crate) fn largest_in(&self, tail: &mut Tail) -> Result<TimestampOffset> {
        if let Some(largest) = tail.largest {
            return Ok(largest);
        }
        let largest = self.with_time_index(|index| Ok(index.last_entry()))?;
        tail.largest = Some(largest);
        Ok(largest)
    }

    /// The time that retention goes by, in milliseconds: the largest timestamp, or where there is none the time of
    /// the last change of the `.log` file.
    ///
    /// # Errors
    /// [`Error::Io`] where the index or the file cannot be asked.
    ///
    /// Source: Kafka `LogSegment.largestTimestamp`.
    pub fn retention_time_ms(&self) -> Result<i64> {
        if let Some(timestamp) = self.largest()?.timestamp
            && timestamp.get() >= 0
        {
            return Ok(timestamp.get());
        }
        let stat = self.backend.names().stat(&self.path())?;
        let modified = stat.map_or(std::time::UNIX_EPOCH, |s| s.modified);
        Ok(match modified.duration_since(std::time::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        })
    }

    /// Makes the batches durable, and with `with_indexes` the index entries. Makes index files that are missing.
    ///
    /// A segment that still takes appends needs no durable indexes: after a crash they are rebuilt from its batches.
    ///
    /// # Errors
    /// [`Error::Io`]; after a failed sync the `.log` file takes no further write, and no sync is tried again.
    ///
    /// Source: Kafka `LogSegment.flush`.
    pub fn flush(&self, with_indexes: bool) -> Result<()> {
        self.log.flush()?;
        self.open_indexes()?;
        if !with_indexes {
            return Ok(());
        }
        let indexes = self.indexes();
        indexes.offset.flush()?;
        indexes.time.flush()?;
        drop(indexes);
        self.flush_aborted()
    }

    /// Ends the appends: adds the last time-index entry, cuts both indexes to their entries and the `.log` file to
    /// its batches. No sync.
    ///
    /// # Errors
    /// [`Error::Io`]; what was done stays done, and the segment can be read.
    ///
    /// Source: Kafka `LogSegment.onBecomeInactiveSegment`.
    pub fn seal(&self) -> Result<()> {
        self.add_last_time_entry()?;
        self.with_offset_index(|_| Ok(()))?;
        let mut indexes = self.indexes_mut();
        indexes.active = false;
        indexes.offset.trim(self.base)?;
        indexes.time.trim(self.base)?;
        self.log.seal()
    }

    fn add_last_time_entry(&self) -> Result<()> {
        let largest = self.largest()?;
        if self.with_time_index(|index| Ok(index.last_entry().timestamp >= largest.timestamp))? {
            return Ok(());
        }
        self.or_anew(self.with_both(|indexes, _, times| {
            indexes.time.reach(1)?;
            times
                .maybe_append(largest.timestamp, largest.offset, true)
                .map_err(|e| Error::index(indexes.time.path(), e))?;
            Ok(())
        }))
    }

    /// Opens both indexes, which makes files that are missing.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open_indexes(&self) -> Result<()> {
        self.with_offset_index(|_| Ok(()))?;
        self.with_time_index(|_| Ok(()))?;
        self.indexes_open.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The indexes, shared with other readers and with appends.
    #[inline]
    pub(crate) fn indexes(&self) -> impl Deref<Target = Indexes> + '_ {
        self.indexes.read()
    }

    /// The indexes alone, to open, resize or rebuild them.
    pub(crate) fn indexes_mut(&self) -> impl DerefMut<Target = Indexes> + '_ {
        let indexes = self.indexes.write();
        self.fullness.forget();
        self.entries_ahead.store(0, Ordering::Relaxed);
        indexes
    }

    /// Gives both indexes their full size, for a segment that is about to take appends.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn activate(&self) -> Result<()> {
        self.open_indexes()?;
        let mut indexes = self.indexes_mut();
        indexes.active = true;
        let size = self.config.index_size_max as usize;
        indexes.offset.resize(self.base, size)?;
        indexes.time.resize(self.base, size)
    }

    /// Whether it holds a descriptor of its `.log` file.
    pub fn is_open(&self) -> bool {
        self.log.is_open()
    }

    /// The first of two steps that let go of the files of a sealed segment that nobody uses: whether it holds any, and has not
    /// been used since the last call. Makes the index entries durable then, as nothing can once the maps are gone.
    ///
    /// # Errors
    /// [`Error::Io`] where a sync fails.
    pub fn is_idle(&self) -> Result<bool> {
        if self.log.is_used() {
            self.log.forget_use();
            return Ok(false);
        }
        let indexes = self.indexes();
        let mapped = indexes.offset.get().is_some() || indexes.time.get().is_some();
        if indexes.active || !(mapped || self.log.is_open()) {
            return Ok(false);
        }
        indexes.offset.flush()?;
        indexes.time.flush()?;
        Ok(true)
    }

    /// The second step, for a segment that [`is_idle`](Self::is_idle) and whose batches are durable: lets go of the descriptor
    /// and of the maps, which come again when something uses them. Readers that hold a region keep reading. Does nothing for a
    /// segment that takes appends, or that has been used in between. Returns whether anything was let go.
    ///
    /// Kafka holds on to all it has opened.
    pub fn rest(&self) -> bool {
        if self.log.is_used() {
            return false;
        }
        let mut indexes = self.indexes_mut();
        if indexes.active {
            return false;
        }
        let mapped = indexes.offset.get().is_some() || indexes.time.get().is_some();
        indexes.offset.release();
        indexes.time.release();
        self.indexes_open.store(false, Ordering::Relaxed);
        drop(indexes);
        self.log.rest() || mapped
    }

    /// Lets go of the descriptor of a sealed segment of which the batches are durable, for a caller that has read through it and
    /// is done with it; it comes again when something asks for it. The maps of the indexes stay, and readers that hold a region
    /// keep reading. Returns whether there was one.
    pub fn let_go(&self) -> bool {
        !self.indexes().active && self.log.rest()
    }

    /// Closes the segment: the last time-index entry, both indexes cut to their entries, the `.log` file cut and
    /// synced. Indexes that nothing has used are left alone. A second close does nothing.
    ///
    /// # Errors
    /// The first error; the other files are closed all the same.
    ///
    /// Source: Kafka `LogSegment.close`.
    pub fn close(&self) -> Result<()> {
        if self.indexes().closed {
            return Ok(());
        }
        let known = self.tail.lock().largest.is_some();
        let entry = if known { self.add_last_time_entry() } else { Ok(()) };
        let mut indexes = self.indexes_mut();
        let mut trims = vec![indexes.offset.trim(self.base), indexes.time.trim(self.base)];
        if indexes.active {
            // Nothing else makes them durable, and after an orderly stop they are trusted.
            trims.extend([indexes.offset.sync(), indexes.time.sync()]);
        }
        indexes.offset.release();
        indexes.time.release();
        indexes.closed = true;
        drop(indexes);
        let log = self.log.close();
        trims.into_iter().chain([entry, log]).find(Result::is_err).unwrap_or(Ok(()))
    }

    /// Lets go of all files without a write, as if the process had died.
    pub fn abandon(&self) {
        let mut indexes = self.indexes_mut();
        indexes.offset.release();
        indexes.time.release();
        indexes.closed = true;
        drop(indexes);
        self.log.release();
    }

    /// Renames the segment's files from one suffix to another: `.log`, `.index`, `.timeindex`, `.txnindex`, in this
    /// order. Index files that were never made may be missing. Readers that hold a region keep reading. To
    /// [`Suffix::Deleted`] it goes whole: what its engine still held in memory is in the file then, and no more than that.
    ///
    /// # Errors
    /// [`Error::Io`]; the files renamed before stay renamed.
    ///
    /// Source: Kafka `LogSegment.changeFileSuffixes`.
    pub fn rename(&self, suffix: Suffix) -> Result<()> {
        let dir = self.dir();
        let to = |kind| dir.join(file_name(self.base, kind, suffix));
        let txn_before = self.txn_path();
        if suffix == Suffix::Deleted {
            self.log.settle()?;
        }
        self.log.rename(&to(FileKind::Log))?;
        let mut indexes = self.indexes_mut();
        indexes.offset.rename(&to(FileKind::OffsetIndex))?;
        indexes.time.rename(&to(FileKind::TimeIndex))?;
        drop(indexes);
        if self.backend.names().stat(&txn_before)?.is_some() {
            self.backend.names().rename(&txn_before, &to(FileKind::TxnIndex))?;
        }
        Ok(())
    }

    /// Removes the segment's files, whatever their suffix, and closes it. Readers that hold a region keep reading.
    /// Files that are missing are no error.
    ///
    /// # Errors
    /// The first error, after all files have been tried.
    ///
    /// Source: Kafka `LogSegment.deleteIfExists`.
    pub fn remove(&self) -> Result<()> {
        self.abandon();
        let log = self.path();
        let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut first = Ok(());
        for kind in FileKind::OF_SEGMENT {
            let name = name.replacen(".log", &format!(".{}", kind.extension()), 1);
            if let Err(e) = self.backend.names().remove(&log.with_file_name(name)) {
                first = first.and(Err(e.into()));
            }
        }
        first
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.path().parent().map(Path::to_path_buf).unwrap_or_default()
    }

    /// All entries of the offset index, oldest first. Opens it.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be opened.
    pub fn offset_entries(&self) -> Result<Vec<OffsetPosition>> {
        self.with_offset_index(|index| (0..index.entries()).map(|n| index.entry(n)).collect())
    }

    /// All entries of the time index, oldest first. Opens it.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be opened.
    pub fn time_entries(&self) -> Result<Vec<TimestampOffset>> {
        self.with_time_index(|index| (0..index.entries()).map(|n| index.entry(n)).collect())
    }
}
