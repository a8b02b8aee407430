//! `rskafka`, whose batches are public to its fuzzers alone.

use std::io::Cursor;

use bytes::Bytes;
use kseg_bench::BenchError;
use kseg_format::Codec;
use rskafka::protocol::record::{
    ControlBatchOrRecords, Record, RecordBatch, RecordBatchCompression, RecordBatchTimestampType,
};
use rskafka::protocol::traits::{ReadType as _, WriteType as _};

use crate::cells::BASE_TIMESTAMP;
use crate::coder::{Coder, failed};
use crate::kseg::hash_batch;

const WHO: &str = "rskafka";

#[derive(Debug)]
pub(crate) struct Encode {
    batch: RecordBatch,
    out: Vec<u8>,
}

impl Encode {
    pub(crate) fn new(values: &[Bytes], codec: Codec) -> Encode {
        let records = values.iter().enumerate().map(|(i, value)| Record {
            timestamp_delta: i as i64,
            offset_delta: i as i32,
            key: None,
            value: Some(value.to_vec()),
            headers: Vec::new(),
        });
        let batch = RecordBatch {
            base_offset: 0,
            partition_leader_epoch: -1,
            last_offset_delta: values.len() as i32 - 1,
            first_timestamp: BASE_TIMESTAMP,
            max_timestamp: BASE_TIMESTAMP + values.len() as i64 - 1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records: ControlBatchOrRecords::Records(records.collect()),
            compression: match codec {
                Codec::None => RecordBatchCompression::NoCompression,
                Codec::Gzip => RecordBatchCompression::Gzip,
                Codec::Snappy => RecordBatchCompression::Snappy,
                Codec::Lz4 => RecordBatchCompression::Lz4,
                Codec::Zstd => RecordBatchCompression::Zstd,
            },
            is_transactional: false,
            timestamp_type: RecordBatchTimestampType::CreateTime,
        };
        Encode { batch, out: Vec::new() }
    }
}

impl Coder for Encode {
    fn pass(&mut self) -> Result<u64, BenchError> {
        self.out.clear();
        self.batch.write(&mut self.out).map_err(|e| failed(WHO, e))?;
        Ok(u64::from(self.out[17]))
    }

    fn hash(&mut self) -> Result<u64, BenchError> {
        self.pass()?;
        hash_batch(&self.out)
    }
}

#[derive(Debug)]
pub(crate) struct Decode(pub(crate) Bytes);

impl Coder for Decode {
    fn pass(&mut self) -> Result<u64, BenchError> {
        let batch = RecordBatch::read(&mut Cursor::new(&self.0[..])).map_err(|e| failed(WHO, e))?;
        let ControlBatchOrRecords::Records(records) = batch.records else {
            return Err(failed(WHO, "a control batch"));
        };
        Ok(records.iter().map(|record| record.value.as_ref().map_or(0, Vec::len)).sum::<usize>() as u64)
    }
}
