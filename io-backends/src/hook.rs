//! What the wrappers for tests share: a backend that asks a [`Hook`] before every call and tells it afterwards.
//!
//! A call is known by its [`Call`] and by the role of the file, the end of its name: `log`, `index`, `timeindex`.
//! Loads, stores and flushes of a mapped region go round every wrapper.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::backend::{
    Align, Backend, Entry, FileCaps, Held, MapAccess, Namespace, OpenHow, RawFile, Stat, write_all,
};
use crate::error::{IoError, Verdict};
use crate::map::MappedRegion;
use crate::op::{Done, Gather, Op};
use crate::std_names::beside;
use crate::sync::sleep;
use crate::ticket::Ticket;

/// A call to an engine, as the wrappers for tests tell them apart. Calls of [`RawFile`] come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Call {
    /// [`Op::Write`].
    Write,
    /// [`Op::Flush`].
    Flush,
    /// [`Op::SetLen`].
    SetLen,
    /// [`Op::Reserve`].
    Reserve,
    /// [`Op::Advise`].
    Advise,
    /// [`RawFile::read_at`].
    Read,
    /// [`RawFile::len`].
    Len,
    /// [`RawFile::map`].
    Map,
    /// [`RawFile::map_bytes`].
    MapBytes,
    /// [`Backend::open`].
    Open,
    /// [`Namespace::create_dir_all`].
    CreateDir,
    /// [`Namespace::list`].
    List,
    /// [`Namespace::stat`].
    Stat,
    /// [`Namespace::rename`]; the role is that of the old name.
    Rename,
    /// [`Namespace::remove`].
    Remove,
    /// [`Namespace::remove_dir_all`].
    RemoveDir,
    /// [`Namespace::sync_dir`].
    SyncDir,
    /// [`Namespace::sync_file`].
    SyncFile,
    /// [`Namespace::read`].
    ReadFile,
    /// [`Namespace::write`].
    WriteFile,
    /// [`Namespace::replace`].
    Replace,
    /// [`Namespace::lock`].
    Lock,
    /// [`Namespace::set_modified`].
    SetModified,
}

/// The role of a file: what its name has behind the last dot, or nothing.
pub(crate) fn role(path: &Path) -> &str {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit_once('.').map_or("", |(_, role)| role)
}

/// Looks at calls and changes them.
pub(crate) trait Hook: fmt::Debug + Send + Sync + 'static {
    /// A call about `size` bytes, 0 where it has no size, is to be made.
    fn before(&self, call: Call, path: &Path, size: u64) -> Plan;

    /// The call was made, and moved `bytes` bytes; `None` if it failed.
    fn after(&self, call: Call, path: &Path, bytes: Option<u64>);
}

/// What becomes of a call.
#[derive(Debug)]
pub(crate) enum Plan {
    /// It is made.
    Go,
    /// It is made for the first bytes only, and succeeds.
    Short(u64),
    /// It is made for the first bytes, if any, and then fails.
    Fail { first: u64, error: io::Error },
    /// It is made after a while.
    Late(Duration),
    /// It is not made, and succeeds all the same. Calls whose answer is more than success are made.
    Lose,
}

/// A backend behind a hook.
#[derive(Debug)]
pub(crate) struct Hooked<H> {
    inner: Arc<dyn Backend>,
    names: HookedNames<H>,
}

#[derive(Debug)]
struct HookedNames<H> {
    inner: Arc<dyn Backend>,
    hook: Arc<H>,
}

#[derive(Debug)]
struct HookedFile<H> {
    inner: Arc<dyn RawFile>,
    hook: Arc<H>,
    path: PathBuf,
}

impl<H: Hook> Hooked<H> {
    pub(crate) fn new(inner: Arc<dyn Backend>, hook: H) -> Self {
        let names = HookedNames { inner: Arc::clone(&inner), hook: Arc::new(hook) };
        Self { inner, names }
    }

    pub(crate) fn hook(&self) -> &H {
        &self.names.hook
    }
}

/// Makes a call that moves no bytes.
fn simple<H: Hook, T>(
    hook: &H,
    call: Call,
    path: &Path,
    make: impl FnOnce() -> Result<T, IoError>,
) -> Result<T, IoError> {
    sized(hook, call, path, 0, |_| 0, |_| make())
}

/// Makes a call that answers with success alone, or is lost.
fn losable<H: Hook>(
    hook: &H,
    call: Call,
    path: &Path,
    size: u64,
    make: impl FnOnce(u64) -> Result<(), IoError>,
) -> Result<(), IoError> {
    let result = match hook.before(call, path, size) {
        Plan::Lose => Ok(()),
        plan => carried_out(plan, call, path, size, make),
    };
    hook.after(call, path, result.as_ref().ok().map(|()| size));
    result
}

