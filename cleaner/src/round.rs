//! One round: the latest offset of each key in the dirty section goes into the map, then all segments up to where the map
//! reaches are copied, without what is superseded, and swapped in, a group or a few at a time.
//!
//! A stop or an error between two groups leaves a log that is right and partly cleaned. The round says up to where the log
//! has been cleaned; whoever calls it keeps that in the checkpoint.
//!
//! Source: Kafka `Cleaner.doClean`.

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use kseg_format::{BatchFilter, Offset, Timestamp};
use kseg_log::{Log, Sealed};

use crate::error::{Error, Result};
use crate::grouping::{GroupFacts, GroupLimits, group};
use crate::offset_map::OffsetMap;
use crate::options::CleanerOptions;
use crate::source::Source;
use crate::stats::RoundStats;
use crate::sync::scope;
use crate::transactions::Transactions;
use crate::writes::{Order, Writes};

/// Who watches over a round: may stop it, and slow it down.
pub trait Pace {
    /// Asked before each read. An error ends the round with it.
    ///
    /// # Errors
    /// [`Error::Aborted`], [`Error::ShuttingDown`].
    fn check(&self) -> Result<()>;

    /// Told of bytes that were read or written; may wait.
    fn moved(&self, bytes: u64);
}

/// Neither stops nor slows anything.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::exhaustive_structs, reason = "it has no parts")]
pub struct Unhindered;

impl Pace for Unhindered {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn moved(&self, _bytes: u64) {}
}

/// What a round is to clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the two bounds and the time")]
pub struct Dirty {
    /// The first offset that was not cleaned yet.
    pub first: Offset,
    /// The first that cannot be cleaned now; the round stops at the segment that holds it.
    pub first_uncleanable: Offset,
    /// The time of the round, for delete horizons.
    pub now: Timestamp,
}

/// What came of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Round {
    /// Up to where the log has been cleaned: the next first dirty offset. `None` where nothing was dirty, and nothing was
    /// done.
    pub end: Option<Offset>,
    /// In numbers.
    pub stats: RoundStats,
}

/// Cleans logs, one at a time, in memory of a fixed size.
///
/// ```
/// use kseg_cleaner::{Cleaner, CleanerOptions, Dirty, Unhindered};
/// use kseg_format::{Offset, Timestamp};
/// use kseg_log::{BatchWriter, Log, OpenOptions, WriterOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = kseg_io_backends::open("memory")?;
/// let log = std::sync::Arc::new(Log::open(std::path::Path::new("/data/orders-0"), OpenOptions::new(backend))?);
/// let mut writer = BatchWriter::new(log.clone(), WriterOptions::default());
/// for value in ["old", "new"] {
///     writer.append(Some(Timestamp::new(1000)), Some(b"key"), Some(value.as_bytes()), &[])?;
///     writer.flush()?;
/// }
/// log.roll(None)?;
///
/// let mut options = CleanerOptions::default();
/// options.map_bytes = 1 << 20;
/// let dirty = Dirty { first: Offset::ZERO, first_uncleanable: Offset::new(2), now: Timestamp::new(5000) };
/// let round = Cleaner::new(options)?.clean(&log, dirty, &Unhindered)?;
/// assert_eq!(round.end, Some(Offset::new(2)));
/// assert_eq!((round.stats.records_read, round.stats.records_written), (2, 1));
/// # Ok(())
/// # }
/// ```
pub struct Cleaner {
    pub(crate) options: CleanerOptions,
    pub(crate) map: OffsetMap,
    pub(crate) usable: usize,
    pub(crate) scratch: Vec<u8>,
    pub(crate) filter: BatchFilter,
}

