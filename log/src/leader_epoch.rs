//! Leader epochs of a log: which epoch began at which offset.
//!
//! Entries ascend strictly in both epoch and start offset. The cache does no I/O: an operation reports what the
//! checkpoint file owes it. An assignment must be in the file before its batch is readable; a removal may reach it later,
//! since a file with entries too many is cut again at the next start, while one with entries too few could not be healed.
//!
//! Source: Kafka `LeaderEpochFileCache`.

use std::fmt;

use kseg_format::{EpochEntry, LeaderEpoch, Offset};

/// The end of an epoch: the answer to where two logs part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpochEnd {
    /// The largest known epoch that is not above the one asked for; the one asked for if all known ones are above it.
    pub epoch: LeaderEpoch,
    /// First offset behind that epoch.
    pub end_offset: Offset,
}

/// What the checkpoint file owes to a change of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileWrite {
    /// Nothing.
    None,
    /// The file is to be replaced some time; a directory that has vanished meanwhile is no error.
    Background,
    /// The file must be replaced and durable before the operation counts as done.
    Now,
}

/// What an operation did.
#[must_use = "the checkpoint file may have to be written"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpochChange {
    /// Whether the entries are others than before.
    pub changed: bool,
    /// Whether the file must be written.
    pub write: FileWrite,
}

impl EpochChange {
    const NONE: EpochChange = EpochChange { changed: false, write: FileWrite::None };
}

