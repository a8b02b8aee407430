//! Messages of magic 0 and 1, which came before record batches.
//!
//! Old segments hold them still. An uncompressed message is a batch of one record; a compressed one wraps a whole
//! series of messages in its value. They are read wherever batches are; [`encode`] writes them, for tools and tests
//! alone: no log takes new ones.

pub(crate) mod encode;
pub(crate) mod read;

pub use encode::{LegacyOptions, LegacyRecord, encode};
