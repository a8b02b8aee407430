//! One record and its headers.

mod owned;

use std::borrow::Cow;
use std::iter::FusedIterator;

use crate::error::{DecodeError, Expected, Found, Place};
use crate::number::{Offset, Sequence, Timestamp};
use crate::varint::{self, VarintFault, Window};

pub use owned::{OwnedHeader, OwnedRecord};

/// A record, borrowed from the batch or from the buffer it was decompressed into.
///
/// Null and empty are kept apart: `None` and an empty slice. A record without a value is a tombstone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'s> {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<&'s [u8]>,
    pub(crate) value: Option<&'s [u8]>,
    pub(crate) headers: &'s [u8],
    pub(crate) header_count: u32,
    pub(crate) sequence: i32,
    pub(crate) size: u32,
    pub(crate) attributes: i8,
}

impl<'s> Record<'s> {
    /// Its number in the partition.
    #[inline]
    pub fn offset(&self) -> Offset {
        Offset::new(self.offset)
    }

    /// Its own time or, where the batch has LogAppendTime, the batch's.
    #[inline]
    pub fn timestamp(&self) -> Option<Timestamp> {
        Timestamp::from_raw(self.timestamp)
    }

    /// Its producer's number for it; `None` where the batch has no base sequence or a negative one.
    #[inline]
    pub fn sequence(&self) -> Option<Sequence> {
        Sequence::from_raw(self.sequence)
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> Option<&'s [u8]> {
        self.key
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> Option<&'s [u8]> {
        self.value
    }

    /// The headers in the order they were written, decoded as they are asked for.
    #[inline]
    pub fn headers(&self) -> Headers<'s> {
        Headers { bytes: self.headers, left: self.header_count }
    }

    /// How many headers there are.
    #[inline]
    pub fn header_count(&self) -> usize {
        self.header_count as usize
    }

    /// The bytes that the record takes before compression, its length field included; of a legacy message offset and
    /// size fields included.
    #[inline]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// The record's own attributes byte, which has no meaning yet; of a legacy message its attributes.
    #[inline]
    pub fn attributes(&self) -> i8 {
        self.attributes
    }
}

/// A record's header: a name and a value that may be null.
#[allow(clippy::exhaustive_structs, reason = "a header is this pair")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'s> {
    /// The name's bytes, which ought to be UTF-8.
    pub key: &'s [u8],
    /// The value.
    pub value: Option<&'s [u8]>,
}

impl<'s> Header<'s> {
    /// The name as text, with U+FFFD for what is no UTF-8.
    ///
    /// Half of a surrogate (`ed` and a byte from `a0` to `bf`, with the continuation byte behind it if there is one)
    /// becomes one U+FFFD, as in Java, not one for each byte.
    ///
    /// Source: Java's UTF-8 decoder, as Kafka's `RecordHeader.key` uses it.
    pub fn key_lossy(&self) -> Cow<'s, str> {
        match std::str::from_utf8(self.key) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(java_lossy(self.key)),
        }
    }
}

fn java_lossy(mut bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    loop {
        let (valid, wrong) = match std::str::from_utf8(bytes) {
            Ok(rest) => {
                text.push_str(rest);
                return text;
            }
            Err(error) => (error.valid_up_to(), error.error_len()),
        };
        // The part in front is valid, so nothing is replaced in it.
        text.push_str(&String::from_utf8_lossy(&bytes[..valid]));
        text.push('\u{fffd}');
        bytes = &bytes[valid..];
        let skip = match bytes {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
            [0xed, 0xa0..=0xbf, ..] => 2,
            _ => wrong.unwrap_or(bytes.len()),
        };
        bytes = &bytes[skip.min(bytes.len())..];
    }
}

/// The headers of a record, decoded as they are asked for. None of them is an error: they were checked with the record.
#[derive(Clone, Debug)]
pub struct Headers<'s> {
    bytes: &'s [u8],
    left: u32,
}

impl<'s> Iterator for Headers<'s> {
    type Item = Header<'s>;

