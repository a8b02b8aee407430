//! Opening a log: what interrupted operations left is finished or undone, segments are loaded, what may be damaged is
//! recovered, the offsets are set.
//!
//! Source: Kafka `LogLoader`; where kseg differs (nothing that could be read is dropped, a strange file is no reason to
//! refuse) the item says so.

mod recovery;
mod replacements;
mod report;
mod segments;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::checkpoint_files::LEADER_EPOCHS;
use kseg_format::{Offset, parse_epochs};
use kseg_io_backends::{Backend, Kind, OpenHow};
use kseg_segment::FileKind;
use tracing::info;

use crate::clock::{Clock, ManualClock, SystemClock};
use crate::config::LogConfig;
use crate::counted::Counted;
use crate::doubts::Doubts;
use crate::durability::Committer;
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::health::Health;
use crate::leader_epoch::{FileWrite, LeaderEpochCache};
use crate::log::{Deferred, DirLock, Hold, Inner, Log, Writer, batch_size_max};
use crate::marks::{Mark, Marks, Place};
use crate::observer::Observer;
use crate::producers::{EXPIRATION_CHECK_MS, EXPIRATION_MS, no_producers};
use crate::scheduler::{ManualScheduler, Scheduler};
use crate::segments::Segments;
use crate::sync::{AtomicBool, AtomicI64, AtomicU64, Mutex, Ordering, RwLock};
use crate::topic::{DirKind, parse_dir_name};
use crate::trouble::Troubles;

pub use self::report::LoadReport;

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
            None => names.create_dir_durably(dir)?,
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
                emptied: BTreeSet::new(),
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
    let path = dir.join(LEADER_EPOCHS);
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
    /// Segments with a transaction index of no bytes.
    emptied: BTreeSet<Offset>,
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
}
