//! Dropping a suffix of the log, or all of it.

use std::sync::Arc;

use kseg_format::Offset;
use kseg_segment::Segment;
use tracing::{info, warn};

use crate::error::{Error, Result};
use crate::leader_epoch::FileWrite;
use crate::log::{Deferred, Inner, Log, Writer};
use crate::marks::{Mark, Place};

impl Log {
    /// Drops every batch that holds or lies above `offset`: the log ends at `offset` then. Returns whether anything was
    /// dropped; at or above the log end only leader epochs without data go.
    ///
    /// On return the truncation is durable: what is appended next cannot mix with what was cut.
    ///
    /// Segments that go are renamed now and removed after `file.delete.delay.ms`. Regions that readers hold of what was
    /// dropped from the segment that stays give other bytes from then on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] below 0; [`Error::Segment`], [`Error::Io`].
    ///
    /// Source: Kafka `UnifiedLog.truncateTo`.
    pub fn truncate_to(&self, offset: Offset) -> Result<bool> {
        if offset < Offset::ZERO {
            return Err(Error::InvalidArgument {
                what: format!("truncation to offset {offset}: expected 0 or more"),
            });
        }
        self.inner.locked_alone(|writer, deferred| {
            self.inner.check_writable()?;
            self.inner.whole(self.inner.truncate_to(writer, deferred, offset))
        })
    }

    /// As [`truncate_to`](Self::truncate_to) where no sealed segment is reached; `None`, and nothing is changed, where one is.
    ///
    /// # Errors
    /// As there.
    pub fn truncate_active_to(&self, offset: Offset) -> Result<Option<bool>> {
        self.inner.locked(|writer, deferred| {
            self.inner.check_writable()?;
            if offset < self.inner.active()?.base_offset() {
                return Ok(None);
            }
            self.inner.whole(self.inner.truncate_to(writer, deferred, offset)).map(Some)
        })
    }

    /// Drops everything; the log then ends at `offset`, and begins there or at `log_start`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a negative offset; [`Error::Segment`], [`Error::Io`].
    ///
    /// Source: Kafka `UnifiedLog.truncateFullyAndStartAt`.
    pub fn truncate_fully_and_start_at(&self, offset: Offset, log_start: Option<Offset>) -> Result<()> {
        if offset < Offset::ZERO || log_start.is_some_and(|s| s < Offset::ZERO) {
            return Err(Error::InvalidArgument {
                what: format!("truncation to offset {offset}: expected 0 or more"),
            });
        }
        self.inner.locked_alone(|writer, deferred| {
            self.inner.check_writable()?;
            self.inner.whole(self.inner.truncate_fully(writer, deferred, offset, log_start))
        })
    }
}

impl Inner {
    /// A truncation that failed half way leaves a log that only opening it again can make whole: it takes no change.
    pub(crate) fn whole<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.fence.set(error);
        }
        result
    }

    fn truncate_to(
        self: &Arc<Self>,
        writer: &mut Writer,
        deferred: &mut Deferred,
        offset: Offset,
    ) -> Result<bool> {
        let log_end = self.marks().log_end.offset;
        let dir = self.dir.display();
        let high_watermark = self.marks().high_watermark.offset;
        if offset < high_watermark {
            let (offset, high_watermark) = (offset.get(), high_watermark.get());
            warn!(%dir, offset, high_watermark, "truncating below the high watermark");
        }
        if offset >= log_end {
            info!(%dir, offset = offset.get(), log_end = log_end.get(), "truncation has no effect");
            if self.epochs.write().truncate_from_end(log_end).write == FileWrite::Background {
                self.write_epochs_later(deferred);
            }
            return Ok(false);
        }
        info!(%dir, offset = offset.get(), log_end = log_end.get(), "truncating");
        let segments = self.segments();
        let first = segments.as_slice().first().map(|s| s.base_offset());
        if first.is_none_or(|base| base > offset) {
            self.truncate_fully(writer, deferred, offset, None)?;
            return Ok(true);
        }
        let gone: Vec<_> = segments.as_slice().iter().filter(|s| s.base_offset() > offset).cloned().collect();
        writer.cuts += u64::from(!gone.is_empty());
        let kept = Arc::new(segments.without(|s| s.base_offset() > offset));
        *self.segments.write() = kept;
        let active = self.active()?;
        self.settle_cut(offset);
        {
            // Readers stop at the new end before bytes go; its position is known only when they have gone.
            let mut marks = self.marks.write();
            let position = active.size();
            marks.truncate(offset, offset, Place { segment: active.base_offset(), position });
        }
        let now_ms = self.clock.now_ms();
        self.fence_on(active.truncate_to(offset, now_ms).map_err(|e| self.wrap(e)))?;
        {
            let mut marks = self.marks.write();
            let place = Place { segment: active.base_offset(), position: active.size() };
            marks.set_log_end(offset, place);
            marks.log_start = marks.log_start.min(offset);
        }
        let bases: Vec<_> = gone.iter().map(|s| s.base_offset()).collect();
        self.delete_later(gone, deferred)?;
        self.cut_is_durable(&active)?;
        self.delete_snapshots_later(writer, &bases, deferred)?;
        if self.epochs.write().truncate_from_end(offset).write == FileWrite::Background {
            self.write_epochs_later(deferred);
        }
        let log_start = self.marks().log_start;
        self.rebuild_producers_again(writer, log_start, offset)?;
        let refreshed = self.marks.write().refresh_high_watermark();
        if refreshed {
            self.high_watermark_moved(writer);
        }
        Ok(true)
    }

    /// Makes a truncation durable: else, after a loss of power, batches that were cut could be back between those that
    /// came in their place.
    fn cut_is_durable(&self, active: &Segment) -> Result<()> {
        self.backend.names().sync_dir(&self.dir)?;
        self.fence_on(active.flush(false).map_err(|e| self.wrap(e)))
    }

    fn truncate_fully(
        self: &Arc<Self>,
        writer: &mut Writer,
        deferred: &mut Deferred,
        offset: Offset,
        log_start: Option<Offset>,
    ) -> Result<()> {
        writer.cuts += 1;
        self.settle_cut(Offset::ZERO);
        let segments = self.segments();
        let all = segments.as_slice().to_vec();
        // A segment with the new base has to give up its file names first.
        self.delete_later(all, deferred)?;
        let segment = self.new_segment(offset)?;
        self.backend.names().sync_dir(&self.dir)?;
        let list = segments.without(|_| true).with(segment);
        let log_start = log_start.unwrap_or(offset);
        *self.segments.write() = Arc::new(list);
        {
            let mut marks = self.marks.write();
            marks.log_start = log_start;
            marks.truncate(Offset::ZERO, offset, Place { segment: offset, position: 0 });
            marks.high_watermark = Mark::at(log_start);
            marks.set_high_watermark(offset);
            marks.first_unstable = None;
        }
        if self.epochs.write().clear_and_flush().write != FileWrite::None {
            self.write_epochs()?;
        }
        self.reset_producers(writer, offset)?;
        self.rebuild_producers_again(writer, log_start, offset)?;
        self.high_watermark_moved(writer);
        Ok(())
    }
}
