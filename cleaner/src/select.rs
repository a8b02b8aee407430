//! Which log to clean first.
//!
//! The dirtiest of those worth cleaning; that a record has waited for too long makes its log eligible, not urgent.
//!
//! Source: Kafka `LogCleanerManager.grabFilthiestCompactedLog`, `PreCleanStats`.

use crate::dirty::{Rules, Sections};

/// The log chosen among candidates, and what was seen on the way.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Selection {
    /// Number of the chosen candidate, from 0; of equally dirty ones the first. `None` where none is eligible.
    pub chosen: Option<usize>,
    /// The largest cleanable ratio of all candidates, eligible or not; 0 where there is nothing.
    pub cleanable_ratio_max: f64,
    /// Candidates worth cleaning.
    pub eligible: usize,
    /// Candidates in which a record has waited for longer than it may.
    pub delayed: usize,
    /// The longest such delay, in milliseconds.
    pub compaction_delay_ms_max: u64,
}

/// Chooses the log to clean next.
///
/// The candidates are the compacted logs that nobody cleans, pauses or has marked as uncleanable. Logs without clean and
/// cleanable bytes are passed over.
pub fn select<'a>(candidates: impl IntoIterator<Item = (&'a Sections, &'a Rules)>) -> Selection {
    let mut selection = Selection {
        chosen: None,
        cleanable_ratio_max: 0.0,
        eligible: 0,
        delayed: 0,
        compaction_delay_ms_max: 0,
    };
    let mut ratio_chosen = f64::NEG_INFINITY;
    for (number, (sections, rules)) in candidates.into_iter().enumerate() {
        if sections.compaction_delay_ms > 0 {
            selection.delayed += 1;
            selection.compaction_delay_ms_max =
                selection.compaction_delay_ms_max.max(sections.compaction_delay_ms);
        }
        if sections.total_bytes() == 0 {
            continue;
        }
        let ratio = sections.cleanable_ratio();
        selection.cleanable_ratio_max = selection.cleanable_ratio_max.max(ratio);
        if !sections.is_eligible(rules) {
            continue;
        }
        selection.eligible += 1;
        if ratio > ratio_chosen {
            ratio_chosen = ratio;
            selection.chosen = Some(number);
        }
    }
    selection
}
