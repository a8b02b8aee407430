//! What a leader does to records before they are stored: checks them, gives them offsets, stamps them.
//!
//! Three paths lead through it. **A**: an uncompressed batch of magic 2 stays so; its records are checked and the
//! header is changed in place. **B**: uncompressed messages of magic 0 or 1 become one batch of magic 2. **C**: all
//! else; the records are decoded, and either the header is changed in place (same codec, consecutive offsets) or the
//! batch is built anew.
//!
//! One batch is allowed, or several uncompressed messages of magic 0 or 1. All records of a batch are looked at before
//! the errors are reported, together; each message is a batch, so that of several the first at fault is reported.
//!
//! Unlike Kafka this decodes compressed records fully where it keeps them as they are, so that what could not be read
//! back is not stored. They are decompressed piece by piece, and no more than a piece is held, unless the batch is built
//! anew: then its records are held as they are before they are compressed.
//!
//! Source: Kafka `LogValidator`.

mod error;
mod fault;
mod rules;
mod scan;

use bytes::BytesMut;

pub use error::{RecordFault, RecordFaultKind, ValidationError};
pub use fault::{BatchFault, Rejections};
pub use rules::{Assigned, LeaderRules, Levels, Origin};
pub use scan::{ScanError, ScanRules, Scanned, scan_append};

