//! [`QueuedAppender`]: appends through writes that complete later, that must be aligned, or both.
//!
//! An append is accepted when its bytes are in the tail, where readers find them; writes carry them to the file,
//! several at a time, and the stable mark follows the completed front. A write that is done when it was submitted
//! (`at_once` in the plan) goes past the tail, if none is before it: its bytes are found in the file. Where several such
//! come between two flushes, those who wait for the flush are many, and the next ones stay in the tail until it writes them
//! together: a call for each would cost more than the sync. Where writes must be aligned, whole blocks go as they fill up to a
//! chunk. When a flush, a seal or a truncation needs the last, partial block, it goes as it is, by the file's other way
//! (`unaligned` in the plan), so that the file ends with it; where there is none, or zeros stay ahead, it goes padded. It is
//! written again with what follows. No two writes in flight touch the same block, and none is in flight beside one that goes
//! the other way: the page cache, which that leads through, is not to hold what is being written past it.
//!
//! Space is taken ahead, so that a full disk is noticed before an append is accepted: what was accepted can only be lost
//! to a failed write, and that fences the file. Where there is no space all the same (it was not taken ahead, or what the
//! file system notes of a write takes some), what was accepted stays in the tail, nothing more is accepted, and each call
//! that needs it in the file tries again from the stable mark.
//!
//! Lock order: the sync lock, the writer's, then that of the flights or that of the tail. The writer's is held while
//! an append waits for room among the writes in flight, which bounds the memory that is bound by them; never by a
//! reader, unless the file ended before its mark.

use std::fmt;
use std::io;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::aligned::Pool;
use crate::appender::{Appender, append_failed, end_of, ended, read_accepted, truncate_beyond, write_behind};
use crate::backend::{Align, RawFile, write_through};
use crate::commit::{Commits, Committer, Durability};
use crate::error::{IoError, Verdict};
use crate::flights::Flights;
use crate::marks::Marks;
use crate::op::{Advice, Gather, Op, Through};
use crate::plan::AppendPlan;
use crate::space::Reserved;
use crate::sync::{AtomicBool, Mutex, Ordering, RwLock};
use crate::synced::Synced;
use crate::tail::Tail;

/// How often a call tries to write what found no space: what it hears of first may have happened long before.
const NO_SPACE_TRIES: u32 = 2;

#[derive(Debug)]
pub(crate) struct QueuedAppender {
    file: Arc<dyn RawFile>,
    align: Align,
    plan: AppendPlan,
    marks: Marks,
    writer: Mutex<Writer>,
    tail: RwLock<Tail>,
    flights: Flights,
    /// Held across a sync, so that there is at most one in flight.
    sync: Mutex<Synced>,
    /// Set by a cut, whose length no sync has covered yet.
    resized: AtomicBool,
    committer: Committer,
    pool: Arc<Pool>,
}

struct Writer {
    /// The accepted mark.
    accepted: u64,
    /// Where the bytes end for which a write was begun.
    sent: u64,
    /// The begun block before `sent`: what a write of it begins with.
    begun: Vec<u8>,
    /// The write that was begun last was not aligned, though others are.
    unaligned: bool,
    /// From here on the page cache may hold what was written so.
    cached: u64,
    reserved: Reserved,
    /// The file may be longer than `accepted`; and once something is appended to it, as it was when it was opened.
    ahead: bool,
    longer: bool,
    /// Bytes for which the kernel was told to begin writing back.
    behind: u64,
    /// Where the last flush was, and how many appends there were since.
    flushed: u64,
    appends: u64,
    /// What could be written at once stays in the tail until a flush writes it.
    gathers: bool,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("accepted", &self.accepted)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

/// How much a call sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Send {
    /// Whole chunks, or where writes need no alignment, everything.
    Ready,
    /// What is written in whole blocks.
    Blocks,
    /// Everything.
    All,
}

impl QueuedAppender {
    /// An appender of a file that has at least `len` bytes, and more where it is `longer`.
    pub(crate) fn new(file: Arc<dyn RawFile>, len: u64, longer: bool) -> Result<Self, IoError> {
        let (align, plan) = (file.align(), file.caps().plan);
        let begun = begun_block(&*file, &align, len)?;
        let reserved = Reserved::new(plan.space, len, align.block.get());
        let writer = Writer {
            accepted: len,
            sent: len,
            begun,
            unaligned: false,
            cached: len,
            reserved,
            ahead: false,
            longer,
            behind: len,
            flushed: len,
            appends: 0,
            gathers: false,
        };
        Ok(Self {
            file,
            align,
            plan,
            marks: Marks::new(len),
            writer: Mutex::new(writer),
            tail: RwLock::new(Tail::new(len)),
            flights: Flights::new(),
            sync: Mutex::new(Synced::new()),
            resized: AtomicBool::new(false),
            committer: Committer::new(),
            pool: Arc::default(),
        })
    }

