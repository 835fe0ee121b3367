//! The agent's list of tasks: one action for the whole turn.

use takopi_core::EngineId;
use takopi_core::model::{Action, ActionEvent, ActionKind, Phase, TakopiEvent};

use crate::wire::PlanEntry;

/// The list, as it stands.
#[derive(Debug)]
pub(super) struct Plan {
    engine: EngineId,
    shown: Option<Action>,
}

impl Plan {
    pub(super) fn new(engine: EngineId) -> Self {
        Self { engine, shown: None }
    }

    /// The list is this now.
    pub(super) fn update(&mut self, entries: &[PlanEntry], events: &mut Vec<TakopiEvent>) {
        let total = entries.len();
        let done = entries.iter().filter(|entry| entry.is_done).count();
        let next = entries.iter().find(|entry| !entry.is_done).map_or("done", |entry| &entry.text);
        let title = if total == 0 { "todo".into() } else { format!("todo {done}/{total}: {next}") };
        let action = Action::new(format!("{}.plan", self.engine), ActionKind::Note, title)
            .with("done", done)
            .with("total", total);
        if self.shown.as_ref() == Some(&action) {
            return;
        }
        let phase = if self.shown.is_some() { Phase::Updated } else { Phase::Started };
        events.push(ActionEvent::new(self.engine.clone(), action.clone(), phase).into());
        self.shown = Some(action);
    }

    /// The list ends with its turn.
    pub(super) fn close(&mut self, events: &mut Vec<TakopiEvent>) {
        if let Some(action) = self.shown.take() {
            let event = ActionEvent::new(self.engine.clone(), action, Phase::Completed);
            events.push(event.ok(true).into());
        }
    }
}
