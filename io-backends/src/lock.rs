//! Locks on files, and claims of directories.
//!
//! Locks are fcntl record locks, as a Java `FileChannel` takes them, so that a broker and this crate exclude each other.
//! Such a lock belongs to the process: a second one taken in the same process succeeds, and closing *any*
//! descriptor of the file gives the lock back. Hence the table of locked files, asked before a file is opened, and
//! the rule that nobody opens a locked file otherwise.
//!
//! A claim is an entry in a table of this process.
//!
//! Source: fcntl(2), "Advisory record locking"; Kafka `LogManager.lockLogDirs`, `FileLock`.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::LazyLock;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::backend::Held;
use crate::sync::real;

/// Device and inode number.
type Key = (u64, u64);

static LOCKED: LazyLock<real::Mutex<HashSet<Key>>> = LazyLock::new(Default::default);

/// A locked file; dropping it gives the lock back.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: Option<File>,
    key: Key,
}

impl FileLock {
    pub(crate) fn take(path: &Path) -> io::Result<FileLock> {
        // Held over all of it: two threads that open the file at once would close it under each other.
        let mut locked = LOCKED.lock();
        loop {
            if let Some(lock) = FileLock::try_take(path, &mut locked)? {
                return Ok(lock);
            }
        }
    }

    /// `None` where the file that was locked no longer has this name: its holder removed it between the opening and the
    /// lock, and the next one to ask would lock another file.
    fn try_take(path: &Path, locked: &mut HashSet<Key>) -> io::Result<Option<FileLock>> {
        match fs::metadata(path) {
            Ok(metadata) if locked.contains(&key(&metadata)) => return Err(held("by this process")),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        FileLock::claim(file, path, locked)
    }

    /// Locks `file`, which was opened as `path`; as [`try_take`](Self::try_take).
    fn claim(file: File, path: &Path, locked: &mut HashSet<Key>) -> io::Result<Option<FileLock>> {
        let key = key(&file.metadata()?);
        if locked.contains(&key) {
            // Renamed to this name since it was asked for: closing it would give the other's lock back.
            std::mem::forget(file);
            return Err(held("by this process"));
        }
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => match fs::metadata(path) {
                Ok(named) if self::key(&named) == key => {
                    locked.insert(key);
                    Ok(Some(FileLock { file: Some(file), key }))
                }
                Ok(_) => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
            Err(Errno::AGAIN | Errno::ACCESS) => Err(held("by another process")),
            Err(error) => Err(error.into()),
        }
    }
}

impl Held for FileLock {}

impl Drop for FileLock {
    fn drop(&mut self) {
        let mut locked = LOCKED.lock();
        // Closing unlocks, inside the table's lock: the next one to take it must find both gone.
        drop(self.file.take());
        locked.remove(&self.key);
    }
}

/// A claimed directory; dropping it gives the claim back.
#[derive(Debug)]
pub(crate) struct Claim(ClaimKey);

/// The time of birth, where the file system has one: a number is given again when its directory has gone, though the claim on
/// that one be held yet.
type ClaimKey = (Key, Option<SystemTime>);

static CLAIMED: LazyLock<real::Mutex<HashSet<ClaimKey>>> = LazyLock::new(Default::default);

impl Claim {
    pub(crate) fn take(dir: &Path) -> io::Result<Claim> {
        let metadata = fs::metadata(dir)?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let claim = (key(&metadata), metadata.created().ok());
        if CLAIMED.lock().insert(claim) { Ok(Claim(claim)) } else { Err(claimed()) }
    }
}

impl Held for Claim {}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().remove(&self.0);
    }
}

fn key(metadata: &Metadata) -> Key {
    (metadata.dev(), metadata.ino())
}

/// The error of whoever wants to claim what is claimed.
pub(crate) fn claimed() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "the directory is claimed by somebody else in this process")
}

fn held(by: &str) -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, format!("the lock is held {by}"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn open(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    #[test]
    fn a_claim_on_a_directory_that_has_gone_does_not_count_for_the_next_one_of_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t-0");
        fs::create_dir(&path).unwrap();
        let _gone = Claim::take(&path).unwrap();
        for _ in 0..20 {
            fs::remove_dir(&path).unwrap();
            // Times of birth are as coarse as the kernel's clock ticks.
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::create_dir(&path).unwrap();
            let metadata = fs::metadata(&path).unwrap();
            // A file system that tells no time of birth, or gives numbers once, has nothing to show.
            if metadata.created().is_err() {
                return;
            }
            drop(Claim::take(&path).unwrap());
        }
    }

    #[test]
    fn a_lock_counts_only_on_the_file_that_still_has_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".lock");
        let mut locked = HashSet::new();
        let removed = open(&path);
        fs::remove_file(&path).unwrap();
        assert!(FileLock::claim(removed, &path, &mut locked).unwrap().is_none());
        let replaced = open(&path);
        fs::write(dir.path().join("other"), b"").unwrap();
        fs::rename(dir.path().join("other"), &path).unwrap();
        assert!(FileLock::claim(replaced, &path, &mut locked).unwrap().is_none());
        assert!(locked.is_empty());
        // The next one to ask gets the file that has the name now.
        let held = FileLock::take(&path).unwrap();
        assert_eq!(held.key, key(&fs::metadata(&path).unwrap()));
    }
}
