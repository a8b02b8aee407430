//! Readers, flushes and deletions beside a writer, over every backend that is to be had.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use kseg_format::{LeaderEpoch, Offset, Origin, Timestamp};
use kseg_io_backends::{Backend, Call, Moment, Watched};
use kseg_log::{Isolation, Log, LogDir, LogDirOptions, ThreadScheduler, TimestampQuery, TopicPartition};

use crate::places;
use crate::support::*;

/// Far longer than anything here takes: what meets it hangs.
const NEVER: Duration = Duration::from_secs(60);

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

/// How many calls opened a file with this name.
struct Opens {
    watched: Arc<Watched>,
    of: Arc<Mutex<Vec<PathBuf>>>,
}

impl Opens {
    fn over(backend: Arc<dyn Backend>) -> Opens {
        let of = Arc::new(Mutex::new(Vec::new()));
        let opened = of.clone();
        let watched = Watched::new(backend, move |moment, call, path| {
            if (moment, call) == (Moment::Before, Call::Open) {
                opened.lock().expect("one").push(path.to_path_buf());
            }
        });
        Opens { watched: Arc::new(watched), of }
    }

    fn forget(&self) {
        self.of.lock().expect("one").clear();
    }

    fn ending(&self, name: &str) -> usize {
        self.of.lock().expect("one").iter().filter(|path| path.ends_with(name)).count()
    }
}

#[test]
fn con_04_a_sealed_segments_index_is_opened_once_whoever_comes_first_and_whatever_becomes_of_it() {
    places::with(&["memory", "std", "std+direct", "uring", "uring+direct"], |spec, backend, dir| {
        let opens = Opens::over(backend);
        let options = || {
            let config = config(&[
                ("index.interval.bytes", "100"),
                ("file.delete.delay.ms", "0"),
                ("retention.ms", "-1"),
            ]);
            LogDirOptions { config, ..LogDirOptions::new(opens.watched.clone()) }
        };
        let partition = TopicPartition::new("t", 0);
        for round in 0..9 {
            let above = dir.join(round.to_string());
            let data = LogDir::open(&above, options()).expect(spec);
            let log = data.get_or_create(&partition, None).expect(spec);
            for n in 0..20 {
                if n == 10 {
                    log.roll(None).expect(spec);
                }
                lead(&log, 1, 10 + n, 300);
            }
            drop(log);
            assert!(data.shutdown().expect(spec).clean, "{spec}");
            let data = LogDir::open(&above, options()).expect(spec);
            let log = data.get(&partition).expect(spec).expect("there");
            log.update_high_watermark(log.log_end_offset());
            opens.forget();
            let start = Barrier::new(4);
            thread::scope(|scope| {
                for reader in 0..2 {
                    let (log, start) = (&log, &start);
                    scope.spawn(move || {
                        start.wait();
                        let looked_up = |offset: i64| -> kseg_log::Result<()> {
                            let fetch = log.read(Offset::new(offset), 1, Isolation::LogEnd, true)?;
                            assert_eq!(fetch.offset.get(), offset, "{spec}: a wrong position");
                            let time = TimestampQuery::At(Timestamp::new(10 + offset));
                            match log.offset_for_timestamp(time)? {
                                // Where the segment has gone meanwhile, it is the first that is left.
                                Some(found) => {
                                    assert!([offset, 10].contains(&found.offset.get()), "{spec}: {found:?}");
                                }
                                // One segment is searched, and all of it may lie below the log start by now.
                                None => assert_eq!(log.log_start_offset().get(), 10, "{spec}"),
                            }
                            Ok(())
                        };
                        for offset in [7, 3 + reader, 9] {
                            if let Err(error) = looked_up(offset) {
                                let name = error.kafka_name();
                                let clean = ["OffsetOutOfRangeException", "KafkaStorageException"];
                                assert!(clean.contains(&name), "{spec}, round {round}: {name}: {error}");
                            }
                        }
                    });
                }
                scope.spawn(|| {
                    start.wait();
                    // Renames the partition's folder and closes the log.
                    if round % 3 == 0 {
                        assert!(data.delete(&partition).expect(spec));
                    }
                });
                scope.spawn(|| {
                    start.wait();
                    if round % 3 == 1 {
                        log.increment_log_start_offset(Offset::new(10)).expect(spec);
                        assert_eq!(log.delete_old_segments().expect(spec).deleted, 1, "{spec}");
                    }
                });
            });
            for kind in ["index", "timeindex"] {
                let opened = opens.ending(&name(0, kind));
                assert!(opened <= 1, "{spec}, round {round}: the {kind} was opened {opened} times");
                assert!(opened == 1 || round % 3 != 2, "{spec}: nobody has looked");
            }
            assert_eq!(data.offline(), None, "{spec}");
            if round % 3 != 0 {
                assert_eq!(lead(&log, 1, 99, 300).first_offset, Some(Offset::new(20)), "{spec}");
                assert_eq!(log.read(Offset::new(20), 1, Isolation::LogEnd, true).expect(spec).len(), 300);
            }
            drop(log);
            data.shutdown().expect(spec);
        }
    });
}

