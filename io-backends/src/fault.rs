//! [`Faulty`]: a wrapper that makes chosen calls fail or fall short.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::backend::{Backend, Namespace, OpenHow, RawFile};
use crate::error::IoError;
use crate::hook::{Call, Hook, Hooked, Plan, backend_by_field, role};
use crate::sync::Mutex;

/// A backend that passes calls on to another, but for those that a [`Fault`] picks, and runs out of space when told
/// to.
///
/// ```
/// use std::path::{Path, PathBuf};
///
/// use kseg_io_backends::{Backend, Call, Fault, Faulty, OpenHow, Verdict, appender, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let faulty = Faulty::new(open("memory")?);
/// let log = appender(faulty.open(Path::new("0.log"), OpenHow::Create)?, 0)?;
/// faulty.inject(Fault::on(Call::Flush).role("log").nth(2).error(Fault::EIO));
/// log.append(bytes::Bytes::from_static(b"one").into())?;
/// log.flush()?;
/// log.append(bytes::Bytes::from_static(b"two").into())?;
/// assert_eq!(log.flush().unwrap_err().verdict(), Verdict::Damaged);
/// assert_eq!(log.flush().unwrap_err().verdict(), Verdict::Fenced);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Faulty {
    inner: Hooked<Faults>,
}

/// Which calls go wrong, and how. By default the next one of its kind, on any file, fails with [`Fault::EIO`].
#[derive(Debug, Clone)]
#[must_use = "it does nothing until it is injected"]
pub struct Fault {
    /// `None` for any.
    call: Option<Call>,
    role: Option<String>,
    /// Only on this path, or below it.
    under: Option<PathBuf>,
    /// Calls that match and still go well.
    spared: u64,
    /// Calls that match and go wrong after those.
    left: u64,
    effect: Effect,
}

#[derive(Debug, Clone, Copy)]
enum Effect {
    Short(u64),
    Late(Duration),
    Lost,
    Error { first: u64, number: i32 },
}

#[derive(Debug, Default)]
struct Faults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    faults: Vec<Fault>,
    fired: u64,
    space: Option<u64>,
}

impl Faulty {
    /// A wrapper around `inner` under which everything goes well.
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner: Hooked::new(inner, Faults::default()) }
    }

    /// Adds a fault. Where several pick the same call, the one added first has its way, and the others do not count
    /// the call.
    pub fn inject(&self, fault: Fault) {
        self.inner.hook().0.lock().faults.push(fault);
    }

    /// Takes all faults back.
    pub fn clear(&self) {
        self.inner.hook().0.lock().faults.clear();
    }

    /// How many calls went wrong so far, those for lack of space included.
    pub fn fired(&self) -> u64 {
        self.inner.hook().0.lock().fired
    }

    /// Leaves space for so many more written bytes; `None` for any number, which is how it begins. A write that
    /// finds less is short, one that finds nothing fails with [`Fault::ENOSPC`]. Space does not come back by itself.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.inner.hook().0.lock().space = bytes;
    }
}

backend_by_field!(Faulty, inner);

impl Fault {
    /// Error number of a device that fails.
    pub const EIO: i32 = Errno::IO.raw_os_error();
    /// Error number of a full disk.
    pub const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
    /// Error number of a missing permission.
    pub const EACCES: i32 = Errno::ACCESS.raw_os_error();

    /// A fault of calls of this kind.
    pub fn on(call: Call) -> Self {
        Self { call: Some(call), ..Self::on_any() }
    }

    /// A fault of calls of every kind.
    pub fn on_any() -> Self {
        let effect = Effect::Error { first: 0, number: Self::EIO };
        Self { call: None, role: None, under: None, spared: 0, left: 1, effect }
    }

    /// Only on files of this role: the end of the name.
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.role = Some(role.into());
        self
    }

    /// Only on this path, and on what lies below it.
    pub fn under(mut self, path: impl Into<PathBuf>) -> Self {
        self.under = Some(path.into());
        self
    }

    /// Begins with the `n`-th matching call after it is injected; the first is 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.spared = n.saturating_sub(1);
        self
    }

    /// Goes wrong so many times.
    pub fn times(mut self, times: u64) -> Self {
        self.left = times;
        self
    }

    /// Goes wrong from then on.
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }

    /// Moves at most `bytes` bytes and succeeds: a short read or write. 0 is a write that claims to have written
    /// nothing. Calls that are not about bytes, and whole-file ones, go well.
    pub fn short(mut self, bytes: u64) -> Self {
        self.effect = Effect::Short(bytes);
        self
    }

    /// Does nothing and succeeds, as a device that lies. Calls whose answer is more than success, reads among them, are
    /// made.
    pub fn lost(mut self) -> Self {
        self.effect = Effect::Lost;
        self
    }

    /// Is made after `delay`, on the thread that makes the call.
    pub fn late(mut self, delay: Duration) -> Self {
        self.effect = Effect::Late(delay);
        self
    }

    /// Fails with an error number, without doing anything.
    pub fn error(self, number: i32) -> Self {
        self.error_after(0, number)
    }

    /// Does it for the first `bytes` bytes, then fails with an error number. Of [`Call::Replace`], these bytes are
    /// in the temporary file.
    pub fn error_after(mut self, bytes: u64, number: i32) -> Self {
        self.effect = Effect::Error { first: bytes, number };
        self
    }

    fn matches(&self, call: Call, path: &Path) -> bool {
        self.call.is_none_or(|wanted| wanted == call)
            && self.role.as_ref().is_none_or(|wanted| wanted == role(path))
            && self.under.as_ref().is_none_or(|above| path.starts_with(above))
    }
}

impl Hook for Faults {
    fn before(&self, call: Call, path: &Path, size: u64) -> Plan {
        let mut state = self.0.lock();
        let state = &mut *state;
        if let Some(plan) = state.faults.iter_mut().find_map(|fault| fault.strike(call, path)) {
            state.fired += 1;
            return plan;
        }
        let whole = matches!(call, Call::WriteFile | Call::Replace);
        match &mut state.space {
            Some(space) if whole || call == Call::Write => {
                let first = size.min(*space);
                *space -= first;
                if first == size {
                    return Plan::Go;
                }
                state.fired += 1;
                if first == 0 || whole {
                    Plan::Fail { first, error: io::Error::from_raw_os_error(Fault::ENOSPC) }
                } else {
                    Plan::Short(first)
                }
            }
            _ => Plan::Go,
        }
    }

    fn after(&self, _call: Call, _path: &Path, _bytes: Option<u64>) {}
}

impl Fault {
    /// What becomes of this call, if the fault picks it.
    fn strike(&mut self, call: Call, path: &Path) -> Option<Plan> {
        if self.left == 0 || !self.matches(call, path) {
            return None;
        }
        if self.spared > 0 {
            self.spared -= 1;
            return None;
        }
        match self.effect {
            Effect::Short(_) if !matches!(call, Call::Read | Call::Write) => None,
            Effect::Short(bytes) => {
                self.left -= 1;
                Some(Plan::Short(bytes))
            }
            Effect::Late(delay) => {
                self.left -= 1;
                Some(Plan::Late(delay))
            }
            Effect::Lost => {
                self.left -= 1;
                Some(Plan::Lose)
            }
            Effect::Error { first, number } => {
                self.left -= 1;
                Some(Plan::Fail { first, error: io::Error::from_raw_os_error(number) })
            }
        }
    }
}
