//! What kernel and file system can do, found by asking them and never by their versions; and [`Unavailable`], what is
//! said of that which cannot be had.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io;
use std::io::IoSliceMut;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::StatxFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::aligned::Pool;
use crate::backend::{Align, OpenHow, RawFile, write_all};
use crate::error::{IoError, Verdict};
use crate::std_file::{FileModes, StdFile};
use crate::sync::{Ordering, real};

/// `RWF_DONTCACHE`, Linux 6.14.
pub(crate) const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// How often this process has asked about a directory.
static ASKED: real::AtomicU64 = real::AtomicU64::new(0);

/// Something that was asked for by name and cannot be had here: which probe said so, what it said, and what would help.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unavailable {
    /// What was asked for: `"io_uring"`, `"direct"`, `"dontcache"`.
    pub what: &'static str,
    /// The call that refused.
    pub probe: &'static str,
    /// Its error number, where there was one; elsewhere the call succeeded and left the thing out.
    pub errno: Option<i32>,
    /// What to change so that it can be had.
    pub remedy: &'static str,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not to be had here: {} ", self.what, self.probe)?;
        match self.errno {
            Some(errno) => write!(f, "failed with {}", io::Error::from_raw_os_error(errno))?,
            None => f.write_str("does not offer it")?,
        }
        write!(f, "; {}", self.remedy)
    }
}

impl Error for Unavailable {}

impl From<Unavailable> for io::Error {
    fn from(unavailable: Unavailable) -> Self {
        io::Error::new(io::ErrorKind::Unsupported, unavailable)
    }
}

/// The error where there are no direct writes.
pub(crate) fn no_direct(probe: &'static str, source: Option<io::Error>) -> io::Error {
    let errno = source.and_then(|error| error.raw_os_error());
    let remedy = "it takes Linux 6.1 and a directory on a file system with direct I/O, as ext4 and xfs, or a backend \
                  without +direct";
    Unavailable { what: "direct", probe, errno, remedy }.into()
}

/// What direct writes to `file` must be multiples of.
///
/// # Errors
/// The file system has none, or does not say so.
pub(crate) fn direct_alignment(file: &File) -> io::Result<Align> {
    const PROBE: &str = "statx(STATX_DIOALIGN)";
    let flags = rustix::fs::AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(file, "", flags, StatxFlags::DIOALIGN)
        .map_err(|errno| no_direct(PROBE, Some(errno.into())))?;
    let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
    let (offset, memory) = (stat.stx_dio_offset_align, stat.stx_dio_mem_align);
    match (NonZeroU32::new(offset), NonZeroU32::new(memory)) {
        // Buffers here are aligned to a page.
        (Some(offset), Some(memory)) if known && memory.get() as usize <= crate::aligned::ALIGN => {
            Ok(Align::new(offset, memory, offset))
        }
        _ => Err(no_direct(PROBE, None)),
    }
}

/// Asks, by a read that changes nothing, whether pages of `file` can be kept out of the page cache.
///
/// # Errors
/// They cannot.
pub(crate) fn dont_cache(file: &File) -> io::Result<()> {
    let mut byte = [0; 1];
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], 0, DONT_CACHE) {
        Ok(_) => Ok(()),
        Err(errno @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) => {
            let remedy = "it takes Linux 6.14 and a file system that supports it, as ext4 and xfs, or a backend \
                          without +dontcache";
            let errno = Some(errno.raw_os_error());
            Err(Unavailable { what: "dontcache", probe: "preadv2(RWF_DONTCACHE)", errno, remedy }.into())
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a write through the page cache is faster into blocks that were taken before. So it was measured on ext4; xfs takes
/// some ahead by itself, tmpfs would take memory, and where it is not known the file is left as it is.
pub(crate) fn gains_from_blocks_ahead(file: &File) -> bool {
    #[cfg(target_os = "linux")]
    {
        // EXT4_SUPER_MAGIC of statfs(2).
        const EXT4: rustix::fs::FsWord = 0xef53;
        rustix::fs::fstatfs(file).is_ok_and(|stat| stat.f_type == EXT4)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        false
    }
}

/// Asks whether files in `dir` can be written past the page cache, or out of it, by means of one that is removed again.
/// Where `dir` is not there yet, its nearest parent that is stands for it. A full disk says nothing against it: each file is
/// asked once more when it is opened.
///
/// # Errors
/// They cannot, or no file can be made there.
pub(crate) fn directory(dir: &Path, direct: bool, without_cache: bool) -> Result<(), IoError> {
    let there = dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("."));
    let modes = FileModes { direct, dont_cache: without_cache, ..FileModes::default() };
    let probed = loop {
        // A name of its own: others may ask at the same moment.
        let number = ASKED.fetch_add(1, Ordering::Relaxed);
        let path = there.join(format!(".kseg-probe-{}-{number}", std::process::id()));
        match StdFile::open(&path, OpenHow::CreateNew, modes) {
            // A process of this number, elsewhere or one that was killed, has it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => break Err(error),
            Ok(file) => {
                let probed = try_out(&file);
                // What is left behind is a file of a page, whose name says what it was.
                let _ = std::fs::remove_file(&path);
                break probed;
            }
        }
    };
    match probed {
        Err(error) if error.verdict() == Verdict::NoSpace => Ok(()),
        probed => probed,
    }
}

/// One write, in the unit that the file asks for, and a look at what came of it.
fn try_out(file: &StdFile) -> Result<(), IoError> {
    let size = file.align().block.get().max(512) as usize;
    let mut written = Arc::new(Pool::default()).take(size);
    written.fill(0x5a);
    let data = Bytes::from_owner(written);
    write_all(file, 0, data.clone().into())?;
    let mut read = vec![0; size];
    let count = file.read_at(&mut read, 0)?;
    if count == size && read == data {
        return Ok(());
    }
    let why = "what was written was not read back";
    Err(IoError::because("probe", file.path(), io::ErrorKind::InvalidData, why))
}
