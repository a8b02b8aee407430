//! The three traits an engine implements: [`Backend`], [`Namespace`], [`RawFile`].
//!
//! They are object-safe and every method is required, but for [`RawFile::write`], which says the same as a submission: a wrapper
//! that forgets one does not compile, and no engine inherits an answer that is wrong for it. Nothing here knows what a record is.
//!
//! Rules that hold for every engine:
//! - A file is its inode, not its name: handles and maps stay usable after a rename or a removal.
//! - All methods take `&self` and may be called from several threads. Order among writes is the business of whoever
//!   writes; an engine may complete operations in any order.
//! - Durability is asked for. Without a flush, and for names without a directory sync, power loss may take back
//!   anything since the last one, in any order.
//! - `EINTR` is never seen by a caller.

use std::ffi::OsString;
use std::fmt::Debug;
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::error::IoError;
use crate::map::MappedRegion;
use crate::op::{Done, Gather, Op, Through};
use crate::plan::AppendPlan;
use crate::ticket::Ticket;

/// An engine: how files are named, opened and written. Chosen at run time, shared by everything that stands on it.
pub trait Backend: Debug + Send + Sync + 'static {
    /// What it is called in a specification: `"std"`, `"memory"`.
    fn name(&self) -> &str;

    /// Directories and whole small files.
    fn names(&self) -> &dyn Namespace;

    /// Opens a file. Never changes its contents.
    ///
    /// # Errors
    /// [`Verdict::Absent`](crate::Verdict::Absent) for a file, or its directory, that is not there;
    /// [`Verdict::Misuse`](crate::Verdict::Misuse) for a directory, and for [`OpenHow::CreateNew`] on a file that
    /// exists; [`Verdict::Denied`](crate::Verdict::Denied) without permission.
    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn RawFile>, IoError>;

    /// Processes completions on the calling thread, waiting at most `max_wait` for the first, and returns how many
    /// there were. Engines whose [`RawFile::submit`] returns ready tickets return 0 at once.
    ///
    /// # Errors
    /// When the engine itself is broken; the error of one operation goes to its ticket.
    fn drive(&self, max_wait: Duration) -> Result<usize, IoError>;
}

/// How [`Backend::open`] treats a file that exists or does not. Complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpenHow {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// To read and write; made empty if it is missing, and kept as it is if it is not.
    Create,
    /// To read and write; an error if it exists.
    CreateNew,
}

/// Names: directories, renames, and small files that are read and written whole.
///
/// A name is durable after [`Namespace::sync_dir`] of its directory and not before; the contents of a file are a
/// matter of their own.
pub trait Namespace: Debug + Send + Sync {
    /// Makes a directory and its missing parents. One that exists already is fine. Their names are durable once the directories
    /// above them are synced: `create_dir_durably` does both.
    fn create_dir_all(&self, dir: &Path) -> Result<(), IoError>;

    /// What is in a directory, sorted by name. An entry that vanishes meanwhile is left out.
    fn list(&self, dir: &Path) -> Result<Vec<Entry>, IoError>;

    /// Kind, length and time of last change; `None` where nothing has this name. Symbolic links are followed.
    fn stat(&self, path: &Path) -> Result<Option<Stat>, IoError>;

    /// Gives a file or a directory another name, replacing a file, or an empty directory, of that name. Atomic
    /// beside readers: they see the old one or the new one. Open handles stay what they are.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), IoError>;

    /// Removes a file; `false` if there was none. Open handles and maps stay readable.
    fn remove(&self, path: &Path) -> Result<bool, IoError>;

    /// Removes a directory with all that is in it. One that is absent is fine. Not atomic.
    fn remove_dir_all(&self, dir: &Path) -> Result<(), IoError>;

    /// Makes durable which names a directory has.
    ///
    /// # Errors
    /// [`Verdict::Absent`](crate::Verdict::Absent) for one that is gone: the caller knows whether that is a
    /// mistake.
    fn sync_dir(&self, dir: &Path) -> Result<(), IoError>;

    /// Makes durable a file's contents and length, through a handle of its own. For files without a writer: it does
    /// not see errors that another handle's writes ran into before.
    fn sync_file(&self, path: &Path) -> Result<(), IoError>;

