//! Whether the key at an offset is the one that its hash says: a look into the log.

use kseg_format::{Batches, Offset};
use kseg_log::{Isolation, Log};

use crate::error::Result;

/// A look at keys by offset; keeps the batch that it looked at last.
#[derive(Debug)]
pub(crate) struct KeyCheck<'l> {
    log: &'l Log,
    bytes: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'l> KeyCheck<'l> {
    pub(crate) fn new(log: &'l Log) -> Self {
        KeyCheck { log, bytes: Vec::new(), scratch: Vec::new() }
    }

    /// Whether the record at `offset` has this key. `false` where there is no such record.
    pub(crate) fn is(&mut self, key: &[u8], offset: Offset) -> Result<bool> {
        let holds = |bytes: &[u8]| {
            let Some(Ok(batch)) = Batches::new(bytes).next() else { return false };
            batch.base_offset().is_some_and(|base| base <= offset) && offset <= batch.last_offset()
        };
        if !holds(&self.bytes) {
            // The log start may have moved: what lies below is superseded by nothing that can be read.
            if offset < self.log.log_start_offset() {
                return Ok(false);
            }
            let fetch = self.log.read(offset, 1, Isolation::LogEnd, true)?;
            self.bytes.clear();
            if let Some(region) = fetch.region {
                region.copy_into(&mut self.bytes)?;
            }
        }
        let Some(Ok(batch)) = Batches::new(&self.bytes).next() else { return Ok(false) };
        let Ok(records) = batch.records(&mut self.scratch, i32::MAX as usize) else { return Ok(false) };
        for record in records.flatten() {
            if record.offset() == offset {
                return Ok(record.key() == Some(key));
            }
        }
        Ok(false)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::path::Path;

    use bytes::BytesMut;
    use kseg_format::{BatchOptions, LeaderEpoch, Origin, RecordBatchBuilder, Timestamp};
    use kseg_log::{Log, OpenOptions};

    use super::*;
    use crate::offset_map::OffsetMap;
    use crate::options::CleanerOptions;
    use crate::round::{Cleaner, Dirty, Unhindered};

    const KEYS: [&[u8]; 3] = [b"one", b"two", b"one"];

    /// One record a batch, with these keys, the last one in the active segment's place.
    fn log() -> Log {
        let backend = kseg_io_backends::open("memory").unwrap();
        let log = Log::open(Path::new("/t-0"), OpenOptions::new(backend)).unwrap();
        for key in KEYS {
            let mut builder = RecordBatchBuilder::new(BatchOptions::default());
            builder.append(Some(Timestamp::new(1)), Some(key), Some(b"value"), &[]).unwrap();
            let mut batch = BytesMut::new();
            builder.finish(&mut batch).unwrap();
            log.append_as_leader(batch, LeaderEpoch::new(0), Origin::Client).unwrap();
        }
        log.roll(None).unwrap();
        log
    }

    /// Cleans with a hash that is the same for every key; returns the keys that are left, and how many collisions were met.
    fn cleaned(verify_keys: bool) -> (Vec<Vec<u8>>, u64) {
        let log = log();
        let options = CleanerOptions { verify_keys, map_bytes: 2400, ..CleanerOptions::default() };
        let mut cleaner = Cleaner::new(options).unwrap();
        cleaner.map = OffsetMap::with_hasher(2400, 0, |_, _| 42 << 64 | 42);
        let end = log.log_end_offset();
        let dirty = Dirty { first: Offset::ZERO, first_uncleanable: end, now: Timestamp::new(1000) };
        let round = cleaner.clean(&log, dirty, &Unhindered).unwrap();
        let (sealed, _) = log.sealed_segments().unwrap();
        let bytes = sealed[0].segment().region_from(None).unwrap().to_bytes().unwrap();
        let mut left = Vec::new();
        for batch in Batches::new(&bytes) {
            for record in batch.unwrap().records(&mut Vec::new(), 0).unwrap() {
                left.push(record.unwrap().key().unwrap().to_vec());
            }
        }
        (left, round.stats.hash_collisions)
    }

    #[test]
    fn keys_of_one_hash_are_told_apart_on_request() {
        // The first record is superseded by its key's later one, the second by nothing but the hash.
        assert_eq!(cleaned(true), (vec![KEYS[1].to_vec(), KEYS[2].to_vec()], 1));
        assert_eq!(cleaned(false), (vec![KEYS[2].to_vec()], 0));
    }
}
