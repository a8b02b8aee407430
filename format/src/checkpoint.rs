//! The text format of checkpoints: bytes in, entries out, and back.
//!
//! ```text
//! 0              version
//! 2              number of entries
//! topic 0 4711   one entry per line
//! other 12 0
//! ```
//!
//! A file that is empty, or ends behind the version, has no entries. Otherwise the number must be right: a checkpoint is
//! replaced as a whole, so one that does not add up was not written by us.
//!
//! Lines end with `\n`, `\r\n` or `\r`; the last one may lack its end. Fields are divided by blanks; a blank before the
//! first one is an error, blanks behind the last are not.
//!
//! Source: Kafka `CheckpointFile`, `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::number::{LeaderEpoch, Offset};

/// The names of the checkpoint files.
///
/// Source: Kafka `LogManager`, `ReplicaManager`, `LogCleanerManager`, `LeaderEpochCheckpointFile`.
pub mod checkpoint_files {
    /// In a data directory: up to where each log is durable.
    pub const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
    /// In a data directory: where each log begins.
    pub const LOG_STARTS: &str = "log-start-offset-checkpoint";
    /// In a data directory: each log's high watermark.
    pub const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
    /// In a data directory: up to where each log has been compacted.
    pub const CLEANER_OFFSETS: &str = "cleaner-offset-checkpoint";
    /// In a partition's folder: where each leader epoch begins.
    pub const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
}

/// One partition of a topic. Shown as `topic-partition`.
#[allow(clippy::exhaustive_structs, reason = "a partition is this pair")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name, not necessarily a legal one.
    pub topic: String,
    /// The partition's number, 0 and up.
    pub partition: i32,
}

impl TopicPartition {
    /// The partition `partition` of `topic`.
    pub fn new(topic: impl Into<String>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }

    /// Whether the topic is one that Kafka keeps for itself.
    pub fn is_internal(&self) -> bool {
        matches!(self.topic.as_str(), "__consumer_offsets" | "__transaction_state" | "__share_group_state")
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A leader epoch and the first offset that was written under it.
#[allow(clippy::exhaustive_structs, reason = "an entry is this pair")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its first offset.
    pub start_offset: Offset,
}

/// The only version of these files.
const VERSION: i32 = 0;

/// Reads an offset checkpoint: `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
/// `replication-offset-checkpoint` (high watermarks) and `cleaner-offset-checkpoint` (first offsets not yet cleaned) are all
/// of this shape.
///
/// Of two lines for one partition the later counts. Offsets and partitions below 0 are read as they stand.
///
/// ```
/// use kseg_format::{Offset, TopicPartition, parse_offsets, print_offsets};
///
/// let offsets = parse_offsets(b"0\n1\norders 0 4711\n")?;
/// assert_eq!(offsets[&TopicPartition::new("orders", 0)], Offset::new(4711));
/// let bytes = print_offsets(offsets.iter().map(|(partition, offset)| (partition, *offset)));
/// assert_eq!(bytes, b"0\n1\norders 0 4711\n");
///
/// let refused = parse_offsets(b"0\n1\norders 0\n").unwrap_err();
/// assert_eq!(refused.line(), 3);
/// # Ok::<(), kseg_format::CheckpointError>(())
/// ```
///
/// # Errors
/// [`CheckpointError`] with the line that does not fit.
pub fn parse_offsets(bytes: &[u8]) -> Result<BTreeMap<TopicPartition, Offset>, CheckpointError> {
    let mut offsets = BTreeMap::new();
    parse(bytes, "topic partition offset", |line, fields| {
        let [topic, partition, offset] = fields else { return Err(line.shape()) };
        let partition = TopicPartition::new(*topic, line.number("partition", partition)?);
        offsets.insert(partition, Offset::new(line.number("offset", offset)?));
        Ok(())
    })?;
    Ok(offsets)
}

/// Writes an offset checkpoint.
pub fn print_offsets<'a>(offsets: impl IntoIterator<Item = (&'a TopicPartition, Offset)>) -> Vec<u8> {
    print(
        offsets.into_iter().map(|(partition, offset)| {
            format!("{} {} {}", partition.topic, partition.partition, offset.get())
        }),
    )
}

/// Reads a leader-epoch checkpoint: its entries as they stand, in any order.
///
/// ```
/// use kseg_format::{EpochEntry, LeaderEpoch, Offset, parse_epochs, print_epochs};
///
/// let entries = parse_epochs(b"0\n2\n0 0\n3 5\n")?;
/// assert_eq!(entries[1], EpochEntry { epoch: LeaderEpoch::new(3), start_offset: Offset::new(5) });
/// assert_eq!(print_epochs(&entries), b"0\n2\n0 0\n3 5\n");
/// # Ok::<(), kseg_format::CheckpointError>(())
/// ```
///
/// # Errors
/// [`CheckpointError`] with the line that does not fit.
pub fn parse_epochs(bytes: &[u8]) -> Result<Vec<EpochEntry>, CheckpointError> {
    let mut entries = Vec::new();
    parse(bytes, "epoch offset", |line, fields| {
        let [epoch, start] = fields else { return Err(line.shape()) };
        let epoch = LeaderEpoch::new(line.number("epoch", epoch)?);
        entries.push(EpochEntry { epoch, start_offset: Offset::new(line.number("offset", start)?) });
        Ok(())
    })?;
    Ok(entries)
}

