//! System calls for which there is no safe wrapper.

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Puts private zero pages in place of `[base, base + len)`, in one step for whoever looks at them meanwhile.
///
/// # Safety
/// The range is page-aligned, lies in one mapping that stays mapped during the call, and nobody holds a reference
/// to its bytes that is not an atomic's.
pub(crate) unsafe fn detach(base: *mut u8, len: usize, writable: bool) -> io::Result<()> {
    let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: MAP_FIXED replaces only pages of a mapping that the caller owns, as this function demands.
    let mapped = unsafe { mmap_anonymous(base.cast(), len, protection, flags) };
    mapped.map(drop).map_err(io::Error::from)
}

/// Begins writing back what was written to the range, without waiting, by `sync_file_range(2)`.
#[cfg(target_os = "linux")]
pub(crate) fn write_back(file: &File, range: &Range<u64>) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    // No length means "to the end of the file" to the system call.
    let size = range.end.saturating_sub(range.start);
    let (Ok(at), Ok(size @ 1..)) = (i64::try_from(range.start), i64::try_from(size)) else { return Ok(()) };
    // SAFETY: no memory is passed; the descriptor is the file's, which is open.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), at, size, libc::SYNC_FILE_RANGE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Nothing: a hint that this system does not take.
#[cfg(not(target_os = "linux"))]
pub(crate) fn write_back(_file: &File, _range: &Range<u64>) -> io::Result<()> {
    Ok(())
}
