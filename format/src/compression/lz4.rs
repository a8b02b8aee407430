//! lz4: the LZ4 frame, as much of it as Kafka reads.
//!
//! ```text
//! 04 22 4d 18 | FLG | BD | content size u64, if FLG says so | HC
//! block, repeated: size u32, bit 31 set where the bytes are stored as they are | bytes | checksum u32, if FLG says so
//! end mark: size 0 | content checksum u32, if FLG says so
//! ```
//!
//! All integers are little-endian, checksums are xxHash32 with seed 0. Only independent blocks are read. The checksums
//! of the header and of the blocks count; the content's size and checksum do not. Nothing behind the end mark is
//! looked at. Under magic 0 the header checksum (HC) covers the frame's magic too, a fault of the first writers that
//! became the format, and is not checked.
//!
//! Source: Kafka `Lz4BlockOutputStream`, `Lz4BlockInputStream`.

use std::borrow::Cow;
use std::cell::Cell;

use lz4_flex::block::{
    CompressTable, DecompressError, compress_into_with_table, decompress_into, get_maximum_output_size,
};
use twox_hash::XxHash32;

use super::{Fault, Output, Sink};
use crate::codec::Magic;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

const FLG_VERSION: u8 = 1 << 6;
const FLG_VERSION_MASK: u8 = 3 << 6;
const FLG_INDEPENDENT_BLOCKS: u8 = 1 << 5;
const FLG_BLOCK_CHECKSUM: u8 = 1 << 4;
const FLG_CONTENT_SIZE: u8 = 1 << 3;
const FLG_CONTENT_CHECKSUM: u8 = 1 << 2;
const FLG_RESERVED_MASK: u8 = 0b11;

const BD_RESERVED_MASK: u8 = 0b1000_1111;
const BD_CODE_SHIFT: u32 = 4;
const BD_CODE_64_KIB: u8 = 4;
const BD_CODE_4_MIB: u8 = 7;

/// The frame that is written: independent blocks of 64 KiB, nothing optional.
const FLG: u8 = FLG_VERSION | FLG_INDEPENDENT_BLOCKS;
const BD: u8 = BD_CODE_64_KIB << BD_CODE_SHIFT;
const BLOCK_INPUT_LEN: usize = 64 * 1024;

/// Set in a block's size where the block is stored.
const BLOCK_STORED: u32 = 1 << 31;
const BLOCK_SIZE_LEN: usize = 4;
const CHECKSUM_LEN: usize = 4;
const CONTENT_SIZE_LEN: usize = 8;
/// Magic, flags, block descriptor and checksum.
const FRAME_HEADER_LEN_MIN: usize = MAGIC.len() + 3;
/// A block expands less than this: a byte of a match's length stands for 255.
const EXPANSION_MAX: usize = 255;
/// What an ordinary block expands to at most. A first guess at the room that a block needs.
const EXPANSION_GUESS: usize = 4;

thread_local! {
    // 24 KiB.
    static TABLES: Cell<Option<Tables>> = const { Cell::new(None) };
}

/// Decodes the frame at the beginning of its input.
pub(super) struct Decoder<'a> {
    input: &'a [u8],
    frame: Frame,
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn open(magic: Magic, input: &'a [u8]) -> Result<Decoder<'a>, Fault> {
        let (frame, at) = Frame::read(magic, input)?;
        Ok(Decoder { input, frame, at })
    }

    /// Decodes a block; whether there may be another.
    pub(super) fn step(&mut self, sink: &mut Sink<'_>) -> Result<bool, Fault> {
        let Decoder { input, frame, mut at } = *self;
        let cut = |at: usize, field, needed| Fault::cut(at, field, needed, input.len() - at);
        let size = u32_at(input, at).ok_or_else(|| cut(at, "block size or end mark", BLOCK_SIZE_LEN))?;
        let stored = size & BLOCK_STORED != 0;
        let size = (size & !BLOCK_STORED) as usize;
        at += BLOCK_SIZE_LEN;
        if size == 0 {
            if frame.content_checksum && input.len() - at < CHECKSUM_LEN {
                return Err(cut(at, "content checksum", CHECKSUM_LEN));
            }
            return Ok(false);
        }
        if size > frame.block_len_max {
            let at = at - BLOCK_SIZE_LEN;
            let most = frame.block_len_max;
            return Err(Fault::unexpected(at, "block size", format_args!("at most {most}"), size));
        }
        let block = input[at..].get(..size).ok_or_else(|| cut(at, "block", size))?;
        if stored {
            sink.copy(block)?;
        } else {
            decode_block(block, at, frame.block_len_max, sink)?;
        }
        at += size;
        if frame.block_checksums {
            let stored = u32_at(input, at).ok_or_else(|| cut(at, "checksum of a block", CHECKSUM_LEN))?;
            let computed = XxHash32::oneshot(0, block);
            if stored != computed {
                return Err(Fault::checksum(at, "checksum of a block", stored, computed));
            }
            at += CHECKSUM_LEN;
        }
        self.at = at;
        Ok(true)
    }
}

