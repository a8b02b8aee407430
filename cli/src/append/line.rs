//! What a line says: key, value, headers and timestamp of a record.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kseg_format::Timestamp;
use serde_json::Value;

use super::{Format, Timestamps};

/// A record, borrowed from a line or from what was decoded of it.
#[derive(Debug)]
pub(crate) struct Parsed<'l> {
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) key: Option<&'l [u8]>,
    pub(crate) value: Option<&'l [u8]>,
    pub(crate) headers: Vec<(&'l [u8], Option<&'l [u8]>)>,
}

/// Bytes that a JSON line was decoded to.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A line that is not what the format asks for.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Wrong {
    fn new(expected: impl Into<String>, found: impl Into<String>) -> Wrong {
        Wrong { expected: expected.into(), found: found.into() }
    }
}

/// Reads a line; what JSON says is decoded into `fields`.
pub(crate) fn parse<'l>(
    line: &'l [u8],
    format: Format,
    timestamps: Timestamps,
    fields: &'l mut Fields,
) -> Result<Parsed<'l>, Wrong> {
    if format == Format::Json {
        return json(line, timestamps, fields);
    }
    let (timestamp, line) = match timestamps {
        Timestamps::Field => {
            let (field, rest) = at_tab(line).ok_or_else(|| Wrong::new("milliseconds<TAB>...", "no tab"))?;
            (milliseconds(field)?, rest)
        }
        Timestamps::Now | Timestamps::None => (None, line),
    };
    let (key, value) = match format {
        Format::KeyValue => {
            let (key, value) = at_tab(line).ok_or_else(|| Wrong::new("key<TAB>value", "no tab"))?;
            (Some(key), value)
        }
        Format::Lines | Format::Json => (None, line),
    };
    Ok(Parsed { timestamp, key, value: Some(value), headers: Vec::new() })
}

fn at_tab(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    Some((&line[..tab], &line[tab + 1..]))
}

/// Milliseconds since 1970; -1 stands for no timestamp, as `cat` prints it.
fn milliseconds(field: &[u8]) -> Result<Option<Timestamp>, Wrong> {
    let text = String::from_utf8_lossy(field);
    let found = || Wrong::new("a timestamp in milliseconds, or -1 for none", format!("{text:?}"));
    text.parse().ok().filter(|ms| *ms >= -1).map(Timestamp::from_raw).ok_or_else(found)
}

fn json<'l>(line: &[u8], timestamps: Timestamps, fields: &'l mut Fields) -> Result<Parsed<'l>, Wrong> {
    let value: Value = serde_json::from_slice(line).map_err(|error| {
        // Of the only line that it was given.
        let why = error.to_string().replace(" at line 1 column ", " at column ");
        Wrong::new("a JSON object", format!("what is none: {why}"))
    })?;
    let Value::Object(mut object) = value else {
        return Err(Wrong::new("a JSON object", kind(&value)));
    };
    let timestamp = match (timestamps, object.get("ts")) {
        (Timestamps::Field, None | Some(Value::Null)) => None,
        (Timestamps::Field, Some(ts)) => {
            let ms = ts.as_i64().filter(|ms| *ms >= -1);
            let wrong = || Wrong::new("ts in milliseconds, -1 or null for none", ts.to_string());
            Timestamp::from_raw(ms.ok_or_else(wrong)?)
        }
        _ => None,
    };
    fields.key = bytes("key", object.remove("key").unwrap_or(Value::Null))?;
    fields.value = match object.remove("value") {
        Some(value) => bytes("value", value)?,
        None => return Err(Wrong::new("a JSON object with a value", "none; null makes a tombstone")),
    };
    fields.headers = headers(object.remove("headers").unwrap_or(Value::Null))?;
    Ok(Parsed {
        timestamp,
        key: fields.key.as_deref(),
        value: fields.value.as_deref(),
        headers: fields.headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect(),
    })
}

/// Text, null, or `{"enc":"utf8"|"base64"|"hex","data":"..."}`.
fn bytes(field: &str, value: Value) -> Result<Option<Vec<u8>>, Wrong> {
    let expected = || format!("{field} to be text, null, or {{\"enc\":..,\"data\":..}}");
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.into_bytes())),
        Value::Object(object) => {
            let (Some(Value::String(encoding)), Some(Value::String(data))) =
                (object.get("enc"), object.get("data"))
            else {
                return Err(Wrong::new(expected(), Value::Object(object).to_string()));
            };
            let decoded = match encoding.as_str() {
                "utf8" => Some(data.clone().into_bytes()),
                "base64" => STANDARD.decode(data).ok(),
                "hex" => hex(data),
                other => {
                    return Err(Wrong::new(format!("{field} in utf8, base64 or hex"), format!("{other:?}")));
                }
            };
            decoded.map(Some).ok_or_else(|| Wrong::new(format!("{field} in {encoding}"), format!("{data:?}")))
        }
        other => Err(Wrong::new(expected(), other.to_string())),
    }
}

