//! Control records as Kafka's tool shows them: the marker of a transaction, or a message of KRaft as JSON.
//!
//! Source: Kafka `ControlRecordType`, `EndTransactionMarker`, and the generated JSON converters of `LeaderChangeMessage`,
//! `SnapshotHeaderRecord`, `SnapshotFooterRecord`, `KRaftVersionRecord`, `VotersRecord`.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kseg_format::Record;

use super::abort::Abort;
use super::java;

/// Prints what belongs behind the metadata of a control record.
pub(super) fn print(record: &Record<'_>, out: &mut impl Write) -> Result<(), Abort> {
    let kind = kind(record.key())?;
    match kind {
        0 | 1 => {
            let epoch = coordinator_epoch(record.value())?;
            let name = if kind == 0 { "ABORT" } else { "COMMIT" };
            write!(out, " endTxnMarker: {name} coordinatorEpoch: {epoch}")?;
        }
        2 => write!(out, " LeaderChange: {}", message(record, leader_change)?)?,
        3 => write!(out, " SnapshotHeader {}", message(record, snapshot_header)?)?,
        4 => write!(out, " SnapshotFooter {}", message(record, snapshot_footer)?)?,
        5 => write!(out, " KRaftVersion {}", message(record, kraft_version)?)?,
        6 => write!(out, " KRaftVoters {}", message(record, voters)?)?,
        other => write!(out, " controlType: UNKNOWN({other})")?,
    }
    Ok(())
}

/// The type in the key of a control record.
fn kind(key: Option<&[u8]>) -> Result<i16, Abort> {
    let Some(key) = key else { return Err(Abort::silent("java.lang.NullPointerException")) };
    let Some(&[v0, v1, t0, t1]) = key.first_chunk() else {
        return Err(Abort::invalid_record(format!(
            "Invalid value size found for control record key. Must have at least 4 bytes, but found only {}",
            key.len()
        )));
    };
    let version = i16::from_be_bytes([v0, v1]);
    if version < 0 {
        return Err(Abort::invalid_record(format!(
            "Invalid version found for control record: {version}. May indicate data corruption"
        )));
    }
    Ok(i16::from_be_bytes([t0, t1]))
}

fn coordinator_epoch(value: Option<&[u8]>) -> Result<i32, Abort> {
    let Some(value) = value else { return Err(Abort::silent("java.lang.NullPointerException")) };
    let mut reader = Reader { rest: value };
    let version = reader.i16()?;
    if version < 0 {
        return Err(Abort::invalid_record(format!(
            "Invalid version found for end transaction marker: {version}. May indicate data corruption"
        )));
    }
    reader.i32()
}

/// The JSON of a KRaft message. Bytes behind it are not looked at.
fn message(record: &Record<'_>, read: fn(&mut Reader<'_>) -> Result<String, Abort>) -> Result<String, Abort> {
    let Some(value) = record.value() else { return Err(Abort::silent("java.lang.NullPointerException")) };
    read(&mut Reader { rest: value })
}

/// Read as schema 0, written as the schema that its first field names.
fn leader_change(reader: &mut Reader<'_>) -> Result<String, Abort> {
    let version = reader.i16()?;
    let leader = reader.i32()?;
    let mut voters = |name| {
        let voters = reader.array(name, |reader| {
            let id = reader.i32()?;
            reader.tags()?;
            let directory = if version >= 1 {
                format!(",\"voterDirectoryId\":\"{}\"", uuid(&[0; 16]))
            } else {
                String::new()
            };
            Ok(format!("{{\"voterId\":{id}{directory}}}"))
        })?;
        Ok::<String, Abort>(voters.join(","))
    };
    let (voters, granting) = (voters("voters")?, voters("grantingVoters")?);
    reader.tags()?;
    Ok(format!(
        "{{\"version\":{version},\"leaderId\":{leader},\"voters\":[{voters}],\"grantingVoters\":[{granting}]}}"
    ))
}

