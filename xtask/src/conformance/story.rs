//! Stories: sequences of operations, Kafka's answers to them, the folders that it left, and playing one to kseg.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::compare::{self, Focus, View};
use super::differences::{INSTEAD, KEPT_ASIDE, LOOKUPS, STALE_INDEX_BYTES};
use super::random;
use crate::replay::{Replay, goes_ahead};
use crate::{shell, workspace};

/// The folder of the harness.
pub(crate) fn harness() -> PathBuf {
    workspace::root().join("xtask/kafka")
}

/// The names of all stories, sorted.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn names() -> Result<Vec<String>, String> {
    let folder = harness().join("stories");
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if let Some(name) = name.strip_suffix(".jsonl") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// A remark for a story whose answers are meant to be another one's.
pub(crate) fn instead(name: &str) -> String {
    let found = INSTEAD.iter().find(|i| i.story == name);
    found.map_or_else(String::new, |i| format!(" (with {}, row {} of the differences)", i.answers_of, i.row))
}

/// One story.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) name: String,
    /// Its lines without comments, `$DIR` in the place of the folder.
    pub(crate) lines: Vec<String>,
}

impl Story {
    /// # Errors
    /// There is no such story.
    pub(crate) fn load(name: &str) -> Result<Story, String> {
        let path = harness().join("stories").join(format!("{name}.jsonl"));
        Ok(Story { name: name.to_owned(), lines: lines(&shell::text(&path)?) })
    }

    /// The folder with Kafka's answers and what it left.
    pub(crate) fn golden(&self) -> PathBuf {
        harness().join("golden").join(&self.name)
    }

    /// Kafka's recorded answers, a line each.
    ///
    /// # Errors
    /// They cannot be read, or there are more or fewer than lines.
    pub(crate) fn golden_answers(&self) -> Result<Vec<Value>, String> {
        let path = self.golden().join("answers.jsonl");
        let parse =
            |line: &String| serde_json::from_str(line).map_err(|e| format!("{}: {e}", path.display()));
        let answers: Vec<Value> = lines(&shell::text(&path)?).iter().map(parse).collect::<Result<_, _>>()?;
        if answers.len() != self.lines.len() {
            return Err(format!(
                "{}: {} answers to {} lines",
                path.display(),
                answers.len(),
                self.lines.len()
            ));
        }
        Ok(answers)
    }

    /// What kseg is meant to answer: Kafka's answers, or those of the story that the table names instead.
    ///
    /// # Errors
    /// A golden file cannot be read.
    pub(crate) fn expected(&self, kafka: Vec<Value>) -> Result<Vec<Value>, String> {
        let Some(instead) = INSTEAD.iter().find(|i| i.story == self.name) else { return Ok(kafka) };
        let mended = Story::load(instead.answers_of)?.golden_answers()?;
        let damaged = self.lines.iter().rposition(|l| l.contains("\"op\":\"damage\"")).map_or(0, |n| n + 1);
        // Counted from the end: the stories may differ in how the damage is done.
        let tail = self.lines.len() - damaged;
        let mut expected = kafka;
        for n in 0..tail {
            let mut answer = mended[mended.len() - tail + n].clone();
            if let Some(point) = answer.pointer_mut("/ok/recoveryPoint") {
                *point = json!(instead.recovery_point);
            }
            expected[damaged + n] = answer;
        }
        Ok(expected)
    }

    /// The folders that are meant to be left: Kafka's own, or those of the story that the table names instead.
    pub(crate) fn expected_folders(&self) -> PathBuf {
        let instead = INSTEAD.iter().find(|i| i.story == self.name).map(|i| i.answers_of);
        harness().join("golden").join(instead.unwrap_or(&self.name))
    }

    /// What is looked at in it under `view`.
    pub(crate) fn focus(&self, view: View) -> Focus {
        let name = self.name.as_str();
        let random = name.starts_with(random::PREFIX);
        let stale_entries = STALE_INDEX_BYTES.contains(&name) || random;
        let kept_aside = KEPT_ASIDE.contains(&name);
        let lookups = LOOKUPS.contains(&name) || random;
        Focus { view, stale_entries, kept_aside, zeros_behind: goes_ahead(), lookups }
    }

