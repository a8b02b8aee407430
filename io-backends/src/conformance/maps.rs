//! Cases of [`RawFile::map`](crate::RawFile::map) and [`RawFile::map_bytes`](crate::RawFile::map_bytes).

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Case, Place, one_write, pattern, read, submit, write};
use crate::backend::{MapAccess, OpenHow};
use crate::error::Verdict;
use crate::op::{Op, Through};

pub(super) const CASES: &[Case] = &[
    ("a region and reads see each other", a_region_and_reads_see_each_other),
    ("a region is no longer than the file", a_region_is_no_longer_than_the_file),
    ("a region outlives its handle, its name and its file", a_region_outlives_everything),
    ("a region survives a cut below it", a_region_survives_a_cut_below_it),
    ("a region beside readers of the file", a_region_beside_readers_of_the_file),
    ("a view shows what was there", a_view_shows_what_was_there),
    ("a view of what is not there is refused", a_view_of_what_is_not_there_is_refused),
];

fn a_region_and_reads_see_each_other(place: &Place) {
    let file = place.file("0.index", &pattern(0, 70_001));
    let region = file.map(70_001, MapAccess::Write).unwrap();
    let second = place.open("0.index", OpenHow::Read).map(69_000, MapAccess::Read).unwrap();
    assert_eq!((region.len(), second.len()), (70_001, 69_000));
    for at in (0..70_000 - 12).step_by(404) {
        assert_eq!(region.load::<12>(at), *pattern(at as u64, 12));
    }
    region.store(4096 - 4, *b"abcdefgh");
    assert_eq!(read(&file, 4096 - 6, 12), [&pattern(4090, 2)[..], b"abcdefgh", &pattern(4100, 2)].concat());
    assert_eq!(second.load::<8>(4096 - 4), *b"abcdefgh");
    // Between words, and across what an engine may store in pieces.
    write(&file, 65_533, b"xyzuvw");
    assert_eq!(
        region.load::<12>(65_528),
        *[&pattern(65_528, 5)[..], b"xyzuvw", &pattern(65_539, 1)].concat()
    );
    write(&file, 70_000, b"last");
    assert_eq!(file.len().unwrap(), 70_004);
    assert_eq!(read(&file, 69_998, 100), [&pattern(69_998, 2)[..], b"last"].concat());
    region.flush().unwrap();
    second.flush().unwrap();
    assert_eq!(place.contents(&place.path("0.index")).unwrap()[4092..4100], *b"abcdefgh");
}

fn a_region_is_no_longer_than_the_file(place: &Place) {
    let file = place.file("0.index", &pattern(0, 100));
    for access in [MapAccess::Read, MapAccess::Write] {
        assert_eq!(file.map(101, access).unwrap_err().verdict(), Verdict::Misuse);
        assert_eq!(file.map(usize::MAX, access).unwrap_err().verdict(), Verdict::Misuse);
        assert!(file.map(0, access).unwrap().is_empty());
        assert_eq!(file.map(100, access).unwrap().load::<8>(92), *pattern(92, 8));
    }
    let reader = place.open("0.index", OpenHow::Read);
    assert_eq!(reader.map(100, MapAccess::Write).unwrap_err().verdict(), Verdict::Denied);
}

fn a_region_outlives_everything(place: &Place) {
    let file = place.file("0.index", &pattern(0, 100));
    let reader = place.open("0.index", OpenHow::Read);
    let region = file.map(100, MapAccess::Write).unwrap();
    drop(file);
    region.store(0, *b"abcd");
    assert_eq!(read(&reader, 0, 6), [b"abcd", &pattern(4, 2)[..]].concat());
    drop(reader);
    assert!(place.backend.names().remove(&place.path("0.index")).unwrap());
    region.store(4, *b"efgh");
    assert_eq!(region.load::<8>(0), *b"abcdefgh");
    region.flush().unwrap();
}

