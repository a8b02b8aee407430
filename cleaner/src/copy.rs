//! The second pass: segments are copied without what is superseded.
//!
//! Source: Kafka `Cleaner.cleanSegments`, `cleanInto`.

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use kseg_format::{
    AbortedTransaction, Batch, BatchFate, Batches, DecodeError, FilterError, FilterOptions, Offset,
    ProducerId, Record, Retention, Timestamp,
};
use kseg_log::{Finished, LastRecord, Log, Replacement, Sealed};

use crate::chunks::Chunks;
use crate::error::{Error, Result};
use crate::keys::KeyCheck;
use crate::offset_map::OffsetMap;
use crate::options::NullKey;
use crate::round::{Cleaner, Work, millis};
use crate::stats::RoundStats;
use crate::transactions::Transactions;

impl Cleaner {
    /// Copies a group and swaps the copy in.
    pub(crate) fn copy_group(
        &mut self,
        work: &Work<'_>,
        group: &[Sealed],
        transactions: &mut Transactions,
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
        let mut into = match work.write {
            true => Some(Output::begin(log, first.base_offset(), modified)?),
            false => None,
        };
        let mut out = BytesMut::new();
        for sealed in group {
            // All of the segment, also behind what the map reaches: the new index is to be complete.
            transactions.expect(log.aborted_for_cleaning(sealed.base_offset(), sealed.end_offset())?);
            let segment = sealed.segment();
            let mut keep = Keep {
                map: &self.map,
                transactions: &mut *transactions,
                producers: &producers,
                bound: work.bound,
                now: work.dirty.now,
                keep_legacy_deletes: segment.modified()?.is_none_or(|m| millis(m) > work.keep_deletes_after),
                null_key: self.options.null_key,
                keys: self.options.verify_keys.then(|| KeyCheck::new(log)),
                position: 0,
                drops: false,
                useless_marker: false,
                invalid: 0,
                collisions: 0,
                failed: None,
            };
            let buffer = &mut self.buffer;
            let mut chunks =
                Chunks::new(segment, segment.region_from(None)?, buffer, self.options.io_buffer_bytes);
            loop {
                work.pace.check()?;
                let (at, path) = (chunks.position(), chunks.path().to_path_buf());
                let chunk = chunks.next()?;
                if chunk.is_empty() {
                    break;
                }
                work.pace.moved(chunk.len() as u64);
                let mut read = 0;
                loop {
                    keep.position = at + read as u64;
                    let filtered = self.filter.run(&chunk[read..], &mut keep, &mut out);
                    if let Some(error) = keep.failed.take() {
                        return Err(error.placed(&path));
                    }
                    let filtered = filtered.map_err(|e| rebuild_error(e, &path, at + read as u64))?;
                    if filtered.bytes_read == 0 {
                        break;
                    }
                    read += filtered.bytes_read;
                    stats.bytes_read += filtered.bytes_read as u64;
                    stats.bytes_written += filtered.bytes_retained as u64;
                    stats.records_read += filtered.records_read;
                    stats.records_written += filtered.records_retained;
                    let ended = keep.transactions.take_ended();
                    let Some(into) = &mut into else {
                        out.clear();
                        continue;
                    };
                    into.note_aborted(ended);
                    if !out.is_empty() {
                        let batches = out.split().freeze();
                        let written = batches.len() as u64;
                        into.write(batches)?;
                        work.pace.moved(written);
                    }
                }
                chunks.advance(read);
            }
            chunks.shrink();
            stats.invalid_records += keep.invalid;
            stats.hash_collisions += keep.collisions;
        }
        stats.segments_read += group.len() as u64;
        let Some(into) = into else {
            stats.segments_written += 1;
            return Ok(());
        };
        let finished = into.finish()?;
        stats.segments_written += finished.len() as u64;
        log.replace_segments(group, &finished)?;
        Ok(())
    }
}

fn rebuild_error(error: FilterError, path: &Path, at: u64) -> Error {
    let position = at + error.position() as u64;
    match error {
        FilterError::Decode { source, .. } => Error::corrupt(path, position, source),
        source => Error::Rebuild { path: path.to_path_buf(), position, source },
    }
}

/// The new segments of a group: one, and another where the first can take no more (an index is full, an offset too far).
struct Output<'l> {
    log: &'l Log,
    modified: Option<SystemTime>,
    into: Replacement,
    finished: Vec<Finished>,
    /// Aborted transactions whose marker has not been written yet.
    aborted: Vec<AbortedTransaction>,
}

impl<'l> Output<'l> {
    fn begin(log: &'l Log, base: Offset, modified: Option<SystemTime>) -> Result<Output<'l>> {
        let into = log.begin_replacement(base)?;
        Ok(Output { log, modified, into, finished: Vec::new(), aborted: Vec::new() })
    }

    fn note_aborted(&mut self, ended: Vec<AbortedTransaction>) {
        self.aborted.extend(ended);
    }

    fn write(&mut self, mut batches: Bytes) -> Result<()> {
        loop {
            let room = self.into.room_for(&batches)?;
            if room > 0 {
                let part = batches.split_to(room);
                let last = last_offset(&part)?;
                self.into.append(last, part)?;
                self.write_aborted(last)?;
            }
            let Some(first) = first_base(&batches)? else { return Ok(()) };
            self.next_segment(first)?;
        }
    }

    /// The entries of transactions whose marker lies at or below `last`.
    fn write_aborted(&mut self, last: Offset) -> Result<()> {
        let count = self.aborted.iter().take_while(|t| t.last_offset <= last).count();
        for entry in self.aborted.drain(..count) {
            self.into.append_aborted(&entry)?;
        }
        Ok(())
    }

    fn next_segment(&mut self, base: Offset) -> Result<()> {
        if self.into.size() == 0 {
            // Its base is too far below the first batch: the next one begins there.
            self.log.remove_unfinished_replacements()?;
            self.into = self.log.begin_replacement(base)?;
            return Ok(());
        }
        let full = std::mem::replace(&mut self.into, self.log.begin_replacement(base)?);
        self.finished.push(full.finish(self.modified)?);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Finished>> {
        self.write_aborted(Offset::new(i64::MAX))?;
        self.finished.push(self.into.finish(self.modified)?);
        Ok(self.finished)
    }
}

fn last_offset(batches: &[u8]) -> Result<Offset> {
    let mut last = Offset::ZERO;
    for batch in Batches::new(batches) {
        last = last.max(batch.map_err(built)?.last_offset());
    }
    Ok(last)
}

fn first_base(batches: &[u8]) -> Result<Option<Offset>> {
    match Batches::new(batches).next() {
        None => Ok(None),
        Some(batch) => {
            let batch = batch.map_err(built)?;
            Ok(Some(batch.base_offset().unwrap_or(batch.last_offset())))
        }
    }
}

/// What came out of the filter is whole.
fn built(source: DecodeError) -> Error {
    Error::corrupt(Path::new(""), 0, source)
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
        batch.verify()?;
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
