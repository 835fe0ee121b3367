//! What an app-server keeps in mind between calls: rules used, turns, asks.

use std::collections::HashSet;

use serde_json::{Value, json};
use takopi_tests::codex::fake::Ask;
use takopi_tests::fake::play::{Asks, Used};

use crate::app_server::{Call, resolved};
use crate::defaults::Threads;

/// All of it, behind one lock that also orders what is written.
#[derive(Default)]
pub(crate) struct State {
    /// The threads and their turns.
    pub(crate) threads: Threads,
    /// How often each rule was used.
    pub(crate) used: Used,
    /// The requests to the client.
    pub(crate) asks: Asks,
    /// Turns that were interrupted.
    interrupted: HashSet<String>,
    /// Whether no further message is read.
    pub(crate) stopped_reading: bool,
    next_ask: u64,
}

impl State {
    /// Whether the call belongs to a turn that was interrupted, and is not the interrupt itself.
    pub(crate) fn is_over(&self, call: &Call) -> bool {
        let turn = call.turn.as_ref().filter(|_| call.method == "turn/start");
        turn.is_some_and(|turn| self.interrupted.contains(turn))
    }

    /// The turn of the call runs no more.
    pub(crate) fn end_turn(&mut self, call: &Call) {
        if let Some(thread) = self.threads.get_mut(call.thread.as_ref()) {
            thread.turn.take_if(|running| call.turn.as_ref() == Some(running));
        }
    }

    /// Takes note of a request to the client and returns its id.
    pub(crate) fn ask(&mut self, call: &Call, ask: &Ask) -> Value {
        let id = ask.id.clone().unwrap_or_else(|| {
            self.next_ask += 1;
            json!(self.next_ask - 1)
        });
        // A sub-agent's question names a thread of its own.
        let named = ask.params["threadId"].as_str().filter(|thread| !thread.starts_with('$'));
        let thread = named.or(call.thread.as_deref()).unwrap_or_default();
        self.asks.ask(&id, &ask.name, thread, call.turn.clone());
        id
    }

    /// Ends a turn as interrupted: its requests are withdrawn, its steps stop.
    pub(crate) fn interrupt(&mut self, turn: String) {
        resolved(self.asks.withdraw_turn(&turn));
        self.interrupted.insert(turn);
    }
}
