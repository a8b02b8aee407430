//! The records of a batch, decompressed as they are asked for.

use crate::batch::Batch;
use crate::codec::{Codec, Magic};
use crate::compression::Pieces;
use crate::error::DecodeError;
use crate::legacy::read as legacy;
use crate::record::Record;
use crate::varint::{self, VarintFault};

use super::{Inner, Records, V2Records, open_payload};

/// The records of a batch in order, of which no more is decompressed at a time than the codec gives at once: a block (those
/// that Kafka writes hold 32 KiB with snappy and 64 KiB with lz4), or 64 KiB, and as much more as one record needs. Ends after
/// the first error.
///
/// What [`Batch::records`] reads this reads, and refuses what that refuses, but later: records in front of a fault of the
/// codec are handed out. It is the slower of the two where the whole batch fits the caches.
///
/// The offsets in a legacy wrapper hang on its last message, so all of it is looked at before the first record: up to
/// 512 KiB of it are kept meanwhile, and one that is larger is decompressed a second time.
///
/// ```
/// use bytes::BytesMut;
/// use kseg_format::{Batch, BatchOptions, RecordBatchBuilder};
///
/// let mut builder = RecordBatchBuilder::new(BatchOptions::default());
/// builder.append(None, None, Some(b"one"), &[])?;
/// builder.append(None, None, Some(b"two"), &[])?;
/// let mut bytes = BytesMut::new();
/// builder.finish(&mut bytes)?;
///
/// let mut stream = Batch::parse(&bytes)?.stream_records(1 << 20)?;
/// let mut values = Vec::new();
/// while let Some(record) = stream.next() {
///     values.extend_from_slice(record?.value().unwrap_or_default());
/// }
/// assert_eq!(values, b"onetwo");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: Kafka `DefaultRecordBatch.streamingIterator`.
#[derive(Debug)]
pub struct RecordStream<'a> {
    source: Source<'a>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one stands in each stream, and a stream is not moved about")]
enum Source<'a> {
    /// Nothing is compressed.
    Plain(Records<'a>),
    /// What is decompressed, and the state of a walk over nothing.
    Compressed(Pieces<'a>, V2Records<'static>),
    Wrapper(legacy::WrapperStream<'a>),
}

impl<'a> RecordStream<'a> {
    pub(crate) fn open(batch: &Batch<'a>, limit: usize) -> Result<RecordStream<'a>, DecodeError> {
        let header = batch.header();
        let codec = header.codec()?;
        let count = header.raw_records_count();
        let source = if header.magic() != Magic::V2 && codec != Codec::None {
            Source::Wrapper(legacy::WrapperStream::open(batch, limit)?)
        } else if codec == Codec::None || count == 0 {
            Source::Plain(match header.magic() {
                Magic::V2 => Records::new(Inner::V2(V2Records::uncompressed(batch)?)),
                _ => Records::new(Inner::Single(legacy::Single::open(batch))),
            })
        } else {
            let pieces = Pieces::new(open_payload(batch, codec, limit)?, 0);
            Source::Compressed(pieces, V2Records::over(header, &[], count))
        };
        Ok(RecordStream { source })
    }

    /// The next record; it lends from the stream.
    #[allow(
        clippy::should_implement_trait,
        reason = "the records lend from the stream, which an iterator's cannot"
    )]
    pub fn next(&mut self) -> Option<Result<Record<'_>, DecodeError>> {
        match &mut self.source {
            Source::Plain(records) => records.next(),
            Source::Wrapper(wrapper) => wrapper.next(legacy::Inner::record),
            Source::Compressed(pieces, state) => {
                if let Err(error) = pieces.until(|rest| is_ready(rest, state.left > 0)) {
                    (state.left, state.ended) = (0, true);
                    return Some(Err(error));
                }
                let total = pieces.produced();
                let (rest, taken) = pieces.rest_and_taken();
                let mut records = V2Records { data: rest, total, ..state.clone() };
                let record = records.next();
                (state.left, state.ended) = (records.left, records.ended);
                *taken += rest.len() - records.data.len();
                record
            }
        }
    }
}

impl RecordStream<'_> {
    /// Hands all records to `visit`, in order, until there is an error: as [`next`](RecordStream::next) does, and as fast
    /// as where the whole batch is decompressed first.
    pub(crate) fn try_for_each<E: From<DecodeError>>(
        self,
        mut visit: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut pieces, mut state) = match self.source {
            Source::Plain(mut records) => {
                return records.try_for_each(|record| visit(&record?));
            }
            Source::Wrapper(mut wrapper) => {
                while let Some(record) = wrapper.next(legacy::Inner::record) {
                    visit(&record?)?;
                }
                return Ok(());
            }
            Source::Compressed(pieces, state) => (pieces, state),
        };
        loop {
            pieces.until(|rest| is_ready(rest, state.left > 0))?;
            let (total, over) = (pieces.produced(), pieces.is_over());
            let (rest, taken) = pieces.rest_and_taken();
            let mut records = V2Records { data: rest, total, ..state.clone() };
            loop {
                if let Some(record) = records.next_usual() {
                    visit(&record)?;
                } else if !over && !is_ready(records.data, records.left > 0) {
                    break;
                } else if let Some(record) = records.next() {
                    visit(&record?)?;
                } else {
                    return Ok(());
                }
            }
            state.left = records.left;
            *taken += rest.len() - records.data.len();
        }
    }
}

/// Whether there is enough to go on with: a record where one is wanted, any byte where none is.
fn is_ready(bytes: &[u8], wanted: bool) -> bool {
    if wanted { has_record(bytes) } else { !bytes.is_empty() }
}

/// Whether these bytes begin with a whole record, or with something that more bytes do not make one.
fn has_record(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    match varint::take_i32(&mut rest) {
        Ok(length) => usize::try_from(length).ok().is_none_or(|length| length <= rest.len()),
        Err(VarintFault::End) => false,
        Err(VarintFault::Overlong) => true,
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::batch::builder::{BatchOptions, RecordBatchBuilder};

    #[test]
    fn the_limit_counts_what_is_no_longer_held() {
        for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled() && *codec != Codec::None) {
            let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
            for _ in 0..100 {
                builder.append(None, None, Some(&[7; 10_000]), &[]).unwrap();
            }
            let mut bytes = BytesMut::new();
            builder.finish(&mut bytes).unwrap();
            let batch = Batch::parse(&bytes).unwrap();
            let size = builder_size(&bytes);
            let read = |limit: usize| {
                let mut stream = batch.stream_records(limit).unwrap();
                let mut count = 0;
                loop {
                    match stream.next() {
                        Some(Ok(_)) => count += 1,
                        Some(Err(error)) => return (count, Some(error)),
                        None => return (count, None),
                    }
                }
            };
            assert_eq!(read(size), (100, None), "{codec}");
            let (count, error) = read(size - 1);
            assert!(count < 100, "{codec}");
            assert_eq!(error, Some(DecodeError::TooLarge { codec, limit: size - 1 }));
        }
    }

    /// The bytes of a batch's records decompressed.
    fn builder_size(bytes: &[u8]) -> usize {
        let mut scratch = Vec::new();
        let records = Batch::parse(bytes).unwrap().records(&mut scratch, usize::MAX).unwrap();
        records.map(|record| record.unwrap().size()).sum()
    }
}
