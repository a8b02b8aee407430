//! Appending: check, assign, roll, write, publish.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kseg_format::{
    Assigned, BatchMut, Batches, Codec, LeaderEpoch, LeaderRules, Magic, Offset, Origin, ScanError,
    ScanRules, Timestamp, TimestampType, ValidationError, assign_offsets, scan_append,
};
use kseg_segment::{Segment, roll_reason};
use tracing::info;

use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::kept::Kept;
use crate::log::{Deferred, Inner, Log, Writer};
use crate::marks::Place;
use crate::producer_state::{ProducerBatch, TransactionRequest, TransactionVersion};
use crate::producers::Checked;

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AppendInfo {
    /// Offset of the first record; for batches of format versions 0 and 1 with offsets given, not known. Of a batch without
    /// records the one that the next record gets.
    pub first_offset: Option<Offset>,
    /// Offset of the last record; `None` where nothing was appended.
    pub last_offset: Option<Offset>,
    /// Largest timestamp of the batches.
    pub max_timestamp: Option<Timestamp>,
    /// The clock's time that the records got, where the topic says `LogAppendTime`; of a batch that had been appended before,
    /// its timestamp, whatever the topic says, as Kafka answers.
    pub log_append_time: Option<Timestamp>,
    /// The log start offset at the time.
    pub log_start_offset: Offset,
    /// Bytes of whole batches in what was given.
    pub size: usize,
}

/// An append on its way: what a look at the batches told, brought up to date as they are given their offsets.
#[derive(Clone, Copy, Debug)]
struct Analysis {
    first_offset: Option<Offset>,
    /// Last offset of the first batch.
    first_batch_last: Offset,
    last_offset: Offset,
    max_timestamp: Option<Timestamp>,
    valid_bytes: usize,
    source_codec: Codec,
    log_append_time: Option<Timestamp>,
    /// The leader epoch of all batches; `None` where they differ, or one has none.
    leader_epoch: Option<LeaderEpoch>,
    /// Some batch has a producer.
    any_producer: bool,
    now_ms: i64,
    /// The caller wants to know when it is durable.
    durable: bool,
}

impl Analysis {
    /// The first offset; where it is not known, one that is not below it.
    fn first(&self) -> Offset {
        self.first_offset.unwrap_or(self.first_batch_last)
    }
}

/// An append that is done, before the flush that may be due: that is run when the log's mutex has been released.
#[derive(Debug)]
pub(crate) struct Appended {
    info: AppendInfo,
    durability: Option<Durability>,
    flush_due: bool,
}

impl Appended {
    /// Runs the flush that is due.
    ///
    /// # Errors
    /// Those of the flush; the records are in the log.
    #[inline]
    pub(crate) fn finish(self) -> Result<AppendInfo> {
        if let (true, Some(durability)) = (self.flush_due, &self.durability) {
            durability.wait_for()?;
        }
        Ok(self.info)
    }

    /// As [`finish`](Self::finish), with the handle.
    pub(crate) fn finish_durable(mut self, log: &Arc<Inner>) -> Result<(AppendInfo, Durability)> {
        // Where nothing was appended there is nothing to wait for.
        let durability = self.durability.take().unwrap_or_else(|| log.ask(Offset::ZERO));
        if self.flush_due {
            durability.wait_for()?;
        }
        Ok((self.info, durability))
    }
}

