//! Many partitions, and many segments in one log: what a process holds for them when they are idle; and what it holds while
//! it recovers a large log.
//!
//! One test, in a process of its own: it looks at the process's memory, descriptors and maps.
#![cfg(all(target_os = "linux", not(loom)))]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use kseg_format::{BatchOptions, LeaderEpoch, Offset, Origin, RecordBatchBuilder, Timestamp};
use kseg_io_backends::{Backend, Call, Metered};
use kseg_log::{Isolation, LoadOptions, Log, LogConfig, LogDir, LogDirOptions, OpenOptions, TopicPartition};

/// How many partitions, and how many segments, unless `KSEG_SCALE` says otherwise. What is held grows in proportion.
const COUNT: usize = 1000;

/// MiB of the log that is recovered, unless `KSEG_RECOVER` says otherwise. What is held does not grow with it.
const RECOVERED_MIB: usize = 96;
/// The most that the process may hold while it recovers.
const RECOVERY_MEMORY_MAX: usize = 32 << 20;

fn count() -> usize {
    number("KSEG_SCALE", COUNT)
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |n| n.parse().unwrap_or_else(|e| panic!("{variable}={n}: {e}")))
}

fn batch(value: usize) -> BytesMut {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    builder
        .append(Some(Timestamp::new(1000)), Some(b"key"), Some(&vec![b'v'; value]), &[])
        .expect("a record");
    let mut bytes = BytesMut::new();
    builder.finish(&mut bytes).expect("a batch");
    bytes
}

fn lead(log: &Log, value: usize) {
    log.append_as_leader(batch(value), LeaderEpoch::new(0), Origin::Client).expect("an append");
}

/// Anonymous memory of this process, in bytes.
fn anonymous() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("RssAnon");
    line.split_whitespace().nth(1).expect("a number").parse::<usize>().expect("a number") * 1024
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

fn maps() -> usize {
    std::fs::read_to_string("/proc/self/maps").expect("maps").lines().count()
}

#[test]
fn what_is_idle_or_recovered_holds_little() {
    // First, while the process holds nothing that it could use again; as large as is asked for, so on the disk.
    recovery(&tempfile::tempdir().expect("a directory").path().join("unclean-0"));
    // Where there is memory for files: thousands of syncs of a disk tell nothing here.
    let memory = Path::new("/dev/shm");
    let temp = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let temp = temp.expect("a directory");
    many_partitions(&temp.path().join("partitions"));
    many_segments(&temp.path().join("one-0"));
}

fn many_partitions(path: &Path) {
    let count = count();
    let backend = Arc::new(Metered::new(kseg_io_backends::open("std").expect("std")));
    let options = LogDirOptions::new(backend.clone());
    let partition = |n: usize| TopicPartition::new("t", n as i32);
    let dir = LogDir::open(path, options.clone()).expect("open");
    for n in 0..count {
        lead(&dir.get_or_create(&partition(n), None).expect("a log"), 100);
    }
    assert!(dir.shutdown().expect("stopped").clean);

    let before = (anonymous(), descriptors(), maps());
    let reads = backend.calls(Call::Read, "log").calls;
    let dir = LogDir::open(path, options).expect("open");
    let summary = dir.load_all(LoadOptions::default()).expect("loaded");
    assert_eq!((summary.opened, summary.failed.len()), (count, 0));
    let memory = anonymous().saturating_sub(before.0) / count;
    let descriptors = descriptors() - before.1;
    let maps = maps() - before.2;
    let reads = backend.calls(Call::Read, "log").calls - reads;
    println!(
        "{count} partitions: {memory} bytes each, {descriptors} descriptors, {maps} maps, {reads} reads of logs"
    );
    assert!(memory < 4096, "{memory} bytes of anonymous memory for each partition");
    // 10 000 of them within 20 000 descriptors and 65 530 maps.
    assert!(descriptors <= count + 10, "{descriptors} descriptors");
    assert!(maps <= 6 * count, "{maps} maps");
    for n in [0, count / 2, count - 1] {
        let log = dir.get(&partition(n)).expect("open").expect("a log");
        assert_eq!(log.log_end_offset(), Offset::new(1));
        lead(&log, 100);
        assert!(log.read(Offset::new(1), 1, Isolation::LogEnd, true).expect("a read").region.is_some());
    }
    assert!(dir.shutdown().expect("stopped").clean);
}

