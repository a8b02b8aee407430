//! What the options and cache modes ask of the kernel, by what it was asked and by what came of it.

use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kseg_io_backends::{Appender, Backend, OpenHow, appender};
use rustix::io::{Errno, ReadWriteFlags};

use crate::places;

const SIZE: usize = 70_000;

/// What each of them asks for on its file.
const ASKED: [(&str, &[&str]); 7] = [
    ("std,dsync=on", &["pwritev2(", "RWF_DSYNC"]),
    ("std,writebehind=64k", &["sync_file_range(", "SYNC_FILE_RANGE_WRITE"]),
    ("std,preallocate=1m", &["fallocate(", "FALLOC_FL_KEEP_SIZE"]),
    ("std,zeroed=64k", &["pwrite64(", "\\0\\0\\0"]),
    ("std+direct", &["openat(", "O_DIRECT"]),
    ("uring,preallocate=1m", &["fallocate(", "FALLOC_FL_KEEP_SIZE"]),
    ("uring+direct", &["openat(", "O_DIRECT"]),
];

/// Appends and flushes what is the same for each.
fn live(backend: &dyn Backend, dir: &Path) -> Arc<dyn Appender> {
    std::fs::create_dir_all(dir).unwrap();
    let log = appender(backend.open(&dir.join("0.log"), OpenHow::CreateNew).unwrap(), 0).unwrap();
    for _ in 0..3 {
        log.append(Bytes::from(vec![7; SIZE]).into()).unwrap();
    }
    assert_eq!(log.flush().unwrap(), 3 * SIZE as u64);
    log
}

#[test]
fn each_takes_appends_and_flushes() {
    let dir = places::on_disk();
    for (index, (spec, _)) in ASKED.iter().enumerate() {
        if let Some(backend) = places::backend(spec, dir.path()) {
            live(&*backend, &dir.path().join(format!("asked-{index}")));
        }
    }
}

#[test]
fn the_kernel_is_asked_for_what_is_said() {
    let dir = places::on_disk();
    let calls = "trace=openat,pwrite64,pwritev2,fallocate,sync_file_range,io_uring_register";
    let Some(trace) = places::traced("asked::each_takes_appends_and_flushes", calls, dir.path()) else {
        return;
    };
    for (index, (spec, asked)) in ASKED.iter().enumerate() {
        if places::backend(spec, dir.path()).is_none() {
            continue;
        }
        let file = format!("/asked-{index}/0.log");
        let of_file: Vec<&str> = trace.lines().filter(|line| line.contains(&file)).collect();
        let is_asked = |line: &&&str| asked.iter().all(|part| line.contains(part));
        assert!(of_file.iter().any(|line| is_asked(&line)), "{spec}: no {asked:?} in {of_file:#?}");
        if spec.starts_with("uring") {
            for table in ["IORING_REGISTER_BUFFERS", "IORING_REGISTER_FILES"] {
                assert!(trace.contains(table), "{spec}: no {table} in {trace}");
            }
        }
    }
}

#[test]
fn a_write_that_is_durable_by_itself_reaches_the_device() {
    let Some(ext4) = places::on_loop("ext4", 512, 100 << 20) else { return };
    let specs = ["std,dsync=on", "std+direct,dsync=on", "uring,inline=0,dsync=on", "uring+direct,dsync=on"];
    for (index, spec) in specs.into_iter().enumerate() {
        let Some(backend) = places::backend(spec, ext4.path()) else { continue };
        let log = live(&*backend, &ext4.path().join(index.to_string()));
        let before = ext4.flushes();
        for _ in 0..8 {
            log.append(Bytes::from(vec![8; SIZE]).into()).unwrap();
            log.flush().unwrap();
        }
        let flushes = ext4.flushes() - before;
        assert!(flushes >= 8, "{spec}: the device was told {flushes} times");
    }
}

#[test]
fn what_is_not_to_stay_in_the_page_cache_leaves_it() {
    let dir = places::on_disk();
    for (spec, leaves) in
        [("std", false), ("std+dontcache", true), ("uring+dontcache", true), ("std+direct", true)]
    {
        let Some(backend) = places::backend(spec, dir.path()) else { continue };
        let dir = dir.path().join(spec);
        let log = live(&*backend, &dir);
        log.seal().unwrap();
        let file = std::fs::File::open(dir.join("0.log")).unwrap();
        let mut byte = [0];
        // A read that takes nothing from the device. It may have the kernel do that for the next one, and pages that were
        // written leave soon after: one time is enough.
        let mut absent = || {
            let read =
                rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT);
            matches!(read, Err(Errno::AGAIN))
        };
        // They leave when the kernel comes to it.
        let waits = if leaves { 5000 } else { 50 };
        let left = (0..waits).any(|_| {
            absent() || {
                std::thread::sleep(Duration::from_millis(1));
                false
            }
        });
        assert_eq!(left, leaves, "{spec}");
    }
}
