//! The two checksums and the bytes they cover.

use crate::batch::header::{ATTRIBUTES, MAGIC};
use crate::codec::Magic;

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

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_values_of_both_polynomials() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    }
}
