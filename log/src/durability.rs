//! Group commit of a log, and [`Durability`], the handle on records that will be durable.
//!
//! What a handle waits for is a mark of the log (`marks.rs`, `durable`): it has passed a record once the record's bytes are
//! durable, those of all records before it, and the names of the files that they are in, so that recovery finds them. One flush of the log
//! serves all who wait: whoever blocks while none is going on runs it on its own thread, up to the log end as it is then;
//! whoever comes meanwhile waits for its end, and the first who needs more runs the next. Handles that are only polled are
//! served by whoever flushes, and if nobody does by a task of the log's scheduler.
//!
//! Each handle has an entry in the committer's table, where its answer is put before anything changes that it was about: a
//! truncation answers those whose records it drops, a failed flush all that are waiting, and a close all there are.
//!
//! Invariants, each with a model in `tests/loom.rs`: nothing is acknowledged before a sync that began after it was
//! written; everybody wakes; a fence reaches everybody.
//!
//! *Lock order*: the log's mutex, the table, the offsets. Nothing here is held across a sync.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use kseg_format::Offset;

use crate::error::{Error, Result};
use crate::log::{Inner, Log};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, Thread, current, park, yield_now};

/// Turns that a leader gives to those who were served with it last time, so that they share the next flush, too: no more
/// than this for each of them, and no more once so many in a row have brought nothing. A lone writer's leader gives none.
const TURNS_EACH: usize = 4;
const TURNS_IDLE: usize = 3;

/// Who waits for records of one log to be durable.
#[derive(Debug)]
pub(crate) struct Committer {
    table: Mutex<Table>,
}

/// A thread that waits. Woken by itself, and not through a lock that all of them would queue for.
#[derive(Debug)]
struct Waiting {
    thread: Thread,
    woken: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    asked: BTreeMap<u64, Asked>,
    last_id: u64,
    flushing: bool,
    /// Threads that wait for the end of a flush.
    waiting: Vec<Arc<Waiting>>,
    /// How many the last flush served beside the thread that ran it.
    served: usize,
    /// A task of the scheduler looks after those that are only polled.
    attended: bool,
}

#[derive(Debug)]
struct Asked {
    /// Records below are to be durable.
    end: Offset,
    answer: Option<Answer>,
    waker: Option<Waker>,
}

#[derive(Clone, Debug)]
enum Answer {
    Durable,
    Not(Arc<str>),
}

impl Committer {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::new(Table::default()) }
    }
}

impl Table {
    /// Answers what has no answer yet and for which `answer` has one; returns those to be woken for it.
    fn settle(&mut self, answer: impl Fn(Offset) -> Option<Answer>) -> Vec<Waker> {
        let mut woken = Vec::new();
        for asked in self.asked.values_mut().filter(|asked| asked.answer.is_none()) {
            asked.answer = answer(asked.end);
            if asked.answer.is_some() {
                woken.extend(asked.waker.take());
            }
        }
        woken
    }
}

impl Inner {
    /// A handle on all records below `end`. Under the log's mutex, or the records could be cut before anybody knows.
    pub(crate) fn ask(self: &Arc<Self>, end: Offset) -> Durability {
        let mut table = self.committer.table.lock();
        table.last_id += 1;
        let id = table.last_id;
        table.asked.insert(id, Asked { end, answer: None, waker: None });
        Durability { log: Arc::clone(self), id, end }
    }

    /// Whether records below `end` are durable.
    fn reached(&self, end: Offset) -> bool {
        self.marks.read().durable >= end
    }

    /// Answers, of those that have no answer yet, all that are durable, and those for which `answer` has another one.
    fn settle(&self, answer: impl Fn(Offset) -> Option<Answer>) {
        let mut table = self.committer.table.lock();
        if table.asked.is_empty() {
            return;
        }
        let wakers = self.settle_in(&mut table, answer);
        let waiting = std::mem::take(&mut table.waiting);
        drop(table);
        wake(waiting, wakers);
    }

    /// As [`settle`](Self::settle), but returns those to be woken.
    fn settle_in(&self, table: &mut Table, answer: impl Fn(Offset) -> Option<Answer>) -> Vec<Waker> {
        // Read under the table's lock: a mark from before a truncation would speak for whoever has asked since.
        let durable = self.marks.read().durable;
        table.settle(|end| if durable >= end { Some(Answer::Durable) } else { answer(end) })
    }

