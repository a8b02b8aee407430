//! [`Overlay`]: a backend over another, of which nothing is changed there.
//!
//! What is made, written or renamed through it stays in this process's memory, and is gone with it. So whatever opens files in
//! order to look at them, and mends them on the way, can be let loose on a directory that is somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::io::Errno;

use crate::backend::{
    Align, Backend, Entry, FileCaps, Held, Kind, MapAccess, Namespace, OpenHow, RawFile, Stat, write_all,
};
use crate::error::IoError;
use crate::map::MappedRegion;
use crate::memory::MemoryBackend;
use crate::op::{Done, Op};
use crate::sync::{Mutex, RwLock};
use crate::ticket::Ticket;

/// The largest file that is copied into memory for a write to it; holes do not count.
const COPIED_MAX: u64 = 256 << 20;
/// What is copied at a time; holes, and parts of nothing but zeros, are not.
const PART: usize = 64 << 10;

/// A backend in which all that is below can be read, and changed as far as whoever uses it can see, while nothing below is
/// written, made, renamed, removed or locked.
///
/// A file from below that is cut or renamed is still read from there; one that is written to, or mapped, is copied into memory
/// first, up to 256 MiB, without its holes.
///
/// It may be laid over files that others change meanwhile: a file ends where it ended when it was first opened, whatever is
/// appended to it later. One that others cut, rename or remove is met as an error; whoever wants to can look again, after
/// [`forget`](Self::forget), or through a new overlay.
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
///
/// use kseg_io_backends::{Backend, Overlay, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let below = open("memory")?;
/// below.names().write(Path::new("/file"), b"theirs", true)?;
/// let overlay = Overlay::new(below.clone());
/// overlay.names().replace(Path::new("/file"), b"mine")?;
/// assert_eq!(overlay.names().read(Path::new("/file"), 100)?, Some(b"mine".to_vec()));
/// assert_eq!(below.names().read(Path::new("/file"), 100)?, Some(b"theirs".to_vec()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Overlay {
    names: Names,
}

/// The names, which files keep for when they are copied.
#[derive(Debug, Clone)]
struct Names(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    below: Arc<dyn Backend>,
    above: MemoryBackend,
    tree: Mutex<Tree>,
}

/// What has become of names from below. Whatever is above counts first.
#[derive(Debug, Default)]
struct Tree {
    /// Names that are not there any more, with all that lies in them.
    hidden: BTreeSet<PathBuf>,
    /// Names that stand for another one below; they count before the hidden ones.
    moved: BTreeMap<PathBuf, PathBuf>,
    /// What has become of files, by their names below.
    changed: BTreeMap<PathBuf, Arc<RwLock<Change>>>,
    /// Counts files that were copied.
    copies: u64,
}

/// What has become of a file from below.
#[derive(Debug, Default)]
struct Change {
    /// Where it ends, once it has been opened.
    len: Option<u64>,
    modified: Option<SystemTime>,
    /// Its copy, which is the file from then on.
    copy: Option<Arc<dyn RawFile>>,
}

impl Overlay {
    /// An overlay over `below` in which nothing has changed yet.
    pub fn new(below: Arc<dyn Backend>) -> Self {
        let name = format!("overlay of {}", below.name());
        let (above, tree) = (MemoryBackend::new(), Mutex::new(Tree::default()));
        Self { names: Names(Arc::new(Inner { name, below, above, tree })) }
    }

    /// Forgets what was changed in a directory, at any depth, and how long its files were: it is as it is below. For when all
    /// its files have been let go of.
    ///
    /// # Errors
    /// Kind [`NotADirectory`](io::ErrorKind::NotADirectory) for a file.
    pub fn forget(&self, dir: &Path) -> Result<(), IoError> {
        let (inner, dir) = (&self.names.0, plain(dir));
        let mut tree = inner.tree.lock();
        inner.above.names().remove_dir_all(&dir)?;
        tree.hidden.retain(|name| !name.starts_with(&dir));
        tree.moved.retain(|name, _| !name.starts_with(&dir));
        tree.changed.retain(|below, _| !below.starts_with(&dir));
        Ok(())
    }
}

