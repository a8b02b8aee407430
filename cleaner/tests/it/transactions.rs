//! Producers and transactions: what is kept of their batches and markers, and for how long.

use kseg_format::Offset;
use kseg_log::TransactionVersion;

use crate::bed::*;

#[test]
fn cleaner_edge_43_and_44_and_45_and_46_last_batch_of_each_producer_keeps_its_header() {
    let bed = Bed::new(&[]);
    bed.by(1, false, &[1, 2, 3]);
    bed.by(2, false, &[3, 1, 4]);
    bed.by(3, false, &[1, 4]);
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.data_keys()), (vec![2, 5, 7], vec![2, 3, 1, 4]));
    assert_eq!(bed.offsets(), [1, 3, 6, 7]);
    let sequences = |bed: &Bed| [1, 2, 3].map(|id| bed.last_sequence(id));
    assert_eq!(sequences(&bed), [Some(2), Some(2), Some(1)]);
    let bed = bed.reopened(true, false);
    assert_eq!(sequences(&bed), [Some(2), Some(2), Some(1)]);
    // Sent once more, each is known: nothing is appended.
    let again = |bed: &Bed, id, count| {
        let entries = vec![kv("k", "v"); count];
        bed.append(producer(id, 0, 0, false), &entries)
    };
    assert_eq!([again(&bed, 1, 3), again(&bed, 3, 2), again(&bed, 2, 3)], [2, 7, 5]);
    assert_eq!(bed.log.log_end_offset().get(), 8);
    bed.by(4, false, &[2]);
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.data_keys()), (vec![2, 5, 7, 8], vec![3, 1, 4, 2]));
    assert_eq!(bed.offsets(), [3, 6, 7, 8]);
    assert_eq!(bed.batch(2).unwrap().len(), 61);
    let bed = bed.reopened(true, false);
    assert_eq!(again(&bed, 1, 3), 2);

    let bed = Bed::new(&[]);
    bed.put(&[kv("0", "v")]);
    for id in [1, 2, 3] {
        bed.by(id, false, &[0]);
    }
    bed.by(2, false, &[1]);
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.offsets()), (vec![1, 3, 4], vec![3, 4]));
    assert_eq!(sequences(&bed), [Some(0), Some(1), Some(0)]);
}

#[test]
fn cleaner_edge_47_and_48_last_sequence_stays_when_its_transaction_was_aborted() {
    let bed = Bed::new(&[]);
    bed.txn(1, &[1]);
    bed.txn(1, &[2, 3]);
    bed.abort(1);
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.data_keys(), bed.offsets()), (vec![2, 3], vec![], vec![3]));
    assert_eq!(bed.last_sequence(1), Some(2));
    bed.by(1, false, &[1, 5]);
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.data_keys()), (vec![3, 5], vec![1, 5]));
    assert_eq!((bed.offsets(), bed.last_sequence(1)), (vec![3, 4, 5], Some(4)));
}

#[test]
fn cleaner_edge_49_aborted_data_goes_and_the_index_stays() {
    let bed = Bed::new(&[]);
    bed.txn(1, &[1, 2]);
    bed.txn(2, &[2, 3]);
    bed.txn(1, &[3, 4]);
    bed.abort(1);
    bed.commit(2);
    bed.txn(1, &[2]);
    bed.commit(1);
    let before = bed.aborted();
    bed.clean();
    assert_eq!((bed.data_keys(), bed.offsets()), (vec![3, 2], vec![3, 6, 7, 8, 9]));
    assert_eq!((bed.aborted(), before.len()), (before, 1));
}

#[test]
fn cleaner_edge_50_abort_is_known_from_a_later_segment() {
    let bed = Bed::new(&[]);
    bed.txn(1, &[1, 2]);
    bed.txn(3, &[2, 3]);
    bed.txn(2, &[3, 4]);
    bed.roll();
    bed.txn(2, &[5, 6]);
    bed.txn(3, &[6, 7]);
    bed.txn(1, &[7, 8]);
    bed.abort(2);
    bed.txn(3, &[8, 9]);
    bed.commit(3);
    bed.txn(1, &[9, 10]);
    bed.abort(1);
    let round = bed.round(0, NOW).unwrap();
    assert_eq!(bed.data_keys(), [2, 3, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10]);
    bed.roll();
    bed.txn(2, &[11]);
    bed.txn(1, &[12]);
    bed.round(round.end.unwrap().get(), NOW).unwrap();
    assert_eq!(bed.data_keys(), [2, 3, 6, 7, 8, 9, 11, 12]);
}

