//! A target under libFuzzer: `TAKOPI_FUZZ_TARGET` names it. Built and run by `coverage.sh`.
#![no_main]
#![allow(clippy::panic, reason = "a fuzzer: a failure is a panic")]

use std::sync::LazyLock;

static TARGET: LazyLock<takopi_fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("TAKOPI_FUZZ_TARGET").unwrap_or_default();
    takopi_fuzz::target(&name).unwrap_or_else(|| {
        let names: Vec<&str> = takopi_fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
        panic!("TAKOPI_FUZZ_TARGET={name}: one of {names:?}")
    })
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET(input));
