use kseg_format::{AbortedTransaction, Offset, ProducerId};
use kseg_segment::{FileKind, Suffix};

use crate::support::*;

fn with_backend() -> (std::sync::Arc<dyn kseg_io_backends::Backend>, kseg_segment::Segment) {
    let backend = memory();
    let dir = std::path::Path::new(DIR);
    let segment = kseg_segment::Segment::create(backend.clone(), dir, Offset::ZERO, config(4096, 1024), 0);
    (backend, segment.expect("a new segment"))
}

fn entry(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: ProducerId::new(producer),
        first_offset: Offset::new(first),
        last_offset: Offset::new(last),
        last_stable_offset: Offset::new(stable),
    }
}

#[test]
fn log_edge_31_and_34_and_36_entries_are_34_bytes_and_a_part_of_one_is_none() {
    let (backend, segment) = with_backend();
    assert!(segment.aborted().expect("no file").is_empty());
    assert_eq!(len(&*backend, 0, FileKind::TxnIndex), None);
    let all = [entry(1, 0, 10, 11), entry(2, 5, 15, 13), entry(3, 18, 35, 25)];
    segment.append_aborted(&all[0]).expect("added");
    let bytes = contents(&*backend, 0, FileKind::TxnIndex);
    let expected = [
        &[0, 0][..],
        &1_i64.to_be_bytes(),
        &0_i64.to_be_bytes(),
        &10_i64.to_be_bytes(),
        &11_i64.to_be_bytes(),
    ];
    assert_eq!(bytes, expected.concat());
    overwrite(&*backend, 0, FileKind::TxnIndex, &[bytes, vec![7; 10]].concat());
    assert_eq!(segment.aborted().expect("read"), all[..1]);
    segment.append_aborted(&all[1]).expect("in the place of the part");
    segment.append_aborted(&all[2]).expect("added");
    assert_eq!(segment.aborted().expect("read"), all);
}

#[test]
fn log_edge_35_truncation_drops_by_the_marker_and_renaming_takes_the_file_along() {
    let segment = segment(0, 4096, 1024);
    for n in 0..3 {
        append(&segment, n * 20 + 19, &sized(n * 20, 20, 1, 200));
    }
    let all = [entry(1, 0, 10, 11), entry(2, 5, 19, 13), entry(3, 18, 45, 25)];
    for entry in &all {
        segment.append_aborted(entry).expect("added");
    }
    segment.truncate_to(Offset::new(40), 0).expect("truncated");
    assert_eq!(segment.aborted().expect("read"), all[..2]);
    segment.rename(Suffix::Deleted).expect("renamed");
    assert_eq!(segment.aborted().expect("under the new name"), all[..2]);
    segment.remove().expect("removed");
    assert!(segment.aborted().expect("gone").is_empty());
}

#[test]
fn an_entry_of_a_later_version_is_an_error() {
    let (backend, segment) = with_backend();
    segment.append_aborted(&entry(1, 0, 10, 11)).expect("added");
    let mut bytes = contents(&*backend, 0, FileKind::TxnIndex);
    bytes[0] = 1;
    overwrite(&*backend, 0, FileKind::TxnIndex, &bytes);
    assert!(segment.aborted().expect_err("version 256").to_string().contains("found 256"));
}

#[test]
fn format_edge_118_aborts_come_in_the_order_of_their_markers() {
    let (backend, segment) = with_backend();
    segment.append_aborted(&entry(1, 0, 10, 11)).expect("added");
    for last in [10, 9] {
        let refused = segment.append_aborted(&entry(2, 3, last, 11)).expect_err("not behind the last");
        assert_eq!(refused.kafka_name(), "IllegalArgumentException");
        assert!(refused.to_string().contains("at offset 11 or above"), "{refused}");
    }
    assert_eq!(segment.aborted().expect("read"), [entry(1, 0, 10, 11)]);
    segment.append_aborted(&entry(2, 3, 11, 12)).expect("behind");
    // What is compared with is not read back.
    let dir = std::path::Path::new(DIR);
    let again = kseg_segment::Segment::open(backend, dir, Offset::ZERO, config(4096, 1024), 0, 0)
        .expect("the same segment");
    again.append_aborted(&entry(3, 4, 5, 6)).expect("the first one");
    assert!(again.append_aborted(&entry(3, 4, 5, 6)).is_err());
}

#[test]
fn format_edge_119_truncation_keeps_what_ended_below() {
    for (offset, kept) in [(51, 4), (50, 3), (36, 3), (35, 2), (10, 0)] {
        let segment = segment(0, 4096, 1024);
        for n in 0..3 {
            append(&segment, n * 20 + 19, &sized(n * 20, 20, 1, 200));
        }
        let all = [entry(0, 0, 10, 11), entry(1, 5, 15, 13), entry(2, 18, 35, 25), entry(3, 32, 50, 40)];
        for entry in &all {
            segment.append_aborted(entry).expect("added");
        }
        segment.truncate_to(Offset::new(offset), 0).expect("truncated");
        assert_eq!(segment.aborted().expect("read"), all[..kept], "{offset}");
        // The next may end where the log ends now.
        let last = all[..kept].last().map_or(0, |t| t.last_offset.get());
        assert_eq!(segment.append_aborted(&entry(9, 0, last, last)).is_ok(), kept == 0, "{offset}");
        segment.append_aborted(&entry(9, 0, last + 1, last + 2)).expect("behind the last");
    }
}

