//! The command on the real Claude Code, whose model is scripted.

pub(crate) mod approvals;
mod batch;
pub(crate) mod chat;
mod kills;
pub(crate) mod lab;
mod runs;
mod sharing;