type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);

/// A list of `[name, value]` pairs, or an object of names and values.
fn headers(value: Value) -> Result<Vec<OwnedHeader>, Wrong> {
    let pair = |name, value| match bytes("a header's name", name)? {
        Some(name) => Ok((name, bytes("a header's value", value)?)),
        None => Err(Wrong::new("a header's name", "null")),
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(object) => {
            object.into_iter().map(|(name, value)| pair(Value::String(name), value)).collect()
        }
        Value::Array(list) => list
            .into_iter()
            .map(|item| match item {
                Value::Array(two) => match <[Value; 2]>::try_from(two) {
                    Ok([name, value]) => pair(name, value),
                    Err(other) => {
                        Err(Wrong::new("headers as [name, value]", Value::Array(other).to_string()))
                    }
                },
                other => Err(Wrong::new("headers as [name, value]", other.to_string())),
            })
            .collect(),
        other => Err(Wrong::new("headers as a list of [name, value] or an object", other.to_string())),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks();
    let all: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| Some((digit(*high)? * 16 + digit(*low)?) as u8)).collect();
    if rest.is_empty() { all } else { None }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_ends_at_the_first_tab() {
        let mut fields = Fields::default();
        let parsed = parse(b"k\tv\tw", Format::KeyValue, Timestamps::Now, &mut fields).expect("parsed");
        assert_eq!((parsed.key, parsed.value), (Some(&b"k"[..]), Some(&b"v\tw"[..])));
        let wrong = parse(b"no tab", Format::KeyValue, Timestamps::Now, &mut fields).expect_err("refused");
        assert_eq!(wrong.expected, "key<TAB>value");
    }

    #[test]
    fn a_timestamp_is_the_first_field() {
        let mut fields = Fields::default();
        let parsed = parse(b"17\tk\t", Format::KeyValue, Timestamps::Field, &mut fields).expect("parsed");
        assert_eq!(parsed.timestamp, Some(Timestamp::new(17)));
        assert_eq!((parsed.key, parsed.value), (Some(&b"k"[..]), Some(&b""[..])));
        for line in [&b"x\tv"[..], b"-2\tv", b"v", b"\xff\tv"] {
            assert!(parse(line, Format::Lines, Timestamps::Field, &mut Fields::default()).is_err());
        }
    }

    #[test]
    fn json_tells_null_from_empty_and_decodes_bytes() {
        let line =
            br#"{"ts":5,"key":null,"value":{"enc":"base64","data":"/wA="},"headers":[["a","b"],["a",null]]}"#;
        let mut fields = Fields::default();
        let parsed = parse(line, Format::Json, Timestamps::Field, &mut fields).expect("parsed");
        assert_eq!(parsed.timestamp, Some(Timestamp::new(5)));
        assert_eq!((parsed.key, parsed.value), (None, Some(&b"\xff\0"[..])));
        assert_eq!(parsed.headers, [(&b"a"[..], Some(&b"b"[..])), (b"a", None)]);
        let line = br#"{"value":"","headers":{"x":{"enc":"hex","data":"0aF1"}}}"#;
        let parsed = parse(line, Format::Json, Timestamps::Now, &mut fields).expect("parsed");
        assert_eq!(
            (parsed.value, parsed.headers),
            (Some(&b""[..]), vec![(&b"x"[..], Some(&b"\x0a\xf1"[..]))])
        );
    }

    #[test]
    fn json_that_makes_no_record_is_refused() {
        for line in [
            "",
            "[]",
            "{}",
            "{\"value\":1}",
            "{\"value\":{\"enc\":\"hex\",\"data\":\"0\"}}",
            "{\"value\":\"\",\"headers\":[[\"a\"]]}",
            "{\"value\":\"\",\"headers\":[[null,\"b\"]]}",
            "{\"ts\":-4,\"value\":\"\"}",
            "{\"value\":\"a\"} x",
        ] {
            assert!(
                parse(line.as_bytes(), Format::Json, Timestamps::Field, &mut Fields::default()).is_err(),
                "{line}"
            );
        }
    }
}
