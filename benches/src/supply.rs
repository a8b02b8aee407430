//! Batches as owned buffers, made ready before the watch runs.
//!
//! An append takes its buffer, as a server's request handler would give it. Making one costs an allocation and a copy,
//! which are no part of the append; so buffers are made in groups outside the measured time, for the log and for the
//! reference loop alike. A group is small enough to stay in the second-level cache: both find their bytes as warm as a
//! request that has just been received.

use bytes::{Bytes, BytesMut};

use crate::error::BenchError;
use crate::payload;

/// Bytes of buffers that are ready at the same time.
const GROUP_BYTES: usize = 512 << 10;

/// A supply of batches of one size that never ends.
#[derive(Clone, Debug)]
pub(crate) struct Supply {
    templates: Vec<Bytes>,
    group: usize,
    next: usize,
    records: usize,
}

impl Supply {
    /// Different batches of about `batch_bytes` bytes with values of `value_len` bytes; the same for the same arguments.
    pub(crate) fn new(batch_bytes: usize, value_len: usize) -> Result<Supply, BenchError> {
        let group = (GROUP_BYTES / batch_bytes).clamp(1, 32);
        let templates = payload::batches(batch_bytes as u64, 32, batch_bytes, value_len)?;
        Ok(Supply { templates, group, next: 0, records: payload::records_for(batch_bytes, value_len) })
    }

    /// The next group, each batch with offsets from 0 and a buffer of its own.
    pub(crate) fn group(&mut self) -> Vec<BytesMut> {
        (0..self.group)
            .map(|_| {
                let template = &self.templates[self.next];
                self.next = (self.next + 1) % self.templates.len();
                BytesMut::from(&template[..])
            })
            .collect()
    }

    /// As [`Supply::group`] with a single batch.
    pub(crate) fn one(&mut self) -> BytesMut {
        let template = &self.templates[self.next];
        self.next = (self.next + 1) % self.templates.len();
        BytesMut::from(&template[..])
    }

    /// Begins again with the first batch.
    pub(crate) fn restart(&mut self) {
        self.next = 0;
    }

    /// How many different batches there are.
    pub(crate) fn different(&self) -> usize {
        self.templates.len()
    }

    /// The batch given last.
    pub(crate) fn last(&self) -> &Bytes {
        &self.templates[(self.next + self.templates.len() - 1) % self.templates.len()]
    }

    /// Bytes of each batch.
    pub(crate) fn batch_len(&self) -> usize {
        self.templates[0].len()
    }

    /// Records in each batch.
    pub(crate) fn records(&self) -> usize {
        self.records
    }
}

/// Adds a batch to a hash, without what a log changes: base offset and leader epoch.
pub(crate) fn hash(hash: u64, batch: &[u8]) -> u64 {
    let hash = crc32c::crc32c_append(hash as u32, &batch[8..12]);
    crc32c::crc32c_append(hash, &batch[16..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_supply_gives_the_same_batches_again() {
        let mut supply = Supply::new(128 << 10, 1024).unwrap();
        let first = supply.group();
        assert_eq!(first.len(), 4);
        assert_eq!(supply.last()[..], first[3][..]);
        supply.one();
        supply.restart();
        assert_eq!(supply.group(), first);
    }

    #[test]
    fn the_hash_leaves_out_what_a_log_writes() {
        let mut supply = Supply::new(1 << 10, 100).unwrap();
        let mut batch = supply.one();
        let before = hash(0, &batch);
        batch[..8].copy_from_slice(&77i64.to_be_bytes());
        batch[12..16].copy_from_slice(&3i32.to_be_bytes());
        assert_eq!(hash(0, &batch), before);
        batch[100] ^= 1;
        assert_ne!(hash(0, &batch), before);
    }
}
