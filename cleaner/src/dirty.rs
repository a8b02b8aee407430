//! The clean, cleanable and uncleanable sections of a log.
//!
//! Offsets bound the sections, but bytes are counted in whole segments: a segment that the first dirty offset divides
//! counts as clean and as cleanable. The active segment is never cleanable.
//!
//! Source: Kafka `LogCleanerManager.cleanableOffsets`, `calculateCleanableBytes`, `maxCompactionDelay`; `LogToClean`.

use std::ops::Range;

use kseg_format::{Offset, Timestamp};

/// What is known of one sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "facts that a caller gathers")]
pub struct SegmentFacts {
    /// The base offset, which is in its name.
    pub base_offset: Offset,
    /// Bytes of its log file.
    pub size: u64,
    /// The greatest timestamp of its records; where none of them has one, the time its log file was last modified.
    pub largest_timestamp: Timestamp,
    /// The greatest timestamp of its first batch; `None` where that has none, or where [`Rules::max_compaction_lag_ms`]
    /// is at its default, so that nobody asks.
    pub first_batch_timestamp: Option<Timestamp>,
}

/// What is known of one log.
///
/// The base offsets of `sealed` ascend and lie below `active_base_offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "facts that a caller gathers")]
pub struct LogFacts<'a> {
    /// All segments but the active one.
    pub sealed: &'a [SegmentFacts],
    /// Base offset of the active segment.
    pub active_base_offset: Offset,
    /// Bytes of the active segment's log file.
    pub active_size: u64,
    /// The earliest readable offset.
    pub log_start_offset: Offset,
    /// The offset of the next record.
    pub log_end_offset: Offset,
    /// Exclusive bound of what is committed and belongs to no open transaction.
    pub last_stable_offset: Offset,
    /// The offset at which the last finished cleaning ended, from the file `cleaner-offset-checkpoint`.
    pub checkpoint: Option<Offset>,
}

/// The topic's configuration, as far as it decides when to clean.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "three keys of Kafka's")]
pub struct Rules {
    /// A log is cleaned when its cleanable ratio is above this. Default: 0.5. Range: 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// How long a record stays uncompacted at least, in milliseconds. Default: 0. Minimum: 0.
    pub min_compaction_lag_ms: i64,
    /// How long a record may wait, in milliseconds, before its log is cleaned whatever its ratio. Default: [`i64::MAX`].
    /// Minimum: 1; a smaller value counts as 0.
    pub max_compaction_lag_ms: i64,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { min_cleanable_dirty_ratio: 0.5, min_compaction_lag_ms: 0, max_compaction_lag_ms: i64::MAX }
    }
}

/// Where the dirty section begins, and whether the checkpoint says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "an answer of two parts")]
pub struct FirstDirty {
    /// The first offset that was not compacted yet.
    pub offset: Offset,
    /// Set where the checkpoint does not fit the log: `offset` is to be written in its place at once, also if the log is
    /// not cleaned now.
    pub reset: Option<Reset>,
}

/// Why a checkpoint does not fit its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reset {
    /// It lies below the log start offset: records were deleted. Usual with `cleanup.policy=compact,delete`, worth a
    /// warning otherwise.
    BelowLogStart,
    /// It lies past the log end offset. Worth a warning.
    PastLogEnd,
}

/// The sections of one log at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sections {
    /// Where the dirty section begins.
    pub first_dirty: FirstDirty,
    /// The first offset that cannot be cleaned now, not below the first dirty one: the least of the last stable offset,
    /// the active segment's base offset, and the base offset of the first segment with records younger than the lag.
    pub first_uncleanable_dirty_offset: Offset,
    /// The same, at the boundary of the segment that holds it: where the cleanable section ends.
    pub first_uncleanable_offset: Offset,
    /// Bytes of the segments that begin below the first dirty offset.
    pub clean_bytes: u64,
    /// Bytes of the segments between the first dirty and the first uncleanable offset.
    pub cleanable_bytes: u64,
    /// By how many milliseconds a dirty record has been waiting for longer than it may; 0 where none has.
    pub compaction_delay_ms: u64,
}

