//! [`Ticket`]: the handle of one submitted operation, at once waitable, pollable and a `Future`.

use std::fmt;
use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::error::IoError;
use crate::op::Done;
use crate::sync::{Condvar, Mutex, in_background};

/// What makes the operations of an engine finish whose completions must be fetched by somebody: whoever waits for a
/// ticket fetches them, on its own thread.
pub(crate) trait Driver: Send + Sync + 'static {
    /// Processes completions, of any operation, until `done` says so.
    fn drive_until(&self, done: &dyn Fn() -> bool);

    /// Processes the completions that are there, unless another thread is at it.
    fn poke(&self);
}

/// One submitted operation.
///
/// A blocking engine returns it ready, without an allocation. An engine that completes later keeps the
/// [`Completer`] with the operation and answers through it. Dropping a ticket detaches it: the operation goes on,
/// what it owns is freed when it is done, and nobody hears of the result.
#[must_use = "the operation may have failed: take the answer, or drop the ticket on purpose"]
pub struct Ticket(State);

enum State {
    Ready(Done),
    Pending(Arc<Slot>, Option<Arc<dyn Driver>>),
    Taken,
}

impl Ticket {
    /// A ticket whose operation is done.
    pub fn ready(done: Done) -> Self {
        Self(State::Ready(done))
    }

    /// A ticket whose operation is going on, and the end by which the engine answers.
    pub fn pending() -> (Completer, Ticket) {
        let slot = Slot::new();
        (Completer(Some(Arc::clone(&slot))), Ticket(State::Pending(slot, None)))
    }

    /// A ticket whose waiter drives the engine. The completer does not hold the driver, so that operations in flight
    /// do not keep their engine alive.
    pub(crate) fn driven(driver: Arc<dyn Driver>) -> (Completer, Ticket) {
        let slot = Slot::new();
        (Completer(Some(Arc::clone(&slot))), Ticket(State::Pending(slot, Some(driver))))
    }

    /// Blocks until the operation is done.
    ///
    /// # Panics
    /// If the answer was taken before, by [`Ticket::try_take`] or as a future.
    pub fn wait(self) -> Done {
        match self.0 {
            State::Ready(done) => done,
            State::Pending(slot, None) => slot.wait(),
            State::Pending(slot, Some(driver)) => {
                driver.drive_until(&|| slot.is_given());
                slot.wait()
            }
            State::Taken => panic!("the ticket's answer was taken before"),
        }
    }

    /// The answer, if the operation is done and the answer was not taken before.
    pub fn try_take(&mut self) -> Option<Done> {
        match mem::replace(&mut self.0, State::Taken) {
            State::Ready(done) => Some(done),
            State::Pending(slot, driver) => {
                let mut done = slot.try_take();
                if let (None, Some(driver)) = (&done, &driver) {
                    driver.poke();
                    done = slot.try_take();
                }
                if done.is_none() {
                    self.0 = State::Pending(slot, driver);
                }
                done
            }
            State::Taken => None,
        }
    }
}

impl Future for Ticket {
    type Output = Done;

    /// # Panics
    /// If the answer was taken before.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Done> {
        match mem::replace(&mut self.0, State::Taken) {
            State::Ready(done) => Poll::Ready(done),
            State::Pending(slot, driver) => match slot.poll(context.waker()) {
                Some(done) => Poll::Ready(done),
                None => {
                    // Nobody may ever block on this ticket: a thread of the background does, once.
                    if let Some(driver) = driver.clone().filter(|_| slot.attend()) {
                        let slot = Arc::clone(&slot);
                        in_background(move || driver.drive_until(&|| slot.is_given()));
                    }
                    self.0 = State::Pending(slot, driver);
                    Poll::Pending
                }
            },
            State::Taken => panic!("the ticket's answer was taken before"),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state: &dyn fmt::Debug = match &self.0 {
            State::Ready(done) => done,
            State::Pending(..) => &"pending",
            State::Taken => &"taken",
        };
        f.debug_tuple("Ticket").field(state).finish()
    }
}

