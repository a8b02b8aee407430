//! Holding cleaning off: for truncation, removal, retention, and changes of a topic's configuration.

use std::sync::Arc;

use kseg_format::Offset;
use kseg_log::{Log, LogConfig, TopicPartition};

use super::Manager;
use crate::error::{Error, Result};
use crate::states::PartitionState;

/// A pause, which ends with this even where what is done in it panics.
struct Held<'m> {
    manager: &'m Manager,
    partition: &'m TopicPartition,
    resumed: bool,
}

impl Held<'_> {
    fn resume(mut self) -> Result<()> {
        self.resumed = true;
        self.manager.resume(self.partition)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.resumed
            && let Err(error) = self.manager.resume(self.partition)
        {
            self.manager.mark(&mut self.manager.shared.lock(), self.partition, &error);
        }
    }
}

impl Manager {
    /// Pauses a partition, and waits for a round that is under way to end; it ends at its next read. Pauses count: cleaning
    /// is possible again after as many calls of [`resume`](Self::resume).
    pub fn abort_and_pause(&self, partition: &TopicPartition) {
        let mut shared = self.shared.lock();
        if shared.states.pause(partition) {
            return;
        }
        while !matches!(shared.states.get(partition), Some(PartitionState::Paused(_))) {
            shared = self.changed.wait(shared);
        }
    }

    /// Takes one pause back.
    ///
    /// # Errors
    /// [`Error::State`] where there is none.
    pub fn resume(&self, partition: &TopicPartition) -> Result<()> {
        let resumed = self.shared.lock().states.resume(partition);
        self.changed.notify_all();
        resumed
    }

