//! Cases of [`Appender`](crate::Appender) over an engine's files.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::{Case, EDGES, Place, pattern, submit, write};
use crate::appender::{Appender, appender};
use crate::backend::OpenHow;
use crate::error::Verdict;
use crate::op::{Gather, Op, Reserve};
use crate::plan::Space;

pub(super) const CASES: &[Case] = &[
    ("appends lie back to back at every boundary", appends_lie_back_to_back),
    ("marks say what is accepted, stable and durable", marks_say_what_is_so),
    ("reads end at the accepted mark", reads_end_at_the_accepted_mark),
    ("an appender goes on where a file ends", an_appender_goes_on_where_a_file_ends),
    ("a truncation drops a suffix", a_truncation_drops_a_suffix),
    ("a seal cuts reserved space", a_seal_cuts_reserved_space),
    ("appends go on after a rename and a removal", appends_go_on_after_a_rename),
    ("readers at the tail see whole appends", readers_at_the_tail_see_whole_appends),
    ("flushes beside appends never pass them", flushes_beside_appends_never_pass_them),
];

fn append(log: &dyn Appender, len: usize) -> std::ops::Range<u64> {
    let at = log.marks().accepted();
    log.append(Bytes::from(pattern(at, len)).into()).unwrap()
}

fn read(log: &dyn Appender, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let count = log.read_at(&mut bytes, at).unwrap();
    bytes.truncate(count);
    bytes
}

/// After a flush the file ends where the bytes do, unless zeros are written ahead.
fn assert_exact(log: &dyn Appender) {
    let len = log.file().len().unwrap();
    match log.file().caps().plan.space {
        Space::Zeroed(_) => assert!(len >= log.marks().accepted()),
        _ => assert_eq!(len, log.marks().accepted()),
    }
}

fn appends_lie_back_to_back(place: &Place) {
    let log = place.appender("0.log");
    let mut end = 0;
    for len in EDGES.iter().chain(EDGES.iter().rev()) {
        let range = append(&*log, *len);
        assert_eq!(range, end..end + *len as u64);
        end = range.end;
        assert_eq!(read(&*log, range.start, *len + 1), pattern(range.start, *len));
    }
    let parts: Vec<Bytes> = (0..3000).map(|index| Bytes::from(pattern(end + index * 78, 78))).collect();
    assert_eq!(log.append(Gather::from(parts)).unwrap(), end..end + 234_000);
    assert_eq!(log.append(Gather::from(vec![])).unwrap(), end + 234_000..end + 234_000);
    assert_eq!(read(&*log, 0, 10_000_000), pattern(0, end as usize + 234_000));
    log.flush().unwrap();
    assert_exact(&*log);
    let contents = place.contents(&place.path("0.log")).unwrap();
    assert_eq!(contents[..end as usize + 234_000], pattern(0, end as usize + 234_000));
    assert!(contents[end as usize + 234_000..].iter().all(|byte| *byte == 0), "the rest is zeros");
    assert_eq!(log.seal().unwrap(), end + 234_000);
    assert_eq!(place.contents(&place.path("0.log")).unwrap().len() as u64, end + 234_000);
}

fn marks_say_what_is_so(place: &Place) {
    let log = place.appender("0.log");
    let marks = |log: &dyn Appender| (log.marks().accepted(), log.marks().stable(), log.marks().durable());
    assert_eq!(marks(&*log), (0, 0, 0));
    append(&*log, 100);
    assert_eq!(log.marks().accepted(), 100);
    assert!(log.marks().stable() <= 100);
    // Writes that are durable by themselves may be ahead of the flush.
    let through = log.file().caps().plan.through;
    assert!(log.marks().durable() == 0 || through);
    assert_eq!(log.flush().unwrap(), 100);
    assert_eq!(marks(&*log), (100, 100, 100));
    append(&*log, 50);
    assert_eq!(log.marks().accepted(), 150);
    assert!((100..=150).contains(&log.marks().stable()));
    assert!(log.marks().durable() == 100 || through);
    log.truncate(120).unwrap();
    assert_eq!((log.marks().accepted(), log.marks().stable()), (120, 120));
    assert!(log.marks().durable() == 100 || through);
    log.truncate(80).unwrap();
    assert_eq!(marks(&*log), (80, 80, 80));
    assert_eq!(log.flush().unwrap(), 80);
    assert!(!log.marks().fenced() && log.marks().fenced_by().is_none());
}

fn reads_end_at_the_accepted_mark(place: &Place) {
    let file = place.file("0.log", &pattern(0, 1000));
    let log = appender(file, 400).unwrap();
    assert_eq!(read(&*log, 0, 1000), pattern(0, 400));
    assert_eq!(read(&*log, 399, 5), pattern(399, 1));
    for at in [400, 401, 999, u64::MAX] {
        assert_eq!(read(&*log, at, 5), [], "at {at}");
    }
    assert_eq!(read(&*log, 10, 0), []);
    // What lay behind the mark is overwritten, and nothing of it can be read in between.
    append(&*log, 10);
    assert_eq!(read(&*log, 390, 1000), pattern(390, 20));
}

