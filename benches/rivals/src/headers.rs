//! Walking over the headers of a buffer that fits the second-level cache.

use bytes::Bytes;
use kseg_bench::BenchError;
use kseg_format::{BatchOptions, Batches, Codec, Offset, RecordBatchBuilder};

use crate::coder::{Coder, failed};

/// The bytes of a batch with one record and all its headers in the buffer.
pub(crate) const BATCH: usize = 1024;
/// The batches: half a MiB.
pub(crate) const BATCHES: usize = 512;

/// The buffer.
pub(crate) fn buffer() -> Result<Bytes, BenchError> {
    let mut out = bytes::BytesMut::new();
    let mut builder = RecordBatchBuilder::new(BatchOptions { codec: Codec::None, ..BatchOptions::default() });
    for i in 0..BATCHES {
        builder.options_mut().base_offset = Offset::new(i as i64);
        // Length, attributes, deltas, null key, the value's length, no headers: 9 bytes.
        builder.append(None, None, Some(&[b'v'; BATCH - 61 - 9]), &[])?;
        builder.finish(&mut out)?;
    }
    if out.len() != BATCH * BATCHES {
        return Err(failed("headers", format!("{} bytes", out.len())));
    }
    Ok(out.freeze())
}

/// Loads base offset, length, magic and records count of each header, at places known beforehand.
#[derive(Debug)]
pub(crate) struct Strided(pub(crate) Bytes);

impl Coder for Strided {
    fn pass(&mut self) -> Result<u64, BenchError> {
        let (batches, _) = self.0.as_chunks::<BATCH>();
        let mut sums = Sums::default();
        for batch in batches {
            let word =
                |at: usize| u32::from_be_bytes([batch[at], batch[at + 1], batch[at + 2], batch[at + 3]]);
            let offset = u64::from(word(0)) << 32 | u64::from(word(4));
            sums.add(offset, word(8) + 12, batch[16], word(57));
        }
        sums.of(BATCHES)
    }
}

/// `kseg-format`'s walk, and the same fields of each header.
#[derive(Debug)]
pub(crate) struct Walk(pub(crate) Bytes);

impl Coder for Walk {
    fn pass(&mut self) -> Result<u64, BenchError> {
        let mut sums = Sums::default();
        for batch in Batches::new(&self.0) {
            let batch = batch?;
            let offset = batch.base_offset().map_or(0, Offset::get) as u64;
            let count = batch.records_count().unwrap_or_default() as u32;
            sums.add(offset, batch.size() as u32, batch.magic().get() as u8, count);
        }
        sums.of(BATCHES)
    }
}

#[derive(Default)]
struct Sums {
    offsets: u64,
    sizes: u64,
    magics: u64,
    counts: u64,
}

impl Sums {
    #[inline(always)]
    fn add(&mut self, offset: u64, size: u32, magic: u8, count: u32) {
        self.offsets = self.offsets.wrapping_add(offset);
        self.sizes += u64::from(size);
        self.magics += u64::from(magic);
        self.counts += u64::from(count);
    }

    /// The records, once the other sums are found to be those of so many batches.
    fn of(self, batches: usize) -> Result<u64, BenchError> {
        let n = batches as u64;
        let right = self.offsets == n * (n - 1) / 2 && self.sizes == n * BATCH as u64 && self.magics == 2 * n;
        if right { Ok(self.counts) } else { Err(failed("headers", "wrong sums")) }
    }
}
