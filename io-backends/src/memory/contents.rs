//! The bytes of one file in memory: chunks of a fixed size, the missing ones holes.
//!
//! A chunk is plain bytes until a part of the file is mapped; from then on the mapped chunks are words that the
//! regions share. Invariant: every byte of a chunk behind the length is zero, but for what a region that was cut
//! stores there; growing makes those zero, too.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::map::Block;

/// As `off_t` has it.
const LEN_MAX: u64 = i64::MAX as u64;
const CHUNK: u64 = Block::LEN as u64;

#[derive(Debug)]
pub(super) struct Contents {
    chunks: BTreeMap<u64, Chunk>,
    len: u64,
    pub(super) modified: SystemTime,
}

enum Chunk {
    Bytes(Box<[u8]>),
    Words(Arc<Block>),
}

impl Contents {
    pub(super) fn new(now: SystemTime) -> Self {
        Self { chunks: BTreeMap::new(), len: 0, modified: now }
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Writes `parts` one after the other from `at` on, and returns how many bytes they are.
    pub(super) fn write(&mut self, at: u64, parts: &[Bytes]) -> io::Result<u64> {
        let size = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let end = at.checked_add(size).filter(|end| *end <= LEN_MAX).ok_or(io::ErrorKind::FileTooLarge)?;
        if size == 0 {
            return Ok(0);
        }
        self.grow(end)?;
        let mut at = at;
        for part in parts {
            let mut left = &part[..];
            while !left.is_empty() {
                let (index, within) = place(at);
                let (now, rest) = left.split_at(left.len().min(Block::LEN - within));
                self.chunks.entry(index).or_insert_with(Chunk::zeroed).write(within, now);
                left = rest;
                at += now.len() as u64;
            }
        }
        Ok(size)
    }

    /// Reads from `at` on until `into` is full or the file ends.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        let size = into.len().min(left);
        let mut at = at;
        let mut into = &mut into[..size];
        while !into.is_empty() {
            let (index, within) = place(at);
            let count = into.len().min(Block::LEN - within);
            let (now, rest) = into.split_at_mut(count);
            match self.chunks.get(&index) {
                Some(chunk) => chunk.read(within, now),
                None => now.fill(0),
            }
            into = rest;
            at += count as u64;
        }
        size
    }

    /// A copy of `size` bytes at `at`, which are there.
    pub(super) fn copy(&self, at: u64, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let size = usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.try_reserve_exact(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(size, 0);
        self.read(at, &mut bytes);
        Ok(bytes)
    }

    pub(super) fn set_len(&mut self, len: u64) -> io::Result<u64> {
        if len >= self.len {
            return self.grow(len);
        }
        drop(self.chunks.split_off(&len.div_ceil(CHUNK)));
        let end = self.len.min(len.next_multiple_of(CHUNK));
        self.len = len;
        self.zero(len..end);
        Ok(len)
    }

    /// Grows the file to `len` with zeros, if it is shorter, and returns its length.
    pub(super) fn grow(&mut self, len: u64) -> io::Result<u64> {
        if len > LEN_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if len > self.len {
            let old = self.len;
            self.len = len;
            if let Some(Chunk::Words(_)) = self.chunks.get(&(old / CHUNK)) {
                self.zero(old..len.min(old.next_multiple_of(CHUNK)));
            }
        }
        Ok(self.len)
    }

    /// Makes the bytes of `range` zero.
    pub(super) fn zero(&mut self, range: Range<u64>) {
        static ZEROS: [u8; Block::LEN] = [0; Block::LEN];
        if range.is_empty() {
            return;
        }
        for (index, chunk) in self.chunks.range_mut(range.start / CHUNK..range.end.div_ceil(CHUNK)) {
            let begin = index * CHUNK;
            let from = range.start.max(begin) - begin;
            let to = range.end.min(begin + CHUNK) - begin;
            chunk.write(from as usize, &ZEROS[..(to - from) as usize]);
        }
    }

    /// The words of the first `len` bytes, shared from now on.
    pub(super) fn blocks(&mut self, len: usize) -> Box<[Arc<Block>]> {
        (0..len.div_ceil(Block::LEN) as u64)
            .map(|index| {
                let chunk =
                    self.chunks.entry(index).or_insert_with(|| Chunk::Words(Arc::new(Block::zeroed())));
                chunk.words()
            })
            .collect()
    }
}

impl Chunk {
    fn zeroed() -> Self {
        Chunk::Bytes(vec![0; Block::LEN].into_boxed_slice())
    }

    fn words(&mut self) -> Arc<Block> {
        match self {
            Chunk::Words(block) => Arc::clone(block),
            Chunk::Bytes(bytes) => {
                let block = Arc::new(Block::zeroed());
                block.write(0, bytes);
                *self = Chunk::Words(Arc::clone(&block));
                block
            }
        }
    }

    fn write(&mut self, at: usize, from: &[u8]) {
        match self {
            Chunk::Bytes(bytes) => bytes[at..at + from.len()].copy_from_slice(from),
            Chunk::Words(block) => block.write(at, from),
        }
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Chunk::Bytes(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
            Chunk::Words(block) => block.read(at, into),
        }
    }
}

impl std::fmt::Debug for Chunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Chunk::Bytes(_) => "Bytes",
            Chunk::Words(_) => "Words",
        })
    }
}

/// The chunk of a position, and where in it.
fn place(at: u64) -> (u64, usize) {
    (at / CHUNK, (at % CHUNK) as usize)
}
