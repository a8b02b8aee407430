//! [`Kept`]: what appends ask of a log, kept from one to the next.
//!
//! An append would take a lock for each of these and follow pointers through memory that the write before it has driven out
//! of the processor's caches. Here they lie side by side, and counts of changes tell whether they still hold.

use std::sync::Arc;

use kseg_format::{LeaderEpoch, LeaderRules, Levels, Offset};
use kseg_segment::Segment;

use crate::config::LogConfig;
use crate::error::Result;
use crate::log::{Inner, Writer};

#[derive(Debug)]
pub(crate) struct Kept {
    counts: Counts,
    /// The count of the marks that `log_end` belongs to. They change with every append.
    marks: u64,
    pub(crate) log_end: Offset,
    /// The latest leader epoch; `None` where it begins behind the log end, since an append may begin it earlier.
    pub(crate) epoch: Option<LeaderEpoch>,
    pub(crate) active: Arc<Segment>,
    pub(crate) segment_size_max: u64,
    pub(crate) age_max_ms: i64,
    pub(crate) flush_messages: i64,
    /// The topic's rules; what belongs to one append is set by it.
    pub(crate) rules: LeaderRules,
}

/// Changes so far of what the rest of [`Kept`] is made of. Asked for before that is read, so that what is read is of these
/// counts or newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    config: u64,
    segments: u64,
    epochs: u64,
}

impl Counts {
    #[inline]
    fn of(log: &Inner) -> Self {
        Counts {
            config: log.config.changes(),
            segments: log.segments.changes(),
            epochs: log.epochs.changes(),
        }
    }
}

impl Kept {
    #[cold]
    fn new(log: &Inner) -> Result<Box<Kept>> {
        let counts = Counts::of(log);
        let marks = log.marks.changes();
        let config = log.config();
        let log_end = log.log_end();
        let latest = log.epochs.read().latest().filter(|latest| latest.start_offset <= log_end);
        Ok(Box::new(Kept {
            counts,
            marks,
            log_end,
            epoch: latest.map(|latest| latest.epoch),
            active: log.active()?,
            segment_size_max: u64::try_from(config.segment_size_max()).unwrap_or(0),
            age_max_ms: roll_age_max(&config),
            flush_messages: config.flush_messages,
            rules: rules(&config),
        }))
    }

    /// The log end has been set to `offset` by the holder of the marks, for the count that they have now.
    #[inline]
    pub(crate) fn set_log_end(&mut self, offset: Offset, log: &Inner) {
        self.log_end = offset;
        self.marks = log.marks.changes();
    }
}

impl Inner {
    /// What appends go by, taken out of `writer`; an append that comes to its end puts it back.
    #[inline]
    pub(crate) fn take_kept(&self, writer: &mut Writer) -> Result<Box<Kept>> {
        match writer.kept.take() {
            Some(mut kept) if kept.counts == Counts::of(self) => {
                let marks = self.marks.changes();
                if kept.marks != marks {
                    kept.marks = marks;
                    kept.log_end = self.log_end();
                }
                Ok(kept)
            }
            _ => Kept::new(self),
        }
    }
}

fn rules(config: &LogConfig) -> LeaderRules {
    LeaderRules {
        compacted: config.cleanup_policy.compact,
        target_codec: config.compression_type.codec(),
        levels: Levels {
            gzip: config.compression_gzip_level,
            lz4: config.compression_lz4_level,
            zstd: config.compression_zstd_level,
        },
        timestamp_type: config.message_timestamp_type,
        timestamp_before_max_ms: config.message_timestamp_before_max_ms,
        timestamp_after_max_ms: config.message_timestamp_after_max_ms,
        decompressed_limit: i32::MAX as usize,
        ..LeaderRules::default()
    }
}

/// `segment.ms`; for a compacted topic with a `max.compaction.lag.ms` at most that, so that records get out of the
/// active segment in time.
fn roll_age_max(config: &LogConfig) -> i64 {
    let lag = config.max_compaction_lag_ms;
    if config.cleanup_policy.compact && lag > 0 { config.segment_ms.min(lag) } else { config.segment_ms }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use bytes::BytesMut;
    use kseg_format::{BatchOptions, Origin, RecordBatchBuilder};

    use super::*;
    use crate::log::Log;
    use crate::open::OpenOptions;

    fn append(log: &Log, epoch: i32) {
        let mut batch = RecordBatchBuilder::new(BatchOptions::default());
        batch.append(None, None, Some(b"v"), &[]).expect("a record");
        let mut bytes = BytesMut::new();
        batch.finish(&mut bytes).expect("a batch");
        log.append_as_leader(bytes, LeaderEpoch::new(epoch), Origin::Client).expect("an append");
    }

    /// Whether the last append has left its copy, which is now as if it were new.
    #[track_caller]
    fn check(log: &Log) -> Kept {
        let (writer, now) = (&mut log.inner.writer.lock(), Kept::new(&log.inner).expect("a copy"));
        let kept = log.inner.take_kept(writer).expect("a copy");
        assert!(Arc::ptr_eq(&kept.active, &now.active));
        // What belongs to one append aside.
        let (now_ms, leader_epoch) = (kept.rules.now, kept.rules.leader_epoch);
        let told = |kept: &Kept| {
            let rules = LeaderRules { now: now_ms, leader_epoch, ..kept.rules.clone() };
            (kept.log_end, kept.epoch, kept.segment_size_max, kept.flush_messages, rules)
        };
        assert_eq!(told(&kept), told(&now));
        writer.kept = Some(kept);
        *now
    }

    #[test]
    fn what_is_kept_follows_every_change() {
        let backend = kseg_io_backends::open("memory").expect("memory is always there");
        let log = Log::open(std::path::Path::new("/data/t-0"), OpenOptions::new(backend)).expect("a log");
        for n in 0..4 {
            append(&log, n);
            assert!(log.inner.writer.lock().kept.is_some(), "an append leaves its copy");
        }
        let before = check(&log);
        assert_eq!((before.log_end.get(), before.epoch), (4, Some(LeaderEpoch::new(3))));
        log.roll(None).expect("a roll");
        assert_eq!(check(&log).active.base_offset().get(), 4);
        append(&log, 3);
        let pairs = [("segment.bytes", "2000000"), ("flush.messages", "7"), ("cleanup.policy", "compact")];
        log.update_config(LogConfig::from_pairs(pairs).expect("valid")).expect("a change");
        let changed = check(&log);
        assert_eq!((changed.segment_size_max, changed.flush_messages), (2_000_000, 7));
        assert!(changed.rules.compacted);
        assert!(log.truncate_to(Offset::new(2)).expect("a truncation"));
        let cut = check(&log);
        assert_eq!((cut.log_end.get(), cut.epoch), (2, Some(LeaderEpoch::new(1))));
        assert_eq!(cut.active.base_offset(), Offset::ZERO);
        log.truncate_fully_and_start_at(Offset::new(9), None).expect("a truncation");
        assert_eq!((check(&log).log_end.get(), check(&log).epoch), (9, None));
    }
}
