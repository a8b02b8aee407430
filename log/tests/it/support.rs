//! Logs and batches for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kseg_format::legacy::{LegacyOptions, LegacyRecord, encode};
use kseg_format::{
    BatchOptions, Batches, Codec, EndTransactionMarker, LeaderEpoch, Magic, Offset, Origin, Producer,
    ProducerEpoch, ProducerId, RecordBatchBuilder, Sequence, Timestamp,
};
use kseg_io_backends::Backend;
use kseg_log::{
    AppendInfo, Isolation, Log, LogConfig, LogDirOptions, LogManager, ManualClock, ManualScheduler,
    OpenOptions,
};

pub(crate) const DIR: &str = "/data/t-0";

/// A log on a backend in memory, with its clock and scheduler.
pub(crate) struct Bench {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) scheduler: Arc<ManualScheduler>,
    pub(crate) config: LogConfig,
    /// The log's directory.
    pub(crate) dir: PathBuf,
}

impl Bench {
    pub(crate) fn new(pairs: &[(&str, &str)]) -> Bench {
        Bench::on(kseg_io_backends::open("memory").expect("memory is always there"), pairs)
    }

    pub(crate) fn on(backend: Arc<dyn Backend>, pairs: &[(&str, &str)]) -> Bench {
        let clock = Arc::new(ManualClock::new(10_000_000));
        let scheduler = ManualScheduler::new(clock.clone());
        Bench { backend, clock, scheduler, config: config(pairs), dir: DIR.into() }
    }

    /// With the log in a directory of a file system, below `above`.
    pub(crate) fn below(above: &Path, backend: Arc<dyn Backend>, pairs: &[(&str, &str)]) -> Bench {
        Bench { dir: above.join("t-0"), ..Bench::on(backend, pairs) }
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
        Log::open(&self.dir, self.options()).expect("a log")
    }

    /// Opens it after a crash, with this recovery point.
    pub(crate) fn open_unclean(&self, recovery_point: i64) -> Log {
        let options =
            OpenOptions { clean: false, recovery_point: Offset::new(recovery_point), ..self.options() };
        Log::open(&self.dir, options).expect("a log")
    }

    /// Opens it after a crash, with the recovery point and log start of a checkpoint.
    pub(crate) fn open_at(&self, clean: bool, recovery_point: i64, log_start: i64) -> Log {
        let options = OpenOptions {
            clean,
            recovery_point: Offset::new(recovery_point),
            log_start_offset: Offset::new(log_start),
            ..self.options()
        };
        Log::open(&self.dir, options).expect("a log")
    }

