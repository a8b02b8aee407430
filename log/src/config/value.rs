//! Typed values of configuration keys: how each is read from text and written back.
//!
//! Numbers and booleans are trimmed before they are read, words are not; both as Kafka's `ConfigDef.parseType` has it.

use std::fmt;

use kseg_format::{Codec, TimestampType};

/// A value that a configuration key can have.
pub(crate) trait Value: Sized {
    /// What the text must be, for the error message.
    const SHAPE: &'static str;
    fn read(text: &str) -> Option<Self>;
    /// `None` for a key that is not set.
    fn print(&self) -> Option<String>;
}

impl Value for i32 {
    const SHAPE: &'static str = "a whole number of 32 bits";
    fn read(text: &str) -> Option<Self> {
        text.trim().parse().ok()
    }
    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for i64 {
    const SHAPE: &'static str = "a whole number of 64 bits";
    fn read(text: &str) -> Option<Self> {
        text.trim().parse().ok()
    }
    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for f64 {
    const SHAPE: &'static str = "a number";
    fn read(text: &str) -> Option<Self> {
        text.trim().parse().ok()
    }
    fn print(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl Value for bool {
    const SHAPE: &'static str = "true or false";
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("true") {
            Some(true)
        } else if text.eq_ignore_ascii_case("false") {
            Some(false)
        } else {
            None
        }
    }
    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl<T: Value> Value for Option<T> {
    const SHAPE: &'static str = T::SHAPE;
    fn read(text: &str) -> Option<Self> {
        T::read(text).map(Some)
    }
    fn print(&self) -> Option<String> {
        self.as_ref().and_then(T::print)
    }
}

impl Value for TimestampType {
    const SHAPE: &'static str = "CreateTime or LogAppendTime";
    fn read(text: &str) -> Option<Self> {
        match text {
            "CreateTime" => Some(TimestampType::CreateTime),
            "LogAppendTime" => Some(TimestampType::LogAppendTime),
            _ => None,
        }
    }
    fn print(&self) -> Option<String> {
        let name = if *self == TimestampType::LogAppendTime { "LogAppendTime" } else { "CreateTime" };
        Some(name.to_owned())
    }
}

/// What may remove records from a log: nothing, retention, compaction, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CleanupPolicy {
    /// Whole segments go by time and size.
    pub delete: bool,
    /// Records go when a later one has the same key.
    pub compact: bool,
}

impl CleanupPolicy {
    /// Nothing is removed but what lies below the log start offset.
    pub const NONE: CleanupPolicy = CleanupPolicy { delete: false, compact: false };
    /// Retention alone, the default.
    pub const DELETE: CleanupPolicy = CleanupPolicy { delete: true, compact: false };
    /// Compaction alone.
    pub const COMPACT: CleanupPolicy = CleanupPolicy { delete: false, compact: true };
    /// Both.
    pub const COMPACT_AND_DELETE: CleanupPolicy = CleanupPolicy { delete: true, compact: true };
}

impl fmt::Display for CleanupPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.compact, self.delete) {
            (false, false) => "",
            (false, true) => "delete",
            (true, false) => "compact",
            (true, true) => "compact,delete",
        })
    }
}

impl Value for CleanupPolicy {
    const SHAPE: &'static str = "a list of delete and compact, or nothing";
    fn read(text: &str) -> Option<Self> {
        let mut policy = CleanupPolicy::NONE;
        for item in list(text) {
            match item {
                "delete" => policy.delete = true,
                "compact" => policy.compact = true,
                _ => return None,
            }
        }
        Some(policy)
    }
    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// The codec that batches of clients are stored with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompressionType {
    /// Whatever the producer chose.
    Producer,
    /// Not compressed.
    Uncompressed,
    /// gzip.
    Gzip,
    /// snappy.
    Snappy,
    /// lz4.
    Lz4,
    /// zstd.
    Zstd,
}

impl CompressionType {
    const ALL: [(CompressionType, &'static str); 6] = [
        (CompressionType::Producer, "producer"),
        (CompressionType::Uncompressed, "uncompressed"),
        (CompressionType::Gzip, "gzip"),
        (CompressionType::Snappy, "snappy"),
        (CompressionType::Lz4, "lz4"),
        (CompressionType::Zstd, "zstd"),
    ];

    /// The codec that is asked for; `None` leaves the producer's.
    pub fn codec(self) -> Option<Codec> {
        match self {
            CompressionType::Producer => None,
            CompressionType::Uncompressed => Some(Codec::None),
            CompressionType::Gzip => Some(Codec::Gzip),
            CompressionType::Snappy => Some(Codec::Snappy),
            CompressionType::Lz4 => Some(Codec::Lz4),
            CompressionType::Zstd => Some(Codec::Zstd),
        }
    }
}

impl fmt::Display for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(kind, _)| kind == self).map_or("producer", |(_, name)| name);
        f.write_str(name)
    }
}

impl Value for CompressionType {
    const SHAPE: &'static str = "one of uncompressed, zstd, lz4, snappy, gzip, producer";
    fn read(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind)
    }
    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// Replicas whose replication is throttled: `partition:broker` items, or all of them (`*`).
///
/// Kept for whoever replicates; this crate does not look at it.
///
/// Source: Kafka `ThrottledReplicaListValidator`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThrottledReplicas {
    items: Vec<String>,
}

impl ThrottledReplicas {
    /// The items as given, without the blanks around them.
    pub fn items(&self) -> &[String] {
        &self.items
    }
}

impl fmt::Display for ThrottledReplicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.items.join(","))
    }
}

impl Value for ThrottledReplicas {
    const SHAPE: &'static str = "a list of partition:broker, or *";
    fn read(text: &str) -> Option<Self> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let pair = |item: &str| {
            item.split_once(':').is_some_and(|(partition, broker)| digits(partition) && digits(broker))
        };
        let items: Vec<&str> = list(text).collect();
        let legal = items.iter().all(|item| item.is_empty() || pair(item)) || items.concat() == "*";
        legal.then(|| ThrottledReplicas { items: items.into_iter().map(str::to_owned).collect() })
    }
    fn print(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// The items of a list: nothing for a blank text, else what lies between the commas, blanks around a comma dropped.
fn list(text: &str) -> impl Iterator<Item = &str> {
    let text = text.trim();
    text.split(',').map(str::trim).skip(usize::from(text.is_empty()))
}
