use proptest::prelude::*;

use super::*;

type Pair = (i32, i64);

fn epoch(raw: i32) -> LeaderEpoch {
    LeaderEpoch::new(raw)
}

fn offset(raw: i64) -> Offset {
    Offset::new(raw)
}

/// A cache of entries that are right as they stand.
fn cache(entries: &[Pair]) -> LeaderEpochCache {
    let cache = assigned(entries);
    assert_eq!(pairs(&cache), entries);
    cache
}

fn assigned(entries: &[Pair]) -> LeaderEpochCache {
    LeaderEpochCache::from_entries(
        entries.iter().map(|&(e, o)| EpochEntry { epoch: epoch(e), start_offset: offset(o) }),
    )
    .unwrap()
}

fn pairs(cache: &LeaderEpochCache) -> Vec<Pair> {
    cache.entries().iter().map(|entry| (entry.epoch.get(), entry.start_offset.get())).collect()
}

fn end(cache: &LeaderEpochCache, of: i32, log_end: i64) -> (i32, i64) {
    cache
        .end_offset_for(epoch(of), offset(log_end))
        .map_or((-1, -1), |end| (end.epoch.get(), end.end_offset.get()))
}

fn raw(entry: Option<EpochEntry>) -> Option<i32> {
    entry.map(|entry| entry.epoch.get())
}

const BACKGROUND: EpochChange = EpochChange { changed: true, write: FileWrite::Background };

#[test]
fn log_edge_156_epochs_follow_the_first_segment() {
    let mut epochs = cache(&[(0, 0), (1, 7), (2, 10)]);
    assert_eq!(epochs.truncate_from_start(offset(5)), BACKGROUND);
    assert_eq!(pairs(&epochs), [(0, 5), (1, 7), (2, 10)]);
    let mut epochs = cache(&[(0, 0), (1, 5), (2, 10)]);
    assert_eq!(epochs.truncate_from_start(offset(5)), BACKGROUND);
    assert_eq!(pairs(&epochs), [(1, 5), (2, 10)]);
}

#[test]
fn log_edge_157_epochs_follow_a_truncation() {
    let mut epochs = cache(&[(0, 0), (1, 10), (2, 16)]);
    for (to, left) in [(20, 3), (11, 2), (10, 1), (0, 0)] {
        let _ = epochs.truncate_from_end(offset(to));
        assert_eq!(epochs.entries().len(), left, "truncated to {to}");
    }
}

#[test]
fn format_edge_122_truncation_from_both_ends() {
    let all = [(2, 6), (3, 8), (4, 11)];
    for (at, left) in [
        (1, &all[..]),
        (6, &all),
        (8, &[(3, 8), (4, 11)]),
        (9, &[(3, 9), (4, 11)]),
        (11, &[(4, 11)]),
        (15, &[(4, 15)]),
        (-1, &all),
    ] {
        let mut epochs = cache(&all);
        assert_eq!(epochs.truncate_from_start(offset(at)).changed, left != all, "from start {at}");
        assert_eq!(pairs(&epochs), left, "from start {at}");
    }
    for (at, left) in [(8, &[(2, 6)][..]), (9, &[(2, 6), (3, 8)]), (-1, &all), (12, &all)] {
        let mut epochs = cache(&all);
        assert_eq!(epochs.truncate_from_end(offset(at)).changed, left != all, "from end {at}");
        assert_eq!(pairs(&epochs), left, "from end {at}");
    }
}

#[test]
fn format_edge_123_assignments_stay_monotonic() {
    assert_eq!(pairs(&assigned(&[(2, 6), (2, 10)])), [(2, 6)]);
    assert_eq!(pairs(&assigned(&[(2, 9), (3, 9)])), [(3, 9)]);
    assert_eq!(pairs(&assigned(&[(2, 6), (3, 5)])), [(3, 5)]);
    assert_eq!(pairs(&assigned(&[(1, 5), (2, 6), (1, 7)])), [(1, 7)]);
    assert_eq!(pairs(&assigned(&[(5, 11), (6, 12), (7, 13), (7, 12)])), [(5, 11), (7, 12)]);
}

#[test]
fn format_edge_124_where_epochs_end() {
    let epochs = cache(&[(0, 10), (2, 13), (4, 17)]);
    assert_eq!(end(&epochs, 1, 99), (0, 13));
    assert_eq!(end(&epochs, 2, 99), (2, 17));
    assert_eq!(end(&epochs, 3, 99), (2, 17));
    assert_eq!(end(&epochs, 4, 99), (4, 99));
    assert_eq!(end(&epochs, 5, 99), (-1, -1));
    assert_eq!(end(&epochs, -1, 99), (-1, -1));
    assert_eq!(end(&cache(&[(5, 11), (6, 12)]), 4, 99), (4, 11));
    assert_eq!(end(&LeaderEpochCache::new(), 0, 99), (-1, -1));
}

#[test]
fn format_edge_202_the_epoch_before_another() {
    let mut epochs = cache(&[(2, 10), (4, 15), (10, 20)]);
    assert_eq!(raw(epochs.previous(epoch(10))), Some(4));
    assert_eq!(raw(epochs.previous(epoch(4))), Some(2));
    assert_eq!(raw(epochs.previous(epoch(2))), None);
    assert_eq!(epochs.previous(epoch(10)).map(|entry| entry.start_offset), Some(offset(15)));
    let _ = epochs.truncate_from_end(offset(18));
    let latest = epochs.latest().unwrap().epoch;
    assert_eq!(raw(epochs.previous(latest)), Some(2));
    assert_eq!(raw(LeaderEpochCache::new().previous(epoch(1))), None);
    assert_eq!(raw(cache(&[(2, 10)]).previous(epoch(2))), None);
}

