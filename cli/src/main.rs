//! `kseg`: look into, append to, and read Kafka's data directories.
#![forbid(unsafe_code)]
// Data goes out with its errors, everything else through `tell`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod append;
mod cat;
mod clean;
mod compat;
mod data_dir;
mod dump;
mod error;
mod json;
mod read;
mod stop;
mod tell;
mod time;
mod topics;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use error::Error;
use tell::tell;

/// Looks into, appends to, and reads Kafka's data directories.
///
/// Reading commands open nothing for writing and work beside a running broker.
///
/// Exit codes: 0 done, 1 a problem was found or something failed, 2 wrong usage. Data goes to standard output,
/// everything else to standard error.
#[derive(Debug, Parser)]
#[command(name = "kseg", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Append(append::AppendArgs),
    Cat(cat::CatArgs),
    Clean(clean::CleanArgs),
    Dump(dump::DumpArgs),
    Topics(topics::TopicsArgs),
    /// Stands in for another tool: prints what that prints, line for line
    Compat(compat::CompatArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if let Err(error) = stop::outlive_size_limit() {
        tell!("kseg: cannot listen for signals: {error}");
        return ExitCode::FAILURE;
    }
    let done = match &command {
        Command::Append(args) => append::run(args),
        Command::Cat(args) => cat::run(args),
        Command::Clean(args) => clean::run(args),
        Command::Dump(args) => dump::run(args),
        Command::Topics(args) => topics::run(args),
        Command::Compat(args) => return compat::run(args),
    };
    match done {
        Ok(true) | Err(Error::OutputClosed) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            tell!("kseg: {error}");
            ExitCode::from(if matches!(error, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}
