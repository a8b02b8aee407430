//! Records taken over from another batch.

use super::RecordBatchBuilder;
use crate::error::EncodeError;
use crate::number::Offset;
use crate::record::{OwnedRecord, Record};

impl RecordBatchBuilder {
    /// Appends a record as it is in another batch, but at `offset`; its attributes byte becomes 0.
    ///
    /// # Errors
    /// Those of [`append_at`](RecordBatchBuilder::append_at).
    pub fn append_record(&mut self, offset: Offset, record: &Record<'_>) -> Result<(), EncodeError> {
        let headers = record.headers().map(|header| (header.key, header.value));
        let headers = (record.header_count(), headers);
        self.append_parts(offset, record.timestamp(), record.key(), record.value(), headers)
    }

    /// Appends a record at its offset. The sequence follows from the batch's and is not looked at.
    ///
    /// # Errors
    /// Those of [`append_at`](RecordBatchBuilder::append_at).
    pub fn append_owned(&mut self, record: &OwnedRecord) -> Result<(), EncodeError> {
        let OwnedRecord { offset, timestamp, key, value, headers, .. } = record;
        let parts = headers.iter().map(|header| (&header.key[..], header.value.as_deref()));
        let headers = (headers.len(), parts);
        self.append_parts(*offset, *timestamp, key.as_deref(), value.as_deref(), headers)
    }
}
