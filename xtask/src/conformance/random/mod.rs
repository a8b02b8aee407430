//! Random stories: operations drawn by chance are put to Kafka one by one, each chosen with its answers so far in mind,
//! and the story that comes of it is then played to kseg. Where they differ the story is made short, and kept.

mod clean;
mod plain;
mod shrink;
mod tale;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::compare::View;
use super::golden::{self, temporary};
use super::oracle::{Oracle, kafka};
use super::story::Story;
use crate::{Outcome, shell, workspace};
use tale::Tale;

/// The beginning of every random story's name; its `files` are compared without the stale bytes of open indexes.
pub(crate) const PREFIX: &str = "random-";

/// Operations of a story, where nothing else is asked for.
pub(crate) const STEPS: u32 = 200;

/// How long one story is made shorter.
const SHRINKING: Duration = Duration::from_secs(120);

/// What random stories are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeds {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) steps: u32,
    /// How many at a time, each beside a Kafka of its own.
    pub(crate) jobs: usize,
}

impl Seeds {
    /// `FIRST..END`, or a single number.
    ///
    /// # Errors
    /// Neither.
    pub(crate) fn parse(text: &str) -> Result<Seeds, String> {
        let number =
            |n: &str| n.parse::<u64>().map_err(|_| format!("seeds are FIRST..END or one number, not {text}"));
        let (first, end) = match text.split_once("..") {
            Some((first, end)) => (number(first)?, number(end)?),
            None => (number(text)?, number(text)?.saturating_add(1)),
        };
        if end <= first {
            return Err(format!("no seeds in {text}"));
        }
        Ok(Seeds { first, count: end - first, steps: STEPS, jobs: 2 })
    }
}

/// Makes the story of every seed and plays it; a line is printed for each that differs, and one in the end.
///
/// # Errors
/// What differs, or why a story could not be made.
pub(crate) fn run(seeds: &Seeds) -> Outcome {
    each(seeds, "random stories", story)
}

/// Has Kafka make a dirty folder for every seed, and both clean it.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_same_folder(seeds: &Seeds) -> Outcome {
    each(seeds, "folders cleaned by both", same_folder)
}

/// One story: how many lines it has, and what differs.
type Work = fn(u64, u32, &mut Oracle) -> Result<(usize, Vec<String>), String>;

