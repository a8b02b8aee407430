//! Logs and batches for tests.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kseg_format::{BatchOptions, LeaderEpoch, Offset, Origin, RecordBatchBuilder, Timestamp};
use kseg_io_backends::Backend;
use kseg_log::{AppendInfo, Isolation, Log, LogConfig, ManualClock, ManualScheduler, OpenOptions};

pub(crate) const DIR: &str = "/data/t-0";

/// A log on a backend in memory, with its clock and scheduler.
pub(crate) struct Bench {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) scheduler: Arc<ManualScheduler>,
    pub(crate) config: LogConfig,
}

impl Bench {
    pub(crate) fn new(pairs: &[(&str, &str)]) -> Bench {
        Bench::on(kseg_io_backends::open("memory").expect("memory is always there"), pairs)
    }

    pub(crate) fn on(backend: Arc<dyn Backend>, pairs: &[(&str, &str)]) -> Bench {
        let clock = Arc::new(ManualClock::new(10_000_000));
        let scheduler = ManualScheduler::new(clock.clone());
        Bench { backend, clock, scheduler, config: config(pairs) }
    }

    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions {
            config: self.config.clone(),
            clock: self.clock.clone(),
            scheduler: self.scheduler.clone(),
            ..OpenOptions::new(self.backend.clone())
        }
    }

    pub(crate) fn open(&self) -> Log {
        Log::open(Path::new(DIR), self.options()).expect("a log")
    }

    /// Opens it after a crash, with this recovery point.
    pub(crate) fn open_unclean(&self, recovery_point: i64) -> Log {
        let options =
            OpenOptions { clean: false, recovery_point: Offset::new(recovery_point), ..self.options() };
        Log::open(Path::new(DIR), options).expect("a log")
    }

    /// Names and sizes of the files in the log's directory.
    pub(crate) fn files(&self) -> Vec<(String, u64)> {
        let entries = self.backend.names().list(Path::new(DIR)).expect("list");
        entries.into_iter().map(|e| (e.name.to_string_lossy().into_owned(), e.len)).collect()
    }

    pub(crate) fn size_of(&self, name: &str) -> Option<u64> {
        self.files().into_iter().find(|(n, _)| n == name).map(|(_, len)| len)
    }
}

pub(crate) fn config(pairs: &[(&str, &str)]) -> LogConfig {
    LogConfig::from_pairs(pairs.iter().copied()).expect("a configuration")
}

/// A batch of `count` records, padded to `size` bytes.
pub(crate) fn batch_at(base: i64, count: usize, time: i64, size: usize) -> BytesMut {
    let mut room = 0;
    let mut beyond = false;
    loop {
        let mut builder = RecordBatchBuilder::new(BatchOptions {
            base_offset: Offset::new(base),
            leader_epoch: Some(LeaderEpoch::new(0)),
            ..BatchOptions::default()
        });
        for n in 0..count {
            let value = vec![b'v'; if n == 0 { room } else { 0 }];
            builder.append(Timestamp::from_raw(time), None, Some(&value), &[]).expect("a record");
        }
        let mut bytes = BytesMut::new();
        builder.finish(&mut bytes).expect("a batch");
        // A few sizes cannot be had, where the length of a length grows: the next smaller one does.
        if bytes.len() < size && !beyond {
            room += size - bytes.len();
        } else if bytes.len() > size && room > 0 {
            (room, beyond) = (room - 1, true);
        } else {
            return bytes;
        }
    }
}

pub(crate) fn batch(count: usize, time: i64, size: usize) -> BytesMut {
    batch_at(0, count, time, size)
}

/// Appends one batch as the leader.
pub(crate) fn lead(log: &Log, count: usize, time: i64, size: usize) -> AppendInfo {
    log.append_as_leader(batch(count, time, size), LeaderEpoch::new(0), Origin::Client).expect("an append")
}

/// Appends one batch as a follower, with the offsets `base` to `last`.
pub(crate) fn follow(log: &Log, base: i64, last: i64) -> kseg_log::Result<AppendInfo> {
    let bytes = batch_at(base, (last - base + 1) as usize, 1000, 100);
    log.append_as_follower(bytes.freeze(), LeaderEpoch::new(0))
}

pub(crate) fn bytes_of(log: &Log, offset: i64) -> Option<Bytes> {
    let fetch = log.read(Offset::new(offset), 1 << 20, Isolation::LogEnd, true).expect("a read");
    fetch.region.map(|r| r.to_bytes().expect("bytes"))
}

/// (first base offset, bytes) of a read up to the log end.
pub(crate) fn read(log: &Log, offset: i64) -> (i64, usize) {
    let fetch = log.read(Offset::new(offset), 1 << 20, Isolation::LogEnd, true).expect("a read");
    (fetch.offset.get(), fetch.len())
}

pub(crate) fn bases(log: &Log) -> Vec<i64> {
    log.state(false).expect("state").segments.iter().map(|s| s.base_offset.get()).collect()
}

pub(crate) fn offsets(log: &Log) -> (i64, i64, i64) {
    (log.log_start_offset().get(), log.high_watermark().get(), log.log_end_offset().get())
}
