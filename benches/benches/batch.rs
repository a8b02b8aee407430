//! Encoding and decoding batches with each codec.

use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kseg_format::{Batch, BatchOptions, Codec, RecordBatchBuilder, Timestamp};

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

/// Lines that differ in their numbers.
fn values(count: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|record| {
            let line = format!("partition {} appended a batch at offset {} ", record % 7, record * 7919);
            line.bytes().cycle().take(len).collect()
        })
        .collect()
}

fn encode(builder: &mut RecordBatchBuilder, values: &[Vec<u8>], out: &mut BytesMut) {
    out.clear();
    for (value, timestamp) in values.iter().zip(1_700_000_000_000..) {
        builder.append(Some(Timestamp::new(timestamp)), None, Some(value), &[]).expect("a record");
    }
    builder.finish(out).expect("a batch");
}

fn batch(c: &mut Criterion) {
    for (count, len) in [(100, 100), (100, 1024), (1000, 100), (1000, 1024)] {
        let values = values(count, len);
        for codec in CODECS {
            let mut builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
            let mut out = BytesMut::new();
            let mut group = c.benchmark_group(format!("batch-{count}x{len}"));
            group.throughput(Throughput::Bytes((count * len) as u64));
            group.bench_function(BenchmarkId::new("encode", codec), |b| {
                b.iter(|| encode(&mut builder, &values, &mut out));
            });
            encode(&mut builder, &values, &mut out);
            let mut scratch = Vec::new();
            group.bench_function(BenchmarkId::new("decode", codec), |b| {
                b.iter(|| {
                    let checked = Batch::parse(&out).and_then(Batch::verify).expect("a whole batch");
                    let records = checked.records(&mut scratch, 16 << 20).expect("records");
                    records
                        .map(|record| record.expect("a record").value().map_or(0, <[u8]>::len))
                        .sum::<usize>()
                });
            });
            group.finish();
        }
    }
}

criterion_group!(benches, batch);
criterion_main!(benches);
