//! Whether a data directory can still be trusted: the first error of its device takes all its logs out of service.
//! Beside it what the logs of the directory count.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_io_backends::{IoError, Verdict};
use tracing::error;

use crate::error::{Error, Result};
use crate::metrics::Meters;
use crate::pressure::PressureGauge;
use crate::sync::{AtomicBool, Mutex, Ordering};

/// The state of a directory, shared by all who use it.
pub(crate) struct Health {
    dir: PathBuf,
    /// Set once, after the cause has been noted.
    offline: AtomicBool,
    cause: Mutex<Option<String>>,
    /// How long appends and flushes take in the directory.
    pub(crate) pressure: Arc<PressureGauge>,
    /// What the directory's logs count.
    pub(crate) meters: Meters,
}

impl Health {
    pub(crate) fn new(dir: &Path) -> Self {
        Health {
            dir: dir.to_path_buf(),
            offline: AtomicBool::new(false),
            cause: Mutex::new(None),
            pressure: Arc::default(),
            meters: Meters::default(),
        }
    }

    /// # Errors
    /// [`Error::Offline`] once the directory has failed.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        // Pairs with the Release of `fail`: who sees the flag sees the cause.
        if self.offline.load(Ordering::Acquire) { Err(self.error()) } else { Ok(()) }
    }

    #[cold]
    fn error(&self) -> Error {
        Error::Offline { dir: self.dir.clone(), cause: self.cause().unwrap_or_default() }
    }

    /// Why the directory is out of service; `None` while it serves.
    pub(crate) fn cause(&self) -> Option<String> {
        self.cause.lock().clone()
    }

    /// Takes the directory out of service if `error` says that it cannot be trusted. A full disk does not: what is there
    /// can be read, and writing goes on when there is space.
    pub(crate) fn note(&self, error: &Error) {
        let io = match error {
            Error::Io(io) | Error::Segment { source: kseg_segment::Error::Io(io), .. } => io,
            _ => return,
        };
        if is_failure(io) {
            self.fail(error.to_string());
        }
    }

    pub(crate) fn fail(&self, cause: String) {
        let mut first = self.cause.lock();
        if first.is_none() {
            error!(dir = %self.dir.display(), cause, "data directory out of service");
            *first = Some(cause);
            self.offline.store(true, Ordering::Release);
        }
    }
}

/// Kafka takes any I/O error for one; a full disk, a call without sense and a file that is not for us to open are not the
/// device's fault. One that has become read-only is.
fn is_failure(io: &IoError) -> bool {
    use std::io::ErrorKind::{PermissionDenied, WouldBlock};
    !matches!(io.verdict(), Verdict::NoSpace | Verdict::Unsupported | Verdict::Misuse | Verdict::Fenced)
        && !matches!(io.kind(), PermissionDenied | WouldBlock)
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("dir", &self.dir).field("cause", &self.cause()).finish()
    }
}
