//! Background work goes out to a scheduler that comes in from outside: one that runs on a thread, or one that is
//! driven by hand.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::clock::{Clock, ManualClock};
use crate::sync::{JoinHandle, Mutex, RecvTimeoutError, Sender, is_current, spawn, unbounded};

/// A piece of background work: it runs once.
pub type Task = Box<dyn FnOnce() + Send>;

/// Takes background work: flushing after a roll, removing files, writing checkpoints.
///
/// A log hands over tasks with no lock of its own held, so that a scheduler may run a task before it returns. Tasks of
/// one scheduler run one after the other, in the order in which they fall due.
pub trait Scheduler: fmt::Debug + Send + Sync {
    /// Runs `task` once `delay_ms` milliseconds have passed; with 0 as soon as may be. `name` is for messages.
    fn schedule(&self, name: &'static str, delay_ms: u64, task: Task);
}

/// A scheduler on a thread of its own.
///
/// When it is dropped, what is due has been run; what is not is dropped (files that were to be removed are removed
/// when their log is opened again).
pub struct ThreadScheduler {
    sender: Option<Sender<Due<Instant>>>,
    thread: Option<JoinHandle>,
}

impl ThreadScheduler {
    /// Starts the thread.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn start() -> std::io::Result<Arc<Self>> {
        let (sender, receiver) = unbounded::<Due<Instant>>();
        let thread = spawn("kseg-scheduler", move || {
            let mut queue = BinaryHeap::new();
            let mut number = 0;
            loop {
                let now = Instant::now();
                while queue.peek().is_some_and(|Reverse(due): &Reverse<Due<Instant>>| due.at <= now) {
                    if let Some(Reverse(due)) = queue.pop() {
                        (due.task)();
                    }
                }
                let wait = queue.peek().map_or(Duration::from_secs(3600), |Reverse(due)| {
                    due.at.saturating_duration_since(Instant::now())
                });
                match receiver.recv_timeout(wait) {
                    Ok(mut due) => {
                        number += 1;
                        due.number = number;
                        queue.push(Reverse(due));
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            let now = Instant::now();
            while let Some(Reverse(due)) = queue.pop() {
                if due.at > now {
                    break;
                }
                (due.task)();
            }
        })?;
        Ok(Arc::new(ThreadScheduler { sender: Some(sender), thread: Some(thread) }))
    }
}

impl Scheduler for ThreadScheduler {
    fn schedule(&self, _name: &'static str, delay_ms: u64, task: Task) {
        let now = Instant::now();
        // A delay beyond what the clock can hold is as good as never.
        let at =
            now.checked_add(Duration::from_millis(delay_ms)).unwrap_or(now + Duration::from_secs(1 << 32));
        if let Some(sender) = &self.sender {
            // The receiver lives until the sender is dropped.
            let _ = sender.send(Due { at, number: 0, task });
        }
    }
}

impl Drop for ThreadScheduler {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A task may hold the last handle: the thread cannot wait for itself.
            if !is_current(&thread) {
                let _ = thread.join();
            }
        }
    }
}

impl fmt::Debug for ThreadScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadScheduler").finish_non_exhaustive()
    }
}

/// Runs work without a delay at once, inside the call that schedules it, and starts a [`ThreadScheduler`] for the rest when
/// the first of it comes.
///
/// What a directory has where it is given no other. A flush after a roll is then part of the append that rolled; with a
/// [`ThreadScheduler`] it is not.
#[derive(Debug, Default)]
pub struct InlineScheduler {
    later: Mutex<Option<Arc<ThreadScheduler>>>,
}

impl Scheduler for InlineScheduler {
    fn schedule(&self, name: &'static str, delay_ms: u64, task: Task) {
        if delay_ms == 0 {
            return task();
        }
        let later = {
            let mut later = self.later.lock();
            if later.is_none() {
                match ThreadScheduler::start() {
                    Ok(started) => *later = Some(started),
                    Err(error) => {
                        warn!(task = name, %error, "no thread for background work, which is left undone")
                    }
                }
            }
            later.clone()
        };
        if let Some(later) = later {
            later.schedule(name, delay_ms, task);
        }
    }
}

/// A scheduler that is driven by hand, on a [`ManualClock`].
///
/// Work without a delay runs at once, inside the call that scheduled it; the rest when the clock is moved with
/// [`advance`](Self::advance), in the order in which it falls due.
pub struct ManualScheduler {
    clock: Arc<ManualClock>,
    queue: Mutex<(u64, BinaryHeap<Reverse<Due<i64>>>)>,
}

