//! Kafka's record batches as bytes: build, view, check, walk; compression and CRC-32C.
#![forbid(unsafe_code)]
