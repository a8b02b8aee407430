use std::collections::HashSet;

use kseg_format::{BatchHeader, EndTransactionMarker, Origin, Sequence, Timestamp};
use proptest::prelude::*;

use super::*;

const DAY_MS: i64 = 86_400_000;
const CLIENT: Origin = Origin::Client;
const COORDINATOR: Origin = Origin::Coordinator;
const REPLICATION: Origin = Origin::Replication;
const V0: Option<TransactionVersion> = Some(TransactionVersion::V0);
const V2: Option<TransactionVersion> = Some(TransactionVersion::V2);

const TRANSACTIONAL: u8 = 0x10;
const CONTROL: u8 = 0x20;

/// A batch as far as producers are concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestBatch {
    pub(super) id: i64,
    pub(super) epoch: i16,
    pub(super) sequence: i32,
    pub(super) offset: i64,
    pub(super) records: i32,
    pub(super) timestamp: i64,
    pub(super) attributes: u8,
}

impl TestBatch {
    pub(super) fn header(self) -> BatchHeader {
        let mut bytes = [0u8; 61];
        bytes[0..8].copy_from_slice(&self.offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&49i32.to_be_bytes());
        bytes[16] = 2;
        bytes[22] = self.attributes;
        bytes[23..27].copy_from_slice(&self.records.wrapping_sub(1).to_be_bytes());
        bytes[27..35].copy_from_slice(&self.timestamp.to_be_bytes());
        bytes[35..43].copy_from_slice(&self.timestamp.to_be_bytes());
        bytes[43..51].copy_from_slice(&self.id.to_be_bytes());
        bytes[51..53].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[53..57].copy_from_slice(&self.sequence.to_be_bytes());
        BatchHeader::read(&bytes).unwrap()
    }
}

pub(super) fn data(id: i64, epoch: i16, sequence: i32, offset: i64) -> TestBatch {
    TestBatch { id, epoch, sequence, offset, records: 1, timestamp: offset + 1, attributes: 0 }
}

pub(super) fn in_transaction(id: i64, epoch: i16, sequence: i32, offset: i64) -> TestBatch {
    TestBatch { attributes: TRANSACTIONAL, ..data(id, epoch, sequence, offset) }
}

fn control(id: i64, epoch: i16, offset: i64) -> TestBatch {
    TestBatch { attributes: TRANSACTIONAL | CONTROL, ..data(id, epoch, -1, offset) }
}

fn marker(aborted: bool, coordinator_epoch: i32, offset: i64) -> EndMarker {
    let marker = EndTransactionMarker { committed: !aborted, coordinator_epoch };
    EndMarker { marker, timestamp: Some(Timestamp::new(offset + 1)) }
}

const ABORT: bool = true;
const COMMIT: bool = false;

/// A state and the appends of a log, one batch each unless said otherwise.
impl ProducerState {
    pub(super) fn for_tests() -> ProducerState {
        ProducerState::new(DAY_MS, 900_000)
    }

    /// What an append of `batch` would do, without committing it.
    fn check(&self, origin: Origin, batch: TestBatch) -> Result<BatchEffect, ProducerStateError> {
        ProducerUpdate::new(origin, V0).append_batch(self, &batch.header(), None, None)
    }

