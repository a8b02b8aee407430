//! [`Ring`]: an io_uring, its queues, and the operations in flight.
//!
//! # What makes it sound
//! - Whatever the kernel may use of an operation, its bytes, the array that lists them, the open file, lies in the slot
//!   table from before the entry is pushed until its completion was taken from the queue. Nothing else frees it: not
//!   a dropped ticket, a failed system call, or the end of the backend, which waits, and where that does not help leaks.
//! - The bytes are [`Bytes`](bytes::Bytes): shared, immutable, and at the same address wherever the handle moves.
//! - The submission queue is used under its lock; the completion queue by the one thread that holds the reaper's role.
//! - There are never more operations in flight than completions fit into the queue.
//!
//! # Who fetches completions
//! Whoever waits. One thread at a time has the role and sleeps in the kernel; others that wait sleep until it gives the
//! role back, which it does after each batch, and look whether theirs was among it. A thread that does not want to
//! wait fetches only where the role is free: what it took away could be what a sleeper waits for.

use std::fmt;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue};
use rustix::io::Errno;

use crate::aligned;
use crate::error::{IoError, Verdict};
use crate::inode::{Inode, Writing};
use crate::op::{Done, Gather, Through};
use crate::probe::Unavailable;
use crate::slots::SlotTable;
use crate::std_file::{BYTES_MAX, PARTS_MAX, limited};
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, yield_now};
use crate::ticket::{Completer, Driver, Ticket};

/// Tries of one operation that the kernel interrupts, cancels or puts off, before that is an error.
const TRIES_MAX: u32 = 1000;
/// How long the end of a ring waits for what is in flight.
const SHUTDOWN_MAX: Duration = Duration::from_secs(30);

const RWF_DSYNC: i32 = 0x2;
const RWF_DONTCACHE: i32 = 0x80;

/// An io_uring that any thread may use.
pub(super) struct Ring {
    uring: IoUring,
    flying: SlotTable<Box<Flying>>,
    /// Held while the submission queue is used.
    submission: Mutex<()>,
    /// Whether some thread fetches completions.
    reaping: Mutex<bool>,
    reaped: Condvar,
    /// Cleared by the first file system that does not know the flag.
    dsync: AtomicBool,
    /// The kernel did not take what is in the submission queue, when it was asked last.
    refused: AtomicBool,
    /// The aligned buffers are known to the kernel: it need not look up and hold their pages for each write.
    buffers: bool,
    /// Free places in the table of files that the kernel holds for the ring; none where it has no such table.
    files: Mutex<Vec<u32>>,
    /// What tests have the kernel say.
    #[cfg(all(test, not(loom)))]
    said: Mutex<tests::Said>,
}

/// Files that a ring can hold.
const FILES: u32 = 256;

/// A file that the kernel holds for the ring, by its place in the table.
pub(super) struct FixedFile {
    uring: Weak<Ring>,
    place: u32,
}

/// A write, as it is asked for.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) target: Arc<File>,
    /// The same by its place in the ring, where it has one.
    pub(super) fixed: Option<Arc<FixedFile>>,
    pub(super) path: Arc<Path>,
    pub(super) writing: Writing<Arc<Inode>>,
    pub(super) at: u64,
    pub(super) data: Gather,
    /// Bytes of `data`, at least 1.
    pub(super) size: u64,
    pub(super) through: Through,
    pub(super) dont_cache: bool,
    /// Positions at which it can be continued are multiples of this.
    pub(super) block: u64,
}

/// An operation that the kernel has, or is about to have. Boxed by who holds it: it moves in and out of the table.
struct Flying {
    write: Write,
    /// Bytes that are written for certain.
    done: u64,
    /// What is left, as the kernel reads it; points into `write.data`.
    slices: Vec<libc::iovec>,
    phase: Phase,
    /// The kernel is to block on a thread of its own instead of saying "again".
    blocking: bool,
    tries: u32,
    completer: Completer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// One call, durable by itself if the flag is set.
    Write { dsync: bool },
    /// The sync that follows a write where the flag is unknown. Begun when the write is done: a link would save
    /// nothing and a short write breaks it.
    Sync,
}

// SAFETY: the pointers in `slices` lead into `write.data`, which it owns and which may be sent; nothing is read or
// written through them but by the kernel.
unsafe impl Send for Flying {}

