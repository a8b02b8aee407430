//! [`Fence`]: a log that an error has closed for changes, and what the error was.

use std::fmt;

use crate::sync::{AtomicBool, Mutex, Ordering};

/// Set once, by the first failed sync or the first change of unknown extent; never taken back.
#[derive(Default)]
pub(crate) struct Fence {
    /// Set after the cause has been noted.
    set: AtomicBool,
    cause: Mutex<String>,
}

impl Fence {
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        // Pairs with the Release of `set`: who sees the flag sees the cause.
        self.set.load(Ordering::Acquire)
    }

    /// Sets the fence, unless it is set already.
    pub(crate) fn set(&self, cause: &impl fmt::Display) {
        let mut first = self.cause.lock();
        // Set under the lock alone, so Relaxed.
        if !self.set.load(Ordering::Relaxed) {
            *first = cause.to_string();
            self.set.store(true, Ordering::Release);
        }
    }

    /// The first error in words; empty where there was none.
    pub(crate) fn cause(&self) -> String {
        self.cause.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays() {
        let fence = Fence::default();
        assert!(!fence.is_set());
        fence.set(&"one");
        fence.set(&"two");
        assert!(fence.is_set());
        assert_eq!(fence.cause(), "one");
    }
}
