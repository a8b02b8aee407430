//! Several data directories as one: which partition lies where, and which directory serves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::{LeaderEpoch, TopicPartition};

use crate::compaction::Compaction;
use crate::config::BrokerConfig;
use crate::dir::{LoadOptions, LoadSummary, LogDir, LogDirOptions, Prepared, ShutdownReport, paused};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::read::Isolation;
use crate::sync::Mutex;
use crate::topics::{Topic, TopicProblem, new_id, problem};

/// The data directories of one node.
///
/// Each knows all topics that any of them has in its list. A partition lies in one of them: the one that has its folder, else the one with the fewest partitions. A directory that
/// cannot be opened, or fails later, is out of service; the others go on. While one is, no partition is made that might
/// lie there.
///
/// Source: Kafka `LogManager`.
pub struct LogManager {
    dirs: Vec<Place>,
    /// Held while a partition is placed, moved or deleted, and its table read: never across a log's own I/O.
    placing: Mutex<()>,
}

struct Place {
    path: PathBuf,
    /// Why it could not be opened, or the directory.
    dir: Result<LogDir, String>,
    /// Takes no new partitions.
    cordoned: Mutex<bool>,
}

/// What a manager says of one of its directories.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirStatus {
    /// Its path.
    pub path: PathBuf,
    /// Why it is out of service; `None` while it serves.
    pub offline: Option<String>,
    /// How many partitions it has, those that are being moved in included; 0 out of service.
    pub partitions: usize,
    /// Whether it takes no new partitions.
    pub cordoned: bool,
}

impl LogManager {
    /// Opens the directories at `paths`, which are made where they are missing.
    ///
    /// One that cannot be opened for an error of the file system is out of service from the start, see
    /// [`dirs`](Self::dirs).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for two paths of one directory, or none at all; [`Error::Locked`] where one is in use;
    /// [`Error::Duplicate`] where two hold the same partition; [`Error::Checkpoint`], [`Error::Topics`] for a malformed
    /// file. Where no directory serves, the first one's error.
    pub fn open(paths: &[PathBuf], options: &LogDirOptions) -> Result<LogManager> {
        let mut found: Vec<(PathBuf, Result<Prepared, String>)> = Vec::new();
        let mut first = None;
        let mut cause_of = |error: Error| {
            let cause = error.to_string();
            first.get_or_insert(error);
            cause
        };
        // All are locked and read before any is changed: where one cannot be had, the others are left as they were.
        for path in paths {
            let path = plain(path);
            if found.iter().any(|(other, _)| *other == path) {
                let what = format!("{}: given twice: expected each data directory once", path.display());
                return Err(Error::InvalidArgument { what });
            }
            let prepared = match LogDir::prepare(&path, options.clone()) {
                Ok(prepared) => Ok(prepared),
                Err(error @ (Error::Io(_) | Error::NotADirectory { .. })) => Err(cause_of(error)),
                Err(error) => return Err(error),
            };
            found.push((path, prepared));
        }
        let mut dirs = Vec::new();
        for (path, prepared) in found {
            let dir = prepared.and_then(|prepared| prepared.begin().map_err(&mut cause_of));
            dirs.push(Place { path, dir, cordoned: Mutex::new(false) });
        }
        if dirs.iter().all(|place| place.dir.is_err()) {
            let none =
                || Error::InvalidArgument { what: "no data directory: expected at least one".to_owned() };
            return Err(first.unwrap_or_else(none));
        }
        let manager = LogManager { dirs, placing: Mutex::new(()) };
        manager.check_duplicates()?;
        manager.share_topics();
        Ok(manager)
    }

    /// Every directory knows all topics: one that is new, or was not there when a topic was made, takes them up.
    fn share_topics(&self) {
        let mut all = BTreeMap::new();
        for dir in self.live() {
            for (name, topic) in &dir.inner.topics.lock().0 {
                all.entry(name.clone()).or_insert_with(|| topic.clone());
            }
        }
        self.live().for_each(|dir| dir.inner.adopt_topics(&all));
    }

