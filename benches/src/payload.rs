//! Deterministic data: the same seed gives the same bytes on every machine, so that hashes of results can be compared.

use bytes::{Bytes, BytesMut};
use kseg_format::{BatchOptions, Codec, RecordBatchBuilder, Timestamp};

use crate::error::BenchError;

/// The timestamp of the first record of every batch; each record is a millisecond younger than the one before it.
pub(crate) const BASE_TIMESTAMP_MS: i64 = 1_700_000_000_000;

/// Small, fast, seeded random numbers (Steele, Lea, Flood: SplitMix64). Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// A generator whose numbers depend on `seed` alone.
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next number, all 64 bits of it random.
    #[allow(clippy::should_implement_trait, reason = "an endless source is no iterator here")]
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 128-bit product: even to within bound / 2^64.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// `len` bytes that no codec makes smaller.
    pub(crate) fn noise(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_be_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// `len` bytes like lines of a program's log: words from a small vocabulary and numbers. Codecs halve it or better.
    pub(crate) fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&str; 24] = [
            "accepted",
            "batch",
            "broker",
            "client",
            "closed",
            "connection",
            "epoch",
            "error",
            "fetch",
            "from",
            "leader",
            "offset",
            "partition",
            "producer",
            "request",
            "retry",
            "rolled",
            "segment",
            "session",
            "timeout",
            "to",
            "topic",
            "with",
            "worker",
        ];
        let mut bytes = Vec::with_capacity(len + 16);
        while bytes.len() < len {
            match self.below(4) {
                0 => bytes.extend_from_slice(self.below(100_000).to_string().as_bytes()),
                _ => bytes.extend_from_slice(WORDS[self.below(WORDS.len() as u64) as usize].as_bytes()),
            }
            bytes.push(b' ');
        }
        bytes.truncate(len);
        bytes
    }
}

/// How many records with values of `value_len` bytes make a batch of about `batch_bytes` bytes; at least one.
pub(crate) fn records_for(batch_bytes: usize, value_len: usize) -> usize {
    // A record without key and headers: length, attributes, timestamp, offset, key, value length, header count.
    let record = value_len + 9;
    (batch_bytes.saturating_sub(kseg_format::BATCH_OVERHEAD) / record).max(1)
}

/// Encodes one batch, uncompressed unless `codec` says otherwise: a record for each of `values`, offsets from 0.
pub(crate) fn batch(values: &[Vec<u8>], codec: Codec) -> Result<Bytes, BenchError> {
    let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
    for (value, timestamp) in values.iter().zip(BASE_TIMESTAMP_MS..) {
        builder.append(Some(Timestamp::new(timestamp)), None, Some(value), &[])?;
    }
    let mut out = BytesMut::new();
    builder.finish(&mut out)?;
    Ok(out.freeze())
}

/// `how_many` different batches of the same shape: about `batch_bytes` bytes of records with `value_len` bytes of noise.
pub(crate) fn batches(
    seed: u64,
    how_many: usize,
    batch_bytes: usize,
    value_len: usize,
) -> Result<Vec<Bytes>, BenchError> {
    let mut random = Random::new(seed);
    let records = records_for(batch_bytes, value_len);
    (0..how_many)
        .map(|_| {
            let values: Vec<_> = (0..records).map(|_| random.noise(value_len)).collect();
            batch(&values, Codec::None)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        assert_eq!(Random::new(1).noise(100), Random::new(1).noise(100));
        assert_ne!(Random::new(1).noise(100), Random::new(2).noise(100));
        // The first outputs for seed 0 as the authors of the generator publish them.
        let mut random = Random::new(0);
        assert_eq!((random.next(), random.next()), (0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4));
    }

    #[test]
    fn numbers_below_a_bound_reach_all_of_it() {
        let mut random = Random::new(3);
        let mut seen = [0u32; 7];
        for _ in 0..7000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }

    #[test]
    fn batches_have_one_size_and_come_close_to_the_one_asked() {
        let made = batches(7, 4, 16 << 10, 1024).unwrap();
        assert!(made.iter().all(|b| b.len() == made[0].len()));
        assert!((15 << 10..=16 << 10).contains(&made[0].len()), "{}", made[0].len());
        assert_ne!(made[0], made[1]);
    }

    #[test]
    fn text_has_the_length_asked_for() {
        for len in [0, 1, 100, 1024] {
            assert_eq!(Random::new(9).text(len).len(), len);
        }
    }
}
