//! The fixed fields of a batch of any magic.
//!
//! ```text
//! magic 2:  0 base offset i64        8 length i32           12 leader epoch i32   16 magic i8
//!          17 crc u32               21 attributes i16       23 last offset delta i32
//!          27 base timestamp i64    35 max timestamp i64    43 producer id i64    51 producer epoch i16
//!          53 base sequence i32     57 records count i32    61 records
//! magic 0:  0 offset i64             8 size i32             12 crc u32            16 magic i8
//!          17 attributes i8         18 key and value
//! magic 1: the same to 17            18 timestamp i64       26 key and value
//! ```
//!
//! The length counts what stands behind it, so a batch takes 12 bytes more.
//!
//! Source: Kafka `DefaultRecordBatch`, `LegacyRecord`, `Records`.

use super::Attributes;
use crate::codec::{Codec, Magic, TimestampType};
use crate::error::{DecodeError, Expected, Found, Place};
use crate::number::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// Bytes of a batch that its length field does not count: the offset and the length itself.
pub const LOG_OVERHEAD: usize = 12;
/// Bytes up to and including the magic byte, which are the same in all versions.
pub const HEADER_UP_TO_MAGIC: usize = MAGIC + 1;
/// Bytes of a batch of magic 2 in front of its records.
pub const BATCH_OVERHEAD: usize = RECORDS;
/// The smallest length field of a batch: an empty message of magic 0.
pub const MIN_SIZE_FIELD: usize = 14;

pub(crate) const BASE_OFFSET: usize = 0;
pub(crate) const LENGTH: usize = BASE_OFFSET + 8;
pub(crate) const EPOCH: usize = LENGTH + 4;
pub(crate) const MAGIC: usize = EPOCH + 4;
pub(crate) const CRC: usize = MAGIC + 1;
pub(crate) const ATTRIBUTES: usize = CRC + 4;
pub(crate) const LAST_OFFSET_DELTA: usize = ATTRIBUTES + 2;
pub(crate) const BASE_TIMESTAMP: usize = LAST_OFFSET_DELTA + 4;
pub(crate) const MAX_TIMESTAMP: usize = BASE_TIMESTAMP + 8;
pub(crate) const PRODUCER_ID: usize = MAX_TIMESTAMP + 8;
pub(crate) const PRODUCER_EPOCH: usize = PRODUCER_ID + 8;
pub(crate) const BASE_SEQUENCE: usize = PRODUCER_EPOCH + 2;
pub(crate) const RECORDS_COUNT: usize = BASE_SEQUENCE + 4;
pub(crate) const RECORDS: usize = RECORDS_COUNT + 4;

pub(crate) const LEGACY_CRC: usize = LENGTH + 4;
pub(crate) const LEGACY_ATTRIBUTES: usize = MAGIC + 1;
pub(crate) const LEGACY_TIMESTAMP: usize = LEGACY_ATTRIBUTES + 1;

/// The smallest whole batch: 12 bytes and an empty message of magic 0.
const SMALLEST: usize = LOG_OVERHEAD + MIN_SIZE_FIELD;

const _: () = assert!(RECORDS == 61 && HEADER_UP_TO_MAGIC == 17 && ATTRIBUTES == 21);
const _: () = assert!(LEGACY_CRC == 12 && LEGACY_TIMESTAMP == 18);
const _: () = assert!(LEGACY_TIMESTAMP + 8 == SMALLEST);

/// The fixed fields of a batch of any magic: what a walk over a file needs.
///
/// The fields are as they stand there. A right checksum is no part of it: see [`Batch::verify`](crate::Batch::verify).
/// A message of magic 0 or 1 is a batch too; what it does not have is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    pub(super) magic: Magic,
    size: u32,
    pub(super) base_offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) crc: u32,
    pub(super) attributes: Attributes,
    last_offset_delta: i32,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    records_count: i32,
}

impl BatchHeader {
    /// The most bytes that [`read`](BatchHeader::read) looks at.
    pub const MAX_LEN: usize = BATCH_OVERHEAD;

