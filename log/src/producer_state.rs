//! What is known of a log's producers: for duplicates, order of sequences, and transactions.
//!
//! Model:
//! - A *producer entry* holds a producer's epoch, its last five batches and the start of its open transaction. An append
//!   works on copies ([`ProducerUpdate`]) and is committed once its batches are in the log.
//! - *Ongoing* transactions are not decided; *completed* ones are, but their marker lies at or above the high watermark.
//!   The smallest first offset of both is the *first unstable offset*; committed readers stop there.
//! - The state describes all records below the *map end*. It is written to a snapshot at each roll, and rebuilt from
//!   the newest snapshot and the batches behind it.
//!
//! Invariants: every open transaction of an entry is in *ongoing* under its first offset; a first offset is in *ongoing*
//! or in *completed*, not in both; the map end is at or above the last snapshot, except just after a full truncation.
//!
//! Nothing here does I/O: snapshot files are behind [`SnapshotStore`].
//!
//! Source: Kafka `ProducerStateManager`.

mod entry;
mod error;
mod snapshots;
mod update;
mod verification;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kseg_format::{Offset, ProducerId};

pub use entry::{ProducerBatch, ProducerEntry};
pub use error::ProducerStateError;
pub use snapshots::{DiscardedSnapshot, SnapshotStore};
pub use update::{BatchEffect, EndMarker, ProducerUpdate, TransactionVersion};
use verification::Verification;
pub use verification::{TransactionRequest, VerificationGuard};

/// How much longer than the longest timeout a transaction may be open before it is late.
const LATE_TRANSACTION_BUFFER_MS: i64 = 5 * 60 * 1000;

/// Where in the log's files an offset lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPosition {
    /// Base offset of the segment.
    pub segment_base: Offset,
    /// Position in the segment's file.
    pub position: u32,
}

/// The beginning of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionStart {
    /// Its producer.
    pub producer: ProducerId,
    /// Base offset of its first batch.
    pub offset: Offset,
    /// Where that batch lies; `None` where it was read from a snapshot.
    pub position: Option<SegmentPosition>,
}

/// A transaction that a marker has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    /// Its producer.
    pub producer: ProducerId,
    /// Base offset of its first batch.
    pub first_offset: Offset,
    /// Offset of its marker.
    pub last_offset: Offset,
    /// Whether it was aborted; else it was committed.
    pub aborted: bool,
}

/// The producers of one log. See the module's documentation.
#[derive(Debug)]
pub struct ProducerState {
    producers: HashMap<ProducerId, ProducerEntry>,
    verifications: HashMap<ProducerId, Verification>,
    ongoing: BTreeMap<Offset, TransactionStart>,
    /// Decided transactions with the offset of their marker.
    completed: BTreeMap<Offset, (TransactionStart, Offset)>,
    map_end: Offset,
    last_snapshot: Offset,
    snapshots: BTreeSet<Offset>,
    expiration_ms: i64,
    transaction_timeout_ms_max: i64,
}

impl ProducerState {
    /// A state without producers whose map ends at offset 0, of a log without snapshots.
    ///
    /// `expiration_ms` is how long an idle producer is remembered, `transaction_timeout_ms_max` the longest timeout a
    /// producer may ask for.
    pub fn new(expiration_ms: i64, transaction_timeout_ms_max: i64) -> ProducerState {
        ProducerState {
            producers: HashMap::new(),
            verifications: HashMap::new(),
            ongoing: BTreeMap::new(),
            completed: BTreeMap::new(),
            map_end: Offset::ZERO,
            last_snapshot: Offset::ZERO,
            snapshots: BTreeSet::new(),
            expiration_ms,
            transaction_timeout_ms_max,
        }
    }

    /// What is known of one producer.
    pub fn producer(&self, id: ProducerId) -> Option<&ProducerEntry> {
        self.producers.get(&id)
    }

    /// All producers, by ascending id.
    pub fn producers(&self) -> Vec<&ProducerEntry> {
        let mut entries: Vec<&ProducerEntry> = self.producers.values().collect();
        entries.sort_unstable_by_key(|entry| entry.id());
        entries
    }

