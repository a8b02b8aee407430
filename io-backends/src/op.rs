//! [`Op`]: what can be asked of a file; [`Gather`]: the bytes of a write; [`Done`]: the answer.

use std::ops::Range;

use bytes::{Buf, Bytes};

use crate::error::IoError;

/// The bytes of one write: immutable, shared parts, written one after the other.
///
/// A part is never copied on its way to a blocking engine's system call, and an engine whose writes complete later
/// owns the parts until the kernel is done with them. Complete: there is nothing between one part and many.
#[derive(Debug, Clone)]
pub enum Gather {
    /// One part: the usual case, without an allocation.
    One(Bytes),
    /// Parts in the order in which they are written; empty parts are allowed.
    Many(Vec<Bytes>),
}

impl Gather {
    /// Bytes in all parts together.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Gather::One(part) => part.len() as u64,
            Gather::Many(parts) => parts.iter().map(|part| part.len() as u64).sum(),
        }
    }

    /// Whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.parts().iter().all(Bytes::is_empty)
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[Bytes] {
        match self {
            Gather::One(part) => std::slice::from_ref(part),
            Gather::Many(parts) => parts,
        }
    }

    /// Drops the first `count` bytes: what is left to write after a short write.
    ///
    /// # Panics
    /// If there are fewer than `count` bytes.
    pub fn advance(&mut self, count: u64) {
        match self {
            Gather::One(part) => part.advance(usize::try_from(count).expect("inside the parts")),
            Gather::Many(parts) => {
                let mut left = count;
                let mut whole = 0;
                while let Some(part) = parts.get(whole) {
                    if (part.len() as u64) > left {
                        break;
                    }
                    left -= part.len() as u64;
                    whole += 1;
                }
                parts.drain(..whole);
                match parts.first_mut() {
                    Some(part) => part.advance(left as usize),
                    None => assert_eq!(left, 0, "advanced by more bytes than there are"),
                }
            }
        }
    }
}

impl From<Bytes> for Gather {
    fn from(part: Bytes) -> Self {
        Gather::One(part)
    }
}

impl From<Vec<Bytes>> for Gather {
    fn from(parts: Vec<Bytes>) -> Self {
        Gather::Many(parts)
    }
}

/// Whether a write is durable by itself. Complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Through {
    /// The write may stay in a cache until a flush.
    No,
    /// The written bytes, and the length if it grew, survive power loss once the write is done. Says nothing about
    /// other writes.
    Data,
}

/// How to reserve space ahead of the end of a file. Complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reserve {
    /// Blocks only; the length does not change. A write into them does not fail for lack of space.
    Blocks,
    /// Blocks, and the length grows to the end of the range, with zeros.
    BlocksAndLen,
    /// As before, and the blocks are written with zeros, so that later writes into them change no metadata. The
    /// bytes of the range are lost: it must lie behind everything that counts.
    Zeroed,
}

/// How a range is going to be used: a hint that changes no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// No particular way; undoes the others.
    Normal,
    /// From front to back: read ahead more.
    Sequential,
    /// Here and there: do not read ahead.
    Random,
    /// Soon: start reading now.
    WillNeed,
    /// Not again: clean pages may leave the cache.
    DontNeed,
    /// Not about reading: what was written there may go to the device now, without anybody waiting. Makes nothing
    /// durable.
    WriteBack,
}

/// An operation on one file, as given to [`RawFile::submit`](crate::RawFile::submit).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Op {
    /// Writes `data` at `at`: one write call.
    ///
    /// The answer is the number of bytes written, from the front, at least 1 unless `data` is empty. It may be less
    /// than asked, as with `pwrite(2)`: too many parts or bytes for one call, a signal, a disk that is nearly full.
    /// Going on is the caller's part, and [`write_all`](crate::write_all) does it. A gap between the old end and
    /// `at` reads as zeros. Not atomic beside readers of the same range. After an error it is not known which bytes
    /// of the range were written; bytes outside it are as before.
    Write {
        /// Position of the first byte.
        at: u64,
        /// What to write.
        data: Gather,
        /// Whether the write is durable by itself.
        through: Through,
    },
    /// Makes durable every write that was done before this was submitted, with the length needed to read it.
    ///
    /// The answer is 0. An error means that any of those writes may be lost, now or later, though they can still be
    /// read; a second try proves nothing and must not be made.
    Flush {
        /// Also times and a length that shrank: `fsync` instead of `fdatasync`.
        metadata: bool,
    },
    /// Sets the length. Cut bytes are gone, new ones are zeros. The answer is the new length.
    ///
    /// Refused as misuse where it would cut a live view made by [`RawFile::map_bytes`](crate::RawFile::map_bytes).
    SetLen {
        /// The new length in bytes.
        len: u64,
    },
    /// Takes space for `range`. The answer is the length of the file afterwards.
    Reserve {
        /// Which bytes.
        range: Range<u64>,
        /// How much to do for them.
        how: Reserve,
    },
    /// Says how `range` is going to be read. The answer is 0, also where the engine has no use for it.
    Advise {
        /// Which bytes.
        range: Range<u64>,
        /// How they are going to be read.
        how: Advice,
    },
}

/// The answer to one [`Op`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Done {
    /// Bytes written, or the new length, or 0: each [`Op`] says which.
    pub result: Result<u64, IoError>,
    /// The parts of a write, given back as they were so that a short write can be continued without keeping a copy
    /// of the handles. None for other operations.
    pub data: Option<Gather>,
}

impl Done {
    /// An answer without parts to give back.
    pub fn new(result: Result<u64, IoError>) -> Self {
        Self { result, data: None }
    }

    /// The answer to a write, with its parts.
    pub fn written(result: Result<u64, IoError>, data: Gather) -> Self {
        Self { result, data: Some(data) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(gather: &Gather) -> Vec<u8> {
        gather.parts().concat()
    }

    #[test]
    fn advance_leaves_exactly_the_rest() {
        let parts = ["", "abc", "", "d", "efgh", ""].map(|part| Bytes::from_static(part.as_bytes()));
        for count in 0..=8 {
            let mut gather = Gather::from(parts.to_vec());
            gather.advance(count);
            assert_eq!(joined(&gather), &b"abcdefgh"[count as usize..]);
            assert_eq!(gather.len(), 8 - count);
            assert_eq!(gather.is_empty(), count == 8);
        }
        let mut one = Gather::from(Bytes::from_static(b"abc"));
        one.advance(2);
        assert_eq!(joined(&one), b"c");
    }

    #[test]
    #[should_panic(expected = "more bytes than there are")]
    fn advance_past_the_end_panics() {
        Gather::from(vec![Bytes::from_static(b"a")]).advance(2);
    }
}
