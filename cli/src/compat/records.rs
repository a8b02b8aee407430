//! `.log` files as Kafka's tool dumps them: a line a batch, a line a record.
//!
//! Source: Kafka 4.3.1 `DumpLogSegments.dumpLog`, `printBatchLevel`.

use std::io::Write;

use kseg_format::{Batch, DecodeError, Record, Sequence, Timestamp};

use super::abort::Abort;
use super::control;
use super::dump_log::Findings;
use super::java;
use super::legacy;
use super::log_file::{self, FileBatch, LogFile};
use super::options::Options;

/// Decompressed bytes of a batch at most: what the arrays of the original can hold.
const DECOMPRESSED_MAX: usize = i32::MAX as usize;

/// Dumps a `.log` file.
pub(super) fn dump(
    file: &str,
    options: &Options,
    out: &mut impl Write,
    findings: &mut Findings,
) -> Result<(), Abort> {
    let max_bytes = options.max_bytes()?;
    writeln!(out, "Log starting offset: {}", java::base_offset(file)?)?;
    let log = LogFile::open(file)?;
    let slice = log.slice(0, max_bytes)?;
    let mut records = RecordLines { file, options, last_offset: -1, scratch: Vec::new(), findings };
    let mut position = 0;
    while let Some(batch) = log.batch(slice, position)? {
        batch_line(&batch, out)?;
        if options.deep {
            records.print(&batch, out)?;
        }
        position += batch.size();
    }
    let rest = slice.len() - position;
    if rest > 0 && max_bytes == i32::MAX {
        writeln!(out, "Found {rest} invalid bytes at the end of {}", java::name(file))?;
    }
    Ok(())
}

/// Largest timestamp of the records of a batch, -1 where there is none.
pub(super) fn largest_timestamp(batch: &FileBatch<'_>) -> Result<i64, Abort> {
    let bytes = batch.load()?;
    let mut largest = -1;
    let mut scratch = Vec::new();
    for record in
        parse(batch, &bytes, &mut Vec::new())?.records(&mut scratch, DECOMPRESSED_MAX).map_err(failed)?
    {
        largest = largest.max(timestamp(&record.map_err(failed)?));
    }
    Ok(largest)
}

/// The batch in a form that the format crate reads: magics above 2 are taken for 2.
fn parse<'b>(batch: &FileBatch<'_>, bytes: &'b [u8], copy: &'b mut Vec<u8>) -> Result<Batch<'b>, Abort> {
    let bytes = if batch.magic() > 2 {
        *copy = log_file::as_magic_2(bytes);
        copy
    } else {
        bytes
    };
    Batch::parse(bytes).map_err(failed)
}

/// The line of a batch. What is asked of it before a field that raises stays printed.
fn batch_line(batch: &FileBatch<'_>, out: &mut impl Write) -> Result<(), Abort> {
    let (label, max_timestamp, codec, crc, valid);
    if batch.is_legacy() {
        write!(out, "offset: {}", batch.last_offset()?)?;
        let header = batch.legacy_header()?;
        (label, max_timestamp) = (header.timestamp_type(), header.max_timestamp());
        (codec, crc) = (header.codec()?, header.crc());
        valid = legacy::is_valid(&batch.load()?, crc);
    } else {
        let header = batch.header()?;
        write!(
            out,
            "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} producerEpoch: {} \
             partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: ",
            header.base_offset(),
            header.last_offset(),
            header.count(),
            header.base_sequence(),
            header.last_sequence(),
            header.producer_id(),
            header.producer_epoch(),
            header.leader_epoch(),
            header.is_transactional(),
            header.is_control(),
        )?;
        match header.delete_horizon() {
            Some(horizon) => write!(out, "OptionalLong[{horizon}]")?,
            None => write!(out, "OptionalLong.empty")?,
        }
        (label, max_timestamp) = (header.timestamp_type(), header.max_timestamp());
        (codec, crc) = (header.codec()?, header.crc());
        valid = log_file::is_valid(&batch.load()?);
    }
    writeln!(
        out,
        " position: {} {label}: {max_timestamp} size: {} magic: {} compresscodec: {codec} crc: {crc} isvalid: {valid}",
        batch.position(),
        batch.size(),
        batch.magic(),
    )?;
    Ok(())
}

/// The record lines of a file.
#[derive(Debug)]
struct RecordLines<'o> {
    file: &'o str,
    options: &'o Options,
    /// Offset of the record before; -1 in front of the first.
    last_offset: i64,
    scratch: Vec<u8>,
    findings: &'o mut Findings,
}

