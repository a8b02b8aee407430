//! `.index` and `.timeindex` files as Kafka's tool dumps them.
//!
//! Nothing is written: an index of an odd length is left as it is, a missing one is not made.
//!
//! Source: Kafka 4.3.1 `DumpLogSegments.dumpIndex`, `dumpTimeIndex`.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io::Write;

use super::abort::Abort;
use super::dump_log::Findings;
use super::java;
use super::log_file::{FileBatch, LogFile, Slice};
use super::options::Options;
use super::records;

const OFFSET_ENTRY: usize = 8;
const TIME_ENTRY: usize = 12;

/// Entries at the end of an offset index that a search looks at first: those in 8 KiB.
const WARM_ENTRIES: usize = 8192 / OFFSET_ENTRY;

/// Dumps an `.index` file.
pub(super) fn dump_offsets(
    file: &str,
    options: &Options,
    out: &mut impl Write,
    findings: &mut Findings,
) -> Result<(), Abort> {
    let max_message_size = options.max_message_size()?;
    let base = java::base_offset(file)?;
    let log = LogFile::open(&java::sibling(file, ".log"))?;
    let bytes = read_index(file)?;
    let entries = offset_entries(base, &bytes);
    let Some(last) = entries.last() else {
        writeln!(out, "{file} is empty.")?;
        return Ok(());
    };
    if options.sanity_only {
        if last.offset < base {
            return Err(below_base(file, "index", "Index", base, last.offset));
        }
        check_length(file, "Index", bytes.len(), OFFSET_ENTRY)?;
        writeln!(out, "{file} passed sanity check.")?;
        return Ok(());
    }
    for (n, entry) in entries.iter().enumerate() {
        if entry.offset == base && n > 0 {
            return Ok(());
        }
        let slice = log.slice(entry.position, max_message_size)?;
        let Some(batch) = log.batch(slice, slice.start())? else {
            return Err(Abort::silent("java.util.NoSuchElementException"));
        };
        let last = batch.last_offset()?;
        if last != entry.offset {
            findings.index_mismatch(file, entry.offset, last);
        }
        if !options.verify_only {
            writeln!(out, "offset: {} position: {}", entry.offset, entry.position)?;
        }
    }
    Ok(())
}

/// Dumps a `.timeindex` file.
pub(super) fn dump_times(
    file: &str,
    options: &Options,
    out: &mut impl Write,
    findings: &mut Findings,
) -> Result<(), Abort> {
    let base = java::base_offset(file)?;
    let log = LogFile::open(&java::sibling(file, ".log"))?;
    let offsets = offset_entries(base, &read_index(&java::sibling(file, ".index"))?);
    let bytes = read_index(file)?;
    let entries = time_entries(base, &bytes);
    if options.sanity_only {
        check_times(file, base, &entries)?;
        check_length(file, "Time index", bytes.len(), TIME_ENTRY)?;
        writeln!(out, "{file} passed sanity check.")?;
        return Ok(());
    }
    let mut walks = Walks::default();
    let mut previous = -1;
    for (n, &TimeEntry { timestamp, offset }) in entries.iter().enumerate() {
        if offset == base && n > 0 {
            return Ok(());
        }
        let slice = log.slice(lookup(&offsets, offset), i32::MAX)?;
        walks.walk_to_end(&log, slice)?;
        match first_reaching(&log, slice, offset)? {
            None => findings.offset_not_found(file, offset, -1),
            Some((_, last)) if last != offset => findings.offset_not_found(file, offset, last),
            Some((batch, _)) => {
                let largest = records::largest_timestamp(&batch)?;
                if largest != timestamp {
                    findings.time_mismatch(file, timestamp, largest);
                }
                if previous >= timestamp {
                    findings.time_disorder(file, timestamp, previous);
                }
            }
        }
        if !options.verify_only {
            writeln!(out, "timestamp: {timestamp} offset: {offset}")?;
        }
        previous = timestamp;
    }
    Ok(())
}

/// An entry of an offset index, whatever it says.
#[derive(Debug, Clone, Copy)]
struct OffsetEntry {
    offset: i64,
    position: i32,
}

/// An entry of a time index, whatever it says.
#[derive(Debug, Clone, Copy)]
struct TimeEntry {
    timestamp: i64,
    offset: i64,
}

