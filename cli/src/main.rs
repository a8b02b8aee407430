//! The operator tool.
#![forbid(unsafe_code)]
fn main() {}
