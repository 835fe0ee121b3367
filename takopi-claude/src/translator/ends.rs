//! When a run is over.
//!
//! A result ends a turn, not always the run: a sub-agent in the background wakes the model again, a
//! message that came too late for the turn gets a turn of its own, and a turn that nobody asked for
//! (a command in the background ended, a timer) has a result, too. So a run is over
//!
//! - if results have named all messages of ours, and then the process is idle and no sub-agent lives in
//!   the background (2.1.210 is idle while one does);
//! - if the process is idle although a message of ours that it had begun got no result: it was
//!   interrupted;
//! - if the process does not report its state (2.0.45), at the result, unless a sub-agent lives.
//!
//! Commands in the background do not hold up the end.
//!
//! A result names its messages since 2.1.325. Before, it ends those that had begun (2.1.210 reports
//! that), and before that all that were sent.

use crate::wire::{State, Task};

/// One of our messages.
#[derive(Debug)]
struct Own {
    id: String,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Sent,
    Queued,
    Begun,
    Ended,
}

/// Decides when a run is over.
#[derive(Debug)]
pub(super) struct Ends {
    messages: Vec<Own>,
    /// Whether the process reports when messages are begun.
    reports_messages: bool,
    reports_state: bool,
    is_idle: bool,
    /// How many sub-agents live in the background.
    agents: usize,
    /// Whether a task was stopped, which wakes nobody.
    was_stopped: bool,
    is_over: bool,
}

