//! The files `cleaner-offset-checkpoint`, one in each data directory: up to where each log has been cleaned.
//!
//! A log goes by the file of the directory that it lies in; lines of other directories' files never count for it. A file
//! that cannot be read costs work and nothing else: its logs are cleaned from their start, and it is written anew.
//!
//! Source: Kafka `LogCleanerManager.updateCheckpoints`, `OffsetCheckpointFile`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::{Offset, parse_offsets, print_offsets};
use kseg_io_backends::Backend;
use kseg_log::TopicPartition;

use crate::error::{Error, Result};

/// Name of the file.
pub(crate) const NAME: &str = "cleaner-offset-checkpoint";

/// Far above a line for each of a million partitions.
const SIZE_MAX: u64 = 512 * 1024 * 1024;

type Offsets = BTreeMap<TopicPartition, Offset>;

/// The checkpoints of some directories.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    backend: Arc<dyn Backend>,
    dirs: BTreeSet<PathBuf>,
    /// Files that could not be read, and why.
    faults: BTreeMap<PathBuf, String>,
}

impl Checkpoints {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Checkpoints {
        Checkpoints { backend, dirs: BTreeSet::new(), faults: BTreeMap::new() }
    }

    /// Takes a directory in; its file is made where there is none.
    pub(crate) fn add(&mut self, dir: &Path) -> Result<()> {
        if self.dirs.insert(dir.to_path_buf()) && self.backend.names().stat(&dir.join(NAME))?.is_none() {
            self.write(dir, &Offsets::new())?;
        }
        Ok(())
    }

    /// Leaves a directory out from now on; its file stays as it is.
    pub(crate) fn forget(&mut self, dir: &Path) {
        self.dirs.remove(dir);
        self.faults.remove(dir);
    }

    /// The entries of a directory; none where its file is malformed, which is noted, or the directory is forgotten.
    pub(crate) fn read(&mut self, dir: &Path) -> Result<Offsets> {
        if !self.dirs.contains(dir) {
            return Ok(Offsets::new());
        }
        let path = dir.join(NAME);
        let bytes = self.backend.names().read(&path, SIZE_MAX)?.unwrap_or_default();
        match parse_offsets(&bytes) {
            Ok(offsets) => {
                self.faults.remove(dir);
                Ok(offsets)
            }
            Err(error) => {
                self.faults.insert(dir.to_path_buf(), error.in_file(&path).to_string());
                Ok(Offsets::new())
            }
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
        if !self.dirs.contains(dir) {
            return Ok(());
        }
        let mut offsets = self.read(dir)?;
        offsets.retain(|partition, _| there(partition));
        if let Some((partition, offset)) = set {
            offsets.insert(partition.clone(), offset);
        }
        if let Some(partition) = remove {
            offsets.remove(partition);
        }
        self.write(dir, &offsets)
    }

    fn write(&self, dir: &Path, offsets: &Offsets) -> Result<()> {
        let text = print_offsets(offsets.iter().map(|(p, &o)| (p, o)));
        self.backend.names().replace(&dir.join(NAME), &text).map_err(Error::Io)
    }

    /// Files that could not be read when they were last looked at.
    pub(crate) fn faults(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.faults.iter().map(|(dir, fault)| (dir.as_path(), fault.as_str()))
    }
}
