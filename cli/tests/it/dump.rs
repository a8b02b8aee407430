//! `kseg dump`: what is shown, and which problems are named.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run::{bad, folder, good, kseg_in};

fn golden(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(case)
}

fn file(kind: &str) -> String {
    format!("00000000000000000000.{kind}")
}

fn parsed(json: &[u8]) -> Vec<Value> {
    std::str::from_utf8(json).expect("text").lines().map(|line| line.parse().expect("JSON")).collect()
}

/// Codes of the findings in a file that holds `bytes`, under this name, beside the first segment of the golden transactions.
fn found_in(name: &str, bytes: &[u8]) -> Vec<String> {
    let dir = folder();
    fs::copy(golden("transactions").join(file("log")), dir.path().join(file("log"))).expect("copy");
    fs::write(dir.path().join(name), bytes).expect("file");
    let output = kseg_in(dir.path(), &["dump", "--json", name], b"");
    let lines = parsed(&output.stdout);
    let codes: Vec<String> = of_type(&lines, "finding")
        .iter()
        .map(|line| line["code"].as_str().expect("code").to_owned())
        .collect();
    assert_eq!(output.status.code(), Some(i32::from(!codes.is_empty())), "{name}: {lines:?}");
    codes
}

fn of_type<'v>(lines: &'v [Value], kind: &str) -> Vec<&'v Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

/// Codes of the findings in files of a golden case, and the exit code.
fn findings(case: &str, files: &[&str]) -> (Vec<String>, i32) {
    let mut args = vec!["dump", "--json", "--records"];
    let files: Vec<String> = files.iter().map(|kind| file(kind)).collect();
    args.extend(files.iter().map(String::as_str));
    let output = kseg_in(&golden(case), &args, b"");
    let lines = parsed(&output.stdout);
    let codes = of_type(&lines, "finding")
        .iter()
        .map(|line| line["code"].as_str().expect("code").to_owned())
        .collect();
    (codes, output.status.code().expect("code"))
}

#[test]
fn files_of_a_real_kafka_have_no_problems() {
    for case in [
        "codec-none",
        "codec-gzip",
        "codec-snappy",
        "codec-lz4",
        "codec-zstd",
        "legacy-v0",
        "legacy-v1",
        "idempotence",
        "transactions",
        "timestamps",
        "timestamps-none",
        "sparse",
    ] {
        assert_eq!(findings(case, &["log", "index", "timeindex"]), (vec![], 0), "{case}");
    }
}

#[test]
fn batches_and_records_are_shown_with_all_their_fields() {
    let lines = parsed(&good(&golden("codec-lz4"), &["dump", &file("log"), "--json", "--records"], b""));
    let batches = of_type(&lines, "batch");
    let theirs = fs::read_to_string(golden("codec-lz4").join("print.out")).expect("recorded");
    let first = &batches[0];
    assert_eq!((&first["base"], &first["last"], &first["count"]), (&0.into(), &39.into(), &40.into()));
    assert_eq!(
        (&first["codec"], &first["magic"], &first["crc_ok"]),
        (&"lz4".into(), &2.into(), &true.into())
    );
    assert!(theirs.contains(&format!("crc: {} isvalid: true", first["crc"])));
    let records = of_type(&lines, "record");
    assert_eq!(records.len(), 85);
    assert_eq!(records[0]["key"], serde_json::json!({"enc": "utf8", "data": "k14"}));
    assert!(records[10]["value"].is_null());
    assert_eq!(records[2]["headers"].as_array().expect("headers").len(), 3);
    assert!(lines.iter().all(|line| line["v"] == 1));
    let text = String::from_utf8(good(&golden("codec-lz4"), &["dump", &file("log")], b"")).expect("text");
    assert!(
        text.starts_with("00000000000000000000.log: 5052 bytes, base offset 0\n  @0..39 pos=0 "),
        "{text}"
    );
    assert!(text.ends_with("  5 batches, no problems\n"), "{text}");
}

