//! [`PowerLoss`]: a file system in memory that knows what a failure of the power may take back.
//!
//! Beside the files as they are, kept by the engine `memory`, it keeps what is durable, and in order what is not:
//! writes, changes of length, names given and taken away. A cut stops all calls; [`PowerLoss::after`] then makes the
//! file system that is found when the power is back, one of the many that the syncs allow.
//!
//! *Invariant*: what is durable, with everything pending applied, is what the engine `memory` shows; but for bytes that
//! were stored through a map, of which the model knows nothing and promises nothing.

mod disk;

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::backend::{Align, Backend, Entry, FileCaps, Held, MapAccess, Namespace, OpenHow, RawFile, Stat};
use crate::error::IoError;
use crate::hook::Call;
use crate::map::MappedRegion;
use crate::memory::MemoryBackend;
use crate::op::{Done, Op, Reserve, Through};
use crate::power::disk::{Disk, Id};
use crate::std_names::beside;
use crate::sync::Mutex;
use crate::ticket::Ticket;

/// A backend in memory whose power can be cut.
///
/// What was not synced may then be gone, in part or in whole: bytes by sectors of 512, lengths and names each for
/// itself, in any order between files; names of one directory from the last change backwards. A name that is not
/// durable takes what it leads to with it. Files that were ever mapped for writing may hold anything in any sector that
/// they have.
///
/// ```
/// use std::path::Path;
///
/// use kseg_io_backends::{Backend, Loss, OpenHow, PowerLoss, appender};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let disk = PowerLoss::new();
/// let log = appender(disk.open(Path::new("0.log"), OpenHow::Create)?, 0)?;
/// log.append(bytes::Bytes::from_static(b"kept").into())?;
/// log.flush()?;
/// disk.names().sync_dir(Path::new("/"))?;
/// log.append(bytes::Bytes::from_static(b"lost").into())?;
///
/// disk.cut_at(disk.calls());
/// assert!(log.flush().is_err());
/// let found = disk.after(Loss::Everything);
/// assert_eq!(found.names().read(Path::new("0.log"), 100)?.as_deref(), Some(&b"kept"[..]));
/// # Ok(())
/// # }
/// ```
///
/// Source: `fsync(2)`, `rename(2)`; the order among changes of one directory is that of a journal.
pub struct PowerLoss {
    inner: MemoryBackend,
    state: Arc<Mutex<State>>,
}

/// What of the things that were not synced is gone when the power is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Nothing: all was written just in time.
    Nothing,
    /// Everything.
    Everything,
    /// The names; the bytes and lengths of the files that still have one are there.
    Names,
    /// The bytes: names and lengths are there, and zeros where the bytes should be.
    Bytes,
    /// What the seed says, piece by piece.
    Random(u64),
}

struct State {
    disk: Disk,
    calls: u64,
    cut_at: u64,
}

impl State {
    fn check(&self, op: &'static str, path: &Path) -> Result<(), IoError> {
        if self.calls >= self.cut_at {
            return Err(IoError::new(op, path, io::Error::other("the power is off")));
        }
        Ok(())
    }
}

impl PowerLoss {
    /// An empty file system whose power stays on.
    pub fn new() -> Self {
        let state = State { disk: Disk::new(), calls: 0, cut_at: u64::MAX };
        Self { inner: MemoryBackend::new(), state: Arc::new(Mutex::new(state)) }
    }

    /// Cuts the power once `calls` calls that change something have been made: from then on every call fails.
    pub fn cut_at(&self, calls: u64) {
        self.state.lock().cut_at = calls;
    }

    /// How many calls that change something, syncs included, were made.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        let state = self.state.lock();
        state.calls >= state.cut_at
    }

    /// The file system that is found after a cut at this moment, of which all is durable. This one stays as it is.
    pub fn after(&self, loss: Loss) -> PowerLoss {
        let found = PowerLoss::new();
        let state = self.state.lock();
        for (path, node) in state.disk.after(loss) {
            let made = match node {
                None => found.inner.names().create_dir_all(&path),
                Some(contents) => found.inner.names().write(&path, &contents, true).and_then(|()| {
                    let file = found.inner.open(&path, OpenHow::Read)?;
                    found.state.lock().disk.add_file(&path, file, contents);
                    Ok(())
                }),
            };
            made.expect("the engine `memory` refuses nothing of what it held");
            if found.state.lock().disk.find(&path).is_none() {
                found.state.lock().disk.make_dir(&path);
            }
        }
        found.state.lock().disk.settle();
        found
    }

    /// A call that changes something: counted, and refused when the power is off.
    fn step<T>(
        &self,
        op: &'static str,
        path: &Path,
        change: impl FnOnce(&mut Disk) -> Result<T, IoError>,
    ) -> Result<T, IoError> {
        let mut state = self.state.lock();
        state.check(op, path)?;
        state.calls += 1;
        change(&mut state.disk)
    }

    fn look<T>(&self, op: &'static str, path: &Path, look: impl FnOnce() -> T) -> Result<T, IoError> {
        self.state.lock().check(op, path)?;
        Ok(look())
    }
}

impl Default for PowerLoss {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for PowerLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("PowerLoss")
            .field("calls", &state.calls)
            .field("cut_at", &state.cut_at)
            .finish_non_exhaustive()
    }
}

impl Backend for PowerLoss {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn names(&self) -> &dyn Namespace {
        self
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn RawFile>, IoError> {
        let known = self.state.lock().disk.find(path).is_some();
        let open = || self.inner.open(path, how);
        let (file, id) = if known || matches!(how, OpenHow::Read | OpenHow::Write) {
            let file = self.look("open", path, open)??;
            let id = self.state.lock().disk.find(path);
            (file, id)
        } else {
            self.step("open", path, |disk| {
                let file = open()?;
                let id = disk.make_file(path, file.clone());
                Ok((file, id))
            })?
        };
        let id = id.ok_or_else(|| IoError::new("open", path, io::ErrorKind::NotFound.into()))?;
        Ok(Arc::new(PowerFile { inner: file, id, state: self.state.clone() }))
    }

