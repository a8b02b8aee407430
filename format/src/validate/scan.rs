//! The first look at an append, by a leader or a follower, before anything is changed.

use std::error::Error;
use std::fmt;

use super::rules::Origin;
use crate::batches::Batches;
use crate::codec::{Codec, Magic};
use crate::error::DecodeError;
use crate::number::{LeaderEpoch, Offset, Timestamp};

/// What an append is held against at the first look.
#[allow(clippy::exhaustive_structs, reason = "three facts about an append")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanRules {
    /// Where the append comes from.
    pub origin: Origin,
    /// The epoch of the leadership under which it is made; of a follower that of its fetch.
    pub leader_epoch: LeaderEpoch,
    /// The most bytes that a batch may have (`max.message.bytes`); a follower takes larger ones.
    pub batch_size_max: u64,
}

/// What a first look at an append told.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scanned {
    /// Base offset of the first batch; of magic 0 and 1 not known.
    pub first_offset: Option<Offset>,
    /// Last offset of the first batch.
    pub first_batch_last: Offset,
    /// Last offset of the last batch.
    pub last_offset: Offset,
    /// The largest timestamp of the batches; none where all are below 0.
    pub max_timestamp: Option<Timestamp>,
    /// Bytes of the whole batches that are to be appended; what is behind them is not.
    pub valid_bytes: usize,
    /// The codec of the last batch that is compressed, none where there is none.
    pub source_codec: Codec,
    /// The leader epoch of all batches; `None` where they differ, or one has none.
    pub leader_epoch: Option<LeaderEpoch>,
    /// Whether some batch has a producer.
    pub any_producer: bool,
}

/// Looks at framing, checksums, sizes and order of an append's batches. `None` where there is no whole batch to append.
///
/// A batch that is cut at the end is left out, without an error. Of a follower's append the first batch whose leader epoch
/// is above the fetch's is left out too, and all behind it. Records are not looked at.
///
/// For a leader follows [`assign_offsets`](super::assign_offsets), which relies on the checksums; a follower appends the valid
/// bytes as they are, provided that the first offset (where it is not known, the first batch's last) is not below its log end.
///
/// # Errors
/// [`ScanError`]: the first in the order of the batches, and within one of epoch, base offset, size, checksum, codec, order,
/// last offset.
///
/// Source: Kafka `UnifiedLog.analyzeAndValidateRecords`.
pub fn scan_append(batches: &[u8], rules: &ScanRules) -> Result<Option<Scanned>, ScanError> {
    let mut seen: Option<Scanned> = None;
    let mut walk = Batches::new(batches);
    loop {
        let position = walk.position();
        let decode = |source| ScanError::Decode { position, source };
        let Some(batch) = walk.next() else { break };
        let batch = batch.map_err(decode)?;
        let header = *batch.header();
        let epoch = header.leader_epoch();
        if rules.origin == Origin::RaftLeader && epoch != Some(rules.leader_epoch) {
            return Err(ScanError::LeaderEpoch { position, expected: rules.leader_epoch, found: epoch });
        }
        let base = header.base_offset();
        if rules.origin == Origin::Client && header.magic() == Magic::V2 && base != Some(Offset::ZERO) {
            let found = base.unwrap_or(header.last_offset());
            return Err(ScanError::BaseOffset { position, found });
        }
        if rules.origin == Origin::Replication && epoch > Some(rules.leader_epoch) {
            break;
        }
        let size = header.size();
        if rules.origin != Origin::Replication && size as u64 > rules.batch_size_max {
            return Err(ScanError::TooLarge { position, size, limit: rules.batch_size_max });
        }
        batch.verify().map_err(decode)?;
        let codec = header.codec().map_err(decode)?;
        let before = seen.map_or(Offset::new(-1), |seen| seen.last_offset);
        let given = matches!(rules.origin, Origin::Replication | Origin::RaftLeader);
        if given && header.last_offset() <= before {
            return Err(ScanError::OutOfOrder { position, before, last_offset: header.last_offset() });
        }
        // Behind all that Kafka refuses, so that what both refuse has Kafka's name.
        if let Some(base) = base.filter(|base| header.last_offset() < *base) {
            return Err(ScanError::LastOffset { position, base, found: header.last_offset() });
        }
        let seen = seen.get_or_insert(Scanned {
            first_offset: base.filter(|_| header.magic() == Magic::V2),
            first_batch_last: header.last_offset(),
            last_offset: header.last_offset(),
            max_timestamp: None,
            valid_bytes: 0,
            source_codec: Codec::None,
            leader_epoch: epoch,
            any_producer: false,
        });
        seen.any_producer |= header.producer_id().is_some();
        if epoch != seen.leader_epoch {
            seen.leader_epoch = None;
        }
        seen.last_offset = header.last_offset();
        // One below 0 is no largest one.
        seen.max_timestamp = seen.max_timestamp.max(header.max_timestamp().filter(|time| time.get() >= 0));
        seen.valid_bytes = walk.position();
        if codec != Codec::None {
            seen.source_codec = codec;
        }
    }
    Ok(seen)
}

