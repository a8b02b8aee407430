//! What background work could not do.
//!
//! Nobody waits for that work, so nobody can be given its error: the last one is kept for whoever asks.

use std::fmt;
use std::sync::Arc;
use tracing::warn;

use crate::clock::Clock;
use crate::sync::Mutex;

/// An error of work that a log does in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trouble {
    /// What was done: `flush-log`, `delete-file`, `delete-producer-snapshot` or `leader-epoch-cache-flush`, as Kafka names
    /// its tasks; `roll` where a file of the new segment's name was in the way;
    /// `rebuild-producers` where a truncation found a batch that contradicts its producer's state.
    pub task: &'static str,
    /// The clock's time, in milliseconds.
    pub at_ms: i64,
    /// The error in words, with the file.
    pub error: String,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.task, self.error)
    }
}

/// Where background work leaves its errors; clones share it.
#[derive(Clone)]
pub(crate) struct Troubles {
    last: Arc<Mutex<Option<Trouble>>>,
    clock: Arc<dyn Clock>,
}

impl Troubles {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Troubles {
        Troubles { last: Arc::new(Mutex::new(None)), clock }
    }

    /// Keeps the error of a result, if it is one.
    pub(crate) fn note<T>(&self, task: &'static str, result: Result<T, impl fmt::Display>) {
        if let Err(error) = result {
            warn!(task, %error, "background work failed");
            let trouble = Trouble { task, at_ms: self.clock.now_ms(), error: error.to_string() };
            *self.last.lock() = Some(trouble);
        }
    }

    pub(crate) fn last(&self) -> Option<Trouble> {
        self.last.lock().clone()
    }
}
