//! Snapshots of the state: when they are taken, loaded and removed.
//!
//! A snapshot is named by its *offset*: it tells of all records below. The set of snapshots in memory and the files are
//! two things: the set is listed when asked for, and kept up by what is done here.

use std::collections::BTreeSet;

use kseg_format::{Offset, SnapshotEntry, SnapshotError, decode_snapshot, encode_snapshot};

use super::{ProducerEntry, ProducerState, TransactionStart};

/// The snapshot files of a partition directory.
pub trait SnapshotStore {
    /// What can go wrong with a file.
    type Error;

    /// Offsets of all snapshots, in any order.
    fn list(&mut self) -> Result<Vec<Offset>, Self::Error>;

    /// Content of a snapshot. One that is missing is an error.
    fn read(&mut self, offset: Offset) -> Result<Vec<u8>, Self::Error>;

    /// Writes a snapshot, over one that is there; on return durable if `durable` says so.
    fn write(&mut self, offset: Offset, bytes: &[u8], durable: bool) -> Result<(), Self::Error>;

    /// Removes a snapshot. One that is missing is no error.
    fn delete(&mut self, offset: Offset) -> Result<(), Self::Error>;

    /// Renames a snapshot to `.deleted`; false where it is missing.
    fn mark_deleted(&mut self, offset: Offset) -> Result<bool, Self::Error>;
}

/// A snapshot that could not be used, and was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscardedSnapshot {
    /// Its offset.
    pub offset: Offset,
    /// What was wrong with it.
    pub reason: SnapshotError,
}

impl ProducerState {
    /// Lists the snapshots anew.
    ///
    /// # Errors
    /// That of the store.
    pub fn list_snapshots<S: SnapshotStore>(&mut self, store: &mut S) -> Result<(), S::Error> {
        self.snapshots = store.list()?.into_iter().collect();
        Ok(())
    }

