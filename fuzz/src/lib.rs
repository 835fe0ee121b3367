//! Fuzz targets: each takes any bytes and panics if a promise does not hold for them.
//!
//! `tests/` runs them for a bounded time in `cargo test`, from mutated recordings; `coverage.sh` runs
//! them under libFuzzer for as long as one likes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed promise is a panic"
)]

mod batch;
mod codex;
mod framing;
mod present;
mod resume;
mod translators;

/// A target: panics if a promise does not hold for the input.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 13] = [
    ("framing", framing::lines),
    ("exec", codex::exec),
    ("app_server", codex::app_server),
    ("claude", translators::claude),
    ("pi", translators::pi),
    ("acp", translators::acp),
    ("resume", resume::resume),
    ("event", codex::event),
    ("batch_input", batch::input),
    ("journal", batch::journal),
    ("split", present::split),
    ("terminal", present::terminal),
    ("chat", present::chat),
];

/// The target of a name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

/// The first byte as a number, and the rest.
fn number(input: &[u8]) -> (usize, &[u8]) {
    input.split_first().map_or((0, input), |(first, rest)| (usize::from(*first), rest))
}
