//! The codecs and format versions by name.

use std::fmt;
use std::str::FromStr;

/// How a batch's records are compressed. All five exist whatever features are on; one whose feature is off cannot be
/// used, and the error says so.
#[allow(
    clippy::exhaustive_enums,
    reason = "the format has three bits and Kafka gives a meaning to these five"
)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Codec {
    /// Records as they are.
    #[default]
    None,
    /// gzip (RFC 1952), feature `gzip`.
    Gzip,
    /// Raw snappy blocks in the framing of snappy-java, feature `snappy`.
    Snappy,
    /// An LZ4 frame, feature `lz4`.
    Lz4,
    /// zstd frames, feature `zstd`.
    Zstd,
}

impl Codec {
    /// All codecs, by id.
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// The number in the low three bits of a batch's attributes.
    #[inline]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The codec of an id; 5 and above are none.
    #[inline]
    pub const fn from_id(id: u8) -> Option<Codec> {
        match id {
            0 => Some(Codec::None),
            1 => Some(Codec::Gzip),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Lz4),
            4 => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// Kafka's name for it: `none`, `gzip`, `snappy`, `lz4`, `zstd`.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// Whether this build can use it, that is, whether its feature is on.
    pub const fn is_enabled(self) -> bool {
        match self {
            Codec::None => true,
            Codec::Gzip => cfg!(feature = "gzip"),
            Codec::Snappy => cfg!(feature = "snappy"),
            Codec::Lz4 => cfg!(feature = "lz4"),
            Codec::Zstd => cfg!(feature = "zstd"),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no codec's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownCodecName(String);

impl fmt::Display for UnknownCodecName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown codec {:?}: expected none, gzip, snappy, lz4 or zstd", self.0)
    }
}

impl std::error::Error for UnknownCodecName {}

impl FromStr for Codec {
    type Err = UnknownCodecName;

    fn from_str(name: &str) -> Result<Codec, UnknownCodecName> {
        Codec::ALL
            .into_iter()
            .find(|codec| codec.name() == name)
            .ok_or_else(|| UnknownCodecName(name.to_owned()))
    }
}

/// The version of a batch's layout, byte 16 of every batch.
#[allow(clippy::exhaustive_enums, reason = "another version would be another format")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Magic {
    /// Messages without a timestamp (before Kafka 0.10).
    V0,
    /// Messages with a timestamp (before Kafka 0.11).
    V1,
    /// Record batches.
    V2,
}

impl Magic {
    /// The number in byte 16.
    #[inline]
    pub const fn get(self) -> i8 {
        self as i8
    }

    /// The version of a byte, `None` outside 0 to 2.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Magic> {
        match byte {
            0 => Some(Magic::V0),
            1 => Some(Magic::V1),
            2 => Some(Magic::V2),
            _ => None,
        }
    }

    /// Whether this is one of the layouts before record batches.
    #[inline]
    pub const fn is_legacy(self) -> bool {
        !matches!(self, Magic::V2)
    }
}

impl fmt::Display for Magic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.get(), f)
    }
}

/// What the timestamps of a batch mean.
#[allow(clippy::exhaustive_enums, reason = "the format has one bit for it")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum TimestampType {
    /// Given by the producer, record by record.
    #[default]
    CreateTime,
    /// The broker's clock at the append, one for the whole batch.
    LogAppendTime,
}

impl TimestampType {
    /// Kafka's name for it: `CreateTime`, `LogAppendTime`.
    pub const fn name(self) -> &'static str {
        match self {
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        }
    }
}

impl fmt::Display for TimestampType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_go_both_ways() {
        for (id, codec) in Codec::ALL.into_iter().enumerate() {
            assert_eq!(codec.id() as usize, id);
            assert_eq!(Codec::from_id(codec.id()), Some(codec));
            assert_eq!(codec.to_string().parse::<Codec>(), Ok(codec));
        }
        assert_eq!(Codec::from_id(5), None);
        assert!("LZ4".parse::<Codec>().is_err());
    }

    #[test]
    fn a_magic_outside_0_to_2_is_none() {
        assert_eq!(Magic::from_byte(2), Some(Magic::V2));
        assert_eq!(Magic::from_byte(3), None);
        assert_eq!(Magic::from_byte(0xff), None);
        assert!(Magic::V1.is_legacy() && !Magic::V2.is_legacy());
    }
}
