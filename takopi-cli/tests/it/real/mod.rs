//! The command on the real agents, whose model is scripted: codex, Claude Code and pi.

mod approvals;
mod batch;
mod chat;
pub(crate) mod claude;
pub(crate) mod lab;
mod pi;
mod runs;
mod sessions;
mod sharing;
mod stream;
mod telegram;
