//! [`Flights`]: the writes of one file that are in flight, and the order in which their ends become stable.
//!
//! Writes complete in any order; the stable mark moves over the completed front only. Short writes go on in their
//! place. After a failure nothing behind it ever counts, whatever its completion says: the file is fenced. A write that
//! found no space is no such failure: it and those behind it do not count, and go again from the stable mark.
//!
//! Whoever needs the front takes its ticket out and waits without the lock; others wait for that thread.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;

use crate::backend::RawFile;
use crate::error::{IoError, Verdict};
use crate::marks::Marks;
use crate::op::{Done, Gather, Op, Through};
use crate::sync::{Condvar, Mutex, MutexGuard, unlocked};
use crate::ticket::Ticket;

/// Short writes of one flight that are continued; more of them are an error, not a reason to go on for ever.
const SHORT_MAX: u32 = 4096;

#[derive(Debug)]
pub(crate) struct Flights {
    state: Mutex<State>,
    landed: Condvar,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<Flight>,
    /// Some write found no space: nothing that lands counts until all that is in flight has been taken back.
    full: Option<Arc<IoError>>,
}

/// One write in flight.
#[derive(Debug)]
struct Flight {
    /// Where the rest of it begins in the file, and how much that is.
    at: u64,
    size: u64,
    /// What is stable once it is done.
    end: u64,
    /// Positions at which it can be continued are multiples of this.
    block: u64,
    through: Through,
    shorts: u32,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Pending(Ticket),
    /// Some thread waits for the ticket.
    Awaited,
    Landed(Done),
}

impl Flights {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State { queue: VecDeque::new(), full: None }), landed: Condvar::new() }
    }

    /// Starts a write of `data` at `at`, behind all others; the file is stable up to `end` once it is done.
    pub(crate) fn start(
        &self,
        file: &dyn RawFile,
        at: u64,
        data: Gather,
        end: u64,
        block: u64,
        through: Through,
    ) {
        let size = data.len();
        let stage = Stage::Pending(file.submit(Op::Write { at, data, through }));
        self.state.lock().queue.push_back(Flight { at, size, end, block, through, shorts: 0, stage });
    }

    /// Writes in flight, those included whose completion nobody has looked at.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Moves the stable mark over what has landed, without waiting. Says whether some write found no space.
    pub(crate) fn collect(&self, file: &dyn RawFile, marks: &Marks) -> bool {
        let mut state = self.state.lock();
        self.land(&mut state, file, marks);
        state.full.is_some()
    }

    /// Waits until bytes below `upto` are stable, or nothing is in flight.
    ///
    /// # Errors
    /// A write failed, now or before: the file is fenced. Or one found no space, and nothing was taken back yet.
    pub(crate) fn settle(&self, file: &dyn RawFile, marks: &Marks, upto: u64) -> Result<(), IoError> {
        let mut state = self.state.lock();
        loop {
            self.land(&mut state, file, marks);
            state.refused(file, marks)?;
            if marks.stable() >= upto {
                return Ok(());
            }
            if !self.wait_for_front(&mut state) {
                return Ok(());
            }
        }
    }

    /// Waits until at most `most` writes are in flight.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub(crate) fn thin_out(&self, file: &dyn RawFile, marks: &Marks, most: usize) -> Result<(), IoError> {
        let mut state = self.state.lock();
        while state.queue.len() > most {
            self.land(&mut state, file, marks);
            state.refused(file, marks)?;
            if state.queue.len() > most {
                self.wait_for_front(&mut state);
            }
        }
        Ok(())
    }

    /// Waits until nothing is in flight, however it ends.
    pub(crate) fn drain(&self, file: &dyn RawFile, marks: &Marks) {
        let mut state = self.state.lock();
        loop {
            self.land(&mut state, file, marks);
            if !self.wait_for_front(&mut state) {
                return;
            }
        }
    }

    /// Where a write found no space: waits until nothing is in flight, and says so. What was sent behind the stable mark is
    /// to be sent again.
    pub(crate) fn back_off(&self, file: &dyn RawFile, marks: &Marks) -> bool {
        let mut state = self.state.lock();
        self.land(&mut state, file, marks);
        if state.full.is_none() {
            return false;
        }
        while self.wait_for_front(&mut state) {
            self.land(&mut state, file, marks);
        }
        state.full = None;
        true
    }

    /// Waits for the completion of the first write, on this thread or for the one that does. False if there is none.
    fn wait_for_front<'a>(&'a self, state: &mut MutexGuard<'a, State>) -> bool {
        let Some(front) = state.queue.front_mut() else { return false };
        match mem::replace(&mut front.stage, Stage::Awaited) {
            Stage::Pending(ticket) => {
                let done = unlocked(&self.state, state, || ticket.wait());
                // Nobody takes an awaited one away, so it is still in front.
                if let Some(front) = state.queue.front_mut() {
                    front.stage = Stage::Landed(done);
                }
                self.landed.notify_all();
            }
            Stage::Awaited => self.landed.wait(state),
            landed @ Stage::Landed(_) => front.stage = landed,
        }
        true
    }

    /// Takes off the front what has landed.
    fn land(&self, state: &mut State, file: &dyn RawFile, marks: &Marks) {
        let State { queue, full } = state;
        while let Some(front) = queue.front_mut() {
            let done = match mem::replace(&mut front.stage, Stage::Awaited) {
                Stage::Landed(done) => done,
                Stage::Pending(mut ticket) => match ticket.try_take() {
                    Some(done) => done,
                    None => {
                        front.stage = Stage::Pending(ticket);
                        return;
                    }
                },
                Stage::Awaited => return,
            };
            let (at, size, end) = (front.at, front.size, front.end);
            match front.landed(file, done) {
                Some(Ok(())) if !marks.fenced() && full.is_none() => marks.settle(end),
                Some(Ok(())) => {}
                // Also of a write that is durable by itself: all of it is written anew, not only synced again.
                Some(Err(error)) if error.verdict() == Verdict::NoSpace => {
                    full.get_or_insert_with(|| Arc::new(error.with_range(at, size)));
                }
                Some(Err(error)) => {
                    marks.fence("append", &file.path(), error.with_range(at, size));
                }
                None => continue,
            }
            queue.pop_front();
        }
    }
}

impl State {
    /// Why what is waited for will not come.
    fn refused(&self, file: &dyn RawFile, marks: &Marks) -> Result<(), IoError> {
        marks.check("write", || file.path())?;
        self.full.as_ref().map_or(Ok(()), |full| Err(IoError::copy_of(full)))
    }
}

impl Flight {
    /// What a completion means: the end of the write, or, for a short one that goes on, nothing yet.
    fn landed(&mut self, file: &dyn RawFile, done: Done) -> Option<Result<(), IoError>> {
        let wrong =
            |why: String| Some(Err(IoError::because("write", file.path(), io::ErrorKind::WriteZero, why)));
        let written = match done.result {
            Ok(written) => written,
            Err(error) => return Some(Err(error)),
        };
        if written == self.size {
            return Some(Ok(()));
        }
        let Some(mut data) = done.data.filter(|_| written > 0 && written < self.size) else {
            return wrong(format!("{written} bytes written where {} were asked for", self.size));
        };
        self.shorts += 1;
        if self.shorts > SHORT_MAX {
            return wrong(format!("the write at {} does not come to an end", self.at));
        }
        // From the unit that was only begun: its bytes before are the same.
        let whole = written - written % self.block;
        data.advance(whole);
        self.at += whole;
        self.size -= whole;
        self.stage = Stage::Pending(file.submit(Op::Write { at: self.at, data, through: self.through }));
        None
    }
}
