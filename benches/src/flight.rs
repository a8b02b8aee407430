//! The limit of writes that complete later: several in flight, and nothing else.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kseg_io_backends::{Backend, Op, OpenHow, RawFile, Reserve, Through, Ticket};

use crate::bench::Scale;
use crate::contest::{Slice, Watch, Work};
use crate::error::{BenchError, expect};
use crate::state::FileState;
use crate::supply::{self, Supply};

/// What direct writes are aligned to.
const ALIGN: usize = 4096;

/// Writes of one size over a file that is made ready once, a number of them in flight; no log, no copy, no CRC.
///
/// It writes the bytes of batches, in pieces that are aligned. Written over, the file stays in its state.
#[derive(Debug)]
pub(crate) struct FlightLoop {
    backend: Arc<dyn Backend>,
    path: PathBuf,
    supply: Supply,
    pieces: Vec<Bytes>,
    depth: usize,
    state: FileState,
    scale: Scale,
    file: Option<Arc<dyn RawFile>>,
}

impl FlightLoop {
    /// Writes batches of `supply` to `path` through `backend`, `depth` in flight.
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        path: PathBuf,
        mut supply: Supply,
        depth: usize,
        state: FileState,
        scale: Scale,
    ) -> FlightLoop {
        let size = supply.batch_len().next_multiple_of(ALIGN);
        let mut all = BytesMut::new();
        for _ in 0..supply.different() {
            all.extend_from_slice(&supply.one());
        }
        let pieces = all.chunks(size).map(|piece| aligned(piece, size)).collect();
        FlightLoop { backend, path, supply, pieces, depth, state, scale, file: None }
    }

    fn ready(&mut self) -> Result<Arc<dyn RawFile>, BenchError> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let file = self.backend.open(&self.path, OpenHow::Create)?;
        if let FileState::Unwritten(bytes) | FileState::Zeroed(bytes) = self.state {
            let how = if matches!(self.state, FileState::Zeroed(_)) {
                Reserve::Zeroed
            } else {
                Reserve::BlocksAndLen
            };
            file.submit(Op::Reserve { range: 0..u64::from(bytes), how }).wait().result?;
        }
        file.submit(Op::Flush { metadata: true }).wait().result?;
        self.file = Some(file.clone());
        Ok(file)
    }
}

/// A copy of `piece`, with zeros behind it up to `size`, at an address that direct writes take.
fn aligned(piece: &[u8], size: usize) -> Bytes {
    let mut room = vec![0; size + ALIGN];
    let skip = room.as_ptr().align_offset(ALIGN);
    room[skip..skip + piece.len()].copy_from_slice(piece);
    Bytes::from(room).slice(skip..skip + size)
}

fn landed(ticket: Ticket, size: usize) -> Result<u64, BenchError> {
    let written = ticket.wait().result?;
    expect("the bytes of a write", size as u64, written)?;
    Ok(written)
}

impl Work for FlightLoop {
    fn check(&mut self) -> Result<u64, BenchError> {
        let file = self.ready()?;
        let mut at = 0;
        for piece in &self.pieces {
            let write = Op::Write { at, data: piece.clone().into(), through: Through::No };
            at += landed(file.submit(write), piece.len())?;
        }
        let len = self.supply.batch_len();
        let mut all = vec![0; self.supply.different() * len];
        let count = file.read_at(&mut all, 0)?;
        expect("the bytes read back", all.len() as u64, count as u64)?;
        Ok(all.chunks(len).fold(0, supply::hash))
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let file = self.ready()?;
        let cap = self.state.cap(self.scale);
        let mut watch = Watch::new(at_least);
        let mut pieces = self.pieces.iter().cycle();
        let mut flying = VecDeque::new();
        let mut at = 0;
        while watch.runs() {
            watch.time(|| {
                let mut units = 0;
                for piece in pieces.by_ref().take(self.depth) {
                    if flying.len() == self.depth
                        && let Some((ticket, size)) = flying.pop_front()
                    {
                        units += landed(ticket, size)?;
                    }
                    let write = Op::Write { at, data: piece.clone().into(), through: Through::No };
                    flying.push_back((file.submit(write), piece.len()));
                    at = if at + 2 * piece.len() as u64 > cap { 0 } else { at + piece.len() as u64 };
                }
                Ok(units)
            })?;
        }
        watch.time(|| {
            let mut units = 0;
            for (ticket, size) in flying.drain(..) {
                units += landed(ticket, size)?;
            }
            Ok(units)
        })?;
        let found = std::fs::metadata(&self.path).map_err(BenchError::io("look at", &self.path))?.size();
        expect("whether the file has kept its length", 1, u64::from(found >= cap))?;
        Ok(watch.stop())
    }
}

impl Drop for FlightLoop {
    fn drop(&mut self) {
        self.file = None;
        // It goes with the working folder at the latest.
        let _ = std::fs::remove_file(&self.path);
    }
}