impl Log {
    /// Appends whole batches as the partition's leader: their offsets are assigned from the log end offset on, and each
    /// gets `leader_epoch`.
    ///
    /// `batches` is what a producer sent: one batch of magic 2 with base offset 0 (or legacy messages, which are
    /// rewritten as magic 2); an incomplete batch at the end is left out. For [`Origin::RaftLeader`] the offsets and
    /// epochs are given. On return the records can be read; they are durable after [`flush`](Log::flush). The bytes are
    /// handed to the backend without a copy, in one write call; a caller who keeps a `BytesMut` and gives
    /// `buffer.split()` gets its memory back with the next `reserve`.
    ///
    /// # Errors
    /// [`Error::Decode`] on framing or a checksum; [`Error::Validation`] on contents, timestamps or missing keys, with
    /// the index of each bad record; [`Error::RecordTooLarge`] above `max.message.bytes`;
    /// [`Error::RecordSetTooLarge`] above `segment.bytes`; [`Error::InvalidRecord`] for a base offset that a producer does not
    /// send; [`Error::Producer`] for a sequence out of order, a fenced epoch, or a transaction that was not verified. In all
    /// these nothing is written and no offset is used. A batch that repeats one of its producer's last five is no error: it is
    /// not written again, and the answer is that of the first time. After a restart only the last of them is known, as in Kafka.
    /// [`Error::Segment`] where the write failed: on a full disk nothing is in the log and the next append may succeed, after
    /// any other failure the log is fenced. [`Error::Fenced`] after a failed write or flush; [`Error::Closed`];
    /// [`Error::Offline`] where the data directory is out of service.
    ///
    /// Source: Kafka `UnifiedLog.appendAsLeader`.
    pub fn append_as_leader(
        &self,
        batches: BytesMut,
        leader_epoch: LeaderEpoch,
        origin: Origin,
    ) -> Result<AppendInfo> {
        self.append_as_leader_in(batches, leader_epoch, origin, TransactionVersion::V0)
    }

    /// As [`append_as_leader`](Log::append_as_leader), with what the request that brought the batches says of their
    /// transactions: the version, which decides which producer epochs a marker may have, and the guard of a transaction
    /// that was verified (see [`start_verification`](Log::start_verification)). Either alone will do.
    ///
    /// # Errors
    /// As there.
    pub fn append_as_leader_in(
        &self,
        batches: BytesMut,
        leader_epoch: LeaderEpoch,
        origin: Origin,
        request: impl Into<TransactionRequest>,
    ) -> Result<AppendInfo> {
        let size = batches.len();
        let appended = self.lead(batches, leader_epoch, origin, request.into(), false);
        let info = appended.and_then(Appended::finish);
        self.inner.meter(size, &info);
        info
    }

    /// As [`append_as_leader_in`](Log::append_as_leader_in), and asks for durability: the handle tells when what was
    /// appended is durable. It says nothing of it where nobody waits for the handle or awaits it, and nothing else flushes.
    ///
    /// # Errors
    /// As there; those of the flush go to the handle.
    ///
    /// ```
    /// # use bytes::BytesMut;
    /// # use kseg_format::{BatchOptions, LeaderEpoch, Origin, RecordBatchBuilder, Timestamp};
    /// # use kseg_log::{Log, OpenOptions, TransactionVersion};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let log = Log::open(std::path::Path::new("/data/orders-0"), OpenOptions::new(kseg_io_backends::open("memory")?))?;
    /// # let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    /// # builder.append(Some(Timestamp::new(1)), None, Some(b"value"), &[])?;
    /// # let mut batch = BytesMut::new();
    /// # builder.finish(&mut batch)?;
    /// let epoch = LeaderEpoch::new(0);
    /// let (info, durability) =
    ///     log.append_as_leader_durable(batch, epoch, Origin::Client, TransactionVersion::V0)?;
    /// assert_eq!(info.last_offset, Some(kseg_format::Offset::ZERO)); // readable from here on
    /// durability.wait()?; // durable from here on
    /// # Ok(())
    /// # }
    /// ```
    pub fn append_as_leader_durable(
        &self,
        batches: BytesMut,
        leader_epoch: LeaderEpoch,
        origin: Origin,
        request: impl Into<TransactionRequest>,
    ) -> Result<(AppendInfo, Durability)> {
        let size = batches.len();
        let appended = self.lead(batches, leader_epoch, origin, request.into(), true);
        let durable = appended.and_then(|a| a.finish_durable(&self.inner));
        self.inner.meter(size, &durable);
        durable
    }

    pub(crate) fn lead(
        &self,
        mut batches: BytesMut,
        leader_epoch: LeaderEpoch,
        origin: Origin,
        request: TransactionRequest,
        durable: bool,
    ) -> Result<Appended> {
        let log = &self.inner;
        let Some(mut seen) = log.analyze(&batches, origin, leader_epoch)? else {
            return Ok(log.nothing_appended());
        };
        seen.durable = durable;
        batches.truncate(seen.valid_bytes);
        log.locked(|writer, deferred| {
            log.append_led(writer, deferred, batches, &mut seen, leader_epoch, (origin, request))
        })
    }

