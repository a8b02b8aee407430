//! `krabka-protocol`: encodes from owned records, decodes borrowed ones.

use bytes::Bytes;
use krabka_protocol::DecodeBorrow as _;
use krabka_protocol::records::{
    Attributes, Record, RecordBatch, RecordBatchBorrowed, count_records_in_v2_batches,
};
use kseg_bench::BenchError;
use kseg_format::Codec;

use crate::cells::BASE_TIMESTAMP;
use crate::coder::{Coder, failed};
use crate::kseg::hash_batch;

const WHO: &str = "krabka-protocol";

#[derive(Debug)]
pub(crate) struct Encode(RecordBatch);

impl Encode {
    pub(crate) fn new(values: &[Bytes], codec: Codec) -> Encode {
        let records = values.iter().enumerate().map(|(i, value)| Record {
            timestamp_delta: i as i64,
            offset_delta: i as i32,
            value: Some(value.clone()),
            ..Record::default()
        });
        Encode(RecordBatch {
            // The codec's number stands in the lowest bits.
            attributes: Attributes(codec as i16),
            last_offset_delta: values.len() as i32 - 1,
            base_timestamp: BASE_TIMESTAMP,
            max_timestamp: BASE_TIMESTAMP + values.len() as i64 - 1,
            records: records.collect(),
            ..RecordBatch::default()
        })
    }

    fn encode(&self) -> Result<Bytes, BenchError> {
        self.0.encode_to_bytes().map_err(|e| failed(WHO, e))
    }
}

impl Coder for Encode {
    fn pass(&mut self) -> Result<u64, BenchError> {
        Ok(u64::from(self.encode()?[17]))
    }

    fn hash(&mut self) -> Result<u64, BenchError> {
        hash_batch(&self.encode()?)
    }
}

#[derive(Debug)]
pub(crate) struct Decode(pub(crate) Bytes);

impl Coder for Decode {
    fn pass(&mut self) -> Result<u64, BenchError> {
        let mut bytes = &self.0[..];
        let batch = RecordBatchBorrowed::decode_borrow(&mut bytes, 0).map_err(|e| failed(WHO, e))?;
        let mut len = 0;
        for record in &batch {
            len += record.map_err(|e| failed(WHO, e))?.value.map_or(0, <[u8]>::len);
        }
        Ok(len as u64)
    }
}

/// Adds up the record counts in the headers of all batches.
#[derive(Debug)]
pub(crate) struct Headers(pub(crate) Bytes);

impl Coder for Headers {
    fn pass(&mut self) -> Result<u64, BenchError> {
        Ok(count_records_in_v2_batches(&self.0))
    }
}
