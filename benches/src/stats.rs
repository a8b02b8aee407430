//! The arithmetic of a comparison: the median of pairwise ratios and a distribution-free interval around it.
//!
//! Times on a machine that other programs share are neither normal nor independent of the time of day, so nothing here
//! uses a mean or a deviation. Two works run in alternating slices; each pair of neighbouring slices gives one ratio, in
//! which slow phases of the machine cancel out; the order statistics of these ratios bound the median without any
//! assumption about their distribution (the sign test turned round). Both bounds are ratios that were measured.

use serde::Serialize;

/// The confidence that [`Summary::of`] asks of its interval.
pub const CONFIDENCE: f64 = 0.95;

/// The median of some values and an interval around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many values there were.
    pub count: usize,
    /// The middle value; of an even number of values the mean of the two in the middle.
    pub median: f64,
    /// The interval, or `None` where there are too few values for [`CONFIDENCE`] (fewer than six).
    pub interval: Option<Interval>,
}

/// Two measured values that have the true median between them with at least the asked confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// The confidence reached: the smallest above the one asked for that order statistics can give.
    pub confidence: f64,
}

impl Summary {
    /// Summarises `values`, in any order; `None` where there are none. Values that are not numbers sort last.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let middle = *sorted.get(count / 2)?;
        let median = if count % 2 == 1 { middle } else { (sorted[count / 2 - 1] + middle) / 2.0 };
        let interval = rank(count, CONFIDENCE).map(|(k, confidence)| Interval {
            low: sorted[k - 1],
            high: sorted[count - k],
            confidence,
        });
        Some(Summary { count, median, interval })
    }

    /// How the median stands to `goal`, a least ratio. Only an interval that lies wholly on one side decides.
    pub fn against(&self, goal: f64) -> Verdict {
        match self.interval {
            Some(interval) if interval.high < goal => Verdict::Missed,
            Some(interval) if interval.low >= goal => Verdict::Met,
            _ => Verdict::Open,
        }
    }
}

/// The outcome of holding a [`Summary`] against a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::exhaustive_enums, reason = "an interval lies above, below, or across")]
pub enum Verdict {
    /// The whole interval is at or above the goal.
    Met,
    /// The whole interval is below the goal.
    Missed,
    /// The goal lies inside the interval, or there is none: more slices would be needed to tell.
    Open,
}

/// The largest `k` such that the `k`-th smallest and `k`-th largest of `count` values have the median between them with at
/// least `confidence`, and the confidence that it gives. `None` where even the extremes do not.
///
/// The number of values below the median is binomial with probability one half; the interval misses when it is below `k`
/// or above `count - k`.
fn rank(count: usize, confidence: f64) -> Option<(usize, f64)> {
    let mut term = 0.5_f64.powi(i32::try_from(count).ok()?); // P(X = 0)
    let mut below = 0.0; // P(X < k)
    let mut best = None;
    for k in 1..=count / 2 {
        below += term;
        let reached = 1.0 - 2.0 * below;
        if reached < confidence {
            break;
        }
        best = Some((k, reached));
        term *= (count - k + 1) as f64 / k as f64;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Random;

    #[test]
    fn ranks_are_those_of_published_tables() {
        // Conover, Practical Nonparametric Statistics: sign-test limits at 95 %.
        let expected = [
            (5, None),
            (6, Some(1)),
            (9, Some(2)),
            (12, Some(3)),
            (15, Some(4)),
            (20, Some(6)),
            (30, Some(10)),
        ];
        for (count, k) in expected {
            assert_eq!(rank(count, 0.95).map(|(k, _)| k), k, "{count} values");
        }
        let (_, confidence) = rank(15, 0.95).unwrap();
        assert!((confidence - 0.9648).abs() < 1e-4, "{confidence}");
    }

    #[test]
    fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
        assert_eq!(Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of(&[7.0]), Some(Summary { count: 1, median: 7.0, interval: None }));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn bounds_are_measured_values_at_mirrored_ranks() {
        let values: Vec<f64> = (1..=15).rev().map(f64::from).collect();
        let interval = Summary::of(&values).unwrap().interval.unwrap();
        assert_eq!((interval.low, interval.high), (4.0, 12.0));
    }

    #[test]
    fn one_wild_slice_moves_neither_median_nor_bounds() {
        let mut values: Vec<f64> = (1..=15).map(|i| 1.0 + f64::from(i) / 1000.0).collect();
        let before = Summary::of(&values).unwrap();
        values[14] = 1e9;
        assert_eq!(Summary::of(&values).unwrap(), before);
    }

    #[test]
    fn the_interval_covers_the_true_median_as_often_as_it_says() {
        // Skewed values with the median 1: 2^(u) for u even around 0, squared on one side.
        let mut random = Random::new(5);
        let trials = 4000;
        let covered = (0..trials)
            .filter(|_| {
                let values: Vec<f64> = (0..15)
                    .map(|_| {
                        let u = random.next() as f64 / u64::MAX as f64 - 0.5;
                        if u > 0.0 { (20.0 * u).exp() } else { u.exp() }
                    })
                    .collect();
                let interval = Summary::of(&values).unwrap().interval.unwrap();
                interval.low <= 1.0 && 1.0 <= interval.high
            })
            .count();
        let share = covered as f64 / f64::from(trials);
        assert!((0.955..0.975).contains(&share), "{share}");
    }

    #[test]
    fn a_goal_is_missed_only_when_the_whole_interval_lies_below() {
        let summary = |low, high| Summary {
            count: 15,
            median: 1.0,
            interval: Some(Interval { low, high, confidence: 0.96 }),
        };
        assert_eq!(summary(0.8, 0.89).against(0.9), Verdict::Missed);
        assert_eq!(summary(0.8, 0.91).against(0.9), Verdict::Open);
        assert_eq!(summary(0.9, 0.95).against(0.9), Verdict::Met);
        assert_eq!(Summary { interval: None, ..summary(0.0, 0.0) }.against(0.9), Verdict::Open);
    }
}