    /// Plays the story to kseg in `folder` and compares each answer with `expected`, whose `given` bytes are appended
    /// in the place of a description.
    ///
    /// # Errors
    /// A line of the story is no JSON.
    pub(crate) fn play(&self, folder: &Path, expected: &[Value], view: View) -> Result<Vec<String>, String> {
        let focus = self.focus(view);
        let mut replay = Replay::new()?;
        replay.ground().take(folder)?;
        let mut found = Vec::new();
        let mut open = false;
        for (n, (line, expected)) in self.lines.iter().zip(expected).enumerate() {
            let line = line.replace("$DIR", &folder.to_string_lossy());
            let mut op: Value =
                serde_json::from_str(&line).map_err(|e| format!("{} line {n}: {e}", self.name))?;
            let name = op["op"].as_str().unwrap_or_default().to_owned();
            let mut place = |what: Vec<String>| {
                found.extend(what.into_iter().map(|w| format!("{} line {} {name}: {w}", self.name, n + 1)));
            };
            if let Some(given) = expected.pointer("/ok/given").and_then(Value::as_str) {
                place(given_batch(&mut replay, &mut op, given));
            }
            let answer = replay.answer(&op.to_string()).unwrap_or(Value::Null);
            match name.as_str() {
                // An abandoned log leaves its indexes as they were.
                "open" | "abandon" => open = true,
                "close" => open = false,
                _ => {}
            }
            let expected = if focus.lookups {
                without_traces(&mut replay, &op, expected, &answer)
            } else {
                expected.clone()
            };
            place(compare::answers(&name, &expected, &answer, focus, open));
        }
        replay.ground().give(folder)?;
        Ok(found)
    }
}

/// Kafka's answer without what its lookups alone have left in it (rows 6 and 32).
fn without_traces(replay: &mut Replay, op: &Value, kafka: &Value, kseg: &Value) -> Value {
    let mut batches = |read: Value| {
        let answer = replay.answer(&read.to_string())?;
        answer.pointer("/ok/batches").and_then(Value::as_array).cloned()
    };
    match op["op"].as_str() {
        Some("open" | "state") => compare::marks_in_gaps(kafka, kseg, |mark| {
            let read = json!({"op": "read", "offset": mark, "max": 1, "records": true});
            batches(read)?.first()?["baseOffset"].as_i64()
        }),
        Some("read") if kafka["ok"]["aborted"] != kseg["ok"]["aborted"] => {
            let mut read = op.clone();
            read["records"] = json!(true);
            let last = batches(read).and_then(|found| found.last()?["lastOffset"].as_i64());
            last.map_or_else(|| kafka.clone(), |last| compare::aborted_behind(kafka, kseg, last + 1))
        }
        _ => kafka.clone(),
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')).map(str::to_owned).collect()
}

/// Puts the bytes that Kafka built in the place of the description, and compares what kseg builds from it: equal bytes
/// where nothing is compressed, equal contents where something is.
fn given_batch(replay: &mut Replay, op: &mut Value, given: &str) -> Vec<String> {
    let Some(fields) = op.as_object_mut() else { return Vec::new() };
    let (kind, described) = match (fields.remove("batch"), fields.remove("marker")) {
        (Some(batch), _) => ("build", batch),
        (_, Some(marker)) => ("marker", marker),
        _ => return Vec::new(),
    };
    fields.insert("bytes".to_owned(), Value::from(given));
    let mut build = described;
    build["op"] = Value::from(kind);
    let built = replay.answer(&build.to_string()).unwrap_or(Value::Null);
    let Some(bytes) = built.pointer("/ok/bytes").and_then(Value::as_str) else {
        return vec![format!("kseg does not build the batch: {}", compare::short(&built))];
    };
    if bytes == given {
        return Vec::new();
    }
    let compressed = build["codec"].as_str().is_some_and(|c| c != "none");
    if !compressed {
        return vec!["kseg builds other bytes of the batch".to_owned()];
    }
    let mut contents = |bytes: &str| {
        let mut answer =
            replay.answer(&json!({"op": "describe", "bytes": bytes}).to_string()).unwrap_or(Value::Null);
        if let Some(batches) = answer.get_mut("ok").and_then(Value::as_array_mut) {
            for batch in batches.iter_mut().filter_map(Value::as_object_mut) {
                batch.retain(|name, _| !["position", "size", "crc"].contains(&name.as_str()));
            }
        }
        answer
    };
    let (theirs, ours) = (contents(given), contents(bytes));
    let whole = Focus {
        view: View::Whole,
        stale_entries: false,
        kept_aside: false,
        zeros_behind: false,
        lookups: false,
    };
    compare::answers("build", &theirs, &ours, whole, false)
}
