//! Models of a log with readers beside its writer. Run with `cargo xtask loom kseg-log`.
#![cfg(loom)]

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use bytes::{Bytes, BytesMut};
use kseg_format::{BatchOptions, Batches, LeaderEpoch, Offset, RecordBatchBuilder, Timestamp};
use kseg_io_backends::{Backend, Call, Fault, Faulty, Moment, Watched};
use kseg_log::{
    Durability, Error, Isolation, Log, LogConfig, LogDir, LogDirOptions, ManualClock, ManualScheduler,
    OpenOptions, TopicPartition,
};
use loom::thread;

fn log() -> Arc<Log> {
    log_on(memory())
}

fn memory() -> Arc<dyn Backend> {
    kseg_io_backends::open("memory").expect("memory is always there")
}

fn log_on(backend: Arc<dyn Backend>) -> Arc<Log> {
    let clock = Arc::new(ManualClock::new(1));
    let options = OpenOptions {
        config: LogConfig::from_pairs([("segment.index.bytes", "48"), ("index.interval.bytes", "0")])
            .expect("valid"),
        clock: clock.clone(),
        scheduler: ManualScheduler::new(clock),
        ..OpenOptions::new(backend)
    };
    Arc::new(Log::open(Path::new("/t-0"), options).expect("a log"))
}

fn batch(base: i64) -> Bytes {
    let mut builder = RecordBatchBuilder::new(BatchOptions {
        base_offset: Offset::new(base),
        leader_epoch: Some(LeaderEpoch::new(0)),
        ..BatchOptions::default()
    });
    builder.append(Some(Timestamp::new(base)), None, Some(b"v"), &[]).expect("a record");
    let mut bytes = BytesMut::new();
    builder.finish(&mut bytes).expect("a batch");
    bytes.freeze()
}

fn append(log: &Log, base: i64) {
    log.append_as_follower(batch(base), LeaderEpoch::new(0)).expect("an append");
}

fn append_durable(log: &Log, base: i64) -> Durability {
    log.append_as_follower_durable(batch(base), LeaderEpoch::new(0)).expect("an append").1
}

/// Base offsets of the batches of a read.
fn bases(log: &Log, from: i64) -> Vec<i64> {
    let fetch = log.read(Offset::new(from), 1 << 20, Isolation::LogEnd, true).expect("a read");
    let Some(region) = fetch.region else { return Vec::new() };
    let bytes = region.to_bytes().expect("bytes");
    let mut walk = Batches::new(&bytes);
    let bases = walk
        .by_ref()
        .map(|b| {
            b.expect("framing").verify().expect("a checksum").header().base_offset().expect("known").get()
        })
        .collect();
    assert!(walk.rest().is_empty(), "a read ends with a whole batch");
    bases
}

/// Runs `body` in every interleaving and fails if there were too few for anything to have been explored.
///
/// The reader is the spawned thread: of the loads of an atomic, loom remembers only the last one when it looks for a race
/// with a store, so a reader that ran first would be forgotten.
fn model(body: impl Fn() + Send + Sync + 'static) {
    check(&loom::model::Builder::new(), body);
}

fn check(builder: &loom::model::Builder, body: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = runs.clone();
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        body();
    });
    assert!(runs.load(std::sync::atomic::Ordering::Relaxed) > 10, "nothing was explored");
}

#[test]
fn reader_never_sees_past_log_end_offset() {
    model(|| {
        let log = log();
        append(&log, 0);
        let reader = thread::spawn({
            let log = log.clone();
            move || {
                let before = log.log_end_offset().get();
                let seen = bases(&log, 0);
                let after = log.log_end_offset().get();
                assert!((before..=after).contains(&(seen.len() as i64)), "{before} {seen:?} {after}");
                assert_eq!(seen, (0..seen.len() as i64).collect::<Vec<_>>());
            }
        });
        append(&log, 1);
        reader.join().expect("no panic");
        assert_eq!(bases(&log, 0), [0, 1]);
    });
}

#[test]
fn roll_does_not_hide_a_batch() {
    model(|| {
        let log = log();
        append(&log, 0);
        let reader = thread::spawn({
            let log = log.clone();
            move || {
                let end = log.log_end_offset().get();
                assert_eq!(bases(&log, 0).first(), Some(&0), "of {end}");
                if end == 2 {
                    assert_eq!(bases(&log, 1), [1]);
                }
            }
        });
        log.roll(None).expect("a roll");
        append(&log, 1);
        reader.join().expect("no panic");
        assert_eq!((bases(&log, 0), bases(&log, 1)), (vec![0], vec![1]));
    });
}

