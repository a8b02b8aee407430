//! Lines of a file or a pipe, read on a thread of its own.
//!
//! A pipe may be silent for long while records wait for their batch to go out; so reading must not keep the writer
//! waiting. The thread hands over what each read returned; lines are cut here.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};

use crate::error::{Error, Result};

/// Bytes of one read at most.
const CHUNK: usize = 256 * 1024;
/// Chunks that may wait to be looked at.
const CHUNKS_WAITING: usize = 8;
/// Longest line: no record can be longer than Kafka's 32-bit lengths allow.
const LINE_MAX: usize = i32::MAX as usize;

/// An input of lines.
#[derive(Debug)]
pub(crate) struct Input {
    name: PathBuf,
    len: Option<u64>,
    chunks: Receiver<io::Result<Vec<u8>>>,
    /// What has arrived and is not cut yet: from `at` on.
    pending: Vec<u8>,
    at: usize,
    /// Bytes behind `at` that were searched for a newline.
    searched: usize,
    read: u64,
    ended: bool,
}

/// What there is of an input.
#[derive(Debug)]
pub(crate) enum Wait<'i> {
    /// A line, without its newline.
    Line(&'i [u8]),
    /// No line within the time given.
    Nothing,
    /// The input has ended.
    End,
}

impl Input {
    /// Opens a file, or standard input where there is none.
    pub(crate) fn open(path: Option<&Path>) -> Result<Input> {
        let (name, len, source): (PathBuf, Option<u64>, Box<dyn Read + Send>) = match path {
            Some(path) => {
                let failed = |error| Error::io(path, "open", error);
                let file = File::open(path).map_err(failed)?;
                let kind = file.metadata().map_err(failed)?;
                if kind.is_dir() {
                    return Err(Error::bad(path, "a file of lines", "a directory"));
                }
                (path.to_owned(), kind.is_file().then_some(kind.len()), Box::new(file))
            }
            None => ("standard input".into(), None, Box::new(io::stdin())),
        };
        let (sender, chunks) = bounded(CHUNKS_WAITING);
        // Ends with the input, or with the first chunk that nobody takes.
        thread::spawn(move || {
            let mut source = source;
            loop {
                let mut chunk = vec![0; CHUNK];
                let read = match source.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(read) => read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => {
                        let _ = sender.send(Err(error));
                        return;
                    }
                };
                chunk.truncate(read);
                if sender.send(Ok(chunk)).is_err() {
                    return;
                }
            }
        });
        Ok(Input { name, len, chunks, pending: Vec::new(), at: 0, searched: 0, read: 0, ended: false })
    }

    /// What messages call the input.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Bytes in the whole input, if that is known.
    pub(crate) fn len(&self) -> Option<u64> {
        self.len
    }

    /// Bytes taken off the input so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// The next line; waits no longer than `wait` for it, if that is given.
    pub(crate) fn next(&mut self, wait: Option<Duration>) -> Result<Wait<'_>> {
        loop {
            let unseen = &self.pending[self.at + self.searched..];
            if let Some(newline) = unseen.iter().position(|byte| *byte == b'\n') {
                let (start, end) = (self.at, self.at + self.searched + newline);
                (self.at, self.searched) = (end + 1, 0);
                return Ok(Wait::Line(&self.pending[start..end]));
            }
            self.searched += unseen.len();
            if self.ended {
                let start = std::mem::replace(&mut self.at, self.pending.len());
                self.searched = 0;
                return Ok(if start < self.pending.len() {
                    Wait::Line(&self.pending[start..])
                } else {
                    Wait::End
                });
            }
            if self.searched > LINE_MAX {
                return Err(Error::bad(
                    &self.name,
                    format!("lines of at most {LINE_MAX} bytes"),
                    "a longer one",
                ));
            }
            let chunk = match wait {
                Some(wait) => match self.chunks.recv_timeout(wait) {
                    Ok(chunk) => Some(chunk),
                    Err(RecvTimeoutError::Timeout) => return Ok(Wait::Nothing),
                    Err(RecvTimeoutError::Disconnected) => None,
                },
                None => self.chunks.recv().ok(),
            };
            match chunk {
                Some(Ok(chunk)) => self.take(chunk),
                Some(Err(error)) => return Err(Error::io(&self.name, "read", error)),
                None => self.ended = true,
            }
        }
    }

    fn take(&mut self, chunk: Vec<u8>) {
        self.read += chunk.len() as u64;
        if self.at == self.pending.len() {
            self.pending = chunk;
        } else {
            self.pending.drain(..self.at);
            self.pending.extend_from_slice(&chunk);
        }
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), bytes).expect("write");
        let mut input = Input::open(Some(file.path())).expect("open");
        let mut lines = Vec::new();
        loop {
            match input.next(None).expect("line") {
                Wait::Line(line) => lines.push(line.to_vec()),
                Wait::Nothing => {}
                Wait::End => return lines,
            }
        }
    }

    #[test]
    fn the_last_line_may_lack_its_newline() {
        assert_eq!(lines(b""), Vec::<Vec<u8>>::new());
        assert_eq!(lines(b"a\n\nb\n"), [&b"a"[..], b"", b"b"]);
        assert_eq!(lines(b"a\n\xff\0\r"), [&b"a"[..], b"\xff\0\r"]);
        assert_eq!(lines(b"\n"), [b""]);
    }

    #[test]
    fn lines_longer_than_a_chunk_are_whole() {
        let long = vec![b'x'; 3 * CHUNK + 7];
        let mut bytes = b"first\n".to_vec();
        bytes.extend_from_slice(&long);
        bytes.extend_from_slice(b"\nlast");
        assert_eq!(lines(&bytes), [b"first".to_vec(), long, b"last".to_vec()]);
    }
}
