//! A log's producers and their snapshot files: checking an append, taking it over, rebuilding the state from batches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kseg_format::{
    AbortedTransaction, Batch, BatchHeader, Batches, Offset, Origin, ProducerEpoch, ProducerId, Sequence,
};
use kseg_io_backends::{Backend, IoError, Kind};
use kseg_segment::{BatchReader, FileKind, Segment, Suffix, file_name, parse_file_name};

use crate::doubts::{DoubtReason, Doubts};
use crate::error::{Error, Result};
use crate::log::{Inner, Log, Writer, random};
use crate::marks::{Mark, Place};
use crate::producer_state::{
    BatchEffect, CompletedTransaction, EndMarker, ProducerBatch, ProducerState, ProducerUpdate,
    SegmentPosition, SnapshotStore, TransactionRequest, TransactionVersion, VerificationGuard,
};
use crate::segments::Segments;
use crate::sync::Ordering;

/// How long an idle producer is remembered, how often idle ones are looked for, and the longest timeout of a transaction: Kafka's defaults
/// (`producer.id.expiration.ms`, `producer.id.expiration.check.interval.ms`, `transaction.max.timeout.ms`).
pub(crate) const EXPIRATION_MS: i64 = 86_400_000;
pub(crate) const EXPIRATION_CHECK_MS: u64 = 600_000;
const TRANSACTION_TIMEOUT_MS_MAX: i64 = 900_000;

/// Snapshots are 46 bytes a producer; a longer file is none.
const SNAPSHOT_SIZE_MAX: u64 = i32::MAX as u64;

/// The state of a log without snapshots.
pub(crate) fn no_producers(expiration_ms: i64) -> ProducerState {
    ProducerState::new(expiration_ms, TRANSACTION_TIMEOUT_MS_MAX)
}

/// The snapshot files of one partition directory.
pub(crate) struct Snapshots<'l> {
    backend: &'l dyn Backend,
    dir: &'l Path,
}

impl<'l> Snapshots<'l> {
    pub(crate) fn new(backend: &'l dyn Backend, dir: &'l Path) -> Self {
        Snapshots { backend, dir }
    }

    fn path(&self, offset: Offset, suffix: Suffix) -> PathBuf {
        self.dir.join(file_name(offset, FileKind::Snapshot, suffix))
    }
}

impl SnapshotStore for Snapshots<'_> {
    type Error = IoError;

    fn list(&mut self) -> Result<Vec<Offset>, IoError> {
        let entries = self.backend.names().list(self.dir)?;
        let snapshots = entries.iter().filter(|e| e.kind == Kind::File).filter_map(|e| {
            let name = parse_file_name(e.name.to_str()?)?;
            (name.kind == FileKind::Snapshot && name.suffix == Suffix::None).then_some(name.offset)
        });
        Ok(snapshots.collect())
    }

    fn read(&mut self, offset: Offset) -> Result<Vec<u8>, IoError> {
        // A file that is gone reads as one that is empty: damaged, and the next older one is tried.
        let bytes = self.backend.names().read(&self.path(offset, Suffix::None), SNAPSHOT_SIZE_MAX)?;
        Ok(bytes.unwrap_or_default())
    }

    fn write(&mut self, offset: Offset, bytes: &[u8], durable: bool) -> Result<(), IoError> {
        self.backend.names().write(&self.path(offset, Suffix::None), bytes, durable)
    }

    fn delete(&mut self, offset: Offset) -> Result<(), IoError> {
        self.backend.names().remove(&self.path(offset, Suffix::None)).map(|_| ())
    }

    fn mark_deleted(&mut self, offset: Offset) -> Result<bool, IoError> {
        let from = self.path(offset, Suffix::None);
        if self.backend.names().stat(&from)?.is_none() {
            return Ok(false);
        }
        self.backend.names().rename(&from, &self.path(offset, Suffix::Deleted))?;
        Ok(true)
    }
}

/// The same files, none of which is changed: what is deleted or written is only forgotten or remembered by who asks for it.
struct ReadOnly<'l>(Snapshots<'l>);

impl SnapshotStore for ReadOnly<'_> {
    type Error = IoError;

    fn list(&mut self) -> Result<Vec<Offset>, IoError> {
        self.0.list()
    }

    fn read(&mut self, offset: Offset) -> Result<Vec<u8>, IoError> {
        self.0.read(offset)
    }

    fn write(&mut self, _: Offset, _: &[u8], _: bool) -> Result<(), IoError> {
        Ok(())
    }

    fn delete(&mut self, _: Offset) -> Result<(), IoError> {
        Ok(())
    }

    fn mark_deleted(&mut self, _: Offset) -> Result<bool, IoError> {
        Ok(false)
    }
}

