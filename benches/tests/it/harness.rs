//! Scenarios run tiny: what counts is that results are right and that nothing is left.

use std::sync::Arc;
use std::time::Duration;

use kseg_bench::{Bench, Plan, Row, RowResult, Scale, named};
use kseg_io_backends::Backend;

const PLAN: Plan = Plan { rounds: 2, slice: Duration::from_millis(1) };

fn run(backends: &[&str], scenarios: &str) -> Vec<Row> {
    let backends = backends.iter().map(|name| kseg_io_backends::open(name).unwrap()).collect();
    let dir = tempfile::tempdir().unwrap();
    let rows = run_in(backends, scenarios, dir.path(), u64::MAX);
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "a run removes its files");
    rows
}

fn run_in(backends: Vec<Arc<dyn Backend>>, scenarios: &str, dir: &std::path::Path, memory: u64) -> Vec<Row> {
    let mut bench = Bench::new(backends, dir, Scale::TINY, memory).unwrap();
    named(scenarios).unwrap().iter().map(|scenario| bench.run(scenario, PLAN)).collect()
}

fn names(row: &Row) -> Vec<&str> {
    match &row.result {
        RowResult::Measured(outcome) => {
            outcome.entrants.iter().map(|entrant| entrant.name.as_str()).collect()
        }
        other => panic!("{}: {other:?}", row.scenario),
    }
}

#[test]
fn every_scenario_gives_equal_results_on_std_and_memory() {
    for row in run(&["std", "memory"], "default") {
        assert!(names(&row).len() >= 2, "{}", row.scenario);
    }
}

#[test]
fn a_backend_stands_beside_the_loop_of_its_medium() {
    let rows = run(&["std", "memory"], "append-16k");
    assert_eq!(names(&rows[0]), ["pwrite + CRC", "std", "memory copy + CRC", "memory"]);
    let RowResult::Measured(outcome) = &rows[0].result else { panic!("measured") };
    assert_eq!(outcome.entrants[3].reference.as_deref(), Some("memory copy + CRC"));
    assert!(outcome.entrants[3].to_first.is_some());
}

#[test]
fn what_arrives_at_a_fixed_rate_is_compared_by_latency() {
    for row in run(&["std", "memory"], "arrivals*") {
        let RowResult::Measured(outcome) = &row.result else { panic!("{}: {:?}", row.scenario, row.result) };
        assert_eq!(outcome.entrants.len(), 2, "a bare loop and std");
        for entrant in &outcome.entrants {
            let latency = entrant.latency.expect("latencies");
            assert!(
                latency.p50_us.median <= latency.p99_us.median && latency.p99_us.median <= latency.max_us
            );
        }
    }
}

#[test]
fn a_log_that_is_out_of_the_cache_comes_from_a_device_or_is_not_called_cold() {
    let rows = run(&["std", "memory"], "read-cold");
    match &rows[0].result {
        RowResult::Measured(_) => assert_eq!(names(&rows[0]), ["pread", "std"]),
        RowResult::Skipped(why) => assert!(why.contains("came from a device"), "{why}"),
        failed @ RowResult::Failed(_) => panic!("{failed:?}"),
    }
}

#[test]
fn direct_writes_stand_beside_fio_or_say_that_it_is_missing() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let spec: kseg_io_backends::BackendSpec = "uring+direct".parse().unwrap();
    let opened = spec.open_in(dir.path());
    let (backend, is_direct) = match &opened {
        Ok(opened) => (Arc::clone(&opened.backend), true),
        // Where there is none, the scenario says so.
        Err(_) => (kseg_io_backends::open("std").unwrap(), false),
    };
    let rows = run_in(vec![backend], "append-128k-direct,append-128k-tailed", dir.path(), u64::MAX);
    if !is_direct {
        assert!(matches!(&rows[0].result, RowResult::Skipped(why) if why.contains("uring+direct")));
        return;
    }
    let names = names(&rows[0]);
    match names[0] {
        "fio" => assert_eq!(names, ["fio", "(bare ring)", "uring+direct"]),
        _ => assert_eq!(names, ["bare ring (no fio here)", "uring+direct"]),
    }
    assert_eq!(self::names(&rows[1]), ["uring+direct alone", "uring+direct"]);
    let RowResult::Measured(outcome) = &rows[1].result else { panic!("measured") };
    assert_eq!(outcome.entrants[1].reference.as_deref(), Some("uring+direct alone"));
}

#[test]
fn nothing_is_asked_of_who_goes_past_the_cache_beside_a_loop_that_only_fills_it() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let open = |spec: &str| spec.parse::<kseg_io_backends::BackendSpec>().unwrap().open_in(dir.path());
    let Ok(direct) = open("std+direct") else { return println!("skipped: no direct writes here") };
    let backends = vec![open("std").unwrap().backend, direct.backend];
    let rows = run_in(backends, "append-16k,append-durable-4k", dir.path(), u64::MAX);
    for (row, asked) in rows.iter().zip([None, Some(0.95)]) {
        let RowResult::Measured(outcome) = &row.result else { panic!("{}: {:?}", row.scenario, row.result) };
        let goals: Vec<Option<f64>> = outcome.entrants.iter().map(|entrant| entrant.goal).collect();
        assert_eq!(goals, [None, Some(0.95), asked], "{}", row.scenario);
    }
}

#[test]
fn files_are_written_in_the_state_that_a_scenario_names() {
    let rows =
        run(&["std"], "append-durable-4k-unwritten,append-durable-4k-zeroed,append-durable-4k-64-to-1");
    for row in &rows[..2] {
        let RowResult::Measured(outcome) = &row.result else { panic!("{}: {:?}", row.scenario, row.result) };
        assert_eq!(outcome.entrants[1].goal, Some(0.95));
    }
    let RowResult::Measured(outcome) = &rows[2].result else { panic!("{:?}", rows[2].result) };
    assert_eq!((names(&rows[2])[0], outcome.entrants[1].goal), ("pwrite + fdatasync", Some(10.0)));
}

#[test]
fn one_backend_twice_has_one_reference() {
    let dir = tempfile::tempdir().unwrap();
    let backends = vec![kseg_io_backends::open("memory").unwrap(), kseg_io_backends::open("memory").unwrap()];
    let rows = run_in(backends, "lookup", dir.path(), u64::MAX);
    assert_eq!(names(&rows[0]), ["search + memory copy", "memory", "memory"]);
}

#[test]
fn what_needs_files_is_skipped_where_there_are_none() {
    let rows = run(&["memory"], "append-durable-4k,append-16k");
    assert!(
        matches!(&rows[0].result, RowResult::Skipped(why) if why.contains("in files")),
        "{:?}",
        rows[0].result
    );
    assert!(matches!(&rows[1].result, RowResult::Measured(_)));
}

#[test]
fn a_log_that_does_not_fit_into_memory_is_not_called_hot() {
    let dir = tempfile::tempdir().unwrap();
    let rows = run_in(vec![kseg_io_backends::open("std").unwrap()], "lookup", dir.path(), 100 << 20);
    assert!(
        matches!(&rows[0].result, RowResult::Skipped(why) if why.contains("memory")),
        "{:?}",
        rows[0].result
    );
}
