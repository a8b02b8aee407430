//! Which segments retention removes: pure decisions over facts, oldest segment first.
//!
//! Source: Kafka `UnifiedLog.deleteOldSegments` and `deletableSegments`.

use std::fmt;

use kseg_format::Offset;

/// What a decision looks at in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Its base offset.
    pub base_offset: Offset,
    /// Where the next segment begins; the log end offset for the last one.
    pub end_offset: Offset,
    /// Its size in bytes.
    pub size: u64,
    /// It is the last one: the active segment.
    pub last: bool,
    /// The time retention goes by, in milliseconds: its largest timestamp, or the time its file was last changed.
    /// Looked at by [`Limit::Time`] alone.
    pub time_ms: i64,
}

/// One limit to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Segments wholly below the log start offset go; never the last one.
    StartOffset(Offset),
    /// The oldest segment goes while what stays is at least `limit` bytes (`retention.bytes`; negative: no limit).
    Size {
        /// Bytes in all segments.
        total: u64,
        /// The limit in bytes.
        limit: i64,
    },
    /// A segment goes once it is older than `limit_ms` (`retention.ms`; negative: no limit).
    Time {
        /// The clock, in milliseconds.
        now_ms: i64,
        /// The limit in milliseconds.
        limit_ms: i64,
    },
}

/// Why a scan ended before the last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldBack {
    /// The segment reaches to the high watermark or beyond.
    HighWatermark,
    /// The segment is within the limit. Those behind it stay too: the log never has a hole.
    WithinLimit {
        /// The time that retention goes by in it, where the limit is one of time. One that lies in the future keeps
        /// everything behind it.
        time_ms: Option<i64>,
    },
    /// It is the active segment, which has no data.
    EmptyActive,
}

/// How many segments, from the oldest on, one limit removes; and what held the rest back, with the base offset of
/// the first one that stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Number of segments to remove.
    pub count: usize,
    /// The first segment that stays, and why; `None` where none stays.
    pub held_back: Option<(Offset, HeldBack)>,
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldBack::HighWatermark => f.write_str("it reaches beyond the high watermark"),
            HeldBack::WithinLimit { time_ms: Some(ms) } => {
                write!(f, "its largest time is {ms}, within the limit")
            }
            HeldBack::WithinLimit { time_ms: None } => f.write_str("it is within the limit"),
            HeldBack::EmptyActive => f.write_str("it is the active segment and empty"),
        }
    }
}

