//! Copies of partitions that move between data directories: which are gone on with, and what a stop in the middle leaves.

use std::path::Path;
use std::sync::Arc;

use kseg_format::{Batches, LeaderEpoch, Offset, Origin};
use kseg_io_backends::{Call, Fault, Faulty};
use kseg_log::{Error, Isolation, LoadOptions, Log, LogManager, TopicPartition};

use crate::support::*;

fn p(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

/// The folders of a directory that are of a partition of `t`.
fn folders(bench: &Bench, dir: &str) -> Vec<String> {
    let entries = bench.backend.names().list(Path::new(dir)).expect("list");
    let names = entries.into_iter().map(|e| e.name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("t-")).collect()
}

fn copies(bench: &Bench) -> usize {
    let dirs = ["/disk0", "/disk1", "/disk2"];
    let there = dirs.iter().filter(|dir| bench.backend.names().stat(Path::new(dir)).expect("stat").is_some());
    there.flat_map(|dir| folders(bench, dir)).filter(|name| name.ends_with("-future")).count()
}

fn opened(manager: &LogManager) -> Arc<Log> {
    manager.get(&p(0)).expect("open").expect("a log")
}

/// Appends `count` batches of one record, which has this timestamp.
fn fill(log: &Log, count: usize, time: i64) {
    for _ in 0..count {
        lead(log, 1, time, 100);
    }
}

/// (offset, timestamp) of every batch.
fn content(log: &Log) -> Vec<(i64, i64)> {
    let mut all = Vec::new();
    let mut next = log.log_start_offset();
    while let Some(region) = log.read(next, 1 << 20, Isolation::LogEnd, true).expect("a read").region {
        for batch in Batches::new(&region.to_bytes().expect("bytes")) {
            let header = *batch.expect("framing").header();
            all.push((header.last_offset().get(), header.max_timestamp().map_or(-1, |t| t.get())));
            next = header.next_offset();
        }
    }
    all
}

fn expected(parts: &[(std::ops::Range<i64>, i64)]) -> Vec<(i64, i64)> {
    parts.iter().flat_map(|(offsets, time)| offsets.clone().map(|offset| (offset, *time))).collect()
}

fn step(manager: &LogManager, to: &str, bytes: usize) -> u64 {
    manager.move_step(&p(0), Path::new(to), bytes).expect("a step")
}

fn finish(manager: &LogManager, to: &str) -> Arc<Log> {
    for n in 0.. {
        assert!(n < 100, "the move ends");
        if step(manager, to, 300) == 0 {
            break;
        }
    }
    let moved = opened(manager);
    assert_eq!(moved.dir(), Path::new(to).join("t-0"));
    moved
}

/// Directories, the first of which has a partition of ten records; of those at least so many bytes have been copied to the second.
fn half_moved(dirs: usize, bytes: usize) -> (Bench, LogManager) {
    let bench = Bench::new(&[]);
    let manager = manager(&bench, dirs);
    fill(&manager.get_or_create(&p(0)).expect("a log"), 10, 1);
    assert!(step(&manager, "/disk1", bytes) > 0);
    (bench, manager)
}

#[test]
fn a_topic_made_anew_gets_nothing_of_a_copy_of_the_old_one() {
    for (stopped, whole) in [(false, false), (false, true), (true, false), (true, true)] {
        let bench = Bench::new(&[]);
        let mut two = manager(&bench, 2);
        two.create_topic("t", 1, []).expect("a topic");
        fill(&opened(&two), 10, 1);
        assert!(step(&two, "/disk1", 400) > 0);
        assert_eq!(copies(&bench), 1);
        if stopped {
            drop(two);
            two = manager(&bench, 2);
        }
        if whole {
            two.delete_topic("t").expect("deleted");
        } else {
            assert!(two.delete(&p(0)).expect("deleted"));
        }
        assert_eq!(copies(&bench), 0, "the copy goes with the partition");
        if whole {
            two.create_topic("t", 1, []).expect("a topic");
        } else {
            two.get_or_create(&p(0)).expect("a log");
        }
        fill(&opened(&two), 10, 2);
        assert_eq!(content(&finish(&two, "/disk1")), expected(&[(0..10, 2)]), "stopped: {stopped}");
        let topics = two.live().map(|dir| dir.topics().expect("topics")["t"].id).collect::<Vec<_>>();
        assert_eq!(topics[0], topics[1]);
        assert_eq!(
            two.dir_of(&p(0)).expect("found").expect("one").topic_id(&p(0)).expect("read"),
            Some(topics[0])
        );
        bench.scheduler.advance(100_000);
        assert_eq!((folders(&bench, "/disk0").len(), folders(&bench, "/disk1").len()), (0, 1));
    }
}

#[test]
fn a_copy_is_of_the_log_that_it_was_begun_from() {
    let (bench, two) = half_moved(2, 400);
    // Past the manager, which knows nothing of it.
    let disk0 = two.live().next().expect("one");
    assert!(disk0.delete(&p(0)).expect("deleted"));
    fill(&disk0.get_or_create(&p(0), None).expect("a log"), 10, 2);
    assert_eq!(content(&finish(&two, "/disk1")), expected(&[(0..10, 2)]));
    assert_eq!(copies(&bench), 0);
}

#[test]
fn what_a_crash_took_from_a_partition_does_not_come_back_with_its_copy() {
    let (bench, two) = half_moved(2, 700);
    drop(two);
    // The power goes, and with it what was not durable. No epoch tells of it.
    let path = Path::new("/disk0/t-0").join(name(0, "log"));
    let names = bench.backend.names();
    let bytes = names.read(&path, 1 << 20).expect("read").expect("a file");
    names.remove(&path).expect("removed");
    names.write(&path, &bytes[..300], true).expect("written");
    let two = manager(&bench, 2);
    let log = opened(&two);
    assert_eq!(log.log_end_offset().get(), 3);
    fill(&log, 6, 2);
    log.flush(false).expect("durable");
    drop(log);
    let whole = expected(&[(0..3, 1), (3..9, 2)]);
    assert_eq!(content(&finish(&two, "/disk1")), whole);
    assert!(two.shutdown().into_iter().all(|(_, report)| report.expect("stopped").clean));
    assert_eq!(content(&opened(&manager(&bench, 2))), whole);
}

#[test]
fn a_partition_has_one_copy_at_a_time() {
    let (bench, three) = half_moved(3, 800);
    opened(&three).truncate_to(Offset::new(4)).expect("truncated");
    fill(&opened(&three), 6, 2);
    // That it was truncated is told once, to the copy of the day.
    assert!(step(&three, "/disk2", 200) > 0);
    assert_eq!(copies(&bench), 1);
    assert_eq!(content(&finish(&three, "/disk1")), expected(&[(0..4, 1), (4..10, 2)]));
    assert_eq!(copies(&bench), 0);
}

/// A node whose partition has moved from `/disk0` to `/disk1`, up to where the old folder would have been renamed.
fn interrupted() -> Bench {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let two = manager(&bench, 2);
    two.create_topic("t", 3, []).expect("a topic");
    let log = opened(&two);
    fill(&log, 2, 1);
    lead(&log, 4, 1, 200);
    log.update_high_watermark(log.log_end_offset());
    log.increment_log_start_offset(Offset::new(4)).expect("moved");
    faulty.inject(Fault::on(Call::Rename).under("/disk0"));
    two.move_step(&p(0), Path::new("/disk1"), 1000).expect_err("as if the process had died");
    faulty.clear();
    drop((two, log));
    assert!(folders(&bench, "/disk0").contains(&"t-0".to_owned()));
    assert!(folders(&bench, "/disk1").contains(&"t-0".to_owned()));
    bench
}

/// Appends to the folder that one of the directories has, as whoever knows of that one alone would.
fn append_in(bench: &Bench, dir: &str, time: i64) {
    let dir = kseg_log::LogDir::open(Path::new(dir), options(bench)).expect("open");
    fill(&dir.get(&p(0)).expect("open").expect("a log"), 1, time);
    drop(dir);
}

#[test]
fn a_move_that_stopped_between_its_renames_is_ended_at_the_next_start() {
    for (ahead, kept) in [(None, "/disk0"), (Some("/disk1"), "/disk1"), (Some("/disk0"), "/disk0")] {
        let bench = interrupted();
        if let Some(dir) = ahead {
            append_in(&bench, dir, 2);
        }
        let two = manager(&bench, 2);
        let log = opened(&two);
        assert_eq!(log.dir(), Path::new(kept).join("t-0"));
        let end = 6 + i64::from(ahead.is_some());
        assert_eq!((log.log_start_offset().get(), log.log_end_offset().get()), (4, end), "{ahead:?}");
        assert_eq!(two.partitions().expect("list"), [p(0), p(1), p(2)]);
        assert_eq!(two.load_all(LoadOptions::default()).opened, 3);
        bench.scheduler.advance(100_000);
        let all = [folders(&bench, "/disk0"), folders(&bench, "/disk1")].concat();
        assert_eq!(all.iter().filter(|name| name.starts_with("t-0")).count(), 1, "{all:?}");
        fill(&log, 1, 3);
        drop(log);
        assert!(two.shutdown().into_iter().all(|(_, report)| report.expect("stopped").clean));
        assert_eq!(opened(&manager(&bench, 2)).log_end_offset().get(), end + 1);
    }
}

#[test]
fn of_two_folders_that_differ_neither_is_had_and_all_other_partitions_are() {
    let bench = interrupted();
    append_in(&bench, "/disk0", 2);
    append_in(&bench, "/disk1", 3);
    let two = manager(&bench, 2);
    let refusals = [
        two.get(&p(0)).map(drop),
        two.get_or_create(&p(0)).map(drop),
        two.move_step(&p(0), Path::new("/disk1"), 1000).map(drop),
    ];
    for refused in refusals {
        let error = refused.expect_err("nobody knows which is right");
        assert_eq!(error.kafka_name(), "IllegalStateException");
        assert!(error.to_string().contains("/disk0") && error.to_string().contains("/disk1"), "{error}");
    }
    let summary = two.load_all(LoadOptions::default());
    assert_eq!(summary.opened, 2);
    assert!(summary.failed.iter().all(|(of, e)| *of == p(0) && matches!(e, Error::Duplicate { .. })));
    assert_eq!(two.partitions().expect("list"), [p(0), p(1), p(2)]);
    let other = two.get(&p(1)).expect("open").expect("a log");
    other.append_as_leader(batch(1, 1, 100), LeaderEpoch::new(0), Origin::Client).expect("an append");
    drop(other);
    assert!(two.shutdown().into_iter().all(|(_, report)| report.expect("stopped").clean));
    // Whoever has removed one by hand has the other.
    bench.backend.names().remove_dir_all(Path::new("/disk0/t-0")).expect("removed");
    let two = manager(&bench, 2);
    assert_eq!(content(&opened(&two)).last(), Some(&(6, 3)));
    drop(two);

    let bench = interrupted();
    append_in(&bench, "/disk0", 2);
    append_in(&bench, "/disk1", 3);
    let two = manager(&bench, 2);
    assert!(two.delete(&p(0)).expect("both go"));
    assert_eq!(two.get_or_create(&p(0)).expect("a log").log_end_offset().get(), 0);
}