fn carried_out<T>(
    plan: Plan,
    call: Call,
    path: &Path,
    size: u64,
    make: impl FnOnce(u64) -> Result<T, IoError>,
) -> Result<T, IoError> {
    match plan {
        Plan::Go | Plan::Lose => make(size),
        Plan::Late(delay) => {
            sleep(delay);
            make(size)
        }
        Plan::Short(first) => make(first.min(size)),
        Plan::Fail { first: 0, error } => Err(failed(call, path, error)),
        Plan::Fail { first, error } => make(first.min(size)).and(Err(failed(call, path, error))),
    }
}

/// Makes a call about `size` bytes. `make` is given how many of them at most; `moved` tells how many they were.
fn sized<H: Hook, T>(
    hook: &H,
    call: Call,
    path: &Path,
    size: u64,
    moved: impl FnOnce(&T) -> u64,
    make: impl FnOnce(u64) -> Result<T, IoError>,
) -> Result<T, IoError> {
    let result = carried_out(hook.before(call, path, size), call, path, size, make);
    hook.after(call, path, result.as_ref().ok().map(moved));
    result
}

impl Call {
    /// What submitting `op` is.
    pub(crate) fn of(op: &Op) -> Call {
        match op {
            Op::Write { .. } => Call::Write,
            Op::Flush { .. } => Call::Flush,
            Op::SetLen { .. } => Call::SetLen,
            Op::Reserve { .. } => Call::Reserve,
            Op::Advise { .. } => Call::Advise,
        }
    }

    /// The operation, as errors name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Call::Write | Call::WriteFile => "write",
            Call::Read | Call::ReadFile => "read",
            Call::Flush | Call::SyncFile => "sync",
            Call::SyncDir => "sync directory",
            Call::SetLen => "set length",
            Call::Reserve => "reserve",
            Call::Advise => "advise",
            Call::Len => "length",
            Call::Map | Call::MapBytes => "map",
            Call::Open => "open",
            Call::CreateDir => "make directory",
            Call::List => "list",
            Call::Stat => "stat",
            Call::Rename => "rename",
            Call::Remove => "remove",
            Call::RemoveDir => "remove directory",
            Call::Replace => "replace",
            Call::Lock => "lock",
            Call::SetModified => "set time",
        }
    }
}

fn failed(call: Call, path: &Path, error: io::Error) -> IoError {
    let error = IoError::new(call.name(), path, error);
    match call {
        Call::Flush | Call::SyncFile | Call::SyncDir => error.with_verdict(Verdict::Damaged),
        _ => error,
    }
}

impl<H: Hook> Backend for Hooked<H> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn names(&self) -> &dyn Namespace {
        &self.names
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn RawFile>, IoError> {
        let hook = &self.names.hook;
        let inner = simple(&**hook, Call::Open, path, || self.inner.open(path, how))?;
        Ok(Arc::new(HookedFile { inner, hook: Arc::clone(hook), path: path.to_path_buf() }))
    }

    fn drive(&self, max_wait: Duration) -> Result<usize, IoError> {
        self.inner.drive(max_wait)
    }
}

impl<H: Hook> HookedNames<H> {
    fn names(&self) -> &dyn Namespace {
        self.inner.names()
    }

    fn simple<T>(
        &self,
        call: Call,
        path: &Path,
        make: impl FnOnce(&dyn Namespace) -> Result<T, IoError>,
    ) -> Result<T, IoError> {
        simple(&*self.hook, call, path, || make(self.names()))
    }

    fn losable(
        &self,
        call: Call,
        path: &Path,
        make: impl FnOnce(&dyn Namespace) -> Result<(), IoError>,
    ) -> Result<(), IoError> {
        losable(&*self.hook, call, path, 0, |_| make(self.names()))
    }
}

impl<H: Hook> Namespace for HookedNames<H> {
    fn create_dir_all(&self, dir: &Path) -> Result<(), IoError> {
        self.losable(Call::CreateDir, dir, |names| names.create_dir_all(dir))
    }

