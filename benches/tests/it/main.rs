//! The harness over the backends there are, and the program around it.

mod harness;
mod program;
