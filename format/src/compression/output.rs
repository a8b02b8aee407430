//! Where compressed bytes go.

/// Compressed bytes, in a buffer that is used again and again.
///
/// The codecs write into bytes that are there, so all of them have to be set to something first. That is done once, when
/// the buffer grows: what stands behind the bytes written is kept as it is.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    len: usize,
}

impl Output {
    /// The bytes written.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Forgets what was written behind the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The next `len` bytes, whatever they are; [`advance`](Output::advance) counts those that have been written.
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.len + len;
        if end > self.bytes.len() {
            self.bytes.resize(end.max(self.bytes.len() * 2), 0);
        }
        &mut self.bytes[self.len..end]
    }

    /// Counts `len` more bytes of what [`room`](Output::room) gave as written.
    #[cfg(any(test, feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd"))]
    pub(crate) fn advance(&mut self, len: usize) {
        debug_assert!(self.len + len <= self.bytes.len());
        self.len += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_once_and_keeps_what_was_there() {
        let mut out = Output::default();
        out.put(b"one");
        out.room(5).copy_from_slice(b"two..");
        out.advance(3);
        assert_eq!((out.as_slice(), out.len()), (&b"onetwo"[..], 6));
        assert_eq!(out.room(2), b"..");
        out.truncate(3);
        assert_eq!(out.as_mut_slice(), b"one");
        assert_eq!(out.room(5), b"two..");
        out.truncate(9);
        assert_eq!(out.len(), 3);
        // All that is there is room that need not be made.
        let most = out.bytes.len();
        out.room(most - 3);
        assert_eq!(out.bytes.len(), most);
        out.room(most - 2);
        assert_eq!(out.bytes.len(), 2 * most);
    }
}
