//! The names of the engine `memory`: one table from path to directory or file.
//!
//! Paths are compared part by part, so what lies in a directory, at any depth, follows it in the table.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::backend::{Entry, Held, Kind, Namespace, OpenHow, Stat};
use crate::error::IoError;
use crate::lock::claimed;
use crate::memory::{Clock, Inode};
use crate::std_names::beside;
use crate::sync::{AtomicBool, Mutex, Ordering};

#[derive(Debug)]
pub(super) struct Tree {
    /// By normal path. The root, the empty path, is always there; so is the directory of every name.
    nodes: Mutex<BTreeMap<PathBuf, Node>>,
    clock: Clock,
}

#[derive(Debug, Clone)]
enum Node {
    Dir(Dir),
    File(Arc<Inode>),
}

#[derive(Debug, Clone)]
struct Dir {
    modified: SystemTime,
    /// Follows the directory when it is renamed.
    claimed: Arc<AtomicBool>,
}

impl Dir {
    fn new(clock: &Clock) -> Self {
        Self { modified: clock.now(), claimed: Arc::new(AtomicBool::new(false)) }
    }
}

#[derive(Debug)]
struct MemoryClaim(Arc<AtomicBool>);

impl Held for MemoryClaim {}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

type Nodes = BTreeMap<PathBuf, Node>;

impl Tree {
    pub(super) fn new(clock: Clock) -> Self {
        let root = (PathBuf::new(), Node::Dir(Dir::new(&clock)));
        Self { nodes: Mutex::new(BTreeMap::from([root])), clock }
    }

