//! Large writes past the page cache, beside the device's limit and beside readers of the tail.

use std::sync::Arc;

use kseg_io_backends::{Backend, BackendSpec, Cache, Engine};

use super::Scenario;
use super::append::{self, LogAppend, Sync};
use crate::bench::{Bench, Medium};
use crate::contest::{Entrant, Unit};
use crate::error::BenchError;
use crate::fio::Fio;
use crate::flight::FlightLoop;
use crate::state::{FileState, ready};
use crate::supply::Supply;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "append-128k-direct",
            "128 KiB batches into a zeroed file past the page cache; fio with io_uring, direct, depth 8, in the same state, and \
             bare writes through the engine's own ring, which take fio's place where it is not installed",
            Unit::Bytes,
            direct,
        )
        .on_request(),
        Scenario::new(
            "append-128k-tailed",
            "128 KiB batches, and two readers that follow the end of the log; the same without readers",
            Unit::Bytes,
            tailed,
        )
        .on_request(),
    ]
}

/// Bytes of a write, writes in flight, and what is made ready in a file.
const WRITE: usize = 128 << 10;
const DEPTH: usize = 8;
const READY: u32 = 1 << 30;

fn direct(bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
    let state = FileState::Zeroed(ready(bench.scale(), READY));
    let supply = Supply::new(WRITE, 1 << 10)?;
    let is_direct = |backend: &&Arc<dyn Backend>| {
        backend.name().parse::<BackendSpec>().is_ok_and(|spec| spec.cache == Cache::Direct)
    };
    let backends: Vec<_> = bench.backends().iter().filter(is_direct).cloned().collect();
    if backends.is_empty() {
        let why = "none of the backends writes past the page cache: --backends uring+direct".to_owned();
        return Err(BenchError::Unsuited(why));
    }
    let ring = BackendSpec::new(Engine::Uring, Cache::Direct).open_in(bench.dir());
    let ring = ring.map_err(|error| BenchError::Unsuited(error.to_string()))?.backend;
    let reference = bench.dir().join("reference");
    let mut entrants = Vec::new();
    let fio = Fio::new(bench.dir().join("fio"), WRITE, DEPTH, state, bench.scale());
    if let Some(fio) = fio? {
        let work = Box::new(fio);
        entrants.push(Entrant { name: "fio".to_owned(), reference: None, goal: None, work });
    }
    let (name, against) =
        if entrants.is_empty() { ("bare ring (no fio here)", None) } else { ("(bare ring)", Some(0)) };
    let work = Box::new(FlightLoop::new(ring, reference, supply.clone(), DEPTH, state, bench.scale()));
    entrants.push(Entrant { name: name.to_owned(), reference: against, goal: None, work });
    for backend in backends {
        let work = Box::new(LogAppend::new(bench, &backend, supply.clone(), Sync::Last, state)?);
        // What waits for each write is not what the goal is about.
        let goal = backend.name().starts_with("uring").then_some(append::GOAL);
        entrants.push(Entrant { name: backend.name().to_owned(), reference: Some(0), goal, work });
    }
    Ok(entrants)
}

/// Readers, and what the project asks of the writer beside them.
const READERS: usize = 2;
const GOAL: f64 = 0.9;

fn tailed(bench: &mut Bench) -> Result<Vec<Entrant>, BenchError> {
    let supply = Supply::new(WRITE, 1 << 10)?;
    let mut entrants = Vec::new();
    for backend in bench.backends().to_vec() {
        let goal = (Medium::of(&backend, bench.dir())? == Medium::File).then_some(GOAL);
        let append = || LogAppend::new(bench, &backend, supply.clone(), Sync::Last, FileState::Extending);
        let reference = Some(entrants.len());
        let (alone, name) = (Box::new(append()?), backend.name().to_owned());
        entrants.push(Entrant { name: format!("{name} alone"), reference: None, goal: None, work: alone });
        let work = Box::new(append()?.beside_readers(READERS));
        entrants.push(Entrant { name, reference, goal, work });
    }
    Ok(entrants)
}
