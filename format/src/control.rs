//! Control records: what a transaction's end leaves in the log, and what the key of any control record says.
//!
//! The records of a control batch are ordinary ones whose key is a version and a type. No consumer sees them. Of a
//! transaction marker batch only the first record counts. The records of the metadata log are in
//! [`kraft`](crate::kraft).

use std::fmt;

use bytes::BytesMut;

use crate::batch::builder::{BatchOptions, Producer, RecordBatchBuilder};
use crate::error::{DecodeError, EncodeError, Expected, Found, Place};
use crate::number::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Timestamp};

/// What a control record is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ControlType {
    /// A transaction was aborted.
    Abort,
    /// A transaction was committed.
    Commit,
    /// A leader of the metadata quorum was elected.
    LeaderChange,
    /// A metadata snapshot begins.
    SnapshotHeader,
    /// A metadata snapshot ends.
    SnapshotFooter,
    /// The version of the quorum's protocol.
    KraftVersion,
    /// The voters of the quorum.
    KraftVoters,
    /// Something newer, which readers pass over and nobody can write.
    Unknown(i16),
}

impl ControlType {
    /// The number in the key.
    pub const fn get(self) -> i16 {
        match self {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
            ControlType::LeaderChange => 2,
            ControlType::SnapshotHeader => 3,
            ControlType::SnapshotFooter => 4,
            ControlType::KraftVersion => 5,
            ControlType::KraftVoters => 6,
            ControlType::Unknown(raw) => raw,
        }
    }

    /// The type of a number.
    pub const fn from_raw(raw: i16) -> ControlType {
        match raw {
            0 => ControlType::Abort,
            1 => ControlType::Commit,
            2 => ControlType::LeaderChange,
            3 => ControlType::SnapshotHeader,
            4 => ControlType::SnapshotFooter,
            5 => ControlType::KraftVersion,
            6 => ControlType::KraftVoters,
            raw => ControlType::Unknown(raw),
        }
    }

    /// Kafka's name for it, such as `LEADER_CHANGE`; `UNKNOWN` for all that is not listed.
    pub const fn name(self) -> &'static str {
        match self {
            ControlType::Abort => "ABORT",
            ControlType::Commit => "COMMIT",
            ControlType::LeaderChange => "LEADER_CHANGE",
            ControlType::SnapshotHeader => "SNAPSHOT_HEADER",
            ControlType::SnapshotFooter => "SNAPSHOT_FOOTER",
            ControlType::KraftVersion => "KRAFT_VERSION",
            ControlType::KraftVoters => "KRAFT_VOTERS",
            ControlType::Unknown(_) => "UNKNOWN",
        }
    }
}

impl fmt::Display for ControlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The key of a control record.
#[allow(clippy::exhaustive_structs, reason = "later versions are read as this one")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ControlKey {
    /// The key's version, 0 as written.
    pub version: i16,
    /// What the record is about.
    pub kind: ControlType,
}

impl ControlKey {
    const LEN: usize = 4;

    /// Reads a key. A later version is read as version 0, and bytes behind it are left alone.
    ///
    /// # Errors
    /// [`DecodeError::InvalidRecord`] for fewer than 4 bytes and for a negative version.
    ///
    /// Source: Kafka `ControlRecordType.parseTypeId`.
    pub fn parse(key: &[u8]) -> Result<ControlKey, DecodeError> {
        let Some(&[a, b, c, d]) = key.first_chunk::<{ ControlKey::LEN }>() else {
            let found = Found::Bytes(key.len() as u64);
            return Err(DecodeError::invalid("control key", Place::Control(0), Expected::Bytes(4), found));
        };
        let version = checked_version("control key version", i16::from_be_bytes([a, b]))?;
        Ok(ControlKey { version, kind: ControlType::from_raw(i16::from_be_bytes([c, d])) })
    }

    /// The key's bytes.
    ///
    /// # Errors
    /// [`EncodeError::Contradiction`] for an unknown type.
    pub fn encode(self) -> Result<[u8; 4], EncodeError> {
        if let ControlType::Unknown(_) = self.kind {
            return Err(EncodeError::Contradiction { what: "a control record of unknown type" });
        }
        let ([a, b], [c, d]) = (self.version.to_be_bytes(), self.kind.get().to_be_bytes());
        Ok([a, b, c, d])
    }
}