    #[inline]
    fn next(&mut self) -> Option<Header<'s>> {
        self.left = self.left.checked_sub(1)?;
        // Whoever makes a record has taken all of its headers before, so this is always one.
        take_header(&mut self.bytes).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Headers<'_> {}

impl FusedIterator for Headers<'_> {}

/// What is wrong in a record, and how many bytes stood behind that place. It becomes an error with a place in a batch
/// once that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    field: &'static str,
    remaining: usize,
    expected: Expected,
    found: Found,
    /// Whether more bytes behind the last one could have made it right.
    pub(crate) cut: bool,
}

impl Fault {
    #[cold]
    fn new(field: &'static str, remaining: usize, expected: Expected, found: Found) -> Fault {
        Fault { field, remaining, expected, found, cut: false }
    }

    #[cold]
    fn varint(field: &'static str, remaining: usize, fault: VarintFault) -> Fault {
        let found = match fault {
            VarintFault::End => Found::Bytes(remaining as u64),
            VarintFault::Overlong => Found::Overlong,
        };
        let expected = Expected::Words("a variable-length integer");
        Fault { field, remaining, expected, found, cut: fault == VarintFault::End }
    }

    /// The same fault of a record that is all there, seen from bytes that go on for `more` behind it.
    #[cold]
    fn inside(mut self, more: usize) -> Fault {
        self.remaining += more;
        self.cut = false;
        self
    }

    #[cold]
    pub(crate) fn at(self, place: impl FnOnce(usize) -> Place) -> DecodeError {
        DecodeError::invalid(self.field, place(self.remaining), self.expected, self.found)
    }
}

/// A record as it stands in a batch, its deltas not added to anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RawRecord<'s> {
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i32,
    pub(crate) key: Option<&'s [u8]>,
    pub(crate) value: Option<&'s [u8]>,
    pub(crate) headers: &'s [u8],
    pub(crate) header_count: u32,
    pub(crate) size: u32,
    pub(crate) attributes: i8,
}

/// The record at the front of `data` if it is as nearly all are: without headers, its deltas and lengths of three bytes at
/// most, some bytes behind it, and nothing wrong. Numbers are taken out of eight bytes at a time, so that only a load is
/// checked; whether all of them lay inside the record shows at its end.
#[inline(always)]
pub(crate) fn take_usual<'s>(data: &mut &'s [u8]) -> Option<RawRecord<'s>> {
    let bytes = *data;
    let mut at = 0;
    let length = Window::at(bytes, at)?.take(&mut at)?;
    if length & 1 != 0 {
        return None;
    }
    let end = at + (length >> 1) as usize;
    let mut window = Window::at(bytes, at)?;
    let attributes = window.byte(&mut at);
    let timestamp_delta = varint::unzigzag32(window.take(&mut at)?);
    let offset_delta = varint::unzigzag32(window.take(&mut at)?);
    window = Window::at(bytes, at)?;
    let key = part(bytes, window.take(&mut at)?, &mut at)?;
    if key.is_some() {
        window = Window::at(bytes, at)?;
    }
    let value = part(bytes, window.take(&mut at)?, &mut at)?;
    if *bytes.get(at)? != 0 || at + 1 != end {
        return None;
    }
    *data = &bytes[end..];
    Some(RawRecord {
        timestamp_delta: i64::from(timestamp_delta),
        offset_delta,
        key,
        value,
        headers: &[],
        header_count: 0,
        size: end as u32,
        attributes: attributes as i8,
    })
}

/// What a walk keeps of a record that is only passed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Passed {
    pub(crate) timestamp_delta: i64,
    pub(crate) null_key: bool,
}

/// Passes over the record at the front of `bytes`: what it keeps of it, and the bytes behind it. `None` for one that has a
/// fault.
#[inline(always)]
pub(crate) fn pass_record(bytes: &[u8]) -> Option<(Passed, &[u8])> {
    match pass_usual(bytes) {
        None => pass_any(bytes),
        passed => passed,
    }
}

