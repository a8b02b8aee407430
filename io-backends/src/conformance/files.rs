//! Cases of [`Backend::open`](crate::Backend::open) and [`RawFile`], without maps.

use std::io::ErrorKind;

use bytes::Bytes;

use super::{Case, EDGES, Place, one_write, pattern, read, submit, write};
use crate::backend::{OpenHow, write_all};
use crate::error::Verdict;
use crate::op::{Advice, Gather, Op, Reserve, Through};

pub(super) const CASES: &[Case] = &[
    ("files are opened as asked", files_are_opened_as_asked),
    ("what is written is read at every boundary", what_is_written_is_read_at_every_boundary),
    ("reads are short at the end of the file only", reads_are_short_at_the_end_only),
    ("gathered writes of any number of parts", gathered_writes_of_any_number_of_parts),
    ("a gap reads as zeros", a_gap_reads_as_zeros),
    ("positions beyond four gigabytes", positions_beyond_four_gigabytes),
    ("positions that no file has are refused", positions_that_no_file_has_are_refused),
    ("the length goes down and up", the_length_goes_down_and_up),
    ("reserved space does not change what counts", reserved_space_does_not_change_what_counts),
    ("flushes, advice and writing through", flushes_advice_and_writing_through),
    ("a handle to read does not write", a_handle_to_read_does_not_write),
    ("handles of one file share its bytes", handles_of_one_file_share_its_bytes),
];

fn files_are_opened_as_asked(place: &Place) {
    let path = place.path("0.log");
    let open = |how| place.backend.open(&path, how);
    let made = open(OpenHow::CreateNew).unwrap();
    write(&made, 0, b"contents");
    let error = open(OpenHow::CreateNew).unwrap_err();
    assert_eq!((error.kind(), error.verdict()), (ErrorKind::AlreadyExists, Verdict::Misuse));
    for how in [OpenHow::Read, OpenHow::Write, OpenHow::Create] {
        let file = open(how).unwrap();
        assert_eq!(read(&file, 0, 100), b"contents", "{how:?} changed the contents");
        assert_eq!(file.path(), path);
    }
    assert_eq!(place.open("new", OpenHow::Create).len().unwrap(), 0);
    for how in [OpenHow::Read, OpenHow::Write, OpenHow::Create, OpenHow::CreateNew] {
        assert_eq!(place.backend.open(&place.dir, how).unwrap_err().verdict(), Verdict::Misuse, "{how:?}");
    }
}

fn what_is_written_is_read_at_every_boundary(place: &Place) {
    for at in EDGES {
        for len in [0, 1, 3, 4096, 65_537] {
            let name = format!("{at}-{len}");
            let file = place.file(&name, &pattern(0, at));
            write(&file, at as u64, &pattern(at as u64, len));
            assert_eq!(file.len().unwrap(), (at + len) as u64);
            assert_eq!(read(&file, 0, at + len + 1), pattern(0, at + len));
            let from = at.saturating_sub(3);
            assert_eq!(
                read(&file, from as u64, len + 3),
                pattern(from as u64, (at + len - from).min(len + 3))
            );
            // Over what is there, and partly behind it.
            write(&file, (at + len) as u64 / 2, b"other");
            let mut expected = pattern(0, at + len);
            expected.resize(expected.len().max((at + len) / 2 + 5), 0);
            expected[(at + len) / 2..][..5].copy_from_slice(b"other");
            assert_eq!(read(&file, 0, expected.len() + 1), expected);
            place.backend.names().remove(&place.path(&name)).unwrap();
        }
    }
}

fn reads_are_short_at_the_end_only(place: &Place) {
    let file = place.file("0.log", &pattern(0, 70_000));
    for (at, len, expected) in [
        (0, 70_000, 70_000),
        (0, 70_001, 70_000),
        (69_999, 1, 1),
        (69_999, 2, 1),
        (70_000, 1, 0),
        (70_001, 1, 0),
        (1 << 40, 10, 0),
        (5, 0, 0),
        (80_000, 0, 0),
        (65_536, 10_000, 4464),
    ] {
        assert_eq!(read(&file, at, len), pattern(at, expected), "{len} bytes at {at}");
    }
}