    /// More is durable: answers those that waited for it.
    pub(crate) fn settle_durable(&self) {
        self.settle(|_| None);
    }

    /// The log is about to be cut at `to`: nobody will be told of records behind it that they are durable, but for those
    /// that are so already.
    pub(crate) fn settle_cut(&self, to: Offset) {
        let cut: Arc<str> = "they were truncated before they were known to be durable".into();
        self.settle(|end| (end > to).then(|| Answer::Not(Arc::clone(&cut))));
    }

    /// Nobody who waits will be told that anything is durable, but what is so already.
    pub(crate) fn settle_failed(&self, cause: &impl fmt::Display) {
        let cause: Arc<str> = cause.to_string().into();
        self.settle(|_| Some(Answer::Not(Arc::clone(&cause))));
    }

    /// Runs a flush for all who wait. `table` says that none is going on.
    fn lead(self: &Arc<Self>, mut table: MutexGuard<'_, Table>) -> Result<()> {
        table.flushing = true;
        let served = table.served;
        drop(table);
        self.gather(served);
        let result = self.flush_to(self.log_end(), false);
        let cause: Option<Arc<str>> = result.as_ref().err().map(|error| error.to_string().into());
        let mut table = self.committer.table.lock();
        table.flushing = false;
        let wakers = self.settle_in(&mut table, |_| cause.clone().map(Answer::Not));
        let waiting = std::mem::take(&mut table.waiting);
        table.served = waiting.len() + wakers.len();
        drop(table);
        wake(waiting, wakers);
        result
    }

    /// Makes durable what lies below `end`, or what a truncation leaves of it, by a flush that serves all who wait.
    ///
    /// # Errors
    /// That of the flush.
    pub(crate) fn flush_for(self: &Arc<Self>, end: Offset) -> Result<()> {
        self.check_health()?;
        // Pairs with the stores of those that close: no flush moves a mark any more.
        let closed = || self.closed.load(Ordering::Acquire);
        self.wait_until(|_| {
            if self.reached(end) || self.reached(self.log_end()) || closed() {
                Some(Ok(()))
            } else {
                self.fence.is_set().then(|| Err(self.fenced()))
            }
        })?;
        if closed() { self.flush_to(end, false) } else { Ok(()) }
    }

    /// Waits for an answer, running flushes where nobody else does.
    fn wait_until(self: &Arc<Self>, answer: impl Fn(&Table) -> Option<Result<()>>) -> Result<()> {
        loop {
            let table = self.committer.table.lock();
            if let Some(answer) = answer(&table) {
                return answer;
            }
            if table.flushing {
                wait_for_end(table);
            } else if let Err(error) = self.lead(table) {
                // What it failed at may lie behind these records.
                return match answer(&self.committer.table.lock()) {
                    Some(Ok(())) => Ok(()),
                    _ => Err(error),
                };
            }
        }
    }

    /// Lets those run who were served by the last flush and are about to append again.
    fn gather(&self, served: usize) {
        let (mut before, mut idle) = ((0, Offset::ZERO), 0);
        for _ in 0..served * TURNS_EACH {
            let table = self.committer.table.lock();
            let back = table.waiting.len() + usize::from(table.attended);
            drop(table);
            let now = (back, self.log_end());
            idle = if now == before { idle + 1 } else { 0 };
            if back >= served || idle == TURNS_IDLE {
                return;
            }
            before = now;
            yield_now();
        }
    }

    /// Runs flushes until nobody waits for one by a waker alone.
    fn attend(self: &Arc<Self>) {
        let mut table = self.committer.table.lock();
        let waits = |table: &Table| table.asked.values().any(|asked| asked.waker.is_some());
        while table.flushing && waits(&table) {
            wait_for_end(table);
            table = self.committer.table.lock();
        }
        if !waits(&table) {
            table.attended = false;
            return;
        }
        // A failure has been told to all who wait.
        let _ = self.lead(table);
        // Other work of the scheduler has its turn in between.
        self.attend_later();
    }

