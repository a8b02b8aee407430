//! `.txnindex` files: aborted transactions, compared with the markers in the log file beside them.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use kseg_format::{AbortedTransaction, ControlType, Offset, ProducerId};

use super::indexes::Index;
use super::problem::Problem;
use super::report::{Field, Finding, Place, Report, control_type};
use crate::error::Result;
use crate::read::{DECOMPRESSED_MAX, Step, Walk, WalkError};

const ENTRY: usize = AbortedTransaction::LEN;

/// Shows a transaction index.
pub(super) fn dump(path: &Path, base: Option<Offset>, report: &mut Report) -> Result<()> {
    let mut index = Index::open(path, base, ENTRY, report)?;
    let mut aborts = index.log().and_then(|mut log| Aborts::read(&mut log));
    // The marker of the entry before, and how far it says that the log was stable.
    let (mut before, mut stable) = (index.base.get() - 1, 0);
    while let Some(bytes) = index.next::<ENTRY>()? {
        let place = Place::Byte(index.at - ENTRY as u64);
        index.entries += 1;
        let Ok(entry) = AbortedTransaction::decode(&bytes, 0) else {
            let found = i16::from_be_bytes([bytes[0], bytes[1]]).to_string();
            let (problem, expected) = (Problem::TxnVersion, "version 0".to_owned());
            report.finding(Finding { problem, path, place, offset: None, expected, found })?;
            continue;
        };
        let (producer, first) = (entry.producer_id, entry.first_offset.get());
        let (last, last_stable) = (entry.last_offset.get(), entry.last_stable_offset.get());
        report.entry(
            "aborted",
            path,
            &[
                Field::Number("pid", producer.get()),
                Field::Number("first", first),
                Field::Number("last", last),
                Field::Number("last_stable", last_stable),
            ],
        )?;
        let mut tell = |problem, expected, found: String| {
            report.finding(Finding { problem, path, place, offset: Some(last), expected, found })
        };
        if last <= before {
            tell(Problem::TxnOrder, format!("a marker behind offset {before}"), last.to_string())?;
        }
        if !(0..=last).contains(&first) {
            let expected = format!("a first offset from 0 to the marker's {last}");
            tell(Problem::TxnRange, expected, first.to_string())?;
        }
        if !(stable..=last.saturating_add(1)).contains(&last_stable) {
            let expected = format!("a last stable offset from {stable} to the marker's {last} and one");
            tell(Problem::TxnRange, expected, last_stable.to_string())?;
        }
        (before, stable) = (last, last_stable);
        if let Ok(aborts) = &mut aborts {
            match aborts.markers.remove(&last) {
                Some(marker) if marker.producer == Some(producer) => {}
                Some(Marker { producer: other, .. }) => {
                    let expected = format!("producer {} of the marker there", ProducerId::to_raw(other));
                    tell(Problem::TxnMismatch, expected, producer.to_string())?;
                }
                None if last >= aborts.read_to => {}
                None => {
                    let expected = format!("an abort marker of producer {producer} in the log");
                    tell(Problem::TxnMismatch, expected, format!("none at offset {last}"))?;
                }
            }
        }
    }
    if let Ok(aborts) = &aborts {
        for (&offset, marker) in aborts.markers.iter().filter(|(_, marker)| marker.ends_records) {
            report.finding(Finding {
                problem: Problem::TxnMissing,
                path,
                place: Place::Byte(index.at),
                offset: Some(offset),
                expected: format!("producer {}, aborted here", ProducerId::to_raw(marker.producer)),
                found: "no entry".to_owned(),
            })?;
        }
    }
    index.end(Problem::TxnLength, report)?;
    aborts.map(|_| ())
}

/// The abort markers of a log file.
#[derive(Debug)]
struct Aborts {
    /// By offset, those that no entry has told of.
    markers: BTreeMap<i64, Marker>,
    /// Nothing is known of what lies here and behind: it cannot be read.
    read_to: i64,
}

#[derive(Debug)]
struct Marker {
    producer: Option<ProducerId>,
    /// Whether the file has records of the transaction. A transaction without any has no entry; nor has one that lost them
    /// to compaction.
    ends_records: bool,
}

impl Aborts {
    fn read(log: &mut Walk) -> Result<Aborts> {
        let mut aborts = Aborts { markers: BTreeMap::new(), read_to: 0 };
        let mut open = HashSet::new();
        let mut scratch = Vec::new();
        loop {
            let header = match log.peek() {
                Ok(Step::Batch(header)) => header,
                Ok(Step::End) => {
                    aborts.read_to = i64::MAX;
                    return Ok(aborts);
                }
                Ok(_) | Err(WalkError::Decode(_)) => return Ok(aborts),
                Err(WalkError::Io(error)) => return Err(error),
            };
            let producer = header.producer_id();
            if header.is_control() {
                let batch = match log.batch(&header) {
                    Ok(batch) => batch,
                    Err(WalkError::Decode(_)) => return Ok(aborts),
                    Err(WalkError::Io(error)) => return Err(error),
                };
                let ends_records = open.remove(&producer);
                let first = batch.records(&mut scratch, DECOMPRESSED_MAX).ok().and_then(|mut all| all.next());
                let Some(Ok(record)) = first else { return Ok(aborts) };
                if control_type(&batch, &record) == Some(ControlType::Abort) {
                    aborts.markers.insert(record.offset().get(), Marker { producer, ends_records });
                }
            } else if header.is_transactional() && header.records_count() != Some(0) {
                open.insert(producer);
            }
            aborts.read_to = header.next_offset().get();
            log.advance(&header);
        }
    }
}
