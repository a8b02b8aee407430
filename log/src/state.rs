//! A snapshot of a log's state, for tools and tests.

use std::sync::Arc;

use kseg_format::{AbortedTransaction, EpochEntry, Offset, ProducerId, Timestamp};
use kseg_index::{OffsetPosition, TimestampOffset};
use kseg_segment::Segment;

use crate::error::Result;
use crate::log::{Inner, Log};
use crate::producer_state::ProducerBatch;
use crate::trouble::Trouble;

/// All that a log knows of itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LogState {
    /// First offset that may be read.
    pub log_start: Offset,
    /// Next offset to be written.
    pub log_end: Offset,
    /// Exclusive bound of committed records.
    pub high_watermark: Offset,
    /// Exclusive bound of decided transactions.
    pub last_stable: Offset,
    /// First offset of a transaction that is not decided or not committed.
    pub first_unstable: Option<Offset>,
    /// First offset not known to be durable.
    pub recovery_point: Offset,
    /// Bytes in all segments.
    pub size: u64,
    /// Leader epochs, ascending.
    pub epochs: Vec<EpochEntry>,
    /// Producers, by ascending id.
    pub producers: Vec<ProducerInfo>,
    /// Segments, by ascending base offset.
    pub segments: Vec<SegmentState>,
    /// The last error of work in the background.
    pub last_trouble: Option<Trouble>,
}

/// What a log knows of one producer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProducerInfo {
    /// Its id.
    pub id: ProducerId,
    /// Its epoch; -1 where none is known.
    pub epoch: i16,
    /// Epoch of the coordinator that wrote its last marker; -1 where none is known.
    pub coordinator_epoch: i32,
    /// Timestamp of its last batch or marker.
    pub last_timestamp: Option<Timestamp>,
    /// First offset of its open transaction.
    pub transaction_start: Option<Offset>,
    /// Its last batches, oldest first, five at most.
    pub batches: Vec<ProducerBatch>,
}

/// What a log knows of one segment.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SegmentState {
    /// Its base offset.
    pub base_offset: Offset,
    /// Its size in bytes.
    pub size: u64,
    /// The largest timestamp of its batches.
    pub largest_timestamp: Option<Timestamp>,
    /// Entries of its offset index, if asked for.
    pub offset_entries: Vec<OffsetPosition>,
    /// Entries of its time index, if asked for.
    pub time_entries: Vec<TimestampOffset>,
    /// Its aborted transactions, if the index entries were asked for.
    pub aborted: Vec<AbortedTransaction>,
}

impl Log {
    /// The log's state, with the index entries of all segments if `with_indexes`. Opens every time index, and then also
    /// every offset index, which makes files that are missing.
    ///
    /// # Errors
    /// [`Error::Segment`](crate::Error::Segment) where an index cannot be opened.
    pub fn state(&self, with_indexes: bool) -> Result<LogState> {
        let log = &self.inner;
        let writer = log.writer.lock();
        let marks = log.marks();
        let mut segments = Vec::new();
        for segment in log.segments().as_slice() {
            let entries = || Ok((segment.offset_entries()?, segment.time_entries()?));
            let (offset_entries, time_entries) =
                if with_indexes { entries().map_err(|e| log.wrap(e))? } else { Default::default() };
            segments.push(SegmentState {
                base_offset: segment.base_offset(),
                size: segment.size(),
                largest_timestamp: segment
                    .largest()
                    .map_err(|e| log.wrap(e))?
                    .timestamp
                    .filter(|t| t.get() >= 0),
                offset_entries,
                time_entries,
                aborted: if with_indexes { segment.aborted().map_err(|e| log.wrap(e))? } else { Vec::new() },
            });
        }
        let producers = writer.producers.producers().into_iter().map(|p| ProducerInfo {
            id: p.id(),
            epoch: kseg_format::ProducerEpoch::to_raw(p.epoch()),
            coordinator_epoch: p.coordinator_epoch().unwrap_or(-1),
            last_timestamp: p.last_timestamp(),
            transaction_start: p.transaction_start(),
            batches: p.batches().to_vec(),
        });
        Ok(LogState {
            log_start: marks.log_start,
            log_end: marks.log_end.offset,
            high_watermark: marks.high_watermark.offset,
            last_stable: marks.last_stable().offset,
            first_unstable: marks.first_unstable.map(|m| m.offset),
            recovery_point: marks.recovery_point,
            size: log.segments().size(),
            epochs: log.epochs.read().entries().to_vec(),
            producers: producers.collect(),
            segments,
            last_trouble: log.troubles.last(),
        })
    }

    /// Forgets producers that have been idle too long, and verifications begun as long ago. Returns how many producers are
    /// left. The scheduler does it too, every `producer_expiration_check_ms`.
    pub fn expire_producers(&self) -> usize {
        self.inner.expire_producers()
    }

    /// Lets go of the descriptors and maps of sealed segments that are durable and that nobody has read since the last call:
    /// a log holds files for what is in use, however many segments it has. Returns for how many. Reads open them again. A log
    /// that is closed or fenced is left as it is.
    ///
    /// # Errors
    /// [`Error::Segment`](crate::Error::Segment) where index entries cannot be made durable; the files stay open.
    pub fn release_idle_segments(&self) -> Result<usize> {
        self.inner.release_idle(|segments| segments.windows(2).collect())
    }

    /// Writes a producer snapshot at the log end offset, unless there is one.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed), [`Error::Fenced`](crate::Error::Fenced); [`Error::Io`](crate::Error::Io).
    pub fn take_producer_snapshot(&self) -> Result<()> {
        self.inner.locked(|writer, _| {
            self.inner.check_writable()?;
            self.inner.take_snapshot(writer, true)
        })
    }
}

/// Sealed segments right before the active one that a roll leaves open: readers follow close behind.
const LEFT_OPEN: usize = 8;
/// Open segments that a roll looks at, however many are in use.
const LOOKED_AT: usize = 64;

impl Inner {
    /// As [`Log::release_idle_segments`], of the newest segments that are no longer next to the active one: a log that rolls often
    /// holds no more files for it.
    pub(crate) fn release_left_behind(&self) -> Result<usize> {
        self.release_idle(|segments| {
            let pairs = segments.windows(2).rev().skip(LEFT_OPEN);
            pairs.take(LOOKED_AT).take_while(|pair| pair[0].is_open()).collect()
        })
    }

    /// Lets go of idle segments among those that `choose` takes of the list, each with the one behind it.
    fn release_idle(&self, choose: impl FnOnce(&[Arc<Segment>]) -> Vec<&[Arc<Segment>]>) -> Result<usize> {
        if self.check_writable().is_err() {
            return Ok(0);
        }
        let recovery_point = self.marks().recovery_point;
        let segments = self.segments();
        let mut idle = Vec::new();
        for pair in choose(segments.as_slice()) {
            // Durable: all of it lies below the recovery point. The last is the active one.
            if pair[1].base_offset() <= recovery_point && pair[0].is_idle().map_err(|e| self.wrap(e))? {
                idle.push(pair[0].clone());
            }
        }
        if idle.is_empty() {
            return Ok(0);
        }
        // With the lock that changes of segments take: a truncation may be about to make one of them active.
        self.locked(|_, _| {
            let open = self.check_writable().is_ok();
            Ok(if open { idle.iter().filter(|segment| segment.rest()).count() } else { 0 })
        })
    }

    pub(crate) fn expire_producers(&self) -> usize {
        let now_ms = self.clock.now_ms();
        let mut writer = self.writer.lock();
        writer.producers.expire(now_ms);
        writer.producers.producers().len()
    }
}