    /// Reads the header at the beginning of `bytes`, which holds at least `MAX_LEN` bytes or the whole batch where
    /// that is less; more is fine.
    ///
    /// # Errors
    /// [`DecodeError::Corrupt`] where there are fewer bytes, where the size field is below 14 (magic 2: below 49), or
    /// where the magic is not 0, 1 or 2.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<BatchHeader, DecodeError> {
        match bytes.first_chunk::<RECORDS>() {
            Some(header) if header[MAGIC] == 2 => BatchHeader::read_v2(header),
            _ => BatchHeader::read_other(bytes),
        }
    }

    #[inline]
    fn read_v2(bytes: &[u8; RECORDS]) -> Result<BatchHeader, DecodeError> {
        let size = i32_at(bytes, LENGTH);
        if size < (RECORDS - LOG_OVERHEAD) as i32 {
            return Err(small(size, RECORDS - LOG_OVERHEAD));
        }
        Ok(BatchHeader::of_v2(bytes, size))
    }

    /// The header if it is of magic 2 and its size field from 49 to `limit`, and not so large that the batch's size would
    /// not fit 32 bits.
    #[inline(always)]
    pub(super) fn usual(bytes: &[u8; RECORDS], limit: i32) -> Option<BatchHeader> {
        let size = i32_at(bytes, LENGTH);
        let largest = limit.min(i32::MAX - LOG_OVERHEAD as i32);
        if bytes[MAGIC] != 2 || size < (RECORDS - LOG_OVERHEAD) as i32 || size > largest {
            return None;
        }
        Some(BatchHeader::of_v2(bytes, size))
    }

    /// The fields of a header whose magic and size field have been looked at.
    #[inline(always)]
    fn of_v2(bytes: &[u8; RECORDS], size: i32) -> BatchHeader {
        BatchHeader {
            magic: Magic::V2,
            size: LOG_OVERHEAD as u32 + size as u32,
            base_offset: i64_at(bytes, BASE_OFFSET),
            leader_epoch: i32_at(bytes, EPOCH),
            crc: i32_at(bytes, CRC) as u32,
            attributes: Attributes::new(i16_at(bytes, ATTRIBUTES)),
            last_offset_delta: i32_at(bytes, LAST_OFFSET_DELTA),
            base_timestamp: i64_at(bytes, BASE_TIMESTAMP),
            max_timestamp: i64_at(bytes, MAX_TIMESTAMP),
            producer_id: i64_at(bytes, PRODUCER_ID),
            producer_epoch: i16_at(bytes, PRODUCER_EPOCH),
            base_sequence: i32_at(bytes, BASE_SEQUENCE),
            records_count: i32_at(bytes, RECORDS_COUNT),
        }
    }

    #[cold]
    fn read_other(bytes: &[u8]) -> Result<BatchHeader, DecodeError> {
        let Some(start) = bytes.first_chunk::<HEADER_UP_TO_MAGIC>() else {
            return Err(short("header", HEADER_UP_TO_MAGIC, bytes.len()));
        };
        let size = i32_at(start, LENGTH);
        if size < MIN_SIZE_FIELD as i32 {
            return Err(small(size, MIN_SIZE_FIELD));
        }
        let Some(magic) = Magic::from_byte(start[MAGIC]) else { return Err(wrong_magic(start[MAGIC])) };
        if magic == Magic::V2 {
            return Err(if size < (RECORDS - LOG_OVERHEAD) as i32 {
                small(size, RECORDS - LOG_OVERHEAD)
            } else {
                short("header", RECORDS, bytes.len())
            });
        }
        let Some(message) = bytes.first_chunk::<SMALLEST>() else {
            return Err(short("header", SMALLEST, bytes.len()));
        };
        let timestamp = if magic == Magic::V1 { i64_at(message, LEGACY_TIMESTAMP) } else { -1 };
        Ok(BatchHeader {
            magic,
            size: LOG_OVERHEAD as u32 + size as u32,
            base_offset: i64_at(message, BASE_OFFSET),
            leader_epoch: -1,
            crc: i32_at(message, LEGACY_CRC) as u32,
            attributes: Attributes::new(i16::from(message[LEGACY_ATTRIBUTES])),
            last_offset_delta: 0,
            base_timestamp: timestamp,
            max_timestamp: timestamp,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: -1,
        })
    }

    /// The version of the layout.
    #[inline]
    pub fn magic(&self) -> Magic {
        self.magic
    }

    /// The bytes of the whole batch, header included.
    #[inline]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// The offset of the first record as the batch was written. `None` for a compressed legacy wrapper, which says
    /// only where it ends: see [`Batch::base_offset_deep`](crate::Batch::base_offset_deep).
    #[inline]
    pub fn base_offset(&self) -> Option<Offset> {
        // A branch that is not taken, so that a walk over batches of magic 2 does not look at their attributes.
        if self.magic.is_legacy() {
            return legacy_base_offset(self.attributes, self.base_offset);
        }
        Some(Offset::new(self.base_offset))
    }

    /// The offset of the last record as the batch was written.
    #[inline]
    pub fn last_offset(&self) -> Offset {
        Offset::new(self.base_offset.wrapping_add(i64::from(self.last_offset_delta)))
    }

    /// The offset that follows the batch.
    #[inline]
    pub fn next_offset(&self) -> Offset {
        self.last_offset().next()
    }

    /// The last offset minus the base offset; 0 for legacy.
    #[inline]
    pub fn last_offset_delta(&self) -> i32 {
        self.last_offset_delta
    }

    /// The largest timestamp of the records, or the append time. Of magic 1 the message's own.
    #[inline]
    pub fn max_timestamp(&self) -> Option<Timestamp> {
        Timestamp::from_raw(self.max_timestamp)
    }

    /// What the timestamps of the records count from: the first record's timestamp, or the delete horizon. Of magic 1
    /// the message's own.
    #[inline]
    pub fn base_timestamp(&self) -> Option<Timestamp> {
        Timestamp::from_raw(self.base_timestamp)
    }

    /// What the timestamps mean; `None` for magic 0, which has none.
    #[inline]
    pub fn timestamp_type(&self) -> Option<TimestampType> {
        match self.magic {
            Magic::V0 => None,
            _ => Some(self.attributes.timestamp_type()),
        }
    }

    /// The leader epoch that the batch was appended in.
    #[inline]
    pub fn leader_epoch(&self) -> Option<LeaderEpoch> {
        LeaderEpoch::from_raw(self.leader_epoch)
    }

    /// How the records are compressed.
    ///
    /// # Errors
    /// [`DecodeError::UnknownCodec`] for the numbers 5 to 7.
    #[inline]
    pub fn codec(&self) -> Result<Codec, DecodeError> {
        self.attributes.codec(Place::Batch(if self.magic.is_legacy() {
            LEGACY_ATTRIBUTES
        } else {
            ATTRIBUTES
        }))
    }

    /// The attributes as they stand there.
    #[inline]
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Whether the batch belongs to a transaction.
    #[inline]
    pub fn is_transactional(&self) -> bool {
        !self.magic.is_legacy() && self.attributes.is_transactional()
    }

    /// Whether the batch holds control records, which no consumer sees.
    #[inline]
    pub fn is_control(&self) -> bool {
        !self.magic.is_legacy() && self.attributes.is_control()
    }

    /// The time after which tombstones and markers in the batch may be dropped, where compaction has set one.
    #[inline]
    pub fn delete_horizon(&self) -> Option<Timestamp> {
        if !self.magic.is_legacy() && self.attributes.has_delete_horizon() {
            Some(Timestamp::new(self.base_timestamp))
        } else {
            None
        }
    }

    /// The producer's id.
    #[inline]
    pub fn producer_id(&self) -> Option<ProducerId> {
        ProducerId::from_raw(self.producer_id)
    }

    /// The producer's epoch.
    #[inline]
    pub fn producer_epoch(&self) -> Option<ProducerEpoch> {
        ProducerEpoch::from_raw(self.producer_epoch)
    }

    /// The sequence number of the first record as the batch was written.
    #[inline]
    pub fn base_sequence(&self) -> Option<Sequence> {
        Sequence::from_raw(self.base_sequence)
    }

    /// The sequence number of the last record as the batch was written.
    #[inline]
    pub fn last_sequence(&self) -> Option<Sequence> {
        match self.base_sequence {
            -1 => None,
            base => Sequence::from_raw(Sequence::new(base).increment(self.last_offset_delta).get()),
        }
    }

    /// How many records the header says are present, whatever that says; `None` for legacy.
    #[inline]
    pub fn records_count(&self) -> Option<i32> {
        if self.magic.is_legacy() { None } else { Some(self.records_count) }
    }

    /// The checksum in the header.
    #[inline]
    pub fn crc(&self) -> u32 {
        self.crc
    }

    #[inline]
    pub(crate) fn raw_base_offset(&self) -> i64 {
        self.base_offset
    }

    #[inline]
    pub(crate) fn raw_base_timestamp(&self) -> i64 {
        self.base_timestamp
    }

    #[inline]
    pub(crate) fn raw_max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    #[inline]
    pub(crate) fn raw_base_sequence(&self) -> i32 {
        self.base_sequence
    }

    #[inline]
    pub(crate) fn raw_records_count(&self) -> i32 {
        self.records_count
    }
}

