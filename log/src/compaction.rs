//! Whoever compacts the logs of data directories, as far as a directory has to tell of what it does to them.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use kseg_format::{Offset, TopicPartition};

use crate::error::Result;
use crate::log::Log;

/// Is told of what a data directory does to the logs that somebody compacts: before, so that nothing is compacted
/// meanwhile, and after, so that what is known of a log goes by what it is now.
///
/// A directory calls it without holding any of its locks but a partition's turn; it may read from the log, and must not call
/// the directory.
///
/// Source: Kafka `LogManager`, the calls to its `LogCleaner`.
pub trait Compaction: Debug + Send + Sync {
    /// Holds compaction of a partition off, and waits until none is under way. Counts.
    fn pause(&self, partition: &TopicPartition);

    /// Takes one pause back.
    ///
    /// # Errors
    /// Where there is none.
    fn resume(&self, partition: &TopicPartition) -> Result<()>;

    /// A log has lost its end, while compaction was held off: its active segment begins at `active` now, and what comes to lie
    /// behind it was not compacted.
    ///
    /// # Errors
    /// Where it cannot be noted durably.
    fn cut(&self, partition: &TopicPartition, active: Offset) -> Result<()>;

    /// The configuration of a log has changed, and is in force. `ended`: it was to be compacted before, and is not now.
    ///
    /// # Errors
    /// Where what is under way cannot be stopped.
    fn configured(&self, partition: &TopicPartition, ended: bool) -> Result<()>;

    /// A partition leaves the data directory `dir`: nothing is compacted there from now on, and what is known of it is forgotten,
    /// how far it was compacted with it: one that is made anew under its name is another. It is still open, if it ever was, and may
    /// be one that was never told of.
    ///
    /// # Errors
    /// Where that cannot be noted durably.
    fn leaves(&self, partition: &TopicPartition, dir: &Path) -> Result<()>;

    /// A partition moves: its log is `log` now, in the data directory `dir`. Compaction is held off.
    ///
    /// # Errors
    /// Where that cannot be noted durably.
    fn moved(&self, partition: &TopicPartition, dir: &Path, log: &Arc<Log>) -> Result<()>;
}
