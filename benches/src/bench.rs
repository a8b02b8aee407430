//! The harness: scenarios over any backends, in one folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kseg_io_backends::{Backend, OpenHow};

use crate::contest::{self, Entrant, Plan};
use crate::error::BenchError;
use crate::filled::Filled;
use crate::report::{Row, RowResult};
use crate::scenarios::Scenario;

/// How much a run writes and keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scale {
    /// Bytes after which a writing work begins again with an empty file. Not all works have a file at the same time.
    pub file_cap: u64,
    /// Bytes of the log that is read, for each backend.
    pub log_bytes: u64,
    /// How many partitions, or segments, where there are to be many.
    pub many: usize,
}

impl Scale {
    /// For figures: files up to 512 MiB, a log of 1 GiB, 10 000 partitions or segments.
    pub const FULL: Scale = Scale { file_cap: 512 << 20, log_bytes: 1 << 30, many: 10_000 };
    /// For checking results: files up to 4 MiB, a log of 64 MiB, 50 partitions or segments.
    pub const TINY: Scale = Scale { file_cap: 4 << 20, log_bytes: 64 << 20, many: 50 };
}

/// Runs scenarios. All its files lie in one folder, which is removed with it.
#[derive(Debug)]
pub struct Bench {
    backends: Vec<Arc<dyn Backend>>,
    dir: PathBuf,
    scale: Scale,
    memory_available: u64,
    rate: Option<f64>,
    stop: Arc<AtomicBool>,
    filled: Vec<Arc<Filled>>,
}

