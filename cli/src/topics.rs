//! `kseg topics`: the topics of a data directory and their configuration.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use kseg_format::{MetaProperties, Uuid};
use kseg_log::{LogConfig, LogDir, LogDirOptions, Topic, TopicSurvey};

use crate::append::key_values;
use crate::data_dir::{self, Access};
use crate::error::{Error, Result};
use crate::json::Line;
use crate::tell::tell;

/// Creates, lists, describes, alters and deletes the topics of a data directory.
///
/// For data directories that stand alone, which no broker runs: their topics are kept in kseg-topics.json beside the
/// checkpoints, which a broker ignores, for in a cluster the metadata log keeps them. Folders of partitions that a broker
/// made are listed as topics too; of their configuration nothing is known.
///
/// `list` and `describe` change nothing, take no lock, and may look at a directory that a broker has open. The others lock
/// the data directory, as append does; in a broker's, which has a meta.properties, they ask for --write, for the broker's
/// metadata log will not know of what they did.
///
/// Exit code: 0 done, 1 something failed or could not be read (what could be is printed), 2 wrong usage.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct TopicsArgs {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  kseg topics create data orders --partitions 3 --config cleanup.policy=compact
  kseg topics list data
  kseg topics describe data orders --all
  kseg topics alter data orders --config retention.ms=86400000 --delete-config cleanup.policy
  kseg topics alter data orders --partitions 6
  kseg topics delete data orders";

