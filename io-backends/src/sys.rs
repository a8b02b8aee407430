//! System calls for which there is no safe wrapper.

use std::io;

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