    /// Appends one batch that the batching writer has just built, the first `size` of these bytes: with a right checksum, whole
    /// records from offset 0 on, no producer, create times within the topic's limits and keys where the topic wants them.
    /// Without a leader epoch it gets the latest. Returns the bytes too, unless somebody still holds them.
    ///
    /// # Errors
    /// As [`append_as_leader`](Log::append_as_leader), without those on contents.
    pub(crate) fn append_built(
        &self,
        mut bytes: BytesMut,
        size: usize,
        leader_epoch: Option<LeaderEpoch>,
        now_ms: i64,
        durable: bool,
    ) -> (Result<Appended>, Option<BytesMut>) {
        let log = &self.inner;
        let decode = |source| Error::Decode { dir: log.dir.clone(), position: 0, source };
        let mut lent = None;
        let appended = log.locked(|writer, deferred| {
            if size as u64 > log.batch_size_max() {
                return Err(log.too_large(size));
            }
            log.check_writable()?;
            let kept = log.take_kept(writer)?;
            let leader_epoch = leader_epoch.or(kept.epoch).unwrap_or_else(|| self.epoch_or_first());
            let first = kept.log_end;
            let mut batch = BatchMut::parse(&mut bytes[..size]).map_err(decode)?;
            let last_offset_delta = i64::from(batch.header().last_offset_delta());
            let last = Offset::new(first.get().saturating_add(last_offset_delta));
            let max_timestamp = batch.header().max_timestamp();
            batch.set_last_offset(last);
            batch
                .set_leader_epoch(Some(leader_epoch))
                .map_err(|e| Error::InvalidArgument { what: format!("{}: {e}", log.dir.display()) })?;
            let seen = Analysis {
                first_offset: Some(first),
                first_batch_last: last,
                last_offset: last,
                max_timestamp,
                valid_bytes: size,
                source_codec: Codec::None,
                log_append_time: None,
                leader_epoch: Some(leader_epoch),
                any_producer: false,
                now_ms,
                durable,
            };
            let origin = (Origin::Client, TransactionRequest::default());
            let batch = lent.insert(bytes.freeze()).slice(..size);
            log.append_checked(writer, deferred, batch, &seen, origin, kept)
        });
        (appended, lent.and_then(|bytes| bytes.try_into_mut().ok()))
    }

    /// Appends batches that have their offsets and leader epochs, as a follower does. Gaps above the log end offset are
    /// accepted.
    ///
    /// The first batch whose leader epoch is above `leader_epoch` and all behind it are left out, without an error
    /// (KAFKA-18723). On return the records can be read; they are durable after [`flush`](Log::flush).
    ///
    /// # Errors
    /// As [`append_as_leader`](Log::append_as_leader), but without a limit on a batch;
    /// [`Error::OffsetsOutOfOrder`] and [`Error::UnexpectedAppendOffset`] where offsets go back. Nothing is written; but of
    /// messages of magic 0 and 1 whose offsets are too far apart for one segment, those that fit the first may be in the log.
    ///
    /// Source: Kafka `UnifiedLog.appendAsFollower`.
    pub fn append_as_follower(&self, batches: Bytes, leader_epoch: LeaderEpoch) -> Result<AppendInfo> {
        let size = batches.len();
        let info = self.follow(batches, leader_epoch, false).and_then(Appended::finish);
        self.inner.meter(size, &info);
        info
    }

    /// As [`append_as_follower`](Log::append_as_follower), and asks for durability, as
    /// [`append_as_leader_durable`](Log::append_as_leader_durable) does.
    ///
    /// # Errors
    /// As there.
    pub fn append_as_follower_durable(
        &self,
        batches: Bytes,
        leader_epoch: LeaderEpoch,
    ) -> Result<(AppendInfo, Durability)> {
        let size = batches.len();
        let appended = self.follow(batches, leader_epoch, true);
        let durable = appended.and_then(|a| a.finish_durable(&self.inner));
        self.inner.meter(size, &durable);
        durable
    }

