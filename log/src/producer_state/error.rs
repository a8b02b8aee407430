//! Batches that a producer must not append.

use std::fmt;

use kseg_format::{Offset, ProducerId};

/// A batch that contradicts what is known of its producer. Nothing of its append counts.
///
/// Epochs and sequences are shown as they lie in batches: -1 is none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProducerStateError {
    /// The producer's epoch is below the one known, or a marker's not above it that has to raise it: another producer has taken
    /// over the id.
    InvalidProducerEpoch {
        /// The producer.
        producer: ProducerId,
        /// Base offset of the batch.
        offset: Offset,
        /// The batch's epoch.
        epoch: i16,
        /// The known epoch.
        known: i16,
    },
    /// The batch's first sequence does not follow the last one known: a batch is missing, or came twice.
    OutOfOrderSequence {
        /// The producer.
        producer: ProducerId,
        /// Base offset of the batch.
        offset: Offset,
        /// The batch's epoch.
        epoch: i16,
        /// The batch's first sequence.
        found: i32,
        /// The one that must come next.
        expected: i32,
    },
    /// A batch outside any transaction, of a producer that has one open.
    InvalidTxnState {
        /// The producer.
        producer: ProducerId,
        /// Base offset of the batch.
        offset: Offset,
        /// First offset of the open transaction.
        transaction_start: Offset,
    },
    /// The first batch of a transaction that has not been verified, or whose verification a batch or marker has ended.
    Unverified {
        /// The producer.
        producer: ProducerId,
        /// Base offset of the batch.
        offset: Offset,
    },
    /// A marker of a transaction coordinator that another one has replaced.
    TransactionCoordinatorFenced {
        /// The producer.
        producer: ProducerId,
        /// Offset of the marker.
        offset: Offset,
        /// The marker's coordinator epoch.
        coordinator_epoch: i32,
        /// The known coordinator epoch.
        known: i32,
    },
    /// A marker from a coordinator without the transaction version, on which the check of its epoch depends.
    MissingTransactionVersion {
        /// The producer.
        producer: ProducerId,
        /// Offset of the marker.
        offset: Offset,
    },
    /// A transaction is completed that is not among the open ones.
    UnknownTransaction {
        /// The producer.
        producer: ProducerId,
        /// Its first offset.
        first_offset: Offset,
    },
}

impl ProducerStateError {
    /// Kafka's name for this error.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            ProducerStateError::InvalidProducerEpoch { .. } => "InvalidProducerEpochException",
            ProducerStateError::OutOfOrderSequence { .. } => "OutOfOrderSequenceException",
            ProducerStateError::InvalidTxnState { .. } | ProducerStateError::Unverified { .. } => {
                "InvalidTxnStateException"
            }
            ProducerStateError::TransactionCoordinatorFenced { .. } => {
                "TransactionCoordinatorFencedException"
            }
            ProducerStateError::MissingTransactionVersion { .. }
            | ProducerStateError::UnknownTransaction { .. } => "IllegalArgumentException",
        }
    }
}

impl fmt::Display for ProducerStateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProducerStateError::InvalidProducerEpoch { producer, offset, epoch, known } => write!(
                f,
                "producer {producer} at offset {offset}: its epoch {epoch} is {} the known one, {known}",
                // A marker that ends a transaction has to raise it.
                if epoch < known { "below" } else { "not above" }
            ),
            ProducerStateError::OutOfOrderSequence { producer, offset, epoch, found, expected } => write!(
                f,
                "producer {producer} epoch {epoch} at offset {offset}: expected sequence {expected}, found {found}"
            ),
            ProducerStateError::InvalidTxnState { producer, offset, transaction_start } => write!(
                f,
                "producer {producer} at offset {offset}: a batch outside a transaction, but one is open since \
                 offset {transaction_start}"
            ),
            ProducerStateError::Unverified { producer, offset } => {
                write!(
                    f,
                    "producer {producer} at offset {offset}: the transaction that it begins is not verified"
                )
            }
            ProducerStateError::TransactionCoordinatorFenced {
                producer,
                offset,
                coordinator_epoch,
                known,
            } => write!(
                f,
                "producer {producer} at offset {offset}: the marker's coordinator epoch {coordinator_epoch} is \
                 below the known one, {known}"
            ),
            ProducerStateError::MissingTransactionVersion { producer, offset } => {
                write!(f, "producer {producer} at offset {offset}: a marker without a transaction version")
            }
            ProducerStateError::UnknownTransaction { producer, first_offset } => {
                write!(f, "producer {producer}: no transaction is open since offset {first_offset}")
            }
        }
    }
}

impl std::error::Error for ProducerStateError {}
