//! Partitions that two data directories hold, as a crash between the two renames that end a move leaves them.

use std::collections::BTreeMap;

use kseg_format::{Batches, Offset, TopicPartition};
use tracing::{error, info};

use super::LogManager;
use crate::dir::LogDir;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::read::Isolation;

impl LogManager {
    /// Deletes of two folders of a partition the one of which the other has everything. Where each has something of its own
    /// nobody is given either. A directory that cannot be listed is out of service.
    pub(super) fn settle_twice(&self) {
        let mut seen: BTreeMap<TopicPartition, &LogDir> = BTreeMap::new();
        for dir in self.live() {
            let partitions = dir.partitions().unwrap_or_else(|error| {
                dir.inner.health.fail(error.to_string());
                Vec::new()
            });
            for partition in partitions {
                let Some(&other) = seen.get(&partition) else {
                    seen.insert(partition, dir);
                    continue;
                };
                match settle(&partition, [other, dir]) {
                    Ok(Some(kept)) => {
                        seen.insert(partition, kept);
                    }
                    undecided => {
                        let why = match undecided {
                            Err(error) => error.to_string(),
                            Ok(_) => "each has something that the other has not".to_owned(),
                        };
                        let dirs = [other.path().display(), dir.path().display()];
                        error!(%partition, one = %dirs[0], other = %dirs[1], why, "a partition in two directories");
                        other.inner.note_twice(&partition, dir.path());
                        dir.inner.note_twice(&partition, other.path());
                    }
                }
            }
        }
    }
}

/// The directory that keeps the partition, where one of the two has all that the other has: the other's is deleted.
fn settle<'d>(partition: &TopicPartition, dirs: [&'d LogDir; 2]) -> Result<Option<&'d LogDir>> {
    let [one, other] = dirs;
    if one.topic_id(partition)? != other.topic_id(partition)? {
        return Ok(None);
    }
    let (Some(first), Some(second)) = (one.get(partition)?, other.get(partition)?) else { return Ok(None) };
    let (kept, log, spare, lost) = if holds(&first, &second)? {
        (one, first, other, second)
    } else if holds(&second, &first)? {
        (other, second, one, first)
    } else {
        return Ok(None);
    };
    log.flush(true)?;
    log.update_high_watermark(log.high_watermark().max(lost.high_watermark()).max(lost.log_start_offset()));
    log.increment_log_start_offset(lost.log_start_offset())?;
    kept.checkpoint()?;
    spare.inner.delete(partition, false)?;
    let dirs = [kept.path().display(), spare.path().display()];
    info!(%partition, kept = %dirs[0], deleted = %dirs[1], "a move that was interrupted has been ended");
    Ok(Some(kept))
}

/// Whether `log` has, byte for byte, all that can be read of `other`, but for what lies below its log start: that was raised in
/// one of them and may not have come to the checkpoint of the other.
fn holds(log: &Log, other: &Log) -> Result<bool> {
    let (start, end) = (other.log_start_offset(), other.log_end_offset());
    let mut next = start.max(log.log_start_offset());
    if log.log_end_offset() < end || (next >= end && start < end) {
        return Ok(false);
    }
    let bytes = |log: &Log, from: Offset| -> Result<_> {
        let region = log.read(from, 1 << 20, Isolation::LogEnd, true)?.region;
        region.map(|region| region.to_bytes().map_err(Error::Io)).transpose()
    };
    while next < end {
        let Some(theirs) = bytes(other, next)? else { break };
        let Some(ours) = bytes(log, next)? else { return Ok(false) };
        let from = next;
        for (ours, theirs) in Batches::new(&ours).zip(Batches::new(&theirs)) {
            // The last of a read may be a part of a batch; the first is whole.
            let (Ok(ours), Ok(theirs)) = (ours, theirs) else { break };
            if ours.as_bytes() != theirs.as_bytes() {
                return Ok(false);
            }
            next = theirs.header().next_offset();
        }
        if next == from {
            return Ok(false);
        }
    }
    Ok(true)
}
