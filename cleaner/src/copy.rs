//! The second pass: segments are copied without what is superseded.
//!
//! Source: Kafka `Cleaner.cleanSegments`, `cleanInto`.

use std::collections::HashMap;
use std::path::Path;

use bytes::BytesMut;
use kseg_format::{
    Batch, BatchFate, DecodeError, FilterError, FilterOptions, Offset, ProducerId, Record, Retention,
    Timestamp,
};
use kseg_log::{LastRecord, Sealed};

use crate::error::{Error, Result};
use crate::keys::KeyCheck;
use crate::offset_map::OffsetMap;
use crate::options::NullKey;
use crate::round::{Cleaner, Work, millis};
use crate::source::{Source, check_offsets};
use crate::stats::RoundStats;
use crate::transactions::Transactions;
use crate::writes::{Order, Writes};

impl Cleaner {
    /// Copies a group, of which `source` has the pieces next, and has the copy swapped in.
    pub(crate) fn copy_group<'w>(
        &mut self,
        work: &Work<'w>,
        group: &'w [Sealed],
        transactions: &mut Transactions,
        source: &mut Source<'_>,
        writes: &mut Writes<'w>,
        stats: &mut RoundStats,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(()) };
        let log = work.log;
        let producers = log.last_records_of_producers();
        *self.filter.options_mut() = FilterOptions {
            now: work.dirty.now,
            delete_retention_ms: log.config().delete_retention_ms,
            decompressed_limit: self.options.decompressed_limit,
            output_limit: self.options.io_buffer_bytes,
        };
        let modified = last.segment().modified()?;
        writes.give(Order::Begin { base: first.base_offset(), modified })?;
        let mut out = BytesMut::new();
        for sealed in group {
            // All of the segment, also behind what the map reaches: the new index is to be complete.
            transactions.expect(log.aborted_for_cleaning(sealed.base_offset(), sealed.end_offset())?);
            let segment = sealed.segment();
            let path = segment.path();
            let mut keep = Keep {
                sealed,
                map: &self.map,
                transactions: &mut *transactions,
                producers: &producers,
                bound: work.bound,
                now: work.dirty.now,
                keep_legacy_deletes: segment.modified()?.is_none_or(|m| millis(m) > work.keep_deletes_after),
                null_key: self.options.null_key,
                keys: self.options.verify_keys.then(|| KeyCheck::new(log)),
                position: 0,
                verified: false,
                drops: false,
                useless_marker: false,
                invalid: 0,
                collisions: 0,
                failed: None,
            };
            loop {
                work.pace.check()?;
                let Some(piece) = source.next()? else { break };
                work.pace.moved(piece.bytes.len() as u64);
                keep.verified = piece.verified;
                let mut read = 0;
                while read < piece.bytes.len() {
                    let at = piece.at + read as u64;
                    keep.position = at;
                    let filtered = self.filter.run(&piece.bytes[read..], &mut keep, &mut out);
                    if let Some(error) = keep.failed.take() {
                        return Err(error.placed(&path));
                    }
                    let filtered = filtered.map_err(|e| rebuild_error(e, &path, at))?;
                    if filtered.bytes_read == 0 {
                        break;
                    }
                    read += filtered.bytes_read;
                    stats.bytes_read += filtered.bytes_read as u64;
                    stats.bytes_written += filtered.bytes_retained as u64;
                    stats.records_read += filtered.records_read;
                    stats.records_written += filtered.records_retained;
                    let ended = keep.transactions.take_ended();
                    if !ended.is_empty() {
                        writes.give(Order::Aborted(ended))?;
                    }
                    if out.is_empty() {
                        continue;
                    }
                    if work.write {
                        let batches = out.split().freeze();
                        let written = batches.len() as u64;
                        writes.give(Order::Batches(batches))?;
                        work.pace.moved(written);
                    } else {
                        out.clear();
                    }
                }
            }
            stats.invalid_records += keep.invalid;
            stats.hash_collisions += keep.collisions;
            log.let_go(sealed);
            if self.options.verify_keys {
                log.release_idle_segments()?;
            }
        }
        stats.segments_read += group.len() as u64;
        stats.segments_written += u64::from(!work.write);
        writes.give(Order::Complete(group))
    }
}

fn rebuild_error(error: FilterError, path: &Path, at: u64) -> Error {
    let position = at + error.position() as u64;
    match error {
        FilterError::Decode { source, .. } => Error::corrupt(path, position, source),
        source => Error::Rebuild { path: path.to_path_buf(), position, source },
    }
}