use crate::batch::Batch;
use crate::batch::builder::{BatchOptions, Producer, RecordBatchBuilder};
use crate::batch::header::{BATCH_OVERHEAD, BatchHeader};
use crate::batch::mutate::BatchMut;
use crate::batches::Batches;
use crate::codec::{Codec, Magic, TimestampType};
use crate::legacy::read::{Inner, WrapperStream};
use crate::number::{Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::record::Record;
use crate::records::{V2Records, survey};
use error::Faults;
use rules::check_batch;

/// Checks the records of a leader's append, gives them consecutive offsets from `first` on, and stamps leader epoch and
/// timestamp, as the rules say.
///
/// `batches` holds whole batches and nothing else, and the caller has checked every checksum. `source_codec` is the
/// codec of the last compressed batch among them, none if there is none. On return `batches` holds what is to be
/// stored: the same bytes with another header, or another batch, or no bytes where a batch without records would have to be
/// built anew. On an error its contents are unspecified.
///
/// # Errors
/// [`ValidationError::Batch`] for a batch that may not be appended, [`ValidationError::Records`] for records that may
/// not, [`ValidationError::Decode`] for records that cannot be read, and [`ValidationError::Encode`] for a batch that
/// has to be built anew and cannot.
///
/// ```
/// use bytes::BytesMut;
/// use kseg_format::{
///     Batch, BatchOptions, LeaderEpoch, LeaderRules, Offset, Origin, RecordBatchBuilder, ScanRules, Timestamp,
///     assign_offsets, scan_append,
/// };
///
/// // What a client sent.
/// let mut builder = RecordBatchBuilder::new(BatchOptions::default());
/// builder.append(Some(Timestamp::new(1_000)), Some(b"key"), Some(b"value"), &[])?;
/// builder.append(Some(Timestamp::new(1_001)), None, Some(b"value"), &[])?;
/// let mut bytes = BytesMut::new();
/// builder.finish(&mut bytes)?;
///
/// let leader_epoch = LeaderEpoch::new(3);
/// let scan = ScanRules { origin: Origin::Client, leader_epoch, batch_size_max: 1 << 20 };
/// let scanned = scan_append(&bytes, &scan)?.expect("a whole batch");
/// bytes.truncate(scanned.valid_bytes);
///
/// let rules = LeaderRules {
///     now: Timestamp::new(2_000),
///     leader_epoch,
///     decompressed_limit: 1 << 20,
///     ..LeaderRules::default()
/// };
/// let compacted = LeaderRules { compacted: true, ..rules.clone() };
/// let refused = assign_offsets(&mut bytes.clone(), Offset::new(40), scanned.source_codec, &compacted);
/// assert_eq!(refused.unwrap_err().record_faults()[0].batch_index, 1, "the second record has no key");
///
/// let assigned = assign_offsets(&mut bytes, Offset::new(40), scanned.source_codec, &rules)?;
/// assert_eq!(assigned.next_offset, Offset::new(42));
/// let stored = Batch::parse(&bytes)?.verify()?;
/// assert_eq!((stored.base_offset(), stored.leader_epoch()), (Some(Offset::new(40)), Some(leader_epoch)));
///
/// // A follower takes the same bytes as they are.
/// let follower = ScanRules { origin: Origin::Replication, ..scan };
/// assert_eq!(scan_append(&bytes, &follower)?.expect("a whole batch").last_offset, Offset::new(41));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: Kafka `LogValidator.validateMessagesAndAssignOffsets`.
pub fn assign_offsets(
    batches: &mut BytesMut,
    first: Offset,
    source_codec: Codec,
    rules: &LeaderRules,
) -> Result<Assigned, ValidationError> {
    let target_codec = rules.target_codec.unwrap_or(source_codec);
    let batch = only_batch(batches, source_codec)?;
    let head = *batch.header();
    if source_codec == Codec::None && target_codec == Codec::None && head.magic() == Magic::V2 {
        let seen = look_at_uncompressed(batch, rules)?;
        return stamp(batches, head, first, seen, rules);
    }
    assign_decoded(batches, head, first, (source_codec, target_codec), rules)
}

/// Paths B and C, for batches of which `head` is the header of the first.
#[inline(never)]
fn assign_decoded(
    batches: &mut BytesMut,
    head: BatchHeader,
    first: Offset,
    (source_codec, target_codec): (Codec, Codec),
    rules: &LeaderRules,
) -> Result<Assigned, ValidationError> {
    if source_codec == Codec::None && target_codec == Codec::None {
        return convert(batches, &head, first, rules);
    }
    let mut walk = Walk { rules, count: 0, uncompressed: 0, largest: -1, consecutive: true };
    walk.all(batches, &head)?;

    let same = source_codec == target_codec && head.magic() == Magic::V2;
    // Control records are not compressed unless they were written so.
    let in_place = same || (source_codec == Codec::None && head.is_control());
    if in_place && walk.consecutive {
        let assigned = stamp(batches, head, first, (walk.count, walk.largest), rules)?;
        return Ok(Assigned { temporary_bytes: walk.uncompressed, ..assigned });
    }
    if same && source_codec != Codec::None {
        return Err(ValidationError::batch(BatchFault::OffsetDeltas));
    }
    let level = rules.target_codec.and_then(|codec| rules.levels.of(codec));
    let mut rebuilt = Rebuilt::new(&head, first, (target_codec, level), rules);
    for batch in Batches::new(batches) {
        batch?.stream_records(rules.decompressed_limit)?.try_for_each(|record| rebuilt.append(record))?;
    }
    let assigned = rebuilt.replace(batches, rules)?;
    Ok(Assigned { temporary_bytes: walk.uncompressed + assigned.temporary_bytes, ..assigned })
}

/// Path B: each record is looked at, and taken over at once, so that the first fault is the first in the order of the records,
/// whether it is one of the rules or one of the new batch's.
fn convert(
    batches: &mut BytesMut,
    head: &BatchHeader,
    first: Offset,
    rules: &LeaderRules,
) -> Result<Assigned, ValidationError> {
    let mut rebuilt = Rebuilt::new(head, first, (Codec::None, None), rules);
    for batch in Batches::new(batches) {
        let batch = batch?;
        check_batch(head, batch.header(), rules.origin)?;
        let checks = rules.record_checks(batch.header());
        // A message is a batch of one record.
        batch.stream_records(rules.decompressed_limit)?.try_for_each(|record| {
            match checks.fault(record.key.is_some(), record.timestamp) {
                Some(kind) => {
                    Err(ValidationError::Records { faults: vec![RecordFault { batch_index: 0, kind }] })
                }
                None => rebuilt.append(record),
            }
        })?;
    }
    rebuilt.replace(batches, rules)
}

/// The first batch, which must be the only one unless all are uncompressed and of magic 0 or 1.
#[inline]
fn only_batch(bytes: &[u8], source_codec: Codec) -> Result<Batch<'_>, ValidationError> {
    match Batch::whole_v2(bytes, i32::MAX) {
        Some(batch) if batch.size() == bytes.len() => Ok(batch),
        _ => first_batch(bytes, source_codec),
    }
}

