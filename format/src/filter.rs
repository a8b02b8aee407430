//! What compaction does to batches: drops records, and rebuilds the batches that lost some.
//!
//! The caller says of each batch what becomes of it when nothing in it is kept, and of each record whether it stays
//! ([`Retention`]). What comes out:
//!
//! | the batch | comes out as |
//! |---|---|
//! | magic 2, all records kept, no horizon due | itself, byte for byte |
//! | some kept | magic 2, built anew with its codec at that codec's default level: same base and last offset, leader epoch, producer, sequences, timestamp type, flags |
//! | magic 0 or 1, some kept | the same, but base and last offset are those of the records kept, and there is no leader epoch; timestamps of magic 0 become none |
//! | none kept, to be retained | magic 2 only: its header alone, 61 bytes |
//! | none kept otherwise | nothing |
//!
//! A *delete horizon* is the time after which the tombstones and markers in a batch may go. A batch gets one when it is
//! first kept with a tombstone in it, or with the marker of a transaction of which nothing else is left.
//!
//! Checksums are not looked at: the caller has done so, or rebuilds what was damaged under a right one.
//!
//! Source: Kafka `MemoryRecords.filterTo`.

mod error;

use bytes::BytesMut;

pub use error::FilterError;

use crate::batch::Batch;
use crate::batch::builder::{BatchOptions, Producer, RecordBatchBuilder};
use crate::batches::Batches;
use crate::codec::{Codec, Magic, TimestampType};
use crate::error::{DecodeError, EncodeError};
use crate::number::{Offset, ProducerEpoch, ProducerId, Timestamp};
use crate::record::Record;
use crate::records::Records;

/// What becomes of a batch, seen before its records are.
#[allow(clippy::exhaustive_enums, reason = "Kafka's three answers")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BatchFate {
    /// It goes, whatever is in it; it is not decoded.
    Delete,
    /// Its records are looked at; it goes if none of them stays.
    DeleteEmpty,
    /// Its records are looked at; its header stays if none of them does.
    RetainEmpty,
}

/// Answers of a filter for batches and their records.
pub trait Retention {
    /// What becomes of a batch.
    fn batch(&mut self, batch: &Batch<'_>) -> BatchFate;

    /// Whether the batch just asked about holds the marker of a transaction without other records, so that it needs a
    /// delete horizon like a tombstone. Default: no.
    fn is_marker_of_empty_transaction(&mut self, batch: &Batch<'_>) -> bool {
        let _ = batch;
        false
    }

    /// Whether a record of the batch just asked about stays. Asked in order, once for each record.
    fn record(&mut self, batch: &Batch<'_>, record: &Record<'_>) -> bool;
}

/// The settings of a filter.
#[allow(clippy::exhaustive_structs, reason = "to be used with `..FilterOptions::default()`")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilterOptions {
    /// The time of the round, read once. Default: 0.
    pub now: Timestamp,
    /// How long tombstones stay after the round that first keeps them, in milliseconds. Default: 86 400 000, a day.
    pub delete_retention_ms: i64,
    /// The most bytes that the records of one batch may have decompressed. Default: `i32::MAX`, as much as an
    /// uncompressed batch can hold; what lies in a log may be that large.
    pub decompressed_limit: usize,
    /// Filtering stops behind the batch with which more than this many bytes have come out. Default: never.
    pub output_limit: usize,
}

impl Default for FilterOptions {
    fn default() -> FilterOptions {
        FilterOptions {
            now: Timestamp::new(0),
            delete_retention_ms: 86_400_000,
            decompressed_limit: i32::MAX as usize,
            output_limit: usize::MAX,
        }
    }
}

/// What a filter did.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filtered {
    /// Bytes of the batches that were dealt with; the next call goes on behind them.
    pub bytes_read: usize,
    /// Records that were looked at.
    pub records_read: u64,
    /// Bytes that came out.
    pub bytes_retained: usize,
    /// Records that came out.
    pub records_retained: u64,
    /// The largest offset of what came out: of records, or the last one of a batch that came out as it was or as a header.
    pub max_offset: Option<Offset>,
    /// The largest timestamp of the batches that came out.
    pub max_timestamp: Option<Timestamp>,
    /// The last offset of the first of them that has it.
    pub offset_of_max_timestamp: Option<Offset>,
}

impl Filtered {
    fn note(&mut self, max_offset: Offset, timestamp: Option<Timestamp>, last_offset: Offset) {
        self.max_offset = self.max_offset.max(Some(max_offset));
        // No timestamp, and a negative one, are no largest one.
        if timestamp.map_or(-1, Timestamp::get) > self.max_timestamp.map_or(-1, Timestamp::get) {
            self.max_timestamp = timestamp;
            self.offset_of_max_timestamp = Some(last_offset);
        }
    }
}

