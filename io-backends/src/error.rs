//! [`IoError`]: which operation failed, on which file, where, and what to do about it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

/// What an [`IoError`] means for whoever asked: decided once, here, so that no layer above looks at error numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The file system or a quota is full, or the file would be longer than this process may make one (`RLIMIT_FSIZE`) or than
    /// the file system takes. What was there before stays; trying again is fine after space was freed, or with less.
    ///
    /// The system sends `SIGXFSZ` to a process that meets its limit, which ends it unless the signal is ignored or handled.
    NoSpace,
    /// This file, file system or kernel cannot do it. Asking again gives the same answer.
    Unsupported,
    /// The caller asked for something that the contract forbids. Nothing was done.
    Misuse,
    /// The device or the file is not what it was: a failed sync or write, a file cut behind our back, bytes missing.
    Damaged,
    /// The file was fenced by an earlier error, see [`IoError::fenced_by`]. Nothing was tried.
    Fenced,
    /// No file or directory of this name.
    Absent,
    /// The file, the directory or the mount does not permit it.
    Denied,
    /// None of the others: [`IoError::kind`] and the source say more.
    Other,
}

impl Verdict {
    fn of(source: &io::Error) -> Verdict {
        use io::ErrorKind as Kind;
        match source.kind() {
            Kind::StorageFull | Kind::QuotaExceeded => Verdict::NoSpace,
            // The system's word. Of this crate's own it is a position that no file has.
            Kind::FileTooLarge if source.raw_os_error().is_some() => Verdict::NoSpace,
            Kind::Unsupported => Verdict::Unsupported,
            Kind::InvalidInput
            | Kind::AlreadyExists
            | Kind::IsADirectory
            | Kind::NotADirectory
            | Kind::DirectoryNotEmpty
            | Kind::FileTooLarge
            | Kind::ResourceBusy
            | Kind::InvalidFilename
            | Kind::CrossesDevices => Verdict::Misuse,
            Kind::UnexpectedEof | Kind::WriteZero | Kind::InvalidData | Kind::StaleNetworkFileHandle => {
                Verdict::Damaged
            }
            Kind::NotFound => Verdict::Absent,
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => Verdict::Denied,
            // By numbers: not each that an engine may hand in is an `Errno`.
            _ => match source.raw_os_error() {
                Some(number) if number == Errno::BADF.raw_os_error() => Verdict::Misuse,
                Some(number) if DEVICE.iter().any(|errno| errno.raw_os_error() == number) => Verdict::Damaged,
                _ => Verdict::Other,
            },
        }
    }
}

/// What a block device says that has failed, which calls past the page cache hear as it is, and a file system that finds its
/// own structures wrong.
///
/// Source: Linux `block/blk-core.c`, `blk_errors`; EFSCORRUPTED and EFSBADCRC of ext4 and xfs.
const DEVICE: &[Errno] = &[
    Errno::IO,
    #[cfg(target_os = "linux")]
    Errno::NODATA,
    #[cfg(target_os = "linux")]
    Errno::REMOTEIO,
    #[cfg(target_os = "linux")]
    Errno::UCLEAN,
    Errno::NOLINK,
    Errno::ILSEQ,
    Errno::BADMSG,
];

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::NoSpace => "no space",
            Verdict::Unsupported => "unsupported",
            Verdict::Misuse => "misuse",
            Verdict::Damaged => "damaged",
            Verdict::Fenced => "fenced",
            Verdict::Absent => "absent",
            Verdict::Denied => "denied",
            Verdict::Other => "other",
        })
    }
}

/// A failed operation on a file or a directory. One pointer wide.
#[derive(Debug)]
pub struct IoError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    op: &'static str,
    path: PathBuf,
    at: Option<u64>,
    size: Option<u64>,
    source: io::Error,
    verdict: Verdict,
}

impl IoError {
    /// An error of the operation `op` on `path`; the verdict follows from `source`.
    #[cold]
    pub fn new(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let verdict = Verdict::of(&source);
        Self(Box::new(Inner { op, path: path.into(), at: None, size: None, source, verdict }))
    }

    /// An error that no system call reported: the caller's, or the file's.
    #[cold]
    pub(crate) fn because(
        op: &'static str,
        path: impl Into<PathBuf>,
        kind: io::ErrorKind,
        why: impl Into<String>,
    ) -> Self {
        Self::new(op, path, io::Error::new(kind, why.into()))
    }

    /// The error of an operation on a fenced file: carries the error that fenced it.
    #[cold]
    pub(crate) fn fenced(op: &'static str, path: impl Into<PathBuf>, first: Arc<IoError>) -> Self {
        let source = io::Error::new(first.kind(), FencedBy(first));
        Self::new(op, path, source).with_verdict(Verdict::Fenced)
    }

    /// The same error once more, for whoever saw it first, while a fence keeps the original.
    pub(crate) fn copy_of(original: &Arc<IoError>) -> Self {
        let Inner { op, path, at, size, source, verdict } = &*original.0;
        let source = match source.raw_os_error() {
            Some(number) => io::Error::from_raw_os_error(number),
            None => io::Error::new(source.kind(), Same(Arc::clone(original))),
        };
        Self(Box::new(Inner { op, path: path.clone(), at: *at, size: *size, source, verdict: *verdict }))
    }

