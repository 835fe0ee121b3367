//! What is needed to test Claude Code.
//!
//! - [`real`]: the pinned real Claude Code, installed once under `target/`, and older releases;
//! - [`home`]: a `CLAUDE_CONFIG_DIR`, a workspace and a state directory per test;
//! - [`duplex`]: a conversation with a claude over its two-way stream of lines, with nothing of takopi around it;
//! - [`fake`]: scripts for `fake-claude`, which shows the faults the real one cannot be made to show;
//! - [`lab`]: takopi over the fake claude.
//!
//! The scripted model is [`model::messages`](crate::model::messages).

mod chaos;
pub mod duplex;
pub mod fake;
pub mod home;
pub mod lab;
pub mod real;
