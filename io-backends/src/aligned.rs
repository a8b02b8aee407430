//! [`AlignedBuf`]: memory at addresses that O_DIRECT takes, and the [`Pool`] it returns to.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

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
        Self { start, capacity, len: 0, home: None }
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
            let kept = AlignedBuf { start: self.start, capacity: self.capacity, len: 0, home: None };
            // Its own drop frees what the pool does not keep.
            home.keep(kept);
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
        let mut buf = known.unwrap_or_else(|| AlignedBuf::zeroed(capacity));
        buf.len = len;
        buf.home = Some(Arc::clone(self));
        buf
    }

    fn keep(&self, buf: AlignedBuf) {
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
    fn a_pool_keeps_no_more_than_its_limit() {
        let pool = Arc::new(Pool::default());
        let many: Vec<AlignedBuf> = (0..20).map(|_| pool.take(1 << 20)).collect();
        drop(many);
        assert_eq!(pool.kept.lock().len(), KEPT_MAX >> 20);
    }
}