fn gathered_writes_of_any_number_of_parts(place: &Place) {
    for count in [0, 1, 2, 16, 17, 1023, 1024, 1025, 2048, 3000] {
        let file = place.open(&format!("{count}"), OpenHow::CreateNew);
        // Every seventh part is empty.
        let mut at = 0;
        let parts: Vec<Bytes> = (0..count)
            .map(|index| {
                let len = if index % 7 == 3 { 0 } else { 78 };
                let part = Bytes::from(pattern(at, len));
                at += len as u64;
                part
            })
            .collect();
        let data = Gather::from(parts);
        assert_eq!(data.len(), at);
        write_all(&*file, 0, data.clone()).unwrap();
        assert_eq!(read(&file, 0, at as usize + 1), pattern(0, at as usize), "{count} parts");
        // One call takes something, and gives the parts back as they were.
        let done = file.submit(Op::Write { at: 0, data, through: Through::No }).wait();
        let written = done.result.unwrap();
        assert!(written <= at && (written > 0 || at == 0));
        assert_eq!(done.data.unwrap().len(), at);
    }
}

fn a_gap_reads_as_zeros(place: &Place) {
    let file = place.file("0.log", b"front");
    write(&file, 200_000, b"back");
    assert_eq!(file.len().unwrap(), 200_004);
    let bytes = read(&file, 0, 300_000);
    assert_eq!(&bytes[..5], b"front");
    assert!(bytes[5..200_000].iter().all(|byte| *byte == 0));
    assert_eq!(&bytes[200_000..], b"back");
    // A write of nothing makes no gap.
    assert_eq!(one_write(&file, 300_000, b"", Through::No).unwrap(), 0);
    assert_eq!(file.len().unwrap(), 200_004);
}

fn positions_beyond_four_gigabytes(place: &Place) {
    const FAR: u64 = (5 << 30) + 3;
    let file = place.file("0.log", b"");
    write(&file, FAR, &pattern(FAR, 100));
    assert_eq!(file.len().unwrap(), FAR + 100);
    assert_eq!(read(&file, FAR - 3, 200), [vec![0; 3], pattern(FAR, 100)].concat());
    assert_eq!(read(&file, FAR & 0xffff_ffff, 10), [0; 10]);
    let bytes = file.map_bytes(FAR..FAR + 100).unwrap();
    assert_eq!(bytes, pattern(FAR, 100));
}

fn positions_that_no_file_has_are_refused(place: &Place) {
    let file = place.file("0.log", b"contents");
    for at in [1 << 63, u64::MAX - 1, u64::MAX] {
        let error = one_write(&file, at, b"x", Through::No).unwrap_err();
        assert_eq!(
            (error.verdict(), error.at(), error.size()),
            (Verdict::Misuse, Some(at), Some(1)),
            "{error}"
        );
        assert_eq!(submit(&file, Op::SetLen { len: at }).unwrap_err().verdict(), Verdict::Misuse);
    }
    assert_eq!(file.len().unwrap(), 8);
}

fn the_length_goes_down_and_up(place: &Place) {
    for cut in EDGES {
        let file = place.file(&format!("{cut}"), &pattern(0, 140_000));
        assert_eq!(submit(&file, Op::SetLen { len: cut as u64 }).unwrap(), cut as u64);
        assert_eq!(file.len().unwrap(), cut as u64);
        assert_eq!(read(&file, 0, 200_000), pattern(0, cut));
        // What was cut does not come back.
        assert_eq!(submit(&file, Op::SetLen { len: 150_000 }).unwrap(), 150_000);
        assert_eq!(read(&file, 0, 200_000), [pattern(0, cut), vec![0; 150_000 - cut]].concat());
        write(&file, cut as u64, b"x");
        assert_eq!(read(&file, cut as u64, 3), [b'x', 0, 0]);
    }
}

