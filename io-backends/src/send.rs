//! Bytes of a file to a socket, by the kernel where it can: they go from the page cache to the network without being
//! copied through this process.
//!
//! `sendfile(2)` does it, which measured faster than a memory map that is written, and than a read and a write. `splice(2)`
//! is not used: over loopback, from the page cache, it had 0.84 of sendfile's rate in pieces of 16 KiB, 0.90 in pieces of
//! 128 KiB, and 1.1 in pieces of 1 MiB with an interval on both sides of 1 (paired slices, Linux 6.18), and it wants a pipe for each
//! connection: two descriptors, and memory of the kernel's as large as the piece. Pages that are on their way stay those of the file: what is changed in it meanwhile may be
//! what arrives. Only what is stable is sent so; the rest comes from the appender's memory.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::appender::Appender;
use crate::backend::RawFile;
use crate::error::IoError;

/// Bytes of one copy, where the kernel does not do it alone.
const COPY: usize = 64 << 10;

impl dyn Appender {
    /// Sends `range`, as far as it was accepted, to `socket`: a socket, a pipe or a file. Returns how many bytes went;
    /// fewer than asked at the accepted mark, and where a socket that does not block takes no more.
    ///
    /// # Errors
    /// Kind [`WouldBlock`](io::ErrorKind::WouldBlock) where a socket that does not block took nothing; whatever the
    /// socket says, and [`Verdict::Damaged`](crate::Verdict::Damaged) where the file ended before its mark.
    pub fn send_to(&self, socket: BorrowedFd<'_>, range: Range<u64>) -> Result<u64, IoError> {
        let marks = self.marks();
        let end = range.end.min(marks.accepted());
        // Not beyond the mark that was seen: that of the next append may have moved since.
        let stable = end.min(marks.stable());
        let sent = if range.start < stable { send(&**self.file(), socket, range.start..stable)? } else { 0 };
        let at = range.start + sent;
        if at >= end || (at < stable && sent > 0) {
            return Ok(sent);
        }
        match copy(socket, at..end, |into, at| self.read_at(into, at)) {
            Err(Stopped::Socket(error)) if sent > 0 && error.kind() == io::ErrorKind::WouldBlock => Ok(sent),
            result => result.map(|more| sent + more).map_err(|error| error.on(&**self.file(), at..end)),
        }
    }
}

/// Sends `range` of `file` to `socket`: a socket, a pipe or a file. Returns how many bytes went; fewer than asked where
/// a socket that does not block takes no more.
///
/// # Errors
/// Kind [`WouldBlock`](io::ErrorKind::WouldBlock) where a socket that does not block took nothing; whatever the socket
/// says, and [`Verdict::Damaged`](crate::Verdict::Damaged) where the file ends before the range does.
///
/// Source: sendfile(2); Kafka `FileRecords.writeTo`.
pub fn send(file: &dyn RawFile, socket: BorrowedFd<'_>, range: Range<u64>) -> Result<u64, IoError> {
    let result = match file.as_fd() {
        #[cfg(target_os = "linux")]
        Some(from) => by_kernel(file, from, socket, range.clone()),
        _ => copy(socket, range.clone(), |into, at| file.read_at(into, at)),
    };
    result.map_err(|error| error.on(file, range))
}

/// Why no more was sent.
enum Stopped {
    Socket(io::Error),
    File(IoError),
    Ended,
}

impl Stopped {
    #[cold]
    fn on(self, file: &dyn RawFile, range: Range<u64>) -> IoError {
        let size = range.end.saturating_sub(range.start);
        match self {
            Stopped::File(error) => error,
            Stopped::Socket(error) => IoError::new("send", file.path(), error).with_range(range.start, size),
            Stopped::Ended => {
                let why = "the file ends before the range does";
                let kind = io::ErrorKind::UnexpectedEof;
                IoError::because("send", file.path(), kind, why).with_range(range.start, size)
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn by_kernel(
    file: &dyn RawFile,
    from: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
    range: Range<u64>,
) -> Result<u64, Stopped> {
    /// What one call takes at most: 2 GiB less a page.
    const MOST: u64 = 2_147_479_552;

    let mut at = range.start;
    while at < range.end {
        let count = (range.end - at).min(MOST) as usize;
        match rustix::fs::sendfile(socket, from, Some(&mut at), count) {
            Ok(0) => return Err(Stopped::Ended),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if at > range.start => break,
            // Not from this file system, or not to that: a file that is opened to be appended to, for one.
            Err(Errno::INVAL | Errno::NOSYS) if at == range.start => {
                return copy(socket, range, |into, at| file.read_at(into, at));
            }
            Err(errno) => return Err(Stopped::Socket(errno.into())),
        }
    }
    Ok(at - range.start)
}

/// Through memory of this process.
fn copy(
    socket: BorrowedFd<'_>,
    range: Range<u64>,
    read: impl Fn(&mut [u8], u64) -> Result<usize, IoError>,
) -> Result<u64, Stopped> {
    let mut at = range.start;
    let left = usize::try_from(range.end.saturating_sub(at)).unwrap_or(usize::MAX);
    let mut buf = vec![0; left.min(COPY)];
    while at < range.end {
        let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buf.len());
        let count = read(&mut buf[..want], at).map_err(Stopped::File)?;
        if count == 0 {
            return Err(Stopped::Ended);
        }
        match write_all(socket, &buf[..count]) {
            Ok(()) => at += count as u64,
            Err((written, error)) => {
                at += written as u64;
                if error.kind() == io::ErrorKind::WouldBlock && at > range.start {
                    break;
                }
                return Err(Stopped::Socket(error));
            }
        }
    }
    Ok(at.saturating_sub(range.start))
}

fn write_all(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::write(socket, &bytes[done..]) {
            Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err((done, errno.into())),
        }
    }
    Ok(())
}