fn each(seeds: &Seeds, what: &str, story: Work) -> Outcome {
    shell::output(&mut kafka(["build"]))?;
    let (next, lines) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failed: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let note = |what: Vec<String>| failed.lock().unwrap_or_else(PoisonError::into_inner).extend(what);
    let work = || -> Result<(), String> {
        let mut oracle = Oracle::start(&["replay"])?;
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed) as u64;
            if n >= seeds.count {
                return Ok(());
            }
            let seed = seeds.first + n;
            let (made, found) =
                story(seed, seeds.steps, &mut oracle).map_err(|e| format!("seed {seed}: {e}"))?;
            lines.fetch_add(made, Ordering::Relaxed);
            if !found.is_empty() {
                println!("live   {PREFIX}{seed:<27} DIFFERS");
                note(found);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..seeds.jobs.max(1) {
            scope.spawn(|| note(work().err().into_iter().collect()));
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "live   {what} {}..{}: {} lines; {}",
        seeds.first,
        seeds.first + seeds.count,
        lines.into_inner(),
        if failed.is_empty() { "all agree" } else { "not all agree" }
    );
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n  ")) }
}

/// Makes the story of `seed` and plays it: how many lines it has, and what differs.
fn story(seed: u64, steps: u32, oracle: &mut Oracle) -> Result<(usize, Vec<String>), String> {
    let folder = temporary()?;
    let place = folder.path().to_string_lossy().into_owned();
    let tale = Tale::new(format!("{PREFIX}{seed}"), seed, place, oracle)?;
    let (story, answers) = match seed % 4 {
        0 => plain::made(tale, steps, plain::Kind::Plain)?,
        1 => plain::made(tale, steps, plain::Kind::Producers)?,
        2 => plain::made(tale, steps, plain::Kind::Damage)?,
        _ => clean::made(tale, steps)?,
    };
    let found = differences(&story, &answers, folder.path())?;
    let lines = story.lines.len();
    if found.is_empty() {
        return Ok((lines, found));
    }
    Ok((lines, kept(&story, found, oracle)?))
}

fn same_folder(seed: u64, steps: u32, oracle: &mut Oracle) -> Result<(usize, Vec<String>), String> {
    let folder = temporary()?;
    let place = folder.path().to_string_lossy().into_owned();
    let tale = Tale::new(format!("{PREFIX}folder-{seed}"), seed, place, oracle)?;
    clean::same_folder(tale, steps, folder.path())
}

/// Plays a story to kseg and compares: answers and what is left.
fn differences(story: &Story, answers: &[Value], left: &Path) -> Result<Vec<String>, String> {
    golden::differences(story, answers, left, View::Whole)
}

/// Plays a story to both: in what they differ.
fn put_to_both(story: &Story, oracle: &mut Oracle) -> Result<Vec<String>, String> {
    let folder = temporary()?;
    let place = folder.path().to_string_lossy().into_owned();
    oracle.ask(&json!({"op": "reset"}).to_string())?;
    let answers: Vec<Value> =
        story.lines.iter().map(|line| oracle.ask(&line.replace("$DIR", &place))).collect::<Result<_, _>>()?;
    differences(story, &answers, folder.path())
}

/// What the first line that differs differs in.
fn about(found: &[String]) -> BTreeSet<String> {
    let line = |f: &String| f.split_once(" line ").and_then(|(_, l)| l.split(' ').next().map(str::to_owned));
    let first = found.first().and_then(line);
    found.iter().filter(|f| line(f) == first).map(|f| shrink::about(f)).collect()
}

/// Makes a story short that differs, and keeps it as one that can be played again: what it differs in, and where it is.
fn kept(story: &Story, found: Vec<String>, oracle: &mut Oracle) -> Result<Vec<String>, String> {
    let target = workspace::load()?.target;
    let whole = write(&target, story, "whole", &found)?;
    let end = Instant::now() + SHRINKING;
    let wanted = about(&found);
    let mut last = found;
    let lines = shrink::shrunk(
        &story.lines,
        |lines| {
            let shorter = Story { name: story.name.clone(), lines: lines.to_vec() };
            let found = put_to_both(&shorter, oracle)?;
            let same = about(&found).iter().any(|a| wanted.contains(a));
            if same {
                last = found;
            }
            Ok::<_, String>(same)
        },
        || Instant::now() < end,
    )?;
    let short = Story { name: story.name.clone(), lines };
    let place = write(&target, &short, "", &last)?;
    last.truncate(5);
    last.push(format!(
        "{}: {} of {} lines kept as {} (all of them as {})",
        story.name,
        short.lines.len(),
        story.lines.len(),
        place.display(),
        whole.display()
    ));
    Ok(last)
}

/// Writes a story as one is read.
fn write(target: &Path, story: &Story, suffix: &str, found: &[String]) -> Result<PathBuf, String> {
    let dash = if suffix.is_empty() { "" } else { "-" };
    let path = target.join(format!("{}{dash}{suffix}.jsonl", story.name));
    let remarks: String = found.iter().take(5).map(|f| format!("# {}\n", f.replace('\n', " "))).collect();
    let text =
        format!("# a random story in which kseg and Kafka differ\n{remarks}{}\n", story.lines.join("\n"));
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::{Seeds, about};

    #[test]
    fn seeds_are_a_range_or_one_number() {
        let range = Seeds::parse("10..14").expect("a range");
        assert_eq!((range.first, range.count), (10, 4));
        let one = Seeds::parse("7").expect("a number");
        assert_eq!((one.first, one.count), (7, 1));
        for wrong in ["", "a", "4..4", "5..4", "1..x"] {
            assert!(Seeds::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_line_that_differs_counts() {
        let found = [
            "random-1 line 3 read: .bytes: Kafka 1, kseg 2".to_owned(),
            "random-1 line 3 read: .segment: Kafka 1, kseg 2".to_owned(),
            "random-1 line 9 state: .size: Kafka 1, kseg 2".to_owned(),
        ];
        assert_eq!(about(&found).into_iter().collect::<Vec<_>>(), ["read: .bytes", "read: .segment"]);
    }
}
