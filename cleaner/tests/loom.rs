//! Models of who has a partition: rounds, pauses, truncations, configuration, threads that stop. Run with
//! `cargo xtask loom kseg-cleaner`.
//!
//! A round is driven by hand, step by step: it begins, looks whether it is to go on, and ends. That nobody waits for ever is for
//! loom to find: a model in which nobody can run fails. The swap beside readers and appends is modelled in `kseg-log`.
#![cfg(loom)]

use std::path::Path;
use std::sync::Arc;

use kseg_cleaner::{Manager, ManagerOptions, ModelThreads, PartitionState};
use kseg_format::Offset;
use kseg_io_backends::Backend;
use kseg_log::{Compaction, Log, LogConfig, ManualClock, ManualScheduler, OpenOptions, TopicPartition};
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;

fn partition() -> TopicPartition {
    TopicPartition::new("t", 0)
}

/// A manager with one log.
fn manager() -> Arc<Manager> {
    let backend: Arc<dyn Backend> = kseg_io_backends::open("memory").expect("memory is always there");
    let clock = Arc::new(ManualClock::new(1));
    let options = OpenOptions {
        config: LogConfig::from_pairs([("cleanup.policy", "compact"), ("segment.index.bytes", "48")])
            .expect("valid"),
        clock: clock.clone(),
        scheduler: ManualScheduler::new(clock.clone()),
        ..OpenOptions::new(backend.clone())
    };
    let log = Arc::new(Log::open(Path::new("/d/t-0"), options).expect("a log"));
    let manager = Manager::new(ManagerOptions::default(), backend, clock).expect("a manager");
    manager.add(Path::new("/d"), log).expect("a checkpoint");
    manager
}

/// How many rounds are under way on the log.
type Running = Arc<AtomicUsize>;

/// A round of some reads, if it can begin; nobody else has one meanwhile. Returns whether it came to its end.
fn round(manager: &Manager, running: &Running, end: i64) -> bool {
    let p = partition();
    if !manager.model_begin(&p) {
        return false;
    }
    assert_eq!(running.fetch_add(1, Relaxed), 0, "two rounds on one log");
    let goes_on = manager.model_goes_on(&p);
    assert_eq!(running.fetch_sub(1, Relaxed), 1);
    manager.model_done(&p, goes_on.then(|| Offset::new(end))).expect("it was begun")
}

/// A thread that tries one [`round`].
fn begun(manager: &Arc<Manager>, running: &Running, end: i64) -> thread::JoinHandle<bool> {
    let (manager, running) = (manager.clone(), running.clone());
    thread::spawn(move || round(&manager, &running, end))
}

fn model(body: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = runs.clone();
    loom::model(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        body();
    });
    assert!(runs.load(std::sync::atomic::Ordering::Relaxed) > 1, "nothing was explored");
}

#[test]
fn there_are_never_two_rounds_on_one_log() {
    model(|| {
        let (manager, running) = (manager(), Running::default());
        let other = begun(&manager, &running, 1);
        let mine = round(&manager, &running, 1);
        let theirs = other.join().expect("no panic");
        assert!(mine || theirs);
        assert_eq!(manager.state(&partition()), None);
    });
}

#[test]
fn a_pause_always_comes_and_no_round_runs_in_it() {
    model(|| {
        let (manager, running) = (manager(), Running::default());
        let cleaner = thread::spawn({
            let (manager, running) = (manager.clone(), running.clone());
            move || {
                round(&manager, &running, 1);
                round(&manager, &running, 1);
            }
        });
        manager.abort_and_pause(&partition());
        assert_eq!(running.load(Relaxed), 0, "a round in a pause");
        assert!(!manager.model_begin(&partition()));
        Manager::resume(&manager, &partition()).expect("it is paused");
        cleaner.join().expect("no panic");
        assert_eq!(manager.state(&partition()), None);
    });
}

#[test]
fn two_who_pause_beside_a_round_both_come_through() {
    model(|| {
        let (manager, running) = (manager(), Running::default());
        let cleaner = begun(&manager, &running, 1);
        let other = thread::spawn({
            let manager = manager.clone();
            move || {
                manager.abort_and_pause(&partition());
                assert!(matches!(manager.state(&partition()), Some(PartitionState::Paused(_))));
                Manager::resume(&manager, &partition()).expect("it is paused");
            }
        });
        manager.abort_and_pause(&partition());
        assert!(matches!(manager.state(&partition()), Some(PartitionState::Paused(_))));
        Manager::resume(&manager, &partition()).expect("it is paused");
        cleaner.join().expect("no panic");
        other.join().expect("no panic");
        assert_eq!(manager.state(&partition()), None);
    });
}

/// Whatever a round that ends beside a truncation says: what was cut does not count as cleaned.
#[test]
fn a_checkpoint_is_never_above_what_a_truncation_left() {
    model(|| {
        let (manager, running) = (manager(), Running::default());
        let cleaner = begun(&manager, &running, 8);
        let compaction: &dyn Compaction = &*manager;
        compaction.pause(&partition());
        compaction.cut(&partition(), Offset::new(4)).expect("written");
        let before = manager.checkpoint(&partition()).expect("read");
        assert!(before.is_none_or(|offset| offset <= Offset::new(4)), "{before:?}");
        compaction.resume(&partition()).expect("it is paused");
        let late = cleaner.join().expect("no panic");
        let after = manager.checkpoint(&partition()).expect("read");
        // One that began after the truncation cleaned what there was then.
        assert!(late || after.is_none_or(|offset| offset <= Offset::new(4)), "{after:?}");
    });
}

#[test]
fn the_end_of_compaction_ends_a_round_and_waits_for_no_other() {
    model(|| {
        let (manager, running) = (manager(), Running::default());
        let cleaner = begun(&manager, &running, 1);
        let compaction: &dyn Compaction = &*manager;
        compaction.configured(&partition(), true).expect("nothing is in the way");
        cleaner.join().expect("no panic");
        assert_eq!((manager.state(&partition()), running.load(Relaxed)), (None, 0));
    });
}

#[test]
fn a_partition_that_leaves_is_cleaned_no_more() {
    model(|| {
        let (manager, running) = (manager(), Running::default());
        let cleaner = begun(&manager, &running, 8);
        let compaction: &dyn Compaction = &*manager;
        compaction.leaves(&partition(), Path::new("/d")).expect("written");
        cleaner.join().expect("no panic");
        assert_eq!(manager.partitions(), []);
        assert_eq!(manager.checkpoint(&partition()).expect("read"), None);
        assert_eq!(manager.state(&partition()), None);
    });
}

#[test]
fn a_stop_wakes_whoever_backs_off() {
    model(|| {
        let (manager, threads) = (manager(), Arc::new(ModelThreads::new()));
        let waiting = thread::spawn({
            let (manager, threads) = (manager.clone(), threads.clone());
            move || manager.model_back_off(&threads)
        });
        manager.model_stop(&threads);
        waiting.join().expect("no panic");
    });
}
