#![no_main]
#[path = "../../wire/tests/common/mod.rs"]
mod common;
libfuzzer_sys::fuzz_target!(|data: &[u8]| common::elements::elements(data));
