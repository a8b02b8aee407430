//! Readers, flushes and cuts beside writers, over every backend that is to be had.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use bytes::Bytes;
use kseg_io_backends::{Appender, OpenHow, appender};

use crate::places;

/// What belongs in a file, whoever appends it, and however often it was cut.
static ALL: LazyLock<Bytes> = LazyLock::new(|| Vec::from_iter(0..251_u8).repeat(150_000).into());

fn bytes(at: u64, len: usize) -> Bytes {
    ALL.slice(at as usize..at as usize + len)
}

/// Numbers that look as if they were drawn.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Appends at the end, where nobody else changes it meanwhile.
fn append(log: &Arc<dyn Appender>, end: &Mutex<()>, len: usize, waits: bool) {
    let handle = {
        let _held = end.lock().unwrap();
        let at = log.marks().accepted();
        let (range, handle) = log.append_durable(bytes(at, len).into()).unwrap();
        assert_eq!(range, at..at + len as u64);
        handle
    };
    if waits && let Err(error) = handle.wait() {
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
    }
}

#[test]
fn what_is_read_beside_appends_flushes_cuts_and_seals_belongs_where_it_is() {
    const SIZES: [usize; 8] = [0, 1, 4095, 4096, 20_000, 65_535, 65_536, 300_000];
    places::with_each(|spec, backend, dir| {
        let path = dir.join("0.log");
        let log = appender(backend.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
        let (end, done) = (Mutex::new(()), AtomicBool::new(false));
        let going = || !done.load(Ordering::Relaxed);
        thread::scope(|scope| {
            for reader in 0..2 {
                let (log, going) = (&log, &going);
                scope.spawn(move || {
                    let mut drawn = Drawn(99 + reader);
                    let mut into = vec![0; 200_000];
                    while going() {
                        let at = drawn.below(log.marks().accepted() + 1);
                        let count = log.read_at(&mut into, at).unwrap();
                        assert!(into[..count] == bytes(at, count), "{spec}: {count} bytes at {at}");
                    }
                });
            }
            scope.spawn(|| {
                while going() {
                    log.flush().unwrap();
                    thread::yield_now();
                }
            });
            scope.spawn(|| {
                let mut drawn = Drawn(5);
                while going() {
                    let held = end.lock().unwrap();
                    let at = log.marks().accepted();
                    if drawn.below(5) == 0 {
                        assert_eq!(log.seal().unwrap(), at);
                        assert_eq!(std::fs::metadata(&path).unwrap().len(), at, "{spec}");
                    } else {
                        log.truncate(at - drawn.below(at.min(50_000) + 1)).unwrap();
                    }
                    let durable = log.flush().unwrap();
                    let seen = std::fs::read(&path).unwrap();
                    assert!(seen[..durable as usize] == bytes(0, durable as usize), "{spec}");
                    assert!(spec.contains("zeroed") || seen.len() as u64 == durable, "{spec}: it is exact");
                    drop(held);
                    thread::yield_now();
                }
            });
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (log, end) = (&log, &end);
                    scope.spawn(move || {
                        let mut drawn = Drawn(77 + writer);
                        for _ in 0..25 {
                            let size = SIZES[drawn.below(SIZES.len() as u64) as usize];
                            let len = if drawn.below(3) == 0 { size } else { drawn.below(6000) as usize };
                            append(log, end, len, drawn.below(3) == 0);
                        }
                    })
                })
                .collect();
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            done.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|ended| ended.unwrap());
        });
        let len = log.marks().accepted();
        drop(log);
        assert!(std::fs::read(&path).unwrap() == bytes(0, len as usize), "{spec}");
    });
}

#[test]
fn what_threads_have_appended_that_have_ended_since_is_there() {
    places::with_each(|spec, backend, dir| {
        let path = dir.join("0.log");
        let log = appender(backend.open(&path, OpenHow::CreateNew).unwrap(), 0).unwrap();
        for round in 0..40 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    for len in [300_000, 5000, 70_000] {
                        log.append(bytes(log.marks().accepted(), len).into()).unwrap();
                    }
                });
            });
            if round % 8 == 7 {
                log.flush().unwrap();
            }
        }
        let len = log.marks().accepted();
        drop(log);
        assert!(std::fs::read(&path).unwrap() == bytes(0, len as usize), "{spec}");
    });
}