    pub(super) fn append(&mut self, origin: Origin, batch: TestBatch) -> Result<(), &'static str> {
        let mut update = ProducerUpdate::new(origin, V0);
        let effect = update.append_batch(self, &batch.header(), None, None);
        if let BatchEffect::Duplicate(_) = effect.map_err(|error| error.kafka_name())? {
            return Err("duplicate");
        }
        self.finish(update, batch);
        Ok(())
    }

    /// Appends a marker of coordinator epoch 0, and completes the transaction it ends.
    pub(super) fn end(&mut self, id: i64, epoch: i16, aborted: bool, offset: i64) -> Option<(i64, i64)> {
        self.end_as(COORDINATOR, V0, (id, epoch), (aborted, 0), offset).unwrap()
    }

    /// Returns first offset of the completed transaction, and the last stable offset recorded with it.
    fn end_as(
        &mut self,
        origin: Origin,
        version: Option<TransactionVersion>,
        (id, epoch): (i64, i16),
        (aborted, coordinator_epoch): (bool, i32),
        offset: i64,
    ) -> Result<Option<(i64, i64)>, &'static str> {
        let batch = control(id, epoch, offset);
        let mut update = ProducerUpdate::new(origin, version);
        let marker = marker(aborted, coordinator_epoch, offset);
        let effect = update
            .append_batch(self, &batch.header(), Some(&marker), None)
            .map_err(|error| error.kafka_name())?;
        let BatchEffect::Marker(completed) = effect else { panic!("{effect:?}") };
        let stable = self.finish(update, batch);
        Ok(completed.map(|completed| (completed.first_offset.get(), stable[0])))
    }

    fn finish(&mut self, update: ProducerUpdate, last: TestBatch) -> Vec<i64> {
        let mut stable = Vec::new();
        for completed in self.commit(update) {
            stable.push(self.last_stable_offset(&completed).get());
            self.complete(&completed).unwrap();
        }
        self.set_map_end(last.header().next_offset());
        stable
    }

    pub(super) fn entry(&self, id: i64) -> &ProducerEntry {
        self.producer(ProducerId::new(id)).unwrap()
    }

    fn unstable(&self) -> Option<i64> {
        self.first_unstable().map(|start| start.offset.get())
    }

    fn undecided(&self) -> Option<i64> {
        self.first_undecided().map(Offset::get)
    }

    fn watermark(&mut self, offset: i64) {
        self.high_watermark_moved(Offset::new(offset));
    }
}

fn raw(sequence: Option<Sequence>) -> i32 {
    Sequence::to_raw(sequence)
}

fn name(result: Result<BatchEffect, ProducerStateError>) -> &'static str {
    result.unwrap_err().kafka_name()
}

#[test]
fn format_edge_94_sequences_and_epochs_of_a_client() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, data(1, 0, 0, 0)).unwrap();
    state.append(CLIENT, data(1, 0, 1, 1)).unwrap();
    // One record of a known batch of two is no duplicate of it.
    assert_eq!(
        name(state.check(CLIENT, TestBatch { records: 2, ..data(1, 0, 1, 2) })),
        "OutOfOrderSequenceException"
    );
    assert_eq!(name(state.check(CLIENT, data(1, 0, 5, 2))), "OutOfOrderSequenceException");
    assert_eq!(state.check(CLIENT, data(1, 1, 0, 2)), Ok(BatchEffect::Data));
    state.append(CLIENT, data(1, 1, 0, 2)).unwrap();
    assert_eq!(name(state.check(CLIENT, data(1, 0, 0, 3))), "InvalidProducerEpochException");
    let error = state.check(CLIENT, data(1, 1, 4, 3)).unwrap_err();
    assert_eq!(error.to_string(), "producer 1 epoch 1 at offset 3: expected sequence 1, found 4");
}

#[test]
fn format_edge_95_a_producer_known_by_a_marker_alone() {
    let mut state = ProducerState::for_tests();
    assert_eq!(state.end(1, 2, ABORT, 100), None);
    assert_eq!(name(state.check(CLIENT, data(1, 0, 0, 101))), "InvalidProducerEpochException");
    assert_eq!(name(state.check(CLIENT, data(1, 2, 17, 101))), "OutOfOrderSequenceException");
    state.append(CLIENT, data(1, 2, 0, 101)).unwrap();
}

#[test]
fn format_edge_96_sequences_wrap() {
    let mut state = ProducerState::for_tests();
    state.append(REPLICATION, data(1, 0, i32::MAX, 0)).unwrap();
    assert_eq!(name(state.check(CLIENT, data(1, 0, 1, 1))), "OutOfOrderSequenceException");
    state.append(CLIENT, data(1, 0, 0, 1)).unwrap();
    let entry = state.entry(1);
    assert_eq!((raw(entry.first_sequence()), raw(entry.last_sequence())), (i32::MAX, 0));
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, TestBatch { records: 21, ..data(1, 0, i32::MAX - 10, 0) }).unwrap();
    let entry = state.entry(1);
    assert_eq!((raw(entry.first_sequence()), raw(entry.last_sequence())), (i32::MAX - 10, 9));
    assert_eq!(entry.batches()[0].first_sequence(), Some(Sequence::new(i32::MAX - 10)));
}

