//! Which of several logs is cleaned first.

use kseg_cleaner::{Rules, Sections, select};

use crate::{HOUR, TestLog, ratio};

/// Ten clean bytes a segment, `dirty` cleanable segments behind two clean ones.
fn log_with(dirty: i64) -> Sections {
    TestLog::new(2 + dirty + 1, 10).checkpoint(20).sections(&Rules::default(), 5000)
}

fn chosen(logs: &[Sections], rules: &Rules) -> Option<usize> {
    select(logs.iter().map(|log| (log, rules))).chosen
}

#[test]
fn cleaner_edge_99_dirtiest_log_is_chosen() {
    let logs = [log_with(0), log_with(1), log_with(2)];
    assert_eq!(chosen(&logs, &ratio(0.05)), Some(2));
    assert_eq!(chosen(&[logs[2], logs[1], logs[0]], &ratio(0.05)), Some(0));
}

#[test]
fn cleaner_edge_100_second_is_chosen_when_the_dirtiest_is_no_candidate() {
    assert_eq!(chosen(&[log_with(0), log_with(1)], &ratio(0.05)), Some(1));
}

#[test]
fn cleaner_edge_101_none_is_chosen_when_nothing_is_dirty_or_no_log_is_left() {
    assert_eq!(chosen(&[log_with(0)], &ratio(0.05)), None);
    assert_eq!(chosen(&[], &ratio(0.0)), None);
}

#[test]
fn cleaner_edge_113_checkpoint_is_corrected_without_anything_to_clean() {
    let log = TestLog::new(3, 10).start(20).checkpoint(15).sections(&ratio(0.0), 5000);
    assert_eq!(chosen(&[log], &ratio(0.0)), None);
    assert_eq!(log.first_dirty.offset.get(), 20);
    assert!(log.first_dirty.reset.is_some());
}

#[test]
fn cleaner_edge_114_checkpoint_of_a_log_that_is_not_chosen_is_corrected_too() {
    let a = TestLog::new(3, 10).start(15).checkpoint(10).sections(&ratio(0.0), 5000);
    let b = TestLog::new(9, 10).checkpoint(5).sections(&ratio(0.0), 5000);
    assert_eq!(chosen(&[a, b], &ratio(0.0)), Some(1));
    assert_eq!((a.first_dirty.offset.get(), a.first_dirty.reset.is_some()), (15, true));
}

#[test]
fn cleaner_edge_117_ratio_equal_to_the_least_one_is_not_enough() {
    let half = log_with(2);
    assert_eq!(half.cleanable_ratio(), 0.5);
    assert_eq!(chosen(&[half], &ratio(0.5)), None);
    assert_eq!(chosen(&[half], &ratio(0.499)), Some(0));
}

#[test]
fn cleaner_edge_118_ratio_1_is_only_ever_met_through_the_lag() {
    let rules = Rules {
        min_cleanable_dirty_ratio: 1.0,
        min_compaction_lag_ms: HOUR,
        max_compaction_lag_ms: 6 * HOUR,
    };
    // First block at 1000, second one at six hours and a bit.
    let log = TestLog::new(6, 10).times(3, 6 * HOUR + 1001);
    let at = |now| log.sections(&rules, now);
    assert_eq!(chosen(&[at(3 * HOUR)], &rules), None);
    let first = at(6 * HOUR + 1001);
    assert_eq!(chosen(&[first], &rules), Some(0));
    assert_eq!((first.compaction_delay_ms, first.first_uncleanable_offset.get()), (1, 30));
    let both = at(12 * HOUR + 1003);
    assert_eq!((chosen(&[both], &rules), both.first_uncleanable_offset.get()), (Some(0), 50));
}

#[test]
fn cleaner_edge_175_record_that_waited_too_long_makes_its_log_eligible() {
    let rules = Rules { min_cleanable_dirty_ratio: 1.0, max_compaction_lag_ms: 1000, ..Rules::default() };
    let log = TestLog::new(2, 10).times(0, 4000).sections(&rules, 10_000);
    let selection = select([(&log, &rules)]);
    assert_eq!(selection.chosen, Some(0));
    assert_eq!((selection.compaction_delay_ms_max, selection.delayed, selection.eligible), (5000, 1, 1));
}

#[test]
fn log_that_waited_too_long_does_not_come_before_a_dirtier_one() {
    let rules = Rules { max_compaction_lag_ms: 1000, ..ratio(0.6) };
    let late = TestLog::new(4, 10).checkpoint(20).sections(&rules, 10_000);
    let dirty = log_with(8);
    assert!(late.compaction_delay_ms > 0 && late.is_eligible(&rules));
    assert_eq!(chosen(&[late, dirty], &rules), Some(1));
}

#[test]
fn largest_ratio_is_told_also_when_no_log_is_eligible() {
    let logs = [log_with(1), log_with(2), log_with(0)];
    let rules = ratio(0.9);
    let selection = select(logs.iter().map(|log| (log, &rules)));
    assert_eq!((selection.chosen, selection.eligible), (None, 0));
    assert_eq!(selection.cleanable_ratio_max, 0.5);
}

#[test]
fn each_log_is_held_against_its_own_rules() {
    let log = log_with(2);
    let (strict, lax) = (ratio(0.8), ratio(0.1));
    assert_eq!(select([(&log, &strict), (&log, &lax), (&log, &lax)]).chosen, Some(1));
}