    fn list(&self, dir: &Path) -> Result<Vec<Entry>, IoError> {
        self.simple(Call::List, dir, |names| names.list(dir))
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>, IoError> {
        self.simple(Call::Stat, path, |names| names.stat(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), IoError> {
        self.losable(Call::Rename, from, |names| names.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<bool, IoError> {
        self.simple(Call::Remove, path, |names| names.remove(path))
    }

    fn remove_dir_all(&self, dir: &Path) -> Result<(), IoError> {
        self.losable(Call::RemoveDir, dir, |names| names.remove_dir_all(dir))
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), IoError> {
        self.losable(Call::SyncDir, dir, |names| names.sync_dir(dir))
    }

    fn sync_file(&self, path: &Path) -> Result<(), IoError> {
        self.losable(Call::SyncFile, path, |names| names.sync_file(path))
    }

    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, IoError> {
        let moved = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len) as u64;
        sized(&*self.hook, Call::ReadFile, path, 0, moved, |_| self.names().read(path, limit))
    }

    fn write(&self, path: &Path, contents: &[u8], sync: bool) -> Result<(), IoError> {
        let size = contents.len() as u64;
        losable(&*self.hook, Call::WriteFile, path, size, |count| {
            self.names().write(path, &contents[..count as usize], sync)
        })
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> Result<(), IoError> {
        let size = contents.len() as u64;
        losable(&*self.hook, Call::Replace, path, size, |count| {
            if count == size {
                return self.names().replace(path, contents);
            }
            // Stopped on the way: the old contents stay, and what was written lies beside them.
            let (_, beside) = beside(path)?;
            self.names().write(&beside, &contents[..count as usize], false)
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Held>, IoError> {
        self.simple(Call::Lock, path, |names| names.lock(path))
    }

    fn claim(&self, dir: &Path) -> Result<Box<dyn Held>, IoError> {
        // A matter of this process alone: no call to count or to fail.
        self.names().claim(dir)
    }

    fn set_modified(&self, path: &Path, to: SystemTime) -> Result<(), IoError> {
        self.losable(Call::SetModified, path, |names| names.set_modified(path, to))
    }
}

impl<H: Hook> HookedFile<H> {
    /// A write of which only the first bytes are made.
    fn write_first(&self, op: &Op, first: u64) -> Result<u64, IoError> {
        let Op::Write { at, data, .. } = op else { return Ok(0) };
        let mut parts = Vec::new();
        let mut left = first;
        for part in data.parts() {
            let count = left.min(part.len() as u64);
            parts.push(part.slice(..count as usize));
            left -= count;
        }
        write_all(&*self.inner, *at, Gather::from(parts)).map(|_| first)
    }

    /// The submission, with `after` told where the answer is there at once.
    fn passed_on(&self, call: Call, op: Op) -> Ticket {
        let mut ticket = self.inner.submit(op);
        match ticket.try_take() {
            Some(done) => {
                let bytes = if call == Call::Write { done.result.as_ref().ok().copied() } else { Some(0) };
                self.hook.after(call, &self.path, done.result.as_ref().ok().and(bytes));
                Ticket::ready(done)
            }
            None => {
                self.hook.after(call, &self.path, Some(0));
                ticket
            }
        }
    }
}

impl<H: Hook> RawFile for HookedFile<H> {
    fn path(&self) -> PathBuf {
        self.inner.path()
    }

    fn align(&self) -> Align {
        self.inner.align()
    }

    fn caps(&self) -> FileCaps {
        self.inner.caps()
    }

    fn submit(&self, op: Op) -> Ticket {
        let call = Call::of(&op);
        let size = if let Op::Write { data, .. } = &op { data.len() } else { 0 };
        let result = match self.hook.before(call, &self.path, size) {
            Plan::Go => return self.passed_on(call, op),
            Plan::Late(delay) => {
                sleep(delay);
                return self.passed_on(call, op);
            }
            Plan::Short(first) if first >= size => return self.passed_on(call, op),
            Plan::Short(first) => self.write_first(&op, first),
            Plan::Lose => match &op {
                Op::SetLen { len } => Ok(*len),
                Op::Reserve { .. } => self.inner.len(),
                _ => Ok(size),
            },
            Plan::Fail { first, error } => {
                self.write_first(&op, first.min(size)).and(Err(failed(call, &self.path, error)))
            }
        };
        self.hook.after(call, &self.path, result.as_ref().ok().copied());
        Ticket::ready(match op {
            Op::Write { data, .. } => Done::written(result, data),
            _ => Done::new(result),
        })
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        let size = into.len() as u64;
        sized(
            &*self.hook,
            Call::Read,
            &self.path,
            size,
            |count| *count as u64,
            |count| self.inner.read_at(&mut into[..count as usize], at),
        )
    }

    fn len(&self) -> Result<u64, IoError> {
        simple(&*self.hook, Call::Len, &self.path, || self.inner.len())
    }

    fn map(&self, len: usize, access: MapAccess) -> Result<MappedRegion, IoError> {
        simple(&*self.hook, Call::Map, &self.path, || self.inner.map(len, access))
    }

    fn map_bytes(&self, range: Range<u64>) -> Result<Bytes, IoError> {
        simple(&*self.hook, Call::MapBytes, &self.path, || self.inner.map_bytes(range))
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.as_fd()
    }
}

/// Lets a wrapper be the backend that it holds.
macro_rules! backend_by_field {
    ($wrapper:ty, $field:ident) => {
        impl Backend for $wrapper {
            fn name(&self) -> &str {
                self.$field.name()
            }

            fn names(&self) -> &dyn Namespace {
                self.$field.names()
            }

            fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn RawFile>, IoError> {
                self.$field.open(path, how)
            }

            fn drive(&self, max_wait: Duration) -> Result<usize, IoError> {
                self.$field.drive(max_wait)
            }
        }
    };
}
pub(crate) use backend_by_field;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_the_end_of_the_name() {
        for (path, expected) in [
            ("d-0/00000000000000000000.log", "log"),
            ("00000000000000000000.timeindex", "timeindex"),
            ("d.d/00000000000000000000.log.deleted", "deleted"),
            ("d/.lock", "lock"),
            ("d.d/recovery-point-offset-checkpoint", ""),
            ("", ""),
        ] {
            assert_eq!(role(Path::new(path)), expected);
        }
    }
}
