//! The first pass: the latest offset of each key in the dirty section.
//!
//! Source: Kafka `Cleaner.buildOffsetMap`.

use kseg_format::{Batch, Batches, Offset};
use kseg_log::Sealed;

use crate::error::{Error, Result};
use crate::offset_map::OffsetMap;
use crate::round::{Cleaner, Work};
use crate::source::{Source, check_offsets};
use crate::stats::RoundStats;
use crate::transactions::Transactions;

impl Cleaner {
    /// Fills the map with the keys of `segments` from `first` on, of which `source` has the pieces, until it is full or they
    /// end at `end`.
    pub(crate) fn build_map(
        &mut self,
        work: &Work<'_>,
        segments: &[Sealed],
        source: &mut Source<'_>,
        stats: &mut RoundStats,
    ) -> Result<()> {
        let (first, end) = (work.dirty.first, work.bound);
        let mut transactions = Transactions::default();
        if !segments.is_empty() {
            // Of a transaction that has ended below, neither data nor marker comes: whatever its producer did later would be
            // taken for aborted, its tombstones with it.
            let mut aborted = work.log.aborted_for_cleaning(first, end)?;
            aborted.retain(|transaction| transaction.last_offset >= first);
            transactions.expect(aborted);
        }
        let mut indexing = Indexing {
            map: &mut self.map,
            usable: self.usable,
            first,
            transactions,
            scratch: &mut self.scratch,
            limit: self.options.decompressed_limit,
            stats,
        };
        for (n, sealed) in segments.iter().enumerate() {
            work.pace.check()?;
            let path = sealed.segment().path();
            loop {
                work.pace.check()?;
                let Some(piece) = source.next()? else { break };
                work.pace.moved(piece.bytes.len() as u64);
                let mut walk = Batches::new(piece.bytes);
                loop {
                    let position = walk.position();
                    let corrupt = |source| Error::corrupt(&path, piece.at + position as u64, source);
                    let Some(batch) = walk.next() else { break };
                    let batch = batch.map_err(corrupt)?;
                    if !piece.verified {
                        batch.verify().map_err(corrupt)?;
                    }
                    check_offsets(sealed, &batch).map_err(corrupt)?;
                    if !indexing.batch(&batch).map_err(corrupt)? {
                        return Ok(());
                    }
                }
            }
            work.log.let_go(sealed);
            // Over a gap at the end of a segment, which would otherwise stay dirty for ever.
            let behind = segments.get(n + 1).map_or(end, Sealed::base_offset);
            if let Some(last) = behind.checked_add(-1) {
                indexing.map.set_latest_offset(last);
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
    transactions: Transactions,
    scratch: &'i mut Vec<u8>,
    limit: usize,
    stats: &'i mut RoundStats,
}

impl Indexing<'_> {
    /// Takes up a batch whose checksum is right; `false` where the map is full.
    fn batch(&mut self, batch: &Batch<'_>) -> Result<bool, kseg_format::DecodeError> {
        if batch.is_control() {
            self.transactions.on_control(batch)?;
            self.stats.map_records_read += 1;
        } else if self.transactions.on_data(batch) {
            self.stats.map_records_read += batch.records_count().map_or(0, |n| n.max(0) as u64);
        } else {
            for record in batch.records(self.scratch, self.limit)? {
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
        if batch.last_offset() >= self.first {
            self.map.set_latest_offset(batch.last_offset());
        }
        self.stats.map_bytes_read += batch.size() as u64;
        Ok(true)
    }
}