    fn block(&self) -> u64 {
        u64::from(self.align.block.get())
    }

    /// Begins writes of what was accepted and not sent yet.
    fn send(&self, writer: &mut Writer, accepted: u64, how: Send) -> Result<(), IoError> {
        let block = self.block();
        let chunk = u64::from(self.plan.chunk).max(block).next_multiple_of(block);
        // What is flushed without padding.
        let few = if self.plan.unaligned > 0 { u64::from(self.plan.unaligned).max(block) } else { 0 };
        // What was kept for a flush is written in calls that are done at once: whoever flushes waits anyhow.
        let at_once = u64::from(self.plan.at_once).saturating_sub(1);
        let most = if how == Send::All && block == 1 && at_once > 0 { at_once } else { chunk };
        loop {
            let from = writer.sent - writer.begun.len() as u64;
            let mut end = accepted;
            let mut unaligned = false;
            let left = accepted.saturating_sub(from);
            if block == 1 && how == Send::Ready && writer.gathers {
                if left < chunk {
                    return Ok(());
                }
                // So much without a flush: nobody waits for one.
                writer.gathers = false;
            }
            if block > 1 {
                match how {
                    Send::Ready if left < chunk => return Ok(()),
                    Send::Blocks if left < few => return Ok(()),
                    Send::All if left < few => unaligned = true,
                    Send::All if few == 0 => {}
                    _ => end -= end % block,
                }
            }
            end = end.min(from + most);
            if end <= writer.sent {
                return Ok(());
            }
            // Room for one more; and where the block was begun before, its write must have landed.
            let apart = unaligned || writer.unaligned || !writer.begun.is_empty();
            let flying = if apart { 0 } else { self.plan.depth.max(1) as usize - 1 };
            self.flights.thin_out(&*self.file, &self.marks, flying)?;
            let slices = self.tail.read().slices(writer.sent, end);
            let (at, unit, data) = if unaligned {
                (writer.sent, 1, self.unpadded(writer, slices, end))
            } else if block > 1 {
                (from, self.align.offset.get(), self.padded(writer, slices, from, end))
            } else {
                (from, 1, Gather::from(slices))
            };
            writer.ahead |= !unaligned && !end.is_multiple_of(block);
            writer.unaligned = unaligned;
            writer.sent = end;
            self.flights.start(&*self.file, at, data, end, unit.into(), self.through());
        }
    }

    /// Whether the next append, of `size` bytes, is done when it was submitted, and has nothing before it: then the tail has
    /// no use for its bytes.
    fn goes_past_tail(&self, writer: &Writer, size: u64) -> bool {
        let at_once = size < u64::from(self.plan.at_once) && self.block() == 1 && self.plan.tail == 0;
        at_once && !writer.gathers && self.marks.stable() == writer.accepted
    }

    /// Such an append.
    fn append_past_tail(
        &self,
        writer: &mut Writer,
        range: Range<u64>,
        data: Gather,
    ) -> Result<Range<u64>, IoError> {
        let Range { start, end } = range;
        if let Err(error) = write_through(&*self.file, start, data, self.through()) {
            let error = error.with_range(start, end - start);
            return Err(append_failed(&*self.file, &self.marks, error, || self.cut_file(writer, start)));
        }
        // Before the mark: who sees that looks here first.
        self.tail.write().skip(end);
        writer.reserved.written(end);
        (writer.sent, writer.accepted) = (end, end);
        self.marks.accept(end);
        write_behind(&*self.file, self.plan.write_behind, &mut writer.behind, self.marks.stable());
        Ok(start..end)
    }

    fn through(&self) -> Through {
        if self.plan.through { Through::Data } else { Through::No }
    }

    /// `slices`, which end at `end`, as they are. Keeps what of the last block is only begun.
    fn unpadded(&self, writer: &mut Writer, slices: Vec<Bytes>, end: u64) -> Gather {
        let begun = end - end % self.block();
        if begun >= writer.sent {
            writer.begun.clear();
        }
        let mut before = begun.saturating_sub(writer.sent) as usize;
        for slice in &slices {
            let skipped = before.min(slice.len());
            writer.begun.extend_from_slice(&slice[skipped..]);
            before -= skipped;
        }
        Gather::from(slices)
    }

