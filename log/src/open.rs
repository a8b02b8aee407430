//! Opening a log: what interrupted operations left is finished or undone, segments are loaded, what may be damaged is
//! recovered, the offsets are set.
//!
//! Source: Kafka `LogLoader`; where kseg differs (nothing that could be read is dropped, a strange file is no reason to
//! refuse) the item says so.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::{AbortedTransaction, Magic, Offset, parse_epochs};
use kseg_io_backends::{Backend, Kind, OpenHow};
use kseg_segment::{
    BatchReader, Cut, CutReason, FileKind, FileName, Headers, Overflow, Segment, Suffix, file_name,
    parse_file_name,
};
use tracing::{error, info, warn};

use crate::cleaning::{SwapList, parse_list_name};
use crate::clock::{Clock, ManualClock, SystemClock};
use crate::config::LogConfig;
use crate::counted::Counted;
use crate::doubts::{Doubt, Doubts};
use crate::durability::Committer;
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::health::Health;
use crate::leader_epoch::{FileWrite, LeaderEpochCache};
use crate::log::{Deferred, DirLock, EPOCH_FILE, Hold, Inner, Log, Writer, batch_size_max};
use crate::marks::{Mark, Marks, Place};
use crate::observer::Observer;
use crate::producers::{EXPIRATION_CHECK_MS, EXPIRATION_MS, aborted_entry, no_producers, observe};
use crate::scheduler::{ManualScheduler, Scheduler};
use crate::segments::Segments;
use crate::sync::{AtomicBool, AtomicI64, AtomicU64, Mutex, Ordering, RwLock};
use crate::topic::{DirKind, parse_dir_name};
use crate::trouble::Troubles;

/// How a log is opened. The marks come from the data directory's checkpoints; [`LogDir`](crate::LogDir) keeps those.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The I/O backend.
    pub backend: Arc<dyn Backend>,
    /// The topic's configuration.
    pub config: LogConfig,
    /// The log was closed in an orderly way when it was last open. Otherwise all segments from the recovery point on
    /// are checked batch by batch. Default: true, as for a new log.
    pub clean: bool,
    /// First offset not known to be durable. Default: 0.
    pub recovery_point: Offset,
    /// The log start offset that was checkpointed. Default: 0.
    pub log_start_offset: Offset,
    /// The clock. Default: the machine's.
    pub clock: Arc<dyn Clock>,
    /// Takes background work. Default: a [`ManualScheduler`] on a clock that stands still: what has no delay runs at
    /// once in the call that caused it, and files that are to be removed later stay until the log is opened again.
    pub scheduler: Arc<dyn Scheduler>,
    /// How long an idle producer is remembered, in milliseconds (`producer.id.expiration.ms`). Default: 86400000, a day.
    pub producer_expiration_ms: i64,
    /// How often idle producers are looked for, in milliseconds (`producer.id.expiration.check.interval.ms`).
    /// Default: 600000.
    pub producer_expiration_check_ms: u64,
    /// Whether a client's transaction may begin only once it has been verified
    /// (`transaction.partition.verification.enable`). Default: no, since that takes somebody who verifies; a broker does.
    pub verify_transactions: bool,
    /// Told of the high watermark when the log is open and whenever it has changed since. Default: nobody.
    pub observer: Option<Observer>,
}

impl OpenOptions {
    /// The defaults, on `backend`.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        OpenOptions {
            backend,
            config: LogConfig::default(),
            clean: true,
            recovery_point: Offset::ZERO,
            log_start_offset: Offset::ZERO,
            clock: Arc::new(SystemClock),
            scheduler: ManualScheduler::new(Arc::new(ManualClock::new(0))),
            producer_expiration_ms: EXPIRATION_MS,
            producer_expiration_check_ms: EXPIRATION_CHECK_MS,
            verify_transactions: false,
            observer: None,
        }
    }
}

