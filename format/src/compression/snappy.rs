//! snappy: the stream of snappy-java ("xerial") around raw snappy blocks, not snappy's own frame format.
//!
//! ```text
//! header, 16 bytes: 82 53 4e 41 50 50 59 00 | version i32 = 1 | least compatible version i32 = 1
//! chunk, repeated:  length i32 | raw snappy block of that length
//! ```
//!
//! All integers are big-endian; there is no checksum and no end mark. A payload without the header is one raw block,
//! which some clients send. The four bytes that begin a header, where a chunk's length should stand, begin another
//! stream; fewer than four bytes behind the last chunk are ignored.

use std::borrow::Cow;
use std::cell::Cell;

use snap::raw::{Encoder, decompress_len, max_compress_len};

use super::{Fault, Output, Sink};

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const VERSION: i32 = 1;
const HEADER_LEN: usize = MAGIC.len() + 4 + 4;
const LENGTH_LEN: usize = 4;

/// The first half of the magic read as a chunk's length.
const MAGIC_AS_LENGTH: i32 = i32::from_be_bytes([MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3]]);

/// The input bytes of a chunk that is written; chunks that are read may have more.
const CHUNK_INPUT_LEN: usize = 32 * 1024;
/// The most compressed bytes of a chunk that snappy-java reads.
const CHUNK_LEN_MAX: usize = 512 * 1024 * 1024;
/// A block expands less than this: the best copy makes 64 bytes of 3.
const EXPANSION_MAX: usize = 22;
/// A block begins with its decoded length, a varint of at most this many bytes.
const BLOCK_LENGTH_LEN_MAX: usize = 5;

thread_local! {
    // Its tables take 34 KiB.
    static ENCODER: Cell<Option<Box<Encoder>>> = const { Cell::new(None) };
}

/// Decodes all chunks, or the one raw block.
pub(super) struct Decoder<'a> {
    input: &'a [u8],
    /// Where the next chunk begins; 0 in front of a raw block.
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn open(input: &'a [u8]) -> Result<Decoder<'a>, Fault> {
        if input.is_empty() {
            return Err(Fault::unexpected(0, "payload", "at least 1 byte", "none"));
        }
        let raw = input.len() < HEADER_LEN || !input.starts_with(&MAGIC);
        // The versions of the first header are not looked at.
        Ok(Decoder { input, at: if raw { 0 } else { HEADER_LEN } })
    }

    /// Decodes a chunk; whether there may be another.
    pub(super) fn step(&mut self, sink: &mut Sink<'_>) -> Result<bool, Fault> {
        let Decoder { input, mut at } = *self;
        if at == 0 {
            return block(input, 0, sink).map(|()| false);
        }
        let Some(length) = i32_at(input, at) else { return Ok(false) };
        if length == MAGIC_AS_LENGTH {
            self.at = further_header(input, at)?;
            return Ok(true);
        }
        let length =
            usize::try_from(length).ok().filter(|length| *length <= CHUNK_LEN_MAX).ok_or_else(|| {
                Fault::unexpected(at, "chunk length", format_args!("0 to {CHUNK_LEN_MAX}"), length)
            })?;
        at += LENGTH_LEN;
        let rest = &input[at..];
        let chunk = rest.get(..length).ok_or_else(|| Fault::cut(at, "chunk", length, rest.len()))?;
        block(chunk, at, sink)?;
        self.at = at + length;
        Ok(true)
    }
}

/// Encodes one stream.
pub(super) fn compress(input: &[u8], out: &mut Output) -> Result<(), Cow<'static, str>> {
    out.put(&MAGIC);
    out.put(&VERSION.to_be_bytes());
    out.put(&VERSION.to_be_bytes());
    let kept = ENCODER.try_with(Cell::take).ok().flatten();
    let mut encoder = kept.unwrap_or_else(|| Box::new(Encoder::new()));
    for chunk in input.chunks(CHUNK_INPUT_LEN) {
        let room = out.room(LENGTH_LEN + max_compress_len(chunk.len()));
        let (length, block) = room.split_at_mut(LENGTH_LEN);
        let written = encoder.compress(chunk, block).map_err(|error| error.to_string())?;
        // At most 38 KiB.
        length.copy_from_slice(&(written as i32).to_be_bytes());
        out.advance(LENGTH_LEN + written);
    }
    // Where the thread is being torn down there is nothing to keep it for.
    let _ = ENCODER.try_with(|kept| kept.set(Some(encoder)));
    Ok(())
}

/// Checks the header of a further stream at `at` and returns where it ends.
fn further_header(input: &[u8], at: usize) -> Result<usize, Fault> {
    let rest = &input[at..];
    let header = rest
        .get(..HEADER_LEN)
        .ok_or_else(|| Fault::cut(at, "header of a further stream", HEADER_LEN, rest.len()))?;
    if !header.starts_with(&MAGIC) {
        return Err(Fault::other_bytes(at, "magic of a further stream", &MAGIC, header));
    }
    match i32_at(header, MAGIC.len()) {
        Some(version) if version < VERSION => {
            let at = at + MAGIC.len();
            Err(Fault::unexpected(
                at,
                "version of a further stream",
                format_args!("at least {VERSION}"),
                version,
            ))
        }
        _ => Ok(at + HEADER_LEN),
    }
}

/// Decodes one raw block that stands at `at`.
fn block(block: &[u8], at: usize, sink: &mut Sink<'_>) -> Result<(), Fault> {
    let undecodable = |error: snap::Error| Fault::undecodable(at, "block", error);
    if block.is_empty() {
        return Err(Fault::unexpected(at, "block", "at least 1 byte", "none"));
    }
    if block.iter().take(BLOCK_LENGTH_LEN_MAX).all(|byte| byte & 0x80 != 0) {
        return Err(Fault::unexpected(at, "length of a block", "at most 5 bytes", "more"));
    }
    let length = decompress_len(block).map_err(undecodable)?;
    if length / EXPANSION_MAX > block.len() {
        let most = block.len() * EXPANSION_MAX + EXPANSION_MAX - 1;
        return Err(Fault::unexpected(at, "length of a block", format_args!("at most {most}"), length));
    }
    if length > sink.room() {
        return Err(Fault::TooLarge);
    }
    sink.fill(length, |room| snap::raw::Decoder::new().decompress(block, room)).map_err(undecodable)?;
    Ok(())
}

fn i32_at(input: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(*input.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
