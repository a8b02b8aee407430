//! The records of a batch, one by one.

mod stream;

use std::iter::FusedIterator;

use crate::batch::Batch;
use crate::batch::header::{BATCH_OVERHEAD, BatchHeader, RECORDS_COUNT};
use crate::codec::{Codec, TimestampType};
use crate::compression::Stream;
use crate::error::{DecodeError, Expected, Found, Place};
use crate::legacy::read as legacy;
use crate::number::Sequence;
use crate::record::{Fault, RawRecord, Record, pass_record, take_record, take_usual};

pub use stream::RecordStream;

/// The records of a batch in order; ends after the first error.
///
/// As many records as the header says must be there, each exactly as long as it says, and nothing behind them. Decoding
/// allocates nothing.
#[derive(Clone, Debug)]
pub struct Records<'s> {
    inner: Inner<'s>,
}

#[derive(Clone, Debug)]
pub(crate) enum Inner<'s> {
    V2(V2Records<'s>),
    Single(legacy::Single<'s>),
    Wrapped(legacy::Wrapped<'s>),
}

impl<'s> Records<'s> {
    #[inline]
    pub(crate) fn new(inner: Inner<'s>) -> Records<'s> {
        Records { inner }
    }

    /// The next record, whatever it is. Returns another type than the iterator, so that the caller's record stays in
    /// registers.
    #[inline(never)]
    fn next_any(&mut self) -> Result<Option<Record<'s>>, DecodeError> {
        match &mut self.inner {
            Inner::V2(records) => records.next(),
            Inner::Single(record) => record.next(),
            Inner::Wrapped(records) => records.next(),
        }
        .transpose()
    }
}

impl<'s> Iterator for Records<'s> {
    type Item = Result<Record<'s>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Inner::V2(records) = &mut self.inner
            && let Some(record) = records.next_usual()
        {
            return Some(Ok(record));
        }
        self.next_any().transpose()
    }
}

impl FusedIterator for Records<'_> {}

/// What the records of a batch have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Survey {
    pub(crate) count: u64,
    /// Smallest and largest timestamp, raw.
    pub(crate) oldest: i64,
    pub(crate) newest: i64,
    /// Some record has no key.
    pub(crate) null_key: bool,
}

/// What the records of a batch of magic 2 that is not compressed have in common. `None` where one of them has a fault, or there
/// are fewer or more than the header says, or none, or a timestamp goes round; what it is, a walk from record to record tells.
#[inline]
pub(crate) fn survey(batch: &Batch<'_>) -> Option<Survey> {
    let header = batch.header();
    let count = u32::try_from(header.raw_records_count()).ok()?;
    let (oldest, newest, null_key) = pass_all(batch.as_bytes().get(BATCH_OVERHEAD..)?, count)?;
    let (oldest, newest) = match header.attributes().timestamp_type() {
        TimestampType::LogAppendTime => (header.raw_max_timestamp(), header.raw_max_timestamp()),
        TimestampType::CreateTime => {
            let base = header.raw_base_timestamp();
            (base.checked_add(oldest)?, base.checked_add(newest)?)
        }
    };
    Some(Survey { count: count.into(), oldest, newest, null_key })
}

/// Passes over `count` records, all that is in `data`: their smallest and largest timestamp delta, and whether some record has
/// no key. Not inlined, so that all it needs stays in registers.
#[inline(never)]
fn pass_all(data: &[u8], count: u32) -> Option<(i64, i64, bool)> {
    let (mut rest, mut oldest, mut newest, mut null_key) = (data, i64::MAX, i64::MIN, false);
    for _ in 0..count {
        let (record, behind) = pass_record(rest)?;
        rest = behind;
        oldest = oldest.min(record.timestamp_delta);
        newest = newest.max(record.timestamp_delta);
        null_key |= record.null_key;
    }
    (rest.is_empty() && count > 0).then_some((oldest, newest, null_key))
}

/// The records of a batch of magic 2.
#[derive(Clone, Debug)]
pub(crate) struct V2Records<'s> {
    data: &'s [u8],
    total: usize,
    left: i32,
    count: i32,
    compressed: bool,
    ended: bool,
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
    base_sequence: i32,
}

