//! The command on the real codex, whose model is scripted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: what fails here fails the test")]
#![allow(clippy::print_stdout, reason = "tests: seeds and figures")]

#[path = "../support/screen.rs"]
mod screen;

mod approvals;
mod batch;
mod chat;
mod lab;
mod runs;
mod sessions;
mod sharing;