/// Filters batches; keeps its memory from call to call.
///
/// ```
/// use bytes::BytesMut;
/// use kseg_format::{Batch, BatchFate, BatchFilter, BatchOptions, Batches, FilterOptions, Record, RecordBatchBuilder, Retention};
///
/// struct Keyed;
///
/// impl Retention for Keyed {
///     fn batch(&mut self, _: &Batch<'_>) -> BatchFate {
///         BatchFate::DeleteEmpty
///     }
///
///     fn record(&mut self, _: &Batch<'_>, record: &Record<'_>) -> bool {
///         record.key().is_some()
///     }
/// }
///
/// let mut builder = RecordBatchBuilder::new(BatchOptions::default());
/// builder.append(None, Some(b"key"), Some(b"value"), &[])?;
/// builder.append(None, None, Some(b"nobody's"), &[])?;
/// let mut batches = BytesMut::new();
/// builder.finish(&mut batches)?;
///
/// let mut out = BytesMut::new();
/// let filtered = BatchFilter::new(FilterOptions::default()).run(&batches, &mut Keyed, &mut out)?;
/// assert_eq!((filtered.records_read, filtered.records_retained), (2, 1));
/// let rebuilt = Batch::parse(&out)?;
/// assert_eq!((rebuilt.records_count(), rebuilt.last_offset().get()), (Some(1), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BatchFilter {
    options: FilterOptions,
    builder: RecordBatchBuilder,
    scratch: Vec<u8>,
    /// For each record of a batch whether it stays.
    kept: Vec<bool>,
}

/// What a look at a batch's records told.
struct Kept {
    count: u64,
    tombstone: bool,
    first: i64,
    last: i64,
}

