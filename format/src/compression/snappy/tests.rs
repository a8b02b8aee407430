use super::super::tests::{TEXT, assert_bounded, assert_refused, decompress, hex, noise, read, write};
use super::{HEADER_LEN, MAGIC};
use crate::codec::Codec::Snappy;

const EXAMPLE: &str = "82 53 4e 41 50 50 59 00 00 00 00 01 00 00 00 01 \
                       00 00 00 0b 17 14 68 65 6c 6c 6f 20 42 06 00";

fn raw(input: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(input).unwrap()
}

fn chunk(block: &[u8]) -> Vec<u8> {
    [&(block.len() as i32).to_be_bytes()[..], block].concat()
}

fn header() -> Vec<u8> {
    hex(EXAMPLE)[..HEADER_LEN].to_vec()
}

/// A header and a chunk for each block.
fn stream(blocks: &[&[u8]]) -> Vec<u8> {
    blocks.iter().fold(header(), |stream, block| [stream, chunk(block)].concat())
}

#[test]
fn the_worked_example_goes_both_ways() {
    assert_eq!(read(Snappy, &hex(EXAMPLE)).unwrap(), TEXT);
    assert_eq!(write(Snappy, TEXT), hex(EXAMPLE));
}

#[test]
fn fmt_03_a_raw_block_and_a_stream_read_the_same() {
    let records = TEXT.repeat(10);
    assert!(raw(&records).len() >= 16);
    assert_eq!(read(Snappy, &raw(&records)).unwrap(), records);
    assert_eq!(read(Snappy, &write(Snappy, &records)).unwrap(), records);
    let short = raw(b"short");
    assert!(short.len() < 16);
    assert_eq!(read(Snappy, &short).unwrap(), b"short");
    // Neither the one nor the other.
    assert_refused(Snappy, b"neither a block nor a stream");
    assert_refused(Snappy, &MAGIC);
    assert_refused(Snappy, &header()[..15]);
}

#[test]
fn format_edge_58_streams_tails_and_chunks() {
    let one = hex(EXAMPLE);
    assert_eq!(read(Snappy, &raw(TEXT)).unwrap(), TEXT);
    assert_eq!(read(Snappy, &[&one[..], &one].concat()).unwrap(), TEXT.repeat(2));
    for tail in 1..=3 {
        assert_eq!(read(Snappy, &[&one[..], &b"xyz"[..tail]].concat()).unwrap(), TEXT);
    }
    assert_refused(Snappy, &[&one[..], &[0; 4]].concat());
    assert_refused(Snappy, &[&one[..], &[0; 8]].concat());
    assert_eq!(read(Snappy, &header()).unwrap(), b"");
    assert_eq!(write(Snappy, b""), header());

    let input = noise(70_000);
    let written = write(Snappy, &input);
    let (mut at, mut lengths) = (HEADER_LEN, Vec::new());
    while at < written.len() {
        let length = super::i32_at(&written, at).unwrap() as usize;
        lengths.push(snap::raw::decompress_len(&written[at + 4..]).unwrap());
        at += 4 + length;
    }
    assert_eq!(lengths, [32_768, 32_768, 4_464]);
    assert_eq!(read(Snappy, &written).unwrap(), input);
}

#[test]
fn format_edge_143_the_versions_of_the_first_header_do_not_count() {
    for version in [0, 2, -1, i32::MAX] {
        let mut payload = hex(EXAMPLE);
        payload[8..12].copy_from_slice(&version.to_be_bytes());
        payload[12..16].copy_from_slice(&version.to_be_bytes());
        assert_eq!(read(Snappy, &payload).unwrap(), TEXT);
    }
}

#[test]
fn format_edge_143_and_162_further_headers() {
    let one = hex(EXAMPLE);
    // With nothing behind, and cut.
    assert_eq!(read(Snappy, &[&one[..], &header()].concat()).unwrap(), TEXT);
    for len in 4..HEADER_LEN {
        assert_refused(Snappy, &[&one[..], &header()[..len]].concat());
    }
    // Only the first version counts, and only upwards.
    for (version, read_it) in [(1_i32, true), (2, true), (99, true), (0, false), (-1, false)] {
        let mut second = hex(EXAMPLE);
        second[8..12].copy_from_slice(&version.to_be_bytes());
        second[12..16].copy_from_slice(&[0xff; 4]);
        let payload = [&one[..], &second].concat();
        assert_eq!(read(Snappy, &payload).is_ok(), read_it, "{version}");
    }
    // snappy-java takes this for a passing end of the stream, which no writer makes.
    let mut wrong = one.clone();
    wrong[5] = b'?';
    assert_refused(Snappy, &[&one[..], &wrong].concat());
}

