//! The program as it is called.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use kseg_io_backends::BackendSpec;

fn bench(arguments: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kseg-bench")).args(arguments).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_tiny_run_prints_where_it_ran_and_writes_json() {
    let dir = tempfile::tempdir().unwrap();
    let output =
        bench(&["--tiny", "--scenarios", "append-16k,encode-100x100b", "--json", "out.json"], dir.path());
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    for word in
        ["machine", "kernel", "file system", "fdatasync", "extending", "build", "append-16k", "results equal"]
    {
        assert!(printed.contains(word), "{word} in {printed}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("out.json")).unwrap()).unwrap();
    assert_eq!(json["tiny"], true);
    assert_eq!(json["scenarios"][0]["scenario"], "append-16k");
    assert_eq!(json["scenarios"][0]["measured"]["entrants"][0]["slices"].as_array().unwrap().len(), 2);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the report is left");
}

#[test]
fn two_runs_have_the_same_hashes() {
    let dir = tempfile::tempdir().unwrap();
    let hashes = || {
        let printed = text(&bench(&["--tiny", "--scenarios", "append*,lookup"], dir.path()).stdout);
        let lines: Vec<String> =
            printed.lines().filter(|line| line.contains("hash")).map(str::to_owned).collect();
        assert_eq!(lines.len(), 11, "{printed}");
        lines
    };
    assert_eq!(hashes(), hashes());
}

#[test]
fn scenarios_of_one_run_find_nothing_of_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(&["--tiny", "--scenarios", "many*,append-16k"], dir.path());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn the_help_names_every_backend() {
    let dir = tempfile::tempdir().unwrap();
    let printed = text(&bench(&["--help"], dir.path()).stdout);
    let words: Vec<&str> = printed.split([' ', '\n', ',', '.', ':', '`']).collect();
    for spec in BackendSpec::all() {
        assert!(words.contains(&spec.to_string().as_str()), "{spec} in {printed}");
    }
}

#[test]
fn the_list_names_what_runs_by_default_and_what_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let printed = text(&bench(&["--list"], dir.path()).stdout);
    assert!(printed.lines().any(|line| line == "lookup"), "{printed}");
    assert!(printed.lines().any(|line| line == "encode-codecs-1000x1k (on request)"), "{printed}");
}

#[test]
fn a_signal_ends_it_with_its_files_removed_and_the_report_written() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than anybody waits.
    let arguments = [
        "--seconds",
        "0.05",
        "--rounds",
        "1000000",
        "--scenarios",
        "encode-100x100b,lookup",
        "--json",
        "out.json",
    ];
    let mut program = Command::new(env!("CARGO_BIN_EXE_kseg-bench"));
    let mut child = program.args(arguments).current_dir(dir.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(printed.any(|line| line.starts_with("scenario")), "the head of the table");
    // Which process it is: one that has been started and not waited for.
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest: Vec<String> = printed.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest[0].starts_with("encode-100x100b") && rest[0].contains("stopped"), "{rest:?}");
    assert_eq!(rest.len(), 1, "nothing else was begun: {rest:?}");
    let names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["out.json"]);
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("out.json")).unwrap()).unwrap();
    assert_eq!(json["scenarios"][0]["failed"], "stopped");
}

#[test]
fn a_limit_on_the_size_of_files_fails_the_work_that_meets_it_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 200 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_kseg-bench")]);
    shell.args([
        "--tiny",
        "--seconds",
        "0.05",
        "--scenarios",
        "append-16k,encode-100x100b",
        "--backends",
        "std",
    ]);
    let output = shell.current_dir(dir.path()).output().unwrap();
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("File too large") && printed.contains("results equal"), "{printed}");
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "its files are removed");
}

#[test]
fn a_report_that_cannot_be_written_is_told_of_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let output = bench(&["--tiny", "--json", "not/there.json"], dir.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("not/there.json"), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).contains("results equal"));
}

#[test]
fn a_reader_who_has_seen_enough_ends_the_run_quietly() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [&["--list"][..], &["--tiny", "--scenarios", "append-16k"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut run = Command::new(env!("CARGO_BIN_EXE_kseg-bench"));
        let child = run.args(arguments).current_dir(dir.path()).stdout(writer).stderr(Stdio::piped()).spawn();
        let output = child.unwrap().wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn nonsense_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&["--scenarios", "no-such"], "no-such"),
        (&["--backends", "floppy"], "floppy"),
        (&["--backends", "std,depth=4"], "depth"),
        (&["--backends", "auto"], "name that one"),
        (&["--rounds", "0"], "round"),
        (&["--seconds", "0"], "length"),
        (&["--rate", "0"], "arrivals"),
        (&["--dir", "not/there"], "not/there"),
    ];
    for (arguments, word) in cases {
        let output = bench(arguments, dir.path());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(word), "{arguments:?}: {}", text(&output.stderr));
    }
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
}