#[test]
fn format_edge_97_replication_believes_sequences() {
    let mut state = ProducerState::for_tests();
    state.append(REPLICATION, data(1, 0, 16, 0)).unwrap();
    assert_eq!(raw(state.entry(1).last_sequence()), 16);
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, data(1, 0, 0, 0)).unwrap();
    assert_eq!(name(state.check(CLIENT, data(1, 0, 3, 1))), "OutOfOrderSequenceException");
    state.append(REPLICATION, data(1, 0, 3, 1)).unwrap();
    assert_eq!(raw(state.entry(1).last_sequence()), 3);
}

#[test]
fn format_edge_98_a_marker_with_a_higher_epoch_forgets_batches() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, data(1, 0, 0, 0)).unwrap();
    state.end(1, 1, ABORT, 1);
    let entry = state.entry(1);
    assert!(entry.batches().is_empty());
    assert_eq!((entry.epoch().unwrap().get(), entry.last_sequence()), (1, None));
    assert_eq!(name(state.check(CLIENT, data(1, 0, 1, 2))), "InvalidProducerEpochException");
    for epoch in [1, 2] {
        assert_eq!(name(state.check(CLIENT, data(1, epoch, 2, 2))), "OutOfOrderSequenceException");
    }
    state.append(CLIENT, data(1, 1, 0, 2)).unwrap();
}

#[test]
fn format_edge_99_a_marker_with_the_same_epoch_keeps_batches() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, in_transaction(1, 0, 0, 0)).unwrap();
    assert_eq!(state.end(1, 0, COMMIT, 1), Some((0, 2)));
    let entry = state.entry(1);
    assert_eq!((entry.batches().len(), entry.transaction_start()), (1, None));
    assert_eq!(entry.last_timestamp(), Some(Timestamp::new(2)));
    state.append(CLIENT, in_transaction(1, 0, 1, 2)).unwrap();
}

#[test]
fn format_edge_100_and_log_edge_240_a_plain_batch_in_a_transaction() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, in_transaction(1, 0, 0, 0)).unwrap();
    for origin in [CLIENT, COORDINATOR, REPLICATION, Origin::RaftLeader] {
        assert_eq!(name(state.check(origin, data(1, 0, 1, 1))), "InvalidTxnStateException");
    }
    assert_eq!(state.check(CLIENT, in_transaction(1, 0, 1, 1)), Ok(BatchEffect::Data));
}

#[test]
fn format_edge_101_coordinators_of_lower_epochs_are_fenced() {
    let mut state = ProducerState::for_tests();
    let mut end = |origin, epoch, coordinator, offset| {
        state.end_as(origin, V0, (1, epoch), (ABORT, coordinator), offset)
    };
    for (coordinator, offset) in [(1, 0), (1, 1), (2, 2)] {
        assert_eq!(end(COORDINATOR, 1, coordinator, offset), Ok(None));
    }
    assert_eq!(end(COORDINATOR, 1, 1, 3), Err("TransactionCoordinatorFencedException"));
    assert_eq!(end(COORDINATOR, 0, 2, 3), Err("InvalidProducerEpochException"));
    assert_eq!(end(REPLICATION, 1, 1, 3), Ok(None));
    assert_eq!(state.entry(1).coordinator_epoch(), Some(1));
}

#[test]
fn an_epoch_that_is_not_above_the_known_one_is_not_called_below_it() {
    let told = |epoch, known| {
        let (producer, offset) = (ProducerId::new(1), Offset::new(3));
        ProducerStateError::InvalidProducerEpoch { producer, offset, epoch, known }.to_string()
    };
    assert_eq!(told(0, 0), "producer 1 at offset 3: its epoch 0 is not above the known one, 0");
    assert_eq!(told(0, 1), "producer 1 at offset 3: its epoch 0 is below the known one, 1");
}

#[test]
fn format_edge_102_a_coordinator_s_batches_have_no_sequence() {
    let mut state = ProducerState::for_tests();
    state.append(COORDINATOR, in_transaction(1, 0, -1, 0)).unwrap();
    state.append(COORDINATOR, in_transaction(1, 0, -1, 1)).unwrap();
    let entry = state.entry(1);
    assert_eq!((entry.batches().len(), entry.last_sequence(), entry.first_sequence()), (2, None, None));
}

