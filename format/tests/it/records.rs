//! Records: which are read, and which are refused and why.

use bytes::BytesMut;
use kseg_format::{Batch, BatchOptions, Codec, RecordBatchBuilder, Timestamp};

use crate::support::{
    LIMIT, Row, around, at, build, failure, forge, hex, offsets, records, three, timestamps,
};
#[cfg(feature = "gzip")]
use crate::support::{streamed, whole};

const INVALID: &str = "InvalidRecordException";

/// Says that one record of these bytes is refused, plain and compressed.
fn refused(record: &str) {
    let record = hex(record);
    assert_eq!(failure(&around(1, 0, &record)), (0, INVALID), "{record:x?}");
    #[cfg(feature = "gzip")]
    assert_eq!(failure(&gzipped(1, &record)), (0, INVALID), "{record:x?}");
}

/// A batch around these record bytes, compressed by gzip.
#[cfg(feature = "gzip")]
pub(crate) fn gzipped(count: i32, records: &[u8]) -> Vec<u8> {
    let payload = gzip(records);
    forge(&around(count, count - 1, &payload), |bytes| bytes[22] = 1)
}

#[cfg(feature = "gzip")]
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn format_edge_23_a_length_beyond_the_record_is_refused() {
    // Key, value, header key and header value of 105 bytes in records of a few.
    refused("10 00 00 00 d2 01 61 00 00");
    refused("10 00 00 00 02 61 d2 01 00");
    refused("14 00 00 00 02 61 00 02 d2 01 00");
    refused("16 00 00 00 02 61 00 02 02 68 d2 01");
}

#[test]
fn format_edge_24_and_26_a_wrong_headers_count_is_refused() {
    refused("0e 00 00 00 02 61 00 01");
    refused("0e 00 00 00 02 61 00 c8 01");
    let three_headers = "68 02 78 02 68 02 78 02 68 02 78";
    assert!(records(&around(1, 0, &hex(&format!("26 00 00 00 02 61 00 06 02 {three_headers}")))).is_ok());
    refused(&format!("26 00 00 00 02 61 00 08 02 {three_headers}"));
    refused(&format!("26 00 00 00 02 61 00 04 02 {three_headers}"));
}

#[test]
fn format_edge_25_a_header_key_is_not_null_but_a_value_may_be() {
    refused("14 00 00 00 02 61 00 02 01 02 61");
    let batch = around(1, 0, &hex("14 00 00 00 02 61 00 02 02 68 01"));
    assert_eq!(records(&batch).unwrap()[0].headers, [(b"h".to_vec(), None)]);
}

#[test]
fn format_edge_27_28_and_29_cut_records_are_refused() {
    refused("02 00");
    refused("04 00 80");
    refused("1e 00 80 80 80 80 80 80 80 80 80 80 00 01 01 00");
    refused("14 00");
    refused("01");
    refused("ff ff ff ff ff");
    refused("80");
}

#[test]
fn format_edge_30_and_31_what_looks_odd_is_read() {
    // Attributes ff, offset delta -1, key length -2.
    let batch = forge(&around(1, 0, &hex("0c ff 00 01 03 01 00")), |bytes| bytes[7] = 9);
    let record = &records(&batch).unwrap()[0];
    assert_eq!((record.offset, &record.key, &record.value), (8, &None, &None));
    // A length of five bytes where one would do.
    let batch = around(1, 0, &hex("8c 80 80 80 00 00 00 00 01 01 00"));
    assert_eq!(records(&batch).unwrap()[0].size, 11);
}

