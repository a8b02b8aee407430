//! A lock excludes other processes, whatever this one tries meanwhile.

use std::path::Path;
use std::process::Command;

use kseg_io_backends::{Backend, StdBackend};

/// Names the file that the other process tries to lock.
const FILE: &str = "KSEG_TEST_LOCK";

/// Not a test of its own: what the other process runs. Without a file it does nothing.
#[test]
fn another_process_tries_the_lock() {
    if let Some(path) = std::env::var_os(FILE) {
        let result = StdBackend::new().names().lock(Path::new(&path));
        println!("lock taken: {}", result.is_ok());
    }
}

/// Whether another process can take the lock now.
fn free(path: &Path) -> bool {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "locks::another_process_tries_the_lock", "--nocapture"])
        .env(FILE, path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("lock taken: "), "{text}");
    text.contains("lock taken: true")
}

#[test]
fn a_lock_excludes_other_processes_until_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(".lock");
    let backend = StdBackend::new();
    assert!(free(&path));
    let held = backend.names().lock(&path).unwrap();
    assert!(!free(&path));
    // A second try in this process must not open and close the file: that would give the lock back.
    assert!(backend.names().lock(&path).is_err());
    assert!(!free(&path));
    drop(held);
    assert!(free(&path));
    let again = backend.names().lock(&path).unwrap();
    assert!(!free(&path));
    drop(again);
}
