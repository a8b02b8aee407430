//! The files `cleaner-offset-checkpoint`, one in each data directory: up to where each log has been cleaned.
//!
//! A log goes by the file of the directory that it lies in; lines of other directories' files never count for it. A file
//! that cannot be read costs work and nothing else: its logs are cleaned from their start, and it is kept aside before it is
//! written anew.
//!
//! Source: Kafka `LogCleanerManager.updateCheckpoints`, `OffsetCheckpointFile`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::checkpoint_files::CLEANER_OFFSETS;
use kseg_format::{CheckpointError, Offset};
use kseg_io_backends::Backend;
use kseg_log::{OffsetCheckpoint, TopicPartition};

use crate::error::{Error, Result};

type Offsets = BTreeMap<TopicPartition, Offset>;

/// The checkpoints of some directories.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    backend: Arc<dyn Backend>,
    dirs: BTreeMap<PathBuf, OffsetCheckpoint>,
}

impl Checkpoints {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Checkpoints {
        Checkpoints { backend, dirs: BTreeMap::new() }
    }

    /// Takes a directory in; its file is made where there is none, and looked at where there is.
    pub(crate) fn add(&mut self, dir: &Path) -> Result<()> {
        if self.dirs.contains_key(dir) {
            return Ok(());
        }
        let mut file = OffsetCheckpoint::new(dir.join(CLEANER_OFFSETS));
        let names = self.backend.names();
        match names.stat(file.path())? {
            None => file.write(names, []).map_err(own)?,
            Some(_) => drop(file.read(names).map_err(own)?),
        }
        self.dirs.insert(dir.to_path_buf(), file);
        Ok(())
    }

    /// Leaves a directory out from now on; its file stays as it is.
    pub(crate) fn forget(&mut self, dir: &Path) {
        self.dirs.remove(dir);
    }

    /// The entries of a directory; none where its file is malformed, which is noted, or the directory is forgotten.
    pub(crate) fn read(&mut self, dir: &Path) -> Result<Offsets> {
        match self.dirs.get_mut(dir) {
            Some(file) => file.read(self.backend.names()).map_err(own),
            None => Ok(Offsets::new()),
        }
    }

    /// Changes a directory's file: entries of partitions for which `there` is false go, then `set` and `remove` happen.
    pub(crate) fn update(
        &mut self,
        dir: &Path,
        there: impl Fn(&TopicPartition) -> bool,
        set: Option<(&TopicPartition, Offset)>,
        remove: Option<&TopicPartition>,
    ) -> Result<()> {
        let Some(file) = self.dirs.get_mut(dir) else { return Ok(()) };
        let mut offsets = file.read(self.backend.names()).map_err(own)?;
        offsets.retain(|partition, _| there(partition));
        if let Some((partition, offset)) = set {
            offsets.insert(partition.clone(), offset);
        }
        if let Some(partition) = remove {
            offsets.remove(partition);
        }
        file.write(self.backend.names(), offsets.iter().map(|(p, &o)| (p, o))).map_err(own)
    }

    /// Takes a partition's line out of the file of a directory, whether or not that one was taken in.
    pub(crate) fn remove(&mut self, dir: &Path, partition: &TopicPartition) -> Result<()> {
        let mut other = OffsetCheckpoint::new(dir.join(CLEANER_OFFSETS));
        let file = self.dirs.get_mut(dir).unwrap_or(&mut other);
        file.set(self.backend.names(), partition, None).map_err(own)
    }

    /// Files that could not be read when they were last looked at.
    pub(crate) fn damaged(&self) -> impl Iterator<Item = &CheckpointError> {
        self.dirs.values().filter_map(OffsetCheckpoint::damage)
    }
}

/// An error of the system is this crate's own.
fn own(error: kseg_log::Error) -> Error {
    match error {
        kseg_log::Error::Io(error) => Error::Io(error),
        other => Error::Log(other),
    }
}
