//! The control records of the metadata log: elections, snapshots, the quorum's version and voters.
//!
//! A value is the message's body at schema version 0 and begins with a version field that does not choose the schema.
//! Lists and strings have their length plus one in front, and every struct ends in a count of tagged fields, of which
//! none is known; those of others are passed over.
//!
//! ```
//! use bytes::BytesMut;
//! use kseg_format::kraft::Message;
//! use kseg_format::{Batch, ControlKey, LeaderEpoch, Offset, Timestamp};
//!
//! let message = Message::KraftVersion { version: 0, kraft_version: 1 };
//! let mut bytes = BytesMut::new();
//! message.encode_batch(Offset::new(7), Timestamp::new(1_000), Some(LeaderEpoch::new(3)), &mut bytes)?;
//!
//! let mut scratch = Vec::new();
//! let record = Batch::parse(&bytes)?.verify()?.records(&mut scratch, 1 << 10)?.next().unwrap()?;
//! let kind = ControlKey::parse(record.key().unwrap_or_default())?.kind;
//! assert_eq!(Message::parse(kind, record.value().unwrap_or_default())?, message);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: Kafka `ControlRecordUtils`, `LeaderChangeMessage.json`, `SnapshotHeaderRecord.json`,
//! `SnapshotFooterRecord.json`, `KRaftVersionRecord.json`, `VotersRecord.json`.

mod wire;

use bytes::BytesMut;

use crate::batch::builder::{BatchOptions, RecordBatchBuilder};
use crate::control::{ControlType, finish_some};
use crate::error::{DecodeError, EncodeError, Expected, Found, Place};
use crate::number::{LeaderEpoch, Offset, Timestamp};
use crate::small_files::Uuid;
use wire::{Reader, Writer};

/// The value of a control record of the metadata log.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Message {
    /// A leader was elected.
    LeaderChange(LeaderChange),
    /// A snapshot begins.
    SnapshotHeader {
        /// The message's version field.
        version: i16,
        /// The append time of the last record that the snapshot stands for.
        last_contained_log_timestamp: Timestamp,
    },
    /// A snapshot ends.
    SnapshotFooter {
        /// The message's version field.
        version: i16,
    },
    /// The version of the quorum's protocol.
    KraftVersion {
        /// The message's version field.
        version: i16,
        /// The version.
        kraft_version: i16,
    },
    /// The voters.
    Voters(Voters),
}

/// A leader was elected.
#[allow(clippy::exhaustive_structs, reason = "schema version 0 has these fields")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaderChange {
    /// The message's version field.
    pub version: i16,
    /// The leader.
    pub leader_id: i32,
    /// The ids of all voters.
    pub voters: Vec<i32>,
    /// The ids of those who voted for it.
    pub granting_voters: Vec<i32>,
}

/// The voters of the quorum.
#[allow(clippy::exhaustive_structs, reason = "schema version 0 has these fields")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Voters {
    /// The message's version field.
    pub version: i16,
    /// The voters.
    pub voters: Vec<Voter>,
}

/// A voter of the quorum.
#[allow(clippy::exhaustive_structs, reason = "schema version 0 has these fields")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Voter {
    /// Its id.
    pub id: i32,
    /// The id of its metadata directory.
    pub directory_id: Uuid,
    /// Where it listens.
    pub endpoints: Vec<Endpoint>,
    /// The lowest quorum version that it can do.
    pub min_version: i16,
    /// The highest quorum version that it can do.
    pub max_version: i16,
}