    fn follow(&self, batches: Bytes, leader_epoch: LeaderEpoch, durable: bool) -> Result<Appended> {
        let log = &self.inner;
        let Some(mut seen) = log.analyze(&batches, Origin::Replication, leader_epoch)? else {
            return Ok(log.nothing_appended());
        };
        let left_out = batches.len() - seen.valid_bytes;
        if left_out > 0 {
            let (dir, epoch) = (log.dir.display(), leader_epoch.get());
            info!(%dir, epoch, bytes = left_out, "batches of a newer leader epoch, or an incomplete one, left out");
        }
        seen.durable = durable;
        let batches = batches.slice(..seen.valid_bytes);
        log.locked(|writer, deferred| {
            log.check_writable()?;
            let kept = log.take_kept(writer)?;
            log.check_given(kept.log_end, &seen, &batches)?;
            if seen.first_offset.is_none() && seen.last_offset.relative_to(seen.first()).is_none() {
                return log.append_far_apart(writer, deferred, batches, &seen, leader_epoch, kept);
            }
            let origin = (Origin::Replication, TransactionRequest::default());
            log.append_checked(writer, deferred, batches, &seen, origin, kept)
        })
    }
}

impl Inner {
    /// Counts an append of `size` bytes where it was refused.
    #[inline]
    pub(crate) fn meter<T>(&self, size: usize, result: &Result<T>) {
        if let (Err(error), Some(health)) = (result, &self.health) {
            health.meters.refused(error, size);
        }
    }

    fn nothing_appended(&self) -> Appended {
        let info = AppendInfo {
            first_offset: None,
            last_offset: None,
            max_timestamp: None,
            log_append_time: None,
            log_start_offset: self.marks().log_start,
            size: 0,
        };
        Appended { info, durability: None, flush_due: false }
    }

    /// Looks at framing, checksums, sizes and order. `None` where there is no whole batch to append.
    fn analyze(&self, batches: &[u8], origin: Origin, leader_epoch: LeaderEpoch) -> Result<Option<Analysis>> {
        let now_ms = self.clock.now_ms();
        let batch_size_max = self.batch_size_max();
        let scanned = scan_append(batches, &ScanRules { origin, leader_epoch, batch_size_max })
            .map_err(|error| self.scan_error(error))?;
        Ok(scanned.map(|scanned| Analysis {
            first_offset: scanned.first_offset,
            first_batch_last: scanned.first_batch_last,
            last_offset: scanned.last_offset,
            max_timestamp: scanned.max_timestamp,
            valid_bytes: scanned.valid_bytes,
            source_codec: scanned.source_codec,
            log_append_time: None,
            leader_epoch: scanned.leader_epoch,
            any_producer: scanned.any_producer,
            now_ms,
            durable: false,
        }))
    }

    #[cold]
    fn invalid(&self, source: ValidationError) -> Error {
        Error::Validation { dir: self.dir.clone(), source }
    }

    /// The log's error for a batch that keeps an append from being made.
    #[cold]
    fn scan_error(&self, error: ScanError) -> Error {
        let dir = self.dir.clone();
        let invalid =
            |expected: String, found: String| Error::InvalidRecord { dir: self.dir.clone(), expected, found };
        match error {
            ScanError::Decode { position, source } => Error::Decode { dir, position, source },
            ScanError::LeaderEpoch { expected, found, .. } => {
                let found = format!("a batch of leader epoch {}", LeaderEpoch::to_raw(found));
                invalid(format!("epoch {expected}"), found)
            }
            ScanError::BaseOffset { found, .. } => {
                invalid("base offset 0".into(), format!("base offset {found}"))
            }
            ScanError::LastOffset { found, .. } => {
                let expected = "a last offset at or above the base offset";
                invalid(expected.into(), format!("last offset {found}"))
            }
            ScanError::TooLarge { size, limit, .. } => {
                Error::RecordTooLarge { dir, size, limit: i32::try_from(limit).unwrap_or(i32::MAX) }
            }
            ScanError::OutOfOrder { position, last_offset, .. } => {
                Error::OffsetsOutOfOrder { dir, position, last_offset }
            }
            // What is new in the format is named by itself.
            other => invalid("batches that can be appended".into(), other.to_string()),
        }
    }

