//! Appending batches to a log as the leader, on each backend.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kseg_format::{BatchOptions, LeaderEpoch, Origin, RecordBatchBuilder, Timestamp};
use kseg_log::{Log, OpenOptions};

/// Bytes after which a log is removed and a new one made, outside the measured time.
const CAP: u64 = 256 << 20;

fn batch(records: usize, value_len: usize) -> Bytes {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    let mut out = BytesMut::new();
    for record in 0..records {
        let value = vec![record as u8; value_len];
        builder.append(Some(Timestamp::new(1_700_000_000_000)), None, Some(&value), &[]).expect("a record");
    }
    builder.finish(&mut out).expect("a batch");
    out.freeze()
}

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("append");
    for (name, batch) in [("16x1k", batch(16, 1 << 10)), ("128x1k", batch(128, 1 << 10))] {
        group.throughput(Throughput::Bytes(batch.len() as u64));
        for backend in ["memory", "std"] {
            group.bench_function(BenchmarkId::new(backend, name), |b| {
                let backend = kseg_io_backends::open(backend).expect("a backend");
                let parent = tempfile::tempdir().expect("a folder");
                let dir = parent.path().join("append-0");
                b.iter_custom(|iterations| {
                    let mut elapsed = Duration::ZERO;
                    let mut left = iterations;
                    while left > 0 {
                        backend.names().create_dir_all(&dir).expect("a folder");
                        let log = Log::open(&dir, OpenOptions::new(backend.clone())).expect("a log");
                        let log = Arc::new(log);
                        while left > 0 && log.size() < CAP {
                            let copy = BytesMut::from(&batch[..]);
                            let begin = Instant::now();
                            log.append_as_leader(copy, LeaderEpoch::new(0), Origin::Client)
                                .expect("an append");
                            elapsed += begin.elapsed();
                            left -= 1;
                        }
                        log.abandon();
                        backend.names().remove_dir_all(&dir).expect("an empty parent");
                    }
                    elapsed
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, append);
criterion_main!(benches);