/// The leader epochs of one log, in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochCache {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochCache {
    /// A cache without entries.
    pub fn new() -> LeaderEpochCache {
        LeaderEpochCache::default()
    }

    /// The cache that a checkpoint's entries give, each assigned in turn: entries that contradict a later one go.
    ///
    /// # Errors
    /// [`LeaderEpochError`] on a negative epoch or offset.
    pub fn from_entries(
        entries: impl IntoIterator<Item = EpochEntry>,
    ) -> Result<LeaderEpochCache, LeaderEpochError> {
        let mut cache = LeaderEpochCache::new();
        for entry in entries {
            let _ = cache.assign(entry.epoch, entry.start_offset)?;
        }
        Ok(cache)
    }

    /// Notes that `epoch` begins at `start_offset`, unless the latest entry is of this epoch and begins no later.
    /// Entries that the new one contradicts (same or higher epoch, or same or later start) are removed from the end.
    ///
    /// # Errors
    /// [`LeaderEpochError`] on a negative epoch or offset; nothing is changed.
    pub fn assign(
        &mut self,
        epoch: LeaderEpoch,
        start_offset: Offset,
    ) -> Result<EpochChange, LeaderEpochError> {
        if epoch.get() < 0 || start_offset.get() < 0 {
            return Err(LeaderEpochError { epoch, start_offset });
        }
        if self.knows(epoch, start_offset) {
            return Ok(EpochChange::NONE);
        }
        self.pop_while(|entry| entry.epoch >= epoch || entry.start_offset >= start_offset);
        self.entries.push(EpochEntry { epoch, start_offset });
        Ok(EpochChange { changed: true, write: FileWrite::Now })
    }

    /// Whether the latest entry is of this epoch, and begins at `start_offset` or before.
    pub(crate) fn knows(&self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        self.latest().is_some_and(|last| last.epoch == epoch && last.start_offset <= start_offset)
    }

    /// Removes the entries that begin at `end_offset` or later: the log now ends there. Below 0 nothing is done.
    pub fn truncate_from_end(&mut self, end_offset: Offset) -> EpochChange {
        if end_offset.get() < 0 || !self.pop_while(|entry| entry.start_offset >= end_offset) {
            return EpochChange::NONE;
        }
        EpochChange { changed: true, write: FileWrite::Background }
    }

    /// Removes the entries that begin at `start_offset` or before: the log now begins there. The last of them stays,
    /// with `start_offset` for its start, since its records may go on beyond it. Where that changes nothing the file has
    /// nothing to be told (Kafka writes it all the same, at each opening of a log).
    pub fn truncate_from_start(&mut self, start_offset: Offset) -> EpochChange {
        let removed = self.entries.partition_point(|entry| entry.start_offset <= start_offset);
        if removed == 0 {
            return EpochChange::NONE;
        }
        let last = self.entries[removed - 1];
        let changed = removed > 1 || last.start_offset != start_offset;
        self.entries.drain(..removed - 1);
        self.entries[0].start_offset = start_offset;
        let write = if changed { FileWrite::Background } else { FileWrite::None };
        EpochChange { changed, write }
    }

    /// Forgets all entries, without a word to the file.
    pub fn clear(&mut self) -> EpochChange {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        EpochChange { changed, write: FileWrite::None }
    }

    /// Forgets all entries, and in the file too. The file is written also when there were none: it may be of length 0.
    pub fn clear_and_flush(&mut self) -> EpochChange {
        EpochChange { write: FileWrite::Now, ..self.clear() }
    }

    /// Where `epoch` ends in this log, whose end is `log_end_offset`; `None` where the log cannot tell: an unknown epoch
    /// (-1), or one above all that are known.
    pub fn end_offset_for(&self, epoch: LeaderEpoch, log_end_offset: Offset) -> Option<EpochEnd> {
        if epoch.get() == -1 {
            return None;
        }
        if self.latest().is_some_and(|last| last.epoch == epoch) {
            return Some(EpochEnd { epoch, end_offset: log_end_offset });
        }
        let higher = self.above(epoch);
        let end_offset = self.entries.get(higher)?.start_offset;
        let floor = higher.checked_sub(1).map_or(epoch, |index| self.entries[index].epoch);
        Some(EpochEnd { epoch: floor, end_offset })
    }

    /// The epoch that the record at `offset` was written under; `None` below the first entry.
    pub fn epoch_for_offset(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start_offset <= offset);
        after.checked_sub(1).map(|index| self.entries[index].epoch)
    }

    /// The entry of `epoch`, if there is one.
    pub fn entry(&self, epoch: LeaderEpoch) -> Option<EpochEntry> {
        self.entries.iter().copied().find(|entry| entry.epoch == epoch)
    }

    /// The latest entry.
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The earliest entry.
    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    /// The last entry below `epoch`.
    pub fn previous(&self, epoch: LeaderEpoch) -> Option<EpochEntry> {
        let from = self.entries.partition_point(|entry| entry.epoch < epoch);
        from.checked_sub(1).map(|index| self.entries[index])
    }

    /// The first entry above `epoch`.
    pub fn next(&self, epoch: LeaderEpoch) -> Option<EpochEntry> {
        self.entries.get(self.above(epoch)).copied()
    }

    /// All entries, ascending.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Index of the first entry above `epoch`.
    fn above(&self, epoch: LeaderEpoch) -> usize {
        self.entries.partition_point(|entry| entry.epoch <= epoch)
    }

    /// Removes entries from the end while `goes` holds; whether any went.
    fn pop_while(&mut self, goes: impl Fn(&EpochEntry) -> bool) -> bool {
        let kept = self.entries.iter().rposition(|entry| !goes(entry)).map_or(0, |index| index + 1);
        let removed = kept < self.entries.len();
        self.entries.truncate(kept);
        removed
    }
}

/// An epoch or start offset below 0, which no record can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderEpochError {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// The start offset.
    pub start_offset: Offset,
}

impl LeaderEpochError {
    /// Kafka's name for this error.
    pub fn kafka_name(&self) -> &'static str {
        "IllegalArgumentException"
    }
}

impl fmt::Display for LeaderEpochError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "leader epoch {} from offset {}: neither may be negative",
            self.epoch.get(),
            self.start_offset.get()
        )
    }
}

impl std::error::Error for LeaderEpochError {}

#[cfg(test)]
#[path = "leader_epoch_test.rs"]
mod tests;
