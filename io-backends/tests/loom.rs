//! Models of the crate's own concurrency. Run with `RUSTFLAGS="--cfg loom"`.
//!
//! Each also says which outcomes it must have met: a model whose threads never interleave proves nothing, and looks
//! the same.
#![cfg(loom)]

#[macro_use]
#[path = "support/forward.rs"]
mod forward;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};

use bytes::Bytes;
use kseg_io_backends::{
    Align, Appender, Backend, Done, FileCaps, IoError, MapAccess, MappedRegion, MemoryBackend, Op, OpenHow,
    Overlay, RawFile, SlotTable, Space, Through, Ticket, appender,
};
use loom::thread;

fn log() -> Arc<dyn Appender> {
    let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
    appender(file, 0).unwrap()
}

fn append(log: &dyn Appender, bytes: &'static [u8]) {
    log.append(Bytes::from_static(bytes).into()).unwrap();
}

/// Runs a model and checks that it came to exactly these outcomes, over all interleavings.
fn model<T: Ord + Debug + Send + 'static>(outcomes: impl IntoIterator<Item = T>, run: fn() -> T) {
    let met = Arc::new(Mutex::new(BTreeSet::new()));
    let all = Arc::clone(&met);
    loom::model(move || {
        let outcome = run();
        all.lock().unwrap().insert(outcome);
    });
    assert_eq!(*met.lock().unwrap(), outcomes.into_iter().collect());
}

/// Reads beside two appends. The mark seen first, and how many bytes were read then: it may rise in between, and an append is seen
/// whole or not at all.
fn read_beside_appends(log: &Arc<dyn Appender>) -> (u64, usize) {
    let writer = {
        let log = Arc::clone(log);
        thread::spawn(move || {
            append(&*log, b"abc");
            append(&*log, b"defgh");
        })
    };
    let accepted = log.marks().accepted();
    let mut bytes = [0; 16];
    let count = log.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes[..count], b"abcdefgh"[..count]);
    writer.join().unwrap();
    assert_eq!(log.marks().accepted(), 8);
    (accepted, count)
}

/// All that [`read_beside_appends`] may find.
const FOUND_BESIDE_APPENDS: [(u64, usize); 6] = [(0, 0), (0, 3), (0, 8), (3, 3), (3, 8), (8, 8)];

/// Every byte below the accepted mark is there, and nothing behind the mark is given out.
#[test]
fn reader_never_sees_past_accepted() {
    model(FOUND_BESIDE_APPENDS, || read_beside_appends(&log()));
}

/// A file that notes how long it was when its last sync began, and whose syncs fail when told to.
#[derive(Debug)]
struct Watched {
    file: Arc<dyn RawFile>,
    synced: Mutex<u64>,
    syncs: Mutex<usize>,
    fails: bool,
}

impl Watched {
    fn new(fails: bool) -> Arc<Self> {
        let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
        Arc::new(Watched { file, synced: Mutex::new(0), syncs: Mutex::new(0), fails })
    }

    fn syncs(&self) -> usize {
        *self.syncs.lock().unwrap()
    }

    fn synced(&self) -> u64 {
        *self.synced.lock().unwrap()
    }
}

impl RawFile for Watched {
    forward_to!(file);

    fn align(&self) -> Align {
        self.file.align()
    }

    fn caps(&self) -> FileCaps {
        self.file.caps()
    }

    fn submit(&self, op: Op) -> Ticket {
        if let Op::Flush { .. } = op {
            *self.syncs.lock().unwrap() += 1;
            if self.fails {
                let error = std::io::Error::from_raw_os_error(5);
                return Ticket::ready(Done::new(Err(IoError::new("fdatasync", self.file.path(), error))));
            }
            let len = self.file.len().unwrap();
            thread::yield_now();
            *self.synced.lock().unwrap() = len;
        }
        self.file.submit(op)
    }
}

