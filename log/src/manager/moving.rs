//! Moving a partition from one data directory to another: a copy is made beside it, in steps, and takes its place.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use kseg_format::{LeaderEpoch, Offset, TopicPartition};
use tracing::warn;

use super::LogManager;
use crate::dir::{LogDir, paused};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::read::Isolation;

/// The copies that are being made, of each partition one at most.
pub(super) type Moves = BTreeMap<TopicPartition, Move>;

/// A copy, and the log that all of it comes from.
pub(super) struct Move {
    from: Weak<Log>,
    copy: Weak<Log>,
}

impl Move {
    fn is_of(&self, from: &Arc<Log>, copy: &Arc<Log>) -> bool {
        // What a weak pointer points at is not given to another value, however dead it is.
        self.from.as_ptr() == Arc::as_ptr(from) && self.copy.as_ptr() == Arc::as_ptr(copy)
    }
}

impl LogManager {
    /// Copies a step of a partition to the directory at `to`, at least one batch and at most about `max_bytes`; once the copy
    /// has caught up it becomes the partition, and the old one is deleted. Returns how many bytes are still to be copied: 0
    /// when the move is done.
    ///
    /// A copy is gone on with while this manager is there. One that it finds was left by another process, or by a move to
    /// somewhere else: nothing tells whether the partition still has what is in it, since a crash may have taken the
    /// partition's end, or the topic may have been made anew. It is deleted, and the move begins again.
    ///
    /// Appends may go on between steps. Between the last step and the return the partition takes none: the old log is
    /// closed, and whoever holds it asks the manager for the new one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the partition is in no directory, or in that one already. [`Error::Duplicate`].
    /// [`Error::Io`]: the partition is where it was, unless the copy had its place already and only what follows failed.
    ///
    /// Source: Kafka `LogManager.replaceCurrentWithFutureLog`, KIP-113.
    pub fn move_step(&self, partition: &TopicPartition, to: &Path, max_bytes: usize) -> Result<u64> {
        let target = match &self.place(to)?.dir {
            Ok(dir) => dir,
            Err(cause) => return Err(Error::Offline { dir: to.to_path_buf(), cause: cause.clone() }),
        };
        let _inside = self.enter()?;
        let mut moves = self.placing.lock();
        let refuse = |what| Err(Error::InvalidArgument { what: format!("{partition}: {what}") });
        let Some(source) = self.dir_of(partition)? else { return refuse("in no data directory") };
        if source.path() == target.path() {
            return refuse("in that data directory already");
        }
        let Some(log) = source.get(partition)? else { return refuse("in no data directory") };
        let future = self.copy_of(&mut moves, partition, (source, &log), target)?;
        let start = first_offset(&log)?;
        if future.log_end_offset() < start {
            // Retention has gone past what was copied.
            future.truncate_fully_and_start_at(start, None)?;
        }
        agree(&log, &future)?;
        copy(&log, &future, max_bytes)?;
        let left = log.log_end_offset().get().saturating_sub(future.log_end_offset().get());
        if left > 0 {
            return Ok(log.size().saturating_sub(future.size()).max(1));
        }
        moves.remove(partition);
        let mut promoted = None;
        // The source takes nothing meanwhile, and nothing at all once the copy has taken its place.
        let mut take_its_place = || {
            log.close_after(|| {
                agree(&log, &future)?;
                copy(&log, &future, usize::MAX)?;
                future.update_high_watermark(log.high_watermark());
                future.increment_log_start_offset(log.log_start_offset())?;
                promoted = Some(target.inner.promote(partition)?);
                Ok(())
            })?;
            Ok(promoted.clone())
        };
        let moved = match source.inner.compaction() {
            Some(compaction) => paused(&*compaction, partition, || match take_its_place()? {
                Some(log) => compaction.moved(partition, target.path(), &log),
                None => Ok(()),
            }),
            None => take_its_place().and_then(|_| {
                target.inner.note_compacted(partition, source.inner.compacted(partition)?)?;
                source.inner.note_compacted(partition, None)
            }),
        };
        if promoted.is_none() {
            // Of the two folders that the partition may have by now, the old one is in service.
            if target.offline().is_none()
                && let Err(error) = target.inner.delete(partition, false)
            {
                warn!(dir = %target.path().display(), %partition, %error, "what a failed move left is still there");
            }
            return moved.map(|()| 0);
        }
        // Of the two folders the new one is in service, whatever could not be noted.
        let deleted = source.inner.delete(partition, false);
        if deleted.is_err() {
            source.inner.note_twice(partition, target.path());
        }
        moved.and(deleted)?;
        target.checkpoint()?;
        Ok(0)
    }

