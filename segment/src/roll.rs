//! When a segment is full: a pure decision.

use std::fmt;

/// What the decision looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollCheck {
    /// Size of the segment in bytes.
    pub size: u64,
    /// Size in bytes of the batches about to be appended.
    pub appending: u64,
    /// `segment.bytes`.
    pub size_max: u64,
    /// Milliseconds that the segment has been filling: newest timestamp in the append minus that of the segment's
    /// first batch, or, where that one has none, the clock minus the segment's creation. May be negative.
    pub waited_ms: i64,
    /// `segment.ms` (for compacted topics at most `max.compaction.lag.ms`).
    pub age_max_ms: i64,
    /// What is taken off `age_max_ms` for this segment.
    pub jitter_ms: i64,
    /// The offset index has no room for an entry.
    pub offset_index_full: bool,
    /// The time index has no room for an entry beside the one reserved for the end of the segment.
    pub time_index_full: bool,
    /// The last offset of the append fits a relative offset of 31 bits.
    pub offset_fits: bool,
}

/// Why a segment has to roll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RollReason {
    /// The batches would exceed `segment.bytes`.
    Size,
    /// The segment has been filling for longer than `segment.ms`.
    Age,
    /// One of its indexes is full.
    IndexFull,
    /// The offset is too far from the base offset.
    OffsetRange,
}

impl fmt::Display for RollReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RollReason::Size => "the segment would exceed its size",
            RollReason::Age => "the segment has reached its age",
            RollReason::IndexFull => "an index is full",
            RollReason::OffsetRange => "the offset is too far from the base offset",
        })
    }
}

/// Whether the segment has to roll before the append, and why.
///
/// Age alone never rolls an empty segment; an empty segment whose index is full or whose base is out of range does
/// roll. Equality with a limit is allowed.
///
/// Source: Kafka `LogSegment.shouldRoll`.
#[inline]
pub fn roll_reason(check: &RollCheck) -> Option<RollReason> {
    if check.size.saturating_add(check.appending) > check.size_max {
        return Some(RollReason::Size);
    }
    if check.size > 0 && check.waited_ms > check.age_max_ms.saturating_sub(check.jitter_ms) {
        return Some(RollReason::Age);
    }
    if check.offset_index_full || check.time_index_full {
        return Some(RollReason::IndexFull);
    }
    (!check.offset_fits).then_some(RollReason::OffsetRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: RollCheck = RollCheck {
        size: 500,
        appending: 100,
        size_max: 1000,
        waited_ms: 0,
        age_max_ms: 1000,
        jitter_ms: 0,
        offset_index_full: false,
        time_index_full: false,
        offset_fits: true,
    };

    #[test]
    fn log_edge_61_equality_with_segment_bytes_does_not_roll() {
        assert_eq!(roll_reason(&RollCheck { appending: 500, ..CALM }), None);
        assert_eq!(roll_reason(&RollCheck { appending: 501, ..CALM }), Some(RollReason::Size));
    }

    #[test]
    fn log_edge_62_age_is_compared_strictly_and_less_jitter() {
        let at = |waited_ms| roll_reason(&RollCheck { waited_ms, jitter_ms: 10, ..CALM });
        assert_eq!(at(990), None);
        assert_eq!(at(991), Some(RollReason::Age));
        assert_eq!(at(-5), None);
        assert_eq!(roll_reason(&RollCheck { size: 0, waited_ms: i64::MAX, ..CALM }), None);
    }

    #[test]
    fn an_empty_segment_rolls_for_its_indexes_and_its_range() {
        assert_eq!(
            roll_reason(&RollCheck { size: 0, offset_index_full: true, ..CALM }),
            Some(RollReason::IndexFull)
        );
        assert_eq!(
            roll_reason(&RollCheck { size: 0, time_index_full: true, ..CALM }),
            Some(RollReason::IndexFull)
        );
        assert_eq!(
            roll_reason(&RollCheck { size: 0, offset_fits: false, ..CALM }),
            Some(RollReason::OffsetRange)
        );
    }

    #[test]
    fn sizes_near_the_limits_of_a_file_do_not_wrap() {
        let near = RollCheck { size: 2_147_482_800, appending: 1000, size_max: 2_147_483_647, ..CALM };
        assert_eq!(roll_reason(&near), Some(RollReason::Size));
        assert_eq!(roll_reason(&RollCheck { size: u64::MAX, ..near }), Some(RollReason::Size));
    }
}