/// The engine's end of a pending [`Ticket`]. Dropped without an answer, it answers with an error, so that nobody
/// waits for ever.
#[must_use = "dropping it fails the operation"]
pub struct Completer(Option<Arc<Slot>>);

impl Completer {
    /// Gives the answer and wakes whoever waits.
    pub fn complete(mut self, done: Done) {
        if let Some(slot) = self.0.take() {
            slot.answer(done);
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            let source = io::Error::new(io::ErrorKind::BrokenPipe, "the engine dropped the operation");
            slot.answer(Done::new(Err(IoError::new("completion", "", source))));
        }
    }
}

impl fmt::Debug for Completer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completer").finish_non_exhaustive()
    }
}

struct Slot {
    answer: Mutex<Answer>,
    changed: Condvar,
    attended: Mutex<bool>,
}

enum Answer {
    Awaited(Option<Waker>),
    Given(Done),
    Gone,
}

impl Slot {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            answer: Mutex::new(Answer::Awaited(None)),
            changed: Condvar::new(),
            attended: Mutex::new(false),
        })
    }

    /// Whether the answer was given, taken or not.
    fn is_given(&self) -> bool {
        !matches!(*self.answer.lock(), Answer::Awaited(_))
    }

    /// Whether this is the first time that somebody asks.
    fn attend(&self) -> bool {
        !mem::replace(&mut *self.attended.lock(), true)
    }

    fn answer(&self, done: Done) {
        let before = mem::replace(&mut *self.answer.lock(), Answer::Given(done));
        self.changed.notify_all();
        // Woken outside the lock: a waker may poll at once.
        if let Answer::Awaited(Some(waker)) = before {
            waker.wake();
        }
    }

    fn wait(&self) -> Done {
        let mut answer = self.answer.lock();
        loop {
            if let Some(done) = answer.take() {
                return done;
            }
            self.changed.wait(&mut answer);
        }
    }

    fn try_take(&self) -> Option<Done> {
        self.answer.lock().take()
    }

    fn poll(&self, waker: &Waker) -> Option<Done> {
        let mut answer = self.answer.lock();
        let done = answer.take();
        if done.is_none() {
            *answer = Answer::Awaited(Some(waker.clone()));
        }
        done
    }
}

impl Answer {
    fn take(&mut self) -> Option<Done> {
        match mem::replace(self, Answer::Gone) {
            Answer::Given(done) => Some(done),
            awaited => {
                *self = awaited;
                None
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::thread;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_ready_ticket_answers_in_every_way() {
        let ready = || Ticket::ready(Done::new(Ok(7)));
        assert_eq!(ready().wait().result.unwrap(), 7);
        let mut taken = ready();
        assert_eq!(taken.try_take().unwrap().result.unwrap(), 7);
        assert!(taken.try_take().is_none());
        let waker = Arc::new(Count::default()).into();
        let Poll::Ready(done) = Pin::new(&mut ready()).poll(&mut Context::from_waker(&waker)) else {
            panic!("a ready ticket was pending")
        };
        assert_eq!(done.result.unwrap(), 7);
    }

    #[test]
    fn a_pending_ticket_wakes_a_thread_and_a_task() {
        let (completer, ticket) = Ticket::pending();
        let waiter = thread::spawn(move || ticket.wait().result.unwrap());
        completer.complete(Done::new(Ok(1)));
        assert_eq!(waiter.join().unwrap(), 1);

        let (completer, mut ticket) = Ticket::pending();
        let count = Arc::new(Count::default());
        let waker = Arc::clone(&count).into();
        assert!(ticket.try_take().is_none());
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        completer.complete(Done::new(Ok(2)));
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(ticket.try_take().unwrap().result.unwrap(), 2);
    }

    #[test]
    fn a_dropped_completer_fails_the_operation_and_a_dropped_ticket_harms_nobody() {
        let (completer, ticket) = Ticket::pending();
        drop(completer);
        assert_eq!(ticket.wait().result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let (completer, ticket) = Ticket::pending();
        drop(ticket);
        completer.complete(Done::new(Ok(0)));
    }
}
