//! One way of doing one work.

use std::hint::black_box;
use std::time::Duration;

use kseg_bench::{BenchError, Slice, Watch, Work};

/// Does one work on the same input, as often as it is asked.
pub trait Coder {
    /// Does it once. What comes back hangs on all that was done and is the same each time.
    ///
    /// # Errors
    /// Whatever goes wrong; never in a right build.
    fn pass(&mut self) -> Result<u64, BenchError>;

    /// Does it once and hashes what must be equal for all coders of the work. Not timed.
    ///
    /// # Errors
    /// As `pass`.
    fn hash(&mut self) -> Result<u64, BenchError> {
        self.pass()
    }
}

/// A coder as a work of a contest.
pub struct Timed {
    coder: Box<dyn Coder>,
    units: usize,
    passes: usize,
}

impl std::fmt::Debug for Timed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timed").field("units", &self.units).finish_non_exhaustive()
    }
}

/// The bytes to go over between two looks at the clock.
const BETWEEN_LOOKS: usize = 1 << 20;

impl Timed {
    /// A work that counts `units` for each pass over `bytes` bytes.
    pub fn new(coder: Box<dyn Coder>, units: usize, bytes: usize) -> Timed {
        Timed { coder, units, passes: (BETWEEN_LOOKS / bytes.max(1)).max(1) }
    }
}

impl Work for Timed {
    fn check(&mut self) -> Result<u64, BenchError> {
        self.coder.hash()
    }

    fn slice(&mut self, at_least: Duration) -> Result<Slice, BenchError> {
        let mut watch = Watch::new(at_least);
        while watch.runs() {
            watch.time(|| {
                for _ in 0..self.passes {
                    black_box(self.coder.pass()?);
                }
                Ok((self.passes * self.units) as u64)
            })?;
        }
        Ok(watch.stop())
    }
}

/// An error of another crate.
pub(crate) fn failed(who: &str, error: impl std::fmt::Display) -> BenchError {
    BenchError::Asked(format!("{who}: {error}"))
}

/// The hash of a batch's values in order: what an encoder's result must hold.
pub(crate) fn hash_values<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    values.into_iter().fold(0, |hash, value| crc32c::crc32c_append(hash, value)).into()
}