#[test]
fn format_edge_162_blocks_with_a_wrong_length() {
    let block = raw(TEXT);
    for length in [block[0] + 1, block[0] - 1] {
        let mut wrong = block.clone();
        wrong[0] = length;
        assert_refused(Snappy, &wrong);
        assert_refused(Snappy, &stream(&[&wrong]));
    }
    // 2^31, 2^31 - 1, 2^32 - 1 and more than 32 bits, in front of the block's tags.
    for length in
        ["80 80 80 80 08", "ff ff ff ff 07", "ff ff ff ff 0f", "ff ff ff ff 1f", "97 80 80 80 80 00"]
    {
        let forged = [&hex(length)[..], &block[1..]].concat();
        assert_refused(Snappy, &forged);
        assert_refused(Snappy, &stream(&[&forged]));
        let mut out = Vec::new();
        decompress(Snappy, crate::codec::Magic::V2, &forged, &mut out, usize::MAX).unwrap_err();
        assert!(out.capacity() < 1024);
    }
    // Longer than need be, but right.
    assert_eq!(read(Snappy, &[&[0x97, 0x00], &block[1..]].concat()).unwrap(), TEXT);
}

#[test]
fn format_edge_162_large_and_empty_chunks() {
    let large = noise(100_000);
    assert_eq!(read(Snappy, &stream(&[&raw(&large)])).unwrap(), large);
    // A block that decodes to nothing is passed over, a chunk of no bytes is not.
    assert_eq!(read(Snappy, &stream(&[&raw(TEXT), &[0], &raw(TEXT)])).unwrap(), TEXT.repeat(2));
    assert_eq!(read(Snappy, &[0]).unwrap(), b"");
    assert_refused(Snappy, &stream(&[&raw(TEXT), b""]));
}

#[test]
fn format_edge_143_short_and_impossible_chunks_are_refused() {
    let one = hex(EXAMPLE);
    for len in HEADER_LEN + 4..one.len() {
        assert_refused(Snappy, &one[..len]);
    }
    for length in [-1, i32::MIN, (512 << 20) + 1, i32::MAX] {
        assert_refused(Snappy, &[&one[..], &length.to_be_bytes()].concat());
    }
    // A copy from before the beginning, a literal that is cut.
    assert_refused(Snappy, &stream(&[&[4, 0x01, 0x01]]));
    assert_refused(Snappy, &stream(&[&[4, 0x0c, b'a']]));
}

#[test]
fn bombs_are_refused_at_the_limit() {
    // 1 GiB in 50 MB, the most that snappy expands; as chunks; 16 MiB as one block.
    let chunk = chunk(&raw(&vec![0; 1 << 20]));
    assert_bounded(Snappy, &[header(), chunk.repeat(1024)].concat());
    assert_bounded(Snappy, &raw(&vec![0; 16 << 20]));
}

#[test]
fn a_fault_is_told_with_its_place() {
    let one = hex(EXAMPLE);
    let further = |bytes: &[u8]| [&one[..], bytes].concat();
    let mut version = header();
    version[8..12].fill(0);
    for (payload, words) in [
        (
            further(&header()[..5]),
            "31 of the compressed payload: header of a further stream: expected 16 bytes, found 5 bytes",
        ),
        (
            further(&version),
            "39 of the compressed payload: version of a further stream: expected at least 1, found 0",
        ),
        (
            [header(), hex("20 00 00 00")].concat(),
            "20 of the compressed payload: chunk: expected 536870912 bytes, found 0 bytes",
        ),
        (
            [header(), hex("20 00 00 01")].concat(),
            "16 of the compressed payload: chunk length: expected 0 to 536870912, found 536870913",
        ),
        (one[..22].to_vec(), "20 of the compressed payload: chunk: expected 11 bytes, found 2 bytes"),
        (
            hex("ff ff ff ff 07 00"),
            "0 of the compressed payload: length of a block: expected at most 153, found 2147483647",
        ),
        (
            stream(&[&hex("ff ff ff ff 07 00")]),
            "20 of the compressed payload: length of a block: expected at most 153, found 2147483647",
        ),
    ] {
        assert_eq!(read(Snappy, &payload).unwrap_err().to_string(), format!("snappy at byte {words}"));
    }
}
