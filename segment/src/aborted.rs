//! The transaction index of a segment: its aborted transactions, in the order of their markers.
//!
//! A plain file of 34-byte entries beside the `.log` file, made at the first aborted transaction: i16 version 0, i64 producer
//! id, i64 first offset, i64 offset of the abort marker, i64 last stable offset at the time. It lives with the segment that
//! holds the marker. A part of an entry at the end is passed over.
//!
//! Source: Kafka `TransactionIndex`, `AbortedTxn`.

use std::path::PathBuf;

use bytes::Bytes;
use kseg_format::{Offset, ProducerId};
use kseg_io_backends::{Op, OpenHow, RawFile, write_all};

use crate::error::{Error, Result};
use crate::files::{FileKind, Suffix, file_name};
use crate::segment::Segment;

/// Bytes of an entry.
const ENTRY_LEN: usize = 34;
/// A file of more entries than a segment can hold markers is none of ours.
const FILE_LEN_MAX: u64 = i32::MAX as u64;

/// An aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AbortedTransaction {
    /// Its producer.
    pub producer_id: ProducerId,
    /// Its first offset.
    pub first_offset: Offset,
    /// Offset of its abort marker.
    pub last_offset: Offset,
    /// The last stable offset when it was aborted.
    pub last_stable_offset: Offset,
}

impl AbortedTransaction {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 2];
        bytes.extend_from_slice(&self.producer_id.get().to_be_bytes());
        for offset in [self.first_offset, self.last_offset, self.last_stable_offset] {
            bytes.extend_from_slice(&offset.get().to_be_bytes());
        }
        bytes
    }

    /// The version and the entry.
    fn decode(bytes: &[u8; ENTRY_LEN]) -> (i16, AbortedTransaction) {
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            i64::from_be_bytes(field)
        };
        let entry = AbortedTransaction {
            producer_id: ProducerId::new(number(2)),
            first_offset: Offset::new(number(10)),
            last_offset: Offset::new(number(18)),
            last_stable_offset: Offset::new(number(26)),
        };
        (i16::from_be_bytes([bytes[0], bytes[1]]), entry)
    }
}

impl Segment {
    /// Adds an aborted transaction, whose marker is in this segment. Readable on return.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn append_aborted(&self, transaction: &AbortedTransaction) -> Result<()> {
        let file = self.backend.open(&self.txn_path(), OpenHow::Create)?;
        // Behind the last whole entry.
        let at = file.len()? / ENTRY_LEN as u64 * ENTRY_LEN as u64;
        write_all(&*file, at, Bytes::from(transaction.encode()).into())?;
        Ok(())
    }

    /// The segment's aborted transactions, by ascending offset of their markers.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an entry of a later version; [`Error::Io`].
    pub fn aborted(&self) -> Result<Vec<AbortedTransaction>> {
        let path = self.txn_path();
        let Some(bytes) = self.backend.names().read(&path, FILE_LEN_MAX)? else { return Ok(Vec::new()) };
        let (entries, _) = bytes.as_chunks::<ENTRY_LEN>();
        let entries = entries.iter().enumerate().map(|(n, bytes)| match AbortedTransaction::decode(bytes) {
            (0, entry) => Ok(entry),
            (version, _) => {
                let at = n * ENTRY_LEN;
                let what =
                    format!("{}: at position {at}: expected version 0, found {version}", path.display());
                Err(Error::InvalidArgument { what })
            }
        });
        entries.collect()
    }

    /// Drops the transactions whose marker lies at or above `offset`.
    pub(crate) fn truncate_aborted(&self, offset: Offset) -> Result<()> {
        if let Some(file) = self.txn_file()? {
            let keep = self.aborted()?.iter().take_while(|t| t.last_offset < offset).count();
            file.submit(Op::SetLen { len: (keep * ENTRY_LEN) as u64 }).wait().result?;
        }
        Ok(())
    }

    /// Drops all transactions.
    pub(crate) fn reset_aborted(&self) -> Result<()> {
        if let Some(file) = self.txn_file()? {
            file.submit(Op::SetLen { len: 0 }).wait().result?;
        }
        Ok(())
    }

    pub(crate) fn flush_aborted(&self) -> Result<()> {
        if self.backend.names().stat(&self.txn_path())?.is_some() {
            self.backend.names().sync_file(&self.txn_path())?;
        }
        Ok(())
    }

    fn txn_file(&self) -> Result<Option<std::sync::Arc<dyn RawFile>>> {
        match self.backend.names().stat(&self.txn_path())? {
            Some(_) => Ok(Some(self.backend.open(&self.txn_path(), OpenHow::Write)?)),
            None => Ok(None),
        }
    }

    /// The file, under the suffix that the segment has now.
    pub(crate) fn txn_path(&self) -> PathBuf {
        let log = self.path();
        let suffix = log.extension().and_then(|e| e.to_str()).and_then(|ending| {
            [Suffix::Deleted, Suffix::Cleaned, Suffix::Swap].into_iter().find(|s| s.as_str()[1..] == *ending)
        });
        log.with_file_name(file_name(self.base, FileKind::TxnIndex, suffix.unwrap_or(Suffix::None)))
    }
}