impl Backend for Overlay {
    fn name(&self) -> &str {
        &self.names.0.name
    }

    fn names(&self) -> &dyn Namespace {
        &self.names
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn RawFile>, IoError> {
        let (inner, path) = (&self.names.0, plain(path));
        let mut tree = inner.tree.lock();
        if let Some(below) = inner.file_below(&tree, &path)? {
            if how == OpenHow::CreateNew {
                return Err(IoError::new("open", path, io::ErrorKind::AlreadyExists.into()));
            }
            let file = inner.below.open(&below, OpenHow::Read)?;
            let change = tree.change(&below);
            {
                let mut change = change.write();
                if change.len.is_none() {
                    change.len = Some(file.len()?);
                }
            }
            let names = self.names.clone();
            let writable = how != OpenHow::Read;
            return Ok(Arc::new(OverlayFile { names, path, below, file, change, writable }));
        }
        if matches!(how, OpenHow::Create | OpenHow::CreateNew) {
            inner.make_parent(&tree, "open", &path)?;
        }
        inner.above.open(&path, how)
    }

    fn drive(&self, _max_wait: Duration) -> Result<usize, IoError> {
        Ok(0)
    }
}

/// The path without dots and doubled slashes, so that one name has one form.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

impl Tree {
    /// Where a name leads below; `None` where it is hidden.
    fn below(&self, path: &Path) -> Option<PathBuf> {
        for above in path.ancestors() {
            if let Some(to) = self.moved.get(above) {
                let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
                return Some(if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) });
            }
            if self.hidden.contains(above) {
                return None;
            }
        }
        Some(path.to_path_buf())
    }

    /// What has become of a file.
    fn change(&mut self, below: &Path) -> Arc<RwLock<Change>> {
        let new = || Arc::new(RwLock::new(Change::default()));
        self.changed.entry(below.to_path_buf()).or_insert_with(new).clone()
    }

    /// A name goes, and all in it.
    fn hide(&mut self, path: &Path) {
        self.moved.retain(|name, _| !name.starts_with(path));
        self.hidden.retain(|name| !name.starts_with(path));
        self.hidden.insert(path.to_path_buf());
    }

    /// What is known of names in `from` is known of them in `to`.
    fn rename(&mut self, from: &Path, to: &Path) {
        let renamed = |name: &Path| name.strip_prefix(from).map(|rest| to.join(rest)).ok();
        let hidden: Vec<_> = self.hidden.iter().filter(|n| *n != from).filter_map(|n| renamed(n)).collect();
        let moved: Vec<_> = self.moved.iter().filter_map(|(n, to)| Some((renamed(n)?, to.clone()))).collect();
        self.hide(from);
        self.hide(to);
        self.hidden.extend(hidden);
        self.moved.extend(moved);
    }
}

impl Inner {
    /// Where the file of this name lies below, if that is the one it leads to.
    fn file_below(&self, tree: &Tree, path: &Path) -> Result<Option<PathBuf>, IoError> {
        if self.above.names().stat(path)?.is_some_and(|stat| stat.kind == Kind::File) {
            return Ok(None);
        }
        let Some(below) = tree.below(path) else { return Ok(None) };
        let found = self.below.names().stat(&below)?;
        if found.as_ref().is_some_and(|stat| stat.kind == Kind::Dir) {
            return Err(IoError::new("open", path, io::ErrorKind::IsADirectory.into()));
        }
        Ok(found.map(|_| below))
    }

    fn stat(&self, tree: &Tree, path: &Path) -> Result<Option<Stat>, IoError> {
        let above = self.above.names().stat(path)?;
        // The root of what is above is there from the beginning.
        let root = above.as_ref().is_some_and(|stat| stat.kind == Kind::Dir);
        if above.is_some() && !root {
            return Ok(above);
        }
        let below = match tree.below(path) {
            Some(below) => self.stat_below(tree, &below)?,
            None => None,
        };
        Ok(below.or(above))
    }

