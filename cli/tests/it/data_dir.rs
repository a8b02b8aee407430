//! What commands do to a data directory that is damaged, somebody else's, or none.

use std::fs;
use std::path::Path;

use kseg_log::{LogDir, LogDirOptions};

use crate::run::{Bound, all, bad, folder, good, kseg_in, segments};

const MARKER: &str = "data/.kafka_cleanshutdown";

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).expect("a file")
}

/// Two topics with one partition each, of which the first is compacted and has been cleaned, and one folder of a topic without
/// an entry.
fn data(at: &Path) {
    good(at, &["topics", "create", "data", "a", "--config", "cleanup.policy=compact"], b"");
    good(at, &["topics", "create", "data", "b"], b"");
    let lines: String = (0..35).map(|n| format!("key {n}\tvalue {n}\n")).collect();
    for partition in ["data/a-0", "data/b-0", "data/c-0"] {
        good(at, &["append", partition, "--format", "key-value", "--quiet"], lines.as_bytes());
    }
    good(at, &["clean", "run", "data", "--write", "--roll"], b"");
}

/// The commands that only look, on the data directory of [`data`].
const LOOKING: [&[&str]; 7] = [
    &["topics", "list", "data"],
    &["topics", "list", "data", "--json"],
    &["topics", "describe", "data", "--all"],
    &["clean", "status", "data"],
    &["clean", "plan", "data", "--roll", "--all"],
    &["cat", "data/b-0", "--count", "1"],
    &["dump", "data/b-0/00000000000000000000.log"],
];

const CHECKPOINTS: [&str; 4] = [
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
];

#[test]
fn a_damaged_checkpoint_is_named_and_never_overwritten_unseen() {
    for name in CHECKPOINTS {
        let dir = folder();
        let at = dir.path();
        data(at);
        let path = at.join("data").join(name);
        let damage = "0\n1\nb 0 1x1\n";
        fs::write(&path, damage).expect("damage");
        let cleaners = name == "cleaner-offset-checkpoint";
        let named = |args: &[&str]| {
            let output = kseg_in(at, args, b"");
            let told = text(&output.stderr);
            assert!(output.status.success(), "{args:?}: {told}");
            let read = match args[0] {
                "cat" => name == "log-start-offset-checkpoint",
                "clean" => true,
                "dump" => false,
                _ => !cleaners,
            };
            let place = format!("data/{name}, line 3: ");
            assert_eq!(told.contains(&place) && told.contains("b 0 1x1"), read, "{args:?}: {told}");
            told
        };
        let before = all(&at.join("data"));
        for args in LOOKING {
            assert!(!named(args).contains(".damaged"), "{args:?}");
        }
        assert!(all(&at.join("data")) == before, "{name}");
        // Whoever writes it anew keeps what was there.
        let writes: &[&str] = if cleaners {
            &["clean", "run", "data", "--write", "--roll", "--all"]
        } else {
            &["topics", "alter", "data", "b", "--config", "retention.ms=7"]
        };
        assert!(named(writes).contains(".damaged"));
        assert_eq!(read(at.join("data").join(format!("{name}.damaged"))), damage);
        assert!(read(&path).starts_with("0\n") && read(&path) != damage, "{name}");
        assert_eq!(text(&kseg_in(at, &["topics", "list", "data"], b"").stderr), "", "{name}");
    }
}

/// What the checkpoint of log starts says decides which records there are.
#[test]
fn a_damaged_log_start_brings_records_back_and_says_so() {
    let dir = folder();
    let at = dir.path();
    data(at);
    fs::write(at.join("data/log-start-offset-checkpoint"), "0\n1\nb 0 11\n").expect("a log start");
    let count = |told: bool| {
        let output = kseg_in(&at.join("data/b-0"), &["cat", "."], b"");
        assert_eq!(text(&output.stderr).contains("log-start-offset-checkpoint, line 3"), told);
        text(&output.stdout).lines().count()
    };
    assert_eq!(count(false), 24);
    fs::write(at.join("data/log-start-offset-checkpoint"), "0\n1\nb 0 1x1\n").expect("damage");
    assert_eq!(count(true), 35);
}

