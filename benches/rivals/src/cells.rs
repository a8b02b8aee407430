//! What is measured: works, shapes and codecs, and who takes part.

use bytes::Bytes;
use kseg_bench::{BenchError, Unit};
use kseg_format::Codec;

use crate::coder::Coder;
use crate::others::{kafka_protocol, krabka, rskafka};
use crate::{bare, checksum, headers, kseg};

/// The time of a batch's first record; each record comes a millisecond after the one before.
pub(crate) const BASE_TIMESTAMP: i64 = 1_700_000_000_000;

/// The direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From values to a batch.
    Encode,
    /// From a batch to every record's value, checksum included.
    Decode,
}

/// Records of a shape, in a direction, with a codec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// The direction.
    pub way: Way,
    /// The codec.
    pub codec: Codec,
    /// Records of a batch.
    pub count: usize,
    /// Bytes of a record's value; keys are null and there are no headers.
    pub len: usize,
}

/// Those who do the same work, by name. The first is the bare loop where there is one.
pub struct Contest {
    /// The work, the codec and the shape.
    pub name: String,
    /// In words.
    pub about: String,
    /// What a rate counts.
    pub unit: Unit,
    /// Units of one pass.
    pub units: usize,
    /// Bytes of one pass.
    pub bytes: usize,
    /// The least ratio of kseg-format, the second, to the first.
    pub goal: Option<f64>,
    make: Box<dyn Fn() -> Result<Coders, BenchError>>,
}

/// Coders and their names.
type Coders = Vec<(&'static str, Box<dyn Coder>)>;

impl std::fmt::Debug for Contest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Contest {
    /// Those who take part.
    ///
    /// # Errors
    /// The input could not be made.
    pub fn coders(&self) -> Result<Coders, BenchError> {
        (self.make)()
    }
}

/// All cells.
pub fn cells() -> Vec<Cell> {
    let mut all = Vec::new();
    for way in [Way::Encode, Way::Decode] {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            for (count, len) in [(100, 100), (100, 1024), (1000, 100), (1000, 1024)] {
                all.push(Cell { way, codec, count, len });
            }
        }
    }
    all
}

/// All contests.
pub fn contests() -> Vec<Contest> {
    let mut all: Vec<Contest> = cells().into_iter().map(Cell::contest).collect();
    all.push(Contest {
        name: "headers".to_owned(),
        about: format!("walk over the headers of {} batches of {} bytes", headers::BATCHES, headers::BATCH),
        unit: Unit::Lookups,
        units: headers::BATCHES,
        bytes: headers::BATCHES * 64,
        goal: Some(0.5),
        make: Box::new(|| {
            let buffer = headers::buffer()?;
            Ok(vec![
                ("strided load", Box::new(headers::Strided(buffer.clone()))),
                ("kseg-format", Box::new(headers::Walk(buffer.clone()))),
                ("krabka", Box::new(krabka::Headers(buffer.clone()))),
                ("kafka-protocol", Box::new(kafka_protocol::Headers(buffer))),
            ])
        }),
    });
    for kib in [1, 16, 128, 1024] {
        let bytes = kib << 10;
        all.push(Contest {
            name: format!("crc-{kib}k"),
            about: format!("CRC-32C of {kib} KiB"),
            unit: Unit::Bytes,
            units: bytes,
            bytes,
            goal: None,
            make: Box::new(move || {
                let data = Bytes::from(text(bytes, 5));
                Ok(vec![
                    ("crc32c", Box::new(checksum::Crc32c(data.clone()))),
                    ("crc-fast", Box::new(checksum::CrcFast(data))),
                ])
            }),
        });
    }
    all
}

impl Cell {
    /// The name of its contest.
    pub fn name(&self) -> String {
        let Cell { codec, count, len, .. } = self;
        let len_name = if *len == 1024 { "1k".to_owned() } else { format!("{len}b") };
        format!("{}-{codec}-{count}x{len_name}", self.verb())
    }

    fn verb(&self) -> &'static str {
        if self.way == Way::Encode { "encode" } else { "decode" }
    }

    /// Its batch, as kseg-format writes it.
    ///
    /// # Errors
    /// The batch could not be built.
    pub fn batch(&self) -> Result<Bytes, BenchError> {
        kseg::Encode::new(self.values(), self.codec).batch()
    }

    fn values(&self) -> Vec<Bytes> {
        (0..self.count).map(|i| text(self.len, i as u64).into()).collect()
    }

    fn contest(self) -> Contest {
        let Cell { codec, count, len, .. } = self;
        let verb = self.verb();
        Contest {
            name: self.name(),
            about: format!("{verb} batches of {count} records of {len} bytes, {codec}"),
            unit: Unit::Bytes,
            units: count * len,
            bytes: count * len,
            goal: (codec == Codec::None).then_some(0.85),
            make: Box::new(move || self.coders()),
        }
    }

    fn coders(self) -> Result<Coders, BenchError> {
        let Cell { way, codec, .. } = self;
        let values = self.values();
        let mut coders: Coders = Vec::new();
        if way == Way::Encode {
            coders.push(("bare loop", Box::new(bare::Encode::new(values.clone()))));
            coders.push(("kseg-format", Box::new(kseg::Encode::new(values.clone(), codec))));
            coders.push(("krabka", Box::new(krabka::Encode::new(&values, codec))));
            coders.push(("kafka-protocol", Box::new(kafka_protocol::Encode::new(&values, codec))));
            coders.push(("rskafka", Box::new(rskafka::Encode::new(&values, codec))));
        } else {
            let plain = kseg::Encode::new(values, Codec::None).batch()?;
            let batch = self.batch()?;
            coders.push(("bare loop", Box::new(bare::Decode::new(plain))));
            coders.push(("kseg-format", Box::new(kseg::Decode::new(batch.clone()))));
            coders.push(("krabka", Box::new(krabka::Decode(batch.clone()))));
            coders.push(("kafka-protocol", Box::new(kafka_protocol::Decode(batch.clone()))));
            coders.push(("rskafka", Box::new(rskafka::Decode(batch))));
        }
        Ok(coders)
    }
}

/// Words that compress about as well as log lines.
fn text(len: usize, seed: u64) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "partition ",
        "offset ",
        "append ",
        "batch ",
        "leader ",
        "epoch ",
        "segment ",
        "index ",
        "took ",
        "ms ",
        "client ",
        "fetch ",
        "from ",
        "to ",
        "error ",
        "ok ",
    ];
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03;
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = (state >> 33) as usize;
        bytes.extend_from_slice(WORDS[pick % 16].as_bytes());
        if pick & 0x30 == 0 {
            bytes.extend_from_slice(format!("{} ", pick >> 8).as_bytes());
        }
    }
    bytes.truncate(len);
    bytes
}
