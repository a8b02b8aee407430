//! How long appends and flushes take, for background work that makes way for them.

use std::time::Duration;

use crate::log::{Inner, Log};
use crate::sync::{AtomicU64, Ordering};

/// Of so many appends the time of one is taken: reading a clock costs about as much as a small part of an append.
const SAMPLED: u64 = 16;

/// Longer than this a clock that was set may seem to say.
const TOOK_MS_MAX: i64 = 60_000;

/// How long appends and flushes have taken in a data directory, all its logs together, since it was opened: a device's work
/// slows all of them. Of a log on its own, its own ones.
///
/// What happened between two looks is the difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pressure {
    /// Appends whose time was taken: one in sixteen.
    pub appends: u64,
    /// Milliseconds that they took, from the call to when they could be read.
    pub append_ms: u64,
    /// Flushes of a segment.
    pub flushes: u64,
    /// Milliseconds that they took.
    pub flush_ms: u64,
}

/// The counters. Each counts by itself, and a look may fall between two of them: Relaxed.
#[derive(Debug, Default)]
pub(crate) struct PressureGauge {
    appends: AtomicU64,
    append_ms: AtomicU64,
    flushes: AtomicU64,
    flush_ns: AtomicU64,
}

impl PressureGauge {
    pub(crate) fn flushed(&self, took: Duration) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.flush_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn appended(&self, took_ms: i64) {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.append_ms.fetch_add(took_ms.clamp(0, TOOK_MS_MAX) as u64, Ordering::Relaxed);
    }

    fn look(&self) -> Pressure {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Pressure {
            appends: now(&self.appends),
            append_ms: now(&self.append_ms),
            flushes: now(&self.flushes),
            flush_ms: now(&self.flush_ns) / 1_000_000,
        }
    }
}

impl Log {
    /// How long appends and flushes have taken so far.
    pub fn pressure(&self) -> Pressure {
        self.inner.pressure.look()
    }
}

impl Inner {
    /// Takes note of an append that began at `begun_ms`, the `count`th of its log.
    #[inline]
    pub(crate) fn note_append(&self, count: u64, begun_ms: i64) {
        if count.is_multiple_of(SAMPLED) {
            self.pressure.appended(self.clock.now_ms().saturating_sub(begun_ms));
        }
    }
}
