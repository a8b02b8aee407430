//! The time index of a segment: from a timestamp to the offset of a batch at or before it.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | timestamp, i64: milliseconds since the epoch |
//! | 8..12 | relative offset, i32: offset minus the base offset of the segment |
//!
//! An entry (T, O) says: the greatest timestamp of the segment up to there is T, and it occurs in the batch whose last
//! offset is O. Timestamps ascend strictly, offsets never descend. The last slot is kept for the entry of a roll or close.

use std::fmt;

use kseg_format::{Offset, Timestamp};

use crate::error::{Expected, Field, IndexError};
use crate::offset_index::{absolute, relative_target};
use crate::region::Region;
use crate::search::{self, warm_entries};
use crate::table::{Table, check_len};

const TIMESTAMP_AT: usize = 0;
const RELATIVE_OFFSET_AT: usize = TIMESTAMP_AT + 8;
const ENTRY_LEN: usize = RELATIVE_OFFSET_AT + 4;
const _: () = assert!(ENTRY_LEN == 12);

const WARM: usize = warm_entries(ENTRY_LEN);

/// An entry of a time index, or the answer of a lookup in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "the two columns of the file format")]
pub struct TimestampOffset {
    /// The greatest timestamp so far; `None` (-1 in Kafka) where there is no entry to tell.
    pub timestamp: Option<Timestamp>,
    /// Last offset of the batch that has it; the base offset where there is no entry.
    pub offset: Offset,
}

/// Sparse map from timestamp to offset, in a [`Region`].
///
/// Who may call what beside whom is as for [`OffsetIndex`](crate::OffsetIndex).
///
/// Source: Kafka `TimeIndex`, `AbstractIndex`.
pub struct TimeIndex<R> {
    base: Offset,
    table: Table<R, ENTRY_LEN>,
}

impl<R: Region> TimeIndex<R> {
    /// Bytes of an entry.
    pub const ENTRY_LEN: usize = ENTRY_LEN;

    /// An index over the first `entries` entries of `region`, or as many as it has room for.
    ///
    /// `base` is the base offset of the segment. Nothing is checked and nothing is written: see [`check`](Self::check),
    /// [`check_against`](Self::check_against), [`zero_behind`](Self::zero_behind).
    pub fn new(base: Offset, region: R, entries: usize) -> Self {
        TimeIndex { base, table: Table::new(region, entries) }
    }

    /// The base offset of the segment.
    pub fn base(&self) -> Offset {
        self.base
    }

    /// Entries in the index.
    pub fn entries(&self) -> usize {
        self.table.len()
    }

    /// Entries that the region has room for, the one of a roll or close included.
    pub fn max_entries(&self) -> usize {
        self.table.max_len()
    }

    /// Whether only the slot of a roll or close is left, or none.
    pub fn is_full(&self) -> bool {
        self.entries() + 1 >= self.max_entries()
    }

    /// Bytes that the entries take: the length of the file once it is trimmed.
    pub fn valid_len(&self) -> usize {
        self.entries() * ENTRY_LEN
    }

    /// The last entry; (`None`, base offset) where there is none.
    ///
    /// Source: Kafka `TimeIndex.lastEntry`.
    pub fn last_entry(&self) -> TimestampOffset {
        match self.entries() {
            0 => self.none(),
            entries => self.at(entries - 1),
        }
    }

    /// The offset of the last entry; the base offset where there is none.
    pub fn last_offset(&self) -> Offset {
        self.last_entry().offset
    }

    /// Whether `offset` is at most 2 147 483 647 above the base offset, and not below it.
    pub fn can_append(&self, offset: Offset) -> bool {
        offset.relative_to(self.base).is_some()
    }

