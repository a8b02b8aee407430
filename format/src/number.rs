//! The numbers of the format as types, so that two of them cannot be taken for each other.
//!
//! Each is a plain integer of the width it has on disk and holds any value of it: damaged bytes may say anything.
//! Where the format writes -1 for "none", the type has `from_raw` and `to_raw`, and the rest of the crate speaks of
//! an `Option`. Arithmetic wraps as Kafka's does, unless a method says that it checks.

use std::fmt;

macro_rules! number {
    ($(#[$meta:meta])* $name:ident($raw:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        pub struct $name($raw);

        impl $name {
            /// Wraps a raw value.
            #[inline]
            pub const fn new(raw: $raw) -> Self {
                Self(raw)
            }

            /// The raw value.
            #[inline]
            pub const fn get(self) -> $raw {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

macro_rules! or_none {
    ($name:ident($raw:ty)) => {
        impl $name {
            /// Reads a field in which -1 stands for "none".
            #[inline]
            pub const fn from_raw(raw: $raw) -> Option<Self> {
                if raw == -1 { None } else { Some(Self(raw)) }
            }

            /// What is written for it: -1 for `None`.
            #[inline]
            pub const fn to_raw(value: Option<Self>) -> $raw {
                match value {
                    Some(value) => value.0,
                    None => -1,
                }
            }
        }
    };
}

number! {
    /// A record's logical number in its partition.
    Offset(i64)
}

number! {
    /// An offset minus the base offset of the batch or segment it belongs to.
    RelativeOffset(i32)
}

number! {
    /// Milliseconds since the epoch. Never -1 where it came through [`Timestamp::from_raw`].
    Timestamp(i64)
}
or_none!(Timestamp(i64));

number! {
    /// The number of a partition's leadership.
    LeaderEpoch(i32)
}
or_none!(LeaderEpoch(i32));

number! {
    /// The id of an idempotent or transactional producer.
    ProducerId(i64)
}
or_none!(ProducerId(i64));

number! {
    /// The epoch of a producer id.
    ProducerEpoch(i16)
}
or_none!(ProducerEpoch(i16));

number! {
    /// A producer's sequence number for a record. Valid ones are 0 to `i32::MAX`, after which 0 follows.
    Sequence(i32)
}
or_none!(Sequence(i32));

impl Default for Offset {
    fn default() -> Offset {
        Offset::ZERO
    }
}

impl Offset {
    /// Offset 0.
    pub const ZERO: Offset = Offset(0);

    /// The offset after this one; `i64::MAX` wraps.
    #[inline]
    pub const fn next(self) -> Offset {
        Offset(self.0.wrapping_add(1))
    }

    /// This offset moved by `delta`, `None` where it does not fit.
    #[inline]
    pub const fn checked_add(self, delta: i64) -> Option<Offset> {
        match self.0.checked_add(delta) {
            Some(raw) => Some(Offset(raw)),
            None => None,
        }
    }

    /// The distance from `base`, `None` unless it is 0 to `i32::MAX`.
    #[inline]
    pub const fn relative_to(self, base: Offset) -> Option<RelativeOffset> {
        match self.0.checked_sub(base.0) {
            Some(delta) if delta >= 0 && delta <= i32::MAX as i64 => Some(RelativeOffset(delta as i32)),
            _ => None,
        }
    }
}

impl Sequence {
    /// The sequence number `delta` after this one; 0 follows `i32::MAX`.
    ///
    /// Any pair of numbers has an answer: each step wraps at 32 bits, which shows where damaged bytes make one of
    /// them negative.
    ///
    /// Source: Kafka `DefaultRecordBatch.incrementSequence`.
    #[inline]
    pub const fn increment(self, delta: i32) -> Sequence {
        let sequence = self.0;
        if sequence > i32::MAX.wrapping_sub(delta) {
            Sequence(delta.wrapping_sub(i32::MAX.wrapping_sub(sequence)).wrapping_sub(1))
        } else {
            Sequence(sequence.wrapping_add(delta))
        }
    }

    /// The sequence number `delta` before this one; `i32::MAX` comes before 0.
    ///
    /// Source: Kafka `DefaultRecordBatch.decrementSequence`.
    #[inline]
    pub const fn decrement(self, delta: i32) -> Sequence {
        let sequence = self.0;
        if sequence < delta {
            Sequence(i32::MAX.wrapping_sub(delta.wrapping_sub(sequence)).wrapping_add(1))
        } else {
            Sequence(sequence.wrapping_sub(delta))
        }
    }

    /// Whether `next` may follow this one directly.
    #[inline]
    pub const fn is_followed_by(self, next: Sequence) -> bool {
        next.0 as i64 == self.0 as i64 + 1 || (next.0 == 0 && self.0 == i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_edge_174_sequences_wrap_to_zero_and_back() {
        let inc = |s: i32, d: i32| Sequence::new(s).increment(d).get();
        let dec = |s: i32, d: i32| Sequence::new(s).decrement(d).get();
        assert_eq!(inc(5, 5), 10);
        assert_eq!(inc(i32::MAX, 1), 0);
        assert_eq!(inc(i32::MAX - 5, 10), 4);
        assert_eq!(inc(0, -1), i32::MAX);
        assert_eq!(inc(i32::MAX, -1), -2);
        assert_eq!(inc(-2, 3), 1);
        assert_eq!(dec(5, 5), 0);
        assert_eq!(dec(0, 1), i32::MAX);
        assert_eq!(dec(5, 10), i32::MAX - 4);
    }

    #[test]
    fn a_sequence_is_followed_by_the_next_or_by_zero_after_the_largest() {
        assert!(Sequence::new(3).is_followed_by(Sequence::new(4)));
        assert!(!Sequence::new(3).is_followed_by(Sequence::new(0)));
        assert!(Sequence::new(i32::MAX).is_followed_by(Sequence::new(0)));
        assert!(!Sequence::new(i32::MAX).is_followed_by(Sequence::new(1)));
    }

    #[test]
    fn minus_one_is_none() {
        assert_eq!(Timestamp::from_raw(-1), None);
        assert_eq!(Timestamp::from_raw(-5), Some(Timestamp::new(-5)));
        assert_eq!(Timestamp::to_raw(None), -1);
        assert_eq!(ProducerEpoch::to_raw(Some(ProducerEpoch::new(7))), 7);
    }

    #[test]
    fn a_relative_offset_is_computed_without_wrapping() {
        let at = |offset: i64, base: i64| {
            Offset::new(offset).relative_to(Offset::new(base)).map(RelativeOffset::get)
        };
        assert_eq!(at(10, 3), Some(7));
        assert_eq!(at(3, 10), None);
        assert_eq!(at(i32::MAX as i64, 0), Some(i32::MAX));
        assert_eq!(at(i32::MAX as i64 + 1, 0), None);
        assert_eq!(at(i64::MAX, i64::MIN), None);
        assert_eq!(at(i64::MIN, i64::MAX), None);
    }
}
