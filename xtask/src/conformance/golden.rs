//! The part of the comparison that needs no Java: recorded answers, recorded folders.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::compare::{self, View};
use super::differences::{NOT_RUN, held};
use super::folders;
use super::story::{self, Story};

/// What became of one story.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// How much of it is held; `None` where nothing is.
    pub(crate) held: Option<View>,
    /// What differs under that view; for a story that is not held, under the widest view that was tried.
    pub(crate) found: Vec<String>,
    /// The widest view under which it agrees.
    pub(crate) agrees: Option<View>,
}

impl Verdict {
    pub(crate) fn failed(&self) -> bool {
        self.held.is_some() && self.agrees.is_none()
    }
}

/// Plays one story against Kafka's recorded answers.
///
/// # Errors
/// The harness is not complete, or a temporary folder cannot be had.
pub(crate) fn story(name: &str) -> Result<Verdict, String> {
    let story = Story::load(name)?;
    let kafka = story.golden_answers()?;
    let expected = story.expected(kafka)?;
    verdict(&story, &expected, &story.expected_folders())
}

/// Plays a story under each view until it agrees, the widest first; one that is held wholly under that view only.
///
/// # Errors
/// As for [`story()`].
pub(crate) fn verdict(story: &Story, expected: &[Value], left: &Path) -> Result<Verdict, String> {
    let held = held(&story.name);
    let views: &[View] =
        if held == Some(View::Whole) { &[View::Whole] } else { &[View::Whole, View::WithoutProducers] };
    let mut widest = None;
    for view in views {
        let found = differences(story, expected, left, *view)?;
        if found.is_empty() {
            return Ok(Verdict { held, found: widest.unwrap_or_default(), agrees: Some(*view) });
        }
        widest.get_or_insert(found);
    }
    Ok(Verdict { held, found: widest.unwrap_or_default(), agrees: None })
}

/// Plays a story under one view: what differs in the answers and in the folders that are left.
///
/// # Errors
/// As for [`story()`].
pub(super) fn differences(
    story: &Story,
    expected: &[Value],
    left: &Path,
    view: View,
) -> Result<Vec<String>, String> {
    let folder = temporary()?;
    let mut found = story.play(folder.path(), expected, view)?;
    found.extend(left_folders(story, left, folder.path(), view)?);
    Ok(found)
}

/// Compares the partition folders that two runs have left.
fn left_folders(story: &Story, kafka: &Path, kseg: &Path, view: View) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for partition in partitions(kafka)? {
        let Some(name) = partition.file_name() else { continue };
        let ours = kseg.join(name);
        if !ours.is_dir() {
            found.push(format!("{}: no folder {}", story.name, name.to_string_lossy()));
            continue;
        }
        let differ = compare::folders(&partition, &ours, story.focus(view))?;
        found.extend(differ.into_iter().map(|d| format!("{}: {}/{d}", story.name, name.to_string_lossy())));
    }
    Ok(found)
}

/// The sub-folders of a folder, sorted.
///
/// # Errors
/// It cannot be read.
pub(crate) fn partitions(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            out.push(path);
        }
    }
    out.sort();
    Ok(out)
}

/// A folder that goes away with its handle.
///
/// # Errors
/// It cannot be made.
pub(crate) fn temporary() -> Result<tempfile::TempDir, String> {
    tempfile::Builder::new()
        .prefix("kseg-conformance-")
        .tempdir()
        .map_err(|e| format!("temporary folder: {e}"))
}

/// Runs every story, or the one named, and opens every golden folder. Prints a line a story.
///
/// # Errors
/// What differs in the stories that are held, and in the folders.
pub(crate) fn run(only: Option<&str>) -> Result<(), String> {
    let names: Vec<String> = story::names()?.into_iter().filter(|n| only.is_none_or(|o| o == n)).collect();
    if names.is_empty() {
        return Err(format!("no story {}", only.unwrap_or_default()));
    }
    let mut failed = Vec::new();
    let mut held = 0;
    for name in &names {
        if NOT_RUN.contains(&name.as_str()) {
            println!("golden {name:<34} not run: needs an operation that is not there yet");
        } else {
            let verdict = story(name)?;
            held += u32::from(verdict.held.is_some());
            println!("golden {name:<34} {}{}", told(&verdict), story::instead(name));
            if verdict.failed() {
                failed.extend(verdict.found.clone());
            } else if only.is_some() {
                verdict.found.iter().for_each(|f| println!("  {f}"));
            }
        }
        failed.extend(folders::open(name)?);
    }
    println!("golden: {held} of {} stories held, {} folders opened", names.len(), names.len());
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("{} differences\n  {}", failed.len(), failed.join("\n  ")))
    }
}

/// A verdict in words.
pub(crate) fn told(verdict: &Verdict) -> String {
    let view = |v: &View| match v {
        View::Whole => "agrees",
        View::WithoutProducers => "agrees but for producers",
    };
    match (&verdict.held, &verdict.agrees) {
        (Some(held), Some(v)) if held == v => view(v).to_owned(),
        (Some(_), Some(v)) => format!("{}, which is more than the list says: change it there", view(v)),
        (Some(_), None) => format!("DIFFERS in {} places", verdict.found.len()),
        (None, Some(v)) => format!("{}, and is not in the list of stories held: add it", view(v)),
        (None, None) => format!("not held; differs in {} places", verdict.found.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::story;
    use crate::conformance::differences::{HELD, HELD_WITHOUT_PRODUCERS};
    use crate::conformance::{folders, story as stories};

    #[test]
    fn held_stories_have_kafkas_answers_and_files() {
        let mut found = Vec::new();
        for name in HELD.iter().chain(HELD_WITHOUT_PRODUCERS) {
            let verdict = story(name).unwrap();
            if verdict.failed() {
                found.extend(verdict.found);
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn golden_folders_of_all_stories_open_and_read() {
        let mut found = Vec::new();
        for name in stories::names().unwrap() {
            found.extend(folders::open(&name).unwrap());
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
