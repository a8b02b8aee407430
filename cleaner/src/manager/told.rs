//! What data directories tell of truncations, deletions, moves and changes of configuration.

use std::path::Path;
use std::sync::Arc;

use kseg_format::Offset;
use kseg_log::{Compaction, Log, TopicPartition};

use super::Manager;
use crate::error::{Error, Result};

/// For [`LogDir::set_compaction`](kseg_log::LogDir::set_compaction): what is done to a log through its directory is known here.
impl Compaction for Manager {
    fn pause(&self, partition: &TopicPartition) {
        self.abort_and_pause(partition);
    }

    fn resume(&self, partition: &TopicPartition) -> kseg_log::Result<()> {
        told(Manager::resume(self, partition))
    }

    fn cut(&self, partition: &TopicPartition, active: Offset) -> kseg_log::Result<()> {
        told(self.lower_checkpoint(partition, active))
    }

    fn configured(&self, partition: &TopicPartition, ended: bool) -> kseg_log::Result<()> {
        if ended { told(self.abort(partition)) } else { Ok(()) }
    }

    fn leaves(&self, partition: &TopicPartition, dir: &Path) -> kseg_log::Result<()> {
        told(self.leave(partition, dir))
    }

    fn moved(&self, partition: &TopicPartition, dir: &Path, log: &Arc<Log>) -> kseg_log::Result<()> {
        // One that was never taken in is not cleaned in its new place either.
        if self.log(partition).is_none() {
            return Ok(());
        }
        told(Manager::moved(self, partition, dir, log.clone()))
    }
}

/// In the words of the log.
fn told<T>(result: Result<T>) -> kseg_log::Result<T> {
    result.map_err(|error| match error {
        Error::Log(error) => error,
        Error::Io(error) => kseg_log::Error::Io(error),
        other => kseg_log::Error::InvalidArgument { what: other.to_string() },
    })
}
