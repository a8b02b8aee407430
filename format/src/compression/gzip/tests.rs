use super::super::tests::{TEXT, assert_bounded, assert_refused, decompress, hex, noise, read, write};
use crate::codec::Codec::Gzip;
use crate::codec::Magic;

const EXAMPLE: &str = "1f 8b 08 00 00 00 00 00 00 ff cb 48 cd c9 c9 57 c8 40 27 01 e3 51 3d 8d 17 00 00 00";

/// A member around the example's data: its header is `flags`, a time, extra flags and a system, then `options`.
fn member(flags: u8, options: &[u8]) -> Vec<u8> {
    let mut member = vec![0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 5, 6];
    member.extend_from_slice(options);
    member.extend_from_slice(&hex(EXAMPLE)[10..]);
    member
}

/// The checksum over a header of flags and options, as it stands behind them.
fn header_crc(flags: u8, options: &[u8]) -> [u8; 2] {
    let mut header = vec![0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 5, 6];
    header.extend_from_slice(options);
    let [low, high, ..] = super::to_le_bytes(crc32fast::hash(&header));
    [low, high]
}

#[test]
fn the_worked_example_reads_and_the_header_is_written_so() {
    assert_eq!(read(Gzip, &hex(EXAMPLE)).unwrap(), TEXT);
    let written = write(Gzip, TEXT);
    assert_eq!(written[..10], hex(EXAMPLE)[..10]);
    assert_eq!(written[written.len() - 8..], hex(EXAMPLE)[20..]);
}

#[test]
fn header_options_are_skipped_and_cut_ones_refused() {
    let extra = [3, 0, 0xaa, 0xbb, 0xcc];
    let all = [&extra[..], b"name\0", b"comment\0"].concat();
    let options: [(u8, &[u8]); 5] =
        [(4, &extra), (8, b"name\0"), (16, b"comment\0"), (8, b"\0"), (4 | 8 | 16, &all)];
    for (flags, options) in options {
        let whole = member(flags, options);
        assert_eq!(read(Gzip, &whole).unwrap(), TEXT);
        for len in 0..10 + options.len() {
            assert_refused(Gzip, &whole[..len]);
        }
    }
    // An extra field longer than the payload.
    assert_refused(Gzip, &member(4, &[0xff, 0xff]));
}

#[test]
fn format_edge_161_header_checksum_and_reserved_flags() {
    assert_eq!(read(Gzip, &member(2, &header_crc(2, b""))).unwrap(), TEXT);
    let named = [&b"name\0"[..], &header_crc(2 | 8, b"name\0")].concat();
    assert_eq!(read(Gzip, &member(2 | 8, &named)).unwrap(), TEXT);
    let [low, high] = header_crc(2, b"");
    assert_refused(Gzip, &member(2, &[low ^ 1, high]));
    assert_refused(Gzip, &member(2, &[low, high])[..11]);

    // Flag 1 says "text".
    for flags in [0xe0, 1] {
        assert_eq!(read(Gzip, &member(flags, b"")).unwrap(), TEXT);
    }
    let mut method = hex(EXAMPLE);
    method[2] = 7;
    assert_refused(Gzip, &method);
}

#[test]
fn format_edge_161_eighteen_bytes_of_a_second_member_are_ignored() {
    let one = hex(EXAMPLE);
    for len in 0..=18 {
        assert_eq!(read(Gzip, &[&one[..], &one[..len]].concat()).unwrap(), TEXT, "{len}");
    }
    for len in 19..one.len() {
        assert_refused(Gzip, &[&one[..], &one[..len]].concat());
    }
    // Whole ones count again.
    assert_eq!(read(Gzip, &[&one[..], &one].concat()).unwrap(), TEXT.repeat(2));
}

#[test]
fn format_edge_59_garbage_second_member_and_a_cut_trailer() {
    let one = hex(EXAMPLE);
    assert_eq!(read(Gzip, &[&one[..], b"8 bytes!"].concat()).unwrap(), TEXT);
    assert_eq!(read(Gzip, &[&one[..], &noise(5_000)].concat()).unwrap(), TEXT);
    // A header that is damaged or cut is no header: the rest is ignored.
    let mut other_method = one.clone();
    other_method[2] = 7;
    assert_eq!(read(Gzip, &[&one[..], &other_method].concat()).unwrap(), TEXT);
    assert_eq!(read(Gzip, &[&one[..], &member(8, &[b'n'; 40])[..40]].concat()).unwrap(), TEXT);
    let bad_crc = member(2, &header_crc(0, b""));
    assert_eq!(read(Gzip, &[&one[..], &bad_crc].concat()).unwrap(), TEXT);

    let three = [&one[..], &write(Gzip, b""), &write(Gzip, b" and more")].concat();
    assert_eq!(read(Gzip, &three).unwrap(), b"hello hello hello hello and more");
    for len in 0..one.len() {
        assert_refused(Gzip, &one[..len]);
    }
}

#[test]
fn format_edge_165_a_cut_stream_or_a_wrong_trailer_is_refused() {
    let one = write(Gzip, &noise(20_000));
    for cut in 1..=12 {
        assert_refused(Gzip, &one[..one.len() - cut]);
    }
    for back in 1..=8 {
        let mut wrong = one.clone();
        let at = wrong.len() - back;
        wrong[at] ^= 1;
        assert_refused(Gzip, &wrong);
    }
}

