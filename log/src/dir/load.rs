//! Opening all logs of a directory at once, on several threads.

use std::fmt;
use std::sync::Arc;

use kseg_format::{TopicPartition, Uuid};

use super::LogDir;
use tracing::{error, info};

use crate::error::{Error, Result};
use crate::log::Log;
use crate::sync::{AtomicUsize, Mutex, Ordering, for_each};

/// What to do while all logs of a directory are opened.
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// Threads that open the logs of a directory (`num.recovery.threads.per.data.dir`). Default: 2; 0 is taken for 1.
    pub threads: usize,
    /// Says whether a partition, of which the folder tells the topic's id, is none of this node's and has to be set aside.
    /// Default: none is.
    pub is_stray: &'a (dyn Fn(&TopicPartition, Option<Uuid>) -> bool + Sync),
    /// Is told of each log when it has been opened, on the thread that did it. Default: nothing.
    pub progress: &'a (dyn Fn(Loaded<'_>) + Sync),
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        LoadOptions { threads: 2, is_stray: &|_, _| false, progress: &|_| () }
    }
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// A log that has been opened, or could not be.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'a> {
    /// The partition.
    pub partition: &'a TopicPartition,
    /// How many logs of its directory have been looked at, this one included.
    pub done: usize,
    /// How many that has.
    pub of: usize,
    /// The log, with its load report; or why it could not be opened.
    pub result: Result<&'a Log, &'a Error>,
}

/// What opening all logs came to.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LoadSummary {
    /// How many logs are open.
    pub opened: usize,
    /// Partitions that were set aside.
    pub stray: Vec<TopicPartition>,
    /// Logs that could not be opened, with the error.
    pub failed: Vec<(TopicPartition, Error)>,
}

impl LoadSummary {
    /// By partition: in which order threads came to them is chance.
    pub(crate) fn sort(&mut self) {
        self.stray.sort();
        self.failed.sort_by(|a, b| a.0.cmp(&b.0));
    }
}

impl LogDir {
    /// Opens every log of the directory, on several threads, whatever becomes of the others.
    ///
    /// After an orderly stop no log data is read; else each log is recovered from its recovery point on.
    ///
    /// # Errors
    /// [`Error::Io`] where the directory cannot be listed; [`Error::Offline`]. What becomes of one log is in the summary.
    ///
    /// Source: Kafka `LogManager.loadLogs`.
    pub fn load_all(&self, options: LoadOptions<'_>) -> Result<LoadSummary> {
        let inside = self.inner.serve()?;
        let partitions = self.inner.noted(self.partitions())?;
        let done = AtomicUsize::new(0);
        let summary = Mutex::new(LoadSummary::default());
        for_each(options.threads, &partitions, |partition| {
            let _inside = inside.here();
            let loaded = self.load_one(partition, &options);
            // Counted, and nothing told by it: Relaxed.
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            let log = match &loaded {
                Ok(None) => {
                    summary.lock().stray.push(partition.clone());
                    return;
                }
                Ok(Some(log)) => Ok(&**log),
                Err(error) => Err(error),
            };
            (options.progress)(Loaded { partition, done, of: partitions.len(), result: log });
            let mut summary = summary.lock();
            match loaded {
                Ok(_) => summary.opened += 1,
                Err(error) => summary.failed.push((partition.clone(), error)),
            }
        });
        let mut summary = std::mem::take(&mut *summary.lock());
        for (partition, error) in &summary.failed {
            error!(%partition, %error, "log not opened");
        }
        let (dir, opened) = (self.path().display(), summary.opened);
        info!(%dir, opened, failed = summary.failed.len(), clean = self.was_clean(), "all logs loaded");
        summary.sort();
        Ok(summary)
    }

    /// `None` for one that was set aside.
    fn load_one(&self, partition: &TopicPartition, options: &LoadOptions<'_>) -> Result<Option<Arc<Log>>> {
        if (options.is_stray)(partition, self.inner.noted(self.topic_id(partition))?) {
            self.set_aside(partition)?;
            return Ok(None);
        }
        self.get(partition)
    }
}
