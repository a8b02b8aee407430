//! Reading a segment chunk by chunk, each beginning with a batch.

use std::path::{Path, PathBuf};

use kseg_format::{DecodeError, Expected, Found, Framed, HEADER_UP_TO_MAGIC, Place, frame};
use kseg_segment::{FileRegion, Segment};

use crate::error::{Error, Result};

/// A walk over a region in chunks of about the same size, in one buffer that grows to a batch that is larger.
pub(crate) struct Chunks<'b> {
    path: PathBuf,
    region: FileRegion,
    /// From the beginning of the region.
    position: usize,
    buffer: &'b mut Vec<u8>,
    size: usize,
}

impl<'b> Chunks<'b> {
    pub(crate) fn new(segment: &Segment, region: FileRegion, buffer: &'b mut Vec<u8>, size: usize) -> Self {
        Chunks { path: segment.path(), region, position: 0, buffer, size }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Position of the next chunk in the file.
    pub(crate) fn position(&self) -> u64 {
        self.region.position() + self.position as u64
    }

    /// The next chunk, which holds one whole batch at least; empty at the end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where no whole batch follows; [`Error::Io`].
    pub(crate) fn next(&mut self) -> Result<&[u8]> {
        let left = self.region.len() - self.position;
        let mut want = left.min(self.size);
        if want == 0 {
            return Ok(&[]);
        }
        let mut got = self.read(want)?;
        let size = self.first_size(got, left)?;
        if size > want {
            want = size;
            got = self.read(want)?;
        }
        if got < want {
            return Err(self.cut_off(got as u64));
        }
        Ok(&self.buffer[..got])
    }

    /// The next chunk begins so many bytes behind this one's beginning.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.position += bytes;
    }

    /// Gives back what a large batch made the buffer grow to.
    pub(crate) fn shrink(self) {
        let size = self.size;
        if self.buffer.len() > size {
            self.buffer.truncate(size);
            self.buffer.shrink_to(size);
        }
    }

    fn read(&mut self, want: usize) -> Result<usize> {
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        Ok(self.region.read_at(&mut self.buffer[..want], self.position)?)
    }

    /// The size of the first batch, which lies within what is left of the region.
    fn first_size(&self, got: usize, left: usize) -> Result<usize> {
        if left <= HEADER_UP_TO_MAGIC {
            return Err(self.cut_off(left as u64));
        }
        match frame(&self.buffer[..got], left as u64) {
            Ok(Framed::Whole { size, .. }) => Ok(size),
            Ok(Framed::Torn { .. } | Framed::End) => Err(self.cut_off(left as u64)),
            Err(source) => Err(Error::corrupt(&self.path, self.position(), source)),
        }
    }

    fn cut_off(&self, left: u64) -> Error {
        let source = DecodeError::Corrupt {
            field: "batch length",
            place: Place::Batch(8),
            expected: Expected::Words("a batch that ends within the segment"),
            found: Found::Bytes(left),
        };
        Error::corrupt(&self.path, self.position(), source)
    }
}
