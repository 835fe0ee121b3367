//! Codex: both transports, on the fake codex and on the real one.

mod app_server;
mod approvals;
mod conversation;
mod drift;
mod ephemeral;
mod exec;
mod failures;
mod random;
