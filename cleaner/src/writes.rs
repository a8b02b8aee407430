//! Writing what a round keeps: on the caller's thread, or behind it on a thread of its own, which also makes a group's copy
//! durable and swaps it in while the next group is being read.
//!
//! Copies are swapped in in order: several groups at once, as soon as their copies are as large as a segment together, for a swap
//! costs three syncs of the directory however many segments it has. A stop that leaves a swap beside the beginnings of the next
//! copy is told apart by the list of the swap, see `kseg-log`.

use std::time::SystemTime;

use bytes::Bytes;
use kseg_format::{AbortedTransaction, Batches, DecodeError, Expected, Found, Offset, Place};
use kseg_log::{Finished, Log, Replacement, Sealed};

use crate::error::{Error, Result};
use crate::sync::{Receiver, Scope, Sender, bounded};

/// Orders that may wait; each has at most about the bytes of one piece.
const WAITING: usize = 4;

/// What is to be done, in this order for each group.
pub(crate) enum Order<'g> {
    /// A group's copy begins.
    Begin { base: Offset, modified: Option<SystemTime> },
    /// These transactions have ended in the batches that come next.
    Aborted(Vec<AbortedTransaction>),
    /// Batches of the copy.
    Batches(Bytes),
    /// The copy is complete, and may take the place of these segments.
    Complete(&'g [Sealed]),
    /// There is nothing more to come: what is complete takes its place.
    Last,
}

/// What is told where nothing comes of the thread that writes.
const ENDED: Error = Error::Thread { work: "writing" };

/// So many segments are replaced by one swap at most.
const SWAPPED_MAX: usize = 256;

/// Where orders go.
pub(crate) enum Writes<'l> {
    /// Nowhere: nothing is to be written.
    Nowhere,
    Here(Box<Writer<'l>>),
    Behind {
        orders: Sender<Order<'l>>,
        ended: Receiver<Result<u64>>,
    },
}

impl<'l> Writes<'l> {
    /// With a scope the orders are carried out by a thread, if there is one to be had.
    pub(crate) fn to<'scope>(scope: Option<&'scope Scope<'scope, '_>>, log: &'l Log) -> Writes<'l>
    where
        'l: 'scope,
    {
        let behind = scope.and_then(|scope| {
            let (orders, taken) = bounded(WAITING);
            let (end, ended) = bounded(1);
            let thread = move || drop(end.send(carry_out(Writer::new(log), &taken)));
            crate::sync::spawn_scoped(scope, "kseg-cleaner-write", thread).ok()?;
            Some(Writes::Behind { orders, ended })
        });
        behind.unwrap_or_else(|| Writes::Here(Box::new(Writer::new(log))))
    }

    /// Gives an order.
    ///
    /// # Errors
    /// Of this order or of one before.
    pub(crate) fn give(&mut self, order: Order<'l>) -> Result<()> {
        match self {
            Writes::Nowhere => Ok(()),
            Writes::Here(writer) => writer.take(order),
            Writes::Behind { orders, ended } => match orders.send(order) {
                Ok(()) => Ok(()),
                Err(_) => Err(ended.recv().ok().and_then(Result::err).unwrap_or(ENDED)),
            },
        }
    }

    /// Waits for the end of all orders; returns how many segments have been swapped in.
    ///
    /// # Errors
    /// The first of an order, unless [`give`](Self::give) has told of it.
    pub(crate) fn end(self) -> Result<u64> {
        match self {
            Writes::Nowhere => Ok(0),
            Writes::Here(writer) => Ok(writer.segments_written),
            Writes::Behind { orders, ended } => {
                drop(orders);
                ended.recv().unwrap_or(Err(ENDED))
            }
        }
    }
}

fn carry_out<'l>(mut writer: Writer<'l>, orders: &Receiver<Order<'l>>) -> Result<u64> {
    for order in orders {
        writer.take(order)?;
    }
    Ok(writer.segments_written)
}

/// Carries orders out.
pub(crate) struct Writer<'l> {
    log: &'l Log,
    output: Option<Output<'l>>,
    /// Segments whose copies are complete, and the copies.
    complete: (Vec<Sealed>, Vec<Finished>),
    /// With so many bytes of copies they take their places.
    swap_bytes: u64,
    segments_written: u64,
}

impl<'l> Writer<'l> {
    fn new(log: &'l Log) -> Self {
        let swap_bytes = u64::try_from(log.config().segment_size_max()).unwrap_or(0);
        Writer { log, output: None, complete: Default::default(), swap_bytes, segments_written: 0 }
    }

