//! The `takopi` command: run as people and scripts do, on the real codex, and in a browser.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: what fails here fails the test; seeds and figures are printed"
)]

mod cli;
mod fleet;
mod real;
mod screen;
mod web;