#[test]
fn format_edge_103_the_first_unstable_offset_follows_markers_and_watermark() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, in_transaction(1, 0, 0, 99)).unwrap();
    state.append(CLIENT, in_transaction(2, 0, 0, 105)).unwrap();
    assert_eq!((state.undecided(), state.unstable()), (Some(99), Some(99)));
    state.end(1, 0, COMMIT, 109);
    assert_eq!((state.undecided(), state.unstable()), (Some(105), Some(99)));
    state.watermark(100);
    assert_eq!(state.unstable(), Some(99));
    state.watermark(109);
    assert_eq!(state.unstable(), Some(99), "the marker itself is not below the watermark");
    state.watermark(110);
    assert_eq!(state.unstable(), Some(105));
    state.end(2, 0, ABORT, 112);
    assert_eq!((state.undecided(), state.unstable()), (None, Some(105)));
    state.watermark(113);
    assert_eq!(state.unstable(), None);
}

#[test]
fn format_edge_104_the_last_stable_offset_recorded_with_a_transaction() {
    let mut state = ProducerState::for_tests();
    for (id, offset) in [(1, 10), (2, 20), (3, 30)] {
        state.append(CLIENT, in_transaction(id, 0, 0, offset)).unwrap();
    }
    assert_eq!(state.end(1, 0, ABORT, 40), Some((10, 20)));
    assert_eq!(state.end(3, 0, ABORT, 41), Some((30, 20)));
    assert_eq!(state.end(2, 0, ABORT, 42), Some((20, 43)));
}

#[test]
fn format_edge_105_one_append_with_many_transactions() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, in_transaction(1, 0, 0, 0)).unwrap();
    let mut update = ProducerUpdate::new(REPLICATION, None);
    let end = |state: &ProducerState, update: &mut ProducerUpdate, offset, aborted| {
        update.append_batch(state, &control(1, 0, offset).header(), Some(&marker(aborted, 0, offset)), None)
    };
    let ended = |first, last, aborted| {
        Ok(BatchEffect::Marker(Some(CompletedTransaction {
            producer: ProducerId::new(1),
            first_offset: Offset::new(first),
            last_offset: Offset::new(last),
            aborted,
        })))
    };
    assert_eq!(end(&state, &mut update, 1, COMMIT), ended(0, 1, COMMIT));
    assert_eq!(end(&state, &mut update, 2, COMMIT), Ok(BatchEffect::Marker(None)));
    assert_eq!(end(&state, &mut update, 3, ABORT), Ok(BatchEffect::Marker(None)));
    let _ = update.append_batch(&state, &in_transaction(1, 0, 1, 4).header(), None, None).unwrap();
    assert_eq!(end(&state, &mut update, 5, ABORT), ended(4, 5, ABORT));
    let _ = update.append_batch(&state, &in_transaction(1, 0, 2, 6).header(), None, None).unwrap();
    assert_eq!(update.started_transactions().map(|start| start.offset.get()).collect::<Vec<_>>(), [4, 6]);
    assert_eq!(update.completed_transactions().len(), 2);
    for completed in state.commit(update) {
        state.complete(&completed).unwrap();
    }
    assert_eq!((state.undecided(), state.unstable()), (Some(6), Some(0)));
    assert_eq!(state.entry(1).transaction_start(), Some(Offset::new(6)));
}

#[test]
fn format_edge_106_an_update_that_is_dropped_leaves_no_trace() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, data(1, 0, 0, 0)).unwrap();
    let before = state.entry(1).clone();
    let mut update = ProducerUpdate::new(CLIENT, None);
    let _ = update.append_batch(&state, &in_transaction(1, 1, 0, 1).header(), None, None).unwrap();
    let _ = update.append_batch(&state, &in_transaction(2, 0, 0, 2).header(), None, None).unwrap();
    assert!(update.append_batch(&state, &data(1, 0, 7, 3).header(), None, None).is_err());
    drop(update);
    assert_eq!((state.entry(1), state.producers().len()), (&before, 1));
    assert_eq!((state.unstable(), state.map_end()), (None, Offset::new(1)));
}

#[test]
fn format_edge_111_idle_producers_expire() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, data(1, 0, 0, 0)).unwrap();
    state.append(CLIENT, in_transaction(2, 0, 0, 1)).unwrap();
    state.append(CLIENT, data(3, 0, 0, DAY_MS)).unwrap();
    assert_eq!(state.expire(DAY_MS), 0);
    assert_eq!(state.expire(DAY_MS + 1), 1);
    assert!(state.producer(ProducerId::new(1)).is_none());
    assert_eq!(state.expire(10 * DAY_MS), 1, "an open transaction keeps its producer");
    state.append(CLIENT, data(1, 0, 77, 9)).unwrap();
}