#[test]
fn con_12_appends_rolls_checkpoints_and_retention_do_not_wait_for_each_other_in_a_circle() {
    // Ten seconds in the nightly run, which sets `KSEG_LIVES`.
    let long = std::env::var_os("KSEG_LIVES").is_some();
    let within = Duration::from_millis(if long { 10_000 } else { 400 });
    places::with(&["memory", "std", "std+direct", "uring", "uring+direct"], |spec, backend, dir| {
        let config = config(&[
            ("internal.segment.bytes", "20000"),
            ("index.interval.bytes", "500"),
            ("retention.bytes", "60000"),
            ("retention.ms", "-1"),
            ("file.delete.delay.ms", "1"),
        ]);
        let options = LogDirOptions {
            config,
            scheduler: ThreadScheduler::start().expect("a thread"),
            ..LogDirOptions::new(backend)
        };
        let (path, spec) = (dir.join("data"), spec.to_owned());
        let (done, ended) = mpsc::channel();
        let stress = thread::spawn(move || {
            let data = LogDir::open(&path, options).expect(&spec);
            let log = data.get_or_create(&TopicPartition::new("t", 0), None).expect(&spec);
            let until = Instant::now() + within;
            let tally = [const { AtomicU64::new(0) }; 8];
            thread::scope(|scope| {
                let run = |which: usize, work: &'static (dyn Fn(&LogDir, &Log) + Sync)| {
                    let (data, log, tally) = (&data, &log, &tally);
                    scope.spawn(move || {
                        while Instant::now() < until {
                            work(data, log);
                            tally[which].fetch_add(1, Ordering::Relaxed);
                        }
                    });
                };
                run(0, &|_, log| {
                    lead(log, 1, 1, 500);
                });
                // The only one that moves the high watermark, so that it never goes back.
                run(1, &|_, log| {
                    let last = lead(log, 1, 1, 500).last_offset.expect("one");
                    log.update_high_watermark(last.next());
                });
                run(2, &|_, log| {
                    log.roll(None).expect("a roll");
                });
                run(3, &|data, _| data.checkpoint().expect("a checkpoint"));
                run(4, &|_, log| {
                    let start = log.log_start_offset().get() + 1;
                    log.increment_log_start_offset(Offset::new(start).min(log.high_watermark()))
                        .expect("moved");
                    log.delete_old_segments().expect("retention");
                });
                run(5, &|_, log| log.flush(false).expect("a flush"));
                run(6, &|_, log| {
                    let version = kseg_log::TransactionVersion::V0;
                    let (_, handle) = log
                        .append_as_leader_durable(
                            batch(1, 1, 300),
                            LeaderEpoch::new(0),
                            Origin::Client,
                            version,
                        )
                        .expect("an append");
                    handle.wait().expect("durable");
                });
                run(7, &|_, log| {
                    let start = log.log_start_offset();
                    match log.read(start, 1 << 16, Isolation::HighWatermark, true) {
                        Ok(fetch) => drop(fetch.region.map(|region| region.to_bytes().expect("bytes"))),
                        Err(error) => assert_eq!(error.kafka_name(), "OffsetOutOfRangeException", "{error}"),
                    }
                    log.offset_for_timestamp(TimestampQuery::Max).expect("a time");
                });
            });
            let tally = tally.map(AtomicU64::into_inner);
            assert!(tally.iter().all(|count| *count > 0), "{spec}: somebody did nothing: {tally:?}");
            assert_eq!(data.offline(), None, "{spec}");
            drop(log);
            assert!(data.shutdown().expect(&spec).clean, "{spec}");
            done.send(()).expect("somebody waits");
        });
        if ended.recv_timeout(within + NEVER) == Err(mpsc::RecvTimeoutError::Timeout) {
            panic!("threads wait for each other");
        }
        stress.join().expect("no panic");
    });
}