impl<'s> V2Records<'s> {
    #[inline]
    pub(crate) fn open<'a: 's>(
        batch: &Batch<'a>,
        scratch: &'s mut Vec<u8>,
        limit: usize,
    ) -> Result<V2Records<'s>, DecodeError> {
        let header = batch.header();
        let codec = header.codec()?;
        if codec == Codec::None || header.raw_records_count() == 0 {
            return V2Records::uncompressed(batch);
        }
        let mut payload = open_payload(batch, codec, limit)?;
        let decompressed = payload.read_all(scratch);
        let records = V2Records::over(header, scratch, header.raw_records_count());
        match decompressed {
            Ok(()) => Ok(records),
            // Kafka decodes while it decompresses, so a record that is wrong in front of the codec's fault comes first.
            Err(error @ DecodeError::Codec { .. }) => Err(records.definite_fault().unwrap_or(error)),
            Err(error) => Err(error),
        }
    }

    /// The records of a batch that is not compressed, or has none.
    #[inline]
    pub(crate) fn uncompressed<'a: 's>(batch: &Batch<'a>) -> Result<V2Records<'s>, DecodeError> {
        let header = batch.header();
        let count = checked_count(header)?;
        let data = if count == 0 { &[] } else { &batch.as_bytes()[BATCH_OVERHEAD..] };
        Ok(V2Records::over(header, data, count))
    }

    /// The records in these bytes, which are the batch's payload or what came out of it.
    #[inline]
    fn over(header: &BatchHeader, data: &'s [u8], count: i32) -> V2Records<'s> {
        V2Records {
            data,
            total: data.len(),
            left: count,
            count,
            compressed: header.attributes().is_compressed(),
            ended: false,
            base_offset: header.raw_base_offset(),
            base_timestamp: header.raw_base_timestamp(),
            append_time: match header.attributes().timestamp_type() {
                TimestampType::LogAppendTime => Some(header.raw_max_timestamp()),
                TimestampType::CreateTime => None,
            },
            base_sequence: header.raw_base_sequence(),
        }
    }

    /// The first fault that is none of the bytes' early end.
    #[cold]
    fn definite_fault(mut self) -> Option<DecodeError> {
        while self.left > 0 {
            self.left -= 1;
            match take_record(&mut self.data) {
                Ok(_) => {}
                Err(fault) if fault.cut => return None,
                Err(fault) => return Some(self.fault(fault)),
            }
        }
        self.end()
    }

    /// The next record with its deltas as they stand there; the end is checked as [`Records`] says.
    #[inline(always)]
    pub(crate) fn next_raw(&mut self) -> Option<Result<RawRecord<'s>, DecodeError>> {
        match self.next_usual_raw() {
            Some(record) => Some(Ok(record)),
            None => self.next_any_raw().transpose(),
        }
    }

    /// The next record if it is one that [`take_usual`] takes. `None` says nothing.
    #[inline(always)]
    fn next_usual_raw(&mut self) -> Option<RawRecord<'s>> {
        if self.left == 0 {
            return None;
        }
        let record = take_usual(&mut self.data)?;
        self.left -= 1;
        Some(record)
    }

    #[inline(never)]
    fn next_any_raw(&mut self) -> Result<Option<RawRecord<'s>>, DecodeError> {
        if self.left == 0 {
            return self.end().map_or(Ok(None), Err);
        }
        self.left -= 1;
        match take_record(&mut self.data) {
            Ok(record) => Ok(Some(record)),
            Err(fault) => Err(self.fault(fault)),
        }
    }

    #[inline]
    fn end(&mut self) -> Option<DecodeError> {
        if self.ended || self.data.is_empty() {
            return None;
        }
        self.ended = true;
        let place = self.place(self.data.len());
        let found = Found::Bytes(self.data.len() as u64);
        Some(DecodeError::invalid("end of the records", place, Expected::Bytes(0), found))
    }

    #[cold]
    fn fault(&mut self, fault: Fault) -> DecodeError {
        let got = self.count - self.left - 1;
        self.left = 0;
        self.ended = true;
        if self.data.is_empty() {
            let expected = Expected::Exactly(i64::from(self.count));
            let place = Place::Batch(RECORDS_COUNT);
            return DecodeError::invalid("records count", place, expected, Found::Value(i64::from(got)));
        }
        fault.at(|remaining| self.place(remaining))
    }

    fn place(&self, remaining: usize) -> Place {
        let at = self.total.saturating_sub(remaining);
        if self.compressed { Place::Records(at) } else { Place::Batch(BATCH_OVERHEAD + at) }
    }

    /// The timestamp of a record with this delta.
    #[inline(always)]
    pub(crate) fn timestamp(&self, delta: i64) -> i64 {
        match self.append_time {
            Some(time) => time,
            None => self.base_timestamp.wrapping_add(delta),
        }
    }

    fn next(&mut self) -> Option<Result<Record<'s>, DecodeError>> {
        let raw = self.next_raw()?;
        Some(raw.map(|raw| self.record(raw)))
    }

    /// The next record if it is one that [`take_usual`] takes. `None` says nothing.
    #[inline(always)]
    fn next_usual(&mut self) -> Option<Record<'s>> {
        let raw = self.next_usual_raw()?;
        Some(self.record(raw))
    }

    #[inline(always)]
    fn record(&self, raw: RawRecord<'s>) -> Record<'s> {
        let sequence = if self.base_sequence >= 0 {
            Sequence::new(self.base_sequence).increment(raw.offset_delta).get()
        } else {
            -1
        };
        Record {
            offset: self.base_offset.wrapping_add(i64::from(raw.offset_delta)),
            timestamp: self.timestamp(raw.timestamp_delta),
            key: raw.key,
            value: raw.value,
            headers: raw.headers,
            header_count: raw.header_count,
            sequence,
            size: raw.size,
            attributes: raw.attributes,
        }
    }
}

