//! The lines of a dump, as text for people or as JSON.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use kseg_format::{
    Batch, BatchHeader, ControlKey, ControlType, EndTransactionMarker, LeaderEpoch, Offset, ProducerEpoch,
    ProducerId, Record, Sequence, Timestamp, TimestampType,
};

use super::problem::Problem;
use crate::error::{Error, Result};
use crate::json::Line;
use crate::time;

/// Bytes of a key or value that are shown where they may be shortened.
const SHOWN: usize = 80;

/// Bytes of lines that are written at once.
const LINES_SIZE: usize = 64 * 1024;

/// Where the lines go, and how many problems were told.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    full: bool,
    lines: Vec<u8>,
    problems: u64,
}

/// A problem with its place.
#[derive(Debug)]
pub(super) struct Finding<'p> {
    pub(super) problem: Problem,
    pub(super) path: &'p Path,
    pub(super) place: Place,
    pub(super) offset: Option<i64>,
    pub(super) expected: String,
    pub(super) found: String,
}

/// Where in a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// Bytes from its start.
    Byte(u64),
    /// A line, counted from 1.
    Line(u64),
}

/// A named part of an entry. As text it is `name=value`, and left out where there is none.
#[derive(Debug)]
pub(super) enum Field<'f> {
    Number(&'static str, i64),
    Maybe(&'static str, Option<i64>),
    /// Milliseconds: a time for people, `ts` in JSON.
    Time(Option<i64>),
    Text(&'static str, Option<&'f str>),
}

impl Report {
    pub(super) fn new(json: bool, full: bool) -> Report {
        Report { json, full, lines: Vec::with_capacity(2 * LINES_SIZE), problems: 0 }
    }

    /// Problems told so far, those for information aside.
    pub(super) fn problems(&self) -> u64 {
        self.problems
    }

    /// Writes what is waiting.
    pub(super) fn send(&mut self) -> Result<()> {
        let mut out = io::stdout().lock();
        let sent = out.write_all(&self.lines).and_then(|()| out.flush());
        self.lines.clear();
        sent.map_err(Error::output)
    }

    fn sent_if_many(&mut self) -> Result<()> {
        if self.lines.len() < LINES_SIZE { Ok(()) } else { self.send() }
    }

    fn text(&mut self, line: &str) -> Result<()> {
        self.lines.extend_from_slice(line.as_bytes());
        self.lines.push(b'\n');
        self.sent_if_many()
    }

    /// The heading of a file; JSON has none.
    pub(super) fn heading(&mut self, path: &Path, base: Option<Offset>, size: u64) -> Result<()> {
        if self.json {
            return Ok(());
        }
        let base = base.map_or(String::new(), |base| format!(", base offset {base}"));
        self.text(&format!("{}: {size} bytes{base}", path.display()))
    }

    /// The heading of a file whose name begins with an offset; one that does not is a problem.
    pub(super) fn named(&mut self, path: &Path, base: Option<Offset>, size: u64) -> Result<()> {
        self.heading(path, base, size)?;
        if base.is_some() {
            return Ok(());
        }
        self.finding(Finding {
            problem: Problem::FileName,
            path,
            place: Place::Byte(0),
            offset: None,
            expected: "a name of 20 digits".to_owned(),
            found: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        })
    }

    /// The last line of a file. `what` is counted, `problems` is the count from before the file.
    pub(super) fn file_end(&mut self, path: &Path, what: &str, count: u64, problems: u64) -> Result<()> {
        let problems = self.problems - problems;
        if self.json {
            Line::new(&mut self.lines, "file")
                .text("path", &path.to_string_lossy())
                .number(what, count)
                .number("problems", problems)
                .end();
            return self.sent_if_many();
        }
        let problems = if problems == 0 { "no problems".to_owned() } else { format!("problems: {problems}") };
        self.text(&format!("  {count} {what}, {problems}"))
    }

    /// A batch and whether its checksum is right.
    pub(super) fn batch(&mut self, path: &Path, position: u64, batch: &Batch<'_>, valid: bool) -> Result<()> {
        let codec = batch.codec().map_or_else(|_| "unknown".to_owned(), |codec| codec.to_string());
        let kind = batch.timestamp_type().map(|kind| match kind {
            TimestampType::LogAppendTime => "append",
            TimestampType::CreateTime => "create",
        });
        if self.json {
            Line::new(&mut self.lines, "batch")
                .text("file", &path.to_string_lossy())
                .number("pos", position)
                .maybe("base", batch.base_offset().map(Offset::get))
                .number("last", batch.last_offset().get())
                .maybe("count", batch.records_count())
                .number("size", batch.size() as u64)
                .number("magic", magic(batch))
                .text("codec", &codec)
                .text("ts_type", kind.unwrap_or("none"))
                .maybe("max_ts", batch.max_timestamp().map(Timestamp::get))
                .maybe("pid", batch.producer_id().map(ProducerId::get))
                .maybe("epoch", batch.producer_epoch().map(ProducerEpoch::get))
                .maybe("base_seq", batch.base_sequence().map(Sequence::get))
                .maybe("last_seq", batch.last_sequence().map(Sequence::get))
                .maybe("leader_epoch", batch.leader_epoch().map(LeaderEpoch::get))
                .flag("txn", batch.is_transactional())
                .flag("control", batch.is_control())
                .maybe("delete_horizon", batch.delete_horizon().map(Timestamp::get))
                .number("crc", batch.crc())
                .flag("crc_ok", valid)
                .end();
            return self.sent_if_many();
        }
        let mut line = String::from("  ");
        match batch.base_offset() {
            Some(base) => put(&mut line, format_args!("@{base}..{}", batch.last_offset())),
            None => put(&mut line, format_args!("@..{}", batch.last_offset())),
        }
        put(&mut line, format_args!(" pos={position} size={}", batch.size()));
        if let Some(count) = batch.records_count() {
            put(&mut line, format_args!(" count={count}"));
        }
        put(&mut line, format_args!(" magic={} codec={codec}", magic(batch)));
        if let (Some(kind), Some(max)) = (kind, batch.max_timestamp()) {
            put(&mut line, format_args!(" {kind}={}", time::format(max.get())));
        }
        if let Some(epoch) = batch.leader_epoch() {
            put(&mut line, format_args!(" leader-epoch={epoch}"));
        }
        if let Some(id) = batch.producer_id() {
            put(&mut line, format_args!(" pid={id}/{}", ProducerEpoch::to_raw(batch.producer_epoch())));
        }
        if let (Some(first), Some(last)) = (batch.base_sequence(), batch.last_sequence()) {
            put(&mut line, format_args!(" seq={first}..{last}"));
        }
        if let Some(horizon) = batch.delete_horizon() {
            put(&mut line, format_args!(" delete-horizon={}", time::format(horizon.get())));
        }
        line += if batch.is_transactional() { " txn" } else { "" };
        line += if batch.is_control() { " control" } else { "" };
        put(&mut line, format_args!(" crc={} {}", batch.crc(), if valid { "ok" } else { "BAD" }));
        self.text(&line)
    }

    /// A record of a batch.
    pub(super) fn record(&mut self, path: &Path, batch: &Batch<'_>, record: &Record<'_>) -> Result<()> {
        if self.json {
            if let Some(kind) = control_type(batch, record) {
                let epoch = coordinator_epoch(kind, record);
                Line::new(&mut self.lines, "control")
                    .text("file", &path.to_string_lossy())
                    .number("offset", record.offset().get())
                    .maybe("ts", record.timestamp().map(Timestamp::get))
                    .text("control", kind.name())
                    .number("control_type", kind.get())
                    .maybe("coordinator_epoch", epoch)
                    .maybe("pid", batch.producer_id().map(ProducerId::get))
                    .maybe("epoch", batch.producer_epoch().map(ProducerEpoch::get))
                    .bytes("key", record.key())
                    .bytes("value", record.value())
                    .end();
                return self.sent_if_many();
            }
            Line::new(&mut self.lines, "record")
                .text("file", &path.to_string_lossy())
                .number("offset", record.offset().get())
                .maybe("ts", record.timestamp().map(Timestamp::get))
                .bytes("key", record.key())
                .bytes("value", record.value())
                .pairs("headers", record.headers().map(|header| (header.key, header.value)))
                .maybe("seq", record.sequence().map(Sequence::get))
                .maybe("batch", batch.base_offset().map(Offset::get))
                .end();
            return self.sent_if_many();
        }
        let mut line = format!("    @{}", record.offset());
        if let Some(timestamp) = record.timestamp() {
            put(&mut line, format_args!(" {}", time::format(timestamp.get())));
        }
        if let Some(sequence) = record.sequence() {
            put(&mut line, format_args!(" seq={sequence}"));
        }
        if let Some(kind) = control_type(batch, record) {
            put(&mut line, format_args!(" {} ({})", kind.name(), kind.get()));
            if let Some(epoch) = coordinator_epoch(kind, record) {
                put(&mut line, format_args!(" coordinator-epoch={epoch}"));
            }
            return self.text(&line);
        }
        put(&mut line, format_args!(" key={}", self.shown(record.key())));
        put(&mut line, format_args!(" value={}", self.shown(record.value())));
        for header in record.headers() {
            put(
                &mut line,
                format_args!(" h:{}={}", header.key_lossy().escape_debug(), self.shown(header.value)),
            );
        }
        self.text(&line)
    }

    /// An entry of a file; `kind` is its type in JSON.
    pub(super) fn entry(&mut self, kind: &str, path: &Path, fields: &[Field<'_>]) -> Result<()> {
        if self.json {
            let mut line = Line::new(&mut self.lines, kind);
            line.text("file", &path.to_string_lossy());
            for field in fields {
                match *field {
                    Field::Number(name, value) => line.number(name, value),
                    Field::Maybe(name, value) => line.maybe(name, value),
                    Field::Time(ms) => line.maybe("ts", ms),
                    Field::Text(name, text) => line.maybe_text(name, text),
                };
            }
            line.end();
            return self.sent_if_many();
        }
        let mut line = String::from(" ");
        for field in fields {
            match *field {
                Field::Number(name, value) | Field::Maybe(name, Some(value)) => {
                    put(&mut line, format_args!(" {}={value}", name.replace('_', "-")));
                }
                Field::Time(Some(ms)) => put(&mut line, format_args!(" time={}", time::format(ms))),
                Field::Text(name, Some(text)) => {
                    put(&mut line, format_args!(" {}={}", name.replace('_', "-"), text.escape_debug()));
                }
                Field::Maybe(_, None) | Field::Time(None) | Field::Text(_, None) => {}
            }
        }
        self.text(&line)
    }

    /// A problem.
    pub(super) fn finding(&mut self, finding: Finding<'_>) -> Result<()> {
        let Finding { problem, path, place, offset, expected, found } = finding;
        let (code, name) = problem.names();
        let level = if problem.is_info() { "info" } else { "error" };
        self.problems += u64::from(!problem.is_info());
        if self.json {
            let mut line = Line::new(&mut self.lines, "finding");
            line.text("level", level).text("code", code).text("name", name);
            line.text("path", &path.to_string_lossy());
            match place {
                Place::Byte(position) => line.number("pos", position),
                Place::Line(number) => line.number("line", number),
            };
            line.maybe("offset", offset).text("expected", &expected).text("found", &found).end();
            return self.sent_if_many();
        }
        let error = match place {
            Place::Byte(position) => Error::at(path, Some(position), offset, expected, found),
            Place::Line(number) => Error::line(path, number, expected, found),
        };
        self.text(&format!("  {level} {code} {name}: {error}"))
    }

    /// Bytes for people: quoted text, else hexadecimal; long ones shortened and counted.
    fn shown(&self, bytes: Option<&[u8]>) -> String {
        let Some(bytes) = bytes else { return "null".to_owned() };
        let limit = if self.full { usize::MAX } else { SHOWN };
        match std::str::from_utf8(bytes) {
            Ok(text) if text.chars().all(|c| !c.is_control() || c.is_whitespace()) => {
                let short: String = text.chars().take(limit).collect();
                let rest = bytes.len() - short.len();
                let more = if rest > 0 { format!("+{rest}B") } else { String::new() };
                format!("\"{}\"{more}", short.escape_debug())
            }
            _ => {
                let short = &bytes[..bytes.len().min(limit)];
                let rest = bytes.len() - short.len();
                let more = if rest > 0 { format!("+{rest}B") } else { String::new() };
                let mut text = String::from("0x");
                for byte in short {
                    put(&mut text, format_args!("{byte:02x}"));
                }
                text + &more
            }
        }
    }
}

/// The type of a control record, if its batch has those and the key is one.
pub(super) fn control_type(header: &BatchHeader, record: &Record<'_>) -> Option<ControlType> {
    if !header.is_control() {
        return None;
    }
    ControlKey::parse(record.key()?).ok().map(|key| key.kind)
}

fn coordinator_epoch(kind: ControlType, record: &Record<'_>) -> Option<i32> {
    if !matches!(kind, ControlType::Abort | ControlType::Commit) {
        return None;
    }
    EndTransactionMarker::parse(record.key(), record.value()).ok().map(|marker| marker.coordinator_epoch)
}

fn magic(batch: &Batch<'_>) -> u8 {
    batch.as_bytes().get(kseg_format::HEADER_UP_TO_MAGIC - 1).copied().unwrap_or_default()
}

/// Appends to a line; memory does not fail.
fn put(line: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = line.write_fmt(text);
}
