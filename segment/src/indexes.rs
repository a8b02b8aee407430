//! A segment's two index files: opened when first used, mapped, resized.
//!
//! A mapped file needs no descriptor, so none is kept: it is opened again to change its length. A process may have as many
//! logs as it has descriptors, and their indexes beside them.
//!
//! The file is as long as it may get, and takes space as it fills, before the first store into it: a page at first, then as much
//! again as is used. A store for which a full disk has no space would kill the process.
//!
//! The number of entries is not stored in the file: a new file has none, an existing one is taken to be full, as in
//! Kafka (`AbstractIndex`); whoever opens an existing file checks what it holds (see `lookup.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::Offset;
use kseg_index::{OffsetIndex, Region, TimeIndex, entries_in, round_down};
use kseg_io_backends::{
    Backend, IoError, MapAccess, MappedRegion, Op, OpenHow, RawFile, Reserve, Verdict, page_size,
};

use crate::error::{Error, Result};
use crate::sync::{AtomicU64, Ordering};

/// Bytes of the least that is stored in a region at a time.
const WORD: usize = 4;

/// The most bytes of space that an index takes before it needs them.
const AHEAD_MAX: u64 = 64 << 10;

/// A mapped index file as the region that an index lies on.
#[derive(Debug)]
pub struct MapRegion(MappedRegion);

impl MapRegion {
    /// Takes over a mapping.
    pub fn new(map: MappedRegion) -> Self {
        MapRegion(map)
    }
}

impl Region for MapRegion {
    type Error = IoError;

    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.load(at)
    }

    #[inline]
    fn store<const N: usize>(&self, at: usize, bytes: [u8; N]) {
        self.0.store(at, bytes);
    }

    fn flush(&self) -> Result<(), IoError> {
        self.0.flush()
    }
}

/// What the two indexes have in common.
pub(crate) trait Index: Sized {
    const ENTRY_LEN: usize;
    fn build(base: Offset, region: MapRegion, entries: usize) -> Self;
    fn used(&self) -> usize;
    fn on(&self) -> &MapRegion;
}

impl Index for OffsetIndex<MapRegion> {
    const ENTRY_LEN: usize = OffsetIndex::<MapRegion>::ENTRY_LEN;

    fn build(base: Offset, region: MapRegion, entries: usize) -> Self {
        OffsetIndex::new(base, region, entries)
    }

    fn used(&self) -> usize {
        self.entries()
    }

    fn on(&self) -> &MapRegion {
        self.region()
    }
}

impl Index for TimeIndex<MapRegion> {
    const ENTRY_LEN: usize = TimeIndex::<MapRegion>::ENTRY_LEN;

    fn build(base: Offset, region: MapRegion, entries: usize) -> Self {
        TimeIndex::new(base, region, entries)
    }

    fn used(&self) -> usize {
        self.entries()
    }

    fn on(&self) -> &MapRegion {
        self.region()
    }
}

/// An index file that is opened when it is needed (`LazyIndex`).
#[derive(Debug)]
pub(crate) struct Lazy<I> {
    backend: Arc<dyn Backend>,
    path: PathBuf,
    open: Option<I>,
    /// Up to here the file is known to have space, since it was opened or got its length. Of who adds entries alone: Relaxed.
    backed: AtomicU64,
}

impl<I: Index> Lazy<I> {
    pub(crate) fn new(backend: Arc<dyn Backend>, path: PathBuf) -> Self {
        Lazy { backend, path, open: None, backed: AtomicU64::new(0) }
    }

    fn set(&mut self, base: Offset, region: MapRegion, entries: usize) {
        self.open = Some(I::build(base, region, entries));
        self.backed.store(0, Ordering::Relaxed);
    }

    /// Takes space for `more` entries behind those in use, or for as many as there is room for.
    ///
    /// # Errors
    /// [`Error::Io`] where there is none: nothing may be stored there.
    #[inline]
    pub(crate) fn reach(&self, more: usize) -> Result<()> {
        let Some(index) = &self.open else { return Ok(()) };
        let (used, len) = (index.used() * I::ENTRY_LEN, index.on().len());
        let end = more.saturating_mul(I::ENTRY_LEN).saturating_add(used).min(len) as u64;
        if end <= self.backed.load(Ordering::Relaxed) {
            Ok(())
        } else {
            self.take(used as u64, end, len as u64)
        }
    }

    #[cold]
    fn take(&self, used: u64, end: u64, len: u64) -> Result<()> {
        let needed = end.next_multiple_of(page_size()).min(len);
        // One that grows asks seldom, and one that does not has a page.
        let wanted = (needed + used.min(AHEAD_MAX)).next_multiple_of(page_size()).min(len);
        let file = match self.file() {
            Ok(file) => file,
            // Somebody has removed it, so that its space cannot be asked for: what is stored is for nobody else.
            Err(Error::Io(e)) if e.verdict() == Verdict::Absent => return Ok(()),
            Err(e) => return Err(e),
        };
        let end = match take_space(&*file, used, wanted) {
            // As much as is needed may still be there.
            Err(e) if e.verdict() == Verdict::NoSpace && wanted > needed => {
                take_space(&*file, used, needed)?;
                needed
            }
            taken => {
                taken?;
                wanted
            }
        };
        self.backed.store(end, Ordering::Relaxed);
        Ok(())
    }

    /// Entries behind those in use for which there is space: without limit where all of the file has.
    pub(crate) fn ahead(&self) -> u64 {
        let Some(index) = &self.open else { return 0 };
        let (used, backed) = (index.used() * I::ENTRY_LEN, self.backed.load(Ordering::Relaxed));
        if backed >= index.on().len() as u64 {
            return u64::MAX;
        }
        backed.saturating_sub(used as u64) / I::ENTRY_LEN as u64
    }