impl RecordLines<'_> {
    fn print(&mut self, batch: &FileBatch<'_>, out: &mut impl Write) -> Result<(), Abort> {
        let bytes = batch.load()?;
        let mut copy = Vec::new();
        let mut scratch = std::mem::take(&mut self.scratch);
        let parsed = parse(batch, &bytes, &mut copy)?;
        let kind = if batch.is_legacy() {
            let header = batch.legacy_header()?;
            let checksums = if header.is_compressed() {
                parsed.records(&mut scratch, DECOMPRESSED_MAX).map_err(failed)?;
                legacy::checksums(&scratch)
            } else {
                legacy::checksums(&bytes)
            };
            Kind { label: header.timestamp_type(), control: false, checksums: Some(checksums) }
        } else {
            let header = batch.header()?;
            if header.is_compressed() {
                // The plain iterator hands out nothing of a compressed batch before it has read all of it.
                for record in parsed.records(&mut scratch, DECOMPRESSED_MAX).map_err(failed)? {
                    record.map_err(failed)?;
                }
            }
            Kind { label: header.timestamp_type(), control: header.is_control(), checksums: None }
        };
        let count = parsed.records_count();
        let mut records =
            parsed.records(&mut scratch, DECOMPRESSED_MAX).map_err(failed)?.enumerate().peekable();
        while let Some((n, record)) = records.next() {
            // The last record is not handed out before what lies behind it was looked at.
            if count.is_some_and(|count| i64::from(count) == n as i64 + 1)
                && let Some((_, Err(error))) = records.peek()
            {
                return Err(failed(error.clone()));
            }
            self.line(&kind, n, &record.map_err(failed)?, out)?;
        }
        self.scratch = scratch;
        Ok(())
    }

    fn line(
        &mut self,
        kind: &Kind,
        n: usize,
        record: &Record<'_>,
        out: &mut impl Write,
    ) -> Result<(), Abort> {
        let offset = record.offset().get();
        if offset != self.last_offset.wrapping_add(1) {
            self.findings.gap(self.file, self.last_offset, offset);
        }
        self.last_offset = offset;
        let mut prefix = "| ";
        if !self.options.skip_metadata {
            write!(
                out,
                "{prefix}offset: {offset} {}: {} keySize: {} valueSize: {}",
                kind.label,
                timestamp(record),
                size(record.key()),
                size(record.value()),
            )?;
            prefix = " ";
            match &kind.checksums {
                Some(checksums) => {
                    let (valid, crc) = checksums.get(n).copied().unwrap_or((false, 0));
                    write!(out, " isValid: {valid} crc: {crc}")?;
                }
                None => {
                    write!(out, " sequence: {} headerKeys: [", Sequence::to_raw(record.sequence()))?;
                    for (n, header) in record.headers().enumerate() {
                        let comma = if n > 0 { "," } else { "" };
                        write!(out, "{comma}{}", java::utf8(header.key))?;
                    }
                    write!(out, "]")?;
                }
            }
            if kind.control {
                control::print(record, out)?;
            }
        }
        if self.options.print && !kind.control {
            if let Some(key) = record.key() {
                write!(out, "{prefix}key: {}", java::utf8(key))?;
                prefix = " ";
            }
            if let Some(value) = record.value() {
                write!(out, "{prefix}payload: {}", java::utf8(value))?;
            }
        }
        writeln!(out)?;
        Ok(())
    }
}

/// What the lines of a batch's records have in common.
#[derive(Debug)]
struct Kind {
    label: &'static str,
    control: bool,
    /// Of each message of old: whether it is valid, and its checksum.
    checksums: Option<Vec<(bool, u32)>>,
}

fn timestamp(record: &Record<'_>) -> i64 {
    Timestamp::to_raw(record.timestamp())
}

fn size(field: Option<&[u8]>) -> i64 {
    field.map_or(-1, |bytes| bytes.len() as i64)
}

/// The exception of a batch or record that cannot be read.
fn failed(error: DecodeError) -> Abort {
    match error.kafka_name() {
        "CorruptRecordException" => Abort::corrupt_record(error.to_string()),
        "InvalidRecordException" => Abort::invalid_record(error.to_string()),
        "IllegalArgumentException" => Abort::illegal_argument(error.to_string()),
        _ => Abort::kafka(error.to_string()),
    }
}
