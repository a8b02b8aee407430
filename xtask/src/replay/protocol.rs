//! The lines of the protocol: fields of an operation, answers, and errors by Kafka's names.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// An operation that failed: the simple name of the exception that Kafka would raise, and a text of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) class: String,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(class: &str, message: impl Into<String>) -> Failure {
        Failure { class: class.to_owned(), message: message.into() }
    }

    /// An argument that makes no sense.
    pub(crate) fn argument(message: impl Into<String>) -> Failure {
        Failure::new("IllegalArgumentException", message)
    }

    /// A file that cannot be read or written.
    pub(crate) fn io(path: &std::path::Path, error: &std::io::Error) -> Failure {
        let class = match error.kind() {
            std::io::ErrorKind::NotFound => "NoSuchFileException",
            _ => "IOException",
        };
        Failure::new(class, format!("{}: {error}", path.display()))
    }
}

/// What an operation answers: the value of `ok`, or a failure.
pub(crate) type Answer = Result<Value, Failure>;

/// The line to print.
pub(crate) fn line(answer: Answer) -> Value {
    match answer {
        Ok(value) => json!({ "ok": value }),
        Err(failure) => json!({ "error": failure.class, "message": failure.message }),
    }
}

/// Bytes as the protocol writes them.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes or null.
pub(crate) fn base64_or_null(bytes: Option<&[u8]>) -> Value {
    bytes.map_or(Value::Null, |b| Value::String(base64(b)))
}

/// A JSON object of the protocol with its fields by type. A field that is null counts as absent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a Value);

impl<'a> Fields<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|v| !v.is_null())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// # Errors
    /// The field is absent.
    pub(crate) fn need(&self, name: &str) -> Result<&'a Value, Failure> {
        self.get(name).ok_or_else(|| Failure::new("NullPointerException", format!("no field {name}")))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Value::as_str)
    }

    /// # Errors
    /// The field is absent or no text.
    pub(crate) fn need_text(&self, name: &str) -> Result<&'a str, Failure> {
        self.need(name)?.as_str().ok_or_else(|| Failure::argument(format!("{name} is no text")))
    }

    pub(crate) fn long(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    /// # Errors
    /// The field is absent or no integer of 64 bits.
    pub(crate) fn need_long(&self, name: &str) -> Result<i64, Failure> {
        self.need(name)?.as_i64().ok_or_else(|| Failure::argument(format!("{name} is no number")))
    }

    pub(crate) fn long_or(&self, name: &str, otherwise: i64) -> i64 {
        self.long(name).unwrap_or(otherwise)
    }

    /// A 32-bit number; more than that is cut as a Java cast cuts it.
    pub(crate) fn int_or(&self, name: &str, otherwise: i32) -> i32 {
        self.long(name).map_or(otherwise, |v| v as i32)
    }

    /// A 16-bit number, cut likewise.
    pub(crate) fn short_or(&self, name: &str, otherwise: i16) -> i16 {
        self.long(name).map_or(otherwise, |v| v as i16)
    }

    pub(crate) fn bool_or(&self, name: &str, otherwise: bool) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(otherwise)
    }

    /// A number with a fraction.
    pub(crate) fn float_or(&self, name: &str, otherwise: f64) -> f64 {
        self.get(name).and_then(Value::as_f64).unwrap_or(otherwise)
    }

    /// The bytes of a field; `None` where it is null or absent.
    ///
    /// # Errors
    /// No base64.
    pub(crate) fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        self.get(name).map(decoded).transpose()
    }

    /// # Errors
    /// The field is absent, or no base64.
    pub(crate) fn need_bytes(&self, name: &str) -> Result<Vec<u8>, Failure> {
        decoded(self.need(name)?)
    }

    /// The elements of a list; none where the field is absent.
    pub(crate) fn list(&self, name: &str) -> &'a [Value] {
        self.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }
}

/// # Errors
/// `value` is no text of base64.
pub(crate) fn decoded(value: &Value) -> Result<Vec<u8>, Failure> {
    let text = value.as_str().ok_or_else(|| Failure::argument("bytes are text of base64"))?;
    STANDARD.decode(text).map_err(|e| Failure::argument(format!("base64: {e}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Failure, Fields, line};

    #[test]
    fn a_null_field_counts_as_absent() {
        let op = json!({"offset": null, "max": 7, "bytes": "AAE="});
        let fields = Fields(&op);
        assert!(!fields.has("offset"));
        assert_eq!(fields.long_or("offset", 3), 3);
        assert_eq!(fields.int_or("max", 0), 7);
        assert_eq!(fields.bytes("bytes").unwrap(), Some(vec![0, 1]));
        assert_eq!(fields.need_long("offset").unwrap_err().class, "NullPointerException");
    }

    #[test]
    fn an_answer_is_ok_or_error() {
        assert_eq!(line(Ok(json!({}))), json!({"ok": {}}));
        let failed = line(Err(Failure::argument("no")));
        assert_eq!(failed, json!({"error": "IllegalArgumentException", "message": "no"}));
    }
}