impl Ring {
    /// A ring of `entries` submissions and four times as many completions, with as many of the features that help as
    /// the kernel has.
    pub(super) fn new(entries: u32, registered: bool) -> Result<Self, Unavailable> {
        let uring = set_up(entries)?;
        let params = uring.params();
        if !params.is_feature_nodrop() || !params.is_feature_ext_arg() {
            return Err(unavailable("io_uring_setup(2) features NODROP and EXT_ARG", None));
        }
        let mut probe = Probe::new();
        let asked = "io_uring_register(2) IORING_REGISTER_PROBE";
        uring.submitter().register_probe(&mut probe).map_err(|error| unavailable(asked, Some(error)))?;
        let needed = [opcode::Write::CODE, opcode::Writev::CODE, opcode::Fsync::CODE];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(unavailable(
                "io_uring_register(2) IORING_REGISTER_PROBE for write, writev, fsync",
                None,
            ));
        }
        // With nothing to submit and nothing to wait for: whether it may be called at all.
        uring.submit().map_err(|error| unavailable("io_uring_enter(2)", Some(error)))?;
        let capacity = params.cq_entries() as usize;
        // What the kernel does not take, for want of it or of locked memory, is done without.
        let buffers = registered && probe.is_supported(opcode::WriteFixed::CODE) && register_buffers(&uring);
        let has_files = registered && uring.submitter().register_files_sparse(FILES).is_ok();
        let files = if has_files { (0..FILES).rev().collect() } else { Vec::new() };
        Ok(Self {
            uring,
            buffers,
            files: Mutex::new(files),
            flying: SlotTable::new(capacity),
            submission: Mutex::new(()),
            reaping: Mutex::new(false),
            reaped: Condvar::new(),
            dsync: AtomicBool::new(true),
            refused: AtomicBool::new(false),
            #[cfg(all(test, not(loom)))]
            said: Mutex::default(),
        })
    }

    /// Begins a write.
    pub(super) fn write(self: &Arc<Self>, write: Write) -> Ticket {
        let (completer, ticket) = Ticket::driven(Arc::clone(self) as Arc<dyn Driver>);
        // A hint, as every file of the ring shares it.
        let dsync = write.through == Through::Data && self.dsync.load(Ordering::Relaxed);
        let mut flying = Box::new(Flying {
            write,
            done: 0,
            slices: Vec::new(),
            phase: Phase::Write { dsync },
            blocking: false,
            tries: 0,
            completer,
        });
        while let Err(back) = self.launch(flying) {
            // As many in flight as completions fit: one must land first.
            flying = back;
            self.drive_until(&|| self.flying.len() < self.capacity());
        }
        ticket
    }

    /// Has the kernel hold `file` for the ring; none where it does not, or there is no more room.
    pub(super) fn register(self: &Arc<Self>, file: &File) -> Option<Arc<FixedFile>> {
        let place = self.files.lock().pop()?;
        match self.uring.submitter().register_files_update(place, &[file.as_raw_fd()]) {
            Ok(1) => Some(Arc::new(FixedFile { uring: Arc::downgrade(self), place })),
            _ => {
                self.files.lock().push(place);
                None
            }
        }
    }

    fn capacity(&self) -> usize {
        self.uring.params().cq_entries() as usize
    }

    /// Gives an operation to the kernel; gives it back where there are too many.
    fn launch(&self, mut flying: Box<Flying>) -> Result<(), Box<Flying>> {
        let entry = flying.entry(self.buffers);
        let key = self.flying.insert(flying)?;
        self.push(&entry.user_data(key));
        Ok(())
    }

    /// Puts an entry into the submission queue, and makes the kernel take it. What it points to lies in the slot that its
    /// user data names.
    fn push(&self, entry: &squeue::Entry) {
        let _queue = self.submission.lock();
        loop {
            // SAFETY: no other one exists: all are made under the lock that is held.
            let mut queue = unsafe { self.uring.submission_shared() };
            // What the entry points to lies in the slot of its key, in a box that does not move what it holds.
            // SAFETY: it stays there until the completion with this key is taken from the queue.
            let pushed = unsafe { queue.push(entry) };
            drop(queue);
            if pushed.is_ok() {
                break;
            }
            self.enter();
        }
        self.enter();
    }

    /// Makes the kernel take what is in the submission queue.
    fn enter(&self) {
        loop {
            match self.call(Wait::No) {
                Ok(_) => return,
                Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::INTR) => {}
                    // It cannot take more now: whoever reaps or asks next enters again with what is left in the queue.
                    Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => {
                        // A hint: who does not see it asks again.
                        self.refused.store(true, Ordering::Relaxed);
                        yield_now();
                        return;
                    }
                    _ => return self.break_down(&error),
                },
            }
        }
    }

    /// The system call: has the kernel take what is in the submission queue, and waits for a completion.
    fn call(&self, wait: Wait) -> io::Result<usize> {
        #[cfg(all(test, not(loom)))]
        if let Some(refusal) = self.said.lock().refused(self.flying.len()) {
            return Err(refusal.into());
        }
        match wait {
            Wait::No => self.uring.submit(),
            Wait::For(max_wait) => {
                let timespec = Timespec::from(max_wait);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
            Wait::ForOne => self.uring.submit_and_wait(1),
        }
    }

    /// Waits for a completion, `max_wait` at most, and processes all that are there. For the thread with the role.
    fn reap(&self, max_wait: Option<Duration>) -> usize {
        let landed = self.fetch();
        if landed > 0 {
            return landed;
        }
        let wait = match max_wait {
            Some(Duration::ZERO) => Wait::No,
            Some(max_wait) => Wait::For(max_wait),
            None => Wait::ForOne,
        };
        if let Err(error) = self.call(wait) {
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => {}
                _ => self.break_down(&error),
            }
        }
        self.fetch()
    }

    /// Processes the completions that are in the queue. For the thread with the role.
    fn fetch(&self) -> usize {
        let mut landed = Vec::new();
        {
            // SAFETY: no other one exists: only the thread with the role makes one, and drops it before it gives the
            // role back.
            let mut queue = unsafe { self.uring.completion_shared() };
            queue.sync();
            landed.extend((&mut queue).map(|entry| (entry.user_data(), entry.result())));
        }
        // With the queue free again: what a completion wakes may submit.
        for (key, result) in &landed {
            if let Some(flying) = self.flying.land(*key) {
                self.landed(*key, flying, *result);
            }
        }
        landed.len()
    }

    /// What a completion means: the end of the operation, whose place is free then, or the next call for it.
    fn landed(&self, key: u64, mut flying: Box<Flying>, result: i32) {
        #[cfg(all(test, not(loom)))]
        let result = self.said.lock().of_completion(result);
        match flying.step(result) {
            Step::End(result) => {
                self.flying.release(key);
                return flying.end(result);
            }
            Step::Again => {}
            Step::WithoutDsync => {
                self.dsync.store(false, Ordering::Relaxed);
                flying.phase = Phase::Write { dsync: false };
            }
        }
        let entry = flying.entry(self.buffers);
        let key = self.flying.again(key, flying);
        self.push(&entry.user_data(key));
    }

    /// The ring is of no use any more: every operation fails, and what the kernel may still use is leaked.
    #[cold]
    fn break_down(&self, error: &io::Error) {
        for flying in self.flying.drain() {
            let Flying { write, slices, completer, .. } = *flying;
            let why = io::Error::new(error.kind(), format!("the ring broke down: {error}"));
            let failed = IoError::new("write", &*write.path, why).with_range(write.at, write.size);
            mem::forget((write.target, write.data, slices));
            completer.complete(Done::new(Err(failed.with_verdict(Verdict::Damaged))));
        }
    }

    /// Reaps, and gives the role back, which the caller has taken.
    fn reap_in_role(&self, max_wait: Option<Duration>) -> usize {
        let landed = self.reap(max_wait);
        *self.reaping.lock() = false;
        self.reaped.notify_all();
        landed
    }

    /// Processes completions, waiting at most `max_wait` for the first. 0 at once where nothing is in flight.
    pub(super) fn drive(&self, max_wait: Duration) -> io::Result<usize> {
        if self.flying.is_empty() || mem::replace(&mut *self.reaping.lock(), true) {
            return Ok(0);
        }
        Ok(self.reap_in_role(Some(max_wait)))
    }

    /// Between two looks at what is in flight: fetches what is there, and lets others run.
    pub(super) fn pause(&self) {
        self.poke();
        yield_now();
    }
}