    /// A topic that has an entry, which then is in all directories, or folders in any.
    fn topic(&self, name: &str) -> Result<Option<Topic>> {
        let entry = self.live().find_map(|dir| dir.inner.topics.lock().0.get(name).cloned());
        if entry.is_some() {
            return Ok(entry);
        }
        let (mut id, mut partitions) = (None, 0);
        for dir in self.live() {
            for partition in dir.partitions()?.iter().filter(|p| p.topic == name) {
                id = id.or(dir.topic_id(partition)?);
                partitions = partitions.max(partition.partition.saturating_add(1));
            }
        }
        let id = id.unwrap_or_else(new_id);
        Ok((partitions > 0).then_some(Topic { id, partitions, config: BTreeMap::new() }))
    }

    fn check_duplicates(&self) -> Result<()> {
        let mut seen: BTreeMap<TopicPartition, &Path> = BTreeMap::new();
        for dir in self.live() {
            for partition in dir.partitions()? {
                if let Some(other) = seen.insert(partition.clone(), dir.path()) {
                    let dirs = [other.to_path_buf(), dir.path().to_path_buf()];
                    return Err(Error::Duplicate { partition, dirs });
                }
            }
        }
        Ok(())
    }

    /// The directories that serve, in the order in which they were given.
    pub fn live(&self) -> impl Iterator<Item = &LogDir> {
        self.dirs.iter().filter_map(|place| place.dir.as_ref().ok()).filter(|dir| dir.offline().is_none())
    }

    /// The state of every directory, in the order in which they were given.
    ///
    /// # Errors
    /// [`Error::Io`] where one that serves cannot be listed.
    pub fn dirs(&self) -> Result<Vec<DirStatus>> {
        self.dirs
            .iter()
            .map(|place| {
                let offline = match &place.dir {
                    Ok(dir) => dir.offline(),
                    Err(cause) => Some(cause.clone()),
                };
                let partitions = match &place.dir {
                    Ok(dir) if offline.is_none() => dir.load()?,
                    _ => 0,
                };
                let cordoned = *place.cordoned.lock();
                Ok(DirStatus { path: place.path.clone(), offline, partitions, cordoned })
            })
            .collect()
    }

    fn any_offline(&self) -> Option<Error> {
        self.dirs.iter().find_map(|place| {
            let cause = match &place.dir {
                Ok(dir) => dir.offline()?,
                Err(cause) => cause.clone(),
            };
            Some(Error::Offline { dir: place.path.clone(), cause })
        })
    }

    /// Lets a directory take new partitions, or not.
    ///
    /// Where none but cordoned directories serve, the first of them takes new partitions all the same.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a path that is none of this manager's.
    pub fn set_cordoned(&self, path: &Path, cordoned: bool) -> Result<()> {
        *self.place(path)?.cordoned.lock() = cordoned;
        Ok(())
    }

    /// Cordons the directories in `list`, as `cordoned.log.dirs` has it: paths with commas between them, `*` alone for all,
    /// nothing for none. All others take new partitions again.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a path that is none of this manager's, or `*` beside a path; nothing is changed.
    pub fn set_cordoned_list(&self, list: &str) -> Result<()> {
        let items: Vec<&str> = list.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
        if items.contains(&"*") && items.len() > 1 {
            let what = format!("cordoned.log.dirs={list}: expected * alone, or directories");
            return Err(Error::InvalidArgument { what });
        }
        let all = items == ["*"];
        let named: Vec<&Path> = match all {
            true => Vec::new(),
            false => items
                .iter()
                .map(|item| Ok(self.place(Path::new(item))?.path.as_path()))
                .collect::<Result<_>>()?,
        };
        for place in &self.dirs {
            *place.cordoned.lock() = all || named.contains(&place.path.as_path());
        }
        Ok(())
    }

    /// The broker's epoch at the last orderly stop, as the markers of all directories had it; `None` where one is out of
    /// service, has had no marker or one without an epoch, or two differ.
    pub fn broker_epoch(&self) -> Option<i64> {
        let mut epochs = self.dirs.iter().map(|place| {
            let dir = place.dir.as_ref().ok().filter(|dir| dir.offline().is_none());
            dir.and_then(LogDir::broker_epoch)
        });
        let first = epochs.next()??;
        epochs.all(|epoch| epoch == Some(first)).then_some(first)
    }

    fn place(&self, path: &Path) -> Result<&Place> {
        let path = plain(path);
        self.dirs.iter().find(|place| place.path == path).ok_or_else(|| Error::InvalidArgument {
            what: format!("{}: expected one of the data directories", path.display()),
        })
    }

