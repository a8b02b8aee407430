use super::super::tests::{
    TEXT, assert_bounded, assert_refused, decompress, hex, noise, read, write, write_with,
};
use super::super::{DecodeError, Stream};
use super::{DCtx, DECODER, ENCODER, PIECE_LEN, Sink, at_once, contents_len_max};
use crate::codec::Codec::Zstd;
use crate::codec::Magic;
use crate::error::Place;

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
fn a_context_is_kept_unless_it_is_large() {
    for (level, kept) in [(None, true), (Some(19), false), (None, true)] {
        write_with(Zstd, level, Magic::V2, TEXT);
        let context = ENCODER.take();
        assert_eq!(context.is_some(), kept, "{level:?}");
        ENCODER.set(context);
    }
    // Windows of 2 MiB and of 64 MiB; two frames, so that they are asked for.
    for (window, kept) in [(0x58, true), (0x80, false), (0x58, true)] {
        assert_eq!(read(Zstd, &frame(&[0x00, window], TEXT, b"").repeat(2)).unwrap(), TEXT.repeat(2));
        let context = DECODER.take();
        assert_eq!(context.is_some(), kept, "{window:#x}");
        DECODER.set(context);
    }
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
    // Nor does one of 16 MiB that the caller would allow.
    let forged = frame(&[0x80, 0x58, 0, 0, 0, 1], TEXT, b"");
    let mut out = Vec::new();
    assert!(decompress(Zstd, Magic::V2, &forged, &mut out, 1 << 30).is_err());
    assert!(out.capacity() <= 64 * 1024);
    assert_eq!(read(Zstd, &write(Zstd, b"").repeat(10_000)).unwrap(), b"");
}

#[test]
fn what_a_whole_frame_may_hold_stands_in_its_headers() {
    let body = [block(false, 0, 5, b"bytes"), block(false, 1, 70_000, b"x"), block(true, 2, 9, b"something")]
        .concat();
    let sum = 5 + 70_000 + (128 << 10);
    // Windows of 1 MiB, of 256 KiB with a content size, a single segment; with dictionary ids.
    for (head, most) in [
        ("00 50", sum),
        ("c0 40 07 00 00 00 00 00 00 00", sum),
        ("43 50 01 02 03 04 07 00", sum),
        ("a0 00 00 03 00", 3 << 16),
        ("a1 01 00 00 03 00", 3 << 16),
        ("62 01 02 00 ff", 0xff00 + 256),
    ] {
        let whole = [&hex("28 b5 2f fd")[..], &hex(head), &body].concat();
        let fits = most >= 70_000;
        assert_eq!(contents_len_max(&whole), fits.then_some(most), "{head}");
        for len in 0..whole.len() {
            assert_eq!(contents_len_max(&whole[..len]), None, "{head}");
        }
        assert_eq!(contents_len_max(&[&whole[..], b"x"].concat()), None, "{head}");
    }
    // A block may be as large as the window and 128 KiB, not larger; all of them as large as the window.
    for (head, block_len, most) in [
        ("20 05", 5, Some(5)),
        ("20 05", 6, None),
        // Two bytes of size count from 256 on.
        ("60 04 ff", 5, Some(0xff04 + 256)),
        ("60 04 ff", 0xff04 + 256, Some(0xff04 + 256)),
        ("60 04 ff", 0xff04 + 257, None),
        ("00 38", 128 << 10, Some(128 << 10)),
        ("00 38", (128 << 10) + 1, None),
        ("00 37", 5, None),
    ] {
        let one = block(true, 1, block_len, b"x");
        let frame = |blocks: &[u8]| [&hex("28 b5 2f fd")[..], &hex(head), blocks].concat();
        assert_eq!(contents_len_max(&frame(&one)), most, "{head}");
        let two = [block(false, 1, block_len, b"x"), one].concat();
        // A single segment's is its contents, whatever the blocks say.
        let most = most.filter(|_| !head.starts_with("00"));
        assert_eq!(contents_len_max(&frame(&two)), most, "{head}");
    }
    let with_checksum =
        [checked(), [&hex("28 b5 2f fd 04 58")[..], &block(true, 0, 1, b"x"), b"sum."].concat()];
    for whole in with_checksum {
        assert!(contents_len_max(&whole).is_some());
        assert_eq!(contents_len_max(&whole[..whole.len() - 1]), None);
    }
    assert_eq!(contents_len_max(&hex(SKIPPABLE)), None);
}