fn offset_entries(base: i64, bytes: &[u8]) -> Vec<OffsetEntry> {
    let entry = |entry: &[u8; OFFSET_ENTRY]| {
        let &[o0, o1, o2, o3, p0, p1, p2, p3] = entry;
        OffsetEntry {
            offset: base.wrapping_add(i64::from(i32::from_be_bytes([o0, o1, o2, o3]))),
            position: i32::from_be_bytes([p0, p1, p2, p3]),
        }
    };
    bytes.as_chunks().0.iter().map(entry).collect()
}

fn time_entries(base: i64, bytes: &[u8]) -> Vec<TimeEntry> {
    let entry = |entry: &[u8; TIME_ENTRY]| {
        let &[t0, t1, t2, t3, t4, t5, t6, t7, o0, o1, o2, o3] = entry;
        TimeEntry {
            timestamp: i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            offset: base.wrapping_add(i64::from(i32::from_be_bytes([o0, o1, o2, o3]))),
        }
    };
    bytes.as_chunks().0.iter().map(entry).collect()
}

/// Position of the greatest entry at or below `target`, 0 where there is none.
///
/// Step by step as in the original, because the entries need not be in order: padding is not.
///
/// Source: Kafka `AbstractIndex.indexSlotRangeFor`.
fn lookup(entries: &[OffsetEntry], target: i64) -> i32 {
    let Some(last) = entries.len().checked_sub(1) else { return 0 };
    let warm = last.saturating_sub(WARM_ENTRIES);
    let (mut low, mut high) = if entries[warm].offset < target {
        (warm, last)
    } else if entries[0].offset > target {
        return 0;
    } else {
        (0, warm)
    };
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match entries[middle].offset.cmp(&target) {
            Ordering::Greater => high = middle - 1,
            Ordering::Less => low = middle,
            Ordering::Equal => return entries[middle].position,
        }
    }
    entries[low].position
}

/// The first batch of `slice` that ends at or above `offset`, and where it ends.
fn first_reaching<'f>(
    log: &'f LogFile,
    slice: Slice,
    offset: i64,
) -> Result<Option<(FileBatch<'f>, i64)>, Abort> {
    let mut position = slice.start();
    while let Some(batch) = log.batch(slice, position)? {
        let last = batch.last_offset()?;
        if last >= offset {
            return Ok(Some((batch, last)));
        }
        position += batch.size();
    }
    Ok(None)
}

/// Positions from which the batches have been listed to the end of the log.
///
/// The tool lists them anew for every entry, before it looks for one, and fails where the list does. What lies behind a
/// position is the same for every way to it, so that each part of the log is walked once.
#[derive(Debug, Default)]
struct Walks {
    seen: HashSet<u64>,
}

impl Walks {
    fn walk_to_end(&mut self, log: &LogFile, slice: Slice) -> Result<(), Abort> {
        let mut position = slice.start();
        while !self.seen.contains(&position) {
            let batch = log.batch(slice, position)?;
            self.seen.insert(position);
            let Some(batch) = batch else { break };
            position += batch.size();
        }
        Ok(())
    }
}

fn read_index(file: &str) -> Result<Vec<u8>, Abort> {
    std::fs::read(file).map_err(|error| match error.kind() {
        // The original makes an empty file here, and then has no room to map it in.
        std::io::ErrorKind::NotFound => Abort::illegal_argument("Invalid max index size: -1"),
        _ => Abort::io(file, &error),
    })
}

fn check_times(file: &str, base: i64, entries: &[TimeEntry]) -> Result<(), Abort> {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
    if last.timestamp < first.timestamp {
        return Err(Abort::corrupt_index(format!(
            "Corrupt time index found, time index file ({}) has non-zero size but the last timestamp is {} which is \
             less than the first timestamp {}",
            java::absolute(file),
            last.timestamp,
            first.timestamp
        )));
    }
    if last.offset < base {
        return Err(below_base(file, "time index", "time index", base, last.offset));
    }
    Ok(())
}

fn below_base(file: &str, kind: &str, what: &str, base: i64, last: i64) -> Abort {
    Abort::corrupt_index(format!(
        "Corrupt {kind} found, {what} file ({}) has non-zero size but the last offset is {last} which is less than the \
         base offset {base}",
        java::absolute(file)
    ))
}

fn check_length(file: &str, what: &str, len: usize, entry: usize) -> Result<(), Abort> {
    if len.is_multiple_of(entry) {
        return Ok(());
    }
    Err(Abort::corrupt_index(format!(
        "{what} file {} is corrupt, found {len} bytes which is neither positive nor a multiple of {entry}",
        java::absolute(file)
    )))
}
