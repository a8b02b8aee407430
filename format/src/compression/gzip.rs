//! gzip: the members of RFC 1952 around deflate streams.
//!
//! The framing is that of `java.util.zip.GZIPInputStream`, which decides from the contents of its 8 KiB input buffer
//! whether it looks for another member behind a trailer. So the reader here keeps count of where that buffer would
//! end:
//!
//! | behind a member | |
//! |---|---|
//! | 18 bytes or fewer, all of them in the buffer and the payload at its end | ignored, whatever they are |
//! | no member header, or a cut or damaged one | ignored |
//! | a member header | the member counts: its data follows, and a fault in it is an error |
//!
//! Of a header, the method and, where there is one, the checksum over it count; the reserved flags, the time, the
//! extra flags and the system do not.

use std::borrow::Cow;
use std::cell::Cell;

use crc32fast::Hasher;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{Fault, Output, Sink};

const HEADER_LEN: usize = 10;
const TRAILER_LEN: usize = 8;
const MAGIC: [u8; 2] = [0x1f, 0x8b];
const METHOD_DEFLATE: u8 = 8;

const FLAG_HEADER_CRC: u8 = 1 << 1;
const FLAG_EXTRA: u8 = 1 << 2;
const FLAG_NAME: u8 = 1 << 3;
const FLAG_COMMENT: u8 = 1 << 4;

/// A header as `java.util.zip.GZIPOutputStream` writes it: no flags, no time, "unknown" for the system.
const HEADER: [u8; HEADER_LEN] = [MAGIC[0], MAGIC[1], METHOD_DEFLATE, 0, 0, 0, 0, 0, 0, 0xff];

/// The input buffer of Kafka's gzip reader, and the most that may lie in it unread for the reader not to look for
/// another member: this trailer, a header, that member's trailer.
const READER_BUFFER: usize = 8 * 1024;
const READER_IGNORES: usize = TRAILER_LEN + HEADER_LEN + TRAILER_LEN;

/// The least and the most that is decoded or encoded between two looks at the room.
const STEP_MIN: usize = 4 * 1024;
const STEP_MAX: usize = 1024 * 1024;

thread_local! {
    // Setting up a compressor costs as much as a small batch. With its level.
    static ENCODER: Cell<Option<(u32, Compress)>> = const { Cell::new(None) };
}

/// Decodes all members.
pub(super) struct Decoder<'a> {
    input: &'a [u8],
    inflater: Decompress,
    /// Checksum of what has come out of the member.
    crc: Hasher,
    at: usize,
    /// Where the reader's buffer would end.
    buffered: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn open(input: &'a [u8]) -> Result<Decoder<'a>, Fault> {
        let at = member_header(input, 0)?;
        Ok(Decoder { input, inflater: Decompress::new(false), crc: Hasher::new(), at, buffered: at })
    }

    /// Decodes some more; whether there may be more still.
    pub(super) fn step(&mut self, sink: &mut Sink<'_>) -> Result<bool, Fault> {
        if inflate(&mut self.inflater, self.input, &mut self.at, &mut self.crc, sink)? {
            return Ok(true);
        }
        let (input, end) = (self.input, self.at);
        let crc = std::mem::take(&mut self.crc).finalize();
        let next = trailer(input, end, crc, self.inflater.total_out())?;

        // The buffer is filled again only when all of it has been taken.
        self.buffered += end.saturating_sub(self.buffered).next_multiple_of(READER_BUFFER);
        self.buffered = self.buffered.min(input.len());
        let unread = self.buffered.saturating_sub(end);
        if unread <= READER_IGNORES && input.len() <= self.buffered.max(next) {
            return Ok(false);
        }
        let Ok(next_data) = member_header(input, next) else { return Ok(false) };
        self.inflater.reset(false);
        self.at = next_data;
        self.buffered = self.buffered.max(next_data);
        Ok(true)
    }
}

/// Encodes one member at `level`, -1 and `None` being 6.
pub(super) fn compress(level: Option<i32>, input: &[u8], out: &mut Output) -> Result<(), Cow<'static, str>> {
    let level = level.and_then(|level| u32::try_from(level).ok()).unwrap_or(6);
    let kept = ENCODER.try_with(Cell::take).ok().flatten().filter(|(of, _)| *of == level);
    let mut deflater = match kept {
        Some((_, deflater)) => deflater,
        None => Compress::new(Compression::new(level), false),
    };
    out.put(&HEADER);
    deflate(&mut deflater, input, out)?;
    out.put(&to_le_bytes(crc32fast::hash(input)));
    out.put(&to_le_bytes(input.len() as u32));
    deflater.reset();
    // Where the thread is being torn down there is nothing to keep it for.
    let _ = ENCODER.try_with(|kept| kept.set(Some((level, deflater))));
    Ok(())
}

