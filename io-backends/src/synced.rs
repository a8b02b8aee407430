//! What of a file is durable, and the one sync that makes it so: the same for every appender.

use crate::backend::RawFile;
use crate::error::{IoError, Verdict};
use crate::marks::Marks;
use crate::op::Op;
use crate::sync::{AtomicBool, Ordering};

/// Held behind the appender's sync lock, so that at most one sync of a file is in flight.
#[derive(Debug)]
pub(crate) struct Synced {
    /// The durable mark.
    pub(crate) durable: u64,
    /// Whether there was a sync through this appender. Before it, what is there may be in a cache only.
    ever: bool,
}

impl Synced {
    /// Nothing is known to be durable.
    pub(crate) fn new() -> Self {
        Self { durable: 0, ever: false }
    }

    /// Makes durable what is stable below `target`, and the length where `resized` says that it shrank; publishes the
    /// durable mark and returns it. With `through`, writes were durable by themselves.
    ///
    /// # Errors
    /// A sync that failed: the file is fenced, and no other is tried.
    pub(crate) fn bring_to(
        &mut self,
        target: u64,
        file: &dyn RawFile,
        marks: &Marks,
        resized: &AtomicBool,
        through: bool,
    ) -> Result<u64, IoError> {
        // Pairs with the store where the file is cut: a cut seen here happened before the sync below.
        let resized = resized.swap(false, Ordering::AcqRel);
        if self.ever && !resized && self.durable >= target {
            return Ok(self.durable);
        }
        // Each write since the last sync was durable by itself.
        let covered = through && self.ever && !resized;
        let result = if covered { Ok(0) } else { file.submit(Op::Flush { metadata: resized }).wait().result };
        match result {
            Ok(_) => {
                *self = Self { durable: target, ever: true };
                marks.sync_to(target);
                Ok(target)
            }
            Err(error) => Err(marks.fence("flush", &file.path(), error.with_verdict(Verdict::Damaged))),
        }
    }
}
