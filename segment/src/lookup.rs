//! From an offset or a timestamp to a place in the `.log` file, and the upkeep of the indexes that makes them safe to
//! go by.
//!
//! An index is a cache of the `.log` file. It is checked when it is opened (order, last entry against the batches, the
//! distance from the last entry to the end) and again at each use (the batch at an entry's position must fit the
//! entry). One that fails is rebuilt from the batches, so that whatever an index file holds, an answer is right.

use kseg_format::{BatchHeader, DecodeError, Expected, Found, LeaderEpoch, Offset, Place, Timestamp};
use kseg_index::{IndexError, OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset};
use kseg_io_backends::Appender;

use crate::error::{Error, Result};
use crate::indexes::MapRegion;
use crate::log_file::FileRegion;
use crate::recover::{IndexWriter, goes_back};
use crate::scan::{BatchReader, Headers};
use crate::segment::{Indexes, Segment};
use crate::sync::Ordering;

/// Between index entries that are no further apart than this, all is read at once: a read more costs more than these bytes
/// do. It is an index interval (`index.interval.bytes`, 4096) and a batch that is as long.
const STRETCH: u64 = 2 * 4096;

/// Where a batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// Position of its first byte.
    pub position: u64,
    /// Its fixed fields.
    pub header: BatchHeader,
}

/// What [`Segment::read`] found.
#[derive(Clone, Debug)]
pub struct SegmentRead {
    /// Base offset of the batch found: at or below the offset asked for, or above it in a gap.
    pub batch_base_offset: Offset,
    /// Position of that batch.
    pub position: u64,
    /// The bytes; empty where none may be read.
    pub region: FileRegion,
    /// The size asked for was smaller than the first batch, which is cut.
    pub first_incomplete: bool,
}

/// A record found by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampedOffset {
    /// The record's timestamp; `None` for an answer that names no record.
    pub timestamp: Option<Timestamp>,
    /// The record's offset.
    pub offset: Offset,
    /// Leader epoch of its batch.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What a walk over the last batches found.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Offset behind the last whole batch; the base offset where there is none.
    pub(crate) next_offset: Offset,
    /// Position at which the whole batches end.
    pub(crate) valid_bytes: u64,
    /// The fault that ends them, if it is one.
    pub(crate) fault: Option<Error>,
    /// Each batch begins at or behind the end of the one before it, and one ends where the index says.
    pub(crate) in_order: bool,
}

impl Segment {
    /// The batch that holds `offset`, or the first one behind it; `None` where the segment ends before it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`] where a header on the way cannot be read.
    ///
    /// Source: Kafka `LogSegment.translateOffset`.
    pub fn translate(&self, offset: Offset) -> Result<Option<BatchPlace>> {
        self.translate_in(&*self.log.open()?, offset, None)
    }