    /// Offsets of the known snapshots, ascending.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = Offset> + '_ {
        self.snapshots.iter().copied()
    }

    /// Offset of the newest known snapshot.
    pub fn latest_snapshot(&self) -> Option<Offset> {
        self.snapshots.last().copied()
    }

    /// Offset of the oldest known snapshot.
    pub fn oldest_snapshot(&self) -> Option<Offset> {
        self.snapshots.first().copied()
    }

    /// Writes a snapshot at the map end, unless there is one at or above it. Returns its offset.
    ///
    /// # Errors
    /// That of the store; the state is as before.
    pub fn take_snapshot<S: SnapshotStore>(
        &mut self,
        store: &mut S,
        durable: bool,
    ) -> Result<Option<Offset>, S::Error> {
        if self.map_end <= self.last_snapshot {
            return Ok(None);
        }
        let bytes = encode_snapshot(self.producers().into_iter().map(SnapshotEntry::from));
        store.write(self.map_end, &bytes, durable)?;
        self.snapshots.insert(self.map_end);
        self.last_snapshot = self.map_end;
        Ok(Some(self.map_end))
    }

    /// Brings the state back to where the log is truncated to: between `log_start` and `log_end`.
    ///
    /// Snapshots at or below `log_start` and above `log_end` are removed. Where the map ends elsewhere than the log, all
    /// is forgotten and the newest usable snapshot loaded, without producers that have expired by `now_ms`; the caller
    /// goes on with the batches from [`ProducerState::map_end`] to `log_end`. Returns the snapshots that were removed
    /// because they were damaged.
    ///
    /// # Errors
    /// That of the store.
    pub fn truncate_and_reload<S: SnapshotStore>(
        &mut self,
        store: &mut S,
        log_start: Offset,
        log_end: Offset,
        now_ms: i64,
    ) -> Result<Vec<DiscardedSnapshot>, S::Error> {
        let outside = |offset: &Offset| *offset > log_end || *offset <= log_start;
        for offset in self.snapshots.iter().copied().filter(outside).collect::<Vec<_>>() {
            self.delete_snapshot(store, offset)?;
        }
        if self.map_end == log_end {
            self.log_start_moved(log_start);
            return Ok(Vec::new());
        }
        self.forget_all();
        self.load(store, log_start, now_ms)
    }

    fn load<S: SnapshotStore>(
        &mut self,
        store: &mut S,
        log_start: Offset,
        now_ms: i64,
    ) -> Result<Vec<DiscardedSnapshot>, S::Error> {
        let mut discarded = Vec::new();
        while let Some(offset) = self.latest_snapshot() {
            match decode_snapshot(&store.read(offset)?) {
                Ok(entries) => {
                    self.take_over(entries, now_ms);
                    self.map_end = offset;
                    self.last_snapshot = offset;
                    return Ok(discarded);
                }
                Err(reason) => {
                    self.delete_snapshot(store, offset)?;
                    discarded.push(DiscardedSnapshot { offset, reason });
                }
            }
        }
        self.map_end = log_start;
        self.last_snapshot = log_start;
        Ok(discarded)
    }

    fn take_over(&mut self, entries: Vec<SnapshotEntry>, now_ms: i64) {
        for entry in entries.into_iter().map(ProducerEntry::from) {
            if entry.is_expired(now_ms, self.expiration_ms) {
                continue;
            }
            if let Some(offset) = entry.transaction_start() {
                let start = TransactionStart { producer: entry.id(), offset, position: None };
                self.ongoing.insert(offset, start);
            }
            self.producers.insert(entry.id(), entry);
        }
    }

    /// Forgets everything, removes all snapshots, and lets the map end at `offset`.
    ///
    /// # Errors
    /// That of the store.
    pub fn truncate_fully_and_start_at<S: SnapshotStore>(
        &mut self,
        store: &mut S,
        offset: Offset,
    ) -> Result<(), S::Error> {
        self.forget_all();
        while let Some(snapshot) = self.latest_snapshot() {
            self.delete_snapshot(store, snapshot)?;
        }
        self.last_snapshot = Offset::ZERO;
        self.map_end = offset;
        Ok(())
    }

    /// The log now begins at `log_start`: forgets completed transactions whose marker lies below. Producers stay.
    pub fn log_start_moved(&mut self, log_start: Offset) {
        self.completed.retain(|_, (_, marker)| *marker >= log_start);
        self.map_end = self.map_end.max(log_start);
        self.last_snapshot = self.latest_snapshot().unwrap_or(log_start);
    }

    /// Lists the snapshots anew and removes strays: those at no segment's base offset, except the newest of them if it
    /// is not below the newest segment's base. Returns what was removed.
    ///
    /// # Errors
    /// That of the store.
    pub fn remove_stray_snapshots<S: SnapshotStore>(
        &mut self,
        store: &mut S,
        segment_bases: &BTreeSet<Offset>,
    ) -> Result<Vec<Offset>, S::Error> {
        self.list_snapshots(store)?;
        let mut strays: Vec<Offset> = self.snapshots.difference(segment_bases).copied().collect();
        if strays.last() >= segment_bases.last() {
            strays.pop();
        }
        for stray in &strays {
            self.delete_snapshot(store, *stray)?;
        }
        Ok(strays)
    }

    /// Removes the snapshots below `offset`.
    ///
    /// # Errors
    /// That of the store.
    pub fn delete_snapshots_before<S: SnapshotStore>(
        &mut self,
        store: &mut S,
        offset: Offset,
    ) -> Result<(), S::Error> {
        while let Some(oldest) = self.oldest_snapshot().filter(|oldest| *oldest < offset) {
            self.delete_snapshot(store, oldest)?;
        }
        Ok(())
    }

    /// Forgets the snapshot at `offset` and renames its file to `.deleted`. False where there is no such snapshot, or
    /// its file has gone.
    ///
    /// # Errors
    /// That of the store.
    pub fn mark_snapshot_deleted<S: SnapshotStore>(
        &mut self,
        store: &mut S,
        offset: Offset,
    ) -> Result<bool, S::Error> {
        if self.snapshots.remove(&offset) { store.mark_deleted(offset) } else { Ok(false) }
    }

    fn delete_snapshot<S: SnapshotStore>(&mut self, store: &mut S, offset: Offset) -> Result<(), S::Error> {
        store.delete(offset)?;
        self.snapshots.remove(&offset);
        Ok(())
    }
}

#[cfg(test)]
#[path = "snapshots_test.rs"]
mod tests;
