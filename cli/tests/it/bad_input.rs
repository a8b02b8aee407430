//! What the program says of input that it cannot use: file, position, offset, expected and found.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::run::{bad, command, folder, good, joined, kseg_in, lines, segments, writing};

/// A partition with some batches in more than one segment.
fn partition(dir: &Path) -> Vec<std::path::PathBuf> {
    let args = ["append", "t-0", "--batch-size", "500", "--set", "internal.segment.bytes=5000", "--quiet"];
    good(dir, &args, &joined(&lines(400)));
    let segments = segments(&dir.join("t-0"));
    assert!(segments.len() > 2);
    segments
}

#[test]
fn a_folder_that_is_no_partition_is_refused() {
    let dir = folder();
    fs::create_dir(dir.path().join("empty-0")).expect("folder");
    fs::write(dir.path().join("file-0"), b"").expect("file");
    let told = bad(dir.path(), &["cat", "empty-0"], 1);
    assert!(told.contains("empty-0: expected a partition folder with segments"), "{told}");
    let told = bad(dir.path(), &["cat", "file-0"], 1);
    assert!(told.contains("file-0: expected a partition folder, found a file"), "{told}");
    let told = bad(dir.path(), &["cat", "missing-0"], 1);
    assert!(
        told.contains("missing-0: expected a partition folder, found nothing: it does not exist"),
        "{told}"
    );
    for name in ["file-0", "file-0/t-0"] {
        let told = bad(dir.path(), &["append", name], 1);
        assert!(told.contains("file-0"), "{told}");
    }
    assert_eq!(fs::read(dir.path().join("file-0")).expect("file"), b"");
}

#[test]
fn names_that_no_partition_can_have_are_refused_and_nothing_is_made() {
    let dir = folder();
    let long = format!("data/{}-0", "x".repeat(250));
    for name in [
        "data/topic",
        "data/-0",
        "data/t-",
        "data/t-x",
        "data/t-01",
        "data/t-2147483648",
        "data/a b-0",
        "data/ä-0",
        "data/.-0",
        "data/..-0",
        "data/t-0.0123-delete",
        &long,
    ] {
        let told = bad(dir.path(), &["append", name], 1);
        assert!(told.starts_with("kseg: ") && told.contains("expected"), "{name}: {told}");
        assert!(!dir.path().join("data").exists(), "{name}");
    }
    let told = bad(dir.path(), &["append", "data/a b-0"], 1);
    assert!(told.contains("legal topic name"), "{told}");
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let dir = folder();
    for args in [
        &["append"][..],
        &["append", "t-0", "--codec", "brotli"],
        &["append", "t-0", "--set", "segment.bytes"],
        &["append", "t-0", "--set", "segment.bytes=1"],
        &["append", "t-0", "--set", "retention.ms=-2"],
        &["append", "t-0", "--backend", "tape"],
        &["append", "t-0", "--linger", "-1"],
        &["append", "t-0", "--format", "xml"],
        &["cat", "t-0", "--offset", "-5"],
        &["cat", "t-0", "--offset", "first"],
        &["cat", "t-0", "--time", "yesterday"],
        &["cat", "t-0", "--time", "5", "--offset", "5"],
        &["dump"],
        &["frobnicate"],
    ] {
        let told = bad(dir.path(), args, 2);
        assert!(!told.is_empty(), "{args:?}");
        assert!(!dir.path().join("t-0").exists(), "{args:?}");
    }
}

#[test]
fn a_bad_line_is_named_and_the_lines_before_it_are_kept() {
    let dir = folder();
    let output =
        kseg_in(dir.path(), &["append", "t-0", "--format", "key-value"], b"a\tb\nc\td\nno tab\ne\tf\n");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("standard input: at line 3: expected key<TAB>value, found no tab"), "{told}");
    assert!(told.contains("appended 2 records"), "{told}");
    assert_eq!(good(dir.path(), &["cat", "t-0", "--key"], b""), b"a\tb\nc\td\n");
    let output =
        kseg_in(dir.path(), &["append", "j-0", "--format", "json"], b"{\"value\":\"a\"}\n{\"value\":b}\n");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "at line 2: expected a JSON object, found what is none: expected value at column 10";
    assert!(told.contains(expected), "{told}");
    let told = bad(dir.path(), &["append", "t-0", "--input", "missing.txt"], 1);
    assert!(told.contains("missing.txt: open: No such file"), "{told}");
    let told = bad(dir.path(), &["append", "t-0", "--input", "."], 1);
    assert!(told.contains("expected a file of lines, found a directory"), "{told}");
}

