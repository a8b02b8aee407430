use std::path::Path;

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
    let json = text(good(at, &["clean", "plan", "data", "--json"], b""));
    assert!(json.contains("\"records_written\":1") && json.contains("\"last_round\":true"), "{json}");
    let refused = bad(at, &["clean", "run", "data"], 2);
    assert!(refused.contains("--write"), "{refused}");
    let done = text(good(at, &["clean", "run", "data", "--write"], b""));
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

#[test]
fn a_partition_that_cannot_be_cleaned_is_named() {
    let folder = folder();
    let at = folder.path();
    data(at);
    good(at, &["clean", "plan", "data", "--roll"], b"");
    let log = at.join("data/t-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&log).expect("a log");
    bytes[100] ^= 1;
    std::fs::write(&log, bytes).expect("damage");
    let told = bad(at, &["clean", "run", "data", "--write"], 1);
    assert!(told.contains("t-0") && told.contains("00000000000000000000.log"), "{told}");
    let none = bad(at, &["clean", "status", "data", "u-0"], 1);
    assert!(none.contains("u-0"), "{none}");
}
