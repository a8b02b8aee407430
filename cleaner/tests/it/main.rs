//! What is dirty in a log, and which log is cleaned first.

mod bed;
mod beside;
mod cases;
mod edges;
mod faults;
mod manager;
mod mapping;
mod properties;
mod rounds;
mod sections;
mod selection;
mod transactions;

use kseg_cleaner::{LogFacts, Rules, Sections, SegmentFacts};
use kseg_format::{Offset, Timestamp};

const HOUR: i64 = 3_600_000;

/// A log of segments of some bytes each, every ten offsets one, with all timestamps 1000; the last one is active.
struct TestLog {
    segments: Vec<SegmentFacts>,
    start: i64,
    end: i64,
    stable: i64,
    checkpoint: Option<i64>,
}

impl TestLog {
    fn new(segments: i64, size: u64) -> TestLog {
        let segment = |n| SegmentFacts {
            base_offset: Offset::new(n * 10),
            size,
            largest_timestamp: Timestamp::new(1000),
            first_batch_timestamp: Some(Timestamp::new(1000)),
        };
        let end = segments * 10;
        TestLog {
            segments: (0..segments).map(segment).collect(),
            start: 0,
            end,
            stable: end,
            checkpoint: None,
        }
    }

    fn start(mut self, offset: i64) -> TestLog {
        self.start = offset;
        self
    }

    fn stable(mut self, offset: i64) -> TestLog {
        self.stable = offset;
        self
    }

    fn checkpoint(mut self, offset: i64) -> TestLog {
        self.checkpoint = Some(offset);
        self
    }

    fn times(mut self, from_segment: usize, timestamp: i64) -> TestLog {
        for segment in &mut self.segments[from_segment..] {
            segment.largest_timestamp = Timestamp::new(timestamp);
            segment.first_batch_timestamp = Timestamp::from_raw(timestamp);
        }
        self
    }

    fn sections(&self, rules: &Rules, now: i64) -> Sections {
        let (active, sealed) = self.segments.split_last().unwrap();
        let log = LogFacts {
            sealed,
            active_base_offset: active.base_offset,
            active_size: active.size,
            log_start_offset: Offset::new(self.start),
            log_end_offset: Offset::new(self.end),
            last_stable_offset: Offset::new(self.stable),
            checkpoint: self.checkpoint.map(Offset::new),
        };
        Sections::of(&log, rules, Timestamp::new(now))
    }
}

fn ratio(min_cleanable_dirty_ratio: f64) -> Rules {
    Rules { min_cleanable_dirty_ratio, ..Rules::default() }
}

fn min_lag(min_compaction_lag_ms: i64) -> Rules {
    Rules { min_compaction_lag_ms, ..Rules::default() }
}
