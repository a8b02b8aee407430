//! What goes in through `append` comes out through `cat`.

use std::fs;
use std::path::Path;

use kseg_io_backends::BackendSpec;

use crate::run::{folder, good, joined, kseg_in, lines, segments};

/// Small segments, so that a few thousand lines fill several.
const SMALL: [&str; 4] = ["--set", "internal.segment.bytes=30000", "--batch-size", "2000"];

fn append<'a>(dir: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["append", dir], more].concat()
}

#[test]
fn lines_come_back_identical_with_every_codec() {
    let lines = lines(4000);
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let dir = folder();
        good(dir.path(), &append("data/t-0", &[&SMALL[..], &["--codec", codec]].concat()), &joined(&lines));
        assert!(codec != "none" || segments(&dir.path().join("data/t-0")).len() > 3);
        assert_eq!(good(dir.path(), &["cat", "data/t-0"], b""), joined(&lines), "{codec}");
        for offset in [0, 1, 1999, 3999, 4000] {
            let from = good(dir.path(), &["cat", "data/t-0", "--offset", &offset.to_string()], b"");
            assert_eq!(from, joined(&lines[offset..]), "{codec} from {offset}");
        }
        let some = good(dir.path(), &["cat", "data/t-0", "-o", "1000", "--count", "17"], b"");
        assert_eq!(some, joined(&lines[1000..1017]), "{codec}");
        assert_eq!(good(dir.path(), &["cat", "data/t-0", "-o", "latest"], b""), b"", "{codec}");
        assert_eq!(good(dir.path(), &["cat", "data/t-0", "--count", "0"], b""), b"", "{codec}");
    }
}

#[test]
fn levels_are_handed_to_the_codec() {
    let text = joined(&lines(3000));
    let mut sizes = Vec::new();
    for level in ["-7", "19"] {
        let dir = folder();
        good(
            dir.path(),
            &append("d/t-0", &["--codec", "zstd", "--level", level, "--batch-size", "60000"]),
            &text,
        );
        sizes.push(fs::metadata(&segments(&dir.path().join("d/t-0"))[0]).expect("log").len());
        assert_eq!(good(dir.path(), &["cat", "d/t-0"], b""), text);
    }
    assert!(sizes[0] > sizes[1], "{sizes:?}");
}

#[test]
fn a_last_line_without_a_newline_is_a_line() {
    let dir = folder();
    good(dir.path(), &["append", "t-0"], b"one\n\ntwo");
    assert_eq!(good(dir.path(), &["cat", "t-0"], b""), b"one\n\ntwo\n");
}

#[test]
fn an_empty_input_makes_an_empty_partition() {
    let dir = folder();
    good(dir.path(), &["append", "new/dir/t-0"], b"");
    assert_eq!(good(dir.path(), &["cat", "new/dir/t-0"], b""), b"");
}

#[test]
fn offsets_go_on_where_the_last_run_ended() {
    let dir = folder();
    for n in 0..5 {
        let output = kseg_in(dir.path(), &["append", "t-0"], format!("a{n}\nb{n}\n").as_bytes());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains(&format!("offsets {}..{}", 2 * n, 2 * n + 1)), "{told}");
        assert!(told.contains("2 records") && told.contains("4 bytes"), "{told}");
    }
    let all = good(dir.path(), &["cat", "t-0", "--offsets"], b"");
    assert!(all.starts_with(b"0\ta0\n1\tb0\n2\ta1\n"), "{}", String::from_utf8_lossy(&all));
    let output = kseg_in(dir.path(), &["append", "t-0", "--quiet"], b"x\n");
    assert_eq!(output.stderr, b"");
}

#[test]
fn keys_come_back_in_front_of_a_tab() {
    let dir = folder();
    let text = b"k1\tv1\n\tno key text\nk3\t\nk\xff\ta\tb\n";
    good(dir.path(), &["append", "t-0", "--format", "key-value"], text);
    assert_eq!(good(dir.path(), &["cat", "t-0", "--key"], b""), text);
}

