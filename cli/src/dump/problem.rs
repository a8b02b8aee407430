//! The problems that a dump can find, by code and name. Codes are never used for something else.

use kseg_format::DecodeError;

/// A kind of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    FileName,
    Content,
    Checksum,
    Framing,
    TornTail,
    OffsetOrder,
    Attributes,
    PreallocTail,
    Skipped,
    Record,
    IndexLength,
    IndexOrder,
    IndexMismatch,
    IndexPosition,
    IndexPadding,
    TimeLength,
    TimeOrder,
    TimeMismatch,
    TimeOffset,
    TimePadding,
    TxnLength,
    TxnOrder,
    TxnRange,
    TxnVersion,
    TxnMismatch,
    TxnMissing,
    Snapshot,
    SnapshotOffset,
    EpochOrder,
}

impl Problem {
    /// Code and name.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Problem::FileName => ("K001", "file-name"),
            Problem::Content => ("K002", "content"),
            Problem::Checksum => ("K010", "checksum"),
            Problem::Framing => ("K011", "framing"),
            Problem::TornTail => ("K012", "torn-tail"),
            Problem::OffsetOrder => ("K013", "offset-order"),
            Problem::Attributes => ("K014", "attributes"),
            Problem::PreallocTail => ("K017", "prealloc-tail"),
            Problem::Skipped => ("K018", "skipped"),
            Problem::Record => ("K020", "record"),
            Problem::IndexLength => ("K030", "index-length"),
            Problem::IndexOrder => ("K031", "index-order"),
            Problem::IndexMismatch => ("K032", "index-mismatch"),
            Problem::IndexPosition => ("K033", "index-position"),
            Problem::IndexPadding => ("K035", "index-padding"),
            Problem::TimeLength => ("K040", "time-length"),
            Problem::TimeOrder => ("K041", "time-order"),
            Problem::TimeMismatch => ("K042", "time-mismatch"),
            Problem::TimeOffset => ("K043", "time-offset"),
            Problem::TimePadding => ("K045", "time-padding"),
            Problem::TxnLength => ("K050", "txn-length"),
            Problem::TxnOrder => ("K051", "txn-order"),
            Problem::TxnRange => ("K052", "txn-range"),
            Problem::TxnVersion => ("K053", "txn-version"),
            Problem::TxnMismatch => ("K054", "txn-mismatch"),
            Problem::TxnMissing => ("K055", "txn-missing"),
            Problem::Snapshot => ("K060", "snapshot"),
            Problem::SnapshotOffset => ("K061", "snapshot-offset"),
            Problem::EpochOrder => ("K070", "epoch-order"),
        }
    }

    /// Whether it is told for information only.
    pub(super) fn is_info(self) -> bool {
        matches!(
            self,
            Problem::PreallocTail | Problem::Skipped | Problem::IndexPadding | Problem::TimePadding
        )
    }

    /// The kind of what is wrong with a batch's header or checksum.
    pub(super) fn of_batch(error: &DecodeError) -> Problem {
        match error {
            DecodeError::Checksum { .. } => Problem::Checksum,
            DecodeError::UnknownCodec { .. } => Problem::Attributes,
            _ => Problem::Framing,
        }
    }
}