impl Driver for Ring {
    fn drive_until(&self, done: &dyn Fn() -> bool) {
        let mut reaping = self.reaping.lock();
        // Looked at under the lock: whoever reaps gives the role back under it, after the answers were given.
        while !done() {
            if *reaping {
                self.reaped.wait(&mut reaping);
                continue;
            }
            *reaping = true;
            drop(reaping);
            self.reap_in_role(None);
            reaping = self.reaping.lock();
        }
    }

    fn poke(&self) {
        if mem::replace(&mut *self.reaping.lock(), true) {
            return;
        }
        // Whoever only asks, and never waits, is to get an answer, too.
        if self.fetch() == 0 && self.refused.load(Ordering::Relaxed) {
            self.refused.store(false, Ordering::Relaxed);
            self.enter();
        }
        *self.reaping.lock() = false;
        self.reaped.notify_all();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let deadline = Instant::now() + SHUTDOWN_MAX;
        while !self.flying.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Closing the ring is no barrier: the kernel may go on using what these own.
                mem::forget(self.flying.drain());
                return;
            }
            self.reap(Some(left));
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("flying", &self.flying).finish_non_exhaustive()
    }
}

/// How long a call waits for a completion.
#[derive(Debug, Clone, Copy)]
enum Wait {
    No,
    For(Duration),
    ForOne,
}