#[test]
fn cleaner_edge_51_and_70_transactions_over_many_rounds_with_a_small_map() {
    let mut bed = Bed::new(&[("delete.retention.ms", "50000")]);
    bed.options = options(4);
    bed.txn(1, &[1, 2]);
    bed.txn(2, &[2, 3]);
    bed.txn(1, &[3, 4]);
    bed.commit(1);
    bed.commit(2);
    bed.txn(1, &[2, 3]);
    bed.abort(1);
    bed.txn(2, &[4, 5]);
    bed.txn(1, &[5, 6]);
    bed.commit(1);
    bed.abort(2);
    bed.txn(2, &[6, 7]);
    bed.commit(2);
    bed.roll();
    let bases = |bed: &Bed| bed.batches().iter().map(|b| b.0).collect::<Vec<_>>();
    let rest = |from: &[i64]| [from, &[15, 16, 17, 18, 19]].concat();
    assert_eq!(bed.round(0, NOW).unwrap().end.unwrap().get(), 4);
    // The data of aborted transactions is gone behind the map's reach too, and the index is whole.
    let all = [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19];
    assert_eq!((bases(&bed), bed.offsets()), (all.to_vec(), rest(&[0, 2, 3, 4, 5, 6, 7, 10, 13, 14])));
    assert_eq!(bed.aborted(), [(1, 8, 10), (2, 11, 16)]);
    assert_eq!(bed.round(4, NOW).unwrap().end.unwrap().get(), 14);
    assert_eq!((bases(&bed), bed.offsets()), (all.to_vec(), rest(&[0, 2, 4, 5, 6, 7, 10, 13, 14])));
    assert_eq!(bed.aborted(), []);
    assert_eq!(bed.round(14, NOW + 50_000).unwrap().end.unwrap().get(), 20);
    assert_eq!(bases(&bed), [0, 2, 4, 6, 7, 13, 15, 17, 19]);
    assert_eq!(bed.offsets(), [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19]);
    assert_eq!(bed.log.first_unstable_offset(), None);
}

#[test]
fn cleaner_edge_52_and_53_commit_marker_goes_a_retention_after_its_data() {
    let bed = Bed::new(&[]);
    bed.txn(1, &[1]);
    bed.txn(1, &[2, 3]);
    bed.commit(1);
    bed.txn(1, &[2]);
    bed.commit(1);
    bed.clean();
    assert_eq!((bed.data_keys(), bed.offsets()), (vec![1, 3, 2], vec![0, 2, 3, 4, 5]));
    bed.txn(1, &[1, 3]);
    bed.commit(1);
    bed.clean();
    assert_eq!((bed.data_keys(), bed.offsets()), (vec![2, 1, 3], vec![3, 4, 5, 6, 7, 8]));
    bed.round(0, NOW).unwrap();
    assert_eq!(bed.offsets(), [3, 4, 5, 6, 7, 8]);
    bed.round(0, NOW + DAY).unwrap();
    assert_eq!(bed.offsets(), [4, 5, 6, 7, 8]);
}

#[test]
fn cleaner_edge_54_and_55_a_dropped_batch_alone_in_a_buffer_is_progress() {
    let mut bed = Bed::new(&[]);
    bed.options.io_buffer_bytes = 512;
    bed.txn(1, &[1]);
    bed.abort(1);
    bed.keys([2]);
    bed.txn(1, &[2]);
    bed.commit(1);
    bed.clean();
    assert_eq!((bed.data_keys(), bed.offsets()), (vec![2], vec![1, 3, 4]));
    bed.clean_twice(NOW);
    assert_eq!(bed.offsets(), [3, 4]);
}

