//! The two checksums and the bytes they cover.

use crate::batch::header::{ATTRIBUTES, BatchHeader, MAGIC};
use crate::batch::wrong_checksum;
use crate::codec::Magic;
use crate::error::DecodeError;

/// The checksum that belongs into a whole batch: CRC-32C of the bytes from the attributes on for magic 2, CRC-32 of
/// those from the magic on before. The batch is at least that long.
#[inline]
pub(crate) fn of_batch(magic: Magic, batch: &[u8]) -> u32 {
    match magic {
        Magic::V2 => crc32c(&batch[ATTRIBUTES..]),
        _ => crc32fast::hash(&batch[MAGIC..]),
    }
}

/// CRC-32C, by the crate that the features choose.
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(not(feature = "crc-fast"))]
    return crc32c::crc32c(bytes);
    #[cfg(feature = "crc-fast")]
    return crc_fast::crc32_iscsi(bytes);
}

/// The CRC-32C of more bytes behind those whose CRC-32C is `crc`.
#[inline]
fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(not(feature = "crc-fast"))]
    return crc32c::crc32c_append(crc, bytes);
    #[cfg(feature = "crc-fast")]
    {
        let algorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;
        // Its state is not inverted yet.
        let mut digest = crc_fast::Digest::new_with_init_state(algorithm, u64::from(!crc));
        digest.update(bytes);
        digest.finalize() as u32
    }
}

/// The checksum of a batch whose bytes come in parts, for whoever does not take the length in its header on trust: before all of
/// it is held.
#[derive(Clone, Debug)]
pub struct BatchChecksum {
    header: BatchHeader,
    state: State,
    left: usize,
}

#[derive(Clone, Debug)]
enum State {
    Crc32c(u32),
    Crc32(crc32fast::Hasher),
}

impl BatchChecksum {
    /// Begins with the first bytes of a batch, its whole header among them.
    ///
    /// # Errors
    /// Those of [`BatchHeader::read`].
    pub fn begin(first: &[u8]) -> Result<BatchChecksum, DecodeError> {
        let header = BatchHeader::read(first)?;
        let (from, state) = match header.magic() {
            Magic::V2 => (ATTRIBUTES, State::Crc32c(0)),
            _ => (MAGIC, State::Crc32(crc32fast::Hasher::new())),
        };
        let mut checksum = BatchChecksum { header, state, left: header.size() - from };
        checksum.add(&first[from..]);
        Ok(checksum)
    }

    /// Takes the bytes that follow; what lies behind the batch is left alone.
    pub fn add(&mut self, part: &[u8]) {
        let part = &part[..part.len().min(self.left)];
        self.left -= part.len();
        match &mut self.state {
            State::Crc32c(crc) => *crc = crc32c_append(*crc, part),
            State::Crc32(hasher) => hasher.update(part),
        }
    }

    /// Compares it with the one in the header.
    ///
    /// # Errors
    /// [`DecodeError::Checksum`].
    pub fn verify(self) -> Result<(), DecodeError> {
        let computed = match self.state {
            State::Crc32c(crc) => crc,
            State::Crc32(hasher) => hasher.finalize(),
        };
        if computed == self.header.crc() { Ok(()) } else { Err(wrong_checksum(&self.header, computed)) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::BatchChecksum;
    use crate::legacy::{LegacyOptions, LegacyRecord, encode};
    use crate::{Batch, BatchOptions, DecodeError, Magic, Offset, RecordBatchBuilder, Timestamp};

    #[test]
    fn a_checksum_in_parts_is_the_one_of_the_whole() {
        let key_and_value = (Some(&b"key"[..]), Some(&[7; 300][..]));
        for magic in [Magic::V0, Magic::V1, Magic::V2] {
            let mut bytes = BytesMut::new();
            if magic == Magic::V2 {
                let mut builder = RecordBatchBuilder::new(BatchOptions::default());
                let (key, value) = key_and_value;
                builder.append(Some(Timestamp::new(1)), key, value, &[]).unwrap();
                builder.finish(&mut bytes).unwrap();
            } else {
                let (key, value) = key_and_value;
                let timestamp = (magic == Magic::V1).then_some(Timestamp::new(1));
                let record = LegacyRecord { offset: Offset::ZERO, timestamp, key, value };
                let options = LegacyOptions { magic, ..LegacyOptions::default() };
                encode(&options, &[record], &mut bytes).unwrap();
            }
            let size = bytes.len();
            bytes.extend_from_slice(b"what follows");
            for step in [1, 7, 1000] {
                let parts = |bytes: &[u8]| {
                    let mut checksum = BatchChecksum::begin(&bytes[..61]).unwrap();
                    bytes[61..].chunks(step).for_each(|part| checksum.add(part));
                    checksum.verify()
                };
                assert_eq!(parts(&bytes), Ok(()));
                let mut damaged = bytes.clone();
                damaged[size - 1] ^= 1;
                let whole = Batch::parse(&damaged).unwrap().verify().unwrap_err();
                assert!(matches!(whole, DecodeError::Checksum { .. }));
                assert_eq!(parts(&damaged), Err(whole));
            }
        }
    }

    #[test]
    fn the_check_values_of_both_polynomials() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    }
}
