//! The table of `kafka/differences.md` as the comparison reads it, and which stories are held.
//!
//! A story that is not listed here is run all the same, and reported when it agrees, so that it can be added.

use super::compare::View;

/// Error classes that are accidents of the JVM (row 16): that kseg refuses too is all that is asked.
pub(crate) const ACCIDENTS: &[&str] = &[
    "OutOfMemoryError",
    "BufferUnderflowException",
    "NegativeArraySizeException",
    "IndexOutOfBoundsException",
    "ArrayIndexOutOfBoundsException",
    "UnsupportedOperationException",
    "SnappyError",
];

/// Stories whose every answer and every file agree with Kafka's.
pub(crate) const HELD: &[&str] = &[
    "aborted-bound",
    "append-empty",
    "clean-full-map",
    "clean-null-keys",
    "clean-plain",
    "clean-transactions",
    "codec-gzip",
    "codec-lz4",
    "codec-none",
    "codec-snappy",
    "codec-zstd",
    "epochs",
    "epochs-refused",
    "expired-truncate",
    "idempotence",
    "idempotence-wrap",
    "legacy-refused",
    "legacy-v0",
    "legacy-v1",
    "marks-in-gaps",
    "recover-clean-flipped-byte",
    "recover-clean-flipped-early",
    "recover-clean-garbage-index",
    "recover-clean-garbage-snapshot",
    "recover-clean-garbage-timeindex",
    "recover-clean-no-epochs",
    "recover-clean-no-index",
    "recover-clean-no-index-below-start",
    "recover-clean-no-snapshot",
    "recover-clean-no-snapshot-after-roll",
    "recover-clean-short-index",
    "recover-clean-zero-tail",
    "recover-crash-flipped-byte",
    "recover-crash-flipped-early",
    "recover-crash-garbage-index",
    "recover-crash-garbage-snapshot",
    "recover-crash-garbage-timeindex",
    "recover-crash-no-epochs",
    "recover-crash-no-index",
    "recover-crash-no-snapshot",
    "recover-crash-sealed-zeros",
    "recover-crash-short-index",
    "recover-crash-split",
    "recover-crash-torn-tail",
    "recover-crash-zero-tail",
    "recover-leftovers",
    "recover-preallocated",
    "retention-size",
    "retention-time",
    "roll-bytes",
    "roll-offsets",
    "roll-refused",
    "roll-size",
    "roll-time",
    "sparse",
    "start-offset",
    "timestamps",
    "timestamps-none",
    "timestamps-refused",
    "transactions",
    "transactions-v2",
    "truncate",
    "verification",
];

/// Stories that agree in all but the producers: after a crash Kafka reads the last segment again behind its snapshot, which
/// tells of one batch a producer; after an orderly stop kseg reads it behind the one before.
pub(crate) const HELD_WITHOUT_PRODUCERS: &[&str] = &["recover-clean-torn-tail"];

/// Stories that need an operation that is not there at all: not run, only their folders are opened.
pub(crate) const NOT_RUN: &[&str] = &[];

/// How much of a story is held, if any of it is.
pub(crate) fn held(story: &str) -> Option<View> {
    if HELD.contains(&story) {
        Some(View::Whole)
    } else if HELD_WITHOUT_PRODUCERS.contains(&story) {
        Some(View::WithoutProducers)
    } else {
        None
    }
}

/// A story whose answers are meant to be those of another one, from the line after its last `damage` on.
#[derive(Debug)]
pub(crate) struct Instead {
    /// The row of `kafka/differences.md`.
    pub(crate) row: u32,
    pub(crate) story: &'static str,
    /// The story that Kafka answers as kseg answers this one.
    pub(crate) answers_of: &'static str,
    /// The recovery point that `open` and `state` show, which is another one after a clean stop.
    pub(crate) recovery_point: i64,
}

/// Rows 1, 2 and 4: after a clean stop, kseg finds and mends what Kafka mends only after a crash.
pub(crate) const INSTEAD: &[Instead] = &[
    Instead {
        row: 1,
        story: "recover-clean-zero-tail",
        answers_of: "recover-crash-zero-tail",
        recovery_point: 18,
    },
    Instead {
        row: 2,
        story: "recover-clean-torn-tail",
        answers_of: "recover-crash-torn-tail",
        recovery_point: 16,
    },
    Instead {
        row: 4,
        story: "recover-clean-garbage-index",
        answers_of: "recover-crash-garbage-index",
        recovery_point: 18,
    },
    Instead {
        row: 4,
        story: "recover-clean-garbage-timeindex",
        answers_of: "recover-crash-garbage-timeindex",
        recovery_point: 18,
    },
    Instead {
        row: 4,
        story: "recover-clean-short-index",
        answers_of: "recover-crash-short-index",
        recovery_point: 18,
    },
];

/// Row 3: stories in which Kafka deletes segments behind damage that kseg keeps aside.
pub(crate) const KEPT_ASIDE: &[&str] = &["recover-crash-flipped-byte", "recover-crash-flipped-early"];

/// Row 15: what lies behind the entries of an index of an open or abandoned log. Stories in which Kafka leaves old
/// entries there. Random stories are compared like that too.
pub(crate) const STALE_INDEX_BYTES: &[&str] = &["truncate"];

/// Stories in which Kafka's lookups leave traces that kseg's do not. Row 6: a mark comes to lie in a gap between batches, where
/// kseg's stays and Kafka's moves to the batch behind the gap; in random stories where a segment begins with a gap and the log
/// start moves to its base. Row 32: a committed read that ends where an index entry is.
pub(crate) const LOOKUPS: &[&str] = &["aborted-bound", "marks-in-gaps"];

#[cfg(test)]
mod tests {
    use super::{HELD, HELD_WITHOUT_PRODUCERS, INSTEAD, KEPT_ASIDE, LOOKUPS, NOT_RUN, STALE_INDEX_BYTES};
    use crate::conformance::story;

    #[test]
    fn every_story_that_is_named_exists() {
        let lists = [HELD, HELD_WITHOUT_PRODUCERS, KEPT_ASIDE, LOOKUPS, NOT_RUN, STALE_INDEX_BYTES];
        let named = lists.into_iter().flatten().copied();
        let instead = INSTEAD.iter().flat_map(|i| [i.story, i.answers_of]);
        let there = story::names().unwrap();
        for name in named.chain(instead) {
            assert!(there.iter().any(|n| n == name), "no story {name}");
        }
    }

    #[test]
    fn every_row_that_is_named_stands_in_the_table() {
        let table = std::fs::read_to_string(story::harness().join("differences.md")).unwrap();
        for row in INSTEAD.iter().map(|i| i.row).chain([3, 6, 15, 16, 29, 30, 32]) {
            assert!(table.contains(&format!("\n| {row} | ")), "no row {row}");
        }
    }
}
