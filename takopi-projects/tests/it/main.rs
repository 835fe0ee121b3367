//! Worktrees on real git repositories.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod lab;
mod prune;
mod published;
mod worktrees;
