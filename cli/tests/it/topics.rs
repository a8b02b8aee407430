//! Topics of a data directory that stands alone.

use crate::run::{all, bad, folder, good, kseg_in};

fn text(out: Vec<u8>) -> String {
    String::from_utf8(out).expect("text")
}

#[test]
fn a_topic_is_made_described_changed_and_deleted() {
    let dir = folder();
    let run = |args: &[&str]| text(good(dir.path(), args, b""));
    assert_eq!(
        run(&[
            "topics",
            "create",
            "data",
            "orders",
            "--partitions",
            "3",
            "--config",
            "cleanup.policy=compact"
        ]),
        ""
    );
    run(&["topics", "create", "data", "events"]);
    assert_eq!(run(&["topics", "list", "data"]), "events\norders\n");
    for n in 0..3 {
        assert!(dir.path().join(format!("data/orders-{n}/partition.metadata")).is_file());
    }
    let described = run(&["topics", "describe", "data", "orders"]);
    assert!(described.starts_with("orders\tpartitions=3\tid="), "{described}");
    assert!(described.ends_with("\tcleanup.policy=compact\n"), "{described}");
    let all = run(&["topics", "describe", "data", "orders", "--all"]);
    assert!(
        all.contains("\tsegment.bytes=1073741824 ") && all.contains("file.delete.delay.ms=60000"),
        "{all}"
    );
    run(&[
        "topics",
        "alter",
        "data",
        "orders",
        "--config",
        "retention.ms=5",
        "--delete-config",
        "cleanup.policy",
    ]);
    run(&["topics", "alter", "data", "orders", "--partitions", "4"]);
    let json = run(&["topics", "describe", "data", "--json"]);
    let lines: Vec<&str> = json.lines().collect();
    assert!(lines[0].starts_with(r#"{"type":"topic","v":1,"topic":"events","id":""#), "{json}");
    assert!(lines[1].ends_with(r#""partitions":4,"config.retention.ms":"5"}"#), "{json}");
    run(&["topics", "delete", "data", "orders"]);
    assert_eq!(run(&["topics", "list", "data"]), "events\n");
    assert!(!dir.path().join("data/orders-0").exists());
}

#[test]
fn a_topics_configuration_is_in_force_for_append() {
    let dir = folder();
    good(dir.path(), &["topics", "create", "data", "t", "--config", "internal.segment.bytes=2000"], b"");
    let input = "a line of some length\n".repeat(500);
    good(dir.path(), &["append", "data/t-0", "--batch-size", "1000"], input.as_bytes());
    let logs = || {
        let files = std::fs::read_dir(dir.path().join("data/t-0")).expect("list");
        files.filter(|f| f.as_ref().expect("a file").path().extension().is_some_and(|e| e == "log")).count()
    };
    assert!(logs() > 3, "{}", logs());
    // The command line goes over it.
    good(dir.path(), &["append", "data/u-0", "--batch-size", "1000"], input.as_bytes());
    let before = logs();
    let args = ["append", "data/t-0", "--batch-size", "1000", "--set", "internal.segment.bytes=1000000"];
    good(dir.path(), &args, input.as_bytes());
    assert!(logs() <= before + 1, "{before} {}", logs());
    assert_eq!(text(good(dir.path(), &["topics", "list", "data"], b"")), "t\nu\n");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let dir = folder();
    good(dir.path(), &["topics", "create", "data", "a.b"], b"");
    for (args, code, expected) in [
        (&["topics", "create", "data", "a.b"][..], 1, "there is one already"),
        (&["topics", "create", "data", "a_b"], 1, "collides with that of a.b"),
        (&["topics", "create", "data", "x/y"], 1, "x/y"),
        (&["topics", "create", "data", "t", "--partitions", "0"], 1, "0 partitions"),
        (&["topics", "create", "data", "t", "--config", "segment.bytes=13"], 1, "segment.bytes"),
        (&["topics", "create", "data", "t", "--config", "segment.bytes"], 2, "found no ="),
        (&["topics", "alter", "data", "t", "--config", "segment.ms=5"], 1, "there is no such topic"),
        (&["topics", "alter", "data", "a.b"], 2, "expected --config"),
        (&["topics", "alter", "data", "a.b", "--partitions", "1"], 1, "expected at least 2"),
        (
            &["topics", "alter", "data", "a.b", "--config", "retention.ms=5", "--partitions", "1"],
            1,
            "expected at least 2",
        ),
        (&["topics", "alter", "data", "a.b", "--delete-config", "segment.ms"], 1, "no value for segment.ms"),
        (&["topics", "describe", "data", "t"], 1, "a topic t"),
        (&["topics", "delete", "data", "t"], 1, "there is no such topic"),
        (&["topics", "list", "nowhere"], 1, "nowhere"),
    ] {
        let error = bad(dir.path(), args, code);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    assert_eq!(text(good(dir.path(), &["topics", "list", "data"], b"")), "a.b\n");
    let described = text(good(dir.path(), &["topics", "describe", "data"], b""));
    assert!(
        described.contains("partitions=1") && described.contains("configuration: defaults"),
        "{described}"
    );
    std::fs::write(dir.path().join("data/kseg-topics.json"), "{\"version\":1,\n\"topics\":7}")
        .expect("damaged");
    let output = kseg_in(dir.path(), &["topics", "list", "data"], b"");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("kseg-topics.json") && error.contains("line 2"),
        "{error}"
    );
}

/// What a broker's metadata log does not know of is not done by a slip.
#[test]
fn a_brokers_directory_is_changed_only_where_that_was_said() {
    let dir = folder();
    good(dir.path(), &["append", "data/t-0"], b"one\n");
    let properties = "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\n";
    std::fs::write(dir.path().join("data/meta.properties"), properties).expect("a file");
    let before = all(dir.path());
    for args in [
        &["topics", "create", "data", "u"][..],
        &["topics", "alter", "data", "t", "--partitions", "2"],
        &["topics", "delete", "data", "t"],
    ] {
        let told = bad(dir.path(), args, 2);
        assert!(told.contains("data/meta.properties is there): say --write"), "{told}");
        assert!(all(dir.path()) == before, "{args:?}");
    }
    for args in [
        &["topics", "create", "data", "u", "--write"][..],
        &["topics", "alter", "data", "t", "--partitions", "2", "--write"],
        &["topics", "delete", "data", "t", "--write"],
    ] {
        good(dir.path(), args, b"");
    }
    assert_eq!(text(good(dir.path(), &["topics", "list", "data"], b"")), "u\n");
}
