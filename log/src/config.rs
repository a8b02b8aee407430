//! Configuration of a log and of a data directory, under Kafka's keys.
//!
//! A key's field has the key's name with underscores for dots. Text is read by [`LogConfig::from_pairs`] and written by
//! [`LogConfig::to_pairs`]; both, and the names, come from one table at the end of this file, so they cannot disagree.
//! Ranges and rules across keys are in [`LogConfig::validate`], which also checks values that were set in code.

mod broker;
mod error;
mod value;

use kseg_format::TimestampType;

pub use broker::BrokerConfig;
pub use error::ConfigError;
pub use value::{CleanupPolicy, CompressionType, ThrottledReplicas};

use value::Value;

/// Topic-level configuration: what one log is told.
///
/// Keys that say nothing to storage (replication, tiering) are kept as given, so that a topic's configuration passes
/// through unchanged.
///
/// Source: Kafka `LogConfig`, `TopicConfig`.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// Bytes of batches at which a segment is rolled; the most one append may hold; the size preallocated.
    /// Default: 1 GiB (1073741824). Range: 1048576 and up.
    pub segment_bytes: i32,
    /// Taken instead of `segment_bytes` where it is set: segments smaller than that allows, for tests.
    /// Default: unset. Range: any.
    pub internal_segment_bytes: Option<i32>,
    /// Age, by the batches' timestamps, at which a segment is rolled, in ms. Default: 7 days (604800000). Range: 1 and up.
    pub segment_ms: i64,
    /// Most that is taken off `segment_ms` at random, in ms, so that logs do not roll together.
    /// Default: 0. Range: 0 and up.
    pub segment_jitter_ms: i64,
    /// Bytes preallocated for each index of the active segment. Default: 10485760. Range: 12 and up, one
    /// entry of either (Kafka takes 4 and up, and fails at the first roll below 12); below 24 nothing fits.
    pub segment_index_bytes: i32,
    /// Bytes of batches between two index entries. Default: 4096. Range: 0 and up.
    pub index_interval_bytes: i32,
    /// Records after which an append flushes. Default: never (9223372036854775807). Range: 1 and up.
    pub flush_messages: i64,
    /// Age of the last flush at which the flusher flushes, in ms. Default: never (9223372036854775807). Range: 0 and up.
    pub flush_ms: i64,
    /// Bytes above which the oldest segments are removed. Default: -1. Range: any; below 0 is no limit.
    pub retention_bytes: i64,
    /// Age above which segments are removed, in ms. Default: 7 days (604800000). Range: -1 and up; -1 is no limit.
    pub retention_ms: i64,
    /// What may remove records. Default: delete. Range: any of delete and compact, or nothing.
    pub cleanup_policy: CleanupPolicy,
    /// How long compaction keeps tombstones and markers, in ms. Default: 1 day (86400000). Range: 0 and up.
    pub delete_retention_ms: i64,
    /// Age below which records are not compacted, in ms. Default: 0. Range: 0 to `max_compaction_lag_ms`.
    pub min_compaction_lag_ms: i64,
    /// Age at which a record must have been compacted, in ms; rolls the segment if need be.
    /// Default: never (9223372036854775807). Range: 1 and up.
    pub max_compaction_lag_ms: i64,
    /// Share of cleanable bytes at which a log is compacted. Default: 0.5. Range: 0 to 1.
    pub min_cleanable_dirty_ratio: f64,
    /// How long a removed segment's files stay under `.deleted`, in ms. Default: 60000. Range: 0 and up.
    pub file_delete_delay_ms: i64,
    /// Largest batch that a leader takes, header included. Default: 1048588 (1 MiB + 12). Range: 0 and up.
    pub max_message_bytes: i32,
    /// Codec that batches of clients are stored with. Default: producer.
    /// Range: uncompressed, zstd, lz4, snappy, gzip, producer.
    pub compression_type: CompressionType,
    /// gzip level. Default: -1, the library's own. Range: -1, or 1 to 9.
    pub compression_gzip_level: i32,
    /// lz4 level. Default: 9. Range: 1 to 17.
    pub compression_lz4_level: i32,
    /// zstd level. Default: 3. Range: -131072 to 22.
    pub compression_zstd_level: i32,
    /// Whether a new segment's file is given its full size at once. Default: false.
    pub preallocate: bool,
    /// Whose clock a record's timestamp comes from. Default: CreateTime. Range: CreateTime, LogAppendTime.
    pub message_timestamp_type: TimestampType,
    /// How far in the past a client's timestamp may lie, in ms. Default: any (9223372036854775807). Range: 0 and up.
    pub message_timestamp_before_max_ms: i64,
    /// How far in the future a client's timestamp may lie, in ms. Default: 1 h (3600000). Range: 0 and up.
    pub message_timestamp_after_max_ms: i64,
    /// Replicas that must have a record before it counts as written. Not storage: kept.
    /// Default: 1. Range: 1 and up.
    pub min_insync_replicas: i32,
    /// Whether a replica that lags may become leader. Not storage: kept. Default: false.
    pub unclean_leader_election_enable: bool,
    /// Whether segments are copied to a remote tier. There is none here. Default: false. Range: false.
    pub remote_storage_enable: bool,
    /// Local share of `retention_ms` with a remote tier. Kept. Default: -2, the same. Range: -2 and up.
    pub local_retention_ms: i64,
    /// Local share of `retention_bytes` with a remote tier. Kept. Default: -2, the same. Range: -2 and up.
    pub local_retention_bytes: i64,
    /// Whether copying to a remote tier is stopped. Kept. Default: false.
    pub remote_log_copy_disable: bool,
    /// Whether the remote tier's copy goes when the tier is switched off. Kept. Default: false.
    pub remote_log_delete_on_disable: bool,
    /// Throttled replicas on the leader's side. Not storage: kept. Default: empty.
    pub leader_replication_throttled_replicas: ThrottledReplicas,
    /// Throttled replicas on the follower's side. Not storage: kept. Default: empty.
    pub follower_replication_throttled_replicas: ThrottledReplicas,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1024 * 1024 * 1024,
            internal_segment_bytes: None,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 * 1024 * 1024,
            index_interval_bytes: 4096,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            retention_bytes: -1,
            retention_ms: 7 * 24 * 60 * 60 * 1000,
            cleanup_policy: CleanupPolicy::DELETE,
            delete_retention_ms: 24 * 60 * 60 * 1000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_cleanable_dirty_ratio: 0.5,
            file_delete_delay_ms: 60_000,
            max_message_bytes: 1024 * 1024 + 12,
            compression_type: CompressionType::Producer,
            compression_gzip_level: -1,
            compression_lz4_level: 9,
            compression_zstd_level: 3,
            preallocate: false,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 60 * 60 * 1000,
            min_insync_replicas: 1,
            unclean_leader_election_enable: false,
            remote_storage_enable: false,
            local_retention_ms: -2,
            local_retention_bytes: -2,
            remote_log_copy_disable: false,
            remote_log_delete_on_disable: false,
            leader_replication_throttled_replicas: ThrottledReplicas::default(),
            follower_replication_throttled_replicas: ThrottledReplicas::default(),
        }
    }
}

