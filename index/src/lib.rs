//! Kafka's sparse offset and time indexes: append, lower-bound search with a warm section, checks.
#![forbid(unsafe_code)]