/// Encodes one frame.
pub(super) fn compress(magic: Magic, input: &[u8], out: &mut Output) -> Result<(), Cow<'static, str>> {
    let header = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], FLG, BD];
    let covered = if magic == Magic::V0 { &header[..] } else { &header[MAGIC.len()..] };
    out.put(&header);
    out.put(&[header_checksum(covered)]);

    let mut tables = TABLES.try_with(Cell::take).ok().flatten().unwrap_or_else(Tables::new);
    for block in input.chunks(BLOCK_INPUT_LEN) {
        let room = out.room(BLOCK_SIZE_LEN + get_maximum_output_size(block.len()));
        let (size, data) = room.split_at_mut(BLOCK_SIZE_LEN);
        let written = compress_into_with_table(block, data, tables.of(block.len()))
            .map_err(|error| error.to_string())?;
        let len = written.min(block.len());
        if written < block.len() {
            size.copy_from_slice(&to_le_bytes(len as u32));
        } else {
            data[..len].copy_from_slice(block);
            size.copy_from_slice(&to_le_bytes(len as u32 | BLOCK_STORED));
        }
        out.advance(BLOCK_SIZE_LEN + len);
    }
    // Where the thread is being torn down there is nothing to keep them for.
    let _ = TABLES.try_with(|kept| kept.set(Some(tables)));
    out.put(&to_le_bytes(0));
    Ok(())
}

/// Where the compressor has met what, for blocks of 16-bit places and for larger ones.
struct Tables {
    small: CompressTable,
    large: CompressTable,
}

impl Tables {
    fn new() -> Tables {
        Tables { small: CompressTable::small(), large: CompressTable::large() }
    }

    fn of(&mut self, block_len: usize) -> &mut CompressTable {
        if block_len < usize::from(u16::MAX) { &mut self.small } else { &mut self.large }
    }
}

/// What a frame's header says.
#[derive(Clone, Copy)]
struct Frame {
    block_len_max: usize,
    block_checksums: bool,
    content_checksum: bool,
}

impl Frame {
    /// Reads the header at the beginning of `input`; returns where it ends, too.
    fn read(magic: Magic, input: &[u8]) -> Result<(Frame, usize), Fault> {
        let cut = |needed| Fault::cut(0, "frame header", needed, input.len());
        let flg_at = MAGIC.len();
        let [m0, m1, m2, m3, flg, bd] = *input.first_chunk().ok_or_else(|| cut(FRAME_HEADER_LEN_MIN))?;
        let wrong_flags =
            |expected| Fault::unexpected(flg_at, "flags of the frame", expected, format_args!("{flg:#04x}"));
        if [m0, m1, m2, m3] != MAGIC {
            return Err(Fault::other_bytes(0, "magic of the frame", &MAGIC, input));
        }
        if flg & FLG_RESERVED_MASK != 0 {
            return Err(wrong_flags("no reserved ones and no dictionary"));
        }
        if flg & FLG_INDEPENDENT_BLOCKS == 0 {
            return Err(wrong_flags("independent blocks"));
        }
        if flg & FLG_VERSION_MASK != FLG_VERSION {
            return Err(wrong_flags("version 1"));
        }
        let code = bd >> BD_CODE_SHIFT;
        if bd & BD_RESERVED_MASK != 0 || !(BD_CODE_64_KIB..=BD_CODE_4_MIB).contains(&code) {
            let expected = "0x40, 0x50, 0x60 or 0x70";
            return Err(Fault::unexpected(
                flg_at + 1,
                "block descriptor",
                expected,
                format_args!("{bd:#04x}"),
            ));
        }
        let mut end = flg_at + 2;
        if flg & FLG_CONTENT_SIZE != 0 {
            end += CONTENT_SIZE_LEN;
        }
        let stored = *input.get(end).ok_or_else(|| cut(end + 1))?;
        let computed = header_checksum(&input[flg_at..end]);
        if magic != Magic::V0 && stored != computed {
            return Err(Fault::checksum(end, "checksum of the frame header", stored, computed));
        }
        let frame = Frame {
            // 64 KiB, 256 KiB, 1 MiB, 4 MiB.
            block_len_max: 1 << (8 + 2 * code),
            block_checksums: flg & FLG_BLOCK_CHECKSUM != 0,
            content_checksum: flg & FLG_CONTENT_CHECKSUM != 0,
        };
        Ok((frame, end + 1))
    }
}

/// Decodes one compressed block that stands at `at`.
fn decode_block(block: &[u8], at: usize, len_max: usize, sink: &mut Sink<'_>) -> Result<(), Fault> {
    let bound = block.len().saturating_mul(EXPANSION_MAX).min(len_max);
    let room = sink.room();
    let mut len = block.len().saturating_mul(EXPANSION_GUESS).min(bound).min(room);
    loop {
        match sink.fill(len, |room| decompress_into(block, room)) {
            Ok(0) => return Err(Fault::unexpected(at, "block", "at least 1 byte out of it", "none")),
            Ok(_) => return Ok(()),
            Err(DecompressError::OutputTooSmall { .. }) if len < bound.min(room) => len = bound.min(room),
            Err(DecompressError::OutputTooSmall { .. }) if room < bound => return Err(Fault::TooLarge),
            Err(error) => return Err(Fault::undecodable(at, "block", error)),
        }
    }
}

/// The second byte of the hash.
fn header_checksum(covered: &[u8]) -> u8 {
    (XxHash32::oneshot(0, covered) >> 8) as u8
}

#[expect(clippy::little_endian_bytes, reason = "the LZ4 frame format has it so")]
fn u32_at(input: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*input.get(at..)?.first_chunk()?))
}

#[expect(clippy::little_endian_bytes, reason = "the LZ4 frame format has it so")]
fn to_le_bytes(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}

#[cfg(test)]
mod tests;
