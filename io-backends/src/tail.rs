//! [`Tail`]: the last bytes of a file, in memory, for readers beside the writer.

use std::collections::VecDeque;

use bytes::Bytes;

/// Bytes `[start, end)` of a file, as the pieces that were appended. Shared with the writes that carry them, not copied.
#[derive(Debug)]
pub(crate) struct Tail {
    start: u64,
    end: u64,
    pieces: VecDeque<(u64, Bytes)>,
}

impl Tail {
    /// Nothing, at `end`.
    pub(crate) fn new(end: u64) -> Self {
        Self { start: end, end, pieces: VecDeque::new() }
    }

    /// Where the bytes here begin: what lies before is in the file.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Where the bytes here end.
    #[cfg(test)]
    fn end(&self) -> u64 {
        self.end
    }

    /// Adds a piece at the end.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            let at = self.end;
            self.end += piece.len() as u64;
            self.pieces.push_back((at, piece));
        }
    }

    /// Bytes up to `to` went past here: they and all before them are in the file.
    pub(crate) fn skip(&mut self, to: u64) {
        self.pieces.clear();
        (self.start, self.end) = (to, to);
    }

    /// Copies from `at`, not before the start, until `into` is full or the end reached. Returns how many bytes.
    pub(crate) fn read(&self, into: &mut [u8], at: u64) -> usize {
        let mut done = 0;
        for (bytes, skip) in self.from(at) {
            let count = (bytes.len() - skip).min(into.len() - done);
            into[done..done + count].copy_from_slice(&bytes[skip..skip + count]);
            done += count;
            if done == into.len() {
                break;
            }
        }
        done
    }

    /// The bytes of `[from, to)`, which lies here, as pieces.
    pub(crate) fn slices(&self, from: u64, to: u64) -> Vec<Bytes> {
        let mut left = (to - from) as usize;
        let mut slices = Vec::new();
        for (bytes, skip) in self.from(from) {
            let count = (bytes.len() - skip).min(left);
            if count == 0 {
                break;
            }
            slices.push(bytes.slice(skip..skip + count));
            left -= count;
        }
        slices
    }

    /// Forgets whole pieces below `to`.
    pub(crate) fn forget_below(&mut self, to: u64) {
        while let Some((at, bytes)) = self.pieces.front() {
            let end = at + bytes.len() as u64;
            if end > to {
                break;
            }
            self.start = end;
            self.pieces.pop_front();
        }
    }

    /// Forgets what lies at and behind `len`.
    pub(crate) fn cut(&mut self, len: u64) {
        while let Some((at, bytes)) = self.pieces.back_mut() {
            if *at < len {
                bytes.truncate((len - *at) as usize);
                break;
            }
            self.pieces.pop_back();
        }
        self.end = self.end.min(len);
        self.start = self.start.min(self.end);
    }

    fn from(&self, at: u64) -> impl Iterator<Item = (&Bytes, usize)> {
        debug_assert!(at >= self.start);
        let first = self.pieces.partition_point(|(start, bytes)| start + bytes.len() as u64 <= at);
        self.pieces.range(first..).map(move |(start, bytes)| (bytes, at.saturating_sub(*start) as usize))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_range_reads_as_it_was_pushed() {
        let all: Vec<u8> = (0..40).collect();
        let mut tail = Tail::new(100);
        for piece in [0..5, 5..5, 5..6, 6..20, 20..40] {
            tail.push(Bytes::copy_from_slice(&all[piece]));
        }
        assert_eq!((tail.start(), tail.end()), (100, 140));
        for from in 0..=40_u64 {
            for to in from..=40 {
                let expected = &all[from as usize..to as usize];
                let mut into = vec![0xee; expected.len()];
                assert_eq!(tail.read(&mut into, 100 + from), expected.len());
                assert_eq!(into, expected);
                assert_eq!(tail.slices(100 + from, 100 + to).concat(), expected);
            }
        }
        assert_eq!(tail.read(&mut [0; 50], 110), 30);
        assert_eq!(tail.read(&mut [0; 50], 140), 0);
    }

    #[test]
    fn forgetting_and_cutting_keep_the_rest() {
        let mut tail = Tail::new(0);
        for piece in [&b"abc"[..], b"defg", b"hi"] {
            tail.push(Bytes::copy_from_slice(piece));
        }
        tail.forget_below(6);
        assert_eq!((tail.start(), tail.end()), (3, 9));
        tail.cut(8);
        assert_eq!(tail.slices(3, 8).concat(), b"defgh");
        tail.cut(5);
        tail.push(Bytes::from_static(b"xy"));
        assert_eq!(tail.slices(3, 7).concat(), b"dexy");
        tail.cut(2);
        assert_eq!((tail.start(), tail.end()), (2, 2));
        tail.push(Bytes::from_static(b"z"));
        assert_eq!(tail.slices(2, 3).concat(), b"z");
        tail.skip(7);
        assert_eq!((tail.start(), tail.end()), (7, 7));
        tail.push(Bytes::from_static(b"y"));
        assert_eq!(tail.slices(7, 8).concat(), b"y");
    }
}
