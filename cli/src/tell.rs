//! Standard error: everything that is said beside the data.
//!
//! Said through here and nowhere else: std's macros panic where nobody reads any more, and a closed pipe is no error.

use std::fmt;
use std::io::Write as _;

/// Says a line on standard error, as [`eprintln!`] would.
macro_rules! tell {
    ($($words:tt)*) => { $crate::tell::say(format_args!("{}\n", format_args!($($words)*))) };
}
pub(crate) use tell;

/// Says it on standard error, in one piece.
pub(crate) fn say(words: impl fmt::Display) {
    let words = words.to_string();
    match std::io::stderr().lock().write_all(words.as_bytes()) {
        // Whoever listened is gone, and there is nobody else to tell that to: what is done goes on.
        Ok(()) | Err(_) => {}
    }
}
