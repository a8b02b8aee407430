//! [`AlignedBuf`]: memory at addresses that O_DIRECT takes, and the [`Pool`] it returns to.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, LazyLock};

use crate::sync::real::Mutex;

/// Of addresses and of sizes: what every device is content with.
pub(crate) const ALIGN: usize = 4096;
/// Memory that a pool keeps for later, at most, in bytes.
const KEPT_MAX: usize = 8 << 20;

/// Memory that is owned alone; zero when it was made, and whatever it was left as afterwards.
pub(crate) struct AlignedBuf {
    start: NonNull<u8>,
    /// A power of two, at least [`ALIGN`].
    capacity: usize,
    len: usize,
    home: Option<Arc<Pool>>,
    /// It lies in the arena.
    lent: bool,
}

// SAFETY: it owns its memory alone, as a box does.
unsafe impl Send for AlignedBuf {}
// SAFETY: through a shared reference the memory is only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGN).expect("a power of two below the limit")
    }

    fn zeroed(capacity: usize) -> Self {
        let layout = Self::layout(capacity);
        // SAFETY: the layout has a size, at least ALIGN.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, capacity, len: 0, home: None, lent: false }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` bytes were allocated and initialised, with zeros at first, and are owned.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and nobody else has a reference.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            let (start, capacity, lent) = (self.start, self.capacity, self.lent);
            let kept = AlignedBuf { start, capacity, len: 0, home: None, lent };
            // Its own drop frees what the pool does not keep.
            home.keep(kept);
        } else if self.lent {
            ARENA.give_back(self.start);
        } else {
            // SAFETY: allocated with this layout; `home` was empty, so nobody else has taken it over.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
        }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

/// One piece of memory for buffers of one size, which is never given back to the system: what is registered with a ring must
/// stay where it is for as long as any ring may use it.
struct Arena {
    start: Option<NonNull<u8>>,
    free: Mutex<Vec<usize>>,
}

// SAFETY: the memory is only reached through buffers, each of which owns its part alone.
unsafe impl Send for Arena {}
// SAFETY: as above; what is shared is the list of free parts, behind its lock.
unsafe impl Sync for Arena {}

/// Bytes of a buffer in the arena, and how many there are: as much as an unprivileged process may lock by default is twice that.
const LENT: usize = 128 << 10;
const LENT_MAX: usize = 32;

static ARENA: LazyLock<Arena> = LazyLock::new(|| {
    let layout = AlignedBuf::layout(LENT * LENT_MAX);
    // SAFETY: the layout has a size.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) });
    let free = if start.is_some() { (0..LENT_MAX).rev().collect() } else { Vec::new() };
    Arena { start, free: Mutex::new(free) }
});

impl Arena {
    fn lend(&self) -> Option<AlignedBuf> {
        let start = self.start?;
        let place = self.free.lock().pop()?;
        // SAFETY: the place is one of LENT_MAX inside the memory.
        let start = unsafe { start.add(place * LENT) };
        Some(AlignedBuf { start, capacity: LENT, len: 0, home: None, lent: true })
    }

    fn give_back(&self, part: NonNull<u8>) {
        if let Some(start) = self.start {
            self.free.lock().push((part.as_ptr() as usize - start.as_ptr() as usize) / LENT);
        }
    }
}

/// The memory that buffers of the usual size of a write lie in, and its length: it stays for as long as the process lives.
pub(crate) fn arena() -> Option<(*mut u8, usize)> {
    ARENA.start.map(|start| (start.as_ptr(), LENT * LENT_MAX))
}

/// Whether `len` bytes at `start` lie in the arena.
pub(crate) fn is_in_arena(start: *const u8, len: usize) -> bool {
    let Some((arena, size)) = arena() else { return false };
    let at = (start as usize).wrapping_sub(arena as usize);
    at < size && len <= size - at
}

/// Buffers that were used and will be again.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    kept: Mutex<Vec<AlignedBuf>>,
}

impl Pool {
    /// A buffer of `len` bytes, whose contents are anything.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> AlignedBuf {
        let capacity = len.max(ALIGN).next_power_of_two();
        let known = {
            let mut kept = self.kept.lock();
            let place = kept.iter().rposition(|buf| buf.capacity == capacity);
            place.map(|place| kept.swap_remove(place))
        };
        let lent = || if capacity == LENT { ARENA.lend() } else { None };
        let mut buf = known.or_else(lent).unwrap_or_else(|| AlignedBuf::zeroed(capacity));
        buf.len = len;
        buf.home = Some(Arc::clone(self));
        buf
    }

    fn keep(&self, buf: AlignedBuf) {
        if buf.lent {
            // For whoever needs one next, in whatever pool.
            return;
        }
        let mut kept = self.kept.lock();
        let bytes: usize = kept.iter().map(|buf| buf.capacity).sum();
        if bytes + buf.capacity <= KEPT_MAX {
            kept.push(buf);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_sized_as_asked_and_used_again() {
        let pool = Arc::new(Pool::default());
        for len in [0, 1, 4096, 4097, 131_072] {
            let mut buf = pool.take(len);
            assert_eq!((buf.len(), buf.as_ptr() as usize % ALIGN), (len, 0));
            buf.fill(7);
            let place = buf.as_ptr();
            drop(buf);
            assert_eq!(pool.take(len).as_ptr(), place);
        }
    }

    #[test]
    fn buffers_of_the_arena_are_apart_and_go_round() {
        let pool = Arc::new(Pool::default());
        let take = || (0..LENT_MAX + 3).map(|_| pool.take(LENT)).collect::<Vec<_>>();
        let mut all = take();
        for (index, buf) in all.iter_mut().enumerate() {
            buf.fill(index as u8);
        }
        let lent = |buf: &AlignedBuf| is_in_arena(buf.as_ptr(), buf.len());
        let is = |(index, buf): (usize, &AlignedBuf)| buf.iter().all(|byte| *byte == index as u8);
        assert!(all.iter().enumerate().all(is), "each is its own");
        let count = all.iter().filter(|buf| lent(buf)).count();
        assert!((1..=LENT_MAX).contains(&count) && !lent(&all[LENT_MAX + 2]));
        drop(all);
        assert!(take().iter().any(lent));
        let (start, size) = arena().unwrap();
        assert!(is_in_arena(start, size) && !is_in_arena(start, size + 1));
        assert!(!is_in_arena(start.wrapping_add(size), 1) && !is_in_arena(start.wrapping_sub(1), 1));
    }

    #[test]
    fn a_pool_keeps_no_more_than_its_limit() {
        let pool = Arc::new(Pool::default());
        let many: Vec<AlignedBuf> = (0..20).map(|_| pool.take(1 << 20)).collect();
        drop(many);
        assert_eq!(pool.kept.lock().len(), KEPT_MAX >> 20);
    }
}
