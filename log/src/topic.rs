//! Topic names, and the names of partition directories.
//!
//! A partition's directory says which partition it holds and in which state: in use, a copy that is being moved in
//! (`-future`), renamed for deletion (`-delete`), or set aside (`-stray`). A `-delete` or `-stray` name is cut to 255
//! bytes, so its topic may be a prefix of the real one.
//!
//! Source: Kafka `Topic`, `LocalLog.parseTopicPartitionName`, `LocalLog.logDeleteDirName`.

use std::fmt;

use kseg_format::TopicPartition;

/// Longest name of a file or directory, in bytes.
const NAME_LEN_MAX: usize = 255;
/// Longest name of a topic, in characters; leaves room in a directory's name for what is appended to it.
const TOPIC_LEN_MAX: usize = 249;

/// The topic of the metadata quorum; its log is not a data directory's to manage.
pub const CLUSTER_METADATA_TOPIC: &str = "__cluster_metadata";
/// A folder of a data directory that holds no partition: indexes of remote segments.
pub const REMOTE_LOG_INDEX_CACHE: &str = "remote-log-index-cache";

/// The state of a partition directory, as its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirKind {
    /// In use.
    Current,
    /// Waits for physical deletion.
    Deleted,
    /// Belongs to no partition of this broker; kept, not served.
    Stray,
    /// A copy that will replace the current one.
    Future,
}

impl DirKind {
    const SUFFIXED: [DirKind; 3] = [DirKind::Deleted, DirKind::Future, DirKind::Stray];

    /// What the directory's name ends with; nothing for the current one.
    pub fn suffix(self) -> &'static str {
        match self {
            DirKind::Current => "",
            DirKind::Deleted => "-delete",
            DirKind::Stray => "-stray",
            DirKind::Future => "-future",
        }
    }
}

/// Name of the partition directory of `partition` in the state `kind`.
///
/// `unique` is a random number that keeps names apart (printed as 32 hexadecimal digits); the current directory has
/// none. `-delete` and `-stray` names are cut to 255 bytes, a `-future` name is not: that of a long topic may be too
/// long for the file system.
pub fn dir_name(partition: &TopicPartition, kind: DirKind, unique: u128) -> String {
    let TopicPartition { topic, partition } = partition;
    if kind == DirKind::Current {
        return format!("{topic}-{partition}");
    }
    let tail = format!("-{partition}.{unique:032x}{}", kind.suffix());
    let mut kept = topic.len();
    if kind != DirKind::Future {
        kept = kept.min(NAME_LEN_MAX.saturating_sub(tail.len()));
        while !topic.is_char_boundary(kept) {
            kept -= 1;
        }
    }
    format!("{}{tail}", &topic[..kept])
}

/// Reads a partition directory's name.
///
/// # Errors
/// [`DirNameError`] where the name is no partition directory's; Kafka refuses to start on a directory that holds one.
pub fn parse_dir_name(name: &str) -> Result<(TopicPartition, DirKind), DirNameError> {
    let refuse = |reason| Err(DirNameError { name: name.to_owned(), reason });
    if name.is_empty() {
        return refuse("it is empty");
    }
    if !name.contains('-') {
        return refuse("there is no - in it");
    }
    let kind = DirKind::SUFFIXED.into_iter().find(|kind| name.ends_with(kind.suffix()));
    let plain = match kind {
        None => name,
        Some(kind) => {
            let body = &name[..name.len() - kind.suffix().len()];
            if !has_unique_part(body) {
                return refuse("before its suffix it must read topic-partition.unique");
            }
            // The suffixes have no dot, so the last one lies in the body.
            name.rsplit_once('.').map_or(name, |(before, _)| before)
        }
    };
    let Some((topic, partition)) = plain.rsplit_once('-') else {
        return refuse("there is no - before the unique part");
    };
    if topic.is_empty() {
        return refuse("the topic is empty");
    }
    if partition.is_empty() {
        return refuse("the partition is empty");
    }
    let Ok(partition) = partition.parse() else {
        return refuse("the partition is no number of 32 bits");
    };
    Ok((TopicPartition::new(topic, partition), kind.unwrap_or(DirKind::Current)))
}

/// Whether `body` matches `(\S+)-(\S+)\.(\S+)` as a whole.
fn has_unique_part(body: &str) -> bool {
    let blank = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r');
    let bytes = body.as_bytes();
    if bytes.iter().any(|&byte| blank(byte)) {
        return false;
    }
    // The leftmost dash and the rightmost dot that leave something before and behind them.
    let dash = bytes.iter().skip(1).position(|&byte| byte == b'-').map(|at| at + 1);
    let dot = bytes[..bytes.len().saturating_sub(1)].iter().rposition(|&byte| byte == b'.');
    matches!((dash, dot), (Some(dash), Some(dot)) if dash + 1 < dot)
}