#[test]
fn what_is_left_in_the_reader_s_buffer_decides_on_short_tails() {
    // Stored data: the stream is as long as wanted. The deflate data ends `left` bytes before 8 KiB are full.
    let stream = |left: usize| {
        let contents = noise(8 * 1024 - left - 5);
        let mut member = hex(EXAMPLE)[..10].to_vec();
        member.push(1);
        let len = contents.len() as u16;
        member.extend_from_slice(&[len as u8, (len >> 8) as u8, !len as u8, (!len >> 8) as u8]);
        member.extend_from_slice(&contents);
        member.extend_from_slice(&super::to_le_bytes(crc32fast::hash(&contents)));
        member.extend_from_slice(&super::to_le_bytes(contents.len() as u32));
        (member, contents)
    };
    // 10 bytes that are a member header, of which the buffer holds none: the reader asks for more and finds a member
    // without data.
    for left in [0, 4, 8] {
        let (member, contents) = stream(left);
        assert_eq!(read(Gzip, &member).unwrap(), contents);
        assert_refused(Gzip, &[&member[..], &hex(EXAMPLE)[..10]].concat());
    }
    // The buffer holds them all: ignored.
    let (member, contents) = stream(18);
    assert_eq!(read(Gzip, &[&member[..], &hex(EXAMPLE)[..10]].concat()).unwrap(), contents);
}

#[test]
fn foreign_payloads_are_refused() {
    // A zlib stream, the text itself, the magic alone.
    assert_refused(Gzip, &hex("78 9c cb 48 cd c9 c9 57 c8 40 27 00 6b 8b 08 9f"));
    assert_refused(Gzip, TEXT);
    assert_refused(Gzip, &[0x1f, 0x8b]);
    assert_refused(Gzip, &[0x1f]);
}

#[test]
fn a_copy_from_before_the_beginning_is_refused() {
    // Fixed codes: a match of 3 bytes at distance 1, then the end; as if 3 zeros were in front.
    let mut payload = hex(EXAMPLE)[..10].to_vec();
    payload.extend_from_slice(&[0x03, 0x02, 0x00]);
    payload.extend_from_slice(&super::to_le_bytes(crc32fast::hash(&[0; 3])));
    payload.extend_from_slice(&super::to_le_bytes(3));
    assert_refused(Gzip, &payload);
}

#[test]
fn bombs_are_refused_at_the_limit() {
    let member = write(Gzip, &vec![0; 1 << 20]);
    // 1 GiB in 1024 members, and 16 MiB in one.
    assert_bounded(Gzip, &member.repeat(1024));
    assert_bounded(Gzip, &write(Gzip, &vec![0; 16 << 20]));
}

#[test]
fn a_fault_of_a_header_is_told_with_its_place() {
    let mut method = hex(EXAMPLE);
    method[2] = 7;
    for (payload, words) in [
        (vec![0, 0], "0 of the compressed payload: magic of a member: expected [1f, 8b], found [00, 00]"),
        (vec![0x1f], "0 of the compressed payload: member header: expected 10 bytes, found 1 bytes"),
        (method, "2 of the compressed payload: compression method: expected 8, found 7"),
        (
            member(super::FLAG_EXTRA, &[3])[..11].to_vec(),
            "0 of the compressed payload: member header: expected 12 bytes, found 11 bytes",
        ),
        (
            member(super::FLAG_EXTRA, &[3, 0, 1, 2])[..14].to_vec(),
            "0 of the compressed payload: member header: expected 15 bytes, found 14 bytes",
        ),
        (
            member(super::FLAG_NAME, b"ab")[..12].to_vec(),
            "0 of the compressed payload: member header: expected 13 bytes, found 12 bytes",
        ),
        (
            member(super::FLAG_HEADER_CRC, &[1])[..11].to_vec(),
            "0 of the compressed payload: member header: expected 12 bytes, found 11 bytes",
        ),
    ] {
        assert_eq!(read(Gzip, &payload).unwrap_err().to_string(), format!("gzip at byte {words}"));
    }
    let options = [0; 2];
    let error = read(Gzip, &member(super::FLAG_HEADER_CRC, &options)).unwrap_err().to_string();
    assert!(
        error.starts_with("gzip at byte 10 of the compressed payload: checksum of the member header: "),
        "{error}"
    );
    assert!(error.contains("expected 0x0, found 0x"), "{error}");
}

#[test]
fn a_wrong_size_is_told_behind_the_checksum() {
    let mut payload = hex(EXAMPLE);
    let end = payload.len() - 4;
    payload[end] += 1;
    let words =
        format!("gzip at byte {end} of the compressed payload: size of the member: expected 24, found 23");
    assert_eq!(read(Gzip, &payload).unwrap_err().to_string(), words);
}

#[test]
fn a_run_may_end_behind_the_room_that_was_made_for_it() {
    // What is left of it comes out without a byte more being taken.
    for len in 4090..4400 {
        let run = vec![0; len];
        assert_eq!(read(Gzip, &write(Gzip, &run)).unwrap(), run);
    }
}

#[test]
fn what_does_not_shrink_is_compressed_in_pieces() {
    // Room is made for a mebibyte at a time.
    let input = noise(4 << 20);
    assert_eq!(read(Gzip, &write(Gzip, &input)).unwrap(), input);
}

#[test]
fn a_stream_that_is_cut_where_the_limit_is_reached_is_cut() {
    // A stored block that is not the last, and no other.
    let cut = [&hex(EXAMPLE)[..10], &[0, 5, 0, !5, 0xff], b"bytes"].concat();
    let mut out = Vec::new();
    let error = decompress(Gzip, Magic::V2, &cut, &mut out, 5).unwrap_err().to_string();
    let words = format!(
        "gzip at byte {} of the compressed payload: deflate stream: expected its end, found that of the payload",
        cut.len()
    );
    assert_eq!((error, &out[..]), (words, &b"bytes"[..]));
}