    fn attend_later(self: &Arc<Self>) {
        let log = Arc::clone(self);
        self.scheduler.schedule("sync-asked", 0, Box::new(move || log.attend()));
    }
}

/// Waits until the flush that is going on has ended, or something else was answered.
fn wait_for_end(mut table: MutexGuard<'_, Table>) {
    let waiting = Arc::new(Waiting { thread: current(), woken: AtomicBool::new(false) });
    table.waiting.push(Arc::clone(&waiting));
    drop(table);
    // Pairs with the store in `wake`.
    while !waiting.woken.load(Ordering::Acquire) {
        park();
    }
}

fn wake(waiting: Vec<Arc<Waiting>>, wakers: Vec<Waker>) {
    for waiting in waiting {
        // Pairs with the load in `wait_for_end`.
        waiting.woken.store(true, Ordering::Release);
        waiting.thread.unpark();
    }
    wakers.into_iter().for_each(Waker::wake);
}

/// The promise that records of a log will be durable: to be waited on, asked, or awaited.
///
/// It is kept once the records survive a loss of power and will be found again by whoever opens the log: their bytes, all
/// records before them, and the names of their segments are durable. One flush serves all who wait at the same time.
/// Dropping it takes nothing back. While nobody waits or awaits, no flush is run for its sake.
///
/// An error says that the records are not known to be durable: a flush failed, they were truncated, or the log was
/// abandoned. They may be there all the same.
///
/// The future needs no runtime. Its flush is run by whoever waits for another handle or flushes the log, else as a task
/// of the log's [`Scheduler`](crate::Scheduler).
#[must_use = "nothing becomes durable by it until it is waited on or awaited"]
pub struct Durability {
    log: Arc<Inner>,
    id: u64,
    end: Offset,
}

impl Log {
    /// A handle on all records below the log end offset, as it is now.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Fenced`], [`Error::Offline`].
    pub fn durability(&self) -> Result<Durability> {
        self.inner.locked(|_, _| {
            self.inner.check_writable()?;
            Ok(self.inner.ask(self.inner.log_end()))
        })
    }
}

impl Durability {
    /// All records below this offset will be durable.
    pub fn end_offset(&self) -> Offset {
        self.end
    }

    /// Blocks until it is so; runs the flush itself, for all who wait, if no other thread does.
    ///
    /// # Errors
    /// [`Error::NotDurable`]; to the one that ran a flush that failed, its error.
    pub fn wait(self) -> Result<()> {
        self.wait_for()
    }

    pub(crate) fn wait_for(&self) -> Result<()> {
        self.log.wait_until(|table| self.answer(table))
    }

    /// The answer, if there is one already. Runs no flush.
    pub fn check(&self) -> Option<Result<()>> {
        self.answer(&self.log.committer.table.lock())
    }

    fn answer(&self, table: &Table) -> Option<Result<()>> {
        let not = |cause: &str| Error::NotDurable {
            dir: self.log.dir.clone(),
            end: self.end,
            cause: cause.to_owned(),
        };
        match table.asked.get(&self.id).map(|asked| &asked.answer) {
            Some(Some(Answer::Durable)) => Some(Ok(())),
            Some(Some(Answer::Not(cause))) => Some(Err(not(cause))),
            _ if self.log.reached(self.end) => Some(Ok(())),
            _ if self.log.fence.is_set() => Some(Err(not(&self.log.fence.cause()))),
            _ => None,
        }
    }
}

impl Future for Durability {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut table = self.log.committer.table.lock();
        if let Some(answer) = self.answer(&table) {
            return Poll::Ready(answer);
        }
        if let Some(asked) = table.asked.get_mut(&self.id) {
            asked.waker = Some(context.waker().clone());
        }
        let attended = std::mem::replace(&mut table.attended, true);
        drop(table);
        if !attended {
            self.log.attend_later();
            // A scheduler may have run it at once.
            if let Some(answer) = self.check() {
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    }
}

impl Drop for Durability {
    fn drop(&mut self) {
        self.log.committer.table.lock().asked.remove(&self.id);
    }
}

impl fmt::Debug for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durability").field("end", &self.end).field("answer", &self.check()).finish()
    }
}