/// An append as its producers see it.
pub(crate) enum Checked {
    /// It may be written; the update, if it has one, counts once it is.
    Append(Option<ProducerUpdate>),
    /// It repeats a batch that is in the log.
    Duplicate(ProducerBatch),
}

/// The marker in a control batch of a producer, whether the batch is a transactional one or not; `None` for one of data, without a
/// producer, or without a record.
fn marker_of(batch: &Batch<'_>) -> Result<Option<EndMarker>, kseg_format::DecodeError> {
    /// A control record is a few bytes; nothing compresses it.
    const LIMIT: usize = 1 << 20;
    let header = batch.header();
    if !header.is_control() || header.producer_id().is_none_or(|id| id.get() < 0) {
        return Ok(None);
    }
    let mut scratch = Vec::new();
    let Some(record) = batch.records(&mut scratch, LIMIT)?.next() else { return Ok(None) };
    EndMarker::of(&record?).map(Some)
}

/// Adds a batch that is in the log already. Returns the transactions that it ends, with the last stable offset at that
/// moment.
///
/// # Errors
/// Why the batch was left out of the state: it stays in the log all the same.
pub(crate) fn observe(
    state: &mut ProducerState,
    batch: &Batch<'_>,
    place: Place,
) -> Result<Vec<(CompletedTransaction, Offset)>, DoubtReason> {
    let mut ended = Vec::new();
    if batch.header().producer_id().is_none() {
        return Ok(ended);
    }
    let marker = marker_of(batch).map_err(DoubtReason::Marker)?;
    let mut update = ProducerUpdate::new(Origin::Replication, None);
    let _ = update
        .append_batch(state, batch.header(), marker.as_ref(), position(place))
        .map_err(DoubtReason::Producer)?;
    for completed in state.commit(update) {
        ended.push((completed, state.last_stable_offset(&completed)));
        // A transaction that the state lost to a damaged snapshot has no entry to complete; that snapshot is reported.
        let _ = state.complete(&completed);
    }
    Ok(ended)
}

/// The entry that an ended transaction leaves in the transaction index, if it was aborted.
pub(crate) fn aborted_entry((ended, stable): &(CompletedTransaction, Offset)) -> Option<AbortedTransaction> {
    ended.aborted.then_some(AbortedTransaction {
        producer_id: ended.producer,
        first_offset: ended.first_offset,
        last_offset: ended.last_offset,
        last_stable_offset: *stable,
    })
}

fn position(place: Place) -> Option<SegmentPosition> {
    Some(SegmentPosition { segment_base: place.segment, position: u32::try_from(place.position).ok()? })
}

impl Log {
    /// Begins the verification of a producer's next transaction, or goes on with the one under way. The caller then asks the
    /// transaction coordinator, and appends the transaction's first batch, whose first sequence is `sequence`, with the
    /// guard. `None` where there is nothing to verify: the producer has a transaction open in this epoch.
    ///
    /// Without verification ([`verify_transactions`](Log::verify_transactions)) guards are given out and dropped just the
    /// same, and nothing asks for them.
    ///
    /// # Errors
    /// [`Error::Producer`] for an epoch below the one known.
    ///
    /// Source: Kafka `UnifiedLog.maybeStartTransactionVerification`.
    pub fn start_verification(
        &self,
        producer: ProducerId,
        epoch: ProducerEpoch,
        sequence: Sequence,
        version: TransactionVersion,
    ) -> Result<Option<VerificationGuard>> {
        let log = &self.inner;
        let (fresh, now_ms) = (VerificationGuard::new(random()), log.clock.now_ms());
        let mut writer = log.writer.lock();
        let guard = writer.producers.start_verification(producer, (epoch, sequence), version, fresh, now_ms);
        guard.map_err(|source| Error::Producer { dir: log.dir.clone(), source })
    }

    /// The guard that is kept for a producer: of a verification that no batch or marker has ended yet.
    pub fn verification_guard(&self, producer: ProducerId) -> Option<VerificationGuard> {
        self.inner.writer.lock().producers.verification_guard(producer)
    }

    /// Whether a client's transaction may begin only with the guard of its verification, from the next append on.
    pub fn verify_transactions(&self, on: bool) {
        self.inner.verify_transactions.store(on, Ordering::Relaxed);
    }
}

