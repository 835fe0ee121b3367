//! The agent's list of tasks: one action for the whole run, as codex's plan.

use serde_json::value::RawValue;
use takopi_core::model::{Action, ActionEvent, ActionKind, Phase};

use crate::CLAUDE;
use crate::wire::Object;

/// The id of the action.
const PLAN_ID: &str = "claude.plan";
/// How many tasks are kept.
const TASKS: usize = 1000;

/// The list, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Plan {
    tasks: Vec<Task>,
    is_open: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Task {
    /// Its number; tasks of `TodoWrite` have none.
    id: Option<String>,
    text: String,
    is_done: bool,
}

impl Plan {
    /// Whether a tool is about the list.
    pub(super) fn is_about(tool: &str) -> bool {
        matches!(tool, "TodoWrite" | "TaskCreate" | "TaskUpdate")
    }

    /// A call succeeded: the event, or none if the list does not know what it is about.
    pub(super) fn called(
        &mut self,
        tool: &str,
        input: &Object<'_>,
        output: &Object<'_>,
    ) -> Option<ActionEvent> {
        match tool {
            "TodoWrite" => {
                self.tasks = input.list("todos").into_iter().map(todo).take(TASKS).collect();
            }
            "TaskCreate" => {
                let task = output.object("task");
                let text = input.text("subject").or_else(|| task.text("subject"))?;
                if self.tasks.len() < TASKS {
                    self.tasks.push(Task { id: task.text("id"), text, is_done: false });
                }
            }
            _ => {
                let id = input.text("taskId")?;
                let at = self.tasks.iter().position(|task| task.id.as_deref() == Some(&*id))?;
                match input.text("status").as_deref() {
                    Some("deleted") => drop(self.tasks.remove(at)),
                    status => self.tasks[at].update(status, input.text("subject")),
                }
            }
        }
        let phase = if self.is_open { Phase::Updated } else { Phase::Started };
        self.is_open = true;
        Some(ActionEvent::new(CLAUDE, self.action(), phase))
    }

    /// The list ends with its run, as it stands.
    pub(super) fn close(&mut self) -> Option<ActionEvent> {
        std::mem::take(&mut self.is_open)
            .then(|| ActionEvent::new(CLAUDE, self.action(), Phase::Completed).ok(true))
    }

    fn action(&self) -> Action {
        let total = self.tasks.len();
        let done = self.tasks.iter().filter(|task| task.is_done).count();
        let next = self.tasks.iter().find(|task| !task.is_done).map_or("done", |task| &task.text);
        let title = if total == 0 { "todo".into() } else { format!("todo {done}/{total}: {next}") };
        Action::new(PLAN_ID, ActionKind::Note, title).with("done", done).with("total", total)
    }
}

impl Task {
    fn update(&mut self, status: Option<&str>, text: Option<String>) {
        if let Some(status) = status {
            self.is_done = status == "completed";
        }
        if let Some(text) = text {
            self.text = text;
        }
    }
}

fn todo(raw: &RawValue) -> Task {
    let todo = Object::of(raw);
    Task {
        id: None,
        text: todo.text("content").unwrap_or_default(),
        is_done: todo.text("status").as_deref() == Some("completed"),
    }
}
