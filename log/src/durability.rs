//! Group commit of a log, and [`Durability`], the handle on records that will be durable.
//!
//! What a handle waits for is a mark of the log (`marks.rs`, `durable`): it has passed a record once the record's bytes are
//! durable, those of all records before it, and the names of the files that they are in, so that recovery finds them. One flush of the log
//! serves all who wait: whoever blocks while none is going on runs it on its own thread, up to the log end as it is then;
//! whoever comes meanwhile waits for its end, and the first who needs more runs the next. Handles that are only polled are
//! served by whoever flushes, and if nobody does by a task of the log's scheduler. Whoever runs a flush waits, for less than
//! two of them take, for those who were served by the one before and are about to share this one; it sleeps meanwhile, which
//! leaves the processor to them, and is woken when nearly all are here.
//!
//! Each handle has an entry in the committer's table until it has its answer, which it gets before anything changes that it was
//! about: a truncation answers those whose records it drops, a failed flush all that are waiting, and a close all there are. The
//! entries lie there by their offsets: a flush takes those that it serves off together. What has been taken off and was not refused is
//! durable, so most answers are nowhere but in that.
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
use std::time::Duration;

use kseg_format::Offset;

use crate::error::{Error, Result};
use crate::log::{Inner, Log};
use crate::sync::{
    AtomicBool, AtomicUsize, Moment, Mutex, MutexGuard, Ordering, Thread, current, park, park_timeout,
    yield_now,
};

/// The longest that a flush is put off for others, and of that without that one of them comes; less where a flush takes less.
/// Who is to come at once has come by then, and a slow device does not make those wait longer who are there.
const WAIT_MAX: Duration = Duration::from_millis(1);
const IDLE_MAX: Duration = Duration::from_micros(200);

/// Who waits for records of one log to be durable.
#[derive(Debug)]
pub(crate) struct Committer {
    table: Mutex<Table>,
    /// Threads and tasks that wait for a flush; of each moment, so that whoever runs the next one can watch them come
    /// without the lock that they come by. Orders nothing: Relaxed.
    here: AtomicUsize,
}

/// A thread that waits. Woken by itself, and not through a lock that all of them would queue for.
#[derive(Debug)]
struct Waiting {
    thread: Thread,
    woken: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    /// Handles without an answer, by the offset below which records are to be durable and their number; with the waker
    /// of those that are awaited.
    pending: BTreeMap<(Offset, u64), Option<Waker>>,
    /// Those whose records are not known to be durable, and why. All others have been told that theirs are.
    refused: BTreeMap<u64, Arc<str>>,
    last_id: u64,
    flushing: bool,
    /// Threads that wait for the end of a flush.
    waiting: Vec<Arc<Waiting>>,
    /// Pending handles that have a waker.
    awaited: usize,
    /// A task of the scheduler looks after those that are only polled.
    attended: bool,
    pace: Pace,
    /// Who is about to flush and sleeps until nearly all are here, or some time has passed.
    gathering: Option<Thread>,
}

/// How long the next flush is put off for those whom the last one served: they may be about to append again, and to share
/// it.
///
/// Not longer than two flushes take, and only while more of them come: a flush that is run beside them instead serves few, and
/// slows down their writes. A lone writer is not waited for.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// How many waited before the last flush was over.
    expected: usize,
    /// When the last one was over before which anybody waited.
    ended: Option<Moment>,
    /// The least that a flush has taken of late.
    quickest: Duration,
}

impl Committer {
    pub(crate) fn new() -> Self {
        Self { table: Mutex::new(Table::default()), here: AtomicUsize::new(0) }
    }

    /// Waits until the flush that is going on has ended, or something else was answered.
    fn wait_for_end(&self, mut table: MutexGuard<'_, Table>) {
        let waiting = Arc::new(Waiting { thread: current(), woken: AtomicBool::new(false) });
        table.waiting.push(Arc::clone(&waiting));
        self.count(&mut table);
        drop(table);
        // Pairs with the store in `wake`.
        while !waiting.woken.load(Ordering::Acquire) {
            park();
        }
    }

    /// Takes note of how many wait. Under the lock of the table.
    fn count(&self, table: &mut Table) {
        let here = table.waiting.len() + table.awaited;
        self.here.store(here, Ordering::Relaxed);
        if table.pace.is_nearly(here)
            && let Some(leader) = table.gathering.take()
        {
            leader.unpark();
        }
    }

