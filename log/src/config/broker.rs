//! What a data directory is told: its own settings, and the defaults of its logs under their broker names.

use super::{ConfigError, LogConfig, at_least, read};

/// Configuration of a data directory, under Kafka's broker keys.
///
/// Only keys that this crate acts on are taken. The broker names of topic keys (`log.segment.bytes`, `log.roll.hours`,
/// ...) set [`BrokerConfig::topic_defaults`], from which a topic's own configuration is derived with
/// [`LogConfig::with_pairs`].
///
/// Source: Kafka `AbstractKafkaConfig`, `ServerLogConfigs`, `ServerTopicConfigSynonyms`.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerConfig {
    /// Configuration of a log whose topic has none of its own.
    pub topic_defaults: LogConfig,
    /// Threads that load, recover and close the logs of one directory. Default: 2. Range: 1 and up.
    pub num_recovery_threads_per_data_dir: i32,
    /// How often retention looks at the logs, in ms. Default: 300000. Range: 1 and up.
    pub log_retention_check_interval_ms: i64,
    /// How often the flusher looks at the logs, in ms. Default: never (9223372036854775807). Range: any.
    pub log_flush_scheduler_interval_ms: i64,
    /// How often the recovery points are written, in ms. Default: 60000. Range: 0 and up.
    pub log_flush_offset_checkpoint_interval_ms: i32,
    /// How often the log start offsets are written, in ms. Default: 60000. Range: 0 and up.
    pub log_flush_start_offset_checkpoint_interval_ms: i32,
    /// How long after start the periodic tasks first run, in ms. Default: 30000. Range: 0 and up.
    pub log_initial_task_delay_ms: i64,
    /// How often the high watermarks are written, in ms. Default: 5000. Range: any.
    pub replica_high_watermark_checkpoint_interval_ms: i64,
    /// Threads of the scheduler that runs flushes, deletions and retention. Default: 10. Range: 1 and up.
    pub background_threads: i32,
    /// How long an idle producer is remembered, in ms. Default: 1 day (86400000). Range: 1 and up.
    pub producer_id_expiration_ms: i32,
    /// How often idle producers are looked for, in ms. Default: 600000. Range: 1 and up.
    pub producer_id_expiration_check_interval_ms: i32,
    /// Longest time a producer may keep a transaction open, in ms; what is older by 5 minutes is late.
    /// Default: 900000. Range: 1 and up.
    pub transaction_max_timeout_ms: i32,
    /// Whether a transaction may begin only once its coordinator has said that it is under way. Default: true.
    pub transaction_partition_verification_enable: bool,
}

impl Default for BrokerConfig {
    fn default() -> BrokerConfig {
        BrokerConfig {
            topic_defaults: LogConfig::default(),
            num_recovery_threads_per_data_dir: 2,
            log_retention_check_interval_ms: 300_000,
            log_flush_scheduler_interval_ms: i64::MAX,
            log_flush_offset_checkpoint_interval_ms: 60_000,
            log_flush_start_offset_checkpoint_interval_ms: 60_000,
            log_initial_task_delay_ms: 30_000,
            replica_high_watermark_checkpoint_interval_ms: 5_000,
            background_threads: 10,
            producer_id_expiration_ms: 86_400_000,
            producer_id_expiration_check_interval_ms: 600_000,
            transaction_max_timeout_ms: 900_000,
            transaction_partition_verification_enable: true,
        }
    }
}

