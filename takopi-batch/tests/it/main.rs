//! Batches on a scripted runner and a paused clock.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: what fails here fails the test")]

mod ends;
mod failures;
mod lab;
mod limits;
mod order;
mod rerun;