impl Inner {
    /// Checks the producers of an append, of which the first byte will lie at `place`.
    pub(crate) fn check_producers(
        &self,
        writer: &Writer,
        batches: &[u8],
        origin: Origin,
        request: TransactionRequest,
        place: Place,
    ) -> Result<Checked> {
        let version = (origin != Origin::Replication).then_some(request.version);
        let mut update = ProducerUpdate::new(origin, version);
        // Whoever switches it off or on does so for the appends that follow: Relaxed.
        if self.verify_transactions.load(Ordering::Relaxed) {
            update = update.verified_by(request.guard);
        }
        let mut walk = Batches::new(batches);
        loop {
            let at = walk.position();
            let decode = |source| Error::Decode { dir: self.dir.clone(), position: at, source };
            let Some(batch) = walk.next() else { break };
            let batch = batch.map_err(decode)?;
            if batch.header().producer_id().is_none() {
                continue;
            }
            let marker = marker_of(&batch).map_err(decode)?;
            let place = Place { position: place.position + at as u64, ..place };
            let effect =
                update.append_batch(&writer.producers, batch.header(), marker.as_ref(), position(place));
            match effect.map_err(|source| Error::Producer { dir: self.dir.clone(), source })? {
                BatchEffect::Duplicate(batch) => return Ok(Checked::Duplicate(batch)),
                BatchEffect::Nothing | BatchEffect::Data | BatchEffect::Marker(_) => {}
            }
        }
        Ok(Checked::Append(Some(update)))
    }

    /// Takes over an append that has been written to `active` up to offset `next`. A transaction that it aborts counts as
    /// ended once it is in the transaction index: without that entry no reader would be told to pass its records over.
    pub(crate) fn commit_producers(
        &self,
        writer: &mut Writer,
        active: &Segment,
        update: Option<ProducerUpdate>,
        next: Offset,
    ) -> Result<()> {
        let state = &mut writer.producers;
        if let Some(update) = update {
            for completed in state.commit(update) {
                let stable = state.last_stable_offset(&completed);
                if let Some(aborted) = aborted_entry(&(completed, stable)) {
                    active.append_aborted(&aborted).map_err(|e| self.wrap(e))?;
                }
                // A transaction that the state lost to a damaged snapshot has no entry to complete.
                let _ = state.complete(&completed);
            }
        }
        state.set_map_end(next);
        Ok(())
    }

