//! Rolling: seal the active segment, start the next; and flushing.

use std::sync::Arc;
use std::time::Instant;

use kseg_format::Offset;
use kseg_io_backends::Verdict;
use kseg_segment::{FileKind, Suffix, file_name};
use tracing::info;

use crate::error::{Error, Result};
use crate::log::{Deferred, Inner, Log, Writer};
use crate::marks::Place;
use crate::segments::Segments;
use crate::sync::Ordering;

impl Log {
    /// Seals the active segment and starts a new one at the log end offset, or at `expected` where that is higher.
    /// Returns the new base offset. An empty active segment with that base is replaced.
    ///
    /// The sealed segment is flushed in the background; nothing is synced here.
    ///
    /// # Errors
    /// [`Error::Roll`] where a segment with data has the new base already, or the active one begins above it.
    ///
    /// Source: Kafka `UnifiedLog.roll`, `LocalLog.roll`.
    pub fn roll(&self, expected: Option<Offset>) -> Result<Offset> {
        self.inner.locked(|writer, deferred| {
            self.inner.check_writable()?;
            self.inner.roll(writer, deferred, expected)
        })
    }

    /// Lets the log end at `offset`, where that is higher: a gap at its end, which a segment that begins behind it keeps.
    pub(crate) fn end_at(&self, offset: Offset) -> Result<()> {
        self.inner.locked(|writer, deferred| {
            self.inner.check_writable()?;
            if self.inner.log_end() < offset {
                let base = self.inner.roll(writer, deferred, Some(offset))?;
                self.inner.marks.write().set_log_end(base, Place { segment: base, position: 0 });
            }
            Ok(())
        })
    }

    /// Makes everything below the log end offset durable, and moves the recovery point there. With `force_active` an
    /// empty active segment is flushed too, as at an orderly stop.
    ///
    /// Appends go on meanwhile; what they add is not covered. Whoever flushes or waits for records to be durable at the same
    /// time is served by the same syncs.
    ///
    /// # Errors
    /// [`Error::Segment`] where a sync fails: the log takes no more appends until it is opened again, and the recovery
    /// point stays.
    ///
    /// Source: Kafka `UnifiedLog.flush`.
    pub fn flush(&self, force_active: bool) -> Result<()> {
        let log_end = self.log_end_offset();
        if force_active {
            let flushed = self.inner.flush_to(log_end, true);
            self.inner.settle_durable();
            return flushed;
        }
        self.inner.flush_for(log_end)
    }
}

impl Inner {
    pub(crate) fn roll(
        self: &Arc<Self>,
        writer: &mut Writer,
        deferred: &mut Deferred,
        expected: Option<Offset>,
    ) -> Result<Offset> {
        let log_end = self.marks().log_end.offset;
        let base = expected.map_or(log_end, |e| e.max(log_end));
        let active = self.active()?;
        let segments = self.segments();
        let segment = if segments.get(base).is_some() {
            if active.base_offset() != base || active.size() > 0 {
                return Err(Error::Roll { dir: self.dir.clone(), base, active: active.base_offset() });
            }
            // Its index is full although it holds nothing: a fresh one takes its place (KAFKA-6388). Kafka opens both
            // indexes for its warning, so both files exist.
            active.open_indexes().map_err(|e| self.wrap(e))?;
            self.delete_later(vec![active], deferred)?;
            self.new_segment(base)?
        } else if base < active.base_offset() {
            return Err(Error::Roll { dir: self.dir.clone(), base, active: active.base_offset() });
        } else {
            for kind in FileKind::OF_SEGMENT {
                let path = self.dir.join(file_name(base, kind, Suffix::None));
                if self.backend.names().remove(&path)? {
                    let why = "a file of the new segment's name was there, and has been removed";
                    self.troubles.note("roll", Err::<(), _>(format!("{}: {why}", path.display())));
                }
            }
            active.seal().map_err(|e| self.wrap(e))?;
            self.new_segment(base)?
        };
        *self.segments.write() = Arc::new(segments.with(segment));
        {
            let mut marks = self.marks.write();
            marks.log_end.place = Some(Place { segment: base, position: 0 });
            marks.refresh_high_watermark();
        }
        writer.producers.set_map_end(base);
        self.take_snapshot(writer, false)?;
        self.high_watermark_moved(writer);
        info!(dir = %self.dir.display(), base = base.get(), "segment rolled");
        let log = Arc::downgrade(self);
        deferred.push("flush-log", 0, move || {
            let Some(log) = log.upgrade() else { return };
            // A log that is closed is flushed, or its partition is gone.
            let closed = || log.closed.load(Ordering::Acquire);
            if closed() {
                return;
            }
            // A snapshot that is not durable keeps the recovery point where it is.
            let synced = log.sync_snapshot(base);
            // A flush that fails also fences the log, and the next append or flush says so.
            let flushed = synced.and_then(|()| log.flush_to(base, false));
            log.settle_durable();
            let flushed = flushed.and_then(|()| log.release_left_behind());
            if !(closed()
                && matches!(flushed, Err(Error::Segment { source: kseg_segment::Error::Closed { .. }, .. })))
            {
                log.troubles.note("flush-log", flushed);
            }
        });
        Ok(base)
    }

