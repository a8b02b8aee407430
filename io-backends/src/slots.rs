//! [`SlotTable`]: the operations in flight of an engine whose completions come later.

use std::fmt;

use crate::sync::Mutex;

/// Bits of a key that tell the place; the others are a generation.
const PLACE_BITS: u32 = 24;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;

/// Owns what the kernel, or another thread, may still use: an operation's buffers go in when it is submitted and come
/// out when its completion was seen, once, and at no other time.
///
/// A key is a place and a generation: a completion that comes late, or twice, does not reach the operation that has
/// taken the place meanwhile. The table never holds more operations than its capacity, so that there is room for all
/// completions. What is in it when it is dropped is dropped: see [`SlotTable::drain`].
///
/// ```
/// use kseg_io_backends::SlotTable;
///
/// let flying = SlotTable::new(1);
/// let key = flying.insert(b"owned until then".to_vec()).unwrap();
/// assert_eq!(flying.insert(Vec::new()), Err(Vec::new()), "there is room for one");
/// assert_eq!(flying.complete(key).unwrap(), b"owned until then");
/// assert_eq!(flying.complete(key), None, "it completes once");
/// ```
pub struct SlotTable<T> {
    capacity: usize,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    flying: usize,
}

struct Slot<T> {
    generation: u64,
    operation: Option<T>,
}

impl<T> SlotTable<T> {
    /// A table for at most `capacity` operations at a time; no more than 2^24.
    pub fn new(capacity: usize) -> Self {
        let inner = Inner { slots: Vec::new(), free: Vec::new(), flying: 0 };
        Self { capacity: capacity.min(1 << PLACE_BITS), inner: Mutex::new(inner) }
    }

    /// Takes an operation in, and returns the key under which it completes; gives it back where the table is full.
    pub fn insert(&self, operation: T) -> Result<u64, T> {
        let mut inner = self.inner.lock();
        if inner.flying == self.capacity {
            return Err(operation);
        }
        inner.flying += 1;
        let place = inner.free.pop().unwrap_or_else(|| {
            inner.slots.push(Slot { generation: 0, operation: None });
            inner.slots.len() - 1
        });
        let slot = &mut inner.slots[place];
        slot.operation = Some(operation);
        Ok(slot.key(place))
    }

    /// Gives out the operation with this key, whose completion was seen. None for one that completed before.
    pub fn complete(&self, key: u64) -> Option<T> {
        self.inner.lock().complete(key)
    }

    /// As [`complete`](Self::complete), but its place stays taken: by [`again`](Self::again) it goes back there, by
    /// [`release`](Self::release) the place is free. So an operation that takes several calls never has to wait between them
    /// for room that others have filled.
    pub fn land(&self, key: u64) -> Option<T> {
        self.inner.lock().land(key)
    }

    /// Takes an operation that [`land`](Self::land) gave out under `key` back into its place, and returns its next key.
    pub fn again(&self, key: u64, operation: T) -> u64 {
        let mut inner = self.inner.lock();
        let place = (key & PLACE_MASK) as usize;
        let slot = &mut inner.slots[place];
        debug_assert!(slot.operation.is_none());
        slot.operation = Some(operation);
        slot.key(place)
    }

    /// Gives the place back of what [`land`](Self::land) gave out under `key`.
    pub fn release(&self, key: u64) {
        self.inner.lock().release(key);
    }

    /// Operations in flight.
    pub fn len(&self) -> usize {
        self.inner.lock().flying
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives out all operations though their completions were not seen, and which then come too late: for an engine that
    /// has broken down. What the kernel may still use of them must be leaked, not dropped.
    pub fn drain(&self) -> Vec<T> {
        let mut inner = self.inner.lock();
        let keys: Vec<u64> = inner.slots.iter().enumerate().map(|(place, slot)| slot.key(place)).collect();
        keys.into_iter().filter_map(|key| inner.complete(key)).collect()
    }
}

impl<T> Inner<T> {
    fn complete(&mut self, key: u64) -> Option<T> {
        let operation = self.land(key)?;
        self.release(key);
        Some(operation)
    }

    fn land(&mut self, key: u64) -> Option<T> {
        let place = (key & PLACE_MASK) as usize;
        let slot = self.slots.get_mut(place)?;
        if slot.key(place) != key {
            return None;
        }
        let operation = slot.operation.take()?;
        slot.generation = (slot.generation + 1) & (u64::MAX >> PLACE_BITS);
        Some(operation)
    }

    fn release(&mut self, key: u64) {
        self.free.push((key & PLACE_MASK) as usize);
        self.flying -= 1;
    }
}

impl<T> Slot<T> {
    fn key(&self, place: usize) -> u64 {
        self.generation << PLACE_BITS | place as u64
    }
}

impl<T> fmt::Debug for SlotTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotTable").field("flying", &self.len()).field("capacity", &self.capacity).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_late_completion_does_not_reach_who_took_the_place() {
        let table = SlotTable::new(2);
        let first = table.insert(1).unwrap();
        assert_eq!(table.complete(first), Some(1));
        let second = table.insert(2).unwrap();
        assert_eq!(first & PLACE_MASK, second & PLACE_MASK, "the place is used again");
        assert_eq!(table.complete(first), None);
        assert_eq!(table.complete(u64::MAX), None);
        assert_eq!((table.len(), table.complete(second)), (1, Some(2)));
        assert!(table.is_empty());
    }

    #[test]
    fn what_goes_on_keeps_its_place_though_the_table_is_full() {
        let table = SlotTable::new(1);
        let first = table.insert(1).unwrap();
        assert_eq!(table.land(first), Some(1));
        assert_eq!((table.land(first), table.insert(2)), (None, Err(2)), "the place is kept");
        let second = table.again(first, 3);
        assert_ne!(first, second);
        assert_eq!((table.complete(first), table.land(second)), (None, Some(3)));
        table.release(second);
        assert!(table.is_empty());
        table.insert(4).unwrap();
    }

    #[test]
    fn a_full_table_gives_the_operation_back_and_a_drain_gives_all() {
        let table = SlotTable::new(3);
        let keys: Vec<u64> = (0..3).map(|number| table.insert(number).unwrap()).collect();
        assert_eq!(table.insert(3), Err(3));
        assert_eq!(table.complete(keys[1]), Some(1));
        table.insert(4).unwrap();
        let mut rest = table.drain();
        rest.sort_unstable();
        assert_eq!(rest, [0, 2, 4]);
        assert!(table.is_empty() && table.complete(keys[0]).is_none());
    }
}