#[cold]
#[inline(never)]
fn legacy_base_offset(attributes: Attributes, raw: i64) -> Option<Offset> {
    if attributes.is_compressed() { None } else { Some(Offset::new(raw)) }
}

#[cold]
fn small(size: i32, least: usize) -> DecodeError {
    DecodeError::corrupt(
        "batch length",
        Place::Batch(LENGTH),
        Expected::AtLeast(least as i64),
        Found::Value(i64::from(size)),
    )
}

#[cold]
pub(crate) fn wrong_magic(found: u8) -> DecodeError {
    DecodeError::corrupt(
        "magic",
        Place::Batch(MAGIC),
        Expected::Between(0, 2),
        Found::Value(i64::from(found as i8)),
    )
}

#[cold]
pub(crate) fn short(field: &'static str, needed: usize, found: usize) -> DecodeError {
    DecodeError::corrupt(field, Place::Batch(0), Expected::Bytes(needed as u64), Found::Bytes(found as u64))
}

/// The size field at byte 8, checked to be at least 14.
#[inline]
pub(crate) fn size_field(bytes: &[u8; HEADER_UP_TO_MAGIC]) -> Result<u32, DecodeError> {
    checked_size(i32_at(bytes, LENGTH))
}

#[inline]
pub(crate) fn checked_size(size: i32) -> Result<u32, DecodeError> {
    if size < MIN_SIZE_FIELD as i32 { Err(small(size, MIN_SIZE_FIELD)) } else { Ok(size as u32) }
}

