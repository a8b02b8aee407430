//! zstd: plain zstd frames, one behind the other.
//!
//! | payload | |
//! |---|---|
//! | nothing at all | decodes to nothing |
//! | frames, skippable ones among them, one behind the other | their contents |
//! | the first frame cut | error |
//! | behind a whole frame: bytes that begin no frame | error |
//! | behind a whole frame: a frame that is cut | quiet end: its complete blocks count |
//!
//! The last row is how zstd-jni keeps its books: it forgets that a frame was whole when it takes the next piece of
//! input, and pieces are [`PIECE_LEN`] bytes. So a cut frame that reaches over the end of a piece is an error again.
//!
//! Written is one frame in streaming mode, as zstd-jni does it: without content size and checksum, flushed before it
//! is ended, so that an empty last block stands at its end. A frame of one call would take some percent less time and
//! a third of the context, but would not be Kafka's, byte for byte.

use std::borrow::Cow;
use std::cell::Cell;

use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, ErrorCode, InBuffer, OutBuffer, ResetDirective, SafeResult, get_error_name,
};

use super::{Fault, Output, Sink};

/// What zstd-jni reads at a time.
const PIECE_LEN: usize = 131_075;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The largest window that is read.
const WINDOW_LEN_MAX: u64 = 128 * 1024 * 1024;
/// The level of a writer that names none.
const LEVEL_DEFAULT: i32 = 3;
/// The tables at that level for inputs up to a size, as the library chooses them where it knows the size: the logarithms of
/// the entries of the hash table and of the chains. A stream gets those of the largest inputs, for which a small batch pays.
const SMALL_TABLES: [(usize, u32, u32); 2] = [(16 * 1024, 15, 14), (128 * 1024, 16, 15)];
/// The kinds of blocks that hold other than their contents.
const BLOCK_REPEATED: u8 = 1;
const BLOCK_COMPRESSED: u8 = 2;
/// The most that a block holds.
const BLOCK_LEN_MAX: usize = 128 * 1024;
const BLOCK_HEADER_LEN: usize = 3;
const CHECKSUM_LEN: usize = 4;
/// What an ordinary payload expands to at most: the room that is made for all of it at once.
const EXPANSION_GUESS: usize = 64;

/// The least and the most room that is made at a time otherwise.
const STEP_MIN: usize = 16 * 1024;
const STEP_MAX: usize = 4 * 1024 * 1024;

/// The largest context that a thread keeps for its next batch. The default level needs about 4 MiB.
const KEPT_LEN_MAX: usize = 16 * 1024 * 1024;

thread_local! {
    // Setting up a context costs as much as a small batch.
    static DECODER: Cell<Option<DCtx<'static>>> = const { Cell::new(None) };
    static ENCODER: Cell<Option<CCtx<'static>>> = const { Cell::new(None) };
}

/// Decodes all frames.
pub(super) struct Decoder<'a> {
    input: &'a [u8],
    at: usize,
    /// Lent by the thread until the decoder goes; none where there is nothing to decode.
    context: Option<DCtx<'static>>,
    /// Whether a frame has been begun and not ended.
    inside: bool,
    /// The end of the last whole frame.
    whole_until: Option<usize>,
}

