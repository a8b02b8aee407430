//! Works in alternating slices, and what their times say about each other.
//!
//! A contest has some works that do the same thing in different ways: a bare loop, the log over one backend, over another.
//! They run in rounds, a slice each, every second round in reverse order, so that each work is measured beside its
//! reference and as often before it as after it. A ratio is taken inside a round; the rounds give its median and interval.
//! Before the first round each work shows by a hash that it gives the right result, and runs a slice that does not count.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{BenchError, expect};
use crate::stats::Summary;

/// What a work counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Unit {
    /// Bytes, as stored or as given to a codec.
    Bytes,
    /// Appends, each durable before the next.
    Appends,
    /// Records.
    Records,
    /// Positions found.
    Lookups,
    /// Appends that arrive at a fixed rate: they are held against each other by latency.
    Arrivals,
}

/// One way of doing a scenario's work.
pub trait Work {
    /// Does a fixed part of the work, reads the result back and hashes what must be equal for all works of the contest.
    ///
    /// Not timed. Called once, before the first slice.
    fn check(&mut self) -> Result<u64, BenchError>;

    /// Whether that hash counts: not where a program of its own makes up the bytes.
    fn is_comparable(&self) -> bool {
        true
    }

    /// Works until the measured time is at least `at_least`; preparing, cleaning up and checking are not measured.
    ///
    /// A slice begins from the same state each time: a fresh file where it writes, the same filled log where it reads.
    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError>;
}

/// What a slice did, and in how much time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slice {
    /// Units done.
    pub units: u64,
    /// Seconds measured.
    pub seconds: f64,
    /// Seconds of them that this thread was running, in the kernel's half too. What other threads do for it is not in.
    pub cpu_seconds: f64,
    /// How long units took, where they arrived at a fixed rate.
    pub latency: Option<Latency>,
}

impl Slice {
    /// Units a second.
    pub fn rate(&self) -> f64 {
        self.units as f64 / self.seconds
    }

    /// What is compared: the rate; of units that arrive at a fixed rate the inverse of [`Latency::p99_us`]. More is better.
    pub fn speed(&self) -> f64 {
        self.latency.map_or_else(|| self.rate(), |latency| 1.0 / latency.p99_us)
    }

    /// Units a second of running.
    pub fn cpu_rate(&self) -> f64 {
        self.units as f64 / self.cpu_seconds
    }
}

/// The latencies of a slice, in microseconds: from the moment at which a unit was due, whether or not anybody was free to
/// begin with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the units took no longer.
    pub p50_us: f64,
    /// 99 in 100 took no longer.
    pub p99_us: f64,
    /// None took longer.
    pub max_us: f64,
}

impl Latency {
    /// Of these latencies, in any order; `None` where there are none. A percentile is a measured value: the least that as many
    /// do not exceed.
    pub fn of(latencies: &mut [Duration]) -> Option<Latency> {
        latencies.sort_unstable();
        let us = |latency: &Duration| latency.as_secs_f64() * 1e6;
        let percentile =
            |hundredths: usize| latencies.get((latencies.len() * hundredths).div_ceil(100) - 1).map(us);
        let max_us = latencies.last().map(us)?;
        Some(Latency { p50_us: percentile(50)?, p99_us: percentile(99)?, max_us })
    }
}

/// Adds up the measured parts of a slice.
#[derive(Debug)]
pub struct Watch {
    at_least: Duration,
    elapsed: Duration,
    running: Duration,
    units: u64,
}

impl Watch {
    /// A watch for a slice of at least this length.
    pub fn new(at_least: Duration) -> Watch {
        Watch { at_least, elapsed: Duration::ZERO, running: Duration::ZERO, units: 0 }
    }

    /// Measures `part`, which returns the units that it did.
    pub fn time(&mut self, part: impl FnOnce() -> Result<u64, BenchError>) -> Result<(), BenchError> {
        let ran = running();
        let begin = Instant::now();
        let units = part();
        self.elapsed += begin.elapsed();
        self.running += running().saturating_sub(ran);
        self.units += units?;
        Ok(())
    }

