//! One segment of a Kafka partition log: a `.log` file of record batches with one base offset, its offset index
//! and its time index.
//!
//! A [`Segment`] appends whole batches, finds the batch that holds an offset or a timestamp, hands out byte ranges
//! on batch boundaries, rebuilds its indexes from its batches, and drops a suffix. It knows nothing of its
//! neighbours: which segment is active, what the log end offset is and when to roll is the log's business; the
//! conditions for a roll are here, as a pure function ([`roll_reason`]).
//!
//! Files are Kafka's, byte for byte (`LogSegment`, `LazyIndex`, `FileRecords` of Apache Kafka 4.3). Index files are
//! opened, and made at their full size, when something first uses them.
//!
//! ```
//! use bytes::{Bytes, BytesMut};
//! use kseg_format::{BatchOptions, Offset, RecordBatchBuilder, Timestamp};
//! use kseg_segment::{Segment, SegmentConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backend = kseg_io_backends::open("memory")?;
//! let dir = std::path::Path::new("/orders-0");
//! backend.names().create_dir_all(dir)?;
//! let segment = Segment::create(backend, dir, Offset::ZERO, SegmentConfig::default(), 0)?;
//!
//! let mut batch = RecordBatchBuilder::new(BatchOptions::default());
//! batch.append(Some(Timestamp::new(1_700_000_000_000)), Some(b"key"), Some(b"value"), &[])?;
//! let mut bytes = BytesMut::new();
//! batch.finish(&mut bytes)?;
//! segment.append(Offset::ZERO, Bytes::from(bytes))?;
//!
//! let found = segment.translate(Offset::ZERO)?.expect("the batch of offset 0");
//! assert_eq!(found.position, 0);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

/// The examples of the crate's README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod aborted;
mod config;
mod error;
mod files;
mod indexes;
mod log_file;
mod lookup;
mod recover;
mod replacement;
mod roll;
mod scan;
mod segment;
mod split;
mod sync;

pub use config::{MAX_SEGMENT_SIZE, SegmentConfig};
pub use error::{Error, Result};
pub use files::{FileKind, FileName, Suffix, file_name, parse_file_name};
pub use indexes::MapRegion;
pub use log_file::FileRegion;
pub use lookup::{BatchPlace, SegmentRead, TimestampedOffset};
pub use recover::{Checked, Cut, CutReason, Overflow, Recovered};
pub use replacement::{Finished, Replacement};
pub use roll::{RollCheck, RollReason, roll_reason};
pub use scan::{BatchReader, Headers, ReadAt};
pub use segment::Segment;
pub use split::Part;