    /// Ends a round that is under way, and lets the next one come.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn abort(&self, partition: &TopicPartition) -> Result<()> {
        self.abort_and_pause(partition);
        self.resume(partition)
    }

    /// Runs `f` while nothing is cleaned in the partition.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn while_paused<T>(&self, partition: &TopicPartition, f: impl FnOnce() -> Result<T>) -> Result<T> {
        self.abort_and_pause(partition);
        let held = Held { manager: self, partition, resumed: false };
        let done = f();
        held.resume()?;
        done
    }

    /// Truncates a log. Below the active segment cleaning is held off meanwhile, and the checkpoint is lowered to the base
    /// of the segment that is active then. Where the log lies in a data directory, that one's `truncate_to` does the same and
    /// keeps its own checkpoints right.
    ///
    /// # Errors
    /// As [`Log::truncate_to`]; [`Error::Io`] where the checkpoint cannot be written.
    pub fn truncate_to(&self, partition: &TopicPartition, offset: Offset) -> Result<bool> {
        let Some(log) = self.log(partition) else { return Ok(false) };
        // Decided under the log's own mutex: a roll between a look and a truncation would make the active segment a sealed one.
        if let Some(truncated) = log.truncate_active_to(offset)? {
            return Ok(truncated);
        }
        self.while_paused(partition, || {
            let truncated = log.truncate_to(offset)?;
            self.lower_checkpoint(partition, log.active_base_offset()?)?;
            Ok(truncated)
        })
    }

    /// As [`Log::truncate_fully_and_start_at`], with cleaning held off and the checkpoint lowered.
    ///
    /// # Errors
    /// As there; [`Error::Io`] where the checkpoint cannot be written.
    pub fn truncate_fully_and_start_at(
        &self,
        partition: &TopicPartition,
        offset: Offset,
        log_start: Option<Offset>,
    ) -> Result<()> {
        let Some(log) = self.log(partition) else { return Ok(()) };
        self.while_paused(partition, || {
            log.truncate_fully_and_start_at(offset, log_start)?;
            self.lower_checkpoint(partition, log.active_base_offset()?)
        })
    }

    /// Lowers the checkpoint of a compacted log to `offset`; one that is lower already stays.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn lower_checkpoint(&self, partition: &TopicPartition, offset: Offset) -> Result<()> {
        let mut shared = self.shared.lock();
        let Some(pooled) = shared.logs.get(partition).cloned() else { return Ok(()) };
        if !pooled.log.config().cleanup_policy.compact {
            return Ok(());
        }
        let known = shared.checkpoints.read(&pooled.dir)?.get(partition).copied();
        if known.is_some_and(|known| known > offset) {
            shared.write_checkpoint(partition, &pooled.dir, Some(offset), None)?;
        }
        Ok(())
    }

    /// Puts a topic's new configuration in force. Where compaction ends with it, so does a round that is under way.
    ///
    /// # Errors
    /// As [`Log::update_config`].
    pub fn update_config(&self, partition: &TopicPartition, config: LogConfig) -> Result<()> {
        let Some(log) = self.log(partition) else { return Ok(()) };
        let ends = log.config().cleanup_policy.compact && !config.cleanup_policy.compact;
        log.update_config(config)?;
        if ends { self.abort(partition) } else { Ok(()) }
    }

    /// Takes a log out: ends a round that is under way, and drops its checkpoint and its mark. Returns the log.
    ///
    /// # Errors
    /// [`Error::Io`] where the checkpoint cannot be written; the log is out all the same.
    pub fn remove(&self, partition: &TopicPartition) -> Result<Option<Arc<Log>>> {
        let Some(pooled) = self.shared.lock().logs.remove(partition) else { return Ok(None) };
        self.while_paused(partition, || {
            let mut shared = self.shared.lock();
            shared.marks.remove(partition);
            shared.rounds.remove(partition);
            shared.write_checkpoint(partition, &pooled.dir, None, Some(partition))
        })?;
        Ok(Some(pooled.log))
    }

    /// As [`remove`](Self::remove), of a partition that need not have been taken in: its line in the checkpoint of `dir` goes all the
    /// same.
    pub(super) fn leave(&self, partition: &TopicPartition, dir: &std::path::Path) -> Result<()> {
        self.remove(partition)?;
        self.shared.lock().checkpoints.remove(dir, partition)
    }

    /// Moves a partition to another directory, whose log is `log`: the checkpoint goes with it. Cleaning must be held off.
    ///
    /// # Errors
    /// [`Error::State`] where it is not; [`Error::Io`].
    pub fn moved(&self, partition: &TopicPartition, dir: &std::path::Path, log: Arc<Log>) -> Result<()> {
        let mut shared = self.shared.lock();
        match shared.states.get(partition) {
            Some(PartitionState::Paused(_)) => {}
            other => {
                let found = other.map_or_else(|| "nobody's".to_owned(), |s| s.to_string());
                return Err(Error::State { partition: partition.clone(), expected: "paused", found });
            }
        }
        shared.checkpoints.add(dir)?;
        let from = shared.logs.get(partition).map(|pooled| pooled.dir.clone());
        let offset = match &from {
            Some(from) => shared.checkpoints.read(from)?.get(partition).copied(),
            None => None,
        };
        shared.logs.insert(partition.clone(), super::Pooled { log, dir: dir.to_path_buf() });
        shared.write_checkpoint(partition, dir, offset, None)?;
        match from.filter(|from| from != dir) {
            Some(from) => shared.write_checkpoint(partition, &from, None, Some(partition)),
            None => Ok(()),
        }
    }

    /// Pauses the logs that are not compacted and that nobody has, for a pass of retention over them; each is to be resumed
    /// afterwards.
    ///
    /// Source: Kafka `LogCleanerManager.pauseCleaningForNonCompactedPartitions`.
    pub fn pause_for_retention(&self) -> Vec<(TopicPartition, Arc<Log>)> {
        let mut shared = self.shared.lock();
        let deleting: Vec<_> = shared
            .logs
            .iter()
            .filter(|(_, pooled)| !pooled.log.config().cleanup_policy.compact)
            .map(|(partition, pooled)| (partition.clone(), pooled.log.clone()))
            .collect();
        deleting.into_iter().filter(|(partition, _)| shared.states.pause_free(partition)).collect()
    }

    pub(super) fn log(&self, partition: &TopicPartition) -> Option<Arc<Log>> {
        self.shared.lock().logs.get(partition).map(|pooled| pooled.log.clone())
    }
}
