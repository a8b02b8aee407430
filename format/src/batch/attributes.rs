//! The bit set in a batch's header.

use std::fmt;

use crate::codec::{Codec, TimestampType};
use crate::error::{DecodeError, Place};

/// The attributes of a batch: codec, timestamp type, transactional, control, delete horizon.
///
/// Only the low byte has a meaning; the others are kept as they are until the attributes are rewritten. Of a legacy
/// message the one attributes byte, of which only the codec and (magic 1) the timestamp type have a meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Attributes(i16);

const CODEC: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const DELETE_HORIZON: i16 = 0x40;

impl Attributes {
    /// Wraps a raw value.
    #[inline]
    pub const fn new(raw: i16) -> Attributes {
        Attributes(raw)
    }

    /// The raw value.
    #[inline]
    pub const fn get(self) -> i16 {
        self.0
    }

    /// The bits for these properties, all others 0.
    #[inline]
    pub(crate) const fn of(
        codec: Codec,
        timestamp_type: TimestampType,
        transactional: bool,
        control: bool,
        delete_horizon: bool,
    ) -> Attributes {
        let mut raw = codec.id() as i16;
        if matches!(timestamp_type, TimestampType::LogAppendTime) {
            raw |= LOG_APPEND_TIME;
        }
        if transactional {
            raw |= TRANSACTIONAL;
        }
        if control {
            raw |= CONTROL;
        }
        if delete_horizon {
            raw |= DELETE_HORIZON;
        }
        Attributes(raw)
    }

    /// The number of the codec, 0 to 7.
    #[inline]
    pub const fn codec_id(self) -> u8 {
        (self.0 & CODEC) as u8
    }

    /// Whether the records are compressed, be it by a codec that does not exist.
    #[inline]
    pub const fn is_compressed(self) -> bool {
        self.0 & CODEC != 0
    }

    /// The codec; `place` is where the attributes stand.
    #[inline]
    pub(crate) fn codec(self, place: Place) -> Result<Codec, DecodeError> {
        Codec::from_id(self.codec_id()).ok_or(DecodeError::UnknownCodec { id: self.codec_id(), place })
    }

    /// Bit 3.
    #[inline]
    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & LOG_APPEND_TIME == 0 { TimestampType::CreateTime } else { TimestampType::LogAppendTime }
    }

    /// Bit 4.
    #[inline]
    pub const fn is_transactional(self) -> bool {
        self.0 & TRANSACTIONAL != 0
    }

    /// Bit 5.
    #[inline]
    pub const fn is_control(self) -> bool {
        self.0 & CONTROL != 0
    }

    /// Bit 6: the base timestamp is a delete horizon.
    #[inline]
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & DELETE_HORIZON != 0
    }
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_property_has_its_bit() {
        let of = |t, tx, control, horizon| Attributes::of(Codec::Lz4, t, tx, control, horizon).get();
        assert_eq!(of(TimestampType::CreateTime, false, false, false), 0x03);
        assert_eq!(of(TimestampType::LogAppendTime, false, false, false), 0x0b);
        assert_eq!(of(TimestampType::CreateTime, true, false, false), 0x13);
        assert_eq!(of(TimestampType::CreateTime, false, true, false), 0x23);
        assert_eq!(of(TimestampType::CreateTime, false, false, true), 0x43);
    }

    #[test]
    fn format_edge_18_codecs_5_to_7_are_errors_when_asked_for() {
        for id in 5..8 {
            let error = Attributes::new(id).codec(Place::Batch(21)).unwrap_err();
            assert_eq!(error.kafka_name(), "IllegalArgumentException");
            assert_eq!(
                error.to_string(),
                format!("codec in the attributes at byte 21 of the batch: expected 0 to 4, found {id}")
            );
        }
    }
}
