//! Readers, flushes and deletions beside a writer, over every backend that is to be had.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use kseg_format::{Offset, Timestamp};
use kseg_io_backends::{Backend, Call, Moment, Watched};
use kseg_log::{Isolation, LogDir, LogDirOptions, ThreadScheduler, TimestampQuery, TopicPartition};

use crate::places;
use crate::support::*;

/// Far longer than anything here takes: what meets it hangs.
const NEVER: Duration = Duration::from_secs(30);

#[test]
fn con_01_con_03_con_08_whatever_was_published_is_readable_once_and_in_order_and_nothing_beyond() {
    places::with_each(|spec, backend, dir| {
        let bench = Bench::below(dir, backend, &[("internal.segment.bytes", "30000")]);
        let log = bench.open();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = false;
                    while !last {
                        last = done.load(Ordering::Acquire);
                        let mark = log.high_watermark();
                        let end = log.log_end_offset();
                        if end > Offset::ZERO {
                            let before = Offset::new(end.get() - 1);
                            let fetch = log.read(before, 1, Isolation::LogEnd, true).expect(spec);
                            assert_eq!(fetch.offset, before, "{spec}");
                        }
                        assert!(spans(&log, 0).len() as i64 >= end.get(), "{spec}");
                        let bounded =
                            log.read(Offset::ZERO, 1 << 20, Isolation::HighWatermark, true).expect(spec);
                        let now = log.high_watermark();
                        assert!(mark <= now && bounded.len() as i64 <= now.get() * 1000, "{spec}");
                    }
                });
            }
            for n in 0..100 {
                lead(&log, 1, n, 1000);
                if n % 10 == 9 {
                    log.update_high_watermark(Offset::new(n - 5));
                    log.flush(false).expect(spec);
                }
            }
            done.store(true, Ordering::Release);
        });
        assert_eq!(spans(&log, 0), (0..100).map(|n| (n, n)).collect::<Vec<_>>(), "{spec}");
    });
}

#[test]
fn con_06_the_largest_time_comes_with_its_own_offset() {
    places::with_each(|spec, backend, dir| {
        let log = Bench::below(dir, backend, &[]).open();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    if let Some(found) = log.offset_for_timestamp(TimestampQuery::Max).expect(spec) {
                        let time = found.timestamp.map_or(-1, Timestamp::get);
                        assert_eq!(time, 10 * (found.offset.get() + 1), "{spec}");
                    }
                }
            });
            for n in 0..100 {
                lead(&log, 1, 10 * (n + 1), 100);
            }
            done.store(true, Ordering::Release);
        });
    });
}

/// A backend that, once armed, holds the next sync of a `.log` file until it is told to go on.
struct HeldSync {
    watched: Watched,
    armed: Arc<AtomicBool>,
    /// Tells that the sync is about to be made.
    at_sync: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

/// `otherwise` says what is wrong where nobody lets the sync go on.
fn held_sync(backend: Arc<dyn Backend>, otherwise: &'static str) -> HeldSync {
    let (begun, at_sync) = mpsc::channel();
    let (go_on, held) = mpsc::channel();
    let held = Mutex::new(held);
    let armed = Arc::new(AtomicBool::new(false));
    let arm = armed.clone();
    let watched = Watched::new(backend, move |moment, call, path| {
        let of_log = path.extension().is_some_and(|role| role == "log");
        if of_log && (moment, call) == (Moment::Before, Call::Flush) && arm.swap(false, Ordering::SeqCst) {
            begun.send(()).expect("somebody listens");
            held.lock().expect("one").recv_timeout(NEVER).expect(otherwise);
        }
    });
    HeldSync { watched, armed, at_sync, go_on }
}

#[test]
fn con_10_no_lock_is_held_across_a_sync() {
    places::with(&["memory", "std", "std+direct", "uring", "uring+direct"], |spec, backend, dir| {
        let HeldSync { watched, armed, at_sync, go_on } =
            held_sync(backend, "a lock is held across the sync");
        let log = Bench::below(dir, Arc::new(watched), &[]).open();
        lead(&log, 1, 1, 100);
        armed.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            let flush = scope.spawn(|| log.flush(false));
            at_sync.recv_timeout(NEVER).expect(spec);
            // While the sync does not end, whatever needs none goes on.
            lead(&log, 1, 1, 100);
            assert_eq!(spans(&log, 0).len(), 2, "{spec}");
            log.update_high_watermark(Offset::new(2));
            assert!(log.increment_log_start_offset(Offset::new(1)).expect(spec), "{spec}");
            assert!(
                log.state(false).is_ok() && log.offset_for_timestamp(TimestampQuery::Max).is_ok(),
                "{spec}"
            );
            go_on.send(()).expect("somebody waits");
            flush.join().expect("no panic").expect(spec);
        });
    });
}

#[test]
fn con_05_a_flush_in_the_background_of_a_partition_that_is_deleted_ends_quietly() {
    places::with(&["memory", "std", "std+direct", "uring", "uring+direct"], |spec, backend, dir| {
        let HeldSync { watched, armed, at_sync, go_on } =
            held_sync(backend, "the deletion waits for the flush");
        let scheduler = ThreadScheduler::start().expect("a thread");
        let options = LogDirOptions { scheduler, ..LogDirOptions::new(Arc::new(watched)) };
        let data = LogDir::open(&dir.join("data"), options).expect(spec);
        let (going, staying) = (TopicPartition::new("t", 0), TopicPartition::new("t", 1));
        let log = data.get_or_create(&going, None).expect(spec);
        lead(&log, 1, 1, 100);
        armed.store(true, Ordering::SeqCst);
        log.roll(None).expect(spec);
        at_sync.recv_timeout(NEVER).expect(spec);
        assert!(data.delete(&going).expect(spec), "{spec}");
        go_on.send(()).expect("somebody waits");
        // The scheduler has come to the end of the flush when this has been served.
        let other = data.get_or_create(&staying, None).expect(spec);
        lead(&other, 1, 1, 100);
        other.roll(None).expect(spec);
        other.flush(false).expect(spec);
        let report = data.shutdown().expect(spec);
        assert!(report.clean && report.failed.is_empty(), "{spec}");
        assert_eq!(log.last_trouble().map(|t| t.to_string()), None, "{spec}");
    });
}
