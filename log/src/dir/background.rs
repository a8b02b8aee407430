//! The periodic work of a directory: retention, flushes, checkpoints, forgetting idle producers.

use std::sync::Arc;

use kseg_format::checkpoint_files::{HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS};

use super::{DirInner, LogDir};
use crate::config::BrokerConfig;
use crate::error::Result;
use crate::trouble::Trouble;

/// One kind of periodic work.
#[derive(Clone, Copy)]
struct Periodic {
    name: &'static str,
    every_ms: u64,
    work: fn(&DirInner),
}

impl LogDir {
    /// Begins the periodic work on the directory's scheduler: first after `log.initial.task.delay.ms`, then each in its own
    /// interval, until the directory is shut down, dropped or out of service.
    ///
    /// | work | interval |
    /// |---|---|
    /// | retention of logs that are not compacted | `log.retention.check.interval.ms` |
    /// | flush of logs not flushed for `flush.ms` | `log.flush.scheduler.interval.ms` |
    /// | recovery points | `log.flush.offset.checkpoint.interval.ms` |
    /// | log start offsets | `log.flush.start.offset.checkpoint.interval.ms` |
    /// | high watermarks | `replica.high.watermark.checkpoint.interval.ms` |
    /// | files of sealed segments that nobody has read since the last time | `log.retention.check.interval.ms` |
    /// | idle producers | `producer.id.expiration.check.interval.ms` |
    ///
    /// An error ends neither the work nor that on other logs; the last is in [`last_trouble`](Self::last_trouble).
    ///
    /// Source: Kafka `LogManager.startupWithConfigOverrides`.
    pub fn start_background(&self, config: &BrokerConfig) {
        let ms = |value: i64| u64::try_from(value).unwrap_or(0);
        let all = [
            (
                "kafka-log-retention",
                config.log_retention_check_interval_ms,
                DirInner::retain as fn(&DirInner),
            ),
            ("idle-segments", config.log_retention_check_interval_ms, DirInner::release_idle_segments),
            ("kafka-log-flusher", config.log_flush_scheduler_interval_ms, DirInner::flush_due),
            (
                "kafka-recovery-point-checkpoint",
                i64::from(config.log_flush_offset_checkpoint_interval_ms),
                DirInner::write_recovery_points,
            ),
            (
                "kafka-log-start-offset-checkpoint",
                i64::from(config.log_flush_start_offset_checkpoint_interval_ms),
                DirInner::write_log_starts,
            ),
            (
                "highwatermark-checkpoint",
                config.replica_high_watermark_checkpoint_interval_ms,
                DirInner::write_high_watermarks,
            ),
            (
                "producer-id-expiration",
                i64::from(config.producer_id_expiration_check_interval_ms),
                DirInner::expire_producers,
            ),
        ];
        for (name, every_ms, work) in all {
            // An interval of 0 would have the scheduler do nothing else.
            let periodic = Periodic { name, every_ms: ms(every_ms).max(1), work };
            self.inner.again(periodic, ms(config.log_initial_task_delay_ms).max(1));
        }
    }

    /// The last error of the periodic work, if there was one.
    pub fn last_trouble(&self) -> Option<Trouble> {
        self.inner.troubles.last()
    }
}

impl DirInner {
    fn again(self: &Arc<Self>, periodic: Periodic, delay_ms: u64) {
        let dir = Arc::downgrade(self);
        let task = move || {
            if let Some(dir) = dir.upgrade()
                && let Ok(inside) = dir.serve()
            {
                (periodic.work)(&dir);
                drop(inside);
                dir.again(periodic, periodic.every_ms);
            }
        };
        self.options.scheduler.schedule(periodic.name, delay_ms, Box::new(task));
    }

    fn note(&self, task: &'static str, result: Result<()>) {
        self.troubles.note(task, self.noted(result));
    }

    fn retain(&self) {
        for (_, log) in self.open_logs() {
            // The cleaner does it for those.
            if !log.config().cleanup_policy.compact {
                self.note("kafka-log-retention", log.delete_old_segments().map(drop));
            }
        }
    }

    fn release_idle_segments(&self) {
        for (_, log) in self.open_logs() {
            self.note("idle-segments", log.release_idle_segments().map(drop));
        }
    }

    fn flush_due(&self) {
        let now_ms = self.options.clock.now_ms();
        for (_, log) in self.open_logs() {
            let since = now_ms.saturating_sub(log.inner.last_flush_ms());
            if since >= log.config().flush_ms {
                self.note("kafka-log-flusher", log.flush(false));
            }
        }
    }

    fn write_recovery_points(&self) {
        self.note("kafka-recovery-point-checkpoint", self.write_checkpoints(&[RECOVERY_POINTS]));
    }

    fn write_log_starts(&self) {
        self.note("kafka-log-start-offset-checkpoint", self.write_checkpoints(&[LOG_STARTS]));
    }

    fn write_high_watermarks(&self) {
        self.note("highwatermark-checkpoint", self.write_checkpoints(&[HIGH_WATERMARKS]));
    }

    fn expire_producers(&self) {
        for (_, log) in self.open_logs() {
            log.expire_producers();
        }
    }
}
