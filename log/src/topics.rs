//! The topics of a data directory that has no cluster to keep them: `kseg-topics.json`, beside the checkpoints.
//!
//! ```json
//! { "version": 1,
//!   "topics": { "orders": { "id": "Vb0Tcq3IRd2gqDXp4Fh9zA", "partitions": 3, "config": { "cleanup.policy": "compact" } } } }
//! ```
//!
//! Replaced as a whole, atomically and durably. Kafka ignores the file: in a cluster the metadata log says all this.

use std::collections::BTreeMap;
use std::path::Path;

use kseg_format::Uuid;
use kseg_io_backends::Backend;
use serde::{Deserialize, Serialize};

use crate::config::LogConfig;
use crate::error::{Error, Result};
use crate::log::random;
use crate::topic::{check_topic_name, topic_names_collide};

/// The file's name.
pub(crate) const TOPICS: &str = "kseg-topics.json";
/// Longest file that is read: far above a line for each of a hundred thousand topics.
const SIZE_MAX: u64 = 64 * 1024 * 1024;
const VERSION: u32 = 1;

/// What a standalone data directory knows of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topic {
    /// Its id, which stands in the `partition.metadata` of each of its partitions.
    pub id: Uuid,
    /// How many partitions it has: those from 0 on.
    pub partitions: i32,
    /// Its own configuration, by key; all else is the directory's.
    pub config: BTreeMap<String, String>,
}

impl Topic {
    /// A new topic, with a random id.
    ///
    /// # Errors
    /// [`Error::Topic`] for less than one partition.
    pub(crate) fn new<'a>(
        name: &str,
        partitions: i32,
        config: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Topic> {
        if partitions < 1 {
            return Err(problem(name, TopicProblem::Partitions { asked: partitions, at_least: 1 }));
        }
        let config = config.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        Ok(Topic { id: new_id(), partitions, config })
    }

    /// The configuration in force, over `defaults`.
    ///
    /// # Errors
    /// [`Error::Config`] where it is out of range or contradicts itself.
    pub fn log_config(&self, defaults: &LogConfig) -> Result<LogConfig> {
        let pairs = self.config.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Ok(defaults.clone().with_pairs(pairs)?)
    }

    /// The topic with the keys of `set`, then without those of `unset`.
    ///
    /// # Errors
    /// [`Error::Topic`] where a key of `unset` has no value; [`Error::Config`].
    pub(crate) fn changed<'a>(
        mut self,
        name: &str,
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
        unset: impl IntoIterator<Item = &'a str>,
        defaults: &LogConfig,
    ) -> Result<Topic> {
        self.config.extend(set.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())));
        for key in unset {
            if self.config.remove(key).is_none() {
                return Err(problem(name, TopicProblem::NoSuchKey { key: key.to_owned() }));
            }
        }
        self.log_config(defaults)?;
        Ok(self)
    }
}

/// A topic that cannot be made, found or changed as asked. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicProblem {
    /// There is one of this name.
    Exists,
    /// There is none of this name.
    Unknown,
    /// Its name differs from that of another topic in `.` against `_` alone.
    Collides {
        /// The other topic.
        with: String,
    },
    /// The number of partitions is below 1, or not above what there is.
    Partitions {
        /// How many were asked for.
        asked: i32,
        /// The fewest allowed.
        at_least: i32,
    },
    /// A configuration key that is to be taken away has no value.
    NoSuchKey {
        /// The key.
        key: String,
    },
}

impl TopicProblem {
    pub(crate) fn kafka_name(&self) -> &'static str {
        match self {
            TopicProblem::Exists => "TopicExistsException",
            TopicProblem::Unknown => "UnknownTopicOrPartitionException",
            TopicProblem::Collides { .. } => "InvalidTopicException",
            TopicProblem::Partitions { .. } => "InvalidPartitionsException",
            TopicProblem::NoSuchKey { .. } => "InvalidConfigurationException",
        }
    }
}

impl std::fmt::Display for TopicProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TopicProblem::Exists => f.write_str("there is one already"),
            TopicProblem::Unknown => f.write_str("there is no such topic"),
            TopicProblem::Collides { with } => write!(f, "its name collides with that of {with}"),
            TopicProblem::Partitions { asked, at_least } => {
                write!(f, "{asked} partitions: expected at least {at_least}")
            }
            TopicProblem::NoSuchKey { key } => write!(f, "it has no value for {key}"),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    topics: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    partitions: i32,
    #[serde(default)]
    config: BTreeMap<String, String>,
}

/// The file's content, by topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topics(pub(crate) BTreeMap<String, Topic>);

impl Topics {
    pub(crate) fn read(backend: &dyn Backend, dir: &Path, defaults: &LogConfig) -> Result<Topics> {
        let path = dir.join(TOPICS);
        match backend.names().read(&path, SIZE_MAX)? {
            None => Ok(Topics::default()),
            Some(bytes) => Self::parse(&bytes, &path, defaults),
        }
    }

    fn parse(bytes: &[u8], path: &Path, defaults: &LogConfig) -> Result<Topics> {
        let refuse = |what: String| Error::Topics { path: path.to_path_buf(), what };
        let file: File = serde_json::from_slice(bytes).map_err(|e| refuse(e.to_string()))?;
        if file.version != VERSION {
            return Err(refuse(format!("version {}: expected {VERSION}", file.version)));
        }
        let mut topics = BTreeMap::new();
        for (name, entry) in file.topics {
            let refuse = |what: String| refuse(format!("topic {name}: {what}"));
            check_topic_name(&name).map_err(|e| refuse(e.to_string()))?;
            let id = entry.id.parse().map_err(|e: kseg_format::UuidError| refuse(e.to_string()))?;
            if entry.partitions < 1 {
                return Err(refuse(format!("{} partitions: expected at least 1", entry.partitions)));
            }
            let topic = Topic { id, partitions: entry.partitions, config: entry.config };
            topic.log_config(defaults).map_err(|e| refuse(e.to_string()))?;
            topics.insert(name, topic);
        }
        Ok(Topics(topics))
    }

