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
