//! Closing, once and again, and what is refused afterwards.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use kseg_format::{LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Call, Fault, Faulty, Moment, Watched};
use kseg_log::{
    Error, Isolation, LoadOptions, Log, LogDir, LogDirOptions, LogManager, Scheduler, Task, TopicPartition,
};

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

#[test]
fn a_directory_that_is_shared_can_be_shut_down_and_takes_no_call_after_it() {
    let bench = Bench::new(&[]);
    let path = Path::new("/data");
    let dir = Arc::new(LogDir::open(path, LogDirOptions::new(bench.backend.clone())).expect("open"));
    let at = TopicPartition::new("t", 0);
    let log = dir.get_or_create(&at, None).expect("a log");
    lead(&log, 2, 1, 100);
    assert!(dir.shutdown().expect("stopped").clean);
    // The handle and a log are still there, and keep nobody out.
    let next = LogDir::open(path, LogDirOptions::new(bench.backend.clone())).expect("open");
    assert!(next.was_clean());
    let again = dir.shutdown().expect("a second stop does nothing");
    assert_eq!((again.clean, again.failed.len()), (true, 0));
    let before = files(&bench);
    let refused = |what: &str, result: kseg_log::Result<()>| {
        let error = result.expect_err(what);
        assert!(matches!(error, Error::ShutDown { .. }), "{what}: {error}");
        assert_eq!(error.to_string(), "/data: the data directory has been shut down: open it again");
        assert_eq!(error.kafka_name(), "KafkaStorageException");
    };
    refused("get", dir.get(&at).map(drop));
    refused("get or create", dir.get_or_create(&TopicPartition::new("u", 0), None).map(drop));
    refused("load all", dir.load_all(LoadOptions::default()).map(drop));
    refused("checkpoint", dir.checkpoint());
    refused("truncate", dir.truncate_to(&at, Offset::ZERO).map(drop));
    refused("truncate fully", dir.truncate_fully_and_start_at(&at, Offset::ZERO, None));
    refused("delete", dir.delete(&at).map(drop));
    refused("set aside", dir.set_aside(&at).map(drop));
    refused("create", dir.create_topic("u", 1, []).map(drop));
    refused("alter", dir.alter_topic("t", [("retention.ms", "5")], []).map(drop));
    refused("add", dir.add_partitions("t", 5).map(drop));
    refused("delete topic", dir.delete_topic("t"));
    refused("topics", dir.topics().map(drop));
    refused("configuration", dir.config_of("t").map(drop));
    refused("partitions", dir.partitions().map(drop));
    refused("has", dir.has(&at).map(drop));
    refused("id", dir.topic_id(&at).map(drop));
    refused("properties", dir.meta_properties().map(drop));
    assert_eq!(files(&bench), before);
    let append = log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client);
    assert!(matches!(append, Err(Error::Closed { .. })));
}

fn files(bench: &Bench) -> Vec<String> {
    let entries = bench.backend.names().list(Path::new("/data")).expect("list");
    entries.into_iter().map(|e| e.name.to_string_lossy().into_owned()).collect()
}

/// With thousands of logs the syncs of one thread take as long as they do one after the other.
#[test]
fn logs_are_closed_on_as_many_threads_as_asked_and_the_marker_is_written_last() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let first = Arc::new((Mutex::new(HashSet::new()), Condvar::new()));
    let (notes, closers) = (seen.clone(), first.clone());
    let memory = kseg_io_backends::open("memory").expect("memory");
    let backend = Watched::new(memory, move |moment, call, path| {
        notes.lock().expect("notes").push(path.to_path_buf());
        if (moment, call) != (Moment::Before, Call::Flush) || !path.ends_with("00000000000000000000.log") {
            return;
        }
        // The first waits for another thread to come, which it does while one log is not closed yet, or not at all.
        let (first, came) = &*closers;
        let mut first = first.lock().expect("first");
        let is_first = first.is_empty();
        first.insert(thread::current().id());
        came.notify_all();
        if is_first {
            let alone = |threads: &mut HashSet<_>| threads.len() < 2;
            drop(came.wait_timeout_while(first, Duration::from_secs(30), alone).expect("first"));
        }
    });
    let bench = Bench::on(Arc::new(backend), &[]);
    let options = LogDirOptions { shutdown_threads: 2, ..LogDirOptions::new(bench.backend.clone()) };
    let dir = LogDir::open(Path::new("/data"), options).expect("open");
    for n in 0..5 {
        let log = dir.get_or_create(&TopicPartition::new("t", n), None).expect("a log");
        lead(&log, 2, 1, 100);
    }
    seen.lock().expect("notes").clear();
    assert!(dir.shutdown().expect("stopped").clean);
    assert_eq!(first.0.lock().expect("first").len(), 2);
    let seen = seen.lock().expect("notes");
    let last_of = |part: &str| seen.iter().rposition(|path| path.to_string_lossy().contains(part));
    let first_of = |part: &str| seen.iter().position(|path| path.to_string_lossy().contains(part));
    assert!(last_of("/t-") < first_of("-checkpoint") && last_of("-checkpoint") < first_of("cleanshutdown"));
    assert!(last_of("/t-").is_some() && last_of("cleanshutdown") < first_of(".lock"), "{seen:?}");
}

