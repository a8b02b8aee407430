//! Changing a batch in place.

use super::header::{
    ATTRIBUTES, BASE_OFFSET, BatchHeader, CRC, EPOCH, LEGACY_ATTRIBUTES, LEGACY_CRC, LEGACY_TIMESTAMP,
    MAX_TIMESTAMP, put_at,
};
use super::{Attributes, Batch};
use crate::codec::{Magic, TimestampType};
use crate::crc;
use crate::error::{DecodeError, EncodeError};
use crate::number::{LeaderEpoch, Offset, Timestamp};

/// A whole batch whose header may be changed in place.
///
/// Offsets and leader epoch are not covered by the checksum, so setting them costs a few stores. Setting the
/// timestamp computes the checksum anew; whoever does so to a batch whose checksum was wrong makes it right.
///
/// ```
/// use bytes::BytesMut;
/// use kseg_format::{Batch, BatchMut, BatchOptions, LeaderEpoch, Offset, RecordBatchBuilder};
///
/// let mut builder = RecordBatchBuilder::new(BatchOptions::default());
/// builder.append(None, None, Some(b"one"), &[])?;
/// builder.append(None, None, Some(b"two"), &[])?;
/// let mut bytes = BytesMut::new();
/// builder.finish(&mut bytes)?;
///
/// let mut batch = BatchMut::parse(&mut bytes)?;
/// batch.set_last_offset(Offset::new(41));
/// batch.set_leader_epoch(Some(LeaderEpoch::new(3)))?;
/// assert_eq!(Batch::parse(&bytes)?.verify()?.base_offset(), Some(Offset::new(40)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BatchMut<'a> {
    header: BatchHeader,
    bytes: &'a mut [u8],
}

impl<'a> BatchMut<'a> {
    /// The first batch in `bytes`, which must be whole; what follows it is left alone.
    ///
    /// # Errors
    /// Those of [`Batch::parse`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<BatchMut<'a>, DecodeError> {
        let header = *Batch::parse(bytes)?.header();
        Ok(BatchMut { header, bytes: &mut bytes[..header.size()] })
    }

    /// The batch at the beginning of `bytes`, of which `header` has just been read.
    #[inline]
    pub(crate) fn of(bytes: &'a mut [u8], header: BatchHeader) -> BatchMut<'a> {
        BatchMut { header, bytes: &mut bytes[..header.size()] }
    }

    /// The fixed fields as they are now.
    #[inline]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Moves the batch so that its first record has this offset.
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`] for a compressed legacy wrapper, which only knows its last offset.
    #[inline]
    pub fn set_base_offset(&mut self, offset: Offset) -> Result<(), EncodeError> {
        if self.header.base_offset().is_none() {
            return Err(EncodeError::Unsupported {
                magic: self.header.magic(),
                what: "base offset in a wrapper",
            });
        }
        self.put_base_offset(offset.get());
        Ok(())
    }

    /// Moves the batch so that its last record has this offset, as its last offset delta says.
    #[inline]
    pub fn set_last_offset(&mut self, offset: Offset) {
        self.put_base_offset(offset.get().wrapping_sub(i64::from(self.header.last_offset_delta())));
    }

    #[inline]
    fn put_base_offset(&mut self, raw: i64) {
        put_at(self.bytes, BASE_OFFSET, raw.to_be_bytes());
        self.header.base_offset = raw;
    }

    /// Stamps the leader epoch.
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`] for magic 0 and 1, which have none.
    #[inline]
    pub fn set_leader_epoch(&mut self, epoch: Option<LeaderEpoch>) -> Result<(), EncodeError> {
        if self.header.magic().is_legacy() {
            return Err(EncodeError::Unsupported { magic: self.header.magic(), what: "leader epoch" });
        }
        let raw = LeaderEpoch::to_raw(epoch);
        put_at(self.bytes, EPOCH, raw.to_be_bytes());
        self.header.leader_epoch = raw;
        Ok(())
    }

    /// Sets the meaning of the timestamps and the largest one (of magic 1 the message's own), and computes the
    /// checksum anew. Does nothing where both are as asked already. Bits of the attributes without a meaning become 0.
    ///
    /// # Errors
    /// [`EncodeError::Unsupported`] for magic 0, which has no timestamps; [`EncodeError::Damaged`] where the
    /// attributes name no codec.
    ///
    /// Source: Kafka `DefaultRecordBatch.setMaxTimestamp`, `AbstractLegacyRecordBatch.setMaxTimestamp`.
    #[inline]
    pub fn set_max_timestamp(
        &mut self,
        timestamp_type: TimestampType,
        timestamp: Option<Timestamp>,
    ) -> Result<(), EncodeError> {
        let raw = Timestamp::to_raw(timestamp);
        if self.header.timestamp_type() == Some(timestamp_type) && self.header.raw_max_timestamp() == raw {
            return Ok(());
        }
        self.header = put_max_timestamp(self.bytes, self.header, timestamp_type, raw)?;
        Ok(())
    }
}

/// Writes them and the checksum into the batch that `header` is of; returns its header as it is then. Takes nothing of a
/// [`BatchMut`] by reference, so that one whose timestamps stay as they are stays in registers.
#[inline(never)]
fn put_max_timestamp(
    bytes: &mut [u8],
    mut header: BatchHeader,
    timestamp_type: TimestampType,
    raw: i64,
) -> Result<BatchHeader, EncodeError> {
    let attributes = Attributes::of(
        header.codec()?,
        timestamp_type,
        header.is_transactional(),
        header.is_control(),
        header.delete_horizon().is_some(),
    );
    match header.magic {
        Magic::V0 => return Err(EncodeError::Unsupported { magic: Magic::V0, what: "timestamp" }),
        Magic::V1 => {
            bytes[LEGACY_ATTRIBUTES] = attributes.get() as u8;
            put_at(bytes, LEGACY_TIMESTAMP, raw.to_be_bytes());
            header.base_timestamp = raw;
            header.crc = crc::of_batch(Magic::V1, bytes);
            put_at(bytes, LEGACY_CRC, header.crc.to_be_bytes());
        }
        Magic::V2 => {
            put_at(bytes, ATTRIBUTES, attributes.get().to_be_bytes());
            put_at(bytes, MAX_TIMESTAMP, raw.to_be_bytes());
            header.crc = crc::of_batch(Magic::V2, bytes);
            put_at(bytes, CRC, header.crc.to_be_bytes());
        }
    }
    header.attributes = attributes;
    header.max_timestamp = raw;
    Ok(header)
}