#[inline(never)]
fn pass_any(bytes: &[u8]) -> Option<(Passed, &[u8])> {
    let mut rest = bytes;
    let record = take_record(&mut rest).ok()?;
    Some((Passed { timestamp_delta: record.timestamp_delta, null_key: record.key.is_none() }, rest))
}

/// The same for a record such as [`take_usual`] takes. As there, whether all that was read lay inside the record shows at its
/// end.
#[inline(always)]
fn pass_usual(bytes: &[u8]) -> Option<(Passed, &[u8])> {
    // Looked at once: what stands in front of the value, up to its length where there is no key, is mostly in here.
    let front = bytes.first_chunk::<16>()?;
    let mut at = 0;
    let mut window = Window::at(front, at)?;
    let length = window.take(&mut at)?;
    // The next record begins where this one says that it ends: so the processor need not wait for what lies between. An odd
    // length is a negative one.
    let end = at + (length >> 1) as usize;
    let behind = bytes.get(end..)?;
    let (timestamp_delta, key) = match window.take_front(&mut at) {
        Some(front) => front,
        None => {
            window = Window::at(front, at)?;
            window.byte(&mut at);
            let timestamp_delta = window.take(&mut at)?;
            window.take(&mut at)?;
            (timestamp_delta, Window::at(bytes, at)?.take(&mut at)?)
        }
    };
    let null_key = key & 1 != 0;
    if !null_key {
        at += (key >> 1) as usize;
    }
    let value = Window::at(bytes, at)?.take(&mut at)?;
    if value & 1 == 0 {
        at += (value >> 1) as usize;
    }
    // No headers, and as long as it says.
    if at + 1 != end || bytes[at] != 0 || length & 1 != 0 {
        return None;
    }
    Some((Passed { timestamp_delta: i64::from(varint::unzigzag32(timestamp_delta)), null_key }, behind))
}

/// The bytes that a length field counts, and `at` behind them; an odd field is a negative length, which is null.
#[inline(always)]
fn part<'s>(bytes: &'s [u8], length: u32, at: &mut usize) -> Option<Option<&'s [u8]>> {
    if length & 1 != 0 {
        return Some(None);
    }
    let begin = *at;
    *at += (length >> 1) as usize;
    bytes.get(begin..*at).map(Some)
}

/// Takes a record of magic 2 off the front of `data`.
///
/// Every field is checked, headers included, and together they take exactly the record's length.
///
/// Source: Kafka `DefaultRecord.readFrom`.
pub(crate) fn take_record<'s>(data: &mut &'s [u8]) -> Result<RawRecord<'s>, Fault> {
    let start = *data;
    let mut rest = start;
    let length = match varint::take_i32(&mut rest) {
        Ok(length) => length,
        Err(fault) => return Err(Fault::varint("record length", start.len(), fault)),
    };
    if length < 0 || length as usize > rest.len() {
        let expected = Expected::Between(0, rest.len() as i64);
        let fault = Fault::new("record length", start.len(), expected, Found::Value(i64::from(length)));
        return Err(Fault { cut: length >= 0, ..fault });
    }
    let (body, after) = rest.split_at(length as usize);
    match take_body(body) {
        Ok(mut record) => {
            // A record's size fits 32 bits: its length is one, and a batch's size as well.
            record.size = (start.len() - after.len()) as u32;
            *data = after;
            Ok(record)
        }
        Err(fault) => Err(fault.inside(after.len())),
    }
}

