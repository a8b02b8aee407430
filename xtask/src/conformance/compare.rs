//! Comparing answers and folders, with a path to each thing that differs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use super::differences::ACCIDENTS;
use crate::replay::is_kept_aside;

/// How much of an answer is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// All of it.
    Whole,
    /// Not the producers, their snapshots, their transactions and what follows from these.
    WithoutProducers,
}

/// What is looked at in one story.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Focus {
    pub(crate) view: View,
    /// Kafka leaves old entries behind the end of an index somewhere (row 15): the bytes of indexes that are open, or
    /// were when they were deleted, are not compared.
    pub(crate) stale_entries: bool,
    /// Kafka deletes segments that kseg keeps aside (row 3): a deleted `.log` is compared with the `.cut` one.
    pub(crate) kept_aside: bool,
    /// The backend takes space ahead of what is appended (row 29): how many zeros lie behind the batches of a `.log` file
    /// that is open, or was when it was deleted, is not compared.
    pub(crate) zeros_behind: bool,
    /// Kafka's lookups leave traces that kseg's do not. A mark may lie in a gap between batches, where Kafka's moves to the batch
    /// behind it as soon as somebody looks (row 6); a committed read may name aborted transactions behind its end (row 32).
    pub(crate) lookups: bool,
}

impl Focus {
    /// Whether a file is not compared by its name.
    fn leaves_out(self, name: &str) -> bool {
        let bare = name.strip_suffix(".deleted").unwrap_or(name);
        let producers = bare.ends_with(".snapshot") || bare.ends_with(".txnindex");
        is_kept_aside(name)
            || (producers && self.view == View::WithoutProducers)
            || (self.kept_aside && name.ends_with(".deleted"))
    }

    /// Whether only the length of a file is compared.
    fn only_length(self, name: &str, open: bool) -> bool {
        let deleted = name.strip_suffix(".deleted");
        let bare = deleted.unwrap_or(name);
        self.stale_entries
            && (open || deleted.is_some())
            && (bare.ends_with(".index") || bare.ends_with(".timeindex"))
    }

    /// Whether the zeros at the end of a file are not counted.
    fn without_zeros(self, name: &str, open: bool) -> bool {
        self.zeros_behind && (name.ends_with(".log.deleted") || (open && name.ends_with(".log")))
    }
}

