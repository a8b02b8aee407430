//! Writes past the page cache: blocks, their remains, and what others see of the file.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use kseg_io_backends::{
    Advice, Align, Appender, Backend, BackendSpec, FileCaps, Op, OpenHow, RawFile, Space, Ticket, Verdict,
    appender, open,
};

use crate::places;

/// A file that takes aligned writes only, and holds its appender to that.
#[derive(Debug)]
struct Strict(Arc<dyn RawFile>);

/// A file that writes down what it is asked for.
#[derive(Debug)]
struct Told(Arc<dyn RawFile>, Mutex<Vec<Op>>);

impl RawFile for Strict {
    forward_to!(0);

    fn align(&self) -> Align {
        self.0.align()
    }

    fn caps(&self) -> FileCaps {
        let mut caps = self.0.caps();
        caps.plan.unaligned = 0;
        caps
    }

    fn submit(&self, op: Op) -> Ticket {
        if let Op::Write { at, data, .. } = &op {
            let (block, memory) = (u64::from(self.align().block.get()), self.align().memory.get() as usize);
            assert!(at.is_multiple_of(block), "position {at}");
            for part in data.parts() {
                assert!((part.len() as u64).is_multiple_of(block), "size {}", part.len());
                assert!((part.as_ptr() as usize).is_multiple_of(memory), "address");
            }
        }
        self.0.submit(op)
    }
}

impl RawFile for Told {
    forward_to!(0);

    fn align(&self) -> Align {
        self.0.align()
    }

    fn caps(&self) -> FileCaps {
        self.0.caps()
    }

    fn submit(&self, op: Op) -> Ticket {
        self.1.lock().unwrap().push(op.clone());
        self.0.submit(op)
    }
}

#[test]
fn space_ahead_is_taken_in_whole_blocks() {
    let dir = places::on_disk();
    for spec in ["std+direct,zeroed=5000", "uring+direct,zeroed=5000", "std+direct,preallocate=5000"] {
        let Some(backend) = places::backend(spec, dir.path()) else { continue };
        let path = dir.path().join(format!("{spec}.log"));
        std::fs::write(&path, [0; 100]).unwrap();
        let told = Arc::new(Told(backend.open(&path, OpenHow::Write).unwrap(), Mutex::default()));
        let log = appender(Arc::clone(&told) as Arc<dyn RawFile>, 100).unwrap();
        for index in 0..100 {
            log.append(Bytes::from(bytes(index * 777, 777)).into()).unwrap();
        }
        log.truncate(5000).unwrap();
        log.append(Bytes::from(bytes(0, 50_000)).into()).unwrap();
        let block = u64::from(told.align().block.get());
        let ops = told.1.lock().unwrap();
        let ranges = ops.iter().filter_map(|op| match op {
            Op::Reserve { range, .. } => Some(range),
            _ => None,
        });
        assert!(ranges.clone().count() > 5, "{spec}");
        for range in ranges {
            assert!(
                range.start.is_multiple_of(block) && range.end.is_multiple_of(block),
                "{spec}: {range:?}"
            );
        }
    }
}

/// Runs `test` for each backend that writes past the page cache, where there is one.
fn with_each_direct(test: impl Fn(&str, &dyn Backend, &Path)) {
    places::with_each(|spec, backend, dir| {
        if spec.contains("direct") {
            test(spec, &*backend, dir);
        }
    });
}

fn strict(backend: &dyn Backend, path: &Path, len: u64) -> Arc<dyn Appender> {
    let file = backend.open(path, OpenHow::Create).unwrap();
    assert!(!file.align().is_none());
    appender(Arc::new(Strict(file)), len).unwrap()
}

fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|place| (place * 31 % 251) as u8).collect()
}

