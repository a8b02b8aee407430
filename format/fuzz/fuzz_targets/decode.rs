//! Arbitrary bytes as records, streams and a leader's validation.
#![no_main]

#[path = "../../tests/it/fuzzed.rs"]
#[allow(dead_code, reason = "the other targets' bodies")]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzed::decode(bytes));