    /// As [`translate`](Self::translate); with `limit`, an offset and the position before which no batch reaches it, offsets on the
    /// way that do, or go back, are an error: the batch looked for may be the one that they hide.
    #[inline]
    fn translate_in(
        &self,
        file: &dyn Appender,
        offset: Offset,
        limit: Option<(Offset, u64)>,
    ) -> Result<Option<BatchPlace>> {
        let size = self.size();
        let mut rebuilt = false;
        loop {
            let (entry, after) = self.with_offset_index(|index| Ok(index.lookup_between(offset)))?;
            let own = entry.position > 0 && entry.offset == offset;
            // Headers that come into question begin no further than this behind the entry, whose own batch ends with `offset` or not.
            let last =
                if own { entry.position.into() } else { after.map_or(size, |after| after.position.into()) };
            let stretch = last.saturating_sub(entry.position.into());
            let ahead = if stretch <= STRETCH { stretch as usize + BatchHeader::MAX_LEN } else { 0 };
            if ahead == 0
                && let Some(after) = after
            {
                // Large batches have an entry each: the batch is then that of the next entry, one read away.
                let found = Headers::new(file, u64::from(after.position), size).next();
                if let Ok(Some((position, header))) = found
                    && header.last_offset() == after.offset
                    && header.base_offset().is_some_and(|base| base <= offset)
                {
                    return Ok(Some(BatchPlace { position, header }));
                }
            }
            let mut walk = Headers::reading_ahead(file, u64::from(entry.position), size, ahead);
            match self.first_reaching(&mut walk, entry, offset, limit) {
                Ok(found) => return Ok(found),
                Err(Misled::Index) if !rebuilt => {
                    rebuilt = true;
                    self.rebuild_indexes()?;
                }
                // The offsets of the batches themselves are out of order: the index is no help.
                Err(Misled::Index) => {
                    let mut walk = Headers::new(file, 0, size);
                    while let Some((position, header)) = walk.next()? {
                        if header.last_offset() >= offset {
                            return Ok(Some(BatchPlace { position, header }));
                        }
                    }
                    return if walk.position() < size {
                        Err(self.torn(walk.position(), size))
                    } else {
                        Ok(None)
                    };
                }
                Err(Misled::Error(e)) => return Err(e),
            }
        }
    }

    /// Only whole batches are published: what reaches beyond the end was damaged since.
    fn torn(&self, position: u64, end: u64) -> Error {
        let source = DecodeError::Corrupt {
            field: "batch length",
            place: Place::Batch(8),
            expected: Expected::Words("a batch that ends within the segment"),
            found: Found::Bytes(end - position),
        };
        Error::corrupt(&self.path(), position, source)
    }

    /// Whether a batch begins at or behind the end of the one before it, and ends before `limit`.
    fn check_order(&self, position: u64, header: &BatchHeader, next: Offset, limit: Offset) -> Result<()> {
        let low = goes_back(header, next);
        let Some(found) = low.or(Some(header.last_offset()).filter(|&last| last >= limit)) else {
            return Ok(());
        };
        let source = DecodeError::Corrupt {
            field: if Some(found) == header.base_offset() { "base offset" } else { "last offset" },
            place: Place::Batch(0),
            expected: Expected::Between(next.get(), limit.get().saturating_sub(1)),
            found: Found::Value(found.get()),
        };
        Err(Error::corrupt(&self.path(), position, source))
    }

    fn first_reaching(
        &self,
        walk: &mut Headers<'_, dyn Appender + '_>,
        entry: OffsetPosition,
        offset: Offset,
        limit: Option<(Offset, u64)>,
    ) -> Result<Option<BatchPlace>, Misled> {
        let mut first = entry.position > 0;
        let mut next = self.base;
        loop {
            match walk.next() {
                Ok(Some((position, header))) => {
                    // All before an entry's batch lies below the entry: a batch that goes beyond it is not the one.
                    if first && !(self.base..=entry.offset).contains(&header.last_offset()) {
                        return Err(Misled::Index);
                    }
                    if let Some((limit, _)) = limit.filter(|(_, until)| position < *until) {
                        self.check_order(position, &header, next, limit).map_err(Misled::Error)?;
                        next = header.next_offset();
                    }
                    if header.last_offset() >= offset {
                        return Ok(Some(BatchPlace { position, header }));
                    }
                }
                Ok(None) if first && walk.position() < self.size() => return Err(Misled::Index),
                Ok(None) if walk.position() < walk.end() => {
                    return Err(Misled::Error(self.torn(walk.position(), walk.end())));
                }
                Ok(None) => return Ok(None),
                Err(Error::Corrupt { .. }) if first => return Err(Misled::Index),
                Err(e) => return Err(Misled::Error(e)),
            }
            first = false;
        }
    }