/// A batch that keeps an append from being made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ScanError {
    /// It cannot be read, or its checksum is wrong.
    Decode {
        /// Its first byte in what was given.
        position: usize,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// It has another leader epoch than the metadata quorum's leader gives. Kafka: `InvalidRecordException`.
    LeaderEpoch {
        /// Its first byte in what was given.
        position: usize,
        /// The leader's.
        expected: LeaderEpoch,
        /// Its own.
        found: Option<LeaderEpoch>,
    },
    /// A client's batch does not begin at offset 0. Kafka: `InvalidRecordException`.
    BaseOffset {
        /// Its first byte in what was given.
        position: usize,
        /// Where it begins.
        found: Offset,
    },
    /// Its last offset is below its base offset, so that it names no offset. Kafka takes it from a follower; here an
    /// `InvalidRecordException`.
    LastOffset {
        /// Its first byte in what was given.
        position: usize,
        /// Its base offset.
        base: Offset,
        /// Its last offset.
        found: Offset,
    },
    /// It has too many bytes. Kafka: `RecordTooLargeException`.
    TooLarge {
        /// Its first byte in what was given.
        position: usize,
        /// Its size.
        size: usize,
        /// The most it may have.
        limit: u64,
    },
    /// Its last offset is not above that of the batch before, or below 0. Kafka: `OffsetsOutOfOrderException`.
    OutOfOrder {
        /// Its first byte in what was given.
        position: usize,
        /// The last offset of the batch before, -1 in front of the first.
        before: Offset,
        /// Its last offset.
        last_offset: Offset,
    },
}

impl ScanError {
    /// The first byte of the batch in what was given.
    pub fn position(&self) -> usize {
        match self {
            ScanError::Decode { position, .. }
            | ScanError::LeaderEpoch { position, .. }
            | ScanError::BaseOffset { position, .. }
            | ScanError::LastOffset { position, .. }
            | ScanError::TooLarge { position, .. }
            | ScanError::OutOfOrder { position, .. } => *position,
        }
    }

    /// The simple name of the exception that Kafka raises for it.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            ScanError::Decode { source, .. } => source.kafka_name(),
            ScanError::LeaderEpoch { .. } | ScanError::BaseOffset { .. } | ScanError::LastOffset { .. } => {
                "InvalidRecordException"
            }
            ScanError::TooLarge { .. } => "RecordTooLargeException",
            ScanError::OutOfOrder { .. } => "OffsetsOutOfOrderException",
        }
    }
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the batch at byte {}: ", self.position())?;
        match self {
            ScanError::Decode { .. } => f.write_str("it cannot be read"),
            ScanError::LeaderEpoch { expected, found, .. } => {
                let found = LeaderEpoch::to_raw(*found);
                write!(f, "leader epoch: expected {expected}, found {found}")
            }
            ScanError::BaseOffset { found, .. } => write!(f, "base offset: expected 0, found {found}"),
            ScanError::LastOffset { base, found, .. } => {
                write!(f, "last offset: expected at least the base offset {base}, found {found}")
            }
            ScanError::TooLarge { size, limit, .. } => {
                write!(f, "size: expected at most {limit} bytes, found {size}")
            }
            ScanError::OutOfOrder { before, last_offset, .. } => {
                write!(f, "last offset: expected above {before}, found {last_offset}")
            }
        }
    }
}

impl Error for ScanError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ScanError::Decode { source, .. } => Some(source),
            _ => None,
        }
    }
}
