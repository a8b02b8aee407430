//! Compression of a batch's records: a file and a feature of the crate per codec.
//!
//! What is compressed is the byte string behind the 61 bytes of a record batch's header, or the value of a legacy
//! wrapper. The libraries supply the algorithms (deflate, the snappy and lz4 blocks, zstd frames); the framing around
//! them is read and written here, because Kafka's readers take and refuse other things than the libraries' own.
//!
//! Decompression holds to three rules, for bytes that may have been made to do harm:
//!
//! - Nothing is written beyond the caller's limit, and going beyond is an error of its own ([`DecodeError::TooLarge`]).
//! - Memory grows with what has really been decoded and with the bytes really present, never by a length that stands
//!   in them.
//! - What Kafka refuses is refused. What it takes is taken, but for a few things that no writer makes: an lz4 block
//!   that decodes to nothing or has a match at distance 0, a second snappy header with a wrong magic, a small zstd
//!   frame that asks for a window beyond 128 MiB.
//!
//! Source: Kafka `org.apache.kafka.common.compress`; snappy-java, zstd-jni and `java.util.zip` under it.

use std::borrow::Cow;
use std::fmt;

use crate::codec::{Codec, Magic};
use crate::error::{DecodeError, EncodeError};

#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "lz4")]
mod lz4;
mod output;
mod pieces;
#[cfg(feature = "snappy")]
mod snappy;
#[cfg(feature = "zstd")]
mod zstd;

pub(crate) use output::Output;
pub(crate) use pieces::Pieces;

/// A payload that is decompressed, piece by piece or all at once.
pub(crate) struct Stream<'a> {
    codec: Codec,
    limit: usize,
    decoder: Decoder<'a>,
}

