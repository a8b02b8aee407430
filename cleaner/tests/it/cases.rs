//! Faults that were reported against cleaners, as far as they lie in the decision what to clean.

use kseg_cleaner::{LogFacts, Reset, Rules, Sections, SegmentFacts, select};
use kseg_format::{Offset, Timestamp};

use crate::{TestLog, min_lag, ratio};

/// A log with one sealed clean segment and one sealed dirty one of these sizes; the active one is empty.
fn two_segments(clean: u64, dirty: u64, dirty_since: i64, rules: &Rules, now: i64) -> Sections {
    let segment = |base, size, time| SegmentFacts {
        base_offset: Offset::new(base),
        size,
        largest_timestamp: Timestamp::new(time),
        first_batch_timestamp: Some(Timestamp::new(time)),
    };
    let log = LogFacts {
        sealed: &[segment(0, clean, 1), segment(10, dirty, dirty_since)],
        active_base_offset: Offset::new(20),
        active_size: 0,
        log_start_offset: Offset::ZERO,
        log_end_offset: Offset::new(20),
        last_stable_offset: Offset::new(20),
        checkpoint: Some(Offset::new(10)),
    };
    Sections::of(&log, rules, Timestamp::new(now))
}

fn is_selected(log: &Sections, rules: &Rules) -> bool {
    select([(log, rules)]).chosen == Some(0)
}

#[test]
fn cln_08_checkpoint_that_does_not_fit_the_log_is_replaced_by_the_log_start() {
    let first_dirty = |checkpoint: Option<i64>| {
        let mut log = TestLog::new(10, 100).start(10);
        log.checkpoint = checkpoint;
        log.sections(&Rules::default(), 5000).first_dirty
    };
    for (checkpoint, reset) in
        [(Some(5), Some(Reset::BelowLogStart)), (Some(500), Some(Reset::PastLogEnd)), (None, None)]
    {
        let found = first_dirty(checkpoint);
        assert_eq!((found.offset, found.reset), (Offset::new(10), reset));
    }
}

#[test]
fn cln_09_ratio_of_large_sizes_is_exact() {
    let log = two_segments(3_221_225_472, 3_221_225_472, 1, &Rules::default(), 5000);
    assert_eq!(log.cleanable_ratio(), 0.5);
    assert!(is_selected(&log, &ratio(0.49)));
    assert!(!is_selected(&log, &ratio(0.5)));
}

#[test]
fn cln_14_log_with_duplicates_is_not_selected_before_its_time() {
    let all_active = TestLog::new(1, 100_000).sections(&ratio(0.0), 5000);
    assert!(!is_selected(&all_active, &ratio(0.0)));

    let rules = ratio(0.5);
    assert!(!is_selected(&two_segments(1000, 1000, 1, &rules, 5000), &rules));
    assert!(is_selected(&two_segments(1000, 1001, 1, &rules, 5000), &rules));

    let lag = min_lag(1000);
    let young = TestLog::new(2, 100).times(0, 4001);
    assert!(!is_selected(&young.sections(&lag, 5000), &lag));
    assert!(is_selected(&young.sections(&lag, 5001), &lag));
}

#[test]
fn cln_15_slow_log_is_selected_once_a_record_has_waited_too_long() {
    let rules = Rules { max_compaction_lag_ms: 1000, ..ratio(0.9) };
    let now = 1_000_000;
    assert!(is_selected(&two_segments(10_000, 100, now - 1001, &rules, now), &rules));
    assert!(!is_selected(&two_segments(10_000, 100, now - 1000, &rules, now), &rules));
}
