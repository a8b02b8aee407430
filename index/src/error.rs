//! What an index refuses, and what a check finds wrong in one.

use std::error::Error;
use std::fmt;

use kseg_format::Offset;

/// Why an index refused a call, or what is wrong with its bytes.
///
/// An index knows neither its file nor its directory; whoever opened it adds them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexError {
    /// The index has no room for another entry (a time index keeps one slot for the entry of a roll). Nothing was
    /// written: the segment has to be rolled first.
    Full {
        /// Entries that the index has.
        entries: usize,
        /// Entries that its region has room for.
        max_entries: usize,
    },
    /// An entry to be appended does not ascend from the last one. Nothing was written: the caller is at fault.
    NotIncreasing {
        /// The column in which it does not ascend: [`Field::Offset`] or [`Field::Timestamp`].
        field: Field,
        /// The value to be appended.
        appended: i64,
        /// The value of the last entry.
        last: i64,
    },
    /// An offset lies below the base offset, or more than 2 147 483 647 above it. Nothing was written: such a batch
    /// belongs to another segment.
    OffsetOverflow {
        /// The base offset of the index.
        base: Offset,
        /// The offset to be appended.
        offset: Offset,
    },
    /// A position of 2 147 483 648 or more, which no entry can hold. Nothing was written: no segment is that long.
    PositionOverflow {
        /// The position to be appended.
        position: u32,
    },
    /// An entry was asked for that the index does not have.
    NoSuchEntry {
        /// The number asked for, from 0.
        entry: usize,
        /// Entries that the index has.
        entries: usize,
    },
    /// The bytes of the index contradict themselves or the log: rebuild it from the log file.
    Corrupt {
        /// Position in the index file, in bytes, of the entry concerned; for [`Field::Length`], the length.
        position: u64,
        /// What is wrong there.
        field: Field,
        /// What a sound index has there.
        expected: Expected,
        /// What is there; an offset is absolute.
        found: i64,
    },
}

impl IndexError {
    /// The simple name of the exception that Kafka throws in this case.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            IndexError::Full { .. }
            | IndexError::PositionOverflow { .. }
            | IndexError::NoSuchEntry { .. } => "IllegalArgumentException",
            IndexError::NotIncreasing { field: Field::Timestamp, .. } => "IllegalStateException",
            IndexError::NotIncreasing { .. } => "InvalidOffsetException",
            IndexError::OffsetOverflow { .. } => "IndexOffsetOverflowException",
            IndexError::Corrupt { .. } => "CorruptIndexException",
        }
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Full { entries, max_entries } => {
                write!(f, "index is full: {entries} entries of at most {max_entries}")
            }
            IndexError::NotIncreasing { field, appended, last } => {
                write!(f, "index entry does not ascend: {field} {appended} after {last}")
            }
            IndexError::OffsetOverflow { base, offset } => {
                write!(f, "offset {offset} does not fit an index with base offset {base}")
            }
            IndexError::PositionOverflow { position } => {
                write!(f, "position {position} does not fit an index entry, at most {}", i32::MAX)
            }
            IndexError::NoSuchEntry { entry, entries } => {
                write!(f, "no index entry {entry} among {entries}")
            }
            IndexError::Corrupt { position, field, expected, found } => {
                write!(f, "corrupt index at position {position}: {field} is {found}, expected {expected}")
            }
        }
    }
}

impl Error for IndexError {}

/// A part of an index that an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// The offset of an entry.
    Offset,
    /// The position of an entry in the log file.
    Position,
    /// The timestamp of an entry.
    Timestamp,
    /// The length of the index file.
    Length,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::Offset => "offset",
            Field::Position => "position",
            Field::Timestamp => "timestamp",
            Field::Length => "length",
        })
    }
}

/// What a sound index would hold in place of a value that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// A value of at least this.
    AtLeast(i64),
    /// A value above this.
    Above(i64),
    /// A value below this.
    Below(i64),
    /// A multiple of this.
    MultipleOf(i64),
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::AtLeast(bound) => write!(f, "at least {bound}"),
            Expected::Above(bound) => write!(f, "above {bound}"),
            Expected::Below(bound) => write!(f, "below {bound}"),
            Expected::MultipleOf(unit) => write!(f, "a multiple of {unit}"),
        }
    }
}
