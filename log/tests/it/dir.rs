use std::path::Path;
use std::sync::Arc;

use kseg_format::{Offset, Uuid};
use kseg_io_backends::{Call, Fault, Faulty};
use kseg_log::{DirLook, Error, LogDir, TopicPartition};

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
fn a_malformed_checkpoint_is_named_with_its_line_and_kept() {
    let bench = Bench::new(&[]);
    LogDir::open(Path::new(DATA), options(&bench)).expect("open").shutdown().expect("stopped");
    let damage = b"0\n1\nt 0 5 6\n";
    let checkpoints =
        ["log-start-offset-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"];
    for name in checkpoints {
        bench.backend.names().write(&Path::new(DATA).join(name), damage, true).expect("written");
    }
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    let told: Vec<_> = dir.damaged_checkpoints().iter().map(ToString::to_string).collect();
    for name in checkpoints {
        assert!(told.iter().any(|told| told.contains(name) && told.contains("line 3")), "{told:?}");
        assert!(!names(&bench).contains(&format!("{name}.damaged")), "nothing has been written yet");
    }
    dir.shutdown().expect("stopped");
    let read = |name: &str| bench.backend.names().read(&Path::new(DATA).join(name), 1000).expect("read");
    for name in checkpoints {
        assert_eq!(read(name).as_deref(), Some(&b"0\n0\n"[..]));
        assert_eq!(read(&format!("{name}.damaged")).as_deref(), Some(&damage[..]));
    }
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    assert!(dir.damaged_checkpoints().is_empty() && dir.unknown().is_empty(), "{:?}", dir.unknown());
}

/// Without room for the copy the file stays what it is.
#[test]
fn a_malformed_checkpoint_that_cannot_be_kept_is_not_overwritten() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let path = Path::new(DATA).join("log-start-offset-checkpoint");
    LogDir::open(Path::new(DATA), options(&bench)).expect("open").shutdown().expect("stopped");
    bench.backend.names().write(&path, b"nonsense", true).expect("written");
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    faulty.inject(Fault::on(Call::WriteFile).role("damaged").error(28));
    assert_eq!(dir.checkpoint().expect_err("no room").kafka_name(), "IOException");
    assert_eq!(bench.backend.names().read(&path, 100).expect("read").as_deref(), Some(&b"nonsense"[..]));
    faulty.clear();
    dir.shutdown().expect("stopped");
    assert_eq!(bench.backend.names().read(&path, 100).expect("read").as_deref(), Some(&b"0\n0\n"[..]));
}

#[test]
fn a_directory_is_told_by_the_names_in_it() {
    let bench = Bench::new(&[]);
    let write = |path: &str| {
        let path = Path::new(path);
        bench.backend.names().create_dir_all(path.parent().expect("a folder")).expect("made");
        bench.backend.names().write(path, b"", true).expect("written");
    };
    for path in [
        "/of-broker/meta.properties",
        "/of-kseg/kseg-topics.json",
        "/of-segments/t-0/00000000000000000000.log",
        "/kept/log-start-offset-checkpoint.damaged",
        "/of-segments/linux-6/Makefile",
        "/things/linux-6/Makefile",
        "/t-1/partition.metadata",
        "/t-2/leader-epoch-checkpoint",
        "/t-3/00000000000000000000.log",
        "/t-3/.lock",
    ] {
        write(path);
    }
    for path in ["/empty", "/new/lost+found", "/pair-0"] {
        bench.backend.names().create_dir_all(Path::new(path)).expect("made");
    }
    for (path, look) in [
        ("/of-broker", DirLook::DataDir),
        ("/of-kseg", DirLook::DataDir),
        ("/of-segments", DirLook::DataDir),
        ("/kept", DirLook::DataDir),
        ("/things", DirLook::Other),
        ("/things/linux-6", DirLook::Other),
        ("/things/linux-6/Makefile", DirLook::File),
        ("/t-1", DirLook::Partition),
        ("/t-2", DirLook::Partition),
        ("/t-3", DirLook::Partition),
        ("/empty", DirLook::Empty),
        ("/new", DirLook::Empty),
        ("/pair-0", DirLook::Empty),
        ("/nowhere", DirLook::Missing),
    ] {
        assert_eq!(LogDir::look(&*bench.backend, Path::new(path)).expect("looked"), look, "{path}");
        if look == DirLook::Partition {
            let entries = || bench.backend.names().list(Path::new(path)).expect("list").len();
            let before = entries();
            let refused = LogDir::open(Path::new(path), options(&bench)).expect_err("a partition's folder");
            assert!(matches!(refused, Error::PartitionFolder { .. }) && refused.to_string().contains(path));
            assert_eq!(entries(), before);
        }
    }
}