    /// Names and sizes of the files in the log's directory.
    pub(crate) fn files(&self) -> Vec<(String, u64)> {
        let entries = self.backend.names().list(&self.dir).expect("list");
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

/// A batch to be made: as many records of one byte as there are times.
#[derive(Clone)]
pub(crate) struct Draft {
    options: BatchOptions,
    offsets: Vec<i64>,
    times: Vec<i64>,
    value: Vec<u8>,
}

impl Draft {
    /// `count` records at time 1, leader epoch 0.
    pub(crate) fn new(count: usize) -> Draft {
        let options = BatchOptions { leader_epoch: Some(LeaderEpoch::new(0)), ..BatchOptions::default() };
        Draft { options, offsets: (0..count as i64).collect(), times: vec![1; count], value: b"v".to_vec() }
    }

    pub(crate) fn base(mut self, base: i64) -> Draft {
        self.options.base_offset = Offset::new(base);
        self
    }

    /// Of producer `id` in `epoch`, the first record with `sequence`.
    pub(crate) fn of(mut self, id: i64, epoch: i16, sequence: i32) -> Draft {
        self.options.producer = Some(Producer {
            id: ProducerId::new(id),
            epoch: ProducerEpoch::new(epoch),
            base_sequence: Sequence::from_raw(sequence),
        });
        self
    }

    pub(crate) fn transactional(mut self) -> Draft {
        self.options.transactional = true;
        self
    }

    pub(crate) fn codec(mut self, codec: Codec) -> Draft {
        self.options.codec = codec;
        self
    }

    pub(crate) fn epoch(mut self, epoch: i32) -> Draft {
        self.options.leader_epoch = Some(LeaderEpoch::new(epoch));
        self
    }

    pub(crate) fn times(mut self, times: &[i64]) -> Draft {
        self.times = times.to_vec();
        self
    }

    /// Keeps these records alone, counted from the base offset; the batch ends where it did.
    pub(crate) fn only(mut self, kept: &[i64]) -> Draft {
        let last = self.options.base_offset.get() + self.offsets.len() as i64 - 1;
        self.options.last_offset = Some(Offset::new(last));
        self.offsets = kept.to_vec();
        self
    }

    pub(crate) fn value(mut self, size: usize) -> Draft {
        self.value = vec![b'v'; size];
        self
    }

    pub(crate) fn bytes(&self) -> BytesMut {
        let mut builder = RecordBatchBuilder::new(self.options);
        let base = self.options.base_offset.get();
        for (offset, time) in self.offsets.iter().zip(&self.times) {
            let time = Timestamp::from_raw(*time);
            builder
                .append_at(Offset::new(base + offset), time, None, Some(&self.value), &[])
                .expect("a record");
        }
        let mut bytes = BytesMut::new();
        builder.finish(&mut bytes).expect("a batch");
        bytes
    }

    /// A batch of a header and no record, as compaction leaves it.
    pub(crate) fn empty(&self) -> BytesMut {
        let last = self.options.base_offset.get() + self.offsets.len() as i64 - 1;
        let mut bytes = BytesMut::new();
        RecordBatchBuilder::new(self.options)
            .finish_empty(&mut bytes, Offset::new(last), Some(Timestamp::new(1)))
            .expect("a header");
        bytes
    }

    /// Appends it as a client's.
    pub(crate) fn lead(&self, log: &Log) -> kseg_log::Result<AppendInfo> {
        log.append_as_leader(self.bytes(), LeaderEpoch::new(0), Origin::Client)
    }

    /// Appends it with the offsets it has.
    pub(crate) fn follow(&self, log: &Log) -> kseg_log::Result<AppendInfo> {
        log.append_as_follower(self.bytes().freeze(), LeaderEpoch::new(i32::MAX))
    }
}

/// A marker at `offset` that ends a transaction.
pub(crate) fn marker_bytes(
    offset: i64,
    (id, epoch): (i64, i16),
    committed: bool,
    coordinator: i32,
) -> BytesMut {
    let mut bytes = BytesMut::new();
    EndTransactionMarker { committed, coordinator_epoch: coordinator }
        .encode_batch(
            Offset::new(offset),
            Timestamp::new(1),
            Some(LeaderEpoch::new(0)),
            (ProducerId::new(id), ProducerEpoch::new(epoch)),
            &mut bytes,
        )
        .expect("a marker");
    bytes
}

/// Messages of an old format, `(offset, time)` each, with the value `hello`; with a codec all in one wrapper.
pub(crate) fn messages(magic: Magic, codec: Codec, records: &[(i64, i64)]) -> BytesMut {
    let options = LegacyOptions { magic, codec, ..LegacyOptions::default() };
    let record = |&(offset, time): &(i64, i64)| LegacyRecord {
        offset: Offset::new(offset),
        timestamp: Timestamp::from_raw(time).filter(|_| magic == Magic::V1),
        key: None,
        value: Some(b"hello"),
    };
    let records: Vec<_> = records.iter().map(record).collect();
    let mut bytes = BytesMut::new();
    encode(&options, &records, &mut bytes).expect("messages");
    bytes
}

/// (first, last) offset of every batch from `offset` to the log end.
pub(crate) fn spans(log: &Log, offset: i64) -> Vec<(i64, i64)> {
    let mut spans = Vec::new();
    let mut next = Offset::new(offset);
    while next < log.log_end_offset() {
        let fetch = log.read(next, 1 << 20, Isolation::LogEnd, true).expect("a read");
        let Some(region) = fetch.region else { break };
        for batch in Batches::new(&region.to_bytes().expect("bytes")) {
            let header = *batch.expect("framing").verify().expect("a checksum").header();
            spans.push((header.base_offset().map_or(-1, Offset::get), header.last_offset().get()));
            next = header.next_offset();
        }
    }
    spans
}

/// (epoch, first offset) of every leader epoch.
pub(crate) fn epochs(log: &Log) -> Vec<(i32, i64)> {
    let state = log.state(false).expect("state");
    state.epochs.iter().map(|e| (e.epoch.get(), e.start_offset.get())).collect()
}

/// (id, last sequence, open transaction) of every producer.
pub(crate) fn producers(log: &Log) -> Vec<(i64, i32, Option<i64>)> {
    let state = log.state(false).expect("state");
    let last =
        |p: &kseg_log::ProducerInfo| Sequence::to_raw(p.batches.last().and_then(|b| b.last_sequence()));
    state.producers.iter().map(|p| (p.id.get(), last(p), p.transaction_start.map(Offset::get))).collect()
}

/// Offsets of the snapshot files, ascending.
pub(crate) fn snapshots(bench: &Bench) -> Vec<i64> {
    let files = bench.files();
    let stems = files.iter().filter_map(|(name, _)| name.strip_suffix(".snapshot"));
    stems.map(|stem| stem.parse().expect("a number")).collect()
}

/// (producer, first, last, last stable) of all aborted transactions.
pub(crate) fn aborted(log: &Log) -> Vec<(i64, i64, i64, i64)> {
    let all = log.aborted_transactions(log.log_start_offset(), Offset::new(i64::MAX)).expect("read");
    let tuple = |t: &kseg_log::AbortedTransaction| {
        (t.producer_id.get(), t.first_offset.get(), t.last_offset.get(), t.last_stable_offset.get())
    };
    all.iter().map(tuple).collect()
}

/// Replaces a file of the log's folder.
pub(crate) fn overwrite(bench: &Bench, name: &str, bytes: &[u8]) {
    let path = bench.dir.join(name);
    bench.backend.names().remove(&path).expect("removed");
    bench.backend.names().write(&path, bytes, true).expect("written");
}

pub(crate) fn remove(bench: &Bench, name: &str) {
    assert!(bench.backend.names().remove(&bench.dir.join(name)).expect("removed"), "{name}");
}

pub(crate) fn contents(bench: &Bench, name: &str) -> Vec<u8> {
    bench.backend.names().read(&bench.dir.join(name), 1 << 30).expect("read").expect("a file")
}

pub(crate) fn name(offset: i64, ending: &str) -> String {
    format!("{offset:020}.{ending}")
}

pub(crate) fn kafka_name<T: std::fmt::Debug>(result: kseg_log::Result<T>) -> &'static str {
    result.expect_err("refused").kafka_name()
}

/// Options of a data directory, with the bench's clock and scheduler.
pub(crate) fn options(bench: &Bench) -> LogDirOptions {
    LogDirOptions {
        config: bench.config.clone(),
        clock: bench.clock.clone(),
        scheduler: bench.scheduler.clone(),
        ..LogDirOptions::new(bench.backend.clone())
    }
}

/// Data directories of a node.
pub(crate) fn paths(count: usize) -> Vec<PathBuf> {
    (0..count).map(|n| format!("/disk{n}").into()).collect()
}

/// A node with so many of them.
pub(crate) fn manager(bench: &Bench, count: usize) -> LogManager {
    LogManager::open(&paths(count), &options(bench)).expect("a manager")
}
