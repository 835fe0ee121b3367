//! The proving ground: everything takopi's tests need to be run against.
//!
//! For any agent:
//!
//! - [`model`]: scripted models on loopback, so that a real agent runs with no account;
//! - [`home`]: directories for every test, and the processes that were started there;
//! - [`program`], [`version`]: real agents that run here;
//! - [`executable`]: scripts that a test writes and executes;
//! - [`fake`]: fake agents that play scripts, and what a test sees of them;
//! - [`lab`]: takopi over a fake agent;
//! - [`raw`]: a real agent with nothing of takopi around it;
//! - [`contract`]: checks that every runner must pass, for authors of engines;
//! - [`runs`]: the events of runs, collected so that a test can check what happened;
//! - [`logs`]: what takopi logs meanwhile;
//! - [`browser`]: a headless Chromium, for pages;
//! - [`telegram`]: a fake of the Bot API;
//! - [`postgres`]: a private PostgreSQL;
//! - [`fuzz`]: runs fuzz targets;
//! - [`chaos`]: random faults on the fake of an agent;
//! - [`recorded`]: what the real agents printed;
//! - [`drift`]: recordings through a translator, changed at random from a seed;
//! - [`mutate`]: lines of the wire, changed at random from a seed;
//! - [`limits`]: limits that are raised when the machine is too slow for them;
//! - [`signals`]: default signal dispositions for the commands that tests start;
//! - [`skip`]: how a test that cannot run here is skipped;
//! - [`dirs`]: directories of the workspace.
//!
//! For one agent: [`codex`], [`claude`], [`pi`]; for those that speak ACP: [`acp`]. Another one gets a module of its own beside it, with the same parts: the real agent
//! (installed once under `target/`), its home directory, a fake that shows the faults the real one cannot be made to show.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test library: a failure here is a test's failure"
)]

pub mod acp;
pub mod browser;
pub mod chaos;
pub mod claude;
pub mod codex;
mod command;
pub mod contract;
pub mod dice;
pub mod dirs;
pub mod drift;
pub mod executable;
pub mod fake;
pub mod fuzz;
pub mod home;
mod install;
pub mod lab;
pub mod limits;
pub mod logs;
pub mod model;
pub mod mutate;
pub mod pi;
pub mod postgres;
pub mod program;
pub mod raw;
pub mod recorded;
pub mod runs;
pub mod signals;
pub mod skip;
pub mod telegram;
pub mod version;