enum Step {
    End(Result<(), io::Error>),
    Again,
    WithoutDsync,
}

impl fmt::Debug for FixedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedFile").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Drop for FixedFile {
    fn drop(&mut self) {
        // Where the ring is gone, so is its table.
        let Some(ring) = self.uring.upgrade() else { return };
        // Writes in flight hold the file for themselves.
        if ring.uring.submitter().register_files_update(self.place, &[-1]).is_ok() {
            ring.files.lock().push(self.place);
        }
    }
}

/// Tells the kernel of the memory that aligned buffers are made of.
fn register_buffers(uring: &IoUring) -> bool {
    let Some((start, len)) = aligned::arena() else { return false };
    let arena = libc::iovec { iov_base: start.cast(), iov_len: len };
    // SAFETY: the memory is never given back.
    unsafe { uring.submitter().register_buffers(&[arena]) }.is_ok()
}

impl Flying {
    /// The call for what is left of the operation. It points into `self`. With `buffers`, the arena of aligned buffers is
    /// registered as the first and only one.
    fn entry(&mut self, buffers: bool) -> squeue::Entry {
        let flags = if self.blocking { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        let (fd, flags) = match &self.write.fixed {
            // A place in the table is at most FILES.
            Some(fixed) => (Fd(fixed.place as i32), flags | squeue::Flags::FIXED_FILE),
            None => (Fd(self.write.target.as_raw_fd()), flags),
        };
        let Phase::Write { dsync } = self.phase else {
            return opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build().flags(flags);
        };
        self.slices.clear();
        let (mut skip, mut room) = (self.done, BYTES_MAX);
        for part in self.write.data.parts() {
            let from = skip.min(part.len() as u64) as usize;
            skip -= from as u64;
            let taken = (part.len() - from).min(room);
            if taken == 0 {
                continue;
            }
            room -= taken;
            let base = part[from..].as_ptr().cast_mut().cast();
            self.slices.push(libc::iovec { iov_base: base, iov_len: taken });
            if self.slices.len() == PARTS_MAX || room == 0 {
                break;
            }
        }
        let at = self.write.at + self.done;
        let dont_cache = if self.write.dont_cache { RWF_DONTCACHE } else { 0 };
        let rw_flags = if dsync { RWF_DSYNC } else { 0 } | dont_cache;
        let entry = match self.slices.as_slice() {
            [one] if buffers && aligned::is_in_arena(one.iov_base.cast_const().cast(), one.iov_len) => {
                let write =
                    opcode::WriteFixed::new(fd, one.iov_base.cast_const().cast(), one.iov_len as u32, 0);
                write.offset(at).rw_flags(rw_flags).build()
            }
            [one] => {
                // At most BYTES_MAX, which fits.
                let write = opcode::Write::new(fd, one.iov_base.cast_const().cast(), one.iov_len as u32);
                write.offset(at).rw_flags(rw_flags).build()
            }
            many => {
                let write = opcode::Writev::new(fd, many.as_ptr(), many.len() as u32);
                write.offset(at).rw_flags(rw_flags).build()
            }
        };
        entry.flags(flags)
    }

    /// Takes in the result of a call.
    fn step(&mut self, result: i32) -> Step {
        let Ok(count) = u64::try_from(result) else {
            let errno = Errno::from_raw_os_error(-result);
            return match (errno, self.phase) {
                // What a thread has submitted that ends is canceled, where the kernel has not come to it yet.
                (Errno::INTR | Errno::AGAIN | Errno::CANCELED, _) if self.tries < TRIES_MAX => {
                    self.tries += 1;
                    self.blocking |= errno == Errno::AGAIN;
                    Step::Again
                }
                (Errno::OPNOTSUPP, Phase::Write { dsync: true }) => Step::WithoutDsync,
                _ => Step::End(Err(errno.into())),
            };
        };
        let Phase::Write { dsync } = self.phase else { return Step::End(Ok(())) };
        if count == 0 || count > self.write.size - self.done {
            let why = format!("{count} bytes written where {} were asked for", self.write.size - self.done);
            return Step::End(Err(io::Error::new(io::ErrorKind::WriteZero, why)));
        }
        let before = self.done;
        self.done += count;
        if self.done < self.write.size {
            // From the block that was only begun: its bytes before are the same.
            self.done -= (self.write.at + self.done) % self.write.block;
            self.done = self.done.max(before);
            self.tries += u32::from(self.done == before);
            if self.tries > TRIES_MAX {
                return Step::End(Err(io::ErrorKind::WriteZero.into()));
            }
            return Step::Again;
        }
        if self.write.through == Through::Data && !dsync {
            self.phase = Phase::Sync;
            return Step::Again;
        }
        Step::End(Ok(()))
    }

    /// Answers, and frees what the operation owned.
    fn end(self, result: io::Result<()>) {
        let Flying { write, completer, .. } = self;
        let Write { path, writing, at, data, size, through, .. } = write;
        // A view may come into being before anybody hears of the end.
        drop(writing);
        let result = result.map(|()| size).map_err(|source| {
            let source = limited(source, at + size);
            let error = IoError::new("write", &*path, source).with_range(at, size);
            // The sync in it may be what failed, and takes other writes with it.
            match (through, error.verdict()) {
                (Through::Data, Verdict::Other) => error.with_verdict(Verdict::Damaged),
                _ => error,
            }
        });
        completer.complete(Done::written(result, data));
    }
}

/// Makes a ring with the best flags that the kernel takes.
fn set_up(entries: u32) -> Result<IoUring, Unavailable> {
    let asked = "io_uring_setup(2)";
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(entries.saturating_mul(4)).setup_submit_all();
    match builder.build(entries) {
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            // Older than SUBMIT_ALL, 5.18.
            let mut plain = IoUring::builder();
            plain.dontfork().setup_clamp().setup_cqsize(entries.saturating_mul(4));
            plain.build(entries).map_err(|error| unavailable(asked, Some(error)))
        }
        result => result.map_err(|error| unavailable(asked, Some(error))),
    }
}

