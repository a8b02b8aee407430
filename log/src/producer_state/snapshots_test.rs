use std::collections::BTreeMap;

use kseg_format::{Origin, ProducerId, Sequence};

use super::super::tests::{data, in_transaction};
use super::*;

const CLIENT: Origin = Origin::Client;

/// Files in memory.
#[derive(Debug, Default)]
struct Files {
    files: BTreeMap<i64, Vec<u8>>,
    marked: Vec<i64>,
}

impl Files {
    fn offsets(&self) -> Vec<i64> {
        self.files.keys().copied().collect()
    }
}

impl SnapshotStore for Files {
    type Error = String;

    fn list(&mut self) -> Result<Vec<Offset>, String> {
        Ok(self.files.keys().copied().map(Offset::new).collect())
    }

    fn read(&mut self, offset: Offset) -> Result<Vec<u8>, String> {
        self.files.get(&offset.get()).cloned().ok_or_else(|| format!("no snapshot {offset}"))
    }

    fn write(&mut self, offset: Offset, bytes: &[u8], _durable: bool) -> Result<(), String> {
        self.files.insert(offset.get(), bytes.to_vec());
        Ok(())
    }

    fn delete(&mut self, offset: Offset) -> Result<(), String> {
        self.files.remove(&offset.get());
        Ok(())
    }

    fn mark_deleted(&mut self, offset: Offset) -> Result<bool, String> {
        let there = self.files.remove(&offset.get()).is_some();
        self.marked.extend(there.then_some(offset.get()));
        Ok(there)
    }
}

fn snapshot(state: &mut ProducerState, files: &mut Files) -> Option<i64> {
    state.take_snapshot(files, false).unwrap().map(Offset::get)
}

fn reload(state: &mut ProducerState, files: &mut Files, start: i64, end: i64) -> Vec<DiscardedSnapshot> {
    state.truncate_and_reload(files, Offset::new(start), Offset::new(end), 0).unwrap()
}

/// Snapshots at each of `offsets`, each telling of a plain batch just below.
fn with_snapshots(offsets: &[i64]) -> (ProducerState, Files) {
    let (mut state, mut files) = (ProducerState::for_tests(), Files::default());
    for (index, offset) in offsets.iter().enumerate() {
        state.append(CLIENT, data(1, 0, index as i32, offset - 1)).unwrap();
        assert_eq!(snapshot(&mut state, &mut files), Some(*offset));
    }
    (state, files)
}

/// A state that knows nothing but the files.
fn fresh(files: &mut Files) -> ProducerState {
    let mut state = ProducerState::for_tests();
    state.list_snapshots(files).unwrap();
    state
}

#[test]
fn format_edge_101_fencing_survives_a_reload() {
    let (mut state, mut files) = (ProducerState::for_tests(), Files::default());
    state.append(CLIENT, in_transaction(1, 0, 0, 0)).unwrap();
    state.end(1, 0, true, 1);
    snapshot(&mut state, &mut files);
    let mut state = fresh(&mut files);
    reload(&mut state, &mut files, 0, 2);
    let entry = state.entry(1);
    assert_eq!((entry.coordinator_epoch(), entry.epoch().unwrap().get()), (Some(0), 0));
}

#[test]
fn format_edge_107_snapshots_outside_the_log_go() {
    let (mut state, mut files) = with_snapshots(&[1, 2, 3, 4, 5]);
    reload(&mut state, &mut files, 1, 3);
    assert_eq!(files.offsets(), [2, 3]);
    assert_eq!((state.map_end(), state.latest_snapshot()), (Offset::new(3), Some(Offset::new(3))));
    assert_eq!(state.entry(1).last_sequence(), Some(Sequence::new(2)));
}

