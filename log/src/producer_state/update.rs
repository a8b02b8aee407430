//! One append against the known producers: checks, and the working copies that hold its effect until it is written.

use std::collections::HashMap;

use kseg_format::{
    BatchHeader, DecodeError, EndTransactionMarker, Offset, Origin, ProducerEpoch, ProducerId, Record,
    Sequence, Timestamp,
};

use super::entry::{ProducerBatch, ProducerEntry};
use super::verification::{Verification, VerificationGuard};
use super::{CompletedTransaction, ProducerState, ProducerStateError, SegmentPosition, TransactionStart};

/// Above this many producers in one append their copies are found by a map.
const SEARCHED_IN_TURN: usize = 16;

/// The protocol between a transaction's producer, its coordinator and the brokers. Travels with the request that writes
/// a marker, and is not in the log.
///
/// Source: Kafka `TransactionVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionVersion(u16);

impl TransactionVersion {
    /// Version 0, the first.
    pub const V0: TransactionVersion = TransactionVersion(0);
    /// Version 1: flexible fields in the coordinator's records; the same at this layer.
    pub const V1: TransactionVersion = TransactionVersion(1);
    /// Version 2: every transaction has an epoch of its own (KIP-890).
    pub const V2: TransactionVersion = TransactionVersion(2);

    /// The version of this number.
    pub const fn new(number: u16) -> TransactionVersion {
        TransactionVersion(number)
    }

    /// Whether a marker must carry a higher epoch than the transaction's batches.
    pub const fn bumps_epochs(self) -> bool {
        self.0 >= 2
    }
}

/// The first record of a control batch of a producer: the end of a transaction, and when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMarker {
    /// How the transaction ended, and under which coordinator.
    pub marker: EndTransactionMarker,
    /// The record's timestamp.
    pub timestamp: Option<Timestamp>,
}

impl EndMarker {
    /// Reads the marker from its record.
    ///
    /// # Errors
    /// Those of [`EndTransactionMarker::parse`].
    pub fn of(record: &Record<'_>) -> Result<EndMarker, DecodeError> {
        let marker = EndTransactionMarker::parse(record.key(), record.value())?;
        Ok(EndMarker { marker, timestamp: record.timestamp() })
    }
}

/// What a batch means to its producer's state.
#[must_use = "a duplicate must not be appended"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchEffect {
    /// It has no producer id, or is a control batch without records.
    Nothing,
    /// Data that follows what is known.
    Data,
    /// A marker, with the transaction that it ends if one was open.
    Marker(Option<CompletedTransaction>),
    /// It repeats this batch, which is in the log already: the append ends here and nothing of it is written.
    Duplicate(ProducerBatch),
}

/// One append: the producers it touches, each as a copy that counts once it is committed.
///
/// A dropped update leaves no trace. Each producer's copy begins with what was committed when its first batch of this
/// append was met, without the batches; several batches of one append build on each other.
///
/// Source: Kafka `ProducerAppendInfo`, `UnifiedLog.analyzeAndValidateProducerState`.
#[derive(Debug)]
pub struct ProducerUpdate {
    origin: Origin,
    version: Option<TransactionVersion>,
    /// Set where a transaction may begin only once it has been verified: the guard that the append brings.
    verified: Option<Option<VerificationGuard>>,
    copies: Vec<WorkingCopy>,
    by_id: HashMap<ProducerId, usize>,
    completed: Vec<CompletedTransaction>,
}

#[derive(Debug)]
pub(super) struct WorkingCopy {
    pub(super) entry: ProducerEntry,
    pub(super) started: Vec<TransactionStart>,
    /// A batch ends the verification that was under way.
    pub(super) settles_verification: bool,
    /// The verification under way when the append began.
    verification: Option<Verification>,
    /// Epoch and last sequence of the committed entry, -1 where there is none.
    committed_epoch: i16,
    committed_last_sequence: i32,
    /// The committed entry has no batch.
    committed_is_empty: bool,
}

impl ProducerUpdate {
    /// An append from `origin`. `version` is that of the request's transactions; replication and recovery have none.
    pub fn new(origin: Origin, version: Option<TransactionVersion>) -> ProducerUpdate {
        let (copies, by_id, completed) = (Vec::new(), HashMap::new(), Vec::new());
        ProducerUpdate { origin, version, verified: None, copies, by_id, completed }
    }

    /// The same, where a client's transaction may begin only with the guard that is kept for its producer; `guard` is the
    /// one that this append brings.
    pub fn verified_by(mut self, guard: Option<VerificationGuard>) -> ProducerUpdate {
        self.verified = Some(guard);
        self
    }