fn a_region_survives_a_cut_below_it(place: &Place) {
    for cut in [0_u64, 8, 4096, 4100, 65_536, 90_000] {
        let file = place.file(&format!("{cut}.index"), &pattern(0, 200_000));
        let region = file.map(200_000, MapAccess::Write).unwrap();
        submit(&file, Op::SetLen { len: cut }).unwrap();
        if cut >= 8 {
            assert_eq!(region.load::<8>(cut as usize - 8), *pattern(cut - 8, 8));
            region.store(cut as usize - 8, *b"abcdefgh");
            assert_eq!(read(&file, cut - 8, 100), b"abcdefgh");
        }
        // Of the rest nothing is promised, but that touching it harms nobody.
        for at in (cut as usize..200_000 - 4).step_by(4096) {
            region.load::<4>(at);
            region.store(at, *b"lost");
        }
        region.flush().unwrap();
        submit(&file, Op::SetLen { len: 200_000 }).unwrap();
        let again = file.map(200_000, MapAccess::Write).unwrap();
        again.store(199_996, *b"last");
        assert_eq!(read(&file, 199_996, 100), b"last");
        assert_eq!(region.len(), 200_000);
        place.backend.names().remove(&place.path(&format!("{cut}.index"))).unwrap();
    }
}

fn a_region_beside_readers_of_the_file(place: &Place) {
    // The writer stores one value in every word of the front, then the next. Readers see whole words, and values
    // only rise.
    let file = place.file("0.index", &[0; 8192]);
    let region = file.map(8192, MapAccess::Write).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for from_map in [false, true] {
            let (file, region, done) = (&file, &region, &done);
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let bytes = if from_map {
                        region.load::<4>(4096)
                    } else {
                        read(file, 4096, 4).try_into().unwrap()
                    };
                    let value = u32::from_be_bytes(bytes);
                    assert!(value >= last, "{value} was read after {last}");
                    last = value;
                }
            });
        }
        for value in 1..3000_u32 {
            for at in (4096..4160).step_by(4) {
                region.store(at, value.to_be_bytes());
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn a_view_shows_what_was_there(place: &Place) {
    let file = place.file("0.log", &pattern(0, 100_000));
    for (from, to) in
        [(0, 0), (0, 100_000), (1, 2), (4095, 4097), (4096, 8192), (65_000, 100_000), (100_000, 100_000)]
    {
        assert_eq!(file.map_bytes(from..to).unwrap(), pattern(from, (to - from) as usize));
    }
    let view = file.map_bytes(10..90_000).unwrap();
    let part = view.slice(100..);
    drop(view);
    // Behind it the file goes on; the view stays what it was, whatever becomes of the file.
    write(&file, 100_000, b"more");
    let overwritten = one_write(&file, 500, b"overwritten", Through::No);
    let cut = submit(&file, Op::SetLen { len: 1000 });
    for refused in [overwritten.err(), cut.err()].into_iter().flatten() {
        assert_eq!(refused.verdict(), Verdict::Misuse, "{refused}");
    }
    let _ = place.backend.names().write(&place.path("0.log"), b"short", false);
    drop(file);
    place.backend.names().remove(&place.path("0.log")).unwrap();
    assert_eq!(part, pattern(110, 89_890));
    // Once it is gone, nothing is in the way.
    let file = place.file("1.log", &pattern(0, 100));
    drop(file.map_bytes(0..100).unwrap());
    write(&file, 0, b"overwritten");
    submit(&file, Op::SetLen { len: 5 }).unwrap();
    assert_eq!(file.map(5, MapAccess::Write).unwrap().load::<4>(0), *b"over");
}

#[expect(clippy::reversed_empty_ranges, reason = "such a range is what is refused")]
fn a_view_of_what_is_not_there_is_refused(place: &Place) {
    let file = place.file("0.log", &pattern(0, 100));
    for range in [0..101, 50..u64::MAX, 101..101, 60..50] {
        assert_eq!(file.map_bytes(range.clone()).unwrap_err().verdict(), Verdict::Misuse, "{range:?}");
    }
}
