//! A clock that stands still until told, and tasks that run when it comes past them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kseg_log::{Clock, Scheduler, Task};

/// The time of a story, shared by all of its logs.
///
/// What has no delay runs before [`Scheduler::schedule`] returns. Everything else waits for [`Time::sleep`]: tasks run
/// in the order in which they are due, those due together in the order in which they came, each with the clock at its
/// own due time. A task outlives the log that scheduled it.
#[derive(Default)]
pub(crate) struct Time {
    now: AtomicI64,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    count: u64,
    due: BTreeMap<(i64, u64), Task>,
}

impl Time {
    /// Sets the clock and runs nothing.
    pub(crate) fn set(&self, now: i64) {
        self.now.store(now, Ordering::SeqCst);
    }

    /// Advances the clock and runs what comes due.
    pub(crate) fn sleep(&self, ms: i64) {
        let until = self.now_ms().saturating_add(ms);
        while let Some((due, task)) = self.take(until) {
            self.set(due.max(self.now_ms()));
            task();
        }
        self.set(until);
    }

    /// The first task that is due. The list is unlocked while a task runs.
    fn take(&self, until: i64) -> Option<(i64, Task)> {
        let mut tasks = self.lock();
        let first = tasks.due.first_entry()?;
        let due = first.key().0;
        (due <= until).then(|| (due, first.remove()))
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for Time {
    fn now_ms(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }
}

impl Scheduler for Time {
    fn schedule(&self, _name: &'static str, delay_ms: u64, task: Task) {
        if delay_ms == 0 {
            return task();
        }
        let due = self.now_ms().saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX));
        let mut tasks = self.lock();
        let number = tasks.count;
        tasks.count += 1;
        tasks.due.insert((due, number), task);
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Time").field("now", &self.now_ms()).field("tasks", &self.lock().due.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kseg_log::{Clock, Scheduler};

    use super::Time;

    #[test]
    fn tasks_run_in_order_with_the_clock_at_their_time() {
        let time = Arc::new(Time::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        for delay in [30, 10, 0, 20] {
            let (t, s) = (Arc::clone(&time), Arc::clone(&seen));
            time.schedule("task", delay, Box::new(move || s.lock().unwrap().push((delay, t.now_ms()))));
        }
        time.sleep(25);
        assert_eq!(*seen.lock().unwrap(), [(0, 0), (10, 10), (20, 20)]);
        assert_eq!(time.now_ms(), 25);
        time.sleep(5);
        assert_eq!(seen.lock().unwrap().last(), Some(&(30, 30)));
    }
}