/// A file that may not be opened is the business of its log; a device that has become read-only is that of all.
#[test]
fn a_file_without_permission_is_no_failure_of_the_directory() {
    let faulty = Arc::new(Faulty::new(kseg_io_backends::open("memory").expect("memory")));
    let bench = Bench::on(faulty.clone(), &[]);
    let [first, second] = [0, 1].map(|n| TopicPartition::new("t", n));
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    for partition in [&first, &second] {
        lead(&dir.get_or_create(partition, None).expect("a log"), 1, 1, 100);
    }
    dir.shutdown().expect("stopped");
    for (number, serves) in [(13, true), (1, true), (30, false)] {
        let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
        faulty.inject(Fault::on(Call::Open).under(Path::new(DATA).join("t-0")).role("log").error(number));
        dir.get(&first).expect_err("refused");
        faulty.clear();
        assert_eq!(dir.get(&second).is_ok(), serves, "{number}");
        assert_eq!(dir.offline().is_none(), serves, "{number}");
        assert_eq!(dir.shutdown().expect("stopped").clean, serves, "{number}");
    }
}

/// One whose folder cannot be read is named, and so are the others.
#[test]
fn topics_are_told_as_far_as_their_folders_can_be_read() {
    let bench = Bench::new(&[]);
    let dir = LogDir::open(Path::new(DATA), options(&bench)).expect("open");
    let made = dir.create_topic("made", 1, []).expect("a topic");
    for topic in ["bad", "id", "none"] {
        dir.get_or_create(&TopicPartition::new(topic, 1), None).expect("a log");
    }
    let write = |topic: &str, text: String| {
        let path = Path::new(DATA).join(topic).join("partition.metadata");
        bench.backend.names().write(&path, text.as_bytes(), true).expect("written");
    };
    write("bad-1", "version: 0\ntopic_id: x\n".to_owned());
    write("id-1", format!("version: 0\ntopic_id: {}\n", made.id));
    let found = dir.survey().expect("a survey");
    let told: Vec<_> =
        found.topics.iter().map(|(name, topic)| (name.as_str(), topic.id, topic.partitions)).collect();
    let expected =
        [("bad", Uuid::ZERO, 2), ("id", made.id, 2), ("made", made.id, 1), ("none", Uuid::ZERO, 2)];
    assert_eq!(told, expected);
    let failed: Vec<_> = found.failed.iter().map(|(p, error)| (p.to_string(), error.kafka_name())).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].0, "bad-1");
    dir.topics().expect_err("one of them cannot be read");
    // What is asked of a topic hangs on its own folders alone.
    dir.alter_topic("bad", [("retention.ms", "7")], []).expect_err("it cannot be read");
    let none = dir.alter_topic("none", [("retention.ms", "7")], []).expect("changed");
    assert_ne!(none.id, Uuid::ZERO);
}

/// Where nobody compacts the logs the directory itself keeps right how far they were.
#[test]
fn a_partition_that_leaves_is_in_no_cleaners_checkpoint_and_a_move_takes_its_line_along() {
    let bench = Bench::new(&[]);
    let two = manager(&bench, 2);
    let names = bench.backend.names();
    let path = |disk: usize| Path::new(&format!("/disk{disk}")).join("cleaner-offset-checkpoint");
    let text = |disk| {
        let bytes = names.read(&path(disk), 1 << 20).expect("read").unwrap_or_default();
        String::from_utf8(bytes.to_vec()).expect("text")
    };
    let partition = |n| TopicPartition::new("t", n);
    let first = two.live().next().expect("a directory");
    first.create_topic("t", 3, []).expect("a topic");
    first.create_topic("u", 2, []).expect("a topic");
    let all = "0\n5\nt 0 4\nt 1 5\nt 2 6\nu 0 7\nu 1 8\n";
    names.write(&path(0), all.as_bytes(), true).expect("written");
    // One that is open, and one that is not.
    lead(&first.get(&partition(0)).expect("open").expect("a log"), 1, 1, 100);
    assert!(first.delete(&partition(0)).expect("deleted") && first.delete(&partition(1)).expect("deleted"));
    assert_eq!(text(0), "0\n3\nt 2 6\nu 0 7\nu 1 8\n");
    assert!(first.set_aside(&TopicPartition::new("u", 1)).expect("set aside"));
    assert_eq!(text(0), "0\n2\nt 2 6\nu 0 7\n");
    first.delete_topic("u").expect("deleted");
    assert_eq!((text(0).as_str(), text(1).as_str()), ("0\n1\nt 2 6\n", ""));
    names.write(&path(1), b"0\n2\nt 2 99\nx 0 1\n", true).expect("written");
    while two.move_step(&partition(2), Path::new("/disk1"), 1 << 20).expect("a step") > 0 {}
    assert_eq!((text(0).as_str(), text(1).as_str()), ("0\n0\n", "0\n2\nt 2 6\nx 0 1\n"));
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