    /// The whole contents of a file; `None` where there is none.
    ///
    /// # Errors
    /// One longer than `limit` bytes is refused before memory is taken for it, with the kind
    /// [`FileTooLarge`](std::io::ErrorKind::FileTooLarge).
    fn read(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, IoError>;

    /// Writes a whole file, in place, made if missing; durable in contents if `sync`. Neither atomic beside readers
    /// nor beside power loss: see [`Namespace::replace`].
    fn write(&self, path: &Path, contents: &[u8], sync: bool) -> Result<(), IoError>;

    /// Writes a whole file so that at every moment, power loss included, its name leads to the old contents or to
    /// the new ones: writes `<name>.tmp`, syncs it, renames it, syncs the directory. Durable on return. One call at a time
    /// for a name: two would write the same file beside it.
    ///
    /// # Errors
    /// The old contents are still there, and `<name>.tmp` may be; unless only the last step failed: then the new
    /// contents are there, and not known to be durable.
    fn replace(&self, path: &Path, contents: &[u8]) -> Result<(), IoError>;

    /// Locks a file, made if missing, against other processes and against this one, until the result is dropped.
    /// Does not wait. The file stays.
    ///
    /// # Errors
    /// Kind [`WouldBlock`](std::io::ErrorKind::WouldBlock) when it is held, by whomever.
    fn lock(&self, path: &Path) -> Result<Box<dyn Held>, IoError>;

    /// Claims a directory, which is there, against everybody else in this process, until the result is dropped. Whatever path
    /// leads to it, and whatever name it gets meanwhile. Does not wait, takes no descriptor, and leaves nothing on the disk, so
    /// other processes do not see it: they are what [`Namespace::lock`] is for.
    ///
    /// # Errors
    /// Kind [`WouldBlock`](std::io::ErrorKind::WouldBlock) when it is claimed.
    fn claim(&self, dir: &Path) -> Result<Box<dyn Held>, IoError>;

    /// Sets the time of last change that [`Namespace::stat`] tells, to the resolution of the file system.
    fn set_modified(&self, path: &Path, to: SystemTime) -> Result<(), IoError>;
}

impl<'n> dyn Namespace + 'n {
    /// As [`Namespace::create_dir_all`], and the names of the directories that were missing are durable on return: a file in one
    /// whose name is lost is lost with it, however well it was synced itself.
    ///
    /// # Errors
    /// Some of the directories may be there.
    pub fn create_dir_durably(&self, dir: &Path) -> Result<(), IoError> {
        let (mut above, mut there) = (Vec::new(), dir);
        while self.stat(there)?.is_none() {
            there = match there.parent() {
                Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
                Some(parent) => parent,
                None => break,
            };
            above.push(there);
        }
        self.create_dir_all(dir)?;
        above.into_iter().try_for_each(|dir| self.sync_dir(dir))
    }
}

/// A lock on a file, from [`Namespace::lock`], or a claim, from [`Namespace::claim`]; dropping it gives it back.
pub trait Held: Debug + Send + Sync {}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The name, without the directory.
    pub name: OsString,
    /// What it is; symbolic links are followed.
    pub kind: Kind,
    /// Bytes of a file; of anything else, whatever the file system says.
    pub len: u64,
}

impl Entry {
    /// An entry, for engines outside this crate.
    pub fn new(name: impl Into<OsString>, kind: Kind, len: u64) -> Self {
        Self { name: name.into(), kind, len }
    }
}

/// What a name leads to. Complete: [`Kind::Other`] is the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// Anything else: a pipe, a device, a link to nowhere.
    Other,
}

/// What [`Namespace::stat`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file; of anything else, whatever the file system says.
    pub len: u64,
    /// When the contents changed last. Changes through a memory map may move it late or not at all.
    pub modified: SystemTime,
}

impl Stat {
    /// A stat, for engines outside this crate.
    pub fn new(kind: Kind, len: u64, modified: SystemTime) -> Self {
        Self { kind, len, modified }
    }
}

/// One open file: operations at positions. Appending, and what may be read, are the business of the
/// [`Appender`](crate::Appender) above.
#[allow(clippy::len_without_is_empty, reason = "the length is asked of the file system, and may fail")]
pub trait RawFile: Debug + Send + Sync {
    /// The path by which it was opened; renames are not followed.
    fn path(&self) -> PathBuf;

    /// What positions, sizes and addresses of writes must be multiples of, but for those that
    /// [`AppendPlan::unaligned`](crate::AppendPlan::unaligned) allows. Fixed for the life of the handle.
    fn align(&self) -> Align;

    /// What this file can do beyond the required. Fixed for the life of the handle.
    fn caps(&self) -> FileCaps;

    /// Starts an operation; [`Op`] says what each does and answers. Blocking engines do it on the calling thread
    /// and return a ready ticket. Two operations that were not waited for may complete in either order.
    fn submit(&self, op: Op) -> Ticket;

    /// Submits an [`Op::Write`] and waits for it. A blocking engine has no need of an operation and a ticket for that.
    fn write(&self, at: u64, data: Gather, through: Through) -> Done {
        self.submit(Op::Write { at, data, through }).wait()
    }

    /// Reads at `at` until `into` is full or the file ends, and returns how many bytes that were: fewer than asked
    /// only at the end of the file, 0 at or behind it. Holes read as zeros. Bytes of a write that is going on may be
    /// old or new.
    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError>;

    /// The length the file system knows, reserved space included; what counts as data is for the layers above.
    fn len(&self) -> Result<u64, IoError>;

