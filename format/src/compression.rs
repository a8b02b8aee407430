//! Compression of a batch's records.

use bytes::BytesMut;

use crate::codec::{Codec, Magic};
use crate::error::{DecodeError, EncodeError};

pub(crate) fn decompress(
    codec: Codec,
    _magic: Magic,
    _input: &[u8],
    _out: &mut Vec<u8>,
    _limit: usize,
) -> Result<(), DecodeError> {
    Err(DecodeError::CodecDisabled { codec })
}

pub(crate) fn compress(
    codec: Codec,
    _level: Option<i32>,
    _magic: Magic,
    _input: &[u8],
    _out: &mut BytesMut,
) -> Result<(), EncodeError> {
    Err(EncodeError::CodecDisabled { codec })
}