impl LogConfig {
    /// Reads a configuration from keys and values; what is not named keeps its default. Of two values for one key the
    /// later counts.
    ///
    /// # Errors
    /// The first key that is unknown, has a value of the wrong type or outside its range, or contradicts another.
    pub fn from_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<LogConfig, ConfigError> {
        LogConfig::default().with_pairs(pairs)
    }

    /// This configuration with some keys set anew: a topic's own settings over the directory's defaults.
    ///
    /// # Errors
    /// As [`LogConfig::from_pairs`]; the rules are checked on the merged configuration.
    pub fn with_pairs<'a>(
        mut self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<LogConfig, ConfigError> {
        for (key, value) in pairs {
            self.set(key, value)?;
        }
        self.validate()?;
        Ok(self)
    }

    /// Every key with its value as text, in the order of Kafka's documentation; keys without a value are left out.
    /// [`LogConfig::from_pairs`] makes an equal configuration of it.
    pub fn to_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::with_capacity(Self::KEYS.len());
        self.print_into(&mut pairs);
        pairs
    }

    /// Checks ranges and the rules across keys.
    ///
    /// # Errors
    /// The first key that breaks one.
    pub fn validate(&self) -> Result<(), ConfigError> {
        at_least("segment.bytes", self.segment_bytes, 1024 * 1024)?;
        at_least("segment.ms", self.segment_ms, 1)?;
        at_least("segment.jitter.ms", self.segment_jitter_ms, 0)?;
        at_least("segment.index.bytes", self.segment_index_bytes, 12)?;
        at_least("index.interval.bytes", self.index_interval_bytes, 0)?;
        at_least("flush.messages", self.flush_messages, 1)?;
        at_least("flush.ms", self.flush_ms, 0)?;
        at_least("retention.ms", self.retention_ms, -1)?;
        at_least("delete.retention.ms", self.delete_retention_ms, 0)?;
        at_least("min.compaction.lag.ms", self.min_compaction_lag_ms, 0)?;
        at_least("max.compaction.lag.ms", self.max_compaction_lag_ms, 1)?;
        if !(0.0..=1.0).contains(&self.min_cleanable_dirty_ratio) {
            return Err(ConfigError::invalid(
                "min.cleanable.dirty.ratio",
                self.min_cleanable_dirty_ratio,
                "a number from 0 to 1",
            ));
        }
        at_least("file.delete.delay.ms", self.file_delete_delay_ms, 0)?;
        at_least("max.message.bytes", self.max_message_bytes, 0)?;
        if self.compression_gzip_level != -1 && !(1..=9).contains(&self.compression_gzip_level) {
            let allowed = "-1, or a level from 1 to 9";
            return Err(ConfigError::invalid("compression.gzip.level", self.compression_gzip_level, allowed));
        }
        between("compression.lz4.level", self.compression_lz4_level, 1, 17)?;
        between("compression.zstd.level", self.compression_zstd_level, -131_072, 22)?;
        at_least("message.timestamp.before.max.ms", self.message_timestamp_before_max_ms, 0)?;
        at_least("message.timestamp.after.max.ms", self.message_timestamp_after_max_ms, 0)?;
        at_least("min.insync.replicas", self.min_insync_replicas, 1)?;
        at_least("local.retention.ms", self.local_retention_ms, -2)?;
        at_least("local.retention.bytes", self.local_retention_bytes, -2)?;
        if self.remote_storage_enable {
            return Err(ConfigError::invalid(
                "remote.storage.enable",
                true,
                "false: there is no remote tier",
            ));
        }
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms {
            return Err(ConfigError::Conflict {
                key: "min.compaction.lag.ms".to_owned(),
                value: self.min_compaction_lag_ms.to_string(),
                allowed: format!("it must not exceed max.compaction.lag.ms={}", self.max_compaction_lag_ms),
            });
        }
        Ok(())
    }

    /// The size at which segments are rolled: `internal_segment_bytes` where it is set, else `segment_bytes`.
    pub fn segment_size_max(&self) -> i32 {
        self.internal_segment_bytes.unwrap_or(self.segment_bytes)
    }

    /// Bytes that retention keeps; `None` is no limit.
    pub fn retention_size_max(&self) -> Option<u64> {
        u64::try_from(self.retention_bytes).ok()
    }

    /// Age that retention keeps, in ms; `None` is no limit.
    pub fn retention_age_ms_max(&self) -> Option<i64> {
        (self.retention_ms >= 0).then_some(self.retention_ms)
    }

    /// What a new segment takes off `segment_ms`, in ms, given a random number: less than the smaller of
    /// `segment_jitter_ms` and `segment_ms`.
    pub fn segment_jitter(&self, random: u32) -> i64 {
        let bound = self.segment_jitter_ms.min(self.segment_ms);
        if bound <= 0 { 0 } else { i64::from(random >> 1) % bound }
    }

    /// Settings as one line for a log or a report: sorted by key, the values of unknown keys left out (they may be
    /// another component's secrets).
    pub fn loggable<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
        let sorted: std::collections::BTreeMap<&str, &str> = pairs.into_iter().collect();
        let shown: Vec<String> = sorted
            .into_iter()
            .map(|(key, value)| {
                let shown = if Self::KEYS.contains(&key) { value } else { "(redacted)" };
                format!("{key}={shown}")
            })
            .collect();
        format!("{{{}}}", shown.join(", "))
    }

    fn unknown(key: &str, value: &str) -> ConfigError {
        let gone = [
            "message.timestamp.difference.max.ms",
            "message.format.version",
            "message.downconversion.enable",
        ];
        let allowed =
            if gone.contains(&key) { "Kafka 4.0 removed it".to_owned() } else { nearest(key, Self::KEYS) };
        ConfigError::UnknownKey { key: key.to_owned(), value: value.to_owned(), allowed }
    }
}