#[test]
fn format_edge_121_a_renamed_index_takes_further_entries() {
    let (backend, segment) = with_backend();
    append(&segment, 0, &sized(0, 1, 1, 100));
    segment.flush(true).expect("there is no index to flush");
    assert_eq!(len(&*backend, 0, FileKind::TxnIndex), None);
    segment.append_aborted(&entry(0, 0, 2, 3)).expect("added");
    segment.rename(Suffix::Swap).expect("renamed");
    segment.append_aborted(&entry(1, 3, 4, 5)).expect("added under the new name");
    assert_eq!(segment.aborted().expect("read"), [entry(0, 0, 2, 3), entry(1, 3, 4, 5)]);
    segment.rename(Suffix::None).expect("renamed back");
    assert_eq!(segment.aborted().expect("read").len(), 2);
}

/// The four entries of Kafka's own test.
fn four() -> [AbortedTransaction; 4] {
    [entry(1, 0, 10, 11), entry(2, 5, 15, 13), entry(3, 18, 35, 25), entry(4, 32, 50, 40)]
}

#[test]
fn log_edge_30_an_entry_that_goes_back_is_refused() {
    let (backend, segment) = with_backend();
    segment.append_aborted(&entry(1, 5, 15, 16)).expect("added");
    for last in [15, 10] {
        let refused = segment.append_aborted(&entry(2, 5, last, 16)).expect_err("it goes back");
        assert_eq!(refused.kafka_name(), "IllegalArgumentException");
        assert!(refused.to_string().contains(".txnindex"), "{refused}");
    }
    assert_eq!(segment.aborted().expect("read"), [entry(1, 5, 15, 16)]);
    // Only what this value has added counts: whoever opens the file anew may add anything first.
    reopen(backend, 0, config(4096, 1024)).append_aborted(&entry(2, 5, 10, 16)).expect("added");
}

#[test]
fn log_edge_31_entries_come_back_in_order_after_a_reopening() {
    let (backend, segment) = with_backend();
    for entry in four() {
        segment.append_aborted(&entry).expect("added");
    }
    segment.close().expect("closed");
    let segment = reopen(backend, 0, config(4096, 1024));
    assert_eq!(segment.aborted().expect("read"), four());
    segment.append_aborted(&entry(5, 28, 70, 80)).expect("added");
    assert_eq!(segment.aborted().expect("read"), [&four()[..], &[entry(5, 28, 70, 80)]].concat());
}

#[test]
fn log_edge_32_entries_of_another_segment_are_found_out() {
    let sound = |base: i64, end, entries: &[AbortedTransaction]| {
        let segment = segment(base, 4096, 1024);
        for entry in entries {
            segment.append_aborted(entry).expect("added");
        }
        segment.aborted_are_sound(Offset::new(end)).expect("read")
    };
    assert!(sound(0, 51, &four()) && sound(0, 0, &[]));
    assert!(!sound(100, 200, &four()), "below the base");
    assert!(!sound(0, 50, &four()), "behind the end");
    assert!(!sound(0, 51, &[entry(1, 20, 10, 11)]), "a marker before its transaction");
    let (backend, segment) = with_backend();
    let bytes = [four()[1].encode(), four()[0].encode()].concat();
    overwrite(&*backend, 0, FileKind::TxnIndex, &bytes);
    assert!(!segment.aborted_are_sound(Offset::new(51)).expect("read"), "markers that go back");
    overwrite(&*backend, 0, FileKind::TxnIndex, &[1; 34]);
    assert!(!segment.aborted_are_sound(Offset::new(51)).expect("read"), "a later version");
    segment.replace_aborted(&four()).expect("made anew");
    assert!(segment.aborted_are_sound(Offset::new(51)).expect("read"));
    assert_eq!(segment.aborted().expect("read"), four());
    assert!(segment.append_aborted(&four()[3]).is_err(), "it goes on behind the last");
}

#[test]
fn log_edge_33_truncation_goes_by_the_marker() {
    let (backend, segment) = with_backend();
    for n in 0..6 {
        append(&segment, n * 10 + 9, &sized(n * 10, 10, 1, 200));
    }
    for entry in four() {
        segment.append_aborted(&entry).expect("added");
    }
    for (to, left) in [(51, 4), (50, 3), (0, 0)] {
        segment.truncate_to(Offset::new(to), 0).expect("truncated");
        assert_eq!(segment.aborted().expect("read"), four()[..left], "{to}");
    }
    assert_eq!(len(&*backend, 0, FileKind::TxnIndex), Some(0));
    // What was dropped may come again.
    segment.append_aborted(&entry(9, 0, 3, 4)).expect("added");
}

#[test]
fn log_edge_264_an_index_is_empty_without_a_file_and_without_an_entry() {
    let (backend, segment) = with_backend();
    assert!(segment.aborted().expect("no file").is_empty());
    overwrite(&*backend, 0, FileKind::TxnIndex, &[]);
    assert!(segment.aborted().expect("an empty file").is_empty());
    segment.append_aborted(&entry(983_493, 137, 299, 200)).expect("added");
    assert_eq!(segment.aborted().expect("read"), [entry(983_493, 137, 299, 200)]);
    segment.remove().expect("removed");
    assert_eq!(len(&*backend, 0, FileKind::TxnIndex), None);
}