    /// Begins the writes that a flush of all that is accepted needs; appends go on while it waits for some of them.
    fn send_for_flush(&self) -> Result<(), IoError> {
        let mut writer = self.writer.lock();
        self.back_off(&mut writer)?;
        let accepted = writer.accepted;
        if self.plan.unaligned > 0 {
            self.send(&mut writer, accepted, Send::Blocks)?;
            if self.flights.len() > 0 {
                let sent = writer.sent;
                drop(writer);
                self.flights.settle(&*self.file, &self.marks, sent)?;
                writer = self.writer.lock();
            }
        }
        self.send(&mut writer, accepted, Send::All)
    }

    /// Has the page cache give back what was written through it, where others write past it, once it is `durable`.
    fn uncache(&self, writer: &mut Writer, durable: u64) {
        if self.plan.unaligned > 0 && durable >= writer.cached + u64::from(self.plan.chunk) {
            // A hint: what it does not do the cache does when it needs the space.
            let range = writer.cached - writer.cached % self.block()..durable;
            drop(self.file.submit(Op::Advise { range, how: Advice::DontNeed }).wait());
            writer.cached = durable;
        }
    }

    /// One aligned buffer with the blocks of `[from, end)`: the begun one, `slices`, and zeros. Keeps what of the last
    /// block is only begun.
    fn padded(&self, writer: &mut Writer, slices: Vec<Bytes>, from: u64, end: u64) -> Gather {
        let block = self.block();
        let size = (end.next_multiple_of(block) - from) as usize;
        let mut buf = self.pool.take(size);
        let mut at = writer.begun.len();
        buf[..at].copy_from_slice(&writer.begun);
        for slice in slices {
            buf[at..at + slice.len()].copy_from_slice(&slice);
            at += slice.len();
        }
        buf[at..].fill(0);
        writer.begun.clear();
        writer.begun.extend_from_slice(&buf[at - (end % block) as usize..at]);
        Gather::One(Bytes::from_owner(buf))
    }

    /// After a write that found no space: what was sent behind the stable mark is to be sent again.
    fn back_off(&self, writer: &mut Writer) -> Result<(), IoError> {
        if !self.flights.back_off(&*self.file, &self.marks) {
            return Ok(());
        }
        let stable = self.marks.stable();
        let begun = begun_block(&*self.file, &self.align, stable);
        writer.begun = self.or_fence("write", begun)?;
        writer.sent = stable;
        // Writes behind the one that failed may have been made.
        writer.ahead = true;
        Ok(())
    }

    /// Sends all, and waits until the file has it.
    fn settle_all(&self, writer: &mut Writer) -> Result<(), IoError> {
        let mut tries = NO_SPACE_TRIES;
        loop {
            self.back_off(writer)?;
            let sent = self.send(writer, writer.accepted, Send::All);
            match sent.and_then(|()| self.flights.settle(&*self.file, &self.marks, writer.accepted)) {
                Err(error) if error.verdict() == Verdict::NoSpace && tries > 1 => tries -= 1,
                settled => break settled?,
            }
        }
        self.forget();
        Ok(())
    }

    /// Forgets what readers find in the file.
    fn forget(&self) {
        let kept = self.marks.stable().saturating_sub(u64::from(self.plan.tail));
        let slack = u64::from(self.plan.chunk.min(self.plan.tail)) / 2;
        if self.tail.read().start() + slack < kept {
            self.tail.write().forget_below(kept);
        }
    }

    /// Cuts the file, not the marks, if it is longer than `len`, or has space behind it. Nothing is in flight.
    fn cut_file(&self, writer: &mut Writer, len: u64) -> Result<(), IoError> {
        if writer.reserved.cut_file(&*self.file, len)? {
            // Read by the next flush, which either is not running yet or leaves it to the one after. Pairs with the
            // swap there.
            self.resized.store(true, Ordering::Release);
        }
        writer.reserved.cut(len.next_multiple_of(self.block()));
        (writer.ahead, writer.longer) = (false, false);
        Ok(())
    }

    /// An error of taking space: a full disk changes nothing, any other fences.
    fn unless_full(&self, op: &'static str, result: Result<(), IoError>) -> Result<(), IoError> {
        match result {
            Err(error) if error.verdict() == Verdict::NoSpace => Err(error),
            result => self.or_fence(op, result),
        }
    }

