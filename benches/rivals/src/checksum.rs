//! CRC-32C of some bytes.

use bytes::Bytes;
use kseg_bench::BenchError;

use crate::coder::Coder;

/// By crc32c, which kseg-format uses.
#[derive(Debug)]
pub(crate) struct Crc32c(pub(crate) Bytes);

impl Coder for Crc32c {
    fn pass(&mut self) -> Result<u64, BenchError> {
        Ok(crc32c::crc32c(&self.0).into())
    }
}

/// By crc-fast, which it uses with the feature of that name.
#[derive(Debug)]
pub(crate) struct CrcFast(pub(crate) Bytes);

impl Coder for CrcFast {
    fn pass(&mut self) -> Result<u64, BenchError> {
        Ok(crc_fast::crc32_iscsi(&self.0).into())
    }
}
