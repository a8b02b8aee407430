//! The first look at an append.

use bytes::BytesMut;
use kseg_format::{
    BatchMut, BatchOptions, Codec, LeaderEpoch, Offset, Origin, Producer, ProducerEpoch, ProducerId,
    ScanError, ScanRules, Sequence, Timestamp, scan_append,
};

use crate::support::{at, build, forge, three};

fn rules(origin: Origin) -> ScanRules {
    ScanRules { origin, leader_epoch: LeaderEpoch::new(3), batch_size_max: 100 }
}

/// Three records from `base` on under this leader epoch: 88 bytes.
fn batch(base: i64, epoch: i32) -> BytesMut {
    let mut bytes = three(at(base));
    BatchMut::parse(&mut bytes).unwrap().set_leader_epoch(LeaderEpoch::from_raw(epoch)).unwrap();
    bytes
}

fn name(bytes: &[u8], rules: ScanRules) -> (usize, &'static str) {
    let error = scan_append(bytes, &rules).unwrap_err();
    (error.position(), error.kafka_name())
}

#[test]
fn what_is_told_of_a_follower_s_batches() {
    let mut bytes = [batch(5, 3), batch(9, 2)].concat();
    let whole = bytes.len();
    bytes.extend_from_slice(&batch(12, 3)[..60]);
    let told = scan_append(&bytes, &rules(Origin::Replication)).unwrap().unwrap();
    assert_eq!((told.first_offset, told.first_batch_last), (Some(Offset::new(5)), Offset::new(7)));
    assert_eq!((told.last_offset, told.max_timestamp), (Offset::new(11), Some(Timestamp::new(12))));
    assert_eq!((told.valid_bytes, told.source_codec), (whole, Codec::None));
    assert_eq!((told.leader_epoch, told.any_producer), (None, false));
    assert_eq!(scan_append(&bytes[..60], &rules(Origin::Replication)), Ok(None));
    for codec in Codec::ALL.into_iter().filter(|codec| codec.is_enabled()) {
        let bytes = three(BatchOptions { codec, ..at(0) });
        let seen = scan_append(&bytes, &ScanRules { batch_size_max: 1000, ..rules(Origin::Client) });
        assert_eq!(seen.unwrap().unwrap().source_codec, codec);
    }
}

#[test]
fn no_timestamp_below_0_is_the_largest() {
    let at_time = |base: i64, time: i64| {
        forge(&batch(base, 3), |bytes| bytes[35..43].copy_from_slice(&time.to_be_bytes()))
    };
    for (times, largest) in
        [([-5, i64::MIN], None), ([i64::MIN, -1], None), ([-5, 0], Some(0)), ([7, i64::MIN], Some(7))]
    {
        let bytes = [at_time(0, times[0]), at_time(3, times[1])].concat();
        let seen = scan_append(&bytes, &rules(Origin::Replication)).unwrap().unwrap();
        assert_eq!(seen.max_timestamp, largest.map(Timestamp::new), "{times:?}");
    }
}

#[test]
fn a_batch_at_the_limits_is_taken() {
    // One record: its last offset is its base offset.
    let one = build(at(0), &[(5, None, None)]);
    for origin in [Origin::Client, Origin::Coordinator, Origin::Replication] {
        let exact = ScanRules { batch_size_max: one.len() as u64, ..rules(origin) };
        let seen = scan_append(&one, &exact).unwrap().unwrap();
        assert_eq!((seen.first_offset, seen.last_offset), (Some(Offset::ZERO), Offset::ZERO));
        let less = ScanRules { batch_size_max: one.len() as u64 - 1, ..rules(origin) };
        assert_eq!(scan_append(&one, &less).is_ok(), origin == Origin::Replication);
    }
}