/// A sync makes durable what was stable when it began, and not what is appended meanwhile.
#[test]
fn durable_never_passes_what_was_stable_when_the_sync_began() {
    // What was stable before, what the file held when the sync began, and what the flush says is durable.
    model([(3, 3, 3), (3, 5, 3), (3, 5, 5), (5, 5, 5)], || {
        let file = Watched::new(false);
        let log = appender(Arc::clone(&file) as Arc<dyn RawFile>, 0).unwrap();
        append(&*log, b"abc");
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || append(&*log, b"de"))
        };
        let stable = log.marks().stable();
        let durable = log.flush().unwrap();
        assert_eq!(log.marks().durable(), durable);
        let synced = file.synced();
        assert!(stable <= durable && durable <= synced);
        writer.join().unwrap();
        assert_eq!(log.flush().unwrap(), 5);
        (stable, synced, durable)
    });
}

/// A flush answers for all that was stable before it, also where the writer has only just published it.
#[test]
fn a_flush_answers_for_all_that_was_stable() {
    model([(1, 1), (1, 2), (2, 2)], || {
        let log = log();
        append(&*log, b"a");
        assert_eq!(log.flush().unwrap(), 1);
        let writer = thread::spawn({
            let log = Arc::clone(&log);
            move || append(&*log, b"b")
        });
        let stable = log.marks().stable();
        let durable = log.flush().unwrap();
        assert!(durable >= stable, "{stable} was stable, {durable} is flushed");
        writer.join().unwrap();
        (stable, durable)
    });
}

/// Who awaits in a model: woken once, or for ever asleep, which loom finds.
#[derive(Default)]
struct Signal {
    woken: loom::sync::Mutex<bool>,
    changed: loom::sync::Condvar,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

fn await_it<F: Future + Unpin>(mut future: F) -> F::Output {
    let signal = Arc::new(Signal::default());
    let waker = Arc::clone(&signal).into();
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut woken = signal.woken.lock().unwrap();
        while !std::mem::replace(&mut *woken, false) {
            woken = signal.changed.wait(woken).unwrap();
        }
    }
}

/// Two writers who wait for their bytes: each is answered after a sync that began when they were there, and one sync
/// may serve both.
#[test]
fn group_commit_acknowledges_nothing_before_its_sync() {
    // How many syncs it took.
    model([1, 2], || {
        let file = Watched::new(false);
        let log = appender(Arc::clone(&file) as Arc<dyn RawFile>, 0).unwrap();
        let write = |log: &Arc<dyn Appender>, file: &Watched| {
            let (range, durability) = log.append_durable(Bytes::from_static(b"abc").into()).unwrap();
            let durable = durability.wait().unwrap();
            assert!(range.end <= durable && durable <= file.synced());
        };
        let other = {
            let (log, file) = (Arc::clone(&log), Arc::clone(&file));
            thread::spawn(move || write(&log, &file))
        };
        write(&log, &file);
        other.join().unwrap();
        assert_eq!(log.marks().durable(), 6);
        file.syncs()
    });
}

/// One thread blocks and one task awaits: both are woken, whoever ran the sync.
#[test]
fn group_commit_wakes_who_blocks_and_who_awaits() {
    model([1, 2], || {
        let file = Watched::new(false);
        let log = appender(Arc::clone(&file) as Arc<dyn RawFile>, 0).unwrap();
        let (_, awaited) = log.append_durable(Bytes::from_static(b"abc").into()).unwrap();
        let other = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                let (_, durability) = log.append_durable(Bytes::from_static(b"de").into()).unwrap();
                assert_eq!(durability.wait().unwrap(), 5);
            })
        };
        assert!(await_it(awaited).unwrap() >= 3);
        other.join().unwrap();
        file.syncs()
    });
}

/// A handle that is awaited alone is served by a thread of the background.
#[test]
fn a_handle_that_is_only_awaited_is_served() {
    model([1], || {
        let file = Watched::new(false);
        let log = appender(Arc::clone(&file) as Arc<dyn RawFile>, 0).unwrap();
        let (_, durability) = log.append_durable(Bytes::from_static(b"abc").into()).unwrap();
        assert_eq!(await_it(durability).unwrap(), 3);
        file.syncs()
    });
}