#[test]
fn log_edge_287_expiry_is_at_the_limit() {
    let mut state = ProducerState::new(200, 900_000);
    state.append(CLIENT, TestBatch { timestamp: 1000, ..data(1, 0, 0, 0) }).unwrap();
    assert_eq!((state.expire(1199), state.expire(1200)), (0, 1));
}

#[test]
fn a_transaction_that_waits_for_the_high_watermark_is_something_to_lose() {
    let mut state = ProducerState::new(200, 900_000);
    assert!(state.is_empty());
    state.append(CLIENT, TestBatch { timestamp: 1000, ..in_transaction(1, 0, 0, 0) }).unwrap();
    state.end(1, 0, true, 1).unwrap();
    assert_eq!((state.expire(1_000_000), state.producers().len(), state.is_empty()), (1, 0, false));
    state.watermark(1);
    assert!(!state.is_empty());
    state.watermark(2);
    assert!(state.is_empty());
}

#[test]
fn format_edge_112_and_209_a_control_batch_without_records() {
    let mut state = ProducerState::for_tests();
    for _ in 0..2 {
        state.append(REPLICATION, control(23423, 7, 0)).unwrap();
        let entry = state.entry(23423);
        assert_eq!(entry.epoch(), None);
        assert_eq!((entry.coordinator_epoch(), entry.last_timestamp()), (None, None));
        assert_eq!((entry.batches().len(), entry.transaction_start()), (0, None));
        assert_eq!(state.map_end(), Offset::new(1));
    }
    state.append(CLIENT, in_transaction(1, 0, 0, 1)).unwrap();
    state.append(REPLICATION, control(1, 0, 2)).unwrap();
    assert_eq!(state.unstable(), Some(1));
}

#[test]
fn format_edge_113_late_transactions() {
    const LATE_MS: i64 = 900_000 + 300_000;
    let mut state = ProducerState::for_tests();
    let at = |timestamp, batch| TestBatch { timestamp, ..batch };
    state.append(CLIENT, at(500, in_transaction(1, 0, 0, 100))).unwrap();
    assert!(!state.has_late_transaction(500 + LATE_MS));
    assert!(state.has_late_transaction(501 + LATE_MS));
    state.append(CLIENT, at(600, in_transaction(2, 0, 0, 150))).unwrap();
    assert!(state.has_late_transaction(601 + LATE_MS));
    state.end(1, 0, COMMIT, 200);
    assert!(state.has_late_transaction(601 + LATE_MS));
    assert!(!state.has_late_transaction(600 + LATE_MS));
    state.end(2, 0, COMMIT, 250);
    assert!(!state.has_late_transaction(i64::MAX));
}

#[test]
fn format_edge_116_and_log_edge_141_duplicates() {
    let mut state = ProducerState::for_tests();
    for batch in 0..6 {
        state
            .append(CLIENT, TestBatch { records: 2, ..data(1, 0, 2 * batch, 10 * i64::from(batch)) })
            .unwrap();
    }
    let again = |sequence, records| state.check(CLIENT, TestBatch { records, ..data(1, 0, sequence, 99) });
    for batch in 1..6 {
        let Ok(BatchEffect::Duplicate(known)) = again(2 * batch, 2) else { panic!("batch {batch}") };
        let first = 10 * i64::from(batch);
        assert_eq!((known.first_offset().get(), known.last_offset().get()), (first, first + 1));
        assert_eq!(known.timestamp(), Some(Timestamp::new(first + 1)));
    }
    assert_eq!(name(again(0, 2)), "OutOfOrderSequenceException");
    assert_eq!(name(again(10, 1)), "OutOfOrderSequenceException");
    assert_eq!(name(again(8, 4)), "OutOfOrderSequenceException");
}

#[test]
fn log_edge_142_duplicates_of_a_follower_are_appended() {
    let mut state = ProducerState::for_tests();
    state.append(REPLICATION, data(1, 0, 0, 0)).unwrap();
    state.append(REPLICATION, data(1, 0, 0, 1)).unwrap();
    assert_eq!(state.entry(1).batches().len(), 2);
}

