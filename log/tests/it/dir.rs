use std::path::Path;

use kseg_format::Offset;
use kseg_log::{LogDir, TopicPartition};

use crate::support::*;

const DATA: &str = "/data";

fn names(bench: &Bench) -> Vec<String> {
    let entries = bench.backend.names().list(Path::new(DATA)).expect("list");
    entries.into_iter().map(|e| e.name.to_string_lossy().into_owned()).collect()
}

#[test]
fn an_orderly_stop_leaves_checkpoints_and_a_marker() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
    lead(&log, 3, 1, 200);
    log.update_high_watermark(Offset::new(2));
    assert!(dir.shutdown().expect("stopped").clean);
    let files = names(&bench);
    for name in [".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
    {
        assert!(files.iter().any(|f| f == name), "{files:?}");
    }
    assert!(!files.iter().any(|f| f == ".lock"));
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    assert!(dir.was_clean() && !names(&bench).iter().any(|f| f == ".kafka_cleanshutdown"));
    let log = dir.get(&TopicPartition::new("t", 0)).expect("open").expect("a log");
    assert_eq!((offsets(&log), log.recovery_point().get()), ((0, 2, 3), 3));
}

#[test]
fn a_crash_is_found_out_and_recovered() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
    lead(&log, 3, 1, 200);
    log.abandon();
    drop(dir);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    assert!(!dir.was_clean());
    let log = dir.get(&TopicPartition::new("t", 0)).expect("open").expect("a log");
    assert_eq!((log.log_end_offset().get(), log.load_report().recovered.len()), (3, 1));
    assert!(dir.shutdown().expect("stopped").clean);
}

#[test]
fn a_directory_with_a_log_that_was_not_recovered_does_not_become_clean() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    for partition in [0, 1] {
        lead(&dir.get_or_create(&TopicPartition::new("t", partition), None).expect("a log"), 1, 1, 100);
    }
    drop(dir);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    dir.get(&TopicPartition::new("t", 0)).expect("open").expect("a log");
    assert!(!dir.shutdown().expect("stopped").clean);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    assert!(!dir.was_clean());
    for partition in dir.partitions().expect("list") {
        dir.get(&partition).expect("open").expect("a log");
    }
    assert!(dir.shutdown().expect("stopped").clean);
}

#[test]
fn a_directory_is_open_once() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    let refused = LogDir::open(Path::new(DATA), options(&bench)).expect_err("locked");
    assert!(refused.to_string().contains(".lock"), "{refused}");
    drop(dir);
    LogDir::open(Path::new(DATA), options(&bench)).expect("free again");
}

#[test]
fn the_log_start_is_checkpointed_while_it_is_not_a_segments_base() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    let partition = TopicPartition::new("t", 0);
    let log = dir.get_or_create(&partition, None).expect("a log");
    lead(&log, 10, 1, 200);
    lead(&log, 10, 1, 200);
    log.update_high_watermark(Offset::new(20));
    log.increment_log_start_offset(Offset::new(5)).expect("moved");
    assert!(dir.shutdown().expect("stopped").clean);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    let log = dir.get(&partition).expect("open").expect("a log");
    assert_eq!(offsets(&log), (5, 20, 20));
    log.increment_log_start_offset(Offset::new(20)).expect("moved");
    log.roll(None).expect("a roll");
    log.delete_old_segments().expect("retention");
    dir.checkpoint().expect("written");
    let text =
        bench.backend.names().read(&Path::new(DATA).join("log-start-offset-checkpoint"), 1000).expect("read");
    assert_eq!(text.as_deref(), Some(&b"0\n0\n"[..]));
}

#[test]
fn names_that_kafka_refuses_are_refused() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    for topic in ["", ".", "..", "a/b", "a b", "ü", &"x".repeat(250)] {
        let refused = dir.get_or_create(&TopicPartition::new(topic, 0), None).expect_err("an illegal name");
        assert_eq!(refused.kafka_name(), "InvalidTopicException", "{topic}: {refused}");
    }
    assert!(dir.partitions().expect("list").is_empty());
}

#[test]
fn a_malformed_checkpoint_is_named_with_its_line() {
    let bench = Bench::new(&[]);
    LogDir::open(Path::new(DATA), options(&bench)).expect("open").shutdown().expect("stopped");
    let path = Path::new(DATA).join("recovery-point-offset-checkpoint");
    bench.backend.names().write(&path, b"0\n1\nt 0 5 6\n", true).expect("written");
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    let damaged = dir.damaged_checkpoints()[0].to_string();
    assert!(damaged.contains("recovery-point-offset-checkpoint") && damaged.contains('3'), "{damaged}");
}

#[test]
fn a_truncation_writes_the_recovery_points_at_once() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    let partition = TopicPartition::new("t", 0);
    let log = dir.get_or_create(&partition, None).expect("a log");
    for _ in 0..5 {
        lead(&log, 1, 1, 100);
    }
    log.flush(false).expect("flushed");
    dir.checkpoint().expect("written");
    assert!(dir.truncate_to(&partition, Offset::new(2)).expect("truncated"));
    let text = bench
        .backend
        .names()
        .read(&Path::new(DATA).join("recovery-point-offset-checkpoint"), 1000)
        .expect("read");
    assert_eq!(text.as_deref(), Some(&b"0\n1\nt 0 2\n"[..]));
}

#[test]
fn a_log_keeps_its_directory_locked_until_it_is_closed() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
    drop(dir);
    assert!(LogDir::open(Path::new(DATA), options(&bench)).is_err());
    log.close().expect("closed");
    LogDir::open(Path::new(DATA), options(&bench)).expect("free again");
}

#[test]
fn a_name_never_leads_out_of_the_directory() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    for partition in
        [TopicPartition::new("../t", 0), TopicPartition::new("x", -1), TopicPartition::new("a b", 0)]
    {
        assert!(dir.get(&partition).is_err() && dir.get_or_create(&partition, None).is_err(), "{partition}");
    }
    // A folder that somebody else made is no partition of ours, and does not end up in a checkpoint.
    bench.backend.names().create_dir_all(&Path::new(DATA).join("my topic-0")).expect("a folder");
    assert!(dir.partitions().expect("list").is_empty());
}

#[test]
fn checkpoints_may_be_written_by_many_at_once() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| dir.checkpoint().expect("written")));
        }
    });
}

#[test]
fn format_edge_129_an_empty_marker_is_a_clean_stop() {
    for content in [&b""[..], br#"{"version":0,"brokerEpoch":10,"more":1}"#] {
        let bench = Bench::new(&[]);
        LogDir::open(Path::new(DATA), options(&bench)).expect("open").shutdown().expect("stopped");
        let marker = Path::new(DATA).join(".kafka_cleanshutdown");
        bench.backend.names().replace(&marker, content).expect("written");
        let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
        assert!(dir.was_clean() && !names(&bench).iter().any(|f| f == ".kafka_cleanshutdown"));
    }
}