fn reserved_space_does_not_change_what_counts(place: &Place) {
    let file = place.file("0.log", &pattern(0, 100));
    let reserve = |range, how| submit(&file, Op::Reserve { range, how });
    // Not every file system can take blocks without writing them.
    match reserve(0..200_000, Reserve::Blocks) {
        Ok(len) => assert_eq!(len, 100),
        Err(error) => assert_eq!(error.verdict(), Verdict::Unsupported, "{error}"),
    }
    assert_eq!(file.len().unwrap(), 100);
    match reserve(100..100_000, Reserve::BlocksAndLen) {
        Ok(len) => assert_eq!(len, 100_000),
        Err(error) => assert_eq!(error.verdict(), Verdict::Unsupported, "{error}"),
    }
    assert_eq!(reserve(100..200_000, Reserve::Zeroed).unwrap(), 200_000);
    assert_eq!(read(&file, 0, 300_000), [pattern(0, 100), vec![0; 199_900]].concat());
    write(&file, 150_000, b"lost");
    assert_eq!(reserve(100_000..180_000, Reserve::Zeroed).unwrap(), 200_000);
    assert_eq!(read(&file, 150_000, 4), [0; 4]);
    assert_eq!(reserve(500_000..500_000, Reserve::Zeroed).unwrap(), 200_000);
}

fn flushes_advice_and_writing_through(place: &Place) {
    let file = place.file("0.log", &pattern(0, 10_000));
    for metadata in [false, true] {
        assert_eq!(submit(&file, Op::Flush { metadata }).unwrap(), 0);
    }
    for how in [Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed, Advice::Normal] {
        for range in [0..10_000, 0..0, 5000..1 << 30] {
            assert_eq!(submit(&file, Op::Advise { range, how }).unwrap(), 0);
        }
    }
    assert_eq!(one_write(&file, 10_000, b"through", Through::Data).unwrap(), 7);
    let parts: Gather = vec![Bytes::from_static(b" in "), Bytes::from_static(b"parts")].into();
    assert_eq!(submit(&file, Op::Write { at: 10_007, data: parts, through: Through::Data }).unwrap(), 9);
    assert_eq!(read(&file, 0, 20_000), [pattern(0, 10_000), b"through in parts".to_vec()].concat());
    assert!(file.align().is_none() || file.align().block >= file.align().offset);
    assert_eq!(file.as_fd().is_some(), file.caps().descriptor);
}

fn a_handle_to_read_does_not_write(place: &Place) {
    place.file("0.log", b"contents");
    let reader = place.open("0.log", OpenHow::Read);
    for error in [
        one_write(&reader, 0, b"x", Through::No).unwrap_err(),
        submit(&reader, Op::SetLen { len: 0 }).unwrap_err(),
        submit(&reader, Op::Reserve { range: 0..100, how: Reserve::BlocksAndLen }).unwrap_err(),
    ] {
        assert_eq!(error.verdict(), Verdict::Misuse, "{error}");
    }
    assert_eq!(read(&reader, 0, 100), b"contents");
}

fn handles_of_one_file_share_its_bytes(place: &Place) {
    let writer = place.file("0.log", b"");
    let reader = place.open("0.log", OpenHow::Read);
    let second = place.open("0.log", OpenHow::Write);
    write(&writer, 0, b"abc");
    write(&second, 3, b"def");
    assert_eq!(read(&reader, 0, 100), b"abcdef");
    submit(&second, Op::SetLen { len: 4 }).unwrap();
    assert_eq!(read(&writer, 0, 100), b"abcd");
    drop(writer);
    assert_eq!(read(&reader, 0, 100), b"abcd");
}