#[test]
fn a_record_larger_than_the_topic_takes_is_refused() {
    let dir = folder();
    let input = [b"small\n".to_vec(), vec![b'x'; 3000], b"\n".to_vec()].concat();
    let output = kseg_in(dir.path(), &["append", "t-0", "--set", "max.message.bytes=1000"], &input);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(good(dir.path(), &["cat", "t-0"], b""), b"small\n");
}

#[test]
fn ops_14_a_data_directory_that_is_open_elsewhere_is_refused_by_name() {
    let dir = folder();
    let mut holder = command()
        .args(["append", "t-0"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("holder");
    while !dir.path().join("t-0/00000000000000000000.log").exists() {
        std::thread::yield_now();
    }
    let told = bad(dir.path(), &["append", "t-0"], 1);
    assert!(told.contains(".lock"), "{told}");
    // Reading needs no lock.
    assert_eq!(good(dir.path(), &["cat", "t-0"], b""), b"");
    holder.kill().expect("killed");
    holder.wait().expect("holder ends");
    good(dir.path(), &["append", "t-0"], b"after\n");
    assert_eq!(good(dir.path(), &["cat", "t-0"], b""), b"after\n");
}

#[test]
fn an_offset_outside_the_log_is_refused() {
    let dir = folder();
    good(dir.path(), &["append", "t-0"], b"a\nb\n");
    let told = bad(dir.path(), &["cat", "t-0", "--offset", "3"], 1);
    assert!(told.contains("expected an offset from 0 to 2, found 3"), "{told}");
}

#[test]
fn a_flipped_bit_is_named_with_file_position_and_offset() {
    let dir = folder();
    let segments = partition(dir.path());
    let whole = fs::read(&segments[1]).expect("log");
    let base: u64 = segments[1].file_stem().expect("stem").to_string_lossy().parse().expect("base");
    let before = good(dir.path(), &["cat", "t-0", "--count", &base.to_string()], b"");
    // In the checksum, the attributes, a record.
    for at in [18, 22, 70] {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        fs::write(&segments[1], &flipped).expect("flipped");
        let output = kseg_in(dir.path(), &["cat", "t-0"], b"");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        let place = format!(
            "{}: at position 0 (offset {base}): expected ",
            "t-0/".to_owned() + &segments[1].file_name().expect("name").to_string_lossy()
        );
        assert!(told.starts_with(&format!("kseg: {place}")) && told.contains(", found "), "{told}");
        assert_eq!(output.stdout, before, "what is good before it is shown");
    }
    // In the size field and the base offset, which no checksum covers.
    for (at, bit) in [(8, 0x80), (11, 0xff), (16, 0x10), (0, 0x01), (0, 0x80)] {
        let mut flipped = whole.clone();
        flipped[at] ^= bit;
        fs::write(&segments[1], &flipped).expect("flipped");
        let told = bad(dir.path(), &["cat", "t-0"], 1);
        assert!(
            told.contains("at position ") && told.contains("expected ") && told.contains("found "),
            "{told}"
        );
    }
}

#[test]
fn damage_in_a_sealed_segment_is_no_quiet_end() {
    let dir = folder();
    let segments = partition(dir.path());
    let whole = fs::read(&segments[0]).expect("log");
    fs::write(&segments[0], &whole[..whole.len() - 3]).expect("cut");
    let told = bad(dir.path(), &["cat", "t-0"], 1);
    assert!(told.contains("a segment that has a successor"), "{told}");
    fs::write(&segments[0], [&whole[..], &[0; 200]].concat()).expect("zeros");
    let told = bad(dir.path(), &["cat", "t-0"], 1);
    assert!(told.contains("zeros in a segment that has a successor"), "{told}");
    // Behind the damage everything can be had.
    let base: usize = segments[1].file_stem().expect("stem").to_string_lossy().parse().expect("base");
    let rest = good(dir.path(), &["cat", "t-0", "--offset", &base.to_string()], b"");
    assert_eq!(rest, joined(&lines(400)[base..]));
}

#[test]
fn any_damage_of_a_batch_ends_in_an_error_or_in_the_right_lines() {
    let dir = folder();
    good(dir.path(), &["append", "t-0", "--codec", "lz4", "--quiet"], &joined(&lines(40)));
    let log = dir.path().join("t-0/00000000000000000000.log");
    let whole = fs::read(&log).expect("log");
    let right = good(dir.path(), &["cat", "t-0"], b"");
    for n in 0..60 {
        let at = n * 37 % whole.len();
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (n % 8);
        fs::write(&log, &damaged).expect("damaged");
        for args in [&["cat", "t-0"][..], &["dump", "t-0/00000000000000000000.log", "--records", "--json"]] {
            let output = kseg_in(dir.path(), args, b"");
            assert!(matches!(output.status.code(), Some(0 | 1)), "byte {at}: {:?}", output.status);
            let torn = output.stdout.is_empty();
            // Base offset and leader epoch are outside the checksum: the lines are the same then.
            let unseen = at < 16 || torn || output.stdout == right || args[0] == "dump";
            assert!(output.status.code() == Some(1) || unseen, "byte {at}: {args:?}");
        }
    }
}

#[test]
fn a_batch_of_the_last_segment_that_reaches_beyond_it_hides_nothing_quietly() {
    let dir = folder();
    good(dir.path(), &["append", "t-0", "--batch-size", "1", "--quiet"], b"one\ntwo\nthree\n");
    let log = segments(&dir.path().join("t-0")).pop().expect("a segment");
    let whole = fs::read(&log).expect("log");
    let second = 12 + u32::from_be_bytes(whole[8..12].try_into().expect("four bytes")) as usize;
    for (at, shown, position) in
        [(0, &b""[..], "position 0"), (second, b"one\n", &format!("position {second} "))]
    {
        let mut bytes = whole.clone();
        bytes[at + 10] ^= 0x40;
        fs::write(&log, &bytes).expect("damaged");
        let output = kseg_in(dir.path(), &["cat", "t-0"], b"");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*output.stdout), (Some(1), shown), "{told}");
        assert!(told.contains(position) && told.contains("expected a batch of 16"), "{told}");
        // Asked for no more than what is before it, nothing is wrong.
        let count = shown.len() / 4;
        good(dir.path(), &["cat", "t-0", "--count", &count.to_string()], b"");
    }
    // Nothing but the beginning of a batch.
    fs::write(&log, &whole[..second - 1]).expect("cut");
    let told = bad(dir.path(), &["cat", "t-0"], 1);
    assert!(told.contains(&format!("a batch of {second} bytes, found {} bytes", second - 1)), "{told}");
}