/// Or the marker would speak for a log that is open.
#[test]
fn an_orderly_stop_waits_for_a_log_that_is_being_opened() {
    let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (at_begin, at_end) = (begun.clone(), go_on.clone());
    let memory = kseg_io_backends::open("memory").expect("memory");
    let backend = Watched::new(memory, move |moment, call, path| {
        if (moment, call) == (Moment::Before, Call::Open) && path.ends_with("t-0/00000000000000000000.log") {
            at_begin.wait();
            at_end.wait();
        }
    });
    let bench = Bench::on(Arc::new(backend), &[]);
    let path = Path::new("/data");
    let dir = LogDir::open(path, LogDirOptions::new(bench.backend.clone())).expect("open");
    thread::scope(|threads| {
        let opener = threads.spawn(|| dir.get_or_create(&TopicPartition::new("t", 0), None));
        begun.wait();
        let stopper = threads.spawn(|| dir.shutdown());
        // Time enough for one that does not wait.
        for _ in 0..100 {
            if !stopper.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        go_on.wait();
        let log = opener.join().expect("opener").expect("a log");
        assert!(stopper.join().expect("stopper").expect("stopped").clean);
        let append = log.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client);
        assert!(matches!(append, Err(Error::Closed { .. })), "{append:?}");
    });
    drop(dir);
}

#[test]
fn directories_that_are_shared_can_be_shut_down() {
    let bench = Bench::new(&[]);
    let paths = [Path::new("/a").to_path_buf(), Path::new("/b").to_path_buf()];
    let options = LogDirOptions::new(bench.backend.clone());
    let dirs = Arc::new(LogManager::open(&paths, &options).expect("open"));
    dirs.create_topic("t", 3, []).expect("a topic");
    for _ in 0..2 {
        let reports = dirs.shutdown();
        assert_eq!(reports.len(), 2);
        assert!(reports.into_iter().all(|(_, report)| report.expect("stopped").clean));
    }
    let refused = dirs.get_or_create(&TopicPartition::new("t", 0));
    assert!(matches!(refused, Err(Error::ShutDown { .. })), "{refused:?}");
    assert!(LogManager::open(&paths, &options).is_ok());
}

/// A backend in memory on which the first `call` to a file of this name, below `dir`, waits from the first barrier to the second.
fn held(dir: &'static str, call: Call, name: &'static str) -> (Arc<Watched>, Arc<Barrier>, Arc<Barrier>) {
    let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (at_begin, at_end) = (begun.clone(), go_on.clone());
    let armed = AtomicBool::new(true);
    let memory = kseg_io_backends::open("memory").expect("memory");
    let backend = Watched::new(memory, move |moment, made, path| {
        let this = (moment, made) == (Moment::Before, call) && path.starts_with(dir) && path.ends_with(name);
        if this && armed.swap(false, Ordering::Relaxed) {
            at_begin.wait();
            at_end.wait();
        }
    });
    (Arc::new(backend), begun, go_on)
}

