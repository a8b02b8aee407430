//! What can be wrong with bytes read ([`DecodeError`]) and with a batch asked for ([`EncodeError`]).
//!
//! Every error names a field, its place, what was expected and what was found. `kafka_name` gives the simple name of
//! the exception that Kafka raises in the same situation; where Kafka's own answer is an accident (an index out of
//! bounds, memory exhausted by a forged count), it is `CorruptRecordException` or `InvalidRecordException`.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use crate::codec::{Codec, Magic};
use crate::number::{Offset, Timestamp};

/// Where in a batch something stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Place {
    /// This many bytes behind the first byte of the batch.
    Batch(usize),
    /// This many bytes behind the first byte of the compressed payload.
    Payload(usize),
    /// This many bytes behind the first byte of the decompressed records.
    Records(usize),
    /// This many bytes behind the first byte of a control record's key or value.
    Control(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Batch(at) => write!(f, "byte {at} of the batch"),
            Place::Payload(at) => write!(f, "byte {at} of the compressed payload"),
            Place::Records(at) => write!(f, "byte {at} of the decompressed records"),
            Place::Control(at) => write!(f, "byte {at} of the control record"),
        }
    }
}

/// What a field should have held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Expected {
    /// A number at least this large.
    AtLeast(i64),
    /// A number at most this large.
    AtMost(i64),
    /// A number from the first to the second, both included.
    Between(i64, i64),
    /// This number.
    Exactly(i64),
    /// This many bytes, all present.
    Bytes(u64),
    /// What the words say.
    Words(&'static str),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::AtLeast(value) => write!(f, "at least {value}"),
            Expected::AtMost(value) => write!(f, "at most {value}"),
            Expected::Between(low, high) => write!(f, "{low} to {high}"),
            Expected::Exactly(value) => write!(f, "{value}"),
            Expected::Bytes(count) => write!(f, "{count} bytes"),
            Expected::Words(words) => f.write_str(words),
        }
    }
}

/// What was found instead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Found {
    /// This number.
    Value(i64),
    /// Only this many bytes.
    Bytes(u64),
    /// A variable-length integer that goes on beyond its last allowed byte.
    Overlong,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Value(value) => write!(f, "{value}"),
            Found::Bytes(count) => write!(f, "{count} bytes"),
            Found::Overlong => f.write_str("a variable-length integer with too many bytes"),
        }
    }
}

/// Bytes that are no batch, or not a whole or unharmed one.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DecodeError {
    /// A field of the framing, of the header or of a legacy message is wrong. Kafka: `CorruptRecordException`.
    Corrupt {
        /// The field, in the words of the format.
        field: &'static str,
        /// Where it stands.
        place: Place,
        /// What it should have been.
        expected: Expected,
        /// What it is.
        found: Found,
    },
    /// A record, a record count or a control record is wrong. Kafka: `InvalidRecordException`.
    InvalidRecord {
        /// The field, in the words of the format.
        field: &'static str,
        /// Where it stands.
        place: Place,
        /// What it should have been.
        expected: Expected,
        /// What it is.
        found: Found,
    },
    /// A value that cannot be what the caller asks for. Kafka: `IllegalArgumentException`.
    IllegalArgument {
        /// The field, in the words of the format.
        field: &'static str,
        /// Where it stands.
        place: Place,
        /// What it should have been.
        expected: Expected,
        /// What it is.
        found: Found,
    },
    /// The checksum does not fit the bytes. Kafka: `CorruptRecordException`.
    Checksum {
        /// The version of the batch, hence which checksum: CRC-32C for 2, CRC-32 before.
        magic: Magic,
        /// The checksum in the batch.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
        /// The batch's base offset, as it stands there; of a compressed legacy wrapper its last offset.
        base_offset: Offset,
        /// The batch's last offset, as it stands there.
        last_offset: Offset,
    },
    /// The attributes name no codec. Kafka: `IllegalArgumentException`.
    UnknownCodec {
        /// The number in the attributes, 5 to 7.
        id: u8,
        /// Where the attributes stand.
        place: Place,
    },
    /// The payload is not what the codec writes. Kafka: `KafkaException`.
    Codec {
        /// The codec.
        codec: Codec,
        /// Where the codec gave up.
        place: Place,
        /// What is wrong: the field, what was expected and what was found.
        what: Cow<'static, str>,
    },
    /// The decompressed records would be larger than the caller allows. Kafka has no such bound; here an
    /// `InvalidRecordException`.
    TooLarge {
        /// The codec.
        codec: Codec,
        /// The bound, in bytes.
        limit: usize,
    },
    /// This build lacks the codec. Kafka: `UnsupportedCompressionTypeException`.
    CodecDisabled {
        /// The codec; the missing feature of the crate has its name.
        codec: Codec,
    },
}

