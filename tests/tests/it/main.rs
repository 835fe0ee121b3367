//! Tests across the crates.
//!
//! - `contract`: what every runner must do, held for the demo engine and for codex over both transports;
//! - `codex`, `claude`, `pi`: everything about one agent. Another gets a folder of its own beside them;
//! - `log_lines`: what is never logged;
//! - `proving_ground`: the scripted models, the fake agents, the browser.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: a panic here is a failed test"
)]

mod acp;
mod claude;
mod codex;
mod contract;
mod docs;
mod log_lines;
mod pi;
mod proving_ground;
