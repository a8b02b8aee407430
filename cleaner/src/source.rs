//! Reading segments in pieces of whole batches: by the caller, or ahead of it by a thread of its own.
//!
//! Reading is copying out of the page cache, which takes about as long as all else that a round does with the bytes. A thread
//! that reads ahead has the next piece ready; while the caller is busy it checks the checksums, too, with the bytes still in
//! its processor's cache. It holds a few buffers and no more, however slow the caller is.

use kseg_format::{
    Batch, BatchChecksum, Batches, DecodeError, Expected, Found, Framed, HEADER_UP_TO_MAGIC, Offset, Place,
    frame,
};
use kseg_log::Sealed;
use kseg_segment::FileRegion;

use crate::error::{Error, Result};
use crate::sync::{Receiver, Scope, Sender, bounded};

/// A larger batch is held only once its checksum is known to be right, for it may be the length that is damaged: Kafka's default
/// of `max.message.bytes`.
const UNCHECKED_MAX: usize = 1_048_588;

/// Buffers of a thread that reads ahead.
const BUFFERS: usize = 4;

/// Whole batches of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'p> {
    /// Position of the first in the file.
    pub(crate) at: u64,
    pub(crate) bytes: &'p [u8],
    /// Whether the checksums have been looked at, and are right.
    pub(crate) verified: bool,
}

/// The pieces of some segments, one after the other.
pub(crate) struct Source<'s> {
    how: How<'s>,
    /// The buffer of the last piece.
    buffer: Vec<u8>,
}

enum How<'s> {
    Here(Reader<'s>),
    Ahead {
        read: Receiver<Message>,
        spare: Sender<Vec<u8>>,
        /// Segments whose end has not come yet.
        left: usize,
    },
}

/// What the reading thread tells.
enum Message {
    Piece { at: u64, len: usize, buffer: Vec<u8>, verified: bool },
    EndOfSegment,
    Failed(Error),
}

impl<'s> Source<'s> {
    /// The pieces of `segments`, of about `size` bytes each; of the first segment from the batch with `from` on. With a scope
    /// they are read ahead by a thread, if there is one to be had.
    pub(crate) fn of<'scope>(
        scope: Option<&'scope Scope<'scope, '_>>,
        segments: &'s [Sealed],
        from: Option<Offset>,
        size: usize,
    ) -> Source<'s>
    where
        's: 'scope,
    {
        let ahead = scope.and_then(|scope| {
            let (send, read) = bounded(BUFFERS);
            let (spare, returned) = bounded(BUFFERS);
            let reader = Reader::new(segments, from, size);
            let thread = move || read_ahead(reader, &send, &returned);
            crate::sync::spawn_scoped(scope, "kseg-cleaner-read", thread).ok()?;
            Some(How::Ahead { read, spare, left: segments.len() })
        });
        let how = ahead.unwrap_or_else(|| How::Here(Reader::new(segments, from, size)));
        Source { how, buffer: Vec::new() }
    }

    /// The next piece of the segment under way; `None` at its end, after which comes the next segment.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where no whole batch follows; [`Error::Io`]; [`Error::Thread`].
    pub(crate) fn next(&mut self) -> Result<Option<Piece<'_>>> {
        let (at, len, verified) = match &mut self.how {
            How::Here(reader) => match reader.step(&mut self.buffer)? {
                Some((at, len)) => (at, len, false),
                None => return Ok(None),
            },
            How::Ahead { read, spare, left } => {
                let used = std::mem::take(&mut self.buffer);
                if used.capacity() > 0 {
                    // A thread that has ended needs it no more.
                    drop(spare.send(used));
                }
                match read.recv() {
                    Ok(Message::Piece { at, len, buffer, verified }) => {
                        self.buffer = buffer;
                        (at, len, verified)
                    }
                    Ok(Message::Failed(error)) => return Err(error),
                    Ok(Message::EndOfSegment) => {
                        *left = left.saturating_sub(1);
                        return Ok(None);
                    }
                    // It has said so behind each segment: only then is there nothing left.
                    Err(_) if *left == 0 => return Ok(None),
                    Err(_) => return Err(Error::Thread { work: "reading ahead" }),
                }
            }
        };
        Ok(Some(Piece { at, bytes: &self.buffer[..len], verified }))
    }
}

