//! `.kafka_cleanshutdown`: the directory was closed in order.

/// Content of the clean-shutdown marker.
///
/// That the file is there means a clean stop, whatever it holds: older brokers left it empty. The broker's epoch is a
/// bonus that only a replicated cluster asks for.
///
/// ```text
/// {"version":0,"brokerEpoch":10}      without a line end
/// ```
#[allow(clippy::exhaustive_structs, reason = "what the file tells")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanShutdown {
    /// Epoch under which the broker ran; `None` where the file does not tell. -1 is written by who has none.
    pub broker_epoch: Option<i64>,
}

impl CleanShutdown {
    /// The file's name.
    pub const FILE_NAME: &'static str = ".kafka_cleanshutdown";

    /// Reads the file. Never fails: what cannot be understood is a clean stop of unknown epoch. The version is not
    /// looked at, unknown fields are passed over.
    pub fn parse(bytes: &[u8]) -> CleanShutdown {
        let broker_epoch = std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| Json { rest: text }.member("brokerEpoch"))
            .and_then(|value| value.parse().ok());
        CleanShutdown { broker_epoch }
    }

    /// The bytes to write.
    pub fn to_bytes(&self) -> Vec<u8> {
        format!("{{\"version\":0,\"brokerEpoch\":{}}}", self.broker_epoch.unwrap_or(-1)).into_bytes()
    }
}

/// As much of a JSON reader as finds one member of an object. Nested values are passed over by their brackets.
struct Json<'a> {
    rest: &'a str,
}

impl<'a> Json<'a> {
    /// The text of the member `name` of the object; the last of that name. `None` where there is none, or the text is no
    /// object.
    fn member(mut self, name: &str) -> Option<&'a str> {
        let mut found = None;
        self.expect('{')?;
        if self.peek() == Some('}') {
            self.expect('}')?;
        } else {
            loop {
                let key = self.string()?;
                self.expect(':')?;
                let value = self.value()?;
                if key == name {
                    found = Some(value);
                }
                match self.peek()? {
                    ',' => self.expect(',')?,
                    _ => break self.expect('}')?,
                }
            }
        }
        self.blanks();
        if self.rest.is_empty() { found } else { None }
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn peek(&mut self) -> Option<char> {
        self.blanks();
        self.rest.chars().next()
    }

    fn expect(&mut self, wanted: char) -> Option<()> {
        self.blanks();
        self.rest = self.rest.strip_prefix(wanted)?;
        Some(())
    }

    /// A string without its quotes; escapes stay as they are, which no name that is asked for has.
    fn string(&mut self) -> Option<&'a str> {
        self.expect('"')?;
        let mut escaped = false;
        for (at, byte) in self.rest.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => {
                    let text = &self.rest[..at];
                    self.rest = &self.rest[at + 1..];
                    return Some(text);
                }
                _ => {}
            }
        }
        None
    }

    fn value(&mut self) -> Option<&'a str> {
        match self.peek()? {
            '"' => self.string(),
            '{' | '[' => self.nested(),
            _ => {
                let end = self.rest.find([',', '}', ']', ' ', '\t', '\n', '\r']).unwrap_or(self.rest.len());
                let (value, rest) = self.rest.split_at(end);
                self.rest = rest;
                (!value.is_empty()).then_some(value)
            }
        }
    }

    /// Passes over an object or an array.
    fn nested(&mut self) -> Option<&'a str> {
        let start = self.rest;
        let mut depth = 0usize;
        loop {
            match self.peek()? {
                '"' => {
                    self.string()?;
                    continue;
                }
                '{' | '[' => depth += 1,
                '}' | ']' => depth -= 1,
                _ => {}
            }
            let mut chars = self.rest.chars();
            chars.next();
            self.rest = chars.as_str();
            if depth == 0 {
                return Some(&start[..start.len() - self.rest.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn epoch(text: &str) -> Option<i64> {
        CleanShutdown::parse(text.as_bytes()).broker_epoch
    }

    #[test]
    fn log_edge_223_markers_with_and_without_an_epoch() {
        assert_eq!(epoch(""), None);
        let unknown =
            r#" {"x": [1, {"brokerEpoch": 3}, "]"], "version":7, "brokerEpoch": 10 , "y":{"a":"\"}"} } "#;
        assert_eq!(epoch(unknown), Some(10));
    }

    #[test]
    fn format_edge_129_what_is_written_is_read() {
        let marker = CleanShutdown { broker_epoch: Some(10) };
        assert_eq!(marker.to_bytes(), br#"{"version":0,"brokerEpoch":10}"#);
        assert_eq!(CleanShutdown::parse(&marker.to_bytes()), marker);
        let none = CleanShutdown { broker_epoch: None };
        assert_eq!(none.to_bytes(), br#"{"version":0,"brokerEpoch":-1}"#);
    }

    #[test]
    fn content_that_says_nothing_is_still_a_clean_stop() {
        for text in [
            "{}",
            "null",
            "[]",
            r#"{"version":0}"#,
            r#"{"version":0,"brokerEpoch":null}"#,
            r#"{"version":0,"brokerEpoch":99999999999999999999}"#,
            r#"{"version":0,"brokerEpoch":1"#,
            r#"{"brokerEpoch":1} x"#,
            r#"{"brokerEpoch":1,}"#,
            r#"{"a":[[[["#,
            "\0\0\0",
        ] {
            assert_eq!(epoch(text), None, "{text:?}");
        }
        assert_eq!(CleanShutdown::parse(&[0xff, 0xfe]).broker_epoch, None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..64), text in r#"[\[\]{}":,\\ 1a]{0,48}"#) {
            let _ = CleanShutdown::parse(&bytes);
            let _ = CleanShutdown::parse(text.as_bytes());
        }
    }
}