    pub(crate) fn write(&self, backend: &dyn Backend, dir: &Path) -> Result<()> {
        let entry = |topic: &Topic| Entry {
            id: topic.id.to_string(),
            partitions: topic.partitions,
            config: topic.config.clone(),
        };
        let topics = self.0.iter().map(|(name, topic)| (name.clone(), entry(topic))).collect();
        let path = dir.join(TOPICS);
        let mut text = serde_json::to_vec_pretty(&File { version: VERSION, topics })
            .map_err(|e| Error::Topics { path: path.clone(), what: e.to_string() })?;
        text.push(b'\n');
        backend.names().replace(&path, &text)?;
        Ok(())
    }

    /// The configuration of a topic's logs, over `defaults`.
    pub(crate) fn log_config(&self, topic: &str, defaults: &LogConfig) -> Result<LogConfig> {
        match self.0.get(topic) {
            Some(topic) => topic.log_config(defaults),
            None => Ok(defaults.clone()),
        }
    }

    /// Whether a topic of this name may be made beside these and `others`, which have folders but no entry.
    pub(crate) fn check_new<'a>(&'a self, name: &str, others: impl Iterator<Item = &'a str>) -> Result<()> {
        check_topic_name(name).map_err(|source| Error::TopicName { topic: name.to_owned(), source })?;
        for other in self.0.keys().map(String::as_str).chain(others) {
            if other == name {
                return Err(problem(name, TopicProblem::Exists));
            }
            if topic_names_collide(name, other) {
                return Err(problem(name, TopicProblem::Collides { with: other.to_owned() }));
            }
        }
        Ok(())
    }
}

/// An id that is none of those that Kafka reserves, and does not begin with a dash, which tools take for an option.
///
/// Source: Kafka `Uuid.randomUuid`.
pub(crate) fn new_id() -> Uuid {
    loop {
        let id = Uuid::from_bytes(unique().to_be_bytes());
        if !id.is_reserved() && !id.to_string().starts_with('-') {
            return id;
        }
    }
}

/// A number that keeps names apart.
pub(crate) fn unique() -> u128 {
    u128::from(random()) << 64 | u128::from(random())
}

pub(crate) fn problem(topic: &str, problem: TopicProblem) -> Error {
    Error::Topic { topic: topic.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Topics> {
        Topics::parse(text.as_bytes(), Path::new("/d/kseg-topics.json"), &LogConfig::default())
    }

    #[test]
    fn what_is_written_is_read() {
        let backend = kseg_io_backends::open("memory").expect("memory");
        let topic = Topic {
            id: Uuid::from_bytes([7; 16]),
            partitions: 3,
            config: BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]),
        };
        let topics = Topics(BTreeMap::from([("orders".to_owned(), topic)]));
        topics.write(&*backend, Path::new("/")).expect("written");
        let read = Topics::read(&*backend, Path::new("/"), &LogConfig::default()).expect("read");
        assert_eq!(read, topics);
        assert!(read.log_config("orders", &LogConfig::default()).expect("config").cleanup_policy.compact);
        assert!(!read.log_config("others", &LogConfig::default()).expect("config").cleanup_policy.compact);
    }

    #[test]
    fn a_damaged_file_is_refused_with_its_place() {
        let id = Uuid::from_bytes([7; 16]);
        let one = |entry: &str| format!(r#"{{"version":1,"topics":{{"t":{entry}}}}}"#);
        for (text, expected) in [
            ("".to_owned(), "EOF"),
            ("{\"version\":1,\n\"topics\":[]}".to_owned(), "line 2"),
            (r#"{"version":2,"topics":{}}"#.to_owned(), "version 2: expected 1"),
            (r#"{"version":1,"topics":{},"more":1}"#.to_owned(), "more"),
            (one(r#"{"id":"short","partitions":1}"#), "topic t: "),
            (one(&format!(r#"{{"id":"{id}","partitions":0}}"#)), "0 partitions: expected at least 1"),
            (
                one(&format!(r#"{{"id":"{id}","partitions":1,"config":{{"segment.bytes":"x"}}}}"#)),
                "segment.bytes",
            ),
        ] {
            let error = parse(&text).expect_err("refused").to_string();
            assert!(error.contains(expected) && error.contains("/d/kseg-topics.json"), "{text}: {error}");
        }
    }

    #[test]
    fn names_that_collide_are_refused() {
        let topics = Topics(BTreeMap::from([(
            "a.b".to_owned(),
            Topic { id: Uuid::ZERO, partitions: 1, config: BTreeMap::new() },
        )]));
        let name = |topic: &str, others: &[&str]| {
            topics.check_new(topic, others.iter().copied()).map_err(|e| e.kafka_name())
        };
        assert_eq!(name("a.b", &[]), Err("TopicExistsException"));
        assert_eq!(name("a_b", &[]), Err("InvalidTopicException"));
        assert_eq!(name("c", &["c"]), Err("TopicExistsException"));
        assert_eq!(name("a/b", &[]), Err("InvalidTopicException"));
        assert_eq!(name("c", &["d"]), Ok(()));
    }
}
