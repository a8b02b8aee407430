use bytes::BytesMut;
use kseg_format::{
    BatchOptions, ControlType, EndTransactionMarker, LeaderEpoch, Offset, Origin, Producer, ProducerEpoch,
    ProducerId, RecordBatchBuilder, Sequence, Timestamp,
};
use kseg_log::{DoubtReason, Isolation, Log};

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

/// A batch of producer 7, as it lies in a log.
fn raw(base: i64, transactional: bool, control: bool) -> BytesMut {
    let mut builder = RecordBatchBuilder::new(BatchOptions {
        base_offset: Offset::new(base),
        leader_epoch: Some(LeaderEpoch::new(0)),
        producer: Some(Producer {
            id: ProducerId::new(7),
            epoch: ProducerEpoch::new(0),
            base_sequence: (!control).then_some(Sequence::new(base as i32)),
        }),
        transactional,
        control,
        ..BatchOptions::default()
    });
    builder.append(Some(Timestamp::new(1)), Some(b"?"), Some(b"v"), &[]).expect("a record");
    let mut bytes = BytesMut::new();
    builder.finish(&mut bytes).expect("a batch");
    bytes
}

/// A control batch of this producer at offset `base` that is not a transactional one, with a commit marker as its value.
fn control(base: i64, producer: i64, kind: ControlType) -> BytesMut {
    let mut builder = RecordBatchBuilder::new(BatchOptions {
        base_offset: Offset::new(base),
        leader_epoch: Some(LeaderEpoch::new(0)),
        producer: Some(Producer {
            id: ProducerId::new(producer),
            epoch: ProducerEpoch::new(0),
            base_sequence: None,
        }),
        control: true,
        ..BatchOptions::default()
    });
    let marker = EndTransactionMarker { committed: true, coordinator_epoch: 0 };
    builder.append_control(Some(Timestamp::new(1)), kind, &marker.encode_value()).expect("a record");
    let mut bytes = BytesMut::new();
    builder.finish(&mut bytes).expect("a batch");
    bytes
}

#[test]
fn a_control_batch_of_a_producer_is_a_marker_without_the_transactional_flag_too() {
    let epoch = LeaderEpoch::new(0);
    let bench = Bench::new(&[]);
    let log = bench.open();
    data(&log, 7, 0, 2);
    let other = log.append_as_follower(control(2, 7, ControlType::SnapshotFooter).freeze(), epoch);
    assert_eq!(kafka_name(other), "IllegalArgumentException");
    let other = log.append_as_leader(control(0, 7, ControlType::LeaderChange), epoch, Origin::Coordinator);
    assert_eq!((kafka_name(other), log.log_end_offset().get()), ("IllegalArgumentException", 2));
    // Control batches of nobody are none of a transaction's.
    for (base, nobody) in [(2, -1), (3, -2)] {
        let kind = ControlType::SnapshotFooter;
        log.append_as_follower(control(base, nobody, kind).freeze(), epoch).expect("an append");
    }
    log.update_high_watermark(Offset::new(4));
    assert_eq!(log.last_stable_offset().get(), 0);

    log.append_as_follower(control(4, 7, ControlType::Commit).freeze(), epoch).expect("an append");
    log.update_high_watermark(Offset::new(5));
    assert_eq!(log.last_stable_offset().get(), 5);
}

#[test]
fn what_contradicts_its_producers_state_is_kept_and_reported() {
    let batches = [raw(0, true, false), raw(1, false, false), raw(2, true, true), raw(3, true, false)];
    let positions: Vec<u64> = batches
        .iter()
        .scan(0, |end, batch| Some(std::mem::replace(end, *end + batch.len() as u64)))
        .collect();
    for clean in [true, false] {
        let bench = Bench::new(&[]);
        bench.open().close().expect("closed");
        let path = std::path::Path::new(DIR).join("00000000000000000000.log");
        bench.backend.names().write(&path, &batches.concat(), false).expect("written");
        // Without a snapshot a clean opening believes that there are no producers.
        let unreadable = std::path::Path::new(DIR).join("00000000000000000002.snapshot");
        bench.backend.names().write(&unreadable, b"no snapshot", false).expect("written");
        let log = if clean { bench.open() } else { bench.open_unclean(0) };
        assert_eq!(offsets(&log).2, 4);
        let report = log.load_report();
        let doubts: Vec<_> = report.doubts.iter().filter(|d| d.path == path).collect();
        assert_eq!(doubts.len(), 2, "clean {clean}: {report}");
        assert!(matches!(doubts[0].reason, DoubtReason::Producer(_)), "{}", doubts[0]);
        assert!(matches!(doubts[1].reason, DoubtReason::Marker(_)), "{}", doubts[1]);
        let places: Vec<_> = doubts.iter().map(|d| (d.position, d.offset.get())).collect();
        assert_eq!(places, [(Some(positions[1]), 1), (Some(positions[2]), 2)]);
        assert!(!report.is_quiet());
        let words = report.to_string();
        assert!(
            words.contains("00000000000000000000.log: at position") && words.contains("producer 7"),
            "{words}"
        );
        // The marker ends nothing: the transaction is open since its first batch.
        log.update_high_watermark(Offset::new(4));
        assert_eq!(log.last_stable_offset().get(), 0);
    }
}

#[test]
fn format_edge_120_an_index_of_aborts_that_cannot_be_the_segment_s_is_rebuilt() {
    let bench = Bench::new(&[]);
    let log = bench.open();
    data(&log, 1, 0, 2);
    marker(&log, 1, false);
    log.roll(None).expect("a roll");
    data(&log, 2, 0, 2);
    marker(&log, 2, false);
    let expected = [(1, 0, 2, 3), (2, 3, 5, 6)];
    assert_eq!(aborted(&log), expected);
    log.close().expect("closed");

    let name = std::path::Path::new(DIR).join("00000000000000000003.txnindex");
    let foreign = kseg_log::AbortedTransaction {
        producer_id: ProducerId::new(9),
        first_offset: Offset::ZERO,
        last_offset: Offset::new(2),
        last_stable_offset: Offset::new(3),
    };
    bench.backend.names().replace(&name, &foreign.encode()).expect("written");
    let log = bench.open();
    assert_eq!(log.load_report().aborted_rebuilt, [Offset::new(3)]);
    assert_eq!(aborted(&log), expected);
    assert_eq!(log.log_end_offset().get(), 6);
}
