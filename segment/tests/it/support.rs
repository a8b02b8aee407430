//! Batches and segments for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kseg_format::legacy::{LegacyOptions, LegacyRecord, encode};
use kseg_format::{BatchOptions, Codec, LeaderEpoch, Magic, Offset, RecordBatchBuilder, Timestamp};
use kseg_io_backends::{Backend, Op, OpenHow};
use kseg_segment::{FileKind, Segment, SegmentConfig, Suffix, file_name};

pub(crate) const DIR: &str = "/t-0";

/// A backend in memory with the directory of the tests in it.
pub(crate) fn memory() -> Arc<dyn Backend> {
    let backend = kseg_io_backends::open("memory").expect("memory is always there");
    backend.names().create_dir_all(Path::new(DIR)).expect("a directory in memory");
    backend
}

pub(crate) fn config(interval: u32, index_size_max: u32) -> SegmentConfig {
    SegmentConfig { index_interval_bytes: interval, index_size_max, ..SegmentConfig::default() }
}

pub(crate) fn segment(base: i64, interval: u32, index_size_max: u32) -> Segment {
    Segment::create(memory(), Path::new(DIR), Offset::new(base), config(interval, index_size_max), 0)
        .expect("a new segment")
}

/// Takes over the segment's files, as the next process would.
pub(crate) fn reopen(backend: Arc<dyn Backend>, base: i64, config: SegmentConfig) -> Segment {
    let size = backend.names().stat(&path(base, FileKind::Log)).expect("stat").expect("a .log file").len;
    Segment::open(backend, Path::new(DIR), Offset::new(base), config, 0, size).expect("a segment")
}

pub(crate) fn path(base: i64, kind: FileKind) -> PathBuf {
    Path::new(DIR).join(file_name(Offset::new(base), kind, Suffix::None))
}

pub(crate) fn len(backend: &dyn Backend, base: i64, kind: FileKind) -> Option<u64> {
    backend.names().stat(&path(base, kind)).expect("stat").map(|s| s.len)
}

pub(crate) fn contents(backend: &dyn Backend, base: i64, kind: FileKind) -> Vec<u8> {
    backend.names().read(&path(base, kind), 1 << 30).expect("read").expect("the file")
}

/// Overwrites a file of a segment with these bytes.
pub(crate) fn overwrite(backend: &dyn Backend, base: i64, kind: FileKind, bytes: &[u8]) {
    let file = backend.open(&path(base, kind), OpenHow::Create).expect("open");
    file.submit(Op::SetLen { len: 0 }).wait().result.expect("cut");
    backend.names().write(&path(base, kind), bytes, false).expect("write");
}

/// One batch with a record for each timestamp, offsets from `base` on, padded to `size` bytes where given.
pub(crate) fn batch(base: i64, times: &[Option<i64>], size: Option<usize>) -> Bytes {
    let mut room = 0;
    let mut beyond = false;
    loop {
        let mut builder = RecordBatchBuilder::new(BatchOptions {
            base_offset: Offset::new(base),
            leader_epoch: Some(LeaderEpoch::new(0)),
            ..BatchOptions::default()
        });
        for (n, time) in times.iter().enumerate() {
            let value = vec![b'v'; if n == 0 { room } else { 0 }];
            builder.append(time.map(Timestamp::new), None, Some(&value), &[]).expect("a record");
        }
        let mut bytes = BytesMut::new();
        builder.finish(&mut bytes).expect("a batch");
        match size {
            // A few sizes cannot be had, where the length of a length grows: the next smaller one does.
            Some(size) if bytes.len() < size && !beyond => room += size - bytes.len(),
            Some(size) if bytes.len() > size && room > 0 => (room, beyond) = (room - 1, true),
            _ => return bytes.freeze(),
        }
    }
}

/// `count` records in a batch of `size` bytes, all with the timestamp `time`.
pub(crate) fn sized(base: i64, count: usize, time: i64, size: usize) -> Bytes {
    batch(base, &vec![Some(time); count], Some(size))
}

pub(crate) fn append(segment: &Segment, last: i64, bytes: &Bytes) {
    segment.append(Offset::new(last), bytes.clone()).expect("an append");
}

/// Twelve batches of one record and 1000 bytes at offsets 0 to 11, timestamps 100, 101 and so on.
pub(crate) fn twelve(segment: &Segment) {
    for n in 0..12 {
        append(segment, n, &sized(n, 1, 100 + n, 1000));
    }
}

pub(crate) fn offset_entries(segment: &Segment) -> Vec<(i64, u32)> {
    segment.offset_entries().expect("entries").iter().map(|e| (e.offset.get(), e.position)).collect()
}

pub(crate) fn time_entries(segment: &Segment) -> Vec<(i64, i64)> {
    let entries = segment.time_entries().expect("entries");
    entries.iter().map(|e| (Timestamp::to_raw(e.timestamp), e.offset.get())).collect()
}

/// Position of the batch that holds the offset, or the first behind it.
pub(crate) fn position_of(segment: &Segment, offset: i64) -> Option<u64> {
    segment.translate(Offset::new(offset)).expect("a lookup").map(|p| p.position)
}

/// (timestamp, offset) of the first record at or above the time.
pub(crate) fn at_time(segment: &Segment, time: i64, start: i64) -> Option<(i64, i64)> {
    let found = segment.find_by_timestamp(Timestamp::new(time), Offset::new(start)).expect("a lookup");
    found.map(|f| (Timestamp::to_raw(f.timestamp), f.offset.get()))
}

/// One message of an old format per record, `(offset, timestamp)`, each with the value `hello`; with a codec all in one
/// wrapper.
pub(crate) fn messages(magic: Magic, codec: Codec, records: &[(i64, i64)]) -> Bytes {
    let options = LegacyOptions { magic, codec, ..LegacyOptions::default() };
    let records: Vec<_> = records
        .iter()
        .map(|&(offset, time)| LegacyRecord {
            offset: Offset::new(offset),
            timestamp: Timestamp::from_raw(time),
            key: None,
            value: Some(b"hello"),
        })
        .collect();
    let mut bytes = BytesMut::new();
    encode(&options, &records, &mut bytes).expect("messages");
    bytes.freeze()
}

/// (base offset, base of the segment, position) of a read, and its bytes.
pub(crate) fn read(
    segment: &Segment,
    offset: i64,
    max: usize,
    end: Option<u64>,
    min_one: bool,
) -> Option<((i64, u64), usize)> {
    let read = segment.read(Offset::new(offset), max, end, min_one).expect("a read");
    read.map(|r| ((r.batch_base_offset.get(), r.position), r.region.len()))
}
