//! The real Kafka: the script of the harness, and a process of it that answers the replay protocol.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::story;
use crate::shell;

/// The script with arguments.
pub(crate) fn kafka<I>(arguments: I) -> Command
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    let mut command = shell::command(story::harness().join("kafka"));
    command.args(arguments);
    // Most runs are short: start fast. The encoding is that of what is printed.
    command.env("KSEG_KAFKA_JVM", "-Xmx1g -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dfile.encoding=UTF-8");
    command.env("LC_ALL", "C.UTF-8");
    command
}

/// A Java process that reads a line and answers one.
#[derive(Debug)]
pub(crate) struct Oracle {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts `kafka ARGUMENTS`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(arguments: &[&str]) -> Result<Oracle, String> {
        Oracle::of(kafka(arguments))
    }

    /// Starts a command.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn of(mut command: Command) -> Result<Oracle, String> {
        // Kafka's log lines; what it answers comes on standard output.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", shell::shown(&command)))?;
        let to = child.stdin.take();
        let from = child.stdout.take().ok_or("no standard output of the oracle")?;
        Ok(Oracle { child, to, from: BufReader::new(from) })
    }

    /// Puts one line to it.
    ///
    /// # Errors
    /// It has ended, or answers no JSON.
    pub(crate) fn ask(&mut self, line: &str) -> Result<Value, String> {
        let failed = |e: std::io::Error| format!("the oracle: {e}");
        let to = self.to.as_mut().ok_or("the oracle has been closed")?;
        writeln!(to, "{line}").and_then(|()| to.flush()).map_err(failed)?;
        let mut answer = String::new();
        if self.from.read_line(&mut answer).map_err(failed)? == 0 {
            return Err(format!("the oracle ended at {line:.200}"));
        }
        serde_json::from_str(&answer).map_err(|e| format!("the oracle's answer {answer:.200}: {e}"))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // Killed before its input ends: a client that sees the end aborts the transaction that it has under way.
        let _ = self.child.kill();
        drop(self.to.take());
        let _ = self.child.wait();
    }
}
