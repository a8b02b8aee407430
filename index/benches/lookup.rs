//! Lookups in indexes as large as Kafka preallocates them, in memory, hot.
//!
//! Each case runs beside `slice`, a binary search with `partition_point` over the same keys in a plain vector. Targets are
//! scattered over the part named, so that a branch predictor learns nothing. Every answer is added up and compared.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

use kseg_format::{Offset, Timestamp};
use kseg_index::{MemoryRegion, OffsetIndex, TimeIndex};

/// Lookups in one measured round.
const LOOKUPS: usize = 1024;
/// Offsets, milliseconds and bytes between two entries.
const STEP: usize = 40;

fn scattered(below: u64) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    })
}

/// (name, targets) for an index of `entries` entries: anywhere, and among the last 200 entries.
fn parts(entries: usize) -> [(&'static str, Vec<i64>); 2] {
    let end = (entries * STEP) as i64;
    let tail = 200 * STEP as u64;
    [
        ("anywhere", scattered(end as u64).take(LOOKUPS).map(|target| target as i64).collect()),
        ("tail", scattered(tail).take(LOOKUPS).map(|behind| end - 1 - behind as i64).collect()),
    ]
}

/// Sum of the slots that a plain search over `keys` finds, to compare with.
fn plain(keys: &[i64], targets: &[i64]) -> usize {
    targets.iter().map(|target| keys.partition_point(|key| key <= target)).sum()
}

fn offset_lookup(c: &mut Criterion) {
    let mut group = c.benchmark_group("offset_index");
    group.throughput(Throughput::Elements(LOOKUPS as u64));
    for entries in [262_144, 1_310_720] {
        let index = OffsetIndex::new(Offset::ZERO, MemoryRegion::new(entries * 8), 0);
        let mut keys = Vec::with_capacity(entries);
        for slot in 0..entries {
            index.append(Offset::new((slot * STEP) as i64), slot as u32 + 1).unwrap();
            keys.push((slot * STEP) as i64);
        }
        for (part, targets) in parts(entries) {
            let lookups = || -> usize {
                let position = |target: &i64| index.lookup(Offset::new(*target)).position as usize;
                targets.iter().map(position).sum()
            };
            assert_eq!(lookups(), plain(&keys, &targets));
            group.bench_function(BenchmarkId::new(part, entries), |b| b.iter(|| black_box(lookups())));
            group.bench_function(BenchmarkId::new(format!("{part}/slice"), entries), |b| {
                b.iter(|| black_box(plain(&keys, &targets)))
            });
        }
    }
    group.finish();
}

fn time_lookup(c: &mut Criterion) {
    let mut group = c.benchmark_group("time_index");
    group.throughput(Throughput::Elements(LOOKUPS as u64));
    let entries = 873_812;
    let index = TimeIndex::new(Offset::ZERO, MemoryRegion::new((entries + 1) * 12), 0);
    let mut keys = Vec::with_capacity(entries);
    for slot in 0..entries {
        let timestamp = Some(Timestamp::new((slot * STEP) as i64));
        index.maybe_append(timestamp, Offset::new(slot as i64 + 1), false).unwrap();
        keys.push((slot * STEP) as i64);
    }
    for (part, targets) in parts(entries) {
        let lookups = || -> usize {
            let offset = |target: &i64| index.lookup(Timestamp::new(*target)).offset.get() as usize;
            targets.iter().map(offset).sum()
        };
        assert_eq!(lookups(), plain(&keys, &targets));
        group.bench_function(BenchmarkId::new(part, entries), |b| b.iter(|| black_box(lookups())));
        group.bench_function(BenchmarkId::new(format!("{part}/slice"), entries), |b| {
            b.iter(|| black_box(plain(&keys, &targets)))
        });
    }
    group.finish();
}

criterion_group!(benches, offset_lookup, time_lookup);
criterion_main!(benches);