    /// Appends the entry (`timestamp`, `offset`) if its timestamp is greater than the last one's; returns whether it did.
    ///
    /// `None` and negative timestamps are never stored. `skip_full_check` is for the entry of a roll or close, which may
    /// take the last slot. Visible to lookups on return, durable after the region's flush.
    ///
    /// # Errors
    /// [`IndexError::Full`]; [`IndexError::NotIncreasing`] where the offset, or the timestamp, is below that of the last
    /// entry; [`IndexError::OffsetOverflow`]. Tested in this order; nothing is written then.
    ///
    /// Source: Kafka `TimeIndex.maybeAppend`, which writes the timestamp before it tests the offset's range.
    pub fn maybe_append(
        &self,
        timestamp: Option<Timestamp>,
        offset: Offset,
        skip_full_check: bool,
    ) -> Result<bool, IndexError> {
        if !skip_full_check && self.is_full() {
            return Err(IndexError::Full { entries: self.entries(), max_entries: self.max_entries() });
        }
        let last = self.last_entry();
        let (appended, last_timestamp) = (Timestamp::to_raw(timestamp), Timestamp::to_raw(last.timestamp));
        if self.entries() > 0 {
            if offset < last.offset {
                let (appended, last) = (offset.get(), last.offset.get());
                return Err(IndexError::NotIncreasing { field: Field::Offset, appended, last });
            }
            if appended < last_timestamp {
                let last = last_timestamp;
                return Err(IndexError::NotIncreasing { field: Field::Timestamp, appended, last });
            }
        }
        if appended <= last_timestamp {
            return Ok(false);
        }
        let Some(relative) = offset.relative_to(self.base) else {
            return Err(IndexError::OffsetOverflow { base: self.base, offset });
        };
        let mut entry = [0; ENTRY_LEN];
        entry[TIMESTAMP_AT..RELATIVE_OFFSET_AT].copy_from_slice(&appended.to_be_bytes());
        entry[RELATIVE_OFFSET_AT..].copy_from_slice(&relative.get().to_be_bytes());
        self.table.push(entry)?;
        Ok(true)
    }

    /// The entry with the greatest timestamp at or below `target`; (`None`, base offset) where there is none.
    ///
    /// Every record before that offset's batch is older than `target`.
    ///
    /// Source: Kafka `TimeIndex.lookup`.
    #[inline]
    pub fn lookup(&self, target: Timestamp) -> TimestampOffset {
        let key = |slot| self.raw_timestamp(slot);
        match search::lower_bound(self.entries(), WARM, target.get(), key) {
            Some(slot) => self.at(slot),
            None => self.none(),
        }
    }

    /// The entry number `n`, from 0.
    ///
    /// # Errors
    /// [`IndexError::NoSuchEntry`].
    pub fn entry(&self, n: usize) -> Result<TimestampOffset, IndexError> {
        let entries = self.entries();
        if n >= entries {
            return Err(IndexError::NoSuchEntry { entry: n, entries });
        }
        Ok(self.at(n))
    }

