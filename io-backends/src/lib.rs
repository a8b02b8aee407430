//! Append-only files over interchangeable I/O backends, with marks for what is accepted, stable and durable.
#![forbid(unsafe_code)]
