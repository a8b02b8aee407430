//! Names of a segment's files: the base offset as 20 digits, a kind, and a suffix for files in transition.
//!
//! Source: Kafka `LogFileUtils`.

use kseg_format::Offset;

/// What a file of a partition directory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// `.log`: record batches back to back.
    Log,
    /// `.index`: offset index.
    OffsetIndex,
    /// `.timeindex`: time index.
    TimeIndex,
    /// `.txnindex`: aborted transactions.
    TxnIndex,
    /// `.snapshot`: producer state up to the offset in the name.
    Snapshot,
}

impl FileKind {
    /// All kinds, a segment's own first and in the order in which Kafka renames them.
    pub const ALL: [FileKind; 5] =
        [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TxnIndex, FileKind::Snapshot];

    /// The files that belong to a segment, in the order in which they are renamed (part of the crash protocol of
    /// replacements).
    pub const OF_SEGMENT: [FileKind; 4] =
        [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TxnIndex];

    /// The ending, without its dot.
    pub const fn extension(self) -> &'static str {
        match self {
            FileKind::Log => "log",
            FileKind::OffsetIndex => "index",
            FileKind::TimeIndex => "timeindex",
            FileKind::TxnIndex => "txnindex",
            FileKind::Snapshot => "snapshot",
        }
    }
}

/// A state between two names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Suffix {
    /// A file in use.
    #[default]
    None,
    /// Out of the log, waiting to be removed.
    Deleted,
    /// Output of a compaction or a split, not yet complete.
    Cleaned,
    /// A complete replacement that has not got its final name yet.
    Swap,
}

impl Suffix {
    /// The text behind the kind, with its dot; empty for a file in use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Suffix::None => "",
            Suffix::Deleted => ".deleted",
            Suffix::Cleaned => ".cleaned",
            Suffix::Swap => ".swap",
        }
    }
}

/// A file name taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName {
    /// The number in front: a segment's base offset, or a snapshot's end offset.
    pub offset: Offset,
    /// What the file holds.
    pub kind: FileKind,
    /// The state it is in.
    pub suffix: Suffix,
}

/// The name of a file: `offset` as 20 digits, the kind, the suffix.
///
/// ```
/// use kseg_format::Offset;
/// use kseg_segment::{file_name, FileKind, Suffix};
/// assert_eq!(file_name(Offset::new(368769), FileKind::Log, Suffix::None), "00000000000000368769.log");
/// ```
pub fn file_name(offset: Offset, kind: FileKind, suffix: Suffix) -> String {
    format!("{:020}.{}{}", offset.get(), kind.extension(), suffix.as_str())
}

/// Takes a name apart; `None` for a name that is none of ours.
///
/// The number is what stands before the first dot; padding is not required (Kafka reads such names too), a sign is
/// refused.
pub fn parse_file_name(name: &str) -> Option<FileName> {
    let (number, rest) = name.split_once('.')?;
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let offset = Offset::new(number.parse().ok()?);
    for suffix in [Suffix::Deleted, Suffix::Cleaned, Suffix::Swap, Suffix::None] {
        let Some(kind) = rest.strip_suffix(suffix.as_str()) else { continue };
        if let Some(kind) = FileKind::ALL.into_iter().find(|k| k.extension() == kind) {
            return Some(FileName { offset, kind, suffix });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_edge_103_names_round_trip() {
        for kind in FileKind::ALL {
            for suffix in [Suffix::None, Suffix::Deleted, Suffix::Cleaned, Suffix::Swap] {
                let name = file_name(Offset::new(23_423_423), kind, suffix);
                assert!(name.starts_with("00000000000023423423."));
                assert_eq!(
                    parse_file_name(&name),
                    Some(FileName { offset: Offset::new(23_423_423), kind, suffix })
                );
            }
        }
        assert_eq!(file_name(Offset::new(i64::MAX), FileKind::Log, Suffix::None), "09223372036854775807.log");
    }

    #[test]
    fn foreign_names_are_not_ours() {
        for name in [
            "abc.log",
            ".log",
            "-1.log",
            "+1.log",
            "0.log.cut",
            "0.log.tmp",
            "0",
            "0.",
            "99999999999999999999.log",
            "leader-epoch-checkpoint",
        ] {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
        assert_eq!(parse_file_name("7.log").map(|n| n.offset), Some(Offset::new(7)));
    }
}