#[test]
fn log_edge_143_older_epochs_are_refused() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, data(1, 3, 0, 0)).unwrap();
    for origin in [CLIENT, COORDINATOR, Origin::RaftLeader] {
        assert_eq!(name(state.check(origin, data(1, 2, 1, 1))), "InvalidProducerEpochException");
    }
    state.append(REPLICATION, data(1, 2, 9, 1)).unwrap();
    assert_eq!(state.entry(1).epoch().unwrap().get(), 2);
    assert_eq!(state.entry(1).batches().len(), 1);
}

#[test]
fn log_edge_232_and_format_edge_151_epochs_of_version_2_markers() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, in_transaction(1, 3, 0, 0)).unwrap();
    let mut end = |epoch, offset| state.end_as(COORDINATOR, V2, (1, epoch), (COMMIT, 0), offset);
    let fenced = Err("InvalidProducerEpochException");
    assert_eq!(end(2, 1), fenced);
    assert_eq!(end(3, 1), fenced);
    assert_eq!(end(4, 1), Ok(Some((0, 2))));
    assert_eq!(end(4, 2), Ok(None));
    assert_eq!(end(3, 3), fenced);
}

#[test]
fn log_edge_233_epochs_of_earlier_markers() {
    for version in [TransactionVersion::V0, TransactionVersion::V1] {
        let mut state = ProducerState::for_tests();
        state.append(CLIENT, in_transaction(1, 3, 0, 0)).unwrap();
        let mut end = |epoch| state.end_as(COORDINATOR, Some(version), (1, epoch), (COMMIT, 0), 1);
        assert_eq!(end(2), Err("InvalidProducerEpochException"));
        assert_eq!(end(3), Ok(Some((0, 2))));
    }
}

#[test]
fn log_edge_234_the_largest_epoch_may_repeat() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, in_transaction(1, i16::MAX, 0, 0)).unwrap();
    let end = state.end_as(COORDINATOR, V2, (1, i16::MAX), (COMMIT, 0), 1);
    assert_eq!(end, Ok(Some((0, 2))));
}

#[test]
fn log_edge_235_a_marker_without_a_version() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, in_transaction(1, 3, 0, 0)).unwrap();
    let mut end = |origin, epoch| state.end_as(origin, None, (1, epoch), (COMMIT, 0), 1);
    assert_eq!(end(COORDINATOR, 4), Err("IllegalArgumentException"));
    assert_eq!(end(REPLICATION, 2), Ok(Some((0, 2))));
    assert_eq!(state.entry(1).epoch().unwrap().get(), 2);
}

#[test]
fn log_edge_236_markers_for_nobody() {
    let mut state = ProducerState::for_tests();
    for offset in [0, 1] {
        assert_eq!(state.end_as(COORDINATOR, V2, (1, 0), (COMMIT, 0), offset), Ok(None));
    }
}

#[test]
fn log_edge_239_a_transaction_does_not_begin_with_an_older_epoch() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, data(1, 4, 0, 0)).unwrap();
    assert_eq!(name(state.check(CLIENT, in_transaction(1, 3, 0, 1))), "InvalidProducerEpochException");
}

#[test]
fn log_edge_258_epochs_that_come_and_go() {
    let filled = || {
        let mut state = ProducerState::for_tests();
        for sequence in 0..3 {
            state.append(REPLICATION, data(1, 0, sequence, i64::from(sequence))).unwrap();
        }
        state
    };
    let batches = [data(1, 0, 3, 3), control(1, 1, 4), data(1, 0, 4, 5)];

    let mut scanned = filled();
    let mut update = ProducerUpdate::new(REPLICATION, None);
    for batch in batches {
        let end = (batch.attributes & CONTROL != 0).then(|| marker(ABORT, 0, batch.offset));
        let _ = update.append_batch(&scanned, &batch.header(), end.as_ref(), None).unwrap();
    }
    scanned.commit(update);
    let offsets = |state: &ProducerState| {
        state.entry(1).batches().iter().map(|batch| batch.last_offset().get()).collect::<Vec<_>>()
    };
    assert_eq!(offsets(&scanned), [0, 1, 2, 5]);

    let mut recovered = filled();
    recovered.append(REPLICATION, batches[0]).unwrap();
    recovered.end_as(REPLICATION, None, (1, 1), (ABORT, 0), 4).unwrap();
    recovered.append(REPLICATION, batches[2]).unwrap();
    assert_eq!(offsets(&recovered), [5]);
}

