//! What has come out of a payload and is wanted still.

use super::Stream;
use crate::error::DecodeError;

/// A payload that is decompressed piece by piece, and what is held of the bytes that came out.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    /// The codec, until it has given all.
    stream: Option<Stream<'a>>,
    bytes: Vec<u8>,
    /// How many of the bytes have been taken.
    taken: usize,
    /// How many came out in front of them, and are held no more.
    dropped: usize,
    /// How many bytes are held at least before any that was taken is dropped.
    kept: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(stream: Stream<'a>, kept: usize) -> Pieces<'a> {
        Pieces { stream: Some(stream), bytes: Vec::new(), taken: 0, dropped: 0, kept }
    }

    /// What came out and has not been taken.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// The same, and a number to which is to be added how much of it is taken.
    pub(crate) fn rest_and_taken(&mut self) -> (&[u8], &mut usize) {
        (&self.bytes[self.taken..], &mut self.taken)
    }

    /// Where the rest begins in all that comes out.
    pub(crate) fn position(&self) -> usize {
        self.dropped + self.taken
    }

    /// How many bytes came out.
    pub(crate) fn produced(&self) -> usize {
        self.dropped + self.bytes.len()
    }

    /// Whether nothing more will come out.
    pub(crate) fn is_over(&self) -> bool {
        self.stream.is_none()
    }

    /// Decompresses until there is enough in the rest, or no more comes out.
    pub(crate) fn until(&mut self, enough: impl Fn(&[u8]) -> bool) -> Result<(), DecodeError> {
        while !self.is_over() && !enough(self.rest()) {
            self.more()?;
        }
        Ok(())
    }

    /// Takes `len` bytes without a look at them; whether there were so many.
    pub(crate) fn skip(&mut self, mut len: usize) -> Result<bool, DecodeError> {
        loop {
            let here = len.min(self.rest().len());
            self.taken += here;
            len -= here;
            if len == 0 || self.is_over() {
                return Ok(len == 0);
            }
            self.more()?;
        }
    }

    /// Goes back to the first byte; `false` where it is held no more.
    pub(crate) fn rewind(&mut self) -> bool {
        if self.dropped == 0 {
            self.taken = 0;
        }
        self.dropped == 0
    }

    /// Decompresses some more, if there is any.
    fn more(&mut self) -> Result<(), DecodeError> {
        if self.bytes.len() >= self.kept {
            self.bytes.drain(..self.taken);
            self.dropped += std::mem::take(&mut self.taken);
        }
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let more = stream.more(&mut self.bytes, self.dropped);
        if !matches!(more, Ok(true)) {
            self.stream = None;
        }
        more.map(drop)
    }
}