    /// Given offsets must begin at or above the log end offset.
    fn check_given(&self, log_end: Offset, seen: &Analysis, batches: &[u8]) -> Result<()> {
        let mut first = seen.first();
        if first < log_end {
            if seen.first_offset.is_none()
                && let Some(Ok(batch)) = Batches::new(batches).next()
                && let Ok(base) = batch.base_offset_deep(&mut Vec::new(), i32::MAX as usize)
            {
                // Whoever starts the log over at the first offset needs the true one, which is inside.
                first = base;
            }
            return Err(self.unexpected_offset(first, seen.last_offset, log_end));
        }
        Ok(())
    }

    #[cold]
    fn unexpected_offset(&self, first: Offset, last: Offset, log_end: Offset) -> Error {
        Error::UnexpectedAppendOffset { dir: self.dir.clone(), first, last, log_end }
    }

    /// The error for offsets that name no record, or too many.
    #[cold]
    fn no_offsets(&self, first: Offset, last: Offset) -> Error {
        let what = format!(
            "{}: in an append: offsets from {first} on: expected a last one of at least that and at most {}, found {last}",
            self.dir.display(),
            i64::MAX - 1,
        );
        Error::InvalidArgument { what }
    }

    /// Gives a leader's batches their offsets, and appends them.
    fn append_led(
        self: &Arc<Self>,
        writer: &mut Writer,
        deferred: &mut Deferred,
        mut batches: BytesMut,
        seen: &mut Analysis,
        leader_epoch: LeaderEpoch,
        (origin, request): (Origin, TransactionRequest),
    ) -> Result<Appended> {
        self.check_writable()?;
        let mut kept = self.take_kept(writer)?;
        if origin == Origin::RaftLeader {
            self.check_given(kept.log_end, seen, &batches)?;
        } else {
            let first = kept.log_end;
            kept.rules.origin = origin;
            kept.rules.now = Timestamp::new(seen.now_ms);
            kept.rules.leader_epoch = leader_epoch;
            let assigned = self.assign(&mut batches, first, seen.source_codec, &kept.rules)?;
            if batches.is_empty() {
                // A batch without records, of which nothing is left where it has to be built anew.
                writer.kept = Some(kept);
                let nothing = self.nothing_appended();
                let info = AppendInfo { first_offset: Some(first), size: seen.valid_bytes, ..nothing.info };
                return Ok(Appended { info, ..nothing });
            }
            seen.first_offset = Some(first);
            seen.last_offset = Offset::new(assigned.next_offset.get().wrapping_sub(1));
            seen.max_timestamp = assigned.max_timestamp;
            seen.leader_epoch = Some(leader_epoch);
            seen.log_append_time = assigned.log_append_time;
        }
        self.append_checked(writer, deferred, batches.freeze(), seen, (origin, request), kept)
    }

    fn assign(
        &self,
        batches: &mut BytesMut,
        first: Offset,
        source_codec: Codec,
        rules: &LeaderRules,
    ) -> Result<Assigned> {
        let assigned = assign_offsets(batches, first, source_codec, rules).map_err(|e| self.invalid(e))?;
        if assigned.sizes_may_have_changed {
            self.check_sizes(batches)?;
        }
        debug_assert!(
            rules.timestamp_type == TimestampType::LogAppendTime || assigned.log_append_time.is_none()
        );
        Ok(assigned)
    }

    /// Batches that were built anew may have become larger than the log takes.
    #[inline(never)]
    fn check_sizes(&self, batches: &[u8]) -> Result<()> {
        for batch in Batches::new(batches) {
            let batch =
                batch.map_err(|source| Error::Decode { dir: self.dir.clone(), position: 0, source })?;
            let size = batch.header().size();
            if size as u64 > self.batch_size_max() {
                return Err(self.too_large(size));
            }
        }
        Ok(())
    }

    #[cold]
    fn set_too_large(&self, size: usize, limit: u64) -> Error {
        Error::RecordSetTooLarge { dir: self.dir.clone(), size, limit }
    }

