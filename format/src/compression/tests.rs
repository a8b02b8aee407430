use proptest::prelude::*;

use super::*;

/// Room enough for everything that the tests decode on purpose.
const LIMIT: usize = 16 * 1024 * 1024;

/// The text of the worked examples.
pub(super) const TEXT: &[u8] = b"hello hello hello hello";

/// Puts what `input` decompresses to, at most `limit` bytes, into `out`.
pub(super) fn decompress(
    codec: Codec,
    magic: Magic,
    input: &[u8],
    out: &mut Vec<u8>,
    limit: usize,
) -> Result<(), DecodeError> {
    Stream::open(codec, magic, input, limit)?.read_all(out)
}

/// Decodes under magic 2.
pub(super) fn read(codec: Codec, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    decompress(codec, Magic::V2, payload, &mut out, LIMIT).map(|()| out)
}

/// Whether a payload is refused as one that the codec does not accept.
#[track_caller]
pub(super) fn assert_refused(codec: Codec, payload: &[u8]) {
    match read(codec, payload) {
        Err(error @ DecodeError::Codec { .. }) => {
            assert_eq!(error.kafka_name(), "KafkaException");
            let words = error.to_string();
            let place = words.find(&format!("{codec} at byte "));
            let expected = words.find(": expected ");
            let found = words.find(", found ");
            assert!(place == Some(0) && expected.is_some() && expected < found, "{words}");
        }
        other => panic!("expected the codec to refuse it, got {:?}", other.map(|out| out.len())),
    }
}

/// Encodes under magic 2 with the default level.
pub(super) fn write(codec: Codec, input: &[u8]) -> Vec<u8> {
    write_with(codec, None, Magic::V2, input)
}

pub(super) fn write_with(codec: Codec, level: Option<i32>, magic: Magic, input: &[u8]) -> Vec<u8> {
    let mut out = Output::default();
    compress(codec, level, magic, input, &mut out).unwrap();
    out.as_slice().to_vec()
}

/// Bytes written as in the specification: hexadecimal, blanks anywhere.
#[cfg(any(feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd"))]
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Bytes without a pattern, the same in every run.
pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Bytes as records have them: some repetition, some not.
fn record_like(len: usize) -> Vec<u8> {
    let noise = noise(len / 4 + 1);
    let mut bytes: Vec<u8> = noise.iter().flat_map(|byte| [b'k', b'=', *byte, b'\n']).collect();
    bytes.truncate(len);
    bytes
}

fn enabled() -> impl Iterator<Item = Codec> {
    Codec::ALL.into_iter().filter(|codec| codec.is_enabled())
}

/// Each level class of each codec.
fn levels(codec: Codec) -> &'static [Option<i32>] {
    match codec {
        Codec::None | Codec::Snappy => &[None],
        Codec::Gzip => &[None, Some(-1), Some(1), Some(6), Some(9)],
        Codec::Lz4 => &[None, Some(1), Some(9), Some(17)],
        Codec::Zstd => &[None, Some(-131_072), Some(-5), Some(0), Some(1), Some(3), Some(10)],
    }
}

/// Asserts that the payload is refused at the limit, and that memory stayed near it.
#[cfg(any(feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd"))]
#[track_caller]
pub(super) fn assert_bounded(codec: Codec, payload: &[u8]) {
    let limit = 1024 * 1024;
    let mut out = b"before".to_vec();
    let error = decompress(codec, Magic::V2, payload, &mut out, limit).unwrap_err();
    assert_eq!(error, DecodeError::TooLarge { codec, limit });
    assert!(error.to_string().contains("1048576"), "{error}");
    assert!(out.len() <= limit);
    assert!(out.capacity() <= 4 * limit, "{} bytes reserved", out.capacity());
}

#[test]
fn what_is_decoded_is_all_that_a_vector_holds_then() {
    for codec in enabled() {
        let (short, long) = (write(codec, TEXT), write(codec, &noise(200_000)));
        let mut out = Vec::new();
        for payload in [&short, &long, &short, &short] {
            decompress(codec, Magic::V2, payload, &mut out, LIMIT).unwrap();
            assert!(out == read(codec, payload).unwrap(), "{codec}");
        }
        // Nor does anything of an earlier payload stand behind what came out in front of a fault.
        decompress(codec, Magic::V2, &long, &mut out, LIMIT).unwrap();
        decompress(codec, Magic::V2, &long, &mut out, 100).unwrap_err();
        assert!(out.len() <= 100 && noise(200_000).starts_with(&out), "{codec}");
    }
}