#[test]
fn commands_that_look_leave_no_trace() {
    let dir = folder();
    let at = dir.path();
    data(at);
    // A line of a partition that is not here stays, too.
    fs::write(at.join("data/recovery-point-offset-checkpoint"), "0\n2\nb 0 35\ngone 0 7\n").expect("a line");
    let look = || {
        let before = all(&at.join("data"));
        for args in LOOKING {
            assert!(!good(at, args, b"").is_empty(), "{args:?}");
        }
        assert!(all(&at.join("data")) == before);
    };
    look();
    // After a crash.
    let marker = read(at.join(MARKER));
    fs::remove_file(at.join(MARKER)).expect("a marker");
    look();
    fs::write(at.join(MARKER), marker).expect("a marker");
    // Beside somebody who has it locked.
    let backend = kseg_io_backends::open("std").expect("std is always there");
    let held = LogDir::open(&at.join("data"), LogDirOptions::new(backend)).expect("a directory");
    assert!(bad(at, &["topics", "delete", "data", "a"], 1).contains(".lock"));
    look();
    held.shutdown().expect("closed");
    // As somebody who may not write.
    let bound = Bound::new(at);
    for path in all(&at.join("data")).into_keys() {
        bound.permit(&path, if path.is_dir() { 0o555 } else { 0o444 });
    }
    let before = all(&at.join("data"));
    for args in LOOKING {
        let output = bound.run(args);
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?}: {}", text(&output.stderr));
    }
    let refused = bound.run(&["topics", "delete", "data", "a"]);
    assert!(!refused.status.success() && text(&refused.stderr).contains(".lock"));
    assert!(all(&at.join("data")) == before);
    for path in all(&at.join("data")).into_keys() {
        bound.permit(&path, 0o755);
    }
}

/// A partition's folder, a folder of something else, a file, an empty folder, none: refused, and nothing is made there.
#[test]
fn what_is_no_data_directory_is_refused() {
    let dir = folder();
    let at = dir.path();
    data(at);
    fs::create_dir_all(at.join("home/linux-6")).expect("a folder");
    fs::write(at.join("home/linux-6/Makefile"), "all:\n").expect("a file");
    fs::write(at.join("home/notes.txt"), "notes\n").expect("a file");
    fs::create_dir(at.join("empty")).expect("a folder");
    let before = all(at);
    for (place, found) in [
        ("data/b-0", "found the folder of partition b-0: its data directory is "),
        ("home", "found a directory of something else"),
        ("home/notes.txt", "found a file"),
        ("empty", "found an empty directory"),
        ("nowhere", "found nothing"),
    ] {
        for args in [
            &["topics", "list", place][..],
            &["topics", "describe", place],
            &["topics", "alter", place, "b", "--config", "retention.ms=7"],
            &["topics", "delete", place, "b"],
            &["clean", "status", place],
            &["clean", "plan", place],
            &["clean", "run", place, "--write"],
        ] {
            let told = bad(at, args, 1);
            assert!(
                told.contains(&format!("{place}: expected a data directory, {found}")),
                "{args:?}: {told}"
            );
        }
        if place.contains("data") || place.contains("home") {
            let told = bad(at, &["topics", "create", place, "new"], 1);
            assert!(told.contains("expected a data directory"), "{told}");
        }
    }
    let told = bad(at, &["append", "data/b-0/c-0"], 1);
    assert!(told.contains("data/b-0: expected a data directory, found a partition's folder"), "{told}");
    assert!(all(at) == before);
    good(at, &["topics", "create", "empty", "new"], b"");
    good(at, &["topics", "create", "nowhere", "new"], b"");
}

