//! Every development task of this workspace: `cargo xtask TASK`, `cargo xtask --help`.
//!
//! A task is a module with one `run(Flags) -> Outcome`. Tasks start the tools that a developer would start by hand
//! (cargo, git, java), print what they start, and end with an error at the first thing that is wrong.
#![forbid(unsafe_code)]

mod ci;
mod cleaners;
mod conformance;
mod crash;
mod flags;
mod fuzz;
mod loom;
mod nightly;
mod replay;
mod rivals;
mod shell;
mod tidy;
mod workspace;

use std::process::ExitCode;

use flags::Flags;

/// What a task ends with; the text of an error is printed as it is.
type Outcome = Result<(), String>;

struct Task {
    name: &'static str,
    about: &'static str,
    run: fn(Flags) -> Outcome,
}

const TASKS: &[Task] = &[
    Task { name: "ci", about: ci::ABOUT, run: ci::run },
    Task { name: "conformance", about: conformance::ABOUT, run: conformance::run },
    Task { name: "crash", about: crash::ABOUT, run: crash::run },
    Task { name: "fuzz", about: fuzz::ABOUT, run: fuzz::run },
    Task { name: "loom", about: loom::ABOUT, run: loom::run },
    Task { name: "nightly", about: nightly::ABOUT, run: nightly::run },
    Task { name: "replay", about: replay::ABOUT, run: replay::run },
    Task { name: "rivals", about: rivals::ABOUT, run: rivals::run },
    Task { name: "tidy", about: tidy::ABOUT, run: tidy::run },
];

fn usage() -> String {
    let mut text = String::from("usage: cargo xtask TASK [options]; cargo xtask TASK --help\n\n");
    for task in TASKS {
        let first = task.about.lines().next().unwrap_or_default();
        text.push_str(&format!("  {:<12} {first}\n", task.name));
    }
    text
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next();
    let mut flags = Flags::new(arguments.collect());
    let outcome = match name.as_deref() {
        None => Err(usage()),
        Some("--help" | "-h" | "help") => {
            print!("{}", usage());
            Ok(())
        }
        Some(name) => match TASKS.iter().find(|task| task.name == name) {
            None => Err(format!("no task {name}\n{}", usage())),
            Some(task) if flags.help() => {
                println!("cargo xtask {name}: {}", task.about);
                Ok(())
            }
            Some(task) => (task.run)(flags),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}