    /// Whether the slice is to go on.
    pub fn runs(&self) -> bool {
        self.elapsed < self.at_least
    }

    /// The slice.
    pub fn stop(self) -> Slice {
        Slice {
            units: self.units,
            seconds: self.elapsed.as_secs_f64(),
            cpu_seconds: self.running.as_secs_f64(),
            latency: None,
        }
    }
}

/// How long this thread has been running.
fn running() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// How long a contest runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Rounds that count; each has a slice of every work.
    pub rounds: usize,
    /// The least length of a slice.
    #[serde(serialize_with = "seconds")]
    pub slice: Duration,
}

pub(crate) fn hexadecimal<S: serde::Serializer>(hash: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{hash:08x}"))
}

fn seconds<S: serde::Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

/// A work with its name and the work that it is held against.
pub struct Entrant {
    /// A backend, a codec, or the name of a reference loop.
    pub name: String,
    /// The place among the entrants of its reference; `None` for a reference itself.
    pub reference: Option<usize>,
    /// The least ratio to the reference that the project aims at.
    pub goal: Option<f64>,
    /// What runs.
    pub work: Box<dyn Work>,
}

impl std::fmt::Debug for Entrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entrant")
            .field("name", &self.name)
            .field("reference", &self.reference)
            .finish_non_exhaustive()
    }
}

/// What a contest measured of one entrant.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The entrant.
    pub name: String,
    /// Its reference, by name.
    pub reference: Option<String>,
    /// Its goal.
    pub goal: Option<f64>,
    /// Units a second, for orientation: the machine's phases are in it.
    pub rate: Option<Summary>,
    /// Speed over the reference's in the same round.
    pub ratio: Option<Summary>,
    /// As `ratio`, by the time that the thread was running: the cost without what others on the machine take away.
    pub cpu_ratio: Option<Summary>,
    /// Speed over that, in the same round, of the first entrant that is no reference.
    pub to_first: Option<Summary>,
    /// Latencies, where units arrived at a fixed rate.
    pub latency: Option<Latencies>,
    /// The slices, round by round.
    pub slices: Vec<Slice>,
}

/// The latencies of an entrant over its slices, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// The slices' [`Latency::p50_us`].
    pub p50_us: Summary,
    /// The slices' [`Latency::p99_us`].
    pub p99_us: Summary,
    /// The longest of all.
    pub max_us: f64,
}

impl Latencies {
    fn of(slices: &[Slice]) -> Option<Latencies> {
        let each = || slices.iter().filter_map(|slice| slice.latency);
        let over = |of: fn(Latency) -> f64| Summary::of(&each().map(of).collect::<Vec<_>>());
        Some(Latencies {
            p50_us: over(|latency| latency.p50_us)?,
            p99_us: over(|latency| latency.p99_us)?,
            max_us: each().map(|latency| latency.max_us).fold(0.0, f64::max),
        })
    }
}

/// The outcome of a contest.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The hash of the result, the same for every entrant; in JSON as in the table, hexadecimal.
    #[serde(serialize_with = "hexadecimal")]
    pub hash: u64,
    /// Entrants, in their order.
    pub entrants: Vec<Measured>,
}

/// Checks all entrants, then runs them in rounds.
///
/// # Errors
/// The first error of any work; [`BenchError::Wrong`] where two of them give different results.
pub fn run(entrants: &mut [Entrant], plan: Plan) -> Result<Outcome, BenchError> {
    run_unless(entrants, plan, || false)
}