fn snapshot_header(reader: &mut Reader<'_>) -> Result<String, Abort> {
    let (version, timestamp) = (reader.i16()?, reader.i64()?);
    reader.tags()?;
    Ok(format!("{{\"version\":{version},\"lastContainedLogTimestamp\":{timestamp}}}"))
}

fn snapshot_footer(reader: &mut Reader<'_>) -> Result<String, Abort> {
    let version = reader.i16()?;
    reader.tags()?;
    Ok(format!("{{\"version\":{version}}}"))
}

fn kraft_version(reader: &mut Reader<'_>) -> Result<String, Abort> {
    let (version, kraft) = (reader.i16()?, reader.i16()?);
    reader.tags()?;
    Ok(format!("{{\"version\":{version},\"kRaftVersion\":{kraft}}}"))
}

fn voters(reader: &mut Reader<'_>) -> Result<String, Abort> {
    let version = reader.i16()?;
    let voters = reader.array("voters", |reader| {
        let id = reader.i32()?;
        let directory = uuid(&reader.bytes()?);
        let endpoints = reader.array("endpoints", |reader| {
            let (name, host) = (reader.string("name")?, reader.string("host")?);
            let port = reader.i16()? as u16;
            reader.tags()?;
            let (name, host) = (java::json_string(&name), java::json_string(&host));
            Ok(format!("{{\"name\":{name},\"host\":{host},\"port\":{port}}}"))
        })?;
        let (min, max) = (reader.i16()?, reader.i16()?);
        reader.tags()?;
        reader.tags()?;
        Ok(format!(
            "{{\"voterId\":{id},\"voterDirectoryId\":\"{directory}\",\"endpoints\":[{}],\"kRaftVersionFeature\":\
             {{\"minSupportedVersion\":{min},\"maxSupportedVersion\":{max}}}}}",
            endpoints.join(",")
        ))
    })?;
    reader.tags()?;
    Ok(format!("{{\"version\":{version},\"voters\":[{}]}}", voters.join(",")))
}

fn uuid(bytes: &[u8; 16]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Fields of a flexible message: big-endian numbers, lengths as unsigned varints of one more.
#[derive(Debug)]
struct Reader<'r> {
    rest: &'r [u8],
}

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Abort> {
        let Some((field, rest)) = self.rest.split_first_chunk() else { return Err(underflow()) };
        self.rest = rest;
        Ok(*field)
    }

    fn i16(&mut self) -> Result<i16, Abort> {
        self.bytes().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Result<i32, Abort> {
        self.bytes().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, Abort> {
        self.bytes().map(i64::from_be_bytes)
    }

    fn uvarint(&mut self) -> Result<u32, Abort> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.bytes()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Abort::illegal_argument("Varint is too long"))
    }

    /// A length; `None` where it stands for null.
    fn length(&mut self, field: &str) -> Result<usize, Abort> {
        let Some(len) = self.uvarint()?.checked_sub(1) else {
            return Err(Abort::new(
                "java.lang.RuntimeException",
                format!("non-nullable field {field} was serialized as null"),
            ));
        };
        if len as usize > self.rest.len() {
            return Err(Abort::new(
                "java.lang.RuntimeException",
                format!(
                    "field {field} has a length of {len}, but there are only {} bytes remaining.",
                    self.rest.len()
                ),
            ));
        }
        Ok(len as usize)
    }

    fn array(
        &mut self,
        field: &str,
        mut read: impl FnMut(&mut Self) -> Result<String, Abort>,
    ) -> Result<Vec<String>, Abort> {
        (0..self.length(field)?).map(|_| read(self)).collect()
    }

    fn string(&mut self, field: &str) -> Result<String, Abort> {
        let len = self.length(field)?;
        let (text, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(java::utf8(text).into_owned())
    }

    /// Fields that this schema does not know.
    fn tags(&mut self) -> Result<(), Abort> {
        for _ in 0..self.uvarint()? {
            self.uvarint()?;
            let len = self.uvarint()? as usize;
            self.rest = self.rest.get(len..).ok_or_else(underflow)?;
        }
        Ok(())
    }
}

fn underflow() -> Abort {
    Abort::silent("java.nio.BufferUnderflowException")
}
