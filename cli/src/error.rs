//! What a command could not do, in the words in which the user is told.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use kseg_format::DecodeError;

/// Result of everything a command does.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command ends early.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Something in a file, or about one, is not as it must be.
    Damage(Box<Damage>),
    /// The operating system refused. `what` says what was tried.
    Io { path: PathBuf, what: &'static str, source: io::Error },
    /// The log refused. Its message names the file or the directory.
    Log(Box<kseg_log::Error>),
    /// The log refused lines of an input, the first and the last of them counted from 1.
    Refused { input: PathBuf, first: u64, last: u64, source: Box<kseg_log::Error> },
    /// The command line asks for what cannot be; exit code 2.
    Usage(String),
    /// Standard output is closed: the reader has seen enough, which is no error.
    OutputClosed,
    /// Standard output cannot be written to.
    Output(io::Error),
}

/// A place and what was found there instead of what was expected.
#[derive(Debug)]
pub(crate) struct Damage {
    /// The file, directory, or name of an input.
    pub(crate) path: PathBuf,
    /// Bytes from the start of the file.
    pub(crate) position: Option<u64>,
    /// An offset of a record near it.
    pub(crate) offset: Option<i64>,
    /// A line of an input, counted from 1.
    pub(crate) line: Option<u64>,
    /// What should have been there.
    pub(crate) expected: String,
    /// What is there.
    pub(crate) found: String,
}

impl Error {
    /// An error about a file as a whole.
    pub(crate) fn bad(path: &Path, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::at(path, None, None, expected, found)
    }

    /// An error at a position of a file, near a record's offset.
    pub(crate) fn at(
        path: &Path,
        position: Option<u64>,
        offset: Option<i64>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        Error::Damage(Box::new(Damage {
            path: path.to_owned(),
            position,
            offset,
            line: None,
            expected: expected.into(),
            found: found.into(),
        }))
    }

    /// An error in a line of an input.
    pub(crate) fn line(
        path: &Path,
        line: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        Error::Damage(Box::new(Damage {
            path: path.to_owned(),
            position: None,
            offset: None,
            line: Some(line),
            expected: expected.into(),
            found: found.into(),
        }))
    }

    /// A batch at `position` that cannot be read.
    pub(crate) fn batch(path: &Path, position: u64, offset: Option<i64>, error: &DecodeError) -> Error {
        let (expected, found) = words(error);
        Error::at(path, Some(position), offset, expected, found)
    }

    pub(crate) fn io(path: &Path, what: &'static str, source: io::Error) -> Error {
        Error::Io { path: path.to_owned(), what, source }
    }

    /// A failed write to standard output.
    pub(crate) fn output(error: io::Error) -> Error {
        if error.kind() == io::ErrorKind::BrokenPipe { Error::OutputClosed } else { Error::Output(error) }
    }
}

/// What a batch should have held, and what it holds.
pub(crate) fn words(error: &DecodeError) -> (String, String) {
    match error {
        DecodeError::Corrupt { field, place, expected, found }
        | DecodeError::InvalidRecord { field, place, expected, found }
        | DecodeError::IllegalArgument { field, place, expected, found } => {
            (format!("{field} of {expected} ({place})"), found.to_string())
        }
        DecodeError::Checksum { stored, computed, .. } => {
            (format!("checksum {computed} for these bytes"), format!("{stored} stored"))
        }
        DecodeError::UnknownCodec { id, place } => (format!("codec 0 to 4 ({place})"), format!("codec {id}")),
        DecodeError::Codec { codec, place, what } => {
            (format!("{codec} payload"), format!("{what} ({place})"))
        }
        other => ("a batch that can be read".to_owned(), other.to_string()),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Damage(damage) => damage.fmt(f),
            Error::Io { path, what, source } => write!(f, "{}: {what}: {source}", path.display()),
            Error::Log(error) => error.fmt(f),
            Error::Refused { input, first, last, source } => {
                write!(f, "{}: at line {first}", input.display())?;
                if first != last {
                    write!(f, " to {last}")?;
                }
                write!(f, ": {source}")
            }
            Error::Usage(message) => f.write_str(message),
            Error::OutputClosed => f.write_str("standard output is closed"),
            Error::Output(error) => write!(f, "standard output: {error}"),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match (self.line, self.position, self.offset) {
            (Some(line), _, _) => write!(f, "at line {line}: ")?,
            (None, Some(position), Some(offset)) => write!(f, "at position {position} (offset {offset}): ")?,
            (None, Some(position), None) => write!(f, "at position {position}: ")?,
            (None, None, Some(offset)) => write!(f, "at offset {offset}: ")?,
            (None, None, None) => {}
        }
        write!(f, "expected {}, found {}", self.expected, self.found)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } | Error::Output(source) => Some(source),
            Error::Log(error) | Error::Refused { source: error, .. } => Some(&**error),
            Error::Damage(_) | Error::Usage(_) | Error::OutputClosed => None,
        }
    }
}

impl From<kseg_log::Error> for Error {
    fn from(error: kseg_log::Error) -> Error {
        Error::Log(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_file_position_offset_expected_and_found() {
        let error = Error::at(Path::new("t-0/0.log"), Some(61), Some(7), "a size field of at least 14", "0");
        assert_eq!(
            error.to_string(),
            "t-0/0.log: at position 61 (offset 7): expected a size field of at least 14, found 0"
        );
        let error = Error::line(Path::new("standard input"), 3, "key<TAB>value", "no tab");
        assert_eq!(error.to_string(), "standard input: at line 3: expected key<TAB>value, found no tab");
    }
}
