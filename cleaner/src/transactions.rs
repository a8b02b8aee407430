//! Which batches of transactions a round keeps: data of aborted ones goes, markers stay as long as data may need them.
//!
//! One value goes through all batches of a round in the order of their offsets, and is asked exactly once for each: it
//! remembers of which producers data were seen since their last marker.
//!
//! Source: Kafka `CleanedTransactionMetadata`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use kseg_format::{AbortedTransaction, Batch, ControlKey, ControlType, DecodeError, Offset, ProducerId};

/// A control record is a few bytes; nothing compresses it.
const CONTROL_LIMIT: usize = 1 << 20;

/// What was seen of transactions so far.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    /// Producers of which data of a transaction that was not aborted have been seen.
    committed: HashSet<ProducerId>,
    /// Aborted transactions under way, and the last of their batches that was seen.
    aborted: HashMap<ProducerId, (AbortedTransaction, Option<Offset>)>,
    /// Aborted ones that have not begun, by first offset; the number leads to the entry.
    pending: BinaryHeap<Reverse<(Offset, u64)>>,
    entries: BTreeMap<u64, AbortedTransaction>,
    next_entry: u64,
    /// Aborted transactions of which something was seen and whose marker has come.
    ended: Vec<AbortedTransaction>,
    scratch: Vec<u8>,
}

impl Transactions {
    /// Takes note of aborted transactions of the batches to come; the same ones may come again.
    pub(crate) fn expect(&mut self, aborted: Vec<AbortedTransaction>) {
        for entry in aborted {
            self.pending.push(Reverse((entry.first_offset, self.next_entry)));
            self.entries.insert(self.next_entry, entry);
            self.next_entry += 1;
        }
    }

    /// The aborted transactions that ended since this was last asked: their entries belong where their markers are.
    pub(crate) fn take_ended(&mut self) -> Vec<AbortedTransaction> {
        std::mem::take(&mut self.ended)
    }

    /// Whether a batch of data goes.
    pub(crate) fn on_data(&mut self, batch: &Batch<'_>) -> bool {
        self.begin_up_to(batch.last_offset());
        if !batch.is_transactional() {
            return false;
        }
        let Some(producer) = batch.producer_id() else { return false };
        if let Some((_, seen)) = self.aborted.get_mut(&producer) {
            *seen = Some(batch.last_offset());
            return true;
        }
        self.committed.insert(producer);
        false
    }

    /// Whether nothing needs a control batch any more.
    pub(crate) fn on_control(&mut self, batch: &Batch<'_>) -> Result<bool, DecodeError> {
        self.begin_up_to(batch.last_offset());
        let first = batch.records(&mut self.scratch, CONTROL_LIMIT)?.next();
        // One that was emptied before.
        let Some(record) = first else { return Ok(true) };
        let kind = ControlKey::parse(record?.key().unwrap_or_default())?.kind;
        let producer = batch.producer_id().unwrap_or(ProducerId::new(-1));
        Ok(match kind {
            ControlType::Abort => match self.aborted.remove(&producer) {
                Some((entry, Some(_))) => {
                    self.ended.push(entry);
                    false
                }
                _ => true,
            },
            ControlType::Commit => !self.committed.remove(&producer),
            _ => false,
        })
    }

    fn begin_up_to(&mut self, offset: Offset) {
        while let Some(&Reverse((first, number))) = self.pending.peek() {
            if first > offset {
                break;
            }
            self.pending.pop();
            if let Some(entry) = self.entries.remove(&number) {
                self.aborted.entry(entry.producer_id).or_insert((entry, None));
            }
        }
    }
}
