//! Group commit: one sync serves all who wait, and [`Durability`], the handle on a sync that is still to come.
//!
//! There is at most one sync at a time. Whoever blocks while none is going on runs it on its own thread, for all whose
//! bytes were there when it began; whoever comes meanwhile waits for the end of it, and the first of those who need
//! more runs the next one. A handle that is only polled or awaited is served by whoever runs a sync, and if nobody
//! does, by a thread of the background.
//!
//! Invariants, each with a model in `tests/loom.rs`: nothing is acknowledged before a sync that began after it was
//! written; everybody wakes; a fence reaches everybody.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::appender::{not_appended, truncated};
use crate::backend::RawFile;
use crate::error::IoError;
use crate::marks::Marks;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, Thread, current, in_turns, park, yield_now};

/// Turns that a leader gives to those who were served with it last time, so that they share the next sync, too: no more
/// than this for each of them, and no more once so many in a row have brought nothing. A lone writer's leader gives none.
const TURNS_EACH: usize = 4;
const TURNS_IDLE: usize = 3;

/// What is committed: the append side of one file.
pub(crate) trait Commits: Send + Sync + 'static {
    /// Who waits.
    fn committer(&self) -> &Committer;

    /// How far the file is.
    fn marks(&self) -> &Marks;

    /// Whether the file was cut to a length that no sync has covered.
    fn is_cut(&self) -> bool;

    /// Runs one sync over all that was accepted before, and moves the durable mark. Never called twice at a time.
    ///
    /// # Errors
    /// The file is fenced then, unless it was only space that was missing.
    fn sync(&self) -> Result<u64, IoError>;

    /// The error of whoever meets the fence.
    fn refused(&self, op: &'static str) -> Option<IoError>;

    /// What is synced.
    fn file(&self) -> &dyn RawFile;
}

/// Who waits for syncs of one file.
#[derive(Debug)]
pub(crate) struct Committer {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Syncs that were begun, and that were ended.
    begun: u64,
    ended: u64,
    /// Threads that wait for the end of a sync.
    waiting: Vec<Arc<Waiting>>,
    /// How many the last sync served beside the thread that ran it.
    served: usize,
    wakers: Vec<Watcher>,
    /// What those are told that were woken by a sync that failed without a fence, by their numbers.
    told: Vec<(u64, Arc<IoError>)>,
    last_id: u64,
    /// A thread of the background looks after the wakers.
    attended: bool,
}

#[derive(Debug)]
struct Watcher {
    id: u64,
    upto: u64,
    waker: Waker,
}

/// A thread that waits. Woken by itself, and not through a lock that all of them would queue for.
#[derive(Debug)]
struct Waiting {
    thread: Thread,
    woken: AtomicBool,
}

impl State {
    fn syncing(&self) -> bool {
        self.begun != self.ended
    }
}

