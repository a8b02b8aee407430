//! Where to begin a search, by the index files of a segment.
//!
//! An index is a hint: a file that is not there, cannot be read or makes no sense gives none, and what it says is
//! compared with the log before it is used. Entries are read one at a time, so that an index of many MiB costs a few
//! reads. The active segment's index ends in zeros, which are no entries.

use kseg_format::{Offset, Timestamp};

use super::file::PreadFile;
use super::partition::SegmentFile;
use super::walk::{Step, Walk};

const OFFSET_ENTRY: u64 = 8;
const TIME_ENTRY: u64 = 12;

/// Moves `walk` to the last batch by the offset index that begins at or below `target`, if there is a trustworthy entry.
///
/// The batch there has the right checksum, so a wrong index costs time and nothing else.
pub(super) fn seek_offset(walk: &mut Walk, segment: &SegmentFile, target: Offset) {
    let Some(position) = offset_entry(segment, target) else { return };
    let start = walk.position();
    walk.seek(position);
    let good = match walk.peek() {
        Ok(Step::Batch(header)) => {
            header.base_offset().is_some_and(|base| segment.base <= base && base <= target)
                && walk.batch(&header).is_ok()
        }
        _ => false,
    };
    if !good {
        walk.seek(start);
    }
}

/// Whether the time index of a sealed segment says that all its timestamps lie below `target`.
///
/// Believed only where the whole index is in order and its last entry is the largest timestamp of the batch it names.
pub(super) fn all_before(segment: &SegmentFile, end: Offset, target: Timestamp) -> bool {
    last_time_entry(segment, end).is_some_and(|(timestamp, offset)| {
        timestamp < target.get() && largest_timestamp(segment, offset) == Some(timestamp)
    })
}

/// Position in the entry with the greatest offset at or below `target`.
fn offset_entry(segment: &SegmentFile, target: Offset) -> Option<u64> {
    let relative = i64::from(target.relative_to(segment.base).map_or(i32::MAX, |relative| relative.get()));
    let mut file = open(segment, "index")?;
    let entries = file.len().ok()? / OFFSET_ENTRY;
    let mut entry = |n: u64| {
        let bytes = file.bytes(n * OFFSET_ENTRY, OFFSET_ENTRY as usize).ok()?;
        let &[o0, o1, o2, o3, p0, p1, p2, p3] = bytes else { return None };
        Some((i32::from_be_bytes([o0, o1, o2, o3]), u32::from_be_bytes([p0, p1, p2, p3])))
    };
    let (mut low, mut high) = (0, entries);
    let mut found = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let (offset, position) = entry(middle)?;
        let padding = offset == 0 && position == 0;
        if !padding && i64::from(offset) <= relative {
            found = Some(u64::from(position));
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    found
}

/// The last entry of a time index whose entries ascend and stay inside the segment.
fn last_time_entry(segment: &SegmentFile, end: Offset) -> Option<(i64, Offset)> {
    let mut file = open(segment, "timeindex")?;
    let len = file.len().ok()?;
    if len == 0 || len % TIME_ENTRY != 0 {
        return None;
    }
    let mut last: Option<(i64, Offset)> = None;
    for n in 0..len / TIME_ENTRY {
        let bytes = file.bytes(n * TIME_ENTRY, TIME_ENTRY as usize).ok()?;
        let &[t0, t1, t2, t3, t4, t5, t6, t7, o0, o1, o2, o3] = bytes else { return None };
        let timestamp = i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]);
        let relative = i32::from_be_bytes([o0, o1, o2, o3]);
        let offset = segment.base.checked_add(i64::from(relative))?;
        let ascends = last.is_none_or(|(before, at)| timestamp > before && offset > at);
        if !ascends || relative < 0 || offset >= end {
            return None;
        }
        last = Some((timestamp, offset));
    }
    last
}

/// The largest timestamp in the header of the batch that holds `offset`.
fn largest_timestamp(segment: &SegmentFile, offset: Offset) -> Option<i64> {
    let mut walk = Walk::new(PreadFile::open(&segment.path).ok()?).ok()?;
    walk.headers_only(true);
    seek_offset(&mut walk, segment, offset);
    loop {
        match walk.peek().ok()? {
            Step::Batch(header) if header.last_offset() < offset => walk.advance(&header),
            Step::Batch(header) => return header.max_timestamp().map(Timestamp::get),
            _ => return None,
        }
    }
}

fn open(segment: &SegmentFile, suffix: &str) -> Option<PreadFile> {
    let mut file = PreadFile::open(&segment.path.with_extension(suffix)).ok()?;
    file.set_read_size(4096);
    Some(file)
}
