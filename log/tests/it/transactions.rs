use bytes::BytesMut;
use kseg_format::{
    BatchOptions, EndTransactionMarker, LeaderEpoch, Offset, Origin, Producer, ProducerEpoch, ProducerId,
    RecordBatchBuilder, Sequence, Timestamp,
};
use kseg_log::{Isolation, Log};

use crate::support::*;

fn data(log: &Log, producer: i64, sequence: i32, count: usize) {
    let mut builder = RecordBatchBuilder::new(BatchOptions {
        producer: Some(Producer {
            id: ProducerId::new(producer),
            epoch: ProducerEpoch::new(0),
            base_sequence: Some(Sequence::new(sequence)),
        }),
        transactional: true,
        ..BatchOptions::default()
    });
    for _ in 0..count {
        builder.append(Some(Timestamp::new(1)), None, Some(b"v"), &[]).expect("a record");
    }
    let mut bytes = BytesMut::new();
    builder.finish(&mut bytes).expect("a batch");
    log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Client).expect("an append");
}

fn marker(log: &Log, producer: i64, committed: bool) {
    let mut bytes = BytesMut::new();
    EndTransactionMarker { committed, coordinator_epoch: 0 }
        .encode_batch(
            Offset::ZERO,
            Timestamp::new(1),
            None,
            (ProducerId::new(producer), ProducerEpoch::new(0)),
            &mut bytes,
        )
        .expect("a marker");
    log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Coordinator).expect("an append");
}

/// (producer, first, last, last stable) of all aborted transactions.
fn aborted(log: &Log) -> Vec<(i64, i64, i64, i64)> {
    let all = log.aborted_transactions(Offset::ZERO, Offset::new(i64::MAX)).expect("read");
    let tuple = |t: &kseg_log::AbortedTransaction| {
        (t.producer_id.get(), t.first_offset.get(), t.last_offset.get(), t.last_stable_offset.get())
    };
    all.iter().map(tuple).collect()
}

#[test]
fn log_11_a_marker_of_an_empty_transaction_leaves_no_entry() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    marker(&log, 1, false);
    data(&log, 2, 0, 1);
    marker(&log, 1, false);
    log.update_high_watermark(log.log_end_offset());
    assert_eq!(log.last_stable_offset().get(), 1);
    marker(&log, 2, false);
    log.update_high_watermark(log.log_end_offset());
    assert_eq!((aborted(&log), log.last_stable_offset().get()), (vec![(2, 1, 3, 4)], 4));
    // After a crash the index is made anew from the markers.
    log.abandon();
    bench
        .backend
        .names()
        .remove(&std::path::Path::new(DIR).join("00000000000000000000.txnindex"))
        .expect("removed");
    assert_eq!(aborted(&bench.open_unclean(0)), [(2, 1, 3, 4)]);
}

#[test]
fn log_12_a_committed_read_ends_at_the_last_stable_offset() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    lead(&log, 5, 1, 200);
    data(&log, 1, 0, 5);
    lead(&log, 10, 1, 200);
    log.update_high_watermark(Offset::new(20));
    let read = |offset| {
        let fetch = log.read(Offset::new(offset), 1 << 20, Isolation::Committed, true).expect("a read");
        (fetch.len(), fetch.aborted.expect("asked for").len())
    };
    assert_eq!((log.last_stable_offset().get(), read(0).0, read(10).0), (5, 200, 0));
    marker(&log, 1, true);
    log.update_high_watermark(Offset::new(21));
    assert_eq!((log.last_stable_offset().get(), read(0)), (21, (log.size() as usize, 0)));
}

#[test]
fn log_edge_114_an_aborted_transaction_over_two_segments_is_in_the_list() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    data(&log, 7, 0, 3);
    log.roll(None).expect("a roll");
    data(&log, 7, 3, 2);
    marker(&log, 7, false);
    log.update_high_watermark(log.log_end_offset());
    let fetch = log.read(Offset::ZERO, 1 << 20, Isolation::Committed, true).expect("a read");
    let list = fetch.aborted.expect("asked for");
    assert_eq!(
        list.iter().map(|t| (t.producer_id.get(), t.first_offset.get())).collect::<Vec<_>>(),
        [(7, 0)]
    );
    assert!(fetch.region.is_some());
    // It lives with the marker.
    assert!(bench.size_of("00000000000000000000.txnindex").is_none());
    assert_eq!(bench.size_of("00000000000000000003.txnindex"), Some(34));
}
