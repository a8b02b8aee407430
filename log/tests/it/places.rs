//! Backends of every kind, each with a directory of its own; one that is not to be had here is skipped, and said.

use std::path::Path;
use std::sync::Arc;

use kseg_io_backends::{Backend, BackendSpec};

/// Small chunks and queues, so that little data fills them.
pub(crate) const SPECS: [&str; 8] = [
    "memory",
    "std",
    "std,zeroed=64k,dsync=on",
    "std+direct,chunk=16k,zeroed=64k,tail=8k",
    "std+direct",
    "uring",
    "uring+direct",
    "uring+direct,chunk=8k,depth=4,zeroed=256k,tail=32k,dsync=on",
];

/// The backend that `spec` names for files in `dir`; none, and a line of output, where it is not to be had there.
pub(crate) fn backend(spec: &str, dir: &Path) -> Option<Arc<dyn Backend>> {
    match spec.parse::<BackendSpec>().expect("a specification").open_in(dir) {
        Ok(opened) => Some(opened.backend),
        Err(error) => {
            assert!(error.unavailable().is_some(), "{error}");
            println!("skipped: {spec} in {}: {error}", dir.display());
            None
        }
    }
}

/// Runs `test` for each backend that is to be had in the temporary directory, with an empty directory.
pub(crate) fn with_each(test: impl FnMut(&str, Arc<dyn Backend>, &Path)) {
    with(&SPECS, test);
}

/// As [`with_each`], for these.
pub(crate) fn with(specs: &[&str], mut test: impl FnMut(&str, Arc<dyn Backend>, &Path)) {
    let mut ran = 0;
    for spec in specs {
        let dir = tempfile::tempdir().expect("a directory");
        if let Some(backend) = backend(spec, dir.path()) {
            backend.names().create_dir_all(dir.path()).expect("a directory in memory");
            test(spec, backend, dir.path());
            ran += 1;
        }
    }
    assert!(ran > 0, "none of {specs:?} is to be had here");
}