/// Topic keys and their broker names, the first that is set counts. The number is what a value in that name's unit is
/// multiplied by to give the topic key's unit.
const SYNONYMS: &[(&str, &[(&str, i64)])] = &[
    ("segment.bytes", &[("log.segment.bytes", 1)]),
    ("segment.ms", &[("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)]),
    ("segment.jitter.ms", &[("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)]),
    ("segment.index.bytes", &[("log.index.size.max.bytes", 1)]),
    ("index.interval.bytes", &[("log.index.interval.bytes", 1)]),
    ("flush.messages", &[("log.flush.interval.messages", 1)]),
    ("flush.ms", &[("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)]),
    ("retention.bytes", &[("log.retention.bytes", 1)]),
    (
        "retention.ms",
        &[("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", HOUR_MS)],
    ),
    ("cleanup.policy", &[("log.cleanup.policy", 1)]),
    ("delete.retention.ms", &[("log.cleaner.delete.retention.ms", 1)]),
    ("min.compaction.lag.ms", &[("log.cleaner.min.compaction.lag.ms", 1)]),
    ("max.compaction.lag.ms", &[("log.cleaner.max.compaction.lag.ms", 1)]),
    ("min.cleanable.dirty.ratio", &[("log.cleaner.min.cleanable.ratio", 1)]),
    ("file.delete.delay.ms", &[("log.segment.delete.delay.ms", 1)]),
    ("max.message.bytes", &[("message.max.bytes", 1)]),
    ("compression.type", &[("compression.type", 1)]),
    ("compression.gzip.level", &[("compression.gzip.level", 1)]),
    ("compression.lz4.level", &[("compression.lz4.level", 1)]),
    ("compression.zstd.level", &[("compression.zstd.level", 1)]),
    ("preallocate", &[("log.preallocate", 1)]),
    ("message.timestamp.type", &[("log.message.timestamp.type", 1)]),
    ("message.timestamp.before.max.ms", &[("log.message.timestamp.before.max.ms", 1)]),
    ("message.timestamp.after.max.ms", &[("log.message.timestamp.after.max.ms", 1)]),
    ("min.insync.replicas", &[("min.insync.replicas", 1)]),
    ("unclean.leader.election.enable", &[("unclean.leader.election.enable", 1)]),
    ("local.retention.ms", &[("log.local.retention.ms", 1)]),
    ("local.retention.bytes", &[("log.local.retention.bytes", 1)]),
];

const HOUR_MS: i64 = 60 * 60 * 1000;

impl BrokerConfig {
    /// Reads a configuration from keys and values; what is not named keeps its default.
    ///
    /// Where several names stand for one topic key, the finer unit counts (`log.roll.ms` over `log.roll.hours`). A
    /// negative retention time is no limit.
    ///
    /// # Errors
    /// The first key that this crate has no use for, or whose value is of the wrong type, outside its range, or
    /// contradicts another. The error names the key as given.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<BrokerConfig, ConfigError> {
        let mut config = BrokerConfig::default();
        let mut given: Vec<(&str, &str)> = Vec::new();
        for (key, value) in pairs {
            let own = config.set(key, value)?;
            if !own && !Self::is_synonym(key) {
                return Err(ConfigError::UnknownKey {
                    key: key.to_owned(),
                    value: value.to_owned(),
                    allowed: "no broker key that log storage uses".to_owned(),
                });
            }
            given.push((key, value));
        }

        let mut names = Vec::new();
        for (topic_key, synonyms) in SYNONYMS {
            // The last value given for a name counts, the first name of the list before the others.
            let chosen = synonyms.iter().find_map(|(name, unit)| {
                given.iter().rev().find(|(key, _)| key == name).map(|(_, value)| (*name, *unit, *value))
            });
            if let Some((name, unit, value)) = chosen {
                config.set_topic_default(topic_key, name, unit, value)?;
                names.push((*topic_key, name));
            }
        }
        config.validate_own()?;
        config.topic_defaults.validate().map_err(|error| {
            let name = names.iter().find(|(topic_key, _)| *topic_key == error.key()).map(|(_, name)| *name);
            match name {
                Some(name) => error.renamed(name),
                None => error,
            }
        })?;
        Ok(config)
    }

    /// Checks ranges and the rules across keys, of the topic defaults too.
    ///
    /// # Errors
    /// The first key that breaks one, topic keys by their topic name.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_own()?;
        self.topic_defaults.validate()
    }

    fn validate_own(&self) -> Result<(), ConfigError> {
        at_least("num.recovery.threads.per.data.dir", self.num_recovery_threads_per_data_dir, 1)?;
        at_least("log.retention.check.interval.ms", self.log_retention_check_interval_ms, 1)?;
        at_least("log.flush.offset.checkpoint.interval.ms", self.log_flush_offset_checkpoint_interval_ms, 0)?;
        at_least(
            "log.flush.start.offset.checkpoint.interval.ms",
            self.log_flush_start_offset_checkpoint_interval_ms,
            0,
        )?;
        at_least("log.initial.task.delay.ms", self.log_initial_task_delay_ms, 0)?;
        at_least("background.threads", self.background_threads, 1)?;
        at_least("producer.id.expiration.ms", self.producer_id_expiration_ms, 1)?;
        at_least(
            "producer.id.expiration.check.interval.ms",
            self.producer_id_expiration_check_interval_ms,
            1,
        )?;
        at_least("transaction.max.timeout.ms", self.transaction_max_timeout_ms, 1)
    }

    /// Sets a key of the directory itself; false where it is none.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, ConfigError> {
        match key {
            "num.recovery.threads.per.data.dir" => {
                self.num_recovery_threads_per_data_dir = read(key, value)?;
            }
            "log.retention.check.interval.ms" => self.log_retention_check_interval_ms = read(key, value)?,
            "log.flush.scheduler.interval.ms" => self.log_flush_scheduler_interval_ms = read(key, value)?,
            "log.flush.offset.checkpoint.interval.ms" => {
                self.log_flush_offset_checkpoint_interval_ms = read(key, value)?;
            }
            "log.flush.start.offset.checkpoint.interval.ms" => {
                self.log_flush_start_offset_checkpoint_interval_ms = read(key, value)?;
            }
            "log.initial.task.delay.ms" => self.log_initial_task_delay_ms = read(key, value)?,
            "replica.high.watermark.checkpoint.interval.ms" => {
                self.replica_high_watermark_checkpoint_interval_ms = read(key, value)?;
            }
            "background.threads" => self.background_threads = read(key, value)?,
            "producer.id.expiration.ms" => self.producer_id_expiration_ms = read(key, value)?,
            "producer.id.expiration.check.interval.ms" => {
                self.producer_id_expiration_check_interval_ms = read(key, value)?;
            }
            "transaction.max.timeout.ms" => self.transaction_max_timeout_ms = read(key, value)?,
            "transaction.partition.verification.enable" => {
                self.transaction_partition_verification_enable = read(key, value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_topic_default(
        &mut self,
        topic_key: &str,
        name: &str,
        unit: i64,
        value: &str,
    ) -> Result<(), ConfigError> {
        if topic_key == "retention.ms" {
            let given: i64 = read(name, value)?;
            if given == 0 {
                return Err(ConfigError::invalid(name, value, "1 and up, or -1 for no limit"));
            }
            self.topic_defaults.retention_ms = if given < 0 { -1 } else { given.saturating_mul(unit) };
            return Ok(());
        }
        if unit == 1 {
            return self.topic_defaults.set(topic_key, value).map_err(|error| error.renamed(name));
        }
        let given: i32 = read(name, value)?;
        let scaled = i64::from(given) * unit;
        self.topic_defaults.set(topic_key, &scaled.to_string()).map_err(|error| error.renamed(name))
    }

    fn is_synonym(key: &str) -> bool {
        SYNONYMS.iter().any(|(_, names)| names.iter().any(|(name, _)| *name == key))
    }
}
