//! Compaction of a data directory.

use std::path::Path;

use kseg_format::Offset;
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

/// A compacted topic of `segments` small segments, each with the same two keys.
fn many_segments(at: &Path, segments: usize, config: &[&str]) {
    let mut create = vec!["topics", "create", "data", "t", "--config", "cleanup.policy=compact"];
    create.extend(["--config", "min.cleanable.dirty.ratio=0.01"]);
    create.extend(config);
    good(at, &create, b"");
    let lines: String = (0..2 * segments).map(|n| format!("k{}\t{}\n", n % 2, "x".repeat(100))).collect();
    let small = ["--batch-size", "350", "--set", "internal.segment.bytes=400", "--linger", "100000"];
    let append = ["append", "data/t-0", "--format", "key-value", "-q"];
    good(at, &[&append[..], &small].concat(), lines.as_bytes());
    assert!(crate::run::segments(&at.join("data/t-0")).len() >= segments, "segments");
}

/// Runs the program with a limit of the shell's `ulimit`; it must succeed. Returns both outputs.
fn limited(at: &Path, limit: &str, args: &[&str]) -> String {
    let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_kseg")]).args(args).current_dir(at);
    let output = shell.output().expect("a shell");
    let told = text(output.stdout) + &text(output.stderr);
    assert!(output.status.success(), "kseg {args:?} under {limit}: {told}");
    told
}

/// Not a descriptor a segment: neither for the reading of a round, nor for what is asked of segments before it, nor for looks at
/// keys all over the log.
#[test]
fn a_log_may_have_more_segments_than_there_are_descriptors() {
    for lag in ["max.compaction.lag.ms=1", "min.compaction.lag.ms=1"] {
        let folder = folder();
        let at = folder.path();
        many_segments(at, 300, &["--config", lag]);
        for how in [
            &["clean", "status", "data"][..],
            &["clean", "plan", "data"],
            &["clean", "plan", "data", "--verify-keys"],
        ] {
            limited(at, "-n 160", how);
        }
        limited(at, "-n 160", &["clean", "run", "data", "--write", "--verify-keys"]);
        assert!(at.join("data/.kafka_cleanshutdown").exists(), "the marker of a clean stop");
        // Two records, and what the active segment holds.
        assert!(text(good(at, &["cat", "data/t-0"], b"")).lines().count() <= 6);
    }
}

/// An index that a broker leaves has its full size, and nothing in it; and partitions are looked at one by one.
#[test]
fn a_look_takes_no_memory_for_what_is_empty() {
    let folder = folder();
    let at = folder.path();
    good(
        at,
        &["topics", "create", "data", "t", "--partitions", "60", "--config", "cleanup.policy=compact"],
        b"",
    );
    good(at, &["append", "data/t-0", "--format", "key-value", "-q"], b"a\tb\n");
    for n in 0..60 {
        let dir = at.join(format!("data/t-{n}"));
        for name in ["log", "index", "timeindex"].map(|kind| format!("00000000000000000000.{kind}")) {
            if n > 0 {
                std::fs::copy(at.join("data/t-0").join(&name), dir.join(&name)).expect("a copy");
            }
        }
    }
    for n in 0..60 {
        for (kind, size) in [("index", 10_485_760), ("timeindex", 10_485_756)] {
            let path = at.join(format!("data/t-{n}/00000000000000000000.{kind}"));
            let file = std::fs::OpenOptions::new().write(true).open(path).expect("an index");
            file.set_len(size).expect("its full size");
        }
    }
    for _ in ["after an orderly stop", "after a crash"] {
        for how in [&["clean", "status", "data"][..], &["clean", "plan", "data", "--map-bytes", "100000"]] {
            let said = limited(at, "-v 400000", how);
            assert_eq!(said.matches("active segment").count(), 60, "{said}");
        }
        let _gone = std::fs::remove_file(at.join("data/.kafka_cleanshutdown"));
    }
}

/// A partition that nobody asked for is not opened.
#[test]
fn a_look_at_one_partition_needs_no_other() {
    let folder = folder();
    let at = folder.path();
    data(at);
    good(at, &["topics", "create", "data", "u"], b"");
    std::fs::write(at.join("data/u-0/partition.metadata"), "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
        .expect("metadata");
    for what in ["status", "plan"] {
        assert!(text(good(at, &["clean", what, "data", "t-0"], b"")).contains("active segment"));
        // With it the others are still told of.
        let output = kseg_in(at, &["clean", what, "data"], b"");
        assert_eq!(output.status.code(), Some(1));
        assert!(text(output.stdout).contains("t-0") && text(output.stderr).contains("u-0"), "{what}");
    }
}

/// Whoever appends, rolls and cleans meanwhile, a look sees a log that is whole.
#[test]
fn looks_beside_a_writer_succeed() {
    let folder = folder();
    let at = folder.path();
    data(at);
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            for round in 0..3 {
                let lines: String =
                    (0..600).map(|n| format!("k{}\t{}\n", (n * 7 + round) % 100, "x".repeat(200))).collect();
                let append = ["append", "data/t-0", "--format", "key-value", "-q"];
                good(
                    at,
                    &[&append[..], &["--batch-size", "5000", "--set", "internal.segment.bytes=10000"]]
                        .concat(),
                    lines.as_bytes(),
                );
                good(
                    at,
                    &["clean", "run", "data", "--write", "--all", "--set", "internal.segment.bytes=30000"],
                    b"",
                );
            }
        });
        while !writer.is_finished() {
            for what in ["status", "plan"] {
                let said = text(good(at, &["clean", what, "data"], b""));
                assert!(said.contains("t-0") && !said.contains("unknown"), "{said}");
            }
        }
    });
}

