use super::super::tests::{TEXT, assert_bounded, assert_refused, hex, noise, read, write, write_with};
use super::super::{DecodeError, decompress};
use super::PIECE_LEN;
use crate::codec::Codec::Zstd;
use crate::codec::Magic;

const EXAMPLE: &str = "28 b5 2f fd 00 58 64 00 00 30 68 65 6c 6c 6f 20 01 00 99 4b 11 01 00 00";

/// A skippable frame of 12 bytes.
const SKIPPABLE: &str = "50 2a 4d 18 04 00 00 00 de ad be ef";

/// A block header and its bytes; kind 0 is raw, 1 one byte repeated.
fn block(last: bool, kind: u32, len: usize, bytes: &[u8]) -> Vec<u8> {
    let header = (len as u32) << 3 | kind << 1 | u32::from(last);
    [&[header as u8, (header >> 8) as u8, (header >> 16) as u8][..], bytes].concat()
}

/// A frame of one raw block: magic, `descriptor` with what belongs to it, block, what follows.
fn frame(descriptor: &[u8], contents: &[u8], behind: &[u8]) -> Vec<u8> {
    let block = block(true, 0, contents.len(), contents);
    [&hex("28 b5 2f fd")[..], descriptor, &block, behind].concat()
}

/// A frame with a window byte, no content size, no checksum.
fn plain(contents: &[u8]) -> Vec<u8> {
    frame(&[0x00, 0x58], contents, b"")
}

/// The frame of the text with a checksum (the low half of its XXH64).
fn checked() -> Vec<u8> {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut encoder, TEXT).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn the_worked_example_goes_both_ways() {
    assert_eq!(read(Zstd, &hex(EXAMPLE)).unwrap(), TEXT);
    assert_eq!(write(Zstd, TEXT), hex(EXAMPLE));
}

#[test]
fn format_edge_145_and_185_the_window_written_follows_the_level_up_to_22() {
    let input = b"data".repeat(256);
    for (level, window) in [(-5, 0x48), (1, 0x48), (3, 0x58), (0, 0x58), (10, 0x60), (19, 0x68), (22, 0x88)] {
        let written = write_with(Zstd, Some(level), Magic::V2, &input);
        assert_eq!(written[..6], [&hex("28 b5 2f fd 00")[..], &[window]].concat(), "{level}");
        assert_eq!(written[written.len() - 3..], [1, 0, 0]);
        assert_eq!(read(Zstd, &written).unwrap(), input);
    }
}

#[test]
fn a_context_is_as_new_after_every_payload() {
    let input = noise(300_000);
    let alone = write(Zstd, &input);
    write_with(Zstd, Some(9), Magic::V2, TEXT);
    assert_eq!(write(Zstd, &input), alone);
    for broken in [&alone[..alone.len() / 2], b"no frame"] {
        assert_refused(Zstd, broken);
        assert_eq!(read(Zstd, &alone).unwrap(), input);
    }
    // Nor do the tables of small inputs stay.
    let numbers = (0..60_000u32).map(|n| format!("{} ", n.wrapping_mul(2_654_435_761) >> 14));
    let large: Vec<u8> = numbers.collect::<String>().into_bytes();
    let alone_large = write(Zstd, &large);
    write(Zstd, TEXT);
    assert_eq!(write(Zstd, &large), alone_large);
    let mut out = Vec::new();
    let error = decompress(Zstd, Magic::V2, &alone, &mut out, 1_000).unwrap_err();
    assert_eq!(error, DecodeError::TooLarge { codec: Zstd, limit: 1_000 });
    assert_eq!(read(Zstd, &alone).unwrap(), input);
}

#[test]
fn format_edge_60_garbage_frames_and_skippable_frames() {
    let (one, skippable, empty) = (hex(EXAMPLE), hex(SKIPPABLE), write(Zstd, b""));
    for garbage in [&b"x"[..], b"\0", b"garbage", &[0x28, 0xb5, 0x2f, 0xfe], &[0x60, 0x2a, 0x4d, 0x18]] {
        assert_refused(Zstd, &[&one[..], garbage].concat());
    }
    assert_eq!(read(Zstd, &[&one[..], &one].concat()).unwrap(), TEXT.repeat(2));
    assert_eq!(read(Zstd, &[&skippable[..], &one].concat()).unwrap(), TEXT);
    let many = [&skippable[..], &empty, &one, &skippable, &empty, &checked(), &skippable].concat();
    assert_eq!(read(Zstd, &many).unwrap(), TEXT.repeat(2));
    assert_eq!(read(Zstd, &skippable).unwrap(), b"");
    assert_eq!(read(Zstd, &empty).unwrap(), b"");
}

#[test]
fn format_edge_160_the_first_frame_must_be_whole() {
    for whole in [hex(EXAMPLE), checked(), hex(SKIPPABLE)] {
        for len in 1..whole.len() {
            assert_refused(Zstd, &whole[..len]);
        }
    }
    // Flushed but not ended; behind an empty frame that is a cut one like any other.
    let flushed = &hex(EXAMPLE)[..hex(EXAMPLE).len() - 3];
    assert_refused(Zstd, flushed);
    assert_eq!(read(Zstd, &[&write(Zstd, b"")[..], flushed].concat()).unwrap(), TEXT);
}