/// Writes a leader-epoch checkpoint.
pub fn print_epochs(entries: &[EpochEntry]) -> Vec<u8> {
    print(entries.iter().map(|entry| format!("{} {}", entry.epoch.get(), entry.start_offset.get())))
}

/// A line that is being read, for errors.
struct Line<'a> {
    number: usize,
    text: &'a str,
    shape: &'static str,
}

impl Line<'_> {
    fn error(&self, flaw: Flaw, expected: impl Into<String>) -> CheckpointError {
        CheckpointError {
            path: None,
            line: self.number,
            expected: expected.into(),
            found: excerpt(self.text),
            flaw,
        }
    }

    fn shape(&self) -> CheckpointError {
        self.error(Flaw::Format, format!("{:?} and nothing else", self.shape))
    }

    fn number<N: FromStr>(&self, name: &str, field: &str) -> Result<N, CheckpointError> {
        let expected = || format!("{:?} with a {}-bit number for {name}", self.shape, 8 * size_of::<N>());
        field.parse().map_err(|_| self.error(Flaw::Number, expected()))
    }
}

fn parse<'a>(
    bytes: &'a [u8],
    shape: &'static str,
    mut entry: impl FnMut(&Line<'a>, &[&'a str]) -> Result<(), CheckpointError>,
) -> Result<(), CheckpointError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = lines_in(&bytes[..error.valid_up_to()]);
        CheckpointError {
            path: None,
            line,
            expected: "UTF-8".to_owned(),
            found: format!("byte 0x{:02x}", bytes[error.valid_up_to()]),
            flaw: Flaw::Format,
        }
    })?;
    let mut lines = Lines::new(text).enumerate().map(|(index, text)| Line { number: index + 1, text, shape });

    let Some(version) = lines.next() else { return Ok(()) };
    if version.text.parse() != Ok(VERSION) {
        return Err(version.error(Flaw::Format, format!("version {VERSION}")));
    }
    let Some(count_line) = lines.next() else { return Ok(()) };
    let count: i32 =
        count_line.text.parse().map_err(|_| count_line.error(Flaw::Format, "the number of entries"))?;
    if count < 0 {
        return Err(count_line.error(Flaw::Negative, "the number of entries, 0 and up"));
    }

    let mut fields = Vec::with_capacity(3);
    let mut found: i64 = 0;
    for line in lines {
        fields.clear();
        split(line.text, &mut fields);
        entry(&line, &fields)?;
        found += 1;
    }
    if found != i64::from(count) {
        return Err(CheckpointError {
            path: None,
            line: 2,
            expected: format!("{count} entries"),
            found: format!("{found}"),
            flaw: Flaw::Format,
        });
    }
    Ok(())
}

fn print(entries: impl Iterator<Item = String>) -> Vec<u8> {
    let entries: Vec<String> = entries.collect();
    let mut text = format!("{VERSION}\n{}\n", entries.len());
    for entry in entries {
        text.push_str(&entry);
        text.push('\n');
    }
    text.into_bytes()
}

/// Lines as a Java reader sees them: ended by `\n`, `\r\n` or `\r`; what follows the last end is one only if not empty.
pub(crate) struct Lines<'a> {
    rest: &'a str,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(text: &'a str) -> Lines<'a> {
        Lines { rest: text }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        let Some(end) = self.rest.find(['\n', '\r']) else {
            return Some(std::mem::take(&mut self.rest));
        };
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.strip_prefix("\r\n").unwrap_or(&rest[1..]);
        Some(line)
    }
}

/// Number of the line that begins in `before` last.
fn lines_in(before: &[u8]) -> usize {
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Fields between blanks; a blank at the beginning makes an empty first field, blanks at the end make none.
fn split<'a>(line: &'a str, fields: &mut Vec<&'a str>) {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\x0b' | '\x0c');
    let mut rest = line.trim_end_matches(blank);
    while let Some(end) = rest.find(blank) {
        fields.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(blank);
    }
    fields.push(rest);
}

/// Enough of a line for a message.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(80) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// A checkpoint that cannot be read: which line, what it should be, what it is.
///
/// The directory's content is not in doubt; the file must be restored or removed (the values then begin at 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointError {
    path: Option<PathBuf>,
    line: usize,
    expected: String,
    found: String,
    flaw: Flaw,
}

/// Kafka tells these apart by the exception that comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Format,
    Number,
    Negative,
}

impl CheckpointError {
    /// The same error with the file it lies in.
    pub fn in_file(mut self, path: impl Into<PathBuf>) -> CheckpointError {
        self.path = Some(path.into());
        self
    }

    /// The file, where it is known.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// What the line should be.
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// What was found.
    pub fn found(&self) -> &str {
        &self.found
    }

    /// Kafka's name for this error. A malformed file is an I/O error there and takes the directory offline; a field of
    /// an entry that is no number, and a negative count, come out unchecked.
    pub fn kafka_name(&self) -> &'static str {
        match self.flaw {
            Flaw::Format => "KafkaStorageException",
            Flaw::Number => "NumberFormatException",
            Flaw::Negative => "IllegalArgumentException",
        }
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}", path.display())?,
            None => f.write_str("checkpoint")?,
        }
        write!(f, ", line {}: expected {}, found {}", self.line, self.expected, self.found)
    }
}

impl std::error::Error for CheckpointError {}

#[cfg(test)]
mod tests;
