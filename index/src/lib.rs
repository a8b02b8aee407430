//! Kafka's sparse offset and time indexes: append, lower-bound search with a warm section, checks.
//!
//! A segment of a partition log has an [`OffsetIndex`] (`.index`, offset to position) and a [`TimeIndex`] (`.timeindex`,
//! timestamp to offset), byte for byte Kafka's files. Both are written beside the log file every few kilobytes and name a
//! place from which to walk it. They are caches: whatever is lost or damaged in one can be rebuilt from the log file.
//!
//! This crate opens no files. The entries of an index lie in a [`Region`]: [`MemoryRegion`] here, a memory-mapped file
//! elsewhere. Readers take no lock: an entry is stored first and counted afterwards, so that a lookup beside an append
//! finds either the new entry whole or not at all.
//!
//! ```
//! use kseg_format::Offset;
//! use kseg_index::{MemoryRegion, OffsetIndex};
//!
//! let room_for_100 = MemoryRegion::new(100 * 8);
//! let index = OffsetIndex::new(Offset::new(4000), room_for_100, 0);
//! index.append(Offset::new(4019), 8192)?; // the batch that ends with offset 4019 starts at position 8192
//! index.append(Offset::new(4044), 16384)?;
//!
//! assert_eq!(index.lookup(Offset::new(4030)).position, 8192); // walk the log file from there
//! assert_eq!(index.lookup(Offset::new(4010)).position, 0); // before the first entry: from the start
//! # Ok::<(), kseg_index::IndexError>(())
//! ```
#![forbid(unsafe_code)]

/// The examples of the crate's README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod error;
mod offset_index;
mod region;
mod search;
mod sync;
mod table;
mod time_index;

pub use error::{Expected, Field, IndexError};
pub use offset_index::{OffsetIndex, OffsetPosition};
pub use region::{MemoryRegion, Region};
pub use table::{entries_in, round_down};
pub use time_index::{TimeIndex, TimestampOffset};
