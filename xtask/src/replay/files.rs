//! Operations on files: what one holds, what a folder holds, and the damage that a crash or a bad disk does.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use kseg_format::{Offset, Timestamp};
use kseg_index::{IndexError, MemoryRegion, OffsetIndex, Region, TimeIndex};
use kseg_io_backends::{Backend, IoError, Kind, Namespace, Op, OpenHow, write_all};
use kseg_log::{Error, Isolation, Log};
use serde_json::{Value, json};

use super::describe;
use super::ground::FILE_MAX;
use super::protocol::{Answer, Failure, Fields};

/// Bytes of an entry of an aborted-transaction index.
const ABORTED_LEN: usize = 34;
/// Bytes of the head of a producer snapshot, and of each of its entries.
const SNAPSHOT_HEAD: usize = 10;
const SNAPSHOT_ENTRY: usize = 46;

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Failure {
        Failure::new(error.kafka_name(), error.to_string())
    }
}

/// Whether a file is one that recovery kept aside: `.cut`, `.cut.1` and so on.
pub(crate) fn is_kept_aside(name: &str) -> bool {
    name.ends_with(".cut") || name.contains(".cut.")
}

/// The regular files of a folder by name: size and CRC-32C. Files kept aside by recovery are left out. Of the
/// segment to which `open` appends it is those of what the log has accepted, which the file may not have yet.
pub(crate) fn list(names: &dyn Namespace, folder: &Path, open: Option<&Log>) -> Answer {
    let entries = names.list(folder).map_err(|e| failure("IOException", folder, &e))?;
    let active = open.map(|log| accepted(names, folder, log)).transpose()?;
    let mut out = Vec::new();
    for entry in entries.into_iter().filter(|entry| entry.kind == Kind::File) {
        let name = entry.name.to_string_lossy().into_owned();
        if is_kept_aside(&name) {
            continue;
        }
        let bytes = match &active {
            Some((log, bytes)) if *log == name => bytes.clone(),
            _ => contents(names, &folder.join(&name))?,
        };
        out.push(json!({"file": name, "size": bytes.len(), "crc32c": crc32c::crc32c(&bytes)}));
    }
    Ok(Value::Array(out))
}

/// The name of the file to which a log appends, and what readers of the log find in it. What lies below the log start no
/// reader finds: that is as it is in the file.
fn accepted(names: &dyn Namespace, folder: &Path, log: &Log) -> Result<(String, Vec<u8>), Failure> {
    let state = log.state(false)?;
    let active = state.segments.last().ok_or_else(|| Failure::new("IllegalStateException", "no segment"))?;
    let name = format!("{:020}.log", active.base_offset.get());
    let from = active.base_offset.max(state.log_start);
    let size = usize::try_from(active.size).unwrap_or(usize::MAX);
    let region = match size {
        0 => None,
        _ if from >= state.log_end => None,
        _ => log.read(from, size, Isolation::LogEnd, true)?.region,
    };
    let seen = region.as_ref().map_or(size, |region| usize::try_from(region.position()).unwrap_or(size));
    let mut bytes = if seen > 0 { contents(names, &folder.join(&name))? } else { Vec::new() };
    bytes.resize(seen, 0);
    if let Some(region) = region {
        bytes.extend_from_slice(&region.to_bytes().map_err(Error::from)?);
    }
    Ok((name, bytes))
}

fn failure(class: &str, path: &Path, error: &IoError) -> Failure {
    Failure::new(class, format!("{}: {}", path.display(), error.io_error()))
}

fn contents(names: &dyn Namespace, path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = names.read(path, FILE_MAX).map_err(|e| Failure::io(path, e.io_error()))?;
    bytes.ok_or_else(|| Failure::io(path, &std::io::ErrorKind::NotFound.into()))
}

/// What stands in one file, by its suffix. The base offset comes from the name.
pub(crate) fn file(names: &dyn Namespace, path: &Path, records: bool) -> Answer {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let bytes = contents(names, path)?;
    let mut out = json!({"file": name, "size": bytes.len()});
    let suffix = name.rsplit_once('.').map(|(_, s)| s).unwrap_or_default();
    let (field, value) = match suffix {
        "log" => ("batches", describe::file(&bytes, records)?),
        "index" => ("entries", offset_entries(&offset_index(base(&name)?, &bytes)?)?),
        "timeindex" => ("entries", time_entries(&time_index(base(&name)?, &bytes)?)?),
        "txnindex" => {
            base(&name)?;
            ("entries", aborted(&bytes)?)
        }
        "snapshot" => ("producers", producers(&bytes)?),
        _ => ("text", Value::String(text(&bytes)?)),
    };
    out[field] = value;
    Ok(out)
}