    #[cold]
    fn too_large(&self, size: usize) -> Error {
        let limit = i32::try_from(self.batch_size_max()).unwrap_or(i32::MAX);
        Error::RecordTooLarge { dir: self.dir.clone(), size, limit }
    }

    /// The rest of an append, for batches whose offsets are final.
    ///
    /// Not inlined: in one function with what comes before it few values stay in registers.
    #[inline(never)]
    fn append_checked(
        self: &Arc<Self>,
        writer: &mut Writer,
        deferred: &mut Deferred,
        batches: Bytes,
        seen: &Analysis,
        (origin, request): (Origin, TransactionRequest),
        mut kept: Box<Kept>,
    ) -> Result<Appended> {
        let (first, last) = (seen.first(), seen.last_offset);
        // What goes on beyond the largest number there is begins again at the smallest.
        if last.get() == i64::MAX || last < first {
            return Err(self.no_offsets(first, last));
        }
        // The active segment may begin above the log end (a roll to a higher base that no append followed): nothing may be
        // written below its base.
        let base = kept.active.base_offset();
        if first < base {
            return Err(self.unexpected_offset(first, last, base));
        }
        if seen.leader_epoch.is_none() || seen.leader_epoch != kept.epoch {
            self.note_epochs(&batches)?;
        }
        let size_max = kept.segment_size_max;
        if batches.len() as u64 > size_max {
            return Err(self.set_too_large(batches.len(), size_max));
        }
        if self.roll_is_due(&kept, seen, batches.len())? {
            // The true first offset of an old compressed batch is inside it; this is a bound below it that fits.
            let fallback = Offset::new(seen.last_offset.get().saturating_sub(i64::from(i32::MAX)));
            self.roll(writer, deferred, Some(seen.first_offset.unwrap_or(fallback)))?;
            kept = self.take_kept(writer)?;
        }
        let active = &*kept.active;
        let place = Place { segment: active.base_offset(), position: active.size() };
        let update = if seen.any_producer {
            match self.check_producers(writer, &batches, origin, request, place)? {
                Checked::Append(update) => update,
                Checked::Duplicate(batch) => {
                    writer.kept = Some(kept);
                    return Ok(self.repeated(seen, &batch));
                }
            }
        } else {
            None
        };
        let len = batches.len() as u64;
        let position = match active.append(seen.last_offset, batches) {
            Ok(position) => position,
            Err(source) => return Err(self.append_failed(active, place, source)),
        };
        writer.appends += 1;
        self.note_append(writer.appends, seen.now_ms);
        let next = seen.last_offset.next();
        let place = Place { segment: active.base_offset(), position: position + len };
        let (unflushed, log_start_offset) = {
            let mut marks = self.marks.write();
            marks.set_log_end(next, place);
            marks.refresh_high_watermark();
            kept.set_log_end(next, self);
            (next.get().saturating_sub(marks.recovery_point.get()), marks.log_start)
        };
        let committed = self.commit_producers(writer, &kept.active, update, next);
        if let Err(error) = &committed {
            // The marker is in the log: recovery makes the entry from it.
            self.fence.set(error);
        }
        committed?;
        if !writer.producers.is_empty() {
            self.high_watermark_moved(writer);
        }
        let flush_due = unflushed >= kept.flush_messages;
        writer.kept = Some(kept);
        let durability = (seen.durable || flush_due).then(|| self.ask(next));
        let info = AppendInfo {
            first_offset: seen.first_offset,
            last_offset: Some(seen.last_offset),
            max_timestamp: seen.max_timestamp,
            log_append_time: seen.log_append_time,
            log_start_offset,
            size: seen.valid_bytes,
        };
        Ok(Appended { info, durability, flush_due })
    }

