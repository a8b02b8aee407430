//! Starting other programs: printed before they run, an error if they fail.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::workspace;

/// A command in the root of the workspace.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace::root());
    command
}

/// `cargo` with the given arguments, in the root.
pub(crate) fn cargo<I>(arguments: I) -> Command
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let mut cargo = command("cargo");
    cargo.args(arguments);
    cargo
}

/// How a command is shown: its own variables, then the line.
pub(crate) fn shown(command: &Command) -> String {
    let mut parts = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            parts.push(format!("{}={}", name.to_string_lossy(), quoted(value)));
        }
    }
    parts.push(quoted(command.get_program()));
    parts.extend(command.get_args().map(quoted));
    parts.join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.is_empty() || word.contains([' ', '*', '$', '"']) {
        format!("'{word}'")
    } else {
        word.into_owned()
    }
}

/// Prints and runs a command, its output going where ours goes.
///
/// # Errors
/// It cannot be started, or ends with another code than 0.
pub(crate) fn run(command: &mut Command) -> Outcome {
    println!("$ {}", shown(command));
    let status = command.status().map_err(|e| format!("{}: {e}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", shown(command))) }
}

/// Runs a command quietly and returns its standard output.
///
/// # Errors
/// It cannot be started, ends with another code than 0 (with what it wrote to standard error), or prints no UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = shown(command);
    let done = command.stdin(Stdio::null()).output().map_err(|e| format!("{shown}: {e}"))?;
    if !done.status.success() {
        return Err(format!("{shown}: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr)));
    }
    String::from_utf8(done.stdout).map_err(|e| format!("{shown}: {e}"))
}

/// Whether a program answers when started with `argument`.
pub(crate) fn answers(program: &str, argument: &str) -> bool {
    let quiet = |c: &mut Command| c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet(command(program).arg(argument)).is_ok_and(|status| status.success())
}

/// Reads a text file.
///
/// # Errors
/// It cannot be read, or is no UTF-8; the path is in the message.
pub(crate) fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
