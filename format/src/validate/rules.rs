//! The rules of a leader's append and the checks that come from them.

use super::error::{RecordFaultKind, ValidationError};
use super::fault::BatchFault;
use crate::batch::header::BatchHeader;
use crate::codec::{Codec, TimestampType};
use crate::number::{LeaderEpoch, Offset, Timestamp};
use crate::records::Survey;

/// Where an append comes from.
#[allow(clippy::exhaustive_enums, reason = "the origins that Kafka's log knows")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Origin {
    /// A producer: everything is checked.
    #[default]
    Client,
    /// The broker itself: committed group offsets, transaction markers.
    Coordinator,
    /// Another replica, or recovery.
    Replication,
    /// The leader of the metadata quorum.
    RaftLeader,
}

/// The level of each codec that has one.
#[allow(clippy::exhaustive_structs, reason = "the three topic settings")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levels {
    /// `compression.gzip.level`: 1 to 9, or -1. Default: -1.
    pub gzip: i32,
    /// `compression.lz4.level`: 1 to 17. Default: 9.
    pub lz4: i32,
    /// `compression.zstd.level`: -131072 to 22. Default: 3.
    pub zstd: i32,
}

impl Default for Levels {
    fn default() -> Levels {
        Levels { gzip: -1, lz4: 9, zstd: 3 }
    }
}

impl Levels {
    /// The level of a codec; `None` where it has none.
    pub fn of(&self, codec: Codec) -> Option<i32> {
        match codec {
            Codec::Gzip => Some(self.gzip),
            Codec::Lz4 => Some(self.lz4),
            Codec::Zstd => Some(self.zstd),
            Codec::None | Codec::Snappy => None,
        }
    }
}

/// What a leader asks of the records appended, and what it stamps them with.
#[allow(clippy::exhaustive_structs, reason = "to be used with `..LeaderRules::default()`")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaderRules {
    /// Where the append comes from. Default: a client.
    pub origin: Origin,
    /// Whether the topic is compacted, so that every record needs a key. Default: no.
    pub compacted: bool,
    /// The codec that batches are stored with; `None` for the producer's, at its own default level. Default: `None`.
    pub target_codec: Option<Codec>,
    /// The levels for `target_codec`.
    pub levels: Levels,
    /// What the timestamps of stored batches mean. Default: CreateTime.
    pub timestamp_type: TimestampType,
    /// How far below `now` a CreateTime timestamp may lie, in milliseconds. Default: `i64::MAX`.
    pub timestamp_before_max_ms: i64,
    /// How far above `now` a CreateTime timestamp may lie, in milliseconds. Default: 3 600 000.
    pub timestamp_after_max_ms: i64,
    /// The clock, read once. Default: 0.
    pub now: Timestamp,
    /// The leader epoch to be stamped. Default: 0.
    pub leader_epoch: LeaderEpoch,
    /// The most bytes that a batch's records may have decompressed. Default: `i32::MAX`.
    ///
    /// Kafka has no such limit, and a client's batch of `max.message.bytes` may hold a thousand times that decompressed.
    /// A batch that has to be built anew is held decompressed, and else one record may be as large as all, so this is the
    /// memory that one append may take, and whoever takes appends from strangers sets it: a batch that exceeds it is refused as
    /// invalid. Records that may not be appended are listed, at 40 bytes each where a record has 7 or more.
    pub decompressed_limit: usize,
}

impl Default for LeaderRules {
    fn default() -> LeaderRules {
        LeaderRules {
            origin: Origin::Client,
            compacted: false,
            target_codec: None,
            levels: Levels::default(),
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            now: Timestamp::new(0),
            leader_epoch: LeaderEpoch::new(0),
            decompressed_limit: i32::MAX as usize,
        }
    }
}

impl LeaderRules {
    /// The time that the batch is stamped with, if it is.
    pub(super) fn log_append_time(&self) -> Option<Timestamp> {
        match self.timestamp_type {
            TimestampType::LogAppendTime => Some(self.now),
            TimestampType::CreateTime => None,
        }
    }

    /// The checks for the records of a batch.
    #[inline]
    pub(super) fn record_checks(&self, header: &BatchHeader) -> RecordChecks {
        // A difference that Java would wrap is checked as it wraps.
        RecordChecks {
            key_needed: self.compacted,
            create_time: self.timestamp_type == TimestampType::CreateTime,
            flagged: header.timestamp_type() == Some(TimestampType::LogAppendTime),
            now: self.now.get(),
            before_max: self.timestamp_before_max_ms,
            after_max: self.timestamp_after_max_ms,
        }
    }
}

/// What became of an append.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assigned {
    /// The offset after the last record's.
    pub next_offset: Offset,
    /// The largest timestamp of the records as they are stored.
    pub max_timestamp: Option<Timestamp>,
    /// The time they were stamped with; `None` with CreateTime.
    pub log_append_time: Option<Timestamp>,
    /// Whether the batch was built anew, so that its size has to be checked again.
    pub sizes_may_have_changed: bool,
    /// How many records there are.
    pub record_count: u64,
    /// How many records were written anew, in another codec or format. Kafka: `numRecordsConverted`.
    pub converted_records: u64,
    /// Bytes of records and headers that were held uncompressed to do so, as Kafka counts them: those of a compressed batch
    /// that was looked into, and those of a batch built anew. Kafka: `temporaryMemoryBytes`.
    pub temporary_bytes: u64,
}

