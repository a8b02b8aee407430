//! Single records in, batches out.

use std::fmt;
use std::mem;
use std::sync::Arc;

use bytes::BytesMut;
use kseg_format::{BatchOptions, Codec, LeaderEpoch, Origin, RecordBatchBuilder, Timestamp, TimestampType};

use crate::append::{AppendInfo, Appended};
use crate::config::LogConfig;
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::producer_state::TransactionRequest;

/// How a [`BatchWriter`] makes batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// A batch goes out before it would exceed this many bytes, header included and before compression; a single record
    /// may be larger. Default: 16384. The log's `max.message.bytes`, as it is when a batch begins, is kept to as well: what
    /// is refused for its size is then a single record.
    pub batch_size: usize,
    /// A batch goes out once it is this many milliseconds old, when [`BatchWriter::poll`] looks. Default: 0.
    pub linger_ms: i64,
    /// Compression. Default: none.
    pub codec: Codec,
    /// Level of the compression; `None` for the codec's default.
    pub level: Option<i32>,
    /// Leader epoch that the batches get. Default: `None`, the latest that the log knows, 0 in a log that knows none: a lower
    /// one would end those above it.
    pub leader_epoch: Option<LeaderEpoch>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            batch_size: 16 * 1024,
            linger_ms: 0,
            codec: Codec::None,
            level: None,
            leader_epoch: None,
        }
    }
}

/// Takes single records and appends them to a log in batches: one write call a batch.
///
/// A batch goes out when the next record would make it too large, when it has grown older than `linger_ms`
/// ([`poll`](Self::poll)), and when [`flush`](Self::flush) asks. Records are in the log, and can be read, once their batch
/// has gone out; a writer that is dropped drops those that have not. Memory is reused from batch to batch.
///
/// ```
/// use std::sync::Arc;
/// use kseg_format::{Offset, Timestamp};
/// use kseg_log::{BatchWriter, Log, OpenOptions, WriterOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = kseg_io_backends::open("memory")?;
/// let log = Arc::new(Log::open(std::path::Path::new("/data/lines-0"), OpenOptions::new(backend))?);
/// let mut writer = BatchWriter::new(log.clone(), WriterOptions::default());
/// for line in ["one", "two", "three"] {
///     writer.append(Some(Timestamp::new(1)), None, Some(line.as_bytes()), &[])?;
/// }
/// writer.flush()?;
/// assert_eq!(log.log_end_offset(), Offset::new(3));
/// # Ok(())
/// # }
/// ```
pub struct BatchWriter {
    log: Arc<Log>,
    options: WriterOptions,
    builder: RecordBatchBuilder,
    /// The memory of the batch that went out last, for the next but one.
    buffer: BytesMut,
    /// The log's configuration, and its count of changes then.
    config: (u64, Arc<LogConfig>),
    /// When the first record of the batch came; `None` while it is empty.
    since_ms: Option<i64>,
    /// What a topic may have a rule about, of the records that wait.
    seen: Seen,
    /// Size that the batch being filled keeps to.
    size_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    null_key: bool,
    /// Smallest and largest timestamp; records without one do not count.
    oldest: i64,
    newest: i64,
}

impl Seen {
    const NOTHING: Seen = Seen { null_key: false, oldest: i64::MAX, newest: i64::MIN };
}

/// Most bytes that a record adds to a batch beside its key, value and headers (Kafka `DefaultRecord`: length, attributes,
/// two deltas, and the lengths of key, value and headers).
const RECORD_OVERHEAD_MAX: usize = 5 + 1 + 10 + 5 + 5 + 5 + 5;
/// Most bytes that a header adds beside its key and value.
const HEADER_OVERHEAD_MAX: usize = 5 + 5;

impl BatchWriter {
    /// A writer onto `log`.
    pub fn new(log: Arc<Log>, options: WriterOptions) -> Self {
        let builder = RecordBatchBuilder::new(BatchOptions {
            codec: options.codec,
            level: options.level,
            ..BatchOptions::default()
        });
        let config = config_of(&log);
        BatchWriter {
            log,
            options,
            builder,
            buffer: BytesMut::new(),
            config,
            since_ms: None,
            seen: Seen::NOTHING,
            size_max: 0,
        }
    }

