//! Reading beside a writer.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use crate::run::{bad, command, folder, good, joined, kseg_in, lines, reading, segments, writing};

#[test]
fn a_follower_sees_every_line_of_a_writer_that_rolls() {
    let dir = folder();
    good(dir.path(), &["append", "t-0"], b"first\n");
    let count = 6000;
    let (mut reader, mut stdout) =
        reading(dir.path(), &["cat", "t-0", "--follow", "--count", &(count + 1).to_string()]);
    let seen = thread::spawn(move || {
        let mut seen = Vec::new();
        stdout.read_to_end(&mut seen).expect("output");
        seen
    });
    let lines = lines(count);
    let (mut writer, mut stdin) = writing(
        dir.path(),
        &["append", "t-0", "--set", "internal.segment.bytes=20000", "--batch-size", "700", "--linger", "0"],
    );
    for part in lines.chunks(500) {
        stdin.write_all(&joined(part)).expect("written");
        stdin.flush().expect("flushed");
        thread::yield_now();
    }
    drop(stdin);
    assert!(writer.wait().expect("writer ends").success());
    assert!(reader.wait().expect("reader ends").success());
    assert_eq!(seen.join().expect("seen"), [b"first\n".to_vec(), joined(&lines)].concat());
    assert!(segments(&dir.path().join("t-0")).len() > 5);
}

#[test]
fn a_record_is_seen_while_its_writer_waits_for_more_input() {
    let dir = folder();
    let (mut writer, mut stdin) = writing(dir.path(), &["append", "t-0", "--linger", "1"]);
    stdin.write_all(b"now\n").expect("written");
    while !dir.path().join("t-0/00000000000000000000.log").exists() {
        thread::yield_now();
    }
    let (mut reader, stdout) = reading(dir.path(), &["cat", "t-0", "--follow"]);
    let mut shown = BufReader::new(stdout).lines();
    assert_eq!(shown.next().expect("line").expect("text"), "now");
    stdin.write_all(b"later\n").expect("written");
    assert_eq!(shown.next().expect("line").expect("text"), "later");
    drop(stdin);
    assert!(writer.wait().expect("writer ends").success());
    reader.kill().expect("killed");
    reader.wait().expect("reader ends");
}

#[test]
fn a_tail_that_is_not_whole_is_left_out_quietly() {
    let dir = folder();
    good(dir.path(), &["append", "t-0", "--batch-size", "1"], b"one\ntwo\nthree\n");
    let log = dir.path().join("t-0/00000000000000000000.log");
    let whole = fs::read(&log).expect("log");
    let last = whole.len() / 3 * 2;
    for end in last..whole.len() {
        fs::write(&log, &whole[..end]).expect("cut");
        let shown = good(dir.path(), &["cat", "t-0"], b"");
        assert!(shown == b"one\ntwo\n" || shown == b"one\n", "{end}: {shown:?}");
    }
    // Space set aside ahead of the end.
    for zeros in [1, 17, 18, 61, 100_000] {
        fs::write(&log, [&whole[..], &vec![0; zeros]].concat()).expect("zeros");
        assert_eq!(good(dir.path(), &["cat", "t-0"], b""), b"one\ntwo\nthree\n", "{zeros}");
    }
}

