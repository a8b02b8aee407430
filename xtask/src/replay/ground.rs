//! [`Ground`]: the I/O backend that a replay stands on. Which kind is chosen once for the process.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use kseg_io_backends::{Backend, BackendSpec, Cache, Engine, Kind, Namespace, StdBackend};

use crate::Outcome;
use crate::flags::Flags;

/// More than any file of a story has.
pub(super) const FILE_MAX: u64 = 1 << 31;

static CHOSEN: OnceLock<BackendSpec> = OnceLock::new();

/// The kind of backend that everything here stands on.
fn chosen() -> BackendSpec {
    CHOSEN.get().copied().unwrap_or_default()
}

/// Has every replay of this process stand on the backend that `--backend` names.
pub(crate) fn choose(flags: &mut Flags) -> Outcome {
    if let Some(text) = flags.value("--backend")? {
        let spec = text.parse::<BackendSpec>().map_err(|error| error.to_string())?;
        CHOSEN.set(spec).map_err(|spec| format!("--backend {spec}: chosen before"))?;
    }
    Ok(())
}

/// Whether a file that a log has open may be shorter than what the log has accepted, or longer: its bytes are compared
/// as readers of the log see them, and how many zeros lie behind them is not.
pub(crate) fn goes_ahead() -> bool {
    let spec = chosen();
    spec.engine == Engine::Uring || spec.cache == Cache::Direct || spec.options.zeroed.is_some()
}

/// A backend, and its way from and to the file system.
#[derive(Debug)]
pub(crate) struct Ground {
    backend: Arc<dyn Backend>,
    /// Its files are in this process alone.
    apart: bool,
}

impl Ground {
    /// One of the chosen kind.
    ///
    /// # Errors
    /// It is not to be had here.
    pub(crate) fn new() -> Result<Ground, String> {
        let spec = chosen();
        let backend = spec.open().map_err(|e| e.to_string())?.backend;
        Ok(Ground { backend, apart: spec.engine == Engine::Memory })
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    pub(crate) fn names(&self) -> &dyn Namespace {
        self.backend.names()
    }

    /// Takes over what lies below a folder of the file system, unless it sees that anyhow.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(crate) fn take(&self, folder: &Path) -> Outcome {
        if self.apart { copied(StdBackend::new().names(), self.names(), folder) } else { Ok(()) }
    }

    /// Puts what it has below a folder into the file system, unless it is there.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(crate) fn give(&self, folder: &Path) -> Outcome {
        if self.apart { copied(self.names(), StdBackend::new().names(), folder) } else { Ok(()) }
    }
}

/// Copies all files below a folder, to where they have the same names.
fn copied(from: &dyn Namespace, to: &dyn Namespace, folder: &Path) -> Outcome {
    let failed = |e: kseg_io_backends::IoError| e.to_string();
    to.create_dir_all(folder).map_err(failed)?;
    for entry in from.list(folder).map_err(failed)? {
        let path = folder.join(&entry.name);
        match entry.kind {
            Kind::Dir => copied(from, to, &path)?,
            Kind::File => {
                let bytes = from.read(&path, FILE_MAX).map_err(failed)?;
                let bytes = bytes.ok_or_else(|| format!("{}: gone", path.display()))?;
                to.write(&path, &bytes, false).map_err(failed)?;
            }
            Kind::Other => return Err(format!("{}: neither a file nor a folder", path.display())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Ground, StdBackend};

    #[test]
    fn what_lies_in_memory_is_given_to_the_file_system_and_taken_from_it() {
        let memory = || {
            let backend = kseg_io_backends::open("memory").unwrap();
            Ground { backend, apart: true }
        };
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("t-0/deep");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("a"), b"contents").unwrap();
        let ground = memory();
        ground.take(folder.path()).unwrap();
        std::fs::remove_dir_all(folder.path().join("t-0")).unwrap();
        ground.give(folder.path()).unwrap();
        assert_eq!(std::fs::read(deep.join("a")).unwrap(), b"contents");
        // What sees the file system copies nothing.
        let plain = Ground { backend: std::sync::Arc::new(StdBackend::new()), apart: false };
        plain.take(folder.path()).unwrap();
        assert_eq!(plain.names().list(folder.path()).unwrap().len(), 1);
    }
}