/// Reads until nobody listens or nothing is left.
fn read_ahead(mut reader: Reader<'_>, send: &Sender<Message>, returned: &Receiver<Vec<u8>>) {
    let mut free = vec![Vec::new(); BUFFERS];
    loop {
        let Some(mut buffer) = free.pop().or_else(|| returned.recv().ok()) else { return };
        let (message, large) = match reader.step(&mut buffer) {
            Ok(Some((at, len))) => {
                // One piece at least waits to be looked at: there is time for this. A wrong one is for the caller to find, who
                // may never come to it.
                let verified = !send.is_empty() && all_right(&buffer[..len]);
                (Message::Piece { at, len, buffer, verified }, len > reader.size)
            }
            Ok(None) => {
                free.push(buffer);
                (Message::EndOfSegment, false)
            }
            Err(error) => {
                drop(send.send(Message::Failed(error)));
                return;
            }
        };
        if send.send(message).is_err() || reader.is_done() {
            return;
        }
        // One large batch at a time.
        while large && free.len() < BUFFERS {
            let Ok(mut buffer) = returned.recv() else { return };
            reader.shrink(&mut buffer);
            free.push(buffer);
        }
    }
}

/// Whether a batch's offsets can be where it is: in order, not below its segment and not in the next one. No checksum covers the base
/// offset, and what is copied to where another place would be its own would be lost or in the way there.
///
/// # Errors
/// [`DecodeError::Corrupt`].
pub(crate) fn check_offsets(sealed: &Sealed, batch: &Batch<'_>) -> Result<(), DecodeError> {
    let last = batch.last_offset();
    let base = batch.base_offset().unwrap_or(last);
    let (least, most) = (sealed.base_offset().get(), sealed.end_offset().get().saturating_sub(1));
    let wrong = |field, at, expected, found: Offset| DecodeError::Corrupt {
        field,
        place: Place::Batch(at),
        expected,
        found: Found::Value(found.get()),
    };
    if base.get() < least || base.get() > most {
        return Err(wrong("base offset", 0, Expected::Between(least, most), base));
    }
    if last < base || last.get() > most {
        return Err(wrong("last offset", LAST_OFFSET_DELTA, Expected::Between(base.get(), most), last));
    }
    Ok(())
}

/// Where the header of a batch of magic 2 has the distance to its last offset.
const LAST_OFFSET_DELTA: usize = 23;

fn all_right(bytes: &[u8]) -> bool {
    Batches::new(bytes).all(|batch| batch.is_ok_and(|batch| batch.verify().is_ok()))
}

/// Reads piece by piece into buffers that grow to a batch that is larger.
struct Reader<'s> {
    segments: &'s [Sealed],
    from: Option<Offset>,
    size: usize,
    /// The segment under way, and how far it has been read.
    open: Option<(FileRegion, usize)>,
}

impl<'s> Reader<'s> {
    fn new(segments: &'s [Sealed], from: Option<Offset>, size: usize) -> Self {
        Reader { segments, from, size, open: None }
    }

    /// Whether all segments have been read to their end, and that has been said.
    fn is_done(&self) -> bool {
        self.open.is_none() && self.segments.is_empty()
    }

