//! The state of the file that is written: it decides more than who writes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use kseg_io_backends::{Backend, BackendSpec};
use rustix::fs::{FallocateFlags, fallocate};

use crate::bench::{Bench, Scale};
use crate::error::BenchError;

/// What lies where the next bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    /// Nothing: the file grows.
    Extending,
    /// So many bytes of blocks that were taken and never written.
    Unwritten(u32),
    /// So many bytes of blocks that were written, with zeros, and are on the device.
    Zeroed(u32),
}

/// Bytes to make ready: `most`, or less where only results are checked.
pub(crate) fn ready(scale: Scale, most: u32) -> u32 {
    u32::try_from(scale.file_cap.saturating_mul(2)).unwrap_or(most).min(most)
}

/// Zeros of one write.
const ZEROS: usize = 1 << 20;

impl FileState {
    /// What is made ready in a file before it is measured.
    fn ahead(self) -> u32 {
        match self {
            FileState::Extending => 0,
            FileState::Unwritten(bytes) | FileState::Zeroed(bytes) => bytes,
        }
    }

    /// After so many bytes a work begins again with a fresh file. A backend takes more space once half of it is used up: not
    /// before that.
    pub(crate) fn cap(self, scale: Scale) -> u64 {
        match self {
            FileState::Extending => scale.file_cap,
            FileState::Unwritten(bytes) | FileState::Zeroed(bytes) => u64::from(bytes) / 8 * 3,
        }
    }

    /// `backend`, set to write files that are in this state. All space is taken with the first append.
    ///
    /// # Errors
    /// [`BenchError::Unsuited`] for a backend that is not this project's own: how to set it is not known.
    pub(crate) fn of_backend(
        self,
        backend: &Arc<dyn Backend>,
        bench: &Bench,
    ) -> Result<Arc<dyn Backend>, BenchError> {
        let unsuited = |why: String| BenchError::Unsuited(why);
        let mut spec: BackendSpec = backend.name().parse().map_err(|error| unsuited(format!("{error}")))?;
        let zeroed = matches!(self, FileState::Zeroed(_));
        spec.options.preallocate = (!zeroed).then_some(self.ahead());
        spec.options.zeroed = zeroed.then_some(self.ahead());
        let opened = spec.open_in(bench.dir()).map_err(|error| unsuited(format!("{error}")))?;
        Ok(opened.backend)
    }

    /// Brings the empty `file` into this state.
    pub(crate) fn prepare(self, file: &File, path: &Path) -> Result<(), BenchError> {
        let ahead = u64::from(self.ahead());
        match self {
            FileState::Extending => return Ok(()),
            FileState::Unwritten(_) => {
                let taken = fallocate(file, FallocateFlags::KEEP_SIZE, 0, ahead);
                taken.map_err(|error| BenchError::io("take space for", path)(error.into()))?;
            }
            FileState::Zeroed(_) => {
                let zeros = vec![0; ZEROS];
                let mut at = 0;
                while at < ahead {
                    let count = zeros.len().min((ahead - at) as usize);
                    file.write_all_at(&zeros[..count], at).map_err(BenchError::io("write zeros to", path))?;
                    at += count as u64;
                }
            }
        }
        file.sync_all().map_err(BenchError::io("sync", path))
    }
}