#[test]
fn a_whole_frame_goes_where_it_is_wanted_and_no_further_than_allowed() {
    // As zstd-jni writes it, of more blocks than one; and more compressible than any text.
    for input in [noise(300_000), vec![7; 1_500_000]] {
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
        std::io::Write::write_all(&mut encoder, &input).unwrap();
        let payload = encoder.finish().unwrap();
        let most = contents_len_max(&payload).unwrap();
        assert!((input.len()..input.len() + 2 * (128 << 10)).contains(&most), "{most}");
        let mut out = Vec::new();
        let mut sink = Sink { out: &mut out, len: 0, before: 0, limit: most, step_max: usize::MAX };
        // Not the zeros: they would take too much room for so few bytes.
        let expected = input.len() < 1 << 20;
        assert_eq!(at_once(&mut DCtx::create(), &payload, &mut sink), expected);
        assert_eq!(out == input, expected);
        for capacity in [0, 4 << 20] {
            let mut out = Vec::with_capacity(capacity);
            decompress(Zstd, Magic::V2, &payload, &mut out, input.len()).unwrap();
            assert!(out == input);
            out.clear();
            let error = decompress(Zstd, Magic::V2, &payload, &mut out, input.len() - 1).unwrap_err();
            assert_eq!(error, DecodeError::TooLarge { codec: Zstd, limit: input.len() - 1 });
            assert!(out == input[..input.len() - 1]);
        }
    }
}

#[test]
fn a_whole_frame_takes_no_window() {
    let payload = write(Zstd, &noise(300_000));
    let two = payload.repeat(2);
    let context_len_after = |payload: &[u8]| {
        drop(DECODER.take());
        read(Zstd, payload).unwrap();
        DECODER.take().unwrap().sizeof()
    };
    // The window of the level is 2 MiB.
    let (one, two) = (context_len_after(&payload), context_len_after(&two));
    assert!(one < 1 << 20 && two > 2 << 20, "{one} {two}");
}

#[test]
fn a_fault_in_a_whole_frame_is_told_as_in_any_other() {
    let blocks = [block(false, 0, 100_000, &noise(100_000)), block(true, 3, 5, b"hello")].concat();
    let payload = [&hex("28 b5 2f fd 00 58"), &blocks[..]].concat();
    assert!(contents_len_max(&payload).is_some());
    let refused = |payload: &[u8]| {
        let mut out = Vec::new();
        match decompress(Zstd, Magic::V2, payload, &mut out, 1 << 20).unwrap_err() {
            DecodeError::Codec { place: Place::Payload(at), what, .. } => (at, what, out),
            other => panic!("{other}"),
        }
    };
    // Behind another frame nothing is decoded at once.
    let skippable = hex(SKIPPABLE);
    let (at, what, out) = refused(&[&skippable[..], &payload].concat());
    assert!(refused(&payload) == (at - skippable.len(), what, out));
}

#[test]
fn what_is_left_when_all_input_is_taken_comes_out_piece_by_piece() {
    // One block of 128 KiB that is one byte, over and over.
    let payload = hex("28 b5 2f fd 00 58 03 00 10 61");
    let stream = Stream::open(Zstd, Magic::V2, &payload, 1 << 20).unwrap();
    let mut pieces = crate::compression::Pieces::new(stream, 0);
    pieces.until(|rest| rest.len() > 1 << 17).unwrap();
    assert!(pieces.is_over());
    assert_eq!(pieces.rest(), [0x61; 1 << 17]);
}

#[test]
fn of_a_cut_frame_all_that_is_whole_comes_out_whatever_the_room() {
    // A block of 128 KiB that is one byte, over and over, and no end; all of it is taken long before all has come out.
    let cut = hex("28 b5 2f fd 00 58 02 00 10 61");
    let expected = [TEXT, &[0x61; 1 << 17]].concat();
    let payload = [&hex(EXAMPLE)[..], &cut].concat();
    assert_eq!(read(Zstd, &payload).unwrap(), expected);
    // As the first frame it is an error, with the same bytes in front of it.
    let mut out = Vec::new();
    decompress(Zstd, Magic::V2, &cut, &mut out, 1 << 20).unwrap_err();
    assert_eq!(out, expected[TEXT.len()..]);
}

#[test]
fn a_stream_makes_no_room_for_a_whole_frame() {
    let input = noise(300_000);
    let payload = write(Zstd, &input);
    assert!(contents_len_max(&payload).is_some());
    let mut stream = Stream::open(Zstd, Magic::V2, &payload, 1 << 20).unwrap();
    let (mut window, mut all) = (Vec::new(), Vec::new());
    loop {
        let more = stream.more(&mut window, all.len()).unwrap();
        assert!(window.len() <= Stream::STEP_MAX, "{}", window.len());
        all.append(&mut window);
        if !more {
            break;
        }
    }
    assert!(all == input);
}