/// What was found and done when a log was opened.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LoadReport {
    /// Base offsets of the segments that were checked batch by batch.
    pub recovered: Vec<Offset>,
    /// What was cut from `.log` files, and why.
    pub cuts: Vec<Cut>,
    /// Files that hold whole segments which left the log: those behind a cut, and those of a log that ended below its start.
    pub set_aside: Vec<PathBuf>,
    /// Files of interrupted operations that were removed, and index files without a `.log` file.
    pub removed: Vec<PathBuf>,
    /// Files that were given their final name, to complete an interrupted replacement.
    pub completed: Vec<PathBuf>,
    /// Base offsets of segments whose offsets reached too far from it, and that have been split.
    pub split: Vec<Offset>,
    /// Segments whose index files were missing and have been rebuilt.
    pub rebuilt: Vec<Offset>,
    /// Segments whose transaction index could not be theirs, or was missing beside a missing offset index, and has been made anew
    /// from the markers.
    pub aborted_rebuilt: Vec<Offset>,
    /// Files whose names are none of a log's; they are left alone.
    pub unknown: Vec<PathBuf>,
    /// Batches that contradict their producers' state, markers and snapshots that cannot be read, ascending by offset: the
    /// first hundred.
    pub doubts: Vec<Doubt>,
    /// How many more there are.
    pub more_doubts: u64,
    /// The log ended below its log start offset, so that it begins anew there; its segments are among those set aside.
    pub emptied: bool,
    /// The log ends below its recovery point: what had been made durable is gone, up to this offset.
    pub missing_up_to: Option<Offset>,
    /// After an orderly stop the log ends above its recovery point, this offset, where that stop had left its end.
    pub left_at: Option<Offset>,
}

impl LoadReport {
    /// Tells what an operator looks for.
    fn tell(&self, dir: &Path) {
        let dir = dir.display();
        for base in &self.recovered {
            info!(%dir, base = base.get(), "unflushed segment recovered");
        }
        for path in &self.completed {
            info!(file = %path.display(), "interrupted replacement completed");
        }
        for base in &self.rebuilt {
            error!(%dir, base = base.get(), "index files of a flushed segment were missing; rebuilt");
        }
        for line in self.to_string().lines() {
            warn!("{line}");
        }
    }
    /// Whether anything was out of the ordinary for a log that was closed in an orderly way.
    pub fn is_quiet(&self) -> bool {
        self.cuts.is_empty()
            && self.set_aside.is_empty()
            && self.unknown.is_empty()
            && self.split.is_empty()
            && self.aborted_rebuilt.is_empty()
            && self.doubts.is_empty()
            && !self.emptied
            && self.missing_up_to.is_none()
            && self.left_at.is_none()
    }
}

impl fmt::Display for LoadReport {
    /// A line for each thing of note; nothing for a quiet report.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cut in &self.cuts {
            writeln!(f, "{cut}")?;
        }
        for path in &self.set_aside {
            writeln!(f, "{}: a whole segment, kept aside", path.display())?;
        }
        for base in &self.aborted_rebuilt {
            writeln!(
                f,
                "segment {base}: its transaction index was missing or not its own, and has been made anew"
            )?;
        }
        for path in &self.unknown {
            writeln!(f, "{}: not a file of a log, left alone", path.display())?;
        }
        for base in &self.split {
            writeln!(f, "the segment at {base} was split: its offsets reached too far from there")?;
        }
        for doubt in &self.doubts {
            writeln!(f, "{doubt}")?;
        }
        if self.more_doubts > 0 {
            writeln!(f, "and {} more of that kind", self.more_doubts)?;
        }
        if self.emptied {
            writeln!(f, "the log ended below its log start offset, and begins anew there")?;
        }
        if let Some(offset) = self.missing_up_to {
            writeln!(
                f,
                "the log ends below offset {offset}, up to which it had been made durable: records are missing"
            )?;
        }
        if let Some(offset) = self.left_at {
            writeln!(
                f,
                "the log ends above offset {offset}, its recovery point, where an orderly stop leaves its end: the checkpoint is \
                 not this log's, or its last offsets are not those that were given"
            )?;
        }
        Ok(())
    }
}

