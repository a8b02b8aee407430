//! Kafka's record batches as bytes: build, view, check, walk; compression and CRC-32C.
#![forbid(unsafe_code)]

mod batch;
mod batches;
mod codec;
mod compression;
mod control;
mod crc;
mod error;
mod framing;
pub mod kraft;
pub mod legacy;
mod number;
mod record;
mod records;
mod validate;
mod varint;

pub use batch::builder::{BatchOptions, Producer, RecordBatchBuilder};
pub use batch::header::{BATCH_OVERHEAD, BatchHeader, HEADER_UP_TO_MAGIC, LOG_OVERHEAD, MIN_SIZE_FIELD};
pub use batch::mutate::BatchMut;
pub use batch::{Attributes, Batch, CheckedBatch};
pub use batches::Batches;
pub use codec::{Codec, Magic, TimestampType, UnknownCodecName};
pub use control::{ControlKey, ControlType, EndTransactionMarker};
pub use error::{DecodeError, EncodeError, Expected, Found, Place};
pub use framing::{Framed, first_batch_size, frame};
pub use number::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, RelativeOffset, Sequence, Timestamp};
pub use record::{Header, Headers, Record};
pub use records::Records;
pub use validate::{
    Assigned, LeaderRules, Levels, Origin, RecordFault, RecordFaultKind, ValidationError, assign_offsets,
};
