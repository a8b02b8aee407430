//! What the tests share.

use bytes::BytesMut;
use kseg_format::{Batch, BatchOptions, DecodeError, Offset, Record, RecordBatchBuilder, Timestamp};

/// No payload of the tests is larger decompressed.
pub(crate) const LIMIT: usize = 64 << 20;

/// Bytes from hexadecimal digits, blanks between them ignored.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap() as u8).collect();
    assert_eq!(digits.len() % 2, 0);
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A record that owns its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) offset: i64,
    pub(crate) timestamp: Option<i64>,
    pub(crate) sequence: Option<i32>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(crate) size: usize,
}

impl Owned {
    pub(crate) fn of(record: &Record<'_>) -> Owned {
        Owned {
            offset: record.offset().get(),
            timestamp: record.timestamp().map(Timestamp::get),
            sequence: record.sequence().map(|sequence| sequence.get()),
            key: record.key().map(<[u8]>::to_vec),
            value: record.value().map(<[u8]>::to_vec),
            headers: record
                .headers()
                .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                .collect(),
            size: record.size(),
        }
    }
}

/// The records of the first batch.
pub(crate) fn records(bytes: &[u8]) -> Result<Vec<Owned>, DecodeError> {
    let mut scratch = Vec::new();
    let batch = Batch::parse(bytes)?;
    batch.records(&mut scratch, LIMIT)?.map(|record| record.map(|record| Owned::of(&record))).collect()
}

/// How many records come before the error, and Kafka's name for it.
pub(crate) fn failure(bytes: &[u8]) -> (usize, &'static str) {
    let mut scratch = Vec::new();
    let batch = Batch::parse(bytes).expect("a framed batch");
    let records = match batch.records(&mut scratch, LIMIT) {
        Ok(records) => records,
        Err(error) => return (0, error.kafka_name()),
    };
    let mut count = 0;
    for record in records {
        match record {
            Ok(_) => count += 1,
            Err(error) => return (count, error.kafka_name()),
        }
    }
    panic!("{count} records and no error");
}

pub(crate) fn offsets(bytes: &[u8]) -> Vec<i64> {
    records(bytes).unwrap().iter().map(|record| record.offset).collect()
}

pub(crate) fn timestamps(bytes: &[u8]) -> Vec<Option<i64>> {
    records(bytes).unwrap().iter().map(|record| record.timestamp).collect()
}

/// Timestamp, key and value of a record.
pub(crate) type Row<'a> = (i64, Option<&'a [u8]>, Option<&'a [u8]>);

/// A batch of these records with these options.
pub(crate) fn build(options: BatchOptions, records: &[Row<'_>]) -> BytesMut {
    let mut builder = RecordBatchBuilder::new(options);
    for (timestamp, key, value) in records {
        builder.append(Timestamp::from_raw(*timestamp), *key, *value, &[]).unwrap();
    }
    let mut out = BytesMut::new();
    let size = builder.finish(&mut out).unwrap();
    assert_eq!(size.unwrap_or(0), out.len());
    out
}

/// Three records k0 v0 to k2 v2 at times 10, 11, 12.
pub(crate) fn three(options: BatchOptions) -> BytesMut {
    build(
        options,
        &[(10, Some(b"k0"), Some(b"v0")), (11, Some(b"k1"), Some(b"v1")), (12, Some(b"k2"), Some(b"v2"))],
    )
}

/// Changes bytes of a batch of magic 2 and makes its length and checksum right again.
pub(crate) fn forge(batch: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = batch.to_vec();
    change(&mut bytes);
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// A batch of magic 2 around these record bytes, with a right checksum.
pub(crate) fn around(count: i32, last_offset_delta: i32, records: &[u8]) -> Vec<u8> {
    forge(&three(BatchOptions::default()), |bytes| {
        bytes.truncate(61);
        bytes.extend_from_slice(records);
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        bytes[23..27].copy_from_slice(&last_offset_delta.to_be_bytes());
    })
}

pub(crate) fn at(offset: i64) -> BatchOptions {
    BatchOptions { base_offset: Offset::new(offset), ..BatchOptions::default() }
}

/// Offset, time, and the value's length and first byte.
#[cfg(feature = "gzip")]
pub(crate) type Seen = (i64, Option<i64>, usize, u8);

/// Records, and the error that ends them.
#[cfg(feature = "gzip")]
pub(crate) type Rows = (Vec<Seen>, Option<DecodeError>);

#[cfg(feature = "gzip")]
fn seen(record: &Record<'_>) -> Seen {
    let value = record.value().unwrap();
    (record.offset().get(), record.timestamp().map(Timestamp::get), value.len(), value[0])
}

#[cfg(feature = "gzip")]
pub(crate) fn whole(batch: &Batch<'_>, limit: usize) -> Rows {
    let (mut rows, mut scratch) = (Vec::new(), Vec::new());
    match batch.records(&mut scratch, limit) {
        Err(error) => (rows, Some(error)),
        Ok(mut records) => {
            let end = records.try_for_each(|record| {
                rows.push(seen(&record?));
                Ok(())
            });
            (rows, end.err())
        }
    }
}

#[cfg(feature = "gzip")]
pub(crate) fn streamed(batch: &Batch<'_>, limit: usize) -> Rows {
    let mut rows = Vec::new();
    match batch.stream_records(limit) {
        Err(error) => (rows, Some(error)),
        Ok(mut stream) => {
            while let Some(record) = stream.next() {
                match record {
                    Ok(record) => rows.push(seen(&record)),
                    Err(error) => {
                        assert!(stream.next().is_none());
                        return (rows, Some(error));
                    }
                }
            }
            (rows, None)
        }
    }
}
