//! What is durable, what is pending, and what may be left of it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::backend::RawFile;
use crate::power::Loss;

/// The unit in which a device keeps bytes or loses them.
const SECTOR: usize = 512;

/// An inode of a [`Disk`].
pub(super) type Id = usize;

/// Every inode there ever was, by its number; the root is the first.
#[derive(Debug)]
pub(super) struct Disk {
    nodes: Vec<Node>,
}

#[derive(Debug)]
enum Node {
    Dir(Dir),
    File(File),
}

#[derive(Debug, Default)]
struct Dir {
    now: BTreeMap<OsString, Id>,
    durable: BTreeMap<OsString, Id>,
    /// Changes since the last sync; each is kept or lost as a whole, the later ones before the earlier.
    pending: Vec<Vec<(OsString, Option<Id>)>>,
}

pub(super) struct File {
    handle: Arc<dyn RawFile>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Length with everything pending applied.
    len: u64,
    mapped: bool,
}

enum Change {
    Write {
        at: u64,
        bytes: Vec<u8>,
        /// It made the file longer.
        grew: bool,
        /// It was durable by itself.
        through: bool,
    },
    Len {
        len: u64,
        shrank: bool,
    },
}

impl Disk {
    pub(super) fn new() -> Self {
        Disk { nodes: vec![Node::Dir(Dir::default())] }
    }

    pub(super) fn find(&self, path: &Path) -> Option<Id> {
        parts(path).iter().try_fold(0, |dir, name| match &self.nodes[dir] {
            Node::Dir(dir) => dir.now.get(*name).copied(),
            Node::File(_) => None,
        })
    }

    pub(super) fn file_mut(&mut self, id: Id) -> &mut File {
        match &mut self.nodes[id] {
            Node::File(file) => file,
            Node::Dir(_) => unreachable!("a handle's inode is a file"),
        }
    }

    /// The directory that holds `path`, and its name there; `None` for the root and where there is no directory.
    fn place(&mut self, path: &Path) -> Option<(&mut Dir, OsString)> {
        let name = parts(path).last()?.to_os_string();
        let above = normal(path).parent().map(Path::to_path_buf).unwrap_or_default();
        let id = self.find(&above)?;
        match &mut self.nodes[id] {
            Node::Dir(dir) => Some((dir, name)),
            Node::File(_) => None,
        }
    }

    fn add(&mut self, path: &Path, node: Node) -> Option<Id> {
        let id = self.nodes.len();
        let (dir, name) = self.place(path)?;
        dir.change(vec![(name, Some(id))]);
        self.nodes.push(node);
        Some(id)
    }

    /// Makes a directory and those above it, where they are missing.
    pub(super) fn make_dir(&mut self, path: &Path) {
        let path = normal(path);
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        for dir in above {
            if self.find(dir).is_none() {
                self.add(dir, Node::Dir(Dir::default()));
            }
        }
    }

    pub(super) fn make_file(&mut self, path: &Path, handle: Arc<dyn RawFile>) -> Option<Id> {
        self.add(path, Node::File(File::new(handle, Vec::new())))
    }

    pub(super) fn add_file(&mut self, path: &Path, handle: Arc<dyn RawFile>, contents: Vec<u8>) {
        self.add(path, Node::File(File::new(handle, contents)));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        let Some(id) = self.find(from) else { return };
        if normal(from) == normal(to) {
            return;
        }
        let (above, to_above) = (normal(from), normal(to));
        let same = above.parent() == to_above.parent();
        let Some((dir, old)) = self.place(from) else { return };
        if same {
            let new = to.file_name().unwrap_or_default().to_os_string();
            dir.change(vec![(old, None), (new, Some(id))]);
            return;
        }
        dir.change(vec![(old, None)]);
        if let Some((dir, new)) = self.place(to) {
            dir.change(vec![(new, Some(id))]);
        }
    }

    pub(super) fn unlink(&mut self, path: &Path) {
        if self.find(path).is_some()
            && let Some((dir, name)) = self.place(path)
        {
            dir.change(vec![(name, None)]);
        }
    }