    /// The file, which is there.
    fn file(&self) -> Result<Arc<dyn RawFile>> {
        Ok(self.backend.open(&self.path, OpenHow::Write)?)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&I> {
        self.open.as_ref()
    }

    /// Opens the file, or makes it with room for `size_max` bytes of entries. Returns whether it existed.
    pub(crate) fn open(&mut self, base: Offset, size_max: u32) -> Result<bool> {
        debug_assert!(self.open.is_none());
        let backend = &*self.backend;
        let existed = backend.names().stat(&self.path)?.is_some();
        let file = backend.open(&self.path, OpenHow::Create)?;
        let len = if existed {
            file.len()?
        } else {
            let len = round_down(size_max as usize, I::ENTRY_LEN) as u64;
            if len == 0 {
                let _ = backend.names().remove(&self.path)?;
                let what = format!(
                    "{}: segment.index.bytes is {size_max}: expected at least {} bytes, one entry",
                    self.path.display(),
                    I::ENTRY_LEN
                );
                return Err(Error::InvalidArgument { what });
            }
            file.submit(Op::SetLen { len }).wait().result?;
            len
        };
        let entries = if existed { entries_in(len, I::ENTRY_LEN) } else { 0 };
        let region = map(&*file, len)?;
        self.set(base, region, entries);
        Ok(existed)
    }

    /// Gives the file room for `size` bytes of entries, rounded down to whole entries and never below those in use;
    /// keeps the entries.
    pub(crate) fn resize(&mut self, base: Offset, size: usize) -> Result<()> {
        let Some(index) = &self.open else { return Ok(()) };
        let used = index.used();
        let len = round_down(size, I::ENTRY_LEN).max(used * I::ENTRY_LEN);
        if len == index.on().len() && self.file_len()? == Some(len as u64) {
            return Ok(());
        }
        let file = self.file()?;
        // The mapping goes first: nothing may be mapped behind the end of a file.
        self.open = None;
        file.submit(Op::SetLen { len: len as u64 }).wait().result?;
        let region = map(&*file, len as u64)?;
        self.set(base, region, used);
        Ok(())
    }

    /// Drops all entries and gives the file room for `size` bytes of them; what was in it is gone, all of it zero.
    ///
    /// The file is not cut to nothing on the way but to one word, which is overwritten: a file that was cut to nothing is
    /// written to disk when it is closed (ext4's `auto_da_alloc`, and xfs the same), and the next cut waits for that.
    pub(crate) fn reset(&mut self, base: Offset, size: usize) -> Result<()> {
        if self.open.is_none() {
            return Ok(());
        }
        let file = self.file()?;
        self.open = None;
        let len = round_down(size, I::ENTRY_LEN) as u64;
        for len in [len.min(WORD as u64), len] {
            file.submit(Op::SetLen { len }).wait().result?;
        }
        let region = map(&*file, len)?;
        // One that is zero may be a hole.
        if len > 0 && region.load::<WORD>(0) != [0; WORD] {
            region.store(0, [0; WORD]);
        }
        self.set(base, region, 0);
        Ok(())
    }

    /// Cuts the file to the entries in use.
    pub(crate) fn trim(&mut self, base: Offset) -> Result<()> {
        self.resize(base, 0)
    }

    /// Whether the file holds whole entries and nothing behind them.
    pub(crate) fn is_whole(&self) -> Result<bool> {
        if self.open.is_none() {
            return Ok(true);
        }
        Ok(self.file_len()?.is_some_and(|len| len.is_multiple_of(I::ENTRY_LEN as u64)))
    }

    /// The file's length; `None` where it is gone.
    fn file_len(&self) -> Result<Option<u64>> {
        Ok(self.backend.names().stat(&self.path)?.map(|stat| stat.len))
    }

    /// Makes the file's length and contents durable, after it has been cut.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.open.is_some() {
            self.file()?.submit(Op::Flush { metadata: true }).wait().result?;
        }
        Ok(())
    }

    pub(crate) fn flush(&self) -> Result<()> {
        if let Some(index) = &self.open {
            // msync writes the pages and, by way of the file's fsync, its length; an empty file has no page.
            if index.on().len() > 0 {
                index.on().flush()?;
            } else {
                self.file()?.submit(Op::Flush { metadata: false }).wait().result?;
            }
        }
        Ok(())
    }

    /// Unmaps the file without a write.
    pub(crate) fn release(&mut self) {
        self.open = None;
    }

    /// Renames the file. One that is missing, because it was never opened or somebody removed it, is no error: it can be made
    /// again from the batches.
    pub(crate) fn rename(&mut self, to: &Path) -> Result<()> {
        let backend = &*self.backend;
        if backend.names().stat(&self.path)?.is_some() {
            backend.names().rename(&self.path, to)?;
        }
        self.path = to.to_path_buf();
        Ok(())
    }
}

/// Takes space for the bytes from `used` to `end`.
fn take_space(file: &dyn RawFile, used: u64, end: u64) -> Result<(), IoError> {
    // The page that the last entry is in may have space for that alone, where blocks are smaller than pages.
    let range = used / page_size() * page_size()..end;
    match file.submit(Op::Reserve { range, how: Reserve::Blocks }).wait().result {
        // Zeros take space too. No entry is among them.
        Err(e) if e.verdict() == Verdict::Unsupported => {
            file.submit(Op::Reserve { range: used..end, how: Reserve::Zeroed }).wait().result?
        }
        taken => taken?,
    };
    Ok(())
}

fn map(file: &dyn RawFile, len: u64) -> Result<MapRegion> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if len == 0 {
        return Ok(MapRegion(MappedRegion::heap(0)));
    }
    Ok(MapRegion(file.map(len, MapAccess::Write)?))
}
