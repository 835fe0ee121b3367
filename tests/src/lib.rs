//! The proving ground: everything takopi's tests need to be run against.
//!
//! - [`model`]: a scripted Responses API on loopback, so that the real codex runs with no account;
//! - [`real`]: the pinned real codex, installed once under `target/`;
//! - [`browser`]: a headless Chromium, for pages;
//! - [`home`]: a `CODEX_HOME`, a workspace and a state directory per test;
//! - [`runs`]: runs of a runner, gathered so that a test can ask what happened;
//! - [`chaos`]: random faults from a seed;
//! - [`fuzz`]: runs fuzz targets;
//! - [`mutate`]: lines of the wire, changed at random from a seed;
//! - [`recorded`]: the lines in `fixtures/`;
//! - [`relay`]: an app-server whose lines come from the test itself;
//! - [`contract`]: checks that every runner must pass, for authors of engines;
//! - [`signals`]: default signal dispositions for the commands that tests start;
//! - [`skip`]: how a test that cannot run here is skipped;
//! - [`lab`]: takopi's runners over the fake codex;
//! - [`fake`]: scripts for `fake-codex`, which shows the faults the real one cannot be made to show.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test library: a failure here is a test's failure"
)]

pub mod browser;
pub mod chaos;
pub mod contract;
pub mod dice;
pub mod fake;
pub mod fuzz;
pub mod home;
mod install;
pub mod lab;
pub mod limits;
pub mod model;
pub mod mutate;
pub mod real;
pub mod recorded;
pub mod relay;
pub mod runs;
pub mod signals;
pub mod skip;
