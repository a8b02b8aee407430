//! The batches of a partition in order, across segments, also while a writer appends and rolls.

use std::path::Path;
use std::thread;
use std::time::Duration;

use kseg_format::{Batch, BatchHeader, Offset, Timestamp};

use super::DECOMPRESSED_MAX;
use super::file::PreadFile;
use super::hints;
use super::partition::{Partition, SegmentFile};
use super::walk::{Step, Walk, WalkError};
use crate::error::{Error, Result};

/// Where to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    /// The first record that is there.
    Earliest,
    /// Behind the last record that is there now.
    Latest,
    /// This offset.
    At(Offset),
    /// The first record whose timestamp is at least this one.
    Time(Timestamp),
}

/// A place in a partition: the next record's offset and, once it was looked for, the file.
///
/// A batch is handed out only with the right checksum. The end of the last segment is quiet where a writer may be at work: at
/// a batch that is not whole yet, or zeros that were set aside; see [`Cursor::check_end`]. Inside a segment that has a successor both are damage, and
/// so are offsets that go back.
#[derive(Debug)]
pub(crate) struct Cursor {
    partition: Partition,
    /// The segments as they were listed last.
    listed: Vec<SegmentFile>,
    /// Records below are not wanted.
    next: Offset,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    segment: SegmentFile,
    walk: Walk,
    /// What the next batch in the file must reach at least.
    floor: Offset,
    /// The batch at the walk's position was handed out.
    taken: Option<BatchHeader>,
}

/// A batch with the right checksum, and its place.
#[derive(Debug)]
pub(crate) struct Found<'c> {
    pub(crate) path: &'c Path,
    pub(crate) position: u64,
    pub(crate) batch: Batch<'c>,
    /// Records of the batch below this are not wanted.
    pub(crate) from: Offset,
}

/// Times that damage in the last segment is looked at again, and the pause before.
///
/// A writer that has not returned from its write may have extended the file before its bytes arrived.
const SECOND_LOOKS: u32 = 3;
const SECOND_LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Times that a segment which vanished between listing and opening is looked for again.
const LISTINGS: u32 = 10;

impl Cursor {
    /// A cursor at `start`.
    ///
    /// # Errors
    /// An offset below the first record or above the end of the log; damage met by a search.
    pub(crate) fn new(partition: Partition, start: Start) -> Result<Cursor> {
        let mut cursor = Cursor { partition, listed: Vec::new(), next: Offset::ZERO, open: None };
        cursor.next = match start {
            Start::Earliest => cursor.earliest()?,
            Start::Latest => cursor.latest()?,
            Start::At(offset) => cursor.checked(offset)?,
            Start::Time(timestamp) => cursor.by_time(timestamp)?,
        };
        Ok(cursor)
    }

    /// The offset behind the last record that is there now.
    pub(crate) fn log_end(partition: Partition) -> Result<Offset> {
        Ok(Cursor::new(partition, Start::Latest)?.next)
    }

