//! What a process keeps in mind between calls: rules used, the turn, asks.

use std::collections::HashSet;

use serde_json::Value;
use takopi_tests::fake::play::{Asks, Used};

/// All of it, behind one lock that also orders what is written.
#[derive(Default)]
pub(crate) struct State {
    /// How often each rule was used.
    pub(crate) used: Used,
    /// The requests to the client.
    pub(crate) asks: Asks,
    /// Whether no further message is read.
    pub(crate) stopped_reading: bool,
    /// Whether the last result was an error.
    pub(crate) failed: bool,
    /// How many results were printed.
    pub(crate) results: usize,
    /// How many requests were sent.
    pub(crate) asked: usize,
    /// The turn that runs.
    pub(crate) turn: Option<Turn>,
    /// Whether an approval waits.
    pub(crate) waiting: bool,
    /// The tools that were called and have no result.
    tools: Vec<String>,
    turns: usize,
    interrupted: HashSet<String>,
}

/// A turn and the messages it is about.
#[derive(Clone, Default)]
pub(crate) struct Turn {
    /// Its number.
    pub(crate) id: String,
    /// The ids of its messages.
    pub(crate) uuids: Vec<String>,
}

impl State {
    /// Begins a turn about these messages and returns its id.
    pub(crate) fn begin(&mut self, uuids: Vec<String>) -> String {
        self.turns += 1;
        let id = self.turns.to_string();
        self.turn = Some(Turn { id: id.clone(), uuids });
        id
    }

    /// The turn that runs, which is over with this and whose steps stop.
    pub(crate) fn interrupt(&mut self) -> Option<Turn> {
        let turn = self.turn.take()?;
        self.interrupted.insert(turn.id.clone());
        Some(turn)
    }

    /// Takes note of a line that is printed.
    pub(crate) fn printed(&mut self, line: &str) {
        if line.contains(r#""type":"result""#) {
            self.results += 1;
            self.failed = line.contains(r#""is_error":true"#);
        }
        if !line.contains(r#""type":"tool_"#) {
            return;
        }
        let line: Value = serde_json::from_str(line).unwrap_or_default();
        for block in line["message"]["content"].as_array().into_iter().flatten() {
            if let ("tool_use", Some(id)) = (kind(block), block["id"].as_str()) {
                self.tools.push(id.to_owned());
            }
            self.tools.retain(|id| block["tool_use_id"] != id.as_str());
        }
    }

    /// The tools that run, which are over with this.
    pub(crate) fn take_tools(&mut self) -> Vec<String> {
        std::mem::take(&mut self.tools)
    }

    /// Whether a turn was interrupted.
    pub(crate) fn is_over(&self, turn: Option<&String>) -> bool {
        turn.is_some_and(|turn| self.interrupted.contains(turn))
    }
}

fn kind(block: &Value) -> &str {
    block["type"].as_str().unwrap_or_default()
}
