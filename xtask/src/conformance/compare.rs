//! Comparing answers and folders, with a path to each thing that differs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::differences::ACCIDENTS;

/// How much of an answer is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// All of it.
    Whole,
    /// Not the producers, their snapshots, their transactions and what follows from these.
    WithoutProducers,
}

/// A reason why a file is not compared, if there is one.
fn left_out(name: &str, view: View) -> bool {
    let bare = name.strip_suffix(".deleted").unwrap_or(name);
    let producers = bare.ends_with(".snapshot") || bare.ends_with(".txnindex");
    name.ends_with(".cut") || (producers && view == View::WithoutProducers)
}

/// What differs between two answers to `op`; nothing if they agree. Message texts are not compared.
pub(crate) fn answers(op: &str, kafka: &Value, kseg: &Value, view: View) -> Vec<String> {
    let mut found = Vec::new();
    match (kafka.get("error"), kseg.get("error")) {
        (Some(theirs), Some(ours)) => {
            if theirs != ours && !accident(theirs) {
                found.push(format!("error: Kafka {theirs}, kseg {ours} ({})", text(kseg.get("message"))));
            }
        }
        (Some(theirs), None) => found.push(format!(
            "Kafka fails: {theirs} ({}), kseg answers {}",
            text(kafka.get("message")),
            short(kseg)
        )),
        (None, Some(ours)) => found.push(format!(
            "kseg fails: {ours} ({}), Kafka answers {}",
            text(kseg.get("message")),
            short(kafka)
        )),
        (None, None) => {
            let (theirs, ours) = (seen(op, &kafka["ok"], view), seen(op, &kseg["ok"], view));
            values("", &theirs, &ours, &mut found);
        }
    }
    found
}

/// An error class that is an accident of the JVM: only the refusal is compared.
fn accident(class: &Value) -> bool {
    class.as_str().is_some_and(|c| ACCIDENTS.contains(&c))
}

fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The part of an answer that `view` looks at. A list of files becomes an object by name.
fn seen(op: &str, ok: &Value, view: View) -> Value {
    let mut ok = ok.clone();
    if let Some(fields) = ok.as_object_mut() {
        // The bytes of a described batch are compared where they are built.
        fields.remove("given");
        if view == View::WithoutProducers {
            for name in ["producers", "firstUnstable", "lastStable", "aborted"] {
                fields.remove(name);
            }
            if let Some(segments) = fields.get_mut("segments").and_then(Value::as_array_mut) {
                segments.iter_mut().filter_map(Value::as_object_mut).for_each(|s| {
                    s.remove("aborted");
                });
            }
        }
    }
    if op == "files"
        && let Some(files) = ok.as_array()
    {
        let named = |f: &Value| text(f.get("file")).to_owned();
        let kept: Map<String, Value> =
            files.iter().filter(|f| !left_out(&named(f), view)).map(|f| (named(f), f.clone())).collect();
        return Value::Object(kept);
    }
    ok
}

fn values(path: &str, kafka: &Value, kseg: &Value, found: &mut Vec<String>) {
    match (kafka, kseg) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
            for name in names {
                match (theirs.get(name), ours.get(name)) {
                    (Some(a), Some(b)) => values(&format!("{path}.{name}"), a, b, found),
                    (a, b) => found.push(format!("{path}.{name}: Kafka {}, kseg {}", part(a), part(b))),
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            for n in 0..theirs.len().max(ours.len()) {
                match (theirs.get(n), ours.get(n)) {
                    (Some(a), Some(b)) => values(&format!("{path}[{n}]"), a, b, found),
                    (a, b) => found.push(format!("{path}[{n}]: Kafka {}, kseg {}", part(a), part(b))),
                }
            }
        }
        _ if kafka == kseg => {}
        _ => found.push(format!("{path}: Kafka {}, kseg {}", short(kafka), short(kseg))),
    }
}

fn part(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), short)
}

/// A value, cut to what fits on a line.
pub(crate) fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(160) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// The regular files of a folder with their contents.
///
/// # Errors
/// The folder or a file cannot be read.
pub(crate) fn contents(folder: &Path, view: View) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_file() && !left_out(&name, view) {
            out.insert(name, fs::read(entry.path()).map_err(failed)?);
        }
    }
    Ok(out)
}

/// What differs between two folders: names, lengths, the first byte that differs.
///
/// # Errors
/// A folder cannot be read.
pub(crate) fn folders(kafka: &Path, kseg: &Path, view: View) -> Result<Vec<String>, String> {
    let (theirs, ours) = (contents(kafka, view)?, contents(kseg, view)?);
    let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        match (theirs.get(name), ours.get(name)) {
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) => {
                let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
                found.push(format!(
                    "file {name}: Kafka {} bytes, kseg {}, first difference at {at}",
                    a.len(),
                    b.len()
                ));
            }
            (Some(a), None) => found.push(format!("file {name}: Kafka {} bytes, kseg has none", a.len())),
            (_, b) => {
                found.push(format!("file {name}: Kafka has none, kseg {} bytes", b.map_or(0, Vec::len)))
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{View, answers};

    #[test]
    fn message_texts_may_differ_and_classes_may_not() {
        let kafka = json!({"error": "OffsetOutOfRangeException", "message": "a"});
        assert!(
            answers(
                "read",
                &kafka,
                &json!({"error": "OffsetOutOfRangeException", "message": "b"}),
                View::Whole
            )
            .is_empty()
        );
        assert_eq!(
            answers("read", &kafka, &json!({"error": "IOException", "message": "b"}), View::Whole).len(),
            1
        );
        assert_eq!(answers("read", &kafka, &json!({"ok": {}}), View::Whole).len(), 1);
    }

    #[test]
    fn a_difference_is_named_by_its_path() {
        let kafka = json!({"ok": {"segments": [{"index": [[1, 2]]}], "producers": []}});
        let kseg = json!({"ok": {"segments": [{"index": [[1, 3]]}], "producers": [1]}});
        let found = answers("state", &kafka, &kseg, View::WithoutProducers);
        assert_eq!(found, [".segments[0].index[0][1]: Kafka 2, kseg 3"]);
        assert_eq!(answers("state", &kafka, &kseg, View::Whole).len(), 2);
    }

    #[test]
    fn files_are_compared_by_name() {
        let kafka = json!({"ok": [{"file": "a", "size": 1}, {"file": "b", "size": 1}]});
        let kseg = json!({"ok": [{"file": "b", "size": 1}, {"file": "b.cut", "size": 1}]});
        assert_eq!(answers("files", &kafka, &kseg, View::Whole).len(), 1);
    }
}
