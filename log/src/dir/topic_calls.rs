//! Making, changing and deleting the topics of a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kseg_format::{TopicPartition, Uuid};
use kseg_io_backends::Kind;
use tracing::warn;

use super::{DirInner, LogDir};
use crate::config::LogConfig;
use crate::error::{Error, Result};
use crate::topic::DirKind;
use crate::topics::{TOPICS, Topic, TopicProblem, Topics, new_id, problem};

/// What could be found out of the topics of a directory.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct TopicSurvey {
    /// The topics, by name. One whose id nobody knows has [`Uuid::ZERO`].
    pub topics: BTreeMap<String, Topic>,
    /// Partitions whose folder should have told the topic's id and could not be read, with the error.
    pub failed: Vec<(TopicPartition, Error)>,
}

impl LogDir {
    /// Name of the file in which a directory that stands alone keeps its topics and their configuration.
    pub const TOPICS_FILE: &str = TOPICS;

    /// The topics of the directory, by name: those of `kseg-topics.json`, and those that only have folders, as a broker
    /// leaves them. One whose folders tell of no id has [`Uuid::ZERO`].
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::SmallFile`] for a malformed `partition.metadata`: [`survey`](Self::survey) then still tells
    /// of the others.
    pub fn topics(&self) -> Result<BTreeMap<String, Topic>> {
        let TopicSurvey { topics, failed } = self.survey()?;
        failed.into_iter().next().map_or(Ok(topics), |(_, error)| Err(error))
    }

    /// As [`topics`](Self::topics), whatever becomes of single ones.
    ///
    /// # Errors
    /// [`Error::Io`] where the directory cannot be listed.
    pub fn survey(&self) -> Result<TopicSurvey> {
        let _inside = self.inner.enter()?;
        let entries = self.inner.topics.lock().0.clone();
        let mut found = self.inner.topics_of_folders(|topic| !entries.contains_key(topic))?;
        found.topics.extend(entries);
        Ok(found)
    }

    /// The configuration of a topic's logs: its own over the directory's.
    ///
    /// # Errors
    /// [`Error::Config`] where they do not go together.
    pub fn config_of(&self, topic: &str) -> Result<LogConfig> {
        let _inside = self.inner.enter()?;
        self.inner.topics.lock().log_config(topic, &self.inner.options.config)
    }

    /// Makes a topic with `partitions` partitions, and their folders. Durable on return.
    ///
    /// # Errors
    /// [`Error::TopicName`]; [`Error::Topic`] where there is one, its name
    /// collides with another's, or the number is below 1; [`Error::Config`]: nothing was changed.
    /// [`Error::Io`], [`Error::NotADirectory`] where a file is in the place of a
    /// folder: the topic is there where its entry could be written, and its folders are made when their logs are asked for.
    pub fn create_topic<'a>(
        &self,
        name: &str,
        partitions: i32,
        config: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Topic> {
        let topic = Topic::new(name, partitions, config)?;
        let _inside = self.inner.enter()?;
        let folders = self.partitions()?.into_iter().map(|p| p.topic).collect();
        self.inner.note_topic(name, &topic, &folders)?;
        self.inner.make_folders(name, 0..partitions, topic.id)?;
        Ok(topic)
    }

    /// Changes a topic's configuration: sets the keys of `set`, then takes back those of `unset`. In force at once for logs
    /// that are open, as [`Log::update_config`](crate::Log::update_config) says.
    ///
    /// A topic that has only folders gets an entry.
    ///
    /// # Errors
    /// [`Error::Topic`] where there is none, or a key of `unset` has no value;
    /// [`Error::Config`]; nothing was changed. [`Error::Io`].
    ///
    /// Source: Kafka `kafka-configs --alter`.
    pub fn alter_topic<'a>(
        &self,
        name: &str,
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
        unset: impl IntoIterator<Item = &'a str>,
    ) -> Result<Topic> {
        self.change_topic(name, set, unset, None)
    }

    /// Does what [`alter_topic`](Self::alter_topic) does and, with `partitions`, what [`add_partitions`](Self::add_partitions)
    /// does, as one: both are written or neither.
    ///
    /// # Errors
    /// As there.
    pub fn change_topic<'a>(
        &self,
        name: &str,
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
        unset: impl IntoIterator<Item = &'a str>,
        partitions: Option<i32>,
    ) -> Result<Topic> {
        let _inside = self.inner.enter()?;
        let known = self.inner.known_topic(name)?;
        let defaults = &self.inner.options.config;
        let (before, topic) = self.inner.change_topics(|topics| {
            let mut topic = topics.0.remove(name).unwrap_or(known).changed(name, set, unset, defaults)?;
            let before = topic.partitions;
            if let Some(asked) = partitions {
                if asked <= before {
                    let at_least = before.saturating_add(1);
                    return Err(problem(name, TopicProblem::Partitions { asked, at_least }));
                }
                topic.partitions = asked;
            }
            topics.0.insert(name.to_owned(), topic.clone());
            Ok((before, topic))
        })?;
        self.inner.make_folders(name, before..topic.partitions, topic.id)?;
        let config = topic.log_config(defaults)?;
        let compaction = self.inner.compaction();
        for (partition, log) in self.inner.open_logs().iter().filter(|(p, _)| p.topic == name) {
            let compacted = log.config().cleanup_policy.compact;
            log.update_config(config.clone())?;
            if let Some(compaction) = &compaction {
                compaction.configured(partition, compacted && !config.cleanup_policy.compact)?;
            }
        }
        Ok(topic)
    }

    /// Gives a topic more partitions, `partitions` in all, and makes their folders.
    ///
    /// # Errors
    /// [`Error::Topic`] where there is none, or it has as many already.
    /// [`Error::Io`].
    ///
    /// Source: Kafka `kafka-topics --alter --partitions`.
    pub fn add_partitions(&self, name: &str, partitions: i32) -> Result<Topic> {
        self.change_topic(name, [], [], Some(partitions))
    }

    /// Deletes a topic: its entry at once, its partitions as [`delete`](Self::delete) does.
    ///
    /// # Errors
    /// [`Error::Topic`] where there is none. [`Error::Io`]: partitions may be left,
    /// which a second call deletes.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        let _inside = self.inner.enter()?;
        if !self.inner.knows(name)? {
            return Err(problem(name, TopicProblem::Unknown));
        }
        self.inner.delete_topic(name)
    }
}

impl DirInner {
    /// Whether there is an entry or a folder of the topic.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) where the directory cannot be listed.
    pub(crate) fn knows(&self, topic: &str) -> Result<bool> {
        let _inside = self.enter()?;
        Ok(self.topics.lock().0.contains_key(topic) || self.partitions()?.iter().any(|p| p.topic == topic))
    }

    /// Deletes what there is of a topic.
    pub(crate) fn delete_topic(self: &Arc<Self>, name: &str) -> Result<()> {
        let _inside = self.serve()?;
        for (folder, partition, kind) in self.folders()?.into_iter().filter(|(_, p, _)| p.topic == name) {
            match kind {
                DirKind::Current => drop(self.delete_current(&partition, true)?),
                DirKind::Future => self.give_up(&partition, &folder)?,
                DirKind::Deleted | DirKind::Stray => {}
            }
        }
        self.change_topics(|topics| {
            topics.0.remove(name);
            Ok(())
        })
    }

    /// Makes the entry of a new topic; `folders` are the topics that have folders.
    pub(crate) fn note_topic(&self, name: &str, topic: &Topic, folders: &BTreeSet<String>) -> Result<()> {
        topic.log_config(&self.options.config)?;
        self.change_topics(|topics| {
            topics.check_new(name, folders.iter().map(String::as_str))?;
            topics.0.insert(name.to_owned(), topic.clone());
            Ok(())
        })
    }

    /// Takes up the topics of the node, in the place of what is said of them here: a partition of theirs may come here. They are
    /// in force also where the file cannot be written; the next change writes it.
    pub(crate) fn adopt_topics(&self, all: &BTreeMap<String, Topic>) {
        let mut topics = self.topics.lock();
        let before = topics.clone();
        topics.0.extend(all.iter().map(|(name, topic)| (name.clone(), topic.clone())));
        if *topics != before
            && let Err(error) = self.noted(topics.write(&*self.options.backend, &self.path))
        {
            warn!(dir = %self.path.display(), %error, "topics of other directories not written");
        }
    }

    /// Changes the topics and their file as one: neither changes where `f` or the write fails.
    fn change_topics<T>(&self, f: impl FnOnce(&mut Topics) -> Result<T>) -> Result<T> {
        let _inside = self.serve()?;
        let mut topics = self.topics.lock();
        let mut changed = topics.clone();
        let result = f(&mut changed)?;
        if changed != *topics {
            self.noted(changed.write(&*self.options.backend, &self.path))?;
            *topics = changed;
        }
        Ok(result)
    }

    fn make_folders(&self, topic: &str, partitions: std::ops::Range<i32>, id: Uuid) -> Result<()> {
        let _inside = self.serve()?;
        for partition in partitions {
            let partition = TopicPartition::new(topic, partition);
            self.in_turn(&partition, || {
                let path = self.folder(&partition);
                match self.noted(self.options.backend.names().stat(&path).map_err(Error::from))? {
                    None => self.noted(self.make_folder(&partition, Some(id))),
                    Some(stat) if stat.kind != Kind::Dir => {
                        Err(Error::NotADirectory { path, found: "a file" })
                    }
                    Some(_) => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    /// A topic by its entry, or else by its folders; one without an id gets a new one.
    fn known_topic(&self, name: &str) -> Result<Topic> {
        if let Some(topic) = self.topics.lock().0.get(name) {
            return Ok(topic.clone());
        }
        let TopicSurvey { mut topics, failed } = self.topics_of_folders(|topic| topic == name)?;
        if let Some((_, error)) = failed.into_iter().next() {
            return Err(error);
        }
        let topic = topics.remove(name).ok_or_else(|| problem(name, TopicProblem::Unknown))?;
        let id = if topic.id == Uuid::ZERO { new_id() } else { topic.id };
        Ok(Topic { id, ..topic })
    }

    /// What the folders tell of the topics that are `asked` for.
    fn topics_of_folders(&self, asked: impl Fn(&str) -> bool) -> Result<TopicSurvey> {
        let mut found = TopicSurvey::default();
        for partition in self.partitions()?.into_iter().filter(|partition| asked(&partition.topic)) {
            let unknown = || Topic { id: Uuid::ZERO, partitions: 1, config: BTreeMap::new() };
            let topic = found.topics.entry(partition.topic.clone()).or_insert_with(unknown);
            topic.partitions = topic.partitions.max(partition.partition.saturating_add(1));
            if topic.id != Uuid::ZERO {
                continue;
            }
            match self.topic_id(&partition) {
                Ok(id) => topic.id = id.unwrap_or(Uuid::ZERO),
                Err(error) => found.failed.push((partition, error)),
            }
        }
        Ok(found)
    }
}
