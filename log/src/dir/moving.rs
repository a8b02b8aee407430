//! Copies of partitions that are being moved in from another directory.

use std::sync::Arc;

use kseg_format::checkpoint_files::{HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS};
use kseg_format::{Offset, TopicPartition, Uuid};
use tracing::info;

use super::DirInner;
use crate::config::LogConfig;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::open::OpenOptions;
use crate::topic::{DirKind, dir_name};
use crate::topics::unique;

impl DirInner {
    /// The copy of a partition that is being moved in; `None` where none was begun since the directory was opened.
    pub(crate) fn future(&self, partition: &TopicPartition) -> Option<Arc<Log>> {
        self.futures.lock().get(partition).cloned()
    }

    /// Begins the copy of a partition that is to be moved in, of which there must be none: an empty log from `start` on, with
    /// `config` and the topic's id.
    ///
    /// It is filled by [`append_as_follower`](Log::append_as_follower) and takes the partition's place with
    /// [`promote`](Self::promote).
    ///
    /// # Errors
    /// As [`Log::open`]; the name of a long topic's copy may be too long for the file system.
    ///
    /// Source: Kafka `LogManager.getOrCreateLog` with `isFuture`.
    pub(crate) fn begin_future(
        &self,
        partition: &TopicPartition,
        config: LogConfig,
        start: Offset,
        id: Option<Uuid>,
    ) -> Result<Arc<Log>> {
        let _inside = self.serve()?;
        self.in_turn(partition, || {
            let folder = self.path.join(dir_name(partition, DirKind::Future, unique()));
            // With its id from the beginning: a broker does not start on a copy without one.
            self.noted(self.make_folder_at(&folder, id))?;
            let options = OpenOptions { config, ..self.log_options() };
            let log = self.noted(self.open_at(&folder, options))?;
            if start > Offset::ZERO {
                self.noted(log.truncate_fully_and_start_at(start, None))?;
            }
            self.futures.lock().insert(partition.clone(), log.clone());
            Ok(log)
        })
    }

    /// Gives up the copies of a partition, as [`delete`](Self::delete) does a partition, whoever made them.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Offline`].
    pub(crate) fn delete_future(self: &Arc<Self>, partition: &TopicPartition) -> Result<()> {
        let _inside = self.serve()?;
        for (folder, of, kind) in self.noted(self.folders())? {
            if of == *partition && kind == DirKind::Future {
                self.give_up(partition, &folder)?;
            }
        }
        Ok(())
    }

    /// Gives up the copy of a partition that is in this folder.
    pub(super) fn give_up(self: &Arc<Self>, partition: &TopicPartition, folder: &str) -> Result<()> {
        let to = dir_name(partition, DirKind::Deleted, unique());
        self.in_turn(partition, || {
            if let Some(log) = self.futures.lock().remove(partition) {
                log.abandon();
            }
            let names = self.options.backend.names();
            let renamed = names.rename(&self.path.join(folder), &self.path.join(&to));
            self.noted(renamed.and_then(|()| names.sync_dir(&self.path)).map_err(Error::from))
        })?;
        info!(dir = %self.path.display(), folder, to, "copy of a partition renamed for deletion");
        self.remove_later(to);
        Ok(())
    }

    /// Makes the copy of a partition the partition: it is closed, its folder renamed, durably, and opened again. The
    /// partition must not be in this directory. Returns its log.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no copy, or the partition is here already; [`Error::Io`].
    ///
    /// Source: Kafka `LogManager.replaceCurrentWithFutureLog`.
    pub(crate) fn promote(&self, partition: &TopicPartition) -> Result<Arc<Log>> {
        let _inside = self.serve()?;
        self.in_turn(partition, || self.noted(self.take_place(partition)))
    }

    fn take_place(&self, partition: &TopicPartition) -> Result<Arc<Log>> {
        let names = self.options.backend.names();
        let folder = self.folder(partition);
        let refuse =
            |what: &str| Err(Error::InvalidArgument { what: format!("{}: {what}", folder.display()) });
        if names.stat(&folder)?.is_some() {
            return refuse("the partition is here already");
        }
        let Some(future) = self.futures.lock().remove(partition) else {
            return refuse("no copy of the partition is being moved in");
        };
        future.flush(true)?;
        self.remember(partition, &future);
        future.close()?;
        // Before the folder has the partition's name: after a crash it is not opened with the marks of another.
        self.write_checkpoints(&[RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS])?;
        names.rename(future.dir(), &folder)?;
        names.sync_dir(&self.path)?;
        let options = OpenOptions {
            config: (*future.config()).clone(),
            recovery_point: future.recovery_point(),
            log_start_offset: future.log_start_offset(),
            ..self.log_options()
        };
        let log = self.open_at(&folder, options)?;
        log.update_high_watermark(future.high_watermark());
        self.logs.lock().insert(partition.clone(), log.clone());
        Ok(log)
    }
}
