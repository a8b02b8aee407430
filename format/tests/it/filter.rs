//! What compaction leaves of batches.

use bytes::BytesMut;
use kseg_format::legacy::{self, LegacyOptions, LegacyRecord};
use kseg_format::{
    Batch, BatchFate, BatchFilter, BatchOptions, Batches, Codec, EndTransactionMarker, FilterError,
    FilterOptions, Filtered, LeaderEpoch, Magic, Offset, Producer, ProducerEpoch, ProducerId, Record,
    RecordBatchBuilder, Retention, Sequence, Timestamp, TimestampType,
};

use crate::support::{Owned, build, forge, offsets, records, three, timestamps};

const NOW: i64 = 1000;
const RETENTION: i64 = 500;

/// A retention that asks a closure about records.
struct Keep<F> {
    fate: BatchFate,
    marker: bool,
    wanted: F,
}

impl<F: FnMut(&Record<'_>) -> bool> Retention for Keep<F> {
    fn batch(&mut self, _: &Batch<'_>) -> BatchFate {
        self.fate
    }

    fn is_marker_of_empty_transaction(&mut self, _: &Batch<'_>) -> bool {
        self.marker
    }

    fn record(&mut self, _: &Batch<'_>, record: &Record<'_>) -> bool {
        (self.wanted)(record)
    }
}

fn options() -> FilterOptions {
    FilterOptions { now: Timestamp::new(NOW), delete_retention_ms: RETENTION, ..FilterOptions::default() }
}

fn filter(bytes: &[u8], retention: &mut impl Retention) -> (BytesMut, Filtered) {
    let mut out = BytesMut::new();
    let filtered = BatchFilter::new(options()).run(bytes, retention, &mut out).unwrap();
    assert_eq!(filtered.bytes_retained, out.len());
    for batch in Batches::new(&out) {
        batch.unwrap().verify().unwrap();
    }
    (out, filtered)
}

