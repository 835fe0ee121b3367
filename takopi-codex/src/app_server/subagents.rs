//! Which threads are those of sub-agents, and whose.
//!
//! Learnt from what the server reports: `thread/started` with a parent, and items that report
//! an agent as started. Bounded: of very many the oldest are forgotten.

use std::collections::{HashMap, VecDeque};

/// How many sub-agents are remembered.
const REMEMBERED: usize = 1024;
/// How deep agents may be nested.
const DEPTH: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Subagents {
    parents: HashMap<String, String>,
    order: VecDeque<String>,
}

impl Subagents {
    /// Remembers the parent of a thread; what was learnt first holds.
    pub(super) fn learn(&mut self, child: &str, parent: &str) {
        if child == parent || self.parents.contains_key(child) || self.is_above(child, parent) {
            return;
        }
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.parents.remove(&oldest);
        }
        self.order.push_back(child.to_owned());
        self.parents.insert(child.to_owned(), parent.to_owned());
    }

    /// The threads above this one, from its parent up.
    pub(super) fn ancestors<'a>(&'a self, thread: &'a str) -> impl Iterator<Item = &'a str> {
        let parent = |thread: &&str| self.parents.get(*thread).map(String::as_str);
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
        agents.learn("child", "root");
        agents.learn("grandchild", "child");
        agents.learn("root", "grandchild");
        agents.learn("child", "other");
        assert_eq!(agents.ancestors("grandchild").collect::<Vec<_>>(), ["child", "root"]);
        assert_eq!(agents.ancestors("root").count(), 0);
    }

    #[test]
    fn of_very_many_the_oldest_are_forgotten() {
        let mut agents = Subagents::default();
        for number in 0..=REMEMBERED {
            agents.learn(&format!("child-{number}"), "root");
        }
        assert_eq!(agents.parents.len(), REMEMBERED);
        assert_eq!(agents.ancestors("child-0").count(), 0);
        assert_eq!(agents.ancestors("child-1").count(), 1);
    }
}