#[test]
fn a_level_that_the_codec_does_not_have_is_refused_before_anything_is_made() {
    let dir = folder();
    for (codec, level, words) in [
        ("gzip", "10", "gzip level 10: expected -1 to 9"),
        ("gzip", "0", "gzip level 0: expected -1 to 9, without 0"),
        ("lz4", "0", "lz4 level 0: expected 1 to 17"),
        ("zstd", "23", "zstd level 23: expected -131072 to 22"),
        ("snappy", "1", "snappy level 1: expected none"),
        ("none", "1", "none level 1: expected none"),
    ] {
        let told = bad(dir.path(), &["append", "data/t-0", "--codec", codec, "--level", level], 2);
        assert!(told.contains(words), "{told}");
        assert!(!dir.path().join("data").exists());
    }
    good(dir.path(), &["append", "data/t-0", "--codec", "zstd", "--level", "-5"], b"one\n");
}

#[test]
fn lines_of_a_refused_batch_are_named_and_not_counted_as_appended() {
    let dir = folder();
    // Lines 3 and 4 are a batch of their own, too old for the topic; line 5 would be the next one.
    let set = "message.timestamp.before.max.ms=1000000";
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let now = now.as_millis();
    let input = format!("{now}\tone\n{now}\ttwo\n5\tthree\n6\tfour\n7\tfive\n");
    let size = ["--linger", "60000", "--batch-size", "120"];
    let args = [&["append", "t-0", "--timestamps", "field", "--set", set], &size[..]].concat();
    let output = kseg_in(dir.path(), &args, input.as_bytes());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("appended 2 records of 5 lines, 34 bytes, offsets 0..1"), "{told}");
    assert!(told.contains("; refused 3 lines, 19 bytes"), "{told}");
    assert!(told.contains("standard input: at line 3 to 4: "), "{told}");
    assert_eq!(good(dir.path(), &["cat", "t-0"], b""), b"one\ntwo\n");

    // A single record that is too large is a line alone, and the ones before it stay.
    let input = [b"small\n".to_vec(), vec![b'x'; 3000], b"\nlast\n".to_vec()].concat();
    let output = kseg_in(dir.path(), &["append", "u-0", "--set", "max.message.bytes=1000"], &input);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("standard input: at line 2: ") && told.contains("appended 1 records"), "{told}");
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_that_names_the_file() {
    let dir = folder();
    let lines = lines(4000);
    fs::write(dir.path().join("lines"), joined(&lines)).expect("input");
    let script = "ulimit -f 100 && exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_kseg"), "append", "t-0", "--input", "lines"]);
    shell.args(["--set", "segment.index.bytes=4096"]).current_dir(dir.path());
    let output = shell.output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("t-0/00000000000000000000.log at ") && told.contains("File too large"), "{told}");
    assert!(dir.path().join(".kafka_cleanshutdown").exists(), "closed in order");
    told_is_there(dir.path(), &told, &lines);
}

