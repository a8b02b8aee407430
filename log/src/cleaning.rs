//! What compaction needs of a log: its sealed segments, the last records of its producers, and a swap of segments that a
//! stop at any point leaves either undone or done.
//!
//! A swap in steps; names are durable where the table says so:
//!
//! | step | files | after a stop |
//! |---|---|---|
//! | the new segments are written | `.cleaned` beside the old ones | removed: nothing has happened |
//! | the list of both is written | `.sources.cleaned` | the same |
//! | names synced | | |
//! | `.cleaned` becomes `.swap`, in descending order, the list last | some of each | the same, while anything is `.cleaned` |
//! | names synced: **the swap has happened** | `.swap` beside the old ones | the old ones go, `.swap` gets its final name |
//! | old ones become `.deleted` | | the same |
//! | `.swap` gets its final name, in ascending order, `.log` first | | the same |
//! | names synced, the list removed | | |
//!
//! The list is what makes the last steps independent of their order on the disk, and of what the new segments hold: without
//! it, an old segment of which no record was kept would stay, and a `.txnindex` could be either segment's. Kafka knows no
//! such file: it goes by the offsets in the `.swap` files, which is right as long as its steps reach the disk in order. It
//! takes the list for one more file of the swap: removes it with a swap that has not happened, and otherwise leaves it under
//! the name `.sources`, which nobody reads.
//!
//! Source: Kafka `LocalLog.replaceSegments`, `LogLoader`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use kseg_format::{AbortedTransaction, Offset, ProducerEpoch, ProducerId};
use kseg_segment::{FileKind, Finished, Replacement, Segment, Suffix, file_name, parse_file_name};

use crate::error::{Error, Result};
use crate::log::{Deferred, Inner, Log, Writer};
use crate::sync::Ordering;

/// What stands in the place of a kind in the name of a list.
const LIST: &str = "sources";

/// A sealed segment as compaction saw it: it can be replaced only while it is still that.
#[derive(Clone, Debug)]
pub struct Sealed {
    segment: Arc<Segment>,
    end: Offset,
    size: u64,
    cuts: u64,
}

impl Sealed {
    /// The segment.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Its base offset.
    pub fn base_offset(&self) -> Offset {
        self.segment.base_offset()
    }

    /// The base offset of the segment behind it: above every offset in it.
    pub fn end_offset(&self) -> Offset {
        self.end
    }

    /// Bytes of its `.log` file.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// The last thing that a log knows of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "what compaction compares with")]
pub struct LastRecord {
    /// Last offset of its last batch of data; `None` where none is known, as after a transaction that raised its epoch.
    pub data: Option<Offset>,
    /// Its epoch.
    pub epoch: Option<ProducerEpoch>,
}

impl Log {
    /// The sealed segments, oldest first, and the base offset of the active one.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn sealed_segments(&self) -> Result<(Vec<Sealed>, Offset)> {
        let writer = self.inner.writer.lock();
        let segments = self.inner.segments();
        let active = self.inner.active()?.base_offset();
        let list = segments.as_slice();
        let sealed = list.windows(2).map(|pair| Sealed {
            segment: pair[0].clone(),
            end: pair[1].base_offset(),
            size: pair[0].size(),
            cuts: writer.cuts,
        });
        Ok((sealed.collect(), active))
    }

    /// Lets go of the descriptor of a sealed segment, for a caller that goes through all of them, of which there may be more than
    /// the process may have descriptors. One that is not known to be durable keeps it. Returns whether there was one.
    pub fn let_go(&self, sealed: &Sealed) -> bool {
        let log = &self.inner;
        if sealed.end > log.marks().recovery_point {
            return false;
        }
        // Under the mutex that changes take: a truncation may be about to make the segment active.
        let _writer = log.writer.lock();
        log.check_writable().is_ok() && sealed.segment.let_go()
    }

    /// What the log's clock says, in milliseconds since the epoch.
    pub fn now_ms(&self) -> i64 {
        self.inner.clock.now_ms()
    }

