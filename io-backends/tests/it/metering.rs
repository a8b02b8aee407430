//! How many calls the work takes.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{Appender, Backend, Call, Gather, Metered, Op, OpenHow, StdBackend, appender};

use crate::places;

fn metered(dir: &Path) -> (Arc<Metered>, Arc<dyn Appender>) {
    let metered = Arc::new(Metered::new(Arc::new(StdBackend::new())));
    let log = appender(metered.open(&dir.join("0.log"), OpenHow::Create).unwrap(), 0).unwrap();
    metered.reset();
    (metered, log)
}

#[test]
fn an_append_is_one_write_call_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let (metered, log) = metered(dir.path());
    for _ in 0..100 {
        log.append(Bytes::from(vec![1; 16 << 10]).into()).unwrap();
    }
    let tally = metered.calls(Call::Write, "log");
    assert_eq!((tally.calls, tally.bytes, tally.failed), (100, 100 * (16 << 10), 0));
    assert_eq!(metered.total(), 100);
    let parts: Vec<Bytes> = (0..1024).map(|_| Bytes::from_static(b"part")).collect();
    log.append(parts.into()).unwrap();
    assert_eq!(metered.total(), 101);
}

#[test]
fn a_lone_writer_asks_for_no_space_and_those_who_wait_together_share_their_writes() {
    let dir = places::on_disk();
    let Some(uring) = places::backend("uring", dir.path()) else { return };
    let metered = Arc::new(Metered::new(uring));
    let log = appender(metered.open(&dir.path().join("0.log"), OpenHow::Create).unwrap(), 0).unwrap();
    let mut expected = Vec::new();
    let mut round = |count: u32| {
        metered.reset();
        for index in 0..count {
            let batch = vec![(index ^ count) as u8; 4100];
            log.append(Bytes::from(batch.clone()).into()).unwrap();
            expected.extend(batch);
            let mut seen = vec![0; expected.len() + 1];
            assert_eq!(log.read_at(&mut seen, 0).unwrap(), expected.len());
            assert!(seen[..expected.len()] == expected[..]);
        }
        assert_eq!(log.flush().unwrap(), expected.len() as u64);
        assert!(std::fs::read(log.file().path()).unwrap() == expected);
        let calls = |call| metered.calls(call, "log").calls;
        (calls(Call::Write), calls(Call::Reserve), calls(Call::Flush))
    };
    for _ in 0..20 {
        assert_eq!(round(1), (1, 0, 1));
    }
    assert_eq!(round(64), (64, 0, 1), "nobody knew that they were many");
    // 64 times 4100 bytes, in calls of less than 64 KiB.
    assert_eq!(round(64), (5, 1, 1));
    assert_eq!(round(63), (4, 0, 1));
    assert_eq!(round(1), (1, 0, 1));
    assert_eq!(round(64), (64, 0, 1), "alone again before");
    // So much without a flush that nobody can be waiting for one: what is left of it is written as it comes.
    assert_eq!(round(2), (1, 0, 1));
    let (writes, ..) = round(300);
    assert!((2..=46).contains(&writes), "{writes}");
    let (writes, ..) = round(3);
    assert_eq!(writes, 3);
    // What is kept in memory for a flush that does not come has a bound.
    round(64);
    let begin = log.marks().accepted();
    for _ in 0..600 {
        log.append(Bytes::from(vec![1; 4100]).into()).unwrap();
        let kept = log.marks().accepted() - log.marks().stable();
        // And a few writes that are on their way.
        assert!(kept <= (1 << 20) + (64 << 10), "{kept}");
    }
    assert!(log.marks().stable() > begin);
}

#[test]
fn iob_03_three_thousand_batches_at_once_take_three_calls() {
    let dir = tempfile::tempdir().unwrap();
    for (count, calls) in [(1, 1), (1024, 1), (1025, 2), (2048, 2), (3000, 3)] {
        let dir = dir.path().join(count.to_string());
        std::fs::create_dir(&dir).unwrap();
        let (metered, log) = metered(&dir);
        log.append(Gather::from(batches(count))).unwrap();
        assert_eq!(metered.calls(Call::Write, "log").calls, calls);
        assert_eq!(metered.total(), calls);
        assert_eq!(std::fs::read(dir.join("0.log")).unwrap(), batches(count).concat());
    }
}

#[test]
fn iob_03_batches_of_any_number_at_once_lie_in_order_on_every_backend() {
    places::with_each(|spec, backend, dir| {
        for count in [1024, 1025, 2048, 3000] {
            let path = dir.join(format!("{count}.log"));
            let log = appender(backend.open(&path, OpenHow::Create).unwrap(), 0).unwrap();
            log.append(Gather::from(batches(count))).unwrap();
            let expected = batches(count).concat();
            assert_eq!(log.flush().unwrap(), expected.len() as u64, "{spec}");
            assert_eq!(log.seal().unwrap(), expected.len() as u64, "{spec}");
            assert!(std::fs::read(&path).unwrap() == expected, "{spec}: {count}");
        }
    });
}

fn batches(count: usize) -> Vec<Bytes> {
    (0..count).map(|index| Bytes::from(vec![(index % 251) as u8; 78])).collect()
}

#[test]
fn a_flush_without_anything_new_asks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (metered, log) = metered(dir.path());
    // The first one syncs what others may have left in a cache.
    log.flush().unwrap();
    log.flush().unwrap();
    assert_eq!(metered.calls(Call::Flush, "log").calls, 1);
    log.append(Bytes::from_static(b"new").into()).unwrap();
    log.flush().unwrap();
    log.flush().unwrap();
    assert_eq!(metered.calls(Call::Flush, "log").calls, 2);
    // A length that shrank is new, too.
    log.truncate(1).unwrap();
    log.flush().unwrap();
    log.flush().unwrap();
    assert_eq!(metered.calls(Call::Flush, "log").calls, 3);
}

#[test]
fn a_file_is_cut_only_where_it_is_longer() {
    let dir = tempfile::tempdir().unwrap();
    let (metered, log) = metered(dir.path());
    log.append(Bytes::from_static(b"contents").into()).unwrap();
    log.truncate(8).unwrap();
    log.seal().unwrap();
    assert_eq!(metered.calls(Call::SetLen, "log").calls, 0);
    log.file().submit(Op::SetLen { len: 100 }).wait().result.unwrap();
    log.seal().unwrap();
    log.truncate(4).unwrap();
    assert_eq!(metered.calls(Call::SetLen, "log").calls, 3);
}

#[test]
fn calls_are_counted_by_kind_and_role() {
    let dir = tempfile::tempdir().unwrap();
    let metered = Metered::new(Arc::new(StdBackend::new()));
    let names = metered.names();
    names.replace(&dir.path().join("checkpoint"), b"0\n0\n").unwrap();
    assert!(names.remove(&dir.path().join("0.index")).is_ok());
    assert!(names.list(&dir.path().join("absent")).is_err());
    assert_eq!(metered.calls(Call::Replace, "").bytes, 4);
    assert_eq!(metered.calls(Call::Remove, "index").calls, 1);
    assert_eq!(metered.calls(Call::List, "").failed, 1);
    assert_eq!(metered.tallies().len(), 3);
}
