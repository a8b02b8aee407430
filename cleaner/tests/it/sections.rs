//! Where the sections of a log begin and end, and how many bytes they have.

use kseg_cleaner::{Reset, Rules, Sections};
use kseg_format::Offset;
use proptest::prelude::*;

use crate::{HOUR, TestLog, min_lag};

/// First dirty, first uncleanable dirty and first uncleanable offset.
fn offsets(sections: &Sections) -> (i64, i64, i64) {
    (
        sections.first_dirty.offset.get(),
        sections.first_uncleanable_dirty_offset.get(),
        sections.first_uncleanable_offset.get(),
    )
}

#[test]
fn cleaner_edge_103_checkpoint_past_the_log_end_is_reset_to_the_log_start() {
    let sections = TestLog::new(3, 100).checkpoint(200).sections(&Rules::default(), 5000);
    assert_eq!(sections.first_dirty.offset, Offset::ZERO);
    assert_eq!(sections.first_dirty.reset, Some(Reset::PastLogEnd));
}

#[test]
fn cleaner_edge_104_checkpoint_below_the_log_start_is_reset_to_it() {
    let sections = TestLog::new(3, 100).start(10).checkpoint(0).sections(&Rules::default(), 5000);
    assert_eq!(sections.first_dirty.offset, Offset::new(10));
    assert_eq!(sections.first_dirty.reset, Some(Reset::BelowLogStart));
}

#[test]
fn cleaner_edge_105_log_of_the_active_segment_alone_has_nothing_to_clean() {
    let sections = TestLog::new(1, 100).start(2).checkpoint(0).sections(&Rules::default(), 5000);
    assert_eq!((sections.cleanable_bytes, sections.cleanable_ratio()), (0, 0.0));
    assert!(!sections.is_eligible(&Rules::default()));
    assert_eq!(offsets(&sections), (2, 2, 0));
}

#[test]
fn cleaner_edge_106_checkpoint_inside_the_active_segment_leaves_nothing_to_clean() {
    let sections = TestLog::new(1, 100).checkpoint(3).sections(&Rules::default(), 5000);
    assert_eq!((sections.clean_bytes, sections.cleanable_bytes), (100, 0));
    assert_eq!(sections.first_dirty.reset, None);
    let sections = TestLog::new(3, 100).checkpoint(25).sections(&Rules::default(), 5000);
    assert_eq!((sections.clean_bytes, sections.cleanable_bytes), (300, 0));
    assert_eq!(offsets(&sections), (25, 25, 20));
}

#[test]
fn cleaner_edge_107_last_stable_offset_ends_the_cleanable_section() {
    let sections = TestLog::new(8, 100).stable(50).sections(&Rules::default(), 5000);
    assert_eq!(offsets(&sections), (0, 50, 50));
    let inside = TestLog::new(8, 100).stable(47).sections(&Rules::default(), 5000);
    assert_eq!(offsets(&inside), (0, 47, 40));
    assert_eq!((inside.clean_bytes, inside.cleanable_bytes), (0, 400));
}

#[test]
fn cleaner_edge_108_active_segment_ends_the_cleanable_section() {
    let sections = TestLog::new(8, 100).sections(&Rules::default(), 5000);
    assert_eq!(offsets(&sections), (0, 70, 70));
}

#[test]
fn cleaner_edge_109_first_segment_younger_than_the_lag_ends_the_cleanable_section() {
    let log = TestLog::new(8, 100).times(3, HOUR + 1001);
    assert_eq!(offsets(&log.sections(&min_lag(HOUR), HOUR + 1001)), (0, 30, 30));
}

#[test]
fn cleaner_edge_110_old_data_is_cleanable_up_to_the_active_segment() {
    let log = TestLog::new(8, 100);
    assert_eq!(offsets(&log.sections(&min_lag(HOUR), HOUR + 1001)), (0, 70, 70));
    assert_eq!(offsets(&log.sections(&min_lag(HOUR), HOUR + 999)), (0, 0, 0));
}

#[test]
fn cleaner_edge_111_record_exactly_as_old_as_the_lag_is_cleanable() {
    let log = TestLog::new(3, 100);
    assert_eq!(offsets(&log.sections(&min_lag(500), 1500)), (0, 20, 20));
    assert_eq!(offsets(&log.sections(&min_lag(500), 1499)), (0, 0, 0));
}

