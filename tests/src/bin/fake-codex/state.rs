//! What an app-server keeps in mind between calls: rules used, turns, asks.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};
use takopi_tests::codex::fake::{Ask, Server, Step};

use crate::app_server::Call;
use crate::defaults::Threads;
use crate::output;

/// All of it, behind one lock that also orders what is written.
#[derive(Default)]
pub(crate) struct State {
    /// The threads and their turns.
    pub(crate) threads: Threads,
    /// How often each rule was used.
    used: Vec<usize>,
    /// Turns that were interrupted.
    interrupted: HashSet<String>,
    /// Whether no further message is read.
    pub(crate) stopped_reading: bool,
    asks: BTreeMap<String, Pending>,
    next_ask: u64,
}

/// A request to the client.
struct Pending {
    name: String,
    thread: String,
    turn: Option<String>,
    resolved: bool,
    answer: Option<Value>,
}

impl State {
    /// Before any call, with this many rules.
    pub(crate) fn new(rules: usize) -> Self {
        Self { used: vec![0; rules], ..Self::default() }
    }

    /// The steps of the first rule that fits the call and is not used up.
    pub(crate) fn rule(&mut self, script: &Server, method: &str, text: &str) -> Option<Vec<Step>> {
        let at = script.rules.iter().zip(&self.used).position(|(rule, used)| {
            rule.method == method
                && rule.containing.as_ref().is_none_or(|needle| text.contains(needle))
                && rule.times.is_none_or(|times| *used < times)
        })?;
        self.used[at] += 1;
        Some(script.rules[at].steps.clone())
    }

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
        let pending = Pending {
            name: ask.name.clone(),
            thread: call.thread.clone().unwrap_or_default(),
            turn: call.turn.clone(),
            resolved: false,
            answer: None,
        };
        self.asks.insert(id.to_string(), pending);
        id
    }

    /// Takes note of the client's answer and returns the name of the request, if there was one.
    pub(crate) fn answered(&mut self, id: &Value, message: &Value) -> Option<String> {
        let pending = self.asks.get_mut(&id.to_string())?;
        let answer = message.get("result").or(message.get("error"));
        pending.answer.get_or_insert_with(|| answer.cloned().unwrap_or_default());
        Some(pending.name.clone())
    }

    /// The first answer to a request, which settles it.
    pub(crate) fn take_answer(&mut self, id: &Value) -> Option<Value> {
        let pending = self.asks.get_mut(&id.to_string())?;
        let answer = pending.answer.clone()?;
        pending.resolve(&id.to_string());
        Some(answer)
    }

    /// Withdraws the requests of this name.
    pub(crate) fn withdraw(&mut self, name: &str) {
        let named = self.asks.iter_mut().filter(|(_, pending)| pending.name == name);
        named.for_each(|(id, pending)| pending.resolve(id));
    }

    /// Ends a turn as interrupted: its requests are withdrawn, its steps stop.
    pub(crate) fn interrupt(&mut self, turn: String) {
        let its = |pending: &Pending| pending.turn.as_ref() == Some(&turn);
        let asked = self.asks.iter_mut().filter(|(_, pending)| its(pending));
        asked.for_each(|(id, pending)| pending.resolve(id));
        self.interrupted.insert(turn);
    }
}

impl Pending {
    /// Reports that it is settled, once.
    fn resolve(&mut self, id: &str) {
        if std::mem::replace(&mut self.resolved, true) {
            return;
        }
        let thread = Value::from(self.thread.as_str());
        let params = format!(r#"{{"threadId":{thread},"requestId":{id}}}"#);
        output::line(format!(r#"{{"method":"serverRequest/resolved","params":{params}}}"#));
    }
}
