use super::super::DecodeError;
use super::super::tests::{
    TEXT, assert_bounded, assert_refused, decompress, hex, noise, read, write, write_with,
};
use super::*;
use crate::codec::Codec::Lz4;

const EXAMPLE: &str =
    "04 22 4d 18 60 40 82 0f 00 00 00 68 68 65 6c 6c 6f 20 06 00 50 68 65 6c 6c 6f 00 00 00 00";

/// Block checksums, content size and content checksum.
const OPTIONS: u8 = FLG_BLOCK_CHECKSUM | FLG_CONTENT_SIZE | FLG_CONTENT_CHECKSUM;

/// A frame's header with a right checksum; a content size of garbage where the flags ask for one.
fn header(flg: u8, bd: u8) -> Vec<u8> {
    let mut header = vec![0x04, 0x22, 0x4d, 0x18, flg, bd];
    if flg & FLG_CONTENT_SIZE != 0 {
        header.extend_from_slice(&[0xfe; 8]);
    }
    header.push(header_checksum(&header[4..]));
    header
}

/// Block size, bytes and, where the flags ask for one, a right checksum.
fn block(flg: u8, size: u32, bytes: &[u8]) -> Vec<u8> {
    let mut block = [&to_le_bytes(size)[..], bytes].concat();
    if flg & FLG_BLOCK_CHECKSUM != 0 {
        block.extend_from_slice(&to_le_bytes(XxHash32::oneshot(0, bytes)));
    }
    block
}

fn compressed(flg: u8, input: &[u8]) -> Vec<u8> {
    let bytes = lz4_flex::block::compress(input);
    block(flg, bytes.len() as u32, &bytes)
}

fn stored(flg: u8, input: &[u8]) -> Vec<u8> {
    block(flg, input.len() as u32 | BLOCK_STORED, input)
}

/// A whole frame around one compressed block of the text.
fn frame(flg: u8, bd: u8) -> Vec<u8> {
    let mut frame = [header(flg, bd), compressed(flg, TEXT), vec![0; 4]].concat();
    if flg & FLG_CONTENT_CHECKSUM != 0 {
        frame.extend_from_slice(b"????");
    }
    frame
}

fn read_v0(payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    decompress(Lz4, Magic::V0, payload, &mut out, 1 << 20).map(|()| out)
}

#[test]
fn the_worked_example_reads_and_its_framing_is_written() {
    assert_eq!(read(Lz4, &hex(EXAMPLE)).unwrap(), TEXT);
    let mut v0 = hex(EXAMPLE);
    v0[6] = 0x1a;
    assert_eq!(read_v0(&v0).unwrap(), TEXT);
    // The block itself may be any that decodes to the text.
    for (magic, example) in [(Magic::V2, hex(EXAMPLE)), (Magic::V1, hex(EXAMPLE)), (Magic::V0, v0)] {
        let written = write_with(Lz4, None, magic, TEXT);
        assert_eq!(written[..7], example[..7]);
        assert_eq!(written[written.len() - 4..], [0; 4]);
        assert_eq!(u32_at(&written, 7), Some(written.len() as u32 - 15));
        assert_eq!(read_v0(&written).unwrap(), TEXT);
    }
}

#[test]
fn the_blocks_of_the_worked_batches_read() {
    // Batch G: three records of 47 bytes.
    let g = hex("04 22 4d 18 60 40 82 1f 00 00 00 7f 5c 00 00 00 01 50 61 01 00 14 5f 00 5c 00 00 02 2f 00 \
                 1b 1f 04 2f 00 13 50 61 61 61 61 00 00 00 00 00");
    let record = |delta: u8| [&[0x5c, 0, 0, delta, 1, 0x50][..], &[0x61; 40], &[0]].concat();
    assert_eq!(read(Lz4, &g).unwrap(), [record(0), record(2), record(4)].concat());
    // Batch F: 31 bytes that do not shrink are stored.
    let records = noise(31);
    let f = [hex("04 22 4d 18 60 40 82 1f 00 00 80"), records.clone(), vec![0; 4]].concat();
    assert_eq!(read(Lz4, &f).unwrap(), records);
    assert_eq!(write(Lz4, &records), f);
}

