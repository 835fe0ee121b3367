//! What lines of codex come to, and runs on a scripted stand-in for codex.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: what fails here fails the test"
)]

mod items;
mod properties;
mod recordings;
mod runs;
mod support;
mod turns;
