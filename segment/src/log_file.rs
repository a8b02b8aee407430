//! The `.log` file of a segment: opened when first used, its size published for readers.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kseg_io_backends::{Appender, Backend, IoError, Op, OpenHow, Space, appender};

use crate::config::MAX_SEGMENT_SIZE;
use crate::error::{Error, Result};
use crate::sync::{AtomicBool, AtomicU64, Ordering, RwLock};

#[derive(Debug)]
pub(crate) struct LogFile {
    backend: Arc<dyn Backend>,
    /// Bytes of whole appends. Stored with Release after the bytes are readable, loaded with Acquire by readers.
    size: AtomicU64,
    /// Something asked for the file since [`forget_use`](Self::forget_use). A hint, so Relaxed: who reads has a handle of its own.
    used: AtomicBool,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    path: PathBuf,
    open: Option<Arc<dyn Appender>>,
    closed: bool,
}

impl LogFile {
    /// A new, empty file; an existing one is an error.
    pub(crate) fn create(backend: Arc<dyn Backend>, path: PathBuf, preallocate: Option<u64>) -> Result<Self> {
        let file = backend.open(&path, OpenHow::CreateNew)?;
        if let Some(len) = preallocate {
            file.submit(Op::SetLen { len }).wait().result?;
        }
        let open = appender(file, 0)?;
        let state = RwLock::new(State { path, open: Some(open), closed: false });
        Ok(LogFile { backend, size: AtomicU64::new(0), used: AtomicBool::new(true), state })
    }

    /// A file that exists with `size` bytes; opened when first used.
    pub(crate) fn existing(backend: Arc<dyn Backend>, path: PathBuf, size: u64) -> Result<Self> {
        if size > MAX_SEGMENT_SIZE {
            return Err(Error::TooLarge { path, size, adding: 0 });
        }
        let state = RwLock::new(State { path, open: None, closed: false });
        Ok(LogFile { backend, size: AtomicU64::new(size), used: AtomicBool::new(false), state })
    }

    #[inline]
    pub(crate) fn size(&self) -> u64 {
        // Pairs with the Release stores of this file: bytes below the size are readable.
        self.size.load(Ordering::Acquire)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.state.read().path.clone()
    }

    #[inline]
    pub(crate) fn open(&self) -> Result<Arc<dyn Appender>> {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        {
            let state = self.state.read();
            if let Some(open) = &state.open {
                return Ok(open.clone());
            }
        }
        self.open_now()
    }

    #[cold]
    fn open_now(&self) -> Result<Arc<dyn Appender>> {
        let mut state = self.state.write();
        if let Some(open) = &state.open {
            return Ok(open.clone());
        }
        if state.closed {
            return Err(Error::Closed { path: state.path.clone() });
        }
        let file = self.backend.open(&state.path, OpenHow::Write)?;
        let open = appender(file, self.size())?;
        state.open = Some(open.clone());
        Ok(open)
    }

    /// Whether the file was asked for since [`forget_use`](Self::forget_use).
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_use(&self) {
        self.used.store(false, Ordering::Relaxed);
    }

    /// Lets go of the file until something needs it. Returns whether it was open.
    pub(crate) fn rest(&self) -> bool {
        self.is_open() && self.state.write().open.take().is_some()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.read().open.is_some()
    }

    /// Writes `data` behind the last append, one write call, and publishes the new size. Returns the position.
    pub(crate) fn append(&self, data: Bytes) -> Result<u64> {
        let (size, adding) = (self.size(), data.len() as u64);
        if size + adding > MAX_SEGMENT_SIZE {
            return Err(Error::TooLarge { path: self.path(), size, adding });
        }
        let range = {
            let state = self.state.read();
            match &state.open {
                // Shared across the write: only who changes the segment takes it alone, and that is the caller.
                Some(open) => open.append(data.into())?,
                None => {
                    drop(state);
                    self.open_now()?.append(data.into())?
                }
            }
        };
        debug_assert_eq!(range.start, size);
        // Pairs with the Acquire of `size`.
        self.size.store(range.end, Ordering::Release);
        Ok(range.start)
    }

    /// Drops what lies at and behind `len`. A file that is no longer is not touched: its time of change says how old its
    /// batches are.
    pub(crate) fn truncate(&self, len: u64) -> Result<()> {
        let size = self.size();
        if len > size {
            let what =
                format!("{}: cut to {len} bytes: expected at most its size, {size}", self.path().display());
            return Err(Error::InvalidArgument { what });
        }
        let open = self.open()?;
        // Readers must stop before the bytes go.
        self.size.store(len, Ordering::Release);
        open.truncate(len)?;
        Ok(())
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.open()?.flush()?;
        Ok(())
    }