    /// Removes what is in a directory, piece by piece, and the directory.
    pub(super) fn unlink_all(&mut self, path: &Path) {
        let Some(id) = self.find(path) else { return };
        let names: Vec<OsString> = match &self.nodes[id] {
            Node::Dir(dir) => dir.now.keys().cloned().collect(),
            Node::File(_) => Vec::new(),
        };
        for name in names {
            self.unlink_all(&path.join(name));
        }
        self.unlink(path);
    }

    pub(super) fn sync_dir(&mut self, path: &Path) {
        if let Some(id) = self.find(path)
            && let Node::Dir(dir) = &mut self.nodes[id]
        {
            dir.sync();
        }
    }

    pub(super) fn flush(&mut self, id: Id, metadata: bool) {
        if let Node::File(file) = &mut self.nodes[id] {
            file.flush(metadata);
        }
    }

    /// All is durable.
    pub(super) fn settle(&mut self) {
        for node in &mut self.nodes {
            match node {
                Node::Dir(dir) => dir.sync(),
                Node::File(file) => file.flush(true),
            }
        }
    }

    /// What is found after the cut: directories (`None`) and files, what lies above before what lies below.
    pub(super) fn after(&self, loss: Loss) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut choice = Choice::of(loss);
        let mut found = Vec::new();
        let mut next = vec![(PathBuf::from("/"), 0)];
        while let Some((path, id)) = next.pop() {
            match &self.nodes[id] {
                Node::Dir(dir) => {
                    for (name, id) in dir.after(&mut choice) {
                        next.push((path.join(name), id));
                    }
                    if id != 0 {
                        found.push((path, None));
                    }
                }
                Node::File(file) => found.push((path, Some(file.after(&mut choice)))),
            }
        }
        found
    }
}

impl Dir {
    fn change(&mut self, change: Vec<(OsString, Option<Id>)>) {
        apply(&mut self.now, &change);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        self.durable = self.now.clone();
        self.pending.clear();
    }

    fn after(&self, choice: &mut Choice) -> BTreeMap<OsString, Id> {
        let mut names = self.durable.clone();
        for change in &self.pending[..choice.names(self.pending.len())] {
            apply(&mut names, change);
        }
        names
    }
}

fn apply(names: &mut BTreeMap<OsString, Id>, change: &[(OsString, Option<Id>)]) {
    for (name, id) in change {
        match id {
            Some(id) => names.insert(name.clone(), *id),
            None => names.remove(name),
        };
    }
}

impl File {
    fn new(handle: Arc<dyn RawFile>, contents: Vec<u8>) -> Self {
        let len = contents.len() as u64;
        File { handle, durable: contents, pending: Vec::new(), len, mapped: false }
    }

    pub(super) fn write(&mut self, at: u64, bytes: Vec<u8>, through: bool) {
        let end = at + bytes.len() as u64;
        let grew = end > self.len && !bytes.is_empty();
        if grew {
            self.len = end;
        }
        self.pending.push(Change::Write { at, bytes, grew, through });
    }

    pub(super) fn set_len(&mut self, len: u64) {
        let shrank = len < self.len;
        self.len = len;
        self.pending.push(Change::Len { len, shrank });
    }

    pub(super) fn grow(&mut self, len: u64) {
        if len > self.len {
            self.set_len(len);
        }
    }

    pub(super) fn map(&mut self) {
        self.mapped = true;
    }

    /// Makes durable what is pending; a length that shrank and did not grow again only with `metadata`.
    pub(super) fn flush(&mut self, metadata: bool) {
        let shrank = |change: &Change| matches!(change, Change::Len { shrank: true, .. });
        let shrinks = self.pending.iter().rev().take_while(|change| shrank(change)).count();
        let until = if metadata { self.pending.len() } else { self.pending.len() - shrinks };
        let rest = self.pending.split_off(until);
        let mut image = Image::new(std::mem::take(&mut self.durable));
        for change in std::mem::replace(&mut self.pending, rest) {
            image.apply(&change, &mut Choice::All);
        }
        self.durable = image.finish();
    }

