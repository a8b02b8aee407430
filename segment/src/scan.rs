//! Walks over the batches of a file: headers only, or whole batches.
//!
//! Both walks read with positional reads into a buffer of their own, never past the end that they were given, and
//! keep Kafka's framing rules for files (`FileLogInputStream`): a batch that is not wholly inside the region ends
//! the walk quietly, a size field below 14 or an unknown magic is corruption.

use std::path::PathBuf;

use kseg_format::{Batch, BatchHeader, Framed, HEADER_UP_TO_MAGIC, Magic, frame};
use kseg_io_backends::{Appender, IoError, RawFile};

use crate::error::{Error, Result};

/// A file that can be read at a position.
pub trait ReadAt {
    /// Reads at `at` into `into`; fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// What the operating system says, with the path and position.
    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError>;

    /// The file's path, for messages.
    fn path(&self) -> PathBuf;
}

impl ReadAt for dyn RawFile + '_ {
    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        RawFile::read_at(self, into, at)
    }

    fn path(&self) -> PathBuf {
        RawFile::path(self)
    }
}

impl ReadAt for dyn Appender + '_ {
    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        Appender::read_at(self, into, at)
    }

    fn path(&self) -> PathBuf {
        self.file().path()
    }
}

/// Where the batch ends that begins at `at`, if its size field is one and it lies before `end`, whatever else is wrong with it.
fn behind<F: ReadAt + ?Sized>(file: &F, at: u64, end: u64) -> Result<Option<u64>> {
    let mut prefix = [0; HEADER_UP_TO_MAGIC];
    if file.read_at(&mut prefix, at)? < prefix.len() {
        return Ok(None);
    }
    // What kind of batch it is is not asked, as in Kafka, but where it ends.
    prefix[HEADER_UP_TO_MAGIC - 1] = Magic::V2.get() as u8;
    Ok(match frame(&prefix, end.saturating_sub(at)) {
        Ok(Framed::Whole { size, .. }) => Some(at + size as u64),
        Ok(Framed::Torn { .. } | Framed::End) | Err(_) => None,
    })
}

/// Bytes that one read of a header walk takes where batches are small: about one index interval.
const CHUNK: usize = 4096;

/// Walk over batch headers.
///
/// Reads about as many bytes as it has to: a header first, then a page at a time while batches are smaller than that, or
/// single headers where they are larger. Allocates no more than it reads at a time.
pub struct Headers<'f, F: ReadAt + ?Sized> {
    file: &'f F,
    position: u64,
    end: u64,
    head: [u8; BatchHeader::MAX_LEN],
    /// Empty until a batch is met that is smaller than a page.
    chunk: Vec<u8>,
    chunk_at: u64,
    chunk_len: usize,
    /// Bytes that the next read takes at least.
    ahead: usize,
}

impl<'f, F: ReadAt + ?Sized> Headers<'f, F> {
    /// A walk over `[position, end)` of `file`; `position` is the start of a batch.
    pub fn new(file: &'f F, position: u64, end: u64) -> Self {
        Headers::reading_ahead(file, position, end, 0)
    }

    /// As [`new`](Self::new), but the first read takes `ahead` bytes at once: those between two index entries, say.
    pub(crate) fn reading_ahead(file: &'f F, position: u64, end: u64, ahead: usize) -> Self {
        Headers {
            file,
            position,
            end,
            head: [0; BatchHeader::MAX_LEN],
            chunk: Vec::new(),
            chunk_at: 0,
            chunk_len: 0,
            ahead,
        }
    }

    /// Where the next batch begins; after the last one, where the whole batches end.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where the region ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The next whole batch: its position and header. `None` at the end, or where the rest is no whole batch.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the bytes cannot be a batch; the walk stays there. [`Error::Io`] where the read fails.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it lends nothing, but fails without ending")]
    pub fn next(&mut self) -> Result<Option<(u64, BatchHeader)>> {
        let at = self.position;
        let remaining = self.end.saturating_sub(at);
        if remaining < HEADER_UP_TO_MAGIC as u64 + 1 {
            return Ok(None);
        }
        let header = {
            let prefix = self.bytes_at(at, remaining)?;
            match frame(prefix, remaining) {
                Ok(Framed::Whole { .. }) => BatchHeader::read(prefix),
                Ok(Framed::Torn { .. } | Framed::End) => return Ok(None),
                Err(e) => Err(e),
            }
        };
        let header = header.map_err(|e| Error::corrupt(&self.file.path(), at, e))?;
        self.position = at + header.size() as u64;
        self.ahead = if header.size() < CHUNK { CHUNK } else { 0 };
        Ok(Some((at, header)))
    }

    /// Passes over a batch that [`next`](Self::next) has refused, by its size alone; `false` where that leads nowhere.
    ///
    /// # Errors
    /// [`Error::Io`] where the read fails.
    pub(crate) fn skip(&mut self) -> Result<bool> {
        let behind = behind(self.file, self.position, self.end)?;
        self.position = behind.unwrap_or(self.position);
        Ok(behind.is_some())
    }

