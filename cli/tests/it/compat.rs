//! `kseg compat dump-log` beside what Kafka's own tool printed, recorded under `tests/golden`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::run::kseg_in;

fn golden() -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    // The program names the folder that it runs in without links.
    golden.canonicalize().expect("golden folder")
}

/// The cases whose folder begins with `prefix`, with the runs recorded in them.
fn cases(prefix: &str) -> Vec<(PathBuf, Vec<Run>)> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(golden()).expect("golden folder") {
        let dir = entry.expect("entry").path();
        let name = dir.file_name().expect("name").to_string_lossy().into_owned();
        if !name.starts_with(prefix) || !dir.is_dir() {
            continue;
        }
        let mut runs: Vec<Run> = fs::read_dir(&dir)
            .expect("case")
            .map(|file| file.expect("file").path())
            .filter(|file| file.extension().is_some_and(|suffix| suffix == "cmd"))
            .map(|file| Run::read(&file))
            .collect();
        runs.sort_by(|a, b| a.name.cmp(&b.name));
        cases.push((dir, runs));
    }
    cases.sort();
    assert!(!cases.is_empty(), "no case begins with {prefix}");
    cases
}

/// One run of Kafka's tool.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    name: String,
    args: Vec<String>,
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Run {
    fn read(cmd: &Path) -> Run {
        let text = fs::read_to_string(cmd).expect("cmd");
        let mut lines = text.splitn(3, '\n');
        Run {
            name: cmd.file_stem().expect("stem").to_string_lossy().into_owned(),
            args: lines.next().expect("arguments").split(' ').map(str::to_owned).collect(),
            code: lines.next().expect("code").parse().expect("code"),
            stdout: fs::read(cmd.with_extension("out")).expect("out"),
            stderr: lines.next().unwrap_or_default().to_owned(),
        }
    }

    /// What differs, in words; standard output and exit code always, findings on standard error where there are any.
    fn differs_from(&self, ours: &Output, dir: &Path) -> Option<String> {
        let stderr = String::from_utf8_lossy(&ours.stderr).replace(&*dir.to_string_lossy(), "$DIR");
        if ours.status.code() != Some(self.code) {
            return Some(format!("exit code {:?} instead of {}: {stderr}", ours.status.code(), self.code));
        }
        if ours.stdout != self.stdout {
            let (ours, theirs) =
                (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&self.stdout));
            let line = ours.lines().zip(theirs.lines()).position(|(a, b)| a != b);
            let line = line.unwrap_or_else(|| ours.lines().count().min(theirs.lines().count()));
            return Some(format!(
                "standard output, line {}:\n  ours  {:?}\n  Kafka {:?}\n  {stderr}",
                line + 1,
                ours.lines().nth(line),
                theirs.lines().nth(line)
            ));
        }
        if self.code == 0 && blocks(&stderr) != blocks(&self.stderr) {
            return Some(format!("standard error:\n  ours  {stderr:?}\n  Kafka {:?}", self.stderr));
        }
        None
    }
}

/// The findings, each with its heading; Kafka's order of files is that of a hash map.
fn blocks(stderr: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    for line in stderr.lines() {
        match blocks.last_mut() {
            Some(block) if line.starts_with("  ") || line.starts_with("Indexed offset") => {
                block.push('\n');
                block.push_str(line);
            }
            _ => blocks.push(line.to_owned()),
        }
    }
    blocks.sort();
    blocks
}

fn compare(prefix: &str) {
    let mut differences = Vec::new();
    for (dir, runs) in cases(prefix) {
        assert!(!runs.is_empty(), "nothing recorded in {}", dir.display());
        for run in runs {
            let mut args = vec!["compat", "dump-log"];
            args.extend(run.args.iter().map(String::as_str).filter(|arg| !arg.is_empty()));
            let ours = kseg_in(&dir, &args, b"");
            if let Some(difference) = run.differs_from(&ours, &dir) {
                differences.push(format!("{} {}: {difference}", dir.display(), run.name));
            }
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn directories_of_a_real_kafka_are_dumped_as_its_own_tool_dumps_them() {
    for story in
        ["clean-", "codec-", "idempotence", "legacy-", "roll-", "sparse", "timestamps", "transactions"]
    {
        compare(story);
    }
}

#[test]
fn odd_keys_values_and_headers_are_printed_alike() {
    compare("contents");
}

#[test]
fn control_records_are_printed_alike() {
    compare("control");
}

#[test]
fn damaged_logs_end_at_the_same_place_of_the_output() {
    compare("damaged-");
}

#[test]
fn indexes_are_checked_alike() {
    compare("index-");
}

#[test]
fn reading_an_index_leaves_the_directory_as_it_was() {
    for case in ["index-length-11", "index-alone"] {
        let dir = tempfile::tempdir().expect("temporary folder");
        let mut before = Vec::new();
        for file in fs::read_dir(golden().join(case)).expect("case") {
            let file = file.expect("file").path();
            let name = file.file_name().expect("name").to_owned();
            fs::copy(&file, dir.path().join(&name)).expect("copy");
            before.push((name, fs::read(&file).expect("bytes")));
        }
        before.sort();
        let files = "00000000000000000007.timeindex";
        kseg_in(dir.path(), &["compat", "dump-log", "--files", files], b"");
        let files = "00000000000000000000.index,00000000000000000000.timeindex";
        kseg_in(dir.path(), &["compat", "dump-log", "--index-sanity-check", "--files", files], b"");
        let mut after: Vec<_> = fs::read_dir(dir.path())
            .expect("list")
            .map(|file| file.expect("file").path())
            .map(|file| (file.file_name().expect("name").to_owned(), fs::read(&file).expect("bytes")))
            .collect();
        after.sort();
        assert_eq!(before, after, "{case}");
    }
}
