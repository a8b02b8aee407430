//! What opening a log has found and done.

use std::fmt;
use std::path::{Path, PathBuf};

use kseg_format::Offset;
use kseg_segment::Cut;
use tracing::{error, info, warn};

use crate::doubts::Doubt;

/// What was found and done when a log was opened.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LoadReport {
    /// Base offsets of the segments that were checked batch by batch.
    pub recovered: Vec<Offset>,
    /// What was cut from `.log` files, and why.
    pub cuts: Vec<Cut>,
    /// Files that hold whole segments which left the log: those behind a cut, and those of a log that ended below its start.
    pub set_aside: Vec<PathBuf>,
    /// Files of interrupted operations that were removed, and index files without a `.log` file.
    pub removed: Vec<PathBuf>,
    /// Files that were given their final name, to complete an interrupted replacement.
    pub completed: Vec<PathBuf>,
    /// Base offsets of segments whose offsets reached too far from it, and that have been split.
    pub split: Vec<Offset>,
    /// Segments whose index files were missing and have been rebuilt.
    pub rebuilt: Vec<Offset>,
    /// Segments whose transaction index could not be theirs, or was missing beside a missing offset index, and has been made anew
    /// from the markers.
    pub aborted_rebuilt: Vec<Offset>,
    /// Files whose names are none of a log's; they are left alone.
    pub unknown: Vec<PathBuf>,
    /// Batches that contradict their producers' state, markers and snapshots that cannot be read, ascending by offset: the
    /// first hundred.
    pub doubts: Vec<Doubt>,
    /// How many more there are.
    pub more_doubts: u64,
    /// The log ended below its log start offset, so that it begins anew there; its segments are among those set aside.
    pub emptied: bool,
    /// The log ends below its recovery point: what had been made durable is gone, up to this offset.
    pub missing_up_to: Option<Offset>,
    /// After an orderly stop the log ends above its recovery point, this offset, where that stop had left its end.
    pub left_at: Option<Offset>,
}

impl LoadReport {
    /// Tells what an operator looks for.
    pub(super) fn tell(&self, dir: &Path) {
        let dir = dir.display();
        for base in &self.recovered {
            info!(%dir, base = base.get(), "unflushed segment recovered");
        }
        for path in &self.completed {
            info!(file = %path.display(), "interrupted replacement completed");
        }
        for base in &self.rebuilt {
            error!(%dir, base = base.get(), "index files of a flushed segment were missing; rebuilt");
        }
        for line in self.to_string().lines() {
            warn!("{line}");
        }
    }
    /// Whether anything was out of the ordinary for a log that was closed in an orderly way.
    pub fn is_quiet(&self) -> bool {
        self.cuts.is_empty()
            && self.set_aside.is_empty()
            && self.unknown.is_empty()
            && self.split.is_empty()
            && self.aborted_rebuilt.is_empty()
            && self.doubts.is_empty()
            && !self.emptied
            && self.missing_up_to.is_none()
            && self.left_at.is_none()
    }
}

impl fmt::Display for LoadReport {
    /// A line for each thing of note; nothing for a quiet report.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cut in &self.cuts {
            writeln!(f, "{cut}")?;
        }
        for path in &self.set_aside {
            writeln!(f, "{}: a whole segment, kept aside", path.display())?;
        }
        for base in &self.aborted_rebuilt {
            writeln!(
                f,
                "segment {base}: its transaction index was missing or not its own, and has been made anew"
            )?;
        }
        for path in &self.unknown {
            writeln!(f, "{}: not a file of a log, left alone", path.display())?;
        }
        for base in &self.split {
            writeln!(f, "the segment at {base} was split: its offsets reached too far from there")?;
        }
        for doubt in &self.doubts {
            writeln!(f, "{doubt}")?;
        }
        if self.more_doubts > 0 {
            writeln!(f, "and {} more of that kind", self.more_doubts)?;
        }
        if self.emptied {
            writeln!(f, "the log ended below its log start offset, and begins anew there")?;
        }
        if let Some(offset) = self.missing_up_to {
            writeln!(
                f,
                "the log ends below offset {offset}, up to which it had been made durable: records are missing"
            )?;
        }
        if let Some(offset) = self.left_at {
            writeln!(
                f,
                "the log ends above offset {offset}, its recovery point, where an orderly stop leaves its end: the checkpoint is \
                 not this log's, or its last offsets are not those that were given"
            )?;
        }
        Ok(())
    }
}
