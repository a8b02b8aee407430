//! Reading: from an offset to a region of a file.

use std::sync::Arc;

use kseg_format::{AbortedTransaction, Offset};
use kseg_segment::{FileRegion, Segment, SegmentRead};

use crate::error::{Error, Result};
use crate::log::{Inner, Log};
use crate::marks::{Mark, Marks, Place};
use crate::segments::Segments;
use crate::sync::yield_now;

/// Up to where a read may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Up to the log end offset: followers.
    LogEnd,
    /// Up to the high watermark: consumers that read what is committed to the replicas.
    HighWatermark,
    /// Up to the last stable offset, with the list of aborted transactions: consumers that read committed transactions.
    Committed,
}

/// What a read found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Fetch {
    /// Base offset of the first batch: at or below the offset asked for, or above it where that one lies in a gap. At
    /// the end of what may be read, that end.
    pub offset: Offset,
    /// Where it lies; `None` where that is not known.
    pub place: Option<Place>,
    /// The bytes, which begin with a batch and may end inside one; `None` where there is nothing to read.
    pub region: Option<FileRegion>,
    /// The region ends inside its first batch.
    pub first_incomplete: bool,
    /// Aborted transactions that may have records in the region (more than those, never fewer); `None` unless committed data
    /// was asked for.
    pub aborted: Option<Vec<AbortedTransaction>>,
}

impl Fetch {
    /// How many bytes there are to read.
    pub fn len(&self) -> usize {
        self.region.as_ref().map_or(0, FileRegion::len)
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn nothing(mark: Mark, isolation: Isolation) -> Self {
        let aborted = (isolation == Isolation::Committed).then(Vec::new);
        Fetch { offset: mark.offset, place: mark.place, region: None, first_incomplete: false, aborted }
    }
}

impl Log {
    /// Reads from the batch that holds `start` on: at most `max_bytes` of one segment, and with `min_one` at least that
    /// batch whole. The first records of the batch may lie below `start`; gaps are passed over.
    ///
    /// Takes no lock that an append, roll or flush holds across I/O. The region can be read after the segment has been
    /// deleted or the log closed.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] below the log start offset or above the log end offset; [`Error::Segment`] where a
    /// batch header on the way cannot be read.
    ///
    /// Source: Kafka `UnifiedLog.read`.
    pub fn read(
        &self,
        start: Offset,
        max_bytes: usize,
        isolation: Isolation,
        min_one: bool,
    ) -> Result<Fetch> {
        self.inner.check_health()?;
        self.inner.noted(self.inner.read(start, max_bytes, isolation, min_one))
    }

    /// The aborted transactions that begin below `to`, from the segment that holds `from` on; those that ended below `from`
    /// in that segment are among them. Empty below the first segment.
    ///
    /// # Errors
    /// [`Error::Segment`] where a transaction index cannot be read.
    ///
    /// Source: Kafka `UnifiedLog.collectAbortedTransactions`.
    pub fn aborted_transactions(&self, from: Offset, to: Offset) -> Result<Vec<AbortedTransaction>> {
        self.inner.aborted_from_segment_of(from, self.log_start_offset(), to)
    }
}

impl Inner {
    pub(crate) fn read(
        &self,
        start: Offset,
        max_bytes: usize,
        isolation: Isolation,
        min_one: bool,
    ) -> Result<Fetch> {
        loop {
            let (marks, segments) = (self.marks(), self.segments());
            if marks.swaps != segments.swaps() {
                // Between the two steps of a replacement, which follow each other without I/O: whoever takes them may run.
                yield_now();
                continue;
            }
            let read = self.read_in(&segments, marks, start, max_bytes, isolation, min_one);
            // A segment that was replaced or deleted may be gone by the time it is opened.
            if read.is_ok() || Arc::ptr_eq(&segments, &self.segments()) {
                return read;
            }
        }
    }

