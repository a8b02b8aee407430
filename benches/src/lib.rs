//! Benchmarks of I/O backends for append-only logs, next to the limits of the hardware.
#![forbid(unsafe_code)]
