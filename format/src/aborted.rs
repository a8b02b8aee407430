//! The entries of a transaction index: which transactions were aborted.
//!
//! | at | width | field |
//! |---|---|---|
//! | 0 | 2 | version, 0 |
//! | 2 | 8 | producer id |
//! | 10 | 8 | first offset of the transaction |
//! | 18 | 8 | offset of its abort marker |
//! | 26 | 8 | last stable offset when it was aborted |
//!
//! The file has no header; a part of an entry at its end is none.
//!
//! Source: Kafka `TransactionIndex`, `AbortedTxn`.

use std::error::Error;
use std::fmt;

use crate::number::{Offset, ProducerId};

const ID_AT: usize = 2;
const FIRST_AT: usize = ID_AT + 8;
const LAST_AT: usize = FIRST_AT + 8;
const STABLE_AT: usize = LAST_AT + 8;

/// An aborted transaction.
///
/// ```
/// use kseg_format::{AbortedTransaction, Offset, ProducerId};
///
/// let entry = AbortedTransaction {
///     producer_id: ProducerId::new(1001),
///     first_offset: Offset::new(100),
///     last_offset: Offset::new(103),
///     last_stable_offset: Offset::new(104),
/// };
/// let index = entry.encode();
/// let all = AbortedTransaction::decode_all(&index).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(all, [entry]);
///
/// // What a reader of the offsets 101 to 199 has to know.
/// let mut found = Vec::new();
/// let complete = AbortedTransaction::collect(all, Offset::new(101), Offset::new(200), &mut found);
/// assert_eq!((found.len(), complete), (1, false));
/// # Ok::<(), kseg_format::AbortedError>(())
/// ```
#[allow(clippy::exhaustive_structs, reason = "an entry has these four fields")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
    /// Bytes of an entry.
    pub const LEN: usize = STABLE_AT + 8;

    /// The entry's bytes.
    pub fn encode(&self) -> [u8; AbortedTransaction::LEN] {
        let mut bytes = [0; AbortedTransaction::LEN];
        let fields = [
            (ID_AT, self.producer_id.get()),
            (FIRST_AT, self.first_offset.get()),
            (LAST_AT, self.last_offset.get()),
            (STABLE_AT, self.last_stable_offset.get()),
        ];
        for (at, value) in fields {
            bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    /// Reads the entry at the beginning of `bytes`; `at` is where it stands in its file, for errors.
    ///
    /// Like Kafka this takes a version from 1 to 255 and a negative one for 0: only the first of its two bytes is looked at.
    ///
    /// # Errors
    /// [`AbortedError`] for a later version, and where there are fewer than [`LEN`](AbortedTransaction::LEN) bytes.
    pub fn decode(bytes: &[u8], at: u64) -> Result<AbortedTransaction, AbortedError> {
        let Some(entry) = bytes.first_chunk::<{ AbortedTransaction::LEN }>() else {
            return Err(AbortedError::Short { at, found: bytes.len() });
        };
        if entry[0] as i8 > 0 {
            return Err(AbortedError::Version { at, found: i16::from_be_bytes([entry[0], entry[1]]) });
        }
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&entry[at..at + 8]);
            i64::from_be_bytes(field)
        };
        Ok(AbortedTransaction {
            producer_id: ProducerId::new(number(ID_AT)),
            first_offset: Offset::new(number(FIRST_AT)),
            last_offset: Offset::new(number(LAST_AT)),
            last_stable_offset: Offset::new(number(STABLE_AT)),
        })
    }

    /// The entries of a whole index, in order; ends after the first error. A part of an entry at the end is passed over.
    pub fn decode_all(bytes: &[u8]) -> impl Iterator<Item = Result<AbortedTransaction, AbortedError>> + '_ {
        let entries = bytes.chunks_exact(AbortedTransaction::LEN).enumerate();
        let mut failed = false;
        entries.map_while(move |(n, entry)| {
            if failed {
                return None;
            }
            let entry = AbortedTransaction::decode(entry, (n * AbortedTransaction::LEN) as u64);
            failed = entry.is_err();
            Some(entry)
        })
    }

    /// Looks at the entries of a segment's index: none may end below the segment's base offset.
    ///
    /// # Errors
    /// [`AbortedError::BelowBase`], and those of [`decode`](AbortedTransaction::decode).
    ///
    /// Source: Kafka `TransactionIndex.sanityCheck`.
    pub fn check_all(bytes: &[u8], base: Offset) -> Result<(), AbortedError> {
        for (n, entry) in AbortedTransaction::decode_all(bytes).enumerate() {
            let found = entry?.last_offset;
            if found < base {
                return Err(AbortedError::BelowBase {
                    at: (n * AbortedTransaction::LEN) as u64,
                    base,
                    found,
                });
            }
        }
        Ok(())
    }

    /// Appends to `found` those of an index's entries that a reader of the offsets from `from` up to, not including,
    /// `upper` has to know: they end at or behind `from` and begin below `upper`. Returns whether none of a later segment's
    /// index can be among them.
    ///
    /// Source: Kafka `TransactionIndex.collectAbortedTxns`.
    pub fn collect(
        entries: impl IntoIterator<Item = AbortedTransaction>,
        from: Offset,
        upper: Offset,
        found: &mut Vec<AbortedTransaction>,
    ) -> bool {
        for entry in entries {
            if entry.last_offset >= from && entry.first_offset < upper {
                found.push(entry);
            }
            if entry.last_stable_offset >= upper {
                return true;
            }
        }
        false
    }
}