    fn stat_below(&self, tree: &Tree, below: &Path) -> Result<Option<Stat>, IoError> {
        let Some(mut stat) = self.below.names().stat(below)? else { return Ok(None) };
        if let Some(change) = tree.changed.get(below) {
            let change = change.read();
            stat.len = change.len.unwrap_or(stat.len);
            stat.modified = change.modified.unwrap_or(stat.modified);
        }
        Ok(Some(stat))
    }

    /// Makes the directory above a name in memory, where it is there below.
    fn make_parent(&self, tree: &Tree, op: &'static str, path: &Path) -> Result<(), IoError> {
        let Some(parent) = path.parent() else { return Ok(()) };
        match self.stat(tree, parent)?.map(|stat| stat.kind) {
            Some(Kind::Dir) => self.above.names().create_dir_all(parent),
            Some(_) => Err(IoError::new(op, path, io::ErrorKind::NotADirectory.into())),
            None if parent.as_os_str().is_empty() => Ok(()),
            None => Err(IoError::new(op, path, io::ErrorKind::NotFound.into())),
        }
    }

    fn list(&self, tree: &Tree, dir: &Path) -> Result<Vec<Entry>, IoError> {
        let mut found = BTreeMap::new();
        let below = tree.below(dir);
        let there = match &below {
            Some(below) => self.below.names().stat(below)?.is_some(),
            None => false,
        };
        let above = self.above.names().stat(dir)?.is_some();
        if !there && !above {
            return self.above.names().list(dir);
        }
        if let Some(below) = below.filter(|_| there) {
            for entry in self.below.names().list(&below)? {
                let name = dir.join(&entry.name);
                let Some(lies) = tree.below(&name) else { continue };
                let len = tree.changed.get(&lies).and_then(|change| change.read().len).unwrap_or(entry.len);
                found.insert(entry.name.clone(), Entry::new(entry.name, entry.kind, len));
            }
        }
        for (name, below) in tree.moved.iter().filter(|(name, _)| name.parent() == Some(dir)) {
            if let (Some(name), Some(stat)) = (name.file_name(), self.stat_below(tree, below)?) {
                found.insert(name.to_owned(), Entry::new(name, stat.kind, stat.len));
            }
        }
        if above {
            for entry in self.above.names().list(dir)? {
                found.insert(entry.name.clone(), entry);
            }
        }
        Ok(found.into_values().collect())
    }
}

impl Namespace for Names {
    fn create_dir_all(&self, dir: &Path) -> Result<(), IoError> {
        let (inner, dir) = (&self.0, plain(dir));
        let tree = inner.tree.lock();
        for above in dir.ancestors() {
            match inner.stat(&tree, above)?.map(|stat| stat.kind) {
                Some(Kind::Dir) => break,
                Some(_) => {
                    return Err(IoError::new("make directory", dir, io::ErrorKind::NotADirectory.into()));
                }
                None => {}
            }
        }
        inner.above.names().create_dir_all(&dir)
    }