#[test]
fn fmt_04_the_header_checksum_leaves_the_magic_out() {
    let written = write(Lz4, TEXT);
    assert_eq!(written[..7], hex("04 22 4d 18 60 40 82"));
    assert_eq!(XxHash32::oneshot(0, &[0x60, 0x40]) >> 8 & 0xff, 0x82);
    let mut with_magic = written;
    with_magic[6] = 0x1a;
    assert_refused(Lz4, &with_magic);
}

#[test]
fn format_edge_53_faults_of_the_header_are_refused() {
    for size_code in 4..=7 {
        assert_eq!(read(Lz4, &frame(FLG, size_code << 4)).unwrap(), TEXT);
    }
    for size_code in 0..=3 {
        assert_refused(Lz4, &frame(FLG, size_code << 4));
    }
    for flg in [FLG | 1, FLG | 2, FLG & !FLG_INDEPENDENT_BLOCKS, 0x20, 0xa0, 0xe0] {
        assert_refused(Lz4, &frame(flg, BD));
    }
    for bd in [BD | 1, BD | 2, BD | 4, BD | 8, BD | 0x80] {
        assert_refused(Lz4, &frame(FLG, bd));
    }
    let mut magic = frame(FLG, BD);
    magic[0] ^= 1;
    assert_refused(Lz4, &magic);
}

#[test]
fn format_edge_53_of_the_options_only_block_checksums_count() {
    for options in 0..=OPTIONS {
        if options & !OPTIONS == 0 {
            assert_eq!(read(Lz4, &frame(FLG | options, BD)).unwrap(), TEXT, "{options:#x}");
        }
    }
    let flg = FLG | FLG_BLOCK_CHECKSUM;
    for wrong in 0..4 {
        let mut payload = frame(flg, BD);
        let at = payload.len() - 8 + wrong;
        payload[at] ^= 1;
        assert_refused(Lz4, &payload);
    }
    let mut payload = [header(flg, BD), stored(flg, TEXT), vec![0; 4]].concat();
    assert_eq!(read(Lz4, &payload).unwrap(), TEXT);
    payload[12] ^= 1;
    assert_refused(Lz4, &payload);
    // The content checksum is not checked but must be there.
    let payload = frame(FLG | FLG_CONTENT_CHECKSUM, BD);
    for cut in 1..=4 {
        assert_refused(Lz4, &payload[..payload.len() - cut]);
    }
}

#[test]
fn format_edge_54_the_header_checksum_does_not_count_under_magic_0() {
    for options in [0, FLG_CONTENT_SIZE] {
        let mut payload = frame(FLG | options, BD);
        let at = header(FLG | options, BD).len() - 1;
        payload[at] = 0xff;
        assert_refused(Lz4, &payload);
        let mut out = Vec::new();
        assert!(decompress(Lz4, Magic::V1, &payload, &mut out, 1 << 20).is_err());
        assert_eq!(read_v0(&payload).unwrap(), TEXT);
    }
}

#[test]
fn format_edge_55_a_block_beyond_the_maximum_is_refused() {
    let size = 1 << 24;
    assert_refused(Lz4, &[header(FLG, BD), block(FLG, size, &vec![0; 1 << 24]), vec![0; 4]].concat());
    assert_refused(Lz4, &[header(FLG, BD), to_le_bytes(65_537).to_vec()].concat());
}