#[test]
#[cfg(any(feature = "lz4", feature = "snappy"))]
fn room_in_a_vector_that_is_used_again_is_as_it_was() {
    let mut out = b"some bytes".to_vec();
    let mut sink = Sink { out: &mut out, len: 0, before: 0, limit: 100, step_max: usize::MAX };
    sink.copy(b"x").unwrap();
    let written = sink.fill(4, |room| {
        assert_eq!(room, [0; 4]);
        room.copy_from_slice(b"four");
        Ok::<_, Fault>(3)
    });
    assert_eq!((written.unwrap(), sink.produced()), (3, 4));
    // The byte that was not kept is still there, and stays where nothing is decoded.
    for _ in 0..2 {
        let refused = sink.fill(1, |room| if room == b"r" { Err("no") } else { Ok(1) });
        assert_eq!((refused, sink.produced()), (Err("no"), 4));
    }
    sink.trim();
    assert_eq!(out, b"xfou");
}

#[test]
fn what_is_encoded_is_appended() {
    for codec in enabled() {
        let mut out = Output::default();
        out.put(b"before");
        compress(codec, None, Magic::V2, TEXT, &mut out).unwrap();
        assert_eq!(out.as_slice(), [b"before", &write(codec, TEXT)[..]].concat(), "{codec}");
    }
}

#[test]
fn the_limit_is_met_to_the_byte() {
    for codec in enabled() {
        for len in [1, 23, 5_000, 32_768, 65_536, 200_000] {
            let input = record_like(len);
            let payload = write(codec, &input);
            // A vector with room to spare, as a reused one has, and one without.
            for capacity in [0, 1 << 20] {
                let mut out = Vec::with_capacity(capacity);
                decompress(codec, Magic::V2, &payload, &mut out, len).unwrap();
                assert_eq!(out, input, "{codec}");
                for limit in [len - 1, len / 2, 0] {
                    let mut out = Vec::with_capacity(capacity);
                    let error = decompress(codec, Magic::V2, &payload, &mut out, limit).unwrap_err();
                    assert_eq!(error, DecodeError::TooLarge { codec, limit });
                    assert!(out.len() <= limit && input.starts_with(&out), "{codec}");
                }
            }
        }
    }
}

#[test]
fn what_was_decoded_in_front_of_a_fault_is_kept() {
    let input = noise(300_000);
    for codec in enabled().filter(|codec| *codec != Codec::None) {
        let mut payload = write(codec, &input);
        payload.truncate(payload.len() / 2);
        let mut out = Vec::new();
        decompress(codec, Magic::V2, &payload, &mut out, LIMIT).unwrap_err();
        assert!(out.len() > 90_000 && input.starts_with(&out), "{codec}: {} bytes", out.len());
    }
}

#[test]
fn a_codec_whose_feature_is_off_names_the_feature() {
    for codec in Codec::ALL.into_iter().filter(|codec| !codec.is_enabled()) {
        let error = read(codec, TEXT).unwrap_err();
        assert_eq!(error, DecodeError::CodecDisabled { codec });
        assert!(error.to_string().contains(&format!("feature `{codec}`")));
        let error = compress(codec, None, Magic::V2, TEXT, &mut Output::default()).unwrap_err();
        assert_eq!(error, EncodeError::CodecDisabled { codec });
    }
}

#[test]
fn format_edge_61_an_empty_payload_is_refused_but_by_zstd() {
    for codec in enabled() {
        match codec {
            Codec::None | Codec::Zstd => assert_eq!(read(codec, b"").unwrap(), b""),
            Codec::Gzip | Codec::Snappy | Codec::Lz4 => assert_refused(codec, b""),
        }
    }
}

#[test]
fn format_edge_62_levels_out_of_range_are_refused() {
    let refused = [
        (Codec::Gzip, 0),
        (Codec::Gzip, 10),
        (Codec::Gzip, -2),
        (Codec::Lz4, 0),
        (Codec::Lz4, 18),
        (Codec::Zstd, 23),
    ];
    for (codec, level) in refused.into_iter().filter(|(codec, _)| codec.is_enabled()) {
        let mut out = Output::default();
        out.put(b"before");
        let error = compress(codec, Some(level), Magic::V2, TEXT, &mut out).unwrap_err();
        assert!(matches!(error, EncodeError::Level { codec: c, level: l, .. } if c == codec && l == level));
        assert_eq!(error.kafka_name(), "IllegalArgumentException");
        assert_eq!(out.as_slice(), b"before");
    }
}

#[test]
fn format_edge_185_all_levels_round_trip() {
    let input = b"data".repeat(256);
    for codec in enabled() {
        for level in levels(codec).iter().copied() {
            let payload = write_with(codec, level, Magic::V2, &input);
            assert_eq!(read(codec, &payload).unwrap(), input, "{codec} {level:?}");
        }
    }
    assert_eq!(write(Codec::None, &input), input);
    if Codec::Zstd.is_enabled() {
        let below = compress(Codec::Zstd, Some(-131_073), Magic::V2, &input, &mut Output::default());
        assert_eq!(below.unwrap_err().kafka_name(), "IllegalArgumentException");
    }
}