#[test]
fn format_edge_32_a_body_longer_than_its_fields_is_refused() {
    refused("0e 00 00 00 01 01 00 00");
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_33_and_136_a_compressed_record_of_wrong_length_is_refused() {
    assert!(records(&gzipped(1, &hex("0c 00 00 00 01 01 00"))).is_ok());
    for length in ["08", "01", "14"] {
        let bytes = hex(&format!("{length} 00 00 00 01 01 00"));
        assert_eq!(failure(&gzipped(1, &bytes)), (0, INVALID));
    }
}

#[test]
fn format_edge_34_without_a_base_sequence_records_have_none() {
    assert!(records(&three(at(0))).unwrap().iter().all(|record| record.sequence.is_none()));
}

#[test]
fn format_edge_35_null_and_empty_are_kept_apart() {
    let matrix: [(Row<'_>, usize); 4] = [
        ((0, Some(b"a"), Some(b"1")), 9),
        ((0, Some(b"b"), None), 8),
        ((0, None, Some(b"3")), 8),
        ((0, None, None), 7),
    ];
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let options = BatchOptions { codec, ..BatchOptions::default() };
        let out = build(options, &matrix.map(|(row, _)| row));
        for (record, ((_, key, value), size)) in records(&out).unwrap().iter().zip(matrix) {
            assert_eq!((record.key.as_deref(), record.value.as_deref(), record.size), (key, value, size));
        }
        let empty: &[u8] = b"";
        let out =
            build(options, &[(0, Some(empty), Some(empty)), (0, None, Some(empty)), (0, Some(empty), None)]);
        let read = records(&out).unwrap();
        assert_eq!((read[0].key.as_deref(), read[0].value.as_deref()), (Some(empty), Some(empty)));
        assert_eq!((read[1].key.as_deref(), read[1].value.as_deref()), (None, Some(empty)));
        assert_eq!((read[2].key.as_deref(), read[2].value.as_deref()), (Some(empty), None));
    }
}

#[test]
fn format_edge_137_timestamps_may_go_back_or_be_missing() {
    const T: i64 = 1_700_000_000_000;
    for (times, base) in [(&[T, T - 5, -1][..], Some(T)), (&[-1, T], None)] {
        let records: Vec<_> = times.iter().map(|time| (*time, None, Some(&b"v"[..]))).collect();
        let out = build(BatchOptions::default(), &records);
        let batch = Batch::parse(&out).unwrap();
        assert_eq!(batch.base_timestamp(), base.map(Timestamp::new));
        assert_eq!(batch.max_timestamp(), Some(Timestamp::new(T)));
        let expected: Vec<_> = times.iter().map(|time| Some(*time).filter(|time| *time != -1)).collect();
        assert_eq!(timestamps(&out), expected);
    }
}

#[test]
fn format_edge_138_headers_keep_their_order_and_their_duplicates() {
    let headers: [(&[u8], Option<&[u8]>); 5] =
        [(b"a", Some(b"1")), (b"a", Some(b"2")), (b"", None), ("é".as_bytes(), Some(b"")), (b"\xff", None)];
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    builder.append(None, None, None, &headers).unwrap();
    let mut out = BytesMut::new();
    builder.finish(&mut out).unwrap();
    let mut scratch = Vec::new();
    let record = Batch::parse(&out).unwrap().records(&mut scratch, LIMIT).unwrap().next().unwrap().unwrap();
    assert_eq!(record.header_count(), 5);
    let read: Vec<_> = record.headers().collect();
    assert_eq!(read.iter().map(|header| (header.key, header.value)).collect::<Vec<_>>(), headers);
    let names: Vec<_> = read.iter().map(|header| header.key_lossy()).collect();
    assert_eq!(names, ["a", "a", "", "é", "\u{fffd}"]);
}

#[test]
fn format_edge_157_sequences_of_damaged_batches() {
    let with = |sequence: i32, last_delta: i32, record: &str| {
        forge(&around(1, last_delta, &hex(record)), |bytes| {
            bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
        })
    };
    let minus_one = "0c 00 00 01 01 01 00";
    let last = |bytes: &[u8]| Batch::parse(bytes).unwrap().last_sequence().unwrap().get();
    let batch = with(0, -1, minus_one);
    assert_eq!((last(&batch), records(&batch).unwrap()[0].sequence), (i32::MAX, Some(i32::MAX)));
    let batch = with(i32::MAX, -1, minus_one);
    assert_eq!((last(&batch), records(&batch).unwrap()[0].sequence), (-2, Some(-2)));
    let batch = with(-2, 3, "0c 00 00 00 01 01 00");
    assert_eq!((last(&batch), records(&batch).unwrap()[0].sequence), (1, None));
}

#[test]
fn format_edge_159_counts_that_nothing_backs_reserve_nothing() {
    for count in [1_000_000i32, 1 << 30, i32::MAX] {
        for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
            let batch = build(BatchOptions { codec, ..BatchOptions::default() }, &[(0, None, None)]);
            let batch = forge(&batch, |bytes| bytes[57..61].copy_from_slice(&count.to_be_bytes()));
            assert_eq!(failure(&batch), (1, INVALID));
        }
    }
    // Without records the payload is not looked at, but the codec must exist.
    for codec in 0..5 {
        let batch = forge(&around(0, 0, b"foreign"), |bytes| bytes[22] = codec);
        assert_eq!(records(&batch), Ok(vec![]));
    }
    let batch = forge(&around(0, 0, b""), |bytes| bytes[22] = 5);
    assert_eq!(failure(&batch), (0, "IllegalArgumentException"));
}

