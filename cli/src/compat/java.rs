//! What the Java runtime does with names, numbers and text on the way to standard output.

use std::borrow::Cow;
use std::fmt::Write as _;

use kseg_format::Header;

use super::abort::Abort;

/// A path as `java.io.File` shows it: repeated slashes are one, a slash at the end is dropped.
pub(super) fn file(path: &str) -> String {
    let mut shown = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !shown.ends_with('/') {
            shown.push(c);
        }
    }
    if shown.len() > 1 && shown.ends_with('/') {
        shown.pop();
    }
    shown
}

/// The text behind the last slash.
pub(super) fn name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// The text before the first dot of a file's name.
pub(super) fn stem(file: &str) -> &str {
    name(file).split('.').next().unwrap_or_default()
}

/// The base offset that a file's name stands for: the text before the first dot.
pub(super) fn base_offset(file: &str) -> Result<i64, Abort> {
    let stem = stem(file);
    stem.parse().map_err(|_| Abort::number_format(stem))
}

/// The path with the working directory in front of it, unless it begins with a slash.
pub(super) fn absolute(file: &str) -> String {
    if file.starts_with('/') {
        return file.to_owned();
    }
    let here = std::env::current_dir().unwrap_or_default();
    let here = here.to_string_lossy();
    if file.is_empty() { here.into_owned() } else { format!("{}/{file}", here.trim_end_matches('/')) }
}

/// A file in the same folder: `stem` of `file`, with another suffix.
pub(super) fn sibling(file: &str, suffix: &str) -> String {
    let absolute = absolute(file);
    let folder = absolute.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{}{suffix}", stem(file))
}

/// `new String(bytes, UTF_8)`: what is no UTF-8 becomes U+FFFD, one for each part that Java's decoder gives up on.
pub(super) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    Header { key: bytes, value: None }.key_lossy()
}

/// A JSON string as Jackson writes it: text outside ASCII as it is, control characters as `\u00XX`.
pub(super) fn json_string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            c if (c as u32) < 0x20 => {
                let _ = write!(json, "\\u{:04X}", c as u32);
            }
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_are_merged_and_the_last_one_is_dropped() {
        assert_eq!(file(".//a///b//"), "./a/b");
        assert_eq!(file("/"), "/");
        assert_eq!(file("//"), "/");
        assert_eq!(file(""), "");
    }

    #[test]
    fn half_a_surrogate_is_one_replacement() {
        assert_eq!(utf8(b"a\xed\xa0\x80b\xed\xa0c\xedd"), "a\u{fffd}b\u{fffd}c\u{fffd}d");
        assert_eq!(utf8(b"\xed\xa0"), "\u{fffd}");
        assert_eq!(utf8(b"\xed\x9f\xbf"), "\u{d7ff}");
        assert_eq!(utf8(b"\xf0\x9d\x84"), "\u{fffd}");
    }
}
