//! The codecs and format versions by name.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::error::EncodeError;

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

impl Codec {
    /// The levels that the codec takes, and `None` where it has none.
    ///
    /// | codec | levels | default | |
    /// |---|---|---|---|
    /// | gzip | 1 to 9, or -1 | -1 | -1 is 6; 0 is refused though it lies between |
    /// | lz4 | 1 to 17 | 9 | all of them the fast compressor, as 9 is in Kafka; Kafka's others compress higher |
    /// | zstd | -131072 to 22 | 3 | 0 is 3 |
    /// | none, snappy | | | |
    ///
    /// Source: Kafka `CompressionType`.
    pub const fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            Codec::None | Codec::Snappy => None,
            Codec::Gzip => Some(-1..=9),
            Codec::Lz4 => Some(1..=17),
            Codec::Zstd => Some(-(1 << 17)..=22),
        }
    }

    /// Checks a level before anything is compressed with it.
    ///
    /// # Errors
    /// [`EncodeError::Level`] for one out of range, [`EncodeError::NoLevels`] for any of a codec without levels.
    pub fn check_level(self, level: i32) -> Result<(), EncodeError> {
        let Some(levels) = self.levels() else { return Err(EncodeError::NoLevels { codec: self, level }) };
        if levels.contains(&level) && !(self == Codec::Gzip && level == 0) {
            return Ok(());
        }
        Err(EncodeError::Level { codec: self, level, lowest: *levels.start(), highest: *levels.end() })
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
    fn levels_are_checked_by_codec_and_named() {
        for (codec, fine, wrong) in [
            (Codec::Gzip, &[-1, 1, 9][..], &[-2, 0, 10][..]),
            (Codec::Lz4, &[1, 17], &[0, 18]),
            (Codec::Zstd, &[-131_072, 0, 22], &[-131_073, 23]),
            (Codec::None, &[], &[1]),
            (Codec::Snappy, &[], &[0]),
        ] {
            for level in fine {
                assert_eq!(codec.check_level(*level).ok(), Some(()), "{codec} {level}");
            }
            for level in wrong {
                let words = codec.check_level(*level).expect_err("refused").to_string();
                assert!(words.contains(&format!("{codec} level {level}: expected")), "{words}");
            }
        }
        let words = Codec::Gzip.check_level(0).expect_err("refused").to_string();
        assert_eq!(words, "gzip level 0: expected -1 to 9, without 0");
    }

    #[test]
    fn a_magic_outside_0_to_2_is_none() {
        assert_eq!(Magic::from_byte(2), Some(Magic::V2));
        assert_eq!(Magic::from_byte(3), None);
        assert_eq!(Magic::from_byte(0xff), None);
        assert!(Magic::V1.is_legacy() && !Magic::V2.is_legacy());
    }
}
