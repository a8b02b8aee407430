//! The files of the directory become segments: missing indexes are made, what reaches too far from its base is split.

use std::collections::BTreeSet;
use std::sync::Arc;

use kseg_format::Offset;
use kseg_segment::{FileKind, FileName, Segment, Suffix, file_name};

use super::Loading;
use crate::error::Result;
use crate::log::{Deferred, Writer};

impl Loading<'_> {
    /// Phase 4: every `.log` file is a segment; an index file without one goes.
    pub(super) fn open_segments(&mut self) -> Result<()> {
        let files = self.files()?;
        let present: BTreeSet<(Offset, FileKind)> = files.iter().map(|f| (f.1.offset, f.1.kind)).collect();
        let log = self.log;
        let config = log.segment_config();
        let mut segments = Vec::new();
        for (name, parsed, size) in &files {
            match parsed.kind {
                FileKind::Log => {
                    let now_ms = log.clock.now_ms();
                    let canonical = file_name(parsed.offset, FileKind::Log, Suffix::None);
                    if *name != canonical && files.iter().any(|(other, ..)| *other == canonical) {
                        // Two files claim one base offset: the one with Kafka's name is the segment.
                        self.report.unknown.push(self.path(name));
                        continue;
                    }
                    if *name != canonical {
                        log.backend.names().rename(&self.path(name), &self.path(&canonical))?;
                    }
                    let segment = Segment::open(
                        log.backend.clone(),
                        &log.dir,
                        parsed.offset,
                        config.clone(),
                        now_ms,
                        *size,
                    );
                    segments.push(Arc::new(segment.map_err(|e| log.wrap(e))?));
                }
                FileKind::OffsetIndex | FileKind::TimeIndex | FileKind::TxnIndex
                    if !present.contains(&(parsed.offset, FileKind::Log)) =>
                {
                    self.remove(name)?;
                }
                _ => {}
            }
        }
        self.present = present;
        let is_emptied =
            |(_, name, size): &&(String, FileName, u64)| name.kind == FileKind::TxnIndex && *size == 0;
        self.emptied = files.iter().filter(is_emptied).map(|(_, name, _)| name.offset).collect();
        *log.segments.write() = Arc::new(segments.into_iter().collect());
        Ok(())
    }

    /// Whether the segment has no offset index, or no time index.
    pub(super) fn lacks_index(&self, base: Offset) -> bool {
        [FileKind::OffsetIndex, FileKind::TimeIndex].iter().any(|&kind| !self.present.contains(&(base, kind)))
    }

    /// Makes the index files that are missing, but for those that recovery makes anyway.
    ///
    /// A segment without an offset index has its producers looked through as well, and the snapshots behind it are
    /// forgotten: they tell of the last batch of each producer only, where batches tell of five. So has an empty one, as a
    /// roll leaves it that no append has followed: without any snapshot, its producers are those of the batches before it.
    ///
    /// Source: Kafka `LogLoader.loadSegmentFiles`, which recovers such a segment.
    pub(super) fn rebuild_missing(&mut self, writer: &mut Writer) -> Result<()> {
        let log = self.log;
        let segments = log.segments();
        for (n, segment) in segments.as_slice().iter().enumerate() {
            let base = segment.base_offset();
            let to_recover = self.is_to_recover(&segments, base);
            if !self.lacks_index(base) || to_recover {
                continue;
            }
            if segment.size() > 0 {
                segment.rebuild_indexes().map_err(|e| log.wrap(e))?;
                self.report.rebuilt.push(base);
            }
            if self.present.contains(&(base, FileKind::OffsetIndex)) {
                continue;
            }
            // What lost its index may have lost its aborted transactions as well: that there are none looks the same.
            if !self.present.contains(&(base, FileKind::TxnIndex)) {
                let aborted = self.aborted_of(segment)?;
                if !aborted.is_empty() {
                    segment.replace_aborted(&aborted).map_err(|e| log.wrap(e))?;
                    self.report.aborted_rebuilt.push(base);
                }
            }
            if !self.clean {
                continue;
            }
            let end = match segments.as_slice().get(n + 1) {
                Some(next) => next.base_offset(),
                None => segment.next_offset().map_err(|e| log.wrap(e))?,
            };
            if end <= self.log_start {
                // None of its batches is the log's any more, and the snapshots behind it know producers that only they know.
                continue;
            }
            writer.producers = log.list_producers()?;
            let known = segments.without(|s| s.base_offset() >= base);
            log.rebuild_producers_over(&known, writer, self.log_start, base, false, &mut self.doubts)?;
            // All of the segment, what lies below the log start as well: so does recovery.
            log.scan_producers(&mut writer.producers, segment, base, end, &mut self.doubts)?;
            writer.producers.set_map_end(end.max(writer.producers.map_end()));
            log.take_snapshot(writer, true)?;
        }
        Ok(())
    }

    /// Splits the first segment, of those whose batches will all be looked at, that has offsets too far from its base.
    /// Returns its base.
    ///
    /// Source: Kafka `LogLoader.retryOnOffsetOverflow`. The last segment is looked at when
    /// recovery finds a batch that is too far.
    pub(super) fn split_one(&mut self) -> Result<Option<Offset>> {
        let log = self.log;
        let segments = log.segments();
        for pair in segments.as_slice().windows(2) {
            let [segment, next] = pair else { continue };
            let (base, limit) = (segment.base_offset(), next.base_offset());
            let looked_at = self.lacks_index(base) || self.is_to_recover(&segments, base);
            let may_overflow = limit.get().saturating_sub(base.get()) > i64::from(i32::MAX) + 1;
            if !looked_at || !may_overflow {
                continue;
            }
            let parts = segment.overflow(Some(limit)).map_err(|e| log.wrap(e))?;
            if parts.is_empty() {
                continue;
            }
            segment.split(&parts).map_err(|e| log.wrap(e))?;
            return Ok(Some(base));
        }
        Ok(None)
    }

    /// Puts the parts of a segment in its place. The first part has its base, so that the replacement is whole wherever it
    /// stops; where no batch fits that base it is empty, and goes.
    pub(super) fn finish_split(&mut self, base: Offset, deferred: &mut Deferred) -> Result<()> {
        self.report.split.push(base);
        for segment in self.log.segments().as_slice() {
            segment.abandon();
        }
        self.finish_replacements()?;
        self.open_segments()?;
        let segments = self.log.segments();
        if let Some(first) = segments.get(base).filter(|first| first.size() == 0) {
            *self.log.segments.write() = Arc::new(segments.without(|s| s.base_offset() == base));
            self.log.delete_later(vec![first.clone()], deferred)?;
        }
        Ok(())
    }
}