impl Sections {
    /// Divides a log.
    ///
    /// `now` is what the clock says, in the same milliseconds as the records' timestamps.
    pub fn of(log: &LogFacts<'_>, rules: &Rules, now: Timestamp) -> Sections {
        debug_assert!(log.sealed.is_sorted_by(|a, b| a.base_offset < b.base_offset));
        debug_assert!(log.sealed.last().is_none_or(|last| last.base_offset < log.active_base_offset));
        let first_dirty = first_dirty(log);
        let dirty = sealed_from(log, first_dirty.offset);
        let first_uncleanable_dirty_offset = first_dirty.offset.max(first_undecided(log, dirty, rules, now));
        let first_uncleanable_offset = sealed_from(log, first_uncleanable_dirty_offset)
            .first()
            .map_or(log.active_base_offset, |segment| segment.base_offset);
        Sections {
            first_dirty,
            first_uncleanable_dirty_offset,
            first_uncleanable_offset,
            clean_bytes: clean_bytes(log, first_dirty.offset),
            cleanable_bytes: size_of(
                &log.sealed[between(
                    log.sealed,
                    first_dirty.offset.min(first_uncleanable_offset),
                    first_uncleanable_offset,
                )],
            ),
            compaction_delay_ms: compaction_delay_ms(dirty, rules, now),
        }
    }

    /// Clean and cleanable bytes; what cannot be cleaned now does not count.
    pub fn total_bytes(&self) -> u64 {
        self.clean_bytes.saturating_add(self.cleanable_bytes)
    }

    /// Cleanable bytes over total bytes, 0 to 1; 0 for a log without either.
    pub fn cleanable_ratio(&self) -> f64 {
        match self.total_bytes() {
            0 => 0.0,
            total => self.cleanable_bytes as f64 / total as f64,
        }
    }

    /// Whether the log is worth cleaning: something waits for too long, or the ratio is above the least one asked for.
    pub fn is_eligible(&self, rules: &Rules) -> bool {
        (self.compaction_delay_ms > 0 && self.cleanable_bytes > 0)
            || self.cleanable_ratio() > rules.min_cleanable_dirty_ratio
    }
}

fn first_dirty(log: &LogFacts<'_>) -> FirstDirty {
    let at_log_start = |reset| FirstDirty { offset: log.log_start_offset, reset };
    match log.checkpoint {
        None => at_log_start(None),
        Some(checkpoint) if checkpoint < log.log_start_offset => at_log_start(Some(Reset::BelowLogStart)),
        Some(checkpoint) if checkpoint > log.log_end_offset => at_log_start(Some(Reset::PastLogEnd)),
        Some(checkpoint) => FirstDirty { offset: checkpoint, reset: None },
    }
}

/// The first offset of what is active, undecided, or younger than the compaction lag.
fn first_undecided(log: &LogFacts<'_>, dirty: &[SegmentFacts], rules: &Rules, now: Timestamp) -> Offset {
    let decided = log.last_stable_offset.min(log.active_base_offset);
    if rules.min_compaction_lag_ms <= 0 {
        return decided;
    }
    let young_after = now.get().saturating_sub(rules.min_compaction_lag_ms);
    dirty
        .iter()
        .find(|segment| segment.largest_timestamp.get() > young_after)
        .map_or(decided, |young| decided.min(young.base_offset))
}

fn clean_bytes(log: &LogFacts<'_>, first_dirty: Offset) -> u64 {
    let sealed = log.sealed.partition_point(|segment| segment.base_offset < first_dirty);
    let active = if log.active_base_offset < first_dirty { log.active_size } else { 0 };
    size_of(&log.sealed[..sealed]).saturating_add(active)
}

fn compaction_delay_ms(dirty: &[SegmentFacts], rules: &Rules, now: Timestamp) -> u64 {
    let latest = now.get().saturating_sub(rules.max_compaction_lag_ms.max(0));
    let waiting_since = dirty
        .iter()
        .filter_map(|segment| segment.first_batch_timestamp)
        .map(Timestamp::get)
        .filter(|&timestamp| timestamp > 0)
        .min();
    match waiting_since {
        Some(earliest) if earliest < latest => latest.abs_diff(earliest),
        _ => 0,
    }
}

/// The sealed segments from the one that holds `offset` on.
fn sealed_from<'a>(log: &LogFacts<'a>, offset: Offset) -> &'a [SegmentFacts] {
    if offset > log.active_base_offset {
        return &[];
    }
    &log.sealed[between(log.sealed, offset, log.active_base_offset)]
}

/// The segments from the one that holds `from` (or else the first) to the last that begins below `to`, `from <= to`.
fn between(segments: &[SegmentFacts], from: Offset, to: Offset) -> Range<usize> {
    if from >= to {
        return 0..0;
    }
    let end = segments.partition_point(|segment| segment.base_offset < to);
    let holding = segments.partition_point(|segment| segment.base_offset <= from).saturating_sub(1);
    holding.min(end)..end
}

fn size_of(segments: &[SegmentFacts]) -> u64 {
    segments.iter().fold(0, |sum, segment| sum.saturating_add(segment.size))
}
