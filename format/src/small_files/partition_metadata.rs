//! `partition.metadata`: which topic a partition directory belongs to.

use super::{SmallFileError, Uuid};
use crate::checkpoint::{Lines, excerpt};

/// Content of `partition.metadata`.
///
/// ```text
/// version: 0
/// topic_id: AAAAAAAAAAAAAAAAAAAAAQ      without a line end
/// ```
///
/// ```
/// use kseg_format::PartitionMetadata;
///
/// let metadata = PartitionMetadata::parse(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")?;
/// assert_eq!(metadata, PartitionMetadata::new("AAAAAAAAAAAAAAAAAAAAAQ".parse()?));
/// assert_eq!(metadata.to_bytes(), b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[allow(clippy::exhaustive_structs, reason = "the file has these two lines")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// Version of the file; 0 is written, a later one is accepted and kept as read.
    pub version: i32,
    /// The topic's id, never zero.
    pub topic_id: Uuid,
}

impl PartitionMetadata {
    /// The file's name.
    pub const FILE_NAME: &'static str = "partition.metadata";

    /// Content for a topic's id.
    pub fn new(topic_id: Uuid) -> PartitionMetadata {
        PartitionMetadata { version: 0, topic_id }
    }

    /// Reads a file. Only the first two lines are looked at, and in each only what follows `: `.
    ///
    /// # Errors
    /// [`SmallFileError`] where a line is missing or does not divide in two, the version is no number or below 0, or the
    /// id is malformed or zero.
    pub fn parse(bytes: &[u8]) -> Result<PartitionMetadata, SmallFileError> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = Lines::new(&text);
        let mut value = |line: usize, expected: &'static str| {
            let found = lines.next();
            let error = |found| SmallFileError { file: Self::FILE_NAME, line, expected, found };
            let Some(text) = found else { return Err(error("the end of the file".to_owned())) };
            match second_part(text) {
                Some(part) => Ok((part.to_owned(), error(excerpt(text)))),
                None => Err(error(excerpt(text))),
            }
        };

        let (version, error) = value(1, "version: <a number, 0 and up>")?;
        let version = version.parse().ok().filter(|version: &i32| *version >= 0).ok_or(error)?;
        let (id, error) = value(2, "topic_id: <22 characters, not zero>")?;
        let topic_id = id.parse().ok().filter(|id| *id != Uuid::ZERO).ok_or(error)?;
        Ok(PartitionMetadata { version, topic_id })
    }

    /// The bytes to write.
    pub fn to_bytes(&self) -> Vec<u8> {
        format!("version: {}\ntopic_id: {}", self.version, self.topic_id).into_bytes()
    }
}

/// The second of exactly two parts that a colon with blanks behind it divides a line into.
fn second_part(line: &str) -> Option<&str> {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\x0b' | '\x0c');
    let divide =
        |text: &str| text.match_indices(':').map(|(at, _)| at + 1).find(|&at| text[at..].starts_with(blank));
    let rest = &line[divide(line)?..];
    let part = rest.trim_start_matches(blank);
    (!part.is_empty() && divide(part).is_none()).then_some(part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "MDEyMzQ1Njc4OWFiY2RlZg";

    fn read(text: &str) -> Result<PartitionMetadata, SmallFileError> {
        PartitionMetadata::parse(text.as_bytes())
    }

    #[test]
    fn what_is_written_is_read() {
        let metadata = PartitionMetadata::new(ID.parse().unwrap());
        assert_eq!(metadata.to_bytes(), format!("version: 0\ntopic_id: {ID}").into_bytes());
        assert_eq!(PartitionMetadata::parse(&metadata.to_bytes()), Ok(metadata));
    }

    #[test]
    fn log_edge_243_files_that_are_read_and_refused() {
        assert_eq!(read(&format!("version: 3\ntopic_id: {ID}")).unwrap().version, 3);
        let extra = read(&format!("version: 0\ntopic_id: {ID}\nmore: 1\n")).unwrap();
        assert_eq!(extra.topic_id.to_string(), ID);
        for (refused, line) in [
            (format!("version: -1\ntopic_id: {ID}"), 1),
            (format!("version: 0\ntopic_id: {}", Uuid::ZERO), 2),
            (String::new(), 1),
            ("version: 0\ntopic_id: AAAA".to_owned(), 2),
            ("version: 0".to_owned(), 2),
        ] {
            let error = read(&refused).unwrap_err();
            assert_eq!((error.line, error.kafka_name()), (line, "KafkaStorageException"), "{refused:?}");
        }
    }

    #[test]
    fn format_edge_130_versions_and_ids() {
        assert_eq!(read(&format!("version: 5\ntopic_id: {ID}")).unwrap().version, 5);
        for refused in [
            format!("version: -1\ntopic_id: {ID}"),
            format!("version: 0\ntopic_id: {}", Uuid::ZERO),
            format!("version:0\ntopic_id: {ID}"),
            format!("version: x\ntopic_id: {ID}"),
            format!("version: 0: 0\ntopic_id: {ID}"),
            "version: 0\ntopic_id: ".to_owned(),
        ] {
            assert!(read(&refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn names_are_not_compared_and_padding_is_accepted() {
        let metadata = read(&format!("a:  \t2\r\n: {ID}==\r\n")).unwrap();
        assert_eq!((metadata.version, metadata.topic_id.to_string().as_str()), (2, ID));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), text in "[a: \n0-]{0,32}") {
            let _ = PartitionMetadata::parse(&bytes);
            let _ = read(&text);
        }
    }
}
