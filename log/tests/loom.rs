//! Models of a log with readers beside its writer. Run with `cargo xtask loom kseg-log`.
#![cfg(loom)]

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kseg_format::{BatchOptions, Batches, LeaderEpoch, Offset, RecordBatchBuilder, Timestamp};
use kseg_log::{Isolation, Log, LogConfig, ManualClock, ManualScheduler, OpenOptions};
use loom::thread;

fn log() -> Arc<Log> {
    let clock = Arc::new(ManualClock::new(1));
    let options = OpenOptions {
        config: LogConfig::from_pairs([("segment.index.bytes", "48"), ("index.interval.bytes", "0")])
            .expect("valid"),
        clock: clock.clone(),
        scheduler: ManualScheduler::new(clock),
        ..OpenOptions::new(kseg_io_backends::open("memory").expect("memory is always there"))
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
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = runs.clone();
    loom::model(move || {
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