/// What differs between two answers to `op`; nothing if they agree. Message texts are not compared. `open`: the log is.
pub(crate) fn answers(op: &str, kafka: &Value, kseg: &Value, focus: Focus, open: bool) -> Vec<String> {
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
            let theirs = seen(op, &kafka["ok"], focus, open);
            let mut ours = seen(op, &kseg["ok"], focus, open);
            if op == "files" {
                as_long_as(&theirs, &mut ours, |name| focus.without_zeros(name, open));
            }
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

/// The part of an answer that is looked at. A list of files becomes an object by name.
fn seen(op: &str, ok: &Value, focus: Focus, open: bool) -> Value {
    let mut ok = ok.clone();
    if let Some(fields) = ok.as_object_mut() {
        // The bytes of a described batch are compared where they are built.
        fields.remove("given");
        if focus.view == View::WithoutProducers {
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
        let mut kept = Map::new();
        for file in files {
            let name = text(file.get("file"));
            if focus.leaves_out(name) {
                continue;
            }
            let mut file = file.clone();
            if focus.only_length(name, open) {
                file["crc32c"] = Value::Null;
            }
            kept.insert(name.to_owned(), file);
        }
        return Value::Object(kept);
    }
    ok
}

/// Gives those of our files that `which` names the size and checksum of Kafka's, where zeros are all that tells them apart.
fn as_long_as(theirs: &Value, ours: &mut Value, which: impl Fn(&str) -> bool) {
    let of = |file: &Value| Some((file["size"].as_u64()?, u32::try_from(file["crc32c"].as_u64()?).ok()?));
    let with_zeros = |(size, sum): (u64, u32), to: u64| {
        let zeros = usize::try_from(to.saturating_sub(size)).unwrap_or(0);
        crc32c::crc32c_append(sum, &vec![0; zeros])
    };
    for (name, file) in ours.as_object_mut().into_iter().flatten().filter(|(name, _)| which(name)) {
        let their = &theirs[name.as_str()];
        if let (Some(a), Some(b)) = (of(their), of(file)) {
            let size = a.0.max(b.0);
            if with_zeros(a, size) == with_zeros(b, size) {
                *file = their.clone();
            }
        }
    }
}

/// The marks of a log that Kafka looks up.
const MARKS: [&str; 3] = ["highWatermark", "lastStable", "firstUnstable"];

/// Kafka's answer, with a mark of kseg's in the place of one of Kafka's where nothing but a gap lies between them: `behind` names
/// the offset of the first batch that ends behind a mark, which is Kafka's own mark then.
pub(crate) fn marks_in_gaps(
    kafka: &Value,
    kseg: &Value,
    mut behind: impl FnMut(i64) -> Option<i64>,
) -> Value {
    let mut expected = kafka.clone();
    for mark in MARKS {
        let of = |answer: &Value| answer["ok"][mark].as_i64();
        if let (Some(theirs), Some(ours)) = (of(kafka), of(kseg))
            && theirs > ours
            && behind(ours) == Some(theirs)
        {
            expected["ok"][mark] = Value::from(ours);
        }
    }
    expected
}

/// Kafka's answer to a committed read, without the aborted transactions that kseg does not name and that begin at `end`, where
/// what was read ends, or behind it.
pub(crate) fn aborted_behind(kafka: &Value, kseg: &Value, end: i64) -> Value {
    let mut expected = kafka.clone();
    if let Some(theirs) = expected["ok"]["aborted"].as_array_mut() {
        let ours = kseg["ok"]["aborted"].as_array();
        let named = |transaction: &Value| ours.is_some_and(|ours| ours.contains(transaction));
        theirs.retain(|transaction| {
            named(transaction) || transaction[1].as_i64().is_none_or(|first| first < end)
        });
    }
    expected
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

/// Bytes without the zeros at their end.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    &bytes[..end]
}

/// The regular files of a folder with their contents.
///
/// # Errors
/// The folder or a file cannot be read.
fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_file() {
            out.insert(name, fs::read(entry.path()).map_err(failed)?);
        }
    }
    Ok(out)
}