    /// Base offset of the active segment.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn active_base_offset(&self) -> Result<Offset> {
        Ok(self.inner.active()?.base_offset())
    }

    /// Size of the active segment in bytes.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn active_size(&self) -> Result<u64> {
        Ok(self.inner.active()?.size())
    }

    /// What is known of each producer now.
    ///
    /// Source: Kafka `UnifiedLog.lastRecordsOfActiveProducers`.
    pub fn last_records_of_producers(&self) -> HashMap<ProducerId, LastRecord> {
        let writer = self.inner.writer.lock();
        let known = writer.producers.producers().into_iter();
        known
            .map(|p| {
                (p.id(), LastRecord { data: p.batches().last().map(|b| b.last_offset()), epoch: p.epoch() })
            })
            .collect()
    }

    /// The aborted transactions that begin below `to`, from the segment that holds `from` on, whatever the log start is:
    /// the data of a transaction and its marker leave together.
    ///
    /// # Errors
    /// [`Error::Segment`] where a transaction index cannot be read.
    pub fn aborted_for_cleaning(&self, from: Offset, to: Offset) -> Result<Vec<AbortedTransaction>> {
        self.inner.aborted_from_segment_of(from, Offset::ZERO, to)
    }

    /// Begins a segment that is to take the place of others.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Fenced`], [`Error::Segment`].
    pub fn begin_replacement(&self, base: Offset) -> Result<Replacement> {
        self.inner.check_writable()?;
        let (backend, dir) = (self.inner.backend.clone(), &self.inner.dir);
        let now_ms = self.inner.clock.now_ms();
        Replacement::create(backend, dir, base, self.inner.segment_config(), now_ms)
            .map_err(|e| self.inner.wrap(e))
    }

    /// Removes the files of replacements that came to nothing; returns how many there were. Nobody may be writing one.
    ///
    /// One that stayed would, at a later stop, make a complete swap look like one that is not.
    ///
    /// # Errors
    /// [`Error::Io`], which is also in the log's [`last_trouble`](crate::LogState::last_trouble); [`Error::Closed`],
    /// [`Error::Fenced`].
    pub fn remove_unfinished_replacements(&self) -> Result<usize> {
        self.inner.locked_alone(|_, _| {
            self.inner.check_writable()?;
            let removed = self.inner.remove_with(Suffix::Cleaned);
            let removed = removed.and_then(|removed| Ok(removed + self.inner.remove_lists()?));
            // Also for a caller that has an error of its own to tell of.
            self.inner.troubles.note("remove-unfinished-replacements", removed.as_ref());
            removed
        })
    }

    /// Puts `new` in the place of `old`: both in ascending order, `new` in the range of `old` and not empty. Appends and reads
    /// go on meanwhile, truncation, retention and a close wait; regions that readers hold stay readable. Durable on return.
    ///
    /// Old segments that retention has removed before are passed over.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a new segment outside the range of `old`: nothing was looked at.
    /// [`Error::Replaced`] where an old segment was truncated or replaced since it was listed; [`Error::Closed`],
    /// [`Error::Fenced`]; [`Error::Io`], [`Error::Segment`]. The log is as it was, and the files of `new` are gone; unless
    /// the swap had happened and only its last steps failed, or it is not known whether it has: then the log takes no more
    /// changes, and both is settled when it is opened again.
    ///
    /// Source: Kafka `LocalLog.replaceSegments`.
    pub fn replace_segments(&self, old: &[Sealed], new: &[Finished]) -> Result<()> {
        let log = &self.inner;
        let range = old.first().zip(old.last()).map(|(first, last)| first.base_offset()..last.end);
        if let Some(outside) =
            new.iter().find(|n| range.as_ref().is_none_or(|range| !range.contains(&n.base)))
        {
            let what = format!(
                "{}: a new segment at {}: expected one in {range:?}",
                log.dir.display(),
                outside.base
            );
            return Err(Error::InvalidArgument { what });
        }
        let _sealed_ones = log.sealed.lock();
        log.noted(log.replace(old, new))
    }
}

/// A swap that did not come to happen.
enum Stop {
    /// It has not happened.
    Before(Error),
    /// Only opening the log tells whether it has.
    Unknown(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Before(error)
    }
}

impl Inner {
    fn list_path(&self, base: Offset, suffix: Suffix) -> PathBuf {
        self.dir.join(list_name(base, suffix))
    }

    /// A swap, by the one who holds the mutex of the sealed segments: so none of them goes meanwhile, and the log's own mutex,
    /// which appends take, is held for a look and for the moment in which the list changes.
    fn replace(self: &Arc<Self>, old: &[Sealed], new: &[Finished]) -> Result<()> {
        let there = self.locked(|writer, _| {
            self.check_writable()?;
            Ok(self.still_there(writer, old))
        })?;
        let swapped = there.map_err(Stop::Before).and_then(|going| {
            self.begin_swap(&going, new)?;
            Ok(going)
        });
        let going = match swapped {
            Ok(going) => going,
            Err(Stop::Before(error)) => {
                let undone = self.undo_swap();
                if let Err(error) = &undone {
                    // What is left may look like a swap that has happened, once more names are lost or gained.
                    self.fence.set(error);
                }
                return Err(error);
            }
            Err(Stop::Unknown(error)) => {
                self.fence.set(&error);
                return Err(error);
            }
        };
        // Nothing is removed that a log which is half way still reads.
        let mut later = Deferred::default();
        self.whole(self.finish_swap(&mut later, going, new))?;
        self.hand_over(later);
        Ok(())
    }

