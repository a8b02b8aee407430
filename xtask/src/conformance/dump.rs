//! Kafka's dump tool: over folders that kseg wrote it must find nothing wrong, and over those and Kafka's own folders
//! `kseg compat dump-log` must print the same lines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::compare::View;
use super::differences::HELD;
use super::folders::copied;
use super::golden::{partitions, temporary};
use super::oracle::kafka;
use super::story::{self, Story};
use crate::{Outcome, shell, workspace};

/// Each way of asking, by the options besides the files.
const WAYS: &[&[&str]] = &[
    &[],
    &["--deep-iteration"],
    &["--print-data-log"],
    &["--print-data-log", "--skip-record-metadata"],
    &["--verify-index-only"],
    &["--index-sanity-check"],
];

/// Those that look for what is wrong.
const CHECKS: &[&[&str]] = &[&["--deep-iteration"], &["--verify-index-only"], &["--index-sanity-check"]];

/// What the tool writes to standard error when an index disagrees with its log.
const WRONG: &[&str] = &[
    "Mismatches in",
    "Found timestamp mismatch",
    "Found out of order timestamp",
    "indexed offsets are not found",
    "Exception",
];

/// Stories whose golden folders hold damage on purpose: the tool ends at the first of it.
const DAMAGED: &str = "recover-";

/// # Errors
/// Findings of Kafka's tool, and lines that differ.
pub(crate) fn run() -> Outcome {
    let kseg = built()?;
    let folder = temporary()?;
    let ours = folder.path().join("kseg");
    for name in HELD {
        let story = Story::load(name)?;
        let place = ours.join(name);
        fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
        // What differs in the answers is told where stories are compared.
        story.play(&place, &story.expected(story.golden_answers()?)?, View::Whole)?;
    }
    // Copies: the tool may write to what it reads.
    let theirs = folder.path().join("kafka");
    for name in story::names()?.iter().filter(|n| !n.starts_with(DAMAGED)) {
        for partition in partitions(&story::harness().join("golden").join(name))? {
            copied(&partition, &theirs.join(name).join(partition.file_name().unwrap_or_default()))?;
        }
    }
    let mut wrong = Vec::new();
    for (whose, place) in [("kseg", &ours), ("Kafka", &theirs)] {
        let files = files(place)?;
        for way in WAYS {
            compare(&kseg, whose, &files, way, &mut wrong)?;
        }
        println!("dump   {} files of {whose}, {} ways", files.len(), WAYS.len());
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n  ")) }
}

/// The tool `kseg`, built.
///
/// # Errors
/// It does not build.
pub(crate) fn built() -> Result<PathBuf, String> {
    shell::run(&mut shell::cargo(["build", "-p", "kseg"]))?;
    Ok(workspace::load()?.target.join("debug/kseg"))
}

/// All files of the kinds that the tool knows and kseg prints, below a folder of stories.
fn files(place: &Path) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    for story in partitions(place)? {
        for partition in partitions(&story)? {
            out.extend(known_files(&partition)?);
        }
    }
    Ok(out)
}

/// Those of one partition. A time index whose offset index nobody has opened yet is left out: Kafka's tool looks its entries
/// up there, and fails to make that file.
fn known_files(partition: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(partition).map_err(|e| format!("{}: {e}", partition.display()))?;
    let mut names: Vec<PathBuf> = entries.filter_map(Result::ok).map(|e| e.path()).collect();
    names.sort();
    let known = |p: &PathBuf| {
        let kind = p.extension().and_then(|e| e.to_str()).unwrap_or_default();
        ["log", "index"].contains(&kind) || kind == "timeindex" && p.with_extension("index").exists()
    };
    Ok(names.iter().filter(|p| known(p)).map(|p| p.to_string_lossy().into_owned()).collect())
}

/// Whether Kafka's tool finds nothing wrong in the partitions of a data directory.
///
/// # Errors
/// What it finds.
pub(super) fn sound(data: &Path) -> Outcome {
    let mut files = Vec::new();
    for partition in partitions(data)? {
        files.extend(known_files(&partition)?);
    }
    for way in CHECKS {
        let mut tool = kafka(["dump", "--files", &files.join(",")]);
        let done = output(tool.args(*way))?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let wrong = said.lines().find(|line| WRONG.iter().any(|w| line.contains(w)));
        if wrong.is_some() || !done.status.success() {
            let line = wrong.or_else(|| said.lines().last()).unwrap_or_default();
            return Err(format!(
                "{}, {way:?}: Kafka's tool ends with {}: {line}",
                data.display(),
                done.status
            ));
        }
    }
    Ok(())
}

fn compare(kseg: &Path, whose: &str, files: &[String], way: &[&str], wrong: &mut Vec<String>) -> Outcome {
    let list = files.join(",");
    let mut ours = Command::new(kseg);
    ours.args(["compat", "dump-log", "--files", &list]).args(way);
    let mut theirs = kafka(["dump", "--files", &list]);
    theirs.args(way);
    // kseg first: Kafka's tool may mend what it reads.
    let (ours, theirs) = (output(&mut ours)?, output(&mut theirs)?);
    let label = format!("files of {whose}, {way:?}");
    let complaints = String::from_utf8_lossy(&theirs.stderr).into_owned();
    let complaint = complaints.lines().find(|l| WRONG.iter().any(|w| l.contains(w)));
    if whose == "kseg"
        && let Some(line) = complaint
    {
        wrong.push(format!("{label}: Kafka's tool finds: {line}"));
    }
    if ours.status.success() != theirs.status.success() {
        let own = String::from_utf8_lossy(&ours.stderr).into_owned();
        wrong.push(format!(
            "{label}: Kafka's tool ends with {} ({}), kseg with {} ({})",
            theirs.status,
            complaint.unwrap_or_default(),
            ours.status,
            own.lines().last().unwrap_or_default()
        ));
    }
    if ours.stdout != theirs.stdout {
        wrong.push(format!("{label}: {}", first_difference(&theirs.stdout, &ours.stdout)));
    }
    Ok(())
}

fn output(command: &mut Command) -> Result<Output, String> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))
}

/// The first line that differs, below the file that it is about.
fn first_difference(kafka: &[u8], kseg: &[u8]) -> String {
    let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect::<Vec<_>>();
    let (theirs, ours) = (lines(kafka), lines(kseg));
    let at = theirs.iter().zip(&ours).position(|(a, b)| a != b).unwrap_or(theirs.len().min(ours.len()));
    let about = theirs[..at].iter().rfind(|l| l.starts_with("Dumping ")).map_or("", String::as_str);
    let line = |lines: &[String]| {
        lines.get(at).map_or_else(|| "nothing".to_owned(), |l| l.chars().take(300).collect())
    };
    format!("line {} ({about})\n    Kafka: {}\n    kseg:  {}", at + 1, line(&theirs), line(&ours))
}
