//! Whether the key at an offset is the one that its hash says: a look into the log.

use kseg_format::{Batches, Offset};
use kseg_log::{Isolation, Log};

use crate::error::Result;

/// A look at keys by offset; keeps the batch that it looked at last.
#[derive(Debug)]
pub(crate) struct KeyCheck<'l> {
    log: &'l Log,
    bytes: Vec<u8>,
    scratch: Vec<u8>,
}

impl<'l> KeyCheck<'l> {
    pub(crate) fn new(log: &'l Log) -> Self {
        KeyCheck { log, bytes: Vec::new(), scratch: Vec::new() }
    }

    /// Whether the record at `offset` has this key. `false` where there is no such record.
    pub(crate) fn is(&mut self, key: &[u8], offset: Offset) -> Result<bool> {
        let holds = |bytes: &[u8]| {
            let Some(Ok(batch)) = Batches::new(bytes).next() else { return false };
            batch.base_offset().is_some_and(|base| base <= offset) && offset <= batch.last_offset()
        };
        if !holds(&self.bytes) {
            // The log start may have moved: what lies below is superseded by nothing that can be read.
            if offset < self.log.log_start_offset() {
                return Ok(false);
            }
            let fetch = self.log.read(offset, 1, Isolation::LogEnd, true)?;
            self.bytes.clear();
            if let Some(region) = fetch.region {
                region.copy_into(&mut self.bytes)?;
            }
        }
        let Some(Ok(batch)) = Batches::new(&self.bytes).next() else { return Ok(false) };
        let Ok(records) = batch.records(&mut self.scratch, i32::MAX as usize) else { return Ok(false) };
        for record in records.flatten() {
            if record.offset() == offset {
                return Ok(record.key() == Some(key));
            }
        }
        Ok(false)
    }
}