#[test]
fn an_empty_input_is_an_empty_frame() {
    for codec in enabled() {
        let payload = write(codec, b"");
        assert_eq!(payload.is_empty(), codec == Codec::None);
        assert_eq!(read(codec, &payload).unwrap(), b"", "{codec}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_codec_and_level_round_trips(
        pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..64), 1_usize..800), 0..6),
        magic in prop::sample::select(vec![Magic::V0, Magic::V1, Magic::V2]),
    ) {
        let input: Vec<u8> = pieces.iter().flat_map(|(piece, times)| piece.repeat(*times)).collect();
        for codec in enabled() {
            for level in levels(codec) {
                let payload = write_with(codec, *level, magic, &input);
                let mut out = Vec::new();
                decompress(codec, magic, &payload, &mut out, input.len()).unwrap();
                prop_assert!(out == input, "{} {:?}", codec, level);
            }
        }
    }

    #[test]
    fn damaged_payloads_neither_panic_nor_pass_the_limit(
        input in prop::collection::vec(0_u8..4, 0..2_000),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        tail in prop::collection::vec(any::<u8>(), 0..40),
        limit in 0_usize..4_000,
    ) {
        for codec in enabled() {
            let mut payload = write(codec, &input);
            for (at, byte) in changes.iter().filter(|_| !payload.is_empty()).collect::<Vec<_>>() {
                let at = at.index(payload.len());
                payload[at] = *byte;
            }
            payload.truncate(cut.index(2 * payload.len() + 1));
            payload.extend_from_slice(&tail);
            let mut out = Vec::new();
            let decoded = decompress(codec, Magic::V2, &payload, &mut out, limit);
            prop_assert!(out.len() <= limit);
            prop_assert!(out.capacity() <= 1 << 20);
            drop(decoded);
        }
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_pass_the_limit(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        begins_right in any::<bool>(),
        limit in 0_usize..4_000,
    ) {
        for codec in enabled() {
            let mut payload = if begins_right { write(codec, b"") } else { Vec::new() };
            payload.truncate(if codec == Codec::Gzip { 10 } else { 7 + payload.len() / 2 });
            payload.extend_from_slice(&bytes);
            for magic in [Magic::V0, Magic::V2] {
                let mut out = Vec::new();
                let decoded = decompress(codec, magic, &payload, &mut out, limit);
                prop_assert!(out.len() <= limit);
                prop_assert!(out.capacity() <= 1 << 20);
                drop(decoded);
            }
        }
    }
}

#[test]
#[cfg(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd"))]
fn a_refusal_says_what_was_expected_where() {
    let refused = |codec, payload: &[u8]| read(codec, payload).unwrap_err().to_string();
    let gzip = write(Codec::Gzip, TEXT);
    let end = gzip.len() - 8;
    let mut wrong = gzip.clone();
    wrong[end] ^= 1;
    let (stored, computed) = (&wrong[end..end + 4], crc32fast::hash(TEXT));
    let stored = stored.iter().rev().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
    for (words, codec, payload) in [
        (
            format!(
                "gzip at byte {end} of the compressed payload: checksum of the member: expected {stored:#x}, \
                 found {computed:#x}"
            ),
            Codec::Gzip,
            &wrong[..],
        ),
        (
            format!(
                "gzip at byte {end} of the compressed payload: member trailer: expected 8 bytes, found 3 bytes"
            ),
            Codec::Gzip,
            &gzip[..end + 3],
        ),
        (
            "gzip at byte 0 of the compressed payload: magic of a member: expected [1f, 8b], found [00, 00]"
                .to_owned(),
            Codec::Gzip,
            &[0; 30],
        ),
        (
            "snappy at byte 16 of the compressed payload: chunk length: expected 0 to 536870912, found -1"
                .to_owned(),
            Codec::Snappy,
            &hex("82 53 4e 41 50 50 59 00 00 00 00 01 00 00 00 01 ff ff ff ff"),
        ),
        (
            "lz4 at byte 6 of the compressed payload: checksum of the frame header: expected 0x83, found 0x82"
                .to_owned(),
            Codec::Lz4,
            &hex("04 22 4d 18 60 40 83"),
        ),
        (
            "lz4 at byte 11 of the compressed payload: block: expected 4 bytes, found 1 bytes".to_owned(),
            Codec::Lz4,
            &hex("04 22 4d 18 60 40 82 04 00 00 80 61"),
        ),
        (
            "zstd at byte 0 of the compressed payload: bytes of the window: expected at most 134217728, \
             found 150994944"
                .to_owned(),
            Codec::Zstd,
            &hex("28 b5 2f fd 00 89 01 00 00"),
        ),
    ] {
        assert_eq!(refused(codec, payload), words);
    }
    let error = decompress(Codec::Gzip, Magic::V2, &gzip, &mut Vec::new(), 4).unwrap_err();
    assert_eq!(error.to_string(), "gzip: decompressed records: expected at most 4 bytes, found more");
}
