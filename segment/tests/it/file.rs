//! The `.log` file and regions of it: sizes, slices, walks, cuts.

use std::path::Path;
use std::sync::Arc;

use kseg_format::Offset;
use kseg_io_backends::{Backend, Call, Metered, Op, OpenHow, RawFile, Through};
use kseg_segment::{BatchReader, Error, FileKind, FileRegion, Headers, Segment};

use crate::support::*;

fn segment_on(backend: &Arc<dyn Backend>) -> Segment {
    Segment::create(backend.clone(), Path::new(DIR), Offset::ZERO, config(4096, 1024), 0).expect("new")
}

/// Batches of 69 bytes at offsets 0 and up.
fn filled(backend: &Arc<dyn Backend>, count: i64) -> Segment {
    let segment = segment_on(backend);
    for n in 0..count {
        append(&segment, n, &sized(n, 1, 10 + n, 69));
    }
    segment
}

fn region(segment: &Segment) -> FileRegion {
    let read = segment.read(Offset::ZERO, usize::MAX, Some(segment.size()), true).expect("a read");
    read.expect("a batch").region
}

fn raw(backend: &dyn Backend) -> Arc<dyn RawFile> {
    backend.open(&path(0, FileKind::Log), OpenHow::Write).expect("open")
}

#[test]
fn log_edge_14_an_index_that_was_let_go_is_an_error_not_a_crash() {
    let segment = filled(&memory(), 3);
    segment.abandon();
    for refused in [
        segment.append(Offset::new(3), sized(3, 1, 1, 69)).map(drop),
        segment.translate(Offset::ZERO).map(drop),
        segment.offset_entries().map(drop),
        segment.time_entries().map(drop),
        segment.flush(true),
        segment.seal(),
    ] {
        assert_eq!(refused.expect_err("closed").kafka_name(), "KafkaStorageException");
    }
    segment.close().expect("closing what is let go is no error");
}

#[test]
fn a_sealed_segment_that_nobody_uses_lets_go_of_its_files() {
    let metered = Arc::new(Metered::new(memory()));
    let backend: Arc<dyn Backend> = metered.clone();
    let segment = filled(&backend, 80);
    let idle = || segment.is_idle().expect("looked at");
    assert_eq!([idle(), idle(), segment.rest()], [false; 3], "it takes appends");

    segment.seal().expect("sealed");
    segment.flush(true).expect("flushed");
    let entries = offset_entries(&segment);
    assert_eq!([idle(), idle()], [false, true], "used, then not");
    let held = region(&segment);
    assert!(!segment.rest(), "used in between");
    assert_eq!([idle(), idle(), segment.rest()], [false, true, true]);
    assert_eq!([idle(), segment.rest()], [false; 2], "nothing is left to let go of");

    let opened = || metered.calls(Call::Open, "log").calls;
    let before = opened();
    let mut bytes = Vec::new();
    held.copy_into(&mut bytes).expect("a region reads on");
    assert_eq!((bytes.len() as u64, opened() - before), (segment.size(), 0));
    assert_eq!(position_of(&segment, 79), Some(79 * 69));
    assert_eq!((offset_entries(&segment), opened() - before), (entries, 1));

    // Where a truncation makes it the last one again, it takes appends.
    assert_eq!([idle(), idle(), segment.rest()], [false, true, true]);
    segment.activate().expect("active");
    assert!(!segment.rest());
    append(&segment, 80, &sized(80, 1, 90, 69));
    assert_eq!(
        (position_of(&segment, 80), len(&*backend, 0, FileKind::OffsetIndex)),
        (Some(80 * 69), Some(1024))
    );
    segment.close().expect("closed");
}

#[test]
fn log_edge_73_a_file_holds_what_a_position_can_name_and_no_more() {
    const MAX: u64 = i32::MAX as u64;
    let backend = memory();
    let open = |size| Segment::open(backend.clone(), Path::new(DIR), Offset::ZERO, config(1, 1024), 0, size);
    assert_eq!(open(MAX + 5).expect_err("too large").kafka_name(), "KafkaException");
    overwrite(&*backend, 0, FileKind::Log, &sized(0, 1, 1, 69));
    raw(&*backend).submit(Op::SetLen { len: MAX }).wait().result.expect("lengthened");
    let full = open(MAX).expect("just fits");
    full.open_indexes().expect("opened");
    let refused = full.append(Offset::new(9), sized(9, 1, 1, 69)).expect_err("full");
    assert_eq!((refused.kafka_name(), full.size()), ("IllegalArgumentException", MAX));
}