fn keeping(bytes: &[u8], wanted: impl FnMut(&Record<'_>) -> bool) -> (BytesMut, Filtered) {
    filter(bytes, &mut Keep { fate: BatchFate::DeleteEmpty, marker: false, wanted })
}

fn dropping_all(bytes: &[u8], fate: BatchFate) -> (BytesMut, Filtered) {
    filter(bytes, &mut Keep { fate, marker: false, wanted: |_: &Record<'_>| false })
}

fn codecs() -> impl Iterator<Item = Codec> {
    Codec::ALL.into_iter().filter(|codec| codec.is_enabled())
}

fn producer(id: i64, epoch: i16, sequence: i32) -> Option<Producer> {
    Some(Producer {
        id: ProducerId::new(id),
        epoch: ProducerEpoch::new(epoch),
        base_sequence: Some(Sequence::new(sequence)),
    })
}

fn from(base: i64) -> BatchOptions {
    BatchOptions { base_offset: Offset::new(base), ..BatchOptions::default() }
}

fn without_sizes(rows: Vec<Owned>) -> Vec<Owned> {
    rows.into_iter().map(|row| Owned { size: 0, ..row }).collect()
}

/// Base and last offset of each batch.
fn spans(bytes: &[u8]) -> Vec<(i64, i64)> {
    Batches::new(bytes)
        .map(|batch| batch.unwrap())
        .map(|batch| (batch.base_offset().unwrap().get(), batch.last_offset().get()))
        .collect()
}

type Old<'a> = (i64, i64, Option<&'a [u8]>, Option<&'a [u8]>);

fn old(magic: Magic, codec: Codec, rows: &[Old<'_>]) -> BytesMut {
    let records: Vec<LegacyRecord<'_>> = rows
        .iter()
        .map(|(offset, timestamp, key, value)| LegacyRecord {
            offset: Offset::new(*offset),
            timestamp: Timestamp::from_raw(*timestamp),
            key: *key,
            value: *value,
        })
        .collect();
    let options = LegacyOptions {
        magic,
        codec,
        base_offset: records.first().map_or(Offset::ZERO, |record| record.offset),
        ..LegacyOptions::default()
    };
    let mut out = BytesMut::new();
    legacy::encode(&options, &records, &mut out).unwrap();
    out
}

#[test]
fn format_edge_46_an_emptied_batch_leaves_its_header_or_nothing() {
    for (transactional, timestamp_type) in
        [(false, TimestampType::CreateTime), (true, TimestampType::LogAppendTime)]
    {
        let bytes = build(
            BatchOptions {
                producer: producer(23, 5, 10),
                leader_epoch: Some(LeaderEpoch::new(3)),
                transactional,
                timestamp_type,
                log_append_time: Some(Timestamp::new(12)),
                ..from(3)
            },
            &[(11, Some(b"1"), Some(b"a")), (12, Some(b"2"), Some(b"b"))],
        );
        let (out, filtered) = dropping_all(&bytes, BatchFate::RetainEmpty);
        let batch = Batch::parse(&out).unwrap();
        assert_eq!((out.len(), batch.records_count()), (61, Some(0)));
        assert_eq!(spans(&out), [(3, 4)]);
        assert_eq!(batch.base_sequence(), Some(Sequence::new(10)));
        assert_eq!(batch.last_sequence(), Some(Sequence::new(11)));
        assert_eq!((batch.producer_id(), batch.producer_epoch()), {
            (Some(ProducerId::new(23)), Some(ProducerEpoch::new(5)))
        });
        assert_eq!((batch.max_timestamp(), batch.base_timestamp()), (Some(Timestamp::new(12)), None));
        assert_eq!(batch.timestamp_type(), Some(timestamp_type));
        assert_eq!((batch.is_transactional(), batch.leader_epoch().unwrap().get()), (transactional, 3));
        assert_eq!((filtered.bytes_read, filtered.records_read), (bytes.len(), 2));
        assert_eq!((filtered.bytes_retained, filtered.records_retained), (61, 0));
        assert_eq!((filtered.max_offset, filtered.offset_of_max_timestamp), {
            (Some(Offset::new(4)), Some(Offset::new(4)))
        });
        assert_eq!(filtered.max_timestamp, Some(Timestamp::new(12)));

        let (out, filtered) = dropping_all(&bytes, BatchFate::DeleteEmpty);
        assert!(out.is_empty());
        assert_eq!((filtered.bytes_read, filtered.records_read), (bytes.len(), 2));
        assert_eq!((filtered.bytes_retained, filtered.records_retained), (0, 0));
        assert_eq!((filtered.max_offset, filtered.max_timestamp), (None, None));
        assert_eq!(filtered.offset_of_max_timestamp, None);
    }
}

#[test]
fn format_edge_47_and_142_a_header_alone_is_kept_or_goes() {
    let mut bytes = BytesMut::new();
    let options = BatchOptions { producer: producer(7, 1, 5), transactional: true, ..from(3) };
    RecordBatchBuilder::new(options)
        .finish_empty(&mut bytes, Offset::new(9), Some(Timestamp::new(44)))
        .unwrap();
    let (out, filtered) = dropping_all(&bytes, BatchFate::RetainEmpty);
    assert_eq!(out, bytes);
    assert_eq!((filtered.records_read, filtered.max_offset), (0, Some(Offset::new(9))));
    for fate in [BatchFate::Delete, BatchFate::DeleteEmpty] {
        let (out, filtered) = dropping_all(&bytes, fate);
        assert_eq!((out.len(), filtered.bytes_read), (0, 61));
    }
}

#[test]
fn format_edge_48_a_tombstone_gives_its_batch_a_horizon() {
    for codec in codecs() {
        let rows =
            [(5, Some(&b"a"[..]), Some(&b"1"[..])), (10, Some(b"b"), None), (15, Some(b"c"), Some(b"3"))];
        let bytes = build(BatchOptions { codec, ..from(20) }, &rows);
        let (out, filtered) = keeping(&bytes, |_| true);
        let batch = Batch::parse(&out).unwrap();
        assert_eq!(batch.delete_horizon(), Some(Timestamp::new(NOW + RETENTION)));
        assert_eq!(batch.codec(), Ok(codec));
        assert_eq!(timestamps(&out), [Some(5), Some(10), Some(15)]);
        assert_eq!(without_sizes(records(&out).unwrap()), without_sizes(records(&bytes).unwrap()));
        assert_eq!((filtered.records_retained, filtered.max_timestamp), (3, Some(Timestamp::new(15))));
        // The horizon is there: nothing to do the next time, and it stays when a record goes.
        let (again, _) = keeping(&out, |_| true);
        assert_eq!(again, out);
        let (less, _) = keeping(&out, |record| record.offset().get() != 21);
        assert_eq!(Batch::parse(&less).unwrap().delete_horizon(), batch.delete_horizon());
        assert_eq!(timestamps(&less), [Some(5), Some(15)]);
    }
}

#[test]
fn format_edge_49_a_compacted_batch_is_compacted_again() {
    let mut bytes = BytesMut::new();
    let mut builder = RecordBatchBuilder::new(from(0));
    for offset in [5, 8, 10] {
        builder
            .append_at(Offset::new(offset), Some(Timestamp::new(offset)), Some(b"k"), Some(b"v"), &[])
            .unwrap();
    }
    builder.finish(&mut bytes).unwrap();
    let wanted = |record: &Record<'_>| record.offset().get() == 8;
    let (out, filtered) = keeping(&bytes, wanted);
    assert_eq!((spans(&out), offsets(&out)), (vec![(0, 10)], vec![8]));
    assert_eq!((filtered.max_offset, filtered.offset_of_max_timestamp), {
        (Some(Offset::new(8)), Some(Offset::new(10)))
    });

    let rows: [Old<'_>; 3] = [5, 8, 10].map(|o| (o, o, Some(&b"k"[..]), Some(&b"v"[..])));
    for magic in [Magic::V0, Magic::V1] {
        for codec in [Codec::None, Codec::Gzip].into_iter().filter(|codec| codec.is_enabled()) {
            let (out, _) = keeping(&old(magic, codec, &rows), wanted);
            assert_eq!((spans(&out), offsets(&out)), (vec![(8, 8)], vec![8]));
            let batch = Batch::parse(&out).unwrap();
            assert_eq!((batch.magic(), batch.codec()), (Magic::V2, Ok(codec)));
            assert_eq!(
                (batch.leader_epoch(), batch.producer_id(), batch.base_sequence()),
                (None, None, None)
            );
        }
    }
}

#[test]
fn format_edge_50_offsets_and_sequences_outlive_the_last_record() {
    for codec in codecs() {
        for (id, sequence, transactional) in [(23, 10, false), (99384, 15, true)] {
            let bytes = three(BatchOptions {
                codec,
                producer: producer(id, 5, sequence),
                transactional,
                leader_epoch: Some(LeaderEpoch::new(67)),
                ..from(4)
            });
            for dropped in [4, 6] {
                let (out, _) = keeping(&bytes, |record| record.offset().get() != dropped);
                let batch = Batch::parse(&out).unwrap();
                assert_eq!(spans(&out), [(4, 6)]);
                assert_eq!(batch.last_sequence(), Some(Sequence::new(sequence + 2)));
                assert_eq!((batch.base_sequence().unwrap().get(), batch.is_transactional()), {
                    (sequence, transactional)
                });
                for record in records(&out).unwrap() {
                    assert_eq!(i64::from(record.sequence.unwrap()), i64::from(sequence) + record.offset - 4);
                }
            }
        }
    }
}

#[test]
fn format_edge_51_timestamps_and_the_leader_epoch() {
    let epoch = Some(LeaderEpoch::new(67));
    let rows = [(30, Some(&b"a"[..]), Some(&b"1"[..])), (20, Some(b"b"), Some(b"2"))];
    let not_the_first = |record: &Record<'_>| record.key() != Some(b"a");
    for codec in codecs() {
        let bytes = build(BatchOptions { codec, leader_epoch: epoch, ..from(0) }, &rows);
        let (out, filtered) = keeping(&bytes, not_the_first);
        let batch = Batch::parse(&out).unwrap();
        assert_eq!((batch.max_timestamp(), batch.leader_epoch()), (Some(Timestamp::new(20)), epoch));
        assert_eq!(filtered.max_timestamp, Some(Timestamp::new(20)));

        let append_time = BatchOptions {
            codec,
            leader_epoch: epoch,
            timestamp_type: TimestampType::LogAppendTime,
            log_append_time: Some(Timestamp::new(77)),
            ..from(0)
        };
        let (out, _) = keeping(&build(append_time, &rows), not_the_first);
        let batch = Batch::parse(&out).unwrap();
        assert_eq!((batch.timestamp_type(), batch.max_timestamp()), {
            (Some(TimestampType::LogAppendTime), Some(Timestamp::new(77)))
        });
        assert_eq!((timestamps(&out), batch.leader_epoch()), (vec![Some(77)], epoch));
    }
}

#[test]
fn format_edge_52_filtering_stops_behind_the_batch_that_exceeds_the_limit() {
    let batches: Vec<BytesMut> = (0..4).map(|n| three(from(n * 3))).collect();
    let all = batches.concat();
    let mut filter = BatchFilter::new(FilterOptions { output_limit: 64, ..options() });
    let mut retention = Keep { fate: BatchFate::DeleteEmpty, marker: false, wanted: |_: &Record<'_>| true };
    let (mut out, mut at) = (BytesMut::new(), 0);
    for batch in &batches {
        let filtered = filter.run(&all[at..], &mut retention, &mut out).unwrap();
        assert_eq!((filtered.bytes_read, filtered.bytes_retained), (batch.len(), batch.len()));
        at += filtered.bytes_read;
    }
    assert_eq!(out, all[..]);
    // So many are no more than so many.
    for (limit, batches) in [(all.len() / 2, 3), (all.len() / 2 - 1, 2)] {
        let mut filter = BatchFilter::new(FilterOptions { output_limit: limit, ..options() });
        let filtered = filter.run(&all, &mut retention, &mut BytesMut::new()).unwrap();
        assert_eq!(filtered.bytes_read, batches * all.len() / 4);
    }
    // What is deleted does not count, and a cut batch is not read.
    let mut retention = Keep { fate: BatchFate::Delete, marker: false, wanted: |_: &Record<'_>| true };
    let cut = &all[..all.len() - 1];
    let filtered = filter.run(cut, &mut retention, &mut BytesMut::new()).unwrap();
    assert_eq!(filtered.bytes_read, all.len() - batches[3].len());
    assert_eq!(filtered.records_read, 0);
}

#[test]
#[cfg(feature = "gzip")]
fn format_edge_140_a_wrapper_becomes_a_batch_of_magic_2() {
    let rows: [Old<'_>; 3] =
        [(5, 1, Some(b"a"), Some(b"1")), (6, 2, Some(b"b"), Some(b"2")), (7, 3, Some(b"c"), None)];
    let bytes = old(Magic::V1, Codec::Gzip, &rows);
    let horizon = Some(Timestamp::new(NOW + RETENTION));
    for (kept, span, expected) in
        [(&[5][..], (5, 5), None), (&[5, 6, 7], (5, 7), horizon), (&[7], (7, 7), horizon)]
    {
        let (out, _) = keeping(&bytes, |record| kept.contains(&record.offset().get()));
        let batch = Batch::parse(&out).unwrap();
        assert_eq!((batch.magic(), batch.codec()), (Magic::V2, Ok(Codec::Gzip)));
        assert_eq!((spans(&out), batch.delete_horizon()), (vec![span], expected));
        assert_eq!(offsets(&out), kept);
        let given: Vec<_> = kept.iter().map(|offset| Some(offset - 4)).collect();
        assert_eq!(timestamps(&out), given);
    }
    let mut all = three(from(0));
    let position = all.len();
    all.extend_from_slice(&bytes);
    let mut retention = Keep { fate: BatchFate::RetainEmpty, marker: false, wanted: |_: &Record<'_>| false };
    let mut out = BytesMut::new();
    let error = BatchFilter::new(options()).run(&all, &mut retention, &mut out).unwrap_err();
    assert_eq!(error, FilterError::EmptiedLegacy { position, magic: Magic::V1 });
    assert_eq!((error.kafka_name(), error.position()), ("IllegalStateException", position));
    assert_eq!(out.len(), 61);
}

#[test]
fn format_edge_141_the_marker_of_an_emptied_transaction_gets_a_horizon() {
    let mut bytes = BytesMut::new();
    let marker = EndTransactionMarker { committed: false, coordinator_epoch: 9 };
    let producer = (ProducerId::new(5), ProducerEpoch::new(2));
    let epoch = Some(LeaderEpoch::new(4));
    marker.encode_batch(Offset::new(33), Timestamp::new(70), epoch, producer, &mut bytes).unwrap();
    let kept = |marker| {
        filter(&bytes, &mut Keep { fate: BatchFate::RetainEmpty, marker, wanted: |_: &Record<'_>| true }).0
    };
    assert_eq!(kept(false), bytes);
    let out = kept(true);
    let batch = Batch::parse(&out).unwrap();
    assert_eq!(batch.delete_horizon(), Some(Timestamp::new(NOW + RETENTION)));
    assert!(batch.is_control() && batch.is_transactional());
    assert_eq!((spans(&out), timestamps(&out)), (vec![(33, 33)], vec![Some(70)]));
    let record = &records(&out).unwrap()[0];
    let read = EndTransactionMarker::parse(record.key.as_deref(), record.value.as_deref());
    assert_eq!(read, Ok(marker));
}

/// Offset, time, key and value of the records of four batches.
const FOUR: [&[Old<'static>]; 4] = [
    &[(0, 10, None, Some(b"a"))],
    &[(1, 11, Some(b"1"), Some(b"b")), (2, 12, None, Some(b"c"))],
    &[(3, 13, None, Some(b"d")), (4, 20, Some(b"4"), Some(b"e")), (5, 15, Some(b"5"), Some(b"f"))],
    &[(6, 16, Some(b"6"), Some(b"g"))],
];

#[test]
fn cleaner_edge_77_78_and_79_what_is_told_of_several_batches() {
    let keyed = |record: &Record<'_>| record.key().is_some();
    let told = |filtered: Filtered| {
        let offset = |offset: Option<Offset>| offset.map(Offset::get);
        let timestamp = filtered.max_timestamp.map(Timestamp::get);
        assert_eq!((filtered.records_read, filtered.records_retained), (7, 4));
        (offset(filtered.max_offset), timestamp, offset(filtered.offset_of_max_timestamp))
    };
    let mut bytes = BytesMut::new();
    for rows in FOUR {
        let rows_of = rows.iter().map(|row| (row.1, row.2, row.3)).collect::<Vec<_>>();
        bytes.extend_from_slice(&build(from(rows[0].0), &rows_of));
    }
    let (out, filtered) = keeping(&bytes, keyed);
    assert_eq!(spans(&out), [(1, 2), (3, 5), (6, 6)]);
    assert_eq!(told(filtered), (Some(6), Some(20), Some(5)));

    for (magic, codec, expected) in [
        (Magic::V1, Codec::Gzip, (Some(6), Some(20), Some(5))),
        (Magic::V1, Codec::None, (Some(6), Some(20), Some(4))),
        (Magic::V0, Codec::Gzip, (Some(6), None, None)),
        (Magic::V0, Codec::None, (Some(6), None, None)),
    ] {
        if !codec.is_enabled() {
            continue;
        }
        let bytes = FOUR.map(|rows| old(magic, codec, rows)).concat();
        let (out, filtered) = keeping(&bytes, keyed);
        let expected_spans = if codec == Codec::None {
            vec![(1, 1), (4, 4), (5, 5), (6, 6)]
        } else {
            vec![(1, 1), (4, 5), (6, 6)]
        };
        assert_eq!(spans(&out), expected_spans, "{magic} {codec}");
        assert_eq!(told(filtered), expected, "{magic} {codec}");
    }
}

#[test]
fn an_untouched_batch_comes_out_byte_for_byte() {
    for codec in codecs() {
        // Its producer's level, its attributes without a meaning and its wrong maximum are left alone.
        let bytes = forge(&three(BatchOptions { codec, ..from(0) }), |bytes| {
            bytes[21] = 0x81;
            bytes[35..43].copy_from_slice(&99i64.to_be_bytes());
        });
        let (out, _) = keeping(&bytes, |_| true);
        assert_eq!(out, bytes[..]);
        let (out, _) = keeping(&bytes, |record| record.offset().get() != 0);
        assert_eq!(out[21], 0);
        assert_eq!(Batch::parse(&out).unwrap().max_timestamp(), Some(Timestamp::new(12)));
    }
}

#[test]
fn a_batch_that_cannot_be_read_is_named_and_those_in_front_of_it_come_out() {
    let good = three(from(0));
    let mut bytes = good.clone();
    bytes.extend_from_slice(&forge(&three(from(3)), |bytes| bytes[60] = 9));
    let mut retention = Keep { fate: BatchFate::DeleteEmpty, marker: false, wanted: |_: &Record<'_>| true };
    let mut out = BytesMut::new();
    let error = BatchFilter::new(options()).run(&bytes, &mut retention, &mut out).unwrap_err();
    assert_eq!((error.position(), error.kafka_name()), (good.len(), "InvalidRecordException"));
    assert_eq!(out, good);
    // A batch that is deleted is not decoded.
    retention.fate = BatchFate::Delete;
    let filtered = BatchFilter::new(options()).run(&bytes, &mut retention, &mut out).unwrap();
    assert_eq!(filtered.bytes_read, bytes.len());
}

#[test]
fn the_largest_timestamp_may_be_the_first_there_is() {
    for (time, largest) in [(-1, None), (0, Some(0)), (1, Some(1))] {
        let bytes = build(from(5), &[(time, Some(b"k"), Some(b"v"))]);
        let (_, filtered) = keeping(&bytes, |_| true);
        assert_eq!(filtered.max_timestamp, largest.map(Timestamp::new));
        assert_eq!(filtered.offset_of_max_timestamp, largest.map(|_| Offset::new(5)));
    }
}

#[test]
fn a_delete_horizon_of_0_is_one() {
    let bytes = build(from(5), &[(1, Some(b"k"), None)]);
    for (now, horizon) in [(-RETENTION, Some(0)), (-RETENTION - 1, None)] {
        let mut filter = BatchFilter::new(FilterOptions { now: Timestamp::new(now), ..options() });
        let mut retention =
            Keep { fate: BatchFate::DeleteEmpty, marker: false, wanted: |_: &Record<'_>| true };
        let mut out = BytesMut::new();
        filter.run(&bytes, &mut retention, &mut out).unwrap();
        let batch = Batch::parse(&out).unwrap().verify().unwrap();
        assert_eq!(batch.delete_horizon(), horizon.map(Timestamp::new));
        assert_eq!(timestamps(&out), [Some(1)]);
    }
}

#[test]
fn a_batch_of_nobody_s_stays_nobody_s() {
    let bytes = three(from(5));
    let (out, _) = keeping(&bytes, |record| record.offset() != Offset::new(6));
    let batch = Batch::parse(&out).unwrap();
    assert_eq!((batch.records_count(), batch.leader_epoch()), (Some(2), None));
    assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.base_sequence()), (None, None, None));
    let (out, _) = dropping_all(&bytes, BatchFate::RetainEmpty);
    let batch = Batch::parse(&out).unwrap();
    assert_eq!((batch.producer_id(), batch.producer_epoch(), batch.base_sequence()), (None, None, None));
}
