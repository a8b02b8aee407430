//! Copies of partitions that are being moved in from another directory.

use std::sync::Arc;

use kseg_format::{Offset, TopicPartition};

use super::{DirInner, LogDir};
use crate::config::LogConfig;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::open::OpenOptions;
use crate::topic::{DirKind, dir_name};
use crate::topics::unique;

impl LogDir {
    /// The copy of a partition that is being moved in; made, with `config` and an empty log from `start` on, where there is
    /// none.
    ///
    /// It is filled by [`append_as_follower`](Log::append_as_follower) and takes the partition's place with
    /// [`promote`](Self::promote). One that is left by a crash is found again by this call.
    ///
    /// # Errors
    /// As [`Log::open`]; the name of a long topic's copy may be too long for the file system.
    ///
    /// Source: Kafka `LogManager.getOrCreateLog` with `isFuture`.
    pub fn get_or_create_future(
        &self,
        partition: &TopicPartition,
        config: LogConfig,
        start: Offset,
    ) -> Result<Arc<Log>> {
        let dir = &self.inner;
        dir.health.check()?;
        dir.in_turn(partition, || {
            if let Some(log) = dir.futures.lock().get(partition) {
                return Ok(log.clone());
            }
            let found =
                dir.folders()?.into_iter().find(|(_, p, kind)| p == partition && *kind == DirKind::Future);
            let (name, new) = match found {
                Some((name, ..)) => (name, false),
                None => (dir_name(partition, DirKind::Future, unique()), true),
            };
            let folder = dir.path.join(name);
            let names = dir.options.backend.names();
            if new {
                dir.noted(names.create_dir_all(&folder).map_err(Error::from))?;
                dir.noted(names.sync_dir(&dir.path).map_err(Error::from))?;
            }
            // Nothing says how far an old copy is durable: all of it is looked at.
            let options = OpenOptions { config, clean: new, ..dir.log_options() };
            let log = dir.noted(dir.open_at(&folder, options))?;
            if new && start > Offset::ZERO {
                dir.noted(log.truncate_fully_and_start_at(start, None))?;
            }
            dir.futures.lock().insert(partition.clone(), log.clone());
            Ok(log)
        })
    }

    /// Makes the copy of a partition the partition: it is closed, its folder renamed, durably, and opened again. The
    /// partition must not be in this directory. Returns its log.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where there is no copy, or the partition is here already; [`Error::Io`].
    ///
    /// Source: Kafka `LogManager.replaceCurrentWithFutureLog`.
    pub fn promote(&self, partition: &TopicPartition) -> Result<Arc<Log>> {
        let dir = &self.inner;
        dir.health.check()?;
        dir.in_turn(partition, || dir.noted(dir.promote(partition)))
    }

    /// Gives up the copy of a partition, as [`delete`](Self::delete) does a partition. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn delete_future(&self, partition: &TopicPartition) -> Result<bool> {
        let dir = &self.inner;
        dir.health.check()?;
        dir.in_turn(partition, || {
            let Some(log) = dir.futures.lock().remove(partition) else { return Ok(false) };
            log.abandon();
            let removed = dir.options.backend.names().remove_dir_all(log.dir());
            dir.noted(removed.map_err(Error::from)).map(|()| true)
        })
    }
}

impl DirInner {
    fn promote(&self, partition: &TopicPartition) -> Result<Arc<Log>> {
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
