//! Carrying out retention: which segments go is decided in `retention.rs`.

use std::sync::Arc;

use kseg_format::Offset;
use kseg_segment::Segment;
use tracing::info;

use crate::error::{Error, PolicyReason, Result};
use crate::log::{Deferred, Inner, Log, Writer};
use crate::retention::{HeldBack, Limit, SegmentFacts, decide};

/// What a pass of retention did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Number of segments that were removed.
    pub deleted: usize,
    /// For each limit looked at: the first segment that stayed, and why. A segment whose largest timestamp lies in the
    /// future shows here.
    pub held_back: Vec<(Limit, Offset, HeldBack)>,
}

impl Log {
    /// Removes whole segments, oldest first, that lie below the log start offset or beyond `retention.bytes` or
    /// `retention.ms`: never one that reaches the high watermark, never leaving a hole. Where all data is to go the log
    /// rolls first, so that the active segment goes as a sealed one.
    ///
    /// The log start offset moves up before segments leave. Files are renamed now and removed after
    /// `file.delete.delay.ms`; readers that hold a region keep reading. Size and time count only where
    /// `cleanup.policy` has `delete`.
    ///
    /// # Errors
    /// [`Error::Segment`](crate::Error::Segment), [`Error::Io`](crate::Error::Io).
    ///
    /// Source: Kafka `UnifiedLog.deleteOldSegments`.
    pub fn delete_old_segments(&self) -> Result<Retained> {
        self.inner.locked_alone(|writer, deferred| {
            self.inner.check_writable()?;
            let config = self.inner.config();
            let mut done = Retained::default();
            let log_start = self.inner.marks().log_start;
            self.inner.retain(writer, deferred, Limit::StartOffset(log_start), &mut done)?;
            if config.cleanup_policy.delete {
                let total = self.inner.segments().size();
                self.inner.retain(
                    writer,
                    deferred,
                    Limit::Size { total, limit: config.retention_bytes },
                    &mut done,
                )?;
                let now_ms = self.inner.clock.now_ms();
                self.inner.retain(
                    writer,
                    deferred,
                    Limit::Time { now_ms, limit_ms: config.retention_ms },
                    &mut done,
                )?;
            }
            Ok(done)
        })
    }

    /// Deletes the records below `offset` for a client, or with `None` all below the high watermark. Returns the log start
    /// offset, below which nothing can be read from now on; the space is freed by later passes of retention, segment by
    /// segment.
    ///
    /// # Errors
    /// [`Error::OffsetOutOfRange`] for a negative offset or one above the high watermark; [`Error::Policy`] where
    /// `cleanup.policy` has `compact` and not `delete`, or the topic is one of Kafka's own.
    ///
    /// Source: Kafka `Partition.deleteRecordsOnLeader`, `ReplicaManager.deleteRecordsOnLocalLog`.
    pub fn delete_records_before(&self, offset: Option<Offset>) -> Result<Offset> {
        let log = &self.inner;
        let policy = log.config().cleanup_policy;
        let reason = if log.partition.is_internal() {
            Some(PolicyReason::InternalTopic)
        } else {
            (policy.compact && !policy.delete).then_some(PolicyReason::CompactOnly)
        };
        if let Some(reason) = reason {
            return Err(Error::Policy { dir: log.dir.clone(), reason });
        }
        log.locked(|writer, deferred| {
            let marks = log.marks();
            let high_watermark = marks.high_watermark.offset;
            let offset = offset.unwrap_or(high_watermark);
            if offset < Offset::ZERO {
                return Err(log.out_of_range(offset, marks.log_start, high_watermark));
            }
            log.increment_log_start(writer, deferred, offset)?;
            Ok(log.marks().log_start)
        })
    }
}

impl Inner {
    fn retain(
        self: &Arc<Self>,
        writer: &mut Writer,
        deferred: &mut Deferred,
        limit: Limit,
        done: &mut Retained,
    ) -> Result<()> {
        let segments = self.segments();
        let list = segments.as_slice();
        let marks = self.marks();
        let facts = list.iter().enumerate().map(|(n, segment)| {
            let time_ms = match limit {
                Limit::Time { .. } => segment.retention_time_ms().map_err(|e| self.wrap(e))?,
                _ => 0,
            };
            Ok::<_, Error>(SegmentFacts {
                base_offset: segment.base_offset(),
                end_offset: list.get(n + 1).map_or(marks.log_end.offset, |next| next.base_offset()),
                size: segment.size(),
                last: n + 1 == list.len(),
                time_ms,
            })
        });
        let decision = decide(facts, marks.high_watermark.offset, limit)?;
        if let Some((base, why)) = decision.held_back {
            done.held_back.push((limit, base, why));
        }
        if decision.count > 0 {
            let gone = &list[..decision.count];
            let bases: Vec<i64> = gone.iter().map(|s| s.base_offset().get()).collect();
            info!(dir = %self.dir.display(), ?bases, ?limit, "deleting segments");
            self.delete_oldest(writer, deferred, gone)?;
        }
        done.deleted += decision.count;
        Ok(())
    }

    fn delete_oldest(
        self: &Arc<Self>,
        writer: &mut Writer,
        deferred: &mut Deferred,
        oldest: &[Arc<Segment>],
    ) -> Result<()> {
        if oldest.len() == self.segments().as_slice().len() {
            self.roll(writer, deferred, None)?;
        }
        // A roll may have replaced an empty active segment in place; that one is no longer in the list.
        let segments = self.segments();
        let gone: Vec<_> = oldest
            .iter()
            .filter(|s| segments.get(s.base_offset()).is_some_and(|t| Arc::ptr_eq(s, t)))
            .cloned()
            .collect();
        let bases: Vec<_> = gone.iter().map(|s| s.base_offset()).collect();
        let kept = segments.without(|s| bases.contains(&s.base_offset()));
        if let Some(first) = kept.as_slice().first() {
            self.increment_log_start(writer, deferred, first.base_offset())?;
        }
        *self.segments.write() = Arc::new(kept);
        self.delete_later(gone, deferred)?;
        self.delete_snapshots_later(writer, &bases, deferred)
    }
}
