//! What holds for any bytes.

use bytes::BytesMut;
use kseg_format::{
    Batch, BatchFate, BatchFilter, BatchHeader, BatchOptions, Batches, Codec, ControlKey, ControlType,
    EndTransactionMarker, FilterOptions, LeaderEpoch, LeaderRules, Offset, Origin, Record,
    RecordBatchBuilder, Retention, ScanRules, Timestamp, TimestampType, assign_offsets, frame, kraft,
    scan_append,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::describe::describe;
use crate::support::{build, forge, records};

/// The most that any payload of these tests may decompress to; gzip and zstd could make far more of a few bytes.
const SMALL: usize = 1 << 16;

type Row = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let bytes = || option::of(vec(any::<u8>(), 0..40));
    let headers = vec((vec(any::<u8>(), 0..8), bytes()), 0..3);
    vec((-1i64..i64::MAX, bytes(), bytes(), headers), 1..12)
}

fn codec() -> impl Strategy<Value = Codec> {
    let enabled: Vec<Codec> = Codec::ALL.into_iter().filter(|codec| codec.is_enabled()).collect();
    proptest::sample::select(enabled)
}

fn batch(rows: &[Row], options: BatchOptions) -> BytesMut {
    let mut builder = RecordBatchBuilder::new(options);
    for (timestamp, key, value, headers) in rows {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            headers.iter().map(|(name, value)| (&name[..], value.as_deref())).collect();
        builder.append(Timestamp::from_raw(*timestamp), key.as_deref(), value.as_deref(), &headers).unwrap();
    }
    let mut out = BytesMut::new();
    builder.finish(&mut out).unwrap();
    out
}

/// Keeps every other record, and the headers of emptied batches.
struct EveryOther;

impl Retention for EveryOther {
    fn batch(&mut self, batch: &Batch<'_>) -> BatchFate {
        if batch.magic().is_legacy() { BatchFate::DeleteEmpty } else { BatchFate::RetainEmpty }
    }

    fn record(&mut self, _: &Batch<'_>, record: &Record<'_>) -> bool {
        record.offset().get() % 2 == 0
    }
}

