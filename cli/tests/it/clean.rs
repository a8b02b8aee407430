use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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

/// Names, contents and times of all files below a folder.
fn all(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(all(&path));
        } else {
            let modified = path.metadata().and_then(|m| m.modified()).expect("a time");
            found.insert(path.clone(), (std::fs::read(&path).expect("a file"), modified));
        }
    }
    found
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
