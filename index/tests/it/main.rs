//! Behaviour of the two indexes, each module one aspect.

mod cases;
mod damage;
mod model;
mod offset_index;
mod time_index;

use kseg_format::{Offset, Timestamp};
use kseg_index::{MemoryRegion, OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset};

/// Greatest relative offset and greatest position.
const M: i64 = i32::MAX as i64;

fn offset_index(base: i64, max_entries: usize) -> OffsetIndex<MemoryRegion> {
    OffsetIndex::new(Offset::new(base), MemoryRegion::new(max_entries * 8), 0)
}

fn time_index(base: i64, max_entries: usize) -> TimeIndex<MemoryRegion> {
    TimeIndex::new(Offset::new(base), MemoryRegion::new(max_entries * 12), 0)
}

fn at(offset: i64, position: u32) -> OffsetPosition {
    OffsetPosition { offset: Offset::new(offset), position }
}

/// -1 for no timestamp, as in the file.
fn when(timestamp: i64, offset: i64) -> TimestampOffset {
    TimestampOffset { timestamp: Timestamp::from_raw(timestamp), offset: Offset::new(offset) }
}

/// The same entries over a region of another length, as when a file is cut or extended and mapped anew.
fn resized(index: &OffsetIndex<MemoryRegion>, len: usize) -> OffsetIndex<MemoryRegion> {
    OffsetIndex::new(index.base(), copy(index.region(), len), index.entries())
}

fn resized_time(index: &TimeIndex<MemoryRegion>, len: usize) -> TimeIndex<MemoryRegion> {
    TimeIndex::new(index.base(), copy(index.region(), len), index.entries())
}

fn copy(region: &MemoryRegion, len: usize) -> MemoryRegion {
    let mut bytes = region.to_bytes();
    bytes.resize(len, 0);
    MemoryRegion::from_bytes(&bytes)
}