/// The sync fails once, is not tried again, and all who wait hear of it.
#[test]
fn a_fence_reaches_everyone_who_waits() {
    // Whether the other one could still append.
    model([false, true], || {
        let file = Watched::new(true);
        let log = appender(Arc::clone(&file) as Arc<dyn RawFile>, 0).unwrap();
        let (_, awaited) = log.append_durable(Bytes::from_static(b"abc").into()).unwrap();
        let other = {
            let log = Arc::clone(&log);
            thread::spawn(move || match log.append_durable(Bytes::from_static(b"de").into()) {
                Ok((_, durability)) => {
                    durability.wait().unwrap_err();
                    true
                }
                Err(_) => false,
            })
        };
        await_it(awaited).unwrap_err();
        let appended = other.join().unwrap();
        assert!(log.marks().fenced() && log.flush().is_err());
        assert_eq!((log.marks().durable(), file.syncs()), (0, 1));
        appended
    });
}

/// A file whose writes must be aligned, and complete later, in any order, each by a thread of its own. With `unaligned`
/// flushes may write otherwise, but not beside another write.
#[derive(Debug)]
struct Late {
    file: Arc<dyn RawFile>,
    unaligned: bool,
    /// Writes in flight, and whether one of them is not aligned. No model is about this: it is not loom's.
    flying: Arc<std::sync::Mutex<(u32, bool)>>,
}

/// The unit of its writes.
const BLOCK: u32 = 4;

impl Late {
    fn appender() -> (Arc<dyn RawFile>, Arc<dyn Appender>) {
        let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
        Self::of(file, false)
    }

    fn unaligned() -> (Arc<dyn RawFile>, Arc<dyn Appender>) {
        let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
        Self::of(file, true)
    }

    fn of(file: Arc<dyn RawFile>, unaligned: bool) -> (Arc<dyn RawFile>, Arc<dyn Appender>) {
        let late = Late { file: Arc::clone(&file), unaligned, flying: Arc::default() };
        (file, appender(Arc::new(late), 0).unwrap())
    }
}

impl RawFile for Late {
    forward_to!(file);

    fn align(&self) -> Align {
        let block = BLOCK.try_into().unwrap();
        Align::new(block, block, block)
    }

    fn caps(&self) -> FileCaps {
        let mut caps = self.file.caps();
        caps.parallel_append = true;
        caps.plan.depth = 2;
        caps.plan.chunk = BLOCK;
        caps.plan.unaligned = if self.unaligned { BLOCK } else { 0 };
        caps
    }

    fn submit(&self, op: Op) -> Ticket {
        match &op {
            Op::Write { at, data, .. } => {
                let unit = u64::from(BLOCK);
                let aligned = at.is_multiple_of(unit) && data.len().is_multiple_of(unit);
                assert!(aligned || self.unaligned);
                {
                    let mut flying = self.flying.lock().unwrap();
                    assert!(flying.0 == 0 || aligned && !flying.1, "beside one that is not aligned");
                    *flying = (flying.0 + 1, !aligned);
                }
                let (completer, ticket) = Ticket::pending();
                let (file, flying) = (Arc::clone(&self.file), Arc::clone(&self.flying));
                thread::spawn(move || {
                    let done = file.submit(op).wait();
                    flying.lock().unwrap().0 -= 1;
                    completer.complete(done);
                });
                ticket
            }
            _ => self.file.submit(op),
        }
    }
}

/// What was accepted is read at every moment, whether it lies in the tail, in a write that is going on, or in the file;
/// and what is stable the file itself returns, in whatever order the writes complete.
#[test]
fn tail_beside_readers_and_writes_that_complete_in_any_order() {
    // Accepted before, and how much was read then.
    model([(0, 0), (0, 5), (0, 9), (5, 5), (5, 9), (9, 9)], || {
        let (file, log) = Late::appender();
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                append(&*log, b"abcde");
                append(&*log, b"fghi");
            })
        };
        let (stable, accepted) = (log.marks().stable(), log.marks().accepted());
        assert!(stable <= accepted);
        let mut bytes = [0; 16];
        assert!(file.read_at(&mut bytes, 0).unwrap() as u64 >= stable);
        assert_eq!(bytes[..stable as usize], b"abcdefghi"[..stable as usize]);
        let count = log.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[..count], b"abcdefghi"[..count]);
        writer.join().unwrap();
        assert_eq!(log.flush().unwrap(), 9);
        (accepted, count)
    });
}

