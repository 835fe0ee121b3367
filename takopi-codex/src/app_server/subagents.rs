//! Which threads are those of sub-agents, whose they are, and which turns they run.
//!
//! Learnt from what the server reports: `thread/started` with a parent, and items that report
//! an agent as started. A turn runs from the first message that names it, because codex may start it before it
//! reports anything, to its end, and belongs to the run during which it began. Bounded: of very many the oldest are forgotten.

use std::collections::{HashMap, VecDeque};

/// How many sub-agents are remembered.
const REMEMBERED: usize = 1024;
/// How deep agents may be nested.
const DEPTH: usize = 32;

/// Distinguishes the turns of ours on one server.
pub(super) type TurnNumber = u64;

#[derive(Debug, Default)]
pub(super) struct Subagents {
    agents: HashMap<String, Agent>,
    order: VecDeque<String>,
}

#[derive(Debug)]
struct Agent {
    parent: String,
    /// Its last turn, and whether that runs.
    turn: String,
    runs: bool,
    /// The turn of ours during which that turn began, or the agent was learnt of.
    during: Option<TurnNumber>,
}

impl Subagents {
    /// Remembers the parent of a thread; what was learnt first holds.
    pub(super) fn learn(&mut self, child: &str, parent: &str, during: Option<TurnNumber>) {
        if child == parent || self.agents.contains_key(child) || self.is_above(child, parent) {
            return;
        }
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.agents.remove(&oldest);
        }
        self.order.push_back(child.to_owned());
        let parent = parent.to_owned();
        let agent = Agent { parent, turn: String::new(), runs: false, during };
        self.agents.insert(child.to_owned(), agent);
    }

    /// A message names a turn of a thread.
    pub(super) fn turn(
        &mut self,
        thread: &str,
        turn: &str,
        method: &str,
        during: Option<TurnNumber>,
    ) {
        let Some(agent) = self.agents.get_mut(thread) else { return };
        // What comes late of an earlier turn shows nothing.
        if agent.turn != turn && (!agent.runs || method == "turn/started") {
            turn.clone_into(&mut agent.turn);
            agent.runs = true;
            agent.during = during;
        }
        if method == "turn/completed" {
            self.turn_ended(thread, turn);
        }
    }

    /// A turn of a thread is over.
    pub(super) fn turn_ended(&mut self, thread: &str, turn: &str) {
        if let Some(agent) = self.agents.get_mut(thread).filter(|agent| agent.turn == turn) {
            agent.runs = false;
        }
    }

    /// Whether this turn of a thread (without one: the turn that runs) began during this turn of ours, as far as is known.
    pub(super) fn may_have_begun_during(
        &self,
        thread: &str,
        turn: Option<&str>,
        during: Option<TurnNumber>,
    ) -> bool {
        let Some(agent) = self.agents.get(thread) else { return true };
        let is_known = turn.map_or(agent.runs || agent.turn.is_empty(), |it| it == agent.turn);
        !is_known || agent.during == during
    }

    /// The threads below this one, each with the turn that it runs.
    pub(super) fn below(&self, thread: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
        let below = self.agents.iter().filter(move |(agent, _)| self.is_above(thread, agent));
        below.map(|(thread, agent)| (&**thread, agent.runs.then_some(&*agent.turn)))
    }

    /// The threads above this one, from its parent up.
    pub(super) fn ancestors<'a>(&'a self, thread: &'a str) -> impl Iterator<Item = &'a str> {
        let parent = |thread: &&str| Some(&*self.agents.get(*thread)?.parent);
        std::iter::successors(parent(&thread), parent).take(DEPTH)
    }

    fn is_above(&self, above: &str, thread: &str) -> bool {
        self.ancestors(thread).any(|ancestor| ancestor == above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_are_found_and_never_form_a_circle() {
        let mut agents = Subagents::default();
        agents.learn("child", "root", None);
        agents.learn("grandchild", "child", None);
        agents.learn("root", "grandchild", None);
        agents.learn("child", "other", None);
        assert_eq!(agents.ancestors("grandchild").collect::<Vec<_>>(), ["child", "root"]);
        assert_eq!(agents.ancestors("root").count(), 0);
    }

    #[test]
    fn a_turn_runs_from_the_first_message_that_names_it_to_its_end() {
        let mut agents = Subagents::default();
        agents.learn("child", "root", None);
        agents.learn("grandchild", "child", None);
        let running = |agents: &Subagents, thread: &str| {
            let mut running: Vec<_> = agents
                .below(thread)
                .filter_map(|(agent, turn)| Some(format!("{agent} {}", turn?)))
                .collect();
            running.sort();
            running
        };
        assert_eq!(agents.below("root").count(), 2);
        agents.turn("child", "one", "item/started", None);
        agents.turn("grandchild", "deep", "turn/started", None);
        agents.turn("unknown", "x", "turn/started", None);
        assert_eq!(running(&agents, "root"), ["child one", "grandchild deep"]);
        assert_eq!(running(&agents, "child"), ["grandchild deep"]);
        agents.turn("child", "one", "turn/completed", None);
        agents.turn("child", "one", "item/completed", None);
        assert_eq!(
            running(&agents, "root"),
            ["grandchild deep"],
            "what comes late revives no turn"
        );
        agents.turn("child", "two", "turn/started", None);
        agents.turn("child", "one", "item/completed", None);
        agents.turn("child", "one", "turn/completed", None);
        assert_eq!(running(&agents, "root"), ["child two", "grandchild deep"]);
        agents.turn_ended("child", "two");
        agents.turn("grandchild", "deep", "turn/completed", None);
        assert_eq!(running(&agents, "root"), Vec::<String>::new());
    }

    #[test]
    fn a_turn_belongs_to_the_run_during_which_it_began() {
        let mut agents = Subagents::default();
        // Of two runs, those that it may have begun during.
        let of = |agents: &Subagents, turn: Option<&str>| {
            [1, 2].map(|run| agents.may_have_begun_during("child", turn, Some(run)))
        };
        assert_eq!(of(&agents, None), [true, true], "it is not known");
        agents.learn("child", "root", Some(1));
        assert_eq!(of(&agents, None), [true, false]);
        agents.turn("child", "one", "turn/started", Some(1));
        agents.turn("child", "one", "item/started", Some(2));
        assert_eq!(of(&agents, Some("one")), [true, false]);
        assert_eq!(of(&agents, None), [true, false]);
        agents.turn("child", "one", "turn/completed", Some(2));
        assert_eq!(of(&agents, Some("one")), [true, false], "it is late");
        assert_eq!(of(&agents, None), [true, true], "none runs");
        agents.turn("child", "two", "turn/started", Some(2));
        assert_eq!(of(&agents, Some("two")), [false, true]);
        agents.turn("child", "two", "turn/completed", None);
        agents.turn("child", "three", "turn/started", None);
        assert_eq!(of(&agents, Some("three")), [false, false], "it began between two runs");
    }

    #[test]
    fn of_very_many_the_oldest_are_forgotten() {
        let mut agents = Subagents::default();
        for number in 0..=REMEMBERED {
            agents.learn(&format!("child-{number}"), "root", None);
        }
        assert_eq!(agents.agents.len(), REMEMBERED);
        assert_eq!(agents.ancestors("child-0").count(), 0);
        assert_eq!(agents.ancestors("child-1").count(), 1);
    }
}