    /// Whether no producer is known, and no transaction that has ended waits for the high watermark.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.completed.is_empty()
    }

    /// Takes over an append whose batches are in the log: producers and started transactions. Returns the transactions
    /// that it ended, in the order of their markers; each is to be passed to [`ProducerState::last_stable_offset`] and
    /// then to [`ProducerState::complete`] before the next one.
    pub fn commit(&mut self, update: ProducerUpdate) -> Vec<CompletedTransaction> {
        let (copies, completed) = update.into_parts();
        for copy in copies {
            if copy.settles_verification {
                self.verifications.remove(&copy.entry.id());
            }
            for start in copy.started {
                self.ongoing.insert(start.offset, start);
            }
            match self.producers.entry(copy.entry.id()) {
                std::collections::hash_map::Entry::Occupied(mut known) => known.get_mut().merge(copy.entry),
                std::collections::hash_map::Entry::Vacant(free) => {
                    free.insert(copy.entry);
                }
            }
        }
        completed
    }

    /// The last stable offset that a transaction's end is recorded with: the start of the earliest ongoing transaction
    /// of another producer, else the offset behind the marker.
    pub fn last_stable_offset(&self, completed: &CompletedTransaction) -> Offset {
        let other = self.ongoing.values().find(|start| start.producer != completed.producer);
        other.map_or(completed.last_offset.next(), |start| start.offset)
    }

    /// Moves a transaction from the ongoing to the completed ones.
    ///
    /// # Errors
    /// [`ProducerStateError::UnknownTransaction`] where it is not ongoing; nothing is changed.
    pub fn complete(&mut self, completed: &CompletedTransaction) -> Result<(), ProducerStateError> {
        let Some(start) = self.ongoing.remove(&completed.first_offset) else {
            return Err(ProducerStateError::UnknownTransaction {
                producer: completed.producer,
                first_offset: completed.first_offset,
            });
        };
        self.completed.insert(start.offset, (start, completed.last_offset));
        Ok(())
    }

    /// The first offset that is not stable: the start of the earliest transaction that is ongoing, or completed by a
    /// marker not yet below the high watermark.
    pub fn first_unstable(&self) -> Option<TransactionStart> {
        let undecided = self.ongoing.values().next();
        let unreplicated = self.completed.values().next().map(|(start, _)| start);
        match (undecided, unreplicated) {
            (Some(one), Some(other)) => Some(if one.offset < other.offset { *one } else { *other }),
            (one, other) => one.or(other).copied(),
        }
    }

    /// The start of the earliest transaction that is not decided.
    pub fn first_undecided(&self) -> Option<Offset> {
        self.ongoing.keys().next().copied()
    }

    /// Forgets completed transactions whose marker lies below the high watermark.
    pub fn high_watermark_moved(&mut self, high_watermark: Offset) {
        self.completed.retain(|_, (_, marker)| *marker >= high_watermark);
    }

    /// Whether the earliest ongoing transaction is open for longer than any timeout allows, by 5 minutes: its coordinator
    /// has lost it.
    pub fn has_late_transaction(&self, now_ms: i64) -> bool {
        let Some(start) = self.ongoing.values().next() else { return false };
        let last = self.producer(start.producer).map_or(-1, ProducerEntry::raw_last_timestamp);
        let limit = self.transaction_timeout_ms_max.saturating_add(LATE_TRANSACTION_BUFFER_MS);
        last > 0 && now_ms.wrapping_sub(last) > limit
    }

    /// Forgets producers that have been idle too long and have no transaction open, and verifications begun as long ago.
    /// Returns how many producers went.
    pub fn expire(&mut self, now_ms: i64) -> usize {
        let before = self.producers.len();
        let expiration_ms = self.expiration_ms;
        self.producers.retain(|_, entry| !entry.is_expired(now_ms, expiration_ms));
        self.verifications.retain(|_, verification| !verification.is_expired(now_ms, expiration_ms));
        before - self.producers.len()
    }

    /// The offset below which all records are accounted for.
    pub fn map_end(&self) -> Offset {
        self.map_end
    }

    /// Sets the map end: all records below `offset` have been accounted for.
    pub fn set_map_end(&mut self, offset: Offset) {
        self.map_end = offset;
    }

    /// Forgets where in the files transactions begin that lie in segments with these base offsets.
    pub fn forget_positions(&mut self, segments: &[Offset]) {
        let completed = self.completed.values_mut().map(|(start, _)| start);
        for start in self.ongoing.values_mut().chain(completed) {
            if start.position.is_some_and(|p| segments.contains(&p.segment_base)) {
                start.position = None;
            }
        }
    }

    fn forget_all(&mut self) {
        self.producers.clear();
        self.ongoing.clear();
        self.completed.clear();
    }
}

#[cfg(test)]
#[path = "producer_state_test.rs"]
mod tests;
