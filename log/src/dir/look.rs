//! What a directory is, as far as the names in it tell.

use std::path::Path;

use kseg_format::PartitionMetadata;
use kseg_format::checkpoint_files::LEADER_EPOCHS;
use kseg_io_backends::{Backend, Entry, Kind};
use kseg_segment::{FileKind, parse_file_name};

use super::{LogDir, is_ours};
use crate::error::Result;
use crate::topic::{check_topic_name, parse_dir_name};

/// What there is at a path that is to be a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirLook {
    /// Nothing.
    Missing,
    /// Something that is no directory.
    File,
    /// A directory without anything in it.
    Empty,
    /// A data directory: it holds partitions' folders, or files of Kafka's or of this crate.
    DataDir,
    /// A partition's folder.
    Partition,
    /// A directory of something else.
    Other,
}

impl LogDir {
    /// Says what there is at `path`, and changes nothing there: [`open`](Self::open) makes of every directory a data
    /// directory, but for a partition's folder.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) where it cannot be listed.
    pub fn look(backend: &dyn Backend, path: &Path) -> Result<DirLook> {
        let names = backend.names();
        match names.stat(path)? {
            None => return Ok(DirLook::Missing),
            Some(stat) if stat.kind != Kind::Dir => return Ok(DirLook::File),
            Some(_) => {}
        }
        let entries = names.list(path)?;
        let folders = || entries.iter().filter(|entry| is_partition(entry));
        if folders().next().is_none() && holds_log(&entries) {
            return Ok(DirLook::Partition);
        }
        let ours = entries.iter().any(|entry| is_ours(&entry.name.to_string_lossy()));
        // A name such as linux-6 alone is no partition; a folder that cannot be looked into may be one.
        if ours || folders().any(|entry| names.list(&path.join(&entry.name)).map_or(true, |e| holds_log(&e)))
        {
            return Ok(DirLook::DataDir);
        }
        // A new file system has a folder of its own.
        let empty = entries.iter().all(|entry| entry.name == "lost+found");
        Ok(if empty { DirLook::Empty } else { DirLook::Other })
    }
}

/// Whether an entry is a folder with a partition's name.
fn is_partition(entry: &Entry) -> bool {
    let parsed = entry.name.to_str().filter(|_| entry.kind == Kind::Dir).map(parse_dir_name);
    parsed.is_some_and(|parsed| parsed.is_ok_and(|(p, _)| check_topic_name(&p.topic).is_ok()))
}

/// Whether a directory with these entries holds a log.
pub(super) fn holds_log(entries: &[Entry]) -> bool {
    entries.iter().filter(|entry| entry.kind == Kind::File).filter_map(|entry| entry.name.to_str()).any(
        |name| {
            name == PartitionMetadata::FILE_NAME
                || name == LEADER_EPOCHS
                || parse_file_name(name).is_some_and(|name| name.kind == FileKind::Log)
        },
    )
}
