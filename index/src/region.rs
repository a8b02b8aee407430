//! Where the entries of an index lie: words that one thread stores while others load.
//!
//! A `&[u8]` for the readers beside a `&mut [u8]` for the writer would be unsound, so a region is reached through `&self`
//! in words of 4 bytes, each loaded and stored whole. Every field of an index entry is made of such words.

use std::convert::Infallible;
use std::fmt;

use crate::sync::{AtomicU32, Ordering};

/// Bytes of a word: the alignment of every access and the unit that is never torn.
const WORD_LEN: usize = 4;

/// A fixed number of bytes, shared between one storing and any number of loading threads.
///
/// `at` and `N` are multiples of 4. Each 4-byte word is loaded and stored whole; the words of one call are not one unit.
/// A region need not order accesses of different words (relaxed is enough): the indexes publish what they store through
/// their entry count.
///
/// Implementations: [`MemoryRegion`] here; memory-mapped files where files are opened.
pub trait Region {
    /// What a failed [`flush`](Region::flush) reports.
    type Error;

    /// Bytes in the region. It does not change, and need not be a multiple of a word or of an entry.
    fn len(&self) -> usize;

    /// Whether the region has no bytes at all, which is legal: its index has no entries and is full.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the `N` bytes from `at`.
    ///
    /// # Panics
    /// Where `at + N` is past [`len`](Region::len), like a slice; possibly where `at` or `N` is not a multiple of 4.
    fn load<const N: usize>(&self, at: usize) -> [u8; N];

    /// Replaces the `N` bytes from `at`.
    ///
    /// # Panics
    /// As [`load`](Region::load).
    fn store<const N: usize>(&self, at: usize, bytes: [u8; N]);

    /// Makes durable what was stored before the call, where the region has something to be durable on.
    ///
    /// # Errors
    /// The region's own; what is durable is unknown then.
    fn flush(&self) -> Result<(), Self::Error>;
}

impl<T: Region + ?Sized> Region for &T {
    type Error = T::Error;

    fn len(&self) -> usize {
        T::len(self)
    }

    fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        T::load(self, at)
    }

    fn store<const N: usize>(&self, at: usize, bytes: [u8; N]) {
        T::store(self, at, bytes);
    }

    fn flush(&self) -> Result<(), Self::Error> {
        T::flush(self)
    }
}

/// A region on the heap, of atomic words: for tests, models and indexes that need no file.
///
/// Under `--cfg loom` its words are loom's, so that a model sees every access.
pub struct MemoryRegion {
    // The bytes of a word in big-endian order, as the indexes use them: the swaps of a load cancel out.
    words: Box<[AtomicU32]>,
    // Bytes behind the last whole word, which nothing loads or stores.
    stray: Box<[u8]>,
}

impl MemoryRegion {
    /// A region of `len` zero bytes.
    pub fn new(len: usize) -> MemoryRegion {
        let words = (0..len / WORD_LEN).map(|_| AtomicU32::new(0)).collect();
        MemoryRegion { words, stray: vec![0; len % WORD_LEN].into() }
    }

    /// A region that begins as a copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> MemoryRegion {
        let (words, stray) = bytes.split_at(bytes.len() / WORD_LEN * WORD_LEN);
        let words = words.chunks_exact(WORD_LEN).map(|word| AtomicU32::new(word_from(word))).collect();
        MemoryRegion { words, stray: stray.into() }
    }

    /// A copy of all bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Relaxed: whoever wants the bytes of a finished append is ordered after it by other means.
        let words = self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_be_bytes());
        words.chain(self.stray.iter().copied()).collect()
    }

    /// The words that `N` bytes from `at` cover.
    #[inline]
    fn words_of<const N: usize>(&self, at: usize) -> &[AtomicU32] {
        const { assert!(N.is_multiple_of(WORD_LEN), "loads and stores are of whole words") };
        debug_assert!(at.is_multiple_of(WORD_LEN), "{at} is not a place of a word");
        let first = at / WORD_LEN;
        &self.words[first..first + N / WORD_LEN]
    }
}

#[inline]
fn word_from(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

impl Region for MemoryRegion {
    type Error = Infallible;

    fn len(&self) -> usize {
        self.words.len() * WORD_LEN + self.stray.len()
    }

    #[inline]
    fn load<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        for (chunk, word) in bytes.chunks_exact_mut(WORD_LEN).zip(self.words_of::<N>(at)) {
            // Relaxed: made visible by the Acquire load of the entry count in `Table::len`.
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_be_bytes());
        }
        bytes
    }

    #[inline]
    fn store<const N: usize>(&self, at: usize, bytes: [u8; N]) {
        for (chunk, word) in bytes.chunks_exact(WORD_LEN).zip(self.words_of::<N>(at)) {
            // Relaxed: published by the Release store of the entry count in `Table::push`.
            word.store(word_from(chunk), Ordering::Relaxed);
        }
    }

    fn flush(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_in_the_order_of_the_file() {
        let region = MemoryRegion::from_bytes(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(
            (region.len(), region.load::<8>(0), region.load::<4>(4)),
            (10, [1, 2, 3, 4, 5, 6, 7, 8], [5, 6, 7, 8])
        );
        region.store(4, [0xff, 0, 0, 1]);
        assert_eq!(region.to_bytes(), [1, 2, 3, 4, 0xff, 0, 0, 1, 9, 10]);
    }

    #[test]
    #[should_panic]
    fn load_past_the_end_panics() {
        MemoryRegion::new(12).load::<8>(8);
    }

    #[test]
    #[should_panic]
    fn bytes_that_are_no_whole_word_are_out_of_reach() {
        MemoryRegion::new(11).store(8, [0; 4]);
    }
}
