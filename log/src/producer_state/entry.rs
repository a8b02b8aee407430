//! What is known of one producer.

use std::fmt;

use kseg_format::{
    BatchHeader, Offset, ProducerEpoch, ProducerId, Sequence, SnapshotBatch, SnapshotEntry, Timestamp,
};

/// How many batches of a producer are remembered: as many as a client has under way.
pub(crate) const BATCHES_KEPT: usize = 5;

/// A batch that a producer has appended: enough to know it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerBatch {
    last_sequence: i32,
    offset_delta: i32,
    last_offset: Offset,
    timestamp: i64,
}

impl ProducerBatch {
    pub(crate) const fn new(
        last_sequence: i32,
        last_offset: Offset,
        offset_delta: i32,
        timestamp: i64,
    ) -> ProducerBatch {
        ProducerBatch { last_sequence, offset_delta, last_offset, timestamp }
    }

    /// Sequence of its first record; `None` where it has none (a coordinator's batch).
    pub fn first_sequence(&self) -> Option<Sequence> {
        self.last_sequence().map(|_| self.raw_first_sequence())
    }

    /// Sequence of its last record.
    pub fn last_sequence(&self) -> Option<Sequence> {
        Sequence::from_raw(self.last_sequence)
    }

    /// Its base offset.
    pub fn first_offset(&self) -> Offset {
        Offset::new(self.last_offset.get().wrapping_sub(i64::from(self.offset_delta)))
    }

    /// Its last offset.
    pub fn last_offset(&self) -> Offset {
        self.last_offset
    }

    /// Last offset minus base offset.
    pub fn offset_delta(&self) -> i32 {
        self.offset_delta
    }

    /// Its largest timestamp.
    pub fn timestamp(&self) -> Option<Timestamp> {
        Timestamp::from_raw(self.timestamp)
    }

    fn raw_first_sequence(&self) -> Sequence {
        Sequence::new(self.last_sequence).decrement(self.offset_delta)
    }
}

/// The last batches of a producer, oldest first.
#[derive(Clone, Copy)]
struct RecentBatches {
    slots: [ProducerBatch; BATCHES_KEPT],
    len: u8,
}

impl RecentBatches {
    const EMPTY: RecentBatches =
        RecentBatches { slots: [ProducerBatch::new(-1, Offset::ZERO, 0, -1); BATCHES_KEPT], len: 0 };

    fn push(&mut self, batch: ProducerBatch) {
        if usize::from(self.len) == BATCHES_KEPT {
            self.slots.rotate_left(1);
        } else {
            self.len += 1;
        }
        self.slots[usize::from(self.len) - 1] = batch;
    }

    fn as_slice(&self) -> &[ProducerBatch] {
        &self.slots[..usize::from(self.len)]
    }
}

impl fmt::Debug for RecentBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// What is known of one producer.
///
/// The batches are those of the current epoch; any change of epoch forgets them, also one downwards.
///
/// Source: Kafka `ProducerStateEntry`.
#[derive(Clone, Debug)]
pub struct ProducerEntry {
    id: ProducerId,
    epoch: i16,
    coordinator_epoch: i32,
    last_timestamp: i64,
    transaction_start: Option<Offset>,
    batches: RecentBatches,
}

impl PartialEq for ProducerEntry {
    fn eq(&self, other: &ProducerEntry) -> bool {
        let fields = |entry: &ProducerEntry| {
            (entry.id, entry.epoch, entry.coordinator_epoch, entry.last_timestamp, entry.transaction_start)
        };
        fields(self) == fields(other) && self.batches() == other.batches()
    }
}

impl Eq for ProducerEntry {}

impl From<SnapshotEntry> for ProducerEntry {
    /// What a snapshot tells of a producer; of its batches only the last.
    fn from(told: SnapshotEntry) -> ProducerEntry {
        let timestamp = Timestamp::to_raw(told.timestamp);
        let mut entry = ProducerEntry {
            id: told.producer_id,
            epoch: ProducerEpoch::to_raw(told.producer_epoch),
            coordinator_epoch: told.coordinator_epoch.unwrap_or(-1),
            last_timestamp: timestamp,
            transaction_start: told.transaction_start,
            batches: RecentBatches::EMPTY,
        };
        if let Some(SnapshotBatch { last_sequence, last_offset, offset_delta }) = told.last_batch {
            let last_sequence = Sequence::to_raw(last_sequence);
            entry.batches.push(ProducerBatch::new(last_sequence, last_offset, offset_delta, timestamp));
        }
        entry
    }
}

impl From<&ProducerEntry> for SnapshotEntry {
    fn from(entry: &ProducerEntry) -> SnapshotEntry {
        SnapshotEntry {
            producer_id: entry.id,
            producer_epoch: entry.epoch(),
            last_batch: entry.batches().last().map(|batch| SnapshotBatch {
                last_sequence: batch.last_sequence(),
                last_offset: batch.last_offset,
                offset_delta: batch.offset_delta,
            }),
            timestamp: entry.last_timestamp(),
            coordinator_epoch: entry.coordinator_epoch(),
            transaction_start: entry.transaction_start,
        }
    }
}

impl ProducerEntry {
    /// A producer of which nothing is known.
    pub(crate) fn unknown(id: ProducerId) -> ProducerEntry {
        ProducerEntry {
            id,
            epoch: -1,
            coordinator_epoch: -1,
            last_timestamp: -1,
            transaction_start: None,
            batches: RecentBatches::EMPTY,
        }
    }

    /// The producer.
    pub fn id(&self) -> ProducerId {
        self.id
    }

