//! The namespace of the engine `std`: the operating system's.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::backend::{Entry, Held, Kind, Namespace, Stat};
use crate::error::{IoError, Verdict};
use crate::inode::Inode;
use crate::lock::{Claim, FileLock};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StdNames;

impl Namespace for StdNames {
    fn create_dir_all(&self, dir: &Path) -> Result<(), IoError> {
        fs::create_dir_all(dir).map_err(|source| IoError::new("make directory", dir, source))
    }

    fn list(&self, dir: &Path) -> Result<Vec<Entry>, IoError> {
        let mut entries = Vec::new();
        let read = || {
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                if let Some(stat) = stat(&entry.path())? {
                    entries.push(Entry { name: entry.file_name(), kind: stat.kind, len: stat.len });
                }
            }
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            Ok(entries)
        };
        named("list", dir, read)
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>, IoError> {
        named("stat", path, || stat(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), IoError> {
        named("rename", from, || fs::rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<bool, IoError> {
        named("remove", path, || present(fs::remove_file(path)))
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), IoError> {
        named("remove directory", dir, || present(fs::remove_dir_all(dir)).map(drop))
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), IoError> {
        let file = named("sync directory", dir, || {
            let file = File::open(dir)?;
            if file.metadata()?.is_dir() { Ok(file) } else { Err(io::ErrorKind::NotADirectory.into()) }
        })?;
        named("sync directory", dir, || file.sync_all()).map_err(|error| error.with_verdict(Verdict::Damaged))
    }

    fn sync_file(&self, path: &Path) -> Result<(), IoError> {
        let file = named("fsync", path, || File::open(path))?;
        named("fsync", path, || file.sync_all()).map_err(|error| error.with_verdict(Verdict::Damaged))
    }

    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, IoError> {
        let read = || {
            let file = match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            let len = file.metadata()?.len();
            let mut contents = Vec::new();
            if len <= limit {
                let size = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
                contents.try_reserve_exact(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
                // One byte more than allowed, to see that the file has it.
                file.take(limit.saturating_add(1)).read_to_end(&mut contents)?;
            }
            let len = len.max(contents.len() as u64);
            if len > limit {
                let why = format!("the file has {len} bytes, and at most {limit} are read");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            Ok(Some(contents))
        };
        named("read", path, read)
    }

    fn write(&self, path: &Path, contents: &[u8], sync: bool) -> Result<(), IoError> {
        let file = named("write", path, || {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            let metadata = file.metadata()?;
            let inode = Inode::of(&metadata);
            let len = contents.len() as u64;
            if metadata.len() > len {
                inode.resize(len, || file.set_len(len))?;
            }
            let _writing = Inode::writing(&*inode, 0)?;
            file.write_all_at(contents, 0)?;
            Ok(file)
        })?;
        if sync {
            named("fsync", path, || file.sync_all()).map_err(|error| error.with_verdict(Verdict::Damaged))?;
        }
        Ok(())
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> Result<(), IoError> {
        replace_by(self, path, contents)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Held>, IoError> {
        named("lock", path, || FileLock::take(path)).map(|lock| Box::new(lock) as Box<dyn Held>)
    }

    fn claim(&self, dir: &Path) -> Result<Box<dyn Held>, IoError> {
        named("claim", dir, || Claim::take(dir)).map(|claim| Box::new(claim) as Box<dyn Held>)
    }

    fn set_modified(&self, path: &Path, to: SystemTime) -> Result<(), IoError> {
        named("set time", path, || File::open(path)?.set_modified(to))
    }
}

/// Writes the new contents beside `path` and makes them durable, gives them the name, and makes the name durable.
fn replace_by(names: &dyn Namespace, path: &Path, contents: &[u8]) -> Result<(), IoError> {
    let (dir, beside) = beside(path)?;
    names.write(&beside, contents, true)?;
    names.rename(&beside, path)?;
    names.sync_dir(&dir)
}

/// The directory of `path`, and the name beside it under which its next contents are written.
///
/// Source: Kafka `CheckpointFile`, whose temporary files are `<name>.tmp`.
pub(crate) fn beside(path: &Path) -> Result<(PathBuf, PathBuf), IoError> {
    let Some(name) = path.file_name() else {
        return Err(IoError::because("replace", path, io::ErrorKind::InvalidInput, "not the name of a file"));
    };
    let mut beside = name.to_os_string();
    beside.push(".tmp");
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_path_buf(),
        _ => PathBuf::from("."),
    };
    Ok((dir, path.with_file_name(beside)))
}

fn named<T>(op: &'static str, path: &Path, call: impl FnOnce() -> io::Result<T>) -> Result<T, IoError> {
    call().map_err(|source| IoError::new(op, path, source))
}

/// Whether there was something to do it to.
fn present(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn stat(path: &Path) -> io::Result<Option<Stat>> {
    let metadata = match fs::metadata(path) {
        // A link to nowhere is there, too.
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::symlink_metadata(path),
        result => result,
    };
    match metadata {
        Ok(metadata) => {
            let kind = if metadata.is_file() {
                Kind::File
            } else if metadata.is_dir() {
                Kind::Dir
            } else {
                Kind::Other
            };
            Ok(Some(Stat { kind, len: metadata.len(), modified: metadata.modified()? }))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(all(test, feature = "testing", not(loom)))]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::backend::Backend;
    use crate::hook::Call;
    use crate::watched::{Moment, Watched};

    #[test]
    fn contents_are_replaced_durably_first_the_bytes_then_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let calls = Arc::new(Mutex::new(Vec::new()));
        let notes = calls.clone();
        let watched = Watched::new(Arc::new(crate::StdBackend::new()), move |moment, call, path| {
            if moment == Moment::Done {
                notes.lock().unwrap().push((call, path.to_path_buf()));
            }
        });
        replace_by(watched.names(), &path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let beside = dir.path().join("checkpoint.tmp");
        let expected = [
            (Call::WriteFile, beside.clone()),
            (Call::Rename, beside),
            (Call::SyncDir, dir.path().to_path_buf()),
        ];
        assert_eq!(*calls.lock().unwrap(), expected);
    }
}