#[test]
fn format_edge_61_an_empty_payload_holds_no_record() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let bytes = forge(&around(1, 0, &[]), |bytes| bytes[22] = codec.id());
        let refused = match codec {
            // Nothing compressed is nothing, which ends too early.
            Codec::None | Codec::Zstd => INVALID,
            Codec::Gzip | Codec::Snappy | Codec::Lz4 => "KafkaException",
        };
        assert_eq!(failure(&bytes), (0, refused), "{codec}");
    }
}

#[test]
fn format_edge_19_and_20_counts() {
    assert_eq!(records(&around(0, 2, &[1, 2, 3])), Ok(vec![]));
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let batch = three(BatchOptions { codec, ..BatchOptions::default() });
        for count in [5u8, 2] {
            let batch = forge(&batch, |bytes| bytes[60] = count);
            assert_eq!(failure(&batch).1, INVALID);
        }
    }
}

#[test]
fn whole_records_behind_the_last_one_are_refused() {
    let value = [7; 100];
    let three = build(BatchOptions::default(), &[(1, None, Some(&value[..])); 3]);
    let one = forge(&three, |bytes| bytes[57..61].copy_from_slice(&1i32.to_be_bytes()));
    assert_eq!(failure(&one), (1, INVALID));
    #[cfg(feature = "gzip")]
    {
        assert_eq!(failure(&gzipped(1, &three[61..])), (1, INVALID));
        // They are met before the payload's end, where the checksum is cut.
        let cut = |count: i32| {
            let payload = gzip(&three[61..]);
            let payload = &payload[..payload.len() - 6];
            forge(&around(count, count - 1, payload), |bytes| bytes[22] = 1)
        };
        let error = Batch::parse(&cut(1)).unwrap().records(&mut Vec::new(), LIMIT).unwrap_err();
        assert_eq!(
            error.to_string(),
            "end of the records at byte 109 of the decompressed records: expected 0 bytes, found 218 bytes"
        );
        assert_eq!(failure(&cut(3)), (0, "KafkaException"));
    }
}

#[test]
fn a_payload_is_opened_before_a_negative_count_is_refused_but_not_zstd() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled() && *codec != Codec::None) {
        let broken = forge(&around(-1, 0, b"nothing of a codec"), |bytes| bytes[22] = codec.id());
        let options = BatchOptions { codec, ..BatchOptions::default() };
        // Cut, which shows only behind the beginning.
        let whole = build(options, &[(1, None, Some(&[7; 100][..]))]);
        let begun = forge(&around(-1, 0, &whole[61..whole.len() - 5]), |bytes| bytes[22] = codec.id());
        // Without its header a snappy payload is one block.
        let opened = matches!(codec, Codec::Zstd | Codec::Snappy);
        for (bytes, name) in [(broken, if opened { INVALID } else { "KafkaException" }), (begun, INVALID)] {
            let batch = Batch::parse(&bytes).unwrap();
            let error = batch.stream_records(LIMIT).unwrap_err();
            assert_eq!((failure(&bytes), error.kafka_name()), ((0, name), name), "{codec}");
            if name == INVALID {
                assert_eq!(
                    error.to_string(),
                    "records count at byte 57 of the batch: expected at least 0, found -1"
                );
            }
        }
    }
}