#[test]
fn writes_are_whole_blocks_and_batches_lie_back_to_back() {
    with_each_direct(|spec, backend, dir| {
        let path = dir.join("0.log");
        let log = strict(backend, &path, 0);
        for index in 0..5 {
            assert_eq!(
                log.append(Bytes::from(bytes(index * 1000, 1000)).into()).unwrap().start,
                index as u64 * 1000
            );
            assert_eq!(log.flush().unwrap(), (index as u64 + 1) * 1000);
            // Another handle, through the page cache, sees the same.
            let seen = std::fs::read(&path).unwrap();
            assert_eq!(seen[..(index + 1) * 1000], bytes(0, (index + 1) * 1000), "{spec}");
            let zeroed = spec.contains("zeroed");
            assert!(seen.len() == (index + 1) * 1000 || zeroed, "{spec}: {} bytes", seen.len());
        }
        assert_eq!(log.seal().unwrap(), 5000);
        drop(log);
        assert_eq!(std::fs::read(&path).unwrap(), bytes(0, 5000));
        let plain = appender(open("std").unwrap().open(&path, OpenHow::Write).unwrap(), 5000).unwrap();
        let mut read = vec![0; 6000];
        assert_eq!(plain.read_at(&mut read, 0).unwrap(), 5000);
        assert_eq!(read[..5000], bytes(0, 5000));
    });
}

#[test]
fn a_flush_writes_few_bytes_as_they_are_and_cuts_nothing() {
    with_each_direct(|spec, backend, dir| {
        let file =
            Arc::new(Told(backend.open(&dir.join("0.log"), OpenHow::Create).unwrap(), Mutex::default()));
        let plan = file.caps().plan;
        if matches!(plan.space, Space::Zeroed(_)) {
            return;
        }
        let (block, chunk) = (u64::from(file.align().block.get()), u64::from(plan.chunk));
        let log = appender(Arc::clone(&file) as Arc<dyn RawFile>, 0).unwrap();
        let mut end = 0;
        let mut flushed = |size: usize| {
            file.1.lock().unwrap().clear();
            let given = bytes(end, size);
            log.append(Bytes::from(given).into()).unwrap();
            end += size;
            assert_eq!(log.flush().unwrap(), end as u64);
            assert!(std::fs::read(dir.join("0.log")).unwrap() == bytes(0, end), "{spec}: at {end}");
            (end as u64, std::mem::take(&mut *file.1.lock().unwrap()))
        };
        // What was taken ahead before it was known that flushes come often is given back.
        flushed(10);
        let mut dropped = 0;
        for _ in 0..2 * chunk / 1000 + 2 {
            let (end, mut asked) = flushed(1000);
            if let Some(Op::Advise { range, how: Advice::DontNeed }) =
                asked.extract_if(.., |op| matches!(op, Op::Advise { .. })).next()
            {
                assert!(range.start.is_multiple_of(block) && range.start <= dropped, "{spec}: {range:?}");
                assert!(range.end < end, "{spec}: {range:?} of {end}, of which 1000 were not durable");
                dropped = range.end;
            }
            assert!(end - dropped < chunk + 2000, "{spec}: the cache holds {dropped} to {end}");
            match &asked[..] {
                [Op::Write { at, data, .. }, rest @ ..] => {
                    assert_eq!((*at, data.len()), (end - 1000, 1000), "{spec}");
                    let synced = matches!(rest, [Op::Flush { metadata: false }]);
                    assert!(synced || plan.through && rest.is_empty(), "{spec}: {rest:?}");
                }
                others => panic!("{spec}: {others:?}"),
            }
        }
        // Of many bytes only those behind the last whole block.
        let (end, asked) = flushed(3 * chunk as usize + 1);
        let mut unaligned = 0;
        for op in asked {
            match op {
                Op::Write { at, data, .. }
                    if at.is_multiple_of(block) && data.len().is_multiple_of(block) => {}
                Op::Write { at, data, .. } => {
                    assert!(
                        at.is_multiple_of(block) && at + data.len() == end && end - at < block,
                        "{spec}: {at}"
                    );
                    unaligned += 1;
                }
                Op::Flush { metadata: false } | Op::Advise { .. } | Op::Reserve { .. } => {}
                other => panic!("{spec}: {other:?}"),
            }
        }
        assert_eq!(unaligned, 1, "{spec}");
    });
}