impl Log {
    /// Opens the log in `dir`, whose name is `topic-partition`; makes the directory and an empty log where there is
    /// none.
    ///
    /// One value at a time may have a log open: two would write over each other's records, also over those that were acknowledged
    /// as durable. In this process a second one is refused, whatever path it takes to the folder, until the first has been
    /// closed, abandoned, or dropped with all that works for it. Share one behind an [`Arc`]. Other processes are not kept
    /// away by a lone log: that is what its [`LogDir`](crate::LogDir) does, which locks the directory for all logs that are in it
    /// and gives every caller the same one. What was cut or moved is in [`load_report`](Log::load_report).
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`]; [`Error::DirName`], [`Error::NotADirectory`]; [`Error::Config`]; [`Error::Checkpoint`] for a malformed epoch
    /// file; [`Error::Segment`], [`Error::Io`]. An I/O error never cuts or removes data.
    ///
    /// Source: Kafka `LogLoader.load`.
    pub fn open(dir: &Path, options: OpenOptions) -> Result<Log> {
        Log::open_under(dir, options, None, None)
    }

    /// Opens a log that keeps its data directory's lock until it is closed.
    pub(crate) fn open_under(
        dir: &Path,
        options: OpenOptions,
        lock: Option<DirLock>,
        health: Option<Arc<Health>>,
    ) -> Result<Log> {
        options.config.validate()?;
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let (partition, kind) =
            parse_dir_name(&name).map_err(|source| Error::DirName { dir: dir.to_path_buf(), source })?;
        let names = options.backend.names();
        match names.stat(dir)? {
            None => names.create_dir_all(dir)?,
            Some(stat) if stat.kind != Kind::Dir => {
                return Err(Error::NotADirectory { path: dir.to_path_buf(), found: "a file" });
            }
            Some(_) => {}
        }
        let claim = names.claim(dir).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Error::AlreadyOpen { dir: dir.to_path_buf() },
            _ => Error::Io(error),
        })?;
        let epochs = read_epochs(&*options.backend, dir)?;
        let zero = Mark { offset: Offset::ZERO, place: Some(Place { segment: Offset::ZERO, position: 0 }) };
        let inner = Arc::new(Inner {
            dir: dir.to_path_buf(),
            partition,
            backend: options.backend.clone(),
            troubles: Troubles::new(options.clock.clone()),
            clock: options.clock,
            scheduler: options.scheduler,
            producer_expiration_ms: options.producer_expiration_ms,
            batch_size_max: AtomicU64::new(batch_size_max(&options.config)),
            config: Counted::new(Arc::new(options.config)),
            marks: Counted::new(Marks {
                log_start: options.log_start_offset,
                log_end: zero,
                high_watermark: zero,
                first_unstable: None,
                recovery_point: options.recovery_point,
                durable: options.recovery_point,
                swaps: 0,
                truncations: 0,
                dropped_from: None,
            }),
            segments: Counted::new(Arc::new(Segments::default())),
            epochs: Counted::new(epochs),
            sealed: Mutex::new(()),
            writer: Mutex::new(Writer {
                producers: no_producers(options.producer_expiration_ms),
                cuts: 0,
                appends: 0,
                observer: None,
                kept: None,
            }),
            fence: Fence::default(),
            last_flush_ms: AtomicI64::new(0),
            committer: Committer::new(),
            closed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            verify_transactions: AtomicBool::new(options.verify_transactions),
            epoch_file: Mutex::new(()),
            late: RwLock::new(()),
            // Whoever had it open before may have left names that are not durable.
            names_made: AtomicU64::new(1),
            names_synced: AtomicU64::new(0),
            pressure: health.as_ref().map_or_else(Arc::default, |health| health.pressure.clone()),
            health,
            hold: Mutex::new(Some(Hold { _claim: claim, _lock: lock })),
        });
        let mut report = LoadReport::default();
        inner.locked(|writer, deferred| {
            let mut loading = Loading {
                log: &inner,
                clean: options.clean,
                log_start: options.log_start_offset,
                recovery_point: options.recovery_point,
                unflushed: options.recovery_point,
                report: &mut report,
                doubts: Doubts::default(),
                present: BTreeSet::new(),
                overflowed: None,
                appended_part: None,
            };
            let loaded = loading.finish_replacements().and_then(|()| loading.load(writer, deferred, kind));
            let doubts = std::mem::take(&mut loading.doubts);
            (report.doubts, report.more_doubts) = doubts.into_parts();
            if loaded.is_err() {
                for segment in inner.segments().as_slice() {
                    segment.abandon();
                }
            }
            loaded?;
            if let Some(observer) = options.observer {
                observer.tell(inner.marks().high_watermark.offset);
                writer.observer = Some(observer);
            }
            Ok(())
        })?;
        inner.expire_producers_every(options.producer_expiration_check_ms);
        report.tell(dir);
        let marks = inner.marks();
        info!(
            dir = %dir.display(),
            segments = inner.segments().as_slice().len(),
            log_start = marks.log_start.get(),
            log_end = marks.log_end.offset.get(),
            clean = options.clean,
            "log loaded"
        );
        Ok(Log { inner, report })
    }
}

fn read_epochs(backend: &dyn Backend, dir: &Path) -> Result<LeaderEpochCache> {
    /// An epoch takes a line of at most 32 bytes; a longer file is not one of ours.
    const LIMIT: u64 = 64 * 1024 * 1024;
    let path = dir.join(EPOCH_FILE);
    let Some(bytes) = backend.names().read(&path, LIMIT)? else {
        backend.open(&path, OpenHow::CreateNew)?;
        return Ok(LeaderEpochCache::new());
    };
    let entries = parse_epochs(&bytes).map_err(|e| Error::Checkpoint(e.in_file(&path)))?;
    LeaderEpochCache::from_entries(entries)
        .map_err(|e| Error::InvalidArgument { what: format!("{}: {e}", path.display()) })
}

struct Loading<'l> {
    log: &'l Arc<Inner>,
    /// The log was closed in an orderly way, and its end is where that left it.
    clean: bool,
    log_start: Offset,
    recovery_point: Offset,
    /// Where the batches begin that are checked unless `clean`.
    unflushed: Offset,
    report: &'l mut LoadReport,
    doubts: Doubts,
    /// The files of segments, as they were listed last.
    present: BTreeSet<(Offset, FileKind)>,
    /// The last segment, where recovery found that it has to be split; its parts are ready.
    overflowed: Option<Offset>,
    /// Base offset of the last part of a segment that recovery split. Kafka appends its batches there, and goes on from
    /// where that left the distance to the next index entry.
    appended_part: Option<Offset>,
}

impl Loading<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.log.dir.join(name)
    }

    /// The regular files of the directory, taken apart; names that are none of ours, and folders, are noted once.
    fn files(&mut self) -> Result<Vec<(String, FileName, u64)>> {
        let mut files = Vec::new();
        let mut unknown = Vec::new();
        for entry in self.log.backend.names().list(&self.log.dir)? {
            let Some(name) = entry.name.to_str().filter(|_| entry.kind == Kind::File) else {
                unknown.push(self.log.dir.join(&entry.name));
                continue;
            };
            match parse_file_name(name) {
                Some(parsed) => files.push((name.to_string(), parsed, entry.len)),
                // The epochs are in the file that it was to replace.
                None if name.strip_suffix(".tmp") == Some(EPOCH_FILE) => self.remove(name)?,
                None if is_kept_beside(name) || parse_list_name(name).is_some() => {}
                None => unknown.push(self.path(name)),
            }
        }
        unknown.sort();
        self.report.unknown = unknown;
        files.sort();
        Ok(files)
    }

    /// Phases 1 to 3: files of interrupted deletions, compactions and swaps. What happened to a swap of ours is in its list
    /// (see `cleaning.rs`); one without is Kafka's, and the offsets in its files tell.
    fn finish_replacements(&mut self) -> Result<()> {
        let lists = self.lists()?;
        if let Some((_, list)) = lists.iter().find(|(suffix, _)| *suffix == Suffix::Swap)
            && let Some(list) = list
        {
            self.finish_swap(list)?;
        } else {
            let undone = lists.iter().any(|(suffix, _)| *suffix == Suffix::Cleaned);
            self.finish_swaps_of_kafka(undone)?;
        }
        if !lists.is_empty() {
            // What they tell is done, and stays so, before they go.
            self.log.backend.names().sync_dir(&self.log.dir)?;
            self.log.remove_lists()?;
            self.log.backend.names().sync_dir(&self.log.dir)?;
        }
        Ok(())
    }

    /// The lists of swaps in the directory.
    fn lists(&self) -> Result<Vec<(Suffix, Option<SwapList>)>> {
        /// A line of at most 64 bytes for each segment; a longer file is not one of ours.
        const LIMIT: u64 = 16 * 1024 * 1024;
        let names = self.log.backend.names();
        let mut lists = Vec::new();
        for entry in names.list(&self.log.dir)? {
            let Some((_, suffix)) = entry.name.to_str().and_then(parse_list_name) else { continue };
            let bytes = names.read(&self.log.dir.join(&entry.name), LIMIT)?;
            lists.push((suffix, bytes.and_then(|bytes| SwapList::parse(&bytes))));
        }
        Ok(lists)
    }

    /// Ends a swap that has happened: the old segments go, the new ones get their names.
    fn finish_swap(&mut self, list: &SwapList) -> Result<()> {
        let files = self.files()?;
        let present = |offset, kind, suffix| {
            files
                .iter()
                .any(|f| f.1 == FileName { offset, kind, suffix })
                .then(|| file_name(offset, kind, suffix))
        };
        for (name, parsed, _) in &files {
            let old = list.old.contains(&parsed.offset) && !list.new.contains_key(&parsed.offset);
            let goes = match parsed.suffix {
                Suffix::Deleted | Suffix::Cleaned => true,
                Suffix::None => old,
                Suffix::Swap => !list.new.contains_key(&parsed.offset),
            };
            if goes {
                self.remove(name)?;
            }
        }
        for (&base, kinds) in &list.new {
            for kind in FileKind::OF_SEGMENT {
                match (present(base, kind, Suffix::Swap), present(base, kind, Suffix::None)) {
                    (Some(swap), _) => {
                        let to = self.path(&file_name(base, kind, Suffix::None));
                        self.log.backend.names().rename(&self.path(&swap), &to)?;
                        self.report.completed.push(to);
                    }
                    // The old segment's, of a kind that the new one has not.
                    (None, Some(name)) if !kinds.contains(&kind) => self.remove(&name)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// `undone`: nothing that is `.swap` counts.
    fn finish_swaps_of_kafka(&mut self, undone: bool) -> Result<()> {
        let files = self.files()?;
        let min_cleaned = files.iter().filter(|f| f.1.suffix == Suffix::Cleaned).map(|f| f.1.offset).min();
        for (name, parsed, _) in &files {
            let goes = match parsed.suffix {
                Suffix::Deleted | Suffix::Cleaned => true,
                // A replacement is complete only once no part of it is `.cleaned` any more.
                Suffix::Swap => undone || min_cleaned.is_some_and(|min| parsed.offset >= min),
                Suffix::None => false,
            };
            if goes {
                self.remove(name)?;
            }
        }
        let files = self.files()?;
        let mut range: Option<(Offset, Offset)> = None;
        for (_, parsed, size) in &files {
            if parsed.suffix == Suffix::Swap && parsed.kind == FileKind::Log {
                let next = self.next_offset_of_swap(parsed.offset, *size)?;
                let (min, max) = range.unwrap_or((parsed.offset, next));
                range = Some((min.min(parsed.offset), max.max(next)));
            }
        }
        if let Some((min, max)) = range {
            for (name, parsed, _) in &files {
                if parsed.suffix != Suffix::Swap && min <= parsed.offset && parsed.offset < max {
                    self.remove(name)?;
                }
            }
        }
        for (name, parsed, _) in files.iter().filter(|f| f.1.suffix == Suffix::Swap) {
            let to = self.path(&file_name(parsed.offset, parsed.kind, Suffix::None));
            self.log.backend.names().rename(&self.path(name), &to)?;
            self.report.completed.push(to);
        }
        if range.is_some() {
            self.log.backend.names().sync_dir(&self.log.dir)?;
        }
        Ok(())
    }

    /// The offset behind the last batch of a `.log.swap` file, by a walk over its headers.
    fn next_offset_of_swap(&self, base: Offset, size: u64) -> Result<Offset> {
        let path = self.path(&file_name(base, FileKind::Log, Suffix::Swap));
        let file = self.log.backend.open(&path, OpenHow::Read)?;
        let mut walk = Headers::new(&*file, 0, size);
        let mut next = base;
        loop {
            match walk.next() {
                Ok(Some((_, header))) => next = header.next_offset(),
                // What is no batch, such as the space that was taken ahead of the batches of a split segment, retires nothing.
                Ok(None) | Err(kseg_segment::Error::Corrupt { .. }) => return Ok(next),
                Err(e) => return Err(self.log.wrap(e)),
            }
        }
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        let path = self.path(name);
        self.log.backend.names().remove(&path)?;
        self.report.removed.push(path);
        Ok(())
    }

    /// Phases 4 to 6.
    fn load(&mut self, writer: &mut Writer, deferred: &mut Deferred, kind: DirKind) -> Result<()> {
        self.open_segments()?;
        if kind != DirKind::Deleted {
            self.doubt_the_end()?;
        }
        let known_end = loop {
            while let Some(split) = self.split_one()? {
                self.finish_split(split, deferred)?;
            }
            self.rebuild_missing(writer)?;
            let known_end = if kind == DirKind::Deleted { None } else { self.recover(writer)? };
            let Some(split) = self.overflowed.take() else { break known_end };
            self.finish_split(split, deferred)?;
            self.report.recovered.clear();
        };
        let log = self.log;
        if log.segments().active().is_none() {
            let segment = log.new_segment(self.log_start)?;
            *log.segments.write() = Arc::new(Segments::default().with(segment));
        }
        let active = log.active()?;
        active.activate().map_err(|e| log.wrap(e))?;
        if self.appended_part == Some(active.base_offset()) {
            active.count_from_last_entry().map_err(|e| log.wrap(e))?;
        }
        let log_end = match (kind, known_end) {
            (DirKind::Deleted, _) => Offset::ZERO,
            (_, Some(end)) => end,
            (_, None) => active.next_offset().map_err(|e| log.wrap(e))?,
        };
        if kind != DirKind::Deleted {
            self.check_aborted(log_end)?;
        }
        let first = log.segments().as_slice().first().map_or(Offset::ZERO, |s| s.base_offset());
        let log_start = self.log_start.max(first);
        if kind != DirKind::Deleted && log_end < self.recovery_point && !self.report.emptied {
            self.report.missing_up_to = Some(self.recovery_point);
        }
        if self.clean && self.recovery_point > Offset::ZERO && log_end > self.recovery_point {
            self.report.left_at = Some(self.recovery_point);
        }
        let recovery_point =
            if self.clean && known_end.is_some() { log_end } else { self.recovery_point.min(log_end) };
        if log.epochs.write().truncate_from_end(log_end).write == FileWrite::Background {
            log.write_epochs_later(deferred);
        }
        if log.epochs.write().truncate_from_start(self.log_start).write == FileWrite::Background {
            log.write_epochs_later(deferred);
        }
        {
            let mut marks = log.marks.write();
            marks.log_start = log_start;
            let place = Place { segment: active.base_offset(), position: active.size() };
            marks.log_end = Mark { offset: log_end, place: Some(place) };
            marks.high_watermark = Mark::at(log_start);
            marks.recovery_point = recovery_point.max(log_start).min(log_end.max(log_start));
            marks.durable = recovery_point;
        }
        let bases: BTreeSet<Offset> = log.segments().as_slice().iter().map(|s| s.base_offset()).collect();
        writer.producers = log.list_producers()?;
        log.remove_stray_snapshots(writer, &bases)?;
        log.rebuild_producers(writer, log_start, log_end, self.clean, &mut self.doubts)?;
        log.last_flush_ms.store(log.clock.now_ms(), Ordering::Relaxed);
        log.refresh_first_unstable(writer);
        Ok(())
    }

    /// Puts the parts of a segment in its place. The first part has its base, so that the replacement is whole wherever it
    /// stops; where no batch fits that base it is empty, and goes.
    fn finish_split(&mut self, base: Offset, deferred: &mut Deferred) -> Result<()> {
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

    /// Phase 4: every `.log` file is a segment; an index file without one goes.
    fn open_segments(&mut self) -> Result<()> {
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
        *log.segments.write() = Arc::new(segments.into_iter().collect());
        Ok(())
    }

    /// Whether the segment has no offset index, or no time index.
    fn lacks_index(&self, base: Offset) -> bool {
        [FileKind::OffsetIndex, FileKind::TimeIndex].iter().any(|&kind| !self.present.contains(&(base, kind)))
    }

    /// Whether the segment will be checked batch by batch.
    fn is_to_recover(&self, segments: &Segments, base: Offset) -> bool {
        !self.clean && base >= self.first_unflushed(segments)
    }

    /// Makes the index files that are missing, but for those that recovery makes anyway.
    ///
    /// A segment without an offset index has its producers looked through as well, and the snapshots behind it are
    /// forgotten: they tell of the last batch of each producer only, where batches tell of five. So has an empty one, as a
    /// roll leaves it that no append has followed: without any snapshot, its producers are those of the batches before it.
    ///
    /// Source: Kafka `LogLoader.loadSegmentFiles`, which recovers such a segment.
    fn rebuild_missing(&mut self, writer: &mut Writer) -> Result<()> {
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
    fn split_one(&mut self) -> Result<Option<Offset>> {
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

    /// After an orderly stop the log ends at its recovery point, if there is one: no checksum covers the offsets that say so.
    /// Where it does not, and the last segment is damaged, that is checked batch by batch, as after a crash.
    ///
    /// Kafka takes the end as it comes, and gives offsets out again, or leaves the good batches below its log start.
    fn doubt_the_end(&mut self) -> Result<()> {
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
    fn recover(&mut self, writer: &mut Writer) -> Result<Option<Offset>> {
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
    /// good ones. Those of segments that were recovered have just been made.
    fn check_aborted(&mut self, log_end: Offset) -> Result<()> {
        let log = self.log;
        let segments = log.segments();
        for (n, segment) in segments.as_slice().iter().enumerate() {
            let base = segment.base_offset();
            if !self.present.contains(&(base, FileKind::TxnIndex)) || self.report.recovered.contains(&base) {
                continue;
            }
            let end = segments.as_slice().get(n + 1).map_or(log_end, |next| next.base_offset());
            if segment.aborted_are_sound(end).map_err(|e| log.wrap(e))? {
                continue;
            }
            let aborted = self.aborted_of(segment)?;
            segment.replace_aborted(&aborted).map_err(|e| log.wrap(e))?;
            self.report.aborted_rebuilt.push(base);
        }
        Ok(())
    }

    /// The aborted transactions that end in a segment, by its markers and the producers that were known when it began.
    fn aborted_of(&mut self, segment: &Segment) -> Result<Vec<AbortedTransaction>> {
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
            let ended = observe(producers, &batch, place).unwrap_or_else(|reason| {
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

/// Files of a partition directory that are no segment's: checkpoints, their leftovers, and what was kept aside.
fn is_kept_beside(name: &str) -> bool {
    let base = name.strip_suffix(".tmp").unwrap_or(name);
    base == EPOCH_FILE || base == "partition.metadata" || name.ends_with(".checkpoint") || is_cut(name)
}

/// A name for what was kept aside ([`Cut::kept`], [`Segment::set_aside`]).
fn is_cut(name: &str) -> bool {
    let base = match name.rsplit_once('.') {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    };
    base.ends_with(".cut")
}
