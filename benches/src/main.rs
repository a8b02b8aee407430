//! Backends against each other and against the machine's limits.
#![forbid(unsafe_code)]
// What is printed goes through `say`: a reader who has seen enough ends the run without a word.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clap::Parser;
use kseg_bench::{Bench, BenchError, Environment, Plan, Report, Scale, Scenario, all, head, named};
use kseg_io_backends::{Backend, BackendSpec};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

/// Compares I/O backends of an append-only log with each other and with bare loops over the same system calls.
///
/// Each work runs in slices that alternate with those of its reference; a ratio is taken pair by pair, and the table shows
/// its median and the interval that holds it with 95 % confidence. Rates are for orientation only.
#[derive(Debug, Parser)]
#[command(name = "kseg-bench", version)]
struct Arguments {
    /// Backends, by comma, their options behind them, as in std,uring+direct,depth=16: std, std+direct, std+dontcache, uring,
    /// uring+direct, uring+dontcache, memory. One that cannot be had ends the run; `auto` is refused with the name of the one
    /// that it stands for here.
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
        Ok(code) => code,
        Err(error) if is_closed(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            match writeln!(io::stderr(), "kseg-bench: {error}") {
                // Where nobody listens the exit code has to do.
                Ok(()) | Err(_) => ExitCode::from(2),
            }
        }
    }
}

/// Prints, and sees to it that it is seen at once.
fn say(words: impl fmt::Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(words.to_string().as_bytes())?;
    out.flush()
}

/// Whether the reader of what is printed has gone: errors of files come with their path, not as they are.
fn is_closed(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Returns how the program ends: in success where every scenario was measured.
fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    if arguments.list {
        for scenario in &all() {
            list(scenario)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let stop = Stop::listen()?;
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
    say(format_args!("{environment}\n"))?;
    let how = if arguments.tiny { "results are checked, figures mean nothing" } else { "order alternates" };
    say(format_args!("slices      {} rounds of {:?} for each work; {how}\n\n", plan.rounds, plan.slice))?;
    say(format_args!("{}\n", head()))?;
    // Before anything is measured: a path that cannot be written would be noticed only then.
    let json = arguments.json.as_deref().map(Json::create).transpose()?;
    let bench = Bench::new(backends, &parent, scale, environment.memory_available())?;
    let mut bench = bench.stopping(Arc::clone(&stop.asked));
    if let Some(rate) = arguments.rate {
        bench = bench.arriving(rate)?;
    }
    let mut report = Report { environment, plan, tiny: arguments.tiny, scenarios: Vec::new() };
    let mut said = Ok(());
    for scenario in &scenarios {
        let row = bench.run(scenario, plan);
        said = say(row.to_text(!arguments.tiny));
        report.scenarios.push(row);
        if said.is_err() || stop.signal().is_some() {
            break;
        }
    }
    if let Some(json) = json {
        json.write(&report)?;
    }
    said?;
    drop(bench);
    Ok(match stop.signal() {
        Some(signal) => ExitCode::from(128_u8.saturating_add(signal)),
        None if report.succeeded() => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

/// The file that takes the report.
struct Json {
    file: File,
    path: PathBuf,
}

impl Json {
    fn create(path: &Path) -> Result<Json, BenchError> {
        let failed = |source| BenchError::Io { what: "create", path: path.to_owned(), source };
        Ok(Json { file: File::create(path).map_err(failed)?, path: path.to_owned() })
    }

    fn write(mut self, report: &Report) -> Result<(), Box<dyn std::error::Error>> {
        let failed = |source| BenchError::Io { what: "write", path: self.path.clone(), source };
        self.file.write_all(report.to_json()?.as_bytes()).map_err(failed)?;
        Ok(())
    }
}

/// SIGINT and SIGTERM end what is measured, so that its files are removed and the report tells what there is. A second one ends
/// the process at once. A write beyond the limit on the size of a file (`ulimit -f`) is an error of the work that makes it.
struct Stop {
    asked: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    fn listen() -> io::Result<Stop> {
        let stop = Stop { asked: Arc::default(), signal: Arc::default() };
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first time it is not set yet.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop.asked))?;
            flag::register_usize(signal, Arc::clone(&stop.signal), signal.unsigned_abs() as usize)?;
            flag::register(signal, Arc::clone(&stop.asked))?;
        }
        // Nobody asks for the flag.
        flag::register(SIGXFSZ, Arc::default())?;
        Ok(stop)
    }

    /// The number of the signal, once one has come.
    fn signal(&self) -> Option<u8> {
        // It is looked at between scenarios, and orders nothing: Relaxed.
        u8::try_from(self.signal.load(Ordering::Relaxed)).ok().filter(|&signal| signal != 0)
    }
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

fn list(scenario: &Scenario) -> io::Result<()> {
    let mark = if scenario.by_default { "" } else { " (on request)" };
    say(format_args!("{}{mark}\n    {}\n", scenario.name, scenario.about))
}
