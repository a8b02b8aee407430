//! `meta.properties`: which cluster, node and directory a data directory belongs to.

use super::{SmallFileError, Uuid};
use crate::checkpoint::{Lines, excerpt};

/// Content of `meta.properties`.
///
/// | key | version 0 | version 1 |
/// |---|---|---|
/// | `version` | 0 or absent | 1 |
/// | `cluster.id` | optional | required |
/// | `broker.id` | optional | ignored |
/// | `node.id` | ignored | required |
/// | `directory.id` | optional | optional; made and written by the broker that finds none |
///
/// ```
/// use kseg_format::MetaProperties;
///
/// let properties = MetaProperties::parse(b"version=1\nnode.id=3\ncluster.id=abc\n")?;
/// assert_eq!((properties.node_id, properties.directory_id), (Some(3), None));
/// let written = properties.to_bytes("Mon Jan 01 00:00:00 UTC 2024");
/// assert_eq!(MetaProperties::parse(&written)?, properties);
/// # Ok::<(), kseg_format::SmallFileError>(())
/// ```
#[allow(clippy::exhaustive_structs, reason = "the keys of both versions")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// 0 or 1.
    pub version: i32,
    /// The cluster's id, which is any text.
    pub cluster_id: Option<String>,
    /// The node's number (`broker.id` in version 0).
    pub node_id: Option<i32>,
    /// The directory's id.
    pub directory_id: Option<Uuid>,
}

impl MetaProperties {
    /// The file's name.
    pub const FILE_NAME: &'static str = "meta.properties";

    /// Reads a file: Java properties, of which other keys are ignored. Of two lines for one key the later counts.
    ///
    /// # Errors
    /// [`SmallFileError`] on a version other than 0 and 1, a missing key that the version requires, a node that is no
    /// number, or a directory id that is none. The line is that of the key, or the one behind the last.
    pub fn parse(bytes: &[u8]) -> Result<MetaProperties, SmallFileError> {
        let text = String::from_utf8_lossy(bytes);
        let entries = properties(&text);
        let after = Lines::new(&text).count() + 1;
        let find = |key: &str| entries.iter().rev().find(|entry| entry.key == key);
        let error = |line, expected, found| SmallFileError { file: Self::FILE_NAME, line, expected, found };

        let version = match find("version") {
            None => 0,
            Some(Property { value, line, .. }) => value
                .parse()
                .ok()
                .filter(|version| matches!(version, 0 | 1))
                .ok_or_else(|| error(*line, "version 0 or 1", excerpt(value)))?,
        };
        let cluster_id = find("cluster.id").map(|entry| entry.value.clone());
        let node = find(if version == 0 { "broker.id" } else { "node.id" });
        let node_id = match node {
            None => None,
            Some(Property { value, line, .. }) => Some(
                value.parse().map_err(|_| error(*line, "the node's id, a whole number", excerpt(value)))?,
            ),
        };
        let directory_id = match find("directory.id") {
            None => None,
            Some(Property { value, line, .. }) => Some(
                value.parse().map_err(|_| error(*line, "a directory id of 22 characters", excerpt(value)))?,
            ),
        };
        let end = || "the end of the file".to_owned();
        if version == 1 && cluster_id.is_none() {
            return Err(error(after, "cluster.id", end()));
        }
        if version == 1 && node_id.is_none() {
            return Err(error(after, "node.id", end()));
        }
        Ok(MetaProperties { version, cluster_id, node_id, directory_id })
    }

    /// The bytes to write; `date` is the time of writing, which Java's writer puts into a comment.
    pub fn to_bytes(&self, date: &str) -> Vec<u8> {
        let node_key = if self.version == 0 { "broker.id" } else { "node.id" };
        let entries = [
            ("version", Some(self.version.to_string())),
            ("cluster.id", self.cluster_id.clone()),
            (node_key, self.node_id.map(|id| id.to_string())),
            ("directory.id", self.directory_id.map(|id| id.to_string())),
        ];
        let mut text = format!("#\n#{}\n", date.replace(['\n', '\r'], " "));
        for (key, value) in entries {
            if let Some(value) = value {
                text.push_str(key);
                text.push('=');
                escape(&value, &mut text);
                text.push('\n');
            }
        }
        text.into_bytes()
    }
}

struct Property {
    key: String,
    value: String,
    line: usize,
}