impl ManualScheduler {
    /// A scheduler with nothing to do.
    pub fn new(clock: Arc<ManualClock>) -> Arc<Self> {
        Arc::new(ManualScheduler { clock, queue: Mutex::new((0, BinaryHeap::new())) })
    }

    /// Moves the clock forward by `ms`, and runs what falls due on the way, the clock at each task's due time. The last moment of
    /// all stands for what lies beyond it, where periodic work is always due again, and does not come.
    pub fn advance(&self, ms: i64) {
        let until = self.clock.now_ms().saturating_add(ms);
        loop {
            let due = {
                let mut queue = self.queue.lock();
                match queue.1.peek() {
                    Some(Reverse(due)) if due.at <= until && due.at < i64::MAX => queue.1.pop(),
                    _ => None,
                }
            };
            let Some(Reverse(due)) = due else { break };
            if due.at > self.clock.now_ms() {
                self.clock.set(due.at);
            }
            (due.task)();
        }
        self.clock.set(until);
    }

    /// How many tasks wait.
    pub fn waiting(&self) -> usize {
        self.queue.lock().1.len()
    }
}

impl Scheduler for ManualScheduler {
    fn schedule(&self, _name: &'static str, delay_ms: u64, task: Task) {
        if delay_ms == 0 {
            return task();
        }
        let delay = i64::try_from(delay_ms).unwrap_or(i64::MAX);
        let at = self.clock.now_ms().saturating_add(delay);
        let mut queue = self.queue.lock();
        queue.0 += 1;
        let number = queue.0;
        queue.1.push(Reverse(Due { at, number, task }));
    }
}

impl fmt::Debug for ManualScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualScheduler").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

/// A task with its time; equal times run in the order of their numbers.
struct Due<T> {
    at: T,
    number: u64,
    task: Task,
}

impl<T: Ord> PartialEq for Due<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Ord> Eq for Due<T> {}

impl<T: Ord> PartialOrd for Due<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord> Ord for Due<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.at, self.number).cmp(&(&other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_work_runs_in_order_with_the_clock_at_its_time() {
        let clock = Arc::new(ManualClock::new(1000));
        let scheduler = ManualScheduler::new(clock.clone());
        let seen = Arc::new(Mutex::new(Vec::new()));
        for (delay, name) in [(30, "c"), (10, "a"), (10, "b"), (0, "now"), (500, "never")] {
            let (seen, clock) = (seen.clone(), clock.clone());
            scheduler.schedule("test", delay, Box::new(move || seen.lock().push((name, clock.now_ms()))));
        }
        scheduler.advance(100);
        assert_eq!(*seen.lock(), [("now", 1000), ("a", 1010), ("b", 1010), ("c", 1030)]);
        assert_eq!((clock.now_ms(), scheduler.waiting()), (1100, 1));
    }

    #[test]
    fn periodic_work_ends_at_the_last_moment_of_the_clock() {
        fn again(scheduler: &Arc<ManualScheduler>, runs: &Arc<Mutex<u32>>) {
            let next = (scheduler.clone(), runs.clone());
            scheduler.schedule(
                "test",
                10,
                Box::new(move || {
                    *next.1.lock() += 1;
                    assert!(*next.1.lock() < 100, "for ever");
                    again(&next.0, &next.1);
                }),
            );
        }
        let clock = Arc::new(ManualClock::new(i64::MAX - 35));
        let scheduler = ManualScheduler::new(clock.clone());
        let runs = Arc::new(Mutex::new(0));
        again(&scheduler, &runs);
        scheduler.advance(i64::MAX);
        assert_eq!((*runs.lock(), clock.now_ms()), (3, i64::MAX));
    }

    #[test]
    fn a_thread_runs_what_is_due_before_it_ends() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let scheduler = ThreadScheduler::start().expect("a thread");
        for (delay, name) in [(0, "a"), (0, "b"), (3_600_000, "never"), (u64::MAX, "never")] {
            let seen = seen.clone();
            scheduler.schedule("test", delay, Box::new(move || seen.lock().push(name)));
        }
        drop(scheduler);
        assert_eq!(*seen.lock(), ["a", "b"]);
    }
}
