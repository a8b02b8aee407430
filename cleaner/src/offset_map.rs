//! Which offset is the latest of each key: a hash table in a fixed budget of memory.
//!
//! A slot takes 24 bytes: a 128-bit hash of the key and the offset. Keys themselves are not kept, so two keys of one hash
//! would count as one; with 128 bits of a seeded hash the chance of that is below 2^-70, for a full map of two gigabytes.
//!
//! *Layout*: entries lie in the order of their hashes, with gaps. The home of a hash is its share of the table; an entry
//! lies at its home or next to it in an unbroken run of entries. So a search ends, found or not, after the few entries
//! between the home and the first greater hash: at nine tenths full five and a half on average, for keys that are there and
//! for keys that are not (a plain linear probe would look at fifty for the latter).
//!
//! *Growth*: the table begins small and is made larger as keys come, up to its budget, so that a round of few keys works in the
//! processor's caches. As entries lie in order, it grows in place: they go to the end of the larger table and from there, in one
//! sweep, to their new homes; no second table is needed beside it.
//!
//! Source: Kafka `OffsetMap`, `SkimpyOffsetMap`, which has MD5 and the same 24 bytes.

use std::fmt;

use kseg_format::Offset;
use twox_hash::XxHash3_128;

/// Bytes that an entry takes.
pub const SLOT_BYTES: usize = 24;

/// The hash, upper and lower half, and the offset plus 1: 0 where the slot is empty.
type Slot = [u64; 3];

const _: () = assert!(size_of::<Slot>() == SLOT_BYTES);

const EMPTY: Slot = [0; 3];

/// Latest offset by key, in a fixed budget.
///
/// ```
/// use kseg_cleaner::OffsetMap;
/// use kseg_format::Offset;
///
/// let mut map = OffsetMap::new(24 * 100);
/// map.put(b"key", Offset::new(3))?;
/// map.put(b"key", Offset::new(7))?;
/// assert_eq!(map.get(b"key"), Some(Offset::new(7)));
/// assert_eq!((map.len(), map.slots()), (1, 100));
/// # Ok::<(), kseg_cleaner::MapFull>(())
/// ```
pub struct OffsetMap {
    /// The table as it is now.
    slots: Vec<Slot>,
    /// How many slots it may have.
    slots_max: usize,
    len: usize,
    latest: Option<Offset>,
    seed: u64,
    hasher: Hasher,
}

/// A key's hash from a seed.
pub(crate) type Hasher = fn(u64, &[u8]) -> u128;

/// Slots of a new table.
const SLOTS_FIRST: usize = 1 << 12;
/// How much larger a table is made.
const GROWTH: usize = 4;

/// The map has no free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "there is nothing more to say")]
pub struct MapFull {
    /// How many slots it has.
    pub slots: usize,
}

impl fmt::Display for MapFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the offset map is full: expected fewer than {} keys", self.slots)
    }
}

impl std::error::Error for MapFull {}

impl OffsetMap {
    /// A map of as many slots as fit into `budget` bytes. Memory is taken from the system as slots come into use.
    pub fn new(budget: usize) -> OffsetMap {
        OffsetMap::with_seed(budget, seed())
    }

    /// A map whose hashes begin from `seed`, for results that are the same in every run.
    pub fn with_seed(budget: usize, seed: u64) -> OffsetMap {
        OffsetMap::with_hasher(budget, seed, hash_of)
    }

    /// A map with a hash of the caller's.
    pub(crate) fn with_hasher(budget: usize, seed: u64, hasher: Hasher) -> OffsetMap {
        let slots_max = budget / SLOT_BYTES;
        OffsetMap { slots: first_table(slots_max), slots_max, len: 0, latest: None, seed, hasher }
    }

    /// Whether the system gives the memory of a map of this budget: [`new`](Self::new) would panic or end the process.
    pub(crate) fn fits(budget: usize) -> bool {
        Vec::<Slot>::new().try_reserve_exact(budget / SLOT_BYTES).is_ok()
    }

    /// How many keys there is room for.
    pub fn slots(&self) -> usize {
        self.slots_max
    }

    /// How many keys it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keys over slots, 0 to 1.
    pub fn utilization(&self) -> f64 {
        if self.slots_max == 0 { 0.0 } else { self.len as f64 / self.slots_max as f64 }
    }