enum Decoder<'a> {
    None(Option<&'a [u8]>),
    #[cfg(feature = "gzip")]
    Gzip(gzip::Decoder<'a>),
    #[cfg(feature = "snappy")]
    Snappy(snappy::Decoder<'a>),
    #[cfg(feature = "lz4")]
    Lz4(lz4::Decoder<'a>),
    #[cfg(feature = "zstd")]
    Zstd(zstd::Decoder<'a>),
}

impl<'a> Stream<'a> {
    /// The most bytes that one step of [`more`](Stream::more) makes room for; where a codec has blocks, a whole block.
    const STEP_MAX: usize = 64 * 1024;

    /// Opens a whole payload, of which no more than `limit` bytes may come out.
    ///
    /// `magic` is that of the batch or wrapper around it, which decides whether the header checksum of an lz4 frame counts.
    /// [`Codec::None`] copies.
    ///
    /// # Errors
    /// [`DecodeError::CodecDisabled`] in a build without the codec, [`DecodeError::Codec`] for what the codec refuses of the
    /// payload's beginning.
    pub(crate) fn open(
        codec: Codec,
        magic: Magic,
        input: &'a [u8],
        limit: usize,
    ) -> Result<Stream<'a>, DecodeError> {
        // Only lz4 asks for it, and that may be off.
        let _ = magic;
        let decoder = match codec {
            Codec::None => Ok(Decoder::None(Some(input))),
            #[cfg(feature = "gzip")]
            Codec::Gzip => gzip::Decoder::open(input).map(Decoder::Gzip),
            #[cfg(feature = "snappy")]
            Codec::Snappy => snappy::Decoder::open(input).map(Decoder::Snappy),
            #[cfg(feature = "lz4")]
            Codec::Lz4 => lz4::Decoder::open(magic, input).map(Decoder::Lz4),
            #[cfg(feature = "zstd")]
            Codec::Zstd => zstd::Decoder::open(input).map(Decoder::Zstd),
            #[allow(unreachable_patterns, reason = "reached only where a feature is off")]
            _ => return Err(DecodeError::CodecDisabled { codec }),
        };
        decoder.map(|decoder| Stream { codec, limit, decoder }).map_err(|fault: Fault| fault.of(codec, limit))
    }

    /// Puts all that comes out into `out`, in place of what it held.
    ///
    /// # Errors
    /// [`DecodeError::Codec`] for a payload that the codec refuses, [`DecodeError::TooLarge`] for one that does not fit
    /// the limit. `out` then holds what was decoded in front of the fault, at most `limit` bytes.
    pub(crate) fn read_all(&mut self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let limit = self.limit;
        let mut sink = Sink { out, len: 0, before: 0, limit, step_max: usize::MAX };
        let read = loop {
            match self.step_into(&mut sink) {
                Ok(true) => {}
                end => break end.map(drop),
            }
        };
        sink.trim();
        read
    }

    /// Appends the next piece of what comes out to `window`, which may be none; whether there may be more. `before` is how
    /// many bytes came out earlier and are no longer in `window`.
    ///
    /// # Errors
    /// Those of [`read_all`](Stream::read_all); the stream is of no more use.
    fn more(&mut self, window: &mut Vec<u8>, before: usize) -> Result<bool, DecodeError> {
        let limit = self.limit;
        let mut sink = Sink { len: window.len(), out: window, before, limit, step_max: Stream::STEP_MAX };
        let more = self.step_into(&mut sink);
        sink.trim();
        more
    }

    fn step_into(&mut self, sink: &mut Sink<'_>) -> Result<bool, DecodeError> {
        let stepped = match &mut self.decoder {
            Decoder::None(input) => input.take().map_or(Ok(()), |input| sink.copy(input)).map(|()| false),
            #[cfg(feature = "gzip")]
            Decoder::Gzip(decoder) => decoder.step(sink),
            #[cfg(feature = "snappy")]
            Decoder::Snappy(decoder) => decoder.step(sink),
            #[cfg(feature = "lz4")]
            Decoder::Lz4(decoder) => decoder.step(sink),
            #[cfg(feature = "zstd")]
            Decoder::Zstd(decoder) => decoder.step(sink),
        };
        stepped.map_err(|fault| fault.of(self.codec, self.limit))
    }
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("codec", &self.codec)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Appends `input` in compressed form to `out`.
///
/// `level` of `None` is the codec's default; see [`Codec::levels`]. One for a codec without levels is ignored.
///
/// `magic` is that of the batch or wrapper: an lz4 frame under magic 0 gets the header checksum of old clients.
/// Input of no bytes gives an empty frame.
///
/// # Errors
/// [`EncodeError::Level`] for a level out of range, [`EncodeError::CodecDisabled`] in a build without the codec,
/// [`EncodeError::Codec`] where the library fails. `out` is then as long as it was.
pub(crate) fn compress(
    codec: Codec,
    level: Option<i32>,
    magic: Magic,
    input: &[u8],
    out: &mut Output,
) -> Result<(), EncodeError> {
    // Only lz4 asks for it, and that may be off; snappy has no levels.
    let _ = (level, magic);
    let start = out.len();
    let compressed = match codec {
        Codec::None => {
            out.put(input);
            Ok(())
        }
        #[cfg(feature = "gzip")]
        Codec::Gzip => gzip::compress(checked_level(codec, level)?, input, out),
        #[cfg(feature = "snappy")]
        Codec::Snappy => snappy::compress(input, out),
        #[cfg(feature = "lz4")]
        Codec::Lz4 => {
            checked_level(codec, level)?;
            lz4::compress(magic, input, out)
        }
        #[cfg(feature = "zstd")]
        Codec::Zstd => zstd::compress(checked_level(codec, level)?, input, out),
        #[allow(unreachable_patterns, reason = "reached only where a feature is off")]
        _ => return Err(EncodeError::CodecDisabled { codec }),
    };
    compressed.map_err(|what: Cow<'static, str>| {
        out.truncate(start);
        EncodeError::codec(codec, what)
    })
}

/// The level if it is the codec's.
#[cfg(any(feature = "gzip", feature = "lz4", feature = "zstd"))]
fn checked_level(codec: Codec, level: Option<i32>) -> Result<Option<i32>, EncodeError> {
    level.map_or(Ok(()), |level| codec.check_level(level)).map(|()| level)
}

/// Why a payload did not decompress.
#[derive(Debug)]
enum Fault {
    /// The bytes are not what the codec writes; `at` counts from the payload's first byte.
    #[cfg_attr(
        not(any(feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd")),
        expect(dead_code)
    )]
    Broken { at: usize, what: Cow<'static, str> },
    /// More bytes came out than the caller allows.
    TooLarge,
}

impl Fault {
    #[cold]
    fn of(self, codec: Codec, limit: usize) -> DecodeError {
        match self {
            Fault::Broken { at, what } => DecodeError::codec(codec, what, at),
            Fault::TooLarge => DecodeError::TooLarge { codec, limit },
        }
    }

    /// A field of the payload, which stands at `at`, is not as it should be.
    #[cfg(any(feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd"))]
    #[cold]
    fn unexpected(
        at: usize,
        field: &'static str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Fault {
        Fault::Broken { at, what: format!("{field}: expected {expected}, found {found}").into() }
    }

    /// Of a field that begins at `at` not all bytes are there.
    #[cfg(any(feature = "gzip", feature = "lz4", feature = "snappy"))]
    #[cold]
    fn cut(at: usize, field: &'static str, needed: usize, found: usize) -> Fault {
        Fault::unexpected(at, field, format_args!("{needed} bytes"), format_args!("{found} bytes"))
    }

    /// At `at` should stand `expected`; `found` begins with what stands there.
    #[cfg(any(feature = "gzip", feature = "lz4", feature = "snappy"))]
    #[cold]
    fn other_bytes<const N: usize>(
        at: usize,
        field: &'static str,
        expected: &[u8; N],
        found: &[u8],
    ) -> Fault {
        let found = &found[..found.len().min(N)];
        Fault::unexpected(at, field, format_args!("{expected:02x?}"), format_args!("{found:02x?}"))
    }

    /// The checksum that stands at `at` is not the one of the bytes that it covers.
    #[cfg(any(feature = "gzip", feature = "lz4"))]
    #[cold]
    fn checksum<T: fmt::LowerHex>(at: usize, field: &'static str, stored: T, computed: T) -> Fault {
        Fault::unexpected(at, field, format_args!("{stored:#x}"), format_args!("{computed:#x}"))
    }

    /// What begins at `at` cannot be decoded; `why` is the library's word.
    #[cfg(any(feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd"))]
    #[cold]
    fn undecodable(at: usize, field: &'static str, why: impl fmt::Display) -> Fault {
        Fault::unexpected(at, field, "one that can be decoded", why)
    }
}

/// Where decompressed bytes go: the caller's vector, and how many may be put there.
///
/// There are never more than `limit` when a codec returns, those taken out of the vector before counted in.
struct Sink<'a> {
    /// The bytes put there, and behind them whatever the vector held: a codec that writes into bytes that are there writes over
    /// those, so that a vector which is used again need not be set to zeroes first.
    out: &'a mut Vec<u8>,
    /// How many of them have been put there.
    len: usize,
    /// Bytes that were put there in earlier steps and are there no more.
    before: usize,
    limit: usize,
    /// The most room to be made at a time.
    #[cfg_attr(
        not(any(feature = "gzip", feature = "zstd")),
        allow(dead_code, reason = "only these two ask")
    )]
    step_max: usize,
}

impl Sink<'_> {
    /// The bytes put there so far.
    fn produced(&self) -> usize {
        self.before + self.len
    }

    /// The bytes that may still be put there.
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.produced())
    }

    /// Leaves the bytes that have been put there, and no others.
    fn trim(&mut self) {
        self.out.truncate(self.len);
    }

    /// Lets a library append to the vector by itself, which it may do up to the vector's capacity and so beyond the limit; makes
    /// room for `len` bytes.
    #[cfg(any(feature = "gzip", feature = "zstd"))]
    fn append<T>(&mut self, len: usize, decode: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T, Fault> {
        self.trim();
        self.out.reserve(len);
        let decoded = decode(self.out);
        self.len = self.out.len();
        if self.produced() > self.limit {
            self.len = self.limit.saturating_sub(self.before);
            return Err(Fault::TooLarge);
        }
        Ok(decoded)
    }

    /// Appends bytes that need no decoding.
    fn copy(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let fitting = &bytes[..bytes.len().min(self.room())];
        self.trim();
        self.out.extend_from_slice(fitting);
        self.len = self.out.len();
        if fitting.len() < bytes.len() { Err(Fault::TooLarge) } else { Ok(()) }
    }

    /// Lets `decode` write into `len` bytes and keeps as many of them as it says, none if it fails.
    ///
    /// The caller bounds `len` by [`Sink::room`] and by the bytes that are really there to be decoded.
    #[cfg(any(feature = "lz4", feature = "snappy"))]
    fn fill<E>(
        &mut self,
        len: usize,
        decode: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let end = self.len + len;
        if end > self.out.len() {
            self.out.resize(end, 0);
        }
        let written = decode(&mut self.out[self.len..end])?;
        self.len += written;
        Ok(written)
    }
}

#[cfg(test)]
mod tests;
