//! A wish to stop: SIGINT and SIGTERM end the work, not the process, so that what has been begun is brought to an end and the
//! data directory is left in order. A second one of either ends the process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// How long a signal waits to be seen.
const CHECK: Duration = Duration::from_millis(50);

/// From here on a write beyond the process's limit on the size of a file (`ulimit -f`) is an error of that write, and not the
/// end of the process. Nobody asks for the flag.
pub(crate) fn outlive_size_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(|_| ())
}

/// Which signal has come.
#[derive(Debug)]
pub(crate) struct Stop(Arc<AtomicUsize>);

impl Stop {
    /// From here on the two signals are noted.
    pub(crate) fn listen() -> io::Result<Stop> {
        let number = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM] {
            let again = Arc::new(AtomicBool::new(false));
            // In this order: the first time the condition is not set yet.
            flag::register_conditional_shutdown(signal, 128 + signal, again.clone())?;
            flag::register(signal, again)?;
            flag::register_usize(signal, number.clone(), signal.unsigned_abs() as usize)?;
        }
        Ok(Stop(number))
    }

    /// Does `work`; once a signal has come, `end` is done beside it, on a thread of its own, to have it end early.
    pub(crate) fn ending<T>(&self, end: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
        let done = AtomicBool::new(false);
        thread::scope(|threads| {
            let watch = threads.spawn(|| {
                // Nothing hangs on the flag but when this ends: Relaxed.
                while !done.load(Ordering::Relaxed) {
                    if self.asked().is_some() {
                        return end();
                    }
                    thread::park_timeout(CHECK);
                }
            });
            let result = work();
            done.store(true, Ordering::Relaxed);
            watch.thread().unpark();
            result
        })
    }

    /// The number of the signal, once one has come.
    pub(crate) fn asked(&self) -> Option<i32> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            number => i32::try_from(number).ok(),
        }
    }
}
