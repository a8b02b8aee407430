//! Finding offsets and times in a log of 64 MiB.

use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use kseg_format::{BatchOptions, LeaderEpoch, Offset, Origin, RecordBatchBuilder, Timestamp};
use kseg_log::{Isolation, Log, OpenOptions, TimestampQuery};

const BATCHES: i64 = 4096;
const RECORDS: i64 = 16;

fn lookup(c: &mut Criterion) {
    let mut group = c.benchmark_group("lookup");
    for name in ["memory", "std"] {
        let backend = kseg_io_backends::open(name).expect("a backend");
        let parent = tempfile::tempdir().expect("a folder");
        let dir = parent.path().join("lookup-0");
        backend.names().create_dir_all(&dir).expect("a folder");
        let log = Log::open(&dir, OpenOptions::new(backend)).expect("a log");
        let mut builder = RecordBatchBuilder::new(BatchOptions::default());
        for batch in 0..BATCHES {
            for record in 0..RECORDS {
                let timestamp = Timestamp::new(batch * RECORDS + record);
                builder.append(Some(timestamp), None, Some(&[0; 1000]), &[]).expect("a record");
            }
            let mut bytes = BytesMut::new();
            builder.finish(&mut bytes).expect("a batch");
            log.append_as_leader(bytes, LeaderEpoch::new(0), Origin::Client).expect("an append");
        }
        // A step that is prime to the count visits all of them, far apart.
        let end = BATCHES * RECORDS;
        let step = 40_503;
        group.bench_function(BenchmarkId::new("offset", name), |b| {
            let mut offset = 0;
            b.iter(|| {
                offset = (offset + step) % end;
                log.read(Offset::new(offset), 1, Isolation::LogEnd, true).expect("a batch").len()
            });
        });
        group.bench_function(BenchmarkId::new("timestamp", name), |b| {
            let mut timestamp = 0;
            b.iter(|| {
                timestamp = (timestamp + step) % end;
                log.offset_for_timestamp(TimestampQuery::At(Timestamp::new(timestamp))).expect("an answer")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, lookup);
criterion_main!(benches);