    /// Bytes from the batch that holds `offset` on: at most `max` of them, none at or behind position `end`, and with
    /// `min_one` at least that batch. `None` where the segment ends before `offset`.
    ///
    /// `end` is the size of the segment or the position of a mark, which is the start of a batch; `None` where the
    /// mark's position is not known: nothing may be read then, and the answer tells only the place.
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    ///
    /// Source: Kafka `LogSegment.read`.
    pub fn read(
        &self,
        offset: Offset,
        max: usize,
        end: Option<u64>,
        min_one: bool,
    ) -> Result<Option<SegmentRead>> {
        self.read_before(offset, max, end, min_one, None)
    }

    /// As [`read`](Self::read), and with `limit`, the offset behind the segment's last, looks at the offsets on the way.
    ///
    /// # Errors
    /// Also [`Error::Corrupt`] where they go back, or lie at or behind the limit: a batch with a damaged offset hides others, or is
    /// hidden.
    pub fn read_before(
        &self,
        offset: Offset,
        max: usize,
        end: Option<u64>,
        min_one: bool,
        limit: Option<Offset>,
    ) -> Result<Option<SegmentRead>> {
        let file = self.log.open()?;
        // What lies behind `end` may be newer than the limit.
        let Some(BatchPlace { position, header }) = self.translate_in(&*file, offset, limit.zip(end))? else {
            return Ok(None);
        };
        let allowed = if min_one { max.max(header.size()) } else { max };
        let until = match end {
            Some(end) if allowed > 0 => position.saturating_add(allowed as u64).min(end).max(position),
            _ => position,
        };
        // Also where the bound leaves nothing to read, as Kafka says it.
        let first_incomplete = end.is_some() && allowed > 0 && allowed < header.size();
        let batch_base_offset = match header.base_offset() {
            Some(base) => base,
            None => self.deep_base_offset(&*file, position)?,
        };
        let region = FileRegion::new(file, position..until);
        Ok(Some(SegmentRead { batch_base_offset, position, region, first_incomplete }))
    }

    /// The base offset of a compressed legacy batch: that of the first message inside.
    fn deep_base_offset(&self, file: &dyn Appender, position: u64) -> Result<Offset> {
        let mut walk = BatchReader::new(file, position, self.size());
        let Some((_, batch)) = walk.next()? else { return Ok(self.base) };
        let mut scratch = Vec::new();
        batch
            .base_offset_deep(&mut scratch, self.config.decompressed_limit)
            .map_err(|e| Error::corrupt(&self.path(), position, e))
    }

    /// The first record from `start` on whose timestamp is at or above `timestamp`; `None` where there is none.
    ///
    /// # Errors
    /// As [`translate`](Self::translate); [`Error::Corrupt`] where a batch that may hold the record cannot be decoded.
    ///
    /// Source: Kafka `LogSegment.findOffsetByTimestamp`.
    pub fn find_by_timestamp(
        &self,
        timestamp: Timestamp,
        start: Offset,
    ) -> Result<Option<TimestampedOffset>> {
        let entry = self.time_entry_for(timestamp)?;
        let Some(from) = self.scan_start(entry.offset.max(start))? else { return Ok(None) };
        let file = self.log.open()?;
        let mut scratch = Vec::new();
        let mut walk = BatchReader::new(&*file, from, self.size());
        while let Some((position, batch)) = walk.next()? {
            if batch.header().max_timestamp() < Some(timestamp) {
                continue;
            }
            let corrupt = |e| Error::corrupt(&self.path(), position, e);
            for record in batch.records(&mut scratch, self.config.decompressed_limit).map_err(corrupt)? {
                let record = record.map_err(corrupt)?;
                if record.offset() >= start && record.timestamp().is_some_and(|t| t >= timestamp) {
                    let leader_epoch = batch.header().leader_epoch();
                    let (timestamp, offset) = (record.timestamp(), record.offset());
                    return Ok(Some(TimestampedOffset { timestamp, offset, leader_epoch }));
                }
            }
        }
        Ok(None)
    }

