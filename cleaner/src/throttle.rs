//! How many bytes a second all threads together may read and write.
//!
//! Source: Kafka `Throttler`.

use crate::sync::Mutex;

/// How long a period is at least, in milliseconds, before the rate is looked at.
const CHECK_MS: i64 = 300;

/// Counts bytes, and says how long to wait so that their rate stays below the limit.
#[derive(Debug)]
pub struct Throttle {
    state: Mutex<State>,
    check_ms: i64,
}

#[derive(Debug)]
struct State {
    /// Bytes a second; `None` for no limit.
    rate: Option<f64>,
    period_start_ms: i64,
    /// The time when bytes were last counted.
    seen_ms: i64,
    observed: f64,
    total: u64,
}

impl Throttle {
    /// A throttle whose first period begins at `now_ms`.
    pub fn new(bytes_per_second: Option<f64>, now_ms: i64) -> Throttle {
        Throttle::checking_every(CHECK_MS, bytes_per_second, now_ms)
    }

    fn checking_every(check_ms: i64, bytes_per_second: Option<f64>, now_ms: i64) -> Throttle {
        let rate = bytes_per_second;
        let state = State { rate, period_start_ms: now_ms, seen_ms: now_ms, observed: 0.0, total: 0 };
        Throttle { state: Mutex::new(state), check_ms }
    }

    /// Counts bytes; returns for how many milliseconds whoever moved them is to wait. The next period begins after that. A clock that is
    /// set back takes the period along.
    pub fn moved(&self, bytes: u64, now_ms: i64) -> u64 {
        let mut state = self.state.lock();
        state.total += bytes;
        state.observed += bytes as f64;
        // A thread that is a little late with its time is no clock that was set back.
        let back = state.seen_ms.saturating_sub(now_ms);
        if back > self.check_ms {
            state.period_start_ms = state.period_start_ms.saturating_sub(back);
        }
        if !(0..=self.check_ms).contains(&back) {
            state.seen_ms = now_ms;
        }
        let elapsed = now_ms.saturating_sub(state.period_start_ms);
        if elapsed <= self.check_ms || state.observed <= 0.0 {
            return 0;
        }
        let mut wait = 0;
        if let Some(rate) = state.rate
            && state.observed / (elapsed as f64 / 1000.0) > rate
        {
            wait = (state.observed / (rate / 1000.0) - elapsed as f64).round().max(0.0) as u64;
        }
        state.period_start_ms = now_ms.saturating_add(i64::try_from(wait).unwrap_or(i64::MAX));
        state.observed = 0.0;
        wait
    }

    /// Puts another limit in force.
    pub fn set_rate(&self, bytes_per_second: Option<f64>) {
        self.state.lock().rate = bytes_per_second;
    }

    /// The limit in force.
    pub fn rate(&self) -> Option<f64> {
        self.state.lock().rate
    }

    /// All bytes counted so far.
    pub fn total(&self) -> u64 {
        self.state.lock().total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaner_edge_188_and_189_the_rate_is_kept_over_each_period() {
        let throttle = Throttle::checking_every(100, Some(1000.0), 0);
        assert_eq!(throttle.moved(100, 0), 0);
        assert_eq!(throttle.moved(100, 101), 99);
        assert_eq!(throttle.moved(100, 200), 0);
        assert_eq!(throttle.moved(100, 301), 99);
        throttle.set_rate(Some(1500.0));
        assert_eq!(throttle.moved(150, 400), 0);
        assert_eq!(throttle.moved(150, 501), 99);
        assert_eq!(throttle.total(), 700);
    }

    #[test]
    fn a_clock_that_is_set_back_or_forward_changes_the_rate_for_a_period_at_most() {
        const HOUR: i64 = 3_600_000;
        for step in [-HOUR, HOUR] {
            let throttle = Throttle::checking_every(100, Some(1000.0), 0);
            // A hundred bytes each time, a second's worth in ten: as many milliseconds are waited as pass otherwise.
            let (mut now_ms, mut waited) = (0, 0);
            for n in 0..1000 {
                now_ms += if n == 500 { step } else { 10 };
                let wait = throttle.moved(100, now_ms);
                now_ms += i64::try_from(wait).unwrap();
                waited += wait;
            }
            assert!((88_000..=91_000).contains(&waited), "{step}: {waited}");
        }
        // Threads that read the clock in another order than they come: nothing is shifted.
        let throttle = Throttle::checking_every(100, Some(1000.0), 0);
        assert_eq!(
            [(50, 60), (50, 30), (50, 101)].map(|(bytes, now_ms)| throttle.moved(bytes, now_ms)),
            [0, 0, 49]
        );
    }

    #[test]
    fn cleaner_edge_144_another_rate_is_in_force_at_once() {
        let throttle = Throttle::new(Some(10_000_000.0), 0);
        throttle.set_rate(Some(20_000_000.0));
        assert_eq!(throttle.rate(), Some(20_000_000.0));
        // At the end of a period, and not before.
        let throttle = Throttle::new(Some(1000.0), 0);
        assert_eq!(throttle.moved(2000, 300), 0);
        let throttle = Throttle::new(Some(1000.0), 0);
        assert_eq!(throttle.moved(2000, 301), 1699);
        assert_eq!(Throttle::new(None, 0).moved(u64::MAX / 2, 301), 0);
    }
}
