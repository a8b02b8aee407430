//! Encoding and decoding of batches.

use std::hint::black_box;

use bytes::BytesMut;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kseg_format::{
    Batch, BatchOptions, Codec, LeaderRules, Offset, RecordBatchBuilder, Timestamp, assign_offsets,
};

const RECORDS: usize = 100;

fn fill(builder: &mut RecordBatchBuilder, value: &[u8]) {
    for i in 0..RECORDS {
        builder.append(Some(Timestamp::new(1_700_000_000_000 + i as i64)), None, Some(value), &[]).unwrap();
    }
}

fn batch(value_len: usize) -> BytesMut {
    let mut builder = RecordBatchBuilder::new(BatchOptions::default());
    fill(&mut builder, &vec![0x61; value_len]);
    let mut out = BytesMut::new();
    builder.finish(&mut out).unwrap();
    out
}

fn benches(c: &mut Criterion) {
    for (name, len) in [("100 B", 100), ("1 KiB", 1024)] {
        let mut group = c.benchmark_group(format!("{RECORDS} records of {name}"));
        let bytes = batch(len);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let value = vec![0x61; len];
        let mut builder = RecordBatchBuilder::new(BatchOptions::default());
        let mut out = BytesMut::new();
        group.bench_function("encode", |b| {
            b.iter(|| {
                out.clear();
                fill(&mut builder, black_box(&value));
                builder.finish(&mut out).unwrap()
            });
        });
        assert_eq!(out, bytes);
        group.bench_function("append only", |b| {
            b.iter(|| {
                builder.clear();
                fill(&mut builder, black_box(&value));
                builder.uncompressed_size()
            });
        });
        builder.clear();
        let mut scratch = Vec::new();
        group.bench_function("decode", |b| {
            b.iter(|| {
                let batch = Batch::parse(black_box(&bytes)).unwrap();
                let mut total = 0;
                for record in batch.records(&mut scratch, usize::MAX).unwrap() {
                    total += record.unwrap().value().map_or(0, <[u8]>::len);
                }
                assert_eq!(total, RECORDS * len);
            });
        });
        group.bench_function("verify", |b| {
            b.iter(|| Batch::parse(black_box(&bytes)).unwrap().verify().unwrap().crc());
        });
        let rules = LeaderRules { now: Timestamp::new(1_700_000_000_000), ..LeaderRules::default() };
        group.bench_function("assign offsets", |b| {
            b.iter_batched_ref(
                || bytes.clone(),
                |bytes| assign_offsets(bytes, Offset::new(7), Codec::None, &rules).unwrap().next_offset,
                BatchSize::SmallInput,
            );
        });
        group.finish();
    }
}

criterion_group!(batch_benches, benches);
criterion_main!(batch_benches);