/// An entry of a transaction index that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AbortedError {
    /// Its version is a later one. Kafka: `KafkaException`.
    Version {
        /// The entry's first byte in the file, where the version stands.
        at: u64,
        /// The version.
        found: i16,
    },
    /// It ends below the base offset of its segment. Kafka: `CorruptIndexException`.
    BelowBase {
        /// The entry's first byte in the file.
        at: u64,
        /// The base offset.
        base: Offset,
        /// The offset of its marker.
        found: Offset,
    },
    /// It is cut. Kafka reads no such entry.
    Short {
        /// The entry's first byte in the file.
        at: u64,
        /// Bytes there are.
        found: usize,
    },
}

impl AbortedError {
    /// The simple name of the exception that Kafka raises for it.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            AbortedError::BelowBase { .. } => "CorruptIndexException",
            AbortedError::Version { .. } | AbortedError::Short { .. } => "KafkaException",
        }
    }
}

impl fmt::Display for AbortedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AbortedError::Version { at, found } => {
                write!(f, "version of the aborted transaction at byte {at}: expected 0, found {found}")
            }
            AbortedError::BelowBase { at, base, found } => write!(
                f,
                "last offset of the aborted transaction at byte {at}: expected at least the base offset {base}, \
                 found {found}"
            ),
            AbortedError::Short { at, found } => {
                let expected = AbortedTransaction::LEN;
                write!(f, "aborted transaction at byte {at}: expected {expected} bytes, found {found}")
            }
        }
    }
}

impl Error for AbortedError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId::new(producer),
            first_offset: Offset::new(first),
            last_offset: Offset::new(last),
            last_stable_offset: Offset::new(stable),
        }
    }

    fn index() -> [AbortedTransaction; 4] {
        [entry(0, 0, 10, 11), entry(1, 5, 15, 13), entry(2, 18, 35, 25), entry(3, 32, 50, 40)]
    }

    #[test]
    fn kafka_s_example_is_read_and_written_byte_for_byte() {
        let mut bytes = vec![0, 0];
        for field in [1001_i64, 100, 103, 104] {
            bytes.extend_from_slice(&field.to_be_bytes());
        }
        let transaction = entry(1001, 100, 103, 104);
        assert_eq!(transaction.encode(), bytes[..]);
        assert_eq!(AbortedTransaction::decode(&bytes, 0), Ok(transaction));
    }

    #[test]
    fn log_edge_264_an_entry_comes_back_as_it_was_given() {
        let given = entry(983_493, 137, 299, 200);
        let bytes = given.encode();
        assert_eq!((bytes[..2].to_vec(), bytes.len()), (vec![0, 0], 34));
        assert_eq!(AbortedTransaction::decode(&bytes, 0), Ok(given));
    }

    #[test]
    fn format_edge_117_and_log_edge_29_what_a_reader_has_to_know() {
        let all = index();
        let collect = |from: i64, upper: i64| {
            let mut found = Vec::new();
            let complete =
                AbortedTransaction::collect(all, Offset::new(from), Offset::new(upper), &mut found);
            (found, complete)
        };
        assert_eq!(collect(0, 100), (all.to_vec(), false));
        assert_eq!(collect(0, 32), (all[..3].to_vec(), true));
        assert_eq!(collect(0, 35), (all.to_vec(), true));
        assert_eq!(collect(10, 35), (all.to_vec(), true));
        assert_eq!(collect(11, 35), (all[1..].to_vec(), true));
        assert_eq!(collect(20, 41), (all[2..].to_vec(), false));
    }

    #[test]
    fn format_edge_120_of_the_version_one_byte_counts() {
        let with_version = |version: [u8; 2]| {
            let mut bytes = entry(1, 2, 3, 4).encode();
            bytes[..2].copy_from_slice(&version);
            AbortedTransaction::decode(&bytes, 68)
        };
        for accepted in [[0, 1], [0x80, 0], [0xff, 0xff]] {
            assert_eq!(with_version(accepted), Ok(entry(1, 2, 3, 4)));
        }
        let error = with_version([1, 0]).unwrap_err();
        assert_eq!(error.to_string(), "version of the aborted transaction at byte 68: expected 0, found 256");
    }

    #[test]
    fn format_edge_120_no_transaction_ends_below_its_segment() {
        let bytes: Vec<u8> = index().iter().flat_map(AbortedTransaction::encode).collect();
        for (base, right) in [(0, true), (10, true), (11, false), (100, false)] {
            let checked = AbortedTransaction::check_all(&bytes, Offset::new(base));
            assert_eq!(checked.is_ok(), right, "{base}");
        }
        let error = AbortedTransaction::check_all(&bytes, Offset::new(15)).unwrap_err();
        assert_eq!(error.kafka_name(), "CorruptIndexException");
        assert_eq!(error, AbortedError::BelowBase { at: 0, base: Offset::new(15), found: Offset::new(10) });
    }

    #[test]
    fn format_edge_119_stray_bytes_at_the_end_are_ignored() {
        let mut bytes: Vec<u8> = index().iter().flat_map(AbortedTransaction::encode).collect();
        bytes.extend_from_slice(&[7; 4]);
        let read: Result<Vec<_>, _> = AbortedTransaction::decode_all(&bytes).collect();
        assert_eq!(read, Ok(index().to_vec()));
        assert_eq!(
            AbortedTransaction::decode(&bytes[136..], 136),
            Err(AbortedError::Short { at: 136, found: 4 })
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let entries: Vec<_> = AbortedTransaction::decode_all(&bytes).collect();
            prop_assert!(entries.len() <= bytes.len() / AbortedTransaction::LEN);
            for (n, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.is_ok()) {
                let at = n * AbortedTransaction::LEN;
                prop_assert_eq!(&entry.clone().unwrap().encode()[2..], &bytes[at + 2..at + 34]);
            }
        }
    }
}