#[test]
fn format_edge_108_one_snapshot_an_offset_and_strays() {
    let (mut state, mut files) = with_snapshots(&[2, 5, 42]);
    assert_eq!(snapshot(&mut state, &mut files), None);
    let bases = |bases: &[i64]| bases.iter().copied().map(Offset::new).collect();
    let removed = state.remove_stray_snapshots(&mut files, &bases(&[5])).unwrap();
    assert_eq!((files.offsets(), removed), (vec![5, 42], vec![Offset::new(2)]));
    let (mut state, mut files) = with_snapshots(&[2, 5, 42]);
    state.remove_stray_snapshots(&mut files, &bases(&[42])).unwrap();
    assert_eq!(files.offsets(), [42]);
    let (mut state, mut files) = with_snapshots(&[2, 5, 42]);
    state.remove_stray_snapshots(&mut files, &bases(&[])).unwrap();
    assert_eq!(files.offsets(), [42], "without segments the newest stays");
}

#[test]
fn log_edge_171_a_stray_below_the_newest_segment_goes() {
    let (mut state, mut files) = with_snapshots(&[1, 2, 4]);
    files.files.insert(3, Vec::new());
    let bases = [1, 2, 4].into_iter().map(Offset::new).collect();
    state.remove_stray_snapshots(&mut files, &bases).unwrap();
    assert_eq!(files.offsets(), [1, 2, 4]);
}

#[test]
fn log_edge_172_a_snapshot_above_an_empty_log_goes() {
    let mut files = Files::default();
    files.files.insert(42, Vec::new());
    let mut state = fresh(&mut files);
    reload(&mut state, &mut files, 0, 0);
    assert!(files.offsets().is_empty());
}

#[test]
fn format_edge_109_and_log_edge_198_a_damaged_snapshot_is_passed_over() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [Damage; 4] =
        [Vec::clear, |bytes| bytes.truncate(bytes.len() / 2), |bytes| bytes.fill(7), |bytes| bytes.push(0)];
    for damage in damages {
        let (_, mut files) = with_snapshots(&[1, 2]);
        damage(files.files.get_mut(&2).unwrap());
        let mut state = fresh(&mut files);
        let discarded = reload(&mut state, &mut files, 0, 9);
        assert_eq!(discarded.len(), 1);
        assert_eq!(discarded[0].offset, Offset::new(2));
        assert_eq!(discarded[0].reason.kafka_name(), "CorruptSnapshotException");
        assert_eq!((files.offsets(), state.map_end()), (vec![1], Offset::new(1)));
        assert_eq!(state.entry(1).last_sequence(), Some(Sequence::new(0)));
    }
}

#[test]
fn without_a_usable_snapshot_the_map_ends_at_the_log_start() {
    let (_, mut files) = with_snapshots(&[8]);
    files.files.insert(8, vec![1]);
    let mut state = fresh(&mut files);
    assert_eq!(reload(&mut state, &mut files, 5, 9).len(), 1);
    assert_eq!((state.map_end(), state.is_empty()), (Offset::new(5), true));
    assert_eq!(snapshot(&mut state, &mut files), None);
}

#[test]
fn format_edge_110_an_open_transaction_is_restored() {
    let (mut state, mut files) = (ProducerState::for_tests(), Files::default());
    state.append(CLIENT, in_transaction(1, 0, 0, 0)).unwrap();
    state.append(CLIENT, in_transaction(1, 0, 1, 1)).unwrap();
    snapshot(&mut state, &mut files);
    let mut state = fresh(&mut files);
    reload(&mut state, &mut files, 0, 2);
    let entry = state.entry(1);
    assert_eq!(
        (entry.first_sequence(), entry.first_data_offset()),
        (Some(Sequence::new(1)), Some(Offset::new(1)))
    );
    assert_eq!(entry.transaction_start(), Some(Offset::ZERO));
    let start = state.first_unstable().unwrap();
    assert_eq!((start.offset, start.position), (Offset::ZERO, None));
    assert_eq!(state.end(1, 0, false, 2), Some((0, 3)));
}

#[test]
fn format_edge_111_and_log_edge_168_expired_producers_are_not_loaded() {
    let (_, mut files) = with_snapshots(&[1]);
    let mut state = fresh(&mut files);
    let long_after = 10 * 86_400_000;
    state.truncate_and_reload(&mut files, Offset::ZERO, Offset::new(1), long_after).unwrap();
    assert_eq!((state.is_empty(), state.map_end()), (true, Offset::new(1)));
}

