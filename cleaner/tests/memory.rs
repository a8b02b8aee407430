//! That a log of more keys than the map can hold is cleaned over many rounds in a fixed amount of memory.
//!
//! `KSEG_UNIQUE=512/8` is 512 MiB of records with unique keys of 100 bytes, under a map of 8 MiB. By default 48/1.
#![cfg(all(not(loom), target_os = "linux"))]

use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use kseg_cleaner::{Cleaner, CleanerOptions, Manager, ManagerOptions};
use kseg_format::{BatchOptions, Batches, LeaderEpoch, Offset, Origin, RecordBatchBuilder, Timestamp};
use kseg_log::{Isolation, Log, LogConfig, OpenOptions, SystemClock};

const KEY_LEN: usize = 100;
const BATCH_RECORDS: u64 = 150;
/// The most anonymous memory that the process may have.
const RSS_ANON_MAX: u64 = 200 << 20;

fn key(n: u64) -> [u8; KEY_LEN] {
    let mut key = [b'k'; KEY_LEN];
    key[..8].copy_from_slice(&n.to_be_bytes());
    key
}

/// `RssAnon` of this process in bytes.
fn rss_anon() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn unique_keys_beyond_the_map_are_cleaned_over_many_rounds_in_fixed_memory() {
    let asked = std::env::var("KSEG_UNIQUE").unwrap_or_else(|_| "48/1".to_owned());
    let (data, map) = asked.split_once('/').expect("KSEG_UNIQUE=DATA/MAP in MiB");
    let (data, map): (u64, usize) = (data.parse().unwrap(), map.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("t-0");
    let config = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", "16777216"),
        ("min.cleanable.dirty.ratio", "0.0"),
        ("file.delete.delay.ms", "0"),
    ];
    let backend = kseg_io_backends::open("std").unwrap();
    let open =
        OpenOptions { config: LogConfig::from_pairs(config).unwrap(), ..OpenOptions::new(backend.clone()) };
    let log = Arc::new(Log::open(&dir, open).unwrap());
    let mut written = 0;
    while log.size() < data << 20 {
        let mut builder = RecordBatchBuilder::new(BatchOptions::default());
        for n in written..written + BATCH_RECORDS {
            builder.append(Some(Timestamp::new(1)), Some(&key(n)), Some(&n.to_be_bytes()), &[]).unwrap();
        }
        let mut batch = BytesMut::new();
        builder.finish(&mut batch).unwrap();
        log.append_as_leader(batch, LeaderEpoch::new(0), Origin::Client).unwrap();
        written += BATCH_RECORDS;
    }
    log.roll(None).unwrap();
    log.update_high_watermark(log.log_end_offset());

    let mut options = CleanerOptions::default();
    options.map_bytes = map << 20;
    let usable = options.usable_slots() as u64;
    let manager = Manager::new(ManagerOptions::default(), backend, Arc::new(SystemClock)).unwrap();
    manager.add(folder.path(), log.clone()).unwrap();
    let mut cleaner = Cleaner::new(options).unwrap();
    let (mut rounds, mut peak) = (0, 0);
    while let Some((_, _, round)) = manager.pass(&mut cleaner).cleaned {
        rounds += 1;
        assert_eq!(round.stats.records_written, round.stats.records_read);
        peak = peak.max(rss_anon());
    }
    assert_eq!(rounds, written.div_ceil(usable));
    assert!(peak < RSS_ANON_MAX, "{} MiB", peak >> 20);
    read_back(&log, written);
    println!("{data} MiB under {map} MiB: {rounds} rounds, RssAnon at most {} MiB", peak >> 20);
    assert!(Path::new(&dir).exists());
}

/// Every record is there, once and in order.
fn read_back(log: &Log, written: u64) {
    let (mut next, mut count) = (Offset::ZERO, 0);
    while next < log.log_end_offset() {
        let fetch = log.read(next, 1 << 20, Isolation::LogEnd, true).unwrap();
        let Some(region) = fetch.region else { break };
        for batch in Batches::new(&region.to_bytes().unwrap()) {
            let batch = batch.unwrap().verify().unwrap();
            for record in batch.records(&mut Vec::new(), 0).unwrap() {
                let record = record.unwrap();
                assert_eq!((record.offset().get() as u64, record.key()), (count, Some(&key(count)[..])));
                count += 1;
            }
            next = batch.next_offset();
        }
    }
    assert_eq!(count, written);
}