    /// Up to where the swap has happened.
    fn begin_swap(&self, going: &[Arc<Segment>], new: &[Finished]) -> Result<(), Stop> {
        let Some(first) = new.first() else {
            return Err(Error::InvalidArgument { what: "a swap without a new segment".to_owned() }.into());
        };
        let names = self.backend.names();
        let io = |e| Error::Io(e);
        let list = SwapList {
            old: going.iter().map(|s| s.base_offset()).collect(),
            new: new.iter().map(|n| (n.base, n.kinds.clone())).collect(),
        };
        let path = self.list_path(first.base, Suffix::Cleaned);
        names.write(&path, list.print().as_bytes(), true).map_err(io)?;
        names.sync_dir(&self.dir).map_err(io)?;
        for segment in new.iter().rev() {
            for &kind in &segment.kinds {
                let name = |suffix| self.dir.join(file_name(segment.base, kind, suffix));
                names.rename(&name(Suffix::Cleaned), &name(Suffix::Swap)).map_err(io)?;
            }
        }
        names.rename(&path, &self.list_path(first.base, Suffix::Swap)).map_err(io)?;
        names.sync_dir(&self.dir).map_err(|e| Stop::Unknown(Error::Io(e)))
    }

    /// Those of `old` that are in the log as they were; the others must lie below the log start.
    fn still_there(&self, writer: &Writer, old: &[Sealed]) -> Result<Vec<Arc<Segment>>> {
        let (segments, log_start) = (self.segments(), self.marks().log_start);
        let mut there = Vec::new();
        for sealed in old {
            let base = sealed.base_offset();
            let same = segments.get(base).is_some_and(|s| Arc::ptr_eq(s, &sealed.segment));
            let uncut = sealed.cuts == writer.cuts && sealed.segment.size() == sealed.size;
            if same && uncut {
                there.push(sealed.segment.clone());
            } else if same || !uncut || segments.get(base).is_some() || sealed.end > log_start {
                return Err(Error::Replaced { dir: self.dir.clone(), base });
            }
        }
        Ok(there)
    }

    /// Takes back what was done of a swap that has not happened.
    fn undo_swap(&self) -> Result<()> {
        self.remove_with(Suffix::Swap)?;
        self.remove_with(Suffix::Cleaned)?;
        // The list goes last: as long as it is `.cleaned`, nothing has happened.
        self.backend.names().sync_dir(&self.dir)?;
        self.remove_lists()?;
        Ok(())
    }

    /// Removes the files of segments that have this suffix.
    fn remove_with(&self, suffix: Suffix) -> Result<usize> {
        self.remove_named(|name| parse_file_name(name).is_some_and(|p| p.suffix == suffix))
    }

    pub(crate) fn remove_lists(&self) -> Result<usize> {
        self.remove_named(|name| parse_list_name(name).is_some())
    }

    fn remove_named(&self, named: impl Fn(&str) -> bool) -> Result<usize> {
        let names = self.backend.names();
        let mut removed = 0;
        for entry in names.list(&self.dir)? {
            if entry.name.to_str().is_some_and(&named) {
                removed += usize::from(names.remove(&self.dir.join(&entry.name))?);
            }
        }
        Ok(removed)
    }