    /// Its epoch; `None` where only markers that say nothing were met.
    pub fn epoch(&self) -> Option<ProducerEpoch> {
        ProducerEpoch::from_raw(self.epoch)
    }

    /// Epoch of the coordinator that wrote its last marker.
    pub fn coordinator_epoch(&self) -> Option<i32> {
        (self.coordinator_epoch != -1).then_some(self.coordinator_epoch)
    }

    /// Timestamp of its last batch or marker.
    pub fn last_timestamp(&self) -> Option<Timestamp> {
        Timestamp::from_raw(self.last_timestamp)
    }

    /// First offset of its open transaction.
    pub fn transaction_start(&self) -> Option<Offset> {
        self.transaction_start
    }

    /// Its last batches, at most five, oldest first.
    pub fn batches(&self) -> &[ProducerBatch] {
        self.batches.as_slice()
    }

    /// Sequence of the first record that is remembered.
    pub fn first_sequence(&self) -> Option<Sequence> {
        self.batches().first().and_then(ProducerBatch::first_sequence)
    }

    /// Sequence of its last record.
    pub fn last_sequence(&self) -> Option<Sequence> {
        Sequence::from_raw(self.raw_last_sequence())
    }

    /// Offset of the first record that is remembered.
    pub fn first_data_offset(&self) -> Option<Offset> {
        self.batches().first().map(ProducerBatch::first_offset)
    }

    /// Offset of its last record.
    pub fn last_data_offset(&self) -> Option<Offset> {
        self.batches().last().map(ProducerBatch::last_offset)
    }

    /// The remembered batch that `header` repeats: same epoch, first and last sequence.
    pub fn duplicate_of(&self, header: &BatchHeader) -> Option<ProducerBatch> {
        if ProducerEpoch::to_raw(header.producer_epoch()) != self.epoch {
            return None;
        }
        let first = Sequence::to_raw(header.base_sequence());
        let last = Sequence::to_raw(header.last_sequence());
        let same =
            |batch: &&ProducerBatch| batch.raw_first_sequence().get() == first && batch.last_sequence == last;
        self.batches().iter().find(same).copied()
    }

    /// Whether it has been idle for `expiration_ms` at `now_ms`. A producer with an open transaction never is.
    pub(crate) fn is_expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        self.transaction_start.is_none() && now_ms.wrapping_sub(self.last_timestamp) >= expiration_ms
    }

    pub(crate) fn raw_epoch(&self) -> i16 {
        self.epoch
    }

    pub(crate) fn raw_coordinator_epoch(&self) -> i32 {
        self.coordinator_epoch
    }

    pub(crate) fn raw_last_timestamp(&self) -> i64 {
        self.last_timestamp
    }

    pub(crate) fn raw_last_sequence(&self) -> i32 {
        self.batches().last().map_or(-1, |batch| batch.last_sequence)
    }

    /// This entry without its batches: what an append works on.
    pub(crate) fn working_copy(&self) -> ProducerEntry {
        ProducerEntry { batches: RecentBatches::EMPTY, ..self.clone() }
    }

    pub(crate) fn add_batch(&mut self, epoch: i16, batch: ProducerBatch) {
        self.take_epoch(epoch);
        self.batches.push(batch);
        self.last_timestamp = batch.timestamp;
    }

    pub(crate) fn open_transaction(&mut self, start: Offset) {
        self.transaction_start = Some(start);
    }

    /// A marker: takes over epoch, coordinator epoch and time, and closes the transaction.
    pub(crate) fn end_transaction(&mut self, epoch: i16, coordinator_epoch: i32, timestamp: i64) {
        self.take_epoch(epoch);
        self.coordinator_epoch = coordinator_epoch;
        self.last_timestamp = timestamp;
        self.transaction_start = None;
    }

    /// Takes over a working copy. Its batches are added to those known, unless it ends in another epoch.
    pub(crate) fn merge(&mut self, copy: ProducerEntry) {
        self.take_epoch(copy.epoch);
        for batch in copy.batches() {
            self.batches.push(*batch);
        }
        self.coordinator_epoch = copy.coordinator_epoch;
        self.last_timestamp = copy.last_timestamp;
        self.transaction_start = copy.transaction_start;
    }

    fn take_epoch(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.batches = RecentBatches::EMPTY;
            self.epoch = epoch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_tells_of_the_last_batch_and_the_open_transaction() {
        let told = SnapshotEntry {
            producer_id: ProducerId::new(1001),
            producer_epoch: Some(ProducerEpoch::new(2)),
            last_batch: Some(SnapshotBatch {
                last_sequence: Some(Sequence::new(0)),
                last_offset: Offset::new(102),
                offset_delta: 2,
            }),
            timestamp: Some(Timestamp::new(77)),
            coordinator_epoch: None,
            transaction_start: Some(Offset::new(100)),
        };
        let entry = ProducerEntry::from(told);
        assert_eq!(entry.first_sequence(), Some(Sequence::new(2_147_483_646)));
        assert_eq!(entry.first_data_offset(), Some(Offset::new(100)));
        assert_eq!((entry.coordinator_epoch(), entry.transaction_start()), (None, Some(Offset::new(100))));
        assert_eq!(SnapshotEntry::from(&entry), told);

        let marked =
            SnapshotEntry { last_batch: None, coordinator_epoch: Some(13), transaction_start: None, ..told };
        let entry = ProducerEntry::from(marked);
        assert_eq!((entry.batches().len(), entry.transaction_start()), (0, None));
        assert_eq!(SnapshotEntry::from(&entry), marked);
    }
}
