use proptest::prelude::*;

use super::*;

/// Two producers: one with a batch whose sequences wrap and an open transaction, one of which only a marker is known.
const TWO: &str = "00 01 2d a0 77 e5 00 00 00 02 00 00 00 00 00 00 03 e9 00 02 00 00 00 00 00 00 00 00 00 00 00 66 \
    00 00 00 02 00 00 01 8b cf e5 68 01 ff ff ff ff 00 00 00 00 00 00 00 64 00 00 00 00 00 00 00 0b \
    00 0c ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 00 00 00 00 00 00 01 e2 40 00 00 00 0d ff ff \
    ff ff ff ff ff ff";
const NONE: &str = "00 01 48 67 4b c7 00 00 00 00";

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn entry_of_any_kind() -> impl Strategy<Value = SnapshotEntry> {
    let batch = (any::<i32>(), 0..i64::MAX, any::<i32>()).prop_map(|(sequence, offset, offset_delta)| {
        let last_sequence = Sequence::from_raw(sequence);
        SnapshotBatch { last_sequence, last_offset: Offset::new(offset), offset_delta }
    });
    let last_batch = prop::option::of(batch);
    (any::<i64>(), any::<i16>(), last_batch, any::<i64>(), any::<i32>(), prop::option::of(0..i64::MAX))
        .prop_map(|(id, epoch, last_batch, timestamp, coordinator_epoch, transaction_start)| SnapshotEntry {
            producer_id: ProducerId::new(id),
            producer_epoch: ProducerEpoch::from_raw(epoch),
            last_batch,
            timestamp: Timestamp::from_raw(timestamp),
            coordinator_epoch: Some(coordinator_epoch).filter(|epoch| *epoch != -1),
            transaction_start: transaction_start.map(Offset::new),
        })
}

/// The second of the two producers.
const MARKED: SnapshotEntry = SnapshotEntry {
    producer_id: ProducerId::new(11),
    producer_epoch: Some(ProducerEpoch::new(12)),
    last_batch: None,
    timestamp: Some(Timestamp::new(123_456)),
    coordinator_epoch: Some(13),
    transaction_start: None,
};

#[test]
fn kafka_s_example_is_read_and_written_byte_for_byte() {
    let entries = decode_snapshot(&bytes(TWO)).unwrap();
    assert_eq!(encode_snapshot(entries.iter().copied()), bytes(TWO));
    let wrapping = SnapshotEntry {
        producer_id: ProducerId::new(1001),
        producer_epoch: Some(ProducerEpoch::new(2)),
        last_batch: Some(SnapshotBatch {
            last_sequence: Some(Sequence::new(0)),
            last_offset: Offset::new(102),
            offset_delta: 2,
        }),
        timestamp: Some(Timestamp::new(1_700_000_000_001)),
        coordinator_epoch: None,
        transaction_start: Some(Offset::new(100)),
    };
    assert_eq!(entries, [wrapping, MARKED]);
    assert_eq!(encode_snapshot([]), bytes(NONE));
    assert_eq!(decode_snapshot(&bytes(NONE)), Ok(Vec::new()));
}

#[test]
fn format_edge_195_entries_come_back_as_they_went() {
    let batch =
        SnapshotBatch { last_sequence: Some(Sequence::new(1)), last_offset: Offset::new(2), offset_delta: 3 };
    let entries = [
        SnapshotEntry {
            producer_id: ProducerId::new(1),
            producer_epoch: Some(ProducerEpoch::new(2)),
            last_batch: Some(batch),
            timestamp: None,
            coordinator_epoch: Some(3),
            transaction_start: Some(Offset::new(100)),
        },
        MARKED,
    ];
    assert_eq!(decode_snapshot(&encode_snapshot(entries)).unwrap(), entries);
}

#[test]
fn what_lies_at_a_negative_offset_is_not_there() {
    let with = |last_offset: i64, transaction_start: i64| {
        let mut bytes = bytes(TWO);
        let at = |at: usize| HEADER_LEN + at..HEADER_LEN + at + 8;
        bytes[at(LAST_OFFSET_AT)].copy_from_slice(&last_offset.to_be_bytes());
        bytes[at(TRANSACTION_START_AT)].copy_from_slice(&transaction_start.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[COUNT_AT..]);
        bytes[CRC_AT..COUNT_AT].copy_from_slice(&crc.to_be_bytes());
        let entry = decode_snapshot(&bytes).unwrap()[0];
        (entry.last_batch.map(|batch| batch.last_offset.get()), entry.transaction_start.map(Offset::get))
    };
    assert_eq!(with(0, 0), (Some(0), Some(0)));
    assert_eq!(with(-1, 5), (None, Some(5)));
    assert_eq!(with(5, -1), (Some(5), None));
    assert_eq!(with(i64::MIN, -2), (None, None));
}

#[test]
fn format_edge_109_damaged_snapshots() {
    let good = bytes(TWO);
    let damaged = |damage: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        damage(&mut bytes);
        decode_snapshot(&bytes).unwrap_err()
    };
    for version in [0, 2] {
        let error = damaged(&|bytes| bytes[1] = version);
        assert_eq!(error, SnapshotError::Version { expected: 1, found: i16::from(version) });
    }
    assert!(matches!(damaged(&|bytes| bytes.push(0)), SnapshotError::Crc { .. }));
    assert!(matches!(damaged(&|bytes| bytes[5] ^= 1), SnapshotError::Crc { .. }));
    assert!(matches!(damaged(&|bytes| bytes[6..10].fill(0xff)), SnapshotError::Count { found: -1 }));
    for len in 0..good.len() {
        let error = damaged(&|bytes| bytes.truncate(len));
        assert!(matches!(error, SnapshotError::Short { .. }), "{len}: {error}");
        assert_eq!(error.kafka_name(), "CorruptSnapshotException");
    }
}

#[test]
fn format_edge_153_wrong_counts() {
    let with_count = |count: i32| {
        let mut bytes = bytes(TWO);
        bytes[6..10].copy_from_slice(&count.to_be_bytes());
        decode_snapshot(&bytes).unwrap_err()
    };
    assert_eq!(with_count(1_000_000), SnapshotError::Short { needed: 46_000_010, found: 102 });
    assert_eq!(with_count(-1), SnapshotError::Count { found: -1 });
    assert!(matches!(with_count(1), SnapshotError::Crc { .. }));
    assert!(matches!(with_count(i32::MAX), SnapshotError::Short { .. }));
}

#[test]
fn every_flipped_bit_is_found() {
    let good = bytes(TWO);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_snapshot(&bytes).is_err(), "bit {bit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..160), right in any::<bool>()) {
        if right && bytes.len() >= HEADER_LEN {
            bytes[..2].copy_from_slice(&[0, 1]);
            bytes[COUNT_AT..HEADER_LEN].copy_from_slice(&[0, 0, 0, 2]);
            let crc = crc32c::crc32c(&bytes[COUNT_AT..]);
            bytes[CRC_AT..COUNT_AT].copy_from_slice(&crc.to_be_bytes());
        }
        let _ = decode_snapshot(&bytes);
    }

    #[test]
    fn entries_round_trip(entries in prop::collection::vec(entry_of_any_kind(), 0..6)) {
        prop_assert_eq!(decode_snapshot(&encode_snapshot(entries.iter().copied())).unwrap(), entries);
    }
}