/// One log that cannot be opened, for its damage or for want of permission, does not keep the others from being looked at.
#[test]
fn one_bad_log_stops_nothing_but_itself() {
    let dir = folder();
    let at = dir.path();
    data(at);
    let lines: String = (0..9).map(|n| format!("key\tvalue {n}\n")).collect();
    good(at, &["append", "data/a-0", "--format", "key-value", "--quiet"], lines.as_bytes());
    let cleaned = read(at.join("data/cleaner-offset-checkpoint"));
    assert_eq!(cleaned, "0\n1\na 0 35\n");
    let bound = Bound::new(at);
    let (log, metadata) =
        (segments(&at.join("data/c-0")).pop().expect("a log"), at.join("data/c-0/partition.metadata"));
    let epochs = at.join("data/c-0/leader-epoch-checkpoint");
    let good_epochs = read(&epochs);
    let check = |why: &str, word: &str| {
        // The topics are listed by their ids alone.
        let of_id = why == "a damaged id" || why == "an unreadable folder";
        let all = [&["topics", "list", "data"][..], &["clean", "status", "data"], &["clean", "plan", "data"]];
        for args in all.into_iter().filter(|args| of_id || args[0] != "topics") {
            let output = bound.run(args);
            let (shown, told) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(1), "{why} {args:?}: {told}");
            assert!(shown.contains('a') && shown.contains('b'), "{why} {args:?}: {shown}");
            let word = if args[0] == "topics" { "partition.metadata" } else { word };
            assert!(told.contains("c-0: ") && told.contains(word), "{why} {args:?}: {told}");
        }
        let output = bound.run(&["append", "data/c-0"]);
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(text(&output.stderr).contains(word), "{why}: {}", text(&output.stderr));
        assert!(at.join(MARKER).exists(), "{why}: an append that could not begin");
        let output = bound.run(&["clean", "run", "data", "--write"]);
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(text(&output.stderr).contains(word), "{why}: {}", text(&output.stderr));
        assert!(at.join(MARKER).exists(), "{why}: a run that cleaned what it could");
    };
    fs::write(&metadata, "version: 0\ntopic_id: x\n").expect("damage");
    check("a damaged id", "partition.metadata, line 2: expected topic_id: <22 characters, not zero>");
    fs::remove_file(&metadata).expect("mended: there was none");
    fs::write(&epochs, "nonsense\n").expect("damage");
    check("damaged epochs", "leader-epoch-checkpoint");
    fs::write(&epochs, good_epochs).expect("mended");
    bound.permit(&log, 0o000);
    check("an unreadable log", "00000000000000000035.log");
    bound.permit(&log, 0o644);
    bound.permit(&at.join("data/c-0"), 0o000);
    check("an unreadable folder", "c-0");
    bound.permit(&at.join("data/c-0"), 0o755);
    // The good ones are cleaned, and the bad one keeps its line.
    good(at, &["topics", "alter", "data", "b", "--config", "cleanup.policy=compact"], b"");
    fs::write(at.join("data/cleaner-offset-checkpoint"), "0\n2\na 0 35\nc 0 20\n").expect("lines");
    fs::write(&epochs, "nonsense\n").expect("damage");
    let output = kseg_in(at, &["clean", "run", "data", "--write", "--roll"], b"");
    let (shown, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(shown.contains("cleaned log b-0"), "{shown}");
    assert_eq!(read(at.join("data/cleaner-offset-checkpoint")), "0\n3\na 0 35\nb 0 35\nc 0 20\n");
    assert!(at.join(MARKER).exists());
}

/// A directory that had not been stopped in an orderly way does not become clean by a command that fails.
#[test]
fn a_failed_command_makes_no_marker() {
    let dir = folder();
    let at = dir.path();
    data(at);
    fs::remove_file(at.join(MARKER)).expect("a marker");
    fs::write(at.join("data/c-0/leader-epoch-checkpoint"), "nonsense\n").expect("damage");
    bad(at, &["append", "data/c-0"], 1);
    bad(at, &["clean", "run", "data", "--write"], 1);
    assert!(!at.join(MARKER).exists());
}

/// A partition that is made anew has nothing of what the checkpoints say of one that was removed by hand.
#[test]
fn a_new_partition_begins_at_0() {
    let dir = folder();
    let at = dir.path();
    data(at);
    let points = "0\n1\nnew 0 11\n";
    for name in ["log-start-offset-checkpoint", "recovery-point-offset-checkpoint"] {
        fs::write(at.join("data").join(name), points).expect("old lines");
    }
    good(at, &["append", "data/new-0", "--quiet"], b"one\n");
    assert_eq!(text(&good(at, &["cat", "data/new-0", "--offsets"], b"")), "0\tone\n");
    assert_eq!(read(at.join("data/log-start-offset-checkpoint")), "0\n0\n");
}