    fn or_fence<T>(&self, op: &'static str, result: Result<T, IoError>) -> Result<T, IoError> {
        result.map_err(|error| match error.verdict() {
            Verdict::Misuse | Verdict::Fenced => error,
            _ => self.marks.fence(op, &self.file.path(), error),
        })
    }

    fn check(&self, op: &'static str) -> Result<(), IoError> {
        self.marks.check(op, || self.file.path())
    }

    /// Sends all, waits, and cuts what is ahead: the file is then exactly what was accepted.
    fn finish(&self, writer: &mut Writer, op: &'static str, len: u64) -> Result<(), IoError> {
        self.settle_all(writer)?;
        let cut = self.cut_file(writer, len);
        self.or_fence(op, cut)
    }
}

impl Appender for QueuedAppender {
    fn append(&self, data: Gather) -> Result<Range<u64>, IoError> {
        let mut writer = self.writer.lock();
        let full = self.flights.collect(&*self.file, &self.marks);
        self.check("append")?;
        let start = writer.accepted;
        let size = data.len();
        let end = end_of(&*self.file, start, size)?;
        if full {
            // What was accepted comes first.
            self.settle_all(&mut writer)?;
        }
        let past_tail = self.goes_past_tail(&writer, size);
        let reach = end.checked_next_multiple_of(self.block()).unwrap_or(end);
        let durable = || self.marks.durable();
        let reached = writer.reserved.reach(&self.file, reach, past_tail, durable);
        self.unless_full("append", reached.map_err(|error| error.with_range(start, size)))?;
        writer.appends += 1;
        writer.ahead |= mem::take(&mut writer.longer);
        if past_tail {
            return self.append_past_tail(&mut writer, start..end, data);
        }
        {
            let mut tail = self.tail.write();
            match data {
                Gather::One(part) => tail.push(part),
                Gather::Many(parts) => parts.into_iter().for_each(|part| tail.push(part)),
            }
        }
        // Before any of it is sent, and may be found to have landed.
        writer.accepted = end;
        self.marks.take(end);
        match self.send(&mut writer, end, Send::Ready) {
            // An earlier write found no space: this one is in the tail, too, and the next append is refused.
            Err(error) if error.verdict() == Verdict::NoSpace => {}
            sent => sent?,
        }
        self.flights.collect(&*self.file, &self.marks);
        self.check("append")?;
        self.forget();
        write_behind(&*self.file, self.plan.write_behind, &mut writer.behind, self.marks.stable());
        Ok(start..end)
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        let read = |into: &mut [u8], place: u64| {
            let start = {
                let tail = self.tail.read();
                if place >= tail.start() {
                    return Ok(tail.read(into, place));
                }
                tail.start()
            };
            // What lies before the tail is in the file, and stays there.
            let want = into.len().min(usize::try_from(start - place).unwrap_or(usize::MAX));
            self.file.read_at(&mut into[..want], place)
        };
        let missing = |place, want| {
            let writer = self.writer.lock();
            let in_file = self.marks.stable().min(writer.accepted);
            let cut_by_others = place < in_file && self.file.len()? <= place;
            if cut_by_others {
                Err(ended(&*self.file, place, want, writer.accepted))
            } else {
                Ok(writer.accepted)
            }
        };
        read_accepted(&self.marks, into, at, read, missing, || drop(self.writer.lock()))
    }

    fn flush(&self) -> Result<u64, IoError> {
        self.check("flush")?;
        Committer::flush(self)
    }

    fn durability(self: Arc<Self>, upto: u64) -> Durability {
        Durability::new(self, upto)
    }

    fn truncate(&self, len: u64) -> Result<(), IoError> {
        let mut synced = self.sync.lock();
        let mut writer = self.writer.lock();
        self.check("truncate")?;
        if len > writer.accepted {
            return Err(truncate_beyond(&*self.file, len, writer.accepted));
        }
        let kept = match self.settle_all(&mut writer) {
            // What stays and is not in the file yet stays where it is; cutting may be what makes space.
            Err(error) if error.verdict() == Verdict::NoSpace => {
                self.back_off(&mut writer)?;
                self.marks.stable().min(len)
            }
            result => result.map(|()| len)?,
        };
        let cutting = self.marks.begin_cutting();
        let cut = self.cut_file(&mut writer, kept);
        self.or_fence("truncate", cut)?;
        // No space is taken below what is still to be written.
        writer.reserved.cut(len.next_multiple_of(self.block()));
        let begun = begun_block(&*self.file, &self.align, kept);
        writer.begun = self.or_fence("truncate", begun)?;
        writer.accepted = len;
        writer.sent = kept;
        writer.behind = writer.behind.min(kept);
        writer.cached = writer.cached.min(kept);
        synced.durable = synced.durable.min(kept);
        self.tail.write().cut(len);
        self.marks.cut(len, kept, synced.durable);
        drop(cutting);
        drop((writer, synced));
        self.committer.disturb();
        Ok(())
    }

