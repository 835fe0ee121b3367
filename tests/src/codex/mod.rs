//! What is needed to test codex.
//!
//! - [`real`]: the pinned real codex, installed once under `target/`;
//! - [`home`]: a `CODEX_HOME`, a workspace and a state directory per test;
//! - [`fake`]: scripts for `fake-codex`, which shows the faults the real one cannot be made to show;
//! - [`lab`]: takopi's runners over the fake codex;
//! - [`relay`]: an app-server whose lines come from the test itself;
//! - [`recorded`]: the lines in `fixtures/`;
//! - [`chaos`]: random faults from a seed.

pub mod chaos;
pub mod fake;
pub mod home;
pub mod lab;
pub mod real;
pub mod recorded;
pub mod relay;