#[test]
fn high_watermark_is_seen_with_what_lies_below_it() {
    model(|| {
        let log = log();
        let reader = thread::spawn({
            let log = log.clone();
            move || {
                let high_watermark = log.high_watermark().get();
                let fetch = log.read(Offset::ZERO, 1 << 20, Isolation::HighWatermark, true).expect("a read");
                if high_watermark == 1 {
                    assert_eq!(fetch.len(), batch(0).len());
                }
            }
        });
        append(&log, 0);
        log.update_high_watermark(Offset::new(1));
        reader.join().expect("no panic");
    });
}

/// Which writes of `.log` files a sync that began after them has ended for.
#[derive(Default)]
struct Syncs {
    written: AtomicU64,
    covered: AtomicU64,
    synced: AtomicU64,
}

/// A log that counts, and the count. What is counted is no part of the model: the calls tell it in their order.
fn counting() -> (Arc<Log>, Arc<Syncs>) {
    let syncs = Arc::new(Syncs::default());
    let count = syncs.clone();
    let watched = Watched::new(memory(), move |moment, call, path| {
        if path.extension().is_none_or(|role| role != "log") {
            return;
        }
        match (moment, call) {
            (Moment::Done, Call::Write) => drop(count.written.fetch_add(1, Relaxed)),
            (Moment::Before, Call::Flush) => count.covered.store(count.written.load(Relaxed), Relaxed),
            (Moment::Done, Call::Flush) => drop(count.synced.fetch_max(count.covered.load(Relaxed), Relaxed)),
            _ => (),
        }
    });
    (log_on(Arc::new(watched)), syncs)
}

#[test]
fn nothing_is_acknowledged_before_its_sync() {
    model(|| {
        let (log, syncs) = counting();
        let first = append_durable(&log, 0);
        let other = thread::spawn({
            let (log, syncs) = (log.clone(), syncs.clone());
            move || {
                first.wait().expect("durable");
                assert!(syncs.synced.load(Relaxed) >= 1);
                assert!(log.recovery_point().get() >= 1);
            }
        });
        append_durable(&log, 1).wait().expect("durable");
        assert_eq!(syncs.synced.load(Relaxed), 2);
        other.join().expect("no panic");
        assert_eq!(log.recovery_point().get(), 2);
    });
}

/// A waker that a thread can wait for.
#[derive(Default)]
struct Bell {
    rung: loom::sync::Mutex<bool>,
    changed: loom::sync::Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().expect("not poisoned") = true;
        self.changed.notify_all();
    }
}

/// Awaits a handle; one that nobody wakes is a deadlock, which loom finds.
fn block_on(mut handle: Durability) -> kseg_log::Result<()> {
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(answer) = Pin::new(&mut handle).poll(&mut context) {
            return answer;
        }
        let mut rung = bell.rung.lock().expect("not poisoned");
        while !std::mem::take(&mut *rung) {
            rung = bell.changed.wait(rung).expect("not poisoned");
        }
    }
}

#[test]
fn everybody_who_waits_or_awaits_is_woken() {
    model(|| {
        let log = log();
        let (awaited, waited) = (append_durable(&log, 0), append_durable(&log, 1));
        let other = thread::spawn(move || block_on(awaited).expect("durable"));
        waited.wait().expect("durable");
        other.join().expect("no panic");
    });
}

#[test]
fn a_fence_reaches_everybody() {
    model(|| {
        let faulty = Arc::new(Faulty::new(memory()));
        let log = log_on(faulty.clone());
        let handles = [append_durable(&log, 0), append_durable(&log, 1)];
        faulty.inject(Fault::on(Call::Flush).role("log"));
        let [awaited, waited] = handles;
        let other = thread::spawn(move || block_on(awaited).expect_err("it is not durable"));
        waited.wait().expect_err("it is not durable");
        other.join().expect("no panic");
        assert_eq!((faulty.fired(), log.recovery_point().get()), (1, 0));
        assert!(log.flush(false).is_err());
    });
}

#[test]
fn a_truncation_answers_whoever_waits_for_what_it_cuts() {
    model(|| {
        let log = log();
        append(&log, 0);
        let cut = append_durable(&log, 1);
        let other = thread::spawn(move || cut.wait());
        log.truncate_to(Offset::new(1)).expect("cut");
        let again = append_durable(&log, 1);
        // Either answer, but not that of the batch that has taken its place, which is not asked for yet.
        let told = other.join().expect("no panic");
        if told.is_err() {
            again.wait().expect("durable");
            assert_eq!(log.recovery_point().get(), 2);
        }
    });
}

/// A sealed segment of two batches, and an active one of one.
fn sealed() -> Arc<Log> {
    let log = log();
    append(&log, 0);
    append(&log, 1);
    log.roll(None).expect("a roll");
    append(&log, 2);
    log
}

