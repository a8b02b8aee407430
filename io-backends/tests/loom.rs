//! Models of the crate's own concurrency. Run with `RUSTFLAGS="--cfg loom"`.
//!
//! Each also says which outcomes it must have met: a model whose threads never interleave proves nothing, and looks
//! the same.
#![cfg(loom)]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kseg_io_backends::{
    Align, Appender, Backend, Done, FileCaps, IoError, MapAccess, MappedRegion, MemoryBackend, Op, OpenHow,
    RawFile, Ticket, appender,
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

/// Every byte below the accepted mark is there, and nothing behind the mark is given out.
#[test]
fn reader_never_sees_past_accepted() {
    // Mark seen first, and bytes read then. The mark may rise in between, and an append is seen whole or not at all.
    model([(0, 0), (0, 3), (0, 8), (3, 3), (3, 8), (8, 8)], || {
        let log = log();
        let writer = {
            let log = Arc::clone(&log);
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
    });
}

/// A file that notes how long it was when its last sync began.
#[derive(Debug)]
struct Watched {
    file: Arc<dyn RawFile>,
    synced: Mutex<u64>,
}

impl RawFile for Watched {
    fn path(&self) -> PathBuf {
        self.file.path()
    }

    fn align(&self) -> Align {
        self.file.align()
    }

    fn caps(&self) -> FileCaps {
        self.file.caps()
    }

    fn submit(&self, op: Op) -> Ticket {
        if let Op::Flush { .. } = op {
            let len = self.file.len().unwrap();
            *self.synced.lock().unwrap() = len;
        }
        self.file.submit(op)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        self.file.read_at(into, at)
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.len()
    }

    fn map(&self, len: usize, access: MapAccess) -> Result<MappedRegion, IoError> {
        self.file.map(len, access)
    }

    fn map_bytes(&self, range: Range<u64>) -> Result<Bytes, IoError> {
        self.file.map_bytes(range)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_fd()
    }
}

/// A sync makes durable what was stable when it began, and not what is appended meanwhile.
#[test]
fn durable_never_passes_what_was_stable_when_the_sync_began() {
    // What was stable before, what the file held when the sync began, and what the flush says is durable.
    model([(3, 3, 3), (3, 5, 3), (3, 5, 5), (5, 5, 5)], || {
        let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
        let file = Arc::new(Watched { file, synced: Mutex::new(0) });
        let log = appender(Arc::clone(&file) as Arc<dyn RawFile>, 0).unwrap();
        append(&*log, b"abc");
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || append(&*log, b"de"))
        };
        let stable = log.marks().stable();
        let durable = log.flush().unwrap();
        assert_eq!(log.marks().durable(), durable);
        let synced = *file.synced.lock().unwrap();
        assert!(stable <= durable && durable <= synced);
        writer.join().unwrap();
        assert_eq!(log.flush().unwrap(), 5);
        (stable, synced, durable)
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