#[test]
fn what_a_round_replaced_is_gone_when_the_run_ends() {
    let folder = folder();
    let at = folder.path();
    // Also where the topic has a delay of its own.
    many_segments(at, 20, &["--config", "file.delete.delay.ms=100000"]);
    good(at, &["clean", "run", "data", "--write", "--map-bytes", "60"], b"");
    let names = std::fs::read_dir(at.join("data/t-0")).expect("a partition");
    let left: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".deleted")), "{left:?}");
}

#[test]
fn options_that_cannot_work_are_refused_before_anything_is_changed() {
    let folder = folder();
    let at = folder.path();
    data(at);
    let before = all(&at.join("data"));
    for (option, value, told) in [
        ("--map-bytes", "18446744073709551615", "map_bytes"),
        ("--map-bytes", "1", "map_bytes"),
        ("--set", "segment.index.bytes=4", "segment.index.bytes"),
        ("--set", "no.such.key=4", "no.such.key"),
        ("--rate", "0", "max_bytes_per_second"),
    ] {
        let refused = bad(at, &["clean", "run", "data", "--write", "--roll", option, value], 2);
        assert!(refused.contains(told), "{refused}");
    }
    assert!(all(&at.join("data")) == before);
}

#[test]
fn a_log_start_inside_the_only_segment_leaves_it_all_active() {
    let folder = folder();
    let at = folder.path();
    data(at);
    std::fs::write(at.join("data/log-start-offset-checkpoint"), "0\n1\nt 0 7\n").expect("a checkpoint");
    let status = text(good(at, &["clean", "status", "data"], b""));
    assert!(status.contains("active segment") && !status.contains("since the last round"), "{status}");
}

/// A signal ends a round at its next read; the directory is left in order, and the next run does the rest.
#[test]
fn a_signal_ends_a_run_in_order() {
    let folder = folder();
    let at = folder.path();
    good(at, &["topics", "create", "data", "t", "--config", "cleanup.policy=compact"], b"");
    let lines: String = (0..20_000).map(|n| format!("k{}\t{}\n", n % 10, "x".repeat(100))).collect();
    good(at, &["append", "data/t-0", "--format", "key-value", "-q"], lines.as_bytes());
    let mut run = command();
    run.args(["clean", "run", "data", "--write", "--all", "--roll", "--rate", "1000"]).current_dir(at);
    let mut run = run.stdout(std::process::Stdio::null()).spawn().expect("start kseg");
    // The round is under way once the log has been rolled.
    while crate::run::segments(&at.join("data/t-0")).len() < 2 {
        assert!(run.try_wait().expect("kseg").is_none(), "it runs until it is told to stop");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let told = std::process::Command::new("kill").args(["-TERM", &run.id().to_string()]).status();
    assert!(told.expect("kill").success());
    assert_eq!(run.wait().expect("kseg").code(), Some(128 + 15));
    let names = std::fs::read_dir(at.join("data/t-0")).expect("a partition");
    let left: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains(".cleaned")), "{left:?}");
    assert!(at.join("data/.kafka_cleanshutdown").exists(), "the marker of a clean stop");
    // The log is as it was, or as it is to be, if the round came to its end before the signal was seen.
    let left = text(good(at, &["cat", "data/t-0"], b"")).lines().count();
    assert!([20_000, 10].contains(&left), "{left}");
    good(at, &["clean", "run", "data", "--write", "--all"], b"");
    assert_eq!(text(good(at, &["cat", "data/t-0"], b"")).lines().count(), 10);
}

/// A length that is damaged is no reason to take memory for it.
#[test]
fn a_batch_is_not_as_long_as_it_says() {
    const CLAIMED: u32 = 390 << 20;
    let folder = folder();
    let at = folder.path();
    data(at);
    good(at, &["clean", "run", "data", "--write", "--roll", "--set", "min.cleanable.dirty.ratio=1"], b"");
    let log = std::fs::OpenOptions::new().write(true).open(at.join("data/t-0/00000000000000000000.log"));
    let log = log.expect("a log");
    log.set_len(u64::from(CLAIMED) + 4096).expect("a hole");
    std::os::unix::fs::FileExt::write_all_at(&log, &CLAIMED.to_be_bytes(), 8).expect("a length");
    let script = "ulimit -v 400000 && exec \"$0\" \"$@\"";
    let mut shell = std::process::Command::new("sh");
    shell.args([
        "-c",
        script,
        env!("CARGO_BIN_EXE_kseg"),
        "clean",
        "run",
        "data",
        "--write",
        "--map-bytes",
        "100000",
    ]);
    let output = shell.current_dir(at).output().expect("a shell");
    let told = text(output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for named in ["00000000000000000000.log", "position 0", "checksum"] {
        assert!(told.contains(named), "{named}: {told}");
    }
}

/// What is dirty begins behind the active segment's base then.
#[test]
fn the_status_of_a_trimmed_log_names_no_range_that_goes_back() {
    let folder = folder();
    let at = folder.path();
    good(at, &["append", "data/t-0"], &b"a line\n".repeat(20));
    let backend = kseg_io_backends::open("std").expect("std is always there");
    let dir = LogDir::open(&at.join("data"), LogDirOptions::new(backend)).expect("a directory");
    let log = dir.get_or_create(&TopicPartition::new("t", 0), None).expect("a log");
    log.update_high_watermark(log.log_end_offset());
    log.delete_records_before(Some(Offset::new(11))).expect("trimmed");
    drop(log);
    dir.shutdown().expect("closed");
    let status = text(good(at, &["clean", "status", "data"], b""));
    assert!(status.contains("no dirty offsets from 11 on"), "{status}");
}
