//! One program for all targets, since each of its own would link the engine anew: `FUZZ_TARGET` says which is meant.
#![no_main]
#[path = "../../wire/tests/common/mod.rs"]
mod common;

use std::sync::LazyLock;

use common::targets::{Body, TARGETS};

static BODY: LazyLock<Body> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    TARGETS.iter().find(|(known, _)| *known == name).expect("FUZZ_TARGET names a target").1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| BODY(data));