    /// Where the next piece is that stands in `buffer` now, and its length; `None` at the end of a segment, once.
    fn step(&mut self, buffer: &mut Vec<u8>) -> Result<Option<(u64, usize)>> {
        let Some(sealed) = self.segments.first() else { return Ok(None) };
        let (region, position) = match self.open.take() {
            Some(open) => open,
            None => {
                let from = self.from.take().filter(|from| *from > sealed.base_offset());
                (sealed.segment().region_from(from)?, 0)
            }
        };
        let left = region.len() - position;
        if left == 0 {
            self.segments = &self.segments[1..];
            return Ok(None);
        }
        let piece = At { sealed, region: &region, position, left };
        let len = piece.read(buffer, self.size)?;
        let at = piece.position();
        self.open = Some((region, position + len));
        Ok(Some((at, len)))
    }

    /// Gives back what a large batch made a buffer grow to.
    fn shrink(&self, buffer: &mut Vec<u8>) {
        if buffer.len() > self.size {
            buffer.truncate(self.size);
            buffer.shrink_to(self.size);
        }
    }
}

/// A place in a segment with something behind it.
struct At<'a> {
    sealed: &'a Sealed,
    region: &'a FileRegion,
    position: usize,
    left: usize,
}

impl At<'_> {
    /// Its position in the file.
    fn position(&self) -> u64 {
        self.region.position() + self.position as u64
    }

    /// Reads about `size` bytes, one whole batch at least; returns how many bytes of whole batches they are.
    fn read(&self, buffer: &mut Vec<u8>, size: usize) -> Result<usize> {
        if self.left <= HEADER_UP_TO_MAGIC {
            return Err(self.cut_off(self.left as u64));
        }
        let mut want = self.left.min(size);
        self.fill(buffer, 0, want)?;
        let first = match frame(&buffer[..want], self.left as u64) {
            Ok(Framed::Whole { size, .. }) => size,
            Ok(Framed::Torn { .. } | Framed::End) => return Err(self.cut_off(want as u64)),
            Err(source) => {
                return Err(Error::corrupt(&self.sealed.segment().path(), self.position(), source));
            }
        };
        if first > want {
            if first > UNCHECKED_MAX.max(want) {
                self.check(&buffer[..want], first)?;
            }
            self.fill(buffer, want, first)?;
            want = first;
        }
        // What is no batch is told of where it is the first.
        let mut whole = first;
        while want - whole > HEADER_UP_TO_MAGIC
            && let Ok(Framed::Whole { size, .. }) = frame(&buffer[whole..want], (self.left - whole) as u64)
            && size <= want - whole
        {
            whole += size;
        }
        Ok(whole)
    }

    /// Compares the checksum of a batch of `size` bytes, of which these are the first, with no more memory than for as many.
    fn check(&self, first: &[u8], size: usize) -> Result<()> {
        let corrupt = |source| Error::corrupt(&self.sealed.segment().path(), self.position(), source);
        let mut checksum = BatchChecksum::begin(first).map_err(corrupt)?;
        let mut part = Vec::new();
        let mut at = first.len();
        while at < size {
            let want = (size - at).min(first.len());
            part.resize(want, 0);
            let got = self.region.read_at(&mut part, self.position + at)?;
            if got < want {
                return Err(self.cut_off((at + got) as u64));
            }
            checksum.add(&part);
            at += want;
        }
        checksum.verify().map_err(corrupt)
    }

    /// Reads the bytes from `from` to `to`, counted from here.
    fn fill(&self, buffer: &mut Vec<u8>, from: usize, to: usize) -> Result<()> {
        if buffer.len() < to {
            buffer.resize(to, 0);
        }
        let got = self.region.read_at(&mut buffer[from..to], self.position + from)?;
        if got < to - from { Err(self.cut_off((from + got) as u64)) } else { Ok(()) }
    }

    fn cut_off(&self, left: u64) -> Error {
        let source = DecodeError::Corrupt {
            field: "batch length",
            place: Place::Batch(8),
            expected: Expected::Words("a batch that ends within the segment"),
            found: Found::Bytes(left),
        };
        Error::corrupt(&self.sealed.segment().path(), self.position(), source)
    }
}