#[test]
fn json_lines_carry_everything() {
    let dir = folder();
    let text = concat!(
        r#"{"ts":10,"key":"k","value":"v","headers":[["a","1"],["a",null]]}"#,
        "\n",
        r#"{"ts":11,"key":null,"value":null}"#,
        "\n",
        r#"{"key":"","value":"","headers":{"b":{"enc":"hex","data":"ff00"}}}"#,
        "\n",
        r#"{"ts":12,"key":{"enc":"base64","data":"/wA="},"value":{"enc":"utf8","data":"é\n\""}}"#,
        "\n"
    );
    good(dir.path(), &["append", "a-0", "--format", "json", "--timestamps", "field"], text.as_bytes());
    let json = good(dir.path(), &["cat", "a-0", "--json"], b"");
    let shown: Vec<serde_json::Value> = String::from_utf8(json.clone())
        .expect("text")
        .lines()
        .map(|line| line.parse().expect("JSON"))
        .collect();
    assert_eq!(shown.len(), 4);
    assert_eq!(shown[0]["headers"][1], serde_json::json!(["a", null]));
    assert_eq!((&shown[0]["ts"], &shown[2]["ts"]), (&serde_json::json!(10), &serde_json::Value::Null));
    assert_eq!((&shown[1]["key"], &shown[1]["value"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    assert_eq!(shown[2]["key"], serde_json::json!({"enc": "utf8", "data": ""}));
    assert_eq!(shown[3]["key"], serde_json::json!({"enc": "base64", "data": "/wA="}));
    // What was printed can be taken in again.
    good(dir.path(), &["append", "b-0", "--format", "json", "--timestamps", "field"], &json);
    assert_eq!(good(dir.path(), &["cat", "b-0", "--json"], b""), json);
    let text = good(dir.path(), &["cat", "a-0", "--offsets", "--timestamps", "--headers", "--key"], b"");
    assert!(text.starts_with(b"0\t10\ta=1,a=\tk\tv\n1\t11\t\t\t\n2\t-1\tb=\xff\0\t\t\n"));
}

#[test]
fn records_are_found_by_time() {
    let dir = folder();
    let mut text = String::new();
    // Times ascend by ten, with one that lies far behind the others.
    for n in 0..3000 {
        let ms = 1_700_000_000_000_i64 + if n == 1500 { 5 } else { n * 10 };
        text.push_str(&format!("{ms}\tline {n}\n"));
    }
    let small = ["--set", "internal.segment.bytes=12000", "--batch-size", "2000"];
    good(dir.path(), &append("t-0", &[&small[..], &["--timestamps", "field"]].concat()), text.as_bytes());
    assert!(segments(&dir.path().join("t-0")).len() > 2);
    let first = |time: &str| {
        let line = good(dir.path(), &["cat", "t-0", "--time", time, "--count", "1"], b"");
        String::from_utf8(line).expect("text")
    };
    assert_eq!(first("0"), "line 0\n");
    assert_eq!(first("1700000000001"), "line 1\n");
    assert_eq!(first("1700000000010"), "line 1\n");
    assert_eq!(first("1700000014995"), "line 1501\n");
    assert_eq!(first("2023-11-14T22:13:40Z"), "line 2000\n");
    assert_eq!(first("1700000029990"), "line 2999\n");
    assert_eq!(first("1700000029991"), "");
    // The time indexes are hints: the answers are the same with garbage in them, and without them.
    for segment in segments(&dir.path().join("t-0")) {
        fs::write(segment.with_extension("timeindex"), [7; 36]).expect("garbage");
        fs::write(segment.with_extension("index"), [1; 24]).expect("garbage");
    }
    assert_eq!(first("1700000025000"), "line 2500\n");
    for segment in segments(&dir.path().join("t-0")) {
        fs::remove_file(segment.with_extension("timeindex")).expect("removed");
        fs::remove_file(segment.with_extension("index")).expect("removed");
    }
    assert_eq!(first("1700000025000"), "line 2500\n");
}

#[test]
fn records_have_the_time_that_was_asked_for() {
    let dir = folder();
    good(dir.path(), &["append", "t-0", "--timestamps", "none"], b"a\n");
    let shown = good(dir.path(), &["cat", "t-0", "--timestamps"], b"");
    assert_eq!(shown, b"-1\ta\n");
    good(dir.path(), &["append", "v-0", "--timestamps", "field"], &shown);
    assert_eq!(good(dir.path(), &["cat", "v-0", "--timestamps"], b""), shown);
    good(dir.path(), &["append", "u-0"], b"a\n");
    let line = String::from_utf8(good(dir.path(), &["cat", "u-0", "--timestamps"], b"")).expect("text");
    let ms: i64 = line.split('\t').next().expect("time").parse().expect("milliseconds");
    assert!(ms > 1_700_000_000_000, "{ms}");
}

#[test]
fn input_comes_from_a_file_and_durable_appends_are_the_same_files() {
    let dir = folder();
    let text = joined(&lines(500));
    fs::write(dir.path().join("input"), &text).expect("input");
    let more = ["--input", "input", "--timestamps", "none"];
    good(dir.path(), &append("a-0", &more), b"");
    good(dir.path(), &append("b-0", &[&more[..], &["--durable"]].concat()), b"");
    assert_eq!(good(dir.path(), &["cat", "b-0"], b""), text);
    let file = |name: &str| fs::read(&segments(&dir.path().join(name))[0]).expect("log");
    assert_eq!(file("a-0"), file("b-0"));
}

#[test]
fn every_backend_is_named_by_the_help_and_writes_the_same_file_or_says_why_it_cannot() {
    let help = String::from_utf8(good(Path::new("."), &["append", "--help"], b"")).expect("text");
    let words: Vec<&str> = help.split([' ', '\n', ',', ';']).collect();
    let dir = folder();
    let input = joined(&lines(500));
    let more = ["--timestamps", "none", "--linger", "100000", "--backend"];
    let appended = |data: &Path, spec: &str| {
        let args = [&append("t-0", &more)[..], &[spec]].concat();
        fs::create_dir_all(data).expect("a folder");
        let output = kseg_in(data, &args, &input);
        let told = String::from_utf8(output.stderr).expect("text");
        // Another engine is told of.
        let stood_for = told.starts_with(&format!("kseg: backend {spec} is "));
        assert_eq!(stood_for, spec.starts_with("auto") && output.status.success(), "{told}");
        if !output.status.success() {
            assert_eq!(output.status.code(), Some(2), "{told}");
            let why = ["is not to be had here", "; "];
            assert!(told.contains(spec) && why.iter().all(|why| told.contains(why)), "{told}");
            assert!(!data.join("t-0").exists(), "{spec}");
        }
        output.status.success().then(|| fs::read(data.join("t-0/00000000000000000000.log")).ok())
    };
    let expected = appended(&dir.path().join("by-default"), "std").expect("std is always there");
    let specs = BackendSpec::all().map(|spec| spec.to_string());
    for spec in specs.chain(["uring+direct,depth=2,zeroed=64k", "auto,depth=2"].map(str::to_owned)) {
        assert!(spec.contains('=') || words.contains(&&*spec), "{spec} in {help}");
        if let Some(file) = appended(&dir.path().join(&spec), &spec) {
            assert!(file == if spec == "memory" { None } else { expected.clone() }, "{spec}");
        }
    }
    if let Ok(tmpfs) = tempfile::tempdir_in("/dev/shm") {
        assert_eq!(appended(&tmpfs.path().join("refused"), "std+direct"), None);
        assert_eq!(appended(&tmpfs.path().join("auto"), "auto"), Some(expected));
    }
}

#[test]
fn a_partition_is_named_by_its_path_from_anywhere() {
    let dir = folder();
    good(dir.path(), &["append", "data/t-3"], b"a\n");
    let inside = dir.path().join("data/t-3");
    good(&inside, &["append", "."], b"b\n");
    good(&inside, &["append", "../t-3/"], b"c\n");
    assert_eq!(good(&inside, &["cat", "."], b""), b"a\nb\nc\n");
    let all = dir.path().join("data/t-3").to_string_lossy().into_owned();
    assert_eq!(good(dir.path(), &["cat", &all, "--count", "1"], b""), b"a\n");
}

#[test]
fn a_log_start_offset_of_the_data_directory_is_where_reading_begins() {
    let dir = folder();
    good(dir.path(), &["append", "t-0"], b"a\nb\nc\n");
    fs::write(dir.path().join("log-start-offset-checkpoint"), "0\n1\nt 0 2\n").expect("checkpoint");
    assert_eq!(good(dir.path(), &["cat", "t-0"], b""), b"c\n");
    assert_eq!(good(dir.path(), &["cat", "t-0", "--time", "0"], b""), b"c\n");
}