    /// Takes a record. Returns what the log answered where a full batch went out first; the record itself is in the next
    /// one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a record that no batch can hold (a negative timestamp); the record is not taken.
    /// An error of the append: the records of the batch that went out are not in the log, and the record is not taken.
    #[inline]
    pub fn append(
        &mut self,
        timestamp: Option<Timestamp>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<Option<AppendInfo>> {
        let mut size = RECORD_OVERHEAD_MAX + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        for (key, value) in headers {
            size += HEADER_OVERHEAD_MAX + key.len() + value.map_or(0, <[u8]>::len);
        }
        let full = !self.builder.is_empty() && self.builder.uncompressed_size() + size > self.size_max;
        let sent = if full { self.flush()? } else { None };
        if self.since_ms.is_none() {
            self.begin();
        }
        self.builder.append(timestamp, key, value, headers).map_err(|e| Error::InvalidArgument {
            what: format!("a record for {}: {e}", self.log.partition()),
        })?;
        self.seen.null_key |= key.is_none();
        if let Some(timestamp) = timestamp {
            self.seen.oldest = self.seen.oldest.min(timestamp.get());
            self.seen.newest = self.seen.newest.max(timestamp.get());
        }
        Ok(sent)
    }

    fn begin(&mut self) {
        // Without a time to linger any age will do.
        let lingers = self.options.linger_ms > 0;
        self.since_ms = Some(if lingers { self.log.inner.clock.now_ms() } else { i64::MIN });
        let limit = usize::try_from(self.config().max_message_bytes).unwrap_or(0);
        self.size_max = self.options.batch_size.min(limit);
    }

    fn config(&mut self) -> &LogConfig {
        if self.config.0 != self.log.inner.config.changes() {
            self.config = config_of(&self.log);
        }
        &self.config.1
    }

    /// Sends the batch if it has grown older than `linger_ms`. For a loop or a timer of the caller's.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn poll(&mut self) -> Result<Option<AppendInfo>> {
        let now_ms = self.log.inner.clock.now_ms();
        match self.since_ms {
            Some(since_ms) if now_ms.saturating_sub(since_ms) >= self.options.linger_ms => self.flush(),
            _ => Ok(None),
        }
    }

    /// Sends what has been taken. On return it can be read; it is durable after [`Log::flush`], or see
    /// [`flush_durable`](Self::flush_durable).
    ///
    /// # Errors
    /// As [`Log::append_as_leader`]; the records of the batch are not in the log then, and have been dropped.
    pub fn flush(&mut self) -> Result<Option<AppendInfo>> {
        let sent = self.send(false)?.map(Appended::finish);
        sent.transpose()
    }

    /// Sends what has been taken, and asks for its durability; `None` where nothing was waiting. The handle is for all that
    /// is in the log by then: waiting for the last of several tells of them all.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); those of making it durable go to the handle.
    pub fn flush_durable(&mut self) -> Result<Option<(AppendInfo, Durability)>> {
        let log = Arc::clone(&self.log);
        let sent = self.send(true)?.map(|appended| appended.finish_durable(&log.inner));
        sent.transpose()
    }

    fn send(&mut self, durable: bool) -> Result<Option<Appended>> {
        self.since_ms = None;
        let seen = mem::replace(&mut self.seen, Seen::NOTHING);
        let encoded = self.builder.exchange(&mut self.buffer).map_err(|e| Error::InvalidArgument {
            what: format!("a batch for {}: {e}", self.log.partition()),
        })?;
        let Some(size) = encoded else { return Ok(None) };
        let leader_epoch = self.options.leader_epoch;
        let now_ms = self.log.inner.clock.now_ms();
        let appended = if self.needs_no_look(seen, now_ms) {
            let bytes = mem::take(&mut self.buffer);
            let len = bytes.len();
            let (appended, bytes) = self.log.append_built(bytes, size, leader_epoch, now_ms, durable);
            // A backend that is still writing has the bytes.
            self.buffer = bytes.unwrap_or_else(|| BytesMut::zeroed(len));
            appended
        } else {
            let batch = BytesMut::from(&self.buffer[..size]);
            let request = TransactionRequest::default();
            let leader_epoch = leader_epoch.unwrap_or_else(|| self.log.epoch_or_first());
            let appended = self.log.lead(batch, leader_epoch, Origin::Client, request, durable);
            self.log.inner.meter(size, &appended);
            appended
        };
        appended.map(Some)
    }

    /// Whether the batch is as the topic wants it: it was built here, so its checksum and its records are right, and no
    /// rule of the topic asks for a change or may be broken.
    fn needs_no_look(&mut self, seen: Seen, now_ms: i64) -> bool {
        let own_codec = self.options.codec;
        let config = self.config();
        let within = seen.oldest > seen.newest
            || now_ms.saturating_sub(seen.oldest) <= config.message_timestamp_before_max_ms
                && seen.newest.saturating_sub(now_ms) <= config.message_timestamp_after_max_ms;
        let codec = config.compression_type.codec().unwrap_or(own_codec);
        within
            && config.message_timestamp_type == TimestampType::CreateTime
            && codec == own_codec
            && !(config.cleanup_policy.compact && seen.null_key)
    }

    /// How many records wait for their batch to go out.
    pub fn waiting(&self) -> usize {
        self.builder.record_count()
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }
}

impl Log {
    /// The latest leader epoch, or the first there is.
    pub(crate) fn epoch_or_first(&self) -> LeaderEpoch {
        self.latest_epoch().unwrap_or(LeaderEpoch::new(0))
    }
}

fn config_of(log: &Log) -> (u64, Arc<LogConfig>) {
    // The count first: what is read then is of this count, or newer.
    (log.inner.config.changes(), log.config())
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter")
            .field("options", &self.options)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