#[test]
fn log_edge_282_and_283_compacted_batches_keep_their_range() {
    let mut state = ProducerState::for_tests();
    state.append(REPLICATION, TestBatch { records: 4, ..data(1, 0, 0, 23) }).unwrap();
    let entry = state.entry(1);
    assert_eq!(raw(entry.last_sequence()), 3);
    assert_eq!(
        (entry.first_data_offset(), entry.last_data_offset()),
        (Some(Offset::new(23)), Some(Offset::new(26)))
    );
}

#[test]
fn log_edge_289_what_is_listed_of_producers() {
    let mut state = ProducerState::for_tests();
    for sequence in 0..5 {
        state.append(CLIENT, in_transaction(1, 5, sequence, i64::from(sequence))).unwrap();
    }
    let entry = state.entry(1);
    assert_eq!((raw(entry.last_sequence()), entry.transaction_start()), (4, Some(Offset::ZERO)));
    assert_eq!(entry.coordinator_epoch(), None);
    state.end_as(COORDINATOR, V0, (1, 5), (COMMIT, 15), 5).unwrap();
    for sequence in 0..3 {
        state.append(CLIENT, data(2, 5, sequence, 6 + i64::from(sequence))).unwrap();
    }
    let listed: Vec<_> = state
        .producers()
        .iter()
        .map(|entry| {
            (
                entry.id().get(),
                raw(entry.last_sequence()),
                entry.transaction_start(),
                entry.coordinator_epoch(),
            )
        })
        .collect();
    assert_eq!(listed, [(1, 4, None, Some(15)), (2, 2, None, None)]);
}

#[test]
fn format_edge_192_one_append_on_top_of_known_batches() {
    let mut state = ProducerState::for_tests();
    state.append(CLIENT, data(1, 0, 0, 9)).unwrap();
    let five = |sequence, offset| TestBatch { records: 5, ..in_transaction(1, 0, sequence, offset) };
    let mut update = ProducerUpdate::new(CLIENT, V0);
    let _ = update.append_batch(&state, &five(1, 16).header(), None, None).unwrap();
    let _ = update.append_batch(&state, &five(6, 26).header(), None, None).unwrap();
    let shape = |update: &ProducerUpdate| {
        let entry = update.working_copies().next().unwrap();
        (
            raw(entry.first_sequence()),
            raw(entry.last_sequence()),
            entry.first_data_offset().map(Offset::get),
            entry.last_data_offset().map(Offset::get),
            entry.transaction_start().map(Offset::get),
        )
    };
    assert_eq!(shape(&update), (1, 10, Some(16), Some(30), Some(16)));
    assert_eq!(update.started_transactions().count(), 1);
    let _ =
        update.append_batch(&state, &control(1, 0, 40).header(), Some(&marker(COMMIT, 0, 40)), None).unwrap();
    assert_eq!(shape(&update), (1, 10, Some(16), Some(30), None));
    let completed = update.completed_transactions()[0];
    assert_eq!(
        (completed.first_offset.get(), completed.last_offset.get(), completed.aborted),
        (16, 40, false)
    );
}

#[test]
fn format_edge_193_the_place_of_a_transaction_is_kept() {
    let mut state = ProducerState::for_tests();
    let place = SegmentPosition { segment_base: Offset::new(990_000), position: 234_224 };
    let mut update = ProducerUpdate::new(CLIENT, V0);
    let _ =
        update.append_batch(&state, &in_transaction(1, 0, 0, 992_342).header(), None, Some(place)).unwrap();
    state.commit(update);
    let start = state.first_unstable().unwrap();
    assert_eq!((start.offset.get(), start.position), (992_342, Some(place)));
}

#[test]
fn format_edge_201_a_higher_epoch_begins_at_zero() {
    let mut state = ProducerState::for_tests();
    for sequence in 0..3 {
        state.append(CLIENT, data(1, 0, sequence, i64::from(sequence))).unwrap();
    }
    assert_eq!(name(state.check(CLIENT, data(1, 1, 5, 3))), "OutOfOrderSequenceException");
    state.append(CLIENT, data(1, 1, 0, 3)).unwrap();
}