    fn seal(&self) -> Result<u64, IoError> {
        let _syncing = self.sync.lock();
        let mut writer = self.writer.lock();
        self.check("seal")?;
        let len = writer.accepted;
        self.finish(&mut writer, "seal", len)?;
        self.tail.write().forget_below(len);
        Ok(len)
    }

    fn file(&self) -> &Arc<dyn RawFile> {
        &self.file
    }
}

impl Commits for QueuedAppender {
    fn committer(&self) -> &Committer {
        &self.committer
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn is_cut(&self) -> bool {
        // Pairs with the store in `cut_file`.
        self.resized.load(Ordering::Acquire)
    }

    fn sync(&self) -> Result<u64, IoError> {
        let mut synced = self.sync.lock();
        self.check("flush")?;
        let target = self.marks.accepted();
        let mut tries = NO_SPACE_TRIES;
        // Again where an append that met a full disk has taken back what was waited for.
        while self.marks.stable() < target {
            let sent = self.send_for_flush();
            match sent.and_then(|()| self.flights.settle(&*self.file, &self.marks, target)) {
                Err(error) if error.verdict() == Verdict::NoSpace && tries > 1 => tries -= 1,
                settled => settled?,
            }
        }
        {
            let mut writer = self.writer.lock();
            // With later appends under way the length is set right by the flush that covers them.
            let alone = writer.accepted == target && writer.sent == target && self.flights.len() == 0;
            if alone && !writer.reserved.stays_ahead() {
                let ahead = writer.ahead || writer.reserved.is_ahead();
                if ahead {
                    let cut = self.cut_file(&mut writer, target);
                    self.or_fence("flush", cut)?;
                }
                writer.reserved.flushed(target, ahead);
            }
            self.forget();
            self.uncache(&mut writer, synced.durable);
            let between = writer.accepted.saturating_sub(writer.flushed);
            let at_once = u64::from(self.plan.at_once);
            let small = between < writer.appends.saturating_mul(at_once).min(u64::from(self.plan.chunk));
            writer.gathers = small && writer.appends > 1;
            (writer.flushed, writer.appends) = (writer.accepted, 0);
        }
        synced.bring_to(target, &*self.file, &self.marks, &self.resized, self.plan.through)
    }

    fn refused(&self, op: &'static str) -> Option<IoError> {
        self.check(op).err()
    }

    fn file(&self) -> &dyn RawFile {
        &*self.file
    }
}

impl Drop for QueuedAppender {
    /// What was accepted reaches the file, as it does where writes are done when they return. Nothing becomes durable
    /// by it.
    fn drop(&mut self) {
        let mut writer = self.writer.lock();
        if !self.marks.fenced() {
            // Nobody is left to hear of an error; what is missing then was never durable.
            let settled = self.settle_all(&mut writer).is_ok();
            self.flights.drain(&*self.file, &self.marks);
            let len = if settled { writer.accepted } else { self.marks.stable() };
            let ahead = writer.ahead || writer.reserved.is_ahead() || writer.reserved.holds_behind(len);
            if (ahead || !settled) && self.check("close").is_ok() {
                let _ = self.cut_file(&mut writer, len);
            }
        }
        self.flights.drain(&*self.file, &self.marks);
    }
}

/// The block before `len` that is only begun there, as the file has it.
fn begun_block(file: &dyn RawFile, align: &Align, len: u64) -> Result<Vec<u8>, IoError> {
    let size = len % u64::from(align.block.get());
    let mut begun = vec![0; size as usize];
    let mut count = 0;
    while count < begun.len() {
        match file.read_at(&mut begun[count..], len - size + count as u64)? {
            0 => break,
            more => count += more,
        }
    }
    if count < begun.len() {
        let why = format!("the file ends before {len}");
        let error = IoError::because("read", file.path(), io::ErrorKind::UnexpectedEof, why);
        return Err(error.with_range(len - size, size));
    }
    Ok(begun)
}
