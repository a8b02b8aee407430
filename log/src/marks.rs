//! The offsets of a log: one value, changed as a whole, copied by readers.

use kseg_format::Offset;

/// Where an offset lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Base offset of the segment.
    pub segment: Offset,
    /// Byte position in its `.log` file.
    pub position: u64,
}

/// An offset and, where it has been looked up, its place (Kafka's `LogOffsetMetadata`).
///
/// The offset is what was set: finding its place never moves it, also where it lies inside a batch or in a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The offset.
    pub(crate) offset: Offset,
    /// Its place, if known.
    pub(crate) place: Option<Place>,
}

impl Mark {
    /// A mark whose place is not known.
    pub(crate) const fn at(offset: Offset) -> Self {
        Mark { offset, place: None }
    }
}

/// All offsets of a log.
///
/// Normally `log_start <= last stable <= high_watermark <= log_end` and `recovery_point <= log_end`. A log that was
/// truncated fully with a log start above its end has its log start and high watermark above the end until data come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// First offset that may be read.
    pub(crate) log_start: Offset,
    /// Next offset to be written; its place is always known.
    pub(crate) log_end: Mark,
    /// Exclusive bound of committed records.
    pub(crate) high_watermark: Mark,
    /// First offset of a transaction that is not decided, or whose decision is not committed.
    pub(crate) first_unstable: Option<Mark>,
    /// First offset not known to be durable, or the log start offset where that is higher.
    pub(crate) recovery_point: Offset,
    /// All records below are durable, those that were deleted since included: what recovery may walk over.
    pub(crate) durable: Offset,
    /// The count of replacements that the places belong to, as the segment list has it.
    pub(crate) swaps: u64,
    /// Counts truncations.
    pub(crate) truncations: u64,
    /// The lowest offset above which a truncation has dropped anything, since a move last asked.
    pub(crate) dropped_from: Option<Offset>,
}

impl Marks {
    /// Exclusive bound of decided transactions below the high watermark.
    pub(crate) fn last_stable(&self) -> Mark {
        match self.first_unstable {
            Some(unstable) if unstable.offset < self.high_watermark.offset => unstable,
            _ => self.high_watermark,
        }
    }

    /// Segments have been replaced: what lay in them lies elsewhere.
    pub(crate) fn forget_places(&mut self, gone: &[Offset], swaps: u64) {
        let forget = |mark: &mut Mark| {
            if mark.place.is_some_and(|place| gone.contains(&place.segment)) {
                mark.place = None;
            }
        };
        forget(&mut self.high_watermark);
        if let Some(unstable) = &mut self.first_unstable {
            forget(unstable);
        }
        self.swaps = swaps;
    }

    /// Sets the log end; the recovery point never lies behind it.
    pub(crate) fn set_log_end(&mut self, offset: Offset, place: Place) {
        self.log_end = Mark { offset, place: Some(place) };
        self.recovery_point = self.recovery_point.min(offset);
        self.durable = self.durable.min(offset);
    }

    /// Sets the log end where a truncation has dropped what lay at or above `from`.
    pub(crate) fn truncate(&mut self, from: Offset, offset: Offset, place: Place) {
        self.set_log_end(offset, place);
        self.truncations += 1;
        self.dropped_from = Some(self.dropped_from.map_or(from, |before| before.min(from)));
    }

    /// Moves the recovery point up to `end`, of which the sync began when the marks were `begun`. What was truncated since may
    /// have been written anew, beside the sync: then it stays. Returns whether it counted.
    pub(crate) fn flushed(&mut self, end: Offset, begun: &Marks) -> bool {
        if self.truncations != begun.truncations {
            return false;
        }
        self.recovery_point = self.recovery_point.max(end);
        self.durable = self.durable.max(end);
        true
    }

    /// Where the high watermark has reached the log end it goes on with it.
    pub(crate) fn refresh_high_watermark(&mut self) -> bool {
        if self.high_watermark.offset >= self.log_end.offset {
            let moved = self.high_watermark != self.log_end;
            self.high_watermark = self.log_end;
            return moved;
        }
        false
    }

    /// Sets the high watermark to `offset`, clamped to `[log_start, log_end]`; returns the offset set.
    pub(crate) fn set_high_watermark(&mut self, offset: Offset) -> Offset {
        let mark = if offset < self.log_start { Mark::at(self.log_start) } else { Mark::at(offset) };
        self.high_watermark = if mark.offset >= self.log_end.offset {
            // A log start above the log end (see above) keeps the high watermark with it.
            if mark.offset == self.log_start && self.log_start > self.log_end.offset {
                mark
            } else {
                self.log_end
            }
        } else if mark.offset == self.high_watermark.offset {
            self.high_watermark
        } else {
            mark
        };
        self.high_watermark.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(log_start: i64, high_watermark: i64, log_end: i64) -> Marks {
        Marks {
            log_start: Offset::new(log_start),
            log_end: Mark {
                offset: Offset::new(log_end),
                place: Some(Place { segment: Offset::ZERO, position: 100 }),
            },
            high_watermark: Mark::at(Offset::new(high_watermark)),
            first_unstable: None,
            recovery_point: Offset::ZERO,
            durable: Offset::ZERO,
            swaps: 0,
            truncations: 0,
            dropped_from: None,
        }
    }

    #[test]
    fn log_edge_106_the_high_watermark_is_clamped_to_the_log() {
        let mut marks = marks(2, 2, 10);
        assert_eq!(marks.set_high_watermark(Offset::new(50)).get(), 10);
        assert!(marks.high_watermark.place.is_some());
        assert_eq!(marks.set_high_watermark(Offset::new(1)).get(), 2);
        assert_eq!(marks.set_high_watermark(Offset::new(7)).get(), 7);
    }

    #[test]
    fn the_last_stable_offset_is_the_first_unstable_one_below_the_high_watermark() {
        let mut marks = marks(0, 8, 10);
        assert_eq!(marks.last_stable().offset.get(), 8);
        marks.first_unstable = Some(Mark::at(Offset::new(5)));
        assert_eq!(marks.last_stable().offset.get(), 5);
        marks.first_unstable = Some(Mark::at(Offset::new(9)));
        assert_eq!(marks.last_stable().offset.get(), 8);
    }

    #[test]
    fn the_recovery_point_never_lies_behind_the_log_end() {
        let mut marks = marks(0, 0, 10);
        marks.recovery_point = Offset::new(9);
        marks.set_log_end(Offset::new(4), Place { segment: Offset::ZERO, position: 40 });
        assert_eq!(marks.recovery_point.get(), 4);
    }

    #[test]
    fn a_flush_that_a_truncation_overtook_says_nothing() {
        let mut marks = marks(0, 0, 10);
        let begun = marks;
        assert!(marks.flushed(Offset::new(6), &begun));
        let place = |position| Place { segment: Offset::ZERO, position };
        marks.truncate(Offset::new(4), Offset::new(4), place(40));
        marks.set_log_end(Offset::new(20), place(200));
        assert!(!marks.flushed(Offset::new(10), &begun));
        assert_eq!((marks.recovery_point.get(), marks.durable.get()), (4, 4));
        let begun = marks;
        assert!(marks.flushed(Offset::new(10), &begun));
        assert_eq!((marks.recovery_point.get(), marks.durable.get()), (10, 10));
    }
}
