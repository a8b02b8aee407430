//! The files of a partition's directory, as they are now.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kseg_format::Offset;
use kseg_format::checkpoint_files::LOG_STARTS;
use kseg_format::parse_offsets;
use kseg_log::parse_dir_name;
use kseg_segment::{FileKind, Suffix, parse_file_name};

use crate::data_dir::{self, Access};
use crate::error::{Error, Result};
use crate::tell::tell;

/// A partition's directory, of which nothing is kept but the path.
#[derive(Debug)]
pub(crate) struct Partition {
    dir: PathBuf,
}

/// A segment by its log file.
#[derive(Debug, Clone)]
pub(crate) struct SegmentFile {
    pub(crate) base: Offset,
    pub(crate) path: PathBuf,
}

impl Partition {
    /// The directory, which must hold at least one segment.
    pub(crate) fn open(dir: &Path) -> Result<Partition> {
        let partition = Partition { dir: dir.to_owned() };
        if partition.segments()?.is_empty() {
            return Err(Error::bad(
                dir,
                "a partition folder with segments such as 00000000000000000000.log",
                "no segment",
            ));
        }
        Ok(partition)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The segments by base offset. A file on its way out (`.deleted`, `.swap`, `.cleaned`) is none.
    pub(crate) fn segments(&self) -> Result<Vec<SegmentFile>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::bad(&self.dir, "a partition folder", "a file"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::bad(&self.dir, "a partition folder", "nothing: it does not exist"));
            }
            Err(error) => return Err(Error::io(&self.dir, "list", error)),
        };
        let mut segments = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| Error::io(&self.dir, "list", error))?;
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(parse_file_name) else { continue };
            if name.kind == FileKind::Log && name.suffix == Suffix::None {
                segments.push(SegmentFile { base: name.offset, path: entry.path() });
            }
        }
        segments.sort_by_key(|segment| segment.base);
        Ok(segments)
    }

    /// The log start offset in the data directory's checkpoint, if it has one for this partition. A checkpoint that cannot
    /// be read is told, and taken for one without entries.
    pub(crate) fn log_start_checkpoint(&self) -> Result<Option<Offset>> {
        let dir = fs::canonicalize(&self.dir).map_err(|error| Error::io(&self.dir, "resolve", error))?;
        let name = dir.file_name().and_then(|name| name.to_str()).map(parse_dir_name);
        // A folder of another name, as a copy has, is no data directory's.
        let (Some(Ok((partition, _))), Some(whole)) = (name, dir.parent()) else { return Ok(None) };
        // The path as the user gave it, so that messages name it so.
        let given = self.dir.parent().filter(|_| self.dir.file_name().is_some());
        let parent = match given {
            Some(given) if !given.as_os_str().is_empty() => given,
            Some(_) => Path::new("."),
            None => whole,
        };
        let path = parent.join(LOG_STARTS);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                tell!("kseg: {}: taken for one without entries", Error::io(&path, "read", error));
                return Ok(None);
            }
        };
        match parse_offsets(&bytes) {
            Ok(offsets) => Ok(offsets.get(&partition).copied()),
            Err(damage) => {
                data_dir::tell_damaged(&damage.in_file(path), Access::Look);
                Ok(None)
            }
        }
    }
}
