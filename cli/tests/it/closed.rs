//! Pipes that nobody reads: no error, and no panic.

use std::fs;
use std::io::pipe;
use std::process::Stdio;

use crate::run::{command, folder, good};

/// With nobody on standard error each command ends as it does with somebody there.
#[test]
fn a_closed_standard_error_changes_nothing() {
    let dir = folder();
    good(dir.path(), &["append", "data/t-0", "--quiet"], b"one\ntwo\n");
    fs::write(dir.path().join("lines"), "three\n").expect("lines");
    fs::write(dir.path().join("other.txt"), "").expect("a file");
    let log = "data/t-0/00000000000000000000.log";
    for (args, code, printed) in [
        (&["append", "data/t-0", "--input", "lines"][..], 0, ""),
        (&["dump", "missing.log", log], 1, log),
        (&["cat", "missing-0"], 1, ""),
        (&["topics", "create", "data", "u"], 0, ""),
        (&["topics", "alter", "data", "u", "--config", "retention.ms=5"], 0, ""),
        (&["topics", "alter", "data", "u"], 2, ""),
        (&["topics", "delete", "data", "u"], 0, ""),
        (&["clean", "run", "data"], 2, ""),
        (&["compat", "dump-log"], 1, ""),
        (&["compat", "dump-log", "--files", "missing.log"], 1, ""),
        (&["compat", "dump-log", "--files", "other.txt"], 0, ""),
    ] {
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        let output = command()
            .args(args)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(writer)
            .spawn()
            .and_then(|child| child.wait_with_output())
            .expect("kseg ends");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(printed), "{args:?}");
    }
    assert_eq!(good(dir.path(), &["cat", "data/t-0"], b""), b"one\ntwo\nthree\n");
}

#[test]
fn a_closed_standard_output_ends_a_command_quietly() {
    let dir = folder();
    good(dir.path(), &["topics", "create", "data", "t"], b"");
    good(dir.path(), &["append", "data/t-0", "--quiet"], b"one\n");
    for args in [
        &["cat", "data/t-0"][..],
        &["dump", "data/t-0/00000000000000000000.log"],
        &["topics", "list", "data"],
        &["topics", "describe", "data"],
        &["clean", "status", "data"],
        &["clean", "plan", "data"],
        &["compat", "dump-log", "--version"],
        &["compat", "dump-log", "--files", "data/t-0/00000000000000000000.log"],
    ] {
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        let output = command()
            .args(args)
            .current_dir(dir.path())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .and_then(|child| child.wait_with_output())
            .expect("kseg ends");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !told.contains("panicked"), "{args:?}: {told}");
    }
}
