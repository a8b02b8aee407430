//! The engine `uring`: writes go to the kernel through an io_uring and complete later; all else is done as by the
//! engine `std`, on the thread that asks for it.
//!
//! Measured reasons: a read of cached bytes and a sync gain nothing from the ring (both are handed to a thread of the
//! kernel there), and neither does anything that changes the size of a file, nor a small write through the page cache: a
//! copy to memory that is handed to another thread. Such writes are done at once, too; and so are small ones past it, which
//! are begun for a flush: the kernel hands those that extend a file to a thread of its own, and the caller waits anyhow.
//!
//! One ring serves all files of a backend. Any thread submits; whoever waits for a ticket fetches completions, one
//! thread at a time ([`ring`]), so no thread stands between a write and who waits for it.

#[allow(unsafe_code, reason = "buffers that the kernel uses, and queues that are shared with it")]
mod ring;

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::backend::{Align, Backend, FileCaps, MapAccess, Namespace, OpenHow, RawFile};
use crate::error::IoError;
use crate::inode::Inode;
use crate::map::MappedRegion;
use crate::op::{Done, Op, Through};
use crate::probe::Unavailable;
use crate::std_file::{FileModes, StdFile};
use crate::std_names::StdNames;
use crate::ticket::Ticket;
use crate::uring::ring::{FixedFile, Ring, Write};

/// How the engine is set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// Of the submission queue.
    pub(crate) entries: u32,
    /// Writes through the page cache of fewer bytes are done by who asks for them.
    pub(crate) inline: u64,
    /// Files and buffers are registered with the ring, where the kernel takes them.
    pub(crate) registered: bool,
}

/// Writes past the page cache of fewer bytes are done by who asks for them: for more of them at a time the ring pays.
const DIRECT_INLINE: u32 = 16 << 10;

/// Files of the operating system, written through an io_uring.
#[derive(Debug)]
pub struct UringBackend {
    name: String,
    names: StdNames,
    ring: Arc<Ring>,
    modes: FileModes,
    inline: u64,
    direct_inline: u64,
}

impl UringBackend {
    pub(crate) fn with(name: String, modes: FileModes, setup: Setup) -> Result<Self, Unavailable> {
        let ring = Arc::new(Ring::new(setup.entries, setup.registered)?);
        let inline = match modes {
            // What is to leave the page cache begins to be written at once: that may take long.
            FileModes { dont_cache: true, .. } => 0,
            FileModes { .. } => setup.inline,
        };
        // Less than a chunk is written only for somebody who waits for it.
        let direct_inline = u64::from(modes.plan.chunk.min(DIRECT_INLINE));
        Ok(Self { name, names: StdNames, ring, modes, inline, direct_inline })
    }
}

impl Backend for UringBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn names(&self) -> &dyn Namespace {
        &self.names
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn RawFile>, IoError> {
        let file = StdFile::open(path, how, self.modes)?;
        let fixed = if how == OpenHow::Read { None } else { self.ring.register(file.usual_target()) };
        let ring = Arc::clone(&self.ring);
        Ok(Arc::new(UringFile { file, ring, fixed, inline: self.inline, direct_inline: self.direct_inline }))
    }

    fn drive(&self, max_wait: Duration) -> Result<usize, IoError> {
        self.ring.drive(max_wait).map_err(|error| IoError::new("drive", "", error))
    }
}

#[derive(Debug)]
struct UringFile {
    file: StdFile,
    ring: Arc<Ring>,
    /// The ring's own handle of what writes usually go to.
    fixed: Option<Arc<FixedFile>>,
    inline: u64,
    direct_inline: u64,
}

impl RawFile for UringFile {
    fn path(&self) -> PathBuf {
        self.file.path()
    }

    fn align(&self) -> Align {
        self.file.align()
    }

    fn caps(&self) -> FileCaps {
        FileCaps { parallel_append: true, ..self.file.caps() }
    }

    fn submit(&self, op: Op) -> Ticket {
        let Op::Write { at, data, through } = op else { return self.file.submit(op) };
        let size = data.len();
        let target = self.file.target(at, &data);
        let is_usual = Arc::ptr_eq(target, self.file.usual_target());
        let past_cache = self.file.modes().direct && is_usual;
        let inline = if past_cache { self.direct_inline } else { self.inline };
        if (size < inline && through == Through::No) || !self.file.is_writable() {
            return self.file.submit(Op::Write { at, data, through });
        }
        let path = self.file.shared_path();
        let refused = |error| IoError::new("write", &**path, error).with_range(at, size);
        if at.checked_add(size).is_none_or(|end| end > i64::MAX as u64) {
            let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, "beyond 2^63");
            return Ticket::ready(Done::written(Err(refused(error)), data));
        }
        match Inode::writing(Arc::clone(self.file.inode()), at) {
            // Most of it, or all, is shown by a view: what remains is done, or refused, there.
            Err(_) => self.file.submit(Op::Write { at, data, through }),
            Ok(_) if size == 0 => Ticket::ready(Done::written(Ok(0), data)),
            Ok(writing) => {
                let target = Arc::clone(target);
                let fixed = self.fixed.clone().filter(|_| is_usual);
                let dont_cache = self.file.modes().dont_cache;
                let block = u64::from(self.file.align().offset.get());
                let path = Arc::clone(path);
                self.ring.write(Write {
                    target,
                    fixed,
                    path,
                    writing,
                    at,
                    data,
                    size,
                    through,
                    dont_cache,
                    block,
                })
            }
        }
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        self.file.read_at(into, at)
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.len()
    }

    fn map(&self, len: usize, access: MapAccess) -> Result<MappedRegion, IoError> {
        self.file.map(len, access)
    }

    fn map_bytes(&self, range: Range<u64>) -> Result<Bytes, IoError> {
        // Writes that are in flight end only if somebody fetches their completions.
        self.file.map_bytes_pausing(range, || self.ring.pause())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_fd()
    }
}
