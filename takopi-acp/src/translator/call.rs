//! One tool call as an action: what a person reads, and the details.
//!
//! Details have the same names as those of other engines for the same things, and are bounded.

use std::borrow::Cow;

use serde_json::{Value, json};
use takopi_core::EngineId;
use takopi_core::jsonl::Object;
use takopi_core::model::{
    Action, ActionEvent, ActionKind, OUTPUT_TAIL_BYTES, Phase, TakopiEvent, tail,
};
use takopi_core::paths::Directory;

use crate::diff;
use crate::wire::{CallUpdate, Content, Text, head};

/// A call that is not over.
#[derive(Debug)]
pub(super) struct Call {
    state: CallUpdate,
    /// New output, as far as it was reported in pieces.
    output: Text,
    /// What was shown of it.
    shown: Option<Action>,
    pub(super) is_declined: bool,
    /// Another session makes it, such as a sub-agent's: there is no news of it.
    pub(super) is_foreign: bool,
}

impl Call {
    pub(super) fn new(id: String) -> Self {
        let state = CallUpdate { id, ..CallUpdate::default() };
        Self { state, output: Text::default(), shown: None, is_declined: false, is_foreign: false }
    }

    pub(super) fn id(&self) -> &str {
        &self.state.id
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.state.status.as_deref(), Some("completed" | "failed"))
    }

    /// Takes what is new.
    pub(super) fn update(&mut self, update: &CallUpdate) {
        fn take<T: Clone>(slot: &mut Option<T>, new: Option<&T>) {
            if let Some(new) = new {
                *slot = Some(new.clone());
            }
        }
        let state = &mut self.state;
        take(&mut state.title, update.title.as_ref());
        // What was shown as one kind of action stays that: consumers close what they saw begin.
        if self.shown.is_none() {
            take(&mut state.kind, update.kind.as_ref());
            state.is_mcp |= update.is_mcp;
        }
        take(&mut state.status, update.status.as_ref());
        take(&mut state.input, update.input.as_ref());
        take(&mut state.content, update.content.as_ref());
        take(&mut state.locations, update.locations.as_ref());
        take(&mut state.output, update.output.as_ref());
        take(&mut state.exit_code, update.exit_code.as_ref());
        if let Some(delta) = &update.output_delta {
            self.output.push(delta);
        }
    }

    /// Takes what a question about it tells. Its text is about the question, and an agent that has begun says `pending`
    /// again.
    pub(super) fn asked(&mut self, update: &CallUpdate) {
        let mut update = update.clone();
        update.status = None;
        let is_diff = |content: &Content| matches!(content, Content::Diff { .. });
        update.content = update.content.filter(|content| content.iter().any(is_diff));
        if self.state.title.is_some() && self.state.input.is_some() {
            update.title = None;
        }
        self.update(&update);
    }

    /// Shows it if there is something new to be seen. Agents announce calls before they know what is called: such a one
    /// is not shown yet, unless it must be.
    pub(super) fn show(
        &mut self,
        engine: &EngineId,
        directory: &Directory,
        must: bool,
        events: &mut Vec<TakopiEvent>,
    ) {
        let is_ready = self.state.status.as_deref() == Some("in_progress")
            || (self.state.input.is_some() && self.state.kind.as_deref() != Some("execute"))
            || self.state.content.as_ref().is_some_and(|content| !content.is_empty());
        if self.shown.is_none() && !must && !is_ready {
            return;
        }
        let mut action = self.describe(directory);
        action.detail.insert("status", "in_progress");
        if self.shown.as_ref() == Some(&action) {
            return;
        }
        let phase = if self.shown.is_some() { Phase::Updated } else { Phase::Started };
        events.push(ActionEvent::new(engine.clone(), action.clone(), phase).into());
        self.shown = Some(action);
    }

    /// It is over.
    pub(super) fn end(
        mut self,
        engine: &EngineId,
        directory: &Directory,
        events: &mut Vec<TakopiEvent>,
    ) {
        if self.shown.is_none() {
            self.show(engine, directory, true, events);
        }
        let mut action = self.describe(directory);
        let exit_code = self.state.exit_code.filter(|_| action.kind == ActionKind::Command);
        let failed = self.state.status.as_deref() == Some("failed");
        let ok = !failed && exit_code.is_none_or(|code| code == 0);
        let status = match (failed, self.is_declined) {
            (true, true) => "declined",
            (true, false) => "failed",
            (false, _) => "completed",
        };
        action.detail.insert("status", status);
        let mut message = None;
        if action.kind == ActionKind::Command {
            if let Some(code) = exit_code {
                action.detail.insert("exit_code", code);
            }
            let text = self.text(|text| text.tail().into());
            if !text.is_empty() {
                action.detail.insert("output_tail", tail(&text, OUTPUT_TAIL_BYTES));
            }
        } else if failed {
            let error = head(&self.text(Text::head));
            if action.kind == ActionKind::Tool && !error.is_empty() {
                action.detail.insert("error_message", error.clone());
            }
            message = Some(error).filter(|error| !error.is_empty());
        }
        if self.is_declined && failed {
            message = Some("declined".to_owned());
        }
        let mut event = ActionEvent::new(engine.clone(), action, Phase::Completed).ok(ok);
        event.message = message;
        events.push(event.into());
    }

    /// The turn ended before the call did. Some agents close a call that was declined with nothing.
    pub(super) fn abandon(
        mut self,
        engine: &EngineId,
        directory: &Directory,
        events: &mut Vec<TakopiEvent>,
    ) {
        if self.shown.is_none() {
            self.show(engine, directory, true, events);
        }
        let status = if self.is_declined { "declined" } else { "unfinished" };
        let action = self.describe(directory).with("status", status);
        let mut event = ActionEvent::new(engine.clone(), action, Phase::Completed).message(status);
        if self.is_declined {
            event = event.ok(false);
        }
        events.push(event.into());
    }

    fn describe(&self, directory: &Directory) -> Action {
        let kind = match self.state.kind.as_deref() {
            Some("execute") if !self.state.is_mcp => ActionKind::Command,
            Some("edit" | "delete" | "move") => ActionKind::FileChange,
            Some("fetch") => ActionKind::WebSearch,
            _ => ActionKind::Tool,
        };
        let changes = match kind {
            ActionKind::FileChange => self.changes(directory),
            _ => Vec::new(),
        };
        let paths: Vec<&str> =
            changes.iter().filter_map(|change| change["path"].as_str()).collect();
        let given = self.state.title.as_deref();
        let title: Cow<'_, str> = match kind {
            ActionKind::Command => {
                let command =
                    self.state.input.as_deref().and_then(|raw| command_of(&Object::of(raw)));
                let command = command.map(Cow::Owned).or(given.map(Cow::Borrowed));
                directory.relative_in(command.unwrap_or(Cow::Borrowed("command")))
            }
            ActionKind::FileChange if !paths.is_empty() => Cow::Owned(paths.join(", ")),
            _ => Cow::Borrowed(given.unwrap_or("tool")),
        };
        let mut action = Action::new(self.state.id.clone(), kind, title);
        if !changes.is_empty() {
            action.detail.insert("changes", changes);
        }
        if action.kind == ActionKind::Tool
            && let Some(input) = &self.state.input
        {
            action.detail.insert("arguments", head(input.get()));
        }
        action
    }

    fn changes(&self, directory: &Directory) -> Vec<Value> {
        let deletes = self.state.kind.as_deref() == Some("delete");
        let diffs = self.state.content.iter().flatten().filter_map(|content| {
            let Content::Diff { path, old, new, .. } = content else { return None };
            let kind = match old.as_deref() {
                _ if deletes => "delete",
                None | Some("") => "add",
                Some(_) => "update",
            };
            let diff = diff::unified(old.as_deref(), new, OUTPUT_TAIL_BYTES);
            Some(json!({ "path": directory.relative(path), "kind": kind, "diff": diff }))
        });
        let diffs: Vec<Value> = diffs.take(64).collect();
        if !diffs.is_empty() {
            return diffs;
        }
        let kind = if deletes { "delete" } else { "update" };
        let locations = self.state.locations.iter().flatten().take(64);
        locations.map(|path| json!({ "path": directory.relative(path), "kind": kind })).collect()
    }

    /// What it printed or says, one end of each text.
    fn text<'a>(&'a self, end: impl Fn(&'a Text) -> Cow<'a, str>) -> String {
        if !self.output.is_empty() {
            return end(&self.output).into_owned();
        }
        if let Some(output) = &self.state.output {
            return end(output).into_owned();
        }
        let texts = self.state.content.iter().flatten().filter_map(|content| match content {
            Content::Text(text) => Some(end(text)),
            Content::Diff { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// The command that the input of a call has.
fn command_of(input: &Object<'_>) -> Option<String> {
    if let Some(command) = input.text("command") {
        return Some(command);
    }
    let words = input.texts("command");
    (!words.is_empty()).then(|| words.join(" "))
}