/// Does with the bytes all that can be done.
fn read_everything(bytes: &[u8]) {
    for origin in [Origin::Client, Origin::Replication] {
        let rules = ScanRules { origin, leader_epoch: LeaderEpoch::new(i32::MAX), batch_size_max: 1 << 20 };
        if let Ok(Some(scanned)) = scan_append(bytes, &rules) {
            assert!(scanned.valid_bytes <= bytes.len());
        }
    }
    let options = FilterOptions { decompressed_limit: SMALL, ..FilterOptions::default() };
    let mut filtered = BytesMut::new();
    if let Ok(told) = BatchFilter::new(options).run(bytes, &mut EveryOther, &mut filtered) {
        assert!(told.records_retained <= told.records_read && told.bytes_retained == filtered.len());
        for batch in Batches::new(&filtered) {
            assert!(batch.is_ok(), "{batch:?}");
        }
    }
    let _ = describe(bytes);
    let _ = BatchHeader::read(bytes);
    let _ = frame(bytes, bytes.len() as u64);
    let mut scratch = Vec::new();
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else { break };
        let _ = batch.base_offset_deep(&mut scratch, SMALL);
        // What is kept is at most what was allowed, or what the input holds and a little more.
        assert!(scratch.len() <= SMALL);
        // Decompressed piece by piece it is the same records, or an error as well.
        let whole: Result<Vec<Offset>, _> = batch
            .records(&mut scratch, SMALL)
            .and_then(|records| records.map(|r| r.map(|r| r.offset())).collect());
        let streamed = batch.stream_records(SMALL).and_then(|mut stream| {
            let mut offsets: Vec<Offset> = Vec::new();
            while let Some(record) = stream.next() {
                offsets.push(record?.offset());
            }
            Ok(offsets)
        });
        match (whole, streamed) {
            (Ok(whole), Ok(streamed)) => assert_eq!(whole, streamed),
            (whole, streamed) => assert!(whole.is_err() && streamed.is_err(), "{whole:?} {streamed:?}"),
        }
        if let Ok(records) = batch.records(&mut scratch, SMALL) {
            for record in records.flatten() {
                let _ = record.headers().count();
                let _ = ControlKey::parse(record.key().unwrap_or_default());
                let _ = EndTransactionMarker::parse(record.key(), record.value());
            }
        }
        assert!(scratch.capacity() <= 4 * SMALL);
    }
    for origin in [Origin::Client, Origin::Coordinator] {
        for target_codec in [None, Some(Codec::None)] {
            let rules =
                LeaderRules { origin, target_codec, decompressed_limit: SMALL, ..LeaderRules::default() };
            for source in [Codec::None, Codec::Gzip] {
                let _ = assign_offsets(&mut BytesMut::from(bytes), Offset::ZERO, source, &rules);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        read_everything(&bytes);
    }

    #[test]
    fn arbitrary_fields_under_a_right_checksum_are_read_or_refused(
        payload in vec(any::<u8>(), 0..80),
        count in prop_oneof![0i32..6, any::<i32>()],
        fields in any::<[u8; 36]>(),
        attributes in any::<u8>(),
    ) {
        let bytes = forge(&build(BatchOptions::default(), &[(0, None, None)]), |bytes| {
            bytes.truncate(61);
            bytes.extend_from_slice(&payload);
            bytes[21..57].copy_from_slice(&fields);
            bytes[22] = attributes;
            bytes[57..61].copy_from_slice(&count.to_be_bytes());
        });
        read_everything(&bytes);
    }

    #[test]
    fn an_old_message_of_arbitrary_bytes_is_read_or_refused(
        mut bytes in vec(any::<u8>(), 26..120),
        magic in 0u8..2,
        codec in 0u8..8,
    ) {
        let size = bytes.len() as i32 - 12;
        bytes[8..12].copy_from_slice(&size.to_be_bytes());
        (bytes[16], bytes[17]) = (magic, codec);
        let crc = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_be_bytes());
        read_everything(&bytes);
    }

    #[test]
    fn a_damaged_batch_is_read_or_refused(
        rows in rows(),
        codec in codec(),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let bytes = batch(&rows, BatchOptions { codec, ..BatchOptions::default() });
        let bytes = forge(&bytes, |bytes| {
            let at = 21 + at.index(bytes.len() - 21);
            bytes[at] = byte;
        });
        read_everything(&bytes);
    }

    #[test]
    fn a_flipped_bit_behind_the_magic_breaks_the_checksum(
        rows in rows(),
        codec in codec(),
        at in any::<proptest::sample::Index>(),
        bit in 0u32..8,
    ) {
        let mut bytes = batch(&rows, BatchOptions { codec, ..BatchOptions::default() });
        prop_assert!(Batch::parse(&bytes).unwrap().verify().is_ok());
        let at = 17 + at.index(bytes.len() - 17);
        bytes[at] ^= 1u8 << bit;
        prop_assert!(Batch::parse(&bytes).unwrap().verify().is_err());
    }

    #[test]
    fn what_is_built_is_read(
        rows in rows(),
        codec in codec(),
        base in 0..i64::MAX - 100,
        append_time in option::of(0..i64::MAX),
    ) {
        let bytes = batch(&rows, BatchOptions {
            codec,
            base_offset: Offset::new(base),
            timestamp_type: append_time.map_or(TimestampType::CreateTime, |_| TimestampType::LogAppendTime),
            log_append_time: append_time.map(Timestamp::new),
            ..BatchOptions::default()
        });
        let read = records(&bytes).unwrap();
        prop_assert_eq!(read.len(), rows.len());
        let mut size = 61;
        for ((offset, record), (timestamp, key, value, headers)) in (base..).zip(&read).zip(rows) {
            prop_assert_eq!(record.offset, offset);
            prop_assert_eq!(record.timestamp, append_time.or(Some(timestamp).filter(|time| *time != -1)));
            prop_assert_eq!(&record.key, &key);
            prop_assert_eq!(&record.value, &value);
            prop_assert_eq!(&record.headers, &headers);
            size += record.size;
        }
        if codec == Codec::None {
            prop_assert_eq!(size, bytes.len());
        }
        prop_assert_eq!(Batch::parse(&bytes).unwrap().last_offset().get(), base + read.len() as i64 - 1);
    }

    #[test]
    fn what_a_leader_stores_has_the_same_records(rows in rows(), source in codec(), target in codec()) {
        let mut bytes = batch(&rows, BatchOptions { codec: source, ..BatchOptions::default() });
        let before = records(&bytes).unwrap();
        let rules = LeaderRules {
            target_codec: Some(target),
            timestamp_after_max_ms: i64::MAX,
            ..LeaderRules::default()
        };
        let assigned = assign_offsets(&mut bytes, Offset::new(77), source, &rules).unwrap();
        prop_assert_eq!(assigned.next_offset, Offset::new(77 + rows.len() as i64));
        prop_assert!(Batch::parse(&bytes).unwrap().verify().is_ok());
        let mut after = records(&bytes).unwrap();
        after.iter_mut().for_each(|record| record.offset -= 77);
        prop_assert_eq!(before, after);
    }

    #[test]
    fn control_values_of_arbitrary_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..60), kind in 0i16..8) {
        if let Ok(message) = kraft::Message::parse(ControlType::from_raw(kind), &bytes) {
            let again = message.encode_value();
            prop_assert_eq!(kraft::Message::parse(message.kind(), &again), Ok(message));
        }
    }
}
