//! The engine `std`: files of the operating system through the page cache, each operation done by the thread that
//! asks for it.
//!
//! One write call per submitted write and no other: `pwrite` for one part, `pwritev` for more, with at most
//! [`PARTS_MAX`] parts and [`BYTES_MAX`] bytes each. What a call did not take, the caller submits again.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{Advice as OsAdvice, FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::appender::LEN_MAX;
use crate::backend::{Align, Backend, FileCaps, MapAccess, Namespace, OpenHow, RawFile};
use crate::direct::Direct;
use crate::error::{IoError, Verdict};
use crate::inode::Inode;
use crate::map::{Kept, MappedRegion};
use crate::op::{Advice, Done, Gather, Op, Reserve, Through};
use crate::plan::{AppendPlan, Space};
use crate::probe;
use crate::spec::BackendSpec;
use crate::std_names::StdNames;
use crate::sync::real;
use crate::sys;
use crate::ticket::Ticket;

/// Most parts of one call: Linux's `IOV_MAX`.
pub(crate) const PARTS_MAX: usize = 1024;
/// Most bytes of one call: Linux's `MAX_RW_COUNT`, 2 GiB less a page.
pub(crate) const BYTES_MAX: usize = 2_147_479_552;
/// Buffers of zeros in one call.
const ZERO_PARTS: usize = 16;
/// Parts for which the call's array stands on the stack.
const PARTS_FEW: usize = 16;

/// Files of the operating system, through the page cache or, with `direct`, past it.
#[derive(Debug, Clone)]
pub struct StdBackend {
    name: String,
    names: StdNames,
    modes: FileModes,
}

/// How an engine opens the files of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FileModes {
    /// Writes go past the page cache where they are aligned.
    pub(crate) direct: bool,
    /// Written pages do not stay in the page cache.
    pub(crate) dont_cache: bool,
    pub(crate) plan: AppendPlan,
}

impl StdBackend {
    /// The engine as it is by default: through the page cache, without options. It has no state of its own: any
    /// number of them are the same. See [`BackendSpec`](crate::BackendSpec) for the others.
    pub fn new() -> Self {
        let spec = BackendSpec::default();
        Self::with(spec.to_string(), spec.modes())
    }

    pub(crate) fn with(name: String, modes: FileModes) -> Self {
        Self { name, names: StdNames, modes }
    }
}

impl Default for StdBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for StdBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn names(&self) -> &dyn Namespace {
        &self.names
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn RawFile>, IoError> {
        Ok(Arc::new(StdFile::open(path, how, self.modes)?))
    }

    fn drive(&self, _max_wait: Duration) -> Result<usize, IoError> {
        Ok(0)
    }
}

#[derive(Debug)]
pub(crate) struct StdFile {
    file: Arc<File>,
    /// The same file, opened to be written past the page cache.
    direct: Option<Direct>,
    path: Arc<Path>,
    inode: Arc<Inode>,
    kept: Kept,
    writable: bool,
    modes: FileModes,
}

impl StdFile {
    pub(crate) fn open(path: &Path, how: OpenHow, modes: FileModes) -> Result<Self, IoError> {
        let mut options = OpenOptions::new();
        options.read(true).write(how != OpenHow::Read);
        options.create(how == OpenHow::Create).create_new(how == OpenHow::CreateNew);
        let opened = || {
            let file = options.open(path)?;
            StdFile::of(file, path, how, modes).inspect_err(|_| {
                if how == OpenHow::CreateNew {
                    // Nobody is to meet a file that was never had. What is left behind is an empty one.
                    let _ = std::fs::remove_file(path);
                }
            })
        };
        opened().map_err(|error| IoError::new("open", path, error))
    }

    /// What was opened as `path`.
    fn of(file: File, path: &Path, how: OpenHow, modes: FileModes) -> io::Result<Self> {
        let writable = how != OpenHow::Read;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        let inode = Inode::of(&metadata);
        let direct = if modes.direct && writable { Some(Direct::of(&file, path)?) } else { None };
        if modes.dont_cache && writable {
            probe::dont_cache(&file)?;
        }
        let file = Arc::new(file);
        Ok(StdFile { file, direct, path: path.into(), inode, kept: Kept::default(), writable, modes })
    }

