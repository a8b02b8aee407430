//! The suite that every engine passes: what the contracts of [`Backend`], [`Namespace`](crate::Namespace) and
//! [`RawFile`] say, and what an [`Appender`] makes of it.
//!
//! For engines outside this crate, too: give [`run_suite`] a function that makes a backend and an empty directory.

mod appending;
mod files;
mod maps;
mod names;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::appender::{Appender, appender};
use crate::backend::{Backend, OpenHow, RawFile};
use crate::error::IoError;
use crate::op::{Gather, Op, Through};

/// Runs every case, each on a backend and in an empty directory of its own, as `make` gives them.
///
/// # Panics
/// At the first promise that is broken; the case is named on standard output before it runs.
pub fn run_suite(make: &dyn Fn() -> (Arc<dyn Backend>, PathBuf)) {
    for (group, cases) in [
        ("names", names::CASES),
        ("files", files::CASES),
        ("maps", maps::CASES),
        ("appending", appending::CASES),
    ] {
        for (name, case) in cases {
            let (backend, dir) = make();
            println!("conformance: {group}: {name}, backend {}", backend.name());
            case(&Place { backend, dir });
        }
    }
}

/// A promise, and the function that checks it.
type Case = (&'static str, fn(&Place));

/// Where a case runs.
struct Place {
    backend: Arc<dyn Backend>,
    dir: PathBuf,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn open(&self, name: &str, how: OpenHow) -> Arc<dyn RawFile> {
        self.backend.open(&self.path(name), how).unwrap()
    }

    /// A new file with these bytes.
    fn file(&self, name: &str, contents: &[u8]) -> Arc<dyn RawFile> {
        let file = self.open(name, OpenHow::CreateNew);
        write(&file, 0, contents);
        file
    }

    fn appender(&self, name: &str) -> Arc<dyn Appender> {
        appender(self.open(name, OpenHow::CreateNew), 0).unwrap()
    }

    fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        self.backend.names().read(path, 1 << 30).unwrap()
    }
}

fn submit(file: &Arc<dyn RawFile>, op: Op) -> Result<u64, IoError> {
    file.submit(op).wait().result
}

/// Writes all of it, by as many calls as it takes.
fn write(file: &Arc<dyn RawFile>, at: u64, bytes: &[u8]) {
    crate::backend::write_all(&**file, at, Gather::from(Bytes::copy_from_slice(bytes))).unwrap();
}

fn one_write(file: &Arc<dyn RawFile>, at: u64, bytes: &[u8], through: Through) -> Result<u64, IoError> {
    submit(file, Op::Write { at, data: Bytes::copy_from_slice(bytes).into(), through })
}

fn read(file: &Arc<dyn RawFile>, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let count = file.read_at(&mut bytes, at).unwrap();
    assert!(bytes[count..].iter().all(|byte| *byte == 0xee), "bytes behind the count were touched");
    bytes.truncate(count);
    bytes
}

/// Bytes that tell their position: no two stretches of a file look the same.
fn pattern(at: u64, len: usize) -> Vec<u8> {
    (at..)
        .take(len)
        .map(|place| (place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// Sizes around which pages, chunks and blocks end.
const EDGES: [usize; 15] =
    [0, 1, 2, 3, 511, 512, 513, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_072, 131_073];