#[inline(always)]
pub(crate) fn i16_at(bytes: &[u8], at: usize) -> i16 {
    let mut raw = [0; 2];
    raw.copy_from_slice(&bytes[at..at + 2]);
    i16::from_be_bytes(raw)
}

#[inline(always)]
pub(crate) fn i32_at(bytes: &[u8], at: usize) -> i32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    i32::from_be_bytes(raw)
}

#[inline(always)]
pub(crate) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(raw)
}

#[inline(always)]
pub(crate) fn put_at<const N: usize>(bytes: &mut [u8], at: usize, raw: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&raw);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_header_fits_the_limit_and_its_batch_32_bits() {
        let mut bytes = [0; RECORDS];
        bytes[MAGIC] = 2;
        let most = i32::MAX - LOG_OVERHEAD as i32;
        for (size, limit, taken) in [
            (49, 49, true),
            (49, i32::MAX, true),
            (48, i32::MAX, false),
            (-1, i32::MAX, false),
            (50, 49, false),
            (most, i32::MAX, true),
            (most + 1, i32::MAX, false),
        ] {
            put_at(&mut bytes, LENGTH, i32::to_be_bytes(size));
            let header = BatchHeader::usual(&bytes, limit);
            let expected = if taken { BatchHeader::read(&bytes).ok() } else { None };
            assert_eq!(header, expected, "{size} {limit}");
            assert_eq!(header.is_some(), taken, "{size} {limit}");
        }
    }
}