/// Decides. `segments` come oldest first; the scan takes no more of them than it needs.
///
/// # Errors
/// The first error of the iterator.
pub fn decide<E>(
    segments: impl Iterator<Item = Result<SegmentFacts, E>>,
    high_watermark: Offset,
    limit: Limit,
) -> Result<Decision, E> {
    let mut decision = Decision::default();
    let mut spare = match limit {
        Limit::Size { limit, .. } if limit < 0 => return Ok(decision),
        Limit::Size { total, limit } => match total.checked_sub(limit as u64) {
            Some(spare) => spare,
            None => return Ok(decision),
        },
        Limit::Time { limit_ms, .. } if limit_ms < 0 => return Ok(decision),
        _ => 0,
    };
    for segment in segments {
        let segment = segment?;
        let held = if high_watermark < segment.end_offset {
            Some(HeldBack::HighWatermark)
        } else {
            let (goes, time_ms) = match limit {
                Limit::StartOffset(start) => (!segment.last && segment.end_offset <= start, None),
                Limit::Size { .. } => match spare.checked_sub(segment.size) {
                    Some(rest) => {
                        spare = rest;
                        (true, None)
                    }
                    None => (false, None),
                },
                // In 128 bits: the difference of two clocks may exceed 64.
                Limit::Time { now_ms, limit_ms } => {
                    let age = i128::from(now_ms) - i128::from(segment.time_ms);
                    (age > i128::from(limit_ms), Some(segment.time_ms))
                }
            };
            match (goes, segment.last && segment.size == 0) {
                (false, _) => Some(HeldBack::WithinLimit { time_ms }),
                (true, true) => Some(HeldBack::EmptyActive),
                (true, false) => None,
            }
        };
        if let Some(why) = held {
            decision.held_back = Some((segment.base_offset, why));
            break;
        }
        decision.count += 1;
    }
    Ok(decision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Segments as (base, size, time); the last one ends at `end`.
    fn count(list: &[(i64, u64, i64)], end: i64, high_watermark: i64, limit: Limit) -> Decision {
        let facts = list.iter().enumerate().map(|(i, &(base, size, time_ms))| {
            let end_offset = Offset::new(list.get(i + 1).map_or(end, |next| next.0));
            let (base_offset, last) = (Offset::new(base), i + 1 == list.len());
            Ok::<_, Infallible>(SegmentFacts { base_offset, end_offset, size, last, time_ms })
        });
        match decide(facts, Offset::new(high_watermark), limit) {
            Ok(decision) => decision,
            Err(never) => match never {},
        }
    }

    #[test]
    fn log_01_a_segment_goes_when_its_newest_record_is_older_than_the_limit() {
        let list = [(0, 200, 39_000_000), (2, 100, 42_600_000)];
        let at = |now_ms| count(&list, 3, 3, Limit::Time { now_ms, limit_ms: 3_600_000 }).count;
        assert_eq!(at(42_600_000), 0);
        assert_eq!(at(42_600_001), 1);
    }

    #[test]
    fn log_02_nothing_at_or_above_the_high_watermark_goes() {
        let list = [(0, 100, 0), (100, 100, 0), (200, 50, 0)];
        let at = |hw| count(&list, 250, hw, Limit::Time { now_ms: 1_000_000, limit_ms: 1 }).count;
        assert_eq!((at(150), at(200), at(0), at(250)), (1, 2, 0, 3));
    }

    #[test]
    fn log_03_a_time_in_the_future_holds_back_what_lies_behind_it() {
        let now_ms = 1_700_000_000_000;
        let list = [(0, 100, now_ms + 31_536_000_000), (10, 100, now_ms - 2000), (20, 100, now_ms)];
        let by_time = count(&list, 30, 30, Limit::Time { now_ms, limit_ms: 1000 });
        assert_eq!(by_time.count, 0);
        let why = HeldBack::WithinLimit { time_ms: Some(now_ms + 31_536_000_000) };
        assert_eq!(by_time.held_back, Some((Offset::ZERO, why)));
        assert_eq!(count(&list, 30, 30, Limit::Size { total: 300, limit: 1 }).count, 2);
    }

    #[test]
    fn log_04_size_removes_only_while_the_rest_stays_at_or_above_the_limit() {
        let list = [(0, 1000, 0), (10, 1000, 0), (20, 1000, 0), (30, 500, 0)];
        let at = |limit| count(&list, 35, 35, Limit::Size { total: 3500, limit }).count;
        assert_eq!((at(2000), at(2500), at(3501), at(0), at(-1)), (1, 1, 0, 4, 0));
    }

    #[test]
    fn log_edge_154_an_empty_active_segment_stays() {
        let list = [(0, 100, 0), (10, 0, 0)];
        let decision = count(&list, 10, 10, Limit::Time { now_ms: 1_000_000, limit_ms: 1 });
        assert_eq!(decision.count, 1);
        assert_eq!(decision.held_back, Some((Offset::new(10), HeldBack::EmptyActive)));
    }

    #[test]
    fn log_edge_151_the_start_offset_never_removes_the_last_segment() {
        let list = [(0, 5, 0), (5, 5, 0), (10, 5, 0)];
        let at = |start| count(&list, 15, 15, Limit::StartOffset(Offset::new(start))).count;
        assert_eq!((at(1), at(6), at(15)), (0, 1, 2));
    }

    #[test]
    fn extreme_times_do_not_wrap() {
        let list = [(0, 1, i64::MIN), (1, 1, i64::MAX)];
        let limit = Limit::Time { now_ms: i64::MAX, limit_ms: i64::MAX };
        assert_eq!(count(&list, 2, 2, limit).count, 1);
    }
}