/// As [`run`], but ends before the next slice once `stopped` says so.
///
/// # Errors
/// As there; [`BenchError::Stopped`].
pub(crate) fn run_unless(
    entrants: &mut [Entrant],
    plan: Plan,
    stopped: impl Fn() -> bool,
) -> Result<Outcome, BenchError> {
    let go_on = || if stopped() { Err(BenchError::Stopped) } else { Ok(()) };
    let mut hash = None;
    for entrant in entrants.iter_mut() {
        go_on()?;
        let found = entrant.work.check()?;
        if entrant.work.is_comparable() {
            expect(&format!("the hash of {}", entrant.name), *hash.get_or_insert(found), found)?;
        }
        entrant.work.slice(plan.slice.min(Duration::from_millis(100)))?;
    }
    let mut slices = vec![Vec::with_capacity(plan.rounds); entrants.len()];
    for round in 0..plan.rounds {
        let forward = 0..entrants.len();
        let order: Vec<usize> = if round % 2 == 0 { forward.collect() } else { forward.rev().collect() };
        for i in order {
            go_on()?;
            slices[i].push(entrants[i].work.slice(plan.slice)?);
        }
    }
    let first = entrants.iter().position(|e| e.reference.is_some());
    let measured = entrants.iter().enumerate().map(|(i, entrant)| Measured {
        name: entrant.name.clone(),
        reference: entrant.reference.map(|r| entrants[r].name.clone()),
        goal: entrant.goal,
        rate: Summary::of(&slices[i].iter().map(Slice::rate).collect::<Vec<_>>()),
        ratio: entrant.reference.and_then(|r| ratio(&slices[i], &slices[r], Slice::speed)),
        cpu_ratio: entrant.reference.and_then(|r| ratio(&slices[i], &slices[r], Slice::cpu_rate)),
        to_first: first
            .filter(|&f| f != i && entrant.reference.is_some())
            .and_then(|f| ratio(&slices[i], &slices[f], Slice::speed)),
        latency: Latencies::of(&slices[i]),
        slices: slices[i].clone(),
    });
    Ok(Outcome { hash: hash.unwrap_or_default(), entrants: measured.collect() })
}

