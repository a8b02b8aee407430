//! Identities of topics and directories: 16 bytes, written as 22 characters.

use std::fmt;
use std::str::FromStr;

use crate::checkpoint::excerpt;

/// An identity of 16 bytes. Shown and read as base64 in the URL alphabet, without padding: 22 characters.
///
/// Source: Kafka `org.apache.kafka.common.Uuid`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Characters of 16 bytes: 21 of 6 bits, and one of which 2 bits count.
const TEXT_LEN: usize = 22;

impl Uuid {
    /// All zeros: no identity.
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// The identity of these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Uuid {
        Uuid(bytes)
    }

    /// The bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Whether it is one of the first 100 values, which Kafka reserves (0 none, 1 unassigned or metadata, 2 lost).
    pub fn is_reserved(self) -> bool {
        u128::from_be_bytes(self.0) < 100
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        let mut text = [0u8; TEXT_LEN];
        for (at, char) in text.iter_mut().enumerate() {
            // 128 bits from the top, six at a time; four zero bits follow the last two.
            let shift = 122 - 6 * at as i32;
            let six = if shift >= 0 { bits >> shift } else { bits << -shift };
            *char = ALPHABET[(six & 63) as usize];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

impl FromStr for Uuid {
    type Err = UuidError;

    /// Reads 22 characters; the padding `==` behind them is accepted.
    fn from_str(text: &str) -> Result<Uuid, UuidError> {
        let refuse = || UuidError { found: excerpt(text) };
        let body = text.strip_suffix("==").unwrap_or(text);
        if body.len() != TEXT_LEN {
            return Err(refuse());
        }
        let mut bits: u128 = 0;
        for (at, byte) in body.bytes().enumerate() {
            let six = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'-' => 62,
                b'_' => 63,
                _ => return Err(refuse()),
            };
            bits = if at + 1 < TEXT_LEN {
                bits << 6 | u128::from(six)
            } else {
                bits << 2 | u128::from(six >> 4)
            };
        }
        Ok(Uuid(bits.to_be_bytes()))
    }
}

/// A text that is no identity.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UuidError {
    /// The text.
    pub found: String,
}

impl UuidError {
    /// Kafka's name for this error.
    pub fn kafka_name(&self) -> &'static str {
        "IllegalArgumentException"
    }
}

impl fmt::Display for UuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an id has 22 characters of A-Z, a-z, 0-9, - and _, found {}", self.found)
    }
}

impl std::error::Error for UuidError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_are_written_as_kafka_writes_them() {
        let mut bytes = [0; 16];
        bytes[15] = 1;
        assert_eq!(Uuid::from_bytes(bytes).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(Uuid::from_bytes([0xff; 16]).to_string(), "_____________________w");
        assert_eq!(Uuid::ZERO.to_string(), "A".repeat(22));
        let wide = Uuid::from_bytes(*b"0123456789abcdef");
        assert_eq!(wide.to_string(), "MDEyMzQ1Njc4OWFiY2RlZg");
        assert_eq!(format!("{wide:?}"), "Uuid(MDEyMzQ1Njc4OWFiY2RlZg)");
    }

    #[test]
    fn padding_is_accepted_and_other_lengths_are_not() {
        let id: Uuid = "MDEyMzQ1Njc4OWFiY2RlZg==".parse().unwrap();
        assert_eq!(id.to_bytes(), *b"0123456789abcdef");
        for refused in
            ["", "AAAA", "MDEyMzQ1Njc4OWFiY2RlZg=", "MDEyMzQ1Njc4OWFiY2RlZgA", "MDEyMzQ1Njc4OWFiY2Rl+g"]
        {
            assert_eq!(refused.parse::<Uuid>().unwrap_err().kafka_name(), "IllegalArgumentException");
        }
    }

    #[test]
    fn the_first_hundred_are_reserved() {
        assert!(Uuid::from_bytes(99u128.to_be_bytes()).is_reserved());
        assert!(!Uuid::from_bytes(100u128.to_be_bytes()).is_reserved());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn ids_round_trip(bytes in any::<[u8; 16]>(), text in ".{0,24}") {
            let id = Uuid::from_bytes(bytes);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            let _ = text.parse::<Uuid>();
        }
    }
}
