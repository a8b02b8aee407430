//! What may be damaged is checked: the end of the log, what lies behind the recovery point, transaction indexes.

use std::collections::BTreeSet;
use std::sync::Arc;

use kseg_format::{AbortedTransaction, Magic, Offset};
use kseg_segment::{BatchReader, Cut, CutReason, FileKind, Overflow, Segment, Suffix, file_name};

use super::Loading;
use crate::error::Result;
use crate::leader_epoch::FileWrite;
use crate::log::Writer;
use crate::marks::Place;
use crate::producers::{aborted_entry, observe};
use crate::segments::Segments;

impl Loading<'_> {
    /// Whether the segment will be checked batch by batch.
    pub(super) fn is_to_recover(&self, segments: &Segments, base: Offset) -> bool {
        !self.clean && base >= self.first_unflushed(segments)
    }

    /// After an orderly stop the log ends at its recovery point, if there is one: no checksum covers the offsets that say so.
    /// Where it does not, and the last segment is damaged, that is checked batch by batch, as after a crash.
    ///
    /// Kafka takes the end as it comes, and gives offsets out again, or leaves the good batches below its log start.
    pub(super) fn doubt_the_end(&mut self) -> Result<()> {
        let log = self.log;
        let segments = log.segments();
        let (Some(last), true) = (segments.active(), self.clean) else { return Ok(()) };
        let expected = Some(self.recovery_point).filter(|&point| point > Offset::ZERO);
        if !last.is_as_left(expected).map_err(|e| log.wrap(e))? {
            self.clean = false;
            self.unflushed = last.base_offset();
        }
        Ok(())
    }

    /// Base offset of the first segment that recovery checks.
    fn first_unflushed(&self, segments: &Segments) -> Offset {
        let index = segments.floor_index(self.unflushed).unwrap_or(0);
        segments.as_slice().get(index).map_or(Offset::ZERO, |s| s.base_offset())
    }

    /// Phase 5. Returns the log end offset; `None` where there is no segment.
    pub(super) fn recover(&mut self, writer: &mut Writer) -> Result<Option<Offset>> {
        let log = self.log;
        let segments = log.segments();
        let mut end = None;
        if self.clean {
            if let Some(last) = segments.active() {
                let recovered = last.recover_tail().map_err(|e| log.wrap(e))?;
                end = Some(recovered.next_offset);
                self.report.cuts.extend(recovered.cut);
            }
        } else {
            let unflushed = segments.range(self.unflushed, Offset::new(i64::MAX))?.to_vec();
            for (n, segment) in unflushed.iter().enumerate() {
                let (next_offset, cut) = self.recover_segment(writer, segment, &unflushed[n + 1..])?;
                if self.overflowed.is_some() {
                    return Ok(None);
                }
                end = Some(next_offset);
                self.report.recovered.push(segment.base_offset());
                if let Some(cut) = cut {
                    self.report.cuts.push(cut);
                    break;
                }
            }
            // One of them is enough: no flush moves the recovery point to below the newest, and a stop before the next flush
            // makes them all anew.
            if let (true, Some(newest)) = (end.is_some(), writer.producers.latest_snapshot()) {
                log.sync_snapshot(newest)?;
            }
            if end.is_none() {
                end = match log.segments().active() {
                    Some(last) => Some(last.next_offset().map_err(|e| log.wrap(e))?),
                    None => None,
                };
            }
        }
        if end.is_some_and(|end| end < self.log_start) {
            self.report.emptied = true;
            let all = log.segments().as_slice().to_vec();
            self.set_aside(&all)?;
            if log.epochs.write().clear_and_flush().write != FileWrite::None {
                log.write_epochs()?;
            }
            writer.producers = log.list_producers()?;
            log.reset_producers(writer, self.log_start)?;
            return Ok(None);
        }
        Ok(end)
    }

    /// A transaction index that cannot be its segment's is made anew: a reader that goes by it is given aborted records as
    /// good ones. One of no bytes may be what a truncation left, or have lost what it held: the markers say. Those of segments
    /// that were recovered have just been made.
    pub(super) fn check_aborted(&mut self, log_end: Offset) -> Result<()> {
        let log = self.log;
        let segments = log.segments();
        for (n, segment) in segments.as_slice().iter().enumerate() {
            let base = segment.base_offset();
            if !self.present.contains(&(base, FileKind::TxnIndex)) || self.report.recovered.contains(&base) {
                continue;
            }
            let end = segments.as_slice().get(n + 1).map_or(log_end, |next| next.base_offset());
            let emptied = self.emptied.contains(&base) && segment.size() > 0;
            if !emptied && segment.aborted_are_sound(end).map_err(|e| log.wrap(e))? {
                continue;
            }
            let aborted = self.aborted_of(segment)?;
            if emptied && aborted.is_empty() {
                continue;
            }
            segment.replace_aborted(&aborted).map_err(|e| log.wrap(e))?;
            self.report.aborted_rebuilt.push(base);
        }
        Ok(())
    }

    /// The aborted transactions that end in a segment, by its markers and the producers that were known when it began.
    pub(super) fn aborted_of(&mut self, segment: &Segment) -> Result<Vec<AbortedTransaction>> {
        let log = self.log;
        let base = segment.base_offset();
        let mut state = log.producers_at(self.log_start, base, &mut self.doubts)?;
        let mut aborted = Vec::new();
        let all = segment.region_from(None).map_err(|e| log.wrap(e))?;
        let mut walk = BatchReader::new(&**all.file(), 0, segment.size());
        // What cannot be read is reported when it is read.
        while let Some((position, batch)) = walk.next_readable(&mut |_, _| {}).map_err(|e| log.wrap(e))? {
            // Doubts about a batch are noted when the producers are rebuilt.
            let ended = observe(&mut state, &batch, Place { segment: base, position });
            aborted.extend(ended.unwrap_or_default().iter().filter_map(aborted_entry));
        }
        Ok(aborted)
    }

    /// Checks one segment, with the leader epochs and producers of its batches. Where it is damaged the segments behind it
    /// leave the log first: were they still there when only the cut had been made, the log would have a hole.
    fn recover_segment(
        &mut self,
        writer: &mut Writer,
        segment: &Segment,
        later: &[Arc<Segment>],
    ) -> Result<(Offset, Option<Cut>)> {
        let log = self.log;
        writer.producers = log.list_producers()?;
        let base = segment.base_offset();
        let mut known = log.segments();
        if !self.present.contains(&(base, FileKind::OffsetIndex)) {
            // Kafka finds it while it opens the segments one by one: none from this one on is known to it yet.
            known = Arc::new(known.without(|s| s.base_offset() >= base));
        }
        log.rebuild_producers_over(&known, writer, self.log_start, base, false, &mut self.doubts)?;
        let producers = &mut writer.producers;
        let mut latest = log.epochs.read().latest().map(|entry| entry.epoch);
        let mut epochs_changed = false;
        let mut noted = Ok(());
        let doubts = &mut self.doubts;
        // Batches that are too far were split off when the segments were opened, but for the last one: any other that is
        // left is damaged.
        let checked = segment.check(Overflow::Cut, &mut |position, batch| {
            let header = batch.header();
            if header.magic() != Magic::V2 {
                return;
            }
            if let (Some(epoch), Some(base)) = (header.leader_epoch(), header.base_offset())
                && latest.is_none_or(|latest| epoch > latest)
                && log.epochs.write().assign(epoch, base).is_ok()
            {
                latest = Some(epoch);
                epochs_changed = true;
            }
            let place = Place { segment: segment.base_offset(), position };
            let ended = observe(producers, &batch.into(), place).unwrap_or_else(|reason| {
                let offset = header.base_offset().unwrap_or(header.last_offset());
                doubts.add(segment.path(), Some(position), offset, reason);
                Vec::new()
            });
            for ended in ended {
                if let (Some(aborted), true) = (aborted_entry(&ended), noted.is_ok()) {
                    noted = segment.append_aborted(&aborted);
                }
            }
        });
        noted.map_err(|e| log.wrap(e))?;
        let checked = checked.map_err(|e| log.wrap(e))?;
        if later.is_empty() && matches!(checked.damage, Some(CutReason::TooFar { .. })) {
            let parts = segment.overflow(None).map_err(|e| log.wrap(e))?;
            if !parts.is_empty() {
                segment.split(&parts).map_err(|e| log.wrap(e))?;
                self.overflowed = Some(base);
                // Without an index Kafka has split it before, while it opened the segments, and opens the parts.
                let with_index = self.present.contains(&(base, FileKind::OffsetIndex));
                self.appended_part = parts.last().filter(|_| with_index).map(|part| part.base);
                return Ok((base, None));
            }
        }
        if checked.damage.is_some() {
            self.set_aside(later)?;
        }
        let recovered = segment.cut(checked).map_err(|e| log.wrap(e))?;
        if epochs_changed {
            log.write_epochs()?;
        }
        writer.producers.set_map_end(recovered.next_offset.max(writer.producers.map_end()));
        // The snapshot at the base of a segment that has left the log goes with it. A new one would tell of the last batch of
        // each producer only, where the batches tell of five.
        let left = recovered.cut.is_some() && later.iter().any(|s| s.base_offset() == recovered.next_offset);
        if !left {
            log.take_snapshot(writer, false)?;
        }
        Ok((recovered.next_offset, recovered.cut))
    }

    /// Segments leave the log; their batches are kept aside, their indexes are not.
    fn set_aside(&mut self, gone: &[Arc<Segment>]) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let log = self.log;
        let names = log.backend.names();
        for segment in gone {
            self.report.set_aside.extend(segment.set_aside().map_err(|e| log.wrap(e))?);
            let snapshot = self.path(&file_name(segment.base_offset(), FileKind::Snapshot, Suffix::None));
            names.remove(&snapshot)?;
        }
        // Before anything takes their place: were their names still there, the log would have a hole.
        names.sync_dir(&log.dir)?;
        let gone: BTreeSet<Offset> = gone.iter().map(|s| s.base_offset()).collect();
        let kept = log.segments().without(|s| gone.contains(&s.base_offset()));
        *log.segments.write() = Arc::new(kept);
        Ok(())
    }
}
