//! Whether the key at an offset is the one that its hash says: a look into the log.

use std::collections::BTreeMap;
use std::ops::Range;

use kseg_format::{Batch, Batches, DecodeError, Offset};
use kseg_log::{Isolation, Log};

use crate::error::{Error, Result};

/// Bytes that the keys of batches take up which are kept; the batch that was looked at last is kept whatever it takes up.
const KEPT_BYTES: usize = 8 << 20;

/// A look at keys by offset. Each batch is read and decompressed once for all its records, while it is among those that were looked
/// at last.
#[derive(Debug)]
pub(crate) struct KeyCheck<'l> {
    log: &'l Log,
    bytes: Vec<u8>,
    scratch: Vec<u8>,
    /// By last offset.
    kept: BTreeMap<Offset, Keys>,
    kept_bytes: usize,
    limit: usize,
    looks: u64,
    /// Batches that were read.
    reads: u64,
    #[cfg(test)]
    decoded: u64,
}

/// After how many batches the files of segments that were not needed lately are let go of: each may have been in another segment,
/// of which there may be more than the process may have descriptors.
const READS_PER_RELEASE: u64 = 128;

/// The keys of one batch.
#[derive(Debug)]
struct Keys {
    first: Offset,
    keys: Vec<u8>,
    /// Offset and key of each record that has one, ascending.
    records: Vec<(Offset, Range<usize>)>,
    /// Number of the last look.
    used: u64,
}

impl Keys {
    fn of(batch: &Batch<'_>, scratch: &mut Vec<u8>) -> Result<Keys, DecodeError> {
        let first = batch.base_offset().unwrap_or(batch.last_offset());
        let mut found = Keys { first, keys: Vec::new(), records: Vec::new(), used: 0 };
        for record in batch.records(scratch, i32::MAX as usize)? {
            let record = record?;
            if let Some(key) = record.key() {
                let begin = found.keys.len();
                found.keys.extend_from_slice(key);
                found.records.push((record.offset(), begin..found.keys.len()));
            }
        }
        Ok(found)
    }

    fn is(&self, key: &[u8], offset: Offset) -> bool {
        let at = self.records.binary_search_by_key(&offset, |(offset, _)| *offset);
        at.is_ok_and(|at| self.keys[self.records[at].1.clone()] == *key)
    }

    fn bytes(&self) -> usize {
        self.keys.capacity() + self.records.capacity() * size_of::<(Offset, Range<usize>)>()
    }
}

impl<'l> KeyCheck<'l> {
    pub(crate) fn new(log: &'l Log) -> Self {
        KeyCheck {
            log,
            bytes: Vec::new(),
            scratch: Vec::new(),
            kept: BTreeMap::new(),
            kept_bytes: 0,
            limit: KEPT_BYTES,
            looks: 0,
            reads: 0,
            #[cfg(test)]
            decoded: 0,
        }
    }