/// What is told as appended can be read.
fn told_is_there(dir: &Path, told: &str, lines: &[Vec<u8>]) {
    let (_, appended) = told.split_once("t-0: appended ").expect("a summary");
    let count = appended.split(' ').next().and_then(|count| count.parse().ok()).expect("a count");
    assert_eq!(good(dir, &["cat", "t-0"], b""), joined(&lines[..count]), "{told}");
}

/// What a writer tells that keeps its last bytes in memory and cannot write them when it closes the log, to whose folder
/// `meanwhile` is done before. `None` where there are no direct writes.
fn told_by_one_that_cannot_close(
    dir: &Path,
    lines: &[Vec<u8>],
    meanwhile: impl FnOnce(&Path),
) -> Option<String> {
    let (mut writer, mut stdin) =
        writing(dir, &["append", "t-0", "--backend", "std+direct", "--batch-size", "2000", "-q"]);
    stdin.write_all(&joined(lines)).expect("written");
    stdin.flush().expect("flushed");
    // An index entry is made when its batch has been taken; by then space is set aside, and half of the lines is enough.
    let index = dir.join("t-0/00000000000000000000.index");
    while fs::read(&index).map_or(true, |index| index.iter().take(80).all(|byte| *byte == 0)) {
        if writer.try_wait().expect("a writer").is_some() {
            let output = writer.wait_with_output().expect("output");
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(told.contains("direct is not to be had here"), "{told}");
            println!("skipped: {told}");
            return None;
        }
        thread::yield_now();
    }
    let limit = Rlimit { current: Some(10), maximum: Some(10) };
    let pid = Pid::from_child(&writer);
    prlimit(Some(pid), Resource::Fsize, limit).expect("a limit");
    meanwhile(&dir.join("t-0"));
    drop(stdin);
    let output = writer.wait_with_output().expect("writer ends");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("File too large"), "{told}");
    Some(told)
}

#[test]
fn records_that_are_lost_when_the_log_is_closed_are_not_told_as_appended() {
    let dir = folder();
    let lines: Vec<_> = (0..5000).map(|n| format!("line {n}").into_bytes()).collect();
    let Some(told) = told_by_one_that_cannot_close(dir.path(), &lines, |_| ()) else { return };
    assert!(told.contains("; lost ") && told.contains(" when the log was closed"), "{told}");
    told_is_there(dir.path(), &told, &lines);
}

#[test]
fn of_a_log_that_can_neither_be_closed_nor_read_nothing_is_told_as_lost() {
    let dir = folder();
    let lines: Vec<_> = (0..5000).map(|n| format!("line {n}").into_bytes()).collect();
    let removed = |folder: &Path| fs::remove_dir_all(folder).expect("removed");
    let Some(told) = told_by_one_that_cannot_close(dir.path(), &lines, removed) else { return };
    assert!(told.contains("t-0: which of the offsets 0.."), "{told}");
    assert!(told.contains(" the log has cannot be read: ") && !told.contains("lost"), "{told}");
}

#[test]
fn records_whose_sync_has_failed_are_told_as_such() {
    let dir = folder();
    let lines = lines(4000);
    fs::write(dir.path().join("lines"), joined(&lines)).expect("input");
    let fails = "inject=fdatasync:error=EIO:when=3+";
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", fails]);
    strace.args([env!("CARGO_BIN_EXE_kseg"), "append", "t-0", "--input", "lines"]);
    strace.args(["--durable", "--batch-size", "2000", "-q"]).current_dir(dir.path());
    let output = match strace.output() {
        Ok(output) => output,
        Err(error) => return println!("skipped: strace does not run here: {error}"),
    };
    let told = String::from_utf8_lossy(&output.stderr);
    if !told.contains("t-0: appended ") {
        assert!(told.contains("strace: "), "{told}");
        return println!("skipped: strace may not trace here: {told}");
    }
    assert_eq!(output.status.code(), Some(1), "{told}");
    told_is_there(dir.path(), &told, &lines);
    let (_, appended) = told.split_once(", offsets 0..").expect("the offsets");
    let (last, _) = appended.split_once(',').expect("the last of them");
    let (durable, end) = match told.split_once("; offsets ").and_then(|(_, rest)| rest.split_once("..")) {
        Some((durable, end)) => (durable.parse::<u64>().expect("an offset"), end),
        None => panic!("{told}"),
    };
    assert!(durable > 0 && end.starts_with(&format!("{last} may not survive a loss of power")), "{told}");
}