#[test]
fn log_edge_74_and_75_slices_end_with_their_region() {
    let segment = filled(&memory(), 3);
    let all = region(&segment);
    assert!(all.slice(all.len() + 1, 15).is_err());
    assert!(all.slice(all.len(), 1).expect("at the end").is_empty());
    let second = all.slice(69, 69).expect("a slice");
    assert_eq!(second.slice(60, 5).expect("a slice").len(), 5);
    assert!(second.slice(69, 1).expect("at the end").is_empty());
    assert!(second.slice(70, 1).is_err());
    let far = all.slice(69, i32::MAX as usize).expect("a slice");
    assert_eq!((far.position(), far.len()), (69, 138));
    let farther = far.slice(69, i32::MAX as usize).expect("a slice of a slice");
    assert_eq!((farther.position(), farther.len()), (138, 69));
}

#[test]
fn log_edge_76_a_walk_gives_whole_batches_only() {
    let segment = filled(&memory(), 3);
    let all = region(&segment);
    let batches = |end| {
        let mut walk = BatchReader::new(&**all.file(), 69, end);
        std::iter::from_fn(|| walk.next().expect("framing").map(|(at, _)| at)).collect::<Vec<_>>()
    };
    assert_eq!((batches(138), batches(137)), (vec![69], vec![]));
}

#[test]
fn log_edge_77_a_walk_moves_nothing() {
    let backend = memory();
    let segment = filled(&backend, 2);
    let all = region(&segment);
    for _ in 0..2 {
        let mut walk = Headers::new(&**all.file(), 0, segment.size());
        while walk.next().expect("framing").is_some() {}
        assert_eq!(walk.position(), 138);
    }
    append(&segment, 2, &sized(2, 1, 1, 69));
    assert_eq!((position_of(&segment, 2), len(&*backend, 0, FileKind::Log)), (Some(138), Some(207)));
}

#[test]
fn log_edge_78_bytes_behind_the_published_size_are_not_seen() {
    let backend = memory();
    let segment = filled(&backend, 2);
    let write = Op::Write { at: 138, data: sized(2, 1, 1, 69).into(), through: Through::No };
    raw(&*backend).submit(write).wait().result.expect("written");
    assert_eq!((segment.size(), region(&segment).len()), (138, 138));
    assert_eq!((position_of(&segment, 2), segment.next_offset().expect("a walk").get()), (None, 2));
}

#[test]
fn log_edge_80_a_cut_that_changes_nothing_makes_no_call() {
    let metered = Arc::new(Metered::new(memory()));
    let backend: Arc<dyn Backend> = metered.clone();
    let segment = filled(&backend, 3);
    let cuts = || metered.calls(Call::SetLen, "log").calls;
    let before = cuts();
    let all = region(&segment);
    all.file().truncate(207).expect("nothing to cut");
    assert_eq!(cuts(), before);
    all.file().truncate(208).expect_err("beyond the end");
    assert_eq!((cuts(), segment.size()), (before, 207));
    segment.truncate_to(Offset::new(2), 0).expect("cut");
    assert_eq!((cuts() - before, segment.size(), len(&*backend, 0, FileKind::Log)), (1, 138, Some(138)));
}

#[test]
fn log_edge_82_a_transfer_ends_with_the_region() {
    let segment = filled(&memory(), 3);
    let all = region(&segment);
    let mut bytes = vec![0; 207 - 5 + 1];
    assert_eq!(all.read_at(&mut bytes, 5).expect("read"), 207 - 5);
    assert_eq!(bytes[..202], all.to_bytes().expect("read")[5..]);
}

#[test]
fn log_edge_83_a_region_keeps_the_size_that_was_read() {
    let segment = filled(&memory(), 200);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 200..400 {
                append(&segment, n, &sized(n, 1, 10 + n, 69));
            }
        });
        while !writer.is_finished() {
            let size = segment.size();
            let read = segment.read(Offset::ZERO, usize::MAX, Some(size), true).expect("a read");
            assert_eq!(read.expect("a batch").region.len() as u64, size);
        }
    });
    assert_eq!(region(&segment).len(), 400 * 69);
}

