//! Directories on file systems of several kinds, and backends for them; what is not to be had here is skipped, and said.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use kseg_io_backends::{Backend, BackendSpec};

/// Backends over the operating system's files, of every kind and with each option that changes how they append.
pub(crate) const SPECS: [&str; 12] = [
    "std",
    "std,preallocate=1m",
    "std,zeroed=64k",
    "std,zeroed=1m,dsync=on",
    "std,writebehind=64k",
    "std+dontcache",
    "std+direct",
    "std+direct,chunk=16k,zeroed=64k,tail=8k",
    "uring",
    "uring,depth=2,entries=2,preallocate=0,dsync=on",
    "uring+direct",
    "uring+direct,chunk=8k,depth=4,zeroed=256k,tail=32k,dsync=on",
];

/// The backend that `spec` names for files in `dir`; none where a probe says that it is not to be had there.
pub(crate) fn backend(spec: &str, dir: &Path) -> Option<Arc<dyn Backend>> {
    match spec.parse::<BackendSpec>().unwrap().open_in(dir) {
        Ok(opened) => Some(opened.backend),
        Err(error) => {
            assert!(error.unavailable().is_some(), "{error}");
            println!("skipped: {spec} in {}: {error}", dir.display());
            None
        }
    }
}

/// A new directory on the file system of the temporary directory, usually the disk's.
pub(crate) fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A new directory on a tmpfs.
pub(crate) fn on_tmpfs() -> Option<tempfile::TempDir> {
    let made = tempfile::tempdir_in("/dev/shm");
    if let Err(error) = &made {
        println!("skipped: no tmpfs at /dev/shm: {error}");
    }
    made.ok()
}

/// A new directory on an xfs that lies in a file and is mounted as long as the result lives.
pub(crate) fn on_xfs() -> Option<Xfs> {
    let dir = tempfile::tempdir().unwrap();
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    std::fs::create_dir(&mount).unwrap();
    std::fs::File::create(&image).unwrap().set_len(400 << 20).unwrap();
    let run = |program: &str, args: &[&Path]| {
        let output = Command::new(program).args(args).output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(text) }
    };
    let made = run("mkfs.xfs", &[Path::new("-q"), &image])
        .and_then(|()| run("mount", &[Path::new("-o"), Path::new("loop"), &image, &mount]));
    match made {
        Ok(()) => Some(Xfs { mount, _dir: dir }),
        Err(error) => {
            println!("skipped: no xfs can be made and mounted here: {error}");
            None
        }
    }
}

pub(crate) struct Xfs {
    mount: PathBuf,
    _dir: tempfile::TempDir,
}

impl Xfs {
    pub(crate) fn path(&self) -> &Path {
        &self.mount
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mount).status();
    }
}

/// Runs `test` for each backend that is to be had on the disk.
pub(crate) fn with_each(test: impl Fn(&str, Arc<dyn Backend>, &Path)) {
    let dir = on_disk();
    for (index, spec) in SPECS.iter().enumerate() {
        let dir = dir.path().join(index.to_string());
        std::fs::create_dir(&dir).unwrap();
        if let Some(backend) = backend(spec, &dir) {
            test(spec, backend, &dir);
        }
    }
}
