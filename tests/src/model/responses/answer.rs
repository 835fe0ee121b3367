//! Answers of the model, written by tests as chains of steps.
//!
//! Steps happen in the order they were written. Waits and delays before the first event hold back even the head of the
//! HTTP response. `response.created` and `response.completed` come by themselves.

use std::time::Duration;

use serde_json::{Value, json};

use crate::model::gate::Gate;
use crate::model::script::Scripted;

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
pub(super) enum Item {
    Message { phase: Option<Phase>, text: String },
    Reasoning { summary: String },
    FunctionCall { namespace: Option<String>, name: String, arguments: Value },
    CustomCall { name: String, input: String },
    WebSearch { query: String },
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// `response.created`, for answers that need it before their first item.
    Start,
    Item(Item),
    /// A piece of a message; pieces in a row are one message.
    Delta {
        phase: Option<Phase>,
        text: String,
    },
    Wait(Gate),
    Delay(Duration),
}

#[derive(Clone, Debug)]
pub(super) enum End {
    Completed,
    Failed {
        code: String,
        message: String,
    },
    /// The body ends in good order, but before `response.completed`.
    Short,
    /// The connection breaks, at the latest after this many events.
    Cut {
        after: usize,
    },
    Hang,
    Status {
        status: u16,
        body: String,
    },
}

/// The answer to one request of codex.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) steps: Vec<Step>,
    pub(super) usage: Usage,
    pub(super) headers: Vec<(String, String)>,
    pub(super) end: End,
}

impl Answer {
    /// An empty answer: add its content with the methods below.
    pub fn new() -> Self {
        Self {
            steps: Vec::new(),
            usage: Usage::default(),
            headers: Vec::new(),
            end: End::Completed,
        }
    }

    /// An answer of one message.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new().message(text)
    }

    /// An HTTP error in place of a stream.
    pub fn status(status: u16, body: impl Into<String>) -> Self {
        Self { end: End::Status { status, body: body.into() }, ..Self::new() }
    }

    /// The 429 with which a used up plan is refused (no retry follows).
    pub fn usage_limit() -> Self {
        let error =
            json!({"type": "usage_limit_reached", "message": "limit reached", "plan_type": "plus"});
        Self::status(429, json!({ "error": error }).to_string())
            .header("content-type", "application/json")
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends `response.created` here rather than with the first item, for a wait between the two.
    pub fn started(self) -> Self {
        self.step(Step::Start)
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

    /// A piece of a streamed message. Pieces with nothing but waits and delays between them make one message, which ends
    /// with the next item or the end of the answer.
    pub fn delta(self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.step(Step::Delta { phase: None, text })
    }

    /// A piece of a streamed message that has a phase.
    pub fn delta_in(self, phase: Phase, text: impl Into<String>) -> Self {
        let text = text.into();
        let phase = Some(phase);
        self.step(Step::Delta { phase, text })
    }

    /// A message streamed in these pieces.
    pub fn deltas<T: Into<String>>(self, pieces: impl IntoIterator<Item = T>) -> Self {
        pieces.into_iter().fold(self, Self::delta)
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

    /// Reports these token figures instead of the default ones.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Stops here until the gate is open.
    pub fn wait_for(self, gate: &Gate) -> Self {
        self.step(Step::Wait(gate.clone()))
    }

    /// Stops here for a while of real time.
    pub fn delay(self, time: Duration) -> Self {
        self.step(Step::Delay(time))
    }

    /// Ends with `response.failed`. Codex retries unless it knows the code to be hopeless.
    pub fn failed(self, code: &str, message: &str) -> Self {
        self.end(End::Failed { code: code.into(), message: message.into() })
    }

    /// Ends the body in good order but without `response.completed`: what a proxy that gives up looks like.
    pub fn ends_short(self) -> Self {
        self.end(End::Short)
    }

    /// Breaks the connection in place of `response.completed`.
    pub fn cut(self) -> Self {
        self.end(End::Cut { after: usize::MAX })
    }

    /// Breaks the connection after `events` events, `response.created` being the first.
    pub fn cut_after(self, events: usize) -> Self {
        self.end(End::Cut { after: events })
    }

    /// Never ends; with nothing before it, not even the head of the response comes.
    pub fn hang(self) -> Self {
        self.end(End::Hang)
    }

    fn item(self, item: Item) -> Self {
        self.step(Step::Item(item))
    }

    fn step(mut self, step: Step) -> Self {
        let streams = !matches!(step, Step::Wait(_) | Step::Delay(_));
        assert!(
            !(streams && matches!(self.end, End::Status { .. })),
            "an HTTP status has no items: {step:?}"
        );
        self.steps.push(step);
        self
    }

    fn end(mut self, end: End) -> Self {
        assert!(
            matches!(self.end, End::Completed),
            "an answer ends once: it already has {:?}, and now {end:?}",
            self.end
        );
        self.end = end;
        self
    }
}

impl Default for Answer {
    fn default() -> Self {
        Self::new()
    }
}

impl From<&str> for Answer {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl Scripted for Answer {}
