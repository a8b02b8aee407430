//! A Kafka partition log on real files: append, read by offset and time, roll, recover, retain.
#![forbid(unsafe_code)]