    /// The bytes from `at` on: a header's worth, or all that remains.
    #[inline]
    fn bytes_at(&mut self, at: u64, remaining: u64) -> Result<&[u8]> {
        let need = remaining.min(BatchHeader::MAX_LEN as u64) as usize;
        let within =
            at.checked_sub(self.chunk_at).filter(|&skip| skip + need as u64 <= self.chunk_len as u64);
        if let Some(skip) = within {
            return Ok(&self.chunk[skip as usize..self.chunk_len]);
        }
        if self.ahead <= need {
            let got = self.file.read_at(&mut self.head[..need], at)?;
            return Ok(&self.head[..got]);
        }
        if self.chunk.len() < self.ahead {
            self.chunk.resize(self.ahead, 0);
        }
        let want = remaining.min(self.ahead as u64) as usize;
        self.chunk_len = self.file.read_at(&mut self.chunk[..want], at)?;
        self.chunk_at = at;
        Ok(&self.chunk[..self.chunk_len])
    }
}

impl<F: ReadAt + ?Sized> std::fmt::Debug for Headers<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Headers")
            .field("position", &self.position)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

/// Bytes that one read of a batch walk takes.
const READ_SIZE: usize = 256 * 1024;

/// Walk over whole batches, through a buffer that grows to the largest batch met (never beyond what the file holds).
pub struct BatchReader<'f, F: ReadAt + ?Sized> {
    file: &'f F,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
    buffer_len: usize,
}

impl<'f, F: ReadAt + ?Sized> BatchReader<'f, F> {
    /// A walk over `[position, end)` of `file`; `position` is the start of a batch.
    pub fn new(file: &'f F, position: u64, end: u64) -> Self {
        BatchReader { file, position, end, buffer: Vec::new(), buffer_at: position, buffer_len: 0 }
    }

    /// Where the next batch begins; after the last one, where the whole batches end.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next whole batch and its position. `None` at the end, or where the rest is no whole batch.
    ///
    /// The checksum is not looked at: [`Batch::verify`] does.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the bytes cannot be a batch; the walk stays there. [`Error::Io`] where a read fails.
    #[allow(clippy::should_implement_trait, reason = "it lends from its buffer")]
    pub fn next(&mut self) -> Result<Option<(u64, Batch<'_>)>> {
        let at = self.position;
        let remaining = self.end.saturating_sub(at);
        if remaining < HEADER_UP_TO_MAGIC as u64 + 1 {
            return Ok(None);
        }
        self.fill(at, HEADER_UP_TO_MAGIC)?;
        let size = match frame(self.filled(at), remaining) {
            Ok(Framed::Whole { size, .. }) => size,
            Ok(Framed::Torn { .. } | Framed::End) => return Ok(None),
            Err(e) => return Err(Error::corrupt(&self.file.path(), at, e)),
        };
        self.fill(at, size)?;
        if self.filled(at).len() < size {
            // The file has become shorter than the region since the walk began.
            return Ok(None);
        }
        let skip = (at - self.buffer_at) as usize;
        match Batch::parse(&self.buffer[skip..skip + size]) {
            Ok(batch) => {
                self.position = at + size as u64;
                Ok(Some((at, batch)))
            }
            Err(e) => Err(Error::corrupt(&self.file.path(), at, e)),
        }
    }

    /// As [`next`](Self::next), but passes over what cannot be a batch by its size alone, as far as that leads; `passed` is told
    /// of each, with its position.
    ///
    /// # Errors
    /// [`Error::Io`] where a read fails.
    pub fn next_readable(&mut self, passed: &mut dyn FnMut(u64, Error)) -> Result<Option<(u64, Batch<'_>)>> {
        loop {
            let at = self.position;
            let Err(refused) = self.next().map(drop) else {
                // It is in the buffer.
                self.position = at;
                return self.next();
            };
            if !matches!(refused, Error::Corrupt { .. }) {
                return Err(refused);
            }
            passed(at, refused);
            match behind(self.file, at, self.end)? {
                Some(behind) => self.position = behind,
                None => return Ok(None),
            }
        }
    }

    /// What the buffer holds from `at` on.
    fn filled(&self, at: u64) -> &[u8] {
        let skip = (at - self.buffer_at) as usize;
        self.buffer.get(skip..self.buffer_len).unwrap_or_default()
    }

    /// Makes the buffer hold `need` bytes from `at` on, or all that the file has. `need` is at most what remains of
    /// the region.
    fn fill(&mut self, at: u64, need: usize) -> Result<()> {
        if self.filled(at).len() >= need {
            return Ok(());
        }
        let skip = ((at - self.buffer_at) as usize).min(self.buffer_len);
        self.buffer.copy_within(skip..self.buffer_len, 0);
        self.buffer_len -= skip;
        self.buffer_at = at;
        let want = (self.end - at).min(need.max(READ_SIZE) as u64) as usize;
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        let got = self.file.read_at(&mut self.buffer[self.buffer_len..want], at + self.buffer_len as u64)?;
        self.buffer_len += got;
        Ok(())
    }
}

impl<F: ReadAt + ?Sized> std::fmt::Debug for BatchReader<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchReader")
            .field("position", &self.position)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}
