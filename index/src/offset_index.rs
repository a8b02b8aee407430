//! The offset index of a segment: from an offset to the position of a batch at or before it.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | relative offset, i32: offset minus the base offset of the segment |
//! | 4..8 | position, i32: where a batch starts in the log file |
//!
//! An entry is (last offset of a batch, position where that batch starts). Both columns ascend strictly. There is no
//! header, no checksum and no count; the owner of the file knows how many entries count.

use std::fmt;

use kseg_format::Offset;

use crate::error::{Expected, Field, IndexError};
use crate::region::Region;
use crate::search::{self, warm_entries};
use crate::table::{Table, check_len};

const RELATIVE_OFFSET_AT: usize = 0;
const POSITION_AT: usize = RELATIVE_OFFSET_AT + 4;
const ENTRY_LEN: usize = POSITION_AT + 4;
const _: () = assert!(ENTRY_LEN == 8);

const WARM: usize = warm_entries(ENTRY_LEN);

/// An entry of an offset index, or the answer of a lookup in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "the two columns of the file format")]
pub struct OffsetPosition {
    /// Last offset of a batch.
    pub offset: Offset,
    /// Position in bytes where that batch starts in the log file.
    pub position: u32,
}

/// Sparse map from offset to position, in a [`Region`].
///
/// One thread at a time appends; any number of threads look up beside it without a lock and may or may not see an entry
/// that is being appended: both are right, since a smaller lower bound only means a longer walk through the log file.
/// [`truncate_to`](Self::truncate_to), [`clear`](Self::clear) and [`zero_behind`](Self::zero_behind) need the caller to
/// keep everyone else out.
///
/// Source: Kafka `OffsetIndex`, `AbstractIndex`.
pub struct OffsetIndex<R> {
    base: Offset,
    table: Table<R, ENTRY_LEN>,
}

impl<R: Region> OffsetIndex<R> {
    /// Bytes of an entry.
    pub const ENTRY_LEN: usize = ENTRY_LEN;

    /// An index over the first `entries` entries of `region`, or as many as it has room for.
    ///
    /// `base` is the base offset of the segment. Nothing is checked and nothing is written: see [`check`](Self::check),
    /// [`check_against`](Self::check_against), [`zero_behind`](Self::zero_behind).
    pub fn new(base: Offset, region: R, entries: usize) -> Self {
        OffsetIndex { base, table: Table::new(region, entries) }
    }

    /// The base offset of the segment.
    pub fn base(&self) -> Offset {
        self.base
    }

    /// Entries in the index.
    pub fn entries(&self) -> usize {
        self.table.len()
    }

    /// Entries that the region has room for.
    pub fn max_entries(&self) -> usize {
        self.table.max_len()
    }

    /// Whether the region has no room for another entry.
    pub fn is_full(&self) -> bool {
        self.entries() >= self.max_entries()
    }

    /// Bytes that the entries take: the length of the file once it is trimmed.
    pub fn valid_len(&self) -> usize {
        self.entries() * ENTRY_LEN
    }

    /// The offset of the last entry; the base offset where there is none.
    pub fn last_offset(&self) -> Offset {
        match self.entries() {
            0 => self.base,
            entries => self.absolute(self.relative_offset(entries - 1)),
        }
    }

    /// Whether `offset` is at most 2 147 483 647 above the base offset, and not below it.
    pub fn can_append(&self, offset: Offset) -> bool {
        offset.relative_to(self.base).is_some()
    }

    /// Appends the entry (`offset`, `position`): last offset of a batch and where it starts.
    ///
    /// Visible to lookups on return, durable after the region's flush. The position is not compared with the last one.
    ///
    /// # Errors
    /// [`IndexError::Full`]; [`IndexError::NotIncreasing`] where `offset` is not above the last entry's (the first entry
    /// may be at the base offset); [`IndexError::OffsetOverflow`]; [`IndexError::PositionOverflow`]. Tested in this
    /// order; nothing is written then.
    ///
    /// Source: Kafka `OffsetIndex.append`.
    pub fn append(&self, offset: Offset, position: u32) -> Result<(), IndexError> {
        let (entries, max_entries) = (self.entries(), self.max_entries());
        if entries >= max_entries {
            return Err(IndexError::Full { entries, max_entries });
        }
        let last = self.last_offset();
        if entries > 0 && offset <= last {
            return Err(IndexError::NotIncreasing {
                field: Field::Offset,
                appended: offset.get(),
                last: last.get(),
            });
        }
        let Some(relative) = offset.relative_to(self.base) else {
            return Err(IndexError::OffsetOverflow { base: self.base, offset });
        };
        let Ok(stored_position) = i32::try_from(position) else {
            return Err(IndexError::PositionOverflow { position });
        };
        let mut entry = [0; ENTRY_LEN];
        entry[RELATIVE_OFFSET_AT..POSITION_AT].copy_from_slice(&relative.get().to_be_bytes());
        entry[POSITION_AT..].copy_from_slice(&stored_position.to_be_bytes());
        self.table.push(entry)
    }

