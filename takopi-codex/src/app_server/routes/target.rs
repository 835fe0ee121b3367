//! Which turn a message is for.

use super::State;
use crate::app_server::address::{Address, Id, is_of_a_thread};

/// Where a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// To the turn on this thread.
    Turn(String),
    /// To the turn on this thread, above a sub-agent.
    Above(String),
    /// To every turn.
    All,
    /// Nowhere: it belongs to a turn that is not followed here.
    Nobody,
    /// Nowhere: it is unknown which turn it belongs to. It may belong to the turn on this thread, or to any.
    Unattributed(Option<String>),
}

impl State {
    /// Where a request goes: what a notification may do without, a request must have, because somebody answers it.
    pub(super) fn target_of_request(&self, method: &str, address: &Address<'_>) -> Target {
        match (self.target(method, address), address.thread.known()) {
            (Target::All, _) => Target::Unattributed(None),
            (Target::Nobody, Some(thread)) => match self.threads.get(thread) {
                Some(route) if route.turn.is_some() => {
                    Target::Unattributed(Some(thread.to_owned()))
                }
                // Late: its run is over.
                Some(route) if !route.ended.is_empty() => Target::Nobody,
                // A sub-agent of such a run.
                None if self.is_below_an_ended_turn(thread) => Target::Nobody,
                // Perhaps a sub-agent that was never reported.
                _ => Target::Unattributed(None),
            },
            (Target::Above(above), Some(thread)) => {
                let turn = address.turn.known();
                let now = self.turn_above(&above);
                if self.subagents.may_have_begun_during(thread, turn, now) {
                    Target::Above(above)
                } else {
                    // An agent of an earlier run works on: this run's handler does not speak for that one.
                    Target::Unattributed(Some(above))
                }
            }
            (other, _) => other,
        }
    }

    pub(super) fn target(&self, method: &str, address: &Address<'_>) -> Target {
        let runs = |thread: &str| self.threads.get(thread).is_some_and(|it| it.turn.is_some());
        let thread = match &address.thread {
            Id::Known(thread) => &**thread,
            Id::Unreadable => return Target::Unattributed(None),
            Id::Absent => return self.target_by_turn(method, address),
        };
        match self.threads.get(thread).filter(|route| route.turn.is_some()) {
            Some(_) if is_unreadable(method, &address.turn) => {
                Target::Unattributed(Some(thread.to_owned()))
            }
            Some(route) if route.is_of_another_turn(method, address.turn.known()) => Target::Nobody,
            Some(_) => Target::Turn(thread.to_owned()),
            None => {
                let above = self.subagents.ancestors(thread).find(|ancestor| runs(ancestor));
                above.map_or(Target::Nobody, |above| Target::Above(above.to_owned()))
            }
        }
    }

    /// Without a thread the turn may still be known.
    fn target_by_turn(&self, method: &str, address: &Address<'_>) -> Target {
        let own = |turn: &str| {
            let found = self.threads.iter().find(|(_, route)| {
                route.turn.as_ref().is_some_and(|running| running.id.as_deref() == Some(turn))
            });
            found.map(|(thread, _)| thread.clone())
        };
        match &address.turn {
            Id::Known(turn) => own(turn).map_or(Target::Unattributed(None), Target::Turn),
            Id::Unreadable => Target::Unattributed(None),
            Id::Absent if is_of_a_thread(method) => Target::Unattributed(None),
            Id::Absent => Target::All,
        }
    }

    /// Whether a thread is that of a sub-agent whose run is over.
    fn is_below_an_ended_turn(&self, thread: &str) -> bool {
        let has_ended =
            |above: &str| self.threads.get(above).is_some_and(|route| !route.ended.is_empty());
        self.subagents.ancestors(thread).any(has_ended)
    }
}

/// Whether it is unknown which turn of its thread a message is about. The end of a turn must name it.
fn is_unreadable(method: &str, turn: &Id<'_>) -> bool {
    match turn {
        Id::Unreadable => true,
        Id::Absent => method == "turn/completed",
        Id::Known(_) => false,
    }
}