#[test]
fn format_edge_56_sizes_with_and_without_block_checksums() {
    for len in [0, 1, 1_000, 65_536, 98_304] {
        for input in [noise(len), vec![b'a'; len]] {
            let written = write(Lz4, &input);
            assert_eq!(read(Lz4, &written).unwrap(), input);
            let flg = FLG | FLG_BLOCK_CHECKSUM;
            let mut checked = header(flg, BD);
            for piece in input.chunks(65_536) {
                checked.extend(if piece == noise(piece.len()) {
                    stored(flg, piece)
                } else {
                    compressed(flg, piece)
                });
            }
            checked.extend([0; 4]);
            assert_eq!(read(Lz4, &checked).unwrap(), input, "{len}");
        }
    }
    // Noise is stored, in blocks of 65536 bytes.
    let written = write(Lz4, &noise(98_304));
    assert_eq!(u32_at(&written, 7), Some(65_536 | BLOCK_STORED));
    assert_eq!(u32_at(&written, 7 + 4 + 65_536), Some(32_768 | BLOCK_STORED));
    assert_eq!(written.len(), 7 + 4 + 65_536 + 4 + 32_768 + 4);
}

#[test]
fn format_edge_57_and_144_nothing_behind_the_end_mark_is_looked_at() {
    let one = write(Lz4, TEXT);
    assert_eq!(read(Lz4, &[&one[..], b"garbage"].concat()).unwrap(), TEXT);
    assert_eq!(read(Lz4, &[&one[..], &one].concat()).unwrap(), TEXT);
    // The end mark may have the bit of a stored block.
    let stored_end = [header(FLG, BD), compressed(FLG, TEXT), to_le_bytes(BLOCK_STORED).to_vec()].concat();
    assert_eq!(read(Lz4, &stored_end).unwrap(), TEXT);
}

#[test]
fn format_edge_163_cut_payloads_and_blocks_too_large() {
    for flg in [FLG, FLG | OPTIONS] {
        let whole = frame(flg, BD);
        for len in 0..whole.len() {
            assert_refused(Lz4, &whole[..len]);
        }
        assert!(read_v0(&whole[..6]).is_err());
    }
    let large = vec![0; 65_537];
    assert_refused(Lz4, &[header(FLG, BD), stored(FLG, &large), vec![0; 4]].concat());
    assert_refused(Lz4, &[header(FLG, BD), compressed(FLG, &large), vec![0; 4]].concat());
    // It is the frame's bound that such a block is beyond where the caller's is the same, and the caller's where that is less.
    let payload = [header(FLG, BD), compressed(FLG, &large), vec![0; 4]].concat();
    for (limit, name) in [(65_536, "KafkaException"), (65_535, "InvalidRecordException")] {
        let error = decompress(Lz4, Magic::V2, &payload, &mut Vec::new(), limit).unwrap_err();
        assert_eq!(error.kafka_name(), name, "{limit}");
    }
    // A wider frame takes them.
    let wide = [header(FLG, 5 << 4), stored(FLG, &large), compressed(FLG, &large), vec![0; 4]].concat();
    assert_eq!(read(Lz4, &wide).unwrap(), vec![0; 2 * 65_537]);
}

#[test]
fn format_edge_184_a_frame_without_all_of_its_end_mark_is_refused_behind_its_data() {
    let input = b"data".repeat(256);
    let whole = write(Lz4, &input);
    for cut in [4, 3, 1] {
        let mut out = Vec::new();
        let payload = &whole[..whole.len() - cut];
        let error = decompress(Lz4, Magic::V2, payload, &mut out, 1 << 20).unwrap_err();
        assert_eq!(error.kafka_name(), "KafkaException");
        assert_eq!(out, input);
    }
    assert_refused(Lz4, &whole[..2]);
}

#[test]
fn format_edge_144_a_compressed_block_that_decodes_to_nothing_is_refused() {
    // Kafka reads on behind the data.
    assert_refused(Lz4, &[header(FLG, BD), block(FLG, 1, &[0]), vec![0; 4]].concat());
    assert_refused(Lz4, &[header(FLG, BD), compressed(FLG, TEXT), block(FLG, 1, &[0]), vec![0; 4]].concat());
}