/// Why a batch cannot be judged.
pub(crate) enum Failure {
    /// Its bytes, at this position of the file.
    Batch(u64, DecodeError),
    Other(Error),
}

impl Failure {
    fn placed(self, path: &Path) -> Error {
        match self {
            Failure::Batch(at, source) => Error::corrupt(path, at, source),
            Failure::Other(error) => error,
        }
    }
}

/// The rules for what stays of one segment.
struct Keep<'k> {
    sealed: &'k Sealed,
    map: &'k OffsetMap,
    transactions: &'k mut Transactions,
    producers: &'k HashMap<ProducerId, LastRecord>,
    bound: Offset,
    now: Timestamp,
    keep_legacy_deletes: bool,
    null_key: NullKey,
    keys: Option<KeyCheck<'k>>,
    /// Where the batch begins in the file.
    position: u64,
    /// The checksums have been looked at.
    verified: bool,
    /// All records of the batch go.
    drops: bool,
    /// The batch is a marker of which nothing else is left.
    useless_marker: bool,
    invalid: u64,
    collisions: u64,
    failed: Option<Failure>,
}

impl Keep<'_> {
    fn judge(&mut self, batch: &Batch<'_>) -> Result<BatchFate, DecodeError> {
        if !self.verified {
            batch.verify()?;
        }
        check_offsets(self.sealed, batch)?;
        let useless = if batch.is_control() {
            self.transactions.on_control(batch)?
        } else {
            self.transactions.on_data(batch)
        };
        self.useless_marker = useless && batch.is_control();
        self.drops =
            useless && (!batch.is_control() || batch.delete_horizon().is_some_and(|h| h <= self.now));
        // A message of an old format has no header that could be kept alone.
        let header_needed = !batch.magic().is_legacy()
            && (self.is_last_of_producer(batch) || batch.next_offset() == self.bound);
        Ok(match (header_needed, self.drops) {
            (true, _) => BatchFate::RetainEmpty,
            (false, true) => BatchFate::Delete,
            (false, false) => BatchFate::DeleteEmpty,
        })
    }

    /// By offset, not by sequence: producers may begin anew at 0 in each transaction.
    fn is_last_of_producer(&self, batch: &Batch<'_>) -> bool {
        let Some(last) = batch.producer_id().and_then(|id| self.producers.get(&id)) else { return false };
        match last.data {
            Some(offset) => batch.last_offset() == offset,
            None => batch.is_control() && batch.producer_epoch() == last.epoch,
        }
    }

    /// Whether no later record with the same key is known.
    fn is_latest(&mut self, key: &[u8], offset: Offset) -> bool {
        let Some(found) = self.map.get(key).filter(|found| *found > offset) else { return true };
        let Some(keys) = &mut self.keys else { return false };
        match keys.is(key, found) {
            Ok(true) => false,
            Ok(false) => {
                self.collisions += 1;
                true
            }
            Err(error) => {
                self.failed.get_or_insert(Failure::Other(error));
                true
            }
        }
    }
}

impl Retention for Keep<'_> {
    fn batch(&mut self, batch: &Batch<'_>) -> BatchFate {
        if self.failed.is_some() {
            return BatchFate::Delete;
        }
        let position = self.position;
        self.position += batch.size() as u64;
        self.judge(batch).unwrap_or_else(|error| {
            self.failed = Some(Failure::Batch(position, error));
            BatchFate::Delete
        })
    }

    fn is_marker_of_empty_transaction(&mut self, _batch: &Batch<'_>) -> bool {
        self.useless_marker
    }

    fn record(&mut self, batch: &Batch<'_>, record: &Record<'_>) -> bool {
        if self.drops {
            return false;
        }
        if batch.is_control() || self.map.latest_offset().is_none_or(|latest| record.offset() > latest) {
            return true;
        }
        let Some(key) = record.key() else {
            if self.null_key == NullKey::Keep {
                return true;
            }
            self.invalid += 1;
            return false;
        };
        if !self.is_latest(key, record.offset()) {
            return false;
        }
        record.value().is_some()
            || if batch.magic().is_legacy() {
                self.keep_legacy_deletes
            } else {
                batch.delete_horizon().is_none_or(|horizon| self.now < horizon)
            }
    }
}
