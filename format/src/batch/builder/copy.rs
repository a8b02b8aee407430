//! Records taken over from another batch.

use super::RecordBatchBuilder;
use crate::error::{DecodeError, EncodeError};
use crate::number::Offset;
use crate::record::Record;

impl RecordBatchBuilder {
    /// Appends a record as it is in another batch, but at `offset`; its attributes byte becomes 0.
    ///
    /// # Errors
    /// Those of [`append_at`](RecordBatchBuilder::append_at).
    pub fn append_record(&mut self, offset: Offset, record: &Record<'_>) -> Result<(), EncodeError> {
        if record.header_count() == 0 {
            return self.append_at(offset, record.timestamp(), record.key(), record.value(), &[]);
        }
        let headers = record
            .headers()
            .map(|header| header.map(|header| (header.key, header.value)))
            .collect::<Result<Vec<_>, DecodeError>>()?;
        self.append_at(offset, record.timestamp(), record.key(), record.value(), &headers)
    }
}
