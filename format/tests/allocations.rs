//! What allocates and what does not, counted by an allocator that counts.

use std::hint::black_box;

use allocation_counter::measure;
use bytes::BytesMut;
use kseg_format::legacy::{LegacyOptions, LegacyRecord, encode};
use kseg_format::{
    Batch, BatchOptions, Batches, Codec, LeaderRules, Magic, Offset, OwnedRecord, RecordBatchBuilder,
    Timestamp, assign_offsets, frame,
};

const HEADERS: &[(&[u8], Option<&[u8]>)] = &[(b"name", Some(b"value")), (b"null", None)];

fn fill(builder: &mut RecordBatchBuilder, count: i64) {
    for i in 0..count {
        let headers = if i % 2 == 0 { HEADERS } else { &[] };
        let time = Some(Timestamp::new(1_700_000_000_000 + i));
        builder.append(time, Some(b"key"), Some(&[b'v'; 300]), headers).unwrap();
    }
}

/// Three batches behind each other.
fn batches() -> BytesMut {
    let mut out = BytesMut::new();
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    for base in [0, 50, 100] {
        builder.options_mut().base_offset = Offset::new(base);
        fill(&mut builder, 50);
        builder.finish(&mut out).unwrap();
    }
    out
}

/// How often the work allocates.
#[track_caller]
fn allocations(work: impl FnOnce()) -> u64 {
    measure(work).count_total
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(black_box(Box::new(7)))), 1);
}

#[test]
fn walking_and_checking_allocate_nothing() {
    let bytes = batches();
    let mut found = 0;
    let count = allocations(|| {
        for batch in Batches::new(&bytes) {
            let checked = batch.unwrap().verify().unwrap();
            found += checked.records_count().unwrap();
        }
        assert!(frame(&bytes, bytes.len() as u64).is_ok());
    });
    assert_eq!((count, found), (0, 150));
}

#[test]
fn a_batch_is_checked_without_a_look_at_its_records() {
    let mut bytes = batches();
    let size = Batch::parse(&bytes).unwrap().size();
    // Records that are none, under a right checksum.
    bytes.truncate(size);
    bytes[61..].fill(0xff);
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    let mut scratch = Vec::new();
    let count = allocations(|| {
        let checked = Batch::parse(&bytes).unwrap().verify().unwrap();
        assert_eq!(checked.records_count(), Some(50));
    });
    assert_eq!(count, 0);
    let first = Batch::parse(&bytes).unwrap().records(&mut scratch, 0).unwrap().next();
    assert!(first.unwrap().is_err());
}

#[test]
fn records_and_headers_of_an_uncompressed_batch_allocate_nothing() {
    let bytes = batches();
    let (mut records, mut headers, mut len) = (0, 0, 0);
    let count = allocations(|| {
        let mut scratch = Vec::new();
        for batch in Batches::new(&bytes) {
            for record in batch.unwrap().records(&mut scratch, usize::MAX).unwrap() {
                let record = record.unwrap();
                records += 1;
                len += record.value().map_or(0, <[u8]>::len);
                headers += record.headers().filter(|header| !header.key.is_empty()).count();
            }
        }
        assert_eq!(scratch.capacity(), 0);
    });
    assert_eq!((count, records, headers, len), (0, 150, 150, 150 * 300));
}

#[test]
fn headers_are_decoded_as_they_are_asked_for() {
    let bytes = batches();
    let mut scratch = Vec::new();
    let record = Batch::parse(&bytes).unwrap().records(&mut scratch, 0).unwrap().next().unwrap().unwrap();
    let mut headers = record.headers();
    assert_eq!(headers.len(), 2);
    assert_eq!(headers.next().unwrap().key, b"name");
    assert_eq!(headers.len(), 1);
}

