//! The limits: loops that know the layout of these batches and check nothing but the checksum.

use bytes::Bytes;
use kseg_bench::BenchError;

use crate::cells::BASE_TIMESTAMP;
use crate::coder::{Coder, failed};
use crate::kseg::hash_batch;

/// The bytes in front of a batch's records.
const HEADER: usize = 61;

/// Copies the values into one buffer with each record's varints in front, then takes one CRC.
#[derive(Debug)]
pub(crate) struct Encode {
    values: Vec<Bytes>,
    out: Vec<u8>,
}

impl Encode {
    pub(crate) fn new(values: Vec<Bytes>) -> Encode {
        let most = HEADER + values.iter().map(|value| value.len() + 32).sum::<usize>();
        Encode { values, out: vec![0; most] }
    }

    /// Returns the batch's size.
    fn write(&mut self) -> usize {
        let count = self.values.len();
        let out = &mut self.out;
        let mut at = HEADER;
        for (i, value) in self.values.iter().enumerate() {
            let len = value.len();
            // attributes, timestamp delta, offset delta, null key, value's length, value, no headers
            let body = 1 + 2 * varint_len(i << 1) + 1 + varint_len(len << 1) + len + 1;
            put(out, &mut at, body << 1);
            out[at] = 0;
            at += 1;
            put(out, &mut at, i << 1);
            put(out, &mut at, i << 1);
            out[at] = 1;
            at += 1;
            put(out, &mut at, len << 1);
            out[at..at + len].copy_from_slice(value);
            at += len;
            out[at] = 0;
            at += 1;
        }
        out[..8].copy_from_slice(&[0; 8]);
        out[8..12].copy_from_slice(&(at as u32 - 12).to_be_bytes());
        out[12..17].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 2]);
        out[21..23].copy_from_slice(&[0; 2]);
        out[23..27].copy_from_slice(&(count as u32 - 1).to_be_bytes());
        out[27..35].copy_from_slice(&BASE_TIMESTAMP.to_be_bytes());
        out[35..43].copy_from_slice(&(BASE_TIMESTAMP + count as i64 - 1).to_be_bytes());
        out[43..57].copy_from_slice(&[0xff; 14]);
        out[57..61].copy_from_slice(&(count as u32).to_be_bytes());
        let crc = crc32c::crc32c(&out[21..at]);
        out[17..21].copy_from_slice(&crc.to_be_bytes());
        at
    }
}

#[inline(always)]
fn varint_len(raw: usize) -> usize {
    (70 - (raw as u64 | 1).leading_zeros() as usize) / 7
}

#[inline(always)]
fn put(out: &mut [u8], at: &mut usize, mut raw: usize) {
    while raw >= 0x80 {
        out[*at] = raw as u8 | 0x80;
        *at += 1;
        raw >>= 7;
    }
    out[*at] = raw as u8;
    *at += 1;
}

impl Coder for Encode {
    fn pass(&mut self) -> Result<u64, BenchError> {
        self.write();
        Ok(u64::from(self.out[17]))
    }

    fn hash(&mut self) -> Result<u64, BenchError> {
        let size = self.write();
        hash_batch(&self.out[..size])
    }
}

/// Takes one CRC, then reads every varint up to the value's length, and steps over the value.
#[derive(Debug)]
pub(crate) struct Decode {
    batch: Bytes,
}

impl Decode {
    pub(crate) fn new(batch: Bytes) -> Decode {
        Decode { batch }
    }
}

#[inline(always)]
fn take(bytes: &[u8], at: &mut usize) -> usize {
    let mut raw = 0;
    let mut shift = 0;
    loop {
        let byte = bytes[*at];
        *at += 1;
        raw |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return raw;
        }
        shift += 7;
    }
}

impl Coder for Decode {
    fn pass(&mut self) -> Result<u64, BenchError> {
        let bytes = &self.batch[..];
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if crc32c::crc32c(&bytes[21..]) != word(17) {
            return Err(failed("bare loop", "wrong CRC"));
        }
        let mut at = HEADER;
        let mut sum = 0;
        for _ in 0..word(57) {
            let body = take(bytes, &mut at) >> 1;
            let end = at + body;
            at += 1;
            take(bytes, &mut at);
            take(bytes, &mut at);
            take(bytes, &mut at); // A null key has no bytes.
            sum += take(bytes, &mut at) >> 1;
            at = end;
        }
        Ok(sum as u64)
    }
}
