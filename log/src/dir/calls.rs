//! [`Calls`]: the calls of a directory that are under way, and whether there may be more.
//!
//! An orderly stop first refuses whatever comes, then waits for what is under way: so nobody opens a log behind its back, and
//! nobody writes to the directory once its lock is gone. A call that was let in may make others, as a truncation writes the
//! checkpoints: they are let in for its sake, or it would be left half done.

use crate::sync::{Mutex, Thread, ThreadId, current, park};

/// Counts calls until it is ended.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// On which thread each call is under way; the one that it is made for is on the same.
    under_way: Vec<ThreadId>,
    ended: bool,
    /// Who waits for the last of them to leave.
    waiting: Option<Thread>,
}

/// A call that is under way, until this is dropped.
#[derive(Debug)]
#[must_use = "the call is over when it is dropped"]
pub(crate) struct Inside<'c> {
    calls: &'c Calls,
    thread: ThreadId,
}

impl Calls {
    /// Counts a call; `None` once there are to be no more, but for those that a call under way makes.
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        let thread = current().id();
        let mut state = self.0.lock();
        if state.ended && !state.under_way.contains(&thread) {
            return None;
        }
        state.under_way.push(thread);
        Some(Inside { calls: self, thread })
    }

    /// Refuses calls from here on, and waits until none is under way. One thread at a time may ask for it, and from outside
    /// of any call.
    pub(super) fn end(&self) {
        loop {
            let mut state = self.0.lock();
            state.ended = true;
            if state.under_way.is_empty() {
                return;
            }
            state.waiting = Some(current());
            drop(state);
            park();
        }
    }
}

impl Inside<'_> {
    /// The part of the call that is done on this thread.
    pub(super) fn here(&self) -> Inside<'_> {
        let thread = current().id();
        self.calls.0.lock().under_way.push(thread);
        Inside { calls: self.calls, thread }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut state = self.calls.0.lock();
        if let Some(at) = state.under_way.iter().rposition(|thread| *thread == self.thread) {
            state.under_way.swap_remove(at);
        }
        if state.under_way.is_empty()
            && let Some(waiting) = state.waiting.take()
        {
            waiting.unpark();
        }
    }
}
