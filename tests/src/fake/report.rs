//! The messages between a fake and its test over the socket in the control directory, one JSON
//! value a line.
//!
//! A connection begins with [`Report::Start`], [`Report::Join`] or [`Report::Grandchild`]. Every
//! report is answered with one line before the fake goes on, so that the test knows of it before it
//! can see anything that follows: [`Report::Start`] with the number of the start, [`Report::Wait`]
//! when the gate opens, all others at once. The first connection of a process stays until the
//! process is gone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Name of the socket in the control directory.
pub const SOCKET: &str = "socket";

/// The answer to a report that asks for nothing else.
pub const NOTED: &str = "noted";

/// File in the control directory with what a start read from stdin.
pub fn stdin_file(start: usize) -> String {
    format!("stdin-{start}")
}

/// What a process was started as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// `codex exec`.
    Exec,
    /// `codex app-server`.
    AppServer,
    /// `claude -p` with a stream of lines in both directions.
    Duplex,
    /// `--version`.
    Version,
    /// `codex login`, `claude auth`.
    Login,
}

/// One message of a fake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// A process has begun.
    Start {
        /// What it was started as.
        mode: Mode,
        /// Its process id.
        pid: u32,
        /// Its arguments, without the program.
        args: Vec<String>,
        /// Its environment.
        env: BTreeMap<String, String>,
        /// Its directory.
        cwd: PathBuf,
    },
    /// Another thread of a process that has begun.
    Join {
        /// Number of its start.
        start: usize,
        /// Its process id.
        pid: u32,
    },
    /// A grandchild is ready.
    Grandchild {
        /// Its name.
        name: String,
        /// Number of the start that made it.
        start: usize,
        /// Its own process id.
        pid: u32,
    },
    /// The process has a session open, as a codex has with its writer's lock.
    Holds(String),
    /// A point was reached.
    Reached(String),
    /// The process waits for a gate.
    Wait(String),
    /// The client sent this line.
    Client(String),
    /// The client answered the ask of this name.
    Answered {
        /// The name.
        name: String,
        /// The client's message.
        message: serde_json::Value,
    },
}