    /// The first record with the segment's largest timestamp; `None` for an empty segment, for one of format version
    /// 0, and where the header of the batch is not borne out by a record.
    ///
    /// # Errors
    /// As [`find_by_timestamp`](Self::find_by_timestamp).
    pub fn find_largest_timestamp(&self) -> Result<Option<TimestampedOffset>> {
        let largest = self.largest()?;
        let Some(from) = self.scan_start(largest.offset)? else { return Ok(None) };
        let file = self.log.open()?;
        let mut scratch = Vec::new();
        let mut walk = BatchReader::new(&*file, from, self.size());
        while let Some((position, batch)) = walk.next()? {
            if batch.header().max_timestamp() != largest.timestamp {
                continue;
            }
            if batch.header().timestamp_type().is_none() {
                return Ok(None);
            }
            let corrupt = |e| Error::corrupt(&self.path(), position, e);
            let leader_epoch = batch.header().leader_epoch();
            for record in batch.records(&mut scratch, self.config.decompressed_limit).map_err(corrupt)? {
                let record = record.map_err(corrupt)?;
                if record.timestamp() == largest.timestamp {
                    let (timestamp, offset) = (record.timestamp(), record.offset());
                    return Ok(Some(TimestampedOffset { timestamp, offset, leader_epoch }));
                }
            }
            return Ok(None);
        }
        Ok(None)
    }

    /// The time index's entry for a lookup, checked against the batch that it names.
    fn time_entry_for(&self, timestamp: Timestamp) -> Result<TimestampOffset> {
        let entry = self.with_time_index(|index| Ok(index.lookup(timestamp)))?;
        if entry.timestamp.is_none() || self.bears_out(entry)? {
            return Ok(entry);
        }
        self.rebuild_indexes()?;
        self.with_time_index(|index| Ok(index.lookup(timestamp)))
    }

    /// Whether the batch whose last offset is the entry's has the entry's timestamp.
    fn bears_out(&self, entry: TimestampOffset) -> Result<bool> {
        let found = self.translate(entry.offset)?;
        Ok(found.is_some_and(|p| {
            p.header.last_offset() == entry.offset && p.header.max_timestamp() == entry.timestamp
        }))
    }

    /// Position from which a walk to `offset` begins: that of the index entry at or below it. `None` where the
    /// segment ends before it.
    fn scan_start(&self, offset: Offset) -> Result<Option<u64>> {
        // Through `translate`, so that a wrong entry is found out; the walk begins at the batch itself.
        Ok(self.translate(offset)?.map(|place| place.position))
    }

    /// Offset behind the last whole batch; the base offset where there is none.
    ///
    /// # Errors
    /// As [`translate`](Self::translate).
    ///
    /// Source: Kafka `LogSegment.readNextOffset`.
    pub fn next_offset(&self) -> Result<Offset> {
        Ok(self.walk_tail()?.next_offset)
    }

    /// Walks over the batches from the last index entry on.
    pub(crate) fn walk_tail(&self) -> Result<Tail> {
        let last = self.with_offset_index(|index| Ok(index.last_offset()))?;
        let entry = self.with_offset_index(|index| Ok(index.lookup(last)))?;
        let file = self.log.open()?;
        let mut walk = Headers::new(&*file, u64::from(entry.position), self.size());
        let (mut next_offset, mut in_order) = (self.base, true);
        // Of an old append of several batches the entry names the last offset and the first position.
        let mut met = entry.position == 0;
        let fault = loop {
            match walk.next() {
                Ok(Some((_, header))) => {
                    in_order &= goes_back(&header, next_offset).is_none();
                    met |= header.last_offset() == entry.offset;
                    next_offset = header.next_offset();
                }
                Ok(None) => break None,
                Err(e @ Error::Corrupt { .. }) => break Some(e),
                Err(e) => return Err(e),
            }
        };
        Ok(Tail { next_offset, valid_bytes: walk.position(), fault, in_order: in_order && met })
    }