    /// Up to where the map speaks of the log: the last offset that was put, or what
    /// [`set_latest_offset`](Self::set_latest_offset) said after it.
    pub fn latest_offset(&self) -> Option<Offset> {
        self.latest
    }

    /// Sets the offset up to which the map speaks; a lower one than before is taken too.
    pub fn set_latest_offset(&mut self, offset: Offset) {
        self.latest = Some(offset);
    }

    /// Notes that `key` is at `offset`, in the place of what was noted before, whatever that was.
    ///
    /// # Errors
    /// [`MapFull`] where every slot is taken, also for a key that is there.
    #[inline]
    pub fn put(&mut self, key: &[u8], offset: Offset) -> Result<(), MapFull> {
        self.put_hash(self.hash(key), offset)
    }

    /// The offset noted for `key`.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<Offset> {
        self.get_hash(self.hash(key))
    }

    /// Drops all entries, and their memory.
    pub fn clear(&mut self) {
        if self.len > 0 {
            self.slots = first_table(self.slots_max);
            self.len = 0;
        }
        self.latest = None;
    }

    /// The hash of a key, as [`put_hash`](Self::put_hash) wants it.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let hash = (self.hasher)(self.seed, key);
        KeyHash((hash >> 64) as u64, hash as u64)
    }

    #[inline]
    fn home(&self, hash: KeyHash) -> usize {
        ((u128::from(hash.0) * self.slots.len() as u128) >> 64) as usize
    }

    #[inline]
    pub(crate) fn get_hash(&self, hash: KeyHash) -> Option<Offset> {
        if self.slots.is_empty() {
            return None;
        }
        match self.find(hash) {
            Found::At(at) => Some(offset_of(&self.slots[at])),
            Found::Between(_) => None,
        }
    }

    #[inline]
    pub(crate) fn put_hash(&mut self, hash: KeyHash, offset: Offset) -> Result<(), MapFull> {
        if self.len >= self.grow_from() {
            if self.len >= self.slots_max {
                return Err(MapFull { slots: self.slots_max });
            }
            self.grow();
        }
        let stored = (offset.get() as u64).wrapping_add(1);
        debug_assert!(offset >= Offset::ZERO);
        match self.find(hash) {
            Found::At(at) => self.slots[at][2] = stored,
            Found::Between(at) => {
                let at = self.make_room(at);
                self.slots[at] = [hash.0, hash.1, stored];
                self.len += 1;
            }
        }
        self.latest = Some(offset);
        Ok(())
    }

    /// With how many entries the table is to be made larger: at three quarters, or full where it may not grow.
    #[inline]
    fn grow_from(&self) -> usize {
        let slots = self.slots.len();
        if slots < self.slots_max { slots / 4 * 3 } else { slots }
    }

    /// Makes the table larger, if there is room.
    #[cold]
    fn grow(&mut self) {
        let before = self.slots.len();
        let after = self.slots_max.min(before.saturating_mul(GROWTH));
        if after <= before {
            return;
        }
        self.slots.reserve_exact(after - before);
        self.slots.resize(after, EMPTY);
        // To the end, in order, without gaps; what is moved leaves a free slot, and nothing moves down.
        let mut to = after;
        for from in (0..before).rev() {
            let slot = self.slots[from];
            if slot[2] != 0 {
                to -= 1;
                self.slots[from] = EMPTY;
                self.slots[to] = slot;
            }
        }
        // From there to their homes, or behind the one before; at the end of the table they stay.
        let mut free = 0;
        for from in to..after {
            let slot = self.slots[from];
            let home = self.home(KeyHash(slot[0], slot[1])).max(free).min(from);
            self.slots[from] = EMPTY;
            self.slots[home] = slot;
            free = home + 1;
        }
    }

    /// Where a hash is, or the first slot behind all smaller ones of its run.
    #[inline]
    fn find(&self, hash: KeyHash) -> Found {
        let mut at = self.home(hash);
        let slot = &self.slots[at];
        if slot[2] == 0 {
            return Found::Between(at);
        }
        let mut here = KeyHash(slot[0], slot[1]);
        if here < hash {
            loop {
                at += 1;
                let Some(slot) = self.slots.get(at).filter(|s| s[2] != 0) else { return Found::Between(at) };
                here = KeyHash(slot[0], slot[1]);
                if here >= hash {
                    break;
                }
            }
            return if here == hash { Found::At(at) } else { Found::Between(at) };
        }
        // Entries lie before their home only where the end of the table pushed them there, so this is one step.
        while here > hash {
            let Some(before) = at.checked_sub(1).filter(|&b| self.slots[b][2] != 0) else {
                return Found::Between(at);
            };
            here = KeyHash(self.slots[before][0], self.slots[before][1]);
            if here < hash {
                return Found::Between(at);
            }
            at = before;
        }
        Found::At(at)
    }

    /// Frees a slot for an entry that belongs in front of the one at `at`, and returns it; there is a free slot somewhere.
    #[inline]
    fn make_room(&mut self, at: usize) -> usize {
        if self.slots.get(at).is_some_and(|s| s[2] == 0) {
            return at;
        }
        if let Some(free) = self.slots[at..].iter().position(|s| s[2] == 0) {
            self.slots.copy_within(at..at + free, at + 1);
            return at;
        }
        let free = self.slots[..at].iter().rposition(|s| s[2] == 0).unwrap_or(0);
        self.slots.copy_within(free + 1..at, free);
        at - 1
    }
}

