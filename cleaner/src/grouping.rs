//! Which neighbours are copied into one new segment.
//!
//! Source: Kafka `Cleaner.groupSegmentsBySize`.

use kseg_format::Offset;

/// What grouping looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "facts that a caller gathers")]
pub struct GroupFacts {
    /// The segment's base offset.
    pub base_offset: Offset,
    /// Bytes of its log file.
    pub size: u64,
    /// Bytes of entries in its offset index.
    pub offset_index_size: u64,
    /// Bytes of entries in its time index.
    pub time_index_size: u64,
}

/// Up to where a group grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "three limits")]
pub struct GroupLimits {
    /// `segment.bytes`.
    pub size: u64,
    /// `segment.index.bytes`, for each of the two indexes.
    pub index_size: u64,
    /// The first offset that cannot be cleaned: above every offset in the last segment.
    pub first_uncleanable: Offset,
}

/// The sizes of the groups, in order; each segment is in one. A group takes the next segment while the sums of the sizes stay
/// within the limits and its last offset, guessed from the segment behind it, within the range of a relative offset. An
/// empty segment has no offset, and joins whatever the distance.
pub fn group(segments: &[GroupFacts], limits: &GroupLimits) -> Vec<usize> {
    let mut groups = Vec::new();
    let mut start = 0;
    while let Some(first) = segments.get(start) {
        let (mut size, mut offsets, mut times) = (first.size, first.offset_index_size, first.time_index_size);
        let mut end = start + 1;
        while let Some(next) = segments.get(end) {
            let behind = segments.get(end + 1).map_or(limits.first_uncleanable, |s| s.base_offset);
            let distance = behind.get().saturating_sub(1).saturating_sub(first.base_offset.get());
            let fits = size.saturating_add(next.size) <= limits.size
                && offsets.saturating_add(next.offset_index_size) <= limits.index_size
                && times.saturating_add(next.time_index_size) <= limits.index_size
                && (next.size == 0 || distance <= i64::from(i32::MAX));
            if !fits {
                break;
            }
            size += next.size;
            offsets += next.offset_index_size;
            times += next.time_index_size;
            end += 1;
        }
        groups.push(end - start);
        start = end;
    }
    groups
}