impl<'a> Decoder<'a> {
    pub(super) fn open(input: &'a [u8]) -> Result<Decoder<'a>, Fault> {
        let mut decoder = Decoder { input, at: 0, context: None, inside: false, whole_until: None };
        if !input.is_empty() {
            let kept = DECODER.try_with(Cell::take).ok().flatten();
            decoder.context = kept.or_else(DCtx::try_create);
            if decoder.context.is_none() {
                return Err(Fault::Broken { at: 0, what: "no memory for a decompressor".into() });
            }
        }
        Ok(decoder)
    }

    /// Decodes some more; whether there may be more still.
    pub(super) fn step(&mut self, sink: &mut Sink<'_>) -> Result<bool, Fault> {
        let (input, begin) = (self.input, self.at);
        let Some(context) = &mut self.context else { return Ok(false) };
        if !self.inside {
            if begin == input.len() {
                return Ok(false);
            }
            if let Some(len) = window_len(&input[begin..]).filter(|len| *len > WINDOW_LEN_MAX) {
                return Err(Fault::unexpected(
                    begin,
                    "bytes of the window",
                    format_args!("at most {WINDOW_LEN_MAX}"),
                    len,
                ));
            }
            if begin == 0 && at_once(context, input, sink) {
                self.at = input.len();
                return Ok(false);
            }
            reset(context.reset(ResetDirective::SessionOnly))?;
            self.inside = true;
        }
        match piece(context, input, &mut self.at, sink)? {
            Piece::Inside => {}
            Piece::End => {
                self.whole_until = Some(self.at);
                self.inside = false;
            }
            Piece::Cut => {
                let last_piece = (input.len() - 1) / PIECE_LEN * PIECE_LEN;
                if self.whole_until.is_none_or(|end| end <= last_piece) {
                    return Err(Fault::unexpected(input.len(), "frame", "its end", "that of the payload"));
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Drop for Decoder<'_> {
    fn drop(&mut self) {
        if let Some(context) = self.context.take().filter(|context| context.sizeof() <= KEPT_LEN_MAX) {
            // Where the thread is being torn down there is nothing to keep it for.
            let _ = DECODER.try_with(|kept| kept.set(Some(context)));
        }
    }
}

/// Encodes one frame at `level`, `None` being 3.
pub(super) fn compress(level: Option<i32>, input: &[u8], out: &mut Output) -> Result<(), Cow<'static, str>> {
    let kept = ENCODER.try_with(Cell::take).ok().flatten();
    let Some(mut context) = kept.or_else(CCtx::try_create) else {
        return Err("no memory for a compressor".into());
    };
    let compressed = frame(&mut context, level.unwrap_or(LEVEL_DEFAULT), input, out);
    if context.sizeof() <= KEPT_LEN_MAX {
        let _ = ENCODER.try_with(|kept| kept.set(Some(context)));
    }
    compressed.map_err(|code| get_error_name(code).into())
}

/// Where in a frame a piece of it ended.
enum Piece {
    Inside,
    End,
    /// All input has been taken, and more was wanted.
    Cut,
}

/// Decodes a payload that is one whole frame straight to where it is wanted, without the library's own window, which saves a
/// copy of all that comes out. `false`, and nothing done, where it cannot: then the pieces tell what is wrong, and where.
fn at_once(context: &mut DCtx<'_>, input: &[u8], sink: &mut Sink<'_>) -> bool {
    if sink.step_max < usize::MAX {
        return false;
    }
    let Some(most) = contents_len_max(input) else { return false };
    let room = most.min(input.len().saturating_mul(EXPANSION_GUESS)).min(sink.limit);
    let decoded = sink.append(room, |out| context.decompress(out, input).is_ok() && out.len() <= most);
    let decoded = matches!(decoded, Ok(true));
    if !decoded {
        sink.len = 0;
    }
    decoded
}

/// Decodes a piece of the frame at `at`, which moves.
fn piece(context: &mut DCtx<'_>, input: &[u8], at: &mut usize, sink: &mut Sink<'_>) -> Result<Piece, Fault> {
    // One byte beyond the limit tells a payload that fits from one that does not.
    let step = (input.len() * 3).max(sink.produced()).clamp(STEP_MIN, STEP_MAX);
    let step = step.min(sink.step_max).min(sink.room().saturating_add(1));
    let mut source = InBuffer { src: input, pos: *at };
    let (hint, full) = sink.append(step, |out| {
        let before = out.len();
        let mut destination = OutBuffer::around_pos(out, before);
        let hint = context.decompress_stream(&mut destination, &mut source);
        (hint, destination.pos() == destination.capacity())
    })?;
    *at = source.pos();
    match hint {
        Ok(0) => Ok(Piece::End),
        // The library stops short of the room's end only where it has taken all input.
        Ok(_) if !full => Ok(Piece::Cut),
        Ok(_) => Ok(Piece::Inside),
        Err(code) => Err(Fault::undecodable(*at, "frame", get_error_name(code))),
    }
}

/// The window that the frame at the beginning of `bytes` asks for, `None` where its header is not all there or it is
/// no data frame.
fn window_len(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (descriptor, rest) = rest.split_first()?;
    if descriptor & 0x20 == 0 {
        let window = rest.first()?;
        let base = 1 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // A single segment: the window is the content, whose size stands behind the dictionary id.
    let rest = rest.get([0, 1, 2, 4][usize::from(descriptor & 3)]..)?;
    let mut len = 0;
    for byte in rest.get(..1 << (descriptor >> 6))?.iter().rev() {
        len = len << 8 | u64::from(*byte);
    }
    Some(if descriptor >> 6 == 1 { len + 256 } else { len })
}

/// The most that comes out of a payload that is one whole data frame, by its headers. `None` for any other, and for one whose
/// contents may exceed its window or whose blocks are too large: the library refuses some of those, but only piece by piece.
fn contents_len_max(bytes: &[u8]) -> Option<usize> {
    let window = usize::try_from(window_len(bytes)?).ok()?;
    let descriptor = *bytes.get(MAGIC.len())?;
    let single = descriptor & 0x20 != 0;
    if !single && window < BLOCK_LEN_MAX {
        return None;
    }
    let content_len = match descriptor >> 6 {
        0 => usize::from(single),
        code => 1 << code,
    };
    // A window byte unless it is a single segment, and the dictionary's id.
    let dictionary_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let mut at = MAGIC.len() + 1 + usize::from(!single) + dictionary_len + content_len;
    let block_len_max = window.min(BLOCK_LEN_MAX);
    let (mut most, mut last) = (0, false);
    while !last {
        let [low, middle, high] = *bytes.get(at..)?.first_chunk()?;
        let size = usize::from(low >> 3) | usize::from(middle) << 5 | usize::from(high) << 13;
        if size > block_len_max {
            return None;
        }
        last = low & 1 != 0;
        let (len, contents) = match low >> 1 & 3 {
            BLOCK_REPEATED => (1, size),
            BLOCK_COMPRESSED => (size, block_len_max),
            _ => (size, size),
        };
        at += BLOCK_HEADER_LEN + len;
        most += contents;
    }
    if descriptor & 0x04 != 0 {
        at += CHECKSUM_LEN;
    }
    // A single segment's window is its contents.
    let most = if single { window } else { most };
    (at == bytes.len() && most <= window).then_some(most)
}

fn frame(context: &mut CCtx<'_>, level: i32, input: &[u8], out: &mut Output) -> Result<(), ErrorCode> {
    context.reset(ResetDirective::SessionAndParameters)?;
    context.set_parameter(CParameter::CompressionLevel(level))?;
    let small = SMALL_TABLES.iter().find(|(len, ..)| level == LEVEL_DEFAULT && input.len() <= *len);
    if let Some((_, hash, chain)) = small {
        context.set_parameter(CParameter::HashLog(*hash))?;
        context.set_parameter(CParameter::ChainLog(*chain))?;
    }
    let mut source = InBuffer::around(input);
    let step = (input.len() / 2).clamp(STEP_MIN, STEP_MAX);
    // All three steps are repeated until they have nothing left to do: take the input, flush, end.
    while source.pos() < input.len() {
        write(out, step, |room| context.compress_stream(room, &mut source))?;
    }
    while write(out, step, |room| context.flush_stream(room))? != 0 {}
    while write(out, step, |room| context.end_stream(room))? != 0 {}
    Ok(())
}

/// Lets `encode` write into `step` new bytes of `out`.
fn write(
    out: &mut Output,
    step: usize,
    encode: impl FnOnce(&mut OutBuffer<'_, [u8]>) -> SafeResult,
) -> SafeResult {
    let mut destination = OutBuffer::around(out.room(step));
    let left = encode(&mut destination);
    let written = destination.pos();
    out.advance(written);
    left
}

fn reset(result: SafeResult) -> Result<(), Fault> {
    match result {
        Ok(_) => Ok(()),
        Err(code) => Err(Fault::Broken { at: 0, what: get_error_name(code).into() }),
    }
}

#[cfg(test)]
mod tests;