/// The number at the beginning of a file name.
fn base(name: &str) -> Result<Offset, Failure> {
    let digits = name.split('.').next().unwrap_or_default();
    digits
        .parse()
        .map(Offset::new)
        .map_err(|_| Failure::new("NumberFormatException", format!("{name}: no offset in the name")))
}

fn text(bytes: &[u8]) -> Result<String, Failure> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Failure::new("MalformedInputException", "no UTF-8"))
}

/// A copy of an index file in memory.
fn region(bytes: &[u8]) -> MemoryRegion {
    let words = bytes.len() / 4;
    let region = MemoryRegion::new(words * 4);
    for (word, chunk) in bytes.chunks_exact(4).enumerate() {
        let mut four = [0; 4];
        four.copy_from_slice(chunk);
        region.store(word * 4, four);
    }
    region
}

fn offset_index(base: Offset, bytes: &[u8]) -> Result<OffsetIndex<MemoryRegion>, Failure> {
    let len = OffsetIndex::<MemoryRegion>::ENTRY_LEN;
    Ok(OffsetIndex::new(base, region(bytes), bytes.len() / len))
}

fn time_index(base: Offset, bytes: &[u8]) -> Result<TimeIndex<MemoryRegion>, Failure> {
    let len = TimeIndex::<MemoryRegion>::ENTRY_LEN;
    Ok(TimeIndex::new(base, region(bytes), bytes.len() / len))
}

/// The entries of an offset index, `[offset, position]`.
fn offset_entries<R: Region>(index: &OffsetIndex<R>) -> Answer {
    let mut out = Vec::new();
    for n in 0..index.entries() {
        let entry = index.entry(n)?;
        out.push(json!([entry.offset.get(), entry.position]));
    }
    Ok(Value::Array(out))
}

/// The entries of a time index, `[timestamp, offset]`.
fn time_entries<R: Region>(index: &TimeIndex<R>) -> Answer {
    let mut out = Vec::new();
    for n in 0..index.entries() {
        let entry = index.entry(n)?;
        out.push(json!([Timestamp::to_raw(entry.timestamp), entry.offset.get()]));
    }
    Ok(Value::Array(out))
}

/// The entries of an aborted-transaction index; a fragment at the end is none.
fn aborted(bytes: &[u8]) -> Answer {
    let mut out = Vec::new();
    for entry in bytes.chunks_exact(ABORTED_LEN) {
        // Kafka's accessor looks at one byte of the two.
        if entry[0] > 0 {
            return Err(Failure::new(
                "KafkaException",
                format!("aborted transaction of version {}", entry[0]),
            ));
        }
        out.push(json!([long(entry, 2), long(entry, 10), long(entry, 18), long(entry, 26)]));
    }
    Ok(Value::Array(out))
}

/// The producers of a snapshot, by id.
fn producers(bytes: &[u8]) -> Answer {
    let corrupt = |what: &str| Failure::new("CorruptSnapshotException", format!("snapshot: {what}"));
    if bytes.len() < SNAPSHOT_HEAD {
        return Err(corrupt("too short"));
    }
    if short(bytes, 0) != 1 {
        return Err(corrupt("unknown version"));
    }
    if int(bytes, 2) as u32 != crc32c::crc32c(&bytes[6..]) {
        return Err(corrupt("wrong checksum"));
    }
    let entries = &bytes[SNAPSHOT_HEAD..];
    let count = usize::try_from(int(bytes, 6)).map_err(|_| corrupt("negative count"))?;
    if entries.len() / SNAPSHOT_ENTRY < count {
        return Err(corrupt("fewer entries than counted"));
    }
    let mut found: Vec<(i64, Value)> =
        entries.chunks_exact(SNAPSHOT_ENTRY).take(count).map(producer).collect();
    found.sort_by_key(|(id, _)| *id);
    Ok(found.into_iter().map(|(_, value)| value).collect())
}

fn producer(entry: &[u8]) -> (i64, Value) {
    let (id, last_sequence, last_offset, delta) =
        (long(entry, 0), int(entry, 10), long(entry, 14), int(entry, 22));
    let (timestamp, transaction) = (long(entry, 26), long(entry, 38));
    // Sequence numbers go on with 0 after 2^31 - 1.
    let first_sequence = if last_sequence < delta {
        i32::MAX.wrapping_sub(delta.wrapping_sub(last_sequence)).wrapping_add(1)
    } else {
        last_sequence.wrapping_sub(delta)
    };
    let batches: Vec<Value> = (last_offset >= 0)
        .then(|| {
            json!([
                first_sequence,
                last_sequence,
                last_offset.wrapping_sub(i64::from(delta)),
                last_offset,
                timestamp
            ])
        })
        .into_iter()
        .collect();
    let value = json!({
        "id": id,
        "epoch": short(entry, 8),
        "coordinatorEpoch": int(entry, 34),
        "lastTimestamp": timestamp,
        "txnFirstOffset": (transaction >= 0).then_some(transaction),
        "batches": batches,
    });
    (id, value)
}

