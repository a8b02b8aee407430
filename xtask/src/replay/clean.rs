//! One round of the cleaner, and nothing around it.

use kseg_cleaner::{Cleaner, CleanerOptions, Dirty, Error, NullKey, Unhindered};
use kseg_format::{Offset, Timestamp};
use kseg_log::Log;
use serde_json::json;

use super::protocol::{Answer, Failure, Fields};

/// Cleans the log as the line says, with Kafka's rule for records without a key.
pub(crate) fn round(log: &Log, op: Fields<'_>) -> Answer {
    let (sealed, active) = log.sealed_segments()?;
    drop(sealed);
    let mut options = CleanerOptions::default();
    options.map_bytes = usize::try_from(op.long_or("mapBytes", 4 << 20)).unwrap_or(0);
    options.io_buffer_bytes = usize::try_from(op.long_or("ioBuffer", 1 << 20)).unwrap_or(0).max(512);
    options.load_factor = op.float_or("loadFactor", options.load_factor);
    options.null_key = NullKey::Discard;
    let dirty = Dirty {
        first: Offset::new(op.long_or("dirty", log.log_start_offset().get())),
        first_uncleanable: Offset::new(op.long_or("uncleanable", active.get())),
        now: Timestamp::new(log.now_ms()),
    };
    let round = Cleaner::new(options)?.clean(log, dirty, &Unhindered)?;
    let stats = round.stats;
    Ok(json!({
        "nextDirty": round.end.map_or(0, Offset::get),
        "bytesRead": stats.bytes_read, "bytesWritten": stats.bytes_written,
        "messagesRead": stats.records_read, "messagesWritten": stats.records_written,
        "mapMessagesRead": stats.map_records_read,
    }))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(error.kafka_name(), error.to_string())
    }
}
