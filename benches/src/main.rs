//! Backends against each other and against the machine's limits.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use kseg_bench::{Bench, BenchError, Environment, Plan, Report, Scale, Scenario, all, head, named};
use kseg_io_backends::{Backend, BackendSpec};

/// Compares I/O backends of an append-only log with each other and with bare loops over the same system calls.
///
/// Each work runs in slices that alternate with those of its reference; a ratio is taken pair by pair, and the table shows
/// its median and the interval that holds it with 95 % confidence. Rates are for orientation only.
#[derive(Debug, Parser)]
#[command(name = "kseg-bench", version)]
struct Arguments {
    /// Backends, by comma, their options behind them: std,uring+direct,depth=16. One that cannot be had ends the run.
    #[arg(long, value_name = "NAMES", default_value = "std,memory")]
    backends: String,
    /// Scenarios, by comma; `default`, `all`, or a beginning and a star.
    #[arg(long, value_name = "NAMES", default_value = "default")]
    scenarios: String,
    /// The folder for files: its file system and disk are what is measured [default: target, else the current folder].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Also write everything, each slice included, to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds of a slice [default: 0.3; 0.002 with --tiny].
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Pairs of slices [default: 15; 2 with --tiny].
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// Batches that arrive in a second, in the scenarios `arrivals-*` [default: each has its own].
    #[arg(long, value_name = "COUNT")]
    rate: Option<f64>,
    /// Only check that every work gives the right result, in seconds; figures mean nothing and are not compared.
    #[arg(long)]
    tiny: bool,
    /// Show the scenarios and end.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kseg-bench: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether every scenario was measured.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    if arguments.list {
        all().iter().for_each(list);
        return Ok(true);
    }
    let plan = plan(arguments)?;
    let scenarios = named(&arguments.scenarios)?;
    let specs = BackendSpec::parse_list(&arguments.backends)?;
    let parent = match &arguments.dir {
        Some(dir) => dir.clone(),
        None => PathBuf::from(if Path::new("target").is_dir() { "target" } else { "." }),
    };
    let environment = Environment::of(&parent)?;
    let backends = specs.into_iter().map(|spec| backend(spec, &parent)).collect::<Result<_, _>>()?;
    let scale = if arguments.tiny { Scale::TINY } else { Scale::FULL };
    println!("{environment}");
    let how = if arguments.tiny { "results are checked, figures mean nothing" } else { "order alternates" };
    println!("slices      {} rounds of {:?} for each work; {how}\n", plan.rounds, plan.slice);
    println!("{}", head());
    let mut bench = Bench::new(backends, &parent, scale, environment.memory_available())?;
    if let Some(rate) = arguments.rate {
        bench = bench.arriving(rate)?;
    }
    let mut report = Report { environment, plan, tiny: arguments.tiny, scenarios: Vec::new() };
    for scenario in &scenarios {
        let row = bench.run(scenario, plan);
        print!("{}", row.to_text(!arguments.tiny));
        std::io::stdout().flush()?;
        report.scenarios.push(row);
    }
    if let Some(path) = &arguments.json {
        let json = report.to_json()?;
        std::fs::write(path, json).map_err(|source| BenchError::Io {
            what: "write",
            path: path.clone(),
            source,
        })?;
    }
    Ok(report.succeeded())
}

/// The backend that was asked for and no other: what is compared must be what its name says.
fn backend(spec: BackendSpec, parent: &Path) -> Result<Arc<dyn Backend>, Box<dyn std::error::Error>> {
    let opened = spec.open_in(parent)?;
    if opened.got != spec {
        return Err(format!("{spec} would be {} here: name that one", opened.got).into());
    }
    Ok(opened.backend)
}

fn plan(arguments: &Arguments) -> Result<Plan, BenchError> {
    let (rounds, seconds) = if arguments.tiny { (2, 0.002) } else { (15, 0.3) };
    let rounds = arguments.rounds.unwrap_or(rounds);
    let slice = Duration::try_from_secs_f64(arguments.seconds.unwrap_or(seconds)).unwrap_or_default();
    if rounds == 0 || slice.is_zero() {
        return Err(BenchError::Asked(
            "there must be at least one round, and a slice must have a length".to_owned(),
        ));
    }
    Ok(Plan { rounds, slice })
}

fn list(scenario: &Scenario) {
    let mark = if scenario.by_default { "" } else { " (on request)" };
    println!("{}{mark}\n    {}", scenario.name, scenario.about);
}
