//! The steps of a thread's work, one by one, for models: they drive by hand what a round and its thread do.

use kseg_format::Offset;
use kseg_log::TopicPartition;

use super::Manager;
use super::work::Stop;
use crate::error::Result;
use crate::states::Ended;

/// What one set of threads is stopped by.
#[doc(hidden)]
#[derive(Debug)]
pub struct ModelThreads(Stop);

#[doc(hidden)]
impl ModelThreads {
    /// Threads that nobody has told to stop.
    #[allow(clippy::new_without_default, reason = "a model says what it makes")]
    pub fn new() -> Self {
        ModelThreads(Stop::new())
    }
}

#[doc(hidden)]
impl Manager {
    /// Takes a partition, as selection does; `false` where somebody has it.
    pub fn model_begin(&self, partition: &TopicPartition) -> bool {
        self.shared.lock().states.begin(partition)
    }

    /// Whether the work is to go on, as a round asks at each read.
    pub fn model_goes_on(&self, partition: &TopicPartition) -> bool {
        self.shared.lock().states.check(partition).is_ok()
    }

    /// Ends the work; `false` where it was told to stop.
    ///
    /// # Errors
    /// As the end of a round.
    pub fn model_done(&self, partition: &TopicPartition, end: Option<Offset>) -> Result<bool> {
        Ok(self.done_cleaning(partition, end)? == Ended::Whole)
    }

    /// What a thread does when there was nothing to do.
    pub fn model_back_off(&self, threads: &ModelThreads) {
        self.back_off(&threads.0);
    }

    /// What ends threads.
    pub fn model_stop(&self, threads: &ModelThreads) {
        self.tell_to_stop(&threads.0);
    }
}
