//! Closing, once and again, and what is refused afterwards.

use std::path::Path;
use std::sync::{Arc, Mutex};

use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Call, Fault, Faulty};
use kseg_log::{Isolation, Log, LogDir, LogDirOptions, Scheduler, Task, TopicPartition};

use crate::support::*;

#[test]
fn log_edge_94_and_131_and_251_what_is_left_of_a_closed_log() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 2, 1, 100);
    log.close().expect("closed");
    log.close().expect("a second close does nothing");
    let append =
        |log: &kseg_log::Log| log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client);
    assert_eq!(kafka_name(append(&log)), "KafkaStorageException");
    // The directory is as good as before.
    let log = bench.open();
    assert_eq!(lead(&log, 1, 1, 100).first_offset, Some(Offset::new(2)));
    log.abandon();
    assert_eq!(kafka_name(append(&log)), "KafkaStorageException");
    assert_eq!(kafka_name(log.roll(None)), "KafkaStorageException");
    assert_eq!(kafka_name(log.close()), "KafkaStorageException", "it was not closed in an orderly way");
    assert!(log.read(Offset::ZERO, 1, Isolation::LogEnd, true).is_err());
}

#[test]
fn an_abandoned_log_leaves_its_directory_without_a_marker() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(std::path::Path::new("/data"), LogDirOptions::new(bench.backend.clone()));
    let dir = dir.expect("open");
    let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
    lead(&log, 2, 1, 100);
    log.flush(false).expect("flushed");
    log.abandon();
    let report = dir.shutdown().expect("stopped");
    assert_eq!((report.clean, report.failed.len()), (false, 1));
}

#[test]
fn log_edge_252_one_index_that_does_not_close_costs_the_marker_and_no_other_file() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[("internal.segment.bytes", "1000")]);
    let dir = LogDir::open(
        std::path::Path::new("/data"),
        LogDirOptions { config: bench.config.clone(), ..LogDirOptions::new(bench.backend.clone()) },
    );
    let dir = dir.expect("open");
    let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
    for _ in 0..15 {
        lead(&log, 1, 1, 100);
    }
    log.flush(true).expect("flushed");
    faulty.inject(Fault::on(Call::SetLen).role("index"));
    let report = dir.shutdown().expect("stopped");
    assert!(!report.clean && faulty.fired() == 1);
    assert!(report.failed[0].1.to_string().contains(".index"), "{}", report.failed[0].1);
    // The others are: the time index is cut to its entries.
    assert!(bench.size_of(&name(10, "timeindex")).is_some_and(|len| len < 1000));
    let dir = LogDir::open(std::path::Path::new("/data"), LogDirOptions::new(bench.backend.clone()));
    assert!(!dir.expect("nobody holds the lock").was_clean());
}

#[test]
fn a_log_that_does_not_flush_lets_go_of_its_directory() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let open = || LogDir::open(std::path::Path::new("/data"), LogDirOptions::new(bench.backend.clone()));
    let dir = open().expect("open");
    let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
    lead(&log, 2, 1, 100);
    // A full disk fences the log, and takes no directory out of service.
    faulty.inject(Fault::on(Call::Flush).role("log").error(28));
    let report = dir.shutdown().expect("stopped");
    assert_eq!((report.clean, report.failed.len()), (false, 1));
    let dir = open().expect("nobody holds the lock, though somebody holds the log");
    assert!(!dir.was_clean());
    assert_eq!(read(&dir.get(log.partition()).expect("opened").expect("a log"), 0).1, 100);
}

/// Keeps all work until it is asked for.
#[derive(Default)]
struct Queue(Mutex<Vec<Task>>);

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}

impl Scheduler for Queue {
    fn schedule(&self, _name: &'static str, _delay_ms: u64, task: Task) {
        self.0.lock().expect("one").push(task);
    }
}

#[test]
fn a_log_that_has_gone_changes_nothing_in_the_folder_of_the_next() {
    let next = |dir: &LogDir, partition: &TopicPartition| {
        let log = dir.get_or_create(partition, None).expect("a log");
        // Files of the names that the old one has put off removing, and an epoch file of its own.
        log.truncate_fully_and_start_at(Offset::ZERO, None).expect("emptied");
        log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(7), Origin::Client).expect("an append");
        log
    };
    for deleted in [true, false] {
        let bench = Bench::new(&[("internal.segment.bytes", "400")]);
        let queue = Arc::new(Queue::default());
        let with = |scheduler: Arc<dyn Scheduler>| LogDirOptions { scheduler, ..options(&bench) };
        let dir = LogDir::open(Path::new("/data"), with(queue.clone())).expect("open");
        let partition = TopicPartition::new("t", 0);
        let old = dir.get_or_create(&partition, None).expect("a log");
        for epoch in 0..4 {
            for _ in 0..3 {
                let append = old.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(epoch), Origin::Client);
                append.expect("an append");
            }
        }
        old.update_high_watermark(old.log_end_offset());
        old.truncate_to(Offset::new(9)).expect("truncated");
        old.increment_log_start_offset(Offset::new(5)).expect("moved");
        assert_eq!(old.delete_old_segments().expect("retention").deleted, 1);
        let put_off = std::mem::take(&mut *queue.0.lock().expect("one"));
        assert!(put_off.len() > 5, "{}", put_off.len());

        let (_dir, new): (LogDir, Arc<Log>) = if deleted {
            assert!(dir.delete(&partition).expect("deleted"));
            let new = next(&dir, &partition);
            (dir, new)
        } else {
            dir.shutdown().expect("stopped");
            let dir = LogDir::open(Path::new("/data"), with(Arc::new(Queue::default()))).expect("open");
            let new = next(&dir, &partition);
            (dir, new)
        };
        let look = || (bench.files(), contents(&bench, "leader-epoch-checkpoint"));
        let before = look();
        put_off.into_iter().for_each(|task| task());
        assert_eq!(look(), before, "work that was put off, deleted: {deleted}");
        assert_eq!(
            kafka_name(old.assign_epoch(LeaderEpoch::new(9), Offset::new(5))),
            "KafkaStorageException"
        );
        assert_eq!(kafka_name(old.take_producer_snapshot()), "KafkaStorageException");
        assert_eq!(look(), before, "calls, deleted: {deleted}");
        assert_eq!(epochs(&new), [(7, 0)]);
    }
}
