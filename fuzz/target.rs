//! Hands libFuzzer's inputs to the target that this binary is named after.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz_targets::run(env!("CARGO_BIN_NAME"), data));
