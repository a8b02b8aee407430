//! [`Counted`]: a value behind a lock that counts its changes.
//!
//! Whoever keeps a copy of the value, or of a part of it, learns from one load whether the copy still holds, and takes the
//! lock only where it does not.

use std::ops::{Deref, DerefMut};

use crate::sync::{AtomicU64, Ordering, RwLock};

#[derive(Debug)]
pub(crate) struct Counted<T> {
    changes: AtomicU64,
    value: RwLock<T>,
}

impl<T> Counted<T> {
    pub(crate) fn new(value: T) -> Self {
        Counted { changes: AtomicU64::new(0), value: RwLock::new(value) }
    }

    pub(crate) fn read(&self) -> impl Deref<Target = T> + '_ {
        self.value.read()
    }

    /// The value, to be changed; counted as a change whatever becomes of it.
    pub(crate) fn write(&self) -> impl DerefMut<Target = T> + '_ {
        let value = self.value.write();
        // Stored under the lock alone, hence no addition in one step. Release: pairs with the load in `changes`.
        self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Release);
        value
    }

    /// How often the value has been changed. A copy that was made at another count may be of another value; one of the same
    /// count holds, but for changes that go on beside the caller.
    ///
    /// To learn the count of what is read it is to be asked for while the value is held.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        // Pairs with the store in `write`.
        self.changes.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_write_is_counted_and_no_read() {
        let value = Counted::new(1);
        let before = value.changes();
        assert_eq!((*value.read(), value.changes()), (1, before));
        *value.write() = 2;
        assert_eq!((*value.read(), value.changes()), (2, before + 1));
        // Also one that changes nothing: nobody can tell.
        drop(value.write());
        assert_eq!(value.changes(), before + 2);
    }
}