fn checked_version(field: &'static str, version: i16) -> Result<i16, DecodeError> {
    if version < 0 {
        let found = Found::Value(i64::from(version));
        return Err(DecodeError::invalid(field, Place::Control(0), Expected::AtLeast(0), found));
    }
    Ok(version)
}

/// The end of a transaction.
///
/// ```
/// use bytes::BytesMut;
/// use kseg_format::{Batch, EndTransactionMarker, Offset, ProducerEpoch, ProducerId, Timestamp};
///
/// let marker = EndTransactionMarker { committed: true, coordinator_epoch: 9 };
/// let producer = (ProducerId::new(1001), ProducerEpoch::new(2));
/// let mut bytes = BytesMut::new();
/// marker.encode_batch(Offset::new(103), Timestamp::new(1_000), None, producer, &mut bytes)?;
///
/// let batch = Batch::parse(&bytes)?.verify()?;
/// assert!(batch.is_control() && batch.is_transactional());
/// let mut scratch = Vec::new();
/// let record = batch.records(&mut scratch, 1 << 10)?.next().unwrap()?;
/// assert_eq!(EndTransactionMarker::parse(record.key(), record.value())?, marker);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[allow(clippy::exhaustive_structs, reason = "later versions are read as this one")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EndTransactionMarker {
    /// Whether it was committed; aborted otherwise.
    pub committed: bool,
    /// The epoch of the transaction coordinator that wrote it.
    pub coordinator_epoch: i32,
}

impl EndTransactionMarker {
    const LEN: usize = 6;

    /// Reads a marker from a record's key and value. A later version is read as version 0, and bytes behind it are
    /// left alone.
    ///
    /// # Errors
    /// Those of [`ControlKey::parse`]; [`DecodeError::IllegalArgument`] for another type than commit or abort,
    /// whatever the value; [`DecodeError::InvalidRecord`] for a null key, a null value or one of fewer than 6 bytes (in
    /// Kafka accidents of the JVM), and for a negative version.
    ///
    /// Source: Kafka `EndTransactionMarker.deserialize`.
    pub fn parse(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<EndTransactionMarker, DecodeError> {
        let kind = ControlKey::parse(key.unwrap_or_default())?.kind;
        let committed = match kind {
            ControlType::Commit => true,
            ControlType::Abort => false,
            other => {
                return Err(DecodeError::illegal(
                    "control type",
                    Place::Control(2),
                    Expected::Words("0 (ABORT) or 1 (COMMIT)"),
                    Found::Value(i64::from(other.get())),
                ));
            }
        };
        let value = value.unwrap_or_default();
        let Some(&[a, b, c, d, e, f]) = value.first_chunk::<{ EndTransactionMarker::LEN }>() else {
            let found = Found::Bytes(value.len() as u64);
            let expected = Expected::Bytes(EndTransactionMarker::LEN as u64);
            return Err(DecodeError::invalid("marker value", Place::Control(0), expected, found));
        };
        checked_version("marker version", i16::from_be_bytes([a, b]))?;
        Ok(EndTransactionMarker { committed, coordinator_epoch: i32::from_be_bytes([c, d, e, f]) })
    }

    /// The type in the key.
    pub fn kind(&self) -> ControlType {
        if self.committed { ControlType::Commit } else { ControlType::Abort }
    }

    /// The value's bytes.
    pub fn encode_value(&self) -> [u8; 6] {
        let [a, b, c, d] = self.coordinator_epoch.to_be_bytes();
        [0, 0, a, b, c, d]
    }

    /// Appends a marker's batch, 78 bytes, to `out` and returns its size.
    ///
    /// # Errors
    /// [`EncodeError::Contradiction`] for a producer id or epoch of -1, [`EncodeError::NegativeTimestamp`].
    ///
    /// Source: Kafka `MemoryRecords.withEndTransactionMarker`.
    pub fn encode_batch(
        &self,
        offset: Offset,
        timestamp: Timestamp,
        leader_epoch: Option<LeaderEpoch>,
        (id, epoch): (ProducerId, ProducerEpoch),
        out: &mut BytesMut,
    ) -> Result<usize, EncodeError> {
        let mut builder = RecordBatchBuilder::new(BatchOptions {
            base_offset: offset,
            leader_epoch,
            producer: Some(Producer { id, epoch, base_sequence: None }),
            transactional: true,
            control: true,
            ..BatchOptions::default()
        });
        builder.append_marker(Some(timestamp), self)?;
        finish_some(&mut builder, out)
    }
}

impl RecordBatchBuilder {
    /// Appends the marker of a transaction's end.
    ///
    /// # Errors
    /// [`EncodeError::Contradiction`] unless the batch is a transactional control batch of a producer; else those of
    /// [`append_at`](RecordBatchBuilder::append_at).
    ///
    /// Source: Kafka `MemoryRecordsBuilder.appendEndTxnMarker`.
    pub fn append_marker(
        &mut self,
        timestamp: Option<Timestamp>,
        marker: &EndTransactionMarker,
    ) -> Result<Offset, EncodeError> {
        let options = self.options();
        if !options.transactional || options.producer.is_none_or(|producer| producer.id.get() == -1) {
            return Err(EncodeError::Contradiction {
                what: "a transaction marker in a batch that is not a producer's transactional one",
            });
        }
        self.append_control(timestamp, marker.kind(), &marker.encode_value())
    }

