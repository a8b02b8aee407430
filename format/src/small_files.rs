//! The small files beside the data: `partition.metadata`, `.kafka_cleanshutdown` and `meta.properties`.
//!
//! Each type here is one file's content, read from bytes and printed to bytes; who writes it, and how it is made durable,
//! is not decided here.
//!
//! Source: Kafka `PartitionMetadataFile`, `CleanShutdownFileHandler`, `MetaProperties`.

mod clean_shutdown;
mod meta_properties;
mod partition_metadata;
mod uuid;

use std::fmt;

pub use clean_shutdown::CleanShutdown;
pub use meta_properties::MetaProperties;
pub use partition_metadata::PartitionMetadata;
pub use uuid::{Uuid, UuidError};

/// A small file that cannot be read: which line, what it should be, what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmallFileError {
    /// The file's name.
    pub file: &'static str,
    /// The line, counted from 1.
    pub line: usize,
    /// What is expected.
    pub expected: &'static str,
    /// What was found.
    pub found: String,
}

impl SmallFileError {
    /// Kafka's name for this error: a damaged file takes the directory offline.
    pub fn kafka_name(&self) -> &'static str {
        "KafkaStorageException"
    }
}

impl fmt::Display for SmallFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SmallFileError { file, line, expected, found } = self;
        write!(f, "{file}, line {line}: expected {expected}, found {found}")
    }
}

impl std::error::Error for SmallFileError {}