    /// The entry with the greatest offset at or below `target`; (base offset, 0) where there is none.
    ///
    /// The batch that holds `target` starts at that position or behind it.
    ///
    /// Source: Kafka `OffsetIndex.lookup`.
    #[inline]
    pub fn lookup(&self, target: Offset) -> OffsetPosition {
        match self.lower_bound(target) {
            Some(slot) => self.at(slot),
            None => OffsetPosition { offset: self.base, position: 0 },
        }
    }

    /// As [`lookup`](Self::lookup), and the entry behind that one, if there is one: the batch that holds `target` starts
    /// between the two positions, or at the second.
    #[inline]
    pub fn lookup_between(&self, target: Offset) -> (OffsetPosition, Option<OffsetPosition>) {
        let (entry, next) = match self.lower_bound(target) {
            Some(slot) => (self.at(slot), slot + 1),
            None => (OffsetPosition { offset: self.base, position: 0 }, 0),
        };
        (entry, (next < self.entries()).then(|| self.at(next)))
    }

    /// The first entry whose position is at least `position + size`, the sum taken in 64 bits; `None` where there is none.
    ///
    /// A read of `size` bytes from `position` ends before the batch of that entry does, so its offset is an upper bound
    /// of what the read returns.
    ///
    /// Source: Kafka `OffsetIndex.fetchUpperBoundOffset`.
    pub fn upper_bound(&self, position: u32, size: u64) -> Option<OffsetPosition> {
        let end = u64::from(position).saturating_add(size);
        let key = |slot| u64::from(self.position(slot));
        search::upper_bound(self.entries(), WARM, end, key).map(|slot| self.at(slot))
    }

    /// The entry number `n`, from 0.
    ///
    /// # Errors
    /// [`IndexError::NoSuchEntry`].
    pub fn entry(&self, n: usize) -> Result<OffsetPosition, IndexError> {
        let entries = self.entries();
        if n >= entries {
            return Err(IndexError::NoSuchEntry { entry: n, entries });
        }
        Ok(self.at(n))
    }

