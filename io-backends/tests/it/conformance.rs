//! Every engine passes the suite, and so does a wrapper that changes nothing.

use std::path::PathBuf;
use std::sync::Arc;

use kseg_io_backends::{Backend, Faulty, MemoryBackend, Metered, StdBackend, conformance};

#[test]
fn std_passes_the_suite() {
    let dir = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    conformance::run_suite(&|| {
        count.set(count.get() + 1);
        let case = dir.path().join(count.get().to_string());
        std::fs::create_dir(&case).unwrap();
        (Arc::new(StdBackend::new()), case)
    });
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
fn wrappers_that_change_nothing_pass_the_suite() {
    conformance::run_suite(&memory(|memory| Arc::new(Metered::new(Arc::new(Faulty::new(memory))))));
}
