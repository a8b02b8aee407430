//! One segment of a Kafka partition log: a log file and its indexes; append, read, recover, truncate.
#![forbid(unsafe_code)]