    /// The copy that this manager is making of `log` in `target`; begun where there is none. Any other copy of the partition,
    /// wherever it is, is given up.
    fn copy_of(
        &self,
        moves: &mut Moves,
        partition: &TopicPartition,
        (source, log): (&LogDir, &Arc<Log>),
        target: &LogDir,
    ) -> Result<Arc<Log>> {
        if let Some(copy) = target.inner.future(partition)
            && moves.get(partition).is_some_and(|begun| begun.is_of(log, &copy))
            && copy.inner.check_writable().is_ok()
        {
            return Ok(copy);
        }
        self.give_up_copies(moves, partition)?;
        // What was truncated before does not matter to a copy that has nothing yet.
        log.take_dropped();
        let (config, id) = ((*log.config()).clone(), source.topic_id(partition)?);
        let copy = target.inner.begin_future(partition, config, first_offset(log)?, id)?;
        moves.insert(partition.clone(), Move { from: Arc::downgrade(log), copy: Arc::downgrade(&copy) });
        Ok(copy)
    }

    /// Deletes the copies of a partition in all directories that serve. Those in another are of no use to anybody when it is back.
    pub(super) fn give_up_copies(&self, moves: &mut Moves, partition: &TopicPartition) -> Result<()> {
        moves.remove(partition);
        self.live().try_for_each(|dir| dir.inner.delete_future(partition))
    }
}

/// Where a copy of a log begins: whole batches are copied, and the first may begin below the log start.
fn first_offset(log: &Log) -> Result<Offset> {
    let first = log.read(log.log_start_offset(), 1, Isolation::LogEnd, true)?.offset;
    Ok(first.min(log.log_start_offset()))
}

/// Drops of `copy` what was truncated in `from` since it was copied.
///
/// Source: Kafka `ReplicaAlterLogDirsThread`, which is told of truncations.
fn agree(from: &Log, copy: &Log) -> Result<()> {
    let mut end = from.log_end_offset();
    if let Some(dropped) = from.take_dropped() {
        end = end.min(dropped);
    }
    if copy.log_end_offset() > end {
        copy.truncate_to(end)?;
    }
    Ok(())
}

/// Appends to `to` what `from` has behind its end, at most about `max_bytes` but at least a batch.
fn copy(from: &Log, to: &Log, max_bytes: usize) -> Result<()> {
    /// One read's worth.
    const STEP: usize = 1 << 20;
    let mut left = max_bytes;
    loop {
        let next = to.log_end_offset();
        if next >= from.log_end_offset() || left == 0 {
            return Ok(());
        }
        let fetch = from.read(next.max(from.log_start_offset()), left.min(STEP), Isolation::LogEnd, true)?;
        let Some(region) = fetch.region else {
            // What lies between here and the end holds no batch.
            return to.end_at(from.log_end_offset());
        };
        let bytes = region.to_bytes().map_err(Error::Io)?;
        left = left.saturating_sub(bytes.len());
        // What is in the log goes along, also of an epoch that its epoch file has lost.
        to.append_as_follower(bytes, LeaderEpoch::new(i32::MAX))?;
    }
}