/// Does `call`; once it has come to where it is held, `stop` is begun, and once that refuses what comes to `dirs`, `call` goes on.
fn beside_a_stop<T: Send, S: Send>(
    (begun, go_on): (&Barrier, &Barrier),
    dirs: &[&LogDir],
    call: impl FnOnce() -> T + Send,
    stop: impl FnOnce() -> S + Send,
) -> (T, S) {
    thread::scope(|threads| {
        let caller = threads.spawn(call);
        begun.wait();
        let stopper = threads.spawn(stop);
        for dir in dirs {
            while !matches!(dir.partitions(), Err(Error::ShutDown { .. })) {
                thread::yield_now();
            }
        }
        go_on.wait();
        (caller.join().expect("caller"), stopper.join().expect("stopper"))
    })
}

#[test]
fn a_topic_that_is_being_made_or_changed_is_finished_before_an_orderly_stop() {
    const TOPICS: &str = "kseg-topics.json";
    let (backend, begun, go_on) = held("/data", Call::Replace, TOPICS);
    let bench = Bench::on(backend, &[]);
    let dir = LogDir::open(Path::new("/data"), LogDirOptions::new(bench.backend.clone())).expect("open");
    let (made, stopped) =
        beside_a_stop((&begun, &go_on), &[&dir], || dir.create_topic("t", 2, []), || dir.shutdown());
    made.expect("made");
    // Its partitions were not opened, and need not be: they are as they were made.
    assert!(stopped.expect("stopped").clean);
    assert!(files(&bench).iter().any(|name| name == "t-1"));

    let (backend, begun, go_on) = held("/a", Call::Replace, TOPICS);
    let bench = Bench::on(backend, &[]);
    let paths = [Path::new("/a").to_path_buf(), Path::new("/b").to_path_buf()];
    let options = LogDirOptions::new(bench.backend.clone());
    let manager = LogManager::open(&paths, &options).expect("open");
    let dirs: Vec<&LogDir> = manager.live().collect();
    let make = || manager.create_topic("t", 3, []);
    let (made, stopped) = beside_a_stop((&begun, &go_on), &dirs, make, || manager.shutdown());
    made.expect("made");
    assert!(stopped.into_iter().all(|(_, report)| report.expect("stopped").clean));
    let again = LogManager::open(&paths, &options).expect("open");
    let topics: Vec<_> = again.live().map(|dir| dir.topics().expect("topics")).collect();
    assert!(topics[0] == topics[1] && topics[0]["t"].partitions == 3, "{topics:?}");
    assert_eq!(again.partitions().expect("partitions").len(), 3);
}

#[test]
fn a_truncation_that_was_let_in_writes_its_checkpoint_before_an_orderly_stop() {
    let (backend, begun, go_on) = held("/data/t-0", Call::SetLen, "00000000000000000000.log");
    let bench = Bench::on(backend, &[]);
    let at = TopicPartition::new("t", 0);
    let dir = LogDir::open(Path::new("/data"), LogDirOptions::new(bench.backend.clone())).expect("open");
    let log = dir.get_or_create(&at, None).expect("a log");
    lead(&log, 2, 1, 100);
    lead(&log, 2, 1, 100);
    let truncate = || dir.truncate_to(&at, Offset::new(2));
    let (truncated, stopped) = beside_a_stop((&begun, &go_on), &[&dir], truncate, || dir.shutdown());
    assert!(truncated.expect("truncated") && stopped.expect("stopped").clean);
}

#[test]
fn all_logs_of_a_load_that_was_let_in_are_opened_before_an_orderly_stop() {
    for threads in [1, 3] {
        let (backend, begun, go_on) = held("/data/t-0", Call::Open, "00000000000000000000.log");
        let bench = Bench::on(backend, &[]);
        let dir = LogDir::open(Path::new("/data"), LogDirOptions::new(bench.backend.clone())).expect("open");
        dir.create_topic("t", 7, []).expect("a topic");
        let options = LoadOptions { threads, ..LoadOptions::default() };
        let (loaded, stopped) =
            beside_a_stop((&begun, &go_on), &[&dir], || dir.load_all(options), || dir.shutdown());
        let loaded = loaded.expect("loaded");
        assert_eq!((loaded.opened, loaded.failed.len()), (7, 0), "{threads}");
        assert!(stopped.expect("stopped").clean);
    }
}