    /// The entries in order, those that are there when the call is made.
    pub fn iter(&self) -> impl Iterator<Item = OffsetPosition> + '_ {
        (0..self.entries()).map(|slot| self.at(slot))
    }

    /// Drops the entries at or above `offset` and zeroes their bytes.
    ///
    /// The region keeps its length. Kafka leaves the old bytes, which a reader of a crashed file then meets.
    ///
    /// Source: Kafka `OffsetIndex.truncateTo`.
    pub fn truncate_to(&self, offset: Offset) {
        self.table.truncate(match self.lower_bound(offset) {
            None => 0,
            Some(slot) if self.at(slot).offset == offset => slot,
            Some(slot) => slot + 1,
        });
    }

    /// Drops all entries and zeroes their bytes.
    ///
    /// Source: Kafka `OffsetIndex.truncate`.
    pub fn clear(&self) {
        self.table.truncate(0);
    }

    /// Zeroes whatever lies behind the entries, storing only where it is not zero yet.
    ///
    /// For a file that someone else left: reads the whole region.
    pub fn zero_behind(&self) {
        self.table.zero_behind();
    }

    /// Kafka's own check: the last offset is not below the base offset, and a file of `file_len` bytes has whole entries.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    ///
    /// Source: Kafka `OffsetIndex.sanityCheck`.
    pub fn check(&self, file_len: u64) -> Result<(), IndexError> {
        if let Some(last) = self.entries().checked_sub(1) {
            let relative = self.relative_offset(last);
            if relative < 0 {
                return Err(self.below_base(last));
            }
        }
        check_len(file_len, ENTRY_LEN)
    }

    /// Checks every entry: no offset is below the base offset or past the last possible one, both columns ascend strictly,
    /// and every position lies inside a log file of `log_size` bytes.
    ///
    /// Padding that was taken for entries fails here, and so does the index of a log that was cut. The last entry is
    /// looked at first, so that an index full of padding is found out at once.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`].
    pub fn check_against(&self, log_size: u64) -> Result<(), IndexError> {
        let entries = self.entries();
        if let Some(last) = entries.checked_sub(1).filter(|&last| last > 0) {
            self.check_entry(last, Some((0, 0)), log_size)?;
        }
        let mut before = None;
        for slot in 0..entries {
            before = Some(self.check_entry(slot, before, log_size)?);
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

    #[inline]
    fn lower_bound(&self, target: Offset) -> Option<usize> {
        let relative = relative_target(target, self.base)?;
        search::lower_bound(self.entries(), WARM, relative, |slot| self.relative_offset(slot))
    }

    /// Checks entry `slot`, which follows one with the relative offset and position `before`, and returns its own.
    fn check_entry(
        &self,
        slot: usize,
        before: Option<(i32, u32)>,
        log_size: u64,
    ) -> Result<(i32, u32), IndexError> {
        let (relative, position) = (self.relative_offset(slot), self.position(slot));
        let corrupt = |field, expected, found| IndexError::Corrupt {
            position: (slot * ENTRY_LEN) as u64,
            field,
            expected,
            found,
        };
        if relative < 0 {
            return Err(self.below_base(slot));
        }
        if self.base.get().checked_add(i64::from(relative)).is_none() {
            let expected = Expected::AtLeast(self.base.get());
            return Err(corrupt(Field::Offset, expected, self.base.get().wrapping_add(i64::from(relative))));
        }
        if let Some((relative_before, position_before)) = before {
            if relative <= relative_before {
                let expected = Expected::Above(self.absolute(relative_before).get());
                return Err(corrupt(Field::Offset, expected, self.absolute(relative).get()));
            }
            if position <= position_before {
                let expected = Expected::Above(i64::from(position_before));
                return Err(corrupt(Field::Position, expected, i64::from(position)));
            }
        }
        if u64::from(position) >= log_size {
            let expected = Expected::Below(i64::try_from(log_size).unwrap_or(i64::MAX));
            return Err(corrupt(Field::Position, expected, i64::from(position)));
        }
        Ok((relative, position))
    }

    fn below_base(&self, slot: usize) -> IndexError {
        IndexError::Corrupt {
            position: (slot * ENTRY_LEN) as u64,
            field: Field::Offset,
            expected: Expected::AtLeast(self.base.get()),
            found: self.absolute(self.relative_offset(slot)).get(),
        }
    }

    #[inline]
    fn at(&self, slot: usize) -> OffsetPosition {
        OffsetPosition { offset: self.absolute(self.relative_offset(slot)), position: self.position(slot) }
    }

    #[inline]
    fn relative_offset(&self, slot: usize) -> i32 {
        i32::from_be_bytes(self.table.field(slot, RELATIVE_OFFSET_AT))
    }

    #[inline]
    fn position(&self, slot: usize) -> u32 {
        u32::from_be_bytes(self.table.field(slot, POSITION_AT))
    }

    #[inline]
    fn absolute(&self, relative: i32) -> Offset {
        absolute(self.base, relative)
    }
}

impl<R: Region> fmt::Debug for OffsetIndex<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffsetIndex")
            .field("base", &self.base)
            .field("entries", &self.entries())
            .field("max_entries", &self.max_entries())
            .finish_non_exhaustive()
    }
}

/// `target` as the relative offset to search for: `None` below `base`, the greatest possible one where it is too far away.
#[inline]
pub(crate) fn relative_target(target: Offset, base: Offset) -> Option<i32> {
    if target < base {
        return None;
    }
    Some(i32::try_from(target.get().wrapping_sub(base.get()) as u64).unwrap_or(i32::MAX))
}

/// `base + relative`, kept inside the range of an offset whatever a damaged entry says.
#[inline]
pub(crate) fn absolute(base: Offset, relative: i32) -> Offset {
    Offset::new(base.get().saturating_add(i64::from(relative)))
}