    /// The steps after a swap has happened.
    fn finish_swap(
        self: &Arc<Self>,
        later: &mut Deferred,
        old: Vec<Arc<Segment>>,
        new: &[Finished],
    ) -> Result<()> {
        let gone: Vec<Offset> = old.iter().map(|s| s.base_offset()).collect();
        self.delete_later(old.clone(), later)?;
        let names = self.backend.names();
        let mut segments = Vec::new();
        for finished in new {
            for &kind in &finished.kinds {
                let name = |suffix| self.dir.join(file_name(finished.base, kind, suffix));
                names.rename(&name(Suffix::Swap), &name(Suffix::None))?;
            }
            let segment = Segment::open(
                self.backend.clone(),
                &self.dir,
                finished.base,
                self.segment_config(),
                self.clock.now_ms(),
                finished.size,
            );
            segments.push(Arc::new(segment.map_err(|e| self.wrap(e))?));
        }
        names.sync_dir(&self.dir)?;
        self.locked(|writer, _| {
            // The list and then the marks: a reader that finds them apart waits for the second.
            let list = Arc::new(self.segments().swapped(&old, segments));
            let swaps = list.swaps();
            *self.segments.write() = list;
            self.marks.write().forget_places(&gone, swaps);
            writer.producers.forget_positions(&gone);
            let lost: Vec<Offset> =
                gone.iter().copied().filter(|base| new.iter().all(|n| n.base != *base)).collect();
            // What fails here leaves files that nobody reads.
            let deleted = self.delete_snapshots_later(writer, &lost, later);
            self.troubles.note("delete-producer-snapshot", deleted);
            Ok(())
        })?;
        // The swap is done. A list that stayed would be read when the log is opened, and what began at an old base by then
        // would go: such a log takes no change. Nothing begins there as long as the sealed segments' mutex is held.
        if let Some(first) = new.first() {
            names.remove(&self.list_path(first.base, Suffix::Swap))?;
        }
        // The next flush makes it durable that the list is gone, before anything that a second reading of it could undo.
        self.names_made.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// The segments of a swap, as a file beside it.
///
/// ```text
/// 0                              version
/// old 0                          a segment that goes
/// old 100
/// new 0 log index timeindex      one that comes, and its files
/// end
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SwapList {
    pub(crate) old: Vec<Offset>,
    pub(crate) new: BTreeMap<Offset, Vec<FileKind>>,
}

impl SwapList {
    fn print(&self) -> String {
        let mut text = String::from("0\n");
        for base in &self.old {
            let _ = writeln!(text, "old {base}");
        }
        for (base, kinds) in &self.new {
            let _ = write!(text, "new {base}");
            for kind in kinds {
                let _ = write!(text, " {}", kind.extension());
            }
            text.push('\n');
        }
        text.push_str("end\n");
        text
    }

    /// `None` for what is no such list, or not all of one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<SwapList> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        if lines.next()? != "0" {
            return None;
        }
        let mut list = SwapList { old: Vec::new(), new: BTreeMap::new() };
        let offset = |text: &str| text.parse().ok().filter(|&o| o >= 0).map(Offset::new);
        loop {
            let mut words = lines.next()?.split(' ');
            match (words.next()?, words.next()) {
                ("end", None) => return (!list.new.is_empty()).then_some(list),
                ("old", Some(base)) => list.old.push(offset(base)?),
                ("new", Some(base)) => {
                    let kind = |word: &str| FileKind::OF_SEGMENT.into_iter().find(|k| k.extension() == word);
                    list.new.insert(offset(base)?, words.map(kind).collect::<Option<_>>()?);
                }
                _ => return None,
            }
        }
    }
}

/// The name of a list.
pub(crate) fn list_name(base: Offset, suffix: Suffix) -> String {
    format!("{:020}.{LIST}{}", base.get(), suffix.as_str())
}

/// The base offset and the suffix in the name of a list; also of one that Kafka left without a suffix.
pub(crate) fn parse_list_name(name: &str) -> Option<(Offset, Suffix)> {
    let (number, rest) = name.split_once('.')?;
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let suffix = rest.strip_prefix(LIST)?;
    let suffix = [Suffix::None, Suffix::Cleaned, Suffix::Swap].into_iter().find(|s| s.as_str() == suffix)?;
    Some((Offset::new(number.parse().ok()?), suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written_and_not_at_all_where_some_is_missing() {
        let kinds = vec![FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TxnIndex];
        let list = SwapList {
            old: vec![Offset::new(0), Offset::new(7)],
            new: [(Offset::new(0), kinds), (Offset::new(5), vec![FileKind::Log])].into(),
        };
        let text = list.print();
        assert_eq!(SwapList::parse(text.as_bytes()), Some(list));
        for len in 0..text.len() - 1 {
            assert_eq!(SwapList::parse(&text.as_bytes()[..len]), None, "{len}");
        }
        for wrong in ["1\nend\n", "0\nend\n", "0\nold -1\nnew 0 log\nend\n", "0\nnew 0 exe\nend\n"] {
            assert_eq!(SwapList::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn names_of_lists() {
        for suffix in [Suffix::None, Suffix::Cleaned, Suffix::Swap] {
            let name = list_name(Offset::new(42), suffix);
            assert_eq!(parse_list_name(&name), Some((Offset::new(42), suffix)));
            assert_eq!(kseg_segment::parse_file_name(&name), None);
        }
        assert_eq!(parse_list_name("00000000000000000042.log.swap"), None);
    }
}