#[test]
fn format_edge_203_the_epoch_behind_another() {
    let epochs = cache(&[(0, 0), (1, 100), (2, 200)]);
    let next = |of| raw(epochs.next(epoch(of)));
    assert_eq!([next(-1), next(0), next(1), next(2), next(100)], [Some(0), Some(1), Some(2), None, None]);
    let epochs = cache(&[(2, 100), (3, 500), (5, 1000)]);
    assert_eq!(epochs.entry(epoch(3)), Some(EpochEntry { epoch: epoch(3), start_offset: offset(500) }));
    assert_eq!(epochs.entry(epoch(4)), None);
}

#[test]
fn format_edge_204_the_epoch_of_an_offset() {
    let epochs = cache(&[(0, 10), (1, 20), (5, 30)]);
    let of = |at| epochs.epoch_for_offset(offset(at)).map(LeaderEpoch::get);
    assert_eq!([of(25), of(20), of(30), of(50), of(5)], [Some(1), Some(1), Some(5), Some(5), None]);
}

#[test]
fn format_edge_205_leaders_that_wrote_nothing() {
    let mut epochs = assigned(&[(0, 0), (1, 0)]);
    assert_eq!((end(&epochs, 1, 0), end(&epochs, 0, 0)), ((1, 0), (0, 0)));
    assert_eq!((end(&epochs, 1, 5), end(&epochs, 0, 5)), ((1, 5), (0, 0)));
    let _ = epochs.assign(epoch(2), offset(5)).unwrap();
    assert_eq!((end(&epochs, 2, 10), end(&epochs, 1, 10), end(&epochs, 0, 10)), ((2, 10), (1, 5), (0, 0)));
}

#[test]
fn format_edge_206_epochs_assigned_record_by_record() {
    let epochs = assigned(&[(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5), (2, 6), (2, 7), (2, 8)]);
    assert_eq!(pairs(&epochs), [(0, 0), (1, 3), (2, 6)]);
    assert_eq!((end(&epochs, 0, 9), end(&epochs, 1, 9), end(&epochs, 2, 9)), ((0, 3), (1, 6), (2, 9)));
}

#[test]
fn format_edge_207_an_empty_cache_bears_everything() {
    let mut epochs = LeaderEpochCache::new();
    assert_eq!(epochs.truncate_from_start(offset(7)), EpochChange::NONE);
    assert_eq!(epochs.truncate_from_end(offset(7)), EpochChange::NONE);
    assert_eq!((epochs.latest(), epochs.earliest()), (None, None));
    let mut epochs = cache(&[(2, 6), (3, 8), (4, 11)]);
    assert_eq!(epochs.clear_and_flush(), EpochChange { changed: true, write: FileWrite::Now });
    assert_eq!(epochs.latest(), None);
    assert_eq!(epochs.clear_and_flush(), EpochChange { changed: false, write: FileWrite::Now });
}

#[test]
fn format_edge_208_both_truncations_leave_the_middle() {
    let mut epochs = cache(&[(2, 6), (3, 8), (4, 11)]);
    assert_eq!(epochs.truncate_from_end(offset(11)), BACKGROUND);
    assert_eq!(epochs.truncate_from_start(offset(8)), BACKGROUND);
    assert_eq!(pairs(&epochs), [(3, 8)]);
}

#[test]
fn an_assignment_is_written_at_once_and_a_known_one_not_at_all() {
    let mut epochs = LeaderEpochCache::new();
    let now = EpochChange { changed: true, write: FileWrite::Now };
    assert_eq!(epochs.assign(epoch(2), offset(6)), Ok(now));
    assert_eq!(epochs.assign(epoch(2), offset(9)), Ok(EpochChange::NONE));
    assert_eq!(epochs.assign(epoch(2), offset(5)), Ok(now));
    let before = epochs.clone();
    for (e, o) in [(-1, 7), (3, -1)] {
        let error = epochs.assign(epoch(e), offset(o)).unwrap_err();
        assert_eq!(error.kafka_name(), "IllegalArgumentException");
    }
    assert_eq!(epochs, before);
    assert_eq!(epochs.clear(), EpochChange { changed: true, write: FileWrite::None });
    assert!(epochs.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn entries_always_ascend_in_both(
        steps in prop::collection::vec((0..4u8, -1..9i32, -1..20i64), 0..30),
    ) {
        let mut epochs = LeaderEpochCache::new();
        for (step, e, o) in steps {
            let before = epochs.clone();
            let change = match step {
                0 => epochs.truncate_from_end(offset(o)),
                1 => epochs.truncate_from_start(offset(o)),
                _ => epochs.assign(epoch(e), offset(o)).unwrap_or(EpochChange::NONE),
            };
            prop_assert_eq!(change.changed, before != epochs);
            prop_assert_eq!(change.write != FileWrite::None, change.changed, "the file is as the cache was");
            let ascend = epochs
                .entries()
                .windows(2)
                .all(|pair| pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset);
            prop_assert!(ascend, "{:?}", epochs);
        }
    }
}
