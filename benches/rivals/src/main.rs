//! Runs the contests and prints a table, as `kseg-bench` does.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use kseg_bench::{BenchError, Entrant, Environment, Plan, Row, RowResult, head, run};
use kseg_bench_rivals::{Contest, Timed, cells, contests};

/// Holds kseg-format against other crates and against bare loops.
///
/// Ratios are to the bare loop (of a compressed cell: the one without compression), taken slice by slice; the last
/// column is the rate over kseg-format's.
#[derive(Debug, Parser)]
struct Arguments {
    /// Contests, by comma: names, or beginnings with a star.
    #[arg(long, value_name = "NAMES", default_value = "*")]
    contests: String,
    /// Seconds of a slice.
    #[arg(long, default_value_t = 0.3)]
    seconds: f64,
    /// Rounds.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Two rounds of short slices: results are checked, figures mean nothing.
    #[arg(long)]
    tiny: bool,
    /// Only kseg-format, one slice for each line of standard input: prints the rate in units a second. For one contest.
    #[arg(long)]
    alone: bool,
    /// Writes the batch of each contest that has one to a file of its name in this folder, prints the names, and ends.
    #[arg(long, value_name = "FOLDER")]
    batches: Option<PathBuf>,
    /// Names the contests and ends.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match all(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rivals: {error}");
            ExitCode::FAILURE
        }
    }
}

fn all(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let asked = |name: &str| {
        arguments.contests.split(',').any(|part| match part.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == part,
        })
    };
    let (rounds, seconds) = if arguments.tiny { (2, 0.002) } else { (arguments.rounds, arguments.seconds) };
    let plan = Plan { rounds, slice: Duration::from_secs_f64(seconds) };
    if arguments.alone {
        let all = contests();
        let contest = all.iter().find(|contest| asked(&contest.name)).ok_or("no such contest")?;
        let mut entrants = entrants(contest)?;
        entrants.truncate(2);
        for line in std::io::stdin().lines() {
            line?;
            println!("{}", entrants[1].work.slice(plan.slice)?.rate());
        }
        return Ok(());
    }
    if let Some(folder) = &arguments.batches {
        for cell in cells().iter().filter(|cell| asked(&cell.name())) {
            std::fs::write(folder.join(cell.name()), cell.batch()?)?;
            println!("{}", cell.name());
        }
        return Ok(());
    }
    println!("{}", Environment::of(std::path::Path::new("."))?);
    println!(
        "slices      {} rounds of {:?} for each work; order alternates\n{}",
        plan.rounds,
        plan.slice,
        head()
    );
    for contest in contests().iter().filter(|contest| asked(&contest.name)) {
        if arguments.list {
            println!("{}\n    {}", contest.name, contest.about);
            continue;
        }
        let outcome = run(&mut entrants(contest)?, plan)?;
        let row = Row {
            scenario: contest.name.clone(),
            about: contest.about.clone(),
            unit: contest.unit,
            result: RowResult::Measured(outcome),
        };
        print!("{}", row.to_text(!arguments.tiny));
        if !arguments.tiny {
            print_over_kseg(&row);
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn entrants(contest: &Contest) -> Result<Vec<Entrant>, BenchError> {
    let coders = contest.coders()?;
    let entrant = |(i, (name, coder)): (usize, (&'static str, _))| Entrant {
        name: name.to_owned(),
        reference: (i > 0).then_some(0),
        goal: contest.goal.filter(|_| i == 1),
        work: Box::new(Timed::new(coder, contest.units, contest.bytes)),
    };
    Ok(coders.into_iter().enumerate().map(entrant).collect())
}

/// Prints each other crate's rate over kseg-format's with its interval, which the table has no room for.
fn print_over_kseg(row: &Row) {
    let RowResult::Measured(outcome) = &row.result else { return };
    for measured in &outcome.entrants {
        if let Some(ratio) = measured.to_first
            && let Some(interval) = ratio.interval
        {
            let (low, high) = (interval.low, interval.high);
            println!("    {} over kseg-format {:.3} [{low:.3}, {high:.3}]", measured.name, ratio.median);
        }
    }
}
