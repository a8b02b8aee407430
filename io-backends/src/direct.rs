//! [`Direct`]: a file opened once more, to be written past the page cache.
//!
//! What O_DIRECT asks for comes from `statx(2)`, field by field, and not from whether the open succeeds: a tmpfs takes
//! the flag and caches everything. Writes that do not fit go through the page cache; the kernel keeps the two in step,
//! page by page, as long as they do not run at the same time over the same page.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use crate::backend::Align;
use crate::op::Gather;
use crate::probe;

/// The block of a file system that says nothing useful of it, and the largest taken from one that does.
const BLOCK_MIN: u32 = 4096;
const BLOCK_MAX: u32 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Direct {
    file: Arc<File>,
    align: Align,
}

impl Direct {
    /// Opens `file`, which has the name `path`, once more.
    ///
    /// # Errors
    /// Kind `Unsupported`, with the probe's name and a remedy, where the file system has no direct writes.
    pub(crate) fn of(file: &File, path: &Path) -> io::Result<Self> {
        let align = probe::direct_alignment(file)?;
        let open = |path: &Path| {
            OpenOptions::new().write(true).custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32).open(path)
        };
        let direct =
            open(path).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INVAL | Errno::OPNOTSUPP) => probe::no_direct("open(O_DIRECT)", Some(error)),
                _ => error,
            })?;
        // The name may lead elsewhere by now.
        let (ours, theirs) = (file.metadata()?, direct.metadata()?);
        if (ours.dev(), ours.ino()) != (theirs.dev(), theirs.ino()) {
            return Err(Errno::STALE.into());
        }
        let block = u32::try_from(ours.blksize()).unwrap_or(BLOCK_MAX).clamp(BLOCK_MIN, BLOCK_MAX);
        let block = NonZeroU32::new(block.next_multiple_of(align.offset.get())).unwrap_or(align.offset);
        Ok(Self { file: Arc::new(direct), align: Align::new(align.offset, align.memory, block) })
    }

    pub(crate) fn align(&self) -> Align {
        self.align
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Whether a write can go past the page cache.
    pub(crate) fn takes(&self, at: u64, data: &Gather) -> bool {
        let (offset, memory) = (self.align.offset.get() as usize, self.align.memory.get() as usize);
        let fits = |part: &bytes::Bytes| {
            part.len().is_multiple_of(offset) && (part.as_ptr() as usize).is_multiple_of(memory)
        };
        at.is_multiple_of(offset as u64) && data.parts().iter().all(fits)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn only_what_is_aligned_in_every_part_goes_past_the_cache() {
        #[repr(align(4096))]
        struct Page([u8; 8192]);
        static PAGE: Page = Page([0; 8192]);
        let align = NonZeroU32::new(512).unwrap();
        let file = Arc::new(File::open("/dev/null").unwrap());
        let direct = Direct { file, align: Align::new(align, align, align) };
        let part = |range: std::ops::Range<usize>| Bytes::from_static(&PAGE.0[range]);
        assert!(direct.takes(512, &part(0..1024).into()));
        assert!(direct.takes(0, &vec![part(512..1024), part(4096..8192)].into()));
        assert!(!direct.takes(511, &part(0..1024).into()), "position");
        assert!(!direct.takes(0, &part(0..1000).into()), "size");
        assert!(!direct.takes(0, &part(256..768).into()), "address");
        assert!(!direct.takes(0, &vec![part(0..512), part(0..100)].into()), "one part of two");
    }
}