impl Cleaner {
    /// A cleaner with these settings; takes the map's memory as it is used.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn new(options: CleanerOptions) -> Result<Cleaner> {
        options.validate()?;
        if !OffsetMap::fits(options.map_bytes) {
            let expected = "no more than the memory that can be had".to_owned();
            return Err(Error::Config { name: "map_bytes", expected, found: options.map_bytes.to_string() });
        }
        Ok(Cleaner {
            map: OffsetMap::new(options.map_bytes),
            usable: options.usable_slots(),
            scratch: Vec::new(),
            filter: BatchFilter::new(kseg_format::FilterOptions::default()),
            options,
        })
    }

    /// The settings.
    pub fn options(&self) -> &CleanerOptions {
        &self.options
    }

    /// Cleans a log once.
    ///
    /// Records at or above `dirty.first_uncleanable` are neither dropped nor looked at, so this may run beside appends and
    /// reads. It must not run beside another round on the same log.
    ///
    /// # Errors
    /// [`Error::Range`]; [`Error::Corrupt`], [`Error::Rebuild`] for a batch that cannot be dealt with; what `pace` says;
    /// [`Error::Log`], [`Error::Segment`], [`Error::Io`]. Groups swapped in before stay, the rest of the log is as it was.
    pub fn clean(&mut self, log: &Log, dirty: Dirty, pace: &dyn Pace) -> Result<Round> {
        self.go(log, dirty, pace, true)
    }

    /// What [`clean`](Self::clean) would do now: reads what it reads, and writes nothing.
    ///
    /// # Errors
    /// As there, but for those of writing.
    pub fn plan(&mut self, log: &Log, dirty: Dirty, pace: &dyn Pace) -> Result<Round> {
        self.go(log, dirty, pace, false)
    }

    fn go(&mut self, log: &Log, dirty: Dirty, pace: &dyn Pace, write: bool) -> Result<Round> {
        let begun = Instant::now();
        let mut stats = RoundStats::default();
        let (sealed, active) = log.sealed_segments()?;
        let bound = boundary(&sealed, active, dirty.first_uncleanable);
        if dirty.first > bound {
            return Err(Error::Range { first_dirty: dirty.first, end: bound });
        }
        // What a round that failed left would make a later swap look incomplete.
        if write {
            log.remove_unfinished_replacements()?;
        }
        self.map.clear();
        let keep_deletes_after = self.legacy_horizon(log, &sealed, dirty.first)?;
        let work = Work { log, dirty, bound, pace, write, keep_deletes_after };
        let (size, parallel) = (self.options.io_buffer_bytes, self.options.parallel);
        let mapped = range(&sealed, dirty.first, bound);
        scope(|threads| {
            let mut source = Source::of(parallel.then_some(threads), mapped, Some(dirty.first), size);
            self.build_map(&work, mapped, &mut source, &mut stats)
        })?;
        stats.map_time = begun.elapsed();
        let Some(latest) = self.map.latest_offset() else {
            stats.time = begun.elapsed();
            return Ok(Round { end: None, stats });
        };
        let end = latest.next();
        let copied = range(&sealed, Offset::ZERO, end);
        let groups = group(&facts(log, copied)?, &limits(log, bound));
        let done = scope(|threads| {
            let threads = parallel.then_some(threads);
            let mut writes = if write { Writes::to(threads, log) } else { Writes::Nowhere };
            let mut source = Source::of(threads, copied, None, size);
            let done = self.copy(&work, copied, groups, &mut source, &mut writes, &mut stats);
            drop(source);
            // All that was begun has ended then.
            let swapped = writes.end();
            done?;
            stats.segments_written += swapped?;
            Ok(())
        });
        if let Err(error) = done {
            // What was written of a group goes; a log that takes no change keeps it until it is opened again. The log tells of
            // a failure, and the next round begins with the same.
            let _ = write.then(|| log.remove_unfinished_replacements());
            return Err(error);
        }
        stats.map_utilization = self.map.utilization();
        stats.time = begun.elapsed();
        Ok(Round { end: Some(end), stats })
    }

    /// Copies group by group.
    fn copy<'w>(
        &mut self,
        work: &Work<'w>,
        copied: &'w [Sealed],
        groups: Vec<usize>,
        source: &mut Source<'_>,
        writes: &mut Writes<'w>,
        stats: &mut RoundStats,
    ) -> Result<()> {
        let mut transactions = Transactions::default();
        let mut start = 0;
        for count in groups {
            let group = &copied[start..start + count];
            start += count;
            self.copy_group(work, group, &mut transactions, source, writes, stats)?;
        }
        writes.give(Order::Last)
    }

    /// Tombstones of magic 0 and 1 in segments that were last changed at or before this time go.
    fn legacy_horizon(&self, log: &Log, sealed: &[Sealed], first_dirty: Offset) -> Result<i64> {
        let clean = range(sealed, Offset::ZERO, first_dirty);
        let Some(last) = clean.last() else { return Ok(0) };
        let modified = millis(last.segment().modified()?.unwrap_or(UNIX_EPOCH));
        Ok(modified.saturating_sub(log.config().delete_retention_ms))
    }
}

impl fmt::Debug for Cleaner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleaner")
            .field("options", &self.options)
            .field("map", &self.map)
            .finish_non_exhaustive()
    }
}

/// What stays the same for all groups of a round.
pub(crate) struct Work<'w> {
    pub(crate) log: &'w Log,
    pub(crate) dirty: Dirty,
    /// The end of the range, at a segment's boundary.
    pub(crate) bound: Offset,
    pub(crate) pace: &'w dyn Pace,
    /// Whether the copies are written and swapped in.
    pub(crate) write: bool,
    pub(crate) keep_deletes_after: i64,
}

/// The segments from the one that holds `from` (or else the first) to the last that begins below `to`.
pub(crate) fn range(sealed: &[Sealed], from: Offset, to: Offset) -> &[Sealed] {
    if from >= to {
        return &[];
    }
    let end = sealed.partition_point(|s| s.base_offset() < to);
    let start = sealed.partition_point(|s| s.base_offset() <= from).saturating_sub(1);
    &sealed[start.min(end)..end]
}

/// The base offset of the segment that holds `offset`; of the active one where no sealed one does.
fn boundary(sealed: &[Sealed], active: Offset, offset: Offset) -> Offset {
    range(sealed, offset, active).first().map_or(active, Sealed::base_offset)
}

fn facts(log: &Log, segments: &[Sealed]) -> Result<Vec<GroupFacts>> {
    let facts = segments.iter().map(|sealed| {
        // An index that is opened is compared with the batches.
        let (offset_index_size, time_index_size) = sealed.segment().index_sizes()?;
        log.let_go(sealed);
        Ok(GroupFacts {
            base_offset: sealed.base_offset(),
            size: sealed.size(),
            offset_index_size,
            time_index_size,
        })
    });
    facts.collect()
}

fn limits(log: &Log, bound: Offset) -> GroupLimits {
    let config = log.config();
    GroupLimits {
        size: u64::try_from(config.segment_size_max()).unwrap_or(0),
        index_size: u64::try_from(config.segment_index_bytes).unwrap_or(0),
        first_uncleanable: bound,
    }
}

/// Milliseconds since the epoch.
pub(crate) fn millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    }
}