    pub(crate) fn snapshots(&self) -> Snapshots<'_> {
        Snapshots::new(&*self.backend, &self.dir)
    }

    /// Writes a producer snapshot at the map end, unless there is one.
    pub(crate) fn take_snapshot(&self, writer: &mut Writer, durable: bool) -> Result<()> {
        writer.producers.take_snapshot(&mut self.snapshots(), durable)?;
        Ok(())
    }

    /// Makes a snapshot durable that was taken without; one that is gone needs not be.
    pub(crate) fn sync_snapshot(&self, offset: Offset) -> Result<()> {
        let (names, path) = (self.backend.names(), self.snapshots().path(offset, Suffix::None));
        if names.stat(&path)?.is_some() {
            names.sync_file(&path)?;
        }
        Ok(())
    }

    pub(crate) fn remove_stray_snapshots(&self, writer: &mut Writer, bases: &BTreeSet<Offset>) -> Result<()> {
        writer.producers.remove_stray_snapshots(&mut self.snapshots(), bases)?;
        Ok(())
    }

    /// Forgets all producers and removes all snapshots.
    pub(crate) fn reset_producers(&self, writer: &mut Writer, offset: Offset) -> Result<()> {
        writer.producers.truncate_fully_and_start_at(&mut self.snapshots(), offset)?;
        Ok(())
    }

    /// A state that knows the snapshots of the directory and nothing else.
    pub(crate) fn list_producers(&self) -> Result<ProducerState> {
        let mut state = no_producers(self.producer_expiration_ms);
        state.list_snapshots(&mut self.snapshots())?;
        Ok(state)
    }

    /// Brings the producer state to offset `end`, from the newest snapshot and the batches behind it; takes snapshots at
    /// the bases of the last two segments and at `end`.
    ///
    /// Source: Kafka `UnifiedLog.rebuildProducerState`.
    pub(crate) fn rebuild_producers(
        &self,
        writer: &mut Writer,
        log_start: Offset,
        end: Offset,
        clean: bool,
        doubts: &mut Doubts,
    ) -> Result<()> {
        self.rebuild_producers_over(&self.segments(), writer, log_start, end, clean, doubts)
    }

    /// As [`rebuild_producers`](Self::rebuild_producers), for the segments that are known by then.
    pub(crate) fn rebuild_producers_over(
        &self,
        segments: &Segments,
        writer: &mut Writer,
        log_start: Offset,
        end: Offset,
        clean: bool,
        doubts: &mut Doubts,
    ) -> Result<()> {
        let last_two: Vec<Offset> = segments
            .as_slice()
            .iter()
            .rev()
            .take(2)
            .map(|s| s.base_offset())
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        if clean && writer.producers.latest_snapshot().is_none() {
            for offset in last_two.into_iter().chain([end]) {
                writer.producers.set_map_end(offset);
                self.take_snapshot(writer, true)?;
            }
            return Ok(());
        }
        let nothing_to_lose = writer.producers.is_empty() && writer.producers.map_end() >= end;
        let now_ms = self.clock.now_ms();
        for discarded in
            writer.producers.truncate_and_reload(&mut self.snapshots(), log_start, end, now_ms)?
        {
            let path = self.dir.join(file_name(discarded.offset, FileKind::Snapshot, Suffix::None));
            doubts.add(path, None, discarded.offset, DoubtReason::Snapshot(discarded));
        }
        let from = writer.producers.map_end();
        if end > from && !nothing_to_lose {
            for segment in segments.range(from, end)? {
                let map_end = writer.producers.map_end();
                let start = segment.base_offset().max(map_end).max(log_start);
                writer.producers.set_map_end(start);
                if last_two.contains(&segment.base_offset()) {
                    self.take_snapshot(writer, true)?;
                }
                self.scan_producers(&mut writer.producers, segment, start, end, doubts)?;
            }
        }
        writer.producers.set_map_end(end);
        self.take_snapshot(writer, true)
    }

    /// As [`rebuild_producers`](Self::rebuild_producers), for a log that is open: it has no report to say what is doubtful.
    pub(crate) fn rebuild_producers_again(
        &self,
        writer: &mut Writer,
        log_start: Offset,
        end: Offset,
    ) -> Result<()> {
        let mut doubts = Doubts::default();
        self.rebuild_producers(writer, log_start, end, false, &mut doubts)?;
        for doubt in doubts.into_parts().0 {
            self.troubles.note("rebuild-producers", Err::<(), _>(doubt));
        }
        Ok(())
    }

    /// The producers as they were at offset `end`, from the newest usable snapshot and the batches behind it. Changes no file.
    pub(crate) fn producers_at(
        &self,
        log_start: Offset,
        end: Offset,
        doubts: &mut Doubts,
    ) -> Result<ProducerState> {
        let mut store = ReadOnly(self.snapshots());
        let mut state = no_producers(self.producer_expiration_ms);
        state.list_snapshots(&mut store)?;
        // A damaged snapshot is reported by whoever removes it.
        let _ = state.truncate_and_reload(&mut store, log_start, end, self.clock.now_ms())?;
        for segment in self.segments().range(state.map_end(), end.max(state.map_end()))? {
            let start = segment.base_offset().max(state.map_end()).max(log_start);
            self.scan_producers(&mut state, segment, start, end, doubts)?;
        }
        Ok(state)
    }

    /// Adds the batches of one segment from `start` to `end`, as one append.
    pub(crate) fn scan_producers(
        &self,
        state: &mut ProducerState,
        segment: &Segment,
        start: Offset,
        end: Offset,
        doubts: &mut Doubts,
    ) -> Result<()> {
        let from = match segment.translate(start) {
            Ok(Some(found)) => found.position,
            Ok(None) => return Ok(()),
            // All of the segment is looked through then, and what lies below `start` left out.
            Err(kseg_segment::Error::Corrupt { .. }) => 0,
            Err(e) => return Err(self.wrap(e)),
        };
        let all = segment.region_from(None).map_err(|e| self.wrap(e))?;
        let mut walk = BatchReader::new(&**all.file(), from, segment.size());
        let mut update = ProducerUpdate::new(Origin::Replication, None);
        let mut next = start;
        loop {
            // What it says of its producer is not known; the batches behind it are read all the same.
            let mut passed = |at, e| doubts.add(segment.path(), Some(at), next, DoubtReason::Batch(e));
            let found = walk.next_readable(&mut passed).map_err(|e| self.wrap(e))?;
            let Some((position_in_file, batch)) = found else { break };
            let header: BatchHeader = *batch.header();
            if header.last_offset() >= end && header.base_offset().is_none_or(|base| base >= end) {
                break;
            }
            if header.last_offset() < start {
                continue;
            }
            next = header.next_offset();
            if header.producer_id().is_none() {
                continue;
            }
            let place = Place { segment: segment.base_offset(), position: position_in_file };
            let added = marker_of(&batch).map_err(DoubtReason::Marker).and_then(|marker| {
                update
                    .append_batch(state, &header, marker.as_ref(), position(place))
                    .map_err(DoubtReason::Producer)
            });
            // A batch that contradicts the state is in the log all the same.
            if let Err(reason) = added {
                let offset = header.base_offset().unwrap_or(header.last_offset());
                doubts.add(segment.path(), Some(position_in_file), offset, reason);
            }
        }
        for completed in state.commit(update) {
            let _ = state.complete(&completed);
        }
        Ok(())
    }

    /// The first unstable offset, with its place.
    pub(crate) fn first_unstable_mark(&self, writer: &Writer) -> Option<Mark> {
        writer.producers.first_unstable().map(|start| Mark {
            offset: start.offset,
            place: start.position.map(|p| Place { segment: p.segment_base, position: u64::from(p.position) }),
        })
    }
}