/// Where a voter listens.
#[allow(clippy::exhaustive_structs, reason = "schema version 0 has these fields")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The listener's name.
    pub name: String,
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Message {
    /// The type in the record's key.
    pub fn kind(&self) -> ControlType {
        match self {
            Message::LeaderChange(_) => ControlType::LeaderChange,
            Message::SnapshotHeader { .. } => ControlType::SnapshotHeader,
            Message::SnapshotFooter { .. } => ControlType::SnapshotFooter,
            Message::KraftVersion { .. } => ControlType::KraftVersion,
            Message::Voters(_) => ControlType::KraftVoters,
        }
    }

    /// Reads the value of a control record of this type. Bytes behind the message are left alone.
    ///
    /// # Errors
    /// [`DecodeError::IllegalArgument`] for a transaction marker's type or an unknown one;
    /// [`DecodeError::InvalidRecord`] where the value is not such a message.
    pub fn parse(kind: ControlType, value: &[u8]) -> Result<Message, DecodeError> {
        let mut reader = Reader::new(value);
        match kind {
            ControlType::Abort | ControlType::Commit | ControlType::Unknown(_) => Err(DecodeError::illegal(
                "control type",
                Place::Control(2),
                Expected::Between(2, 6),
                Found::Value(i64::from(kind.get())),
            )),
            ControlType::LeaderChange => reader.leader_change().map(Message::LeaderChange),
            ControlType::SnapshotHeader => {
                let version = reader.i16("version")?;
                let last_contained_log_timestamp =
                    Timestamp::new(reader.i64("last contained log timestamp")?);
                reader.tagged_fields()?;
                Ok(Message::SnapshotHeader { version, last_contained_log_timestamp })
            }
            ControlType::SnapshotFooter => {
                let version = reader.i16("version")?;
                reader.tagged_fields()?;
                Ok(Message::SnapshotFooter { version })
            }
            ControlType::KraftVersion => {
                let (version, kraft_version) = (reader.i16("version")?, reader.i16("kraft version")?);
                reader.tagged_fields()?;
                Ok(Message::KraftVersion { version, kraft_version })
            }
            ControlType::KraftVoters => reader.voters().map(Message::Voters),
        }
    }

    /// The bytes of the record's value.
    pub fn encode_value(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Message::LeaderChange(message) => writer.leader_change(message),
            Message::SnapshotHeader { version, last_contained_log_timestamp } => {
                writer.i16(*version);
                writer.i64(last_contained_log_timestamp.get());
                writer.tagged_fields();
            }
            Message::SnapshotFooter { version } => {
                writer.i16(*version);
                writer.tagged_fields();
            }
            Message::KraftVersion { version, kraft_version } => {
                writer.i16(*version);
                writer.i16(*kraft_version);
                writer.tagged_fields();
            }
            Message::Voters(message) => writer.voters(message),
        }
        writer.bytes
    }

    /// Appends a control batch of this one message to `out` and returns its size.
    ///
    /// # Errors
    /// [`EncodeError::Contradiction`] for a leader change without a leader epoch, [`EncodeError::NegativeTimestamp`].
    ///
    /// Source: Kafka `MemoryRecords.withLeaderChangeMessage` and its siblings.
    pub fn encode_batch(
        &self,
        offset: Offset,
        timestamp: Timestamp,
        leader_epoch: Option<LeaderEpoch>,
        out: &mut BytesMut,
    ) -> Result<usize, EncodeError> {
        let mut builder = RecordBatchBuilder::new(BatchOptions {
            base_offset: offset,
            leader_epoch,
            control: true,
            ..BatchOptions::default()
        });
        builder.append_control(Some(timestamp), self.kind(), &self.encode_value())?;
        finish_some(&mut builder, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(message: &Message, bytes: &[u8]) {
        assert_eq!(message.encode_value(), bytes);
        assert_eq!(Message::parse(message.kind(), bytes).as_ref(), Ok(message));
        for cut in 0..bytes.len() {
            let error = Message::parse(message.kind(), &bytes[..cut]).unwrap_err();
            assert_eq!(error.kafka_name(), "InvalidRecordException");
        }
    }

    #[test]
    fn the_five_messages_have_the_bytes_that_kafka_writes() {
        round_trip(
            &Message::LeaderChange(LeaderChange {
                version: 0,
                leader_id: 1,
                voters: vec![1, 2],
                granting_voters: vec![1],
            }),
            &[0, 0, 0, 0, 0, 1, 3, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0, 1, 0, 0],
        );
        round_trip(
            &Message::SnapshotHeader {
                version: 0,
                last_contained_log_timestamp: Timestamp::new(1_700_000_000_000),
            },
            &[0, 0, 0, 0, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0, 0],
        );
        round_trip(&Message::SnapshotFooter { version: 0 }, &[0, 0, 0]);
        round_trip(&Message::KraftVersion { version: 0, kraft_version: 1 }, &[0, 0, 0, 1, 0]);
        let directory_id = Uuid::from_bytes(1u128.to_be_bytes());
        let endpoint = Endpoint { name: "C".to_owned(), host: "h".to_owned(), port: 9093 };
        let mut bytes = vec![0, 0, 2, 0, 0, 0, 1];
        bytes.extend(directory_id.to_bytes());
        bytes.extend([2, 2, 0x43, 2, 0x68, 0x23, 0x85, 0, 0, 0, 0, 1, 0, 0, 0]);
        round_trip(
            &Message::Voters(Voters {
                version: 0,
                voters: vec![Voter {
                    id: 1,
                    directory_id,
                    endpoints: vec![endpoint],
                    min_version: 0,
                    max_version: 1,
                }],
            }),
            &bytes,
        );
    }

    #[test]
    fn unknown_tagged_fields_are_passed_over_and_forged_lengths_are_errors() {
        // One tagged field, number 5, of two bytes.
        let parsed = Message::parse(ControlType::SnapshotFooter, &[0, 0, 1, 5, 2, 0xaa, 0xbb]);
        assert_eq!(parsed, Ok(Message::SnapshotFooter { version: 0 }));
        let forged = [0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1];
        assert!(Message::parse(ControlType::LeaderChange, &forged).is_err());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let refused =
            |bytes: &[u8]| Message::parse(ControlType::LeaderChange, bytes).unwrap_err().to_string();
        // Two voters in two bytes, and three.
        let words = "voter id at byte 7 of the control record: expected 4 bytes, found 2 bytes";
        assert_eq!(refused(&[0, 0, 0, 0, 0, 1, 3, 0, 0]), words);
        let words = "voters at byte 7 of the control record: expected 1 to 3, found 4";
        assert_eq!(refused(&[0, 0, 0, 0, 0, 1, 4, 0, 0]), words);
    }

    #[test]
    fn format_edge_183_a_voters_record_is_not_read_from_a_commit_marker() {
        let error = Message::parse(ControlType::Commit, &[]).unwrap_err();
        assert_eq!(error.kafka_name(), "IllegalArgumentException");
    }
}
