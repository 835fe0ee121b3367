//! Answers of codex's model. `response.created` and `response.completed` come by themselves.

use std::time::Duration;

use serde_json::{Value, json};

use crate::model::answer::{self, End};

/// Token figures of one answer, as `response.completed` reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Input tokens that came from the cache.
    pub cached: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// Output tokens spent on reasoning.
    pub reasoning: u64,
}

impl Default for Usage {
    /// The figures of the recordings in `fixtures/`.
    fn default() -> Self {
        Self { input: 11, cached: 3, output: 7, reasoning: 2 }
    }
}

/// What a message is to its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A remark during the work.
    Commentary,
    /// The answer to the prompt.
    FinalAnswer,
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Commentary => "commentary",
            Self::FinalAnswer => "final_answer",
        }
    }
}

/// An output item that is sent in one piece.
#[derive(Clone, Debug)]
pub enum Item {
    /// A message, with what it is to its turn.
    Message { phase: Option<Phase>, text: String },
    /// Reasoning, by its summary.
    Reasoning { summary: String },
    /// A call of a function tool.
    FunctionCall { namespace: Option<String>, name: String, arguments: Value },
    /// A call of a free-form tool.
    CustomCall { name: String, input: String },
    /// A web search that the model's side has done.
    WebSearch { query: String },
}

/// What an answer can say.
#[derive(Clone, Debug)]
pub enum Content {
    /// An output item that is sent in one piece.
    Item(Item),
    /// A piece of a message; pieces in a row are one message.
    Delta {
        /// What the message is to its turn.
        phase: Option<Phase>,
        /// The piece.
        text: String,
    },
}

impl answer::Content for Content {
    type Usage = Usage;

    fn text(text: String) -> Self {
        Self::Item(Item::Message { phase: None, text })
    }

    fn delta(text: String) -> Self {
        Self::Delta { phase: None, text }
    }
}

/// The answer to one request of codex.
pub type Answer = answer::Answer<Content>;

impl Answer {
    /// An HTTP error in place of a stream.
    pub fn status(status: u16, body: impl Into<String>) -> Self {
        Self::status_with(status, body)
    }

    /// The 429 with which a used up plan is refused (no retry follows).
    pub fn usage_limit() -> Self {
        let error =
            json!({"type": "usage_limit_reached", "message": "limit reached", "plan_type": "plus"});
        Self::status(429, json!({ "error": error }).to_string())
            .header("content-type", "application/json")
    }

    /// The same, with the second of the epoch at which the plan can be used again.
    pub fn usage_limit_until(resets: u64) -> Self {
        let error = json!({
            "type": "usage_limit_reached", "message": "limit reached", "plan_type": "plus", "resets_at": resets,
        });
        Self::status(429, json!({ "error": error }).to_string())
            .header("content-type", "application/json")
            .header("x-codex-primary-used-percent", "100.0")
            .header("x-codex-primary-window-minutes", "300")
            .header("x-codex-primary-reset-at", &resets.to_string())
    }

    /// The same for a plan that can be used again so many seconds after the request.
    pub fn usage_limit_for(seconds: u64) -> Self {
        Self::usage_limit_until(0).reset_in(seconds)
    }

    /// As it is when it is sent.
    pub(super) fn sent(mut self) -> Self {
        self.take_reset().map_or(self, Self::usage_limit_until)
    }

    /// A message, in one piece and with no phase.
    pub fn message(self, text: impl Into<String>) -> Self {
        self.phased(None, text)
    }

    /// A message of phase `commentary`.
    pub fn commentary(self, text: impl Into<String>) -> Self {
        self.phased(Some(Phase::Commentary), text)
    }

    /// A message of phase `final_answer`.
    pub fn final_answer(self, text: impl Into<String>) -> Self {
        self.phased(Some(Phase::FinalAnswer), text)
    }

    fn phased(self, phase: Option<Phase>, text: impl Into<String>) -> Self {
        let text = text.into();
        self.item(Item::Message { phase, text })
    }

    /// A piece of a streamed message that has a phase.
    pub fn delta_in(self, phase: Phase, text: impl Into<String>) -> Self {
        let text = text.into();
        let phase = Some(phase);
        self.content(Content::Delta { phase, text })
    }

    /// A reasoning item with one summary text.
    pub fn reasoning(self, summary: impl Into<String>) -> Self {
        let summary = summary.into();
        self.item(Item::Reasoning { summary })
    }

    /// Has codex run a shell command (`exec_command`).
    pub fn exec(self, command: &str) -> Self {
        self.call("exec_command", json!({ "cmd": command }))
    }

    /// Has codex run a shell command and go on without it when it has not ended after `yield_after`: the command stays
    /// behind in a background terminal.
    pub fn exec_in_background(self, command: &str, yield_after: Duration) -> Self {
        let yield_ms = u64::try_from(yield_after.as_millis()).unwrap_or(u64::MAX);
        self.call("exec_command", json!({ "cmd": command, "yield_time_ms": yield_ms }))
    }

    /// Calls a function tool by name.
    pub fn call(self, name: &str, arguments: Value) -> Self {
        self.item(Item::FunctionCall { namespace: None, name: name.into(), arguments })
    }

    /// Calls a function tool in a namespace. The namespace of an MCP server depends on the version of codex: see
    /// [`Version::mcp_namespace`](crate::codex::real::Version::mcp_namespace).
    pub fn call_in(self, namespace: &str, name: &str, arguments: Value) -> Self {
        self.item(Item::FunctionCall {
            namespace: Some(namespace.into()),
            name: name.into(),
            arguments,
        })
    }

    /// Calls a tool of an MCP server, as the pinned codex names it.
    pub fn mcp(self, server: &str, tool: &str, arguments: Value) -> Self {
        let namespace = crate::codex::real::PINNED.mcp_namespace(server);
        self.call_in(&namespace, tool, arguments)
    }

    /// Calls a custom (free-form) tool.
    pub fn custom_call(self, name: &str, input: impl Into<String>) -> Self {
        let name = name.into();
        let input = input.into();
        self.item(Item::CustomCall { name, input })
    }

    /// Has codex apply a patch, given in full: `*** Begin Patch` … `*** End Patch`.
    pub fn patch(self, patch: impl Into<String>) -> Self {
        self.custom_call("apply_patch", patch)
    }

    /// Has codex apply a patch that adds a file of one line.
    pub fn add_file(self, path: &str, line: &str) -> Self {
        self.patch(format!("*** Begin Patch\n*** Add File: {path}\n+{line}\n*** End Patch\n"))
    }

    /// A web search which the model's side has done.
    pub fn web_search(self, query: impl Into<String>) -> Self {
        let query = query.into();
        self.item(Item::WebSearch { query })
    }

    /// Ends with `response.failed`. Codex retries unless it knows the code to be hopeless.
    pub fn failed(self, code: &str, message: &str) -> Self {
        self.end(End::Failed { kind: code.into(), message: message.into() })
    }

    fn item(self, item: Item) -> Self {
        self.content(Content::Item(item))
    }
}
