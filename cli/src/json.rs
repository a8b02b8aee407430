//! JSON lines without a tree in between.
//!
//! Every line is an object with a `type` and a `v` of 1. Bytes are never lossy: UTF-8 text is
//! `{"enc":"utf8","data":"..."}`, anything else `{"enc":"base64","data":"..."}`, null is null.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A line being written.
#[derive(Debug)]
pub(crate) struct Line<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Line<'o> {
    /// Begins a line of this type behind what `out` holds.
    pub(crate) fn new(out: &'o mut Vec<u8>, kind: &str) -> Line<'o> {
        out.extend_from_slice(b"{\"type\":");
        string(out, kind);
        out.extend_from_slice(b",\"v\":1");
        Line { out }
    }

    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        self.out.push(b',');
        string(self.out, name);
        self.out.push(b':');
        self.out
    }

    pub(crate) fn number(&mut self, name: &str, value: impl Into<i128>) -> &mut Self {
        // Writing to memory does not fail.
        let _ = write!(self.name(name), "{}", value.into());
        self
    }

    pub(crate) fn maybe_text(&mut self, name: &str, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(name, value),
            None => {
                self.name(name).extend_from_slice(b"null");
                self
            }
        }
    }

    pub(crate) fn maybe(&mut self, name: &str, value: Option<impl Into<i128>>) -> &mut Self {
        match value {
            Some(value) => self.number(name, value),
            None => {
                self.name(name).extend_from_slice(b"null");
                self
            }
        }
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        string(self.name(name), value);
        self
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        self.name(name).extend_from_slice(if value { b"true" } else { b"false" });
        self
    }

    pub(crate) fn bytes(&mut self, name: &str, value: Option<&[u8]>) -> &mut Self {
        bytes(self.name(name), value);
        self
    }

    /// A list of pairs: a name, which is text where it is UTF-8, and bytes.
    pub(crate) fn pairs<'p>(
        &mut self,
        name: &str,
        pairs: impl Iterator<Item = (&'p [u8], Option<&'p [u8]>)>,
    ) -> &mut Self {
        self.name(name).push(b'[');
        for (n, (name, value)) in pairs.enumerate() {
            self.out.extend_from_slice(if n > 0 { b",[" } else { b"[" });
            match std::str::from_utf8(name) {
                Ok(name) => string(self.out, name),
                Err(_) => bytes(self.out, Some(name)),
            }
            self.out.push(b',');
            bytes(self.out, value);
            self.out.push(b']');
        }
        self.out.push(b']');
        self
    }

    pub(crate) fn end(&mut self) {
        self.out.extend_from_slice(b"}\n");
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    // Neither the writer nor a string can fail.
    let _ = serde_json::to_writer(out, text);
}

fn bytes(out: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else {
        out.extend_from_slice(b"null");
        return;
    };
    match std::str::from_utf8(value) {
        Ok(text) => {
            out.extend_from_slice(b"{\"enc\":\"utf8\",\"data\":");
            string(out, text);
        }
        Err(_) => {
            out.extend_from_slice(b"{\"enc\":\"base64\",\"data\":");
            string(out, &STANDARD.encode(value));
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_base64_and_null_is_null() {
        let mut out = Vec::new();
        Line::new(&mut out, "record")
            .number("offset", 7_i64)
            .bytes("key", None)
            .bytes("value", Some(b"\xff\0"))
            .pairs("headers", [(&b"a"[..], Some(&b"b"[..])), (&b"\xff"[..], None)].into_iter())
            .end();
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "{\"type\":\"record\",\"v\":1,\"offset\":7,\"key\":null,\"value\":{\"enc\":\"base64\",\"data\":\"/wA=\"},\
             \"headers\":[[\"a\",{\"enc\":\"utf8\",\"data\":\"b\"}],[{\"enc\":\"base64\",\"data\":\"/w==\"},null]]}\n"
        );
    }
}