#[test]
fn format_edge_160_a_further_frame_may_be_cut() {
    let one = hex(EXAMPLE);
    let mut single = one.clone();
    // Its one block made the last.
    single.truncate(single.len() - 3);
    single[6] |= 1;
    assert_eq!(read(Zstd, &single).unwrap(), TEXT);
    for len in 1..single.len() {
        assert_eq!(read(Zstd, &[&single[..], &single[..len]].concat()).unwrap(), TEXT, "{len}");
    }
    for len in 1..12 {
        assert_eq!(read(Zstd, &[&one[..], &hex(SKIPPABLE)[..len]].concat()).unwrap(), TEXT, "{len}");
    }
    // A missing checksum is not missed, a wrong one is.
    let checked = checked();
    for cut in 1..=4 {
        let payload = [&one[..], &checked[..checked.len() - cut]].concat();
        assert_eq!(read(Zstd, &payload).unwrap(), TEXT.repeat(2));
    }
    let mut wrong = checked.clone();
    *wrong.last_mut().unwrap() ^= 1;
    assert_refused(Zstd, &wrong);
    assert_refused(Zstd, &[&one[..], &wrong].concat());
}

#[test]
fn a_cut_frame_that_reaches_over_the_end_of_a_piece_is_refused() {
    // Two raw frames; the first ends `before` bytes before the end of the first piece of input.
    let split = |before: usize| {
        let skippable = {
            let len = PIECE_LEN - before - plain(TEXT).len() - 8;
            [&hex("50 2a 4d 18")[..], &[len as u8, (len >> 8) as u8, (len >> 16) as u8, 0], &vec![0; len]]
                .concat()
        };
        let first = [skippable, plain(TEXT)].concat();
        assert_eq!(first.len(), PIECE_LEN - before);
        first
    };
    let cut = &plain(b"second")[..11];
    assert_eq!(read(Zstd, &[&split(11)[..], cut].concat()).unwrap(), [TEXT, b"se"].concat());
    for before in [0, 1, 10] {
        assert_refused(Zstd, &[&split(before)[..], cut].concat());
    }
}

#[test]
fn format_edge_145_sizes_and_checksums_that_are_there_count() {
    // Single segment with a content size of one byte.
    assert_eq!(read(Zstd, &frame(&[0x20, 23], TEXT, b"")).unwrap(), TEXT);
    for wrong in [22, 24] {
        assert_refused(Zstd, &frame(&[0x20, wrong], TEXT, b""));
    }
    assert_eq!(read(Zstd, &checked()).unwrap(), TEXT);
    // A missing checksum.
    assert_refused(Zstd, &frame(&[0x04, 0x58], TEXT, b""));
}

#[test]
fn windows_dictionaries_and_descriptor_bits() {
    for window in [0x00, 0x58, 0x87, 0x88] {
        assert_eq!(read(Zstd, &frame(&[0x00, window], TEXT, b"")).unwrap(), TEXT);
    }
    for window in [0x89, 0x90, 0xff] {
        assert_refused(Zstd, &frame(&[0x00, window], TEXT, b""));
        // Nor with the content size known, 256 + 23 in two bytes not being 23.
        assert_refused(Zstd, &frame(&[0x40, window, 0x00, 0x00], &[7; 256], b""));
    }
    assert_eq!(read(Zstd, &frame(&[0x40, 0x58, 0x00, 0x00], &[7; 256], b"")).unwrap(), [7; 256]);
    // A single segment's window is its content.
    let beyond = (128_u32 << 20) + 2;
    let [a, b, c, d] = beyond.to_be_bytes();
    assert_refused(Zstd, &frame(&[0xa0, d, c, b, a], TEXT, b""));

    // Dictionary id 0 is none, any other is missing.
    assert_eq!(read(Zstd, &frame(&[0x01, 0x58, 0x00], TEXT, b"")).unwrap(), TEXT);
    assert_refused(Zstd, &frame(&[0x01, 0x58, 0x07], TEXT, b""));
    assert_refused(Zstd, &frame(&[0x08, 0x58], TEXT, b""));
    assert_eq!(read(Zstd, &frame(&[0x10, 0x58], TEXT, b"")).unwrap(), TEXT);
}

#[test]
fn blocks_that_cannot_be_decoded_are_refused() {
    // Block type 3 is reserved; a block larger than 128 KiB.
    let head = hex("28 b5 2f fd 00 58");
    assert_refused(Zstd, &[&head[..], &block(true, 3, 5, b"hello")].concat());
    assert_refused(Zstd, &[&head[..], &block(true, 1, (128 << 10) + 1, b"h")].concat());
    assert_eq!(
        read(Zstd, &[&head[..], &block(true, 1, 128 << 10, b"h")].concat()).unwrap(),
        [b'h'; 128 << 10]
    );
}

#[test]
fn bombs_are_refused_at_the_limit() {
    // 1 GiB in 8192 blocks of four bytes.
    let bomb = [hex("28 b5 2f fd 00 58"), block(false, 1, 128 << 10, &[0]).repeat(8192)].concat();
    assert_bounded(Zstd, &bomb);
    // A content size of 2^60 takes no memory; neither do frames that decode to nothing.
    let forged = frame(&[0xc0, 0x58, 0, 0, 0, 0, 0, 0, 0, 0x10], TEXT, b"");
    let mut out = Vec::new();
    assert!(decompress(Zstd, Magic::V2, &forged, &mut out, usize::MAX).is_err());
    assert!(out.capacity() <= 64 * 1024);
    assert_eq!(read(Zstd, &write(Zstd, b"").repeat(10_000)).unwrap(), b"");
}