/// What each record of a batch is held against.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordChecks {
    key_needed: bool,
    create_time: bool,
    flagged: bool,
    now: i64,
    before_max: i64,
    after_max: i64,
}

impl RecordChecks {
    /// The first thing that is wrong with a record; `timestamp` is raw.
    #[inline(always)]
    pub(super) fn fault(&self, has_key: bool, timestamp: i64) -> Option<RecordFaultKind> {
        if self.key_needed && !has_key {
            return Some(RecordFaultKind::Key);
        }
        if self.create_time && timestamp != -1 {
            let fits = self.now.wrapping_sub(timestamp) <= self.before_max
                && timestamp.wrapping_sub(self.now) <= self.after_max;
            if fits { None } else { Some(self.out_of_range(timestamp)) }
        } else if self.flagged {
            Some(RecordFaultKind::AppendTime { found: Timestamp::from_raw(timestamp) })
        } else {
            None
        }
    }

    #[cold]
    fn out_of_range(&self, timestamp: i64) -> RecordFaultKind {
        RecordFaultKind::Timestamp {
            found: Timestamp::new(timestamp),
            least: Timestamp::new(self.now.saturating_sub(self.before_max)),
            most: Timestamp::new(self.now.saturating_add(self.after_max)),
        }
    }

    /// Whether none of the records can be at fault, as far as what they have in common tells. `false` says nothing.
    #[inline]
    pub(super) fn admit(&self, records: &Survey) -> bool {
        if self.flagged || self.key_needed && records.null_key {
            return false;
        }
        if !self.create_time {
            return true;
        }
        // What lies between two timestamps is no farther from now than one of the two, unless a difference goes round.
        let (Some(behind), Some(ahead)) =
            (self.now.checked_sub(records.oldest), records.newest.checked_sub(self.now))
        else {
            return false;
        };
        behind <= self.before_max && ahead <= self.after_max
    }
}

/// The checks of a batch as a whole; `head` is the first of the append.
#[inline]
pub(super) fn check_batch(
    head: &BatchHeader,
    header: &BatchHeader,
    origin: Origin,
) -> Result<(), ValidationError> {
    if head.magic() != header.magic() {
        return Err(ValidationError::batch(BatchFault::Magic {
            expected: head.magic(),
            found: header.magic(),
        }));
    }
    if origin != Origin::Client {
        return Ok(());
    }
    if let Some(count) = header.records_count() {
        let by_offsets = header.last_offset().get().wrapping_sub(header.raw_base_offset()).wrapping_add(1);
        if by_offsets <= 0 {
            return Err(ValidationError::batch(BatchFault::LastOffset {
                base: Offset::new(header.raw_base_offset()),
                found: header.last_offset(),
            }));
        }
        if count <= 0 {
            return Err(ValidationError::batch(BatchFault::Count { found: count }));
        }
        if i64::from(count) != by_offsets {
            let fault = BatchFault::CountAndOffsets { expected: by_offsets, found: count };
            return Err(ValidationError::batch(fault));
        }
    }
    if header.is_control() {
        return Err(ValidationError::batch(BatchFault::Control));
    }
    if header.producer_id().is_some_and(|id| id.get() >= 0) && header.raw_base_sequence() < 0 {
        return Err(ValidationError::batch(BatchFault::Sequence { found: header.raw_base_sequence() }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers near each other, near `now`, and near the ends.
    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![-3i64..1000, Just(i64::MIN), Just(i64::MAX), any::<i64>(), i64::MAX - 1000..=i64::MAX]
    }

    proptest! {
        #[test]
        fn records_that_are_admitted_together_have_no_fault_alone(
            records in proptest::collection::vec((any::<bool>(), number()), 1..6),
            (key_needed, create_time, flagged) in any::<(bool, bool, bool)>(),
            (now, before_max, after_max) in (number(), number(), number()),
        ) {
            let checks = RecordChecks { key_needed, create_time, flagged, now, before_max, after_max };
            let survey = Survey {
                count: records.len() as u64,
                oldest: records.iter().map(|record| record.1).min().unwrap_or_default(),
                newest: records.iter().map(|record| record.1).max().unwrap_or_default(),
                null_key: records.iter().any(|record| !record.0),
            };
            let at_fault = records.iter().any(|record| checks.fault(record.0, record.1).is_some());
            prop_assert!(!(checks.admit(&survey) && at_fault));
        }
    }

    #[test]
    fn records_as_they_usually_are_need_no_second_look() {
        let rules = LeaderRules { now: Timestamp::new(1_000_000), ..LeaderRules::default() };
        let checks = RecordChecks {
            key_needed: rules.compacted,
            create_time: true,
            flagged: false,
            now: rules.now.get(),
            before_max: rules.timestamp_before_max_ms,
            after_max: rules.timestamp_after_max_ms,
        };
        let survey = Survey { count: 2, oldest: 0, newest: 1_000_100, null_key: true };
        assert!(checks.admit(&survey));
        assert!(!RecordChecks { key_needed: true, ..checks }.admit(&survey));
        assert!(!checks.admit(&Survey { newest: 5_000_000, ..survey }));
    }
}
