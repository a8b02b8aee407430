//! A bar on the terminal while an input is read; nothing anywhere else.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far the input has been read.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over `len` bytes, or a counter where the length is not known. Hidden unless standard error is a terminal.
    pub(crate) fn new(len: Option<u64>, quiet: bool) -> Progress {
        let template = match len {
            Some(_) => "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {msg} eta {eta}",
            None => "{spinner} {bytes} {bytes_per_sec} {msg}",
        };
        let hidden = quiet || !std::io::stderr().is_terminal();
        let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(len, target);
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress { bar }
    }

    pub(crate) fn at(&self, lines: u64, bytes: u64) {
        if !self.bar.is_hidden() {
            self.bar.set_position(bytes);
            self.bar.set_message(format!("{lines} lines"));
        }
    }

    /// Takes the bar off the screen.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