/// A flush beside an append waits for the writes that it covers, and what is durable was stable.
#[test]
fn a_flush_covers_what_was_accepted_though_writes_complete_later() {
    model([5, 7], || {
        let (file, log) = Late::appender();
        append(&*log, b"abcde");
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || append(&*log, b"fg"))
        };
        let durable = log.flush().unwrap();
        let mut bytes = [0; 16];
        assert!(file.read_at(&mut bytes, 0).unwrap() as u64 >= durable);
        assert_eq!(bytes[..durable as usize], b"abcdefg"[..durable as usize]);
        assert!(log.marks().stable() >= durable);
        writer.join().unwrap();
        durable
    });
}

/// The same where what is left behind the last whole block is written as it is: never beside another write, and what is
/// appended meanwhile follows it.
#[test]
fn what_is_not_aligned_is_written_by_itself() {
    model([3, 5], || {
        let (file, log) = Late::unaligned();
        append(&*log, b"abc");
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || append(&*log, b"de"))
        };
        let durable = log.flush().unwrap();
        assert!(log.marks().stable() >= durable);
        writer.join().unwrap();
        let mut bytes = [0; 16];
        let count = file.read_at(&mut bytes, 0).unwrap();
        assert!(count as u64 >= durable && bytes[..count] == b"abcde"[..count]);
        durable
    });
}

/// A file whose writes may be in flight at the same time, and are done at once.
#[derive(Debug)]
struct AtOnce(Arc<dyn RawFile>);

impl RawFile for AtOnce {
    forward_to!(0);

    fn align(&self) -> Align {
        self.0.align()
    }

    fn caps(&self) -> FileCaps {
        let mut caps = self.0.caps();
        caps.parallel_append = true;
        caps.plan.at_once = 16;
        caps
    }

    fn submit(&self, op: Op) -> Ticket {
        self.0.submit(op)
    }
}

/// What went past the tail, because its write was done at once, is found in the file as soon as it is accepted.
#[test]
fn a_reader_finds_what_went_past_the_tail() {
    model(FOUND_BESIDE_APPENDS, || {
        let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
        let log = appender(Arc::new(AtOnce(file)), 0).unwrap();
        let found = read_beside_appends(&log);
        assert_eq!((log.marks().stable(), log.flush().unwrap()), (8, 8));
        found
    });
}

/// What was kept for a flush, as several came between two of them, is read meanwhile, and written by the flush that covers
/// it.
#[test]
fn what_is_kept_for_a_flush_is_read_before_and_covered_by_it() {
    // What is durable, and how much was read before.
    model([(2, 2), (4, 2), (4, 4)], || {
        let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
        let log = appender(Arc::new(AtOnce(Arc::clone(&file))), 0).unwrap();
        append(&*log, b"a");
        append(&*log, b"b");
        log.flush().unwrap();
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || append(&*log, b"cd"))
        };
        let mut bytes = [0; 16];
        let read = log.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[..read], b"abcd"[..read]);
        let durable = log.flush().unwrap();
        let count = file.read_at(&mut bytes, 0).unwrap();
        assert!(count as u64 >= durable && bytes[..count] == b"abcd"[..count]);
        writer.join().unwrap();
        (durable, read)
    });
}

/// What an operation owns is freed once its completion was seen and not before, whatever else goes on in the table; and
/// a completion that comes twice does not reach the next operation in the same place.
#[test]
fn slots_of_operations_in_flight_are_freed_by_their_own_completion_alone() {
    struct Buffer(Arc<loom::sync::atomic::AtomicBool>);

    impl Drop for Buffer {
        fn drop(&mut self) {
            self.0.store(true, loom::sync::atomic::Ordering::Relaxed);
        }
    }

    // Whether there was room for the second operation at once.
    model([false, true], || {
        let freed = || Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let is = |freed: &loom::sync::atomic::AtomicBool| freed.load(loom::sync::atomic::Ordering::Relaxed);
        let (first_freed, second_freed) = (freed(), freed());
        let table = Arc::new(SlotTable::new(1));
        let first = table.insert(Buffer(Arc::clone(&first_freed))).ok().unwrap();
        let kernel = {
            let (table, first_freed) = (Arc::clone(&table), Arc::clone(&first_freed));
            thread::spawn(move || {
                assert!(!is(&first_freed), "freed while the kernel uses it");
                drop(table.complete(first).unwrap());
                assert!(table.complete(first).is_none(), "it completes once");
            })
        };
        let room = table.insert(Buffer(Arc::clone(&second_freed)));
        let at_once = room.is_ok();
        kernel.join().unwrap();
        assert!(is(&first_freed));
        if let Ok(second) = room {
            assert!(!is(&second_freed) && table.complete(first).is_none());
            drop(table.complete(second).unwrap());
            assert!(is(&second_freed));
        }
        assert!(table.is_empty());
        at_once
    });
}

