//! From a timestamp to an offset.

use std::sync::Arc;

use kseg_format::{Offset, Timestamp};
use kseg_segment::TimestampedOffset;

use crate::error::Result;
use crate::log::{Inner, Log};
use crate::segments::Segments;

/// What to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampQuery {
    /// The first record whose timestamp is at or above this one.
    At(Timestamp),
    /// The log end offset.
    Latest,
    /// The log start offset.
    Earliest,
    /// The first offset whose records are in this log's own files: nothing is tiered here, so the log start offset.
    EarliestLocal,
    /// The last offset that a remote tier has: there is none.
    LatestTiered,
    /// The first offset that waits to be copied to a remote tier: there is none.
    EarliestPendingUpload,
    /// The first record with the largest timestamp of all.
    Max,
}

impl Log {
    /// Finds an offset by time; `None` where no record answers.
    ///
    /// For [`TimestampQuery::At`] the first segment is searched whose largest timestamp (where it has none, the time its
    /// file was last changed) reaches the one asked for, and only that one. [`TimestampQuery::Max`] may answer with an
    /// offset below the log start offset while its segment is still there. [`TimestampQuery::Latest`],
    /// [`TimestampQuery::Earliest`] and [`TimestampQuery::EarliestLocal`] answer without a timestamp; to
    /// [`TimestampQuery::LatestTiered`] and [`TimestampQuery::EarliestPendingUpload`] there is no answer (Kafka's protocol
    /// says -1 then, for offset, timestamp and epoch).
    ///
    /// # Errors
    /// [`Error::Segment`](crate::Error::Segment) where an index or a batch cannot be read.
    ///
    /// Source: Kafka `UnifiedLog.fetchOffsetByTimestamp`.
    pub fn offset_for_timestamp(&self, query: TimestampQuery) -> Result<Option<TimestampedOffset>> {
        let log = &self.inner;
        log.check_health()?;
        let marks = log.marks();
        let named =
            |offset, leader_epoch| Ok(Some(TimestampedOffset { timestamp: None, offset, leader_epoch }));
        match query {
            TimestampQuery::Latest => {
                named(marks.log_end.offset, log.epochs.read().latest().map(|e| e.epoch))
            }
            TimestampQuery::Earliest | TimestampQuery::EarliestLocal => {
                let earliest = log.epochs.read().earliest().filter(|e| e.start_offset <= marks.log_start);
                named(marks.log_start, earliest.map(|e| e.epoch))
            }
            TimestampQuery::LatestTiered | TimestampQuery::EarliestPendingUpload => Ok(None),
            TimestampQuery::Max => log.noted(self.largest_timestamp()),
            TimestampQuery::At(timestamp) => log.noted(self.at(timestamp, marks.log_start)),
        }
    }

    fn at(&self, timestamp: Timestamp, log_start: Offset) -> Result<Option<TimestampedOffset>> {
        let log = &self.inner;
        log.on_segments(|segments| {
            for segment in segments.as_slice() {
                if segment.retention_time_ms().map_err(|e| log.wrap(e))? >= timestamp.get() {
                    return segment.find_by_timestamp(timestamp, log_start).map_err(|e| log.wrap(e));
                }
            }
            Ok(None)
        })
    }

    fn largest_timestamp(&self) -> Result<Option<TimestampedOffset>> {
        let log = &self.inner;
        log.on_segments(|segments| {
            let mut best: Option<(Option<Timestamp>, usize)> = None;
            for (n, segment) in segments.as_slice().iter().enumerate() {
                let largest = segment.largest().map_err(|e| log.wrap(e))?.timestamp;
                if best.is_none_or(|(so_far, _)| largest > so_far) {
                    best = Some((largest, n));
                }
            }
            match best {
                Some((_, n)) => segments.as_slice()[n].find_largest_timestamp().map_err(|e| log.wrap(e)),
                None => Ok(None),
            }
        })
    }
}

impl Inner {
    /// Looks into the segments, and again where that failed and the list is another by now: a segment that was replaced or
    /// deleted may be gone by the time it is opened.
    fn on_segments<T>(&self, look: impl Fn(&Segments) -> Result<T>) -> Result<T> {
        loop {
            let segments = self.segments();
            let found = look(&segments);
            if found.is_ok() || Arc::ptr_eq(&segments, &self.segments()) {
                return found;
            }
        }
    }
}
