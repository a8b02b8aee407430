//! Time that passes, from a clock that somebody may set.

use std::sync::Arc;

use kseg_log::Clock;

use crate::sync::Mutex;

/// Counts the milliseconds that pass by a clock. A clock that is set back counts on from where it stands then: rates, pauses and
/// times to try again do not wait until it is again as late as it was.
#[derive(Debug)]
pub(crate) struct Steady {
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    clock_ms: i64,
    steady_ms: i64,
}

impl Steady {
    /// Begins at the time that the clock shows.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Steady {
        let now_ms = clock.now_ms();
        Steady { clock, seen: Mutex::new(Seen { clock_ms: now_ms, steady_ms: now_ms }) }
    }

    /// Never less than it was before.
    pub(crate) fn now_ms(&self) -> i64 {
        // The clock is read under the lock: a thread that was late with what it read would look like a step back.
        let mut seen = self.seen.lock();
        let now_ms = self.clock.now_ms();
        let passed = now_ms.saturating_sub(seen.clock_ms).max(0);
        seen.steady_ms = seen.steady_ms.saturating_add(passed);
        seen.clock_ms = now_ms;
        seen.steady_ms
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use kseg_log::ManualClock;

    use super::*;

    #[test]
    fn a_clock_that_is_set_back_goes_on_from_there() {
        let clock = Arc::new(ManualClock::new(1000));
        let steady = Steady::new(clock.clone());
        let shown = |now_ms| {
            clock.set(now_ms);
            steady.now_ms()
        };
        assert_eq!((steady.now_ms(), shown(1500), shown(100)), (1000, 1500, 1500));
        assert_eq!((shown(130), shown(130), shown(120), shown(140)), (1530, 1530, 1530, 1550));
        assert_eq!((shown(i64::MAX), shown(i64::MIN), shown(i64::MAX)), (i64::MAX, i64::MAX, i64::MAX));
    }
}
