//! The encoding of Kafka's flexible messages, as far as these need it.

use super::{Endpoint, LeaderChange, Voter, Voters};
use crate::error::{DecodeError, Expected, Found, Place};
use crate::small_files::Uuid;
use crate::varint::{self, VarintFault};

/// Reads a message from front to back.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, total: bytes.len() }
    }

    fn invalid(&self, field: &'static str, expected: Expected, found: Found) -> DecodeError {
        DecodeError::invalid(field, Place::Control(self.total - self.rest.len()), expected, found)
    }

    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk::<N>() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(*bytes)
            }
            None => {
                let found = Found::Bytes(self.rest.len() as u64);
                Err(self.invalid(field, Expected::Bytes(N as u64), found))
            }
        }
    }

    pub(super) fn i16(&mut self, field: &'static str) -> Result<i16, DecodeError> {
        self.take(field).map(i16::from_be_bytes)
    }

    fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        self.take(field).map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        self.take(field).map(i64::from_be_bytes)
    }

    fn unsigned(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        varint::take_u32(&mut self.rest).map_err(|fault| {
            let found = match fault {
                VarintFault::End => Found::Bytes(self.rest.len() as u64),
                VarintFault::Overlong => Found::Overlong,
            };
            self.invalid(field, Expected::Words("a variable-length integer"), found)
        })
    }

    /// A length plus one; a list, each of whose elements takes a byte or more, or a string. 0 is null.
    fn length(&mut self, field: &'static str) -> Result<usize, DecodeError> {
        let raw = self.unsigned(field)?;
        match raw.checked_sub(1) {
            Some(length) if length as usize <= self.rest.len() => Ok(length as usize),
            _ => {
                let expected = Expected::Between(1, self.rest.len() as i64 + 1);
                Err(self.invalid(field, expected, Found::Value(i64::from(raw))))
            }
        }
    }

    fn string(&mut self, field: &'static str) -> Result<String, DecodeError> {
        let length = self.length(field)?;
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn list<T>(
        &mut self,
        field: &'static str,
        mut element: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let length = self.length(field)?;
        // Not reserved: the length is bounded by the bytes left, but an element may be much larger in memory.
        let mut list = Vec::new();
        for _ in 0..length {
            list.push(element(self)?);
        }
        Ok(list)
    }

    pub(super) fn tagged_fields(&mut self) -> Result<(), DecodeError> {
        for _ in 0..self.unsigned("tagged fields")? {
            self.unsigned("tag")?;
            let size = self.unsigned("tagged field size")?;
            match self.rest.get(size as usize..) {
                Some(rest) => self.rest = rest,
                None => {
                    let expected = Expected::AtMost(self.rest.len() as i64);
                    return Err(self.invalid("tagged field size", expected, Found::Value(i64::from(size))));
                }
            }
        }
        Ok(())
    }

    fn voter_ids(&mut self, field: &'static str) -> Result<Vec<i32>, DecodeError> {
        self.list(field, |reader| {
            let id = reader.i32("voter id")?;
            reader.tagged_fields()?;
            Ok(id)
        })
    }

    pub(super) fn leader_change(&mut self) -> Result<LeaderChange, DecodeError> {
        let message = LeaderChange {
            version: self.i16("version")?,
            leader_id: self.i32("leader id")?,
            voters: self.voter_ids("voters")?,
            granting_voters: self.voter_ids("granting voters")?,
        };
        self.tagged_fields()?;
        Ok(message)
    }

    pub(super) fn voters(&mut self) -> Result<Voters, DecodeError> {
        let version = self.i16("version")?;
        let voters = self.list("voters", Reader::voter)?;
        self.tagged_fields()?;
        Ok(Voters { version, voters })
    }

    fn voter(&mut self) -> Result<Voter, DecodeError> {
        let id = self.i32("voter id")?;
        let directory_id = Uuid::from_bytes(self.take("voter directory id")?);
        let endpoints = self.list("endpoints", |reader| {
            let endpoint = Endpoint {
                name: reader.string("endpoint name")?,
                host: reader.string("endpoint host")?,
                port: u16::from_be_bytes(reader.take("endpoint port")?),
            };
            reader.tagged_fields()?;
            Ok(endpoint)
        })?;
        let (min_version, max_version) = (self.i16("min version")?, self.i16("max version")?);
        self.tagged_fields()?;
        self.tagged_fields()?;
        Ok(Voter { id, directory_id, endpoints, min_version, max_version })
    }
}

/// Writes a message from front to back.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn i16(&mut self, value: i16) {
        self.bytes.extend(value.to_be_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.bytes.extend(value.to_be_bytes());
    }

    /// A length plus one. A message of 2^32 elements does not exist.
    fn length(&mut self, length: usize) {
        varint::push_u32(&mut self.bytes, (length as u32).wrapping_add(1));
    }

    fn string(&mut self, text: &str) {
        self.length(text.len());
        self.bytes.extend(text.as_bytes());
    }

    pub(super) fn tagged_fields(&mut self) {
        self.bytes.push(0);
    }

    fn voter_ids(&mut self, ids: &[i32]) {
        self.length(ids.len());
        for id in ids {
            self.i32(*id);
            self.tagged_fields();
        }
    }

    pub(super) fn leader_change(&mut self, message: &LeaderChange) {
        self.i16(message.version);
        self.i32(message.leader_id);
        self.voter_ids(&message.voters);
        self.voter_ids(&message.granting_voters);
        self.tagged_fields();
    }

    pub(super) fn voters(&mut self, message: &Voters) {
        self.i16(message.version);
        self.length(message.voters.len());
        for voter in &message.voters {
            self.i32(voter.id);
            self.bytes.extend(voter.directory_id.to_bytes());
            self.length(voter.endpoints.len());
            for endpoint in &voter.endpoints {
                self.string(&endpoint.name);
                self.string(&endpoint.host);
                self.bytes.extend(endpoint.port.to_be_bytes());
                self.tagged_fields();
            }
            self.i16(voter.min_version);
            self.i16(voter.max_version);
            self.tagged_fields();
            self.tagged_fields();
        }
        self.tagged_fields();
    }
}