#[test]
fn control_records_are_named() {
    let lines = parsed(&good(&golden("control"), &["dump", &file("log"), "--json", "--records"], b""));
    let names: Vec<_> =
        of_type(&lines, "control").iter().map(|line| line["control"].as_str().expect("name")).collect();
    let expected = [
        "LEADER_CHANGE",
        "SNAPSHOT_HEADER",
        "SNAPSHOT_FOOTER",
        "KRAFT_VERSION",
        "KRAFT_VOTERS",
        "COMMIT",
        "ABORT",
    ];
    assert_eq!(names, expected);
    assert_eq!(of_type(&lines, "control")[5]["coordinator_epoch"], 7);
}

#[test]
fn damage_in_a_log_is_named_and_the_good_batches_behind_it_are_shown() {
    for (case, codes, code) in [
        ("damaged-zeros-17", &["K017"][..], 0),
        ("damaged-zeros-18", &["K017"], 0),
        ("damaged-cut-5", &["K012"], 1),
        ("damaged-cut-header", &["K012"], 1),
        ("damaged-junk-10", &["K012"], 1),
        ("damaged-tiny", &["K012"], 1),
        ("damaged-empty", &[], 0),
        ("damaged-magic-9", &["K011", "K018"], 1),
        ("damaged-magic-minus", &["K011", "K018"], 1),
        ("damaged-codec-7", &["K014"], 1),
        ("damaged-codec-gzip", &["K020"], 1),
        ("damaged-size-13", &["K011", "K018"], 1),
        ("damaged-size-minus", &["K011", "K018"], 1),
        ("damaged-size-huge", &["K012", "K018"], 1),
        ("damaged-flip-crc", &["K010"], 1),
        ("damaged-flip-value", &["K010"], 1),
        ("damaged-count-more", &["K020"], 1),
        ("damaged-count-less", &["K020"], 1),
        ("damaged-count-minus", &["K020"], 1),
    ] {
        assert_eq!(
            findings(case, &["log"]),
            (codes.iter().map(|c| (*c).to_owned()).collect(), code),
            "{case}"
        );
    }
    let output = kseg_in(&golden("damaged-size-13"), &["dump", &file("log"), "--json"], b"");
    let lines = parsed(&output.stdout);
    let bases: Vec<_> =
        of_type(&lines, "batch").iter().map(|line| line["base"].as_i64().expect("base")).collect();
    assert_eq!(bases, [0, 6, 9]);
    let finding = of_type(&lines, "finding")[0];
    assert_eq!(
        (&finding["pos"], &finding["offset"], &finding["found"]),
        (&112.into(), &3.into(), &"13".into())
    );
}

#[test]
fn ops_01_index_entries_are_compared_with_the_last_offset_of_a_batch() {
    for (case, codes, code) in [
        ("index-good", &[][..], 0),
        ("index-empty", &[], 0),
        ("index-preallocated", &["K035"], 0),
        ("index-preallocated-empty", &["K035"], 0),
        ("index-length-11", &["K030"], 1),
        ("index-length-5", &["K030"], 1),
        ("index-wrong-offset", &["K032"], 1),
        ("index-wrong-position", &["K032"], 1),
        ("index-descending", &["K031", "K031"], 1),
        ("index-at-the-end", &["K033"], 1),
        ("index-behind-the-end", &["K033"], 1),
        ("index-inside-a-batch", &["K033"], 1),
    ] {
        assert_eq!(
            findings(case, &["index"]),
            (codes.iter().map(|c| (*c).to_owned()).collect(), code),
            "{case}"
        );
    }
    for (case, codes, code) in [
        ("index-good", &[][..], 0),
        ("index-empty", &[], 0),
        ("index-preallocated", &["K045"], 0),
        ("index-length-11", &["K040"], 1),
        ("index-time-mismatch", &["K042"], 1),
        ("index-time-order", &["K041", "K041", "K041", "K041"], 1),
        ("index-time-not-found", &["K043"], 1),
    ] {
        let (found, exit) = findings(case, &["timeindex"]);
        assert_eq!(exit, code, "{case}");
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert!(
            codes.iter().all(|code| found.contains(code)) && (codes.is_empty() == found.is_empty()),
            "{case}: {found:?}"
        );
    }
}