#[test]
fn batches_without_a_producer_mean_nothing() {
    let state = ProducerState::for_tests();
    for id in [-1, -2, i64::MIN] {
        let mut update = ProducerUpdate::new(CLIENT, None);
        let effect = update.append_batch(&state, &data(id, 0, 0, 0).header(), None, None);
        assert_eq!(effect, Ok(BatchEffect::Nothing));
        assert!(update.is_empty());
    }
}

#[test]
fn a_transaction_that_is_not_open_is_not_completed() {
    let mut state = ProducerState::for_tests();
    let completed = CompletedTransaction {
        producer: ProducerId::new(1),
        first_offset: Offset::new(5),
        last_offset: Offset::new(6),
        aborted: false,
    };
    assert_eq!(state.complete(&completed).unwrap_err().kafka_name(), "IllegalArgumentException");
}

#[test]
fn an_append_of_many_producers_keeps_them_apart() {
    let mut state = ProducerState::for_tests();
    let mut update = ProducerUpdate::new(REPLICATION, None);
    for round in 0..3 {
        for id in 0..50 {
            let batch = data(id, 0, round, i64::from(round) * 50 + id);
            let _ = update.append_batch(&state, &batch.header(), None, None).unwrap();
        }
    }
    assert_eq!(update.working_copies().count(), 50);
    state.commit(update);
    assert_eq!(state.producers().len(), 50);
    for id in 0..50 {
        let entry = state.entry(id);
        assert_eq!((raw(entry.last_sequence()), entry.last_data_offset()), (2, Some(Offset::new(100 + id))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Batches with any fields from any origin: no panic, and the transactions agree with the entries.
    #[test]
    fn transactions_and_entries_agree(
        steps in prop::collection::vec(
            (0..4i64, -1..3i16, -2..4i32, 0..3usize, any::<bool>(), 0..3u8, 0..3i32, -1..20i64),
            0..40,
        ),
    ) {
        let mut state = ProducerState::for_tests();
        let mut offset = 0;
        for (id, epoch, sequence, origin, aborted, kind, coordinator, watermark) in steps {
            let origin = [CLIENT, COORDINATOR, REPLICATION][origin];
            let batch = TestBatch {
                records: 1 + coordinator,
                attributes: [0, TRANSACTIONAL, TRANSACTIONAL | CONTROL][usize::from(kind)],
                ..data(id, epoch, sequence, offset)
            };
            let end = marker(aborted, coordinator, offset);
            let mut update = ProducerUpdate::new(origin, V2);
            let effect = update.append_batch(&state, &batch.header(), (kind == 2).then_some(&end), None);
            if matches!(effect, Err(_) | Ok(BatchEffect::Duplicate(_))) {
                continue;
            }
            for completed in state.commit(update) {
                prop_assert!(state.last_stable_offset(&completed) <= completed.last_offset.next());
                state.complete(&completed).unwrap();
            }
            offset = batch.header().next_offset().get();
            state.watermark(watermark);

            let open: HashSet<Offset> =
                state.producers().iter().filter_map(|entry| entry.transaction_start()).collect();
            prop_assert_eq!(&open, &state.ongoing.keys().copied().collect());
            prop_assert!(state.completed.keys().all(|first| !open.contains(first)));
        }
    }

    /// Headers of arbitrary bytes: an answer, never a panic.
    #[test]
    fn any_header_has_an_answer(
        fields in prop::collection::vec(prop::array::uniform20(any::<u8>()), 0..8), origin in 0..3usize,
    ) {
        let mut state = ProducerState::for_tests();
        for noise in fields {
            let number = |at: usize| i64::from_be_bytes(noise[at..at + 8].try_into().unwrap());
            let batch = TestBatch {
                id: i64::from(noise[0] & 1),
                epoch: number(0) as i16,
                sequence: number(4) as i32,
                offset: number(8),
                records: number(6) as i32,
                timestamp: number(12),
                attributes: noise[3] & 0x30,
            };
            let end = marker(noise[1] & 1 == 0, number(10) as i32, number(9) >> 1);
            let mut update = ProducerUpdate::new([CLIENT, COORDINATOR, REPLICATION][origin], V0);
            if update.append_batch(&state, &batch.header(), Some(&end), None).is_ok() {
                for completed in state.commit(update) {
                    let _ = state.last_stable_offset(&completed);
                    let _ = state.complete(&completed);
                }
            }
            let _ = (state.first_unstable(), state.has_late_transaction(number(2)), state.expire(number(5)));
        }
    }
}
