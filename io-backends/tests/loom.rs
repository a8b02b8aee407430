//! Models of the crate's own concurrency. Run with `RUSTFLAGS="--cfg loom"`.
#![cfg(loom)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{
    Appender, Backend, Done, MapAccess, MappedRegion, MemoryBackend, OpenHow, Ticket, appender,
};
use loom::thread;

fn log() -> Arc<dyn Appender> {
    let file = MemoryBackend::new().open(Path::new("0.log"), OpenHow::Create).unwrap();
    appender(file, 0).unwrap()
}

fn append(log: &dyn Appender, bytes: &'static [u8]) {
    log.append(Bytes::from_static(bytes).into()).unwrap();
}

/// Every byte below the accepted mark is there, and nothing behind the mark is given out.
#[test]
fn reader_never_sees_past_accepted() {
    loom::model(|| {
        let log = log();
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                append(&*log, b"abc");
                append(&*log, b"defgh");
            })
        };
        let accepted = log.marks().accepted();
        assert!([0, 3, 8].contains(&accepted), "an append is seen whole or not at all");
        let mut bytes = [0; 16];
        let count = log.read_at(&mut bytes, 0).unwrap();
        assert!(count as u64 >= accepted);
        assert_eq!(bytes[..count], b"abcdefgh"[..count]);
        assert!([0, 3, 8].contains(&count));
        writer.join().unwrap();
        assert_eq!(log.marks().accepted(), 8);
    });
}

/// A sync that began before an append does not make it durable.
#[test]
fn durable_never_passes_what_was_stable_when_the_sync_began() {
    loom::model(|| {
        let log = log();
        append(&*log, b"abc");
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || append(&*log, b"de"))
        };
        let durable = log.flush().unwrap();
        assert!([3, 5].contains(&durable));
        assert!(durable <= log.marks().stable());
        assert_eq!(log.marks().durable(), durable);
        writer.join().unwrap();
        assert_eq!(log.flush().unwrap(), 5);
    });
}

/// A truncation beside a reader gives it the old bytes or fewer, never an error.
#[test]
fn a_truncation_does_not_fail_a_reader() {
    loom::model(|| {
        let log = log();
        append(&*log, b"abcdefgh");
        let cutter = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.truncate(3).unwrap())
        };
        let mut bytes = [0; 16];
        let count = log.read_at(&mut bytes, 0).unwrap();
        assert!([3, 8].contains(&count));
        assert_eq!(bytes[..count], b"abcdefgh"[..count]);
        cutter.join().unwrap();
        assert_eq!(log.marks().accepted(), 3);
    });
}

/// Words of a mapped file are whole, and what a region stores the file returns.
#[test]
fn a_region_beside_reads_of_the_file() {
    loom::model(|| {
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
        assert!(matches!(&bytes[..4], b"abcd" | b"\0\0\0\0"));
        assert!(matches!(&bytes[4..], b"efgh" | b"\0\0\0\0"));
        writer.join().unwrap();
        assert_eq!(region.load::<8>(0), *b"abcdefgh");
    });
}

/// Whoever waits for a ticket is woken by its answer, given before or after.
#[test]
fn a_ticket_loses_no_wake_up() {
    loom::model(|| {
        let (completer, ticket) = Ticket::pending();
        let engine = thread::spawn(move || completer.complete(Done::new(Ok(7))));
        assert_eq!(ticket.wait().result.unwrap(), 7);
        engine.join().unwrap();
    });
}