    /// Puts the next flush off for those who are about to share it. `pace` is from when the caller began to lead.
    fn gather(&self, pace: Pace) {
        let Some(ended) = pace.ended else { return };
        let (mut before, mut since) = (None, ended);
        loop {
            let here = self.here.load(Ordering::Relaxed);
            if here >= pace.expected || ended.elapsed() >= WAIT_MAX.min(pace.quickest * 2) {
                return;
            }
            let idle = IDLE_MAX.min(pace.quickest / 2);
            if before != Some(here) {
                (before, since) = (Some(here), Moment::now());
            } else if since.elapsed() >= idle {
                return;
            }
            if pace.is_nearly(here) {
                yield_now();
            } else {
                park_timeout(idle);
            }
        }
    }
}

impl Pace {
    /// Whether so many are here that the leader, if it sleeps, is to be woken: that takes as long as the last ones take.
    fn is_nearly(&self, here: usize) -> bool {
        here >= self.expected - self.expected / 8
    }

    /// A flush that began at `begun` is over, before which `waited` waited beside who ran it.
    fn flushed(&mut self, begun: Moment, waited: usize) {
        self.expected = waited;
        // Nobody will be waited for, and a lone writer's flush is not to be held up by a clock.
        if waited > 0 {
            let ended = Moment::now();
            let took = ended.duration_since(begun);
            // Goes up slowly where flushes have become slower.
            let before = self.quickest + self.quickest / 16 + Duration::from_micros(1);
            self.quickest = if self.ended.is_none() { took } else { took.min(before) };
            self.ended = Some(ended);
        }
    }
}

impl Table {
    /// Answers the pending handles on records below `durable`, and with `not` those of the others that reach above its
    /// offset; returns those to be woken for it.
    fn settle(&mut self, durable: Offset, not: Option<(Offset, Arc<str>)>) -> Vec<Waker> {
        let later = self.pending.split_off(&(durable.next(), 0));
        let served = std::mem::replace(&mut self.pending, later);
        let mut woken: Vec<Waker> = served.into_values().flatten().collect();
        if let Some((above, cause)) = not {
            for ((_, id), waker) in self.pending.split_off(&(above.next(), 0)) {
                self.refused.insert(id, Arc::clone(&cause));
                woken.extend(waker);
            }
        }
        self.awaited -= woken.len();
        woken
    }
}

impl Inner {
    /// A handle on all records below `end`. Under the log's mutex, or the records could be cut before anybody knows.
    pub(crate) fn ask(self: &Arc<Self>, end: Offset) -> Durability {
        let mut table = self.committer.table.lock();
        table.last_id += 1;
        let id = table.last_id;
        table.pending.insert((end, id), None);
        Durability { log: Arc::clone(self), id, end, served: false }
    }

    /// Whether records below `end` are durable.
    fn reached(&self, end: Offset) -> bool {
        self.marks.read().durable >= end
    }

    /// Answers, of those that have no answer yet, all that are durable, and with `not` those of the others that reach above
    /// its offset.
    fn settle(&self, not: Option<(Offset, Arc<str>)>) {
        let mut table = self.committer.table.lock();
        let wakers = self.settle_in(&mut table, not);
        let waiting = std::mem::take(&mut table.waiting);
        self.committer.count(&mut table);
        drop(table);
        wake(waiting, wakers);
    }

    /// As [`settle`](Self::settle), but returns those to be woken.
    fn settle_in(&self, table: &mut Table, not: Option<(Offset, Arc<str>)>) -> Vec<Waker> {
        // Read under the table's lock: a mark from before a truncation would speak for whoever has asked since.
        let durable = self.marks.read().durable;
        table.settle(durable, not)
    }

    /// More is durable: answers those that waited for it.
    pub(crate) fn settle_durable(&self) {
        self.settle(None);
    }

    /// The log is about to be cut at `to`: nobody will be told of records behind it that they are durable, but for those
    /// that are so already.
    pub(crate) fn settle_cut(&self, to: Offset) {
        self.settle(Some((to, "they were truncated before they were known to be durable".into())));
    }

    /// Nobody who waits will be told that anything is durable, but what is so already.
    pub(crate) fn settle_failed(&self, cause: &impl fmt::Display) {
        self.settle(Some((Offset::ZERO, cause.to_string().into())));
    }

