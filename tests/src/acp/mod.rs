//! What is needed to test agents that speak the Agent Client Protocol.
//!
//! - [`real`]: the pinned real agents, installed once under `target/`;
//! - [`mod@bench`]: takopi over a real agent with a scripted model;
//! - [`fake`]: scripts for `fake-acp`, which shows the faults the real ones cannot be made to show, and takopi over it.

pub mod bench;
mod chaos;
pub mod fake;
mod model;
pub mod real;
