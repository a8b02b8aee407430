//! `kseg topics`: the topics of a data directory and their configuration.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use kseg_io_backends::StdBackend;
use kseg_log::{LogConfig, LogDir, LogDirOptions, Topic};
use std::sync::Arc;

use crate::append::key_values;
use crate::error::{Error, Result};
use crate::json::Line;

/// Creates, lists, describes, alters and deletes the topics of a data directory.
///
/// For data directories that stand alone: their topics are kept in kseg-topics.json beside the checkpoints, which a
/// broker ignores, for in a cluster the metadata log keeps them. Folders of partitions that a broker made are listed as
/// topics too.
///
/// The data directory is locked meanwhile, as for append.
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
    },
    /// Deletes a topic and the folders of its partitions
    Delete {
        /// The data directory
        dir: PathBuf,
        /// The topic's name
        topic: String,
    },
}

/// Runs the command.
pub(crate) fn run(args: &TopicsArgs) -> Result<bool> {
    match &args.action {
        Action::Create { dir, topic, partitions, config } => {
            let config = key_values("--config", config)?;
            let made = change(dir, true, |open| open.create_topic(topic, *partitions, config))?;
            eprintln!("kseg: created topic {topic} with {} partitions, id {}", made.partitions, made.id);
        }
        Action::List { dir, json } => {
            let mut out = Vec::new();
            for (name, topic) in change(dir, false, LogDir::topics)? {
                if *json {
                    Line::new(&mut out, "topic")
                        .text("topic", &name)
                        .text("id", &topic.id.to_string())
                        .number("partitions", topic.partitions)
                        .end();
                } else {
                    out.extend_from_slice(name.as_bytes());
                    out.push(b'\n');
                }
            }
            print(&out)?;
        }
        Action::Describe { dir, topic, all, json } => describe(dir, topic.as_deref(), *all, *json)?,
        Action::Alter { dir, topic, config, delete_config, partitions } => {
            let set = key_values("--config", config)?;
            if set.is_empty() && delete_config.is_empty() && partitions.is_none() {
                let what = "alter: expected --config, --delete-config or --partitions".to_owned();
                return Err(Error::Usage(what));
            }
            let altered = change(dir, false, |open| {
                let mut altered = open.alter_topic(topic, set, delete_config.iter().map(String::as_str))?;
                if let Some(partitions) = partitions {
                    altered = open.add_partitions(topic, *partitions)?;
                }
                Ok(altered)
            })?;
            let config: Vec<_> = altered.config.iter().map(|(k, v)| format!("{k}={v}")).collect();
            eprintln!("kseg: topic {topic}: {} partitions, {}", altered.partitions, or_defaults(&config));
        }
        Action::Delete { dir, topic } => {
            change(dir, false, |open| open.delete_topic(topic))?;
            eprintln!("kseg: deleted topic {topic}");
        }
    }
    Ok(true)
}

/// Opens the data directory, does `f`, and closes it in an orderly way, whatever came of it.
fn change<T>(dir: &Path, make: bool, f: impl FnOnce(&LogDir) -> kseg_log::Result<T>) -> Result<T> {
    if !make && !dir.is_dir() {
        let found = if dir.exists() { "a file" } else { "nothing" };
        return Err(Error::bad(dir, "a data directory", found));
    }
    // Nobody waits for folders to go: they go at once.
    let config = LogConfig { file_delete_delay_ms: 0, ..LogConfig::default() };
    let options = LogDirOptions { config, ..LogDirOptions::new(Arc::new(StdBackend::new())) };
    let open = LogDir::open(dir, options)?;
    let done = f(&open);
    let stopped = open.shutdown();
    let value = done?;
    stopped?;
    Ok(value)
}

fn describe(dir: &Path, topic: Option<&str>, all: bool, json: bool) -> Result<()> {
    let topics = change(dir, false, |open| {
        let found = open.topics()?;
        found.into_iter().map(|(name, topic)| Ok((open.config_of(&name)?, name, topic))).collect()
    });
    let topics: Vec<(LogConfig, String, Topic)> = topics?;
    if let Some(wanted) = topic
        && !topics.iter().any(|(_, name, _)| name == wanted)
    {
        return Err(Error::bad(dir, format!("a topic {wanted}"), "none of this name"));
    }
    let mut out = Vec::new();
    for (config, name, found) in
        topics.iter().filter(|(_, name, _)| topic.is_none_or(|wanted| name == wanted))
    {
        let own = found.config.iter().map(|(key, value)| (key.clone(), value.clone()));
        let config: Vec<(String, String)> = if all {
            // The delay above is this command's, not the topic's.
            let shown = LogConfig {
                file_delete_delay_ms: found
                    .log_config(&LogConfig::default())
                    .map_or(config.file_delete_delay_ms, |config| config.file_delete_delay_ms),
                ..config.clone()
            };
            shown.to_pairs().into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
        } else {
            own.collect()
        };
        if json {
            let mut line = Line::new(&mut out, "topic");
            line.text("topic", name).text("id", &found.id.to_string()).number("partitions", found.partitions);
            for (key, value) in &config {
                line.text(&format!("config.{key}"), value);
            }
            line.end();
        } else {
            let config: Vec<_> = config.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let _ = writeln!(
                out,
                "{name}\tpartitions={}\tid={}\t{}",
                found.partitions,
                found.id,
                or_defaults(&config)
            );
        }
    }
    print(&out)
}

fn or_defaults(config: &[String]) -> String {
    if config.is_empty() { "configuration: defaults".to_owned() } else { config.join(" ") }
}

fn print(out: &[u8]) -> Result<()> {
    std::io::stdout().write_all(out).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Error::OutputClosed,
        _ => Error::Output(error),
    })
}