    pub(super) fn open(&self, path: &Path, how: OpenHow) -> io::Result<Arc<Inode>> {
        let path = normal(path);
        let mut nodes = self.nodes.lock();
        match nodes.get(&path) {
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(_)) if how == OpenHow::CreateNew => Err(io::ErrorKind::AlreadyExists.into()),
            Some(Node::File(file)) => Ok(Arc::clone(file)),
            None if matches!(how, OpenHow::Read | OpenHow::Write) => {
                parent_is_dir(&nodes, &path)?;
                Err(io::ErrorKind::NotFound.into())
            }
            None => {
                parent_is_dir(&nodes, &path)?;
                let file = Arc::new(Inode::new(self.clock.clone()));
                nodes.insert(path, Node::File(Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    fn file(&self, path: &Path) -> io::Result<Option<Arc<Inode>>> {
        match self.open(path, OpenHow::Read) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Namespace for Tree {
    fn create_dir_all(&self, dir: &Path) -> Result<(), IoError> {
        let path = normal(dir);
        let mut nodes = self.nodes.lock();
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        if above.iter().any(|dir| matches!(nodes.get(*dir), Some(Node::File(_)))) {
            return Err(IoError::new("make directory", dir, io::ErrorKind::NotADirectory.into()));
        }
        for dir in above {
            if !nodes.contains_key(dir) {
                nodes.insert(dir.to_path_buf(), Node::Dir(Dir::new(&self.clock)));
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<Entry>, IoError> {
        let path = normal(dir);
        let nodes = self.nodes.lock();
        match nodes.get(&path) {
            Some(Node::Dir(_)) => {}
            Some(Node::File(_)) => {
                return Err(IoError::new("list", dir, io::ErrorKind::NotADirectory.into()));
            }
            None => return Err(IoError::new("list", dir, io::ErrorKind::NotFound.into())),
        }
        let mut entries: Vec<Entry> = below(&nodes, &path)
            .filter(|(name, _)| name.parent() == Some(&path))
            .map(|(name, node)| {
                let stat = node.stat();
                Entry {
                    name: name.file_name().unwrap_or_default().to_owned(),
                    kind: stat.kind,
                    len: stat.len,
                }
            })
            .collect();
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>, IoError> {
        Ok(self.nodes.lock().get(&normal(path)).map(Node::stat))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), IoError> {
        let failed = |kind: io::ErrorKind| Err(IoError::new("rename", from, kind.into()));
        let (old, new) = (normal(from), normal(to));
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.get(&old).cloned() else { return failed(io::ErrorKind::NotFound) };
        if let Err(error) = parent_is_dir(&nodes, &new) {
            return Err(IoError::new("rename", from, error));
        }
        if old == new {
            return Ok(());
        }
        if new.starts_with(&old) || old.as_os_str().is_empty() {
            return failed(io::ErrorKind::InvalidInput);
        }
        match (&node, nodes.get(&new)) {
            (Node::File(_), Some(Node::Dir(_))) => return failed(io::ErrorKind::IsADirectory),
            (Node::Dir(_), Some(Node::File(_))) => return failed(io::ErrorKind::NotADirectory),
            (Node::Dir(_), Some(Node::Dir(_))) if below(&nodes, &new).next().is_some() => {
                return failed(io::ErrorKind::DirectoryNotEmpty);
            }
            _ => {}
        }
        let moved: Vec<PathBuf> = below(&nodes, &old).map(|(name, _)| name.clone()).collect();
        nodes.remove(&old);
        nodes.insert(new.clone(), node);
        for name in moved {
            if let (Some(node), Ok(rest)) = (nodes.remove(&name), name.strip_prefix(&old)) {
                nodes.insert(new.join(rest), node);
            }
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<bool, IoError> {
        let name = normal(path);
        let mut nodes = self.nodes.lock();
        match nodes.get(&name) {
            None => Ok(false),
            Some(Node::Dir(_)) => Err(IoError::new("remove", path, io::ErrorKind::IsADirectory.into())),
            Some(Node::File(_)) => Ok(nodes.remove(&name).is_some()),
        }
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), IoError> {
        let path = normal(dir);
        let mut nodes = self.nodes.lock();
        if let Some(Node::File(_)) = nodes.get(&path) {
            return Err(IoError::new("remove directory", dir, io::ErrorKind::NotADirectory.into()));
        }
        let gone: Vec<PathBuf> = below(&nodes, &path).map(|(name, _)| name.clone()).collect();
        for name in gone {
            nodes.remove(&name);
        }
        if !path.as_os_str().is_empty() {
            nodes.remove(&path);
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), IoError> {
        let kind = match self.nodes.lock().get(&normal(dir)) {
            Some(Node::Dir(_)) => return Ok(()),
            Some(Node::File(_)) => io::ErrorKind::NotADirectory,
            None => io::ErrorKind::NotFound,
        };
        Err(IoError::new("open", dir, kind.into()))
    }

    fn sync_file(&self, path: &Path) -> Result<(), IoError> {
        match self.stat(path)? {
            Some(_) => Ok(()),
            None => Err(IoError::new("open", path, io::ErrorKind::NotFound.into())),
        }
    }

    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, IoError> {
        let read = || {
            let Some(file) = self.file(path)? else { return Ok(None) };
            let contents = file.contents.read();
            let len = contents.len();
            if len > limit {
                let why = format!("the file has {len} bytes, and at most {limit} are read");
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            contents.copy(0, len).map(Some)
        };
        read().map_err(|source| IoError::new("read", path, source))
    }

    fn write(&self, path: &Path, contents: &[u8], _sync: bool) -> Result<(), IoError> {
        let write = || {
            let file = self.open(path, OpenHow::Create)?;
            let now = self.clock.now();
            let mut old = file.contents.write();
            let len = old.len().min(contents.len() as u64);
            old.set_len(len)?;
            old.write(0, &[Bytes::copy_from_slice(contents)])?;
            old.modified = now;
            Ok(())
        };
        write().map_err(|source| IoError::new("write", path, source))
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> Result<(), IoError> {
        let (_, beside) = beside(path)?;
        self.write(&beside, contents, true)?;
        self.rename(&beside, path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Held>, IoError> {
        let file = self.open(path, OpenHow::Create);
        file.and_then(|file| file.lock()).map_err(|source| IoError::new("lock", path, source))
    }

    fn claim(&self, dir: &Path) -> Result<Box<dyn Held>, IoError> {
        let failed = |source: io::Error| IoError::new("claim", dir, source);
        let flag = match self.nodes.lock().get(&normal(dir)) {
            Some(Node::Dir(dir)) => Arc::clone(&dir.claimed),
            Some(Node::File(_)) => return Err(failed(io::ErrorKind::NotADirectory.into())),
            None => return Err(failed(io::ErrorKind::NotFound.into())),
        };
        // Acquire and Release as any lock.
        if flag.swap(true, Ordering::Acquire) {
            return Err(failed(claimed()));
        }
        Ok(Box::new(MemoryClaim(flag)))
    }

    fn set_modified(&self, path: &Path, to: SystemTime) -> Result<(), IoError> {
        match self.nodes.lock().get_mut(&normal(path)) {
            Some(Node::File(file)) => file.contents.write().modified = to,
            Some(Node::Dir(dir)) => dir.modified = to,
            None => return Err(IoError::new("set time", path, io::ErrorKind::NotFound.into())),
        }
        Ok(())
    }
}

impl Node {
    fn stat(&self) -> Stat {
        match self {
            Node::Dir(dir) => Stat { kind: Kind::Dir, len: 0, modified: dir.modified },
            Node::File(file) => {
                let contents = file.contents.read();
                Stat { kind: Kind::File, len: contents.len(), modified: contents.modified }
            }
        }
    }
}

/// The path from the root, without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => drop(normal.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    normal
}

fn parent_is_dir(nodes: &Nodes, path: &Path) -> io::Result<()> {
    match path.parent().map(|dir| nodes.get(dir)) {
        Some(Some(Node::Dir(_))) => Ok(()),
        Some(Some(Node::File(_))) => Err(io::ErrorKind::NotADirectory.into()),
        Some(None) => Err(io::ErrorKind::NotFound.into()),
        None => Err(io::ErrorKind::IsADirectory.into()),
    }
}

/// Everything in a directory, at any depth.
fn below<'a>(nodes: &'a Nodes, dir: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Node)> {
    nodes
        .range::<Path, _>((Bound::Excluded(dir), Bound::Unbounded))
        .take_while(move |(name, _)| name.starts_with(dir))
}
