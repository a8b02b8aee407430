//! Making way for appends: how long a cleaner waits because they have become slow.

use kseg_log::Pressure;

use crate::sync::Mutex;

/// The time of a look: what happened since the one before is judged.
const LOOK_MS: i64 = 10;
/// The first wait, and the longest: cleaning goes on for a part of the time, however slow the device is, or logs would fill it.
const WAIT_MS_MIN: u64 = 5;
const WAIT_MS_MAX: u64 = 100;

/// Looks at how long appends and flushes take beside a cleaner's work, and slows it down while one of both is above its
/// limit. Each further look that finds them slow doubles the wait, each that does not halves it.
///
/// A device, or the kernel's share of memory for what is not written yet, is full before anything fails: appends then take
/// milliseconds instead of microseconds. What takes them is as likely as not the cleaner, the one that can wait.
#[derive(Debug)]
pub(crate) struct Backpressure {
    /// Mean milliseconds of an append, or of a flush, above which it makes way; `None` for never.
    limit_ms: Option<f64>,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    looked_ms: i64,
    seen: Option<Pressure>,
    wait_ms: u64,
    waited_ms: u64,
}

impl Backpressure {
    pub(crate) fn new(limit_ms: Option<f64>, now_ms: i64) -> Backpressure {
        let state = State { looked_ms: now_ms, seen: None, wait_ms: 0, waited_ms: 0 };
        Backpressure { limit_ms, state: Mutex::new(state) }
    }

    /// Told of the time, and asking how appends fare in the directory that is worked in: for how many milliseconds to wait now.
    pub(crate) fn wait_ms(&self, pressure: impl FnOnce() -> Pressure, now_ms: i64) -> u64 {
        let Some(limit) = self.limit_ms else { return 0 };
        let mut state = self.state.lock();
        if state.seen.is_some() && (0..LOOK_MS).contains(&now_ms.saturating_sub(state.looked_ms)) {
            return 0;
        }
        let now = pressure();
        state.looked_ms = now_ms;
        // Another directory than last time has counters of its own: the difference says nothing then.
        let Some(before) = state.seen.replace(now).filter(|before| follows(before, &now)) else { return 0 };
        let mean = |count: u64, ms: u64| if count == 0 { 0.0 } else { ms as f64 / count as f64 };
        let append = mean(now.appends - before.appends, now.append_ms - before.append_ms);
        let flush = mean(now.flushes - before.flushes, now.flush_ms - before.flush_ms);
        state.wait_ms = if append > limit || flush > limit {
            (state.wait_ms * 2).clamp(WAIT_MS_MIN, WAIT_MS_MAX)
        } else {
            state.wait_ms / 2
        };
        state.waited_ms += state.wait_ms;
        state.wait_ms
    }

    /// Milliseconds waited so far.
    pub(crate) fn waited_ms(&self) -> u64 {
        self.state.lock().waited_ms
    }
}

/// Whether no counter has gone back.
fn follows(before: &Pressure, now: &Pressure) -> bool {
    before.appends <= now.appends
        && before.append_ms <= now.append_ms
        && before.flushes <= now.flushes
        && before.flush_ms <= now.flush_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters that go on by `appends` of `each_ms`.
    fn after(before: Pressure, appends: u64, each_ms: u64) -> Pressure {
        let mut now = before;
        now.appends += appends;
        now.append_ms += appends * each_ms;
        now
    }

    #[test]
    fn slow_appends_double_the_wait_and_fast_ones_halve_it() {
        let pressure = Backpressure::new(Some(20.0), 0);
        let mut seen = Pressure::default();
        let mut now_ms = 0;
        let mut look = |appends, each_ms| {
            now_ms += LOOK_MS;
            seen = after(seen, appends, each_ms);
            pressure.wait_ms(|| seen, now_ms)
        };
        assert_eq!(look(5, 100), 0, "nothing to compare with");
        let waits: Vec<u64> = (0..8).map(|_| look(5, 100)).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 100, 100, 100]);
        let waits: Vec<u64> = (0..9).map(|_| look(5, 1)).collect();
        assert_eq!(waits, [50, 25, 12, 6, 3, 1, 0, 0, 0]);
        // At the limit, and without appends, it does not wait.
        assert_eq!((look(5, 20), look(0, 0), look(1, 21)), (0, 0, 5));
        assert_eq!(pressure.waited_ms(), 455 + 97 + 5);
    }

    #[test]
    fn it_looks_every_so_often_and_never_without_a_limit() {
        let slow = |n: u64| after(Pressure::default(), n, 1000);
        let pressure = Backpressure::new(Some(20.0), 0);
        assert_eq!(pressure.wait_ms(|| slow(1), 0), 0);
        assert_eq!(pressure.wait_ms(|| panic!("too early"), LOOK_MS - 1), 0);
        assert_eq!(pressure.wait_ms(|| slow(2), LOOK_MS), 5);
        // A clock that was set back is looked at from there on.
        let back = Backpressure::new(Some(20.0), 1_000_000);
        assert_eq!(back.wait_ms(|| slow(1), 1_000_000), 0);
        assert_eq!(back.wait_ms(|| slow(2), 0), 5);
        assert_eq!(back.wait_ms(|| panic!("too early"), LOOK_MS - 1), 0);
        // Another directory.
        assert_eq!(pressure.wait_ms(|| slow(1), 2 * LOOK_MS), 0);
        assert_eq!(pressure.wait_ms(|| slow(2), 3 * LOOK_MS), 10);
        assert_eq!(Backpressure::new(None, 0).wait_ms(|| panic!("nobody asked"), 100), 0);
    }

    #[test]
    fn slow_flushes_count_as_slow_appends_do() {
        let pressure = Backpressure::new(Some(20.0), 0);
        let mut now = Pressure::default();
        assert_eq!(pressure.wait_ms(|| now, 0), 0);
        (now.appends, now.flushes, now.flush_ms) = (100, 2, 60);
        assert_eq!(pressure.wait_ms(|| now, LOOK_MS), 5);
    }
}