    /// The largest offset of an index entry whose batch begins at or behind `position + size`, for the bound of a
    /// search for aborted transactions; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Io`] where the offset index cannot be opened.
    pub fn upper_bound_offset(&self, position: u32, size: u64) -> Result<Option<Offset>> {
        self.with_offset_index(|index| Ok(index.upper_bound(position, size).map(|e| e.offset)))
    }

    /// Drops all batches that hold or lie above `offset`, and their index entries; both indexes get their full size,
    /// for the segment becomes the active one. Returns how many bytes went.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    ///
    /// Source: Kafka `LogSegment.truncateTo`.
    pub fn truncate_to(&self, offset: Offset, now_ms: i64) -> Result<u64> {
        let place = self.translate(offset)?;
        self.with_time_index(|_| Ok(()))?;
        let mut tail = self.tail.lock();
        let largest = self.largest_in(&mut tail)?;
        // Pairs with the Acquire of `truncations`. Counted before and after, so that a reader beside it looks again.
        self.truncations.fetch_add(1, Ordering::Release);
        {
            let mut indexes = self.indexes_mut();
            if let Some(index) = indexes.offset.get() {
                index.truncate_to(offset);
            }
            if let Some(index) = indexes.time.get() {
                index.truncate_to(offset);
            }
            indexes.active = true;
            let size = self.config.index_size_max as usize;
            indexes.offset.resize(self.base, size)?;
            indexes.time.resize(self.base, size)?;
        }
        self.truncate_aborted(offset)?;
        let before = self.size();
        if let Some(place) = place {
            self.log.truncate(place.position)?;
        }
        self.truncations.fetch_add(1, Ordering::Release);
        if self.size() == 0 {
            tail.created_ms = now_ms;
            self.first_timestamp.forget(&mut tail);
        }
        tail.bytes_since_index_entry = 0;
        if largest.timestamp.is_some() {
            tail.largest = Some(self.largest_by_walk()?);
        }
        Ok(before - self.size())
    }

    /// The largest timestamp by the last time-index entry and a walk over the headers behind it.
    fn largest_by_walk(&self) -> Result<TimestampOffset> {
        let mut largest = self.with_time_index(|index| Ok(index.last_entry()))?;
        let entry = self.with_offset_index(|index| Ok(index.lookup(largest.offset)))?;
        let file = self.log.open()?;
        let mut walk = Headers::new(&*file, u64::from(entry.position), self.size());
        while let Some((_, header)) = walk.next()? {
            if header.max_timestamp() > largest.timestamp {
                largest = TimestampOffset { timestamp: header.max_timestamp(), offset: header.last_offset() };
            }
        }
        Ok(largest)
    }

    /// Runs `f` on the offset index, which it opens first, and checks where its file existed.
    #[inline]
    pub(crate) fn with_offset_index<T>(
        &self,
        f: impl Fn(&OffsetIndex<MapRegion>) -> Result<T, IndexError>,
    ) -> Result<T> {
        loop {
            {
                let indexes = self.indexes();
                if let Some(index) = indexes.offset.get() {
                    return f(index).map_err(|e| Error::index(indexes.offset.path(), e));
                }
            }
            let mut indexes = self.indexes_mut();
            self.open_offset_index(&mut indexes)?;
        }
    }

    /// Runs `f` on both indexes, which it opens first.
    #[inline]
    pub(crate) fn with_indexes<T>(
        &self,
        f: impl Fn(&OffsetIndex<MapRegion>, &TimeIndex<MapRegion>) -> Result<T, IndexError>,
    ) -> Result<T> {
        self.with_both(|indexes, offsets, times| {
            f(offsets, times).map_err(|e| Error::index(indexes.offset.path(), e))
        })
    }

