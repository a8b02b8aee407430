//! Every engine passes the suite, and so does a wrapper that changes nothing.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_io_backends::{Backend, Faulty, MemoryBackend, Metered, Overlay, conformance};

use crate::places;

/// Runs the suite for each backend that is to be had in `dir`, and returns how many those were.
fn run_in(dir: &Path) -> usize {
    let count = Cell::new(0);
    let run = |spec: &str| {
        let Some(backend) = places::backend(spec, dir) else { return false };
        conformance::run_suite(&|| {
            count.set(count.get() + 1);
            let case = dir.join(count.get().to_string());
            std::fs::create_dir(&case).unwrap();
            (Arc::clone(&backend), case)
        });
        true
    };
    places::SPECS.into_iter().filter(|spec| run(spec)).count()
}

#[test]
fn every_backend_passes_the_suite_on_the_disk() {
    assert!(run_in(places::on_disk().path()) >= 5, "the engine std is to be had everywhere");
}

#[test]
fn every_backend_passes_the_suite_on_tmpfs() {
    if let Some(dir) = places::on_tmpfs() {
        assert!(run_in(dir.path()) >= 5);
    }
}

#[test]
fn every_backend_passes_the_suite_on_xfs() {
    if let Some(xfs) = places::on_loop("xfs", 512, 400 << 20) {
        assert!(run_in(xfs.path()) >= 5);
    }
}

#[test]
fn every_backend_passes_the_suite_on_ext4_with_large_sectors() {
    if let Some(ext4) = places::on_loop("ext4", 4096, 400 << 20) {
        assert!(run_in(ext4.path()) >= 5);
    }
}

fn memory(wrap: impl Fn(Arc<dyn Backend>) -> Arc<dyn Backend>) -> impl Fn() -> (Arc<dyn Backend>, PathBuf) {
    move || {
        let memory = MemoryBackend::new();
        memory.names().create_dir_all("a/case".as_ref()).unwrap();
        (wrap(Arc::new(memory)), PathBuf::from("/a/case"))
    }
}

#[test]
fn memory_passes_the_suite() {
    conformance::run_suite(&memory(|memory| memory));
}

#[test]
fn an_overlay_passes_the_suite() {
    conformance::run_suite(&memory(|memory| Arc::new(Overlay::new(memory))));
}

#[test]
fn wrappers_that_change_nothing_pass_the_suite() {
    conformance::run_suite(&memory(|memory| Arc::new(Metered::new(Arc::new(Faulty::new(memory))))));
}