#[test]
fn cleaner_edge_56_and_57_and_58_commit_marker_stays_with_the_header_of_its_data() {
    let bed = Bed::new(&[]);
    bed.txn(1, &[2, 3]);
    bed.txn(2, &[2, 3]);
    bed.commit(2);
    bed.keys([2, 3]);
    bed.commit(1);
    for _ in 0..2 {
        bed.clean();
        assert_eq!((bed.offsets(), bed.last_offsets()), (vec![4, 5, 6, 7], vec![1, 3, 4, 5, 6, 7]));
    }
    bed.txn(2, &[1]);
    bed.commit(2);
    bed.clean();
    assert_eq!(bed.last_offsets(), [1, 4, 5, 6, 7, 8, 9]);
    assert_eq!(bed.horizons()[1], None);
    bed.clean_twice(NOW);
    assert_eq!(bed.last_offsets(), [1, 5, 6, 7, 8, 9]);
}

#[test]
fn cleaner_edge_59_and_60_control_batch_without_records_is_read_again() {
    let bed = Bed::new(&[]);
    bed.commit(1);
    bed.keys([2, 3]);
    bed.clean_twice(NOW);
    assert_eq!((bed.offsets(), bed.last_offsets()), (vec![1, 2], vec![0, 1, 2]));
    assert_eq!(bed.batch(0).unwrap().len(), 61);
    bed.round(0, i64::MAX - DAY).unwrap();
    assert_eq!((bed.offsets(), bed.last_offsets()), (vec![1, 2], vec![0, 1, 2]));
}

#[test]
fn cleaner_edge_61_and_62_transactions_that_span_segments() {
    let bed = Bed::new(&[]);
    bed.txn(1, &[1]);
    bed.roll();
    bed.commit(1);
    bed.clean_twice(NOW);
    assert_eq!((bed.offsets(), bed.last_offsets()), (vec![0, 1], vec![0, 1]));
    let bed = Bed::new(&[]);
    bed.txn(1, &[1]);
    bed.roll();
    bed.abort(1);
    for now in [NOW, i64::MAX - DAY] {
        bed.clean_at(0, now);
        assert_eq!((bed.offsets(), bed.last_offsets()), (vec![1], vec![0, 1]));
    }
}

#[test]
fn cleaner_edge_63_and_64_markers_go_once_nothing_needs_them() {
    let bed = Bed::new(&[]);
    bed.txn(1, &[1]);
    bed.txn(1, &[2, 3]);
    bed.abort(1);
    bed.txn(1, &[3]);
    bed.commit(1);
    bed.clean();
    assert_eq!((bed.data_keys(), bed.offsets()), (vec![3], vec![3, 4, 5]));
    bed.clean_twice(NOW);
    assert_eq!(bed.offsets(), [4, 5]);

    // A producer that begins at sequence 0 in each transaction: its last batch counts by offset.
    let bed = Bed::new(&[]);
    let begin_anew = |bed: &Bed, key: &str| {
        let base = bed.log.log_end_offset();
        let options = kseg_format::BatchOptions {
            base_offset: base,
            leader_epoch: Some(kseg_format::LeaderEpoch::new(0)),
            ..producer(1, 0, 0, true)
        };
        bed.follow(batch(options, &[NOW], &[kv(key, "v")]).freeze());
    };
    begin_anew(&bed, "1");
    bed.commit(1);
    begin_anew(&bed, "2");
    bed.commit(1);
    bed.keys([1, 2]);
    bed.clean();
    assert_eq!((bed.offsets(), bed.last_offsets()), (vec![1, 3, 4, 5], vec![1, 2, 3, 4, 5]));
    bed.clean_twice(NOW);
    assert_eq!((bed.offsets(), bed.last_offsets()), (vec![3, 4, 5], vec![2, 3, 4, 5]));
}

#[test]
fn cleaner_edge_65_and_66_and_67_abort_marker_stays_with_the_header_of_its_data() {
    let bed = Bed::new(&[]);
    bed.txn(1, &[2, 3]);
    bed.abort(1);
    bed.clean();
    bed.clean_twice(NOW);
    assert_eq!((bed.offsets(), bed.last_offsets()), (vec![2], vec![1, 2]));
    assert_eq!(bed.aborted(), [(1, 0, 2)]);
    bed.by(1, false, &[1]);
    bed.clean();
    assert_eq!((bed.offsets(), bed.last_offsets()), (vec![2, 3], vec![2, 3]));
    assert_eq!(bed.aborted(), [(1, 0, 2)]);
    bed.clean_twice(NOW);
    assert_eq!((bed.offsets(), bed.aborted()), (vec![3], vec![]));
}

