//! What a segment needs to know of a topic's configuration.

/// Largest size of a `.log` file in bytes: positions are 32-bit and signed (`FileRecords`).
pub const MAX_SEGMENT_SIZE: u64 = i32::MAX as u64;

/// Settings of one segment, taken over when it is opened.
///
/// Source: Kafka's topic keys, named beside each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// `index.interval.bytes`: an index entry falls due after more than this many bytes of batches. Default: 4096.
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`: size in bytes to which an index file is preallocated, rounded down to whole entries.
    /// Default: 10485760.
    pub index_size_max: u32,
    /// Size in bytes to which a new `.log` file is preallocated; `None` for none (`preallocate` = false).
    pub preallocate: Option<u64>,
    /// Milliseconds taken off `segment.ms` in this segment's roll check (`segment.jitter.ms`, drawn by the log).
    /// Default: 0.
    pub roll_jitter_ms: i64,
    /// Most bytes that one batch may hold once decompressed, for lookups by timestamp and of compressed legacy
    /// batches. Default: 2147483647, the largest batch there is.
    pub decompressed_limit: usize,
}

impl Default for SegmentConfig {
    fn default() -> Self {
        SegmentConfig {
            index_interval_bytes: 4096,
            index_size_max: 10_485_760,
            preallocate: None,
            roll_jitter_ms: 0,
            decompressed_limit: i32::MAX as usize,
        }
    }
}