/// A directory's name that names no partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirNameError {
    /// The name.
    pub name: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl DirNameError {
    /// Kafka's name for this error.
    pub fn kafka_name(&self) -> &'static str {
        "KafkaException"
    }
}

impl fmt::Display for DirNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not the name of a partition directory: {}", self.name, self.reason)
    }
}

impl std::error::Error for DirNameError {}

/// Checks that `name` may be a topic's name: 1 to 249 of `a-z A-Z 0-9 . _ -`, and neither `.` nor `..`, nor that of the
/// metadata quorum's topic.
///
/// # Errors
/// The rule that is broken.
///
/// Source: Kafka `Topic.validate`, `ControllerApis.createTopics`.
pub fn check_topic_name(name: &str) -> Result<(), TopicNameError> {
    if name.is_empty() {
        return Err(TopicNameError::Empty);
    }
    if name == "." || name == ".." {
        return Err(TopicNameError::Dots { name: name.to_owned() });
    }
    if name == CLUSTER_METADATA_TOPIC {
        return Err(TopicNameError::ClusterMetadata);
    }
    let len = name.chars().count();
    if len > TOPIC_LEN_MAX {
        return Err(TopicNameError::TooLong { len });
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match name.char_indices().find(|(_, c)| !legal(*c)) {
        None => Ok(()),
        Some((at, found)) => Err(TopicNameError::Character { name: name.to_owned(), at, found }),
    }
}

/// Whether two topics cannot exist beside each other: their names differ at most in `.` against `_`.
///
/// Source: Kafka `Topic.hasCollision`.
pub fn topic_names_collide(one: &str, other: &str) -> bool {
    let fold = |byte: u8| if byte == b'.' { b'_' } else { byte };
    one.len() == other.len() && one.bytes().map(fold).eq(other.bytes().map(fold))
}

/// Why a name may not be a topic's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopicNameError {
    /// It is empty.
    Empty,
    /// It is `.` or `..`.
    Dots {
        /// The name.
        name: String,
    },
    /// It is [`CLUSTER_METADATA_TOPIC`].
    ClusterMetadata,
    /// It has more than 249 characters.
    TooLong {
        /// How many it has.
        len: usize,
    },
    /// It has a character other than `a-z A-Z 0-9 . _ -`.
    Character {
        /// The name.
        name: String,
        /// Where the character begins, in bytes.
        at: usize,
        /// The character.
        found: char,
    },
}

impl TopicNameError {
    /// Kafka's name for this error.
    pub fn kafka_name(&self) -> &'static str {
        match self {
            TopicNameError::ClusterMetadata => "InvalidRequestException",
            _ => "InvalidTopicException",
        }
    }
}

impl fmt::Display for TopicNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopicNameError::Empty => f.write_str("a topic's name must not be empty"),
            TopicNameError::Dots { name } => write!(f, "a topic's name must not be {name:?}"),
            TopicNameError::ClusterMetadata => {
                write!(
                    f,
                    "{CLUSTER_METADATA_TOPIC} is the metadata quorum's, and no topic of a data directory"
                )
            }
            TopicNameError::TooLong { len } => {
                write!(f, "a topic's name has at most {TOPIC_LEN_MAX} characters, this one has {len}")
            }
            TopicNameError::Character { name, at, found } => write!(
                f,
                "a topic's name consists of a-z, A-Z, 0-9, '.', '_' and '-': {name:?} has {found:?} at {at}"
            ),
        }
    }
}