#[derive(Debug, Subcommand)]
enum Action {
    /// Makes a topic and the folders of its partitions
    Create {
        /// The data directory; made where it is missing
        dir: PathBuf,
        /// The topic's name
        topic: String,
        /// How many partitions
        #[arg(long, default_value_t = 1, value_name = "N")]
        partitions: i32,
        /// Configuration under Kafka's keys; may be repeated
        #[arg(long = "config", value_name = "KEY=VALUE")]
        config: Vec<String>,
        /// Also in a broker's directory
        #[arg(long)]
        write: bool,
    },
    /// Prints the topics' names
    List {
        /// The data directory
        dir: PathBuf,
        /// A JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Prints partitions, id and configuration
    Describe {
        /// The data directory
        dir: PathBuf,
        /// The topic's name; without it every topic
        topic: Option<String>,
        /// Every key, with the defaults
        #[arg(long)]
        all: bool,
        /// A JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Changes a topic's configuration, or gives it more partitions
    Alter {
        /// The data directory
        dir: PathBuf,
        /// The topic's name
        topic: String,
        /// Set a key; may be repeated
        #[arg(long = "config", value_name = "KEY=VALUE")]
        config: Vec<String>,
        /// Go back to the default of a key; may be repeated
        #[arg(long = "delete-config", value_name = "KEY")]
        delete_config: Vec<String>,
        /// How many partitions it is to have, more than now
        #[arg(long, value_name = "N")]
        partitions: Option<i32>,
        /// Also in a broker's directory
        #[arg(long)]
        write: bool,
    },
    /// Deletes a topic and the folders of its partitions
    Delete {
        /// The data directory
        dir: PathBuf,
        /// The topic's name
        topic: String,
        /// Also in a broker's directory
        #[arg(long)]
        write: bool,
    },
}

/// Runs the command.
pub(crate) fn run(args: &TopicsArgs) -> Result<bool> {
    match &args.action {
        Action::Create { dir, topic, partitions, config, write } => {
            allowed("create", dir, *write)?;
            let config = key_values("--config", config)?;
            let made = change(dir, Access::Make, |open| open.create_topic(topic, *partitions, config))?;
            tell!("kseg: created topic {topic} with {} partitions, id {}", made.partitions, made.id);
        }
        Action::List { dir, json } => return list(dir, *json),
        Action::Describe { dir, topic, all, json } => return describe(dir, topic.as_deref(), *all, *json),
        Action::Alter { dir, topic, config, delete_config, partitions, write } => {
            allowed("alter", dir, *write)?;
            let set = key_values("--config", config)?;
            if set.is_empty() && delete_config.is_empty() && partitions.is_none() {
                let what = "alter: expected --config, --delete-config or --partitions".to_owned();
                return Err(Error::Usage(what));
            }
            let altered = change(dir, Access::Change, |open| {
                open.change_topic(topic, set, delete_config.iter().map(String::as_str), *partitions)
            })?;
            let config: Vec<_> = altered.config.iter().map(|(k, v)| format!("{k}={v}")).collect();
            tell!("kseg: topic {topic}: {} partitions, {}", altered.partitions, or_defaults(&config));
        }
        Action::Delete { dir, topic, write } => {
            allowed("delete", dir, *write)?;
            change(dir, Access::Change, |open| open.delete_topic(topic))?;
            tell!("kseg: deleted topic {topic}");
        }
    }
    Ok(true)
}

/// Refuses `action` in a broker's directory, unless it was said to `write`.
fn allowed(action: &str, dir: &Path, write: bool) -> Result<()> {
    let broker = dir.join(MetaProperties::FILE_NAME);
    if write {
        return Ok(());
    }
    match std::fs::metadata(&broker) {
        Ok(_) => {}
        // What is no data directory is refused where it is opened.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        Err(error) => return Err(Error::io(&broker, "stat", error)),
    }
    Err(Error::Usage(format!(
        "topics {action} changes a broker's directory, whose metadata log will not know of it ({} is there): say --write",
        broker.display()
    )))
}

/// Changes the data directory by `f`.
fn change<T>(dir: &Path, access: Access, f: impl FnOnce(&LogDir) -> kseg_log::Result<T>) -> Result<T> {
    // Nobody waits for folders to go: they go at once.
    let config = LogConfig { file_delete_delay_ms: 0, ..LogConfig::default() };
    let options = LogDirOptions { config, ..LogDirOptions::new(access.backend()) };
    data_dir::with(dir, access, options, |open| Ok(f(open)?))
}

/// What is known of the topics of the data directory, which is only looked at. What could not be read is told.
fn survey(dir: &Path) -> Result<TopicSurvey> {
    let options = LogDirOptions::new(Access::Look.backend());
    let found = data_dir::with(dir, Access::Look, options, |open| Ok(open.survey()?))?;
    for (partition, error) in &found.failed {
        tell!("kseg: {partition}: {error}");
    }
    Ok(found)
}

fn list(dir: &Path, json: bool) -> Result<bool> {
    let found = survey(dir)?;
    let mut out = Vec::new();
    for (name, topic) in &found.topics {
        if json {
            let mut line = Line::new(&mut out, "topic");
            id(line.text("topic", name), topic).number("partitions", topic.partitions).end();
        } else {
            out.extend_from_slice(name.as_bytes());
            out.push(b'\n');
        }
    }
    print(&out)?;
    Ok(found.failed.is_empty())
}

fn describe(dir: &Path, topic: Option<&str>, all: bool, json: bool) -> Result<bool> {
    let found = survey(dir)?;
    if let Some(wanted) = topic
        && !found.topics.contains_key(wanted)
    {
        return Err(Error::bad(dir, format!("a topic {wanted}"), "none of this name"));
    }
    let asked = |name: &str| topic.is_none_or(|wanted| name == wanted);
    let mut out = Vec::new();
    for (name, found) in found.topics.iter().filter(|(name, _)| asked(name)) {
        let config: Vec<(String, String)> = if all {
            let config = found.log_config(&LogConfig::default())?;
            config.to_pairs().into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
        } else {
            found.config.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        if json {
            let mut line = Line::new(&mut out, "topic");
            id(line.text("topic", name), found).number("partitions", found.partitions);
            for (key, value) in &config {
                line.text(&format!("config.{key}"), value);
            }
            line.end();
        } else {
            let config: Vec<_> = config.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let id = known_id(found).map_or_else(|| "unknown".to_owned(), |id| id.to_string());
            out.extend_from_slice(
                format!("{name}\tpartitions={}\tid={id}\t{}\n", found.partitions, or_defaults(&config))
                    .as_bytes(),
            );
        }
    }
    print(&out)?;
    Ok(!found.failed.iter().any(|(partition, _)| asked(&partition.topic)))
}

/// The topic's id, where an entry or a folder tells it.
fn known_id(topic: &Topic) -> Option<Uuid> {
    Some(topic.id).filter(|id| *id != Uuid::ZERO)
}

fn id<'l, 'o>(line: &'l mut Line<'o>, topic: &Topic) -> &'l mut Line<'o> {
    match known_id(topic) {
        Some(id) => line.text("id", &id.to_string()),
        None => line.maybe("id", None::<i64>),
    }
}

fn or_defaults(config: &[String]) -> String {
    if config.is_empty() { "configuration: defaults".to_owned() } else { config.join(" ") }
}

fn print(out: &[u8]) -> Result<()> {
    std::io::stdout().write_all(out).map_err(Error::output)
}