#[test]
fn cleaner_edge_112_checkpoint_is_corrected_only_outside_the_log() {
    let reset = |start, checkpoint| {
        let log = TestLog::new(2, 100).start(start).checkpoint(checkpoint);
        log.sections(&Rules::default(), 5000).first_dirty.reset
    };
    assert_eq!(reset(10, 15), None);
    assert_eq!(reset(20, 15), Some(Reset::BelowLogStart));
    assert_eq!(reset(10, 25), Some(Reset::PastLogEnd));
    assert_eq!((reset(10, 10), reset(10, 20)), (None, None));
}

#[test]
fn cleaner_edge_115_open_transaction_keeps_everything_behind_it_from_being_cleaned() {
    let sections = TestLog::new(3, 100).stable(0).sections(&min_lag(HOUR), 2 * HOUR);
    assert_eq!(offsets(&sections), (0, 0, 0));
    assert_eq!(sections.cleanable_bytes, 0);
}

#[test]
fn cleaner_edge_116_decided_transaction_is_cleaned_as_old_as_its_segments_are() {
    let log = TestLog::new(3, 100).times(1, 2 * HOUR);
    assert_eq!(offsets(&log.sections(&min_lag(HOUR), 2 * HOUR + 5)), (0, 10, 10));
    assert_eq!(offsets(&log.sections(&min_lag(HOUR), 3 * HOUR)), (0, 20, 20));
}

#[test]
fn young_segment_before_the_first_dirty_offset_does_not_matter() {
    let log = TestLog::new(5, 100).times(0, 9000).times(2, 1000).checkpoint(20);
    assert_eq!(offsets(&log.sections(&min_lag(1000), 9500)), (20, 40, 40));
}

#[test]
fn segment_that_the_first_dirty_offset_divides_counts_twice() {
    let sections = TestLog::new(4, 100).checkpoint(15).sections(&Rules::default(), 5000);
    assert_eq!((sections.clean_bytes, sections.cleanable_bytes), (200, 200));
    assert_eq!((sections.total_bytes(), sections.cleanable_ratio()), (400, 0.5));
}

#[test]
fn log_without_bytes_has_ratio_zero() {
    let sections = TestLog::new(1, 0).sections(&Rules::default(), 5000);
    assert_eq!((sections.total_bytes(), sections.cleanable_ratio()), (0, 0.0));
}

#[test]
fn extreme_numbers_do_not_overflow() {
    let rules =
        Rules { min_compaction_lag_ms: i64::MAX, max_compaction_lag_ms: i64::MIN, ..Rules::default() };
    let log = TestLog::new(4, u64::MAX);
    let sections = log.sections(&rules, i64::MIN);
    assert_eq!(sections.compaction_delay_ms, 0);
    let sections = log.sections(&Rules { max_compaction_lag_ms: 0, ..Rules::default() }, i64::MAX);
    assert_eq!(sections.compaction_delay_ms, i64::MAX as u64 - 1000);
    assert_eq!(sections.total_bytes(), u64::MAX);
}

proptest! {
    /// The sums as the definitions give them, by looking at every segment.
    #[test]
    fn bytes_are_those_of_the_segments_in_the_section(
        sizes in proptest::collection::vec(0_u64..1000, 1..12),
        start in 0_i64..130,
        stable in 0_i64..130,
        checkpoint in proptest::option::of(0_i64..150),
        young in 0_usize..12,
    ) {
        let mut log = TestLog::new(sizes.len() as i64, 0).start(start.min(sizes.len() as i64 * 10)).stable(stable);
        log.checkpoint = checkpoint;
        let log = log.times(young.min(sizes.len()), 5000);
        let log = TestLog {
            segments: log.segments.iter().zip(&sizes).map(|(segment, &size)| {
                let mut segment = *segment;
                segment.size = size;
                segment
            }).collect(),
            ..log
        };
        let sections = log.sections(&min_lag(100), 5050);
        let (first_dirty, uncleanable_dirty, uncleanable) = offsets(&sections);
        let active = (sizes.len() as i64 - 1) * 10;

        prop_assert!(log.start <= first_dirty && first_dirty <= log.end.max(log.start));
        prop_assert!(first_dirty <= uncleanable_dirty && uncleanable <= uncleanable_dirty);
        prop_assert!(uncleanable <= active && uncleanable % 10 == 0);
        let mut clean = 0;
        let mut cleanable = 0;
        for (n, size) in sizes.iter().enumerate() {
            let base = n as i64 * 10;
            if base < first_dirty {
                clean += size;
            }
            if first_dirty < uncleanable && base < uncleanable && base + 10 > first_dirty {
                cleanable += size;
            }
        }
        prop_assert_eq!((sections.clean_bytes, sections.cleanable_bytes), (clean, cleanable));
    }
}