fn deflate(deflater: &mut Compress, input: &[u8], out: &mut Output) -> Result<(), Cow<'static, str>> {
    let mut taken = 0;
    let mut step = (input.len() / 2).clamp(STEP_MIN, STEP_MAX);
    loop {
        let (in_before, out_before) = (deflater.total_in(), deflater.total_out());
        let status = deflater.compress(&input[taken..], out.room(step), FlushCompress::Finish);
        taken += (deflater.total_in() - in_before) as usize;
        let written = (deflater.total_out() - out_before) as usize;
        out.advance(written);
        match status {
            Ok(Status::StreamEnd) => return Ok(()),
            // Full: more room is all it wants.
            Ok(_) if written == step => step = (step * 2).min(STEP_MAX),
            Ok(_) => return Err("the compressor stopped in the middle".into()),
            Err(error) => return Err(error.to_string().into()),
        }
    }
}

/// Checks the member header at `at` and returns where its data begins.
fn member_header(input: &[u8], at: usize) -> Result<usize, Fault> {
    let header = input.get(at..).unwrap_or_default();
    let cut = |needed: usize| Fault::cut(at, "member header", needed, header.len());
    if header.len() >= MAGIC.len() && header[..MAGIC.len()] != MAGIC {
        return Err(Fault::other_bytes(at, "magic of a member", &MAGIC, header));
    }
    let fixed = header.get(..HEADER_LEN).ok_or_else(|| cut(HEADER_LEN))?;
    if fixed[2] != METHOD_DEFLATE {
        return Err(Fault::unexpected(at + 2, "compression method", METHOD_DEFLATE, fixed[2]));
    }
    let flags = fixed[3];
    let mut len = HEADER_LEN;
    if flags & FLAG_EXTRA != 0 {
        let extra = header[len..].first_chunk().ok_or_else(|| cut(len + 2))?;
        len += 2 + usize::from(le_u16(*extra));
    }
    for flag in [FLAG_NAME, FLAG_COMMENT] {
        if flags & flag != 0 {
            let text = header.get(len..).ok_or_else(|| cut(len))?;
            let end = text.iter().position(|byte| *byte == 0);
            len += 1 + end.ok_or_else(|| cut(header.len() + 1))?;
        }
    }
    let covered = header.get(..len).ok_or_else(|| cut(len))?;
    if flags & FLAG_HEADER_CRC != 0 {
        let stored = le_u16(*header[len..].first_chunk().ok_or_else(|| cut(len + 2))?);
        let computed = crc32fast::hash(covered) as u16;
        if stored != computed {
            return Err(Fault::checksum(at + len, "checksum of the member header", stored, computed));
        }
        len += 2;
    }
    Ok(at + len)
}

/// Decodes a piece of the deflate stream at `at`, which moves; whether there is more of it.
fn inflate(
    inflater: &mut Decompress,
    input: &[u8],
    at: &mut usize,
    crc: &mut Hasher,
    sink: &mut Sink<'_>,
) -> Result<bool, Fault> {
    // One byte beyond the limit tells a payload that fits from one that does not.
    let step = (input.len() * 3).max(sink.produced()).clamp(STEP_MIN, STEP_MAX);
    let step = step.min(sink.step_max).min(sink.room().saturating_add(1));
    let (in_before, before) = (inflater.total_in(), sink.len);
    let (status, full) = sink.append(step, |out| {
        let status = inflater.decompress_vec(&input[*at..], out, FlushDecompress::None);
        (status, out.len() == out.capacity())
    })?;
    crc.update(&sink.out[before..]);
    *at += (inflater.total_in() - in_before) as usize;
    match status {
        Ok(Status::StreamEnd) => Ok(false),
        // The library stops short of the room's end only where it has taken all input.
        Ok(_) if !full => {
            Err(Fault::unexpected(input.len(), "deflate stream", "its end", "that of the payload"))
        }
        Ok(_) => Ok(true),
        Err(error) => Err(Fault::undecodable(*at, "deflate stream", error)),
    }
}

/// Checks the trailer at `at` against what was decoded and returns where it ends.
fn trailer(input: &[u8], at: usize, crc: u32, size: u64) -> Result<usize, Fault> {
    let rest = input.get(at..).unwrap_or_default();
    let Some([crc_0, crc_1, crc_2, crc_3, size_0, size_1, size_2, size_3]) =
        rest.first_chunk::<TRAILER_LEN>()
    else {
        return Err(Fault::cut(at, "member trailer", TRAILER_LEN, rest.len()));
    };
    let stored = le_u32([*crc_0, *crc_1, *crc_2, *crc_3]);
    if stored != crc {
        return Err(Fault::checksum(at, "checksum of the member", stored, crc));
    }
    // The size is kept modulo 2^32.
    let stored = le_u32([*size_0, *size_1, *size_2, *size_3]);
    if stored != size as u32 {
        return Err(Fault::unexpected(at + 4, "size of the member", stored, size as u32));
    }
    Ok(at + TRAILER_LEN)
}

#[expect(clippy::little_endian_bytes, reason = "RFC 1952 has it so")]
fn le_u16(bytes: [u8; 2]) -> u16 {
    u16::from_le_bytes(bytes)
}

#[expect(clippy::little_endian_bytes, reason = "RFC 1952 has it so")]
fn le_u32(bytes: [u8; 4]) -> u32 {
    u32::from_le_bytes(bytes)
}

#[expect(clippy::little_endian_bytes, reason = "RFC 1952 has it so")]
fn to_le_bytes(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}

#[cfg(test)]
mod tests;