    /// Runs a flush for all who wait. `table` says that none is going on.
    fn lead(self: &Arc<Self>, mut table: MutexGuard<'_, Table>) -> Result<()> {
        table.flushing = true;
        let pace = table.pace;
        table.gathering = Some(current());
        drop(table);
        self.committer.gather(pace);
        let begun = Moment::now();
        let result = self.flush_to(self.log_end(), false);
        let not = result.as_ref().err().map(|error| (Offset::ZERO, error.to_string().into()));
        let mut table = self.committer.table.lock();
        table.flushing = false;
        table.gathering = None;
        let waited = table.waiting.len() + table.awaited;
        table.pace.flushed(begun, waited);
        let wakers = self.settle_in(&mut table, not);
        let waiting = std::mem::take(&mut table.waiting);
        self.committer.count(&mut table);
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
                self.committer.wait_for_end(table);
            } else if let Err(error) = self.lead(table) {
                // What it failed at may lie behind these records.
                return match answer(&self.committer.table.lock()) {
                    Some(Ok(())) => Ok(()),
                    _ => Err(error),
                };
            }
        }
    }

    /// Runs a flush if anybody waits for one by a waker alone, and has itself called again then.
    fn attend(self: &Arc<Self>) {
        let mut table = self.committer.table.lock();
        while table.flushing && table.awaited > 0 {
            self.committer.wait_for_end(table);
            table = self.committer.table.lock();
        }
        if table.awaited == 0 {
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
/// of the log's [`Scheduler`](crate::Scheduler): one that runs its tasks on a thread of its own, as
/// [`ThreadScheduler`](crate::ThreadScheduler), or each poll waits for a flush for itself alone.
#[must_use = "nothing becomes durable by it until it is waited on or awaited"]
pub struct Durability {
    log: Arc<Inner>,
    id: u64,
    end: Offset,
    /// Its answer was taken, and it has no entry any more.
    served: bool,
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

    /// The answer, if there is one already. Runs no flush, and asks nobody for one: who looks again and again waits for ever
    /// where nothing else flushes the log. Poll the future for that.
    pub fn check(&self) -> Option<Result<()>> {
        self.answer(&self.log.committer.table.lock())
    }

    fn key(&self) -> (Offset, u64) {
        (self.end, self.id)
    }

    fn answer(&self, table: &Table) -> Option<Result<()>> {
        if table.pending.contains_key(&self.key()) { self.foreseen() } else { Some(self.given(table)) }
    }

    /// The answer of a handle that is not pending any more.
    fn given(&self, table: &Table) -> Result<()> {
        table.refused.get(&self.id).map_or(Ok(()), |cause| Err(self.not(cause)))
    }

    /// The answer that one that is pending is about to get, where the log's state already says so.
    fn foreseen(&self) -> Option<Result<()>> {
        if self.log.reached(self.end) {
            return Some(Ok(()));
        }
        self.log.fence.is_set().then(|| Err(self.not(&self.log.fence.cause())))
    }

    #[cold]
    fn not(&self, cause: &str) -> Error {
        Error::NotDurable { dir: self.log.dir.clone(), end: self.end, cause: cause.to_owned() }
    }
}

impl Future for Durability {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut table = self.log.committer.table.lock();
        let before = match table.pending.get_mut(&self.key()) {
            Some(entry) => match self.foreseen() {
                Some(answer) => return Poll::Ready(answer),
                None => entry.replace(context.waker().clone()),
            },
            None => {
                let given = self.given(&table);
                drop(table);
                self.served = given.is_ok();
                return Poll::Ready(given);
            }
        };
        if before.is_none() {
            table.awaited += 1;
            self.log.committer.count(&mut table);
        }
        let attended = std::mem::replace(&mut table.attended, true);
        drop(table);
        // Not under the lock: the last handle of a task may be what another handle is dropped with.
        drop(before);
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
        if self.served {
            return;
        }
        let committer = &self.log.committer;
        let mut table = committer.table.lock();
        let waker = match table.pending.remove(&self.key()) {
            Some(waker) => waker,
            None => {
                table.refused.remove(&self.id);
                return;
            }
        };
        if waker.is_some() {
            table.awaited -= 1;
            committer.count(&mut table);
        }
        // As in `poll`.
        drop(table);
        drop(waker);
    }
}

impl fmt::Debug for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durability").field("end", &self.end).field("answer", &self.check()).finish()
    }
}
