//! Time comes in from outside.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sync::{AtomicI64, Ordering};

/// Tells the time, in milliseconds since the epoch.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> i64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            // As `as_millis`, but in 64 bits.
            Ok(since) => i64::try_from(since.as_secs())
                .unwrap_or(i64::MAX)
                .saturating_mul(1000)
                .saturating_add(since.subsec_millis().into()),
            Err(_) => 0,
        }
    }
}

/// A clock that stands still until it is set.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        ManualClock(AtomicI64::new(now_ms))
    }

    /// Sets it, forwards or back.
    pub fn set(&self, now_ms: i64) {
        // Nothing is published by the time: Relaxed.
        self.0.store(now_ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}