#[test]
#[cfg(feature = "gzip")]
fn a_fault_far_inside_has_the_same_place_in_a_stream() {
    let value = [7; 100_000];
    let three = build(BatchOptions::default(), &[(1, None, Some(&value[..])); 3]);
    let (payload, size) = (&three[61..], (three.len() - 61) / 3);
    let second = |at: usize, byte: u8| {
        let mut payload = payload.to_vec();
        payload[size + at] = byte;
        gzipped(3, &payload)
    };
    // A header that is not there, and a record too many.
    for (bytes, rows, at) in [(second(size - 1, 2), 1, 2 * size - 1), (gzipped(2, payload), 2, 2 * size)] {
        let batch = Batch::parse(&bytes).unwrap();
        let place = format!(" at byte {at} of the decompressed records: ");
        let (all, error) = whole(&batch, LIMIT);
        assert_eq!((all.len(), error.unwrap().to_string().contains(&place)), (rows, true));
        let (streamed, error) = streamed(&batch, LIMIT);
        assert_eq!((streamed, error.unwrap().to_string().contains(&place)), (all, true));
    }
}

#[test]
fn records_end_after_an_error() {
    let batch = forge(&three(at(0)), |bytes| bytes[61] = 0x7e);
    let mut scratch = Vec::new();
    let mut read = Batch::parse(&batch).unwrap().records(&mut scratch, LIMIT).unwrap();
    assert!(read.next().unwrap().is_err());
    assert!(read.next().is_none());
    assert!(read.next().is_none());
}

#[test]
fn uncompressed_records_leave_the_scratch_buffer_alone() {
    let batch = three(at(7));
    let mut scratch = b"kept".to_vec();
    let read = Batch::parse(&batch).unwrap().records(&mut scratch, 0).unwrap().count();
    assert_eq!((read, &scratch[..]), (3, &b"kept"[..]));
    assert_eq!(offsets(&batch), [7, 8, 9]);
}

#[test]
#[cfg(feature = "zstd")]
fn a_batch_larger_than_the_limit_is_refused() {
    let value = vec![b'a'; 1 << 20];
    let options = BatchOptions { codec: Codec::Zstd, ..BatchOptions::default() };
    let batch = build(options, &[(0, None, Some(&value))]);
    let mut scratch = Vec::new();
    let error = Batch::parse(&batch).unwrap().records(&mut scratch, 1 << 20).unwrap_err();
    assert_eq!(error.to_string(), "zstd: decompressed records: expected at most 1048576 bytes, found more");
    assert!(Batch::parse(&batch).unwrap().records(&mut scratch, (1 << 20) + 16).is_ok());
}

#[test]
fn format_edge_173_the_sizes_of_compressed_records() {
    let large = vec![b'v'; 200 * 1024];
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"k1", Some(b"v1")), (b"k2", None)];
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
        for (offset, timestamp, value, headers) in [
            (0, 0, None, &headers[..0]),
            (4, 1000, Some(&large[..]), &headers[..0]),
            (5, 9999, Some(&b"v"[..]), &headers[..]),
        ] {
            let offset = kseg_format::Offset::new(offset);
            let timestamp = Some(Timestamp::new(timestamp));
            builder.append_at(offset, timestamp, Some(b"key"), value, headers).unwrap();
        }
        let mut out = BytesMut::new();
        builder.finish(&mut out).unwrap();
        let read = records(&out).unwrap();
        assert_eq!(read[1].size, 15 + 204_800);
        assert_eq!((read[2].size, read[2].headers.len()), (23, 2));
        assert_eq!(read[2].headers[1], (b"k2".to_vec(), None));
    }
}