    fn read_in(
        &self,
        segments: &Segments,
        marks: Marks,
        start: Offset,
        max_bytes: usize,
        isolation: Isolation,
        min_one: bool,
    ) -> Result<Fetch> {
        if start < marks.log_start {
            return Err(self.out_of_range(start, marks.log_start, marks.log_end.offset));
        }
        let end = match isolation {
            Isolation::LogEnd => marks.log_end,
            Isolation::HighWatermark => self.placed(segments, marks.high_watermark)?,
            Isolation::Committed => self.placed(segments, marks.last_stable())?,
        };
        let floor = segments.floor_index(start);
        let (Some(floor), true) = (floor, start <= marks.log_end.offset) else {
            return Err(self.out_of_range(start, marks.log_start, marks.log_end.offset));
        };
        if start == end.offset {
            return Ok(Fetch::nothing(end, isolation));
        }
        if start > end.offset {
            return Ok(Fetch::nothing(self.look_up(segments, start)?, isolation));
        }
        for segment in &segments.as_slice()[floor..] {
            let next = segments.above(segment.base_offset()).first().map(|next| next.base_offset());
            let limit = next.unwrap_or(marks.log_end.offset);
            if let Some(fetch) =
                self.read_segment(segment, start, max_bytes, (end, limit), isolation, min_one)?
            {
                return Ok(fetch);
            }
        }
        Ok(Fetch { aborted: None, ..Fetch::nothing(marks.log_end, isolation) })
    }

    /// Reads within one segment; again where a truncation came between.
    fn read_segment(
        &self,
        segment: &Segment,
        start: Offset,
        max_bytes: usize,
        (end, limit): (Mark, Offset),
        isolation: Isolation,
        min_one: bool,
    ) -> Result<Option<Fetch>> {
        loop {
            let truncations = segment.truncations();
            let base = segment.base_offset();
            let until = match end.place {
                Some(place) if base < place.segment => Some(segment.size()),
                Some(place) if base == place.segment => Some(place.position.min(segment.size())),
                _ => None,
            };
            let read = segment.read_before(start, max_bytes, until, min_one, Some(limit));
            if segment.truncations() != truncations {
                continue;
            }
            let Some(read) = read.map_err(|e| self.wrap(e))? else { return Ok(None) };
            let aborted = match isolation {
                Isolation::Committed => Some(self.aborted_in(segment, start, &read)?),
                _ => None,
            };
            return Ok(Some(Fetch {
                offset: read.batch_base_offset,
                place: Some(Place { segment: base, position: read.position }),
                first_incomplete: read.first_incomplete,
                region: Some(read.region).filter(|r| !r.is_empty()),
                aborted,
            }));
        }
    }

    /// The aborted transactions of what a read found, from `start` on.
    fn aborted_in(
        &self,
        segment: &Segment,
        start: Offset,
        read: &SegmentRead,
    ) -> Result<Vec<AbortedTransaction>> {
        let position = u32::try_from(read.position).unwrap_or(u32::MAX);
        let bound =
            segment.upper_bound_offset(position, read.region.len() as u64).map_err(|e| self.wrap(e))?;
        let segments = self.segments();
        let next = segments.above(segment.base_offset()).first().map(|s| s.base_offset());
        let upper = bound.or(next).unwrap_or_else(|| self.marks().log_end.offset);
        self.collect_aborted(&segments, segment.base_offset(), start, upper)
    }

    /// Aborted transactions that end at or behind `from` and begin below `upper`, of the segments from `base` on.
    fn collect_aborted(
        &self,
        segments: &Segments,
        base: Offset,
        from: Offset,
        upper: Offset,
    ) -> Result<Vec<AbortedTransaction>> {
        let mut found = Vec::new();
        for segment in segments.as_slice().iter().filter(|s| s.base_offset() >= base) {
            let entries = segment.aborted().map_err(|e| self.wrap(e))?;
            if AbortedTransaction::collect(entries, from, upper, &mut found) {
                break;
            }
        }
        Ok(found)
    }

