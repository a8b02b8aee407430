//! The settings of one cleaner.

use crate::error::{Error, Result};
use crate::offset_map::SLOT_BYTES;

/// What becomes of records without a key, which no map can tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::exhaustive_enums, reason = "there is no third way")]
pub enum NullKey {
    /// They stay. A log that was written under `cleanup.policy=delete` loses nothing by a change of policy.
    #[default]
    Keep,
    /// They go, and are counted as invalid: Kafka's way.
    Discard,
}

/// How a cleaner works. `Default` gives Kafka's figures for one thread.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CleanerOptions {
    /// Memory of the offset map in bytes (`log.cleaner.dedupe.buffer.size`). Default: 134217728. Minimum: room for one key
    /// under the load factor.
    pub map_bytes: usize,
    /// Which part of the map is used (`log.cleaner.io.buffer.load.factor`). Default: 0.9. Range: above 0, below 1.
    pub load_factor: f64,
    /// Bytes of a buffer that is read into, and about those of one that is written from (half of `log.cleaner.io.buffer.size`);
    /// four of each where a round has threads of its own. They grow for a batch that is larger and shrink again. Default:
    /// 262144. Minimum: 512.
    pub io_buffer_bytes: usize,
    /// What becomes of records without a key. Default: they stay.
    pub null_key: NullKey,
    /// Whether a record is dropped only after the key at the later offset has been read and is the same. Costs a lookup for
    /// each dropped record. Default: false.
    pub verify_keys: bool,
    /// Whether a round reads ahead on one thread of its own and writes, syncs and swaps on another, beside the one that decides
    /// what is kept; otherwise the caller's thread does all of it, in a fixed order. Default: true.
    pub parallel: bool,
    /// Most bytes that one batch may hold once decompressed. Default: 2147483647.
    pub decompressed_limit: usize,
}

impl Default for CleanerOptions {
    fn default() -> Self {
        CleanerOptions {
            map_bytes: 128 << 20,
            load_factor: 0.9,
            io_buffer_bytes: 256 << 10,
            null_key: NullKey::Keep,
            verify_keys: false,
            parallel: true,
            decompressed_limit: i32::MAX as usize,
        }
    }
}

impl CleanerOptions {
    /// How many keys a round takes up.
    pub fn usable_slots(&self) -> usize {
        ((self.map_bytes / SLOT_BYTES) as f64 * self.load_factor) as usize
    }

    /// Refuses what cannot work.
    ///
    /// # Errors
    /// [`Error::Config`] for the first setting that is out of its range.
    pub fn validate(&self) -> Result<()> {
        let wrong = |name, expected: String, found: String| Err(Error::Config { name, expected, found });
        if !(self.load_factor > 0.0 && self.load_factor < 1.0) {
            let found = self.load_factor.to_string();
            return wrong("load_factor", "a number above 0 and below 1".to_owned(), found);
        }
        if self.usable_slots() < 1 {
            let expected = format!("room for one key of {SLOT_BYTES} bytes under the load factor");
            return wrong("map_bytes", expected, self.map_bytes.to_string());
        }
        if self.io_buffer_bytes < 512 {
            return wrong("io_buffer_bytes", "at least 512".to_owned(), self.io_buffer_bytes.to_string());
        }
        Ok(())
    }
}
