//! A log file as Kafka's tool sees it: no field is checked before it is shown.
//!
//! A magic above 2 is read with the layout of 2, one below 0 as a message of old; the 61 bytes of a header are read
//! whatever the size field says.
//!
//! Source: Kafka `FileRecords`, `FileLogInputStream`, `DefaultRecordBatch`, `AbstractLegacyRecordBatch`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use kseg_format::Batch;

use super::abort::Abort;

const LOG_OVERHEAD: u64 = 12;
const HEADER_UP_TO_MAGIC: u64 = 17;
const MIN_SIZE_FIELD: i32 = 14;
const BATCH_OVERHEAD: usize = 61;

/// A log file open for reading, and how long it was then.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    shown: String,
    size: i32,
}

/// A part of a log file, from a position to another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slice {
    start: u64,
    end: u64,
}

impl Slice {
    pub(super) fn start(self) -> u64 {
        self.start
    }

    pub(super) fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

impl LogFile {
    /// Opens the file that messages call `shown`.
    pub(super) fn open(shown: &str) -> Result<LogFile, Abort> {
        let failed = |error| Abort::io(shown, &error);
        let file = File::open(shown).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let size = i32::try_from(len).map_err(|_| {
            Abort::kafka(format!(
                "The size of segment {shown} ({len}) is larger than the maximum allowed segment size of 2147483647"
            ))
        })?;
        Ok(LogFile { file, shown: shown.to_owned(), size })
    }

    /// At most `size` bytes from `position`.
    pub(super) fn slice(&self, position: i32, size: i32) -> Result<Slice, Abort> {
        let me = || format!("FileRecords(size={}, file={}, start=0, end=2147483647)", self.size, self.shown);
        let Ok(start) = u64::try_from(position) else {
            return Err(Abort::illegal_argument(format!(
                "Invalid position: {position} in read from {}",
                me()
            )));
        };
        if position > self.size {
            return Err(Abort::illegal_argument(format!(
                "Slice from position {position} exceeds end position of {}",
                me()
            )));
        }
        let Ok(size) = u64::try_from(size) else {
            return Err(Abort::illegal_argument(format!("Invalid size: {size} in read from {}", me())));
        };
        Ok(Slice { start, end: (start + size).min(self.size as u64) })
    }

    /// The batch at `position` of `slice`; `None` where the rest is no whole batch.
    pub(super) fn batch(&self, slice: Slice, position: u64) -> Result<Option<FileBatch<'_>>, Abort> {
        if position + HEADER_UP_TO_MAGIC >= slice.end {
            return Ok(None);
        }
        let mut prefix = [0; HEADER_UP_TO_MAGIC as usize];
        self.read(&mut prefix, position, "log header")?;
        let [o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, .., magic] = prefix;
        let size = i32::from_be_bytes([s0, s1, s2, s3]);
        if size < MIN_SIZE_FIELD {
            return Err(Abort::corrupt_record(format!(
                "Found record size {size} smaller than minimum record overhead ({MIN_SIZE_FIELD}) in file {}.",
                self.shown
            )));
        }
        let size = LOG_OVERHEAD + size as u64;
        if position + size > slice.end {
            return Ok(None);
        }
        let offset = i64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        Ok(Some(FileBatch { file: self, offset, magic: magic as i8, position, size }))
    }

    fn read(&self, into: &mut [u8], at: u64, what: &str) -> Result<(), Abort> {
        self.file.read_exact_at(into, at).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Abort::kafka(format!(
                "Failed to load {what} at position {at} from FileRecords(size={}, file={}, start=0, end=2147483647)",
                self.size, self.shown
            )),
            _ => Abort::io(&self.shown, &error),
        })
    }
}

/// A batch, or a message of old, at a place of a file. Only where it lies is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileBatch<'f> {
    file: &'f LogFile,
    offset: i64,
    magic: i8,
    position: u64,
    size: u64,
}

impl FileBatch<'_> {
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes, the offset and the size field included.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn magic(&self) -> i8 {
        self.magic
    }

    pub(super) fn is_legacy(&self) -> bool {
        self.magic < 2
    }

    /// The last offset, which for a message of old is its only one.
    pub(super) fn last_offset(&self) -> Result<i64, Abort> {
        if self.is_legacy() { Ok(self.offset) } else { Ok(self.header()?.last_offset()) }
    }

    /// The header of the layout of magic 2.
    pub(super) fn header(&self) -> Result<Header, Abort> {
        let mut bytes = [0; BATCH_OVERHEAD];
        self.file.read(&mut bytes, self.position, "record batch")?;
        Ok(Header { bytes })
    }

    /// The header of a message of old.
    pub(super) fn legacy_header(&self) -> Result<LegacyHeader, Abort> {
        let len = match self.magic {
            0 => 18,
            1 => 26,
            magic => {
                return Err(Abort::illegal_argument(format!("Invalid magic used in LegacyRecord: {magic}")));
            }
        };
        let mut bytes = [0; 26];
        self.file.read(&mut bytes[..len], self.position, "record batch")?;
        Ok(LegacyHeader { bytes })
    }

    /// All bytes of the batch.
    pub(super) fn load(&self) -> Result<Vec<u8>, Abort> {
        // Not more than the file has: the batch lies inside it.
        let mut bytes = vec![0; self.size as usize];
        self.file.read(&mut bytes, self.position, "full record batch")?;
        Ok(bytes)
    }
}

