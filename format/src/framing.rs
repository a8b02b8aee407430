//! Where a batch ends and the next begins, in a region of a file.
//!
//! A file may end in the middle of a batch, and a preallocated one in zeros: the first is an outcome, the second an
//! error, for a size field of 0 is none. Regions in memory follow slightly different rules: see
//! [`Batches`](crate::Batches).

use crate::batch::header::{
    HEADER_UP_TO_MAGIC, LENGTH, LOG_OVERHEAD, MAGIC, checked_size, i32_at, short, size_field, wrong_magic,
};
use crate::codec::Magic;
use crate::error::DecodeError;

/// What stands at a place of a file region.
#[allow(clippy::exhaustive_enums, reason = "whole, torn and nothing is all there can be")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framed {
    /// A whole batch by its size; nothing else of it has been looked at.
    Whole {
        /// Bytes of the batch.
        size: usize,
        /// Its version.
        magic: Magic,
    },
    /// Fewer bytes than the batch needs.
    Torn {
        /// The bytes that the batch would have; `None` where not even its size is there.
        needed: Option<u64>,
    },
    /// Nothing: the region ends here.
    End,
}

/// Says what stands at a place of a file region.
///
/// `prefix` are the bytes at that place, at least 17 or all there are; `remaining` counts the bytes from there to the
/// end of the region. Fewer than 18 are [`Framed::Torn`] whatever they hold, as in Kafka.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a size field below 14 and, where the batch is whole, for a magic outside 0 to 2 (which
/// Kafka reads as one of them here).
///
/// ```
/// use bytes::BytesMut;
/// use kseg_format::{BatchOptions, Framed, Magic, RecordBatchBuilder, frame};
///
/// let mut builder = RecordBatchBuilder::new(BatchOptions::default());
/// builder.append(None, None, Some(b"value"), &[])?;
/// let mut file = BytesMut::new();
/// let size = builder.finish(&mut file)?.unwrap();
/// // The first bytes tell, and how far the file goes.
/// assert_eq!(frame(&file[..17], size as u64)?, Framed::Whole { size, magic: Magic::V2 });
/// assert_eq!(frame(&file[..17], 40)?, Framed::Torn { needed: Some(size as u64) });
/// assert_eq!(frame(&[], 0)?, Framed::End);
/// assert!(frame(&[0; 17], 4096).is_err(), "zeroes are no batch");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: Kafka `FileLogInputStream.nextBatch`.
#[inline]
pub fn frame(prefix: &[u8], remaining: u64) -> Result<Framed, DecodeError> {
    if remaining <= HEADER_UP_TO_MAGIC as u64 {
        return Ok(if remaining == 0 { Framed::End } else { Framed::Torn { needed: None } });
    }
    let Some(start) = prefix.first_chunk::<HEADER_UP_TO_MAGIC>() else {
        return Err(short("batch prefix", HEADER_UP_TO_MAGIC, prefix.len()));
    };
    let size = LOG_OVERHEAD as u64 + u64::from(size_field(start)?);
    if size > remaining {
        return Ok(Framed::Torn { needed: Some(size) });
    }
    match (Magic::from_byte(start[MAGIC]), usize::try_from(size)) {
        (Some(magic), Ok(size)) => Ok(Framed::Whole { size, magic }),
        (None, _) => Err(wrong_magic(start[MAGIC])),
        (_, Err(_)) => Ok(Framed::Torn { needed: Some(size) }),
    }
}

/// The size of the first batch in `bytes`, whether it is whole or not; `None` where there are fewer than 17 bytes.
///
/// # Errors
/// [`DecodeError::Corrupt`] for a size field below 14, also with 12 to 16 bytes, and for a magic outside 0 to 2.
///
/// Source: Kafka `MemoryRecords.firstBatchSize`.
pub fn first_batch_size(bytes: &[u8]) -> Result<Option<u64>, DecodeError> {
    if bytes.len() < LOG_OVERHEAD {
        return Ok(None);
    }
    let size = LOG_OVERHEAD as u64 + u64::from(checked_size(i32_at(bytes, LENGTH))?);
    match bytes.get(MAGIC) {
        None => Ok(None),
        Some(magic) if Magic::from_byte(*magic).is_some() => Ok(Some(size)),
        Some(magic) => Err(wrong_magic(*magic)),
    }
}
