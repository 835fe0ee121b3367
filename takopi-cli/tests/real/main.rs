//! The command on the real codex, whose model is scripted.

#[path = "../support/screen.rs"]
mod screen;

mod approvals;
mod lab;
mod runs;
mod sessions;