impl std::error::Error for TopicNameError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNIQUE: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;

    fn parsed(name: &str) -> (String, i32, DirKind) {
        let (partition, kind) = parse_dir_name(name).unwrap();
        (partition.topic, partition.partition, kind)
    }

    #[test]
    fn log_edge_100_names_are_parsed() {
        assert_eq!(parsed("test_topic-143"), ("test_topic".into(), 143, DirKind::Current));
        let deleted = dir_name(&TopicPartition::new("foo.bar-testtopic", 42), DirKind::Deleted, UNIQUE);
        assert_eq!(parsed(&deleted), ("foo.bar-testtopic".into(), 42, DirKind::Deleted));
    }

    #[test]
    fn log_edge_101_names_of_nothing_are_refused() {
        for name in [
            "",
            "test_topic1999",
            "test_topic1999.-delete",
            "-1999",
            "test_topic-",
            "test_topic-1999a",
            "non_kafka_dir-delete",
            "lost+found",
            "t-2147483648",
            "t-+",
            "t 1-0.aa-delete",
            "t-.aa-stray",
            "-0.aa-future",
            "t-0.-delete",
            "-delete",
        ] {
            let error = parse_dir_name(name).unwrap_err();
            assert_eq!((error.name.as_str(), error.kafka_name()), (name, "KafkaException"));
        }
    }

    #[test]
    fn log_edge_102_and_270_deleted_names_are_cut_to_255() {
        let short = dir_name(&TopicPartition::new("foo", 3), DirKind::Deleted, UNIQUE);
        assert_eq!(short, "foo-3.0123456789abcdef0123456789abcdef-delete");
        let topic = format!("n{}", "o".repeat(248));
        let long = dir_name(&TopicPartition::new(topic, 5), DirKind::Deleted, 7);
        assert_eq!(long.len(), 255);
        assert_eq!(long, format!("n{}-5.{:032x}-delete", "o".repeat(212), 7));
        assert_eq!(parsed(&long), (format!("n{}", "o".repeat(212)), 5, DirKind::Deleted));
    }

    #[test]
    fn a_future_name_is_not_cut_and_a_stray_one_is() {
        let partition = TopicPartition::new("é".repeat(124), 0);
        assert!(dir_name(&partition, DirKind::Future, 1).len() > 255);
        let stray = dir_name(&partition, DirKind::Stray, 1);
        assert!(stray.len() <= 255 && stray.len() >= 254);
        assert_eq!(parsed(&stray).2, DirKind::Stray);
    }

    #[test]
    fn the_last_dash_divides_topic_and_partition() {
        assert_eq!(parsed("t-+1"), ("t".into(), 1, DirKind::Current));
        assert_eq!(parsed("t-007"), ("t".into(), 7, DirKind::Current));
        assert_eq!(parsed("t--1"), ("t-".into(), 1, DirKind::Current));
        assert_eq!(parsed("a.b-c-2"), ("a.b-c".into(), 2, DirKind::Current));
        assert!(
            parse_dir_name("a.b-c-2.x.y-future").is_err(),
            "cut at the last dot, the partition reads 2.x"
        );
    }

    #[test]
    fn topic_names_that_are_refused_say_why() {
        for name in ["a", "A.b_c-9", "...", &"x".repeat(249)] {
            check_topic_name(name).unwrap();
        }
        assert_eq!(check_topic_name(""), Err(TopicNameError::Empty));
        for name in [".", ".."] {
            assert_eq!(check_topic_name(name), Err(TopicNameError::Dots { name: name.into() }));
        }
        assert_eq!(check_topic_name(&"x".repeat(250)), Err(TopicNameError::TooLong { len: 250 }));
        let error = check_topic_name(CLUSTER_METADATA_TOPIC).unwrap_err();
        assert_eq!(
            (&error, error.kafka_name()),
            (&TopicNameError::ClusterMetadata, "InvalidRequestException")
        );
        let error = check_topic_name("ab/c").unwrap_err();
        assert_eq!(error, TopicNameError::Character { name: "ab/c".into(), at: 2, found: '/' });
        assert!(error.to_string().ends_with("\"ab/c\" has '/' at 2"));
        assert_eq!(error.kafka_name(), "InvalidTopicException");
    }

    #[test]
    fn names_that_differ_by_dot_and_underscore_collide() {
        assert!(topic_names_collide("a.b_c", "a_b.c"));
        assert!(!topic_names_collide("a.b", "a-b"));
        assert!(!topic_names_collide("a.b", "a.bc"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn any_text_is_parsed_or_refused(name in r"[-.a-z0-9 +é]{0,12}(-delete|-stray|-future)?") {
            if let Ok((partition, kind)) = parse_dir_name(&name) {
                prop_assert!(!partition.topic.is_empty() && partition.partition >= 0);
                prop_assert!(name.ends_with(kind.suffix()));
            }
            let _ = check_topic_name(&name);
        }

        #[test]
        fn names_round_trip(topic in "[a-zA-Z0-9._-]{1,249}", number in 0..=i32::MAX, unique in any::<u128>()) {
            prop_assume!(check_topic_name(&topic).is_ok());
            let partition = TopicPartition::new(topic.clone(), number);
            for kind in [DirKind::Current, DirKind::Deleted, DirKind::Stray, DirKind::Future] {
                let (read, found) = parse_dir_name(&dir_name(&partition, kind, unique)).unwrap();
                prop_assert_eq!(found, kind);
                prop_assert_eq!(read.partition, number);
                prop_assert!(partition.topic.starts_with(&read.topic));
            }
        }
    }
}