    /// As [`with_indexes`](Self::with_indexes), and on the files that they are in.
    #[inline]
    pub(crate) fn with_both<T>(
        &self,
        f: impl Fn(&Indexes, &OffsetIndex<MapRegion>, &TimeIndex<MapRegion>) -> Result<T>,
    ) -> Result<T> {
        loop {
            {
                let indexes = self.indexes();
                if let (Some(offsets), Some(times)) = (indexes.offset.get(), indexes.time.get()) {
                    return f(&indexes, offsets, times);
                }
            }
            let mut indexes = self.indexes_mut();
            self.open_offset_index(&mut indexes)?;
            self.open_time_index(&mut indexes)?;
        }
    }

    /// As [`with_offset_index`](Self::with_offset_index), for the time index.
    #[inline]
    pub(crate) fn with_time_index<T>(
        &self,
        f: impl Fn(&TimeIndex<MapRegion>) -> Result<T, IndexError>,
    ) -> Result<T> {
        loop {
            {
                let indexes = self.indexes();
                if let Some(index) = indexes.time.get() {
                    return f(index).map_err(|e| Error::index(indexes.time.path(), e));
                }
            }
            let mut indexes = self.indexes_mut();
            self.open_time_index(&mut indexes)?;
        }
    }

    fn open_offset_index(&self, indexes: &mut Indexes) -> Result<()> {
        if indexes.closed {
            return Err(Error::Closed { path: self.path() });
        }
        if indexes.offset.get().is_some() {
            return Ok(());
        }
        let existed = indexes.offset.open(self.base, self.config.index_size_max)?;
        let missing = !existed && self.size() > 0;
        if missing || (existed && !self.offset_index_is_sound(indexes)?) {
            self.rebuild_into(indexes)?;
        }
        Ok(())
    }

    fn open_time_index(&self, indexes: &mut Indexes) -> Result<()> {
        if indexes.closed {
            return Err(Error::Closed { path: self.path() });
        }
        if indexes.time.get().is_some() {
            return Ok(());
        }
        let existed = indexes.time.open(self.base, self.config.index_size_max)?;
        let missing = !existed && self.size() > 0;
        if missing || (existed && !self.time_index_is_sound(indexes)?) {
            self.open_offset_index(indexes)?;
            self.rebuild_into(indexes)?;
        }
        Ok(())
    }

