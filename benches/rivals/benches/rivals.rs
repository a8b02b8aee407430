//! Every contest's coders under criterion, one by one; `cargo xtask rivals` measures them against each other.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kseg_bench_rivals::contests;

fn rivals(c: &mut Criterion) {
    for contest in contests() {
        let mut group = c.benchmark_group(&contest.name);
        group.throughput(Throughput::Elements(contest.units as u64));
        for (name, mut coder) in contest.coders().expect("the input") {
            group.bench_function(name, |b| b.iter(|| coder.pass().expect("a pass")));
        }
        group.finish();
    }
}

criterion_group!(benches, rivals);
criterion_main!(benches);
