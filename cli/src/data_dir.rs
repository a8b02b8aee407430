//! Opening a data directory: to look at it without a trace, or to change it.

use std::path::Path;
use std::sync::Arc;

use kseg_io_backends::{Backend, Overlay, StdBackend};
use kseg_log::{DirLook, LogDir, LogDirOptions, ShutdownReport, parse_dir_name};

use crate::error::{Error, Result};
use crate::tell::tell;

/// What a command does to the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing: no lock is taken, and what opening it and its logs writes stays in memory.
    Look,
    /// It is locked and changed.
    Change,
    /// As `Change`; it is made where it is missing.
    Make,
}

impl Access {
    /// The backend through which the directory is opened.
    pub(crate) fn backend(self) -> Arc<dyn Backend> {
        let files: Arc<dyn Backend> = Arc::new(StdBackend::new());
        match self {
            Access::Look => Arc::new(Overlay::new(files)),
            Access::Change | Access::Make => files,
        }
    }
}

/// Opens the data directory, does the work, and closes it in an orderly way whatever came of that. A checkpoint that cannot
/// be read is told.
///
/// `options` must be on the backend of `access`.
pub(crate) fn with<T>(
    path: &Path,
    access: Access,
    options: LogDirOptions,
    work: impl FnOnce(&LogDir) -> Result<T>,
) -> Result<T> {
    check(path, access, &*options.backend)?;
    let dir = LogDir::open(path, options)?;
    tell_damage(&dir, access);
    let done = work(&dir);
    ended(done, close(dir))
}

/// What came of the work, and of closing the directory after it. Of two errors the first is the result, the other is told.
pub(crate) fn ended<T>(done: Result<T>, closed: Result<()>) -> Result<T> {
    match (done, closed) {
        (Ok(done), closed) => closed.map(|()| done),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(also)) => {
            tell!("kseg: {also}");
            Err(error)
        }
    }
}

/// Closes the directory in an orderly way.
pub(crate) fn close(dir: LogDir) -> Result<()> {
    let ShutdownReport { failed, .. } = dir.shutdown()?;
    failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(Error::from(error)))
}

/// Says which checkpoints of the directory cannot be read.
pub(crate) fn tell_damage(dir: &LogDir, access: Access) {
    for damage in dir.damaged_checkpoints() {
        tell_damaged(damage, access);
    }
}

/// Says that a checkpoint cannot be read, and what comes of that.
pub(crate) fn tell_damaged(damage: &kseg_format::CheckpointError, access: Access) {
    let kept = match access {
        Access::Look => "",
        Access::Change | Access::Make => "; kept beside it as .damaged when it is written anew",
    };
    tell!("kseg: {damage}: taken for one without entries{kept}");
}

/// Refuses what is no data directory, before anything is made there.
pub(crate) fn check(path: &Path, access: Access, backend: &dyn Backend) -> Result<()> {
    let found = match LogDir::look(backend, path)? {
        DirLook::DataDir => return Ok(()),
        DirLook::Missing | DirLook::Empty if access == Access::Make => return Ok(()),
        DirLook::Missing => "nothing".to_owned(),
        DirLook::File => "a file".to_owned(),
        DirLook::Empty => "an empty directory".to_owned(),
        DirLook::Partition => partition_folder(path),
        _ => "a directory of something else: neither partitions' folders nor files such as meta.properties"
            .to_owned(),
    };
    Err(Error::bad(path, "a data directory", found))
}

/// A partition's folder, and where its data directory is.
fn partition_folder(path: &Path) -> String {
    let whole = std::path::absolute(path).ok();
    let place = whole.as_deref().and_then(|whole| {
        let name = whole.file_name()?.to_str().filter(|name| parse_dir_name(name).is_ok())?;
        Some((whole.parent()?.display().to_string(), name.to_owned()))
    });
    match place {
        Some((parent, name)) => format!("the folder of partition {name}: its data directory is {parent}"),
        None => "a partition's folder".to_owned(),
    }
}
