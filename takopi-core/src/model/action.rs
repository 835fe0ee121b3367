//! One thing the agent does, and the events about it.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ActionKind, Detail, EngineId};

/// One thing the agent does. Its id is unique in the run and the same in every event about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Action {
    /// Unique in the run, stable for this action.
    pub id: String,
    /// What it is.
    pub kind: ActionKind,
    /// What a person reads: the command, the query, the paths.
    pub title: String,
    /// Details, by name.
    #[serde(default, skip_serializing_if = "Detail::is_empty")]
    pub detail: Detail,
}

impl Action {
    /// An action without particulars.
    pub fn new(id: impl Into<String>, kind: ActionKind, title: impl Into<String>) -> Self {
        Self { id: id.into(), kind, title: title.into(), detail: Detail::new() }
    }

    /// Adds one particular.
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        self.detail.insert(name, value);
        self
    }
}

/// Where an action stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It began.
    Started,
    /// It goes on and there is news.
    Updated,
    /// It is over.
    Completed,
}

/// How much an event matters to a person.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// For debugging.
    Debug,
    /// Ordinary.
    Info,
    /// Something is wrong, and the run goes on.
    Warning,
    /// Something is wrong.
    Error,
}

/// News about an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ActionEvent {
    /// The engine that acts.
    pub engine: EngineId,
    /// The action.
    pub action: Action,
    /// Where it stands.
    pub phase: Phase,
    /// Whether it succeeded, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// A remark on this event, such as why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How much it matters, if that is not ordinary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
}

impl ActionEvent {
    /// News about an action.
    pub fn new(engine: impl Into<EngineId>, action: Action, phase: Phase) -> Self {
        Self { engine: engine.into(), action, phase, ok: None, message: None, level: None }
    }

    /// Sets whether it succeeded.
    pub fn ok(mut self, ok: bool) -> Self {
        self.ok = Some(ok);
        self
    }

    /// Adds a remark.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Sets how important it is.
    pub fn level(mut self, level: Level) -> Self {
        self.level = Some(level);
        self
    }

    /// A warning: completed, not ok.
    pub fn warning(
        engine: impl Into<EngineId>,
        id: impl Into<String>,
        title: impl Into<String>,
    ) -> Self {
        let action = Action::new(id, ActionKind::Warning, title);
        Self::new(engine, action, Phase::Completed).ok(false).level(Level::Warning)
    }
}