/// A truncation beside a reader gives it the old bytes or fewer, never an error.
#[test]
fn a_truncation_does_not_fail_a_reader() {
    model([3, 8], || {
        let log = log();
        append(&*log, b"abcdefgh");
        let cutter = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.truncate(3).unwrap())
        };
        let mut bytes = [0; 16];
        let count = log.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[..count], b"abcdefgh"[..count]);
        cutter.join().unwrap();
        assert_eq!(log.marks().accepted(), 3);
        count
    });
}

/// The handle of an append tells of the cut behind it, and never of what is appended in its place.
#[test]
fn a_handle_is_not_answered_for_what_took_the_place_of_its_bytes() {
    // Whether the cut came behind the append, and whether the handle tells of it; one before it may be told of, too.
    model([(false, false), (false, true), (true, true)], || {
        let log = log();
        append(&*log, b"abc");
        let cutter = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.truncate(0).unwrap())
        };
        let (range, handle) = log.append_durable(Bytes::from_static(b"de").into()).unwrap();
        cutter.join().unwrap();
        append(&*log, b"fghij");
        log.flush().unwrap();
        let told = handle.wait().is_err_and(|error| error.kind() == std::io::ErrorKind::Interrupted);
        (range.start == 3, told)
    });
}

/// A file that is appended to with zeros ahead, and notes where they were asked for.
#[derive(Debug)]
struct ZerosAhead(Arc<dyn RawFile>, Mutex<Vec<std::ops::Range<u64>>>);

impl RawFile for ZerosAhead {
    forward_to!(0);

    fn align(&self) -> Align {
        self.0.align()
    }

    fn caps(&self) -> FileCaps {
        let mut caps = self.0.caps();
        caps.plan.space = Space::Zeroed(8);
        caps
    }

    fn submit(&self, op: Op) -> Ticket {
        if let Op::Reserve { range, .. } = &op {
            self.1.lock().unwrap().push(range.clone());
        }
        self.0.submit(op)
    }
}

/// Space that the background was asked to take is taken by it, or by the append that needs it and finds that no thread has
/// come to it: once, and never over what was appended.
#[test]
fn space_ahead_is_taken_by_the_background_or_by_who_needs_it() {
    // Where zeros were asked for, beside those of the first append.
    model([vec![14..22], vec![14..26]].map(|ranges| format!("{ranges:?}")), || {
        let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
        let zeros = Arc::new(ZerosAhead(file, Mutex::default()));
        let log = appender(Arc::clone(&zeros) as Arc<dyn RawFile>, 0).unwrap();
        for bytes in [b"abcdef", b"ghijkl", b"mnopqr"] {
            append(&*log, bytes);
        }
        let mut bytes = [0; 32];
        assert_eq!(log.read_at(&mut bytes, 0).unwrap(), 18);
        assert_eq!(bytes[..18], *b"abcdefghijklmnopqr");
        assert_eq!((log.seal().unwrap(), log.file().len().unwrap()), (18, 18));
        let ranges = zeros.1.lock().unwrap();
        assert_eq!(ranges[0], 0..14);
        format!("{:?}", &ranges[1..2])
    });
}