    /// From the segment that holds `from` on: those that end at or behind `least` and begin below `to`.
    pub(crate) fn aborted_from_segment_of(
        &self,
        from: Offset,
        least: Offset,
        to: Offset,
    ) -> Result<Vec<AbortedTransaction>> {
        let segments = self.segments();
        let Some(floor) = segments.floor_index(from) else { return Ok(Vec::new()) };
        let base = segments.as_slice()[floor].base_offset();
        self.collect_aborted(&segments, base, least, to)
    }

    /// A mark with its place: looked up where it is not known, and kept. The offset stays what it is.
    fn placed(&self, segments: &Segments, mark: Mark) -> Result<Mark> {
        if mark.place.is_some() {
            return Ok(mark);
        }
        let found = Mark { offset: mark.offset, ..self.look_up(segments, mark.offset)? };
        let mut marks = self.marks.write();
        if marks.swaps != segments.swaps() {
            return Ok(found);
        }
        if marks.high_watermark == mark {
            marks.high_watermark = found;
        }
        if marks.first_unstable == Some(mark) {
            marks.first_unstable = Some(found);
        }
        Ok(found)
    }

    /// Where `offset` lies: the batch that holds it or the first one behind it, or the log end. Without a place where the
    /// offset is out of range.
    fn look_up(&self, segments: &Segments, offset: Offset) -> Result<Mark> {
        let log_end = self.marks().log_end;
        if offset >= log_end.offset {
            return Ok(if offset == log_end.offset { log_end } else { Mark::at(offset) });
        }
        let Some(floor) = segments.floor_index(offset) else { return Ok(Mark::at(offset)) };
        for segment in &segments.as_slice()[floor..] {
            if let Some(read) = segment.read(offset, 1, None, false).map_err(|e| self.wrap(e))? {
                let place = Place { segment: segment.base_offset(), position: read.position };
                return Ok(Mark { offset: read.batch_base_offset, place: Some(place) });
            }
        }
        Ok(log_end)
    }

    pub(crate) fn out_of_range(&self, offset: Offset, log_start: Offset, log_end: Offset) -> Error {
        Error::OffsetOutOfRange { dir: self.dir.clone(), offset, log_start, log_end }
    }
}

#[cfg(test)]
mod tests {
    use kseg_format::{BatchOptions, LeaderEpoch, Origin, RecordBatchBuilder};

    use super::*;
    use crate::open::OpenOptions;

    #[test]
    fn log_edge_97_where_the_bound_has_no_place_a_read_tells_where_and_gives_nothing() {
        let backend = kseg_io_backends::open("memory").expect("memory is always there");
        let log = Log::open(std::path::Path::new("/data/t-0"), OpenOptions::new(backend)).expect("a log");
        for n in 0..6 {
            if n == 2 || n == 4 {
                log.roll(None).expect("a roll");
            }
            let mut batch = RecordBatchBuilder::new(BatchOptions::default());
            batch.append(None, None, Some(b"v"), &[]).expect("a record");
            let mut bytes = bytes::BytesMut::new();
            batch.finish(&mut bytes).expect("a batch");
            log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Client).expect("an append");
        }
        let segment = log.inner.segments().get(Offset::new(2)).expect("a segment").clone();
        let first = Some(Place { segment: Offset::ZERO, position: 0 });
        for place in [None, first] {
            let end = Mark { offset: Offset::new(4), place };
            let fetch = log
                .inner
                .read_segment(
                    &segment,
                    Offset::new(3),
                    100,
                    (end, Offset::new(4)),
                    Isolation::HighWatermark,
                    true,
                )
                .expect("a read")
                .expect("a batch");
            let at = Place { segment: Offset::new(2), position: segment.size() / 2 };
            assert_eq!((fetch.offset.get(), fetch.place, fetch.len()), (3, Some(at), 0));
        }
    }
}