#[inline(always)]
fn take_body(body: &[u8]) -> Result<RawRecord<'_>, Fault> {
    let Some((attributes, mut rest)) = body.split_first() else {
        return Err(Fault::new("record attributes", 0, Expected::Bytes(1), Found::Bytes(0)));
    };
    let timestamp_delta = match varint::take_i64(&mut rest) {
        Ok(delta) => delta,
        Err(fault) => return Err(Fault::varint("record timestamp delta", rest.len(), fault)),
    };
    let offset_delta = match varint::take_i32(&mut rest) {
        Ok(delta) => delta,
        Err(fault) => return Err(Fault::varint("record offset delta", rest.len(), fault)),
    };
    let key = take_bytes("record key length", &mut rest)?;
    let value = take_bytes("record value length", &mut rest)?;
    let before = rest.len();
    let count = match varint::take_i32(&mut rest) {
        Ok(count) => count,
        Err(fault) => return Err(Fault::varint("record headers count", before, fault)),
    };
    let headers = rest;
    if count != 0 {
        rest = skip_headers(before, count, rest)?;
    }
    if !rest.is_empty() {
        let expected = Expected::Exactly((body.len() - rest.len()) as i64);
        return Err(Fault::new("record length", body.len(), expected, Found::Value(body.len() as i64)));
    }
    Ok(RawRecord {
        timestamp_delta,
        offset_delta,
        key,
        value,
        headers,
        header_count: count as u32,
        size: 0,
        attributes: *attributes as i8,
    })
}

/// A length and that many bytes; a negative length is null.
#[inline(always)]
fn take_bytes<'s>(field: &'static str, rest: &mut &'s [u8]) -> Result<Option<&'s [u8]>, Fault> {
    let before = rest.len();
    let length = match varint::take_i32(rest) {
        Ok(length) => length,
        Err(fault) => return Err(Fault::varint(field, before, fault)),
    };
    if length < 0 {
        return Ok(None);
    }
    match rest.split_at_checked(length as usize) {
        Some((bytes, after)) => {
            *rest = after;
            Ok(Some(bytes))
        }
        None => {
            let expected = Expected::AtMost(rest.len() as i64);
            Err(Fault::new(field, before, expected, Found::Value(i64::from(length))))
        }
    }
}

fn skip_headers(before: usize, count: i32, mut rest: &[u8]) -> Result<&[u8], Fault> {
    if count < 0 || count as usize > rest.len() {
        let expected = Expected::Between(0, rest.len() as i64);
        return Err(Fault::new("record headers count", before, expected, Found::Value(i64::from(count))));
    }
    for _ in 0..count {
        take_header(&mut rest)?;
    }
    Ok(rest)
}