    /// Cuts preallocated space.
    pub(crate) fn seal(&self) -> Result<()> {
        self.open()?.seal()?;
        Ok(())
    }

    /// Has the file hold what its engine holds back, and end where the appends do where its engine lets the length go ahead of
    /// them; space that was preallocated stays.
    pub(crate) fn settle(&self) -> Result<()> {
        self.seal_if(|space| matches!(space, Space::Ahead(_) | Space::Zeroed(_)))
    }

    /// As [`settle`](Self::settle), and gives back all space behind the appends.
    pub(crate) fn give_back(&self) -> Result<()> {
        self.seal_if(|space| space != Space::None)
    }

    fn seal_if(&self, is_ahead: impl FnOnce(Space) -> bool) -> Result<()> {
        let state = self.state.read();
        let Some(open) = &state.open else { return Ok(()) };
        let behind = open.marks().stable() < open.marks().accepted();
        if behind || is_ahead(open.file().caps().plan.space) {
            open.seal()?;
        }
        Ok(())
    }

    /// Makes all bytes durable, cuts preallocated space and lets go of the file; nothing where it is closed already.
    pub(crate) fn close(&self) -> Result<()> {
        {
            let state = self.state.read();
            if state.closed {
                return Ok(());
            }
            if let Some(open) = &state.open {
                open.seal()?;
                open.flush()?;
            }
        }
        self.release();
        Ok(())
    }

    /// Lets go of the file without a write; later uses fail.
    pub(crate) fn release(&self) {
        let mut state = self.state.write();
        state.open = None;
        state.closed = true;
    }

    pub(crate) fn rename(&self, to: &Path) -> Result<()> {
        let mut state = self.state.write();
        self.backend.names().rename(&state.path, to)?;
        state.path = to.to_path_buf();
        Ok(())
    }
}

/// A byte range of a `.log` file, on batch boundaries at its start.
///
/// It keeps its file open: the bytes stay readable after the segment has been deleted, replaced or closed. They do
/// not survive a truncation of the log below them.
#[derive(Clone, Debug)]
pub struct FileRegion {
    file: Arc<dyn Appender>,
    range: Range<u64>,
}

impl FileRegion {
    pub(crate) fn new(file: Arc<dyn Appender>, range: Range<u64>) -> Self {
        FileRegion { file, range }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Position of its first byte in the file.
    pub fn position(&self) -> u64 {
        self.range.start
    }

    /// The part of it that begins `skip` bytes in and is at most `len` bytes long; never longer than this one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where `skip` lies behind its end.
    pub fn slice(&self, skip: usize, len: usize) -> Result<FileRegion> {
        if skip > self.len() {
            let what = format!("a slice from byte {skip} of a region of {} bytes", self.len());
            return Err(Error::InvalidArgument { what });
        }
        let start = self.range.start + skip as u64;
        let end = start.saturating_add(len as u64).min(self.range.end);
        Ok(FileRegion { file: self.file.clone(), range: start..end })
    }

    /// Reads from `skip` bytes in; returns how many bytes were read, fewer than asked only at its end.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn read_at(&self, into: &mut [u8], skip: usize) -> Result<usize, IoError> {
        let left = self.len().saturating_sub(skip);
        let want = into.len().min(left);
        self.file.read_at(&mut into[..want], self.range.start + skip as u64)
    }

    /// Copies all of it out.
    ///
    /// # Errors
    /// What the operating system says; an unexpected end where the log has been truncated below the region's end.
    pub fn to_bytes(&self) -> Result<Bytes, IoError> {
        let mut bytes = Vec::new();
        self.copy_into(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Appends all of it to `out`; returns how many bytes came.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes); `out` is as it was.
    pub fn copy_into(&self, out: &mut Vec<u8>) -> Result<usize, IoError> {
        let before = out.len();
        out.resize(before + self.len(), 0);
        match self.read_at(&mut out[before..], 0) {
            Ok(got) if got == self.len() => Ok(got),
            Ok(got) => {
                out.truncate(before);
                let path = self.file.file().path();
                let why = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                Err(IoError::new("read", path, why)
                    .with_range(self.range.start + got as u64, self.len() as u64))
            }
            Err(e) => {
                out.truncate(before);
                Err(e)
            }
        }
    }

    /// The file it lies in, for a caller that sends it on by itself.
    pub fn file(&self) -> &Arc<dyn Appender> {
        &self.file
    }
}