    /// Whole entries, their order, and the last one against its batch.
    fn offset_index_is_sound(&self, indexes: &Indexes) -> Result<bool> {
        let Some(index) = indexes.offset.get() else { return Ok(true) };
        if !indexes.offset.is_whole()? || index.check_against(self.size()).is_err() {
            return Ok(false);
        }
        if index.entries() == 0 {
            // Right, if slow: a segment that was filled in many short sittings may have none.
            return Ok(true);
        }
        let last = index.lookup(index.last_offset());
        let file = self.log.open()?;
        let mut walk = Headers::new(&*file, u64::from(last.position), self.size());
        match walk.next() {
            Ok(Some((_, header))) => Ok((self.base..=last.offset).contains(&header.last_offset())),
            Ok(None) | Err(Error::Corrupt { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Order, and the last entry against its batch.
    fn time_index_is_sound(&self, indexes: &mut Indexes) -> Result<bool> {
        let Some(index) = indexes.time.get() else { return Ok(true) };
        let last = index.last_entry();
        let beyond = Offset::new(self.base.get().saturating_add(i64::from(i32::MAX)).saturating_add(1));
        if !indexes.time.is_whole()? || index.check_against(beyond).is_err() {
            return Ok(false);
        }
        if index.entries() == 0 {
            // Right only where no batch has a timestamp; the first one tells nearly always.
            let file = self.log.open()?;
            let first = Headers::new(&*file, 0, self.size()).next();
            return Ok(!matches!(first, Ok(Some((_, h))) if h.max_timestamp().is_some()));
        }
        self.open_offset_index(indexes)?;
        let Some(index) = indexes.offset.get() else { return Ok(true) };
        let entry = index.lookup(last.offset);
        let file = self.log.open()?;
        let mut walk = Headers::new(&*file, u64::from(entry.position), self.size());
        while let Ok(Some((_, header))) = walk.next() {
            if header.last_offset() >= last.offset {
                return Ok(header.last_offset() == last.offset && header.max_timestamp() == last.timestamp);
            }
        }
        Ok(false)
    }

    /// Rebuilds both indexes from the batches.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn rebuild_indexes(&self) -> Result<()> {
        let mut indexes = self.indexes_mut();
        self.open_offset_index(&mut indexes)?;
        self.open_time_index(&mut indexes)?;
        self.rebuild_into(&mut indexes)
    }

    /// Rebuilds what is open of the two from the headers of the batches; those that cannot be read, or whose offsets are not
    /// the segment's, have no entry.
    fn rebuild_into(&self, indexes: &mut Indexes) -> Result<()> {
        let size = self.config.index_size_max as usize;
        indexes.offset.reset(self.base, size)?;
        indexes.time.reset(self.base, size)?;
        let file = self.log.open()?;
        let mut walk = Headers::new(&*file, 0, self.size());
        let mut writer = IndexWriter::new(self.base, self.config.index_interval_bytes);
        let mut ascending = Ascending::default();
        loop {
            let next = match walk.next() {
                Ok(Some((_, header))) if !self.can_hold(header.last_offset()) => continue,
                Ok(Some(next)) => ascending.push(next),
                Ok(None) => break,
                Err(Error::Corrupt { .. }) if walk.skip()? => continue,
                Err(Error::Corrupt { .. }) => break,
                Err(e) => return Err(e),
            };
            if let Some((position, header)) = next {
                writer.add(position, &header, indexes)?;
            }
        }
        match (ascending.held, ascending.doubted) {
            // No batch behind the two says which is out of place. The later one is where appends go on, so that its time counts; an
            // entry of its offset could lead readers past the other one.
            (Some(_), Some((_, later))) => writer.note_time(&later),
            (Some((position, header)), None) => writer.add(position, &header, indexes)?,
            (None, _) => {}
        }
        writer.finish(indexes)?;
        if !indexes.active {
            indexes.offset.trim(self.base)?;
            indexes.time.trim(self.base)?;
        }
        Ok(())
    }
}

/// Leaves out of a walk the batches whose offsets are damaged: no checksum covers the base offset, and the last one is read
/// without looking at the checksum. Where a batch ends at or below the end of the one before it, the batch behind the two says
/// which of them is out of place.
#[derive(Default)]
struct Ascending {
    /// Last offset of what was given out.
    after: Option<Offset>,
    held: Option<(u64, BatchHeader)>,
    /// Contradicts the one that is held.
    doubted: Option<(u64, BatchHeader)>,
}

impl Ascending {
    /// Takes the next batch; gives out one that is surely in its place.
    fn push(&mut self, next: (u64, BatchHeader)) -> Option<(u64, BatchHeader)> {
        let last = next.1.last_offset();
        if self.after.is_some_and(|after| last <= after) {
            return None;
        }
        let sure = match (self.held, self.doubted) {
            (Some(held), _) if held.1.last_offset() < last => Some(held),
            // Two in a row say that the one before them is too high.
            (Some(_), Some(doubted)) if doubted.1.last_offset() < last => Some(doubted),
            (Some(_), Some(doubted)) => {
                (self.held, self.doubted) = (Some(doubted), Some(next));
                return None;
            }
            (Some(_), None) => {
                self.doubted = Some(next);
                return None;
            }
            (None, _) => None,
        };
        self.after = sure.map(|(_, header)| header.last_offset()).or(self.after);
        (self.held, self.doubted) = (Some(next), None);
        sure
    }
}

/// Why a walk from an index entry went wrong.
enum Misled {
    Index,
    Error(Error),
}