/// The entries of a Java properties file, in order.
///
/// Source: `java.util.Properties.load`.
fn properties(text: &str) -> Vec<Property> {
    let blank = [' ', '\t', '\x0c'];
    let mut entries = Vec::new();
    let mut lines = Lines::new(text);
    let mut number = 0;
    while let Some(first) = lines.next() {
        number += 1;
        let first = first.trim_start_matches(blank);
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let line = number;
        let mut logical = first.to_owned();
        // A line that ends with an odd number of backslashes goes on in the next.
        while logical.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1 {
            logical.pop();
            let Some(next) = lines.next() else { break };
            number += 1;
            logical.push_str(next.trim_start_matches(blank));
        }
        let (key, value) = divide(&logical);
        entries.push(Property { key: unescape(key), value: unescape(value), line });
    }
    entries
}

/// Key and value of a line: divided by the first `=`, `:` or blank that no backslash precedes.
fn divide(line: &str) -> (&str, &str) {
    let blank = [' ', '\t', '\x0c'];
    let mut escaped = false;
    let end = line
        .char_indices()
        .find(|&(_, c)| {
            let ends = !escaped && matches!(c, '=' | ':' | ' ' | '\t' | '\x0c');
            escaped = c == '\\' && !escaped;
            ends
        })
        .map_or(line.len(), |(at, _)| at);
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(blank);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, value.trim_start_matches(blank))
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            None => {}
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\x0c'),
            Some('u') => {
                let hex: String = chars.by_ref().take(4).collect();
                out.push(u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32).unwrap_or('\u{fffd}'));
            }
            Some(other) => out.push(other),
        }
    }
    out
}

fn escape(value: &str, out: &mut String) {
    for (at, c) in value.char_indices() {
        match c {
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\x0c' => out.push_str("\\f"),
            '\\' | '=' | ':' | '#' | '!' => out.extend(['\\', c]),
            ' ' if at == 0 => out.push_str("\\ "),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "MDEyMzQ1Njc4OWFiY2RlZg";

    fn read(text: &str) -> Result<MetaProperties, SmallFileError> {
        MetaProperties::parse(text.as_bytes())
    }

    #[test]
    fn a_file_of_a_kraft_broker_is_read() {
        let text = format!(
            "#\n#Mon Jan 01 00:00:00 UTC 2024\nnode.id=3\ndirectory.id={ID}\nversion=1\ncluster.id=abc_-\n"
        );
        let properties = read(&text).unwrap();
        assert_eq!(
            properties,
            MetaProperties {
                version: 1,
                cluster_id: Some("abc_-".into()),
                node_id: Some(3),
                directory_id: Some(ID.parse().unwrap()),
            }
        );
    }

    #[test]
    fn format_edge_155_a_file_of_version_0_may_lack_everything() {
        let empty = MetaProperties { version: 0, cluster_id: None, node_id: None, directory_id: None };
        assert_eq!(read("").as_ref(), Ok(&empty));
        assert_eq!(read("node.id=x\nother=1\n"), Ok(empty));
        let old = read("version=0\nbroker.id=7\n").unwrap();
        assert_eq!((old.node_id, old.version), (Some(7), 0));
    }

    #[test]
    fn format_edge_155_what_a_version_requires_must_be_there() {
        for (text, line, expected) in [
            ("version=2\n", 1, "version 0 or 1"),
            ("#\nversion=x\n", 2, "version 0 or 1"),
            ("version=1\nnode.id=1\n", 3, "cluster.id"),
            ("version=1\ncluster.id=c\n", 3, "node.id"),
            ("version=1\ncluster.id=c\nbroker.id=1\n", 4, "node.id"),
            ("version=1\ncluster.id=c\nnode.id=x\n", 3, "the node's id, a whole number"),
            ("directory.id=AAAA\n", 1, "a directory id of 22 characters"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!((error.line, error.expected), (line, expected), "{text:?}");
        }
    }

    #[test]
    fn lines_are_divided_as_java_divides_them() {
        let text =
            "  ! comment\r\n version : 1\r\ncluster.id a\\u0062\\\r\n   c\\=d \r\nnode.id=1\nnode.id\t=\t2\n";
        let properties = read(text).unwrap();
        assert_eq!(properties.cluster_id.as_deref(), Some("abc=d "));
        assert_eq!(properties.node_id, Some(2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), text in r"[a=: \\un\n#1]{0,48}") {
            let _ = MetaProperties::parse(&bytes);
            let _ = read(&text);
        }

        #[test]
        fn what_is_written_is_read(
            cluster in ".{0,24}", node in any::<i32>(), id in any::<Option<[u8; 16]>>(), version in 0..=1i32,
        ) {
            let properties = MetaProperties {
                version,
                cluster_id: Some(cluster),
                node_id: Some(node),
                directory_id: id.map(Uuid::from_bytes),
            };
            prop_assert_eq!(MetaProperties::parse(&properties.to_bytes("today")), Ok(properties));
        }
    }
}
