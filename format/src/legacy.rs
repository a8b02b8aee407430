//! Messages of magic 0 and 1, which came before record batches.
//!
//! Old segments hold them still. An uncompressed message is a batch of one record; a compressed one wraps a whole
//! series of messages in its value. They are read wherever batches are; [`encode`] writes them, for tools and tests
//! alone: no log takes new ones.
//!
//! What turns them into batches of magic 2: a leader's append ([`assign_offsets`](crate::assign_offsets), with new offsets),
//! compaction ([`BatchFilter`](crate::BatchFilter), with the old ones), and a builder that is given their records:
//!
//! ```
//! use bytes::BytesMut;
//! use kseg_format::legacy::{LegacyOptions, LegacyRecord, encode};
//! use kseg_format::{Batch, BatchOptions, Batches, Magic, Offset, RecordBatchBuilder, Timestamp};
//!
//! let message = |offset| LegacyRecord {
//!     offset: Offset::new(offset),
//!     timestamp: Some(Timestamp::new(1_000)),
//!     key: None,
//!     value: Some(b"old"),
//! };
//! let mut old = BytesMut::new();
//! encode(&LegacyOptions::default(), &[message(5), message(7)], &mut old)?;
//!
//! let mut builder = RecordBatchBuilder::new(BatchOptions { base_offset: Offset::new(5), ..BatchOptions::default() });
//! let mut scratch = Vec::new(); // takes what a wrapper decompresses to
//! for batch in Batches::new(&old) {
//!     for record in batch?.verify()?.records(&mut scratch, 1 << 20)? {
//!         let record = record?;
//!         builder.append_record(record.offset(), &record)?;
//!     }
//! }
//! let new = Batch::parse(builder.build()?.unwrap())?;
//! assert_eq!((new.magic(), new.records_count(), new.last_offset()), (Magic::V2, Some(2), Offset::new(7)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod encode;
pub(crate) mod read;

pub use encode::{LegacyOptions, LegacyRecord, encode};
