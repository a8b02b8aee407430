//! Single records through the batching writer.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kseg_format::{BatchOptions, Batches, Codec, Offset, RecordBatchBuilder, Timestamp};
use kseg_io_backends::Backend;
use kseg_log::{BatchWriter, Isolation, Log, LogConfig, WriterOptions};

use super::Scenario;
use crate::bench::{Bench, Medium};
use crate::contest::{Entrant, Slice, Unit, Watch, Work};
use crate::error::{BenchError, expect};
use crate::filled;
use crate::payload::{BASE_TIMESTAMP_MS, Random};

pub(super) fn scenarios() -> Vec<Scenario> {
    let compressed = |name, codec, title| {
        let what = format!("as batch-writer-100b with records of text, compressed with {title}");
        Scenario::new(name, what, Unit::Records, move |bench| entrants(bench, codec)).on_request()
    };
    vec![
        Scenario::new(
            "batch-writer-100b",
            "records of 100 bytes, one by one, into batches of 16 KiB that are appended; encoding the same batches alone",
            Unit::Records,
            |bench| entrants(bench, Codec::None),
        ),
        compressed("batch-writer-100b-lz4", Codec::Lz4, "lz4"),
        compressed("batch-writer-100b-zstd", Codec::Zstd, "zstd"),
    ]
}

const BATCH_BYTES: usize = 16 << 10;
const VALUE_LEN: usize = 100;
/// The most that the writer expects of such a record: a batch goes out before it could grow too large.
const RECORD_LEN_MAX: usize = VALUE_LEN + 36;
/// Different values; each slice goes round them.
const VALUES: usize = 1 << 10;
/// Records between two looks at the clock.
const GROUP: u64 = 4096;
/// Records that are read back for the hash.
const CHECKED: u64 = 20_000;
const GOAL: f64 = 0.8;

fn entrants(bench: &mut Bench, codec: Codec) -> Result<Vec<Entrant>, BenchError> {
    let mut random = Random::new(VALUE_LEN as u64);
    let mut value = || if codec == Codec::None { random.noise(VALUE_LEN) } else { random.text(VALUE_LEN) };
    let values: Arc<Vec<Vec<u8>>> = Arc::new((0..VALUES).map(|_| value()).collect());
    let cap = bench.scale().file_cap;
    // The encoding is the same whatever medium the bytes go to: one reference for all.
    let mut entrants = vec![Entrant {
        name: "encode alone".to_owned(),
        reference: None,
        goal: None,
        work: Box::new(EncodeLoop { values: values.clone(), builder: builder(codec) }),
    }];
    let mut files = false;
    for backend in bench.backends() {
        let file = Medium::of(backend, bench.dir())? == Medium::File;
        files |= file;
        let goal = (file || codec != Codec::None).then_some(GOAL);
        let dir = bench.dir().join(backend.name()).join("writer-0");
        let work = Box::new(WriterWork { backend: backend.clone(), dir, values: values.clone(), codec, cap });
        entrants.push(Entrant { name: backend.name().to_owned(), reference: Some(0), goal, work });
    }
    if files {
        // Not a backend: what is left of the encoder's rate when each batch is also written, without a log between.
        let encode = EncodeLoop { values, builder: builder(codec) };
        let work = Box::new(EncodeAndWrite { encode, path: bench.dir().join("reference"), cap });
        entrants.push(Entrant { name: "(bare pwrite)".to_owned(), reference: Some(0), goal: None, work });
    }
    Ok(entrants)
}

fn builder(codec: Codec) -> RecordBatchBuilder {
    RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() })
}

fn timestamp(record: u64) -> Option<Timestamp> {
    Some(Timestamp::new(BASE_TIMESTAMP_MS + (record / 1000) as i64))
}

/// Adds the values in `batches`, whose CRCs must be right, to a hash; returns how many there were.
fn hash_values(batches: &[u8], hash: &mut u32) -> Result<u64, BenchError> {
    let mut count = 0;
    let mut scratch = Vec::new();
    for batch in Batches::new(batches) {
        let checked = batch?.verify()?;
        for record in checked.records(&mut scratch, BATCH_BYTES)? {
            *hash = crc32c::crc32c_append(*hash, record?.value().unwrap_or_default());
            count += 1;
        }
    }
    Ok(count)
}

/// The encoder alone: a batch is built in the encoder's own memory, copied nowhere, and goes nowhere.
#[derive(Debug)]
struct EncodeLoop {
    values: Arc<Vec<Vec<u8>>>,
    builder: RecordBatchBuilder,
}

impl EncodeLoop {
    /// Encodes the records from `from` to `to`; calls `done` with each finished batch.
    fn encode(
        &mut self,
        from: u64,
        to: u64,
        mut done: impl FnMut(&[u8]) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        for record in from..to {
            if self.builder.uncompressed_size() + RECORD_LEN_MAX > BATCH_BYTES {
                self.finish(&mut done)?;
            }
            let value = &self.values[record as usize % VALUES];
            self.builder.append(timestamp(record), None, Some(value), &[])?;
        }
        Ok(())
    }

    /// Passes the batch at hand on, finished or not.
    fn finish(&mut self, mut done: impl FnMut(&[u8]) -> Result<(), BenchError>) -> Result<(), BenchError> {
        match self.builder.build()? {
            Some(batch) => done(batch),
            None => Ok(()),
        }
    }
}

