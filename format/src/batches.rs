//! Walking a buffer from batch to batch.

use std::hint::black_box;
use std::iter::FusedIterator;

use crate::batch::Batch;
use crate::batch::header::{LENGTH, LOG_OVERHEAD, i32_at};
use crate::error::{DecodeError, Expected, Found, Place};
use crate::framing::first_batch_size;

/// Walks a buffer in memory from batch to batch.
///
/// The walk ends without an error in front of a batch that is not all there, be it one byte of it. It ends with an
/// error at a size field below 14 (also where no more than 12 bytes are there), at one above the limit or so large
/// that a batch's size would not fit 32 bits, at a magic outside 0 to 2, and at a batch of magic 2 shorter than its
/// header. Checksums are not looked at.
///
/// ```
/// use bytes::BytesMut;
/// use kseg_format::{BatchOptions, Batches, RecordBatchBuilder};
///
/// let mut builder = RecordBatchBuilder::new(BatchOptions::default());
/// let mut bytes = BytesMut::new();
/// for value in [b"one", b"two"] {
///     builder.append(None, None, Some(value), &[])?;
///     builder.finish(&mut bytes)?;
/// }
/// // The second batch lacks its last byte.
/// let mut batches = Batches::new(&bytes[..bytes.len() - 1]);
/// let first = batches.next().unwrap()?.verify()?;
/// assert!(batches.next().is_none());
/// assert_eq!((batches.position(), batches.rest().len()), (first.size(), first.size() - 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: Kafka `ByteBufferLogInputStream`.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    /// The bytes from the next batch on.
    rest: &'a [u8],
    /// How many bytes there are in all.
    len: usize,
    limit: i32,
    ended: bool,
    /// The size of the last usual batch.
    size: usize,
    /// The same number, of which the compiler does not know that it is the same.
    same_size: usize,
}

impl<'a> Batches<'a> {
    /// Walks `bytes` from its beginning.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Batches<'a> {
        Batches::with_limit(bytes, i32::MAX)
    }

    /// The same, with an error at the first size field above `limit`.
    #[inline]
    pub fn with_limit(bytes: &'a [u8], limit: i32) -> Batches<'a> {
        Batches { rest: bytes, len: bytes.len(), limit, ended: false, size: 0, same_size: 0 }
    }

    /// Where the next batch begins; after an error, the batch that has it.
    #[inline]
    pub fn position(&self) -> usize {
        self.len - self.rest.len()
    }

    /// The bytes from the next batch on.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next batch if it is whole and of magic 2. `None` says nothing.
    ///
    /// To know where the next batch begins the processor has to wait until this one's size is loaded, 5 to 15 cycles in a
    /// cache and hundreds beyond. Where batches are all of a size, as a producer that fills them makes them, it need not:
    /// their size is known from the batch before, and that it is the same is a branch, which is guessed and looked at
    /// later. For this the size that is added must not come from the batch itself, so the compiler is kept from
    /// seeing that the two are equal.
    #[inline(always)]
    fn usual(&mut self) -> Option<Batch<'a>> {
        let batch = Batch::whole_v2(self.rest, self.limit)?;
        let size = batch.as_bytes().len();
        if size != self.size {
            self.size = size;
            self.same_size = black_box(size);
        }
        self.rest = self.rest.get(self.same_size..)?;
        Some(batch)
    }
}

/// The first batch in `rest`, whatever it is. Returns another type than the iterator, and takes nothing by reference, so that
/// the caller's batch and the iterator stay in registers.
#[inline(never)]
fn any(rest: &[u8], limit: i32) -> Result<Option<Batch<'_>>, DecodeError> {
    if let Some(size) = rest.get(LENGTH..LOG_OVERHEAD) {
        let size = i64::from(i32_at(size, 0));
        if size > i64::from(limit) {
            return Err(DecodeError::corrupt(
                "batch length",
                Place::Batch(LENGTH),
                Expected::AtMost(i64::from(limit)),
                Found::Value(size),
            ));
        }
    }
    let Some(size) = first_batch_size(rest)? else { return Ok(None) };
    if size > i32::MAX as u64 {
        return Err(DecodeError::illegal(
            "batch length",
            Place::Batch(LENGTH),
            Expected::AtMost(i64::from(i32::MAX) - LOG_OVERHEAD as i64),
            Found::Value(size as i64 - LOG_OVERHEAD as i64),
        ));
    }
    if size > rest.len() as u64 {
        return Ok(None);
    }
    Batch::parse(rest).map(Some)
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, DecodeError>;

    // What the caller does not look at is not loaded, if it is inlined.
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if let Some(batch) = self.usual() {
            return Some(Ok(batch));
        }
        if self.rest.is_empty() {
            self.ended = true;
            return None;
        }
        let item = any(self.rest, self.limit).transpose();
        match &item {
            Some(Ok(batch)) => self.rest = &self.rest[batch.size()..],
            _ => self.ended = true,
        }
        item
    }
}

impl FusedIterator for Batches<'_> {}