/// As a writer leaves it that writes whole blocks into space set aside before: the last batch is there up to a block.
#[test]
fn a_batch_that_is_written_up_to_a_block_is_left_out_quietly() {
    let dir = folder();
    let log = dir.path().join("t-0/00000000000000000000.log");
    good(dir.path(), &["append", "t-0", "--batch-size", "1", "--timestamps", "field"], b"7\tone\n8\ttwo\n");
    let before = fs::metadata(&log).expect("log").len() as usize;
    let long = [&b"9\t"[..], &[b'x'; 3000], b"\n"].concat();
    good(dir.path(), &["append", "t-0", "--batch-size", "1", "--timestamps", "field"], &long);
    let whole = fs::read(&log).expect("log");
    for blocks in 1..=whole.len() / 512 {
        let written = blocks * 512;
        fs::write(&log, [&whole[..written], &vec![0; 20_000]].concat()).expect("a begun batch");
        for args in [&["cat", "t-0"][..], &["cat", "t-0", "--time", "7"]] {
            assert_eq!(good(dir.path(), args, b""), b"one\ntwo\n", "{blocks} {args:?}");
        }
        for args in
            [&["cat", "t-0", "-o", "latest"][..], &["cat", "t-0", "-o", "2"], &["cat", "t-0", "--time", "9"]]
        {
            assert_eq!(good(dir.path(), args, b""), b"", "{blocks} {args:?}");
        }
        bad(dir.path(), &["cat", "t-0", "-o", "3"], 1);
        let told = kseg_in(dir.path(), &["dump", "t-0/00000000000000000000.log"], b"");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains("K012") && told.contains(&format!("zeros from {written} on")), "{told}");
        assert!(!told.contains("K010"), "{told}");
        // With more behind it, it is damage.
        for zeros in [20_000, 100_000] {
            fs::write(&log, [&whole[..written], &vec![0; zeros], &whole[..before]].concat()).expect("damage");
            let told = bad(dir.path(), &["cat", "t-0"], 1);
            assert!(told.contains("at position 142 (offset 2): expected"), "{told}");
        }
    }
}

#[test]
fn a_batch_of_which_not_even_the_header_is_written_is_left_out_quietly() {
    let size_with = |value: usize, dir: &Path| {
        good(dir, &["append", "t-0", "--batch-size", "1"], &[&vec![b'x'; value][..], b"\n"].concat());
        fs::metadata(dir.join("t-0/00000000000000000000.log")).expect("log").len() as usize
    };
    let overhead = size_with(300, folder().path()) - 300;
    // Bytes of the header before the block: inside the offset, the size, the leader epoch, behind the magic byte.
    for begun in [1, 7, 8, 9, 10, 12, 15, 16, 17, 30, 60] {
        let dir = folder();
        assert_eq!(size_with(512 - begun - overhead, dir.path()), 512 - begun);
        good(dir.path(), &["append", "t-0"], &joined(&lines(100)));
        let log = dir.path().join("t-0/00000000000000000000.log");
        let whole = fs::read(&log).expect("log");
        fs::write(&log, [&whole[..512], &[0; 9000]].concat()).expect("a begun header");
        assert_eq!(good(dir.path(), &["cat", "t-0"], b"").len(), 512 - begun - overhead + 1, "{begun}");
        assert_eq!(good(dir.path(), &["cat", "t-0", "-o", "latest"], b""), b"", "{begun}");
        good(dir.path(), &["cat", "t-0", "-o", "1"], b"");
        good(dir.path(), &["cat", "t-0", "--time", "9999999999999"], b"");
    }
}