impl Work for EncodeLoop {
    fn check(&mut self) -> Result<u64, BenchError> {
        let mut hash = 0;
        let mut count = 0;
        let mut look = |batch: &[u8]| {
            count += hash_values(batch, &mut hash)?;
            Ok(())
        };
        self.encode(0, CHECKED, &mut look)?;
        self.finish(&mut look)?;
        expect("the records encoded", CHECKED, count)?;
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        let mut record = 0;
        while watch.runs() {
            watch.time(|| {
                self.encode(record, record + GROUP, |batch| {
                    black_box(batch);
                    Ok(())
                })?;
                record += GROUP;
                Ok(GROUP)
            })?;
        }
        self.finish(|_| Ok(()))?;
        Ok(watch.stop())
    }
}

/// The encoder, and a bare write of each batch to a file that grows.
#[derive(Debug)]
struct EncodeAndWrite {
    encode: EncodeLoop,
    path: PathBuf,
    cap: u64,
}

impl EncodeAndWrite {
    fn fresh(&self) -> Result<File, BenchError> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&self.path);
        file.map_err(BenchError::io("create", &self.path))
    }

    /// Encodes and writes from `at` on; returns where the next batch goes.
    fn write(&mut self, file: &File, from: u64, to: u64, mut at: u64) -> Result<u64, BenchError> {
        self.encode.encode(from, to, |batch| {
            file.write_all_at(batch, at).map_err(BenchError::io("write", &self.path))?;
            at += batch.len() as u64;
            Ok(())
        })?;
        Ok(at)
    }

    fn remove(&mut self, file: File) -> Result<(), BenchError> {
        self.encode.finish(|_| Ok(()))?;
        drop(file);
        fs::remove_file(&self.path).map_err(BenchError::io("remove", &self.path))
    }
}

impl Work for EncodeAndWrite {
    fn check(&mut self) -> Result<u64, BenchError> {
        let file = self.fresh()?;
        let at = self.write(&file, 0, CHECKED, 0)?;
        let mut all = vec![0; at as usize];
        file.read_exact_at(&mut all, 0).map_err(BenchError::io("read", &self.path))?;
        self.encode.finish(|batch| {
            all.extend_from_slice(batch);
            Ok(())
        })?;
        self.remove(file)?;
        let mut hash = 0;
        expect("the records read back", CHECKED, hash_values(&all, &mut hash)?)?;
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            let file = self.fresh()?;
            let (mut record, mut at) = (0, 0);
            while watch.runs() && at < self.cap {
                watch.time(|| {
                    at = self.write(&file, record, record + GROUP, at)?;
                    record += GROUP;
                    Ok(GROUP)
                })?;
            }
            let found = file.metadata().map_err(BenchError::io("look at", &self.path))?.len();
            expect("the file's size", at, found)?;
            self.remove(file)?;
        }
        Ok(watch.stop())
    }
}

/// The writer, over a log that is new in each slice.
#[derive(Debug)]
struct WriterWork {
    backend: Arc<dyn Backend>,
    dir: PathBuf,
    values: Arc<Vec<Vec<u8>>>,
    codec: Codec,
    cap: u64,
}

impl WriterWork {
    fn fresh(&self) -> Result<(Arc<Log>, BatchWriter), BenchError> {
        let log = Arc::new(filled::open(&self.backend, &self.dir, LogConfig::default())?);
        let options =
            WriterOptions { batch_size: BATCH_BYTES, codec: self.codec, ..WriterOptions::default() };
        Ok((log.clone(), BatchWriter::new(log, options)))
    }

    fn write(&self, writer: &mut BatchWriter, from: u64, to: u64) -> Result<(), BenchError> {
        for record in from..to {
            let value = &self.values[record as usize % VALUES];
            writer.append(timestamp(record), None, Some(value), &[])?;
        }
        Ok(())
    }

    fn remove(&self, log: &Log) -> Result<(), BenchError> {
        log.abandon();
        Ok(self.backend.names().remove_dir_all(&self.dir)?)
    }
}

impl Work for WriterWork {
    fn check(&mut self) -> Result<u64, BenchError> {
        let (log, mut writer) = self.fresh()?;
        self.write(&mut writer, 0, CHECKED)?;
        writer.flush()?;
        let (mut hash, mut count) = (0, 0);
        let mut bytes = Vec::new();
        if let Some(region) = log.read(Offset::ZERO, usize::MAX, Isolation::LogEnd, true)?.region {
            region.copy_into(&mut bytes)?;
            count = hash_values(&bytes, &mut hash)?;
        }
        expect("the records read back", CHECKED, count)?;
        drop(writer);
        self.remove(&log)?;
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            let (log, mut writer) = self.fresh()?;
            let mut record = 0;
            while watch.runs() && log.size() < self.cap {
                watch.time(|| {
                    self.write(&mut writer, record, record + GROUP)?;
                    record += GROUP;
                    Ok(GROUP)
                })?;
            }
            writer.flush()?;
            expect("the log end offset", record, filled::number(log.log_end_offset()))?;
            drop(writer);
            self.remove(&log)?;
        }
        Ok(watch.stop())
    }
}
