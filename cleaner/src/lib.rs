//! Compaction of Kafka partition logs: which section is dirty, which log first, what is kept.
#![forbid(unsafe_code)]