#[test]
fn ops_02_nothing_that_is_read_is_changed() {
    let dir = folder();
    let mut before = Vec::new();
    for kind in ["log", "index", "timeindex"] {
        let path = dir.path().join(file(kind));
        fs::copy(golden("index-length-11").join(file(kind)), &path).expect("copy");
        let mut permissions = fs::metadata(&path).expect("file").permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions).expect("read-only");
        let meta = fs::metadata(&path).expect("file");
        before.push((fs::read(&path).expect("bytes"), meta.modified().expect("time"), path));
    }
    bad(dir.path(), &["dump", &file("log"), &file("index"), &file("timeindex")], 1);
    good(dir.path(), &["cat", "."], b"");
    assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 3);
    for (bytes, modified, path) in before {
        assert_eq!(fs::read(&path).expect("bytes"), bytes);
        assert_eq!(fs::metadata(&path).expect("file").modified().expect("time"), modified);
    }
}

#[test]
fn ops_03_files_that_cannot_be_shown_are_named_and_the_others_are_shown() {
    let dir = folder();
    fs::write(dir.path().join("x.foo"), b"").expect("file");
    fs::create_dir(dir.path().join("9.log")).expect("folder");
    fs::copy(golden("index-good").join(file("index")), dir.path().join("00000000000000000005.index"))
        .expect("copy");
    fs::copy(golden("contents").join(file("log")), dir.path().join(file("log"))).expect("copy");
    for wrong in ["missing.log", "missing.foo", "x.foo", "9.log", "00000000000000000005.index"] {
        let output = kseg_in(dir.path(), &["dump", wrong, &file("log")], b"");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{wrong}: {told}");
        let named = if wrong.ends_with("5.index") { "00000000000000000005.log" } else { wrong };
        assert!(told.starts_with("kseg: ") && told.contains(named), "{wrong}: {told}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("  2 batches, no problems"), "{wrong}");
    }
}

#[test]
fn ops_04_null_and_empty_are_told_apart() {
    let text =
        String::from_utf8(good(&golden("contents"), &["dump", &file("log"), "-r"], b"")).expect("text");
    let records: Vec<&str> = text.lines().filter(|line| line.starts_with("    @")).collect();
    assert!(records[1].ends_with("key=\"k\" value=null"), "{}", records[1]);
    assert!(records[2].ends_with("key=null value=\"v\""), "{}", records[2]);
    assert!(records[3].ends_with("key=null value=null"), "{}", records[3]);
    assert!(records[4].ends_with("key=\"\" value=\"\""), "{}", records[4]);
    assert!(records[5].ends_with("key=\"line\\nbreak\" value=0x74616209616e64006e756c"), "{}", records[5]);
}

#[test]
fn files_beside_the_segments_of_a_real_kafka_are_shown_and_have_no_problems() {
    let dir = golden("transactions");
    let names = [
        "00000000000000000000.txnindex",
        "00000000000000000013.txnindex",
        "00000000000000000013.snapshot",
        "leader-epoch-checkpoint",
    ];
    let text = String::from_utf8(good(&dir, &[&["dump"][..], &names].concat(), b"")).expect("text");
    let expected = [
        "00000000000000000000.txnindex: 68 bytes, base offset 0",
        "  pid=1 first=0 last=5 last-stable=2",
        "  pid=2 first=9 last=11 last-stable=6",
        "  2 entries, no problems",
        "00000000000000000013.txnindex: 34 bytes, base offset 13",
        "  pid=4 first=14 last=17 last-stable=13",
        "  1 entries, no problems",
        "00000000000000000013.snapshot: 102 bytes, base offset 13",
        "  pid=1 epoch=0 last-seq=3 base=6 last=7 time=2023-11-14T22:13:20.000Z coordinator-epoch=0",
        "  pid=2 epoch=0 last-seq=3 base=9 last=10 time=2023-11-14T22:13:20.000Z coordinator-epoch=0",
        "  2 producers, no problems",
        "leader-epoch-checkpoint: 8 bytes",
        "  epoch=0 start=0",
        "  1 entries, no problems",
        "",
    ];
    assert_eq!(text.lines().chain([""]).collect::<Vec<_>>(), expected);
    let lines = parsed(&good(&dir, &[&["dump", "--json"][..], &names].concat(), b""));
    assert_eq!(of_type(&lines, "finding").len(), 0);
    let producers = of_type(&lines, "producer");
    assert_eq!(
        producers[1],
        &serde_json::json!({
            "type": "producer", "v": 1, "file": names[2], "pid": 2, "epoch": 0, "last_seq": 3, "base": 9, "last": 10,
            "ts": 1_700_000_000_000_i64, "coordinator_epoch": 0, "txn_first": null,
        })
    );
    assert_eq!(of_type(&lines, "aborted").len(), 3);
    assert_eq!(of_type(&lines, "leader_epoch").len(), 1);
}

#[test]
fn what_is_wrong_in_a_transaction_index_is_named() {
    let right = fs::read(golden("transactions").join(file("txnindex"))).expect("index");
    let changed = |at: usize, byte: u8| {
        let mut bytes = right.clone();
        bytes[at] = byte;
        bytes
    };
    let entries: Vec<&[u8]> = right.chunks(34).collect();
    for (what, bytes, codes) in [
        ("right", right.clone(), &[][..]),
        ("emptied", Vec::new(), &["K055", "K055"]),
        ("one of two", entries[1].to_vec(), &["K055"]),
        ("half an entry", right[..60].to_vec(), &["K055", "K050"]),
        ("swapped", [entries[1], entries[0]].concat(), &["K051", "K052"]),
        ("begins behind its end", changed(17, 6), &["K052"]),
        ("stable behind its end", changed(33, 7), &["K052", "K052"]),
        ("of another producer", changed(9, 3), &["K054"]),
        ("with a marker where there is none", changed(25, 4), &["K054", "K055"]),
        ("with a committed transaction's marker", changed(34 + 25, 12), &["K054", "K055"]),
        ("of a later version", changed(34, 1), &["K053", "K055"]),
    ] {
        assert_eq!(found_in(&file("txnindex"), &bytes), codes, "{what}");
    }
    // Without a log to compare with, which is missed as it is for the other indexes, entries are shown all the same.
    let dir = folder();
    fs::write(dir.path().join(file("txnindex")), &right).expect("index");
    let output = kseg_in(dir.path(), &["dump", &file("txnindex")], b"");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("00000000000000000000.log: open: No such file"), "{told}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("  2 entries, no problems"));
}

#[test]
fn what_lies_behind_damage_in_the_log_says_nothing_of_its_transaction_index() {
    let dir = folder();
    let mut log = fs::read(golden("transactions").join(file("log"))).expect("log");
    fs::copy(golden("transactions").join(file("txnindex")), dir.path().join(file("txnindex"))).expect("copy");
    // The second batch's magic: both markers are behind it.
    let second = 12 + u32::from_be_bytes(log[8..12].try_into().expect("four bytes")) as usize;
    log[second + 16] = 9;
    fs::write(dir.path().join(file("log")), &log).expect("log");
    good(dir.path(), &["dump", &file("txnindex")], b"");
}

#[test]
fn what_is_wrong_in_a_producer_snapshot_is_named() {
    let right = fs::read(golden("transactions").join("00000000000000000013.snapshot")).expect("snapshot");
    let changed = |at: usize, byte: u8| {
        let mut bytes = right.clone();
        bytes[at] = byte;
        bytes
    };
    for (what, name, bytes, codes) in [
        ("right", 13, right.clone(), &[][..]),
        ("of an earlier end", 10, right.clone(), &["K061"]),
        ("emptied", 13, Vec::new(), &["K060"]),
        ("cut", 13, right[..90].to_vec(), &["K060"]),
        ("a flipped bit", 13, changed(20, 7), &["K060"]),
        ("of another version", 13, changed(1, 2), &["K060"]),
        ("with a number that cannot be", 13, changed(6, 0x80), &["K060"]),
    ] {
        assert_eq!(found_in(&format!("{name:020}.snapshot"), &bytes), codes, "{what}");
    }
}

#[test]
fn small_files_are_shown_and_what_is_wrong_in_them_is_named() {
    let dir = folder();
    let id = "MDEyMzQ1Njc4OWFiY2RlZg";
    for (name, text, shown) in [
        ("leader-epoch-checkpoint", "0\n2\n0 0\n3 5\n", "  epoch=0 start=0\n  epoch=3 start=5\n  2 entries"),
        (
            "recovery-point-offset-checkpoint",
            "0\n2\nb 1 7\na 0 5\n",
            "  topic=a partition=0 offset=5\n  topic=b partition=1 offset=7\n  2 entries",
        ),
        ("log-start-offset-checkpoint.damaged", "0\n0\n", "  0 entries"),
        ("replication-offset-checkpoint.tmp", "0\n1\na 0 5\n", "  topic=a partition=0 offset=5\n"),
        ("cleaner-offset-checkpoint", "", "  0 entries"),
        (
            "partition.metadata",
            &format!("version: 0\ntopic_id: {id}"),
            &format!("  version=0 topic-id={id}\n  1 entries"),
        ),
        (
            "meta.properties",
            "version=1\nnode.id=3\ncluster.id=a b\n",
            "  version=1 cluster-id=a b node-id=3\n  1 entries",
        ),
        (".kafka_cleanshutdown", "{\"version\":0,\"brokerEpoch\":10}", "  broker-epoch=10\n  1 entries"),
    ] {
        fs::write(dir.path().join(name), text).expect("file");
        let told = String::from_utf8(good(dir.path(), &["dump", name], b"")).expect("text");
        let heading = format!("{name}: {} bytes\n", text.len());
        let rest = told.strip_prefix(&heading).unwrap_or_else(|| panic!("{name}: {told}"));
        assert!(rest.starts_with(shown) && rest.ends_with(", no problems\n"), "{name}: {told}");
    }
    let lines = parsed(&good(dir.path(), &["dump", "--json", "meta.properties"], b""));
    assert_eq!(
        lines[0],
        serde_json::json!({
            "type": "meta_properties", "v": 1, "file": "meta.properties", "version": 1, "cluster_id": "a b",
            "node_id": 3, "directory_id": null,
        })
    );
    for (name, text, line, code) in [
        ("leader-epoch-checkpoint", "0\n1\n0\n", 3, "K002"),
        ("leader-epoch-checkpoint", "0\n2\n3 5\n2 9\n", 4, "K070"),
        ("leader-epoch-checkpoint", "0\n2\n3 5\n4 5\n", 4, "K070"),
        ("recovery-point-offset-checkpoint", "0\n2\na 0 5\n", 2, "K002"),
        ("recovery-point-offset-checkpoint", "1\n0\n", 1, "K002"),
        ("partition.metadata", "version: 0\n", 2, "K002"),
        ("meta.properties", "version=2\n", 1, "K002"),
    ] {
        fs::write(dir.path().join(name), text).expect("file");
        let output = kseg_in(dir.path(), &["dump", "--json", name], b"");
        let lines = parsed(&output.stdout);
        let finding = of_type(&lines, "finding")[0];
        assert_eq!((&finding["line"], &finding["code"]), (&line.into(), &code.into()), "{name}: {text}");
        assert_eq!(output.status.code(), Some(1), "{name}: {text}");
        let told = String::from_utf8_lossy(&kseg_in(dir.path(), &["dump", name], b"").stdout).into_owned();
        assert!(told.contains(&format!("{name}: at line {line}: expected ")), "{told}");
    }
}

#[test]
fn the_snapshot_of_a_metadata_log_is_shown_as_its_batches() {
    let dir = folder();
    let name = "00000000000000000123-0000000001.checkpoint";
    fs::copy(golden("control").join(file("log")), dir.path().join(name)).expect("copy");
    let text = String::from_utf8(good(dir.path(), &["dump", name, "-r"], b"")).expect("text");
    assert!(text.contains(" SNAPSHOT_HEADER (3)") && text.ends_with(" batches, no problems\n"), "{text}");
}
