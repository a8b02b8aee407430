//! How batches are read, checked, built and changed, seen from outside.
#![cfg_attr(
    not(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd")),
    allow(dead_code, unused_imports, reason = "some tests are about a codec that is off")
)]

mod builder;
mod cases;
mod control;
mod describe;
mod edges;
mod examples;
mod filter;
mod framing;
mod fuzzed;
#[cfg(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd"))]
mod golden;
mod header;
mod legacy;
mod owned;
mod properties;
mod records;
mod scan;
mod support;
mod validate;