    /// Checks one batch and adds its effect to this update.
    ///
    /// `header` is the batch's, with its final offsets; `marker` the first record of a control batch, `None` where that
    /// has no records; `position` where the batch lies or will lie, if that is known. After an error or a duplicate the
    /// update is to be dropped.
    ///
    /// | origin | epochs | sequences, duplicates | verification, if asked for | no plain batch in a transaction |
    /// |---|---|---|---|---|
    /// | client | checked | checked | checked | checked |
    /// | coordinator | checked | - | checked | checked |
    /// | raft leader | checked | - | - | checked |
    /// | replication, recovery | taken over as they are | - | - | checked |
    ///
    /// # Errors
    /// [`ProducerStateError`] where the batch contradicts what is known of its producer.
    pub fn append_batch(
        &mut self,
        state: &ProducerState,
        header: &BatchHeader,
        marker: Option<&EndMarker>,
        position: Option<SegmentPosition>,
    ) -> Result<BatchEffect, ProducerStateError> {
        let Some((id, offset)) = producer_and_offset(header) else { return Ok(BatchEffect::Nothing) };
        let committed = state.producer(id);
        if self.origin == Origin::Client
            && let Some(batch) = committed.and_then(|entry| entry.duplicate_of(header))
        {
            return Ok(BatchEffect::Duplicate(batch));
        }
        if matches!(self.origin, Origin::Client | Origin::Coordinator) && header.is_transactional() {
            let begins = check_start_of_transaction(committed, header, offset)?;
            if let Some(given) = self.verified.filter(|_| begins && !header.is_control())
                && !VerificationGuard::allows(state.verification_guard(id), given)
            {
                return Err(ProducerStateError::Unverified { producer: id, offset });
            }
        }

        let (origin, version) = (self.origin, self.version);
        let copy = self.copy_of(id, committed, state.verifications.get(&id));
        if header.is_transactional() {
            let epoch = ProducerEpoch::to_raw(header.producer_epoch());
            let outlives = |v: Verification| header.is_control() && v.outlives_marker(epoch);
            copy.settles_verification |= !copy.verification.is_some_and(outlives);
        }
        if !header.is_control() {
            let start = TransactionStart { producer: id, offset, position };
            copy.append_data(header, start, origin)?;
            return Ok(BatchEffect::Data);
        }
        let Some(marker) = marker else { return Ok(BatchEffect::Nothing) };
        let epoch = ProducerEpoch::to_raw(header.producer_epoch());
        let completed = copy.append_marker(epoch, offset, marker, origin, version)?;
        self.completed.extend(completed);
        Ok(BatchEffect::Marker(completed))
    }

    /// Whether no batch with a producer was met.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// The producers this append touches, as they will be once it is committed; batches are those of the append alone.
    pub fn working_copies(&self) -> impl Iterator<Item = &ProducerEntry> {
        self.copies.iter().map(|copy| &copy.entry)
    }

    /// Transactions that began in this append, by producer and offset.
    pub fn started_transactions(&self) -> impl Iterator<Item = &TransactionStart> {
        self.copies.iter().flat_map(|copy| &copy.started)
    }

    /// Transactions that ended in this append, in the order of their markers.
    pub fn completed_transactions(&self) -> &[CompletedTransaction] {
        &self.completed
    }

    pub(super) fn into_parts(self) -> (Vec<WorkingCopy>, Vec<CompletedTransaction>) {
        (self.copies, self.completed)
    }

    fn copy_of(
        &mut self,
        id: ProducerId,
        committed: Option<&ProducerEntry>,
        verification: Option<&Verification>,
    ) -> &mut WorkingCopy {
        let known = if self.by_id.is_empty() {
            self.copies.iter().position(|copy| copy.entry.id() == id)
        } else {
            self.by_id.get(&id).copied()
        };
        let index = known.unwrap_or_else(|| {
            let index = self.copies.len();
            self.copies.push(WorkingCopy::new(id, committed, verification.copied()));
            if !self.by_id.is_empty() {
                self.by_id.insert(id, index);
            } else if self.copies.len() > SEARCHED_IN_TURN {
                self.by_id =
                    self.copies.iter().enumerate().map(|(index, copy)| (copy.entry.id(), index)).collect();
            }
            index
        });
        &mut self.copies[index]
    }
}

impl WorkingCopy {
    fn new(
        id: ProducerId,
        committed: Option<&ProducerEntry>,
        verification: Option<Verification>,
    ) -> WorkingCopy {
        let entry = committed.map_or_else(|| ProducerEntry::unknown(id), ProducerEntry::working_copy);
        WorkingCopy {
            committed_epoch: entry.raw_epoch(),
            committed_last_sequence: committed.map_or(-1, ProducerEntry::raw_last_sequence),
            committed_is_empty: committed.is_none_or(|entry| entry.batches().is_empty()),
            entry,
            started: Vec::new(),
            settles_verification: false,
            verification,
        }
    }

