//! Taking partitions out of a directory: for good, or aside.

use std::sync::{Arc, Weak};

use kseg_format::checkpoint_files::{LOG_STARTS, RECOVERY_POINTS};
use kseg_format::{PartitionMetadata, TopicPartition, Uuid};
use kseg_io_backends::Kind;

use super::{DirInner, LogDir, check_partition};
use tracing::{info, warn};

use crate::error::{Error, Result};
use crate::topic::{DirKind, dir_name};
use crate::topics::unique;

impl LogDir {
    /// Deletes a partition, and the copy of it that was being moved in: folders are renamed at once, and removed after
    /// `file.delete.delay.ms` of the directory's own configuration. Returns whether there was one.
    ///
    /// The log takes no further call; regions that readers hold can still be read. The partition may be made anew at once.
    /// A folder that is still there after a crash is removed by whoever opens the directory next.
    ///
    /// # Errors
    /// [`Error::Io`]: the partition is still there, and closed; [`Error::NotADirectory`] where a file is in its place, which
    /// stays; [`Error::Offline`].
    ///
    /// Source: Kafka `LogManager.asyncDelete`.
    pub fn delete(&self, partition: &TopicPartition) -> Result<bool> {
        self.inner.delete(partition, true)
    }

    /// Sets a partition aside: its folder is renamed to `-stray`, is not served, and is kept. Returns whether there was one.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    ///
    /// Source: Kafka `LogManager.asyncDelete` with `isStray`.
    pub fn set_aside(&self, partition: &TopicPartition) -> Result<bool> {
        Ok(self.inner.rename_away(partition, DirKind::Stray, true)?.is_some())
    }

    /// The topic's id as the partition's folder has it; `None` where it has none, which is to say that nothing was ever
    /// appended by a broker.
    ///
    /// # Errors
    /// [`Error::SmallFile`] for a malformed file; [`Error::Io`].
    pub fn topic_id(&self, partition: &TopicPartition) -> Result<Option<Uuid>> {
        let _inside = self.inner.enter()?;
        self.inner.topic_id(partition)
    }
}

impl DirInner {
    /// Longest `partition.metadata` that is read.
    const METADATA_SIZE_MAX: u64 = 64 * 1024;

    pub(super) fn topic_id(&self, partition: &TopicPartition) -> Result<Option<Uuid>> {
        let path = self.folder(partition).join(PartitionMetadata::FILE_NAME);
        let Some(bytes) = self.options.backend.names().read(&path, Self::METADATA_SIZE_MAX)? else {
            return Ok(None);
        };
        match PartitionMetadata::parse(&bytes) {
            Ok(metadata) => Ok(Some(metadata.topic_id)),
            Err(source) => Err(Error::SmallFile { path, source }),
        }
    }

    /// Deletes a partition and its copy; without `tell` one that has moved, of which whoever compacts it knows.
    pub(crate) fn delete(self: &Arc<Self>, partition: &TopicPartition, tell: bool) -> Result<bool> {
        let _inside = self.serve()?;
        self.delete_future(partition)?;
        self.delete_current(partition, tell)
    }

    pub(super) fn delete_current(self: &Arc<Self>, partition: &TopicPartition, tell: bool) -> Result<bool> {
        let Some(name) = self.rename_away(partition, DirKind::Deleted, tell)? else { return Ok(false) };
        self.remove_later(name);
        Ok(true)
    }

    /// Closes a partition's log and gives its folder the name of `kind`, durably; the folder's new name, if there was one.
    /// With `tell` whoever compacts it is told.
    fn rename_away(
        self: &Arc<Self>,
        partition: &TopicPartition,
        kind: DirKind,
        tell: bool,
    ) -> Result<Option<String>> {
        check_partition(partition)?;
        let _inside = self.serve()?;
        let renamed = self.in_turn(partition, || {
            let names = self.options.backend.names();
            let folder = self.folder(partition);
            let found = self.noted(names.stat(&folder).map_err(Error::from))?;
            if found.as_ref().is_some_and(|stat| stat.kind != Kind::Dir) {
                return Err(Error::NotADirectory { path: folder, found: "a file" });
            }
            let open = self.logs.lock().remove(partition);
            let told = if tell { self.tell_that_it_leaves(partition) } else { Ok(()) };
            if let Some(log) = open {
                log.abandon();
            }
            self.noted(told)?;
            if found.is_none() {
                return Ok(None);
            }
            let name = dir_name(partition, kind, unique());
            self.noted(names.rename(&folder, &self.path.join(&name)).map_err(Error::from))?;
            self.noted(names.sync_dir(&self.path).map_err(Error::from))?;
            self.forget(partition);
            match kind {
                DirKind::Stray => warn!(dir = %folder.display(), to = name, "partition set aside"),
                _ => info!(dir = %folder.display(), to = name, "partition renamed for deletion"),
            }
            Ok(Some(name))
        })?;
        if renamed.is_some() {
            self.write_checkpoints(&[RECOVERY_POINTS, LOG_STARTS])?;
        }
        Ok(renamed)
    }

    /// Nobody takes a partition that is made anew for one that was compacted.
    ///
    /// Source: Kafka `LogManager.asyncDelete`, `LogCleaner.updateCheckpoints`.
    fn tell_that_it_leaves(&self, partition: &TopicPartition) -> Result<()> {
        match self.compaction() {
            // The file is written by nobody else then.
            Some(compaction) => compaction.leaves(partition, &self.path),
            None => self.note_compacted(partition, None),
        }
    }

    pub(super) fn remove_later(self: &Arc<Self>, name: String) {
        let delay = u64::try_from(self.options.config.file_delete_delay_ms).unwrap_or(0);
        let dir: Weak<DirInner> = Arc::downgrade(self);
        let task = move || {
            if let Some(dir) = dir.upgrade()
                && let Ok(_inside) = dir.serve()
            {
                let removed = dir.options.backend.names().remove_dir_all(&dir.path.join(&name));
                // What is left is removed when the directory is opened next.
                match dir.noted(removed.map_err(Error::from)) {
                    Ok(()) => info!(dir = %dir.path.display(), name, "partition deleted"),
                    Err(error) => dir.troubles.note("kafka-delete-logs", Err::<(), _>(error)),
                }
            }
        };
        self.options.scheduler.schedule("kafka-delete-logs", delay, Box::new(task));
    }
}
