//! What is done with arbitrary bytes: the bodies of the fuzz targets and of the property tests.
//!
//! Nothing may panic, keep more memory than allowed, or read otherwise than it would be read another way.

use bytes::BytesMut;
use kseg_format::{
    AbortedTransaction, BATCH_OVERHEAD, Batch, BatchFate, BatchFilter, BatchHeader, BatchMut, BatchOptions,
    Batches, CleanShutdown, Codec, ControlKey, EndTransactionMarker, FilterOptions, Framed, LeaderEpoch,
    LeaderRules, MetaProperties, Offset, Origin, PartitionMetadata, Record, RecordBatchBuilder, Retention,
    ScanRules, assign_offsets, decode_snapshot, encode_snapshot, frame, parse_epochs, parse_offsets,
    print_epochs, print_offsets, scan_append,
};

/// The most that any payload may decompress to; gzip and zstd could make far more of a few bytes.
const SMALL: usize = 1 << 16;

/// Walks the bytes as a buffer in memory and as a file; both see the same batches, as far as both go.
pub(crate) fn walk(bytes: &[u8]) {
    let _ = BatchHeader::read(bytes);
    let mut at = 0;
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else { break };
        let rest = &bytes[at..];
        match frame(rest, rest.len() as u64) {
            Ok(Framed::Whole { size, magic }) => assert_eq!((size, magic), (batch.size(), batch.magic())),
            other => assert!(batch.size() < 18, "{other:?} in place of a batch of {} bytes", batch.size()),
        }
        assert_eq!(Batch::parse(rest).as_ref(), Ok(&batch));
        assert_eq!(BatchHeader::read(rest).as_ref(), Ok(batch.header()));
        at += batch.size();
    }
    let _ = frame(bytes, bytes.len() as u64);
}

/// Reads every record of every batch, whole and as a stream, and validates the bytes as a leader would.
pub(crate) fn decode(bytes: &[u8]) {
    let mut scratch = Vec::new();
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else { break };
        let _ = batch.verify();
        let _ = batch.base_offset_deep(&mut scratch, SMALL);
        assert!(scratch.len() <= SMALL);
        // Decompressed piece by piece it is the same records, or an error as well.
        let whole: Result<Vec<Offset>, _> = batch.records(&mut scratch, SMALL).and_then(|records| {
            records.map(|record| record.inspect(look_at).map(|record| record.offset())).collect()
        });
        // What is kept is at most what was allowed, or what the input holds and a little more.
        assert!(scratch.capacity() <= 4 * SMALL);
        let streamed = batch.stream_records(SMALL).and_then(|mut stream| {
            let mut offsets = Vec::new();
            while let Some(record) = stream.next() {
                offsets.push(record.inspect(look_at)?.offset());
            }
            Ok(offsets)
        });
        match (whole, streamed) {
            (Ok(whole), Ok(streamed)) => assert_eq!(whole, streamed),
            (whole, streamed) => assert!(whole.is_err() && streamed.is_err(), "{whole:?} {streamed:?}"),
        }
    }
    store(bytes);
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

/// Does what a log does with batches before they are stored and when it is compacted.
fn store(bytes: &[u8]) {
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

fn look_at(record: &Record<'_>) {
    assert_eq!(record.headers().count(), record.header_count());
    let _ = ControlKey::parse(record.key().unwrap_or_default());
    let _ = EndTransactionMarker::parse(record.key(), record.value());
}

/// Decompresses the bytes behind the first one, whose lowest bits choose the codec, as a batch of one record.
pub(crate) fn decompress(bytes: &[u8]) {
    let Some((codec, payload)) = bytes.split_first() else { return };
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    builder.append(None, None, None, &[]).expect("a record");
    let mut batch = builder.build().expect("a batch").unwrap_or_default()[..BATCH_OVERHEAD].to_vec();
    batch.extend_from_slice(payload);
    let length = (batch.len() - 12) as u32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[22] = codec & 7;
    decode(&batch);
}

/// Reads the bytes behind the first one as a message of magic 0 or 1, by its lowest bit, and what was read once more after
/// a leader has made one batch of it.
pub(crate) fn legacy(bytes: &[u8]) {
    let Some((magic, rest)) = bytes.split_first() else { return };
    let mut message = vec![0; 17];
    message.extend_from_slice(rest);
    message[8..12].copy_from_slice(&(rest.len() as u32 + 5).to_be_bytes());
    message[16] = magic & 1;
    walk(&message);
    decode(&message);
    let mut scratch = Vec::new();
    let Ok(batch) = Batch::parse(&message) else { return };
    let Ok(codec) = batch.codec() else { return };
    let Ok(Ok(before)) = batch.records(&mut scratch, SMALL).map(|records| {
        records.map(|record| record.map(|record| parts(&record))).collect::<Result<Vec<_>, _>>()
    }) else {
        return;
    };
    let rules = LeaderRules { decompressed_limit: SMALL, ..LeaderRules::default() };
    let mut stored = BytesMut::from(&message[..]);
    if assign_offsets(&mut stored, Offset::new(7), codec, &rules).is_ok() && !before.is_empty() {
        let batch = Batch::parse(&stored).and_then(Batch::verify).expect("a batch that was just made");
        let records = batch.records(&mut scratch, usize::MAX).expect("its records");
        assert_eq!(records.map(|record| parts(&record.expect("a record"))).collect::<Vec<_>>(), before);
        BatchMut::parse(&mut stored).expect("the same batch").set_last_offset(Offset::new(99));
    }
}

type Parts = (Option<Vec<u8>>, Option<Vec<u8>>);

fn parts(record: &Record<'_>) -> Parts {
    (record.key().map(<[u8]>::to_vec), record.value().map(<[u8]>::to_vec))
}

/// Reads the bytes as a producer snapshot and as a transaction index; what can be read is written again as it was read.
pub(crate) fn snapshot(bytes: &[u8]) {
    if let Ok(entries) = decode_snapshot(bytes) {
        let again = encode_snapshot(entries.iter().copied());
        assert_eq!(decode_snapshot(&again).as_ref(), Ok(&entries));
    }
    for (entry, stored) in AbortedTransaction::decode_all(bytes).zip(bytes.chunks(AbortedTransaction::LEN)) {
        let Ok(entry) = entry else { break };
        assert_eq!(entry.encode()[2..], stored[2..], "all but the version");
    }
    let _ = AbortedTransaction::check_all(bytes, Offset::ZERO);
}

/// Reads the bytes as each of the small text files; what can be read is written and read again.
pub(crate) fn checkpoints(bytes: &[u8]) {
    if let Ok(offsets) = parse_offsets(bytes) {
        let again = print_offsets(offsets.iter().map(|(partition, offset)| (partition, *offset)));
        assert_eq!(parse_offsets(&again).ok(), Some(offsets));
    }
    if let Ok(epochs) = parse_epochs(bytes) {
        assert_eq!(parse_epochs(&print_epochs(&epochs)).ok(), Some(epochs));
    }
    if let Ok(properties) = MetaProperties::parse(bytes) {
        let _ = properties.to_bytes("");
    }
    let _ = PartitionMetadata::parse(bytes);
    let _ = CleanShutdown::parse(bytes);
}