    /// The entries in order, those that are there when the call is made.
    pub fn iter(&self) -> impl Iterator<Item = TimestampOffset> + '_ {
        (0..self.entries()).map(|slot| self.at(slot))
    }

    /// Drops the entries whose offset is at or above `offset` and zeroes their bytes.
    ///
    /// The region keeps its length. Kafka leaves the old bytes, which a reader of a crashed file then meets.
    ///
    /// Source: Kafka `TimeIndex.truncateTo`.
    pub fn truncate_to(&self, offset: Offset) {
        // Offsets of entries may be equal, so the first one at or above the target is looked for, not the last below it.
        let keep = match relative_target(offset, self.base) {
            None | Some(0) => 0,
            Some(_) if offset.relative_to(self.base).is_none() => self.entries(),
            Some(relative) => {
                let below = relative - 1;
                search::lower_bound(self.entries(), WARM, below, |slot| self.relative_offset(slot))
                    .map_or(0, |slot| slot + 1)
            }
        };
        self.table.truncate(keep);
    }

    /// Drops all entries and zeroes their bytes.
    ///
    /// Source: Kafka `TimeIndex.truncate`.
    pub fn clear(&self) {
        self.table.truncate(0);
    }

    /// Zeroes whatever lies behind the entries, storing only where it is not zero yet.
    ///
    /// For a file that someone else left: reads the whole region.
    pub fn zero_behind(&self) {
        self.table.zero_behind();
    }

    /// Kafka's own check: the last timestamp is not below the first, the last offset not below the base offset, and a file
    /// of `file_len` bytes has whole entries.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    ///
    /// Source: Kafka `TimeIndex.sanityCheck`.
    pub fn check(&self, file_len: u64) -> Result<(), IndexError> {
        if let Some(last) = self.entries().checked_sub(1) {
            let first_timestamp = self.raw_timestamp(0);
            if self.raw_timestamp(last) < first_timestamp {
                let expected = Expected::AtLeast(first_timestamp);
                return Err(corrupt(last, Field::Timestamp, expected, self.raw_timestamp(last)));
            }
            self.check_not_below_base(last)?;
        }
        check_len(file_len, ENTRY_LEN)
    }

    /// Checks every entry: no timestamp is negative, timestamps ascend strictly, offsets never descend and lie in
    /// `base..end`, where `end` is the offset behind the last record of the segment.
    ///
    /// Padding that was taken for entries fails here, and so does the index of a log that was cut. The last entry is
    /// looked at first, so that an index full of padding is found out at once.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    pub fn check_against(&self, end: Offset) -> Result<(), IndexError> {
        let entries = self.entries();
        if let Some(last) = entries.checked_sub(1).filter(|&last| last > 0) {
            self.check_entry(last, Some((0, 0)), end)?;
        }
        let mut before = None;
        for slot in 0..entries {
            before = Some(self.check_entry(slot, before, end)?);
        }
        Ok(())
    }

    /// Where the entries lie.
    pub fn region(&self) -> &R {
        self.table.region()
    }

    /// Gives the region back, for an index over a region of another length with the same entries.
    pub fn into_region(self) -> R {
        self.table.into_region()
    }

    /// Checks entry `slot`, which follows one with the timestamp and relative offset `before`, and returns its own.
    fn check_entry(
        &self,
        slot: usize,
        before: Option<(i64, i32)>,
        end: Offset,
    ) -> Result<(i64, i32), IndexError> {
        let (timestamp, relative) = (self.raw_timestamp(slot), self.relative_offset(slot));
        let offset = self.absolute(relative);
        if timestamp < 0 {
            return Err(corrupt(slot, Field::Timestamp, Expected::AtLeast(0), timestamp));
        }
        self.check_not_below_base(slot)?;
        if let Some((timestamp_before, relative_before)) = before {
            if timestamp <= timestamp_before {
                return Err(corrupt(slot, Field::Timestamp, Expected::Above(timestamp_before), timestamp));
            }
            if relative < relative_before {
                let expected = Expected::AtLeast(self.absolute(relative_before).get());
                return Err(corrupt(slot, Field::Offset, expected, offset.get()));
            }
        }
        if offset >= end {
            return Err(corrupt(slot, Field::Offset, Expected::Below(end.get()), offset.get()));
        }
        Ok((timestamp, relative))
    }

    fn check_not_below_base(&self, slot: usize) -> Result<(), IndexError> {
        let relative = self.relative_offset(slot);
        if relative >= 0 {
            return Ok(());
        }
        Err(corrupt(slot, Field::Offset, Expected::AtLeast(self.base.get()), self.absolute(relative).get()))
    }

    fn none(&self) -> TimestampOffset {
        TimestampOffset { timestamp: None, offset: self.base }
    }

    #[inline]
    fn at(&self, slot: usize) -> TimestampOffset {
        TimestampOffset {
            timestamp: Timestamp::from_raw(self.raw_timestamp(slot)),
            offset: self.absolute(self.relative_offset(slot)),
        }
    }

    #[inline]
    fn raw_timestamp(&self, slot: usize) -> i64 {
        i64::from_be_bytes(self.table.field(slot, TIMESTAMP_AT))
    }

    #[inline]
    fn relative_offset(&self, slot: usize) -> i32 {
        i32::from_be_bytes(self.table.field(slot, RELATIVE_OFFSET_AT))
    }

    #[inline]
    fn absolute(&self, relative: i32) -> Offset {
        absolute(self.base, relative)
    }
}

impl<R: Region> fmt::Debug for TimeIndex<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeIndex")
            .field("base", &self.base)
            .field("entries", &self.entries())
            .field("max_entries", &self.max_entries())
            .finish_non_exhaustive()
    }
}

fn corrupt(slot: usize, field: Field, expected: Expected, found: i64) -> IndexError {
    IndexError::Corrupt { position: (slot * ENTRY_LEN) as u64, field, expected, found }
}