#[inline(never)]
fn first_batch(bytes: &[u8], source_codec: Codec) -> Result<Batch<'_>, ValidationError> {
    let mut batches = Batches::new(bytes);
    let Some(batch) = batches.next().transpose()? else {
        return Err(ValidationError::batch(BatchFault::Missing));
    };
    if (batch.magic() == Magic::V2 || source_codec != Codec::None) && batches.next().transpose()?.is_some() {
        return Err(ValidationError::batch(BatchFault::Second));
    }
    Ok(batch)
}

/// Path A: every record is looked at. How many there are, and the largest timestamp, -1 for none.
#[inline]
fn look_at_uncompressed(batch: Batch<'_>, rules: &LeaderRules) -> Result<(u64, i64), ValidationError> {
    let head = batch.header();
    check_batch(head, head, rules.origin)?;
    match survey(&batch) {
        Some(all) if rules.record_checks(head).admit(&all) => Ok((all.count, all.newest.max(-1))),
        _ => look_at_each(batch, rules),
    }
}

/// The same, record by record: for those that have a fault, or may have one.
#[cold]
fn look_at_each(batch: Batch<'_>, rules: &LeaderRules) -> Result<(u64, i64), ValidationError> {
    let checks = rules.record_checks(batch.header());
    let mut records = V2Records::uncompressed(&batch)?;
    let mut faults = Faults::default();
    let mut largest = -1;
    let mut count = 0u64;
    while let Some(record) = records.next_raw() {
        let record = record?;
        let timestamp = records.timestamp(record.timestamp_delta);
        if let Some(fault) = checks.fault(record.key.is_some(), timestamp) {
            faults.add(count, fault);
        }
        largest = largest.max(timestamp);
        count += 1;
    }
    faults.into_result()?;
    Ok((count, largest))
}

/// Changes the header of the one batch in place, `head` as it is now.
#[inline]
fn stamp(
    bytes: &mut BytesMut,
    head: BatchHeader,
    first: Offset,
    (count, largest): (u64, i64),
    rules: &LeaderRules,
) -> Result<Assigned, ValidationError> {
    let next_offset = after(first, count);
    let max_timestamp = match rules.timestamp_type {
        TimestampType::LogAppendTime => Some(rules.now),
        TimestampType::CreateTime => Timestamp::from_raw(largest),
    };
    let mut batch = BatchMut::of(bytes, head);
    batch.set_last_offset(Offset::new(next_offset.get().wrapping_sub(1)));
    batch.set_leader_epoch(Some(rules.leader_epoch))?;
    batch.set_max_timestamp(rules.timestamp_type, max_timestamp)?;
    Ok(Assigned {
        next_offset,
        max_timestamp,
        log_append_time: rules.log_append_time(),
        sizes_may_have_changed: false,
        record_count: count,
        converted_records: 0,
        temporary_bytes: 0,
    })
}

fn after(first: Offset, count: u64) -> Offset {
    Offset::new(first.get().wrapping_add(count as i64))
}

/// The first pass of paths B and C: every record decoded and checked, nothing kept of it.
struct Walk<'r> {
    rules: &'r LeaderRules,
    count: u64,
    /// Bytes of the records, and 61 for each batch.
    uncompressed: u64,
    largest: i64,
    /// Whether the records have the offsets 0, 1, 2 and so on.
    consecutive: bool,
}