    /// Opens every log of every directory that serves, one directory after the other, each on `options.threads` threads.
    ///
    /// # Errors
    /// None of a single directory: where one fails it is out of service, and its logs are among the failed.
    pub fn load_all(&self, options: LoadOptions<'_>) -> LoadSummary {
        let mut all = LoadSummary::default();
        for dir in self.live() {
            match dir.load_all(options) {
                Ok(summary) => {
                    all.opened += summary.opened;
                    all.stray.extend(summary.stray);
                    all.failed.extend(summary.failed);
                }
                Err(error) => dir.inner.health.fail(error.to_string()),
            }
        }
        all
    }

    /// Begins the periodic work of every directory, see [`LogDir::start_background`].
    pub fn start_background(&self, config: &BrokerConfig) {
        self.live().for_each(|dir| dir.start_background(config));
    }

    /// The directory that has the partition's folder.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn dir_of(&self, partition: &TopicPartition) -> Result<Option<&LogDir>> {
        for dir in self.live() {
            if dir.has(partition)? {
                return Ok(Some(dir));
            }
        }
        Ok(None)
    }

    /// The log of a partition; `None` where no directory that serves has it.
    ///
    /// # Errors
    /// As [`LogDir::get`].
    pub fn get(&self, partition: &TopicPartition) -> Result<Option<Arc<Log>>> {
        match self.dir_of(partition)? {
            Some(dir) => dir.get(partition),
            None => Ok(None),
        }
    }

    /// The log of a partition; made, in the directory with the fewest partitions, where there is none. Where that
    /// directory fails at it, the next one is tried.
    ///
    /// # Errors
    /// [`Error::Offline`] where the partition is not found and a directory that might have it is out of service, or none
    /// serves; else as [`LogDir::get_or_create`].
    pub fn get_or_create(&self, partition: &TopicPartition) -> Result<Arc<Log>> {
        self.get_or_place(partition, &mut Vec::new())
    }

    /// As [`get_or_create`](Self::get_or_create), of one of several partitions: what the directories hold is looked up once and
    /// counted on in `candidates`, which are none at first.
    fn get_or_place<'a>(
        &'a self,
        partition: &TopicPartition,
        candidates: &mut Vec<(usize, &'a LogDir)>,
    ) -> Result<Arc<Log>> {
        if let Some(log) = self.get(partition)? {
            return Ok(log);
        }
        let _placing = self.placing.lock();
        if let Some(log) = self.get(partition)? {
            return Ok(log);
        }
        if let Some(offline) = self.any_offline() {
            return Err(offline);
        }
        if candidates.is_empty() {
            *candidates = self.candidates()?;
        }
        // Stable: of those with as many the first given.
        candidates.sort_by_key(|(partitions, _)| *partitions);
        let mut last = None;
        for (partitions, dir) in candidates {
            match dir.get_or_create(partition, None) {
                Err(error) if dir.offline().is_some() => last = Some(error),
                made => {
                    *partitions += 1;
                    return made;
                }
            }
        }
        let gone = || self.any_offline().unwrap_or(Error::Closed { dir: PathBuf::new() });
        Err(last.unwrap_or_else(gone))
    }

    /// The directories that may take a partition, in the order given, with how many each has.
    fn candidates(&self) -> Result<Vec<(usize, &LogDir)>> {
        let mut open = Vec::new();
        for place in &self.dirs {
            if let Ok(dir) = &place.dir
                && dir.offline().is_none()
                && !*place.cordoned.lock()
            {
                open.push((dir.load()?, dir));
            }
        }
        if open.is_empty() {
            open.extend(self.live().take(1).map(|dir| (0, dir)));
        }
        Ok(open)
    }

    /// Deletes a partition, see [`LogDir::delete`]. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error::Offline`] where it is not found and a directory is out of service; else as there.
    pub fn delete(&self, partition: &TopicPartition) -> Result<bool> {
        let _placing = self.placing.lock();
        match self.dir_of(partition)? {
            Some(dir) => dir.delete(partition),
            None => self.any_offline().map_or(Ok(false), Err),
        }
    }

    /// Tells `compaction` of what happens to the logs of every directory, see [`LogDir::set_compaction`].
    pub fn set_compaction(&self, compaction: Option<&Arc<dyn Compaction>>) {
        self.live().for_each(|dir| dir.set_compaction(compaction.cloned()));
    }

    /// Copies a step of a partition to the directory at `to`, at least one batch and at most about `max_bytes`; once the copy
    /// has caught up it becomes the partition, and the old one is deleted. Returns how many bytes are still to be copied: 0
    /// when the move is done.
    ///
    /// Appends may go on between steps. Between the last step and the return the partition takes none: the old log is
    /// closed, and whoever holds it asks the manager for the new one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where the partition is in no directory, or in that one already. [`Error::Io`]: the partition
    /// is where it was, unless only its deletion there failed.
    ///
    /// Source: Kafka `LogManager.replaceCurrentWithFutureLog`, KIP-113.
    pub fn move_step(&self, partition: &TopicPartition, to: &Path, max_bytes: usize) -> Result<u64> {
        let target = match &self.place(to)?.dir {
            Ok(dir) => dir,
            Err(cause) => return Err(Error::Offline { dir: to.to_path_buf(), cause: cause.clone() }),
        };
        let _placing = self.placing.lock();
        let refuse = |what| Err(Error::InvalidArgument { what: format!("{partition}: {what}") });
        let Some(source) = self.dir_of(partition)? else { return refuse("in no data directory") };
        if source.path() == target.path() {
            return refuse("in that data directory already");
        }
        let Some(log) = source.get(partition)? else { return refuse("in no data directory") };
        let config = (*log.config()).clone();
        // Whole batches are copied: the first may begin below the log start.
        let start = log.read(log.log_start_offset(), 1, Isolation::LogEnd, true)?.offset;
        let start = start.min(log.log_start_offset());
        let future = target.get_or_create_future(partition, config, start)?;
        target.inner.copy_id(source.topic_id(partition)?, &future)?;
        if future.log_end_offset() < start {
            // Retention has gone past what was copied.
            future.truncate_fully_and_start_at(start, None)?;
        }
        agree(&log, &future)?;
        copy(&log, &future, max_bytes)?;
        let left = log.log_end_offset().get().saturating_sub(future.log_end_offset().get());
        if left > 0 {
            return Ok(log.size().saturating_sub(future.size()).max(1));
        }
        // The source takes nothing meanwhile, and nothing at all once the copy has taken its place.
        let moved = || -> Result<Option<Arc<Log>>> {
            let mut promoted = None;
            log.close_after(|| {
                agree(&log, &future)?;
                copy(&log, &future, usize::MAX)?;
                future.update_high_watermark(log.high_watermark());
                future.increment_log_start_offset(log.log_start_offset())?;
                promoted = Some(target.promote(partition)?);
                Ok(())
            })?;
            Ok(promoted)
        };
        match source.inner.compaction() {
            Some(compaction) => paused(&*compaction, partition, || match moved()? {
                Some(log) => compaction.moved(partition, target.path(), &log),
                None => Ok(()),
            })?,
            None => {
                if moved()?.is_some() {
                    target.inner.note_compacted(partition, source.inner.compacted(partition)?)?;
                    source.inner.note_compacted(partition, None)?;
                }
            }
        }
        source.inner.delete(partition, false)?;
        target.checkpoint()?;
        Ok(0)
    }

    /// The partitions of all directories that serve, ascending.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn partitions(&self) -> Result<Vec<TopicPartition>> {
        let mut all = Vec::new();
        for dir in self.live() {
            all.extend(dir.partitions()?);
        }
        all.sort();
        Ok(all)
    }

    /// Makes a topic: in the list of every directory, so that each can stand alone, and its partitions each where there is
    /// room.
    ///
    /// # Errors
    /// As [`LogDir::create_topic`]; [`Error::Offline`] where a directory is out of service.
    pub fn create_topic<'a>(
        &self,
        name: &str,
        partitions: i32,
        config: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Topic> {
        if let Some(offline) = self.any_offline() {
            return Err(offline);
        }
        let topic = Topic::new(name, partitions, config)?;
        let folders: BTreeSet<String> = self.partitions()?.into_iter().map(|p| p.topic).collect();
        for dir in self.live() {
            dir.inner.note_topic(name, &topic, &folders)?;
        }
        let mut candidates = Vec::new();
        for partition in 0..partitions {
            self.get_or_place(&TopicPartition::new(name, partition), &mut candidates)?;
        }
        Ok(topic)
    }

    /// Changes a topic's configuration in every directory, see [`LogDir::alter_topic`].
    ///
    /// # Errors
    /// As there; [`Error::Offline`] where a directory is out of service.
    pub fn alter_topic(&self, name: &str, set: &[(&str, &str)], unset: &[&str]) -> Result<()> {
        if let Some(offline) = self.any_offline() {
            return Err(offline);
        }
        let topic = self.topic(name)?.ok_or_else(|| problem(name, TopicProblem::Unknown))?;
        let one = BTreeMap::from([(name.to_owned(), topic.clone())]);
        for dir in self.live() {
            // Refused before anything is changed.
            let (set, unset) = (set.iter().copied(), unset.iter().copied());
            topic.clone().changed(name, set, unset, &dir.inner.options.config)?;
        }
        for dir in self.live() {
            dir.inner.adopt_topics(&one);
            dir.alter_topic(name, set.iter().copied(), unset.iter().copied())?;
        }
        Ok(())
    }

    /// Deletes a topic in every directory, see [`LogDir::delete_topic`].
    ///
    /// # Errors
    /// As there; [`Error::Offline`] where a directory is out of service.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        if let Some(offline) = self.any_offline() {
            return Err(offline);
        }
        let _placing = self.placing.lock();
        let mut with = Vec::new();
        for dir in self.live() {
            if dir.inner.knows(name)? {
                with.push(dir);
            }
        }
        if with.is_empty() {
            return Err(problem(name, TopicProblem::Unknown));
        }
        with.into_iter().try_for_each(|dir| dir.delete_topic(name))
    }

    /// What there is to measure, of every directory and log that is open.
    ///
    /// # Errors
    /// [`Error::Io`] where a directory that serves cannot be listed.
    pub fn metrics(&self) -> Result<Metrics> {
        let mut metrics = Metrics::default();
        for status in self.dirs()? {
            metrics.dirs.push(status.into());
        }
        for dir in self.live() {
            metrics.add(&dir.metrics());
        }
        Ok(metrics)
    }

    /// Stops every directory in an orderly way, whatever becomes of the others; the reports are in the order of the
    /// directories that could be opened.
    pub fn shutdown(self) -> Vec<(PathBuf, Result<ShutdownReport>)> {
        let dirs = self.dirs.into_iter().filter_map(|place| Some((place.path, place.dir.ok()?)));
        dirs.map(|(path, dir)| (path, dir.shutdown())).collect()
    }
}

