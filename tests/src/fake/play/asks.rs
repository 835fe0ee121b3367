//! The requests of a fake to its client, and what became of them.

use std::collections::BTreeMap;

use serde_json::Value;

/// Requests by their id, as JSON.
#[derive(Debug, Default)]
pub struct Asks(BTreeMap<String, Pending>);

#[derive(Debug)]
struct Pending {
    name: String,
    place: String,
    turn: Option<String>,
    settled: bool,
    answer: Option<Value>,
}

/// A request that is settled just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Its id, as JSON.
    pub id: String,
    /// Where it belongs, such as a thread.
    pub place: String,
}

impl Asks {
    /// Takes note of a request.
    pub fn ask(&mut self, id: &Value, name: &str, place: &str, turn: Option<String>) {
        let (name, place) = (name.to_owned(), place.to_owned());
        let pending = Pending { name, place, turn, settled: false, answer: None };
        self.0.insert(id.to_string(), pending);
    }

    /// Takes note of the client's answer and returns the name of the request, if there was one. The first answer counts.
    pub fn answered(&mut self, id: &Value, answer: Value) -> Option<String> {
        let pending = self.0.get_mut(&id.to_string())?;
        pending.answer.get_or_insert(answer);
        Some(pending.name.clone())
    }

    /// The answer to a request, which settles it.
    pub fn take_answer(&mut self, id: &Value) -> Option<(Value, Option<Settled>)> {
        let id = id.to_string();
        let pending = self.0.get_mut(&id)?;
        let answer = pending.answer.clone()?;
        Some((answer, pending.settle(&id)))
    }

    /// Settles the requests of this name that were not.
    pub fn withdraw(&mut self, name: &str) -> Vec<Settled> {
        self.settle(|pending| pending.name == name)
    }

    /// Settles the requests of this turn that were not.
    pub fn withdraw_turn(&mut self, turn: &str) -> Vec<Settled> {
        self.settle(|pending| pending.turn.as_deref() == Some(turn))
    }

    fn settle(&mut self, chosen: impl Fn(&Pending) -> bool) -> Vec<Settled> {
        let chosen = self.0.iter_mut().filter(|(_, pending)| chosen(pending));
        chosen.filter_map(|(id, pending)| pending.settle(id)).collect()
    }
}

impl Pending {
    fn settle(&mut self, id: &str) -> Option<Settled> {
        let first = !std::mem::replace(&mut self.settled, true);
        first.then(|| Settled { id: id.to_owned(), place: self.place.clone() })
    }
}