    /// The next batch, or `None` at the end of what is there now.
    pub(crate) fn next(&mut self) -> Result<Option<Found<'_>>> {
        let mut looks = 0;
        let mut settled = false;
        let header = loop {
            let failed = match self.find() {
                Ok(None) => return Ok(None),
                Ok(Some(header)) => match self.verify(&header) {
                    Ok(()) => break header,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            // Once a segment has a successor it has all that it will ever have, and is looked at once more.
            let was_settled = std::mem::replace(&mut settled, !self.in_last_segment()?);
            looks += 1;
            if was_settled || !settled && looks > SECOND_LOOKS {
                return Err(failed);
            }
            let Some(open) = &mut self.open else { return Err(failed) };
            let unwritten = !settled && open.walk.unwritten_from()?.is_some();
            if !settled && !unwritten {
                thread::sleep(SECOND_LOOK_PAUSE);
            }
            open.walk.refresh()?;
            if unwritten {
                return Ok(None);
            }
        };
        let from = std::mem::replace(&mut self.next, header.next_offset());
        let Some(open) = &mut self.open else { return Ok(None) };
        open.floor = header.next_offset();
        open.taken = Some(header);
        let position = open.walk.position();
        let path = &open.segment.path;
        let batch = Batch::parse(open.walk.bytes(&header)?)
            .map_err(|error| Error::batch(path, position, Some(from.get()), &error))?;
        Ok(Some(Found { path, position, batch, from }))
    }

    /// Walks to the next batch that has a wanted offset.
    fn find(&mut self) -> Result<Option<BatchHeader>> {
        loop {
            if self.open.is_none() && !self.open_segment()? {
                return Ok(None);
            }
            let Some(open) = &mut self.open else { return Ok(None) };
            if let Some(taken) = open.taken.take() {
                open.walk.advance(&taken);
            }
            match open.walk.peek() {
                Ok(Step::Batch(header)) => {
                    open.check_offsets(&header)?;
                    if header.next_offset() > self.next {
                        return Ok(Some(header));
                    }
                    open.floor = header.next_offset();
                    open.walk.advance(&header);
                }
                Ok(step) => {
                    if !self.end_of_segment(step)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(open.walk.error(error, Some(open.floor.get()))),
            }
        }
    }

    fn verify(&mut self, header: &BatchHeader) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        match open.walk.batch(header) {
            Ok(_) => Ok(()),
            Err(error) => Err(open.walk.error(error, Some(open.floor.get()))),
        }
    }

    /// Opens the segment that has the next offset, or the first one above it. Whether there was one.
    fn open_segment(&mut self) -> Result<bool> {
        for _ in 0..LISTINGS {
            if self.listed.is_empty() {
                self.listed = self.partition.segments()?;
            }
            let at = self.listed.partition_point(|segment| segment.base <= self.next).saturating_sub(1);
            let Some(segment) = self.listed.get(at).cloned() else { return Ok(false) };
            let Some(file) = PreadFile::open_if_there(&segment.path)? else {
                self.listed.clear();
                continue;
            };
            let mut walk = Walk::new(file)?;
            hints::seek_offset(&mut walk, &segment, self.next);
            self.open = Some(Open { floor: segment.base, segment, walk, taken: None });
            return Ok(true);
        }
        Ok(false)
    }

    /// Goes on behind the last whole batch of a segment: with what was appended meanwhile, or with the next segment.
    /// Whether there is anything.
    fn end_of_segment(&mut self, step: Step) -> Result<bool> {
        let Some(open) = &mut self.open else { return Ok(false) };
        // In this order: what the file has once its successor exists is all that it will ever have.
        let base = open.segment.base;
        let successor =
            |listed: &[SegmentFile]| listed.iter().map(|segment| segment.base).find(|other| *other > base);
        let later = match successor(&self.listed) {
            Some(later) => Some(later),
            None => {
                self.listed = self.partition.segments()?;
                successor(&self.listed)
            }
        };
        if open.walk.refresh()? {
            return Ok(true);
        }
        let Some(later) = later else { return Ok(false) };
        let (expected, found) = match step {
            Step::Torn { have, needed } => (
                needed.map_or("a whole batch".to_owned(), |needed| format!("a batch of {needed} bytes")),
                format!("{have} bytes before the end of a segment that has a successor"),
            ),
            Step::Zeros { have } => {
                ("a batch".to_owned(), format!("{have} bytes of zeros in a segment that has a successor"))
            }
            Step::Batch(_) | Step::End => {
                self.next = self.next.max(later);
                self.open = None;
                return Ok(true);
            }
        };
        Err(Error::at(
            &open.segment.path,
            Some(open.walk.position()),
            Some(open.floor.get()),
            expected,
            found,
        ))
    }

    /// After [`next`](Self::next) has found the end of the last segment: whether damage stands there instead of a batch that a
    /// writer has not finished, or did not live to finish.
    ///
    /// Both are fewer bytes than a batch says it has, be it that the file ends or that zeros follow. It is damage where a whole
    /// batch follows, since a writer begins none before the last is whole; and where the file ends in the only batch of the
    /// segment, since then nothing of it can be read.
    ///
    /// # Errors
    /// The damage.
    pub(crate) fn check_end(&mut self) -> Result<()> {
        for look in 0.. {
            let Some(open) = &mut self.open else { return Ok(()) };
            let Some((expected, found)) = open.unfinished()? else { return Ok(()) };
            let behind = open.walk.good_batch_behind()?;
            let cut = matches!(open.walk.peek(), Ok(Step::Torn { .. }));
            if behind.is_none() && !(cut && open.walk.position() == 0) {
                return Ok(());
            }
            if look == SECOND_LOOKS {
                let found = match behind {
                    Some(place) => format!("{found}, and a whole batch at {place}"),
                    None => found,
                };
                let (path, position) = (&open.segment.path, open.walk.position());
                return Err(Error::at(path, Some(position), Some(open.floor.get()), expected, found));
            }
            thread::sleep(SECOND_LOOK_PAUSE);
            open.walk.refresh()?;
        }
        Ok(())
    }

    fn in_last_segment(&self) -> Result<bool> {
        let Some(open) = &self.open else { return Ok(false) };
        Ok(self.partition.segments()?.last().is_some_and(|last| last.base == open.segment.base))
    }

    /// The first offset there is: that of the first segment, or what the data directory's checkpoint says.
    fn earliest(&self) -> Result<Offset> {
        let base = self.partition.segments()?.first().map_or(Offset::ZERO, |segment| segment.base);
        Ok(self.partition.log_start_checkpoint()?.map_or(base, |start| start.max(base)))
    }

    /// The offset of the next record to be appended.
    fn latest(&self) -> Result<Offset> {
        let Some(segment) = self.partition.segments()?.pop() else { return Ok(Offset::ZERO) };
        let mut walk = Walk::new(PreadFile::open(&segment.path)?)?;
        walk.headers_only(true);
        hints::seek_offset(&mut walk, &segment, Offset::new(i64::MAX));
        let mut end = segment.base;
        let mut last = None;
        loop {
            match walk.peek() {
                Ok(Step::Batch(header)) => {
                    last = Some((walk.position(), end));
                    end = header.next_offset();
                    walk.advance(&header);
                }
                Ok(_) => break,
                Err(_) if walk.unwritten_from()?.is_some() => break,
                Err(error) => return Err(walk.error(error, Some(end.get()))),
            }
        }
        if let Some((position, before)) = last {
            walk.seek(position);
            if walk.unwritten_from()?.is_some() {
                return Ok(before);
            }
        }
        Ok(end)
    }

    fn checked(&self, offset: Offset) -> Result<Offset> {
        let (earliest, latest) = (self.earliest()?, self.latest()?);
        if (earliest..=latest).contains(&offset) {
            return Ok(offset);
        }
        let dir = self.partition.dir();
        Err(Error::bad(dir, format!("an offset from {earliest} to {latest}"), offset.to_string()))
    }

    /// The offset of the first record that is not older than `timestamp`; the end of the log where there is none.
    fn by_time(&self, timestamp: Timestamp) -> Result<Offset> {
        let earliest = self.earliest()?;
        let segments = self.partition.segments()?;
        for (n, segment) in segments.iter().enumerate() {
            if segments.get(n + 1).is_some_and(|next| hints::all_before(segment, next.base, timestamp)) {
                continue;
            }
            let Some(file) = PreadFile::open_if_there(&segment.path)? else { continue };
            let mut walk = Walk::new(file)?;
            walk.headers_only(true);
            let active = n + 1 == segments.len();
            let mut floor = segment.base;
            loop {
                let header = match walk.peek() {
                    Ok(Step::Batch(header)) => header,
                    Ok(_) => break,
                    Err(_) if active && walk.unwritten_from()?.is_some() => break,
                    Err(error) => return Err(walk.error(error, Some(floor.get()))),
                };
                if header.next_offset() > earliest
                    && header.max_timestamp().is_some_and(|max| max >= timestamp)
                {
                    match first_at(&mut walk, &header, timestamp, earliest) {
                        Ok(Some(offset)) => return Ok(offset),
                        Ok(None) => {}
                        Err(_) if active && walk.unwritten_from()?.is_some() => break,
                        Err(error) => return Err(walk.error(error, Some(floor.get()))),
                    }
                }
                floor = header.next_offset();
                walk.advance(&header);
            }
        }
        self.latest()
    }
}

impl Open {
    /// What was expected at the walk's position and what was found, if a batch stands there that is not whole.
    fn unfinished(&mut self) -> Result<Option<(String, String)>> {
        let step = self.walk.peek();
        if let Ok(Step::Torn { have, needed: Some(needed) }) = step {
            return Ok(Some((
                format!("a batch of {needed} bytes"),
                format!("{have} bytes to the end of the file"),
            )));
        }
        let Some(zeros) = self.walk.unwritten_from()? else { return Ok(None) };
        let expected = match step {
            Ok(Step::Batch(header)) => format!("a batch of {} bytes", header.size()),
            _ => "a batch".to_owned(),
        };
        Ok(Some((expected, format!("zeros from {zeros} on"))))
    }