#[test]
fn a_block_that_refers_to_the_one_before_is_refused() {
    // One literal, then a match at distance 16.
    let dependent = [0x10, b'a', 16, 0, 0x50, 1, 2, 3, 4, 5];
    let block = block(FLG, dependent.len() as u32, &dependent);
    assert_refused(Lz4, &[header(FLG, BD), stored(FLG, TEXT), block, vec![0; 4]].concat());
}

#[test]
fn a_match_at_distance_0_is_refused() {
    // liblz4 makes bytes of nothing of it.
    let nowhere = [0x10, b'a', 0, 0, 0x50, 1, 2, 3, 4, 5];
    let block = block(FLG, nowhere.len() as u32, &nowhere);
    assert_refused(Lz4, &[header(FLG, BD), block, vec![0; 4]].concat());
}

#[test]
fn blocks_that_expand_much_and_little_take_the_room_they_need() {
    for input in [vec![7; 65_536], vec![7; 500], noise(40_000), b"abcdefgh".repeat(8_000)] {
        let payload = [header(FLG, BD), compressed(FLG, &input), vec![0; 4]].concat();
        if lz4_flex::block::compress(&input).len() <= 65_536 {
            assert_eq!(read(Lz4, &payload).unwrap(), input);
        }
    }
}

#[test]
fn bombs_are_refused_at_the_limit() {
    // 1 GiB in 256 blocks of 4 MiB.
    let block = compressed(FLG, &vec![0; 4 << 20]);
    assert_bounded(Lz4, &[header(FLG, 7 << 4), block.repeat(256), vec![0; 4]].concat());
}

#[test]
fn a_fault_is_told_with_its_place() {
    let flg = |flag: u8| header(FLG | flag, BD);
    let block = stored(FLG, b"abcd");
    for (payload, words) in [
        (flg(0)[..3].to_vec(), "0 of the compressed payload: frame header: expected 7 bytes, found 3 bytes"),
        (
            flg(FLG_CONTENT_SIZE)[..14].to_vec(),
            "0 of the compressed payload: frame header: expected 15 bytes, found 14 bytes",
        ),
        (
            header(FLG & !FLG_INDEPENDENT_BLOCKS, BD),
            "4 of the compressed payload: flags of the frame: expected independent blocks, found 0x40",
        ),
        (
            header(FLG, 0x30),
            "5 of the compressed payload: block descriptor: expected 0x40, 0x50, 0x60 or 0x70, found 0x30",
        ),
        (
            [flg(0), vec![0; 2]].concat(),
            "7 of the compressed payload: block size or end mark: expected 4 bytes, found 2 bytes",
        ),
        (
            [flg(0), vec![1, 0, 1, 0]].concat(),
            "7 of the compressed payload: block size: expected at most 65536, found 65537",
        ),
        (
            [flg(0), block[..6].to_vec()].concat(),
            "11 of the compressed payload: block: expected 4 bytes, found 2 bytes",
        ),
        (
            [flg(FLG_BLOCK_CHECKSUM), block.clone(), vec![0; 2]].concat(),
            "15 of the compressed payload: checksum of a block: expected 4 bytes, found 2 bytes",
        ),
        (
            [flg(FLG_CONTENT_CHECKSUM), vec![0; 6]].concat(),
            "11 of the compressed payload: content checksum: expected 4 bytes, found 2 bytes",
        ),
    ] {
        assert_eq!(read(Lz4, &payload).unwrap_err().to_string(), format!("lz4 at byte {words}"));
    }
}

#[test]
fn a_block_that_does_not_shrink_is_stored() {
    // A repetition of four bytes costs four, so that the first is as large compressed as it is; one of five saves a byte.
    for (input, stored) in [(&b"abcdefghabcdijklmnopq"[..], true), (b"abcdefghabcdeijklmnopq", false)] {
        let payload = write(Lz4, input);
        assert_eq!(payload[10] & 0x80 != 0, stored);
        assert_eq!(payload[7..10], [21, 0, 0]);
        assert_eq!(read(Lz4, &payload).unwrap(), input);
    }
}
