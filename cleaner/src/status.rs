//! Why a log is being compacted, or is not.

use std::fmt;

use kseg_format::Offset;
use kseg_log::TopicPartition;

use crate::dirty::{Rules, Sections};
use crate::states::PartitionState;
use crate::stats::RoundStats;

/// A partition that is left alone because cleaning it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Uncleanable {
    /// What went wrong, with file and position.
    pub reason: String,
    /// Kafka's name for it.
    pub kafka_name: &'static str,
    /// When, in milliseconds since the epoch.
    pub since_ms: i64,
    /// How often cleaning it has failed since it last succeeded.
    pub failures: u32,
    /// When it is tried again; `None` where it is not before somebody says so.
    pub retry_ms: Option<i64>,
}

/// What a manager knows of one log.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// The partition.
    pub partition: TopicPartition,
    /// What happens to it next, and what it waits for.
    pub next: Next,
    /// Its sections; `None` where they could not be found out.
    pub sections: Option<Sections>,
    /// The last round that came to its end, since the manager began.
    pub last_round: Option<(Offset, RoundStats)>,
}

/// What happens to a log next. The answer to "why is this log not being compacted".
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Next {
    /// `cleanup.policy` does not say `compact`.
    NotCompacted,
    /// A round is under way, or somebody holds cleaning off.
    Taken(PartitionState),
    /// A round failed.
    Uncleanable(Uncleanable),
    /// Everything lies in the active segment, which is never cleaned: it has to roll first.
    AllActive {
        /// Bytes in it.
        bytes: u64,
    },
    /// Nothing has come since the last round that could be cleaned.
    AllClean,
    /// An open transaction, or the high watermark, holds cleaning back.
    Undecided {
        /// The last stable offset.
        last_stable: Offset,
    },
    /// All that is dirty is younger than `min.compaction.lag.ms`.
    TooYoung {
        /// The setting, in milliseconds.
        min_compaction_lag_ms: i64,
    },
    /// Not dirty enough.
    BelowRatio {
        /// Cleanable bytes over clean and cleanable ones.
        ratio: f64,
        /// What it has to exceed.
        least: f64,
    },
    /// It is worth cleaning, and waits for a thread.
    Waiting {
        /// Cleanable bytes over clean and cleanable ones.
        ratio: f64,
    },
    /// It could not be looked at.
    Unknown {
        /// Why.
        reason: String,
    },
}

impl Next {
    /// What the sections of a log lead to.
    pub(crate) fn of(sections: &Sections, rules: &Rules, last_stable: Offset, active: (Offset, u64)) -> Next {
        let (active, active_size) = active;
        let ratio = sections.cleanable_ratio();
        if sections.is_eligible(rules) {
            return Next::Waiting { ratio };
        }
        if sections.cleanable_bytes > 0 {
            return Next::BelowRatio { ratio, least: rules.min_cleanable_dirty_ratio };
        }
        let first_dirty = sections.first_dirty.offset;
        if first_dirty >= active {
            // The active segment counts as clean where the log start, or the checkpoint, lies inside it.
            let counted = if first_dirty > active { active_size } else { 0 };
            let all = sections.clean_bytes == counted;
            return if all { Next::AllActive { bytes: active_size } } else { Next::AllClean };
        }
        if last_stable <= sections.first_uncleanable_dirty_offset && last_stable < active {
            return Next::Undecided { last_stable };
        }
        if rules.min_compaction_lag_ms > 0 {
            return Next::TooYoung { min_compaction_lag_ms: rules.min_compaction_lag_ms };
        }
        Next::AllClean
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Next::NotCompacted => f.write_str("not compacted: cleanup.policy has no compact"),
            Next::Taken(state) => write!(f, "{state}"),
            Next::Uncleanable(mark) => {
                write!(f, "left alone after {} failures: {}", mark.failures, mark.reason)
            }
            Next::AllActive { bytes } => write!(
                f,
                "nothing to clean: all of its {bytes} bytes are in the active segment, which has to roll first (segment.bytes, segment.ms)"
            ),
            Next::AllClean => f.write_str("clean: nothing has been sealed since the last round"),
            Next::Undecided { last_stable } => write!(
                f,
                "held back at offset {last_stable}: an open transaction begins there, or the high watermark stands there"
            ),
            Next::TooYoung { min_compaction_lag_ms } => {
                write!(f, "too young: min.compaction.lag.ms is {min_compaction_lag_ms}")
            }
            Next::BelowRatio { ratio, least } => write!(
                f,
                "not dirty enough: ratio {ratio:.3}, and min.cleanable.dirty.ratio {least} has to be exceeded"
            ),
            Next::Waiting { ratio } => write!(f, "worth cleaning: ratio {ratio:.3}"),
            Next::Unknown { reason } => write!(f, "unknown: {reason}"),
        }
    }
}
