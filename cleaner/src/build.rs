//! The first pass: the latest offset of each key in the dirty section.
//!
//! Source: Kafka `Cleaner.buildOffsetMap`.

use kseg_format::{Batch, Batches, Offset};
use kseg_log::{Log, Sealed};

use crate::chunks::Chunks;
use crate::error::{Error, Result};
use crate::offset_map::OffsetMap;
use crate::round::{Cleaner, Pace};
use crate::stats::RoundStats;
use crate::transactions::Transactions;

impl Cleaner {
    /// Fills the map with the keys of `segments` from `first` on, until it is full or they end at `end`.
    pub(crate) fn build_map(
        &mut self,
        log: &Log,
        segments: &[Sealed],
        first: Offset,
        end: Offset,
        pace: &dyn Pace,
        stats: &mut RoundStats,
    ) -> Result<()> {
        let mut transactions = Transactions::default();
        if !segments.is_empty() {
            transactions.expect(log.aborted_for_cleaning(first, end)?);
        }
        for (n, sealed) in segments.iter().enumerate() {
            pace.check()?;
            let segment = sealed.segment();
            let from = Some(first).filter(|first| *first > sealed.base_offset());
            let mut chunks = Chunks::new(
                segment,
                segment.region_from(from)?,
                &mut self.buffer,
                self.options.io_buffer_bytes,
            );
            let mut indexing = Indexing {
                map: &mut self.map,
                usable: self.usable,
                first,
                transactions: &mut transactions,
                scratch: &mut self.scratch,
                limit: self.options.decompressed_limit,
                stats,
            };
            loop {
                pace.check()?;
                let (at, path) = (chunks.position(), chunks.path().to_path_buf());
                let chunk = chunks.next()?;
                if chunk.is_empty() {
                    break;
                }
                pace.moved(chunk.len() as u64);
                let mut walk = Batches::new(chunk);
                loop {
                    let position = walk.position();
                    let corrupt = |source| Error::corrupt(&path, at + position as u64, source);
                    let Some(batch) = walk.next() else { break };
                    let batch = batch.map_err(corrupt)?;
                    if !indexing.batch(&batch).map_err(corrupt)? {
                        return Ok(());
                    }
                }
                let read = walk.position();
                chunks.advance(read);
            }
            chunks.shrink();
            // Over a gap at the end of a segment, which would otherwise stay dirty for ever.
            let behind = segments.get(n + 1).map_or(end, Sealed::base_offset);
            if let Some(last) = behind.checked_add(-1) {
                self.map.set_latest_offset(last);
            }
        }
        Ok(())
    }
}

/// A map that is being filled.
struct Indexing<'i> {
    map: &'i mut OffsetMap,
    usable: usize,
    first: Offset,
    transactions: &'i mut Transactions,
    scratch: &'i mut Vec<u8>,
    limit: usize,
    stats: &'i mut RoundStats,
}

impl Indexing<'_> {
    /// Takes up a batch; `false` where the map is full.
    fn batch(&mut self, batch: &Batch<'_>) -> Result<bool, kseg_format::DecodeError> {
        let checked = batch.verify()?;
        if checked.is_control() {
            self.transactions.on_control(&checked)?;
            self.stats.map_records_read += 1;
        } else if self.transactions.on_data(&checked) {
            self.stats.map_records_read += checked.records_count().map_or(0, |n| n.max(0) as u64);
        } else {
            for record in checked.records(self.scratch, self.limit)? {
                let record = record?;
                if let Some(key) = record.key()
                    && record.offset() >= self.first
                {
                    if self.map.len() >= self.usable {
                        return Ok(false);
                    }
                    // Below what is usable there is always a free slot.
                    let _ = self.map.put(key, record.offset());
                }
                self.stats.map_records_read += 1;
            }
        }
        if checked.last_offset() >= self.first {
            self.map.set_latest_offset(checked.last_offset());
        }
        self.stats.map_bytes_read += checked.size() as u64;
        Ok(true)
    }
}