impl BatchFilter {
    /// A filter with these settings.
    pub fn new(options: FilterOptions) -> BatchFilter {
        BatchFilter {
            options,
            builder: RecordBatchBuilder::new(BatchOptions::default()),
            scratch: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// The settings, to be changed.
    pub fn options_mut(&mut self) -> &mut FilterOptions {
        &mut self.options
    }

    /// Filters the whole batches in `batches` and appends what stays to `out`. A batch that is cut at the end is left
    /// out, and not counted.
    ///
    /// # Errors
    /// [`FilterError`], with the place of the batch in `batches`. What came out of the batches in front of it stands in
    /// `out`.
    pub fn run(
        &mut self,
        batches: &[u8],
        retention: &mut impl Retention,
        out: &mut BytesMut,
    ) -> Result<Filtered, FilterError> {
        let start = out.len();
        let mut done = Filtered::default();
        let mut walk = Batches::new(batches);
        while let Some(batch) = walk.next() {
            let position = done.bytes_read;
            let batch = batch.map_err(|source| FilterError::Decode { position, source })?;
            let before = out.len();
            if let Err(fault) = self.one(&batch, retention, out, &mut done) {
                out.truncate(before);
                return Err(fault.at(position, &batch));
            }
            done.bytes_read = walk.position();
            done.bytes_retained = out.len() - start;
            if done.bytes_retained > self.options.output_limit {
                break;
            }
        }
        Ok(done)
    }

    fn one(
        &mut self,
        batch: &Batch<'_>,
        retention: &mut impl Retention,
        out: &mut BytesMut,
        done: &mut Filtered,
    ) -> Result<(), Fault> {
        let fate = retention.batch(batch);
        if fate == BatchFate::Delete {
            return Ok(());
        }
        let marker = retention.is_marker_of_empty_transaction(batch);
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = batch
            .records(&mut scratch, self.options.decompressed_limit)
            .map_err(Fault::from)
            .and_then(|records| {
                let kept = self.look_at(batch, records.clone(), retention, &mut done.records_read)?;
                if kept.count > 0 {
                    self.keep(batch, records, &kept, marker, out, done)
                } else if fate == BatchFate::RetainEmpty {
                    self.header_alone(batch, out, done)
                } else {
                    Ok(())
                }
            });
        self.scratch = scratch;
        result
    }

    /// Asks for each record whether it stays.
    fn look_at(
        &mut self,
        batch: &Batch<'_>,
        records: Records<'_>,
        retention: &mut impl Retention,
        read: &mut u64,
    ) -> Result<Kept, DecodeError> {
        let mut kept = Kept { count: 0, tombstone: false, first: 0, last: 0 };
        self.kept.clear();
        for record in records {
            let record = record?;
            *read += 1;
            let stays = retention.record(batch, &record);
            self.kept.push(stays);
            if !stays {
                continue;
            }
            if kept.count == 0 {
                (kept.first, kept.last) = (record.offset, record.offset);
            }
            kept.count += 1;
            kept.tombstone |= record.value.is_none();
            kept.last = kept.last.max(record.offset);
        }
        Ok(kept)
    }

    /// The batch as it is, or anew.
    fn keep(
        &mut self,
        batch: &Batch<'_>,
        records: Records<'_>,
        kept: &Kept,
        marker: bool,
        out: &mut BytesMut,
        done: &mut Filtered,
    ) -> Result<(), Fault> {
        done.records_retained += kept.count;
        let horizon = batch.delete_horizon();
        let horizon_due = horizon.is_none() && (kept.tombstone || marker);
        if batch.magic() == Magic::V2 && kept.count == self.kept.len() as u64 && !horizon_due {
            out.extend_from_slice(batch.as_bytes());
            done.note(batch.last_offset(), batch.max_timestamp(), batch.last_offset());
            return Ok(());
        }
        let horizon = if horizon_due {
            Some(self.options.now.get().wrapping_add(self.options.delete_retention_ms))
        } else {
            horizon.map(Timestamp::get)
        };
        self.rebuild(batch, records, kept, horizon.filter(|horizon| *horizon >= 0), out, done)
    }

    fn rebuild(
        &mut self,
        batch: &Batch<'_>,
        records: Records<'_>,
        kept: &Kept,
        horizon: Option<i64>,
        out: &mut BytesMut,
        done: &mut Filtered,
    ) -> Result<(), Fault> {
        let header = batch.header();
        let legacy = header.magic().is_legacy();
        let timestamp_type = header.timestamp_type().unwrap_or(TimestampType::CreateTime);
        *self.builder.options_mut() = BatchOptions {
            codec: header.codec()?,
            timestamp_type,
            log_append_time: header.max_timestamp(),
            base_offset: Offset::new(if legacy { kept.first } else { header.raw_base_offset() }),
            last_offset: if legacy { None } else { Some(header.last_offset()) },
            delete_horizon: horizon.map(Timestamp::new),
            ..options_of(batch)
        };
        for (record, stays) in records.zip(&self.kept) {
            let record = record?;
            if *stays {
                self.builder.append_record(record.offset(), &record)?;
            }
        }
        let max_timestamp = self.builder.max_timestamp();
        self.builder.finish(out)?;
        let last_offset = if legacy { Offset::new(kept.last) } else { header.last_offset() };
        done.note(Offset::new(kept.last), max_timestamp, last_offset);
        Ok(())
    }

    fn header_alone(
        &mut self,
        batch: &Batch<'_>,
        out: &mut BytesMut,
        done: &mut Filtered,
    ) -> Result<(), Fault> {
        if batch.magic().is_legacy() {
            return Err(Fault::EmptiedLegacy);
        }
        *self.builder.options_mut() = BatchOptions {
            codec: Codec::None,
            timestamp_type: batch.attributes().timestamp_type(),
            base_offset: Offset::new(batch.raw_base_offset()),
            ..options_of(batch)
        };
        self.builder.finish_empty(out, batch.last_offset(), batch.max_timestamp())?;
        done.note(batch.last_offset(), batch.max_timestamp(), batch.last_offset());
        Ok(())
    }
}

/// Leader epoch, producer and flags of a batch.
fn options_of(batch: &Batch<'_>) -> BatchOptions {
    let header = batch.header();
    BatchOptions {
        leader_epoch: header.leader_epoch(),
        producer: Some(Producer {
            id: header.producer_id().unwrap_or(ProducerId::new(-1)),
            epoch: header.producer_epoch().unwrap_or(ProducerEpoch::new(-1)),
            base_sequence: header.base_sequence(),
        }),
        transactional: header.is_transactional(),
        control: header.is_control(),
        ..BatchOptions::default()
    }
}

/// An error of a batch whose place is not known yet.
#[derive(Debug)]
enum Fault {
    Decode(DecodeError),
    Encode(EncodeError),
    EmptiedLegacy,
}

impl Fault {
    fn at(self, position: usize, batch: &Batch<'_>) -> FilterError {
        match self {
            Fault::Decode(source) => FilterError::Decode { position, source },
            Fault::Encode(source) => FilterError::Encode { position, source },
            Fault::EmptiedLegacy => FilterError::EmptiedLegacy { position, magic: batch.magic() },
        }
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Fault {
        Fault::Decode(error)
    }
}

impl From<EncodeError> for Fault {
    fn from(error: EncodeError) -> Fault {
        Fault::Encode(error)
    }
}