fn ratio(of: &[Slice], to: &[Slice], rate: impl Fn(&Slice) -> f64) -> Option<Summary> {
    Summary::of(&of.iter().zip(to).map(|(a, b)| rate(a) / rate(b)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    struct Fake {
        name: char,
        hash: u64,
        rate: f64,
        seen: Rc<RefCell<String>>,
    }

    impl Work for Fake {
        fn check(&mut self) -> Result<u64, BenchError> {
            Ok(self.hash)
        }
        fn slice(&mut self, _: Duration) -> Result<Slice, BenchError> {
            self.seen.borrow_mut().push(self.name);
            // The whole machine slows down from slice to slice.
            let slowness = self.seen.borrow().len() as f64;
            let seconds = 1000.0 * slowness / self.rate;
            Ok(Slice { units: 1000, seconds, cpu_seconds: 1000.0 / self.rate, latency: None })
        }
    }

    fn contest(hashes: [u64; 3]) -> (Vec<Entrant>, Rc<RefCell<String>>) {
        let seen = Rc::new(RefCell::new(String::new()));
        let entrants = ['r', 'a', 'b'].into_iter().zip(hashes).zip([4.0, 2.0, 1.0]).enumerate();
        let entrants = entrants
            .map(|(i, ((name, hash), rate))| Entrant {
                name: name.to_string(),
                reference: (i > 0).then_some(0),
                goal: None,
                work: Box::new(Fake { name, hash, rate, seen: seen.clone() }),
            })
            .collect();
        (entrants, seen)
    }

    #[test]
    fn rounds_alternate_their_order_after_a_slice_that_does_not_count() {
        let (mut entrants, seen) = contest([5; 3]);
        let outcome = run(&mut entrants, Plan { rounds: 4, slice: Duration::from_millis(1) }).unwrap();
        assert_eq!(*seen.borrow(), "rabrabbarrabbar");
        assert_eq!(outcome.hash, 5);
        assert!(outcome.entrants.iter().all(|e| e.slices.len() == 4));
    }

    #[test]
    fn a_drift_of_the_machine_cancels_out_of_the_ratios() {
        let (mut entrants, _) = contest([5; 3]);
        let outcome = run(&mut entrants, Plan { rounds: 40, slice: Duration::from_millis(1) }).unwrap();
        let [r, a, b] = &outcome.entrants[..] else { panic!("three entrants") };
        assert!(r.ratio.is_none() && r.to_first.is_none() && a.to_first.is_none());
        for (found, expected) in [(a.cpu_ratio, 0.5), (a.ratio, 0.5), (b.ratio, 0.25), (b.to_first, 0.5)] {
            let found = found.unwrap().median;
            assert!((found / expected - 1.0).abs() < 0.02, "{found} for {expected}");
        }
        assert_eq!(a.reference.as_deref(), Some("r"));
    }

    #[test]
    fn works_with_different_results_are_not_compared() {
        let (mut entrants, seen) = contest([5, 5, 6]);
        let error = run(&mut entrants, Plan { rounds: 4, slice: Duration::from_millis(1) }).unwrap_err();
        assert!(matches!(error, BenchError::Wrong { expected: 5, found: 6, .. }), "{error}");
        assert_eq!(*seen.borrow(), "ra");
    }

    #[test]
    fn a_contest_ends_before_the_next_slice_when_it_is_stopped() {
        let (mut entrants, seen) = contest([5; 3]);
        let plan = Plan { rounds: 4, slice: Duration::from_millis(1) };
        let stopped = run_unless(&mut entrants, plan, || seen.borrow().len() == 5);
        assert!(matches!(stopped, Err(BenchError::Stopped)), "{stopped:?}");
        assert_eq!(*seen.borrow(), "rabra");
    }

    #[test]
    fn percentiles_are_the_least_that_as_many_do_not_exceed() {
        let mut latencies: Vec<Duration> = (1..=200).rev().map(Duration::from_micros).collect();
        let latency = Latency::of(&mut latencies).unwrap();
        assert_eq!(latency, Latency { p50_us: 100.0, p99_us: 198.0, max_us: 200.0 });
        let one = Latency::of(&mut [Duration::from_micros(7)]).unwrap();
        assert_eq!(one, Latency { p50_us: 7.0, p99_us: 7.0, max_us: 7.0 });
        assert_eq!(Latency::of(&mut []), None);
    }

    #[test]
    fn units_that_arrive_at_a_fixed_rate_are_compared_by_latency() {
        let slice = |p50_us, p99_us, max_us| Slice {
            units: 10,
            seconds: 1.0,
            cpu_seconds: 0.1,
            latency: Some(Latency { p50_us, p99_us, max_us }),
        };
        let (reference, work) =
            (vec![slice(1.0, 4.0, 9.0); 3], [5.0, 6.0, 90.0].map(|max| slice(2.0, 16.0, max)));
        assert_eq!(ratio(&work, &reference, Slice::speed).unwrap().median, 0.25);
        let over = Latencies::of(&work).unwrap();
        assert_eq!((over.p50_us.median, over.p99_us.median, over.max_us), (2.0, 16.0, 90.0));
        assert_eq!(Latencies::of(&[Slice { latency: None, ..work[0] }]), None);
    }

    #[test]
    fn a_watch_measures_only_what_it_is_given() {
        let mut watch = Watch::new(Duration::from_millis(2));
        std::thread::sleep(Duration::from_millis(5));
        assert!(watch.runs());
        watch
            .time(|| {
                std::thread::sleep(Duration::from_millis(3));
                Ok(7)
            })
            .unwrap();
        assert!(!watch.runs());
        let slice = watch.stop();
        assert_eq!(slice.units, 7);
        assert!(slice.seconds >= 0.003);
        assert!(slice.cpu_seconds < slice.seconds, "asleep for most of it");
    }
}
