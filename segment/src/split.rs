//! Splitting a segment whose offsets reach farther from its base than an index entry can say.
//!
//! Only old versions of Kafka made such segments, when they compacted several into one (KAFKA-6264). The batches are copied
//! as they are into new segments, which then take the place of the old one as after a compaction: complete files are
//! `.cleaned` first; then, from the last segment to the first, `.swap`. As long as one is `.cleaned` an opening drops them
//! all; once none is, it finishes the replacement. Indexes are not copied: they are made again from the batches.
//!
//! The first of the new segments has the old base, and is empty where no batch fits it: so the names alone say which files the
//! replacement retires, at whatever moment a process stops. Kafka begins at the first batch's base offset.
//!
//! Source: Kafka `UnifiedLog.splitOverflowedSegment`.

use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;
use kseg_format::Offset;
use kseg_io_backends::{Gather, OpenHow, appender, write_all};

use crate::error::{Error, Result};
use crate::files::{FileKind, Suffix, file_name};
use crate::scan::Headers;
use crate::segment::Segment;

/// A stretch of a segment's batches that can be a segment of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Base offset of its first batch.
    pub base: Offset,
    /// Its bytes in the `.log` file.
    pub range: Range<u64>,
}

/// Bytes copied at once.
const CHUNK: u64 = 1024 * 1024;

impl Segment {
    /// Whether batches lie too far from the base offset: the stretches of batches that fit together, or nothing where all
    /// fit. Looks at framing alone, up to the first bytes that are no batch; what follows those is in the last part.
    ///
    /// `limit` is the base offset of the next segment. An offset at or above it is a damaged one, and no reason to split. With
    /// `None`, for the last segment, it takes two batches beyond reach, or one of which only the end is: the base offset of
    /// a single one may be damaged, since no checksum covers it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn overflow(&self, limit: Option<Offset>) -> Result<Vec<Part>> {
        let file = self.log.open()?;
        let size = self.size();
        let mut parts = vec![Part { base: self.base, range: 0..0 }];
        let (mut too_far, mut surely) = (0, false);
        let mut next = self.base;
        let mut walk = Headers::new(&*file, 0, size);
        loop {
            let (position, header) = match walk.next() {
                Ok(Some(batch)) => batch,
                Ok(None) | Err(Error::Corrupt { .. }) => break,
                Err(e) => return Err(e),
            };
            let last = header.last_offset();
            let in_order = last >= next && limit.is_none_or(|limit| last < limit);
            if in_order && !self.can_hold(last) {
                too_far += 1;
                // How far it reaches is under the checksum, where it begins is not.
                surely |= limit.is_some() || header.base_offset().is_some_and(|base| self.can_hold(base));
            }
            let fits = parts.last().is_some_and(|part| last.relative_to(part.base).is_some());
            if in_order && !fits {
                // The base of an old compressed batch is inside it: this is one below it that fits.
                let far = Offset::new(last.get().saturating_sub(i64::from(i32::MAX)));
                let base = header.base_offset().unwrap_or(far.max(next));
                parts.push(Part { base, range: position..position });
            }
            if in_order {
                next = last.next();
            }
            let end = position + header.size() as u64;
            if let Some(part) = parts.last_mut() {
                part.range.end = end;
            }
        }
        if !surely && too_far < 2 {
            return Ok(Vec::new());
        }
        if let Some(part) = parts.last_mut() {
            part.range.end = size;
        }
        Ok(parts)
    }

    /// Writes each part as a segment of its own, complete and durable, under names ending in `.swap`; the aborted
    /// transactions go with the batches that end them. This segment's own files stay, for whoever finishes the replacement.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Aborted`]; files may then be left, which the next opening of the log removes.
    pub fn split(&self, parts: &[Part]) -> Result<()> {
        let names = self.backend.names();
        let file = self.log.open()?;
        let modified = names.stat(&self.path())?.map(|stat| stat.modified);
        let aborted = self.aborted()?;
        for (n, part) in parts.iter().enumerate() {
            let log = self.part_path(part, FileKind::Log, Suffix::Cleaned);
            names.remove(&log)?;
            let out = appender(self.backend.open(&log, OpenHow::CreateNew)?, 0)?;
            let mut at = part.range.start;
            while at < part.range.end {
                let mut chunk = vec![0; (part.range.end - at).min(CHUNK) as usize];
                let got = file.read_at(&mut chunk, at)?;
                if got == 0 {
                    return Err(Error::Io(kseg_io_backends::IoError::new(
                        "read",
                        self.path(),
                        std::io::ErrorKind::UnexpectedEof.into(),
                    )));
                }
                chunk.truncate(got);
                out.append(Gather::from(Bytes::from(chunk)))?;
                at += got as u64;
            }
            out.flush()?;
            // Retention may go by it.
            if let Some(modified) = modified {
                names.set_modified(&log, modified)?;
            }
            let end = parts.get(n + 1).map_or(Offset::new(i64::MAX), |next| next.base);
            let own: Vec<u8> = aborted
                .iter()
                .filter(|t| t.last_offset >= part.base && t.last_offset < end)
                .flat_map(|t| t.encode())
                .collect();
            if !own.is_empty() {
                let path = self.part_path(part, FileKind::TxnIndex, Suffix::Cleaned);
                names.remove(&path)?;
                let out = self.backend.open(&path, OpenHow::CreateNew)?;
                write_all(&*out, 0, Bytes::from(own).into())?;
                names.sync_file(&path)?;
            }
        }
        names.sync_dir(&self.dir())?;
        for part in parts.iter().rev() {
            for kind in [FileKind::Log, FileKind::TxnIndex] {
                let from = self.part_path(part, kind, Suffix::Cleaned);
                if names.stat(&from)?.is_some() {
                    names.rename(&from, &self.part_path(part, kind, Suffix::Swap))?;
                }
            }
        }
        names.sync_dir(&self.dir())?;
        Ok(())
    }

    fn part_path(&self, part: &Part, kind: FileKind, suffix: Suffix) -> PathBuf {
        self.dir().join(file_name(part.base, kind, suffix))
    }
}