/// What differs between two folders: names, lengths, the first byte that differs.
///
/// # Errors
/// A folder cannot be read.
pub(crate) fn folders(kafka: &Path, kseg: &Path, focus: Focus) -> Result<Vec<String>, String> {
    let (theirs, ours) = (contents(kafka)?, contents(kseg)?);
    let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|n| !focus.leaves_out(n)) {
        match (theirs.get(name), ours.get(name)) {
            (Some(a), Some(b)) if a == b || (a.len() == b.len() && focus.only_length(name, false)) => {}
            (Some(a), Some(b)) if focus.without_zeros(name, false) && trimmed(a) == trimmed(b) => {}
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
    if focus.kept_aside {
        for (name, bytes) in &theirs {
            let Some(log) = name.strip_suffix(".deleted").filter(|n| n.ends_with(".log")) else { continue };
            if ours.get(&format!("{log}.cut")) != Some(bytes) {
                found.push(format!("file {log}: deleted by Kafka, and not kept aside by kseg"));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Focus, View, aborted_behind, answers, marks_in_gaps};

    const WHOLE: Focus = Focus {
        view: View::Whole,
        stale_entries: false,
        kept_aside: false,
        zeros_behind: false,
        lookups: false,
    };
    const WITHOUT: Focus = Focus { view: View::WithoutProducers, ..WHOLE };

    #[test]
    fn message_texts_may_differ_and_classes_may_not() {
        let kafka = json!({"error": "OffsetOutOfRangeException", "message": "a"});
        assert!(
            answers(
                "read",
                &kafka,
                &json!({"error": "OffsetOutOfRangeException", "message": "b"}),
                WHOLE,
                true
            )
            .is_empty()
        );
        assert_eq!(
            answers("read", &kafka, &json!({"error": "IOException", "message": "b"}), WHOLE, true).len(),
            1
        );
        assert_eq!(answers("read", &kafka, &json!({"ok": {}}), WHOLE, true).len(), 1);
    }

    #[test]
    fn a_difference_is_named_by_its_path() {
        let kafka = json!({"ok": {"segments": [{"index": [[1, 2]]}], "producers": []}});
        let kseg = json!({"ok": {"segments": [{"index": [[1, 3]]}], "producers": [1]}});
        let found = answers("state", &kafka, &kseg, WITHOUT, true);
        assert_eq!(found, [".segments[0].index[0][1]: Kafka 2, kseg 3"]);
        assert_eq!(answers("state", &kafka, &kseg, WHOLE, true).len(), 2);
    }

    #[test]
    fn zeros_behind_an_open_file_count_only_where_no_space_is_taken_ahead() {
        let files = |name: &str, bytes: &[u8]| json!({"ok": [{"file": name, "size": bytes.len(), "crc32c": crc32c::crc32c(bytes)}]});
        let ahead = Focus { zeros_behind: true, ..WHOLE };
        for (name, focus, open, differ) in [
            ("0.log", ahead, true, false),
            ("0.log.deleted", ahead, false, false),
            ("0.log", ahead, false, true),
            ("0.index", ahead, true, true),
            ("0.log", WHOLE, true, true),
        ] {
            for (kafka, kseg) in [(&b"ab\0\0"[..], &b"ab"[..]), (b"ab", b"ab\0"), (b"", b"\0")] {
                let found = answers("files", &files(name, kafka), &files(name, kseg), focus, open);
                assert_eq!(!found.is_empty(), differ, "{name}, open: {open}");
            }
            let found = answers("files", &files(name, b"ab\0"), &files(name, b"ac"), focus, open);
            assert!(!found.is_empty(), "other bytes are never taken for zeros");
        }
    }

    #[test]
    fn a_mark_in_a_gap_may_stay_and_any_other_one_may_not() {
        // Batches at 0 to 4 and 10 to 14.
        let behind =
            |offset: i64| [(4, 0), (14, 10)].iter().find(|(last, _)| *last >= offset).map(|(_, b)| *b);
        let answer =
            |high: i64, stable: Option<i64>| json!({"ok": {"highWatermark": high, "firstUnstable": stable}});
        for (kafka, kseg, agree) in [
            ((10, Some(10)), (5, Some(7)), true),
            ((10, None), (5, None), true),
            ((10, None), (4, None), false),
            ((11, None), (5, None), false),
            ((5, None), (10, None), false),
            ((0, None), (3, None), false),
            ((10, Some(10)), (5, None), false),
            ((20, None), (15, None), false),
        ] {
            let (kafka, kseg) = (answer(kafka.0, kafka.1), answer(kseg.0, kseg.1));
            let expected = marks_in_gaps(&kafka, &kseg, behind);
            assert_eq!(answers("state", &expected, &kseg, WHOLE, true).is_empty(), agree, "{kafka} {kseg}");
        }
    }

    #[test]
    fn aborted_transactions_behind_a_read_may_be_named_and_any_other_one_must() {
        for (kafka, kseg, agree) in [
            (json!([[1, 2], [3, 10]]), json!([[1, 2]]), true),
            (json!([[1, 2], [3, 9]]), json!([[1, 2]]), false),
            (json!([[1, 2]]), json!([]), false),
            (json!([]), json!([[1, 10]]), false),
            (json!([[3, 10]]), json!([[3, 10]]), true),
            (json!([[3, 10]]), json!(null), false),
            (json!(null), json!(null), true),
        ] {
            let (kafka, kseg) = (json!({"ok": {"aborted": kafka}}), json!({"ok": {"aborted": kseg}}));
            let expected = aborted_behind(&kafka, &kseg, 10);
            assert_eq!(answers("read", &expected, &kseg, WHOLE, true).is_empty(), agree, "{kafka} {kseg}");
        }
    }

    #[test]
    fn files_are_compared_by_name() {
        let kafka = json!({"ok": [{"file": "a", "size": 1}, {"file": "b", "size": 1}]});
        let kseg = json!({"ok": [{"file": "b", "size": 1}, {"file": "b.cut", "size": 1}]});
        assert_eq!(answers("files", &kafka, &kseg, WHOLE, true).len(), 1);
    }
}