    fn append_data(
        &mut self,
        header: &BatchHeader,
        start: TransactionStart,
        origin: Origin,
    ) -> Result<(), ProducerStateError> {
        let epoch = ProducerEpoch::to_raw(header.producer_epoch());
        if origin != Origin::Replication {
            self.check_epoch(epoch, start.offset)?;
        }
        if origin == Origin::Client {
            self.check_sequence(epoch, Sequence::to_raw(header.base_sequence()), start.offset)?;
        }

        let last_offset = header.last_offset();
        let batch = ProducerBatch::new(
            Sequence::to_raw(header.last_sequence()),
            last_offset,
            last_offset.get().wrapping_sub(start.offset.get()) as i32,
            Timestamp::to_raw(header.max_timestamp()),
        );
        self.entry.add_batch(epoch, batch);

        match (self.entry.transaction_start(), header.is_transactional()) {
            (Some(transaction_start), false) => Err(ProducerStateError::InvalidTxnState {
                producer: start.producer,
                offset: start.offset,
                transaction_start,
            }),
            (None, true) => {
                self.entry.open_transaction(start.offset);
                self.started.push(start);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn append_marker(
        &mut self,
        epoch: i16,
        offset: Offset,
        marker: &EndMarker,
        origin: Origin,
        version: Option<TransactionVersion>,
    ) -> Result<Option<CompletedTransaction>, ProducerStateError> {
        if origin != Origin::Replication {
            self.check_marker(epoch, offset, marker, version)?;
        }
        let completed = self.entry.transaction_start().map(|first_offset| CompletedTransaction {
            producer: self.entry.id(),
            first_offset,
            last_offset: offset,
            aborted: !marker.marker.committed,
        });
        self.entry.end_transaction(
            epoch,
            marker.marker.coordinator_epoch,
            Timestamp::to_raw(marker.timestamp),
        );
        Ok(completed)
    }

    fn check_marker(
        &self,
        epoch: i16,
        offset: Offset,
        marker: &EndMarker,
        version: Option<TransactionVersion>,
    ) -> Result<(), ProducerStateError> {
        let producer = self.entry.id();
        let Some(version) = version else {
            return Err(ProducerStateError::MissingTransactionVersion { producer, offset });
        };
        let known = self.entry.raw_epoch();
        // The same epoch again: a repeated marker, or an epoch that cannot grow any more.
        let equal_is_fine =
            !version.bumps_epochs() || self.entry.transaction_start().is_none() || epoch == i16::MAX;
        if epoch < known || (epoch == known && !equal_is_fine) {
            return Err(ProducerStateError::InvalidProducerEpoch { producer, offset, epoch, known });
        }
        let known = self.entry.raw_coordinator_epoch();
        if marker.marker.coordinator_epoch < known {
            let coordinator_epoch = marker.marker.coordinator_epoch;
            return Err(ProducerStateError::TransactionCoordinatorFenced {
                producer,
                offset,
                coordinator_epoch,
                known,
            });
        }
        Ok(())
    }

    fn check_epoch(&self, epoch: i16, offset: Offset) -> Result<(), ProducerStateError> {
        check_epoch(&self.entry, epoch, offset)
    }

    fn check_sequence(&self, epoch: i16, first: i32, offset: Offset) -> Result<(), ProducerStateError> {
        let error = |expected| {
            let producer = self.entry.id();
            Err(ProducerStateError::OutOfOrderSequence { producer, offset, epoch, found: first, expected })
        };
        if let Some(verification) = &self.verification {
            if verification.bumps_epochs && self.committed_is_empty && first != 0 {
                return error(0);
            }
            if first > verification.lowest_sequence {
                return error(verification.lowest_sequence);
            }
        }
        let known = self.entry.raw_epoch();
        if epoch != known {
            // A new epoch begins at 0; of a producer that is not known, or known by nothing but its id, all is believed.
            return if first == 0 || known == -1 { Ok(()) } else { error(0) };
        }
        let last = if !self.entry.batches().is_empty() {
            self.entry.raw_last_sequence()
        } else if epoch == self.committed_epoch {
            self.committed_last_sequence
        } else {
            -1
        };
        if self.committed_epoch == -1 || Sequence::new(last).is_followed_by(Sequence::new(first)) {
            return Ok(());
        }
        error(if last == i32::MAX { 0 } else { last.wrapping_add(1) })
    }
}

/// The producer of a batch and its base offset. An id below 0 is none; batches without an id of their own have none.
fn producer_and_offset(header: &BatchHeader) -> Option<(ProducerId, Offset)> {
    let id = header.producer_id().filter(|id| id.get() >= 0)?;
    Some((id, header.base_offset()?))
}

/// Whether a transactional batch begins a transaction: its producer has none open in this epoch. Its epoch must then not
/// be below the known one.
fn check_start_of_transaction(
    committed: Option<&ProducerEntry>,
    header: &BatchHeader,
    offset: Offset,
) -> Result<bool, ProducerStateError> {
    let epoch = ProducerEpoch::to_raw(header.producer_epoch());
    match committed {
        Some(entry) if entry.transaction_start().is_some() && entry.raw_epoch() == epoch => Ok(false),
        Some(entry) => check_epoch(entry, epoch, offset).map(|()| true),
        None => Ok(true),
    }
}

fn check_epoch(entry: &ProducerEntry, epoch: i16, offset: Offset) -> Result<(), ProducerStateError> {
    let known = entry.raw_epoch();
    if epoch < known {
        return Err(ProducerStateError::InvalidProducerEpoch { producer: entry.id(), offset, epoch, known });
    }
    Ok(())
}
