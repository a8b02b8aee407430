//! Kafka's record batches as bytes: build, view, check, walk; compression and CRC-32C.
#![forbid(unsafe_code)]

mod codec;
mod compression;
mod error;
mod number;

pub use codec::{Codec, Magic, TimestampType, UnknownCodecName};
pub use error::{DecodeError, EncodeError, Expected, Found, Place};
pub use number::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, RelativeOffset, Sequence, Timestamp};
