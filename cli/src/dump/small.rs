//! The small files of a partition and of a data directory: producer snapshots, checkpoints, metadata, markers.

use std::path::Path;

use kseg_format::checkpoint_files::{
    CLEANER_OFFSETS, HIGH_WATERMARKS, LEADER_EPOCHS, LOG_STARTS, RECOVERY_POINTS,
};
use kseg_format::{
    CleanShutdown, MetaProperties, Offset, PartitionMetadata, SnapshotEntry, SnapshotError, Timestamp,
    decode_snapshot, parse_epochs, parse_offsets,
};

use super::problem::Problem;
use super::report::{Field, Finding, Place, Report};
use crate::error::{Error, Result};
use crate::read::PreadFile;

/// A file that is longer is none of these.
const SIZE_MAX: u64 = i32::MAX as u64;

/// A kind of small file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Small {
    LeaderEpochs,
    Offsets,
    PartitionMetadata,
    MetaProperties,
    CleanShutdown,
}

impl Small {
    /// The kind of a name; what is written beside such a file until it takes its place, and what was kept as damaged, is
    /// one too.
    pub(super) fn of(name: &str) -> Option<Small> {
        let name = [".tmp", ".damaged"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        Some(match name {
            LEADER_EPOCHS => Small::LeaderEpochs,
            RECOVERY_POINTS | LOG_STARTS | HIGH_WATERMARKS | CLEANER_OFFSETS => Small::Offsets,
            PartitionMetadata::FILE_NAME => Small::PartitionMetadata,
            MetaProperties::FILE_NAME => Small::MetaProperties,
            CleanShutdown::FILE_NAME => Small::CleanShutdown,
            _ => return None,
        })
    }
}

/// Shows a small file.
pub(super) fn dump(path: &Path, small: Small, report: &mut Report) -> Result<()> {
    let problems = report.problems();
    let (mut file, len) = open(path)?;
    report.heading(path, None, len)?;
    let bytes = file.bytes(0, len as usize)?;
    let shown = match small {
        Small::LeaderEpochs => epochs(path, bytes, report)?,
        Small::Offsets => offsets(path, bytes, report)?,
        Small::PartitionMetadata => match PartitionMetadata::parse(bytes) {
            Ok(metadata) => {
                let fields = [
                    Field::Number("version", metadata.version.into()),
                    Field::Text("topic_id", Some(&metadata.topic_id.to_string())),
                ];
                report.entry("partition_metadata", path, &fields)?;
                1
            }
            Err(error) => unreadable(path, error.line, error.expected, &error.found, report)?,
        },
        Small::MetaProperties => match MetaProperties::parse(bytes) {
            Ok(properties) => {
                let directory = properties.directory_id.map(|id| id.to_string());
                let fields = [
                    Field::Number("version", properties.version.into()),
                    Field::Text("cluster_id", properties.cluster_id.as_deref()),
                    Field::Maybe("node_id", properties.node_id.map(i64::from)),
                    Field::Text("directory_id", directory.as_deref()),
                ];
                report.entry("meta_properties", path, &fields)?;
                1
            }
            Err(error) => unreadable(path, error.line, error.expected, &error.found, report)?,
        },
        // Whatever it holds, it says that the stop was an orderly one.
        Small::CleanShutdown => {
            let epoch = CleanShutdown::parse(bytes).broker_epoch;
            report.entry("clean_shutdown", path, &[Field::Maybe("broker_epoch", epoch)])?;
            1
        }
    };
    report.file_end(path, "entries", shown, problems)
}

/// Shows a producer snapshot, of the producers of what lies before `end`.
pub(super) fn dump_snapshot(path: &Path, end: Option<Offset>, report: &mut Report) -> Result<()> {
    let problems = report.problems();
    let (mut file, len) = open(path)?;
    report.named(path, end, len)?;
    let bytes = file.bytes(0, len as usize)?;
    let producers = match decode_snapshot(bytes) {
        Ok(producers) => producers,
        Err(error) => {
            let (at, expected, found) = words(&error);
            let (problem, place) = (Problem::Snapshot, Place::Byte(at));
            report.finding(Finding { problem, path, place, offset: None, expected, found })?;
            Vec::new()
        }
    };
    for (index, producer) in producers.iter().enumerate() {
        let place = Place::Byte(SnapshotEntry::position(index) as u64);
        let batch = producer.last_batch;
        let last = batch.map(|batch| batch.last_offset.get());
        let base = batch.map(|batch| batch.last_offset.get().wrapping_sub(batch.offset_delta.into()));
        let open = producer.transaction_start.map(Offset::get);
        report.entry(
            "producer",
            path,
            &[
                Field::Number("pid", producer.producer_id.get()),
                Field::Maybe("epoch", producer.producer_epoch.map(|epoch| epoch.get().into())),
                Field::Maybe("last_seq", batch.and_then(|batch| batch.last_sequence).map(|n| n.get().into())),
                Field::Maybe("base", base),
                Field::Maybe("last", last),
                Field::Time(producer.timestamp.map(Timestamp::get)),
                Field::Maybe("coordinator_epoch", producer.coordinator_epoch.map(i64::from)),
                Field::Maybe("txn_first", open),
            ],
        )?;
        let Some(end) = end.map(Offset::get) else { continue };
        for offset in [last, open].into_iter().flatten().filter(|offset| *offset >= end) {
            report.finding(Finding {
                problem: Problem::SnapshotOffset,
                path,
                place,
                offset: Some(offset),
                expected: format!("offsets of producer {} below {end}", producer.producer_id),
                found: offset.to_string(),
            })?;
        }
    }
    report.file_end(path, "producers", producers.len() as u64, problems)
}

fn epochs(path: &Path, bytes: &[u8], report: &mut Report) -> Result<u64> {
    let entries = match parse_epochs(bytes) {
        Ok(entries) => entries,
        Err(error) => return unreadable(path, error.line(), error.expected(), error.found(), report),
    };
    let mut before = None;
    for (line, entry) in (3..).zip(&entries) {
        let (epoch, start) = (entry.epoch.get(), entry.start_offset.get());
        let fields = [Field::Number("epoch", epoch.into()), Field::Number("start", start)];
        report.entry("leader_epoch", path, &fields)?;
        if let Some((last_epoch, last_start)) = before
            && (epoch <= last_epoch || start <= last_start)
        {
            report.finding(Finding {
                problem: Problem::EpochOrder,
                path,
                place: Place::Line(line),
                offset: Some(start),
                expected: format!("an epoch above {last_epoch} that starts behind offset {last_start}"),
                found: format!("epoch {epoch} from offset {start}"),
            })?;
        }
        before = Some((epoch, start));
    }
    Ok(entries.len() as u64)
}

fn offsets(path: &Path, bytes: &[u8], report: &mut Report) -> Result<u64> {
    let entries = match parse_offsets(bytes) {
        Ok(entries) => entries,
        Err(error) => return unreadable(path, error.line(), error.expected(), error.found(), report),
    };
    for (partition, offset) in &entries {
        let fields = [
            Field::Text("topic", Some(&partition.topic)),
            Field::Number("partition", partition.partition.into()),
            Field::Number("offset", offset.get()),
        ];
        report.entry("checkpoint", path, &fields)?;
    }
    Ok(entries.len() as u64)
}

/// A file and how long it is.
fn open(path: &Path) -> Result<(PreadFile, u64)> {
    let file = PreadFile::open(path)?;
    let len = file.len()?;
    if len > SIZE_MAX {
        return Err(Error::bad(path, format!("at most {SIZE_MAX} bytes"), format!("{len} bytes")));
    }
    Ok((file, len))
}

/// Tells of a line that cannot be read; no entry was shown.
fn unreadable(path: &Path, line: usize, expected: &str, found: &str, report: &mut Report) -> Result<u64> {
    report.finding(Finding {
        problem: Problem::Content,
        path,
        place: Place::Line(line as u64),
        offset: None,
        expected: expected.to_owned(),
        found: found.to_owned(),
    })?;
    Ok(0)
}

/// Where a snapshot cannot be read, what should be there, and what is.
fn words(error: &SnapshotError) -> (u64, String, String) {
    match *error {
        SnapshotError::Short { needed, found } => {
            (found, format!("{needed} bytes"), format!("{found} bytes"))
        }
        SnapshotError::Version { expected, found } => (0, format!("version {expected}"), found.to_string()),
        SnapshotError::Crc { expected, found } => {
            (2, format!("checksum {found} for these bytes"), format!("{expected} stored"))
        }
        SnapshotError::Count { found } => {
            (6, "a number of entries of 0 and up".to_owned(), found.to_string())
        }
        ref other => (0, "a producer snapshot".to_owned(), other.to_string()),
    }
}
