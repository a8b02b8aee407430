//! Compaction of a data directory.

use std::path::Path;

use kseg_log::{LogDir, LogDirOptions, TopicPartition};

use crate::run::*;

/// A compacted topic with one key, written 40 times, in segments of a megabyte.
fn data(folder: &Path) {
    good(folder, &["topics", "create", "data", "t", "--config", "cleanup.policy=compact"], b"");
    let lines: String = (0..40).map(|n| format!("key\tvalue {n}\n")).collect();
    good(folder, &["append", "data/t-0", "--format", "key-value", "--quiet"], lines.as_bytes());
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

#[test]
fn status_says_why_and_run_cleans() {
    let folder = folder();
    let at = folder.path();
    data(at);
    let status = text(good(at, &["clean", "status", "data"], b""));
    assert!(status.contains("t-0") && status.contains("active segment"), "{status}");
    let plan = text(good(at, &["clean", "plan", "data", "t-0", "--roll"], b""));
    assert!(plan.contains("dirty 0 to 40") && plan.contains("1 of 40 records stay"), "{plan}");
    assert_eq!(text(good(at, &["cat", "data/t-0"], b"")).lines().count(), 40);
    let json = text(good(at, &["clean", "plan", "data", "--json", "--roll"], b""));
    assert!(json.contains("\"records_written\":1") && json.contains("\"last_round\":true"), "{json}");
    let refused = bad(at, &["clean", "run", "data"], 2);
    assert!(refused.contains("--write"), "{refused}");
    let done = text(good(at, &["clean", "run", "data", "--write", "--roll"], b""));
    assert!(done.contains("cleaned log t-0 (dirty section = [0, 40])"), "{done}");
    let left = text(good(at, &["cat", "data/t-0"], b""));
    assert!(left.lines().count() == 1 && left.contains("value 39"), "{left}");
    let checkpoint =
        std::fs::read_to_string(at.join("data/cleaner-offset-checkpoint")).expect("a checkpoint");
    assert_eq!(checkpoint, "0\n1\nt 0 40\n");
    let status = text(good(at, &["clean", "status", "data", "--json"], b""));
    assert!(status.contains("\"next\":\"clean: nothing has been sealed"), "{status}");
    assert!(text(good(at, &["clean", "run", "data", "--write", "--json"], b"")).is_empty());
}

/// A topic of its own configuration with these lines, in segments that are sealed.
fn sealed(at: &Path, topic: &str, config: &[&str]) {
    let mut create = vec!["topics", "create", "data", topic];
    config.iter().for_each(|pair| create.extend(["--config", pair]));
    good(at, &create, b"");
    let log = format!("data/{topic}-0");
    good(at, &["append", &log, "--format", "key-value", "--batch-size", "70", "-q"], b"a\t1\nb\t2\na\t3\n");
}

#[test]
fn what_goes_wrong_while_a_log_is_looked_at_is_told() {
    let folder = folder();
    let at = folder.path();
    let lag = ["cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "max.compaction.lag.ms=1000"];
    for topic in ["t", "u", "v"] {
        sealed(at, topic, &lag);
    }
    // Nothing is worth cleaning: it rolls only.
    let never =
        ["--set", "min.cleanable.dirty.ratio=1", "--set", "max.compaction.lag.ms=9223372036854775807"];
    good(at, &[&["clean", "run", "data", "--write", "--roll"], &never[..]].concat(), b"");
    for topic in ["t", "v"] {
        let path = at.join(format!("data/{topic}-0/00000000000000000000.log"));
        let mut bytes = std::fs::read(&path).expect("a segment");
        bytes[16] = 9;
        std::fs::write(&path, bytes).expect("written");
    }
    let told = bad(at, &["clean", "run", "data", "--write"], 1);
    for partition in ["t-0", "v-0"] {
        let line = format!("kseg: {partition}: ");
        assert!(
            told.lines().any(|l| l.starts_with(&line) && l.contains("00000000000000000000.log")),
            "{told}"
        );
    }
    assert!(!told.contains("kseg: u-0"), "{told}");
    let left = text(good(at, &["cat", "data/u-0"], b""));
    assert_eq!(left.lines().count(), 2, "{left}");

    std::fs::remove_file(at.join("data/cleaner-offset-checkpoint")).expect("it was there");
    std::fs::create_dir(at.join("data/cleaner-offset-checkpoint")).expect("made");
    let told = bad(at, &["clean", "run", "data", "u-0", "--write"], 1);
    assert!(told.contains("kseg: u-0: ") && told.contains("cleaner-offset-checkpoint"), "{told}");
}

#[test]
fn every_retention_that_fails_is_told_and_a_log_that_is_not_compacted_is_named() {
    let folder = folder();
    let at = folder.path();
    for topic in ["t", "u"] {
        sealed(at, topic, &["cleanup.policy=compact,delete", "retention.ms=1"]);
    }
    sealed(at, "w", &[]);
    let told = bad(
        at,
        &["clean", "run", "data", "t-0", "u-0", "w-0", "--write", "--roll", "--set", "cleanup.policy="],
        0,
    );
    assert_eq!(told.matches("not compacted: cleanup.policy has no compact").count(), 3, "{told}");
    assert!(told.contains("kseg: w-0: not compacted"), "{told}");
    for topic in ["t", "u"] {
        let deleted = at.join(format!("data/{topic}-0/00000000000000000000.log.deleted/x"));
        std::fs::create_dir_all(deleted).expect("made");
    }
    let told = bad(at, &["clean", "run", "data", "--write", "--set", "min.cleanable.dirty.ratio=1"], 1);
    assert!(told.contains("kseg: t-0: ") && told.contains("kseg: u-0: "), "{told}");
    assert!(!told.contains("w-0"), "{told}");
}

#[test]
fn a_topic_made_anew_does_not_count_as_cleaned() {
    let folder = folder();
    let at = folder.path();
    for lines in [2, 2] {
        sealed(at, "t", &["cleanup.policy=compact"]);
        good(at, &["clean", "run", "data", "--write", "--roll", "--all"], b"");
        assert_eq!(text(good(at, &["cat", "data/t-0"], b"")).lines().count(), lines);
        let checkpoint = || std::fs::read_to_string(at.join("data/cleaner-offset-checkpoint")).expect("text");
        assert_eq!(checkpoint(), "0\n1\nt 0 3\n");
        good(at, &["topics", "delete", "data", "t"], b"");
        assert_eq!(checkpoint(), "0\n0\n");
    }
}

/// Neither after an orderly stop, nor after a crash with a torn batch at the end, nor beside whoever has the directory open.
#[test]
fn status_and_plan_change_nothing() {
    let folder = folder();
    let at = folder.path();
    data(at);
    let look = || {
        let before = all(&at.join("data"));
        let status = text(good(at, &["clean", "status", "data", "--set", "cleanup.policy=compact"], b""));
        let plan = text(good(at, &["clean", "plan", "data", "--roll"], b""));
        assert!(status.contains("t-0") && plan.contains("1 of 40 records stay"), "{status}{plan}");
        assert!(all(&at.join("data")) == before, "{status}{plan}");
    };
    look();
    let log = at.join("data/t-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&log).expect("a log");
    let torn = bytes[..70].to_vec();
    bytes.extend(torn);
    std::fs::write(&log, bytes).expect("a torn batch");
    std::fs::remove_file(at.join("data/.kafka_cleanshutdown")).expect("a marker");
    look();
    let backend = kseg_io_backends::open("std").expect("std is always there");
    let dir = LogDir::open(&at.join("data"), LogDirOptions::new(backend)).expect("a directory");
    let open = dir.get(&TopicPartition::new("t", 0)).expect("a log").expect("a partition");
    assert!(bad(at, &["clean", "run", "data", "--write"], 1).contains("lock"));
    look();
    assert_eq!(open.log_end_offset().get(), 40);
}

#[test]
fn a_partition_that_cannot_be_cleaned_is_named() {
    let folder = folder();
    let at = folder.path();
    data(at);
    let log = at.join("data/t-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&log).expect("a log");
    bytes[100] ^= 1;
    std::fs::write(&log, bytes).expect("damage");
    let told = bad(at, &["clean", "run", "data", "--write", "--roll"], 1);
    assert!(told.contains("t-0") && told.contains("00000000000000000000.log"), "{told}");
    let none = bad(at, &["clean", "status", "data", "u-0"], 1);
    assert!(none.contains("u-0"), "{none}");
}

/// Without partitions named, a policy from the command line would be in force for topics that are to be kept whole.
#[test]
fn a_policy_by_hand_takes_partitions() {
    let folder = folder();
    let at = folder.path();
    data(at);
    good(at, &["append", "data/kept-0", "--format", "key-value", "--quiet"], b"key\tone\nkey\ttwo\n");
    let before = all(&at.join("data"));
    let by_hand = ["--write", "--roll", "--all", "--set", "cleanup.policy=compact"];
    let refused = bad(at, &[&["clean", "run", "data"], &by_hand[..]].concat(), 2);
    assert!(refused.contains("expected partitions to clean"), "{refused}");
    assert!(all(&at.join("data")) == before);
    let done = text(good(at, &[&["clean", "run", "data", "t-0"], &by_hand[..]].concat(), b""));
    assert!(done.contains("cleaned log t-0") && !done.contains("kept-0"), "{done}");
    assert_eq!(text(good(at, &["cat", "data/kept-0"], b"")), "one\ntwo\n");
    // Other settings are a matter of the run.
    good(at, &["clean", "run", "data", "--write", "--set", "min.cleanable.dirty.ratio=0.1"], b"");
}

#[test]
fn status_says_where_no_configuration_is_known() {
    let folder = folder();
    let at = folder.path();
    good(at, &["append", "data/t-0", "--format", "key-value", "--quiet"], b"key\tone\n");
    let look = |args: &[&str]| {
        let output = kseg_in(at, args, b"");
        assert!(output.status.success());
        (text(output.stdout), text(output.stderr))
    };
    let (status, told) = look(&["clean", "status", "data"]);
    assert!(status.contains("nothing is known here of its configuration"), "{status}");
    assert!(told.contains("no kseg-topics.json") && told.contains("metadata log"), "{told}");
    let (status, told) = look(&["clean", "status", "data", "--set", "cleanup.policy=delete"]);
    assert!(status.contains("cleanup.policy has no compact") && !status.contains("known here"), "{status}");
    assert!(told.contains("no kseg-topics.json"), "{told}");
    good(at, &["topics", "alter", "data", "t", "--config", "cleanup.policy=delete"], b"");
    let (status, told) = look(&["clean", "status", "data"]);
    assert!(status.contains("\n  not compacted: cleanup.policy has no compact"), "{status}");
    assert_eq!(told, "");
}

/// What a plan shows is what a run with the same options would do.
#[test]
fn a_plan_is_of_the_logs_that_a_run_would_clean() {
    let folder = folder();
    let at = folder.path();
    data(at);
    good(at, &["topics", "alter", "data", "t", "--config", "min.cleanable.dirty.ratio=1"], b"");
    good(at, &["append", "data/kept-0", "--quiet"], b"one\n");
    let plan = text(good(at, &["clean", "plan", "data", "--roll"], b""));
    assert!(plan.contains("t-0: not dirty enough") && plan.contains("kept-0: not compacted"), "{plan}");
    let plan = text(good(at, &["clean", "plan", "data", "--roll", "--all"], b""));
    assert!(plan.contains("t-0: dirty 0 to 40") && plan.contains("kept-0: not compacted"), "{plan}");
    assert_eq!(text(good(at, &["clean", "run", "data", "--write", "--roll"], b"")), "");
    let told = bad(at, &["clean", "status", "data", "--all"], 2);
    assert!(told.contains("--all"), "{told}");
}

/// The log start divides the only segment: it counts as clean and as dirty, and is told so.
#[test]
fn status_tells_clean_and_dirty_bytes_apart() {
    let folder = folder();
    let at = folder.path();
    data(at);
    std::fs::write(at.join("data/log-start-offset-checkpoint"), "0\n1\nt 0 24\n").expect("a log start");
    let size = segments(&at.join("data/t-0"))[0].metadata().expect("a log").len();
    let status = text(good(at, &["clean", "status", "data", "--roll"], b""));
    let expected = format!("ratio 0.500  dirty {size} bytes, clean {size} bytes, dirty offsets 24 to 40");
    assert!(status.contains(&expected), "{status}");
}
