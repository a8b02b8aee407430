//! `kseg-format`.

use bytes::Bytes;
use kseg_bench::BenchError;
use kseg_format::{Batch, BatchOptions, Codec, RecordBatchBuilder, Timestamp};

use crate::cells::BASE_TIMESTAMP;
use crate::coder::{Coder, hash_values};

/// The most that a batch may decompress to.
const LIMIT: usize = 16 << 20;

/// Encodes with one builder, in its buffer.
#[derive(Debug)]
pub(crate) struct Encode {
    values: Vec<Bytes>,
    builder: RecordBatchBuilder,
}

impl Encode {
    pub(crate) fn new(values: Vec<Bytes>, codec: Codec) -> Encode {
        let builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
        Encode { values, builder }
    }

    /// The batch.
    pub(crate) fn batch(mut self) -> Result<Bytes, BenchError> {
        Ok(Bytes::copy_from_slice(self.build()?))
    }

    fn build(&mut self) -> Result<&[u8], BenchError> {
        for (value, timestamp) in self.values.iter().zip(BASE_TIMESTAMP..) {
            self.builder.append(Some(Timestamp::new(timestamp)), None, Some(value), &[])?;
        }
        Ok(self.builder.build()?.unwrap_or_default())
    }
}

impl Coder for Encode {
    fn pass(&mut self) -> Result<u64, BenchError> {
        Ok(u64::from(self.build()?[17]))
    }

    fn hash(&mut self) -> Result<u64, BenchError> {
        hash_batch(self.build()?)
    }
}

/// The hash of the values in a batch.
pub(crate) fn hash_batch(batch: &[u8]) -> Result<u64, BenchError> {
    let mut scratch = Vec::new();
    let records = Batch::parse(batch)?.verify()?.records(&mut scratch, LIMIT)?;
    let values = records.map(|record| Ok(record?.value().unwrap_or_default()));
    Ok(hash_values(values.collect::<Result<Vec<_>, BenchError>>()?))
}

/// Checks a batch and looks at each record's value.
#[derive(Debug)]
pub(crate) struct Decode {
    batch: Bytes,
    scratch: Vec<u8>,
}

impl Decode {
    pub(crate) fn new(batch: Bytes) -> Decode {
        Decode { batch, scratch: Vec::new() }
    }
}

impl Coder for Decode {
    fn pass(&mut self) -> Result<u64, BenchError> {
        let checked = Batch::parse(&self.batch)?.verify()?;
        let mut len = 0;
        for record in checked.records(&mut self.scratch, LIMIT)? {
            len += record?.value().map_or(0, <[u8]>::len);
        }
        Ok(len as u64)
    }
}
