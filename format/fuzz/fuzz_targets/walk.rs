//! Arbitrary bytes as framing: buffers and files.
#![no_main]

#[path = "../../tests/it/fuzzed.rs"]
#[allow(dead_code, reason = "the other targets' bodies")]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzed::walk(bytes));