#[test]
fn cln_05_cleaner_edge_68_a_key_like_a_markers_is_a_key_like_any_other() {
    let bed = Bed::new(&[]);
    bed.txn(1, &[1]);
    bed.commit(1);
    let commit_key = "\0\0\0\u{1}";
    bed.append(producer(2, 0, 0, true), &[kv(commit_key, "v")]);
    bed.commit(2);
    bed.clean();
    assert_eq!((bed.offsets(), bed.last_offsets()), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));

    let bed = Bed::new(&[]);
    let abort_key = "\0\0\0\0";
    bed.append(producer(1, 0, 0, true), &[kv("x", "v")]);
    bed.abort(1);
    bed.put(&[kv(abort_key, "old")]);
    bed.put(&[kv(abort_key, "new")]);
    bed.clean();
    assert_eq!(bed.offsets(), [1, 3]);
}

#[test]
fn cleaner_edge_147_and_148_and_149_and_169_markers_of_version_2_stand_for_their_producer() {
    let bed = Bed::new(&[
        ("delete.retention.ms", "1000"),
        ("cleanup.policy", "compact,delete"),
        // The map's pass begins at the very batch.
        ("index.interval.bytes", "0"),
    ]);
    bed.txn(1, &[1, 2]);
    bed.marker_in(1, false, 1, TransactionVersion::V2);
    bed.roll();
    bed.keys([9]);
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.horizons()[0]), (vec![2, 3], None));
    assert_eq!(bed.aborted(), [(1, 0, 2)]);
    assert_eq!(bed.last_sequence(1), None);
    bed.keys([9]);
    bed.clean();
    assert_eq!((bed.horizons()[0], bed.aborted()), (Some(NOW + 1000), vec![]));
    bed.keys([9]);
    bed.clean_at(0, NOW + 1000);
    let marker = bed.batch(2).unwrap();
    let header = kseg_format::Batch::parse(&marker).unwrap();
    assert_eq!((marker.len(), header.attributes().get()), (61, 0x30));
    assert_eq!(header.producer_epoch().map(kseg_format::ProducerEpoch::get), Some(1));
    assert_eq!(header.base_sequence(), None);

    let bed = Bed::new(&[
        ("delete.retention.ms", "1000"),
        ("cleanup.policy", "compact,delete"),
        // So that the map's pass begins at the very batch.
        ("index.interval.bytes", "0"),
    ]);
    bed.txn(1, &[1]);
    bed.marker_in(1, true, 1, TransactionVersion::V2);
    bed.keys([1]);
    bed.clean();
    assert_eq!((bed.last_offsets(), bed.horizons()[0]), (vec![1, 2], None));
    bed.round(0, NOW).unwrap();
    assert_eq!(bed.horizons()[0], Some(NOW + 1000));
    bed.round(0, NOW + 1000).unwrap();
    assert_eq!(bed.batch(1).unwrap().len(), 61);
    bed.set_producer(1, 1, 0);
    bed.txn(1, &[7]);
    bed.marker_in(1, true, 2, TransactionVersion::V2);
    bed.clean_at(0, NOW + 1000);
    assert_eq!(bed.batch(1), None);

    // A producer that has expired is nobody's last.
    let bed = Bed::new(&[]);
    bed.by(1, false, &[1]);
    bed.keys([1]);
    bed.clean();
    assert_eq!(bed.last_offsets(), [0, 1]);
    bed.clock.set(NOW + 2 * DAY);
    bed.log.expire_producers();
    bed.round(0, NOW).unwrap();
    assert_eq!(bed.last_offsets(), [1]);
}

