//! The engine `memory`: a file system in this process's memory.
//!
//! For tests, models and examples, and as the cost of everything above the device. It keeps every promise of the
//! traits that does not speak of power loss: a flush changes nothing, and all is gone with the last handle. Names
//! are paths from one root; relative ones start there, too.
//!
//! Locks: the tree's, then a file's; never two files' at once.

mod contents;
mod tree;

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::io::Errno;

use crate::backend::{Align, Backend, FileCaps, Held, MapAccess, Namespace, OpenHow, RawFile};
use crate::error::IoError;
use crate::map::MappedRegion;
use crate::memory::contents::Contents;
use crate::memory::tree::Tree;
use crate::op::{Done, Op, Reserve};
use crate::sync::{AtomicBool, Ordering, RwLock, now};
use crate::ticket::Ticket;

/// Files in this process's memory, for as long as the backend, or a handle, lives.
#[derive(Debug)]
pub struct MemoryBackend {
    tree: Tree,
}

impl MemoryBackend {
    /// An empty file system. Times of change are the system clock's; under loom a counter's, as a model has no
    /// clock.
    pub fn new() -> Self {
        Self::with_clock(now)
    }

    /// An empty file system whose times of change come from `clock`.
    pub fn with_clock(clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self { tree: Tree::new(Clock(Arc::new(clock))) }
    }
}

impl Default for MemoryBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for MemoryBackend {
    fn name(&self) -> &str {
        "memory"
    }

    fn names(&self) -> &dyn Namespace {
        &self.tree
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn RawFile>, IoError> {
        match self.tree.open(path, how) {
            Ok(file) => Ok(Arc::new(MemoryFile { path: path.into(), file, writable: how != OpenHow::Read })),
            Err(error) => Err(IoError::new("open", path, error)),
        }
    }

    fn drive(&self, _max_wait: Duration) -> Result<usize, IoError> {
        Ok(0)
    }
}

/// Where times of change come from.
#[derive(Clone)]
struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    fn now(&self) -> SystemTime {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// What a name of the tree and the handles of a file share.
#[derive(Debug)]
struct Inode {
    contents: RwLock<Contents>,
    locked: AtomicBool,
    clock: Clock,
}

impl Inode {
    fn new(clock: Clock) -> Self {
        let contents = Contents::new(clock.now());
        Self { contents: RwLock::new(contents), locked: AtomicBool::new(false), clock }
    }

    fn lock(self: &Arc<Self>) -> io::Result<Box<dyn Held>> {
        // Nothing is published by it but itself: Acquire and Release as any lock.
        if self.locked.swap(true, Ordering::Acquire) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "the lock is held by this process"));
        }
        Ok(Box::new(MemoryLock(Arc::clone(self))))
    }
}

#[derive(Debug)]
struct MemoryLock(Arc<Inode>);

impl Held for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

#[derive(Debug)]
struct MemoryFile {
    path: PathBuf,
    file: Arc<Inode>,
    writable: bool,
}

impl MemoryFile {
    fn change(&self, change: impl FnOnce(&mut Contents) -> io::Result<u64>) -> io::Result<u64> {
        if !self.writable {
            return Err(Errno::BADF.into());
        }
        let now = self.file.clock.now();
        let mut contents = self.file.contents.write();
        let result = change(&mut contents)?;
        contents.modified = now;
        Ok(result)
    }

    fn error(&self, op: &'static str, source: io::Error) -> IoError {
        IoError::new(op, &self.path, source)
    }
}

impl RawFile for MemoryFile {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn align(&self) -> Align {
        Align::NONE
    }

    fn caps(&self) -> FileCaps {
        FileCaps { write_through: true, descriptor: false, ..FileCaps::NONE }
    }

    fn submit(&self, op: Op) -> Ticket {
        let done = match op {
            Op::Write { at, data, .. } => {
                let result = self
                    .change(|contents| contents.write(at, data.parts()))
                    .map_err(|source| self.error("write", source).with_range(at, data.len()));
                Done::written(result, data)
            }
            Op::Flush { .. } | Op::Advise { .. } => Done::new(Ok(0)),
            Op::SetLen { len } => Done::new(
                self.change(|contents| contents.set_len(len))
                    .map_err(|source| self.error("set length", source).with_range(len, 0)),
            ),
            Op::Reserve { range, how } => {
                let reserve = |contents: &mut Contents| match how {
                    _ if range.is_empty() => Ok(contents.len()),
                    Reserve::Blocks => Ok(contents.len()),
                    Reserve::BlocksAndLen => contents.grow(range.end),
                    Reserve::Zeroed => contents.grow(range.end).inspect(|_| contents.zero(range.clone())),
                };
                Done::new(self.change(reserve).map_err(|source| {
                    self.error("reserve", source)
                        .with_range(range.start, range.end.saturating_sub(range.start))
                }))
            }
        };
        Ticket::ready(done)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        Ok(self.file.contents.read().read(at, into))
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(self.file.contents.read().len())
    }

    fn map(&self, len: usize, access: MapAccess) -> Result<MappedRegion, IoError> {
        let map = || {
            if access == MapAccess::Write && !self.writable {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let mut contents = self.file.contents.write();
            inside(len as u64, contents.len())?;
            Ok(MappedRegion::blocks(contents.blocks(len), len, access))
        };
        map().map_err(|source| self.error("map", source).with_range(0, len as u64))
    }

    fn map_bytes(&self, range: Range<u64>) -> Result<Bytes, IoError> {
        let copy = || {
            if range.start > range.end {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the range ends before it begins"));
            }
            let contents = self.file.contents.read();
            inside(range.end, contents.len())?;
            contents.copy(range.start, range.end - range.start).map(Bytes::from)
        };
        copy().map_err(|source| {
            self.error("map", source).with_range(range.start, range.end.saturating_sub(range.start))
        })
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn inside(end: u64, len: u64) -> io::Result<()> {
    if end > len {
        let why = format!("the file has {len} bytes, and {end} were to be mapped");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}