/// The keys that a misspelt one may mean, the likeliest first, in words.
fn nearest(key: &str, keys: &[&str]) -> String {
    const SHOWN: usize = 3;
    let key = key.to_ascii_lowercase().replace('_', ".");
    let mut near: Vec<(usize, &str)> = Vec::new();
    for known in keys {
        let distance = distance(&key, known);
        let part = key.len() > 3 && (known.starts_with(&key) || known.ends_with(&key));
        if part || (distance <= 3 && 2 * distance < key.len()) {
            near.push((distance, known));
        }
    }
    // Of two that are as near the first in the table.
    near.sort_by_key(|(distance, _)| *distance);
    let shown = if near.first().is_some_and(|(distance, _)| *distance == 0) { 1 } else { SHOWN };
    let near: Vec<&str> = near.into_iter().take(shown).map(|(_, known)| known).collect();
    if near.is_empty() {
        "no key is like it".to_owned()
    } else {
        format!("did you mean {}?", near.join(" or "))
    }
}

/// How many characters have to be put in, taken out or changed to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn at_least<T: PartialOrd + std::fmt::Display>(key: &str, value: T, least: T) -> Result<(), ConfigError> {
    if value >= least { Ok(()) } else { Err(ConfigError::invalid(key, value, format!("{least} and up"))) }
}

