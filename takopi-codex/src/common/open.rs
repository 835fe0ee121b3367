//! The actions that were started and not completed.

use takopi_core::model::Action;

/// How many are kept for their memory. Few tools run at a time.
const SPARES: usize = 4;
/// What is kept of one at the most.
const SPARE_BYTES: usize = 4 * 1024;

/// Copies of the open actions of a turn, in their order. One that was completed leaves its memory to the next,
/// so that remembering an action allocates nothing.
#[derive(Debug, Default)]
pub(super) struct OpenActions {
    open: Vec<Action>,
    spare: Vec<Action>,
}

impl OpenActions {
    /// Remembers an action; what was known of it is replaced.
    pub(super) fn put(&mut self, action: &Action) {
        let known = self.open.iter_mut().rfind(|open| open.id == action.id);
        if let Some(open) = known {
            return copy(action, open);
        }
        match self.spare.pop() {
            Some(mut spare) => {
                copy(action, &mut spare);
                self.open.push(spare);
            }
            None => self.open.push(action.clone()),
        }
    }

    /// An action is completed.
    pub(super) fn remove(&mut self, id: &str) {
        let Some(place) = self.open.iter().rposition(|open| open.id == id) else { return };
        let action = self.open.remove(place);
        let small = action.title.capacity() + action.id.capacity() <= SPARE_BYTES;
        if small && self.spare.len() < SPARES {
            self.spare.push(action);
        }
    }

    /// Takes all of them out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Action> {
        self.open.drain(..)
    }
}

/// Copies an action into the memory of another.
fn copy(from: &Action, to: &mut Action) {
    to.id.clone_from(&from.id);
    to.kind.clone_from(&from.kind);
    to.title.clone_from(&from.title);
    to.detail.clone_from(&from.detail);
}

#[cfg(test)]
mod tests {
    use takopi_core::model::ActionKind;

    use super::*;

    fn action(id: &str, title: &str) -> Action {
        Action::new(id, ActionKind::Command, title).with("status", title)
    }

    #[test]
    fn what_was_not_completed_is_there_as_it_was_last_in_its_order() {
        let mut open = OpenActions::default();
        for id in ["a", "b", "c", "d", "e", "f"] {
            open.put(&action(id, "first"));
        }
        for id in ["b", "f", "no such", "c", "d", "e"] {
            open.remove(id);
        }
        open.put(&action("g", "behind"));
        open.put(&action("a", "second"));
        let left: Vec<_> = open.drain().collect();
        assert_eq!(left, [action("a", "second"), action("g", "behind")]);
        assert_eq!(open.drain().count(), 0);
    }

    #[test]
    fn the_memory_of_a_large_action_is_not_kept() {
        let mut open = OpenActions::default();
        open.put(&action("a", &"x".repeat(SPARE_BYTES)));
        open.remove("a");
        assert!(open.spare.is_empty());
    }
}