impl Committer {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::default()) }
    }

    /// Waits until what is accepted now is durable, or runs the sync; returns the durable mark.
    pub(crate) fn flush(on: &(impl Commits + ?Sized)) -> Result<u64, IoError> {
        let committer = on.committer();
        // Of what is written and accepted at once, either mark may be seen to move first.
        let upto = on.marks().accepted().max(on.marks().stable());
        let cuts = on.marks().cuts();
        let was_cut = on.is_cut();
        // Of a file that nobody has synced yet, and of a cut, the marks do not say all.
        let covered = || {
            let durable = on.marks().durable();
            let says = durable >= upto && upto > 0 && !on.is_cut() && on.marks().cuts() == cuts;
            says.then_some(durable)
        };
        loop {
            let state = committer.state.lock();
            if state.syncing() {
                Self::wait_for_end(state);
                // A sync that is going on may be the one that covers a cut from before.
                if let Some(durable) = covered().filter(|_| !was_cut) {
                    return Ok(durable);
                }
                continue;
            }
            if let Some(durable) = covered() {
                return Ok(durable);
            }
            return match on.refused("flush") {
                Some(error) => Err(error),
                None => committer.lead(on, state),
            };
        }
    }

    /// Waits until bytes below `upto` are durable, running syncs where nobody else does.
    fn wait(on: &dyn Commits, wanted: Wanted) -> Result<u64, IoError> {
        let committer = on.committer();
        loop {
            if let Some(outcome) = outcome(on, wanted) {
                return outcome;
            }
            let state = committer.state.lock();
            if let Some(outcome) = outcome(on, wanted) {
                return outcome;
            }
            if state.syncing() {
                Self::wait_for_end(state);
            } else {
                committer.lead(on, state)?;
            }
        }
    }

    /// Waits until the sync that is going on has ended, or somebody disturbs.
    fn wait_for_end(mut state: MutexGuard<'_, State>) {
        let waiting = Arc::new(Waiting { thread: current(), woken: AtomicBool::new(false) });
        state.waiting.push(Arc::clone(&waiting));
        drop(state);
        // Pairs with the store in `wake`: who is woken sees the marks that the sync has moved.
        while !waiting.woken.load(Ordering::Acquire) {
            park();
        }
    }

    /// Runs a sync for all who wait. `state` says that none is going on.
    fn lead<'a>(
        &'a self,
        on: &(impl Commits + ?Sized),
        mut state: MutexGuard<'a, State>,
    ) -> Result<u64, IoError> {
        state.begun += 1;
        let served = state.served;
        drop(state);
        self.gather(on.marks(), served);
        let result = on.sync();
        let mut state = self.state.lock();
        state.ended = state.begun;
        let ready = |watcher: &Watcher| result.is_err() || on.marks().durable() >= watcher.upto;
        let wakers: Vec<Watcher> = state.wakers.extract_if(.., |watcher| ready(watcher)).collect();
        let result = match result {
            // Where there is a fence they find that.
            Err(error) if on.refused("flush").is_none() => {
                let error = Arc::new(error);
                state.told.extend(wakers.iter().map(|watcher| (watcher.id, Arc::clone(&error))));
                Err(IoError::copy_of(&error))
            }
            result => result,
        };
        let waiting = mem::take(&mut state.waiting);
        state.served = waiting.len() + wakers.len();
        drop(state);
        wake(waiting, wakers);
        result
    }

    /// Lets those run who were served by the last sync and are about to append again.
    fn gather(&self, marks: &Marks, served: usize) {
        let (mut before, mut idle) = ((0, 0), 0);
        for _ in 0..served * TURNS_EACH {
            let state = self.state.lock();
            let back = state.waiting.len() + state.wakers.len();
            drop(state);
            let now = (back, marks.accepted());
            idle = if now == before { idle + 1 } else { 0 };
            if back >= served || idle == TURNS_IDLE {
                return;
            }
            before = now;
            yield_now();
        }
    }

    /// Wakes everybody to look again: the file was cut.
    pub(crate) fn disturb(&self) {
        let mut state = self.state.lock();
        let (waiting, wakers) = (mem::take(&mut state.waiting), mem::take(&mut state.wakers));
        drop(state);
        wake(waiting, wakers);
    }

    /// Sees to one sync, and says whether there is more to do: not once nobody waits for one by a waker alone.
    fn attend(on: &dyn Commits) -> bool {
        let committer = on.committer();
        let mut state = committer.state.lock();
        if state.wakers.is_empty() {
            state.attended = false;
            return false;
        }
        if state.syncing() {
            Self::wait_for_end(state);
        } else {
            // A failure has woken everybody, who find the fence or are told; nobody is left to serve then.
            let _ = committer.lead(on, state);
        }
        true
    }
}

fn wake(waiting: Vec<Arc<Waiting>>, wakers: Vec<Watcher>) {
    for waiting in waiting {
        // Pairs with the load in `wait_for_end`.
        waiting.woken.store(true, Ordering::Release);
        waiting.thread.unpark();
    }
    wakers.into_iter().for_each(|watcher| watcher.waker.wake());
}

/// The bytes that a handle is about: those below `upto`, as they were when the file's cuts were so many.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    upto: u64,
    cuts: u64,
    /// They had been accepted when the handle was made. No sync brings others.
    accepted: bool,
}