    /// Maps the first `len` bytes as words that can be loaded, and stored unless `access` is [`MapAccess::Read`].
    ///
    /// What is stored is what [`RawFile::read_at`] returns, and what is written is what is loaded. The region stays
    /// usable after the handle is dropped and the file removed. Cutting the file detaches the part of the region
    /// that was cut: what is loaded from there is unspecified, what is stored there is lost; map again after growing.
    ///
    /// # Errors
    /// [`Verdict::Misuse`](crate::Verdict::Misuse) for a `len` beyond the length, and for a writable map where views
    /// of [`RawFile::map_bytes`] are alive.
    fn map(&self, len: usize, access: MapAccess) -> Result<MappedRegion, IoError>;

    /// The bytes of `range` as a view that does not change, without a copy where the engine can.
    ///
    /// For sealed files only: while the view is alive, this engine refuses to write, cut or map for writing what it
    /// shows; where writes go past the page cache, not that the block which was only begun is written again with what
    /// follows. The engine `memory` copies.
    ///
    /// # Errors
    /// [`Verdict::Misuse`](crate::Verdict::Misuse) for a range beyond the length, or one that overlaps a writable
    /// map.
    fn map_bytes(&self, range: Range<u64>) -> Result<Bytes, IoError>;

    /// The file's descriptor, to send ranges of it to a socket by the kernel; `None` where there is none. Writing
    /// or cutting the file through it goes round every check of this crate and is not allowed.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// What [`RawFile::map`] is for. Complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapAccess {
    /// Loads only.
    Read,
    /// Loads and stores.
    Write,
}

/// Alignments of one file, in bytes. All 1 for files that go through the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Align {
    /// Of positions and sizes of writes.
    pub offset: NonZeroU32,
    /// Of the memory that is written from.
    pub memory: NonZeroU32,
    /// The unit in which writes are best issued: a multiple of `offset`.
    pub block: NonZeroU32,
}

impl Align {
    /// Anything goes.
    pub const NONE: Align = Align::new(NonZeroU32::MIN, NonZeroU32::MIN, NonZeroU32::MIN);

    /// Alignments of positions and sizes, of memory, and of the best unit.
    pub const fn new(offset: NonZeroU32, memory: NonZeroU32, block: NonZeroU32) -> Self {
        Self { offset, memory, block }
    }

    /// Whether anything goes: such a file is appended to by a plain appender.
    pub fn is_none(&self) -> bool {
        self.offset.get() == 1 && self.memory.get() == 1
    }
}

/// What a file can do beyond the required. For an engine outside this crate:
///
/// ```
/// # use kseg_io_backends::{AppendPlan, FileCaps};
/// let mut caps = FileCaps::NONE;
/// caps.parallel_append = true;
/// caps.plan.depth = 4;
/// # assert_eq!(caps.plan.chunk, AppendPlan::PLAIN.chunk);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FileCaps {
    /// [`Through::Data`](crate::Through::Data) is one call; elsewhere it is a write and a sync.
    pub write_through: bool,
    /// [`RawFile::as_fd`] gives a descriptor.
    pub descriptor: bool,
    /// Writes behind the end may be in flight at the same time and overlap.
    pub parallel_append: bool,
    /// How it is best appended to.
    pub plan: AppendPlan,
}

impl FileCaps {
    /// Nothing beyond the required.
    pub const NONE: FileCaps =
        FileCaps { write_through: false, descriptor: false, parallel_append: false, plan: AppendPlan::PLAIN };
}

/// Writes all of `data` at `at`, going on after short writes, and returns how many calls it took.
///
/// # Errors
/// Of the call that failed; which bytes of the range were written is not known. A call that claims to have written
/// nothing is an error of the kind [`WriteZero`](std::io::ErrorKind::WriteZero), not a reason to try again.
pub fn write_all(file: &dyn RawFile, at: u64, data: Gather) -> Result<u32, IoError> {
    write_through(file, at, data, Through::No)
}

/// [`write_all`], with how durable each call is by itself.
pub(crate) fn write_through(
    file: &dyn RawFile,
    at: u64,
    data: Gather,
    through: Through,
) -> Result<u32, IoError> {
    let mut at = at;
    let mut data = data;
    let mut left = data.len();
    let mut calls = 0;
    while left > 0 {
        calls += 1;
        let done = file.write(at, data, through);
        let written = done.result?;
        if written == left {
            break;
        }
        let wrong = |what: String| {
            IoError::because("write", file.path(), std::io::ErrorKind::WriteZero, what).with_range(at, left)
        };
        if written == 0 || written > left {
            return Err(wrong(format!("{written} bytes written where {left} were asked for")));
        }
        data = done.data.ok_or_else(|| wrong("a short write did not give its parts back".to_owned()))?;
        data.advance(written);
        at += written;
        left -= written;
    }
    Ok(calls)
}