    /// The descriptor to write `data` at `at` through.
    pub(crate) fn target(&self, at: u64, data: &Gather) -> &Arc<File> {
        match &self.direct {
            Some(direct) if direct.takes(at, data) => direct.file(),
            _ => &self.file,
        }
    }

    /// The descriptor that most writes go through.
    pub(crate) fn usual_target(&self) -> &Arc<File> {
        self.direct.as_ref().map_or(&self.file, Direct::file)
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(crate) fn shared_path(&self) -> &Arc<Path> {
        &self.path
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn modes(&self) -> &FileModes {
        &self.modes
    }

    fn write_once(&self, at: u64, data: &Gather, through: Through) -> io::Result<u64> {
        if at.checked_add(data.len()).is_none_or(|end| end > LEN_MAX) {
            // To `pwritev2` the largest of them means "where the last call ended".
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no file is so long"));
        }
        let _writing = match Inode::writing(&*self.inode, at) {
            Err(error) => return self.write_behind_views(at, data, through, error),
            writing => writing,
        };
        let file = &**self.target(at, data);
        let count = match (data, through, self.modes.dont_cache) {
            (Gather::One(part), Through::No, false) => retried(|| file.write_at(part, at))?,
            _ => with_slices(data.parts(), PARTS_MAX, BYTES_MAX, |slices| {
                retried(|| write_slices(file, slices, at, through, self.modes.dont_cache))
            })?,
        };
        Ok(count as u64)
    }

    /// A write that was `refused` because a view shows what it begins with. Where that is a block that was only begun, which is
    /// written again with what follows, the bytes are the same: what is new goes by the way that needs no alignment.
    #[cold]
    fn write_behind_views(
        &self,
        at: u64,
        data: &Gather,
        through: Through,
        refused: io::Error,
    ) -> io::Result<u64> {
        let (block, size) = (u64::from(self.align().block.get()), data.len());
        let shown = self.inode.frozen().saturating_sub(at);
        if self.direct.is_none() || shown >= block.min(size) {
            return Err(refused);
        }
        // Of a view that has come since then it is refused.
        let _writing = Inode::writing(&*self.inode, at + shown)?;
        let (mut kept, mut given) = (vec![0; shown as usize], Vec::with_capacity(shown as usize));
        for part in data.parts() {
            given.extend_from_slice(&part[..part.len().min(kept.len() - given.len())]);
        }
        let count = read_full(&mut kept, at, |into, at| self.file.read_at(into, at))?;
        if kept[..count] != given {
            return Err(refused);
        }
        let mut rest = data.clone();
        rest.advance(shown);
        let written = with_slices(rest.parts(), PARTS_MAX, BYTES_MAX, |slices| {
            retried(|| write_slices(&self.file, slices, at + shown, through, self.modes.dont_cache))
        })?;
        Ok(shown + written as u64)
    }

    fn flush(&self, metadata: bool) -> io::Result<u64> {
        // Not tried again after EINTR by hand: std does, and no other error is tried again.
        if metadata { self.file.sync_all() } else { self.file.sync_data() }?;
        Ok(0)
    }

    fn set_len(&self, len: u64) -> io::Result<u64> {
        // Asked before any map is detached for its sake.
        if !self.writable {
            return Err(Errno::BADF.into());
        }
        self.inode.resize(len, || self.file.set_len(len))?;
        Ok(len)
    }

    fn reserve(&self, range: &Range<u64>, how: Reserve) -> io::Result<u64> {
        let size = range.end.saturating_sub(range.start);
        // Space ahead of the length is given whatever the process's limit on that; what lies beyond could not be written.
        if how == Reserve::Blocks && beyond_limit(range.end) {
            return Err(Errno::FBIG.into());
        }
        if size > 0 {
            let flags = match how {
                Reserve::Blocks => FallocateFlags::KEEP_SIZE,
                Reserve::BlocksAndLen | Reserve::Zeroed => FallocateFlags::empty(),
            };
            match retried(|| fallocate(&self.file, flags, range.start, size).map_err(io::Error::from)) {
                // Zeros take space too, if not ahead.
                Err(error) if how == Reserve::Zeroed && error.kind() == io::ErrorKind::Unsupported => {}
                result => result?,
            }
            if how == Reserve::Zeroed {
                self.zero(range)?;
            }
        }
        Ok(self.file.metadata()?.len())
    }

    fn zero(&self, range: &Range<u64>) -> io::Result<()> {
        #[repr(align(4096))]
        struct Zeros([u8; 64 << 10]);
        static ZEROS: Zeros = Zeros([0; 64 << 10]);
        let _writing = Inode::writing(&*self.inode, range.start)?;
        let slices = [IoSlice::new(&ZEROS.0); ZERO_PARTS];
        let mut at = range.start;
        while at < range.end {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let first = left.min(ZEROS.0.len());
            let zeros = Gather::One(Bytes::from_static(&ZEROS.0[..first]));
            let file = self.target(at, &zeros);
            // Whole buffers in one call, and what is left over in one of its own.
            let parts = (left / ZEROS.0.len()).min(ZERO_PARTS);
            let written = match parts {
                0 => retried(|| file.write_at(&ZEROS.0[..first], at))?,
                parts => retried(|| Ok(rustix::io::pwritev(&**file, &slices[..parts], at)?))?,
            };
            match written {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => at += written as u64,
            }
        }
        // A hint: what it does not do the next sync will.
        let _ = sys::write_back(&self.file, range);
        Ok(())
    }

    fn advise(&self, range: &Range<u64>, advice: Advice) -> io::Result<u64> {
        let advice = match advice {
            Advice::Normal => OsAdvice::Normal,
            Advice::Sequential => OsAdvice::Sequential,
            Advice::Random => OsAdvice::Random,
            Advice::WillNeed => OsAdvice::WillNeed,
            Advice::DontNeed => OsAdvice::DontNeed,
            Advice::WriteBack => return sys::write_back(&self.file, range).map(|()| 0),
        };
        // No length means "to the end of the file" to the system call.
        if let Some(size) = std::num::NonZeroU64::new(range.end.saturating_sub(range.start)) {
            rustix::fs::fadvise(&self.file, range.start, Some(size), advice)?;
        }
        Ok(0)
    }

    /// [`RawFile::map_bytes`], with what is done while it waits for writes.
    pub(crate) fn map_bytes_pausing(&self, range: Range<u64>, pause: impl Fn()) -> Result<Bytes, IoError> {
        self.inode.map_bytes(&self.file, &self.kept, range.clone(), pause).map_err(|source| {
            self.error("map", source).with_range(range.start, range.end.saturating_sub(range.start))
        })
    }

    #[cold]
    fn error(&self, op: &'static str, source: io::Error) -> IoError {
        if !self.writable && source.raw_os_error() == Some(Errno::BADF.raw_os_error()) {
            return IoError::because(
                op,
                &*self.path,
                io::ErrorKind::InvalidInput,
                "it was opened to be read",
            );
        }
        IoError::new(op, &*self.path, source)
    }

    #[cold]
    fn write_error(&self, source: io::Error, at: u64, size: u64, through: Through) -> IoError {
        let error = self.error("write", limited(source, at.saturating_add(size))).with_range(at, size);
        // The sync in it may be what failed, and takes other writes with it.
        match (through, error.verdict()) {
            (Through::Data, Verdict::Other) => error.with_verdict(Verdict::Damaged),
            _ => error,
        }
    }
}

impl RawFile for StdFile {
    fn path(&self) -> PathBuf {
        self.path.to_path_buf()
    }

    fn align(&self) -> Align {
        self.direct.as_ref().map_or(Align::NONE, Direct::align)
    }

    fn caps(&self) -> FileCaps {
        let mut plan = self.modes.plan;
        // Asked here and not at the open: most files are not appended to.
        if matches!(plan.space, Space::Grown(_)) && !probe::gains_from_blocks_ahead(&self.file) {
            plan.space = Space::Queued(1 << 20);
        }
        FileCaps { write_through: cfg!(target_os = "linux"), descriptor: true, plan, ..FileCaps::NONE }
    }

    fn submit(&self, op: Op) -> Ticket {
        let done = match op {
            Op::Write { at, data, through } => self.write(at, data, through),
            Op::Flush { metadata } => Done::new(self.flush(metadata).map_err(|source| {
                let op = if metadata { "fsync" } else { "fdatasync" };
                self.error(op, source).with_verdict(Verdict::Damaged)
            })),
            Op::SetLen { len } => Done::new(
                self.set_len(len).map_err(|source| self.error("set length", source).with_range(len, 0)),
            ),
            Op::Reserve { range, how } => Done::new(self.reserve(&range, how).map_err(|source| {
                self.error("reserve", source).with_range(range.start, range.end.saturating_sub(range.start))
            })),
            Op::Advise { range, how } => {
                Done::new(self.advise(&range, how).map_err(|source| self.error("advise", source)))
            }
        };
        Ticket::ready(done)
    }

    fn write(&self, at: u64, data: Gather, through: Through) -> Done {
        let result = self.write_once(at, &data, through);
        let result = result.map_err(|source| self.write_error(source, at, data.len(), through));
        Done::written(result, data)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> Result<usize, IoError> {
        let size = into.len() as u64;
        read_full(into, at, |into, at| self.file.read_at(into, at))
            .map_err(|source| self.error("read", source).with_range(at, size))
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|source| self.error("length", source))
    }

    fn map(&self, len: usize, access: MapAccess) -> Result<MappedRegion, IoError> {
        self.inode
            .map(&self.file, &self.path, len, access)
            .map_err(|source| self.error("map", source).with_range(0, len as u64))
    }

    fn map_bytes(&self, range: Range<u64>) -> Result<Bytes, IoError> {
        self.map_bytes_pausing(range, real::yield_now)
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// The error of a write that was to reach to `end`. Where the process's limit on the size of a file lies in the middle of a
/// direct write, the system cuts the write there, and then refuses what is left because it is not aligned.
#[cold]
pub(crate) fn limited(error: io::Error, end: u64) -> io::Error {
    if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) && beyond_limit(end) {
        Errno::FBIG.into()
    } else {
        error
    }
}

/// Whether this process may make no file as long as `end`.
fn beyond_limit(end: u64) -> bool {
    getrlimit(Resource::Fsize).current.is_some_and(|limit| end > limit)
}

/// Reads until `into` is full or `read` says that the file ended, going on after short reads and interruptions.
pub(crate) fn read_full(
    into: &mut [u8],
    at: u64,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match retried(|| read(&mut into[done..], at + done as u64))? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Tries again for as long as a signal interrupts.
pub(crate) fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Calls `write` with the slices of one call: from the front, without empty ones, at most `parts_max` of them and at
/// most `bytes_max` bytes; the last may be cut.
fn with_slices<T>(
    parts: &[Bytes],
    parts_max: usize,
    bytes_max: usize,
    write: impl FnOnce(&[IoSlice<'_>]) -> T,
) -> T {
    let mut left = bytes_max;
    let slices = parts.iter().filter(|part| !part.is_empty()).take(parts_max).map_while(|part| {
        let taken = part.len().min(left);
        left -= taken;
        (taken > 0).then(|| IoSlice::new(&part[..taken]))
    });
    if parts.len() <= PARTS_FEW {
        let mut few = [IoSlice::new(&[]); PARTS_FEW];
        let mut count = 0;
        for slice in slices {
            few[count] = slice;
            count += 1;
        }
        write(&few[..count])
    } else {
        write(&slices.collect::<Vec<_>>())
    }
}

#[cfg(target_os = "linux")]
fn write_slices(
    file: &File,
    slices: &[IoSlice<'_>],
    at: u64,
    through: Through,
    dont_cache: bool,
) -> io::Result<usize> {
    use rustix::io::ReadWriteFlags as Flags;

    let mut flags = if dont_cache { probe::DONT_CACHE } else { Flags::empty() };
    if through == Through::Data {
        match rustix::io::pwritev2(file, slices, at, flags | Flags::DSYNC) {
            // Without the flag it is two calls.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            result => return Ok(result?),
        }
    }
    let written = loop {
        if flags.is_empty() {
            break rustix::io::pwritev(file, slices, at)?;
        }
        match rustix::io::pwritev2(file, slices, at, flags) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => flags = Flags::empty(),
            result => break result?,
        }
    };
    if through == Through::Data {
        file.sync_data()?;
    }
    Ok(written)
}

#[cfg(not(target_os = "linux"))]
fn write_slices(
    file: &File,
    slices: &[IoSlice<'_>],
    at: u64,
    through: Through,
    _dont_cache: bool,
) -> io::Result<usize> {
    let written = rustix::io::pwritev(file, slices, at)?;
    if through == Through::Data {
        file.sync_data()?;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iob_01_short_reads_and_interruptions_change_nothing() {
        let file: Vec<u8> = (0..12_000_u32).map(|index| (index % 251) as u8).collect();
        let mut calls = 0_u32;
        let mut read = |into: &mut [u8], at: u64| {
            calls += 1;
            if calls.is_multiple_of(3) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let rest = &file[(at as usize).min(file.len())..];
            let count = rest.len().min(into.len()).min(7);
            into[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        };
        let mut into = vec![0; 1000];
        assert_eq!(read_full(&mut into, 5000, &mut read).unwrap(), 1000);
        assert_eq!(into, file[5000..6000]);
        // The end of the file in the middle of the range is told, not filled with zeros.
        assert_eq!(read_full(&mut into, 11_500, &mut read).unwrap(), 500);
        assert_eq!(read_full(&mut into, 20_000, &mut read).unwrap(), 0);
    }

    #[test]
    fn iob_03_a_call_takes_no_more_parts_and_bytes_than_the_kernel_does() {
        let split = |parts: &[Bytes], parts_max, bytes_max| {
            let mut calls = Vec::new();
            let mut gather = Gather::from(parts.to_vec());
            while !gather.is_empty() {
                let taken: Vec<u8> = with_slices(gather.parts(), parts_max, bytes_max, |slices| {
                    assert!(!slices.is_empty() && slices.len() <= parts_max);
                    slices.iter().flat_map(|slice| slice.iter().copied()).collect()
                });
                assert!(!taken.is_empty() && taken.len() <= bytes_max);
                gather.advance(taken.len() as u64);
                calls.push(taken);
            }
            assert_eq!(calls.concat(), parts.concat());
            calls.len()
        };
        for (count, calls) in [(1, 1), (16, 1), (17, 1), (1024, 1), (1025, 2), (2048, 2), (3000, 3)] {
            let parts: Vec<Bytes> = (0..count).map(|index| Bytes::from(vec![index as u8; 78])).collect();
            assert_eq!(split(&parts, PARTS_MAX, BYTES_MAX), calls);
        }
        // The limit on bytes, with parts that share their memory: more than a call takes, and none of it copied.
        let parts = vec![Bytes::from(vec![7; 8 << 20]); 300];
        let mut gather = Gather::from(parts);
        let mut calls = Vec::new();
        while !gather.is_empty() {
            let taken = with_slices(gather.parts(), PARTS_MAX, BYTES_MAX, |slices| {
                slices.iter().map(|slice| slice.len()).sum::<usize>()
            });
            gather.advance(taken as u64);
            calls.push(taken);
        }
        assert_eq!(calls, [BYTES_MAX, 300 * (8 << 20) - BYTES_MAX]);
        // The limit on bytes, scaled down: within a part, between parts, with empty parts around it.
        let parts: Vec<Bytes> = [3, 0, 4, 0, 0, 10, 1].iter().map(|len| Bytes::from(vec![1; *len])).collect();
        for bytes_max in 1..20 {
            assert_eq!(
                split(&parts, 2, bytes_max).max(18_usize.div_ceil(bytes_max)),
                split(&parts, 2, bytes_max)
            );
        }
    }
}
