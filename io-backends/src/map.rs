//! Memory maps: [`MappedRegion`], words that many threads load beside one that stores, and the read-only views
//! behind [`RawFile::map_bytes`](crate::RawFile::map_bytes).
//!
//! # What makes them sound
//! - A region never lends out its bytes. Every access is a relaxed atomic of one aligned 4-byte word, so a reader
//!   beside a writer, in this process or another, sees the old word or the new one. Which words belong together is
//!   for the layer above to publish.
//! - A view does lend out its bytes, so they must not change. The engine refuses writes, cuts and writable maps of a
//!   file for as long as a view shows the range (`inode.rs`). The file stays mapped when the view has gone, but only a view
//!   makes a reference to mapped bytes, and only to those that it shows.
//! - A store into a page for which the file has no space, and a full disk none to give, kills the process with SIGBUS. Who maps a
//!   file with holes reserves space before the first store into a page ([`page_size`]); nothing here does it.
//! - A load from a page that the file no longer has kills the process with SIGBUS. Every cut of a file through this
//!   crate first puts zero pages under the part of its regions that is cut off, and is refused where a view shows
//!   that part. No safe code of this workspace cuts a file in another way.
//!
//! What no library can prevent: another process, or other code in this one, that writes or cuts a mapped file with
//! system calls of its own. The lock on the data directory, [`Namespace::lock`](crate::Namespace::lock), is there to
//! keep both away; a view relies on it.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock, Weak};

use memmap2::{MmapOptions, MmapRaw};

use crate::backend::MapAccess;
use crate::error::IoError;
use crate::inode::Inode;
use crate::sync::{AtomicU32, Ordering, real};
use crate::sys;

/// Bytes of a word: the unit of every access.
const WORD: usize = 4;

/// Bytes of a page: a store into a map needs space for all of the file in the page. Where a file has none there, and the disk is
/// full, it kills the process with SIGBUS; [`Op::Reserve`](crate::Op::Reserve) takes it before, and fails instead.
pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

/// The beginning of a file, mapped as words, or words that stand for one.
///
/// `Send` and `Sync`: any number of threads may load and store. Cheap to hold, and it keeps the bytes alive when the
/// file is closed or removed. Bytes stand in the order of the file.
pub struct MappedRegion {
    words: Words,
    len: usize,
    access: MapAccess,
}

enum Words {
    File(Arc<Mapping>),
    Heap(Box<[Arc<Block>]>),
}

impl MappedRegion {
    /// A region of `len` zero bytes that stands for no file: for tests and models.
    pub fn heap(len: usize) -> Self {
        let blocks = (0..len.div_ceil(Block::LEN)).map(|_| Arc::new(Block::zeroed())).collect();
        Self::blocks(blocks, len, MapAccess::Write)
    }

    /// A region of words that a file in memory shares.
    pub(crate) fn blocks(blocks: Box<[Arc<Block>]>, len: usize, access: MapAccess) -> Self {
        debug_assert!(blocks.len() * Block::LEN >= len);
        Self { words: Words::Heap(blocks), len, access }
    }

    /// A region of a mapped file.
    pub(crate) fn file(mapping: Arc<Mapping>, len: usize, access: MapAccess) -> Self {
        debug_assert!(mapping.raw.len() >= len);
        Self { words: Words::File(mapping), len, access }
    }

    /// Bytes in the region; fixed, whatever becomes of the file.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Loads `N` bytes at `at`; word by word, so beside a store some words may be old and others new.
    ///
    /// # Panics
    /// If the bytes do not lie in the region, or `at` is not a multiple of 4. That `N` is one is checked at compile
    /// time.
    #[inline]
    pub fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        self.check::<N>(at);
        let mut bytes = [0; N];
        for (index, word) in bytes.chunks_exact_mut(WORD).enumerate() {
            word.copy_from_slice(&self.load_word(at / WORD + index));
        }
        bytes
    }

    /// Stores bytes at `at`, word by word, from front to back.
    ///
    /// # Panics
    /// As [`MappedRegion::load`], and if the region was mapped to read.
    #[inline]
    pub fn store<const N: usize>(&self, at: usize, bytes: [u8; N]) {
        self.check::<N>(at);
        assert!(self.access == MapAccess::Write, "the region was mapped to read");
        for (index, word) in bytes.as_chunks::<WORD>().0.iter().enumerate() {
            self.store_word(at / WORD + index, *word);
        }
    }

    /// Makes durable what was stored before; not the file's length. Nothing to do for a region in memory.
    ///
    /// # Errors
    /// As a failed sync of the file: what was stored may be lost though it can be loaded.
    pub fn flush(&self) -> Result<(), IoError> {
        match &self.words {
            Words::Heap(_) => Ok(()),
            Words::File(mapping) => mapping.flush(),
        }
    }

    #[inline]
    fn check<const N: usize>(&self, at: usize) {
        const { assert!(N.is_multiple_of(WORD), "a whole number of words") };
        assert!(at.is_multiple_of(WORD), "position {at} is not that of a word");
        assert!(N <= self.len && at <= self.len - N, "{N} bytes at {at} are not in a region of {}", self.len);
    }

    #[inline]
    fn load_word(&self, index: usize) -> [u8; WORD] {
        match &self.words {
            Words::File(mapping) => word_bytes(mapping.word(index).load(Ordering::Relaxed)),
            Words::Heap(blocks) => blocks[index / Block::WORDS].load(index % Block::WORDS),
        }
    }

    #[inline]
    fn store_word(&self, index: usize, bytes: [u8; WORD]) {
        match &self.words {
            Words::File(mapping) => mapping.word(index).store(word_of(bytes), Ordering::Relaxed),
            Words::Heap(blocks) => blocks[index / Block::WORDS].store(index % Block::WORDS, bytes),
        }
    }
}