#[test]
fn log_edge_84_a_region_whose_file_was_cut_is_an_error() {
    let segment = filled(&memory(), 3);
    let all = region(&segment);
    segment.truncate_to(Offset::new(1), 0).expect("cut");
    let mut out = vec![1, 2];
    let refused = all.copy_into(&mut out).expect_err("the file is shorter");
    assert_eq!((refused.kind(), out), (std::io::ErrorKind::UnexpectedEof, vec![1, 2]));
    assert!(refused.to_string().contains(".log"), "{refused}");
    assert_eq!(all.slice(0, 69).and_then(|s| Ok(s.to_bytes()?)).expect("still there").len(), 69);
}

#[test]
fn log_edge_85_what_a_walk_makes_of_a_remainder() {
    let backend = memory();
    let walk = |tail: &[u8]| {
        let bytes = [&sized(0, 1, 1, 69)[..], tail].concat();
        overwrite(&*backend, 0, FileKind::Log, &bytes);
        let file = raw(&*backend);
        let mut walk = Headers::new(&*file, 69, bytes.len() as u64);
        walk.next().map(|batch| batch.is_some())
    };
    let prefix = |size: i32| {
        let mut bytes = vec![0; 18];
        bytes[8..12].copy_from_slice(&size.to_be_bytes());
        bytes[16] = 2;
        bytes
    };
    assert!(!walk(&prefix(49)[..17]).expect("17 bytes are no batch"));
    let corrupt = walk(&prefix(13)).expect_err("smaller than any batch");
    assert_eq!(corrupt.kafka_name(), "CorruptRecordException");
    assert!(matches!(corrupt, Error::Corrupt { position: 69, .. }), "{corrupt}");
    assert!(!walk(&prefix(100)).expect("larger than the rest"));
}

#[test]
fn log_edge_273_a_walk_over_nothing_ends_at_once() {
    let backend = memory();
    overwrite(&*backend, 0, FileKind::Log, &sized(0, 1, 1, 69));
    let file = raw(&*backend);
    for at in [0, i32::MAX as u64] {
        assert!(Headers::new(&*file, at, at).next().expect("no error").is_none());
        assert!(BatchReader::new(&*file, at, at).next().expect("no error").is_none());
    }
}

#[test]
fn log_edge_271_a_batch_may_be_sent_on_in_two_halves() {
    let segment = filled(&memory(), 2);
    let all = region(&segment);
    let whole = all.to_bytes().expect("read");
    let half = whole.len() / 2 - 30;
    let mut out = Vec::new();
    all.slice(0, half).expect("a slice").copy_into(&mut out).expect("copied");
    all.slice(half, whole.len()).expect("a slice").copy_into(&mut out).expect("copied");
    assert_eq!(out, whole);
    let values = kseg_format::Batches::new(&out).map(|batch| batch.expect("framing").verify().is_ok());
    assert_eq!(values.collect::<Vec<_>>(), [true, true]);
}

#[test]
fn zeros_of_what_is_cut_take_no_space() {
    use std::os::unix::fs::MetadataExt;

    let dir = tempfile::tempdir().expect("a directory");
    let backend = kseg_io_backends::open("std").expect("std");
    let path = dir.path().join("00000000000000000000.log");
    let mut bytes = [&sized(0, 1, 1, 100)[..], &sized(1, 1, 1, 100)[..93]].concat();
    bytes.resize(64 << 20, 0);
    std::fs::write(&path, &bytes).expect("written");
    let size = bytes.len() as u64;
    let segment =
        Segment::open(backend, dir.path(), Offset::ZERO, config(4096, 1024), 0, size).expect("a segment");
    let recovered = segment.recover(&mut |_, _| {}).expect("a recovery");
    assert_eq!((recovered.valid_bytes, recovered.next_offset.get()), (100, 1));
    let kept = recovered.cut.and_then(|cut| cut.kept).expect("a copy");
    assert_eq!(std::fs::read(&kept).expect("read"), bytes[100..]);
    let taken = std::fs::metadata(&kept).expect("stat").blocks() * 512;
    assert!(taken <= 1 << 20, "{taken} bytes");
}
