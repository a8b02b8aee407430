//! The transaction index of a segment: its aborted transactions, in the order of their markers.
//!
//! A plain file of entries ([`AbortedTransaction`]) beside the `.log` file, made at the first aborted transaction. It lives
//! with the segment that holds the marker. A part of an entry at the end is passed over, and written over.
//!
//! Source: Kafka `TransactionIndex`.

use std::path::PathBuf;

use bytes::Bytes;
use kseg_format::{AbortedTransaction, Offset};
use kseg_io_backends::{Op, OpenHow, RawFile, write_all};

use crate::error::{Error, Result};
use crate::files::{FileKind, Suffix, file_name};
use crate::segment::Segment;
use crate::sync::Ordering;

/// A file of more entries than a segment can hold markers is none of ours.
const FILE_LEN_MAX: u64 = i32::MAX as u64;

/// The offset behind its marker.
fn end_of(transaction: &AbortedTransaction) -> u64 {
    u64::try_from(transaction.last_offset.get().saturating_add(1)).unwrap_or(0)
}

impl Segment {
    /// Adds an aborted transaction, whose marker is in this segment, behind those that ended before. Readable on return.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] unless it ends behind the one added last; [`Error::Io`]. As in Kafka the first one after the
    /// segment was opened is not compared.
    pub fn append_aborted(&self, transaction: &AbortedTransaction) -> Result<()> {
        let (end, next) = (self.aborted_end.load(Ordering::Relaxed), end_of(transaction));
        if next <= end {
            let (path, last) = (self.txn_path(), transaction.last_offset);
            let what =
                format!("{}: expected an abort at offset {end} or above, found {last}", path.display());
            return Err(Error::InvalidArgument { what });
        }
        let file = self.backend.open(&self.txn_path(), OpenHow::Create)?;
        // Behind the last whole entry.
        let at = file.len()? / AbortedTransaction::LEN as u64 * AbortedTransaction::LEN as u64;
        write_all(&*file, at, Bytes::copy_from_slice(&transaction.encode()).into())?;
        self.aborted_end.store(next, Ordering::Relaxed);
        Ok(())
    }

    /// The segment's aborted transactions, by ascending offset of their markers.
    ///
    /// # Errors
    /// [`Error::Aborted`] for an entry of a later version; [`Error::Io`].
    pub fn aborted(&self) -> Result<Vec<AbortedTransaction>> {
        self.decode_aborted(&self.aborted_bytes()?)
    }

    /// What the transaction index holds; nothing where it is missing, since most segments have none.
    fn aborted_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.backend.names().read(&self.txn_path(), FILE_LEN_MAX)?.unwrap_or_default())
    }

    fn decode_aborted(&self, bytes: &[u8]) -> Result<Vec<AbortedTransaction>> {
        let entries = AbortedTransaction::decode_all(bytes);
        entries
            .map(|entry| entry.map_err(|source| Error::Aborted { path: self.txn_path(), source }))
            .collect()
    }

    /// Whether the transaction index can be of this segment, which ends before `end`: whole entries of a known version, by
    /// ascending markers within the segment, each behind its transaction's first offset, and stable up to no further than the
    /// marker and no less far than the entry before. One that is not is to be made anew from the markers.
    ///
    /// Reads the index and nothing else; a missing one is taken for one without entries, since most segments have none.
    ///
    /// # Errors
    /// [`Error::Io`].
    ///
    /// Source: Kafka `TransactionIndex.sanityCheck`, which looks for offsets below the base alone.
    pub fn aborted_are_sound(&self, end: Offset) -> Result<bool> {
        let bytes = self.aborted_bytes()?;
        let Ok(entries) = self.decode_aborted(&bytes) else { return Ok(false) };
        let (mut after, mut stable) = (None, Offset::ZERO);
        Ok(bytes.len() == entries.len() * AbortedTransaction::LEN
            && entries.iter().all(|entry| {
                let last = entry.last_offset;
                let fits = (self.base..end).contains(&last)
                    && (Offset::ZERO..=last).contains(&entry.first_offset)
                    && Some(last) > after
                    && (stable..=last.next()).contains(&entry.last_stable_offset);
                (after, stable) = (Some(last), entry.last_stable_offset);
                fits
            }))
    }

    /// Puts these aborted transactions, by ascending markers, in the place of those that the index holds. Atomic and durable:
    /// an index of which a part is missing could not be told from a whole one.
    ///
    /// # Errors
    /// [`Error::Io`]; the index is as it was, or the new one.
    pub fn replace_aborted(&self, transactions: &[AbortedTransaction]) -> Result<()> {
        let bytes: Vec<u8> = transactions.iter().flat_map(AbortedTransaction::encode).collect();
        self.backend.names().replace(&self.txn_path(), &bytes)?;
        self.aborted_end.store(transactions.last().map_or(0, end_of), Ordering::Relaxed);
        Ok(())
    }

    /// Drops the transactions whose marker lies at or above `offset`.
    pub(crate) fn truncate_aborted(&self, offset: Offset) -> Result<()> {
        if let Some(file) = self.txn_file()? {
            let all = self.aborted()?;
            let keep = all.iter().take_while(|t| t.last_offset < offset).count();
            file.submit(Op::SetLen { len: (keep * AbortedTransaction::LEN) as u64 }).wait().result?;
            self.aborted_end.store(all[..keep].last().map_or(0, end_of), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Drops all transactions.
    pub(crate) fn reset_aborted(&self) -> Result<()> {
        if let Some(file) = self.txn_file()? {
            file.submit(Op::SetLen { len: 0 }).wait().result?;
        }
        self.aborted_end.store(0, Ordering::Relaxed);
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