fn an_appender_goes_on_where_a_file_ends(place: &Place) {
    let log = place.appender("0.log");
    append(&*log, 5000);
    drop(log);
    let log = appender(place.open("0.log", OpenHow::Write), 5000).unwrap();
    assert_eq!(log.marks().durable(), 0, "nobody has synced it through this appender");
    assert_eq!(append(&*log, 10), 5000..5010);
    assert_eq!(read(&*log, 0, 10_000), pattern(0, 5010));
    assert_eq!(log.flush().unwrap(), 5010);
    assert_eq!(log.seal().unwrap(), 5010);
    let error = appender(place.open("0.log", OpenHow::Write), 5011).unwrap_err();
    assert_eq!(error.verdict(), Verdict::Damaged, "{error}");
    assert!(error.to_string().contains("5010") && error.to_string().contains("5011"), "{error}");
}

fn a_truncation_drops_a_suffix(place: &Place) {
    let log = place.appender("0.log");
    append(&*log, 150_000);
    for len in [150_000, 149_999, 131_072, 70_001, 65_536, 4097, 1, 0] {
        log.truncate(len).unwrap();
        assert_eq!(read(&*log, 0, 200_000), pattern(0, len as usize));
        assert_eq!(log.file().len().unwrap(), len);
        assert_eq!(log.truncate(len + 1).unwrap_err().verdict(), Verdict::Misuse);
        assert_eq!(append(&*log, 9), len..len + 9);
        assert_eq!(read(&*log, 0, 200_000), pattern(0, len as usize + 9));
    }
    assert!(!log.marks().fenced());
}

fn a_seal_cuts_reserved_space(place: &Place) {
    let log = place.appender("0.log");
    append(&*log, 1000);
    submit(log.file(), Op::Reserve { range: 1000..500_000, how: Reserve::Zeroed }).unwrap();
    append(&*log, 1000);
    assert!(log.file().len().unwrap() >= 500_000);
    assert_eq!(read(&*log, 0, 500_000), pattern(0, 2000));
    assert_eq!(log.seal().unwrap(), 2000);
    assert_eq!(log.file().len().unwrap(), 2000);
    assert_eq!(log.flush().unwrap(), 2000);
    assert_eq!(log.seal().unwrap(), 2000);
    assert_eq!(place.contents(&place.path("0.log")).unwrap(), pattern(0, 2000));
}

fn appends_go_on_after_a_rename(place: &Place) {
    let log = place.appender("0.log");
    append(&*log, 10);
    place.backend.names().rename(&place.path("0.log"), &place.path("0.log.deleted")).unwrap();
    append(&*log, 10);
    log.flush().unwrap();
    assert_exact(&*log);
    assert_eq!(place.contents(&place.path("0.log.deleted")).unwrap()[..20], pattern(0, 20));
    assert!(place.backend.names().remove(&place.path("0.log.deleted")).unwrap());
    append(&*log, 10);
    assert_eq!(log.flush().unwrap(), 30);
    assert_eq!(read(&*log, 0, 100), pattern(0, 30));
    assert_eq!(place.backend.names().list(&place.dir).unwrap(), []);
}

fn readers_at_the_tail_see_whole_appends(place: &Place) {
    let log = place.appender("0.log");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (log, done) = (&log, &done);
            scope.spawn(move || {
                let mut rounds: u64 = reader;
                loop {
                    let last = done.load(Ordering::Acquire);
                    let accepted = log.marks().accepted();
                    rounds = rounds.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // The tail, or somewhere before it, and always a little further than the mark.
                    let from = accepted
                        - accepted.min(if rounds >> 63 == 0 { 300 } else { (rounds >> 33) % 100_000 });
                    let bytes = read(&**log, from, (accepted - from) as usize + 10_000);
                    assert!(bytes.len() as u64 >= accepted - from, "less than what was accepted");
                    assert_eq!(bytes, pattern(from, bytes.len()));
                    if last {
                        break;
                    }
                }
            });
        }
        for index in 0..600_u64 {
            append(&*log, (index * 37 % 997) as usize);
        }
        done.store(true, Ordering::Release);
    });
}

fn flushes_beside_appends_never_pass_them(place: &Place) {
    let log = place.appender("0.log");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let before = log.marks().stable();
                    let durable = log.flush().unwrap();
                    let (stable, mark) = (log.marks().stable(), log.marks().durable());
                    assert!(before <= durable, "what was stable at {before} is flushed up to {durable} only");
                    assert!(durable <= stable, "flushed up to {durable}, stable up to {stable}");
                    assert!(durable <= mark, "flushed up to {durable}, durable up to {mark}");
                }
            });
        }
        for _ in 0..300 {
            append(&*log, 100);
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(log.flush().unwrap(), 30_000);
    // A file that was written to by a call of its own is none of the appender's business.
    write(log.file(), 30_000, b"behind");
    assert_eq!(read(&*log, 29_999, 100), pattern(29_999, 1));
}