#[inline]
fn take_header<'s>(rest: &mut &'s [u8]) -> Result<Header<'s>, Fault> {
    let before = *rest;
    let Some(key) = take_bytes("header key length", rest)? else {
        let mut again = before;
        let length = varint::take_i32(&mut again).unwrap_or(-1);
        let expected = Expected::AtLeast(0);
        return Err(Fault::new("header key length", before.len(), expected, Found::Value(i64::from(length))));
    };
    let value = take_bytes("header value length", rest)?;
    Ok(Header { key, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lossy(bytes: &[u8]) -> String {
        Header { key: bytes, value: None }.key_lossy().into_owned()
    }

    #[test]
    fn format_edge_158_header_names_that_are_no_utf8() {
        assert_eq!(lossy(&[0xed, 0xa0, 0x80]), "\u{fffd}");
        assert_eq!(lossy(&[0xed, 0xbf]), "\u{fffd}");
        assert_eq!(lossy(&[0xed, 0xbf, 0x2a]), "\u{fffd}*");
        assert_eq!(lossy(&[0xe0, 0x80, 0x80]), "\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(lossy(&[0xf4, 0x90, 0x80, 0x80]), "\u{fffd}".repeat(4));
        assert_eq!(lossy(&[0xf0, 0x9f, 0x98]), "\u{fffd}");
        assert_eq!(lossy(&[0xe2, 0x82]), "\u{fffd}");
        assert_eq!(lossy(&[0x61, 0xff, 0x62]), "a\u{fffd}b");
        assert_eq!(lossy("é漢".as_bytes()), "é漢");
    }

    #[test]
    fn format_edge_30_negative_lengths_are_null_and_attributes_are_kept() {
        // Length 6: attributes ff, deltas 0 and -1, key length -2, value length -9, no headers.
        let mut data = &[0x0c, 0xff, 0x00, 0x01, 0x03, 0x11, 0x00][..];
        let record = take_record(&mut data).unwrap();
        assert_eq!((record.key, record.value, record.attributes), (None, None, -1));
        assert_eq!((record.offset_delta, record.size), (-1, 7));
        assert!(data.is_empty());
    }

    /// A record of these parts, its length field `off` too large, with bytes behind it.
    fn record(deltas: (i64, i64), key: Option<&[u8]>, value: Option<&[u8]>, off: i64) -> Vec<u8> {
        let mut body = vec![7];
        let put = |bytes: &mut Vec<u8>, number: i64| {
            let mut at = bytes.len();
            bytes.resize(at + varint::size(number), 0);
            varint::put(bytes, &mut at, number);
        };
        put(&mut body, deltas.0);
        put(&mut body, deltas.1);
        for part in [key, value] {
            put(&mut body, part.map_or(-1, |part| part.len() as i64));
            body.extend(part.unwrap_or_default());
        }
        body.push(0);
        let mut bytes = Vec::new();
        put(&mut bytes, body.len() as i64 + off);
        bytes.extend(body);
        bytes.extend([0; 16]);
        bytes
    }

    const LONG: &[u8] = &[9; 10_000];

    #[test]
    fn usual_records_are_taken_at_once_and_as_all_others_are() {
        let parts = [None, Some(0), Some(1), Some(63), Some(64), Some(8191), Some(8192), Some(10_000)];
        let parts = parts.map(|len| len.map(|len| &LONG[..len]));
        for delta in [0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8193, 1_048_575, -1_048_576] {
            for (key, value) in parts.iter().flat_map(|key| parts.map(|value| (*key, value))) {
                for deltas in [(delta, 0), (0, delta), (delta, delta)] {
                    let bytes = record(deltas, key, value, 0);
                    let (mut usual, mut any) = (&bytes[..], &bytes[..]);
                    let expected = take_record(&mut any).unwrap();
                    assert_eq!((expected.key, expected.value, expected.attributes), (key, value, 7));
                    assert_eq!(take_usual(&mut usual), Some(expected));
                    assert_eq!(usual, any);
                    let passed = Passed { timestamp_delta: deltas.0, null_key: key.is_none() };
                    let size = expected.size as usize;
                    assert_eq!(pass_usual(&bytes), Some((passed, &bytes[size..])));
                    assert_eq!(pass_any(&bytes), Some((passed, &bytes[size..])));
                    assert_eq!(pass_record(&bytes), Some((passed, &bytes[size..])));
                }
            }
        }
    }

    #[test]
    fn what_is_not_usual_is_not_taken_at_once() {
        let refused = |bytes: &[u8]| {
            let mut data = bytes;
            assert_eq!((take_usual(&mut data), pass_usual(bytes)), (None, None), "{bytes:?}");
            assert_eq!(data, bytes);
        };
        // A delta of four bytes, and lengths that do not fit.
        refused(&record((1_048_576, 0), None, None, 0));
        refused(&record((0, -1_048_577), None, None, 0));
        for off in [-100, -2, -1, 1, 2] {
            refused(&record((0, 0), Some(b"key"), Some(b"value"), off));
            refused(&record((0, 0), None, Some(b"value"), off));
        }
        // A header, and nothing behind the record.
        let mut bytes = record((0, 0), Some(b"key"), Some(b"value"), 0);
        let end = bytes.len() - 16;
        bytes[end - 1] = 2;
        refused(&bytes);
        bytes[end - 1] = 0;
        refused(&bytes[..5]);
    }

    #[test]
    fn the_place_of_a_fault_counts_from_the_front() {
        // Length 8, of which a key of 105 bytes cannot come.
        let bytes = [0x10, 0x00, 0x00, 0x00, 0xd2, 0x01, 0x61, 0x00, 0x00];
        let mut data = &bytes[..];
        let error = take_record(&mut data).unwrap_err().at(|rest| Place::Batch(61 + bytes.len() - rest));
        assert_eq!(
            error.to_string(),
            "record key length at byte 65 of the batch: expected at most 3, found 105"
        );
        assert_eq!(error.kafka_name(), "InvalidRecordException");
    }
}
