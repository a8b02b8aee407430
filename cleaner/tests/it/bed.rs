//! Logs on a backend in memory, filled by producers, and what is left of them after a round.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kseg_cleaner::{Cleaner, CleanerOptions, Dirty, NullKey, Result, Round, Unhindered};
use kseg_format::{
    Batch, BatchOptions, Batches, Codec, EndTransactionMarker, LeaderEpoch, Offset, Origin, Producer,
    ProducerEpoch, ProducerId, RecordBatchBuilder, Sequence, Timestamp,
};
use kseg_io_backends::{Backend, MemoryBackend};
use kseg_log::{Log, LogConfig, ManualClock, ManualScheduler, OpenOptions, TransactionVersion};

pub(crate) const DIR: &str = "/data/t-0";
/// A day and a millisecond: behind every horizon that was set with the default retention.
pub(crate) const DAY: i64 = 86_400_001;
/// The time of the first round, such that horizons lie behind it.
pub(crate) const NOW: i64 = 1_000_000_000_000;

/// A key and a value; `None` for none.
pub(crate) type Entry<'e> = (Option<&'e str>, Option<&'e str>);

pub(crate) fn kv<'e>(key: &'e str, value: &'e str) -> Entry<'e> {
    (Some(key), Some(value))
}

pub(crate) fn gone(key: &str) -> Entry<'_> {
    (Some(key), None)
}

pub(crate) struct Bed {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) scheduler: Arc<ManualScheduler>,
    pub(crate) log: Arc<Log>,
    pub(crate) options: CleanerOptions,
    producers: RefCell<HashMap<i64, (i16, i32)>>,
}

pub(crate) fn options(slots: usize) -> CleanerOptions {
    let mut options = CleanerOptions::default();
    options.map_bytes = slots * 24;
    options.load_factor = 0.75;
    options.null_key = NullKey::Discard;
    options
}

impl Bed {
    /// A compacted log.
    pub(crate) fn new(pairs: &[(&str, &str)]) -> Bed {
        Bed::on(Arc::new(MemoryBackend::new()), pairs)
    }

    pub(crate) fn on(backend: Arc<dyn Backend>, pairs: &[(&str, &str)]) -> Bed {
        let clock = Arc::new(ManualClock::new(NOW));
        let scheduler = ManualScheduler::new(clock.clone());
        let mut all = vec![("cleanup.policy", "compact"), ("segment.index.bytes", "4096")];
        all.extend_from_slice(pairs);
        let open = OpenOptions {
            config: LogConfig::from_pairs(all).unwrap(),
            clock: clock.clone(),
            scheduler: scheduler.clone(),
            ..OpenOptions::new(backend.clone())
        };
        let log = Arc::new(Log::open(Path::new(DIR), open).unwrap());
        let producers = RefCell::default();
        Bed { backend, clock, scheduler, log, options: options(10_000), producers }
    }

    /// Closes the log and opens it again, or drops it as a crash does; without snapshots if asked. It ends where it did.
    pub(crate) fn reopened(self, crash: bool, snapshots: bool) -> Bed {
        let end = self.log.log_end_offset();
        let bed = self.opened_again(crash, snapshots);
        assert_eq!(bed.log.log_end_offset(), end);
        bed
    }