#[test]
fn format_edge_115_and_200_marking_for_deletion() {
    let (mut state, mut files) = with_snapshots(&[5]);
    assert_eq!(state.mark_snapshot_deleted(&mut files, Offset::new(4)), Ok(false));
    assert_eq!(state.mark_snapshot_deleted(&mut files, Offset::new(5)), Ok(true));
    assert_eq!((files.marked.as_slice(), state.latest_snapshot()), (&[5][..], None));
    let (mut state, mut files) = with_snapshots(&[5]);
    files.files.clear();
    assert_eq!(state.mark_snapshot_deleted(&mut files, Offset::new(5)), Ok(false));
    assert_eq!(state.latest_snapshot(), None);
}

#[test]
fn format_edge_113_a_late_transaction_survives_a_reload() {
    let (mut state, mut files) = (ProducerState::for_tests(), Files::default());
    state.append(CLIENT, in_transaction(1, 0, 0, 500)).unwrap();
    snapshot(&mut state, &mut files);
    let mut state = fresh(&mut files);
    reload(&mut state, &mut files, 0, 501);
    assert!(state.has_late_transaction(2_000_000));
    reload(&mut state, &mut files, 0, 400);
    assert!(!state.has_late_transaction(2_000_000));
}

#[test]
fn log_edge_146_snapshots_follow_a_truncation() {
    for (to, latest) in [(2, Some(2)), (1, None), (0, None)] {
        let (mut state, mut files) = with_snapshots(&[2, 3]);
        reload(&mut state, &mut files, 0, to);
        assert_eq!(state.latest_snapshot().map(Offset::get), latest, "truncated to {to}");
    }
}

#[test]
fn format_edge_194_what_a_snapshot_tells_after_a_marker() {
    let (mut state, mut files) = (ProducerState::for_tests(), Files::default());
    state.append(CLIENT, in_transaction(1, 0, 0, 0)).unwrap();
    state.append(CLIENT, in_transaction(1, 0, 1, 1)).unwrap();
    state.end(1, 0, true, 2);
    state.end(2, 0, true, 3);
    snapshot(&mut state, &mut files);
    let mut state = fresh(&mut files);
    reload(&mut state, &mut files, 0, 4);
    let entry = state.entry(1);
    assert_eq!(
        (entry.first_data_offset(), entry.last_data_offset()),
        (Some(Offset::new(1)), Some(Offset::new(1)))
    );
    assert_eq!((entry.last_sequence(), entry.transaction_start()), (Some(Sequence::new(1)), None));
    let entry = state.entry(2);
    assert_eq!(entry.last_timestamp().unwrap().get(), 4);
    assert_eq!((entry.last_data_offset(), entry.transaction_start()), (None, None));
}

#[test]
fn format_edge_196_deleting_snapshots() {
    let (mut state, mut files) = with_snapshots(&[2, 3]);
    state.delete_snapshots_before(&mut files, Offset::new(3)).unwrap();
    assert_eq!(files.offsets(), [3]);
    state.delete_snapshots_before(&mut files, Offset::new(4)).unwrap();
    assert!(files.offsets().is_empty());

    let (mut state, mut files) = with_snapshots(&[2, 3]);
    state.truncate_fully_and_start_at(&mut files, Offset::ZERO).unwrap();
    assert!(files.offsets().is_empty() && state.is_empty());
    state.append(CLIENT, data(1, 0, 0, 0)).unwrap();
    assert_eq!(snapshot(&mut state, &mut files), Some(1));
    assert_eq!(files.offsets(), [1]);
}

#[test]
fn log_edge_285_a_full_truncation_sets_the_map_end() {
    let (mut state, mut files) = with_snapshots(&[1, 3]);
    state.truncate_fully_and_start_at(&mut files, Offset::new(29)).unwrap();
    assert_eq!((state.map_end(), files.offsets()), (Offset::new(29), vec![]));
}