#[test]
fn what_one_batch_has_is_told_of_all() {
    let producer = Producer {
        id: ProducerId::new(7),
        epoch: ProducerEpoch::new(0),
        base_sequence: Some(Sequence::new(0)),
    };
    let by_producer = three(BatchOptions { producer: Some(producer), ..at(3) });
    for bytes in [[&batch(0, -1)[..], &by_producer].concat(), [&by_producer[..], &batch(6, -1)].concat()] {
        let seen = scan_append(&bytes, &rules(Origin::Replication)).unwrap().unwrap();
        assert!(seen.any_producer);
        assert_eq!(seen.leader_epoch, None);
    }
    let seen = scan_append(&[batch(0, 2), batch(3, 2)].concat(), &rules(Origin::Replication));
    assert_eq!(seen.unwrap().unwrap().leader_epoch, Some(LeaderEpoch::new(2)));
    if Codec::Gzip.is_enabled() {
        let compressed = three(BatchOptions { codec: Codec::Gzip, ..at(0) });
        let seen = scan_append(&[&compressed[..], &batch(3, -1)].concat(), &rules(Origin::Replication));
        assert_eq!(seen.unwrap().unwrap().source_codec, Codec::Gzip);
    }
}

#[test]
fn format_edge_90_newer_epochs_are_left_out_with_all_behind_them() {
    let bytes = [batch(0, 3), batch(3, 5), batch(6, 3)].concat();
    let seen = scan_append(&bytes, &rules(Origin::Replication)).unwrap().unwrap();
    assert_eq!((seen.last_offset.get(), seen.leader_epoch.unwrap().get()), (2, 3));
    assert_eq!(scan_append(&batch(0, 4), &rules(Origin::Replication)), Ok(None));
    // Nobody else is held against the epoch but the leader of the metadata log, which gives it.
    assert!(scan_append(&batch(0, 4), &rules(Origin::Coordinator)).unwrap().is_some());
    assert_eq!(name(&batch(0, 4), rules(Origin::RaftLeader)), (0, "InvalidRecordException"));
    assert!(scan_append(&batch(0, 3), &rules(Origin::RaftLeader)).unwrap().is_some());
}

#[test]
fn format_edge_87_88_91_and_92_faults_and_their_order() {
    let two = |second: BytesMut| [batch(0, 3), second].concat();
    let size = batch(0, 3).len();
    for origin in [Origin::Replication, Origin::RaftLeader] {
        assert_eq!(name(&two(batch(0, 3)), rules(origin)), (size, "OffsetsOutOfOrderException"));
        let below = forge(&batch(0, 3), |bytes| bytes[..8].copy_from_slice(&(-3i64).to_be_bytes()));
        assert_eq!(name(&below, rules(origin)), (0, "OffsetsOutOfOrderException"));
    }
    assert!(scan_append(&two(batch(0, 3)), &rules(Origin::Client)).is_ok());

    let mut wrong = batch(5, 3);
    wrong[40] ^= 1;
    let small = |origin| ScanRules { batch_size_max: 87, ..rules(origin) };
    assert_eq!(name(&wrong, small(Origin::Client)), (0, "InvalidRecordException"));
    assert_eq!(name(&wrong, small(Origin::Coordinator)), (0, "RecordTooLargeException"));
    assert_eq!(name(&wrong, small(Origin::Replication)), (0, "CorruptRecordException"));
    assert_eq!(name(&two(wrong), rules(Origin::Replication)), (size, "CorruptRecordException"));

    let backwards = forge(&batch(5, 3), |bytes| bytes[23..27].copy_from_slice(&(-2i32).to_be_bytes()));
    let error = scan_append(&backwards, &rules(Origin::Replication)).unwrap_err();
    let expected = ScanError::LastOffset { position: 0, base: Offset::new(5), found: Offset::new(3) };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        "the batch at byte 0: last offset: expected at least the base offset 5, found 3"
    );
    // What Kafka refuses of such a batch comes first.
    let bytes_of = |change: fn(&mut Vec<u8>)| forge(&backwards, change);
    let mut wrong = backwards.clone();
    wrong[40] ^= 1;
    assert_eq!(name(&wrong, rules(Origin::Replication)), (0, "CorruptRecordException"));
    let unknown = bytes_of(|bytes| bytes[22] |= 7);
    assert_eq!(name(&unknown, rules(Origin::Replication)), (0, "IllegalArgumentException"));
    let below = bytes_of(|bytes| bytes[..8].copy_from_slice(&0i64.to_be_bytes()));
    assert_eq!(name(&below, rules(Origin::Replication)), (0, "OffsetsOutOfOrderException"));
    assert_eq!(name(&below, rules(Origin::Coordinator)), (0, "InvalidRecordException"));
}
