//! The command on the real agents, whose model is scripted: codex, and Claude Code.

mod approvals;
mod batch;
mod chat;
pub(crate) mod claude;
pub(crate) mod lab;
mod runs;
mod sessions;
mod sharing;