/// Takes the first batch out of the segment that is sealed from the beginning; `false` where it no longer is.
fn swap(log: &Log) -> kseg_log::Result<bool> {
    let (mut old, _) = log.sealed_segments()?;
    old.truncate(1);
    if old.is_empty() {
        return Ok(false);
    }
    let into = log.begin_replacement(Offset::ZERO)?;
    into.append(Offset::new(1), batch(1)).expect("an append");
    log.replace_segments(&old, &[into.finish(None).expect("finished")]).map(|()| true)
}

/// As [`model`], of so many steps that loom takes them for a loop; a thread is interrupted once at most, and of the
/// interleavings no more than so many are tried.
fn long_model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = Some(1);
    (builder.max_permutations, builder.checkpoint_interval) = (Some(3000), 500);
    check(&builder, body);
}

#[test]
fn a_swap_waits_for_no_reader_and_hides_nothing_from_it() {
    long_model(|| {
        let log = sealed();
        let reader = thread::spawn({
            let log = log.clone();
            move || {
                let seen = bases(&log, 0);
                assert!(seen == [0, 1] || seen == [1], "{seen:?}");
            }
        });
        assert!(swap(&log).expect("a swap"));
        reader.join().expect("no panic");
        assert_eq!(bases(&log, 0), [1]);
    });
}

#[test]
fn an_append_beside_a_swap_is_there_with_what_the_swap_left() {
    long_model(|| {
        let log = sealed();
        let writer = thread::spawn({
            let log = log.clone();
            move || {
                append(&log, 3);
                log.roll(None).expect("a roll");
            }
        });
        assert!(swap(&log).expect("a swap"));
        writer.join().expect("no panic");
        assert_eq!((bases(&log, 0), bases(&log, 2)), (vec![1], vec![2, 3]));
        assert_eq!(log.log_end_offset().get(), 4);
    });
}

#[test]
fn an_orderly_stop_closes_the_log_of_whoever_was_let_in() {
    // Of as many steps as `long_model`, of which few are about the same thing.
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    check(&builder, || {
        let clock = Arc::new(ManualClock::new(1));
        let options = LogDirOptions {
            config: LogConfig::from_pairs([("segment.index.bytes", "48")]).expect("valid"),
            clock: clock.clone(),
            scheduler: ManualScheduler::new(clock),
            ..LogDirOptions::new(memory())
        };
        let dir = Arc::new(LogDir::open(Path::new("/data"), options).expect("a directory"));
        let opener = thread::spawn({
            let dir = dir.clone();
            move || dir.get_or_create(&TopicPartition::new("t", 0), None)
        });
        assert!(dir.shutdown().expect("an orderly stop").clean);
        match opener.join().expect("no panic") {
            Ok(log) => {
                let append = log.append_as_follower(batch(0), LeaderEpoch::new(0));
                assert!(matches!(append, Err(Error::Closed { .. })), "{append:?}");
            }
            Err(error) => assert!(matches!(error, Error::ShutDown { .. }), "{error}"),
        }
    });
}

#[test]
fn a_call_that_was_let_in_is_done_when_an_orderly_stop_returns() {
    model(|| {
        let backend = memory();
        let clock = Arc::new(ManualClock::new(1));
        let options = LogDirOptions {
            clock: clock.clone(),
            scheduler: ManualScheduler::new(clock),
            ..LogDirOptions::new(backend.clone())
        };
        let dir = Arc::new(LogDir::open(Path::new("/data"), options).expect("a directory"));
        // Lists what there is, writes the topic's entry and makes its folder, each of which is a call.
        let maker = thread::spawn({
            let dir = dir.clone();
            move || dir.create_topic("t", 1, [])
        });
        assert!(dir.shutdown().expect("an orderly stop").clean);
        let there = |name| backend.names().stat(Path::new(name)).expect("a stat").is_some();
        let found = (there("/data/kseg-topics.json"), there("/data/t-0"));
        match maker.join().expect("no panic") {
            Ok(_) => assert_eq!(found, (true, true)),
            Err(Error::ShutDown { .. }) => assert_eq!(found, (false, false)),
            Err(error) => panic!("{error}"),
        }
    });
}

#[test]
fn a_truncation_beside_a_swap_comes_before_it_or_after() {
    long_model(|| {
        let log = sealed();
        let cutter = thread::spawn({
            let log = log.clone();
            move || assert!(log.truncate_to(Offset::new(1)).expect("a truncation"))
        });
        let swapped = swap(&log);
        cutter.join().expect("no panic");
        // Before: the swap is refused. After: it took the first batch out, and the truncation the rest.
        let left = bases(&log, 0);
        match swapped {
            Ok(true) => assert!(left.is_empty(), "{left:?}"),
            Ok(false) => assert_eq!(left, [0]),
            Err(error) => {
                assert!(matches!(error, kseg_log::Error::Replaced { .. }), "{error}");
                assert_eq!(left, [0]);
            }
        }
        assert_eq!(log.log_end_offset().get(), 1);
    });
}