    fn take(&mut self, order: Order<'_>) -> Result<()> {
        match (order, &mut self.output) {
            (Order::Begin { base, modified }, _) => {
                self.output = Some(Output::begin(self.log, base, modified)?);
            }
            (Order::Aborted(ended), Some(output)) => output.aborted.extend(ended),
            (Order::Batches(batches), Some(output)) => output.write(batches)?,
            (Order::Complete(group), output) => {
                if let Some(output) = output.take() {
                    self.complete.1.extend(output.finish()?);
                    self.complete.0.extend_from_slice(group);
                }
                let bytes: u64 = self.complete.1.iter().map(|finished| finished.size).sum();
                if bytes >= self.swap_bytes || self.complete.0.len() >= SWAPPED_MAX {
                    self.swap_in()?;
                }
            }
            (Order::Last, _) => self.swap_in()?,
            (_, None) => {}
        }
        Ok(())
    }

    fn swap_in(&mut self) -> Result<()> {
        let (old, new) = std::mem::take(&mut self.complete);
        if !new.is_empty() {
            self.log.replace_segments(&old, &new)?;
            self.segments_written += new.len() as u64;
        }
        Ok(())
    }
}

/// The new segments of a group: one, and another where the first can take no more (an index is full, an offset too far).
struct Output<'l> {
    log: &'l Log,
    modified: Option<SystemTime>,
    into: Replacement,
    finished: Vec<Finished>,
    /// Aborted transactions whose marker has not been written yet.
    aborted: Vec<AbortedTransaction>,
}

impl<'l> Output<'l> {
    fn begin(log: &'l Log, base: Offset, modified: Option<SystemTime>) -> Result<Output<'l>> {
        let into = log.begin_replacement(base)?;
        Ok(Output { log, modified, into, finished: Vec::new(), aborted: Vec::new() })
    }

    fn write(&mut self, mut batches: Bytes) -> Result<()> {
        loop {
            let room = self.into.room_for(&batches)?;
            if room > 0 {
                let part = batches.split_to(room);
                let last = self.last_offset(&part)?;
                self.into.append(last, part)?;
                self.write_aborted(last)?;
            }
            let Some((first, last)) = self.first(&batches)? else { return Ok(()) };
            if self.into.size() == 0 && self.into.base_offset() == first {
                // No other segment would take it either.
                return Err(self.built(DecodeError::Corrupt {
                    field: "last offset",
                    place: Place::Batch(0),
                    expected: Expected::Between(first.get(), first.get().saturating_add(i64::from(i32::MAX))),
                    found: Found::Value(last.get()),
                }));
            }
            self.next_segment(first)?;
        }
    }

    /// The entries of transactions whose marker lies at or below `last`.
    fn write_aborted(&mut self, last: Offset) -> Result<()> {
        let count = self.aborted.iter().take_while(|t| t.last_offset <= last).count();
        for entry in self.aborted.drain(..count) {
            self.into.append_aborted(&entry)?;
        }
        Ok(())
    }

    fn next_segment(&mut self, base: Offset) -> Result<()> {
        let full = std::mem::replace(&mut self.into, self.log.begin_replacement(base)?);
        if full.size() == 0 {
            // Its base is too far below the first batch, where the next one begins.
            full.discard()?;
        } else {
            self.finished.push(full.finish(self.modified)?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Finished>> {
        self.write_aborted(Offset::new(i64::MAX))?;
        self.finished.push(self.into.finish(self.modified)?);
        Ok(self.finished)
    }

    fn last_offset(&self, batches: &[u8]) -> Result<Offset> {
        let mut last = Offset::ZERO;
        for batch in Batches::new(batches) {
            last = last.max(batch.map_err(|e| self.built(e))?.last_offset());
        }
        Ok(last)
    }

    /// Base and last offset of the first batch.
    fn first(&self, batches: &[u8]) -> Result<Option<(Offset, Offset)>> {
        let Some(batch) = Batches::new(batches).next() else { return Ok(None) };
        let batch = batch.map_err(|e| self.built(e))?;
        let last = batch.last_offset();
        Ok(Some((batch.base_offset().unwrap_or(last), last)))
    }

    /// An error of a batch that came out of the filter: with the copy that it was to go to, and its place there.
    fn built(&self, source: DecodeError) -> Error {
        Error::corrupt(&self.into.path(), self.into.size(), source)
    }
}
