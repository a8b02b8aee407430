//! What selection wants to know of a log, read from it.

use kseg_format::{Offset, Timestamp};
use kseg_log::{Log, LogConfig};

use crate::dirty::{LogFacts, Rules, Sections, SegmentFacts};
use crate::error::Result;

impl Rules {
    /// The rules of a topic.
    pub fn of(config: &LogConfig) -> Rules {
        Rules {
            min_cleanable_dirty_ratio: config.min_cleanable_dirty_ratio,
            min_compaction_lag_ms: config.min_compaction_lag_ms,
            max_compaction_lag_ms: config.max_compaction_lag_ms,
        }
    }
}

impl Sections {
    /// Divides a log that is open. Reads no more than the rules ask for: segments' timestamps only where a lag is set.
    ///
    /// # Errors
    /// [`Error::Log`](crate::Error::Log), [`Error::Segment`](crate::Error::Segment) where a segment cannot be asked.
    pub fn of_log(log: &Log, checkpoint: Option<Offset>, now: Timestamp) -> Result<Sections> {
        let rules = Rules::of(&log.config());
        let (sealed, active_base_offset) = log.sealed_segments()?;
        let active_size = log.active_size()?;
        let mut facts = Vec::with_capacity(sealed.len());
        for sealed in &sealed {
            let segment = sealed.segment();
            let largest = if rules.min_compaction_lag_ms > 0 { segment.retention_time_ms()? } else { 0 };
            let first =
                if rules.max_compaction_lag_ms < i64::MAX { segment.first_batch_timestamp()? } else { None };
            log.let_go(sealed);
            facts.push(SegmentFacts {
                base_offset: sealed.base_offset(),
                size: sealed.size(),
                largest_timestamp: Timestamp::new(largest),
                first_batch_timestamp: first,
            });
        }
        let facts = LogFacts {
            sealed: &facts,
            active_base_offset,
            active_size,
            log_start_offset: log.log_start_offset(),
            log_end_offset: log.log_end_offset(),
            last_stable_offset: log.last_stable_offset(),
            checkpoint,
        };
        Ok(Sections::of(&facts, &rules, now))
    }
}