impl fmt::Debug for OffsetMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffsetMap")
            .field("slots", &self.slots.len())
            .field("len", &self.len)
            .field("latest", &self.latest)
            .finish_non_exhaustive()
    }
}

fn first_table(slots_max: usize) -> Vec<Slot> {
    vec![EMPTY; slots_max.min(SLOTS_FIRST)]
}

/// A key's hash, compared as one number of 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyHash(u64, u64);

enum Found {
    At(usize),
    Between(usize),
}

#[inline]
fn offset_of(slot: &Slot) -> Offset {
    Offset::new(slot[2].wrapping_sub(1) as i64)
}

fn hash_of(seed: u64, key: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(seed, key)
}

/// A number that nobody foresees, so that nobody can choose keys whose hashes are alike: std seeds its hashers with one.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn key(n: u64) -> [u8; 8] {
        n.to_be_bytes()
    }

    #[test]
    fn cleaner_edge_028_every_key_gives_its_offset() {
        for items in [10, 100, 1000, 5000_u64] {
            let mut map = OffsetMap::new(items as usize * 48);
            for n in 0..items {
                map.put(&key(n), Offset::new(n as i64)).unwrap();
            }
            for n in 0..items {
                assert_eq!(map.get(&key(n)), Some(Offset::new(n as i64)));
            }
            assert_eq!(map.get(&key(items)), None);
        }
    }

    #[test]
    fn cleaner_edge_029_nothing_is_left_after_clearing() {
        let mut map = OffsetMap::new(4000);
        for n in 0..10 {
            map.put(&key(n), Offset::new(n as i64)).unwrap();
        }
        map.clear();
        assert!((0..10).all(|n| map.get(&key(n)).is_none()));
        assert_eq!((map.len(), map.latest_offset()), (0, None));
    }

    #[test]
    fn cleaner_edge_030_to_033_a_full_map_answers_and_takes_nothing_more() {
        for seed in 0..50 {
            let mut map = OffsetMap::with_seed(4096, seed);
            assert_eq!((map.slots(), map.utilization()), (170, 0.0));
            for n in 0..170_u64 {
                map.put(&key(n), Offset::new(n as i64)).unwrap();
                assert_eq!(map.utilization(), (n + 1) as f64 / 170.0);
                assert_eq!(map.latest_offset(), Some(Offset::new(n as i64)));
            }
            assert_eq!(map.get(&key(1000)), None);
            assert_eq!(map.put(&key(3), Offset::new(500)), Err(MapFull { slots: 170 }));
            assert_eq!(map.put(&key(1000), Offset::new(500)), Err(MapFull { slots: 170 }));
            map.set_latest_offset(Offset::new(40));
            assert_eq!(map.latest_offset(), Some(Offset::new(40)));
            assert!((0..170).all(|n| map.get(&key(n)) == Some(Offset::new(n as i64))));
        }
    }

    #[test]
    fn a_budget_below_one_slot_holds_nothing() {
        let mut map = OffsetMap::new(23);
        assert_eq!((map.slots(), map.get(b"k")), (0, None));
        assert!(map.put(b"k", Offset::ZERO).is_err());
    }

    /// Hashes chosen by hand, so that runs meet both ends of the table.
    #[test]
    fn entries_pushed_back_by_the_end_of_the_table_are_found() {
        let mut map = OffsetMap::with_seed(24 * 4, 0);
        let hashes = [u64::MAX - 2, u64::MAX, 0, u64::MAX - 1];
        for (n, &high) in hashes.iter().enumerate() {
            map.put_hash(KeyHash(high, 9), Offset::new(n as i64)).unwrap();
            for (m, &high) in hashes[..=n].iter().enumerate() {
                assert_eq!(map.get_hash(KeyHash(high, 9)), Some(Offset::new(m as i64)));
                assert_eq!(map.get_hash(KeyHash(high, 8)), None);
            }
        }
    }

    #[test]
    fn a_table_that_grows_holds_what_it_held() {
        for (slots, keys) in [(5000, 4500), (16_384, 16_384), (100_000, 90_000), (70_000, 70_000)] {
            let mut map = OffsetMap::with_seed(24 * slots, 11);
            let mut tables = vec![map.slots.len()];
            for n in 0..keys as u64 {
                map.put(&key(n), Offset::new(n as i64)).unwrap();
                if map.slots.len() != tables[tables.len() - 1] {
                    tables.push(map.slots.len());
                    assert!((0..=n).all(|n| map.get(&key(n)) == Some(Offset::new(n as i64))), "{n}");
                    assert!((n + 1..n + 2000).all(|n| map.get(&key(n)).is_none()), "{n}");
                }
            }
            assert!(tables.len() > 1 && tables.last() == Some(&slots), "{tables:?}");
            assert!((0..keys as u64).all(|n| map.get(&key(n)) == Some(Offset::new(n as i64))));
            map.clear();
            assert_eq!((map.slots.len(), map.slots()), (SLOTS_FIRST, slots));
        }
    }

    /// All entries at one end of the table, which pushes them back.
    #[test]
    fn entries_at_the_end_of_a_table_that_grows_are_found() {
        let mut map = OffsetMap::with_seed(24 * 5 * SLOTS_FIRST, 0);
        let hash = |n: u64| KeyHash(u64::MAX - n / 3, n);
        for n in 0..SLOTS_FIRST as u64 + 100 {
            map.put_hash(hash(n), Offset::new(n as i64)).unwrap();
        }
        assert!((0..SLOTS_FIRST as u64 + 100).all(|n| map.get_hash(hash(n)) == Some(Offset::new(n as i64))));
        assert_eq!(map.get_hash(KeyHash(u64::MAX - 5, 1)), None);
    }

    #[test]
    fn a_search_looks_at_few_entries_at_nine_tenths() {
        let mut map = OffsetMap::with_seed(24 * 10_000, 7);
        for n in 0..9000 {
            map.put(&key(n), Offset::new(n as i64)).unwrap();
        }
        let moved = |n: u64| {
            let hash = map.hash(&key(n));
            match map.find(hash) {
                Found::At(at) | Found::Between(at) => at.abs_diff(map.home(hash)),
            }
        };
        let (there, absent): (usize, usize) = ((0..9000).map(moved).sum(), (9000..18_000).map(moved).sum());
        assert!(there < 9000 * 10 && absent < 9000 * 10, "{there} {absent}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_is_a_map(slots in 1_usize..40, seed: u64, puts in prop::collection::vec((0_u64..60, 0_i64..1000), 0..120)) {
            let mut map = OffsetMap::with_seed(slots * SLOT_BYTES, seed);
            let mut model = HashMap::new();
            for (n, offset) in puts {
                let room = model.len() < slots;
                prop_assert_eq!(map.put(&key(n), Offset::new(offset)).is_ok(), room);
                if room {
                    model.insert(n, offset);
                }
                prop_assert_eq!(map.len(), model.len());
                for n in 0..60 {
                    prop_assert_eq!(map.get(&key(n)), model.get(&n).map(|&o| Offset::new(o)));
                }
            }
        }
    }
}
