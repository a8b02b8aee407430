//! What this process knows of a file, whichever handles it has open: the maps that are alive.
//!
//! Two promises rest on it. No byte that a view shows changes: [`Inode::writing`], [`Inode::resize`] and
//! [`Inode::map`] refuse. And no region is left with pages that its file no longer has: [`Inode::resize`] detaches
//! them first. Handles of one file share one [`Inode`], found by device and inode number.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::backend::MapAccess;
use crate::map::{Kept, MappedRegion, Mapping, View};
use crate::sync::{Ordering, real};

/// How long a view waits for writes that are going on.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Device and inode number.
type Key = (u64, u64);

static INODES: LazyLock<real::Mutex<HashMap<Key, Weak<Inode>>>> = LazyLock::new(Default::default);

/// One file's live maps.
#[derive(Debug)]
pub(crate) struct Inode {
    key: Key,
    /// Writes going on, of all handles.
    writers: real::AtomicU64,
    /// Where the furthest view ends: what lies below must not change. 0 without views.
    frozen: real::AtomicU64,
    maps: real::Mutex<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    regions: Vec<Weak<Mapping>>,
    views: Vec<(u64, Range<u64>)>,
    last_id: u64,
}

/// A write that is going on; while it lives, no view comes into being. Borrows the inode, or where the write outlives
/// the call, owns a handle of it.
#[derive(Debug)]
pub(crate) struct Writing<I: Deref<Target = Inode>>(I);

impl<I: Deref<Target = Inode>> Drop for Writing<I> {
    fn drop(&mut self) {
        // Pairs with the load in `map_bytes`: who sees the count fall sees the write done.
        self.0.writers.fetch_sub(1, Ordering::Release);
    }
}

impl Inode {
    /// The entry of an open file, shared by all its handles.
    pub(crate) fn of(metadata: &Metadata) -> Arc<Inode> {
        let key = (metadata.dev(), metadata.ino());
        let mut inodes = INODES.lock();
        if let Some(inode) = inodes.get(&key).and_then(Weak::upgrade) {
            return inode;
        }
        let inode = Arc::new(Inode {
            key,
            writers: real::AtomicU64::new(0),
            frozen: real::AtomicU64::new(0),
            maps: real::Mutex::default(),
        });
        inodes.insert(key, Arc::downgrade(&inode));
        inode
    }

    /// Announces a write of bytes at and behind `at`, for as long as the result lives. Takes no lock.
    pub(crate) fn writing<I: Deref<Target = Inode>>(this: I, at: u64) -> io::Result<Writing<I>> {
        // Either this write sees the view's mark, or the view sees this write: both announce themselves before they
        // look, with sequentially consistent accesses, in `map_bytes` and here.
        this.writers.fetch_add(1, Ordering::SeqCst);
        let writing = Writing(this);
        if at < writing.0.frozen.load(Ordering::SeqCst) {
            return Err(busy("a live view shows these bytes"));
        }
        Ok(writing)
    }

    /// Where the furthest view ends.
    pub(crate) fn frozen(&self) -> u64 {
        self.frozen.load(Ordering::SeqCst)
    }

    /// Sets the file's length by `set_len`, after detaching what it cuts off from the regions that are alive.
    pub(crate) fn resize(&self, len: u64, set_len: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // Held across the call, so that no map of the old length comes into being.
        let mut maps = self.maps.lock();
        if len < self.frozen.load(Ordering::Relaxed) {
            return Err(busy("a live view shows bytes that would be cut"));
        }
        for mapping in maps.live() {
            mapping.cut(len)?;
        }
        set_len()
    }

    /// Maps the first `len` bytes of `file`, whose inode this is.
    pub(crate) fn map(
        self: &Arc<Self>,
        file: &File,
        path: &Arc<Path>,
        len: usize,
        access: MapAccess,
    ) -> io::Result<MappedRegion> {
        let mut maps = self.maps.lock();
        if access == MapAccess::Write && maps.views.iter().any(|(_, range)| range.start < len as u64) {
            return Err(busy("a live view shows bytes that the map could change"));
        }
        inside(len as u64, file)?;
        if len == 0 {
            return Ok(MappedRegion::blocks(Box::default(), 0, access));
        }
        let mapping = Arc::new(Mapping::new(file, len, access, Arc::clone(path), Arc::clone(self))?);
        maps.live().for_each(drop);
        maps.regions.push(Arc::downgrade(&mapping));
        Ok(MappedRegion::file(mapping, len, access))
    }

    /// Lends out `range` of `file`, whose inode this is and whose handle `kept` belongs to. Waits for writes that are going on, with `pause` between two
    /// looks at them: what makes them finish, if somebody must. Gives up after [`WAIT_MAX`].
    pub(crate) fn map_bytes(
        self: &Arc<Self>,
        file: &File,
        kept: &Kept,
        range: Range<u64>,
        pause: impl Fn(),
    ) -> io::Result<Bytes> {
        let mut maps = self.maps.lock();
        if range.start > range.end {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the range ends before it begins"));
        }
        inside(range.end, file)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let writable = |mapping: &Mapping| mapping.access() == MapAccess::Write;
        if maps.live().any(|mapping| writable(&mapping) && range.start < mapping.len() as u64) {
            return Err(busy("a live map could change these bytes"));
        }
        maps.last_id += 1;
        let id = maps.last_id;
        maps.views.push((id, range.clone()));
        // Pairs with `writing`, see there.
        self.frozen.store(maps.frozen(), Ordering::SeqCst);
        // Not while a view may be dropped: that takes the lock.
        drop(maps);
        let begin = Instant::now();
        while self.writers.load(Ordering::SeqCst) != 0 {
            pause();
            if begin.elapsed() > WAIT_MAX {
                self.thaw(id);
                return Err(busy("writes to the file do not come to an end"));
            }
        }
        match View::new(file, kept, range, Arc::clone(self), id) {
            Ok(view) => Ok(Bytes::from_owner(view)),
            Err(error) => {
                self.thaw(id);
                Err(error)
            }
        }
    }

    /// A view is gone.
    pub(crate) fn thaw(&self, id: u64) {
        let mut maps = self.maps.lock();
        maps.views.retain(|(view, _)| *view != id);
        // Lowering the mark late would only refuse more; under the lock, as every store to it.
        self.frozen.store(maps.frozen(), Ordering::SeqCst);
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        let mut inodes = INODES.lock();
        // Another handle may have put a new entry in place meanwhile.
        if inodes.get(&self.key).is_some_and(|inode| inode.strong_count() == 0) {
            inodes.remove(&self.key);
        }
    }
}

impl Maps {
    /// The mappings that are alive, forgetting those that are not.
    fn live(&mut self) -> impl Iterator<Item = Arc<Mapping>> {
        self.regions.retain(|mapping| mapping.strong_count() > 0);
        self.regions.iter().filter_map(Weak::upgrade)
    }

    fn frozen(&self) -> u64 {
        self.views.iter().map(|(_, range)| range.end).max().unwrap_or(0)
    }
}

fn inside(end: u64, file: &File) -> io::Result<()> {
    let len = file.metadata()?.len();
    if end > len {
        let why = format!("the file has {len} bytes, and {end} were to be mapped");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}

fn busy(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}
