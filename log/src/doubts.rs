//! What a log keeps although it contradicts itself: batches that are in the file, and so in the log, but that say of their
//! producers what cannot be.
//!
//! Nothing is cut for it: the records are whole. But what the log knows of the producer may be less than it was.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use kseg_format::{DecodeError, Offset};

use crate::producer_state::{DiscardedSnapshot, ProducerStateError};

/// Something in a log that was read and left out of what the log knows of its producers.
#[derive(Debug)]
pub struct Doubt {
    /// The file: a `.log` file, or a producer snapshot.
    pub path: PathBuf,
    /// Byte position of the batch in a `.log` file.
    pub position: Option<u64>,
    /// Base offset of the batch (of legacy batches the last one), or the snapshot's offset.
    pub offset: Offset,
    /// What was wrong with it.
    pub reason: DoubtReason,
}

/// Why something was left out.
#[derive(Debug)]
#[non_exhaustive]
pub enum DoubtReason {
    /// The batch contradicts what the batches before it say of its producer.
    Producer(ProducerStateError),
    /// The bytes are no batch that can be read; the offset is the one behind the batch before it.
    Batch(kseg_segment::Error),
    /// The control batch has no marker that can be read.
    Marker(DecodeError),
    /// The snapshot could not be read; it was removed, and an older one or the batches took its place.
    Snapshot(DiscardedSnapshot),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(position) = self.position {
            write!(f, "at position {position} (offset {}): ", self.offset)?;
        }
        match &self.reason {
            DoubtReason::Producer(e) => write!(f, "{e}; kept, and left out of the producer's state"),
            DoubtReason::Batch(e) => write!(f, "{e}; kept, and left out of its producer's state"),
            DoubtReason::Marker(e) => write!(f, "no transaction marker: {e}; kept, and ends no transaction"),
            DoubtReason::Snapshot(snapshot) => {
                write!(f, "{}; the producers were read from the batches", snapshot.reason)
            }
        }
    }
}

/// The first doubts of an opening, each once, and how many there were.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// By offset and position: a batch may be met more than once.
    first: BTreeMap<(Offset, Option<u64>), Doubt>,
    more: u64,
}

/// So many are kept: a log that is wrong throughout must not fill the memory.
const KEPT: usize = 100;

impl Doubts {
    pub(crate) fn add(&mut self, path: PathBuf, position: Option<u64>, offset: Offset, reason: DoubtReason) {
        if self.first.len() < KEPT {
            self.first.entry((offset, position)).or_insert(Doubt { path, position, offset, reason });
        } else if !self.first.contains_key(&(offset, position)) {
            self.more += 1;
        }
    }

    /// The doubts kept, ascending by offset, and the number of those beyond.
    pub(crate) fn into_parts(self) -> (Vec<Doubt>, u64) {
        (self.first.into_values().collect(), self.more)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use kseg_format::ProducerId;

    #[test]
    fn a_doubt_is_kept_once_and_so_many_at_most() {
        let mut doubts = Doubts::default();
        for round in 0..2 {
            for n in 0..KEPT as i64 + 7 {
                let reason = DoubtReason::Producer(ProducerStateError::UnknownTransaction {
                    producer: ProducerId::new(round),
                    first_offset: Offset::new(n),
                });
                doubts.add("0.log".into(), Some(n as u64), Offset::new(n), reason);
            }
        }
        let (first, more) = doubts.into_parts();
        assert_eq!((first.len(), more), (KEPT, 14));
        assert!(first.iter().all(|doubt| doubt.to_string().contains("producer 0")));
        assert!(first[3].to_string().starts_with("0.log: at position 3 (offset 3): "));
    }
}
