//! `codex exec --json`: one process a run.

mod endings;
mod faults;
mod real;