#[test]
fn another_handle_reads_what_was_flushed_however_it_was_written() {
    with_each_direct(|spec, backend, dir| {
        let path = dir.join("0.log");
        let log = appender(backend.open(&path, OpenHow::Create).unwrap(), 0).unwrap();
        let other = std::fs::File::open(&path).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Through the page cache, which keeps what it has read.
                while !done.load(Ordering::Acquire) {
                    let durable = log.marks().durable() as usize;
                    let from = durable.saturating_sub(150_000);
                    let mut seen = vec![0; durable - from];
                    other.read_exact_at(&mut seen, from as u64).unwrap();
                    assert!(seen == bytes(from, durable - from), "{spec}: {from} to {durable}");
                }
            });
            let writer = scope.spawn(|| {
                let mut end = 0;
                for size in [1, 1000, 4096, 70_000, 3, 8191, 150_000, 513].into_iter().cycle().take(240) {
                    log.append(Bytes::from(bytes(end, size)).into()).unwrap();
                    end += size;
                    log.flush().unwrap();
                }
            });
            // A writer that fails does not leave the reader behind.
            let ended = writer.join();
            done.store(true, Ordering::Release);
            ended.unwrap();
        });
    });
}

#[test]
fn partial_last_blocks_of_any_length_survive_every_kind_of_stop() {
    with_each_direct(|spec, backend, dir| {
        let path = dir.join("0.log");
        let mut len = 0_usize;
        let lengths = (1..20).chain([511, 512, 513, 1000, 4095, 4096, 4097, 5000, 8191, 12_288, 20_000]);
        for (round, adding) in lengths.enumerate() {
            let log = strict(backend, &path, len as u64);
            let mut tail = vec![0; 10_000];
            let from = len.saturating_sub(5000);
            let count = log.read_at(&mut tail, from as u64).unwrap();
            assert_eq!(tail[..count], bytes(from, len - from), "{spec}: after a stop at {len}");
            log.append(Bytes::from(bytes(len, adding)).into()).unwrap();
            len += adding;
            match round % 4 {
                // Closed in order; flushed and dropped; dropped only; and as after a crash: zeros, or more, behind.
                0 => {
                    log.seal().unwrap();
                    log.flush().unwrap();
                }
                1 => {
                    log.flush().unwrap();
                }
                2 => {}
                _ => {
                    log.flush().unwrap();
                    drop(log);
                    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                    file.set_len(len as u64 + 9000).unwrap();
                    continue;
                }
            }
            drop(log);
            assert_eq!(std::fs::read(&path).unwrap(), bytes(0, len), "{spec}: stop {round} at {len}");
        }
        let log = strict(backend, &path, len as u64);
        assert_eq!(log.seal().unwrap(), len as u64);
        assert_eq!(std::fs::read(&path).unwrap(), bytes(0, len));
    });
}

#[test]
fn a_truncation_inside_a_block_keeps_what_is_before_it() {
    with_each_direct(|spec, backend, dir| {
        let path = dir.join("0.log");
        let log = strict(backend, &path, 0);
        log.append(Bytes::from(bytes(0, 50_000)).into()).unwrap();
        for len in [49_999, 40_960, 40_000, 12_289, 4096, 100, 0] {
            log.truncate(len as u64).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes(0, len), "{spec}");
            log.append(Bytes::from(bytes(len, 7)).into()).unwrap();
            log.flush().unwrap();
            assert_eq!(std::fs::read(&path).unwrap()[..len + 7], bytes(0, len + 7), "{spec}");
        }
    });
}