    fn drive(&self, max_wait: Duration) -> Result<usize, IoError> {
        self.inner.drive(max_wait)
    }
}

impl Namespace for PowerLoss {
    fn create_dir_all(&self, dir: &Path) -> Result<(), IoError> {
        self.step("make directory", dir, |disk| {
            self.inner.names().create_dir_all(dir)?;
            disk.make_dir(dir);
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<Entry>, IoError> {
        self.look("list", dir, || self.inner.names().list(dir))?
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>, IoError> {
        self.look("stat", path, || self.inner.names().stat(path))?
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), IoError> {
        self.step("rename", from, |disk| {
            self.inner.names().rename(from, to)?;
            disk.rename(from, to);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> Result<bool, IoError> {
        self.step("remove", path, |disk| {
            let was_there = self.inner.names().remove(path)?;
            disk.unlink(path);
            Ok(was_there)
        })
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), IoError> {
        self.step("remove directory", dir, |disk| {
            self.inner.names().remove_dir_all(dir)?;
            disk.unlink_all(dir);
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), IoError> {
        self.step("sync directory", dir, |disk| {
            self.inner.names().sync_dir(dir)?;
            disk.sync_dir(dir);
            Ok(())
        })
    }

    fn sync_file(&self, path: &Path) -> Result<(), IoError> {
        self.step("sync", path, |disk| {
            self.inner.names().sync_file(path)?;
            if let Some(id) = disk.find(path) {
                disk.flush(id, true);
            }
            Ok(())
        })
    }

    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, IoError> {
        self.look("read", path, || self.inner.names().read(path, limit))?
    }

    fn write(&self, path: &Path, contents: &[u8], sync: bool) -> Result<(), IoError> {
        let file = self.open(path, OpenHow::Create)?;
        let data = Bytes::copy_from_slice(contents);
        file.submit(Op::SetLen { len: 0 }).wait().result?;
        file.submit(Op::Write { at: 0, data: data.into(), through: Through::No }).wait().result?;
        if sync {
            file.submit(Op::Flush { metadata: true }).wait().result?;
        }
        Ok(())
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> Result<(), IoError> {
        let (dir, beside) = beside(path)?;
        self.write(&beside, contents, true)?;
        self.rename(&beside, path)?;
        self.sync_dir(&dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Held>, IoError> {
        self.open(path, OpenHow::Create)?;
        self.look("lock", path, || self.inner.names().lock(path))?
    }

    fn claim(&self, dir: &Path) -> Result<Box<dyn Held>, IoError> {
        self.look("claim", dir, || self.inner.names().claim(dir))?
    }

    fn set_modified(&self, path: &Path, to: SystemTime) -> Result<(), IoError> {
        self.look("set time", path, || self.inner.names().set_modified(path, to))?
    }
}

struct PowerFile {
    inner: Arc<dyn RawFile>,
    id: Id,
    state: Arc<Mutex<State>>,
}

impl fmt::Debug for PowerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PowerFile").field(&self.inner).finish()
    }
}

impl RawFile for PowerFile {
    fn path(&self) -> PathBuf {
        self.inner.path()
    }

    fn align(&self) -> Align {
        self.inner.align()
    }

    fn caps(&self) -> FileCaps {
        self.inner.caps()
    }

    fn submit(&self, op: Op) -> Ticket {
        let mut state = self.state.lock();
        if let Err(error) = state.check(Call::of(&op).name(), &self.inner.path()) {
            return Ticket::ready(match op {
                Op::Write { data, .. } => Done::written(Err(error), data),
                _ => Done::new(Err(error)),
            });
        }
        if !matches!(op, Op::Advise { .. }) {
            state.calls += 1;
        }
        let asked = op.clone();
        let mut done = self.inner.submit(op).wait();
        if let Ok(result) = &mut done.result {
            let file = state.disk.file_mut(self.id);
            match asked {
                Op::Write { at, data, through } => {
                    let mut bytes = data.parts().concat();
                    bytes.truncate(usize::try_from(*result).unwrap_or(usize::MAX));
                    file.write(at, bytes, through == Through::Data);
                }
                Op::Flush { metadata } => file.flush(metadata),
                Op::SetLen { len } => file.set_len(len),
                Op::Reserve { range, how } => match how {
                    _ if range.is_empty() => {}
                    Reserve::Blocks => {}
                    Reserve::BlocksAndLen => file.grow(range.end),
                    Reserve::Zeroed => {
                        let size = usize::try_from(range.end - range.start).unwrap_or(0);
                        file.write(range.start, vec![0; size], false);
                    }
                },
                Op::Advise { .. } => {}
            }
        }
        Ticket::ready(done)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        self.state.lock().check("read", &self.inner.path())?;
        self.inner.read_at(into, at)
    }

    fn len(&self) -> Result<u64, IoError> {
        self.state.lock().check("length", &self.inner.path())?;
        self.inner.len()
    }

    fn map(&self, len: usize, access: MapAccess) -> Result<MappedRegion, IoError> {
        let mut state = self.state.lock();
        state.check("map", &self.inner.path())?;
        let region = self.inner.map(len, access)?;
        if access == MapAccess::Write {
            state.disk.file_mut(self.id).map();
        }
        Ok(region)
    }

    fn map_bytes(&self, range: Range<u64>) -> Result<Bytes, IoError> {
        self.state.lock().check("map", &self.inner.path())?;
        self.inner.map_bytes(range)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
