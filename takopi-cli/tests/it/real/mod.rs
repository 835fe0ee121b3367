//! The command on the real codex, whose model is scripted.

mod approvals;
mod batch;
mod chat;
pub(crate) mod lab;
mod runs;
mod sessions;
mod sharing;
