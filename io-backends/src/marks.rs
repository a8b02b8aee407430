//! [`Marks`]: how far a file is accepted, stable and durable, and whether it is fenced.

use std::path::Path;
use std::sync::Arc;

use crate::error::IoError;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// The three marks of an append-only file, and its fence. Read without a lock, from any thread.
///
/// `durable <= stable <= accepted`, except while a truncation lowers them. Each is read on its own: two of them read
/// one after the other may lie on both sides of an append.
#[derive(Debug)]
pub struct Marks {
    accepted: AtomicU64,
    stable: AtomicU64,
    durable: AtomicU64,
    fenced: AtomicBool,
    cuts: AtomicU64,
    /// Odd while the file is being cut.
    cutting: AtomicU64,
    first: Mutex<Option<Arc<IoError>>>,
}

/// A cut of the file that is going on.
#[derive(Debug)]
#[must_use = "the cut is over when it is dropped"]
pub(crate) struct Cutting<'m>(&'m Marks);

impl Drop for Cutting<'_> {
    fn drop(&mut self) {
        // Behind the marks, which are lowered by then. Pairs with the load in `cutting`.
        self.0.cutting.fetch_add(1, Ordering::SeqCst);
    }
}

impl Marks {
    /// Marks of a file whose bytes below `len` are there, and not known to be durable.
    pub(crate) fn new(len: u64) -> Self {
        Self {
            accepted: AtomicU64::new(len),
            stable: AtomicU64::new(len),
            durable: AtomicU64::new(0),
            fenced: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
            cutting: AtomicU64::new(0),
            first: Mutex::new(None),
        }
    }

    /// Bytes taken by an append; their positions are final, and the appender's `read_at` returns them.
    pub fn accepted(&self) -> u64 {
        // Pairs with the store in `accept`: who sees the mark sees the bytes below it.
        self.accepted.load(Ordering::Acquire)
    }

    /// Bytes that the file itself returns. What lies between this and accepted is served by the appender.
    pub fn stable(&self) -> u64 {
        // Pairs with the store in `accept`.
        self.stable.load(Ordering::Acquire)
    }

    /// Bytes that survive power loss.
    pub fn durable(&self) -> u64 {
        // Pairs with the store in `sync_to`.
        self.durable.load(Ordering::Acquire)
    }

    /// Whether an error has closed the file for writing, for ever.
    pub fn fenced(&self) -> bool {
        // Pairs with the store in `fence`.
        self.fenced.load(Ordering::Acquire)
    }

    /// The error that set the fence.
    pub fn fenced_by(&self) -> Option<Arc<IoError>> {
        if self.fenced() { self.first.lock().clone() } else { None }
    }

    /// Bytes up to `to` are written, and may be read.
    pub(crate) fn accept(&self, to: u64) {
        // The file first: whoever sees accepted may look at stable next. Both pair with their loads above.
        self.stable.store(to, Ordering::Release);
        self.accepted.store(to, Ordering::Release);
    }

    /// Bytes up to `to` are taken, and the appender returns them.
    pub(crate) fn take(&self, to: u64) {
        // Pairs with the load in `accepted`.
        self.accepted.store(to, Ordering::Release);
    }

    /// Bytes up to `to`, which were accepted, are in the file. One thread at a time.
    pub(crate) fn settle(&self, to: u64) {
        // Pairs with the load in `stable`.
        self.stable.store(to, Ordering::Release);
    }

    /// Bytes up to `to` are durable. One sync at a time.
    pub(crate) fn sync_to(&self, to: u64) {
        // Pairs with the load in `durable`.
        self.durable.store(to, Ordering::Release);
    }

    /// The file was cut to `len`, of which `durable` bytes are durable and `stable` in the file. No append and no sync is going
    /// on.
    pub(crate) fn cut(&self, len: u64, stable: u64, durable: u64) {
        // First, so that whoever finds lower marks, or bytes appended afterwards, finds the cut. Pairs with the load
        // in `cuts`.
        self.cuts.fetch_add(1, Ordering::Release);
        self.durable.store(durable, Ordering::Release);
        self.stable.store(stable, Ordering::Release);
        self.accepted.store(len, Ordering::Release);
        // And last: who counted after the first may have seen marks from before.
        self.cuts.fetch_add(1, Ordering::Release);
    }

    /// A number that rises with each cut.
    pub(crate) fn cuts(&self) -> u64 {
        // Pairs with the addition in `cut`.
        self.cuts.load(Ordering::Acquire)
    }

    /// The file is being cut, until the result is dropped. One at a time.
    pub(crate) fn begin_cutting(&self) -> Cutting<'_> {
        // Before the file is touched, and in one order with it: who read a byte that the cut has changed finds this number.
        // Pairs with the load in `cutting`.
        self.cutting.fetch_add(1, Ordering::SeqCst);
        Cutting(self)
    }

    /// A number that is odd while the file is being cut, and another one afterwards.
    pub(crate) fn cutting(&self) -> u64 {
        // Pairs with the additions in `begin_cutting` and at its end.
        self.cutting.load(Ordering::SeqCst)
    }

    /// Sets the fence, unless it is set, and gives the error back as the operation's own.
    pub(crate) fn fence(&self, op: &'static str, path: &Path, error: IoError) -> IoError {
        let mut first = self.first.lock();
        if let Some(first) = &*first {
            return IoError::fenced(op, path, Arc::clone(first));
        }
        let kept = Arc::new(error);
        *first = Some(Arc::clone(&kept));
        // After the error is in place, so that `fenced_by` finds it. Pairs with the load in `fenced`.
        self.fenced.store(true, Ordering::Release);
        drop(first);
        IoError::copy_of(&kept)
    }

    /// Refuses an operation on a fenced file.
    pub(crate) fn check(
        &self,
        op: &'static str,
        path: impl FnOnce() -> std::path::PathBuf,
    ) -> Result<(), IoError> {
        match self.fenced_by() {
            None => Ok(()),
            Some(first) => Err(IoError::fenced(op, path(), first)),
        }
    }
}
