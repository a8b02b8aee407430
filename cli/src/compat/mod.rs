//! `kseg compat`: what another tool prints, line for line, for programs that parse its output.
//!
//! Nothing here is shared with the other commands: a compatible tool repeats the answers of the other one, its mistakes
//! included, where `kseg dump` says what is right.

mod abort;
mod control;
mod dump_log;
mod indexes;
mod java;
mod legacy;
mod log_file;
mod options;
mod records;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Subcommand};

/// The tools that can be stood in for.
#[derive(Debug, Args)]
pub(crate) struct CompatArgs {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// Prints what kafka-dump-log of Kafka 4.3.1 prints, with its options and its exit codes.
    ///
    /// Reads .log, .index and .timeindex files and writes to none. Differences: `--help` speaks of these options only;
    /// decoders other than text are refused; an exception has no stack trace.
    ///
    /// Example: kseg compat dump-log --files data/t-0/00000000000000000000.log --print-data-log
    #[command(disable_help_flag = true, disable_version_flag = true)]
    DumpLog {
        /// Options of kafka-dump-log.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        options: Vec<OsString>,
    },
}

/// Runs the tool that was asked for; the exit code is the one of the tool that it stands for.
pub(crate) fn run(args: &CompatArgs) -> ExitCode {
    match &args.tool {
        Tool::DumpLog { options } => dump_log::run(options),
    }
}