    /// Offsets never go back inside a segment, and stay within what its base offset can carry.
    fn check_offsets(&self, header: &BatchHeader) -> Result<()> {
        let lowest = header.base_offset().unwrap_or(header.last_offset());
        let expected = if lowest < self.floor || header.last_offset() < lowest {
            format!("offsets of {} and up", self.floor)
        } else if header.last_offset().relative_to(self.segment.base).is_none() {
            format!("offsets of at most {} above {}", i32::MAX, self.segment.base)
        } else {
            return Ok(());
        };
        let found = format!("{lowest} to {}", header.last_offset());
        Err(Error::at(
            &self.segment.path,
            Some(self.walk.position()),
            Some(self.floor.get()),
            expected,
            found,
        ))
    }
}

/// The first record of a batch that is not older than `timestamp` and not below `earliest`.
fn first_at(
    walk: &mut Walk,
    header: &BatchHeader,
    timestamp: Timestamp,
    earliest: Offset,
) -> Result<Option<Offset>, WalkError> {
    let mut scratch = Vec::new();
    let batch = walk.batch(header)?;
    for record in batch.records(&mut scratch, DECOMPRESSED_MAX).map_err(WalkError::Decode)? {
        let record = record.map_err(WalkError::Decode)?;
        if record.offset() >= earliest && record.timestamp().is_some_and(|own| own >= timestamp) {
            return Ok(Some(record.offset()));
        }
    }
    Ok(None)
}
