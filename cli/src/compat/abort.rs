//! How a run of the tool ends before its last file.

use std::fmt;
use std::io;

/// Why the run stops. What was printed stays, also half a line.
#[derive(Debug)]
pub(super) enum Abort {
    /// An exception that nobody catches: its class and message go to standard error, exit code 1.
    Exception { class: &'static str, message: Option<String> },
    /// Standard output is gone; nobody is told.
    Pipe,
}

impl Abort {
    pub(super) fn new(class: &'static str, message: impl Into<String>) -> Abort {
        Abort::Exception { class, message: Some(message.into()) }
    }

    pub(super) fn silent(class: &'static str) -> Abort {
        Abort::Exception { class, message: None }
    }

    pub(super) fn corrupt_record(message: impl Into<String>) -> Abort {
        Abort::new("org.apache.kafka.common.errors.CorruptRecordException", message)
    }

    pub(super) fn invalid_record(message: impl Into<String>) -> Abort {
        Abort::new("org.apache.kafka.common.InvalidRecordException", message)
    }

    pub(super) fn corrupt_index(message: impl Into<String>) -> Abort {
        Abort::new("org.apache.kafka.storage.internals.log.CorruptIndexException", message)
    }

    pub(super) fn kafka(message: impl Into<String>) -> Abort {
        Abort::new("org.apache.kafka.common.KafkaException", message)
    }

    pub(super) fn illegal_argument(message: impl Into<String>) -> Abort {
        Abort::new("java.lang.IllegalArgumentException", message)
    }

    pub(super) fn number_format(text: &str) -> Abort {
        Abort::new("java.lang.NumberFormatException", format!("For input string: \"{text}\""))
    }

    pub(super) fn no_such_file(path: &str) -> Abort {
        Abort::new("java.nio.file.NoSuchFileException", path)
    }

    /// An error of an open or a read, in the class that the runtime uses for it.
    pub(super) fn io(path: &str, error: &io::Error) -> Abort {
        match error.kind() {
            io::ErrorKind::NotFound => Abort::no_such_file(path),
            io::ErrorKind::PermissionDenied => Abort::new("java.nio.file.AccessDeniedException", path),
            _ => Abort::new("java.io.IOException", format!("{path}: {error}")),
        }
    }
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Abort::Exception { class, message: Some(message) } => {
                write!(f, "Exception in thread \"main\" {class}: {message}")
            }
            Abort::Exception { class, message: None } => write!(f, "Exception in thread \"main\" {class}"),
            Abort::Pipe => f.write_str("standard output is closed"),
        }
    }
}

/// Only writes to standard output fail with a bare I/O error here, and then there is nobody to print for.
impl From<io::Error> for Abort {
    fn from(_: io::Error) -> Abort {
        Abort::Pipe
    }
}