    /// Whether the record at `offset` has this key. `false` where there is no such record.
    pub(crate) fn is(&mut self, key: &[u8], offset: Offset) -> Result<bool> {
        self.looks += 1;
        if let Some((_, keys)) = self.kept.range_mut(offset..).next().filter(|(_, keys)| keys.first <= offset)
        {
            keys.used = self.looks;
            return Ok(keys.is(key, offset));
        }
        // The log start may have moved: what lies below is superseded by nothing that can be read.
        if offset < self.log.log_start_offset() {
            return Ok(false);
        }
        let fetch = self.log.read(offset, 1, Isolation::LogEnd, true)?;
        let Some(region) = fetch.region else { return Ok(false) };
        self.bytes.clear();
        region.copy_into(&mut self.bytes)?;
        self.reads += 1;
        if self.reads.is_multiple_of(READS_PER_RELEASE) {
            self.log.release_idle_segments()?;
        }
        let corrupt = |source| Error::corrupt(&region.file().file().path(), region.position(), source);
        let Some(batch) = Batches::new(&self.bytes).next() else { return Ok(false) };
        let batch = batch.map_err(corrupt)?;
        let last = batch.last_offset();
        let mut keys = Keys::of(&batch, &mut self.scratch).map_err(corrupt)?;
        #[cfg(test)]
        {
            self.decoded += 1;
        }
        keys.used = self.looks;
        let same = keys.is(key, offset);
        self.kept_bytes += keys.bytes();
        if let Some(replaced) = self.kept.insert(last, keys) {
            self.kept_bytes -= replaced.bytes();
        }
        while self.kept_bytes > self.limit && self.kept.len() > 1 {
            let Some(oldest) = self.kept.iter().min_by_key(|(_, keys)| keys.used).map(|(last, _)| *last)
            else {
                break;
            };
            if let Some(gone) = self.kept.remove(&oldest) {
                self.kept_bytes -= gone.bytes();
            }
        }
        Ok(same)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use bytes::{Bytes, BytesMut};
    use kseg_format::{BatchOptions, Codec, LeaderEpoch, Origin, RecordBatchBuilder, Timestamp};
    use kseg_io_backends::{Backend, OpenHow, write_all};
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

    /// Batches of records with the keys `0`, `1`, ... each, compressed.
    fn batches(count: usize, records: usize) -> Log {
        batches_on(kseg_io_backends::open("memory").unwrap(), count, records)
    }

    fn batches_on(backend: Arc<dyn Backend>, count: usize, records: usize) -> Log {
        let log = Log::open(Path::new("/t-0"), OpenOptions::new(backend)).unwrap();
        for _ in 0..count {
            let options = BatchOptions { codec: Codec::Gzip, ..BatchOptions::default() };
            let mut builder = RecordBatchBuilder::new(options);
            for n in 0..records {
                builder
                    .append(Some(Timestamp::new(1)), Some(n.to_string().as_bytes()), Some(b"value"), &[])
                    .unwrap();
            }
            let mut batch = BytesMut::new();
            builder.finish(&mut batch).unwrap();
            log.append_as_leader(batch, LeaderEpoch::new(0), Origin::Client).unwrap();
        }
        log
    }

    #[test]
    fn a_batch_is_decoded_once_for_all_its_records() {
        let log = batches(4, 100);
        let mut check = KeyCheck::new(&log);
        // Those of one batch after another, and of all in turns.
        for offset in (0..400).chain((0..100).flat_map(|n| [n, 100 + n, 200 + n, 300 + n])) {
            let key = (offset % 100).to_string();
            assert!(check.is(key.as_bytes(), Offset::new(offset)).unwrap(), "{offset}");
            assert!(!check.is(b"another", Offset::new(offset)).unwrap(), "{offset}");
        }
        assert_eq!(check.decoded, 4);
        assert!(!check.is(b"0", Offset::new(400)).unwrap());
    }

    #[test]
    fn a_batch_that_cannot_be_read_is_told_with_its_place() {
        let backend = kseg_io_backends::open("memory").unwrap();
        let log = batches_on(backend.clone(), 2, 100);
        let first = log.read(Offset::ZERO, 1, Isolation::LogEnd, true).unwrap().region.unwrap();
        let at = first.len() as u64;
        // In the second batch, behind its header: no longer the beginning of a gzip member.
        let path = log.dir().join("00000000000000000000.log");
        let file = backend.open(&path, OpenHow::Write).unwrap();
        write_all(&*file, at + 61, Bytes::from_static(&[0; 10]).into()).unwrap();
        let mut check = KeyCheck::new(&log);
        assert!(check.is(b"7", Offset::new(7)).unwrap());
        let told = check.is(b"7", Offset::new(107)).unwrap_err().to_string();
        assert!(told.starts_with(&format!("{}: at position {at}: ", path.display())), "{told}");
    }

    #[test]
    fn the_keys_that_are_kept_are_bounded() {
        let log = batches(4, 100);
        let mut check = KeyCheck::new(&log);
        assert!(check.is(b"7", Offset::new(7)).unwrap());
        let each = check.kept_bytes;
        check.limit = 2 * each;
        for offset in [7, 107, 207, 307, 207, 307, 7] {
            assert!(check.is(b"7", Offset::new(offset)).unwrap());
            assert!(check.kept.len() <= 2 && check.kept_bytes <= 2 * each);
        }
        assert_eq!(check.decoded, 5);
        check.limit = 0;
        assert!(check.is(b"7", Offset::new(107)).unwrap() && check.is(b"8", Offset::new(108)).unwrap());
        assert_eq!((check.decoded, check.kept.len()), (6, 1));
    }

    #[test]
    fn keys_of_one_hash_are_told_apart_on_request() {
        // The first record is superseded by its key's later one, the second by nothing but the hash.
        assert_eq!(cleaned(true), (vec![KEYS[1].to_vec(), KEYS[2].to_vec()], 1));
        assert_eq!(cleaned(false), (vec![KEYS[2].to_vec()], 0));
    }
}
