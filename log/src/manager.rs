//! Several data directories as one: which partition lies where, and which directory serves.

mod moving;
mod twice;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kseg_format::TopicPartition;
use tracing::warn;

use self::moving::Moves;
use crate::compaction::Compaction;
use crate::config::BrokerConfig;
use crate::dir::{Inside, LoadOptions, LoadSummary, LogDir, LogDirOptions, Prepared, ShutdownReport};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::sync::{Mutex, for_each};
use crate::topics::{TOPICS, Topic, TopicProblem, new_id, problem};

/// The data directories of one node.
///
/// Each knows all topics that any of them has in its list; where they say different things of one, the first given is right. A
/// partition lies in one of them: the one that has its folder, else the one with the fewest partitions. A directory that cannot be opened, or fails later, is out of service; the others go on.
/// While one is, no partition is made that might lie there.
///
/// Source: Kafka `LogManager`.
pub struct LogManager {
    dirs: Vec<Place>,
    /// Held while a partition is placed, moved or deleted.
    placing: Mutex<Moves>,
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
    /// A partition that two of them hold, as a crash at the end of a move leaves it, is in one of them afterwards where one
    /// folder has all that the other has; else its log cannot be had ([`Error::Duplicate`]), and all others can.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for two paths of one directory, or none at all; [`Error::Locked`] where one is in use;
    /// [`Error::PartitionFolder`]; [`Error::Topics`] for a malformed file, and for two that give one topic different ids: every
    /// directory is as it was then, the marker of its clean stop included. Where no directory serves, the first one's error.
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
        one_id_for_each(&found)?;
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
        let manager = LogManager { dirs, placing: Mutex::default() };
        manager.share_topics();
        manager.settle_twice();
        Ok(manager)
    }

    /// Every directory knows all topics, and the same of each. One that is new, or was not there when a topic was made, takes
    /// them up. Where a crash came between the writes of a change, the first directory has it and another has not: what the
    /// first says holds, and the larger number of partitions, of which folders may be there.
    fn share_topics(&self) {
        let mut all: BTreeMap<String, (Topic, &LogDir)> = BTreeMap::new();
        for dir in self.live() {
            for (name, topic) in &dir.inner.topics.lock().0 {
                let (known, first) = all.entry(name.clone()).or_insert_with(|| (topic.clone(), dir));
                if known == topic {
                    continue;
                }
                let (file, other) = (first.path().join(TOPICS), dir.path().join(TOPICS));
                let (file, other) = (file.display(), other.display());
                warn!(topic = name, %file, has = ?known, %other, found = ?topic, "what the first says of a topic holds");
                known.partitions = known.partitions.max(topic.partitions);
            }
        }
        let all = all.into_iter().map(|(name, (topic, _))| (name, topic)).collect();
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

    /// Begins a call on all directories that serve: what it does to one of them it can do to the others, whatever comes
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    fn enter(&self) -> Result<Vec<Inside<'_>>> {
        self.live().map(|dir| dir.inner.enter()).collect()
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

    /// Opens every log of every directory that serves, of all at the same time, each on `options.threads` threads.
    ///
    /// # Errors
    /// None of a single directory: where one fails it is out of service, and its logs are among the failed.
    pub fn load_all(&self, options: LoadOptions<'_>) -> LoadSummary {
        let dirs: Vec<_> = self.live().collect();
        let all = Mutex::new(LoadSummary::default());
        for_each(dirs.len(), &dirs, |dir| match dir.load_all(options) {
            Ok(summary) => {
                let mut all = all.lock();
                all.opened += summary.opened;
                all.stray.extend(summary.stray);
                all.failed.extend(summary.failed);
            }
            // Nothing failed: it is being stopped in an orderly way.
            Err(Error::ShutDown { .. }) => {}
            Err(error) => dir.inner.health.fail(error.to_string()),
        });
        let mut all = std::mem::take(&mut *all.lock());
        all.sort();
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
        let _inside = self.enter()?;
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

    /// Deletes a partition, see [`LogDir::delete`], and the copy of it that is being moved. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error::Offline`] where it is not found and a directory is out of service; else as there.
    pub fn delete(&self, partition: &TopicPartition) -> Result<bool> {
        let _inside = self.enter()?;
        let mut moves = self.placing.lock();
        self.give_up_copies(&mut moves, partition)?;
        let mut deleted = false;
        for dir in self.live() {
            if dir.has(partition)? {
                deleted |= dir.delete(partition)?;
            }
        }
        if deleted { Ok(true) } else { self.any_offline().map_or(Ok(false), Err) }
    }

    /// Tells `compaction` of what happens to the logs of every directory, see [`LogDir::set_compaction`].
    pub fn set_compaction(&self, compaction: Option<&Arc<dyn Compaction>>) {
        self.live().for_each(|dir| dir.set_compaction(compaction.cloned()));
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
        // One may be in two.
        all.dedup();
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
        let _inside = self.enter()?;
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
        let _inside = self.enter()?;
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
        let _inside = self.enter()?;
        if let Some(offline) = self.any_offline() {
            return Err(offline);
        }
        let mut moves = self.placing.lock();
        let mut known = false;
        for dir in self.live() {
            known |= dir.inner.knows(name)?;
        }
        if !known {
            return Err(problem(name, TopicProblem::Unknown));
        }
        moves.retain(|partition, _| partition.topic != name);
        // Also where there is nothing but a copy of one of its partitions.
        self.live().try_for_each(|dir| dir.inner.delete_topic(name))
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

    /// Stops all directories in an orderly way, at the same time, whatever becomes of the others; the reports are in the order
    /// of the directories that could be opened. Calls are refused from then on, as [`LogDir::shutdown`] says.
    pub fn shutdown(&self) -> Vec<(PathBuf, Result<ShutdownReport>)> {
        let opened: Vec<_> =
            self.dirs.iter().filter_map(|place| place.dir.as_ref().ok()).enumerate().collect();
        let reports = Mutex::new(Vec::new());
        for_each(opened.len(), &opened, |&(n, dir)| {
            let report = dir.shutdown();
            reports.lock().push((n, dir.path().to_path_buf(), report));
        });
        let mut reports = std::mem::take(&mut *reports.lock());
        reports.sort_by_key(|&(n, ..)| n);
        reports.into_iter().map(|(_, path, report)| (path, report)).collect()
    }
}

impl fmt::Debug for LogManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.dirs.iter().map(|place| &place.path)).finish()
    }
}

/// One name must stand for one topic in all directories: nobody could tell whose records a partition has.
fn one_id_for_each(found: &[(PathBuf, Result<Prepared, String>)]) -> Result<()> {
    let mut ids = BTreeMap::new();
    for (path, prepared) in found {
        let Ok(prepared) = prepared else { continue };
        for (name, topic) in &prepared.topics().lock().0 {
            let (id, other) = ids.entry(name.clone()).or_insert((topic.id, path));
            if *id != topic.id {
                let other = other.join(TOPICS);
                let what = format!("topic {name}: id {}: expected {id}, as in {}", topic.id, other.display());
                return Err(Error::Topics { path: path.join(TOPICS), what });
            }
        }
    }
    Ok(())
}

/// The path without a slash at its end and without `.` in it, so that one directory has one name. Links are not followed.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}