#[test]
fn cleaner_edge_162_and_181_after_a_stop_the_producers_are_what_the_log_tells() {
    let bed = Bed::new(&[
        ("delete.retention.ms", "1000"),
        ("cleanup.policy", "compact,delete"),
        // So that the map's pass begins at the very batch.
        ("index.interval.bytes", "0"),
    ]);
    bed.txn(1, &[1]);
    bed.marker_in(1, true, 1, TransactionVersion::V2);
    bed.keys([1]);
    bed.clean();
    bed.round(0, NOW).unwrap();
    bed.round(0, NOW + 1000).unwrap();
    let end = bed.log.log_end_offset();
    let bed = bed.reopened(true, false);
    assert_eq!((bed.last_sequence(1), bed.log.log_end_offset()), (None, end));

    let bed = Bed::new(&[]);
    bed.by(1, false, &[1, 2]);
    bed.roll();
    bed.by(2, false, &[1, 2]);
    bed.clean();
    let bed = bed.reopened(false, true);
    assert_eq!([1, 2].map(|id| bed.last_sequence(id)), [Some(1), Some(1)]);
}

#[test]
fn cleaner_edge_180_aborted_data_below_the_log_start_leaves_with_its_marker() {
    let bed = Bed::new(&[
        ("delete.retention.ms", "1000"),
        ("cleanup.policy", "compact,delete"),
        // So that the map's pass begins at the very batch.
        ("index.interval.bytes", "0"),
    ]);
    bed.txn(1, &[1]);
    bed.abort(1);
    bed.by(1, false, &[2]);
    bed.keys([3]);
    bed.roll();
    bed.keys([4]);
    bed.log.increment_log_start_offset(kseg_format::Offset::new(3)).unwrap();
    bed.clean();
    assert_eq!((bed.offsets(), bed.aborted()), (vec![1, 2, 3, 4], vec![(1, 0, 1)]));
    bed.round(0, NOW).unwrap();
    bed.round(0, NOW + 1000).unwrap();
    assert_eq!((bed.offsets(), bed.aborted()), (vec![2, 3, 4], vec![]));
    let bed = bed.reopened(true, false);
    assert_eq!(bed.log.last_stable_offset(), bed.log.log_end_offset());
}

/// A producer whose first transaction was aborted and whose second deleted a key and was committed. The key has a value from before.
fn deleted_behind_an_aborted_transaction() -> Bed {
    let bed = Bed::new(&[
        ("delete.retention.ms", "1000"),
        ("cleanup.policy", "compact,delete"),
        // So that the map's pass begins at the very batch.
        ("index.interval.bytes", "0"),
    ]);
    let by_one = |sequence, entry| bed.append(producer(1, 0, sequence, true), &[entry]);
    by_one(0, kv("x", "aborted")); // 0
    bed.abort(1); // 1
    bed.put(&[kv("k", "old")]); // 2
    by_one(1, gone("k")); // 3
    bed.commit(1); // 4
    by_one(2, kv("y", "y")); // 5: so that 3 is not its producer's last
    bed.commit(1); // 6
    bed.roll();
    bed
}

/// What is left once every horizon has passed: of rounds that begin where the one before ended.
fn keys_in_the_end(bed: &Bed) -> Vec<String> {
    for n in 1..4 {
        let dirty = bed.active();
        bed.put(&[kv("z", "z")]);
        bed.roll();
        bed.round(dirty, NOW + n * DAY).unwrap();
    }
    bed.data().into_iter().map(|(_, key, _)| key).filter(|key| key != "z").collect()
}

#[test]
fn an_abort_below_the_log_start_says_nothing_of_later_transactions() {
    let bed = deleted_behind_an_aborted_transaction();
    bed.log.delete_records_before(Some(Offset::new(2))).unwrap();
    bed.round(2, NOW).unwrap();
    assert_eq!(keys_in_the_end(&bed), ["y"], "the deleted key stays deleted");
}

#[test]
fn an_abort_below_the_dirty_section_says_nothing_of_later_transactions() {
    // Where a full map has ended the round before: in the segment, behind the marker, before the tombstone.
    for first in 2..=3 {
        let bed = deleted_behind_an_aborted_transaction();
        bed.round(first, NOW).unwrap();
        assert_eq!(keys_in_the_end(&bed), ["y"], "from {first}");
    }
}
