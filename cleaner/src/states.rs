//! Who has a partition: nobody, a cleaner, or those who hold cleaning off.
//!
//! Source: Kafka `LogCleanerManager`, `LogCleaningState`. Unlike there, a second one who wants a pause while a round is being
//! stopped waits with the first instead of failing.

use std::collections::HashMap;
use std::fmt;

use kseg_log::TopicPartition;

use crate::error::{Error, Result};

/// The state of a partition that somebody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "Kafka's three states")]
pub enum PartitionState {
    /// A round, or a deletion of old segments, is under way.
    InProgress,
    /// It is to stop; so many wait for that.
    Aborted(u32),
    /// Nothing may begin until it has been resumed so often.
    Paused(u32),
}

impl fmt::Display for PartitionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionState::InProgress => f.write_str("in progress"),
            PartitionState::Aborted(_) => f.write_str("being stopped"),
            PartitionState::Paused(by) => write!(f, "paused {by} times"),
        }
    }
}

/// How work on a partition ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nobody had anything against it.
    Whole,
    /// It was told to stop, and the partition is paused now.
    Aborted,
}

/// The states of all partitions; one that is not here is nobody's.
#[derive(Debug, Default)]
pub(crate) struct States(HashMap<TopicPartition, PartitionState>);

impl States {
    pub(crate) fn get(&self, partition: &TopicPartition) -> Option<PartitionState> {
        self.0.get(partition).copied()
    }

    /// Begins work; `false` where somebody has the partition.
    pub(crate) fn begin(&mut self, partition: &TopicPartition) -> bool {
        self.enter(partition, PartitionState::InProgress)
    }

    /// Pauses a partition that nobody has; `false` where somebody does.
    pub(crate) fn pause_free(&mut self, partition: &TopicPartition) -> bool {
        self.enter(partition, PartitionState::Paused(1))
    }

    fn enter(&mut self, partition: &TopicPartition, state: PartitionState) -> bool {
        if self.0.contains_key(partition) {
            return false;
        }
        self.0.insert(partition.clone(), state);
        true
    }

    /// Asks for a pause. `true` where it holds at once; otherwise it does when the work under way has ended.
    pub(crate) fn pause(&mut self, partition: &TopicPartition) -> bool {
        let (state, holds) = match self.get(partition) {
            None => (PartitionState::Paused(1), true),
            Some(PartitionState::Paused(by)) => (PartitionState::Paused(by + 1), true),
            Some(PartitionState::InProgress) => (PartitionState::Aborted(1), false),
            Some(PartitionState::Aborted(by)) => (PartitionState::Aborted(by + 1), false),
        };
        self.0.insert(partition.clone(), state);
        holds
    }

    /// # Errors
    /// [`Error::Aborted`] where the work is to stop.
    pub(crate) fn check(&self, partition: &TopicPartition) -> Result<()> {
        match self.get(partition) {
            Some(PartitionState::Aborted(_)) => Err(Error::Aborted { partition: partition.clone() }),
            _ => Ok(()),
        }
    }

    /// Ends work.
    ///
    /// # Errors
    /// [`Error::State`] where there is none.
    pub(crate) fn done(&mut self, partition: &TopicPartition) -> Result<Ended> {
        match self.get(partition) {
            Some(PartitionState::InProgress) => {
                self.0.remove(partition);
                Ok(Ended::Whole)
            }
            Some(PartitionState::Aborted(by)) => {
                self.0.insert(partition.clone(), PartitionState::Paused(by));
                Ok(Ended::Aborted)
            }
            other => Err(wrong(partition, "in progress or being stopped", other)),
        }
    }

    /// Takes one pause back.
    ///
    /// # Errors
    /// [`Error::State`] where there is none.
    pub(crate) fn resume(&mut self, partition: &TopicPartition) -> Result<()> {
        match self.get(partition) {
            Some(PartitionState::Paused(1)) => {
                self.0.remove(partition);
            }
            Some(PartitionState::Paused(by)) => {
                self.0.insert(partition.clone(), PartitionState::Paused(by - 1));
            }
            other => return Err(wrong(partition, "paused", other)),
        }
        Ok(())
    }
}

fn wrong(partition: &TopicPartition, expected: &'static str, state: Option<PartitionState>) -> Error {
    let found = state.map_or_else(|| "nobody's".to_owned(), |s| s.to_string());
    Error::State { partition: partition.clone(), expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p() -> TopicPartition {
        TopicPartition::new("t", 0)
    }

    #[test]
    fn cleaner_edge_120_to_123_work_ends_once_it_has_begun() {
        let mut states = States::default();
        assert_eq!(states.done(&p()).unwrap_err().kafka_name(), "IllegalStateException");
        assert!(states.pause(&p()));
        assert!(states.done(&p()).is_err());
        states.resume(&p()).unwrap();
        assert!(states.begin(&p()) && !states.begin(&p()));
        assert_eq!(states.done(&p()).unwrap(), Ended::Whole);
        assert_eq!(states.get(&p()), None);
        assert!(states.begin(&p()));
        states.check(&p()).unwrap();
        assert!(!states.pause(&p()));
        assert_eq!(states.check(&p()).unwrap_err().kafka_name(), "LogCleaningAbortedException");
        assert_eq!(states.done(&p()).unwrap(), Ended::Aborted);
        assert_eq!(states.get(&p()), Some(PartitionState::Paused(1)));
        states.check(&p()).unwrap();
    }

    #[test]
    fn cleaner_edge_127_and_128_pauses_count_up_and_down() {
        let mut states = States::default();
        assert!(states.pause_free(&p()) && !states.pause_free(&p()));
        assert!(states.pause(&p()));
        assert_eq!(states.get(&p()), Some(PartitionState::Paused(2)));
        assert!(!states.begin(&p()));
        states.resume(&p()).unwrap();
        states.resume(&p()).unwrap();
        assert_eq!(states.get(&p()), None);
    }

    #[test]
    fn cleaner_edge_129_a_resume_without_a_pause_is_refused_and_a_second_stop_waits_too() {
        let mut states = States::default();
        assert!(states.resume(&p()).is_err());
        assert!(states.begin(&p()));
        assert!(states.resume(&p()).is_err());
        assert!(!states.pause(&p()) && !states.pause(&p()));
        assert!(states.resume(&p()).is_err());
        states.done(&p()).unwrap();
        assert_eq!(states.get(&p()), Some(PartitionState::Paused(2)));
    }
}
