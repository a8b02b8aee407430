//! Verified transactions (KIP-890): a guard against a transactional batch that arrives when its transaction is over.
//!
//! Before the first batch of a transaction whoever fronts the log asks the transaction coordinator whether the producer
//! may write here. It first takes a *guard* from the log, and gives it back with the batch: only a batch with the guard that
//! is still kept may begin a transaction. A batch or marker of the producer that comes between drops the guard, so that a
//! late batch finds none and begins nothing. The guard also remembers the lowest sequence that was asked about, so that of
//! several batches under way none overtakes.
//!
//! Source: Kafka `VerificationGuard`, `VerificationStateEntry`, `ProducerStateManager`.

use kseg_format::{ProducerEpoch, ProducerId, Sequence};

use super::update::TransactionVersion;
use super::{ProducerState, ProducerStateError};

/// Stands for one verification: equal to itself alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VerificationGuard(u64);

impl VerificationGuard {
    /// The guard of this number, which the caller draws so that none comes twice.
    pub const fn new(number: u64) -> VerificationGuard {
        VerificationGuard(number)
    }

    /// Whether a batch that brings `given` may begin a transaction where `kept` is the producer's guard: there is one, and
    /// it is that one.
    pub fn allows(kept: Option<VerificationGuard>, given: Option<VerificationGuard>) -> bool {
        kept.is_some() && kept == given
    }
}

/// What a request says of the transactional batches that it brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionRequest {
    /// The version of its transactions; decides which epochs a marker may have. Default: 0.
    pub version: TransactionVersion,
    /// The guard that was given out for it. Default: none.
    pub guard: Option<VerificationGuard>,
}

impl Default for TransactionRequest {
    fn default() -> TransactionRequest {
        TransactionRequest { version: TransactionVersion::V0, guard: None }
    }
}

impl From<TransactionVersion> for TransactionRequest {
    fn from(version: TransactionVersion) -> TransactionRequest {
        TransactionRequest { version, guard: None }
    }
}

impl From<VerificationGuard> for TransactionRequest {
    fn from(guard: VerificationGuard) -> TransactionRequest {
        TransactionRequest { guard: Some(guard), ..TransactionRequest::default() }
    }
}

/// A verification that is under way for a producer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verification {
    pub(super) guard: VerificationGuard,
    /// The producer has an epoch for each transaction.
    pub(super) bumps_epochs: bool,
    pub(super) lowest_sequence: i32,
    pub(super) epoch: i16,
    since_ms: i64,
}

impl Verification {
    fn note(&mut self, sequence: i32, epoch: i16) {
        if epoch > self.epoch {
            (self.epoch, self.lowest_sequence) = (epoch, sequence);
        } else if epoch == self.epoch {
            self.lowest_sequence = self.lowest_sequence.min(sequence);
        }
    }

    /// Whether a marker of this epoch leaves it: it is that of the transaction before.
    pub(super) fn outlives_marker(&self, epoch: i16) -> bool {
        self.bumps_epochs && self.epoch == epoch
    }

    pub(super) fn is_expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        now_ms.wrapping_sub(self.since_ms) >= expiration_ms
    }
}

impl ProducerState {
    /// Begins the verification of a producer's next transaction, or goes on with the one under way: the guard to bring
    /// with its first batch, whose first sequence is `sequence`. `None` where the producer has a transaction open in this
    /// epoch: nothing is to be verified. `fresh` is the guard if a new one is needed.
    ///
    /// # Errors
    /// [`ProducerStateError::InvalidProducerEpoch`] for an epoch below the one known.
    pub fn start_verification(
        &mut self,
        producer: ProducerId,
        (epoch, sequence): (ProducerEpoch, Sequence),
        version: TransactionVersion,
        fresh: VerificationGuard,
        now_ms: i64,
    ) -> Result<Option<VerificationGuard>, ProducerStateError> {
        let (epoch, sequence) = (epoch.get(), sequence.get());
        if let Some(entry) = self.producer(producer) {
            let known = entry.raw_epoch();
            if entry.transaction_start().is_some() && known == epoch {
                return Ok(None);
            }
            if epoch < known {
                let offset = self.map_end();
                return Err(ProducerStateError::InvalidProducerEpoch { producer, offset, epoch, known });
            }
        }
        let verification = self.verifications.entry(producer).or_insert(Verification {
            guard: fresh,
            bumps_epochs: version.bumps_epochs(),
            lowest_sequence: sequence,
            epoch,
            since_ms: now_ms,
        });
        verification.note(sequence, epoch);
        Ok(Some(verification.guard))
    }

    /// The guard that is kept for a producer.
    pub fn verification_guard(&self, producer: ProducerId) -> Option<VerificationGuard> {
        self.verifications.get(&producer).map(|verification| verification.guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_edge_299_a_guard_allows_itself_alone() {
        let (one, other) = (VerificationGuard::new(1), VerificationGuard::new(2));
        assert!(!VerificationGuard::allows(None, None));
        assert!(!VerificationGuard::allows(Some(one), Some(other)));
        assert!(!VerificationGuard::allows(Some(one), None) && !VerificationGuard::allows(None, Some(one)));
        assert!(VerificationGuard::allows(Some(one), Some(one)));
    }
}