impl fmt::Debug for LogManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.dirs.iter().map(|place| &place.path)).finish()
    }
}

/// Drops of `copy` what `from` has not, or has in another form: what was truncated in `from` since it was copied.
///
/// Source: Kafka `ReplicaAlterLogDirsThread`, which is told of truncations and compares leader epochs.
fn agree(from: &Log, copy: &Log) -> Result<()> {
    let mut end = from.log_end_offset();
    if let Some(dropped) = from.take_dropped() {
        end = end.min(dropped);
    }
    // Of truncations before a stop of the process the epochs tell.
    if let Some(epoch) = copy.latest_epoch()
        && let Some(shared) = from.end_offset_for_epoch(epoch)
    {
        end = end.min(shared.end_offset);
        if shared.epoch != epoch
            && let Some(own) = copy.end_offset_for_epoch(shared.epoch)
        {
            end = end.min(own.end_offset);
        }
    }
    if copy.log_end_offset() > end {
        copy.truncate_to(end)?;
    }
    Ok(())
}

/// Appends to `to` what `from` has behind its end, at most about `max_bytes` but at least a batch.
fn copy(from: &Log, to: &Log, max_bytes: usize) -> Result<()> {
    /// One read's worth.
    const STEP: usize = 1 << 20;
    let mut left = max_bytes;
    loop {
        let next = to.log_end_offset();
        if next >= from.log_end_offset() || left == 0 {
            return Ok(());
        }
        let fetch = from.read(next.max(from.log_start_offset()), left.min(STEP), Isolation::LogEnd, true)?;
        let Some(region) = fetch.region else {
            // What lies between here and the end holds no batch.
            return to.end_at(from.log_end_offset());
        };
        let bytes = region.to_bytes().map_err(Error::Io)?;
        left = left.saturating_sub(bytes.len());
        // What is in the log goes along, also of an epoch that its epoch file has lost.
        to.append_as_follower(bytes, LeaderEpoch::new(i32::MAX))?;
    }
}

/// The path without a slash at its end and without `.` in it, so that one directory has one name. Links are not followed.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}
