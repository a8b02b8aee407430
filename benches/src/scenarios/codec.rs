//! Encoding and decoding batches, without a log.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use kseg_format::{Batch, BatchOptions, Codec, RecordBatchBuilder, Timestamp};

use super::Scenario;
use crate::contest::{Entrant, Slice, Unit, Watch, Work};
use crate::error::{BenchError, expect};
use crate::payload::{self, BASE_TIMESTAMP_MS, Random};
use crate::reference::{CopyLoop, passes};

pub(super) fn scenarios() -> Vec<Scenario> {
    // The scenario with every codec has the second shape too.
    let shapes = [(100, 100, true), (100, 1024, false), (1000, 100, false), (1000, 1024, false)];
    let mut scenarios = Vec::new();
    for (way, verb) in [(Way::Encode, "encode"), (Way::Decode, "decode")] {
        for (count, len, by_default) in shapes {
            let shape = format!("{count}x{}", if len == 1024 { "1k".to_owned() } else { format!("{len}b") });
            let about = format!(
                "{verb} batches of {count} records of {len} bytes, uncompressed; copy and CRC of the values"
            );
            let plain = Scenario::new(format!("{verb}-{shape}"), about, Unit::Bytes, move |_| {
                entrants(way, count, len, &[Codec::None])
            });
            scenarios.push(if by_default { plain } else { plain.on_request() });
        }
        for (count, len, _) in shapes {
            let shape = format!("{count}x{}", if len == 1024 { "1k".to_owned() } else { format!("{len}b") });
            let about = format!(
                "{verb} batches of {count} records of {len} bytes of text with each codec; copy and CRC"
            );
            let every = Scenario::new(format!("{verb}-codecs-{shape}"), about, Unit::Bytes, move |_| {
                entrants(way, count, len, &[Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd])
            });
            scenarios.push(if (count, len) == (100, 1024) { every } else { every.on_request() });
        }
    }
    scenarios
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Encode,
    Decode,
}

fn entrants(way: Way, count: usize, len: usize, codecs: &[Codec]) -> Result<Vec<Entrant>, BenchError> {
    let mut random = Random::new((count * len) as u64);
    // Alone, an uncompressed batch holds noise; beside codecs all have the same text.
    let mut value = || if codecs.len() == 1 { random.noise(len) } else { random.text(len) };
    let values: Vec<Vec<u8>> = (0..count).map(|_| value()).collect();
    let copy = Box::new(CopyLoop::new(values.clone()));
    let mut entrants =
        vec![Entrant { name: "memory copy + CRC".to_owned(), reference: None, goal: None, work: copy }];
    for &codec in codecs {
        let work: Box<dyn Work> = match way {
            Way::Encode => Box::new(Encode::new(values.clone(), codec)),
            Way::Decode => Box::new(Decode::new(&values, codec)?),
        };
        entrants.push(Entrant { name: codec.to_string(), reference: Some(0), goal: None, work });
    }
    Ok(entrants)
}

/// Encodes the same values again and again in the builder's buffer.
#[derive(Debug)]
struct Encode {
    values: Vec<Vec<u8>>,
    builder: RecordBatchBuilder,
}

impl Encode {
    fn new(values: Vec<Vec<u8>>, codec: Codec) -> Encode {
        let builder = RecordBatchBuilder::new(BatchOptions { codec, ..BatchOptions::default() });
        Encode { values, builder }
    }

    fn pass(&mut self) -> Result<&[u8], BenchError> {
        for (value, timestamp) in self.values.iter().zip(BASE_TIMESTAMP_MS..) {
            self.builder.append(Some(Timestamp::new(timestamp)), None, Some(value), &[])?;
        }
        Ok(self.builder.build()?.unwrap_or_default())
    }
}

impl Work for Encode {
    fn check(&mut self) -> Result<u64, BenchError> {
        let mut hash = 0;
        Decoder::default().pass(self.pass()?, |value| hash = crc32c::crc32c_append(hash, value))?;
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let len: usize = self.values.iter().map(Vec::len).sum();
        let passes = passes(len);
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            watch.time(|| {
                for _ in 0..passes {
                    black_box(self.pass()?);
                }
                Ok((passes * len) as u64)
            })?;
        }
        Ok(watch.stop())
    }
}

/// Decodes the same batch again and again: CRC, then every record's value.
#[derive(Debug)]
struct Decode {
    batch: Bytes,
    len: usize,
    decoder: Decoder,
}

impl Decode {
    fn new(values: &[Vec<u8>], codec: Codec) -> Result<Decode, BenchError> {
        let len = values.iter().map(Vec::len).sum();
        Ok(Decode { batch: payload::batch(values, codec)?, len, decoder: Decoder::default() })
    }
}

/// The most that a batch may decompress to.
const LIMIT: usize = 16 << 20;

#[derive(Debug, Default)]
struct Decoder {
    scratch: Vec<u8>,
}

impl Decoder {
    fn pass(&mut self, batch: &[u8], mut value: impl FnMut(&[u8])) -> Result<(), BenchError> {
        let checked = Batch::parse(batch)?.verify()?;
        for record in checked.records(&mut self.scratch, LIMIT)? {
            value(record?.value().unwrap_or_default());
        }
        Ok(())
    }
}

impl Work for Decode {
    fn check(&mut self) -> Result<u64, BenchError> {
        let mut hash = 0;
        self.decoder.pass(&self.batch, |value| hash = crc32c::crc32c_append(hash, value))?;
        Ok(hash.into())
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let passes = passes(self.len);
        let mut watch = Watch::new(at_least);
        let mut found = 0;
        while watch.runs() {
            watch.time(|| {
                for _ in 0..passes {
                    self.decoder.pass(black_box(&self.batch), |value| found += value.len())?;
                }
                Ok((passes * self.len) as u64)
            })?;
        }
        let slice = watch.stop();
        expect("the bytes decoded", slice.units, found as u64)?;
        Ok(slice)
    }
}
