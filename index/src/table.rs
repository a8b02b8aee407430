//! Entries of one length at the front of a region, and how many of them count.
//!
//! Invariants:
//! - `entries <= max_entries`, the whole entries that the region has room for.
//! - A thread that loads the entry count sees the bytes of every entry below it: the count is published after them.
//! - The bytes of an entry below the count change only where the caller keeps readers out ([`Table::truncate`]).
//!
//! One thread at a time pushes or truncates. The types do not enforce it, since whoever owns the files of a segment has a
//! lock for them anyway; two at once leave entries that fail the checks, nothing worse.

use crate::error::{Expected, Field, IndexError};
use crate::region::Region;
use crate::sync::{AtomicUsize, Ordering};

/// Number of whole entries of `entry_len` bytes in a file of `len` bytes.
///
/// Source: Kafka takes an existing index file to be full of entries, `AbstractIndex`.
///
/// # Panics
/// Where `entry_len` is 0.
pub const fn entries_in(len: u64, entry_len: usize) -> usize {
    let entries = len / entry_len as u64;
    if entries > usize::MAX as u64 { usize::MAX } else { entries as usize }
}

/// The largest length of whole entries that is not above `max`: the length of a preallocated index file.
///
/// 0 where not even one entry fits; Kafka refuses to make such a file (`IllegalArgumentException`).
///
/// Source: Kafka `AbstractIndex.roundDownToExactMultiple`.
///
/// # Panics
/// Where `entry_len` is 0.
pub const fn round_down(max: usize, entry_len: usize) -> usize {
    max / entry_len * entry_len
}

/// A region and the number of its leading entries of `LEN` bytes that count.
pub(crate) struct Table<R, const LEN: usize> {
    region: R,
    entries: AtomicUsize,
}

impl<R: Region, const LEN: usize> Table<R, LEN> {
    const WHOLE_WORDS: () = assert!(LEN > 0 && LEN.is_multiple_of(4));

    pub(crate) fn new(region: R, entries: usize) -> Self {
        let () = Self::WHOLE_WORDS;
        let entries = entries.min(region.len() / LEN);
        Table { region, entries: AtomicUsize::new(entries) }
    }

    pub(crate) fn region(&self) -> &R {
        &self.region
    }

    pub(crate) fn into_region(self) -> R {
        self.region
    }

    /// Entries that count, and the right to load them.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Acquire: pairs with the Release in `push`, so that the entries below the count are seen whole.
        self.entries.load(Ordering::Acquire)
    }

    pub(crate) fn max_len(&self) -> usize {
        self.region.len() / LEN
    }

    /// The `N` bytes at `within` of entry `slot`, which is below [`Table::len`].
    #[inline]
    pub(crate) fn field<const N: usize>(&self, slot: usize, within: usize) -> [u8; N] {
        self.region.load(slot * LEN + within)
    }

    /// Stores an entry behind the last one and counts it.
    pub(crate) fn push(&self, entry: [u8; LEN]) -> Result<(), IndexError> {
        // Relaxed: only the one writer changes the count, and it is this thread.
        let entries = self.entries.load(Ordering::Relaxed);
        let max_entries = self.max_len();
        if entries >= max_entries {
            return Err(IndexError::Full { entries, max_entries });
        }
        self.region.store(entries * LEN, entry);
        // Release: publishes the entry to the Acquire in `len`.
        self.entries.store(entries + 1, Ordering::Release);
        Ok(())
    }

    /// Keeps the first `keep` entries and zeroes the others' bytes. The caller keeps readers out.
    pub(crate) fn truncate(&self, keep: usize) {
        let entries = self.len();
        if keep >= entries {
            return;
        }
        // Release: pairs with the Acquire in `len`; whoever is let in again counts the kept entries alone.
        self.entries.store(keep, Ordering::Release);
        for slot in keep..entries {
            // What is zero may be a hole in a file, and a store would take space for it.
            if self.region.load::<LEN>(slot * LEN) != [0; LEN] {
                self.region.store(slot * LEN, [0; LEN]);
            }
        }
    }

    /// Zeroes the words behind the entries that are not zero yet.
    pub(crate) fn zero_behind(&self) {
        let whole_words = self.region.len() / 4 * 4;
        for at in (self.len() * LEN..whole_words).step_by(4) {
            if self.region.load::<4>(at) != [0; 4] {
                self.region.store(at, [0; 4]);
            }
        }
    }
}

/// Fails unless a file of `len` bytes has whole entries only.
pub(crate) fn check_len(len: u64, entry_len: usize) -> Result<(), IndexError> {
    if len.is_multiple_of(entry_len as u64) {
        return Ok(());
    }
    Err(IndexError::Corrupt {
        position: len,
        field: Field::Length,
        expected: Expected::MultipleOf(entry_len as i64),
        found: i64::try_from(len).unwrap_or(i64::MAX),
    })
}
