//! Checksums of messages of magic 0 and 1, which every record of theirs carries.

/// The offset and the size field in front of a message.
const LOG_OVERHEAD: usize = 12;
/// Checksum, magic, attributes and the lengths of key and value.
const MESSAGE_MIN: usize = 14;

/// Whether a message with its offset and size field is long enough and has `crc` as its CRC-32.
///
/// Source: Kafka `LegacyRecord.isValid`, which takes the minimum of magic 0 for magic 1 too.
pub(super) fn is_valid(entry: &[u8], crc: u32) -> bool {
    entry.len() >= LOG_OVERHEAD + MESSAGE_MIN && crc32fast::hash(&entry[LOG_OVERHEAD + 4..]) == crc
}

/// Of each message in `set`: whether it is valid, and the checksum stored in it. Ends before one that is cut.
pub(super) fn checksums(mut set: &[u8]) -> Vec<(bool, u32)> {
    let mut all = Vec::new();
    while let Some(&[_, _, _, _, _, _, _, _, s0, s1, s2, s3, c0, c1, c2, c3]) = set.first_chunk() {
        let Ok(size) = usize::try_from(i32::from_be_bytes([s0, s1, s2, s3])) else { break };
        let Some((entry, rest)) = set.split_at_checked(LOG_OVERHEAD + size) else { break };
        let crc = u32::from_be_bytes([c0, c1, c2, c3]);
        all.push((is_valid(entry, crc), crc));
        set = rest;
    }
    all
}
