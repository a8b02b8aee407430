//! Reading side: files are opened for reading only, read with positional reads, and never mapped.
//!
//! A file that another process appends to, rolls, cuts or removes meanwhile cannot fault the reader: what is not there
//! is a shorter read. What a reader needs to know is listed anew instead of being kept.

mod cursor;
mod file;
mod hints;
mod partition;
mod walk;

pub(crate) use cursor::{Cursor, Found, Start};
pub(crate) use file::PreadFile;
pub(crate) use partition::Partition;
pub(crate) use walk::{Step, Walk, WalkError};

/// Decompressed bytes of a batch at most: Kafka's own bound, the longest array it can have.
pub(crate) const DECOMPRESSED_MAX: usize = i32::MAX as usize;
