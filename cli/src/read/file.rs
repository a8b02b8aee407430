//! A file and a buffer of what was read of it last.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Bytes of one read where the file is read in order.
const READ_SIZE: usize = 256 * 1024;

/// A file open for reading, read with positional reads through one buffer.
#[derive(Debug)]
pub(crate) struct PreadFile {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    buffer_at: u64,
    read_size: usize,
}

impl PreadFile {
    /// Opens a regular file.
    ///
    /// # Errors
    /// What the operating system says; a directory or a device is refused.
    pub(crate) fn open(path: &Path) -> Result<PreadFile> {
        let failed = |error| Error::io(path, "open", error);
        let file = OpenOptions::new().read(true).open(path).map_err(failed)?;
        let kind = file.metadata().map_err(failed)?;
        if !kind.is_file() {
            return Err(Error::bad(
                path,
                "a file",
                if kind.is_dir() { "a directory" } else { "a special file" },
            ));
        }
        Ok(PreadFile { file, path: path.to_owned(), buffer: Vec::new(), buffer_at: 0, read_size: READ_SIZE })
    }

    /// As [`open`](Self::open), `None` where there is no such file.
    pub(crate) fn open_if_there(path: &Path) -> Result<Option<PreadFile>> {
        match PreadFile::open(path) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in the file now.
    pub(crate) fn len(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|error| Error::io(&self.path, "stat", error))?.len())
    }

    /// Reads this many bytes at a time where fewer are asked for.
    pub(crate) fn set_read_size(&mut self, size: usize) {
        self.read_size = size;
    }

    /// Drops what the buffer holds, so that the next read sees the file as it is then.
    pub(crate) fn forget(&mut self) {
        self.buffer.clear();
    }

    /// `len` bytes at `at`; fewer only at the end of the file. The caller has bounded `len` by the file's length.
    pub(crate) fn bytes(&mut self, at: u64, len: usize) -> Result<&[u8]> {
        let skip = at
            .checked_sub(self.buffer_at)
            .filter(|skip| skip.saturating_add(len as u64) <= self.buffer.len() as u64);
        let skip = match skip {
            Some(skip) => skip as usize,
            None => {
                self.fill(at, len.max(self.read_size))?;
                0
            }
        };
        let end = (skip + len).min(self.buffer.len());
        Ok(&self.buffer[skip..end])
    }

    fn fill(&mut self, at: u64, len: usize) -> Result<()> {
        self.buffer.resize(len, 0);
        self.buffer_at = at;
        let mut filled = 0;
        while filled < len {
            match self.file.read_at(&mut self.buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.buffer.clear();
                    return Err(Error::io(&self.path, "read", error));
                }
            }
        }
        self.buffer.truncate(filled);
        Ok(())
    }
}
