//! Backends against each other.
#![forbid(unsafe_code)]
fn main() {}