impl DecodeError {
    /// A payload that the codec does not accept; `at` counts from the payload's first byte.
    #[cold]
    pub(crate) fn codec(codec: Codec, what: impl Into<Cow<'static, str>>, at: usize) -> DecodeError {
        DecodeError::Codec { codec, place: Place::Payload(at), what: what.into() }
    }

    #[cold]
    pub(crate) fn corrupt(
        field: &'static str,
        place: Place,
        expected: Expected,
        found: Found,
    ) -> DecodeError {
        DecodeError::Corrupt { field, place, expected, found }
    }

    #[cold]
    pub(crate) fn invalid(
        field: &'static str,
        place: Place,
        expected: Expected,
        found: Found,
    ) -> DecodeError {
        DecodeError::InvalidRecord { field, place, expected, found }
    }

    #[cold]
    pub(crate) fn illegal(
        field: &'static str,
        place: Place,
        expected: Expected,
        found: Found,
    ) -> DecodeError {
        DecodeError::IllegalArgument { field, place, expected, found }
    }

    /// The simple name of the exception that Kafka raises for it.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            DecodeError::Corrupt { .. } | DecodeError::Checksum { .. } => "CorruptRecordException",
            DecodeError::InvalidRecord { .. } | DecodeError::TooLarge { .. } => "InvalidRecordException",
            DecodeError::IllegalArgument { .. } | DecodeError::UnknownCodec { .. } => {
                "IllegalArgumentException"
            }
            DecodeError::Codec { .. } => "KafkaException",
            DecodeError::CodecDisabled { .. } => "UnsupportedCompressionTypeException",
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Corrupt { field, place, expected, found }
            | DecodeError::InvalidRecord { field, place, expected, found }
            | DecodeError::IllegalArgument { field, place, expected, found } => {
                write!(f, "{field} at {place}: expected {expected}, found {found}")
            }
            DecodeError::Checksum { magic, stored, computed, base_offset, last_offset } => write!(
                f,
                "checksum of the batch at base offset {base_offset} (magic {magic}, last offset {last_offset}): \
                 stored {stored:#010x}, computed {computed:#010x}"
            ),
            DecodeError::UnknownCodec { id, place } => {
                write!(f, "codec in the attributes at {place}: expected 0 to 4, found {id}")
            }
            DecodeError::Codec { codec, place, what } => write!(f, "{codec} at {place}: {what}"),
            DecodeError::TooLarge { codec, limit } => {
                write!(f, "{codec}: decompressed records: expected at most {limit} bytes, found more")
            }
            DecodeError::CodecDisabled { codec } => {
                write!(f, "{codec}: this build lacks the feature `{codec}` of kseg-format")
            }
        }
    }
}

impl Error for DecodeError {}