impl Ends {
    pub(super) fn new(message_id: String) -> Self {
        Self {
            messages: vec![Own { id: message_id, stage: Stage::Sent }],
            reports_messages: false,
            reports_state: false,
            is_idle: false,
            agents: 0,
            was_stopped: false,
            is_over: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// A further message of ours was sent.
    pub(super) fn sent(&mut self, id: String) {
        self.messages.push(Own { id, stage: Stage::Sent });
    }

    pub(super) fn reports_state(&mut self) {
        self.reports_state = true;
    }

    /// How far a message is. Returns whether it is one of ours.
    pub(super) fn lifecycle(&mut self, id: &str, state: &str) -> bool {
        let Some(own) = self.messages.iter_mut().find(|own| own.id == id) else { return false };
        self.reports_messages = true;
        let stage = match state {
            "queued" => Stage::Queued,
            // The result comes before or after `completed`, and is what counts.
            "started" | "completed" => Stage::Begun,
            // It gets no turn, or its turn was ended.
            "cancelled" | "discarded" | "refused" => Stage::Ended,
            _ => return true,
        };
        own.stage = own.stage.max(stage);
        true
    }

    /// A turn that is about these messages began.
    pub(super) fn begun(&mut self, ids: &[String]) {
        for own in self.messages.iter_mut().filter(|own| ids.contains(&own.id)) {
            own.stage = own.stage.max(Stage::Begun);
        }
    }

    /// A turn ended. Whether that belongs to the run.
    pub(super) fn result(&mut self, named: Option<&[String]>, is_unasked: bool) -> bool {
        let belongs_already = self.messages.iter().any(|own| own.stage == Stage::Ended);
        let named = named.filter(|ids| !ids.is_empty());
        let mut is_ours = false;
        for own in &mut self.messages {
            let ends = match named {
                Some(ids) => ids.contains(&own.id),
                None if is_unasked => false,
                None if self.reports_messages => own.stage == Stage::Begun,
                None => true,
            };
            if ends {
                own.stage = Stage::Ended;
                is_ours = true;
            }
        }
        if !self.reports_state && self.agents == 0 {
            self.is_over |= self.are(Stage::Ended);
        }
        is_ours || belongs_already
    }

    pub(super) fn state(&mut self, state: &State) {
        self.reports_state = true;
        self.is_idle = *state == State::Idle;
        if self.is_idle {
            self.is_over |= self.are(Stage::Begun) && self.agents == 0;
        } else {
            self.was_stopped = false;
        }
    }

    /// These tasks live in the background, and no others. Returns whether sub-agents came or went.
    pub(super) fn background(&mut self, tasks: &[Task]) -> bool {
        let before = self.agents;
        self.agents = tasks.iter().filter(|task| task.is_agent()).count();
        self.stopped_while_idle();
        self.agents != before
    }

    /// Something became of a task.
    pub(super) fn task(&mut self, task: &Task) {
        self.was_stopped |= matches!(task.status.as_deref(), Some("stopped" | "killed"));
        self.stopped_while_idle();
    }

    fn stopped_while_idle(&mut self) {
        if self.is_idle && self.was_stopped && self.agents == 0 {
            self.is_over |= self.are(Stage::Begun);
        }
    }

    /// Whether all messages are at least so far.
    fn are(&self, stage: Stage) -> bool {
        self.messages.iter().all(|own| own.stage >= stage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> Ends {
        Ends::new("a".to_owned())
    }

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn agent() -> Task {
        Task { kind: Some("local_agent".to_owned()), ..Task::default() }
    }

    #[test]
    fn with_states_a_run_is_over_when_idle_after_the_result_that_names_it() {
        let mut ends = ends();
        ends.state(&State::Running);
        ends.lifecycle("a", "started");
        assert!(ends.result(Some(&ids(&["a"])), false));
        assert!(!ends.is_over());
        ends.state(&State::Idle);
        assert!(ends.is_over());
    }

    #[test]
    fn without_states_a_run_is_over_at_the_result() {
        let mut ends = ends();
        assert!(ends.result(None, false));
        assert!(ends.is_over());
    }

    #[test]
    fn the_result_of_an_unasked_turn_ends_nothing() {
        for named in [None, Some(ids(&["other"]))] {
            let mut ends = ends();
            ends.state(&State::Running);
            ends.lifecycle("a", "queued");
            assert!(!ends.result(named.as_deref(), named.is_none()));
            ends.state(&State::Idle);
            assert!(!ends.is_over());
            ends.state(&State::Running);
            ends.lifecycle("a", "started");
            assert!(ends.result(None, false));
            ends.state(&State::Idle);
            assert!(ends.is_over());
        }
    }

    #[test]
    fn an_idle_state_before_our_turn_ends_nothing() {
        let mut ends = ends();
        ends.state(&State::Idle);
        ends.lifecycle("a", "queued");
        ends.state(&State::Idle);
        assert!(!ends.is_over());
    }

    #[test]
    fn a_message_that_came_too_late_for_the_turn_holds_up_the_end() {
        let mut ends = ends();
        ends.state(&State::Running);
        ends.lifecycle("a", "started");
        ends.sent("b".to_owned());
        ends.lifecycle("b", "queued");
        assert!(ends.result(None, false));
        ends.state(&State::Idle);
        assert!(!ends.is_over(), "b has no turn yet");
        ends.state(&State::Running);
        ends.lifecycle("b", "started");
        assert!(ends.result(None, false));
        ends.state(&State::Idle);
        assert!(ends.is_over());
    }

    #[test]
    fn idle_while_a_sub_agent_lives_is_not_the_end() {
        let mut ends = ends();
        ends.state(&State::Running);
        ends.background(&[agent()]);
        assert!(ends.result(None, false));
        ends.state(&State::Idle);
        assert!(!ends.is_over());
        ends.background(&[]);
        assert!(!ends.is_over(), "its end wakes the model");
        ends.state(&State::Running);
        assert!(ends.result(None, true), "what follows belongs to the run");
        ends.state(&State::Idle);
        assert!(ends.is_over());
    }

    #[test]
    fn a_sub_agent_that_is_stopped_while_idle_ends_the_run() {
        for emptied_first in [true, false] {
            let mut ends = ends();
            ends.state(&State::Running);
            ends.background(&[agent()]);
            ends.result(None, false);
            ends.state(&State::Idle);
            let stopped = Task { status: Some("stopped".to_owned()), ..agent() };
            if emptied_first {
                ends.background(&[]);
                ends.task(&stopped);
            } else {
                ends.task(&stopped);
                assert!(!ends.is_over());
                ends.background(&[]);
            }
            assert!(ends.is_over());
        }
    }

    #[test]
    fn a_command_in_the_background_does_not_hold_up_the_end() {
        let mut ends = ends();
        ends.state(&State::Running);
        ends.background(&[Task { kind: Some("local_bash".to_owned()), ..Task::default() }]);
        ends.result(None, false);
        ends.state(&State::Idle);
        assert!(ends.is_over());
    }

    #[test]
    fn idle_without_a_result_ends_a_turn_that_had_begun() {
        let mut ends = ends();
        ends.state(&State::Running);
        ends.lifecycle("a", "started");
        ends.lifecycle("a", "cancelled");
        ends.state(&State::Idle);
        assert!(ends.is_over());
    }

    #[test]
    fn a_message_that_gets_no_turn_does_not_hold_up_the_end() {
        for state in ["cancelled", "discarded", "refused"] {
            let mut ends = ends();
            ends.state(&State::Running);
            ends.lifecycle("a", "started");
            ends.sent("b".to_owned());
            ends.lifecycle("b", "queued");
            ends.lifecycle("b", "a state that is not known yet");
            assert!(ends.result(Some(&ids(&["a"])), false));
            ends.state(&State::Idle);
            assert!(!ends.is_over());
            ends.lifecycle("b", state);
            ends.state(&State::Idle);
            assert!(ends.is_over(), "{state}");
        }
    }

    #[test]
    fn without_states_a_living_sub_agent_holds_up_the_end() {
        let mut ends = ends();
        ends.background(&[agent()]);
        assert!(ends.result(None, false));
        assert!(!ends.is_over());
        ends.background(&[]);
        assert!(ends.result(None, true));
        assert!(ends.is_over());
    }
}