    /// Appends a control record.
    ///
    /// # Errors
    /// [`EncodeError::Contradiction`] unless the batch is a control batch, for an unknown type, and for a leader change
    /// in a batch without a leader epoch; else those of [`append_at`](RecordBatchBuilder::append_at).
    pub fn append_control(
        &mut self,
        timestamp: Option<Timestamp>,
        kind: ControlType,
        value: &[u8],
    ) -> Result<Offset, EncodeError> {
        if !self.options().control {
            return Err(EncodeError::Contradiction { what: "a control record in a batch of data" });
        }
        if kind == ControlType::LeaderChange && self.options().leader_epoch.is_none() {
            return Err(EncodeError::Contradiction {
                what: "a leader change in a batch without a leader epoch",
            });
        }
        let key = ControlKey { version: 0, kind }.encode()?;
        self.append(timestamp, Some(&key), Some(value), &[])
    }
}

/// Finishes a batch that has a record.
pub(crate) fn finish_some(
    builder: &mut RecordBatchBuilder,
    out: &mut BytesMut,
) -> Result<usize, EncodeError> {
    Ok(builder.finish(out)?.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_edge_36_control_keys() {
        assert_eq!(ControlKey::parse(&[0, 0, 0]).unwrap_err().kafka_name(), "InvalidRecordException");
        let later = ControlKey::parse(&[0, 5, 0, 1, 9, 9]).unwrap();
        assert_eq!((later.version, later.kind), (5, ControlType::Commit));
        let unknown = ControlKey::parse(&[0, 0, 1, 0x51]).unwrap();
        assert_eq!(unknown.kind, ControlType::Unknown(337));
        assert_eq!(unknown.kind.name(), "UNKNOWN");
        assert_eq!(unknown.encode().unwrap_err().kafka_name(), "IllegalArgumentException");
        assert!(ControlKey::parse(&[0xff, 0xff, 0, 0]).is_err());
    }

    #[test]
    fn format_edge_37_marker_values() {
        let commit = &[0, 0, 0, 1][..];
        let marker = EndTransactionMarker::parse(Some(commit), Some(&[0, 5, 0, 0, 0, 9, 1, 2])).unwrap();
        assert_eq!(marker, EndTransactionMarker { committed: true, coordinator_epoch: 9 });
        let refused =
            |value: Option<&[u8]>| EndTransactionMarker::parse(Some(commit), value).unwrap_err().kafka_name();
        assert_eq!(refused(Some(&[0xff, 0xff, 0, 0, 0, 9])), "InvalidRecordException");
        for len in 0..6 {
            assert_eq!(refused(Some(&[0; 6][..len])), "InvalidRecordException");
        }
        assert_eq!(refused(None), "InvalidRecordException");
    }

    #[test]
    fn format_edge_38_a_marker_of_unknown_type_is_illegal_even_without_a_value() {
        let error = EndTransactionMarker::parse(Some(&[0, 0, 0, 7]), Some(&[])).unwrap_err();
        assert_eq!(error.kafka_name(), "IllegalArgumentException");
    }
}
