//! Kafka's record batches as bytes: build, view, check, walk; compression and CRC-32C.
//!
//! A log is a sequence of batches, each a header and records, and so is what a producer sends and a consumer gets.
//! This crate knows their bytes and nothing of files. [`Batch`] is one in place, borrowed; [`Batches`] walks a buffer,
//! [`frame`] a file; [`RecordBatchBuilder`] makes new ones; [`BatchMut`] changes a header in place; and
//! [`assign_offsets`] does what a leader does before it stores what a client sent. Messages of magic 0 and 1, which
//! came before batches, are read like them. The small files beside the batches (producer snapshots, transaction-index
//! entries, checkpoints, `partition.metadata`, `meta.properties`) are here too, as bytes.
//!
//! What is read may be anything: nothing here panics on damaged bytes or reserves memory by a length that stands in
//! them. What Kafka 4.3.1 refuses, this crate refuses, and [`DecodeError::kafka_name`] says with which exception; what Kafka
//! reads, it reads the same, but for a few things that no writer makes, which the README names.
//!
//! ```
//! use bytes::BytesMut;
//! use kseg_format::{Batch, BatchOptions, Offset, RecordBatchBuilder, Timestamp};
//!
//! let options = BatchOptions { base_offset: Offset::new(40), ..BatchOptions::default() };
//! let mut builder = RecordBatchBuilder::new(options);
//! builder.append(Some(Timestamp::new(1_700_000_000_000)), Some(b"key"), Some(b"value"), &[])?;
//! builder.append(Some(Timestamp::new(1_700_000_000_250)), Some(b"gone"), None, &[(b"why", Some(b"old"))])?;
//! let mut bytes = BytesMut::new();
//! builder.finish(&mut bytes)?;
//!
//! let batch = Batch::parse(&bytes)?.verify()?;
//! assert_eq!(batch.last_offset(), Offset::new(41));
//! let mut scratch = Vec::new(); // for compressed batches
//! for record in batch.records(&mut scratch, 1 << 20)? {
//!     let record = record?;
//!     println!("{} {:?} {:?}", record.offset(), record.key(), record.value());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//! `gzip`, `snappy`, `lz4` and `zstd`, all on by default. Without one its codec still has a name, and using it is an
//! error that says so. `crc-fast` computes CRC-32C with the crate of that name in place of `crc32c`.
//! `serde` lets [`OwnedRecord`] be serialized. Both are off by default.
#![forbid(unsafe_code)]
#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

/// The examples of the crate's README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod aborted;
mod batch;
mod batches;
mod checkpoint;
mod codec;
mod compression;
mod control;
mod crc;
mod error;
mod filter;
mod framing;
pub mod kraft;
pub mod legacy;
mod number;
mod producer_snapshot;
mod record;
mod records;
mod small_files;
mod validate;
mod varint;

pub use aborted::{AbortedError, AbortedTransaction};
pub use batch::builder::{BatchOptions, Producer, RecordBatchBuilder};
pub use batch::header::{BATCH_OVERHEAD, BatchHeader, HEADER_UP_TO_MAGIC, LOG_OVERHEAD, MIN_SIZE_FIELD};
pub use batch::mutate::BatchMut;
pub use batch::{Attributes, Batch, CheckedBatch};
pub use batches::Batches;
pub use checkpoint::{
    CheckpointError, EpochEntry, TopicPartition, checkpoint_files, parse_epochs, parse_offsets, print_epochs,
    print_offsets,
};
pub use codec::{Codec, Magic, TimestampType, UnknownCodecName};
pub use control::{ControlKey, ControlType, EndTransactionMarker};
pub use crc::BatchChecksum;
pub use error::{DecodeError, EncodeError, Expected, Found, Place};
pub use filter::{BatchFate, BatchFilter, FilterError, FilterOptions, Filtered, Retention};
pub use framing::{Framed, first_batch_size, frame};
pub use number::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, RelativeOffset, Sequence, Timestamp};
pub use producer_snapshot::{SnapshotBatch, SnapshotEntry, SnapshotError, decode_snapshot, encode_snapshot};
pub use record::{Header, Headers, OwnedHeader, OwnedRecord, Record};
pub use records::{RecordStream, Records};
pub use small_files::{CleanShutdown, MetaProperties, PartitionMetadata, SmallFileError, Uuid, UuidError};
pub use validate::{
    Assigned, BatchFault, LeaderRules, Levels, Origin, RecordFault, RecordFaultKind, Rejections, ScanError,
    ScanRules, Scanned, ValidationError, assign_offsets, scan_append,
};