    /// Appends a follower's messages of magic 0 and 1 of which no segment can hold all: as many of them at a time as one can.
    ///
    /// Kafka writes them into one, which begins above the first of them: no timestamp finds those, and a log that was not closed
    /// in order cannot be opened any more.
    #[cold]
    fn append_far_apart(
        self: &Arc<Self>,
        writer: &mut Writer,
        deferred: &mut Deferred,
        mut batches: Bytes,
        seen: &Analysis,
        leader_epoch: LeaderEpoch,
        mut kept: Box<Kept>,
    ) -> Result<Appended> {
        if batches.len() as u64 > kept.segment_size_max {
            return Err(self.set_too_large(batches.len(), kept.segment_size_max));
        }
        let origin = Origin::Replication;
        let mut appended = self.nothing_appended();
        while !batches.is_empty() {
            let near = batches.split_to(self.len_for_one_segment(&batches)?);
            let Some(looked_at) = self.analyze(&near, origin, leader_epoch)? else { break };
            let looked_at = Analysis { durable: seen.durable, ..looked_at };
            let origin = (origin, TransactionRequest::default());
            appended = self.append_checked(writer, deferred, near, &looked_at, origin, kept)?;
            kept = self.take_kept(writer)?;
        }
        let (max_timestamp, size) = (seen.max_timestamp, seen.valid_bytes);
        let info = AppendInfo { first_offset: None, max_timestamp, size, ..appended.info };
        Ok(Appended { info, ..appended })
    }

    /// Bytes of the batches, from the first on, whose last offsets one segment can hold.
    fn len_for_one_segment(&self, batches: &[u8]) -> Result<usize> {
        let mut walk = Batches::new(batches);
        let mut first = None;
        loop {
            let position = walk.position();
            let Some(batch) = walk.next() else { return Ok(position) };
            let batch = batch.map_err(|source| Error::Decode { dir: self.dir.clone(), position, source })?;
            let last = batch.header().last_offset();
            if last.relative_to(*first.get_or_insert(last)).is_none() {
                return Ok(position);
            }
        }
    }

    /// The answer to an append that repeats `batch`, which is in the log.
    #[cold]
    fn repeated(self: &Arc<Self>, seen: &Analysis, batch: &ProducerBatch) -> Appended {
        let info = AppendInfo {
            first_offset: Some(batch.first_offset()),
            last_offset: Some(batch.last_offset()),
            max_timestamp: seen.max_timestamp,
            log_append_time: batch.timestamp(),
            log_start_offset: self.marks().log_start,
            size: seen.valid_bytes,
        };
        let durability = seen.durable.then(|| self.ask(batch.last_offset().next()));
        Appended { info, durability, flush_due: false }
    }

    /// The error of an append to `active`, which ended at `end` before.
    #[cold]
    fn append_failed(&self, active: &Segment, end: Place, source: kseg_segment::Error) -> Error {
        let error = self.wrap(source);
        // Where the bytes are there, no offset names them: nothing may come behind them.
        if error.fences() || active.size() != end.position {
            self.fence.set(&error);
        }
        error
    }

    /// Each batch's leader epoch goes into the epoch cache; one of an older format empties it.
    #[cold]
    fn note_epochs(&self, batches: &[u8]) -> Result<()> {
        for batch in Batches::new(batches) {
            let header = *batch
                .map_err(|source| Error::Decode { dir: self.dir.clone(), position: 0, source })?
                .header();
            if header.magic() == Magic::V2 {
                let epoch = header.leader_epoch().unwrap_or(LeaderEpoch::new(-1));
                let base = header.base_offset().unwrap_or(Offset::ZERO);
                if !self.epochs.read().knows(epoch, base) {
                    self.assign_epoch(epoch, base)?;
                }
            } else {
                let had = !self.epochs.read().is_empty();
                if had {
                    let _ = self.epochs.write().clear_and_flush();
                    self.write_epochs()?;
                }
            }
        }
        Ok(())
    }

    /// Whether the active segment has to roll before an append of `size` bytes.
    fn roll_is_due(&self, kept: &Kept, seen: &Analysis, size: usize) -> Result<bool> {
        let (size_max, age_max) = (kept.segment_size_max, kept.age_max_ms);
        let check = kept
            .active
            .roll_check(seen.now_ms, size as u64, seen.max_timestamp, seen.last_offset, size_max, age_max)
            .map_err(|e| self.wrap(e))?;
        Ok(roll_reason(&check).is_some())
    }
}
