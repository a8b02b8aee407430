//! What can go wrong in a benchmark.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A scenario that could not be measured, or whose result was wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// A file of a reference loop, of the report, or of the working folder.
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The backend under test failed.
    Backend(Box<kseg_io_backends::IoError>),
    /// The log under test failed.
    Log(Box<kseg_log::Error>),
    /// A batch could not be encoded.
    Encode(Box<kseg_format::EncodeError>),
    /// A batch could not be read.
    Decode(Box<kseg_format::DecodeError>),
    /// A work gave another result than it must: its speed means nothing.
    Wrong {
        /// Which result, in words.
        what: String,
        /// What it must be.
        expected: u64,
        /// What it was.
        found: u64,
    },
    /// The machine or the chosen backends do not allow a scenario; not a failure.
    Unsuited(String),
    /// Whoever runs it wanted it to end.
    Stopped,
    /// What was asked for cannot be run: an unknown scenario or backend, no slices, a slice without length.
    Asked(String),
}

impl BenchError {
    /// An error of the file system at `path` while doing `what`.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BenchError {
        move |source| BenchError::Io { what, path: path.to_owned(), source }
    }
}

/// Fails with [`BenchError::Wrong`] unless `found` is `expected`.
pub(crate) fn expect(what: &str, expected: u64, found: u64) -> Result<(), BenchError> {
    if expected == found {
        return Ok(());
    }
    Err(BenchError::Wrong { what: what.to_owned(), expected, found })
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Io { what, path, source } => write!(f, "cannot {what} {}: {source}", path.display()),
            BenchError::Backend(error) => write!(f, "the backend failed: {error}"),
            BenchError::Log(error) => write!(f, "the log failed: {error}"),
            BenchError::Encode(error) => write!(f, "a batch was not encoded: {error}"),
            BenchError::Decode(error) => write!(f, "a batch was not read: {error}"),
            BenchError::Wrong { what, expected, found } => {
                write!(f, "wrong result: {what} must be {expected} ({expected:#x}), is {found} ({found:#x})")
            }
            BenchError::Unsuited(why) | BenchError::Asked(why) => f.write_str(why),
            BenchError::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for BenchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BenchError::Io { source, .. } => Some(source),
            BenchError::Backend(error) => Some(error.as_ref()),
            BenchError::Log(error) => Some(error.as_ref()),
            BenchError::Encode(error) => Some(error.as_ref()),
            BenchError::Decode(error) => Some(error.as_ref()),
            BenchError::Wrong { .. }
            | BenchError::Unsuited(_)
            | BenchError::Asked(_)
            | BenchError::Stopped => None,
        }
    }
}

macro_rules! from {
    ($($variant:ident: $source:ty),* $(,)?) => {$(
        impl From<$source> for BenchError {
            fn from(error: $source) -> BenchError {
                BenchError::$variant(Box::new(error))
            }
        }
    )*};
}

from! {
    Backend: kseg_io_backends::IoError,
    Log: kseg_log::Error,
    Encode: kseg_format::EncodeError,
    Decode: kseg_format::DecodeError,
}