    /// The same, wherever it ends.
    pub(crate) fn opened_again(self, crash: bool, snapshots: bool) -> Bed {
        let config = (*self.log.config()).clone();
        let start = self.log.log_start_offset();
        if crash {
            self.log.abandon();
        } else {
            self.log.close().unwrap();
        }
        if !snapshots {
            for (name, _) in self.files() {
                if name.ends_with(".snapshot") {
                    self.backend.names().remove(&self.path(&name)).unwrap();
                }
            }
        }
        let open = OpenOptions {
            config,
            clean: !crash,
            log_start_offset: start,
            clock: self.clock.clone(),
            scheduler: self.scheduler.clone(),
            ..OpenOptions::new(self.backend.clone())
        };
        let log = Arc::new(Log::open(Path::new(DIR), open).unwrap());
        log.update_high_watermark(log.log_end_offset());
        Bed { log, ..self }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    pub(crate) fn files(&self) -> Vec<(String, u64)> {
        let entries = self.backend.names().list(Path::new(DIR)).unwrap();
        entries.into_iter().map(|e| (e.name.to_string_lossy().into_owned(), e.len)).collect()
    }

    pub(crate) fn append(&self, options: BatchOptions, entries: &[Entry<'_>]) -> i64 {
        let times: Vec<i64> = (0..entries.len() as i64).map(|n| NOW + n).collect();
        self.append_at(options, &times, entries)
    }

    pub(crate) fn append_at(&self, options: BatchOptions, times: &[i64], entries: &[Entry<'_>]) -> i64 {
        let bytes = batch(options, times, entries);
        let info = self.log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Client).unwrap();
        self.log.update_high_watermark(self.log.log_end_offset());
        info.last_offset.unwrap().get()
    }

    /// One batch without a producer.
    pub(crate) fn put(&self, entries: &[Entry<'_>]) -> i64 {
        self.append(BatchOptions::default(), entries)
    }

    /// One batch a key, with the offset as the value.
    pub(crate) fn keys(&self, keys: impl IntoIterator<Item = i64>) {
        for key in keys {
            let value = self.log.log_end_offset().to_string();
            self.put(&[kv(&key.to_string(), &value)]);
        }
    }

    /// One batch of a producer, whose sequence goes on.
    pub(crate) fn by(&self, id: i64, transactional: bool, keys: &[i64]) -> i64 {
        let keys: Vec<String> = keys.iter().map(i64::to_string).collect();
        let entries: Vec<Entry<'_>> = keys.iter().map(|key| kv(key, "v")).collect();
        let (epoch, sequence) = self.producer(id);
        let last = self.append(producer(id, epoch, sequence, transactional), &entries);
        self.producers.borrow_mut().insert(id, (epoch, sequence + entries.len() as i32));
        last
    }

    pub(crate) fn txn(&self, id: i64, keys: &[i64]) -> i64 {
        self.by(id, true, keys)
    }

    pub(crate) fn producer(&self, id: i64) -> (i16, i32) {
        self.producers.borrow().get(&id).copied().unwrap_or((0, 0))
    }

    pub(crate) fn set_producer(&self, id: i64, epoch: i16, sequence: i32) {
        self.producers.borrow_mut().insert(id, (epoch, sequence));
    }

    pub(crate) fn marker(&self, id: i64, committed: bool) -> i64 {
        self.marker_in(id, committed, self.producer(id).0, TransactionVersion::V0)
    }

    pub(crate) fn marker_in(&self, id: i64, committed: bool, epoch: i16, version: TransactionVersion) -> i64 {
        let mut bytes = BytesMut::new();
        let (producer, epoch) = (ProducerId::new(id), ProducerEpoch::new(epoch));
        let marker = EndTransactionMarker { committed, coordinator_epoch: 0 };
        let time = Timestamp::new(NOW);
        marker.encode_batch(Offset::ZERO, time, None, (producer, epoch), &mut bytes).unwrap();
        let leader = LeaderEpoch::new(0);
        let info = self.log.append_as_leader_in(bytes, leader, Origin::Coordinator, version).unwrap();
        self.log.update_high_watermark(self.log.log_end_offset());
        info.last_offset.unwrap().get()
    }

    pub(crate) fn commit(&self, id: i64) -> i64 {
        self.marker(id, true)
    }

    pub(crate) fn abort(&self, id: i64) -> i64 {
        self.marker(id, false)
    }

    pub(crate) fn follow(&self, bytes: impl Into<Bytes>) {
        self.log.append_as_follower(bytes.into(), LeaderEpoch::new(0)).unwrap();
        self.log.update_high_watermark(self.log.log_end_offset());
    }

    pub(crate) fn roll(&self) {
        self.log.roll(None).unwrap();
        self.log.update_high_watermark(self.log.log_end_offset());
    }

    pub(crate) fn active(&self) -> i64 {
        self.log.sealed_segments().unwrap().1.get()
    }

    /// Rolls, and cleans all of it from `first` on at `now`.
    pub(crate) fn clean_at(&self, first: i64, now: i64) -> Round {
        self.roll();
        self.round(first, now).unwrap()
    }

    pub(crate) fn clean(&self) -> Round {
        self.clean_at(0, NOW)
    }

    /// Two rounds, the second after every horizon of the first.
    pub(crate) fn clean_twice(&self, now: i64) {
        self.clean_at(0, now);
        self.round(0, now + DAY).unwrap();
    }

    pub(crate) fn round(&self, first: i64, now: i64) -> Result<Round> {
        let dirty = Dirty {
            first: Offset::new(first),
            first_uncleanable: Offset::new(self.active()),
            now: Timestamp::new(now),
        };
        self.round_of(dirty)
    }

    pub(crate) fn round_of(&self, dirty: Dirty) -> Result<Round> {
        Cleaner::new(self.options.clone())?.clean(&self.log, dirty, &Unhindered)
    }

    pub(crate) fn segments(&self) -> Vec<i64> {
        self.log.state(false).unwrap().segments.iter().map(|s| s.base_offset.get()).collect()
    }

    /// The bytes of all segments, in order, log start or not.
    pub(crate) fn bytes(&self) -> Vec<Bytes> {
        let (sealed, active) = self.log.sealed_segments().unwrap();
        let whole = |s: &kseg_log::Sealed| s.segment().region_from(None).unwrap().to_bytes().unwrap();
        let mut all: Vec<Bytes> = sealed.iter().map(whole).collect();
        let name = kseg_segment::file_name(active, kseg_segment::FileKind::Log, kseg_segment::Suffix::None);
        let bytes = self.backend.names().read(&self.path(&name), 1 << 30).unwrap().unwrap();
        all.push(Bytes::from(bytes).slice(..self.log.active_size().unwrap() as usize));
        all
    }

    fn each<T>(&self, mut f: impl FnMut(&Batch<'_>) -> T) -> Vec<T> {
        let mut out = Vec::new();
        for bytes in self.bytes() {
            for batch in Batches::new(&bytes) {
                out.push(f(&batch.unwrap()));
            }
        }
        out
    }

    /// Base and last offset of each batch.
    pub(crate) fn batches(&self) -> Vec<(i64, i64)> {
        self.each(|b| (b.base_offset().unwrap().get(), b.last_offset().get()))
    }

    pub(crate) fn last_offsets(&self) -> Vec<i64> {
        self.each(|b| b.last_offset().get())
    }

    pub(crate) fn horizons(&self) -> Vec<Option<i64>> {
        self.each(|b| b.delete_horizon().map(Timestamp::get))
    }

    /// A whole batch by its last offset.
    pub(crate) fn batch(&self, last: i64) -> Option<Vec<u8>> {
        self.each(|b| (b.last_offset().get() == last).then(|| b.as_bytes().to_vec()))
            .into_iter()
            .flatten()
            .next()
    }

    fn records<T>(&self, mut f: impl FnMut(&Batch<'_>, &kseg_format::Record<'_>) -> Option<T>) -> Vec<T> {
        let each = self.each(|batch| {
            let mut scratch = Vec::new();
            let records = batch.records(&mut scratch, 1 << 30).unwrap();
            records.filter_map(|record| f(batch, &record.unwrap())).collect::<Vec<_>>()
        });
        each.into_iter().flatten().collect()
    }

    /// Offsets of the records that have a key and a value, markers among them.
    pub(crate) fn offsets(&self) -> Vec<i64> {
        self.records(|_, r| (r.key().is_some() && r.value().is_some()).then(|| r.offset().get()))
    }

    pub(crate) fn all_offsets(&self) -> Vec<i64> {
        self.records(|_, r| Some(r.offset().get()))
    }

    /// Keys of the records of data that have a value.
    pub(crate) fn data_keys(&self) -> Vec<i64> {
        self.records(|batch, r| {
            let key = r.key().filter(|_| !batch.is_control() && r.value().is_some())?;
            std::str::from_utf8(key).unwrap().parse().ok()
        })
    }

    /// Key, value and offset of all data.
    pub(crate) fn data(&self) -> Vec<(i64, String, Option<String>)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.records(|batch, r| {
            (!batch.is_control())
                .then(|| (r.offset().get(), text(r.key().unwrap_or(b"-")), r.value().map(text)))
        })
    }

    /// Producer, first and last offset of the aborted transactions.
    pub(crate) fn aborted(&self) -> Vec<(i64, i64, i64)> {
        let found = self.log.aborted_for_cleaning(Offset::ZERO, Offset::new(1 << 40)).unwrap();
        found.iter().map(|t| (t.producer_id.get(), t.first_offset.get(), t.last_offset.get())).collect()
    }

    /// The last sequence that the log knows of a producer.
    pub(crate) fn last_sequence(&self, id: i64) -> Option<i32> {
        let state = self.log.state(false).unwrap();
        let known = state.producers.iter().find(|p| p.id.get() == id)?;
        known.batches.last()?.last_sequence().map(Sequence::get)
    }
}

pub(crate) fn producer(id: i64, epoch: i16, sequence: i32, transactional: bool) -> BatchOptions {
    let producer = Producer {
        id: ProducerId::new(id),
        epoch: ProducerEpoch::new(epoch),
        base_sequence: Some(Sequence::new(sequence)),
    };
    BatchOptions { producer: Some(producer), transactional, ..BatchOptions::default() }
}

pub(crate) fn codec(codec: Codec) -> BatchOptions {
    BatchOptions { codec, ..BatchOptions::default() }
}

pub(crate) fn batch(options: BatchOptions, times: &[i64], entries: &[Entry<'_>]) -> BytesMut {
    let mut builder = RecordBatchBuilder::new(options);
    for (time, (key, value)) in times.iter().zip(entries) {
        let (key, value) = (key.map(str::as_bytes), value.map(str::as_bytes));
        builder.append(Timestamp::from_raw(*time), key, value, &[]).unwrap();
    }
    let mut bytes = BytesMut::new();
    builder.finish(&mut bytes).unwrap();
    bytes
}

/// Batches with their offsets, for a follower's append.
pub(crate) fn at(base: i64, entries: &[Entry<'_>]) -> Bytes {
    let times = vec![NOW; entries.len()];
    let options = BatchOptions {
        base_offset: Offset::new(base),
        leader_epoch: Some(LeaderEpoch::new(0)),
        ..BatchOptions::default()
    };
    batch(options, &times, entries).freeze()
}
