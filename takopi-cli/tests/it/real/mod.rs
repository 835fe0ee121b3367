//! The command on the real agents, whose model is scripted: codex, Claude Code, pi, and those that speak ACP.

mod acp;
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
