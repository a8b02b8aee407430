//! How large the batch will be, and whether one more record fits.

use super::{RecordBatchBuilder, body_size};
use crate::batch::header::BATCH_OVERHEAD;
use crate::codec::Codec;
use crate::number::{Offset, Timestamp};
use crate::varint;

/// What an estimate of the compressed size is multiplied by, to be rather too high than too low.
///
/// Source: Kafka `MemoryRecordsBuilder.COMPRESSION_RATE_ESTIMATION_FACTOR`.
const CAUTION: f32 = 1.05;

impl RecordBatchBuilder {
    /// The size that the batch will have if its records shrink to `ratio` of their size; without a codec exactly its size,
    /// whatever the ratio.
    ///
    /// Source: Kafka `MemoryRecordsBuilder.estimatedSizeInBytes`.
    pub fn estimated_size(&self, ratio: f32) -> usize {
        let records = self.uncompressed_size() - BATCH_OVERHEAD;
        match self.options().codec {
            Codec::None => BATCH_OVERHEAD + records,
            _ => BATCH_OVERHEAD + (records as f32 * ratio * CAUTION) as usize,
        }
    }

    /// Whether the batch with one more record, at the next offset, would keep to `limit` bytes. The first record always fits.
    ///
    /// `ratio` is the part of their size that compressed records are expected to have; the new one is counted whole. Nothing
    /// is enforced by it: [`append`](RecordBatchBuilder::append) takes records beyond any such limit.
    ///
    /// Source: Kafka `MemoryRecordsBuilder.hasRoomFor`.
    pub fn has_room_for(
        &self,
        limit: usize,
        ratio: f32,
        timestamp: Option<Timestamp>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> bool {
        let Some(last) = self.last_offset() else { return true };
        let size = self.size_of(last, timestamp, key, value, headers);
        self.estimated_size(ratio).saturating_add(size) <= limit
    }

    /// The bytes of a record behind the last one.
    fn size_of(
        &self,
        last: Offset,
        timestamp: Option<Timestamp>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> usize {
        let timestamp_delta = Timestamp::to_raw(timestamp).wrapping_sub(self.base_timestamp);
        let offset_delta = last.get().wrapping_add(1).wrapping_sub(self.base_offset);
        let body =
            body_size(timestamp_delta, offset_delta, key, value, (headers.len(), headers.iter().copied()));
        varint::size(body as i64) + body
    }
}