/// Opens the payload of a compressed batch.
fn open_payload<'a>(batch: &Batch<'a>, codec: Codec, limit: usize) -> Result<Stream<'a>, DecodeError> {
    let header = batch.header();
    // zstd, unlike the others, is not opened before the count is looked at.
    if codec == Codec::Zstd {
        checked_count(header)?;
    }
    let payload = &batch.as_bytes()[BATCH_OVERHEAD..];
    let stream = Stream::open(codec, header.magic(), payload, limit)?;
    checked_count(header)?;
    Ok(stream)
}

/// The records count if it is none below 0.
#[inline]
fn checked_count(header: &BatchHeader) -> Result<i32, DecodeError> {
    match header.raw_records_count() {
        count @ 0.. => Ok(count),
        count => Err(negative_count(count)),
    }
}

#[cold]
fn negative_count(count: i32) -> DecodeError {
    DecodeError::invalid(
        "records count",
        Place::Batch(RECORDS_COUNT),
        Expected::AtLeast(0),
        Found::Value(i64::from(count)),
    )
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::batch::builder::{BatchOptions, RecordBatchBuilder};
    use crate::batch::header::{BASE_TIMESTAMP, put_at};
    use crate::number::Timestamp;

    type Given = (i64, Option<Vec<u8>>, Option<Vec<u8>>, bool);

    /// A batch of these records; a flag gives a record a header.
    fn batch(records: &[Given]) -> BytesMut {
        let mut builder = RecordBatchBuilder::new(BatchOptions::default());
        for (time, key, value, headed) in records {
            let header: [(&[u8], Option<&[u8]>); 1] = [(b"h", None)];
            let headers = if *headed { &header[..] } else { &[] };
            let time = Some(Timestamp::new(*time));
            builder.append(time, key.as_deref(), value.as_deref(), headers).unwrap();
        }
        let mut out = BytesMut::new();
        builder.finish(&mut out).unwrap();
        out
    }

    /// What a walk from record to record says; `None` where it ends with an error.
    fn walked(batch: &Batch<'_>) -> Option<Survey> {
        let mut records = V2Records::uncompressed(batch).unwrap();
        let mut all = Survey { count: 0, oldest: i64::MAX, newest: i64::MIN, null_key: false };
        while let Some(record) = records.next_raw() {
            let record = record.ok()?;
            let time = records.timestamp(record.timestamp_delta);
            all.count += 1;
            all.oldest = all.oldest.min(time);
            all.newest = all.newest.max(time);
            all.null_key |= record.key.is_none();
        }
        Some(all)
    }

    fn parts() -> impl Strategy<Value = Option<Vec<u8>>> {
        proptest::option::of(prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..20),
            (60usize..9000).prop_map(|len| vec![7; len]),
        ])
    }

    proptest! {
        #[test]
        fn a_survey_says_what_a_walk_says(
            records in proptest::collection::vec((0i64..5000, parts(), parts(), any::<bool>()), 1..8),
            damage in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let mut bytes = batch(&records);
            let whole = damage.is_none();
            if let Some((at, byte)) = damage {
                let records = bytes.len() - BATCH_OVERHEAD;
                bytes[BATCH_OVERHEAD + at.index(records)] = byte;
            }
            let batch = Batch::parse(&bytes).unwrap();
            match survey(&batch) {
                Some(survey) => prop_assert_eq!(Some(survey), walked(&batch)),
                None => prop_assert!(!whole, "records without a fault are surveyed"),
            }
        }
    }

    #[test]
    fn a_survey_knows_no_timestamps_that_go_round() {
        let mut bytes = batch(&[(1, None, None, false), (2, None, None, true)]);
        let usual = Batch::parse(&bytes).unwrap();
        let expected = Survey { count: 2, oldest: 1, newest: 2, null_key: true };
        assert_eq!((survey(&usual), walked(&usual)), (Some(expected), Some(expected)));
        put_at(&mut bytes, BASE_TIMESTAMP, i64::MAX.to_be_bytes());
        let late = Batch::parse(&bytes).unwrap();
        assert_eq!(survey(&late), None);
        assert_eq!(walked(&late).unwrap().oldest, i64::MIN);
    }
}
