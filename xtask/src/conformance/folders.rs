//! Folders that Kafka wrote: each is opened by kseg, as after a clean stop and as after a crash, and read from its first
//! offset to its last; the batches must be those that stand in its files.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::golden::{partitions, temporary};
use super::story;
use crate::replay::{self, Replay};

/// Opens the golden folders of one story.
///
/// # Errors
/// A folder cannot be copied.
pub(crate) fn open(name: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for partition in partitions(&story::harness().join("golden").join(name))? {
        for clean in [true, false] {
            let how = if clean { "clean" } else { "crashed" };
            for wrong in read(&partition, clean)? {
                found.push(format!("folder {name}, opened as {how}: {wrong}"));
            }
        }
    }
    Ok(found)
}

/// Opens a copy of `partition` and compares what it reads with what stands in the files.
fn read(partition: &Path, clean: bool) -> Result<Vec<String>, String> {
    let expected = standing(partition, !clean)?;
    let folder = temporary()?;
    let name = partition.file_name().unwrap_or_default();
    let copy = folder.path().join(name);
    copied(partition, &copy)?;

    let mut replay = Replay::new()?;
    replay.ground().take(folder.path())?;
    let mut ask = |op: Value| replay.answer(&op.to_string()).unwrap_or(Value::Null);
    let opened = ask(json!({
        "op": "open", "dir": copy.to_string_lossy(), "clean": clean, "now": 1_700_000_000_000_i64,
        // None is known; after a clean stop nothing is recovered all the same.
        "recoveryPoint": 0,
        "config": {"segment.bytes": "1048576", "segment.index.bytes": "8192", "index.interval.bytes": "256"},
    }));
    let (Some(mut at), Some(end)) = (number(&opened, "/ok/logStart"), number(&opened, "/ok/logEnd")) else {
        return Ok(vec![format!("does not open: {opened}")]);
    };
    let start = at;
    let mut seen = Vec::new();
    let mut wrong = Vec::new();
    while at < end {
        let answer = ask(json!({"op": "read", "offset": at, "max": 1 << 20, "records": true}));
        let batches = answer.pointer("/ok/batches").and_then(Value::as_array).cloned().unwrap_or_default();
        let Some(last) = batches.last().and_then(|b| number(b, "/lastOffset")) else {
            if answer.get("error").is_some() {
                wrong.push(format!("read at {at}: {answer}"));
            }
            break;
        };
        seen.extend(batches);
        at = last + 1;
    }
    let closed = ask(json!({"op": "close"}));
    if closed.get("error").is_some() {
        wrong.push(format!("close: {closed}"));
    }
    let expected: Vec<Value> =
        expected.into_iter().filter(|b| number(b, "/lastOffset").is_some_and(|l| l >= start)).collect();
    let seen: Vec<Value> = seen.into_iter().map(without_position).collect();
    if seen.len() != expected.len() {
        wrong.push(format!("{} batches stand in the files, {} are read", expected.len(), seen.len()));
    } else if let Some(n) = (0..seen.len()).find(|n| seen[*n] != expected[*n]) {
        wrong.push(format!("batch {n} reads as {}, and is {}", seen[n], expected[n]));
    }
    Ok(wrong)
}

/// The batches that stand in the segments of a folder, in order of offsets. After a crash, those before the first that
/// is not whole and right; otherwise of each segment those before the first that is no batch at all.
fn standing(partition: &Path, crashed: bool) -> Result<Vec<Value>, String> {
    let mut names: Vec<_> = fs::read_dir(partition)
        .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>())
        .map_err(|e| format!("{}: {e}", partition.display()))?;
    names.retain(|p| p.extension().is_some_and(|e| e == "log"));
    names.sort();
    let mut out: Vec<Value> = Vec::new();
    for name in names {
        let bytes = fs::read(&name).map_err(|e| format!("{}: {e}", name.display()))?;
        let (batches, whole) = replay::batches_before_damage(&bytes);
        for batch in batches {
            if crashed && batch["valid"] != true {
                return Ok(out);
            }
            out.push(without_position(batch));
        }
        if crashed && !whole {
            break;
        }
    }
    Ok(out)
}

fn without_position(mut batch: Value) -> Value {
    if let Some(fields) = batch.as_object_mut() {
        fields.remove("position");
    }
    batch
}

fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

/// Copies the files of a folder into a new one.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn copied(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{} to {}: {e}", from.display(), to.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            // Written anew, so that a read-only original makes no read-only copy.
            fs::write(to.join(name), fs::read(&path).map_err(failed)?).map_err(failed)?;
        }
    }
    Ok(())
}
