//! Bound search in an ascending column, with Kafka's warm section.
//!
//! A plain binary search probes 1/2, 1/4, … of the file, and as the file grows those probes move to pages that nobody has
//! touched for long: a lookup near the tail then waits for the disk. So the last 8192 bytes of entries, at most three
//! pages that practically every lookup of a tail reader touches, are searched first and alone where the target lies in
//! them. The result is that of a plain search; only the probes differ.
//!
//! A column is a function from slot to key, so that a search loads no more than the keys that it compares. Keys ascend.
//! Where they do not (a damaged file), a slot below `entries` still comes out, which one is unspecified. Among equal
//! keys, the last is the lower bound.
//!
//! Source: Kafka `AbstractIndex.indexSlotRangeFor`, KAFKA-6432.

use std::hint::select_unpredictable;

/// Bytes at the end of the entries that every lookup near the tail touches.
const WARM_LEN: usize = 8192;

/// How many entries of `entry_len` bytes the warm section has, besides the one that begins it.
pub(crate) const fn warm_entries(entry_len: usize) -> usize {
    WARM_LEN / entry_len
}

/// The slot of the greatest key at or below `target`; `None` where there is none.
#[inline]
pub(crate) fn lower_bound<K: Ord + Copy>(
    entries: usize,
    warm: usize,
    target: K,
    key: impl Fn(usize) -> K,
) -> Option<usize> {
    let last = entries.checked_sub(1)?;
    let first_warm = last.saturating_sub(warm);
    if key(first_warm) <= target {
        return Some(last_at_or_below(first_warm, entries - first_warm, target, key));
    }
    if first_warm == 0 || key(0) > target {
        return None;
    }
    Some(last_at_or_below(0, first_warm, target, key))
}

/// The slot of the smallest key at or above `target`; `None` where there is none.
#[inline]
pub(crate) fn upper_bound<K: Ord + Copy>(
    entries: usize,
    warm: usize,
    target: K,
    key: impl Fn(usize) -> K,
) -> Option<usize> {
    match lower_bound(entries, warm, target, &key) {
        None => (entries > 0).then_some(0),
        Some(slot) if key(slot) == target => Some(slot),
        Some(slot) => (slot + 1 < entries).then_some(slot + 1),
    }
}

/// The last of the `count` slots from `first` whose key is at or below `target`, given that the key of `first` is.
///
/// The number of rounds depends on `count` alone and a round only selects, so no outcome has to be predicted.
#[inline]
fn last_at_or_below<K: Ord + Copy>(first: usize, count: usize, target: K, key: impl Fn(usize) -> K) -> usize {
    let mut slot = first;
    let mut left = count;
    while left > 1 {
        let half = left / 2;
        let middle = slot + half;
        slot = select_unpredictable(key(middle) <= target, middle, slot);
        left -= half;
    }
    slot
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// What the searches must find, by looking at every key.
    fn plain(keys: &[i64], target: i64) -> (Option<usize>, Option<usize>) {
        (keys.iter().rposition(|&key| key <= target), keys.iter().position(|&key| key >= target))
    }

    fn both(keys: &[i64], warm: usize, target: i64) -> (Option<usize>, Option<usize>) {
        let key = |slot: usize| keys[slot];
        (lower_bound(keys.len(), warm, target, key), upper_bound(keys.len(), warm, target, key))
    }

    #[test]
    fn warm_section_has_kafkas_sizes() {
        assert_eq!((warm_entries(8), warm_entries(12)), (1024, 682));
    }

    #[test]
    fn every_length_warm_size_and_target_agrees_with_a_plain_search() {
        for entries in 0..40_usize {
            let keys: Vec<i64> = (0..entries as i64).map(|slot| 10 + 3 * slot).collect();
            for warm in [0, 1, 2, 7, 39, 100] {
                for target in 8..(14 + 3 * entries as i64) {
                    assert_eq!(both(&keys, warm, target), plain(&keys, target), "{entries} {warm} {target}");
                }
            }
        }
    }

    #[test]
    fn target_in_the_warm_section_probes_nothing_before_it() {
        let probed = RefCell::new(Vec::new());
        let key = |slot: usize| {
            probed.borrow_mut().push(slot);
            slot as i64 * 2
        };
        let first_warm = 100_000 - 1 - 1024;
        for target in [first_warm as i64 * 2, 100_000 * 2, 199_000] {
            lower_bound(100_000, 1024, target, key);
        }
        assert!(probed.borrow().iter().all(|&slot| slot >= first_warm));
    }

    #[test]
    fn number_of_probes_is_logarithmic() {
        let probes = RefCell::new(0);
        let key = |slot: usize| {
            *probes.borrow_mut() += 1;
            slot as i64
        };
        assert_eq!(lower_bound(1 << 20, 1024, 77, key), Some(77));
        assert!(*probes.borrow() <= 22, "{probes:?}");
    }

    #[test]
    fn keys_out_of_order_still_give_a_slot_inside() {
        let keys = [5, 9, 0, 0, 0, 0, i64::MIN, i64::MAX, 0];
        for target in [i64::MIN, -1, 0, 5, 9, i64::MAX] {
            for warm in [0, 2, 20] {
                let (lower, upper) = both(&keys, warm, target);
                assert!(lower.is_none_or(|slot| slot < keys.len()));
                assert!(upper.is_none_or(|slot| slot < keys.len()));
            }
        }
    }
}
