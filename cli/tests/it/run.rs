//! Runs the built program.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
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

/// Starts the program in `dir`, to be written to as the test goes on. What it tells is kept.
pub(crate) fn writing(dir: &Path, args: &[&str]) -> (Child, ChildStdin) {
    let mut child = command()
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start kseg");
    let stdin = child.stdin.take().expect("stdin");
    (child, stdin)
}

/// Starts the program in `dir`, to be read from as the test goes on.
pub(crate) fn reading(dir: &Path, args: &[&str]) -> (Child, ChildStdout) {
    let mut child = command().args(args).current_dir(dir).stdout(Stdio::piped()).spawn().expect("start kseg");
    let stdout = child.stdout.take().expect("stdout");
    (child, stdout)
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

/// A file's content, none of a folder, and the seconds and nanoseconds of its last change.
type Found = (Option<Vec<u8>>, (i64, i64));

/// Names, contents and times of everything below a folder, itself included.
pub(crate) fn all(folder: &Path) -> BTreeMap<PathBuf, Found> {
    let metadata = fs::metadata(folder).expect("a folder");
    let time = |metadata: fs::Metadata| (metadata.mtime(), metadata.mtime_nsec());
    let mut found = BTreeMap::from([(folder.to_path_buf(), (None, time(metadata)))]);
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(all(&path));
        } else {
            let (bytes, metadata) = (fs::read(&path).expect("a file"), path.metadata().expect("a file"));
            found.insert(path, (Some(bytes), time(metadata)));
        }
    }
    found
}

/// The program in the hands of a user whom permissions bind, who owns all that is in `dir`.
pub(crate) struct Bound {
    program: PathBuf,
    dir: PathBuf,
    root: bool,
}

/// Whom nothing belongs to, on every Linux.
const NOBODY: u32 = 65534;

impl Bound {
    pub(crate) fn new(dir: &Path) -> Bound {
        let program = dir.join("kseg-program");
        fs::copy(env!("CARGO_BIN_EXE_kseg"), &program).expect("a copy of the program");
        let root = program.metadata().expect("the program").uid() == 0;
        let bound = Bound { program, dir: dir.to_owned(), root };
        bound.permit(dir, 0o755);
        bound.own(dir);
        bound
    }

    fn own(&self, path: &Path) {
        if self.root {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("a new owner");
        }
        if path.is_dir() {
            fs::read_dir(path).expect("a folder").for_each(|e| self.own(&e.expect("an entry").path()));
        }
    }

    pub(crate) fn permit(&self, path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        if self.root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.args(args).current_dir(&self.dir).stdin(Stdio::null()).output().expect("kseg ends")
    }
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