    fn list(&self, dir: &Path) -> Result<Vec<Entry>, IoError> {
        self.0.list(&self.0.tree.lock(), &plain(dir))
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>, IoError> {
        self.0.stat(&self.0.tree.lock(), &plain(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), IoError> {
        let (inner, from, to) = (&self.0, plain(from), plain(to));
        let mut tree = inner.tree.lock();
        let refuse = |kind: io::ErrorKind| Err(IoError::new("rename", from.clone(), kind.into()));
        let Some(found) = inner.stat(&tree, &from)? else { return refuse(io::ErrorKind::NotFound) };
        if from == to {
            return Ok(());
        }
        if to.starts_with(&from) {
            return refuse(io::ErrorKind::InvalidInput);
        }
        inner.make_parent(&tree, "rename", &to)?;
        let replaced = inner.stat(&tree, &to)?;
        match (found.kind, replaced.as_ref().map(|stat| stat.kind)) {
            (Kind::Dir, Some(Kind::Dir)) if !inner.list(&tree, &to)?.is_empty() => {
                return refuse(io::ErrorKind::DirectoryNotEmpty);
            }
            (Kind::Dir, Some(Kind::Dir)) | (_, None) => {}
            (Kind::Dir, Some(_)) => return refuse(io::ErrorKind::NotADirectory),
            (_, Some(Kind::Dir)) => return refuse(io::ErrorKind::IsADirectory),
            _ => {}
        }
        let below = match tree.below(&from) {
            Some(below) if inner.below.names().stat(&below)?.is_some() => Some(below),
            _ => None,
        };
        let above = inner.above.names();
        let in_memory = above.stat(&from)?;
        match above.stat(&to)?.map(|stat| stat.kind) {
            Some(Kind::Dir) => above.remove_dir_all(&to)?,
            Some(_) => drop(above.remove(&to)?),
            None => {}
        }
        if in_memory.is_some() {
            above.rename(&from, &to)?;
        }
        tree.rename(&from, &to);
        // A file in memory has nothing below it.
        let copied = in_memory.is_some_and(|stat| stat.kind == Kind::File);
        if let Some(below) = below.filter(|_| !copied) {
            tree.moved.insert(to, below);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<bool, IoError> {
        let (inner, path) = (&self.0, plain(path));
        let mut tree = inner.tree.lock();
        match inner.stat(&tree, &path)?.map(|stat| stat.kind) {
            None => Ok(false),
            Some(Kind::Dir) => Err(IoError::new("remove", path, io::ErrorKind::IsADirectory.into())),
            Some(_) => {
                inner.above.names().remove(&path)?;
                tree.hide(&path);
                Ok(true)
            }
        }
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), IoError> {
        let (inner, dir) = (&self.0, plain(dir));
        let mut tree = inner.tree.lock();
        match inner.stat(&tree, &dir)?.map(|stat| stat.kind) {
            None => Ok(()),
            Some(Kind::Dir) => {
                inner.above.names().remove_dir_all(&dir)?;
                tree.hide(&dir);
                Ok(())
            }
            Some(_) => Err(IoError::new("remove directory", dir, io::ErrorKind::NotADirectory.into())),
        }
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), IoError> {
        match self.stat(dir)?.map(|stat| stat.kind) {
            Some(Kind::Dir) => Ok(()),
            Some(_) => Err(IoError::new("sync directory", dir, io::ErrorKind::NotADirectory.into())),
            None => Err(IoError::new("sync directory", dir, io::ErrorKind::NotFound.into())),
        }
    }

    fn sync_file(&self, path: &Path) -> Result<(), IoError> {
        match self.stat(path)? {
            Some(_) => Ok(()),
            None => Err(IoError::new("sync", path, io::ErrorKind::NotFound.into())),
        }
    }

    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, IoError> {
        let (inner, path) = (&self.0, plain(path));
        let tree = inner.tree.lock();
        let Some(below) = inner.file_below(&tree, &path)? else {
            return inner.above.names().read(&path, limit);
        };
        let Some(len) = tree.changed.get(&below).and_then(|change| change.read().len) else {
            return inner.below.names().read(&below, limit);
        };
        if len > limit {
            let why = format!("the file has {len} bytes, and at most {limit} are read");
            return Err(IoError::because("read", path, io::ErrorKind::FileTooLarge, why));
        }
        // As it was when it was opened, however long it has become below.
        let file = inner.below.open(&below, OpenHow::Read)?;
        let mut bytes = Vec::new();
        let size = usize::try_from(len).unwrap_or(usize::MAX);
        if bytes.try_reserve_exact(size).is_err() {
            return Err(IoError::new("read", path, io::ErrorKind::OutOfMemory.into()));
        }
        bytes.resize(size, 0);
        let count = file.read_at(&mut bytes, 0)?;
        bytes.truncate(count);
        Ok(Some(bytes))
    }

    fn write(&self, path: &Path, contents: &[u8], sync: bool) -> Result<(), IoError> {
        let (inner, path) = (&self.0, plain(path));
        let mut tree = inner.tree.lock();
        inner.file_below(&tree, &path)?;
        inner.make_parent(&tree, "write", &path)?;
        inner.above.names().write(&path, contents, sync)?;
        tree.hide(&path);
        Ok(())
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> Result<(), IoError> {
        let (inner, path) = (&self.0, plain(path));
        let mut tree = inner.tree.lock();
        inner.file_below(&tree, &path)?;
        inner.make_parent(&tree, "replace", &path)?;
        inner.above.names().replace(&path, contents)?;
        tree.hide(&path);
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Held>, IoError> {
        let (inner, path) = (&self.0, plain(path));
        let mut tree = inner.tree.lock();
        inner.make_parent(&tree, "lock", &path)?;
        let held = inner.above.names().lock(&path)?;
        tree.hide(&path);
        Ok(held)
    }

    fn claim(&self, dir: &Path) -> Result<Box<dyn Held>, IoError> {
        match self.stat(dir)?.map(|stat| stat.kind) {
            Some(Kind::Dir) => {}
            Some(_) => return Err(IoError::new("claim", dir, io::ErrorKind::NotADirectory.into())),
            None => return Err(IoError::new("claim", dir, io::ErrorKind::NotFound.into())),
        }
        // One that is only below gets its like above: whoever has the one below open is not in the way.
        self.create_dir_all(dir)?;
        self.0.above.names().claim(&plain(dir))
    }

    fn set_modified(&self, path: &Path, to: SystemTime) -> Result<(), IoError> {
        let (inner, path) = (&self.0, plain(path));
        let mut tree = inner.tree.lock();
        match inner.file_below(&tree, &path)? {
            Some(below) => {
                tree.change(&below).write().modified = Some(to);
                Ok(())
            }
            None => inner.above.names().set_modified(&path, to),
        }
    }
}

/// Where the next bytes are that lie in no hole, from `at` on; `len` where there are none, and `at` where nobody tells.
#[cfg(target_os = "linux")]
fn data_from(file: &dyn RawFile, at: u64, len: u64) -> u64 {
    // It moves the descriptor's own position, which no read of this crate goes by.
    match file.as_fd().map(|fd| rustix::fs::seek(fd, rustix::fs::SeekFrom::Data(at))) {
        Some(Ok(data)) => data,
        Some(Err(Errno::NXIO)) => len,
        Some(Err(_)) | None => at,
    }
}

#[cfg(not(target_os = "linux"))]
fn data_from(_file: &dyn RawFile, at: u64, _len: u64) -> u64 {
    at
}

/// A file from below.
#[derive(Debug)]
struct OverlayFile {
    names: Names,
    path: PathBuf,
    below: PathBuf,
    file: Arc<dyn RawFile>,
    change: Arc<RwLock<Change>>,
    writable: bool,
}

impl OverlayFile {
    fn copied(&self) -> Option<Arc<dyn RawFile>> {
        self.change.read().copy.clone()
    }

    /// The file in memory, in the place of the one below from now on.
    fn copy(&self) -> Result<Arc<dyn RawFile>, IoError> {
        if !self.writable {
            return Err(self.error("write", Errno::BADF.into()));
        }
        let inner = &self.names.0;
        let mut tree = inner.tree.lock();
        let mut change = self.change.write();
        if let Some(copy) = &change.copy {
            return Ok(copy.clone());
        }
        let len = change.len.map_or_else(|| self.file.len(), Ok)?;
        tree.copies += 1;
        let place = PathBuf::from(format!("/overlay-copy-{}", tree.copies));
        let copy = inner.above.open(&place, OpenHow::CreateNew)?;
        if let Err(error) = self.copy_to(&*copy, len) {
            inner.above.names().remove(&place)?;
            return Err(error);
        }
        // Under the name that it has now; without one it is a file that was removed.
        let renamed =
            tree.moved.iter().find(|(_, below)| **below == self.below).map(|(name, _)| name.clone());
        let name = renamed.or_else(|| tree.below(&self.below).filter(|below| *below == self.below));
        match name {
            Some(name) => {
                inner.make_parent(&tree, "copy", &name)?;
                inner.above.names().rename(&place, &name)?;
                tree.hide(&name);
            }
            None => drop(inner.above.names().remove(&place)?),
        }
        change.copy = Some(copy.clone());
        Ok(copy)
    }

    /// Gives `copy`, which is empty, the first `len` bytes.
    fn copy_to(&self, copy: &dyn RawFile, len: u64) -> Result<(), IoError> {
        copy.submit(Op::SetLen { len }).wait().result?;
        let (mut at, mut copied) = (data_from(&*self.file, 0, len), 0);
        while at < len {
            let want = usize::try_from(len - at).unwrap_or(PART).min(PART);
            copied += want as u64;
            if copied > COPIED_MAX {
                let why = format!("more than {COPIED_MAX} bytes would have to be copied into memory");
                let error = io::Error::new(io::ErrorKind::FileTooLarge, why);
                return Err(self.error("copy", error).with_range(0, len));
            }
            let mut part = vec![0; want];
            if self.file.read_at(&mut part, at)? < want {
                return Err(self
                    .error("copy", io::ErrorKind::UnexpectedEof.into())
                    .with_range(at, want as u64));
            }
            if part.iter().any(|byte| *byte != 0) {
                write_all(copy, at, Bytes::from(part).into())?;
            }
            at = data_from(&*self.file, at + want as u64, len);
        }
        Ok(())
    }

    fn error(&self, op: &'static str, source: io::Error) -> IoError {
        IoError::new(op, &*self.path, source)
    }

    fn change(&self, op: Op) -> Result<Done, IoError> {
        if let Op::SetLen { len } = op
            && self.writable
        {
            // Whoever copies the file meanwhile copies it before, or as it is then.
            let mut change = self.change.write();
            if change.copy.is_none() && len <= change.len.map_or_else(|| self.file.len(), Ok)? {
                change.len = Some(len);
                return Ok(Done::new(Ok(len)));
            }
        }
        Ok(self.copy()?.submit(op).wait())
    }
}

impl RawFile for OverlayFile {
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn align(&self) -> Align {
        Align::NONE
    }

    fn caps(&self) -> FileCaps {
        FileCaps::NONE
    }

    fn submit(&self, op: Op) -> Ticket {
        let done = match op {
            Op::Flush { .. } | Op::Advise { .. } => Done::new(Ok(0)),
            Op::Write { at, data, through } => match self.copy() {
                Ok(copy) => copy.submit(Op::Write { at, data, through }).wait(),
                Err(error) => Done::written(Err(error), data),
            },
            op => self.change(op).unwrap_or_else(|error| Done::new(Err(error))),
        };
        Ticket::ready(done)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        if let Some(copy) = self.copied() {
            return copy.read_at(into, at);
        }
        let want = match self.change.read().len {
            Some(len) => into.len().min(usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX)),
            None => into.len(),
        };
        self.file.read_at(&mut into[..want], at)
    }

    fn len(&self) -> Result<u64, IoError> {
        match self.copied() {
            Some(copy) => copy.len(),
            None => self.change.read().len.map_or_else(|| self.file.len(), Ok),
        }
    }

    fn map(&self, len: usize, access: MapAccess) -> Result<MappedRegion, IoError> {
        match self.copied() {
            Some(copy) => copy.map(len, access),
            None if self.writable => self.copy()?.map(len, access),
            None if access == MapAccess::Read => {
                // A copy of its own: a map of what others cut would kill the process.
                let copy = MemoryBackend::new().open(Path::new("/copy"), OpenHow::CreateNew)?;
                self.copy_to(&*copy, self.len()?)?;
                copy.map(len, access)
            }
            None => Err(self.error("map", io::ErrorKind::PermissionDenied.into())),
        }
    }

    fn map_bytes(&self, range: Range<u64>) -> Result<Bytes, IoError> {
        if let Some(copy) = self.copied() {
            return copy.map_bytes(range);
        }
        let len = self.len()?;
        if range.start > range.end || range.end > len {
            let why = format!("bytes {} to {} of a file of {len}", range.start, range.end);
            return Err(self.error("map", io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        // A copy: what lies below is not ours to be kept from changing.
        let size = usize::try_from(range.end - range.start)
            .map_err(|_| self.error("map", io::ErrorKind::OutOfMemory.into()))?;
        let mut bytes = vec![0; size];
        let got = self.read_at(&mut bytes, range.start)?;
        bytes.truncate(got);
        Ok(bytes.into())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