fn many_segments(path: &Path) {
    let count = count();
    let backend: Arc<Metered> = Arc::new(Metered::new(kseg_io_backends::open("std").expect("std")));
    let config = LogConfig::from_pairs([("internal.segment.bytes", "200"), ("segment.index.bytes", "120")]);
    let options = OpenOptions {
        config: config.expect("valid"),
        ..OpenOptions::new(backend.clone() as Arc<dyn Backend>)
    };
    let log = Log::open(path, options.clone()).expect("a log");
    for _ in 0..count {
        lead(&log, 100);
    }
    log.flush(true).expect("flushed");
    assert_eq!(log.state(false).expect("state").segments.len(), count);
    // What was written and then nobody read is let go of, and opened again for who reads.
    assert!(descriptors() < 30, "{} descriptors after {count} rolls", descriptors());
    let first = log.release_idle_segments().expect("looked at");
    let second = log.release_idle_segments().expect("let go");
    assert!((8..20).contains(&(first + second)), "{first} and {second} were open still");
    assert!(descriptors() < 20, "{} descriptors for sealed segments that nobody reads", descriptors());
    assert!(log.read(Offset::ZERO, 1, Isolation::LogEnd, true).expect("a read").region.is_some());
    log.close().expect("closed");

    let before = (anonymous(), descriptors(), maps());
    let reads = backend.calls(Call::Read, "log").calls;
    let options = OpenOptions { recovery_point: Offset::new(count as i64), ..options };
    let log = Log::open(path, options).expect("a log");
    let reads = backend.calls(Call::Read, "log").calls - reads;
    let memory = anonymous().saturating_sub(before.0) / count;
    let (descriptors, maps) = (descriptors() - before.1, maps() - before.2);
    println!(
        "{count} segments: {memory} bytes each, {descriptors} descriptors, {maps} maps, {reads} reads of logs"
    );
    assert!(memory < 4096, "{memory} bytes of anonymous memory for each segment");
    assert!(descriptors < 10 && maps < 10, "{descriptors} descriptors and {maps} maps for sealed segments");
    // The tail of the last segment, and no other.
    assert!(reads < 10, "{reads} reads of .log files");
    for offset in [0, count / 3, count - 1] {
        let fetch = log.read(Offset::new(offset as i64), 1, Isolation::LogEnd, true).expect("a read");
        assert_eq!(fetch.offset, Offset::new(offset as i64));
    }
}

/// Recovers a log of which nothing is known to be durable, beside a thread that looks at the process's memory.
fn recovery(path: &Path) {
    let bytes = (number("KSEG_RECOVER", RECOVERED_MIB) << 20) as u64;
    let options = OpenOptions::new(kseg_io_backends::open("std").expect("std"));
    let log = Log::open(path, options.clone()).expect("a log");
    while log.size() < bytes {
        lead(&log, 16 << 10);
    }
    log.flush(true).expect("flushed");
    let end = log.log_end_offset();
    log.close().expect("closed");

    let done = AtomicBool::new(false);
    let peak = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = 0;
            while !done.load(Ordering::Acquire) {
                peak = peak.max(anonymous());
                std::thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        let log = Log::open(path, OpenOptions { clean: false, ..options });
        done.store(true, Ordering::Release);
        assert_eq!(log.expect("recovered").log_end_offset(), end);
        watcher.join().expect("the watcher")
    });
    println!("recovery of {} MiB: {} KiB of anonymous memory", bytes >> 20, peak >> 10);
    assert!(peak > 0 && peak <= RECOVERY_MEMORY_MAX, "{peak} bytes of anonymous memory");
}
