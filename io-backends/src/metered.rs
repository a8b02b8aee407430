//! [`Metered`]: a wrapper that counts calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, Namespace, OpenHow, RawFile};
use crate::error::IoError;
use crate::hook::{Call, Hook, Hooked, Plan, backend_by_field, role};
use crate::sync::Mutex;

/// A backend that counts the calls made to another, by kind and by the role of the file: the end of its name.
///
/// The count is of calls to the engine. One submitted operation of the engine `std` is one system call, but for
/// reserving space, and for reads that the kernel cuts short.
///
/// ```
/// use std::path::Path;
///
/// use kseg_io_backends::{Backend, Call, Metered, OpenHow, appender, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let metered = Metered::new(open("memory")?);
/// let log = appender(metered.open(Path::new("0.log"), OpenHow::Create)?, 0)?;
/// metered.reset();
/// log.append(bytes::Bytes::from_static(b"a batch").into())?;
/// assert_eq!(metered.total(), 1);
/// assert_eq!(metered.calls(Call::Write, "log").bytes, 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Metered {
    inner: Hooked<Meter>,
}

/// What [`Metered`] counts of one kind of call and one role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Calls, failed ones included.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Bytes that reads and writes moved.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Meter(Mutex<BTreeMap<(Call, String), Tally>>);

impl Metered {
    /// A wrapper around `inner` that has counted nothing yet.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner: Hooked::new(inner, Meter::default()) }
    }

    /// The count of one kind of call on files of one role.
    pub fn calls(&self, call: Call, role: &str) -> Tally {
        self.tallies().get(&(call, role.to_owned())).copied().unwrap_or_default()
    }

    /// Calls of every kind, on every file.
    pub fn total(&self) -> u64 {
        self.tallies().values().map(|tally| tally.calls).sum()
    }

    /// Every count there is, by kind and role.
    pub fn tallies(&self) -> BTreeMap<(Call, String), Tally> {
        self.inner.hook().0.lock().clone()
    }

    /// Forgets what was counted.
    pub fn reset(&self) {
        self.inner.hook().0.lock().clear();
    }
}

backend_by_field!(Metered, inner);

impl Hook for Meter {
    fn before(&self, _call: Call, _path: &Path, _size: u64) -> Plan {
        Plan::Go
    }

    fn after(&self, call: Call, path: &Path, bytes: Option<u64>) {
        let mut tallies = self.0.lock();
        let tally = tallies.entry((call, role(path).to_owned())).or_default();
        tally.calls += 1;
        tally.failed += u64::from(bytes.is_none());
        tally.bytes += bytes.unwrap_or(0);
    }
}