/// A batch that cannot be built or changed as asked.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EncodeError {
    /// A record's offset is not above that of the record before it.
    OffsetNotIncreasing {
        /// The offset of the record before.
        last: Offset,
        /// The offset given.
        found: Offset,
    },
    /// An offset lies farther from the base offset than 32 bits can say.
    OffsetOutOfRange {
        /// The batch's base offset.
        base: Offset,
        /// The offset given.
        found: Offset,
    },
    /// A timestamp below 0 that is not "none".
    NegativeTimestamp {
        /// The timestamp given.
        found: Timestamp,
    },
    /// Fields of the batch contradict each other; the words say which.
    Contradiction {
        /// What does not go together.
        what: &'static str,
    },
    /// The format version cannot hold what is asked for.
    Unsupported {
        /// The version.
        magic: Magic,
        /// What it lacks.
        what: &'static str,
    },
    /// The batch would not fit a 32-bit size.
    TooLarge {
        /// The size in bytes that was needed at least.
        size: u64,
    },
    /// A compression level outside the codec's range.
    Level {
        /// The codec.
        codec: Codec,
        /// The level given.
        level: i32,
        /// The lowest level.
        lowest: i32,
        /// The highest level.
        highest: i32,
    },
    /// A compression level for a codec that has none.
    NoLevels {
        /// The codec.
        codec: Codec,
        /// The level given.
        level: i32,
    },
    /// The codec's library failed. Kafka: `KafkaException`.
    Codec {
        /// The codec.
        codec: Codec,
        /// What it said.
        what: Cow<'static, str>,
    },
    /// This build lacks the codec. Kafka: `UnsupportedCompressionTypeException`.
    CodecDisabled {
        /// The codec; the missing feature of the crate has its name.
        codec: Codec,
    },
    /// The batch to be changed is damaged.
    Damaged(DecodeError),
}

impl EncodeError {
    /// A failure inside the codec's library.
    #[cold]
    pub(crate) fn codec(codec: Codec, what: impl Into<Cow<'static, str>>) -> EncodeError {
        EncodeError::Codec { codec, what: what.into() }
    }

    /// The simple name of the exception that Kafka raises for it.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            EncodeError::OffsetNotIncreasing { .. }
            | EncodeError::OffsetOutOfRange { .. }
            | EncodeError::NegativeTimestamp { .. }
            | EncodeError::Contradiction { .. }
            | EncodeError::TooLarge { .. }
            | EncodeError::Level { .. }
            | EncodeError::NoLevels { .. } => "IllegalArgumentException",
            EncodeError::Unsupported { .. } => "UnsupportedOperationException",
            EncodeError::Codec { .. } => "KafkaException",
            EncodeError::CodecDisabled { .. } => "UnsupportedCompressionTypeException",
            EncodeError::Damaged(error) => error.kafka_name(),
        }
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::OffsetNotIncreasing { last, found } => {
                write!(f, "offset {found} is not above {last}, the offset of the record before")
            }
            EncodeError::OffsetOutOfRange { base, found } => {
                write!(f, "offset {found} is too far from the base offset {base}")
            }
            EncodeError::NegativeTimestamp { found } => {
                write!(f, "timestamp {found}: expected 0 or more, or none")
            }
            EncodeError::Contradiction { what } => f.write_str(what),
            EncodeError::Unsupported { magic, what } => write!(f, "magic {magic} has no {what}"),
            EncodeError::TooLarge { size } => {
                write!(f, "a batch of {size} bytes: expected at most {} bytes", i32::MAX)
            }
            EncodeError::Level { codec, level, lowest, highest } => {
                write!(f, "{codec} level {level}: expected {lowest} to {highest}")?;
                if *codec == Codec::Gzip { f.write_str(", without 0") } else { Ok(()) }
            }
            EncodeError::NoLevels { codec, level } => {
                write!(f, "{codec} level {level}: expected none, the codec has no levels")
            }
            EncodeError::Codec { codec, what } => write!(f, "{codec}: {what}"),
            EncodeError::CodecDisabled { codec } => {
                write!(f, "{codec}: this build lacks the feature `{codec}` of kseg-format")
            }
            EncodeError::Damaged(_) => f.write_str("the batch to be changed is damaged"),
        }
    }
}

impl Error for EncodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            EncodeError::Damaged(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DecodeError> for EncodeError {
    fn from(error: DecodeError) -> EncodeError {
        EncodeError::Damaged(error)
    }
}
