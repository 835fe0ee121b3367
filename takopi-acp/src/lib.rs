//! Agents that speak the Agent Client Protocol (ACP) as takopi engines.
//!
//! One engine that takes a command line. What takopi knows of opencode, gemini, qwen and the adapters for codex and Claude
//! Code are presets ([`Agent::preset`]); any other agent is a command line and the name of its session store
//! ([`Agent::custom`]).
//!
//! # Modules
//!
//! A prompt goes out as a JSON-RPC request to a process that stays, and its response ends the turn:
//!
//! - `agent`, `acp`, `launch`, `prompt`: which agent, how it is started, and what it is sent;
//! - `engine`: the session, its process and its lease; `session`: how a session is opened; `driver`: one turn;
//!   `client`: the process and who gets its messages;
//! - `approvals`: what the agent asks, and the answers;
//! - `wire`: what agents send, parsed once, tolerantly;
//! - `translator`: updates of one turn into events, and how it ended; `diff`: what changes in a file;
//! - `failure`: why a turn failed, for machines and for people;
//! - `entry`, `doctor`: the engine in a catalog, its installation checks.

mod acp;
mod agent;
mod approvals;
mod client;
mod diff;
mod doctor;
mod driver;
mod engine;
mod entry;
mod failure;
mod launch;
mod prompt;
mod session;
mod translator;
mod wire;

pub use acp::Acp;
pub use agent::{Agent, AgentError, SessionIds};
pub use engine::AcpEngine;
pub use entry::AcpEntry;
#[doc(hidden)]
pub use translator::translate_lines;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
