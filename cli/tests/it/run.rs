//! Runs the built program.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

/// The program, to be given arguments.
pub(crate) fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_kseg"))
}

/// Runs the program in `dir` with `input` on standard input.
pub(crate) fn kseg_in(dir: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut child = command()
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start kseg");
    let mut stdin = child.stdin.take().expect("stdin");
    let input = input.to_vec();
    // A program that does not read its input closes it, which is not this writer's business.
    let feeder = thread::spawn(move || stdin.write_all(&input).unwrap_or(()));
    let output = child.wait_with_output().expect("kseg ends");
    feeder.join().expect("feeder");
    output
}

/// As [`kseg_in`]; the run must succeed. Returns standard output.
pub(crate) fn good(dir: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    let output = kseg_in(dir, args, input);
    assert!(output.status.success(), "kseg {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// As [`kseg_in`]; the run must end with `code`. Returns standard error.
pub(crate) fn bad(dir: &Path, args: &[&str], code: i32) -> String {
    let output = kseg_in(dir, args, b"");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "kseg {args:?}: {stderr}");
    stderr
}

/// A folder that is removed at the end of the test.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary folder")
}

/// `count` lines, some empty, some that are no text, none with a newline in it.
pub(crate) fn lines(count: usize) -> Vec<Vec<u8>> {
    let line = |n: usize| match n % 7 {
        0 => Vec::new(),
        1 => vec![0xff, 0, b'\r', b'\t', (n % 251) as u8 | 0x80],
        _ => format!("line {n} {}", "abcdefgh ".repeat(n % 23)).into_bytes(),
    };
    (0..count).map(line).collect()
}

/// The lines as a file has them.
pub(crate) fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.iter().flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
}

/// The log files in a partition's folder, ascending.
pub(crate) fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .expect("partition")
        .map(|file| file.expect("file").path())
        .filter(|file| file.extension().is_some_and(|suffix| suffix == "log"))
        .collect();
    files.sort();
    files
}