/// What is known of bytes without a sync.
fn outcome(on: &dyn Commits, wanted: Wanted) -> Option<Result<u64, IoError>> {
    // Durable before fenced: what a sync has covered stays acknowledged.
    let durable = on.marks().durable();
    let refused = if durable >= wanted.upto { None } else { on.refused("flush") };
    // After the mark: one that rose by bytes appended behind a cut is seen with the cut.
    if on.marks().cuts() != wanted.cuts {
        return Some(Err(truncated(on.file(), wanted.upto)));
    }
    if !wanted.accepted {
        return Some(Err(not_appended(on.file(), wanted.upto)));
    }
    if durable >= wanted.upto { Some(Ok(durable)) } else { refused.map(Err) }
}

/// The promise that bytes of a file will be durable: to be waited on, asked, or awaited.
///
/// It is kept by one sync that serves all who wait at the same time. Dropping it takes nothing back. While nobody
/// waits, asks or awaits, no sync is run for its sake.
///
/// The answer is the durable mark, at or behind the bytes it is about. An error says that they are not known to be
/// durable: the sync failed and the file is fenced, or there was no space to write them and a later handle may have more
/// luck, or the file was truncated meanwhile, wherever that was; or they had never been appended.
#[must_use = "nothing becomes durable by it until it is waited on or awaited"]
pub struct Durability {
    on: Arc<dyn Commits>,
    wanted: Wanted,
    /// The number of its waker, once it has one.
    id: Option<u64>,
}

impl Durability {
    pub(crate) fn new(on: Arc<dyn Commits>, upto: u64) -> Self {
        let cuts = on.marks().cuts();
        // After the cuts: a cut in between is told of, at worst, though it left the bytes.
        let accepted = on.marks().accepted() >= upto;
        Self { on, wanted: Wanted { upto, cuts, accepted }, id: None }
    }

    /// The same handle on bytes that were appended when the file's cuts were so many.
    pub(crate) fn appended_after(mut self, cuts: u64) -> Self {
        self.wanted.cuts = cuts;
        self
    }

    /// The position below which bytes will be durable.
    pub fn position(&self) -> u64 {
        self.wanted.upto
    }

    /// Blocks until it is so; runs the sync itself, for all who wait, if no other thread does.
    ///
    /// # Errors
    /// The bytes are not known to be durable.
    pub fn wait(self) -> Result<u64, IoError> {
        Committer::wait(&*self.on, self.wanted)
    }

    /// The answer, if there is one already. Runs no sync.
    pub fn check(&self) -> Option<Result<u64, IoError>> {
        outcome(&*self.on, self.wanted)
    }
}

impl Future for Durability {
    type Output = Result<u64, IoError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = self.check() {
            return Poll::Ready(outcome);
        }
        let on = Arc::clone(&self.on);
        let mut state = on.committer().state.lock();
        // Once more under the lock: from here on whoever ends a sync sees the waker.
        if let Some(outcome) = self.check() {
            return Poll::Ready(outcome);
        }
        if let Some(at) = state.told.iter().position(|(id, _)| Some(*id) == self.id) {
            return Poll::Ready(Err(IoError::copy_of(&state.told.swap_remove(at).1)));
        }
        let id = *self.id.get_or_insert_with(|| {
            state.last_id += 1;
            state.last_id
        });
        let waker = context.waker().clone();
        match state.wakers.iter_mut().find(|watcher| watcher.id == id) {
            Some(watcher) => watcher.waker = waker,
            None => state.wakers.push(Watcher { id, upto: self.wanted.upto, waker }),
        }
        if !mem::replace(&mut state.attended, true) {
            let on = Arc::clone(&on);
            drop(state);
            // In turns: other files have theirs to be attended to, too.
            in_turns(move || Committer::attend(&*on));
        }
        Poll::Pending
    }
}

impl Drop for Durability {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let mut state = self.on.committer().state.lock();
            state.wakers.retain(|watcher| watcher.id != id);
            state.told.retain(|(told, _)| *told != id);
        }
    }
}

impl fmt::Debug for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durability")
            .field("position", &self.position())
            .field("answer", &self.check())
            .finish()
    }
}