#[test]
fn a_follower_waits_for_the_rest_of_a_batch_that_is_written_up_to_a_block() {
    let dir = folder();
    let log = dir.path().join("t-0/00000000000000000000.log");
    good(dir.path(), &["append", "t-0", "--batch-size", "1"], b"one\n");
    good(dir.path(), &["append", "t-0", "--batch-size", "1"], &[&[b'x'; 3000][..], b"\n"].concat());
    let whole = fs::read(&log).expect("log");
    fs::write(&log, [&whole[..1024], &[0; 20_000]].concat()).expect("a begun batch");
    let (mut reader, stdout) = reading(dir.path(), &["cat", "t-0", "--follow", "--count", "2"]);
    let mut shown = BufReader::new(stdout).lines();
    assert_eq!(shown.next().expect("line").expect("text"), "one");
    fs::write(&log, [&whole[..], &[0; 20_000]].concat()).expect("the rest");
    assert_eq!(shown.next().expect("line").expect("text"), "x".repeat(3000));
    assert!(reader.wait().expect("reader ends").success());
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_command_quietly() {
    let dir = folder();
    good(dir.path(), &["append", "t-0"], &joined(&lines(20_000)));
    let mut reader = command()
        .args(["cat", "t-0"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("reader");
    let mut some = [0; 100];
    reader.stdout.take().expect("stdout").read_exact(&mut some).expect("some");
    let output = reader.wait_with_output().expect("reader ends");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn what_was_told_as_appended_survives_a_killed_writer() {
    let dir = folder();
    let lines = lines(3000);
    let (mut writer, mut stdin) =
        writing(dir.path(), &["append", "t-0", "--linger", "0", "--set", "internal.segment.bytes=20000"]);
    stdin.write_all(&joined(&lines)).expect("written");
    stdin.flush().expect("flushed");
    // All of it can be read, though the writer still waits for more.
    while !dir.path().join("t-0/00000000000000000000.log").exists() {
        thread::yield_now();
    }
    let followed = good(dir.path(), &["cat", "t-0", "--follow", "--count", "3000"], b"");
    assert_eq!(followed, joined(&lines));
    writer.kill().expect("killed");
    writer.wait().expect("writer ends");
    assert_eq!(good(dir.path(), &["cat", "t-0"], b""), joined(&lines));
    // The next writer recovers and goes on behind it.
    good(dir.path(), &["append", "t-0"], b"more\n");
    assert_eq!(good(dir.path(), &["cat", "t-0", "-o", "3000"], b""), b"more\n");
    assert_eq!(good(dir.path(), &["cat", "t-0", "--count", "3000"], b""), joined(&lines));
}

#[test]
fn a_writer_that_is_told_to_stop_keeps_what_it_has_taken() {
    let dir = folder();
    let (writer, mut stdin) = writing(dir.path(), &["append", "t-0", "--linger", "60000"]);
    stdin.write_all(b"one\ntwo\nthree\n").expect("written");
    stdin.flush().expect("flushed");
    // The folder is there before the first line is looked at, and a line takes far less than this.
    while !dir.path().join("t-0/00000000000000000000.index").exists() {
        thread::yield_now();
    }
    thread::sleep(std::time::Duration::from_millis(500));
    let told = command_kill(writer.id());
    assert!(told.success());
    let output = writer.wait_with_output().expect("writer ends");
    assert_eq!(output.status.code(), Some(128 + 15));
    assert!(String::from_utf8_lossy(&output.stderr).contains("offsets 0..2"), "{:?}", output.stderr);
    assert_eq!(good(dir.path(), &["cat", "t-0"], b""), b"one\ntwo\nthree\n");
    assert!(dir.path().join(".kafka_cleanshutdown").exists());
    drop(stdin);
}

fn command_kill(id: u32) -> std::process::ExitStatus {
    std::process::Command::new("kill").args(["-TERM", &id.to_string()]).status().expect("kill")
}

#[test]
fn a_follower_ends_when_nobody_reads_its_output_any_more() {
    let dir = folder();
    good(dir.path(), &["append", "t-0"], b"one\ntwo\n");
    let mut reader = command()
        .args(["cat", "t-0", "--follow"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("reader");
    let mut shown = BufReader::new(reader.stdout.take().expect("stdout"));
    let mut line = String::new();
    shown.read_line(&mut line).expect("a line");
    drop(shown);
    // Nothing more is appended, so nothing more is written: it must find out by itself.
    for _ in 0..400 {
        if reader.try_wait().expect("asked").is_some() {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(50));
    }
    // Where it still runs, this ends it, and the code says so.
    reader.kill().expect("killed, or ended before");
    let output = reader.wait_with_output().expect("reader ends");
    assert_eq!((line.as_str(), output.status.code(), output.stderr), ("one\n", Some(0), Vec::new()));
}