/// 61 bytes, whatever they are, read as the header of a batch of magic 2.
#[derive(Debug)]
pub(super) struct Header {
    bytes: [u8; BATCH_OVERHEAD],
}

impl Header {
    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[at..at + N]);
        field
    }

    fn attributes(&self) -> i16 {
        i16::from_be_bytes(self.field(21))
    }

    fn last_offset_delta(&self) -> i32 {
        i32::from_be_bytes(self.field(23))
    }

    pub(super) fn base_offset(&self) -> i64 {
        i64::from_be_bytes(self.field(0))
    }

    pub(super) fn last_offset(&self) -> i64 {
        self.base_offset().wrapping_add(i64::from(self.last_offset_delta()))
    }

    pub(super) fn leader_epoch(&self) -> i32 {
        i32::from_be_bytes(self.field(12))
    }

    pub(super) fn crc(&self) -> u32 {
        u32::from_be_bytes(self.field(17))
    }

    pub(super) fn codec(&self) -> Result<&'static str, Abort> {
        codec(self.attributes() as u8)
    }

    pub(super) fn timestamp_type(&self) -> &'static str {
        timestamp_type(self.attributes() as u8)
    }

    pub(super) fn is_compressed(&self) -> bool {
        self.attributes() & 0x07 != 0
    }

    pub(super) fn is_transactional(&self) -> bool {
        self.attributes() & 0x10 != 0
    }

    pub(super) fn is_control(&self) -> bool {
        self.attributes() & 0x20 != 0
    }

    pub(super) fn delete_horizon(&self) -> Option<i64> {
        (self.attributes() & 0x40 != 0).then(|| i64::from_be_bytes(self.field(27)))
    }

    pub(super) fn max_timestamp(&self) -> i64 {
        i64::from_be_bytes(self.field(35))
    }

    pub(super) fn producer_id(&self) -> i64 {
        i64::from_be_bytes(self.field(43))
    }

    pub(super) fn producer_epoch(&self) -> i16 {
        i16::from_be_bytes(self.field(51))
    }

    pub(super) fn base_sequence(&self) -> i32 {
        i32::from_be_bytes(self.field(53))
    }

    /// Base sequence plus last offset delta, in a ring of 2^31 numbers computed with the wrap of 32 bits.
    pub(super) fn last_sequence(&self) -> i32 {
        let (base, delta) = (self.base_sequence(), self.last_offset_delta());
        if base == -1 {
            -1
        } else if base > i32::MAX.wrapping_sub(delta) {
            delta.wrapping_sub(i32::MAX.wrapping_sub(base)).wrapping_sub(1)
        } else {
            base.wrapping_add(delta)
        }
    }

    pub(super) fn count(&self) -> i32 {
        i32::from_be_bytes(self.field(57))
    }
}

/// The first bytes of a message of magic 0 or 1.
#[derive(Debug)]
pub(super) struct LegacyHeader {
    bytes: [u8; 26],
}

impl LegacyHeader {
    fn magic(&self) -> u8 {
        self.bytes[16]
    }

    fn attributes(&self) -> u8 {
        self.bytes[17]
    }

    pub(super) fn crc(&self) -> u32 {
        u32::from_be_bytes([self.bytes[12], self.bytes[13], self.bytes[14], self.bytes[15]])
    }

    pub(super) fn codec(&self) -> Result<&'static str, Abort> {
        codec(self.attributes())
    }

    pub(super) fn is_compressed(&self) -> bool {
        self.attributes() & 0x07 != 0
    }

    pub(super) fn timestamp_type(&self) -> &'static str {
        if self.magic() == 0 { "NoTimestampType" } else { timestamp_type(self.attributes()) }
    }

    pub(super) fn max_timestamp(&self) -> i64 {
        if self.magic() == 0 {
            return -1;
        }
        let mut field = [0; 8];
        field.copy_from_slice(&self.bytes[18..26]);
        i64::from_be_bytes(field)
    }
}

/// Whether a whole batch of the layout of magic 2 is as long as a header and has the right checksum.
pub(super) fn is_valid(batch: &[u8]) -> bool {
    Batch::parse(&as_magic_2(batch)).and_then(Batch::verify).is_ok()
}

/// The batch with a magic of 2, which lies outside its checksum.
pub(super) fn as_magic_2(batch: &[u8]) -> Vec<u8> {
    let mut bytes = batch.to_vec();
    if let Some(magic) = bytes.get_mut(HEADER_UP_TO_MAGIC as usize - 1) {
        *magic = 2;
    }
    bytes
}

fn codec(attributes: u8) -> Result<&'static str, Abort> {
    Ok(match attributes & 0x07 {
        0 => "none",
        1 => "gzip",
        2 => "snappy",
        3 => "lz4",
        4 => "zstd",
        id => return Err(Abort::illegal_argument(format!("Unknown compression type id: {id}"))),
    })
}

fn timestamp_type(attributes: u8) -> &'static str {
    if attributes & 0x08 == 0 { "CreateTime" } else { "LogAppendTime" }
}
