//! [`Watched`]: a wrapper that tells a function of every call.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, Namespace, OpenHow, RawFile};
use crate::error::IoError;
use crate::hook::{Call, Hook, Hooked, Plan, backend_by_field};

/// Where a call stands when a [`Watched`] backend tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It is about to be made, by this thread: it waits for as long as the function does.
    Before,
    /// It was made.
    Done,
    /// It failed.
    Failed,
}

/// A backend that tells a function of every call to another, before the call and after it.
///
/// The function runs on the thread that makes the call, with no lock of the wrapper's held: so it may note the order of
/// calls, or hold one back until something else has happened. It must not make calls to the backend itself.
///
/// ```
/// use std::path::Path;
/// use std::sync::{Arc, Mutex};
///
/// use kseg_io_backends::{Backend, Call, Moment, Watched, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let notes = seen.clone();
/// let watched = Watched::new(open("memory")?, move |moment, call, _path| {
///     if moment == Moment::Done {
///         notes.lock().unwrap().push(call);
///     }
/// });
/// watched.names().create_dir_all(Path::new("/d"))?;
/// watched.names().replace(Path::new("/d/file"), b"contents")?;
/// assert_eq!(*seen.lock().unwrap(), [Call::CreateDir, Call::Replace]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Watched {
    inner: Hooked<Watcher>,
}

struct Watcher(Box<Told>);

type Told = dyn Fn(Moment, Call, &Path) + Send + Sync;

impl Watched {
    /// A wrapper around `inner` that calls `told`.
    pub fn new(inner: Arc<dyn Backend>, told: impl Fn(Moment, Call, &Path) + Send + Sync + 'static) -> Self {
        Self { inner: Hooked::new(inner, Watcher(Box::new(told))) }
    }
}

backend_by_field!(Watched, inner);

impl Hook for Watcher {
    fn before(&self, call: Call, path: &Path, _size: u64) -> Plan {
        (self.0)(Moment::Before, call, path);
        Plan::Go
    }

    fn after(&self, call: Call, path: &Path, bytes: Option<u64>) {
        (self.0)(if bytes.is_some() { Moment::Done } else { Moment::Failed }, call, path);
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}