#[test]
fn iob_07_alignment_is_what_the_file_system_says_and_every_write_obeys_it() {
    for (kind, sector) in [("ext4", 512), ("ext4", 4096), ("xfs", 512), ("xfs", 4096)] {
        let Some(place) = places::on_loop(kind, sector, 400 << 20) else { continue };
        let mut ran = 0;
        for spec in places::SPECS.into_iter().filter(|spec| spec.contains("direct")) {
            let Some(backend) = places::backend(spec, place.path()) else { continue };
            let path = place.path().join(ran.to_string());
            let file = backend.open(&path, OpenHow::Create).unwrap();
            assert_eq!(file.align().offset.get(), sector, "{kind}, {spec}");
            assert!(file.align().block.get().is_multiple_of(sector), "{kind}, {spec}");
            drop(file);
            let log = strict(&*backend, &path, 0);
            // Memory that is off by half a kilobyte, and sizes that are no blocks.
            let all = Bytes::from(bytes(0, 300_000));
            let mut at = 0;
            for size in [1000, 4096, 511, 70_000, 1, 8192, 131_072, 513] {
                let part = all.slice(at..at + size);
                let off = Bytes::from([&[0; 512][..], &part].concat()).slice(512..);
                log.append(off.into()).unwrap();
                at += size;
                assert_eq!(log.flush().unwrap(), at as u64, "{kind}, {sector}, {spec}");
            }
            log.seal().unwrap();
            drop(log);
            assert!(std::fs::read(&path).unwrap() == all[..at], "{kind}, {sector}, {spec}");
            ran += 1;
        }
        assert!(ran >= 2, "std+direct is to be had on {kind}");
    }
}

#[test]
fn iob_07_a_file_system_without_direct_writes_is_told_at_the_open() {
    let Some(dir) = places::on_tmpfs() else { return };
    for spec in ["std+direct", "uring+direct"] {
        let Ok(backend) = open(spec) else { continue };
        let error = backend.open(&dir.path().join("0.log"), OpenHow::Create).unwrap_err();
        assert_eq!(error.verdict(), Verdict::Unsupported, "{error}");
        for part in ["direct", "statx(STATX_DIOALIGN)", "ext4", "0.log"] {
            assert!(error.to_string().contains(part), "{part:?} is missing in {error}");
        }
        let asked: BackendSpec = spec.parse().unwrap();
        let error = asked.open_in(dir.path()).unwrap_err();
        assert_eq!(error.unavailable().unwrap().what, "direct");
        let place = dir.path().display().to_string();
        assert!(error.to_string().contains(&place), "{place} is missing in {error}");
    }
    let auto = "auto".parse::<BackendSpec>().unwrap().open_in(dir.path()).unwrap();
    assert_eq!(auto.got.to_string(), "std");
    assert_eq!(auto.passed_over.len(), 2);
}

#[test]
fn a_view_does_not_stop_who_appends_to_the_block_that_it_ends_in() {
    with_each_direct(|spec, backend, dir| {
        let path = dir.join("0.log");
        let log = appender(backend.open(&path, OpenHow::Create).unwrap(), 0).unwrap();
        let (mut len, mut views) = (0, Vec::new());
        // Flushed as they are and padded, and written as whole blocks.
        for size in [1, 999, 3096, 1000, 70_000, 200_000, 4095, 300_000, 511, 1] {
            log.append(Bytes::from(bytes(len, size)).into()).unwrap();
            len += size;
            assert_eq!(log.flush().unwrap(), len as u64, "{spec}");
            views.push(log.file().map_bytes(0..len as u64).unwrap());
        }
        for view in &views {
            assert!(*view == bytes(0, view.len()), "{spec}");
        }
        // What is shown is kept from every other change.
        let other = backend.open(&path, OpenHow::Write).unwrap();
        let begun = len - len % other.align().block.get() as usize;
        let mut changed = bytes(begun, 1 << 16);
        changed[0] ^= 1;
        for at in [0, begun as u64] {
            let error = kseg_io_backends::write_all(&*other, at, Bytes::from(changed.clone()).into());
            assert_eq!(error.unwrap_err().verdict(), Verdict::Misuse, "{spec}");
        }
        drop(views);
        assert_eq!(log.seal().unwrap(), len as u64);
        assert!(std::fs::read(&path).unwrap() == bytes(0, len), "{spec}");
    });
}

#[test]
fn iob_07_who_asks_at_the_same_moment_gets_the_same_answer() {
    let dir = places::on_disk();
    for spec in ["std+direct", "auto"] {
        let ask = || spec.parse::<BackendSpec>().unwrap().open_in(dir.path());
        let said = |opened: Result<kseg_io_backends::Opened, kseg_io_backends::SpecError>| {
            opened.map(|opened| opened.got).map_err(|error| error.to_string())
        };
        let alone = said(ask());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| assert_eq!(said(ask()), alone)));
            }
        });
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}