#[test]
fn format_edge_197_the_set_in_memory_and_the_files_are_two_things() {
    let (mut state, mut files) = with_snapshots(&[3, 5]);
    let three = files.files[&3].clone();
    reload(&mut state, &mut files, 3, 5);
    assert_eq!(files.offsets(), [5]);
    files.files.insert(3, three);
    state.truncate_fully_and_start_at(&mut files, Offset::ZERO).unwrap();
    state.list_snapshots(&mut files).unwrap();
    assert_eq!((state.latest_snapshot(), files.offsets()), (Some(Offset::new(3)), vec![3]));
}

#[test]
fn format_edge_198_a_truncation_brings_a_transaction_back() {
    let (mut state, mut files) = (ProducerState::for_tests(), Files::default());
    state.append(CLIENT, in_transaction(1, 0, 0, 99)).unwrap();
    assert_eq!(snapshot(&mut state, &mut files), Some(100));
    state.end(1, 0, false, 105);
    state.high_watermark_moved(Offset::new(106));
    assert_eq!(snapshot(&mut state, &mut files), Some(106));
    state.append(CLIENT, data(1, 0, 1, 106)).unwrap();
    reload(&mut state, &mut files, 0, 106);
    assert_eq!(state.first_unstable(), None);
    reload(&mut state, &mut files, 0, 100);
    assert_eq!(state.first_unstable().map(|start| start.offset), Some(Offset::new(99)));
}

#[test]
fn format_edge_199_producers_below_the_log_start_stay() {
    let (mut state, mut files) = (ProducerState::for_tests(), Files::default());
    state.append(CLIENT, data(1, 0, 0, 0)).unwrap();
    state.append(CLIENT, data(2, 0, 0, 1)).unwrap();
    snapshot(&mut state, &mut files);
    reload(&mut state, &mut files, 1, 2);
    let mut loaded = fresh(&mut files);
    reload(&mut loaded, &mut files, 1, 2);
    for state in [&state, &loaded] {
        for (id, offset) in [(1, 0), (2, 1)] {
            let entry = state.producer(ProducerId::new(id)).unwrap();
            assert_eq!(entry.last_sequence(), Some(Sequence::new(0)));
            assert_eq!(entry.last_data_offset(), Some(Offset::new(offset)));
        }
    }
}

#[test]
fn a_log_start_forgets_decided_transactions_below_it() {
    let (mut state, mut files) = (ProducerState::for_tests(), Files::default());
    state.append(CLIENT, in_transaction(1, 0, 0, 0)).unwrap();
    state.end(1, 0, false, 1);
    state.log_start_moved(Offset::new(1));
    assert_eq!(state.first_unstable().map(|start| start.offset), Some(Offset::ZERO));
    state.log_start_moved(Offset::new(7));
    assert_eq!((state.first_unstable(), state.map_end()), (None, Offset::new(7)));
    assert_eq!(snapshot(&mut state, &mut files), None, "the last snapshot counts as at the log start");
    assert_eq!(state.producers().len(), 1);
}

#[test]
fn a_store_that_fails_is_reported_and_leaves_the_state() {
    struct Full;
    impl SnapshotStore for Full {
        type Error = &'static str;
        fn list(&mut self) -> Result<Vec<Offset>, &'static str> {
            Err("list")
        }
        fn read(&mut self, _: Offset) -> Result<Vec<u8>, &'static str> {
            Err("read")
        }
        fn write(&mut self, _: Offset, _: &[u8], _: bool) -> Result<(), &'static str> {
            Err("write")
        }
        fn delete(&mut self, _: Offset) -> Result<(), &'static str> {
            Err("delete")
        }
        fn mark_deleted(&mut self, _: Offset) -> Result<bool, &'static str> {
            Err("mark")
        }
    }
    let (mut state, mut files) = with_snapshots(&[2]);
    state.append(CLIENT, data(1, 0, 1, 2)).unwrap();
    assert_eq!(state.take_snapshot(&mut Full, true), Err("write"));
    assert_eq!(state.list_snapshots(&mut Full), Err("list"));
    assert_eq!(state.latest_snapshot(), Some(Offset::new(2)));
    assert_eq!(snapshot(&mut state, &mut files), Some(3));
}