impl fmt::Debug for MappedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of: &dyn fmt::Debug = match &self.words {
            Words::File(mapping) => &mapping.path,
            Words::Heap(_) => &"memory",
        };
        let Self { len, access, .. } = self;
        f.debug_struct("MappedRegion").field("of", of).field("len", len).field("access", access).finish()
    }
}

#[expect(clippy::host_endian_bytes, reason = "a word holds the bytes of the file in their order")]
fn word_bytes(word: u32) -> [u8; WORD] {
    word.to_ne_bytes()
}

#[expect(clippy::host_endian_bytes, reason = "a word holds the bytes of the file in their order")]
fn word_of(bytes: [u8; WORD]) -> u32 {
    u32::from_ne_bytes(bytes)
}

/// A shared map of the beginning of a file. Unmapped when the last handle is dropped.
pub(crate) struct Mapping {
    raw: MmapRaw,
    access: MapAccess,
    path: Arc<Path>,
    /// Knows this mapping for as long as it lives, so that cuts find it.
    _inode: Arc<Inode>,
}

impl Mapping {
    /// Maps `len` bytes, at least 1. The caller has checked that the file has them, and keeps it from being cut
    /// until the inode knows the mapping.
    pub(crate) fn new(
        file: &File,
        len: usize,
        access: MapAccess,
        path: Arc<Path>,
        inode: Arc<Inode>,
    ) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.len(len);
        let raw = match access {
            MapAccess::Read => options.map_raw_read_only(file)?,
            MapAccess::Write => options.map_raw(file)?,
        };
        if access == MapAccess::Write {
            // What is written here is preallocated and filled slowly from the front, or searched: reading ahead would
            // fill pages with zeros that nobody asks for. A hint: where it is not taken nothing is lost.
            #[cfg(unix)]
            let _ = raw.advise(memmap2::Advice::Random);
        }
        Ok(Self { raw, access, path, _inode: inode })
    }

    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }

    pub(crate) fn access(&self) -> MapAccess {
        self.access
    }

    /// Puts zero pages under everything behind the page that holds byte `len - 1`: that part of the file is about
    /// to go.
    pub(crate) fn cut(&self, len: u64) -> io::Result<()> {
        let page = page_size();
        let Some(kept) = len.checked_next_multiple_of(page) else { return Ok(()) };
        let end = self.len().next_multiple_of(page as usize);
        let Some(kept) = usize::try_from(kept).ok().filter(|kept| *kept < end) else { return Ok(()) };
        let base = self.raw.as_mut_ptr().wrapping_add(kept);
        // SAFETY: `base` and the length are multiples of the page, inside the mapping, which `self` keeps mapped;
        // all that ever refers to its bytes are the atomics of `word`.
        unsafe { sys::detach(base, end - kept, self.access == MapAccess::Write) }
    }

    fn flush(&self) -> Result<(), IoError> {
        self.raw.flush().map_err(|source| {
            IoError::new("sync of map", &*self.path, source).with_verdict(crate::error::Verdict::Damaged)
        })
    }

    #[inline]
    fn word(&self, index: usize) -> &real::AtomicU32 {
        assert!(index < self.raw.len() / WORD, "outside the mapping");
        let word = self.raw.as_mut_ptr().cast::<real::AtomicU32>().wrapping_add(index);
        // SAFETY: the word lies in the mapping, by the assertion, and is aligned, as the mapping begins at a page.
        // The mapping lives as long as `self`, and every access to it is an atomic's. Where it was mapped to read,
        // `MappedRegion::store` refuses; a relaxed load of 4 bytes is allowed on memory that can only be read.
        unsafe { &*word }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("path", &self.path).field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Bytes of a file, mapped so that views can show parts of them.
struct Pages {
    raw: MmapRaw,
    /// Where in the file the first byte stands.
    from: u64,
}

impl Pages {
    fn new(file: &File, range: Range<u64>) -> io::Result<Self> {
        let len = usize::try_from(range.end - range.start).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let raw = MmapOptions::new().offset(range.start).len(len).map_raw_read_only(file)?;
        Ok(Self { raw, from: range.start })
    }

    fn hold(&self, range: &Range<u64>) -> bool {
        self.from <= range.start && range.end <= self.from + self.raw.len() as u64
    }
}

/// Files that stay mapped between two views. Each costs address space and, for what was looked at, page tables, 2 MiB for a
/// GiB; and a process may have only so many mappings.
const KEPT_MAX: usize = 64;

/// The files that stay mapped, the one that was mapped first in front.
static KEPT: LazyLock<real::Mutex<VecDeque<Arc<Pages>>>> = LazyLock::new(Default::default);

/// The mapping of one handle's whole file, kept for the next view: mapping costs system calls, and a page fault for every few
/// pages that are looked at. Unmapped when the handle is dropped, or [`KEPT_MAX`] others have been mapped since.
#[derive(Default)]
pub(crate) struct Kept(real::Mutex<Weak<Pages>>);

impl Kept {
    /// A mapping of `range` at least, which the file has.
    fn pages(&self, file: &File, range: &Range<u64>) -> io::Result<Arc<Pages>> {
        let mut own = self.0.lock();
        if let Some(pages) = own.upgrade()
            && pages.hold(range)
        {
            return Ok(pages);
        }
        forget(&own);
        let Ok(pages) = Pages::new(file, 0..file.metadata()?.len()) else {
            // No room for all of it.
            return Pages::new(file, range.clone()).map(Arc::new);
        };
        let pages = Arc::new(pages);
        if !pages.hold(range) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *own = Arc::downgrade(&pages);
        let oldest = {
            let mut kept = KEPT.lock();
            kept.push_back(Arc::clone(&pages));
            if kept.len() > KEPT_MAX { kept.pop_front() } else { None }
        };
        // Unmapped without the lock.
        drop(oldest);
        Ok(pages)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        forget(&self.0.lock());
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

/// Lets go of a mapping, unless it has gone.
fn forget(pages: &Weak<Pages>) {
    let Some(pages) = pages.upgrade() else { return };
    KEPT.lock().retain(|kept| !Arc::ptr_eq(kept, &pages));
}

/// A range of a file, mapped to be lent out as bytes. The inode refuses changes to the range while it lives.
pub(crate) struct View {
    pages: Arc<Pages>,
    range: Range<u64>,
    inode: Arc<Inode>,
    id: u64,
}

impl View {
    /// Maps `range`, which is not empty. The caller has checked that the file has it, and has made the inode refuse
    /// changes to it, under `id`.
    pub(crate) fn new(
        file: &File,
        kept: &Kept,
        range: Range<u64>,
        inode: Arc<Inode>,
        id: u64,
    ) -> io::Result<Self> {
        let pages = kept.pages(file, &range)?;
        Ok(Self { pages, range, inode, id })
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        let Range { start, end } = self.range;
        debug_assert!(self.pages.hold(&self.range));
        let first = self.pages.raw.as_ptr().wrapping_add((start - self.pages.from) as usize);
        // The bytes do not change while the view lives: this process writes to the file and cuts it through its inode, which
        // refuses, and other processes are kept out by the lock that the module's text speaks of. No other reference is made to
        // bytes of the mapping than by views.
        // SAFETY: the bytes lie in the mapping (`Kept::pages`), which lives as long as `self`, and stay as they are (above).
        unsafe { std::slice::from_raw_parts(first, (end - start) as usize) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // The bytes are borrowed from `self`, so nobody looks at them any more.
        self.inode.thaw(self.id);
    }
}

/// A stretch of memory in words: what a file in memory shares with the regions mapped from it. It takes memory once something
/// else than zeros is stored: most of an index that was given its full size is never used.
pub(crate) struct Block(real::OnceLock<Box<[AtomicU32]>>);

impl Block {
    /// Bytes in a block. Small under loom, which tracks each word.
    pub(crate) const LEN: usize = if cfg!(loom) { 256 } else { 64 << 10 };
    const WORDS: usize = Self::LEN / WORD;

    pub(crate) fn zeroed() -> Self {
        let words = real::OnceLock::new();
        // Models are about the words. That they are there is ordered as any first store is: whoever is told of a store by other
        // means finds them, and whoever finds none sees zeros, as before it.
        if cfg!(loom) {
            words.get_or_init(|| zeroed_words(Self::WORDS));
        }
        Self(words)
    }

    /// Whether it takes memory.
    #[cfg(test)]
    fn is_there(&self) -> bool {
        self.0.get().is_some()
    }

    fn load(&self, index: usize) -> [u8; WORD] {
        self.0.get().map_or([0; WORD], |words| word_at(words, index))
    }

    fn store(&self, index: usize, bytes: [u8; WORD]) {
        if bytes == [0; WORD] && self.0.get().is_none() {
            return;
        }
        let words = self.0.get_or_init(|| zeroed_words(Self::WORDS));
        words[index].store(word_of(bytes), Ordering::Relaxed);
    }

    /// Copies the bytes from `at` on into `into`.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        let Some(words) = self.0.get() else {
            into.fill(0);
            return;
        };
        let mut place = at;
        let mut left = into;
        while !left.is_empty() {
            let (within, count) = Self::step(place, left.len());
            let (now, rest) = left.split_at_mut(count);
            now.copy_from_slice(&word_at(words, place / WORD)[within..within + count]);
            left = rest;
            place += count;
        }
    }

    /// Copies `from` to the bytes from `at` on. A word of which only a part is written keeps its other bytes, unless
    /// a region stores to it at the same moment: then one of the two wins.
    pub(crate) fn write(&self, at: usize, from: &[u8]) {
        let mut place = at;
        let mut left = from;
        while !left.is_empty() {
            let (within, count) = Self::step(place, left.len());
            let (now, rest) = left.split_at(count);
            let mut word = if count == WORD { [0; WORD] } else { self.load(place / WORD) };
            word[within..within + count].copy_from_slice(now);
            self.store(place / WORD, word);
            left = rest;
            place += count;
        }
    }

    /// Of `left` bytes at `at`: where they begin in their word, and how many of them are in it.
    fn step(at: usize, left: usize) -> (usize, usize) {
        let within = at % WORD;
        (within, left.min(WORD - within))
    }
}

fn word_at(words: &[AtomicU32], index: usize) -> [u8; WORD] {
    word_bytes(words[index].load(Ordering::Relaxed))
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").finish_non_exhaustive()
    }
}

/// Words from memory that the allocator gives as zeros, so that what is never stored to is never touched.
#[cfg(not(loom))]
fn zeroed_words(count: usize) -> Box<[AtomicU32]> {
    const { assert!(align_of::<AtomicU32>() == align_of::<u32>()) };
    let words = vec![0_u32; count].into_boxed_slice();
    let raw = Box::into_raw(words) as *mut [AtomicU32];
    // SAFETY: the pointer comes from a box of as many words; an atomic word has the size and the valid values of a
    // plain one, and here, by the assertion, its alignment: so the layout is the one that was allocated.
    unsafe { Box::from_raw(raw) }
}

#[cfg(loom)]
fn zeroed_words(count: usize) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_block_are_read_as_they_were_written_at_any_place() {
        let block = Block::zeroed();
        let mut model = [0_u8; 64];
        for (round, (at, len)) in
            [(0, 1), (1, 2), (3, 1), (2, 7), (5, 4), (8, 8), (13, 30), (60, 4)].iter().enumerate()
        {
            let bytes: Vec<u8> = (0..*len).map(|index| (round * 16 + index + 1) as u8).collect();
            block.write(*at, &bytes);
            model[*at..at + len].copy_from_slice(&bytes);
            for from in 0..16 {
                let mut seen = vec![0xff; 64 - from];
                block.read(from, &mut seen);
                assert_eq!(seen, model[from..]);
            }
        }
    }

    #[test]
    fn a_block_of_zeros_takes_no_memory() {
        let block = Block::zeroed();
        block.write(0, &[0; 64]);
        let mut seen = [0xff; 8];
        block.read(3, &mut seen);
        assert!(seen == [0; 8] && !block.is_there());
        block.write(9, &[0, 7]);
        block.write(10, &[0]);
        block.read(3, &mut seen);
        assert!(seen == [0; 8] && block.is_there());
    }

    #[test]
    fn a_heap_region_loads_what_was_stored_across_blocks() {
        let region = MappedRegion::heap(Block::LEN + 10);
        assert_eq!(region.len(), Block::LEN + 10);
        region.store(Block::LEN - 4, *b"abcdefgh");
        assert_eq!(region.load::<12>(Block::LEN - 8), *b"\0\0\0\0abcdefgh");
        region.flush().unwrap();
        assert!(MappedRegion::heap(0).is_empty());
    }

    #[test]
    #[should_panic(expected = "are not in a region")]
    fn a_load_behind_the_end_panics() {
        MappedRegion::heap(10).load::<4>(8);
    }

    #[test]
    #[should_panic(expected = "not that of a word")]
    fn a_load_between_words_panics() {
        MappedRegion::heap(16).load::<4>(2);
    }
}
