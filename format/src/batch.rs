//! A whole batch of any magic, borrowed from the bytes it stands in.

pub(crate) mod attributes;
pub(crate) mod builder;
pub(crate) mod header;
pub(crate) mod mutate;

use std::ops::Deref;

pub use attributes::Attributes;
use header::{BatchHeader, short};

use crate::codec::Magic;
use crate::crc;
use crate::error::DecodeError;
use crate::legacy::read as legacy;
use crate::number::Offset;
use crate::records::{Inner, RecordStream, Records, V2Records};

pub(crate) fn wrong_checksum(header: &BatchHeader, computed: u32) -> DecodeError {
    DecodeError::Checksum {
        magic: header.magic(),
        stored: header.crc(),
        computed,
        base_offset: Offset::new(header.raw_base_offset()),
        last_offset: header.last_offset(),
    }
}

/// A whole batch of any magic, borrowed. A message of magic 0 or 1 is a batch too.
///
/// It is framed right and, with magic 2, has its 61 bytes of header, which it derefs to; whether the checksum is
/// right has not been looked at: see [`verify`](Batch::verify).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The first batch in `bytes`, which must be whole; what follows it is left alone.
    ///
    /// # Errors
    /// Those of [`BatchHeader::read`], and [`DecodeError::Corrupt`] where bytes of the batch are missing.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Batch<'a>, DecodeError> {
        let header = BatchHeader::read(bytes)?;
        match bytes.get(..header.size()) {
            Some(bytes) => Ok(Batch { header, bytes }),
            None => Err(short("batch", header.size(), bytes.len())),
        }
    }

    /// The first batch in `bytes` if it is whole, of magic 2, and its size field at most `limit`. `None` says nothing.
    #[inline(always)]
    pub(crate) fn whole_v2(bytes: &'a [u8], limit: i32) -> Option<Batch<'a>> {
        let header = BatchHeader::usual(bytes.first_chunk()?, limit)?;
        Some(Batch { header, bytes: bytes.get(..header.size())? })
    }

    /// The fixed fields.
    #[inline]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The bytes of the batch, all of them and no others.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Compares the checksum: CRC-32C from the attributes on for magic 2, CRC-32 from the magic on before.
    ///
    /// Base offset and leader epoch (of legacy messages the offset) are not covered by it.
    ///
    /// # Errors
    /// [`DecodeError::Checksum`].
    #[inline]
    pub fn verify(self) -> Result<CheckedBatch<'a>, DecodeError> {
        let computed = crc::of_batch(self.header.magic(), self.bytes);
        if computed == self.header.crc() {
            Ok(CheckedBatch { batch: self })
        } else {
            Err(self.wrong_checksum(computed))
        }
    }

    #[cold]
    fn wrong_checksum(&self, computed: u32) -> DecodeError {
        wrong_checksum(&self.header, computed)
    }

    /// The base offset, for which a compressed legacy wrapper is decompressed into `scratch`, at most `limit` bytes.
    ///
    /// # Errors
    /// Of a wrapper: whatever is wrong with its payload as a whole, or with its first inner message.
    ///
    /// Source: Kafka `AbstractLegacyRecordBatch.baseOffset`.
    pub fn base_offset_deep(&self, scratch: &mut Vec<u8>, limit: usize) -> Result<Offset, DecodeError> {
        match self.header.base_offset() {
            Some(offset) => Ok(offset),
            None => legacy::Wrapped::open(self, scratch, limit)?.first_offset(),
        }
    }

    /// The records, in order.
    ///
    /// Uncompressed ones are borrowed from the batch and `scratch` is left alone. Compressed ones are decompressed
    /// whole into `scratch`, in place of what it held, at most `limit` bytes. Either way they are decoded one by one,
    /// so that those in front of a damaged one are handed out before its error. Where the header says that there are
    /// no records, the payload is not looked at.
    ///
    /// # Errors
    /// [`DecodeError::UnknownCodec`], [`DecodeError::CodecDisabled`], [`DecodeError::Codec`] and
    /// [`DecodeError::TooLarge`] for the payload as a whole; [`DecodeError::InvalidRecord`] for a negative count. For
    /// a legacy wrapper also whatever is wrong with it as a whole.
    ///
    /// Source: Kafka `DefaultRecordBatch.iterator`, `AbstractLegacyRecordBatch.iterator`.
    #[inline]
    pub fn records<'s>(&self, scratch: &'s mut Vec<u8>, limit: usize) -> Result<Records<'s>, DecodeError>
    where
        'a: 's,
    {
        let inner = match self.header.magic() {
            Magic::V2 => Inner::V2(V2Records::open(self, scratch, limit)?),
            _ if self.header.attributes().is_compressed() => {
                Inner::Wrapped(legacy::Wrapped::open(self, scratch, limit)?)
            }
            _ => Inner::Single(legacy::Single::open(self)),
        };
        Ok(Records::new(inner))
    }

    /// The records, in order, decompressed as they are asked for: at most `limit` bytes in all, of which only some are held
    /// at a time.
    ///
    /// # Errors
    /// As [`records`](Batch::records), as far as the beginning of the payload shows.
    pub fn stream_records(&self, limit: usize) -> Result<RecordStream<'a>, DecodeError> {
        RecordStream::open(self, limit)
    }
}

impl Deref for Batch<'_> {
    type Target = BatchHeader;

    #[inline]
    fn deref(&self) -> &BatchHeader {
        &self.header
    }
}

/// A batch whose checksum was right when [`Batch::verify`] looked at it. Its records may still be malformed.
///
/// It derefs to its header and hands out its records as a [`Batch`] does, but the checksum is not paid for twice:
///
/// ```compile_fail,E0599
/// fn verify_again(batch: kseg_format::CheckedBatch<'_>) -> bool {
///     batch.verify().is_ok()
/// }
/// ```
///
/// What takes a batch whatever its checksum takes this one as `Batch::from(checked)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckedBatch<'a> {
    batch: Batch<'a>,
}

impl<'a> CheckedBatch<'a> {
    /// The fixed fields.
    #[inline]
    pub fn header(&self) -> &BatchHeader {
        self.batch.header()
    }

    /// The bytes of the batch, all of them and no others.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.batch.as_bytes()
    }

    /// As [`Batch::base_offset_deep`].
    ///
    /// # Errors
    /// As there.
    pub fn base_offset_deep(&self, scratch: &mut Vec<u8>, limit: usize) -> Result<Offset, DecodeError> {
        self.batch.base_offset_deep(scratch, limit)
    }

    /// As [`Batch::records`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn records<'s>(&self, scratch: &'s mut Vec<u8>, limit: usize) -> Result<Records<'s>, DecodeError>
    where
        'a: 's,
    {
        self.batch.records(scratch, limit)
    }

    /// As [`Batch::stream_records`].
    ///
    /// # Errors
    /// As there.
    pub fn stream_records(&self, limit: usize) -> Result<RecordStream<'a>, DecodeError> {
        self.batch.stream_records(limit)
    }
}

impl Deref for CheckedBatch<'_> {
    type Target = BatchHeader;

    #[inline]
    fn deref(&self) -> &BatchHeader {
        self.batch.header()
    }
}

impl<'a> From<CheckedBatch<'a>> for Batch<'a> {
    /// The same batch, of which nothing is said any more.
    #[inline]
    fn from(checked: CheckedBatch<'a>) -> Batch<'a> {
        checked.batch
    }
}