    fn after(&self, choice: &mut Choice) -> Vec<u8> {
        let mut image = Image::new(self.durable.clone());
        for change in &self.pending {
            image.apply(change, choice);
        }
        let mut bytes = image.finish();
        if self.mapped {
            let mut now = vec![0; bytes.len()];
            // Shorter where the file is shorter now: the rest stays zero.
            let _ = self.handle.read_at(&mut now, 0);
            for (old, now) in bytes.chunks_mut(SECTOR).zip(now.chunks(SECTOR)) {
                choice.mapped(old, now);
            }
        }
        bytes
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("len", &self.len).field("pending", &self.pending.len()).finish()
    }
}

/// The bytes of a file while changes are applied: those behind the length are there, but are not seen.
struct Image {
    bytes: Vec<u8>,
    len: usize,
}

impl Image {
    fn new(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Image { bytes, len }
    }

    fn apply(&mut self, change: &Change, choice: &mut Choice) {
        match change {
            Change::Len { len, shrank } => {
                if choice.len() {
                    self.len = *len as usize;
                    if *shrank {
                        self.bytes.truncate(self.len);
                    }
                }
            }
            Change::Write { at, bytes, grew, through } => {
                let at = *at as usize;
                let end = at + bytes.len();
                if *grew && (*through || choice.len()) {
                    self.len = self.len.max(end);
                }
                let mut from = at;
                while from < end {
                    let to = end.min((from / SECTOR + 1) * SECTOR);
                    if *through || choice.bytes() {
                        if self.bytes.len() < to {
                            self.bytes.resize(to, 0);
                        }
                        self.bytes[from..to].copy_from_slice(&bytes[from - at..to - at]);
                    }
                    from = to;
                }
            }
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.len, 0);
        self.bytes
    }
}

/// Decides what stays.
enum Choice {
    /// Everything: the device has it.
    All,
    Of(Loss, Numbers),
}

impl Choice {
    fn of(loss: Loss) -> Self {
        let seed = if let Loss::Random(seed) = loss { seed } else { 0 };
        Choice::Of(loss, Numbers(seed))
    }

    /// How many of `pending` changes of a directory, from the first on.
    fn names(&mut self, pending: usize) -> usize {
        match self {
            Choice::All | Choice::Of(Loss::Nothing | Loss::Bytes, _) => pending,
            Choice::Of(Loss::Everything | Loss::Names, _) => 0,
            Choice::Of(Loss::Random(_), numbers) => (numbers.next() % (pending as u64 + 1)) as usize,
        }
    }

    fn len(&mut self) -> bool {
        match self {
            Choice::All | Choice::Of(Loss::Nothing | Loss::Names | Loss::Bytes, _) => true,
            Choice::Of(Loss::Everything, _) => false,
            Choice::Of(Loss::Random(_), numbers) => numbers.one_in(2),
        }
    }

    fn bytes(&mut self) -> bool {
        match self {
            Choice::All | Choice::Of(Loss::Nothing | Loss::Names, _) => true,
            Choice::Of(Loss::Everything | Loss::Bytes, _) => false,
            Choice::Of(Loss::Random(_), numbers) => numbers.one_in(2),
        }
    }

    /// A sector of a mapped file, `old` as the device has it and `now` as memory has it.
    fn mapped(&mut self, old: &mut [u8], now: &[u8]) {
        let Choice::Of(loss, numbers) = self else { return };
        match loss {
            Loss::Everything => {}
            Loss::Nothing | Loss::Names => old.copy_from_slice(now),
            Loss::Bytes => old.fill_with(|| numbers.next() as u8),
            Loss::Random(_) => match numbers.next() % 4 {
                0 => {}
                1 => old.fill(0),
                2 => old.fill_with(|| numbers.next() as u8),
                _ => old.copy_from_slice(now),
            },
        }
    }
}

/// Numbers from a seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }
}

/// The names on the way from the root.
fn parts(path: &Path) -> Vec<&OsStr> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir => drop(parts.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    parts
}

fn normal(path: &Path) -> PathBuf {
    parts(path).iter().collect()
}
