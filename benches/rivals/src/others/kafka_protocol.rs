//! `kafka-protocol`.

use bytes::{Bytes, BytesMut};
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use kseg_bench::BenchError;
use kseg_format::Codec;

use crate::cells::BASE_TIMESTAMP;
use crate::coder::{Coder, failed};
use crate::kseg::hash_batch;

const WHO: &str = "kafka-protocol";

#[derive(Debug)]
pub(crate) struct Encode {
    records: Vec<Record>,
    codec: Codec,
    out: BytesMut,
}

impl Encode {
    pub(crate) fn new(values: &[Bytes], codec: Codec) -> Encode {
        let records = values.iter().enumerate().map(|(i, value)| Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            timestamp_type: TimestampType::Creation,
            offset: i as i64,
            sequence: i as i32 - 1,
            timestamp: BASE_TIMESTAMP + i as i64,
            key: None,
            value: Some(value.clone()),
            headers: Default::default(),
        });
        Encode { records: records.collect(), codec, out: BytesMut::new() }
    }
}

impl Coder for Encode {
    fn pass(&mut self) -> Result<u64, BenchError> {
        let compression = match self.codec {
            Codec::None => Compression::None,
            Codec::Gzip => Compression::Gzip,
            Codec::Snappy => Compression::Snappy,
            Codec::Lz4 => Compression::Lz4,
            Codec::Zstd => Compression::Zstd,
        };
        self.out.clear();
        let options = RecordEncodeOptions { version: 2, compression };
        RecordBatchEncoder::encode(&mut self.out, &self.records, &options).map_err(|e| failed(WHO, e))?;
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
        let set = RecordBatchDecoder::decode(&mut self.0.clone()).map_err(|e| failed(WHO, e))?;
        let len = |record: &Record| record.value.as_ref().map_or(0, Bytes::len);
        Ok(set.records.iter().map(len).sum::<usize>() as u64)
    }
}

/// Reads the headers of all batches into a list.
#[derive(Debug)]
pub(crate) struct Headers(pub(crate) Bytes);

impl Coder for Headers {
    fn pass(&mut self) -> Result<u64, BenchError> {
        let infos = RecordBatchDecoder::decode_batch_info(&mut self.0.clone()).map_err(|e| failed(WHO, e))?;
        Ok(infos.iter().map(|info| info.record_count as u64).sum())
    }
}