impl Bench {
    /// Makes the working folder inside `parent`. `memory_available` bounds what the memory medium is given.
    ///
    /// # Errors
    /// [`BenchError::Io`] where the folder cannot be made.
    pub fn new(
        backends: Vec<Arc<dyn Backend>>,
        parent: &Path,
        scale: Scale,
        memory_available: u64,
    ) -> Result<Bench, BenchError> {
        let dir = parent.join(format!("kseg-bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(BenchError::io("create", &dir))?;
        let dir = dir.canonicalize().map_err(BenchError::io("find", &dir))?;
        Ok(Bench {
            backends,
            dir,
            scale,
            memory_available,
            rate: None,
            stop: Arc::default(),
            filled: Vec::new(),
        })
    }

    /// Has batches arrive so often in a second, in the scenarios in which they arrive; each has a rate of its own otherwise.
    ///
    /// # Errors
    /// [`BenchError::Asked`] unless it is between 1 and 1 000 000.
    pub fn arriving(mut self, rate: f64) -> Result<Bench, BenchError> {
        if !(1.0..=1e6).contains(&rate) {
            return Err(BenchError::Asked(format!(
                "a rate of {rate} arrivals a second: expected 1 to 1000000"
            )));
        }
        self.rate = Some(rate);
        Ok(self)
    }

    /// Ends what is measured before its next slice once `stop` is set; nothing else is begun then.
    pub fn stopping(mut self, stop: Arc<AtomicBool>) -> Bench {
        self.stop = stop;
        self
    }

    pub(crate) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// The working folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How much is written and kept.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Runs one scenario. A failure is the row's, not the run's: what it left behind is removed.
    pub fn run(&mut self, scenario: &Scenario, plan: Plan) -> Row {
        let result = match self.measure(scenario, plan) {
            Ok(result) => result,
            Err(BenchError::Unsuited(why)) => RowResult::Skipped(why),
            Err(error) => RowResult::Failed(error.to_string()),
        };
        Row { scenario: scenario.name.clone(), about: scenario.about.clone(), unit: scenario.unit, result }
    }

    fn measure(&mut self, scenario: &Scenario, plan: Plan) -> Result<RowResult, BenchError> {
        // It says that, and nothing is read because of it: Relaxed.
        let stop = Arc::clone(&self.stop);
        let stopped = || stop.load(Ordering::Relaxed);
        if stopped() {
            return Err(BenchError::Stopped);
        }
        let mut entrants = scenario.entrants(self)?;
        contest::run_unless(&mut entrants, plan, stopped).map(RowResult::Measured)
    }

    /// An entrant for each backend beside the reference of its medium, which is made once.
    pub(crate) fn entrants(
        &mut self,
        goal: Option<f64>,
        media: &[Medium],
        mut reference: impl FnMut(&mut Bench, Medium, &Arc<dyn Backend>) -> Result<Entrant, BenchError>,
        mut work: impl FnMut(&mut Bench, &Arc<dyn Backend>) -> Result<Box<dyn contest::Work>, BenchError>,
    ) -> Result<Vec<Entrant>, BenchError> {
        let mut entrants = Vec::new();
        let mut references: Vec<(Medium, usize)> = Vec::new();
        for backend in self.backends.clone() {
            let medium = Medium::of(&backend, &self.dir)?;
            if !media.contains(&medium) {
                continue;
            }
            let known = references.iter().find(|(m, _)| *m == medium).map(|(_, at)| *at);
            let at = match known {
                Some(at) => at,
                None => {
                    let at = entrants.len();
                    entrants.push(reference(self, medium, &backend)?);
                    references.push((medium, at));
                    at
                }
            };
            // What is held against a limit of memory is no goal of the file's.
            let goal = goal.filter(|_| medium == Medium::File);
            let work = work(self, &backend)?;
            entrants.push(Entrant { name: backend.name().to_owned(), reference: Some(at), goal, work });
        }
        if entrants.is_empty() {
            let places: Vec<&str> = media.iter().map(|medium| medium.place()).collect();
            let places = places.join(" or in ");
            return Err(BenchError::Unsuited(format!("none of the backends keeps its bytes in {places}")));
        }
        Ok(entrants)
    }

    /// The backends.
    pub fn backends(&self) -> &[Arc<dyn Backend>] {
        &self.backends
    }

    /// The log that is read, over `backend`; filled on first use.
    pub(crate) fn filled(&mut self, backend: &Arc<dyn Backend>) -> Result<Arc<Filled>, BenchError> {
        if let Some(filled) = self.filled.iter().find(|filled| Arc::ptr_eq(filled.backend(), backend)) {
            return Ok(filled.clone());
        }
        let medium = Medium::of(backend, &self.dir)?;
        self.take_memory(self.scale.log_bytes)?;
        let dir = self.dir.join(backend.name()).join("filled-0");
        let filled = Arc::new(Filled::new(backend.clone(), medium, &dir, self.scale.log_bytes)?);
        self.filled.push(filled.clone());
        Ok(filled)
    }

    /// Sets memory aside for a log that is to stay there: a file's bytes in the page cache, or a process's own. As much
    /// again must be left for all else.
    pub(crate) fn take_memory(&mut self, log_bytes: u64) -> Result<(), BenchError> {
        if self.memory_available < log_bytes.saturating_mul(2) {
            return Err(BenchError::Unsuited(format!(
                "a log of {} MiB does not stay in memory here: {} MiB available",
                log_bytes >> 20,
                self.memory_available >> 20
            )));
        }
        self.memory_available -= log_bytes;
        Ok(())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.filled.clear();
        // Nothing is lost if it stays: the folder's name says whose it was.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What a backend keeps bytes in; it decides which bare loop is the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "bytes are in a file or in memory")]
pub enum Medium {
    /// Files of the system.
    File,
    /// The process's memory.
    Memory,
}

impl Medium {
    fn place(self) -> &'static str {
        match self {
            Medium::File => "files",
            Medium::Memory => "memory",
        }
    }

    /// Finds out by opening a file in `dir`: one of the system's has a descriptor.
    pub fn of(backend: &Arc<dyn Backend>, dir: &Path) -> Result<Medium, BenchError> {
        let path = dir.join("medium-probe");
        backend.names().create_dir_all(dir)?;
        let file = backend.open(&path, OpenHow::Create)?;
        let medium = if file.as_fd().is_some() { Medium::File } else { Medium::Memory };
        drop(file);
        backend.names().remove(&path)?;
        Ok(medium)
    }
}