fn short(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn int(bytes: &[u8], at: usize) -> i32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    i32::from_be_bytes(four)
}

fn long(bytes: &[u8], at: usize) -> i64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(eight)
}

/// Cuts a file, lengthens it with zeros, overwrites bytes of it, removes it. A missing file is made, its folder is not.
pub(crate) fn damage(backend: &dyn Backend, op: Fields<'_>, folder: &str) -> Answer {
    let path = match op.text("path") {
        Some(path) => PathBuf::from(path),
        None if folder.is_empty() => return Err(Failure::new("IllegalStateException", "no log was open")),
        None => Path::new(folder).join(op.need_text("file")?),
    };
    let failed = |e: IoError| Failure::io(&path, e.io_error());
    if op.bool_or("remove", false) {
        let there = backend.names().remove(&path).map_err(failed)?;
        let absent = || Failure::io(&path, &std::io::ErrorKind::NotFound.into());
        return if there { Ok(json!({})) } else { Err(absent()) };
    }
    let how = if op.bool_or("existing", false) { OpenHow::Write } else { OpenHow::Create };
    let file = backend.open(&path, how);
    let file = file.map_err(|e| failure("FileNotFoundException", &path, &e))?;
    let len = || file.len().map(|len| len as i64).map_err(failed);
    let resize = |to: i64| {
        let before = || Failure::io(&path, &std::io::ErrorKind::InvalidInput.into());
        let len = u64::try_from(to).map_err(|_| before())?;
        file.submit(Op::SetLen { len }).wait().result.map_err(failed)
    };
    if let Some(length) = op.long("length") {
        resize(length)?;
    }
    if let Some(cut) = op.long("cut") {
        resize(len()? - cut)?;
    }
    if let Some(grow) = op.long("grow") {
        resize(len()? + grow)?;
    }
    if let Some(at) = op.long("at") {
        let at = if at < 0 { len()? + at } else { at };
        let at =
            u64::try_from(at).map_err(|_| Failure::new("IOException", "a place before the beginning"))?;
        write_all(&*file, at, Bytes::from(op.need_bytes("bytes")?).into()).map_err(failed)?;
    }
    Ok(json!({}))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use kseg_io_backends::{Backend, StdBackend};

    use super::{damage, file, list};
    use crate::replay::protocol::Fields;

    #[test]
    fn damage_cuts_grows_and_overwrites_in_this_order() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().to_string_lossy().into_owned();
        let op = json!({"file": "f", "length": 10, "cut": 4, "grow": 2, "at": -3, "bytes": "AQID"});
        damage(&StdBackend::new(), Fields(&op), &name).unwrap();
        assert_eq!(std::fs::read(folder.path().join("f")).unwrap(), [0, 0, 0, 0, 0, 1, 2, 3]);
        damage(&StdBackend::new(), Fields(&json!({"file": "f", "remove": true})), &name).unwrap();
        assert!(damage(&StdBackend::new(), Fields(&json!({"file": "f", "remove": true})), &name).is_err());
        let existing = json!({"file": "f", "grow": 1, "existing": true});
        assert!(damage(&StdBackend::new(), Fields(&existing), &name).is_err());
        // Of no log: it would be a file of whoever runs this.
        assert!(damage(&StdBackend::new(), Fields(&json!({"file": "f"})), "").is_err());
    }

    #[test]
    fn files_are_listed_by_name_without_what_recovery_kept_aside() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a", "a.cut", "a.cut.1"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        std::fs::create_dir(folder.path().join("c")).unwrap();
        let answer = list(StdBackend::new().names(), folder.path(), None).unwrap();
        let names: Vec<&str> = answer.as_array().unwrap().iter().filter_map(|f| f["file"].as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn entries_of_an_index_have_whole_offsets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("00000000000000000100.index");
        std::fs::write(&path, [0, 0, 0, 7, 0, 0, 1, 0]).unwrap();
        let answer = file(StdBackend::new().names(), &path, true).unwrap();
        assert_eq!(answer["entries"], json!([[107, 256]]));
    }
}