#[test]
fn a_builder_allocates_its_buffer_once() {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    assert_eq!(allocations(|| drop(black_box(RecordBatchBuilder::new(BatchOptions::default())))), 0);
    let first = measure(|| {
        fill(&mut builder, 50);
        assert!(builder.build().unwrap().is_some());
    });
    // The buffer is the only thing, and grows to it by doubling.
    assert_eq!(first.count_current, 1);
    assert!(first.count_total <= 4, "{first:?}");
    for _ in 0..3 {
        let again = allocations(|| {
            fill(&mut builder, 50);
            assert!(builder.build().unwrap().is_some());
        });
        assert_eq!(again, 0);
    }
}

#[test]
fn records_with_headers_are_taken_over_without_allocating() {
    let bytes = batches();
    let mut scratch = Vec::new();
    let first = Batch::parse(&bytes).unwrap();
    let owned: Vec<OwnedRecord> =
        first.records(&mut scratch, 0).unwrap().map(|record| OwnedRecord::from(record.unwrap())).collect();
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    fill(&mut builder, 50);
    builder.clear();
    let mut scratch = Vec::new();
    let count = allocations(|| {
        for record in first.records(&mut scratch, 0).unwrap() {
            let record = record.unwrap();
            builder.append_record(record.offset(), &record).unwrap();
        }
        assert_eq!(builder.build().unwrap().unwrap(), first.as_bytes());
        for record in &owned {
            builder.append_owned(record).unwrap();
        }
        assert_eq!(builder.build().unwrap().unwrap(), first.as_bytes());
    });
    assert_eq!(count, 0);
}

#[test]
fn a_batch_copied_to_a_buffer_with_room_allocates_nothing() {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    fill(&mut builder, 50);
    let mut out = BytesMut::new();
    let size = builder.finish(&mut out).unwrap().unwrap();
    out.clear();
    out.reserve(size);
    let count = allocations(|| {
        fill(&mut builder, 50);
        assert_eq!(builder.finish(&mut out).unwrap(), Some(size));
    });
    assert_eq!(count, 0);
}

#[test]
fn scratch_is_used_again_for_compressed_batches() {
    for codec in [Codec::Snappy, Codec::Lz4].into_iter().filter(|codec| codec.is_enabled()) {
        let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
        fill(&mut builder, 50);
        let bytes = builder.build().unwrap().unwrap().to_vec();
        let mut scratch = Vec::new();
        let mut pass = || {
            allocations(|| {
                let batch = Batch::parse(&bytes).unwrap();
                assert_eq!(batch.records(&mut scratch, usize::MAX).unwrap().count(), 50);
            })
        };
        assert!(pass() > 0);
        assert_eq!(pass(), 0, "{codec}");
    }
}

/// The most bytes that were held at a time while a stream read so many records, with offsets from `first` on and values of `len`
/// bytes.
#[track_caller]
fn held(batch: &[u8], first: i64, count: usize, len: usize) -> u64 {
    let batch = Batch::parse(batch).unwrap();
    let info = measure(|| {
        let mut stream = batch.stream_records(1 << 30).unwrap();
        for offset in (first..).take(count) {
            let record = stream.next().unwrap().unwrap();
            assert_eq!((record.offset().get(), record.value().unwrap().len()), (offset, len));
        }
        assert!(stream.next().is_none());
    });
    info.bytes_max
}

#[test]
fn a_stream_holds_a_piece_of_a_compressed_batch_at_a_time() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled() && *codec != Codec::None) {
        let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
        // The smaller one fits the window of a zstd frame.
        for count in [200u32, 2_000] {
            for i in 0..count {
                builder.append(None, None, Some(&[i.to_be_bytes(); 2_000].concat()), &[]).unwrap();
            }
            let held = held(builder.build().unwrap().unwrap(), 0, count as usize, 8_000);
            assert!(held < 512 * 1024, "{codec}: {held} bytes");
        }
    }
}

/// A wrapper around messages with values of 8000 bytes.
fn wrapper(magic: Magic, codec: Codec, count: i64) -> BytesMut {
    let record = |offset| LegacyRecord { offset, timestamp: None, key: None, value: Some(&[7; 8_000]) };
    let records: Vec<_> = (50..50 + count).map(Offset::new).map(record).collect();
    let base_offset = Offset::new(50);
    let mut out = BytesMut::new();
    encode(&LegacyOptions { magic, codec, base_offset, ..LegacyOptions::default() }, &records, &mut out)
        .unwrap();
    out
}

