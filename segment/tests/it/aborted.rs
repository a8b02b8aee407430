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
fn log_edge_31_34_and_36_entries_are_34_bytes_and_a_part_of_one_is_none() {
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
fn log_edge_33_and_35_truncation_drops_by_the_marker_and_renaming_takes_the_file_along() {
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