    /// Adds the byte range the operation was about: where it begins, and its size in bytes.
    #[must_use]
    pub fn with_range(mut self, at: u64, size: u64) -> Self {
        self.0.at = Some(at);
        self.0.size = Some(size);
        self
    }

    /// Replaces the verdict, where the operation says more than the error number: a failed sync is always
    /// [`Verdict::Damaged`].
    #[must_use]
    pub fn with_verdict(mut self, verdict: Verdict) -> Self {
        self.0.verdict = verdict;
        self
    }

    /// The operation's name, for people: `"write"`, `"sync"`, `"rename"`.
    pub fn op(&self) -> &'static str {
        self.0.op
    }

    /// The file or directory, as it was opened or named.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Where in the file the operation began, if it had a place.
    pub fn at(&self) -> Option<u64> {
        self.0.at
    }

    /// How many bytes the operation was about, if it had a size.
    pub fn size(&self) -> Option<u64> {
        self.0.size
    }

    /// What the error means for whoever asked.
    pub fn verdict(&self) -> Verdict {
        self.0.verdict
    }

    /// The kind of the underlying error.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.source.kind()
    }

    /// The underlying error; its `raw_os_error` is the error number, where the operating system reported it.
    pub fn io_error(&self) -> &io::Error {
        &self.0.source
    }

    /// On an error with [`Verdict::Fenced`]: the first error, which set the fence.
    pub fn fenced_by(&self) -> Option<&IoError> {
        let inner = self.0.source.get_ref()?.downcast_ref::<FencedBy>()?;
        Some(&inner.0)
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { op, path, at, size, source, verdict } = &*self.0;
        write!(f, "{op} of {}", path.display())?;
        if let Some(at) = at {
            write!(f, " at {at}")?;
        }
        if let Some(size) = size {
            write!(f, ", {size} bytes")?;
        }
        write!(f, ": {source}")?;
        // Most verdicts say again what the error says.
        if *verdict == Verdict::Damaged { write!(f, " ({verdict})") } else { Ok(()) }
    }
}

impl Error for IoError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0.source)
    }
}

impl From<IoError> for io::Error {
    fn from(error: IoError) -> Self {
        io::Error::new(error.kind(), error)
    }
}

/// Sits inside the `io::Error` of a fenced operation, so that `source()` walks down to the first error.
#[derive(Debug)]
struct FencedBy(Arc<IoError>);

impl fmt::Display for FencedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fenced by an earlier error: {}", self.0)
    }
}

impl Error for FencedBy {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// The source of a copied error that no error number stands for.
#[derive(Debug)]
struct Same(Arc<IoError>);

impl fmt::Display for Same {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.io_error().fmt(f)
    }
}

impl Error for Same {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.io_error().source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_error_number() {
        let of = |errno: Errno| IoError::new("write", "a.log", errno.into()).verdict();
        assert_eq!(of(Errno::NOSPC), Verdict::NoSpace);
        assert_eq!(of(Errno::DQUOT), Verdict::NoSpace);
        assert_eq!(of(Errno::FBIG), Verdict::NoSpace);
        assert_eq!(of(Errno::IO), Verdict::Damaged);
        assert_eq!(of(Errno::NODATA), Verdict::Damaged, "a sector that cannot be read");
        assert_eq!(of(Errno::UCLEAN), Verdict::Damaged, "a file system that is not what it was");
        assert_eq!(of(Errno::NOENT), Verdict::Absent);
        assert_eq!(of(Errno::ACCESS), Verdict::Denied);
        assert_eq!(of(Errno::ROFS), Verdict::Denied);
        assert_eq!(of(Errno::INVAL), Verdict::Misuse);
        assert_eq!(of(Errno::BADF), Verdict::Misuse);
        assert_eq!(of(Errno::OPNOTSUPP), Verdict::Unsupported);
        assert_eq!(of(Errno::NOSYS), Verdict::Unsupported);
        assert_eq!(of(Errno::AGAIN), Verdict::Other);
    }

    #[test]
    fn any_number_makes_an_error() {
        for number in [i32::MIN, -1, 0, 4096, i32::MAX] {
            let error = IoError::new("write", "a.log", io::Error::from_raw_os_error(number));
            assert_eq!(error.verdict(), Verdict::Other, "{number}");
        }
    }

    #[test]
    fn the_message_names_operation_file_place_and_cause() {
        let error = IoError::new("write", "/d/0.log", Errno::NOSPC.into()).with_range(100, 16);
        let text = error.to_string();
        for part in ["write", "/d/0.log", "at 100", "16 bytes", "No space left"] {
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
        // The verdict is shown where the cause does not tell it.
        assert!(!text.contains("no space)"), "{text}");
        let failed_sync = error.with_verdict(Verdict::Damaged).to_string();
        assert!(failed_sync.ends_with("(damaged)"), "{failed_sync}");
    }

    #[test]
    fn a_fenced_error_leads_down_to_the_first_one() {
        let first = Arc::new(IoError::new("sync", "0.log", Errno::IO.into()));
        let later = IoError::fenced("write", "0.log", first);
        assert_eq!(later.verdict(), Verdict::Fenced);
        assert_eq!(later.fenced_by().map(IoError::op), Some("sync"));
        let mut depth = 0;
        let mut next: Option<&(dyn Error + 'static)> = Some(&later);
        while let Some(error) = next {
            depth += 1;
            next = error.source();
        }
        assert!(depth >= 3);
    }
}