/// A read beside a cut and an append in its place gives what was there before or what is there then, and nothing of the zeros
/// that are ahead of the new end.
#[test]
fn a_read_beside_a_truncation_and_an_append_is_of_one_of_them() {
    model(["abcdefgh", "abc", "abcx"].map(String::from), || {
        let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
        let log = appender(Arc::new(ZerosAhead(file, Mutex::default())), 0).unwrap();
        append(&*log, b"abcdefgh");
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                log.truncate(3).unwrap();
                append(&*log, b"x");
            })
        };
        let mut bytes = [0; 16];
        let count = log.read_at(&mut bytes, 0).unwrap();
        writer.join().unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    });
}

/// A file of which a cut sets the bytes to zero before it takes them away, as the kernel does with those of a page.
#[derive(Debug)]
struct ZeroedFirst(Arc<dyn RawFile>);

impl RawFile for ZeroedFirst {
    forward_to!(0);

    fn align(&self) -> Align {
        self.0.align()
    }

    fn caps(&self) -> FileCaps {
        self.0.caps()
    }

    fn submit(&self, op: Op) -> Ticket {
        if let Op::SetLen { len } = op {
            let data = Bytes::from_static(&[0; 2]).into();
            self.0.submit(Op::Write { at: len, data, through: Through::No }).wait().result.unwrap();
        }
        self.0.submit(op)
    }
}

/// A read beside a cut gives none of the zeros that are there in the midst of it.
#[test]
fn a_read_beside_a_truncation_gives_no_zeros() {
    model(["abcde", "abc"].map(String::from), || {
        let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
        let log = appender(Arc::new(ZeroedFirst(file)), 0).unwrap();
        append(&*log, b"abcde");
        let cutter = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.truncate(3).unwrap())
        };
        let mut bytes = [0; 8];
        let count = log.read_at(&mut bytes, 0).unwrap();
        cutter.join().unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    });
}

/// A cut of a file below an overlay is kept though another handle's write has the file copied meanwhile.
#[test]
fn an_overlay_keeps_a_cut_beside_a_copy() {
    model([()], || {
        let below: Arc<dyn Backend> = Arc::new(MemoryBackend::new());
        below.names().write(Path::new("/0.log"), b"abcdefgh", true).unwrap();
        let overlay = Overlay::new(below);
        let open = || overlay.open(Path::new("/0.log"), OpenHow::Write).unwrap();
        let (cut, written) = (open(), open());
        let writer = thread::spawn(move || {
            let data = Bytes::from_static(b"x").into();
            written.submit(Op::Write { at: 0, data, through: Through::No }).wait().result.unwrap();
        });
        cut.submit(Op::SetLen { len: 3 }).wait().result.unwrap();
        writer.join().unwrap();
        let mut bytes = [0; 16];
        let count = cut.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[..count], *b"xbc");
    });
}

/// Words of a mapped file are whole, and what a region stores the file returns.
#[test]
fn a_region_beside_reads_of_the_file() {
    let words = ["abcdefgh", "abcd\0\0\0\0", "\0\0\0\0efgh", "\0\0\0\0\0\0\0\0"];
    model(words.map(|words| words.as_bytes().to_vec()), || {
        let backend = MemoryBackend::new();
        let file = backend.open(Path::new("0.index"), OpenHow::Create).unwrap();
        kseg_io_backends::write_all(&*file, 0, Bytes::from_static(&[0; 8]).into()).unwrap();
        let region: Arc<MappedRegion> = Arc::new(file.map(8, MapAccess::Write).unwrap());
        let writer = {
            let region = Arc::clone(&region);
            thread::spawn(move || region.store(0, *b"abcdefgh"))
        };
        let mut bytes = [0; 8];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 8);
        writer.join().unwrap();
        assert_eq!(region.load::<8>(0), *b"abcdefgh");
        bytes.to_vec()
    });
}

/// Whoever waits for a ticket is woken by its answer, given before or after.
#[test]
fn a_ticket_loses_no_wake_up() {
    // Whether the answer was there before it was waited for.
    model([false, true], || {
        let (completer, mut ticket) = Ticket::pending();
        let engine = thread::spawn(move || completer.complete(Done::new(Ok(7))));
        let early = ticket.try_take();
        let there = early.is_some();
        assert_eq!(early.unwrap_or_else(|| ticket.wait()).result.unwrap(), 7);
        engine.join().unwrap();
        there
    });
}
