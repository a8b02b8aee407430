//! Many partitions, and many segments in one log: what a process holds for them when they are idle.
//!
//! One test, in a process of its own: it looks at the process's memory, descriptors and maps.
#![cfg(all(target_os = "linux", not(loom)))]

use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use kseg_format::{BatchOptions, LeaderEpoch, Offset, Origin, RecordBatchBuilder, Timestamp};
use kseg_io_backends::{Backend, Call, Metered};
use kseg_log::{Isolation, LoadOptions, Log, LogConfig, LogDir, LogDirOptions, OpenOptions, TopicPartition};

/// How many partitions, and how many segments, unless `KSEG_SCALE` says otherwise. What is held grows in proportion.
const COUNT: usize = 1000;

fn count() -> usize {
    std::env::var("KSEG_SCALE").map_or(COUNT, |n| n.parse().expect("KSEG_SCALE: a number"))
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
fn what_is_idle_holds_little() {
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
