//! [`Calls`]: the calls of a directory that are under way, and whether there may be more.
//!
//! An orderly stop first refuses whatever comes, then waits for what is under way: so nobody opens a log behind its back, and
//! nobody writes to the directory once its lock is gone.

use crate::sync::{Mutex, Thread, current, park};

/// Counts calls until it is ended.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    under_way: usize,
    ended: bool,
    /// Who waits for the last of them to leave.
    waiting: Option<Thread>,
}

/// A call that is under way, until this is dropped.
#[derive(Debug)]
#[must_use = "the call is over when it is dropped"]
pub(crate) struct Inside<'c>(&'c Calls);

impl Calls {
    /// Counts a call; `None` once there are to be no more.
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        let mut state = self.0.lock();
        if state.ended {
            return None;
        }
        state.under_way += 1;
        Some(Inside(self))
    }

    /// Refuses calls from here on, and waits until none is under way. One thread at a time may ask for it, and from outside
    /// of any call.
    pub(super) fn end(&self) {
        loop {
            let mut state = self.0.lock();
            state.ended = true;
            if state.under_way == 0 {
                return;
            }
            state.waiting = Some(current());
            drop(state);
            park();
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.under_way -= 1;
        if state.under_way == 0
            && let Some(waiting) = state.waiting.take()
        {
            waiting.unpark();
        }
    }
}