fn unavailable(probe: &'static str, source: Option<io::Error>) -> Unavailable {
    let errno = source.and_then(|error| error.raw_os_error());
    let remedy = match errno.map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "set sysctl kernel.io_uring_disabled to 0, or where a container's seccomp profile blocks it, allow \
             io_uring_setup, io_uring_enter and io_uring_register"
        }
        Some(Errno::NOMEM) => "raise RLIMIT_MEMLOCK (ulimit -l), or ask for fewer entries",
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files (ulimit -n)",
        Some(Errno::NOSYS) => "it takes a kernel with CONFIG_IO_URING, and no seccomp profile that hides it",
        _ => "it takes Linux 5.11 or newer; use another backend",
    };
    Unavailable { what: "io_uring", probe, errno, remedy }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use bytes::Bytes;

    use super::*;

    /// What the kernel is made to say: to a call, told how many operations are in flight, and of a completion.
    #[derive(Default)]
    pub(super) struct Said {
        calls: u64,
        completions: u64,
        refusal: Option<fn(u64) -> Option<Errno>>,
        again: Option<fn(u64) -> Option<Errno>>,
        flying_most: usize,
    }

    impl Said {
        pub(super) fn refused(&mut self, flying: usize) -> Option<Errno> {
            self.calls += 1;
            self.flying_most = self.flying_most.max(flying);
            self.refusal.and_then(|refusal| refusal(self.calls))
        }

        /// A write that has been made, and of which this is not told, is made again.
        pub(super) fn of_completion(&mut self, result: i32) -> i32 {
            self.completions += 1;
            self.again.and_then(|again| again(self.completions)).map_or(result, |errno| -errno.raw_os_error())
        }
    }

    fn write(file: &Arc<File>, at: u64, data: Bytes) -> Write {
        let inode = Inode::of(&file.metadata().unwrap());
        let (size, data) = (data.len() as u64, Gather::One(data));
        let writing = Inode::writing(inode, at).unwrap();
        let (target, path, through) = (Arc::clone(file), Path::new("0.log").into(), Through::No);
        Write { target, fixed: None, path, writing, at, data, size, through, dont_cache: false, block: 1 }
    }

    /// Runs `work` on a thread of its own. Far longer than it takes: what meets it hangs.
    fn in_time(work: impl FnOnce() + Send + 'static) {
        let (done, ended) = mpsc::channel();
        let worker = thread::spawn(move || {
            work();
            done.send(()).unwrap();
        });
        if ended.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            panic!("it hangs");
        }
        worker.join().unwrap();
    }

    #[test]
    fn iob_05_ten_thousand_writes_complete_once_though_the_kernel_refuses_now_and_then() {
        const WRITES: usize = 2500;
        let Ok(ring) = Ring::new(8, true) else { return println!("skipped: no io_uring here") };
        in_time(move || {
            let ring = Arc::new(ring);
            *ring.said.lock() = Said {
                refusal: Some(|call| match call % 21 {
                    0 | 3 => Some(Errno::BUSY),
                    7 | 8 => Some(Errno::AGAIN),
                    13 => Some(Errno::INTR),
                    _ => None,
                }),
                again: Some(|completion| match completion % 10 {
                    0 => Some(Errno::AGAIN),
                    5 => Some(Errno::INTR),
                    _ => None,
                }),
                ..Said::default()
            };
            thread::scope(|scope| {
                for writer in 0..4_u8 {
                    let ring = &ring;
                    scope.spawn(move || {
                        let file = Arc::new(tempfile::tempfile().unwrap());
                        let bytes = |index: usize| vec![writer ^ index as u8; 100];
                        let begin =
                            |index: usize| ring.write(write(&file, index as u64 * 100, bytes(index).into()));
                        let tickets: Vec<Ticket> = (0..WRITES).map(begin).collect();
                        for ticket in tickets {
                            assert_eq!(ticket.wait().result.unwrap(), 100);
                        }
                        let mut seen = vec![0; WRITES * 100 + 1];
                        let count = std::os::unix::fs::FileExt::read_at(&*file, &mut seen, 0).unwrap();
                        assert_eq!(count, WRITES * 100);
                        assert_eq!(seen[..count], (0..WRITES).flat_map(bytes).collect::<Vec<u8>>());
                    });
                }
            });
            assert!(ring.flying.is_empty());
            assert_eq!(ring.capacity(), 32, "four times the submissions");
            assert!(ring.said.lock().flying_most <= 32, "no more than completions fit");
        });
    }

    #[test]
    fn a_write_that_the_kernel_did_not_take_is_made_for_who_only_asks() {
        let Ok(ring) = Ring::new(8, true) else { return println!("skipped: no io_uring here") };
        in_time(move || {
            let ring = Arc::new(ring);
            ring.said.lock().refusal = Some(|call| (call <= 2).then_some(Errno::AGAIN));
            let file = Arc::new(tempfile::tempfile().unwrap());
            let mut ticket = ring.write(write(&file, 0, Bytes::from_static(&[7; 1000])));
            let done = loop {
                match ticket.try_take() {
                    Some(done) => break done,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(done.result.unwrap(), 1000);
        });
    }

    #[test]
    fn iob_04_bytes_of_a_write_that_nobody_waits_for_stay_what_they_are_until_the_kernel_has_them() {
        let Ok(ring) = Ring::new(8, true) else { return println!("skipped: no io_uring here") };
        in_time(move || {
            let ring = Arc::new(ring);
            let file = tempfile::tempfile().unwrap();
            let other = file.try_clone().unwrap();
            // It stays in the queue: the kernel takes nothing.
            ring.said.lock().refusal = Some(|_| Some(Errno::AGAIN));
            let file = Arc::new(file);
            drop(ring.write(write(&file, 0, Bytes::from(vec![0xaa; 1000]))));
            drop(file);
            assert_eq!((ring.flying.len(), other.metadata().unwrap().len()), (1, 0));
            let filled: Vec<Vec<u8>> = (0..10_000).map(|_| vec![0x55; 1000]).collect();
            std::hint::black_box(&filled);
            ring.said.lock().refusal = None;
            while ring.drive(Duration::from_millis(100)).unwrap() == 0 {}
            let mut seen = vec![0; 2000];
            let count = std::os::unix::fs::FileExt::read_at(&other, &mut seen, 0).unwrap();
            assert_eq!(seen[..count], [0xaa; 1000]);
            assert!(ring.flying.is_empty());
        });
    }

    /// A write of 3 parts of 1000 bytes each at 4096, to a file whose blocks are `block` bytes.
    fn flying(block: u64, through: Through) -> (Flying, Ticket) {
        let target = Arc::new(tempfile::tempfile().unwrap());
        let inode = Inode::of(&target.metadata().unwrap());
        let data = Gather::from(vec![Bytes::from_static(&[7; 1000]); 3]);
        let writing = Inode::writing(inode, 4096).unwrap();
        let path = Path::new("0.log").into();
        let write = Write {
            target,
            fixed: None,
            path,
            writing,
            at: 4096,
            data,
            size: 3000,
            through,
            dont_cache: false,
            block,
        };
        let phase = Phase::Write { dsync: through == Through::Data };
        let (completer, ticket) = Ticket::pending();
        let flying =
            Flying { write, done: 0, slices: Vec::new(), phase, blocking: false, tries: 0, completer };
        (flying, ticket)
    }

    fn left(flying: &mut Flying) -> usize {
        flying.entry(false);
        flying.slices.iter().map(|slice| slice.iov_len).sum()
    }

    fn errno(errno: Errno) -> i32 {
        -errno.raw_os_error()
    }

    #[test]
    fn iob_03_a_call_takes_no_more_parts_and_bytes_than_the_kernel_does() {
        let calls = |parts: Vec<Bytes>| {
            let (mut flying, _ticket) = flying(1, Through::No);
            flying.write.data = Gather::from(parts);
            flying.write.size = flying.write.data.len();
            let mut calls = Vec::new();
            loop {
                let size = left(&mut flying);
                assert!(flying.slices.len() <= 1024 && size <= 2_147_479_552);
                calls.push(size);
                // More than a completion can say is never asked for.
                match flying.step(i32::try_from(size).unwrap()) {
                    Step::Again => {}
                    Step::End(result) => {
                        result.unwrap();
                        return calls;
                    }
                    Step::WithoutDsync => panic!("nothing was said of it"),
                }
            }
        };
        for (count, expected) in [(1024, 1), (1025, 2), (2048, 2), (3000, 3)] {
            let batches: Vec<Bytes> = (0..count).map(|index| vec![index as u8; 78].into()).collect();
            let sizes = calls(batches);
            assert_eq!((sizes.len(), sizes.iter().sum()), (expected, count * 78));
        }
        // Parts that share their memory: more than a call takes, and none of it copied.
        let large = calls(vec![Bytes::from(vec![7; 8 << 20]); 300]);
        assert_eq!(large, [2_147_479_552, 300 * (8 << 20) - 2_147_479_552]);
    }

    #[test]
    fn a_short_write_goes_on_where_it_stopped_or_at_the_block_before() {
        let (mut buffered, _ticket) = flying(1, Through::No);
        assert!(matches!(buffered.step(1500), Step::Again));
        assert_eq!((left(&mut buffered), buffered.slices.len()), (1500, 2));
        assert!(matches!(buffered.step(1500), Step::End(Ok(()))));
        let (mut direct, _ticket) = flying(512, Through::No);
        assert!(matches!(direct.step(1500), Step::Again));
        assert_eq!(left(&mut direct), 3000 - 1024);
        // Less than a block again and again comes to an end.
        let steps =
            (0..2 * TRIES_MAX).map(|_| direct.step(100)).take_while(|step| matches!(step, Step::Again));
        assert_eq!(steps.count(), TRIES_MAX as usize);
    }

    #[test]
    fn interruptions_are_tried_again_but_not_for_ever() {
        let (mut flying, _ticket) = flying(1, Through::No);
        assert!(matches!(flying.step(errno(Errno::INTR)), Step::Again));
        assert!(matches!(flying.step(errno(Errno::CANCELED)), Step::Again), "whoever submitted it has ended");
        assert!(!flying.blocking);
        assert!(matches!(flying.step(errno(Errno::AGAIN)), Step::Again));
        assert!(flying.blocking, "the kernel is to wait then");
        let again = (0..2 * TRIES_MAX).filter(|_| matches!(flying.step(errno(Errno::AGAIN)), Step::Again));
        assert_eq!(again.count(), TRIES_MAX as usize - 3);
    }

    #[test]
    fn a_write_of_nothing_or_of_too_much_is_an_error() {
        for count in [0, 3001] {
            let (mut flying, _ticket) = flying(1, Through::No);
            let Step::End(Err(error)) = flying.step(count) else {
                panic!("{count} bytes were taken for right")
            };
            assert_eq!(error.kind(), io::ErrorKind::WriteZero);
        }
    }

    #[test]
    fn durable_writes_sync_by_a_call_of_their_own_where_the_flag_is_unknown() {
        let (mut flying, ticket) = flying(1, Through::Data);
        assert!(matches!(flying.step(errno(Errno::OPNOTSUPP)), Step::WithoutDsync));
        flying.phase = Phase::Write { dsync: false };
        assert!(matches!(flying.step(2000), Step::Again));
        assert!(matches!(flying.step(1000), Step::Again));
        assert_eq!(flying.phase, Phase::Sync, "only when all of it is written");
        let Step::End(result) = flying.step(errno(Errno::IO)) else { panic!("a failed sync is tried again") };
        flying.end(result);
        assert_eq!(ticket.wait().result.unwrap_err().verdict(), Verdict::Damaged);
    }

    /// Refuses a system call to the calling thread, as a container's seccomp profile does. Whether it could.
    fn refuse_to_this_thread(call: libc::c_long) -> bool {
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let errno = Errno::PERM.raw_os_error().unsigned_abs();
        let mut steps = [
            // The number is the first field of what the filter is given.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: this call takes no pointers.
        let no_more = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        // SAFETY: `program` and the steps that it leads to outlive the call, which copies them.
        let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
        (no_more, filtered) == (0, 0)
    }

    #[test]
    fn a_ring_that_may_be_set_up_and_not_entered_cannot_be_had() {
        // The filter goes with the thread.
        let refused = thread::spawn(|| {
            if Ring::new(8, true).is_err() || !refuse_to_this_thread(libc::SYS_io_uring_enter) {
                return None;
            }
            Some(Ring::new(8, true).err().map(|error| error.to_string()))
        });
        match refused.join().unwrap() {
            None => println!("skipped: no io_uring, or no seccomp"),
            Some(told) => {
                let told = told.expect("a ring that cannot be used");
                assert!(told.contains("io_uring_enter(2) failed with") && told.contains("seccomp"), "{told}");
            }
        }
    }

    #[test]
    fn a_ring_that_cannot_be_had_names_probe_error_and_remedy() {
        for (errno, remedy) in [
            (Errno::PERM, "kernel.io_uring_disabled"),
            (Errno::PERM, "seccomp"),
            (Errno::NOMEM, "RLIMIT_MEMLOCK"),
            (Errno::NOSYS, "CONFIG_IO_URING"),
        ] {
            let told = unavailable("io_uring_setup(2)", Some(errno.into())).to_string();
            for part in ["io_uring_setup(2)", &io::Error::from(errno).to_string(), remedy] {
                assert!(told.contains(part), "{part:?} is missing in {told}");
            }
        }
    }
}