    /// Makes durable what lies below `end` (with `inclusive`, also a segment that begins there), then moves the recovery
    /// point. Holds no lock across I/O; tells nobody who waits.
    pub(crate) fn flush_to(&self, end: Offset, inclusive: bool) -> Result<()> {
        self.check_health()?;
        if self.closed.load(Ordering::Acquire) {
            // One that is being closed in an orderly way is durable at the end of that.
            drop(self.writer.lock());
        }
        let flushed = self.noted(self.flush_once(end, inclusive));
        // Pairs with the store of `close`, which lets go of files that are still to be looked at here.
        if flushed.is_err() && self.closed.load(Ordering::Acquire) {
            drop(self.writer.lock());
            return if self.marks.read().durable >= end { Ok(()) } else { flushed };
        }
        flushed
    }

    /// One round of syncs; moves no mark where a truncation came in between.
    fn flush_once(&self, end: Offset, inclusive: bool) -> Result<()> {
        // The marks come first: a truncation that is not in them shows when the sync is done.
        let begun = self.marks();
        let flush_end = if inclusive { end.next() } else { end };
        if flush_end <= begun.durable {
            return Ok(());
        }
        if self.fence.is_set() {
            return Err(self.fenced());
        }
        if self.closed.load(Ordering::Acquire) && !self.abandoned.load(Ordering::Acquire) {
            // The partition has moved, and this is its old place.
            return Ok(());
        }
        let segments = self.segments();
        let active = segments.active().map_or(Offset::ZERO, |s| s.base_offset());
        // A truncation may have gone below `end`; a roll may have gone above the log end.
        let reached = end.min(begun.log_end.offset.max(active));
        self.sync_segments(&segments, begun.durable, flush_end)?;
        self.sync_new_names()?;
        if self.marks.write().flushed(reached, &begun) {
            self.last_flush_ms.store(self.clock.now_ms(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Flushes the segments of a list that may hold offsets of `[from, to)`.
    fn sync_segments(&self, segments: &Segments, from: Offset, to: Offset) -> Result<()> {
        let active = segments.active().map(|s| s.base_offset());
        for segment in segments.range(from, to)? {
            let sealed = active != Some(segment.base_offset());
            let begin = Instant::now();
            let flushed = self.fence_on(segment.flush(sealed).map_err(|e| self.wrap(e)));
            // One that has left the log meanwhile need not be durable, and its files may be gone.
            let left = || !self.segments().as_slice().iter().any(|s| Arc::ptr_eq(s, segment));
            if flushed.is_err() && !self.fence.is_set() && left() {
                continue;
            }
            flushed?;
            let took = begin.elapsed();
            self.pressure.flushed(took);
            if let Some(health) = &self.health {
                health.meters.flushed(took);
            }
        }
        Ok(())
    }

    /// Makes durable the names of segments that were made since this was done last.
    pub(crate) fn sync_new_names(&self) -> Result<()> {
        // Pairs with the additions: what was counted has its name.
        let made = self.names_made.load(Ordering::Acquire);
        if self.names_synced.load(Ordering::Acquire) >= made {
            return Ok(());
        }
        let synced = match self.backend.names().sync_dir(&self.dir) {
            // It has been renamed or removed, and the log in it is about to go.
            Err(e) if e.verdict() == Verdict::Absent => Ok(()),
            synced => synced.map_err(Error::from),
        };
        if synced.is_ok() {
            // Two may do this at a time, and the one that counted less may be the later one. Pairs with the load above.
            self.names_synced.fetch_max(made, Ordering::Release);
        }
        self.fence_on(synced)
    }
}

#[cfg(test)]
mod tests {
    use kseg_format::{BatchOptions, LeaderEpoch, Origin, RecordBatchBuilder};

    use super::*;
    use crate::open::OpenOptions;

    #[test]
    fn log_edge_89_a_segment_with_data_is_never_rolled_onto() {
        let backend = kseg_io_backends::open("memory").expect("memory is always there");
        let log = Log::open(std::path::Path::new("/data/t-0"), OpenOptions::new(backend)).expect("a log");
        let mut batch = RecordBatchBuilder::new(BatchOptions::default());
        batch.append(None, None, Some(b"v"), &[]).expect("a record");
        let mut bytes = bytes::BytesMut::new();
        batch.finish(&mut bytes).expect("a batch");
        log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Client).expect("an append");
        // As if the append had not moved the end: no call leaves a log like that.
        log.inner.marks.write().log_end.offset = Offset::ZERO;
        let refused = log.roll(None).expect_err("the base is taken");
        assert_eq!((refused.kafka_name(), log.size()), ("KafkaException", 69));
        assert_eq!(log.inner.segments().as_slice().len(), 1);
    }
}