impl Walk<'_> {
    fn all(&mut self, bytes: &[u8], head: &BatchHeader) -> Result<(), ValidationError> {
        for batch in Batches::new(bytes) {
            let batch = batch?;
            check_batch(head, batch.header(), self.rules.origin)?;
            self.uncompressed += BATCH_OVERHEAD as u64;
            let mut faults = Faults::default();
            if batch.magic().is_legacy() && batch.attributes().is_compressed() {
                self.wrapper(&batch, &mut faults)?;
            } else {
                self.records(&batch, &mut faults)?;
            }
            faults.into_result()?;
        }
        Ok(())
    }

    fn records(&mut self, batch: &Batch<'_>, faults: &mut Faults) -> Result<(), ValidationError> {
        let checks = self.rules.record_checks(batch.header());
        let mut index = 0;
        batch.stream_records(self.rules.decompressed_limit)?.try_for_each(|record| {
            self.uncompressed += u64::from(record.size);
            if let Some(fault) = checks.fault(record.key.is_some(), record.timestamp) {
                faults.add(index, fault);
            } else {
                self.largest = self.largest.max(record.timestamp);
                self.consecutive &= record.offset as u64 == self.count;
            }
            self.count += 1;
            index += 1;
            Ok(())
        })
    }

    /// A wrapper is always built anew, so of its messages only what is wrong with them counts.
    fn wrapper(&mut self, batch: &Batch<'_>, faults: &mut Faults) -> Result<(), ValidationError> {
        let checks = self.rules.record_checks(batch.header());
        let mut messages = WrapperStream::open(batch, self.rules.decompressed_limit)?;
        let mut index = 0;
        while let Some(next) = messages.next(Ok) {
            let Inner { timestamp, message, .. } = next?;
            self.uncompressed += message.size() as u64;
            let (stored, computed) = message.checksums();
            if message.magic() != batch.magic().get() {
                let (expected, found) = (batch.magic(), message.magic());
                faults.add(index, RecordFaultKind::Magic { expected, found });
            } else if stored != computed {
                return Err(ValidationError::InnerChecksum { batch_index: index, stored, computed });
            } else if let Some(fault) = checks.fault(message.key()?.is_some(), timestamp) {
                faults.add(index, fault);
            }
            index += 1;
        }
        Ok(())
    }
}

/// One new batch of magic 2: path B, and C where the batch cannot stay as it is.
///
/// The fields of the producer and the transactional flag are those of the first batch; the control flag and a delete
/// horizon are not carried over.
struct Rebuilt {
    builder: RecordBatchBuilder,
    first: Offset,
    count: u64,
}

impl Rebuilt {
    fn new(
        head: &BatchHeader,
        first: Offset,
        (codec, level): (Codec, Option<i32>),
        rules: &LeaderRules,
    ) -> Rebuilt {
        let builder = RecordBatchBuilder::new(BatchOptions {
            codec,
            level,
            timestamp_type: rules.timestamp_type,
            log_append_time: rules.log_append_time(),
            base_offset: first,
            leader_epoch: Some(rules.leader_epoch),
            producer: Some(Producer {
                id: head.producer_id().unwrap_or(ProducerId::new(-1)),
                epoch: head.producer_epoch().unwrap_or(ProducerEpoch::new(-1)),
                base_sequence: head.base_sequence(),
            }),
            transactional: head.is_transactional(),
            ..BatchOptions::default()
        });
        Rebuilt { builder, first, count: 0 }
    }

    /// Takes a record over, at the next offset.
    fn append(&mut self, record: &Record<'_>) -> Result<(), ValidationError> {
        self.builder.append_record(after(self.first, self.count), record)?;
        self.count += 1;
        Ok(())
    }

    /// Puts the batch in the place of those that it was made of; nothing, where they had no records.
    fn replace(mut self, batches: &mut BytesMut, rules: &LeaderRules) -> Result<Assigned, ValidationError> {
        let Rebuilt { first, count, .. } = self;
        let max_timestamp = if count == 0 { None } else { self.builder.max_timestamp() };
        let temporary_bytes = self.builder.uncompressed_size() as u64;
        let mut out = BytesMut::new();
        self.builder.finish(&mut out)?;
        *batches = out;
        Ok(Assigned {
            next_offset: after(first, count),
            max_timestamp,
            log_append_time: rules.log_append_time(),
            sizes_may_have_changed: true,
            record_count: count,
            converted_records: count,
            temporary_bytes,
        })
    }
}