fn between(key: &str, value: i32, least: i32, most: i32) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::invalid(key, value, format!("{least} to {most}")))
    }
}

/// Makes reading and writing of all keys from one table.
macro_rules! keys {
    ($($key:literal => $field:ident,)*) => {
        impl LogConfig {
            /// The names of all keys, in the order of Kafka's documentation.
            pub const KEYS: &'static [&'static str] = &[$($key),*];

            /// Sets one key from text. Ranges are not looked at.
            fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
                match key {
                    $($key => self.$field = read(key, value)?,)*
                    _ => return Err(Self::unknown(key, value)),
                }
                Ok(())
            }

            fn print_into(&self, pairs: &mut Vec<(&'static str, String)>) {
                $(if let Some(value) = self.$field.print() { pairs.push(($key, value)); })*
            }
        }
    };
}

fn read<T: Value>(key: &str, value: &str) -> Result<T, ConfigError> {
    T::read(value).ok_or_else(|| ConfigError::invalid(key, value, T::SHAPE))
}

keys! {
    "segment.bytes" => segment_bytes,
    "internal.segment.bytes" => internal_segment_bytes,
    "segment.ms" => segment_ms,
    "segment.jitter.ms" => segment_jitter_ms,
    "segment.index.bytes" => segment_index_bytes,
    "index.interval.bytes" => index_interval_bytes,
    "flush.messages" => flush_messages,
    "flush.ms" => flush_ms,
    "retention.bytes" => retention_bytes,
    "retention.ms" => retention_ms,
    "cleanup.policy" => cleanup_policy,
    "delete.retention.ms" => delete_retention_ms,
    "min.compaction.lag.ms" => min_compaction_lag_ms,
    "max.compaction.lag.ms" => max_compaction_lag_ms,
    "min.cleanable.dirty.ratio" => min_cleanable_dirty_ratio,
    "file.delete.delay.ms" => file_delete_delay_ms,
    "max.message.bytes" => max_message_bytes,
    "compression.type" => compression_type,
    "compression.gzip.level" => compression_gzip_level,
    "compression.lz4.level" => compression_lz4_level,
    "compression.zstd.level" => compression_zstd_level,
    "preallocate" => preallocate,
    "message.timestamp.type" => message_timestamp_type,
    "message.timestamp.before.max.ms" => message_timestamp_before_max_ms,
    "message.timestamp.after.max.ms" => message_timestamp_after_max_ms,
    "min.insync.replicas" => min_insync_replicas,
    "unclean.leader.election.enable" => unclean_leader_election_enable,
    "remote.storage.enable" => remote_storage_enable,
    "local.retention.ms" => local_retention_ms,
    "local.retention.bytes" => local_retention_bytes,
    "remote.log.copy.disable" => remote_log_copy_disable,
    "remote.log.delete.on.disable" => remote_log_delete_on_disable,
    "leader.replication.throttled.replicas" => leader_replication_throttled_replicas,
    "follower.replication.throttled.replicas" => follower_replication_throttled_replicas,
}

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