#[test]
fn a_stream_holds_a_window_of_a_legacy_wrapper() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4].into_iter().filter(|codec| codec.is_enabled()) {
        for magic in [Magic::V0, Magic::V1] {
            let large = held(&wrapper(magic, codec, 500), 50, 500, 8_000);
            assert!(large < 2 << 20, "{codec}: {large} bytes of 4 MB");
            // One that fits the window is kept for the second look.
            assert!(held(&wrapper(magic, codec, 60), 50, 60, 8_000) < 2 << 20);
        }
    }
}

#[test]
#[cfg(feature = "gzip")]
fn a_size_that_is_only_declared_in_a_legacy_wrapper_is_not_held() {
    // The second message is to have 2 GiB, and 16 MiB of it are there: it is cut.
    let mut inner = message(0, &[7; 8_000]);
    inner.extend(1i64.to_be_bytes());
    inner.extend(i32::MAX.to_be_bytes());
    inner.resize(16 << 20, 0);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &inner).unwrap();
    let mut bytes = message(7, &encoder.finish().unwrap());
    bytes[17] = 1;
    let held = held(&bytes, 7, 1, 8_000);
    assert!(held < 2 << 20, "{held} bytes of 16 MiB");
}

/// A message of magic 1 without a key; its checksum is not looked at.
#[cfg(feature = "gzip")]
fn message(offset: i64, value: &[u8]) -> Vec<u8> {
    let mut bytes = offset.to_be_bytes().to_vec();
    bytes.extend((22 + value.len() as i32).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 1, 0]);
    bytes.extend([0xff; 12]);
    bytes.extend((value.len() as i32).to_be_bytes());
    bytes.extend(value);
    bytes
}

#[test]
fn a_leader_holds_a_piece_of_a_compressed_batch_at_a_time() {
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled() && *codec != Codec::None) {
        let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
        for i in 0..8_000 {
            builder.append(Some(Timestamp::new(i)), None, Some(&[7; 1000]), &[]).unwrap();
        }
        let mut batch = BytesMut::new();
        builder.finish(&mut batch).unwrap();
        let rules = LeaderRules { timestamp_after_max_ms: i64::MAX, ..LeaderRules::default() };
        let held = measure(|| {
            let assigned = assign_offsets(&mut batch, Offset::new(9), codec, &rules).unwrap();
            assert_eq!((assigned.next_offset, assigned.record_count), (Offset::new(8_009), 8_000));
        });
        // A piece of 64 KiB, what a codec keeps for itself, and none of the other 8 MB.
        assert!(held.bytes_max < 512 * 1024, "{codec}: {} bytes", held.bytes_max);
    }
}

#[test]
fn what_is_wrong_with_a_record_is_told_without_an_allocation_of_its_own() {
    const COUNT: u64 = 10_000;
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
        for i in 0..COUNT {
            builder.append(Some(Timestamp::new(i as i64)), None, None, &[]).unwrap();
        }
        let mut batch = BytesMut::new();
        builder.finish(&mut batch).unwrap();
        let rules =
            LeaderRules { now: Timestamp::new(-1), timestamp_after_max_ms: 0, ..LeaderRules::default() };
        let mut told = 0;
        let counted = measure(|| {
            let error = assign_offsets(&mut batch, Offset::ZERO, codec, &rules).unwrap_err();
            told = error.record_faults().len() as u64;
        });
        assert_eq!(told, COUNT);
        // A list that grows by doubling, of 40 bytes each, and what a codec keeps for itself.
        assert!(counted.count_total < 64, "{codec}: {} allocations", counted.count_total);
        assert!(counted.bytes_max < 100 * COUNT + 512 * 1024, "{codec}: {} bytes", counted.bytes_max);
    }
}
