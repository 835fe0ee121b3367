//! Answers of the model, written by tests as chains of steps.
//!
//! Steps happen in the order they were written. Waits and delays before the first text or call hold back even the head of the
//! HTTP response. The role, the finish reason and the usage come by themselves.

use std::time::Duration;

use serde_json::{Value, json};

use crate::model::gate::Gate;
use crate::model::script::Scripted;

/// Token figures of one answer.
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
    /// The figures of the recordings.
    fn default() -> Self {
        Self { input: 11, cached: 3, output: 7, reasoning: 0 }
    }
}

#[derive(Clone, Debug)]
pub(in crate::model) enum Step {
    /// The chunk with the role, for answers that need it before their first text.
    Start,
    Text(String),
    Reasoning(String),
    Call {
        name: String,
        arguments: Value,
    },
    Wait(Gate),
    Delay(Duration),
}

#[derive(Clone, Debug)]
pub(in crate::model) enum End {
    Completed,
    /// The body ends in good order, but before the finish reason.
    Short,
    /// The connection breaks, at the latest after this many chunks.
    Cut {
        after: usize,
    },
    /// The connection is closed before the head of a response.
    Drop,
    Hang,
    Status {
        status: u16,
        body: String,
    },
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(in crate::model) steps: Vec<Step>,
    pub(in crate::model) usage: Usage,
    pub(in crate::model) finish: Option<String>,
    pub(in crate::model) headers: Vec<(String, String)>,
    pub(in crate::model) end: End,
    retries: Vec<Answer>,
}

impl Answer {
    /// An empty answer: add its content with the methods below.
    pub fn new() -> Self {
        Self {
            steps: Vec::new(),
            usage: Usage::default(),
            finish: None,
            headers: Vec::new(),
            end: End::Completed,
            retries: Vec::new(),
        }
    }

    /// An answer that begins with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new().delta(text)
    }

    /// An answer that begins with the call of a tool.
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::new().tool(name, arguments)
    }

    /// An HTTP error. Its body is that of the API's error of this status, with `message` in it.
    pub fn status(status: u16, message: impl Into<String>) -> Self {
        let (kind, code) = match status {
            400 => ("invalid_request_error", "invalid_request"),
            401 => ("invalid_request_error", "invalid_api_key"),
            403 => ("permission_error", "forbidden"),
            404 => ("invalid_request_error", "model_not_found"),
            429 => ("rate_limit_error", "rate_limit_exceeded"),
            _ => ("server_error", "server_error"),
        };
        let body = json!({"error": {"message": message.into(), "type": kind, "code": code}});
        Self::status_with(status, body.to_string()).header("content-type", "application/json")
    }

    /// An HTTP error with a body as it stands.
    pub fn status_with(status: u16, body: impl Into<String>) -> Self {
        Self { end: End::Status { status, body: body.into() }, ..Self::new() }
    }

    /// The 400 of a conversation that is too long for the model.
    pub fn too_long() -> Self {
        let error = json!({
            "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. \
                        Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        });
        Self::status_with(400, json!({ "error": error }).to_string())
            .header("content-type", "application/json")
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The next try of the same request gets this one instead; further tries get the last of them.
    pub fn then(mut self, next: impl Into<Self>) -> Self {
        self.retries.push(next.into());
        self
    }

    pub(in crate::model) fn attempt(mut self, n: usize) -> Self {
        let retries = std::mem::take(&mut self.retries);
        let last = retries.len();
        std::iter::once(self).chain(retries).nth(n.min(last)).unwrap_or_default()
    }

    /// Sends the chunk with the role here rather than with the first text, for a wait between the two.
    pub fn started(self) -> Self {
        self.step(Step::Start)
    }

    /// A piece of the text.
    pub fn delta(self, text: impl Into<String>) -> Self {
        self.step(Step::Text(text.into()))
    }

    /// A text streamed in these pieces.
    pub fn deltas<T: Into<String>>(self, pieces: impl IntoIterator<Item = T>) -> Self {
        pieces.into_iter().fold(self, Self::delta)
    }

    /// A piece of the reasoning, as `reasoning_content`.
    pub fn reasoning(self, text: impl Into<String>) -> Self {
        self.step(Step::Reasoning(text.into()))
    }

    /// Calls a tool.
    pub fn tool(self, name: &str, arguments: Value) -> Self {
        self.step(Step::Call { name: name.into(), arguments })
    }

    /// Has an agent with a tool `bash` run a shell command.
    pub fn bash(self, command: &str) -> Self {
        self.tool("bash", json!({"command": command, "description": "a scripted command"}))
    }

    /// Ends with this finish reason rather than with `tool_calls` or `stop`.
    pub fn finish(mut self, reason: &str) -> Self {
        self.finish = Some(reason.into());
        self
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

    /// Ends the body in good order but without a finish reason: what a proxy that gives up looks like.
    pub fn ends_short(self) -> Self {
        self.end(End::Short)
    }

    /// Breaks the connection in place of the finish reason, or after `chunks` chunks at most.
    pub fn cut_after(self, chunks: usize) -> Self {
        self.end(End::Cut { after: chunks })
    }

    /// Breaks the connection in place of the finish reason.
    pub fn cut(self) -> Self {
        self.cut_after(usize::MAX)
    }

    /// Closes the connection in place of a response.
    pub fn dropped(self) -> Self {
        self.end(End::Drop)
    }

    /// Never ends; with nothing before it, not even the head of the response comes.
    pub fn hang(self) -> Self {
        self.end(End::Hang)
    }

    fn step(mut self, step: Step) -> Self {
        let streams = !matches!(step, Step::Wait(_) | Step::Delay(_));
        assert!(
            !(streams && matches!(self.end, End::Status { .. } | End::Drop)),
            "an answer without a message has no content: {step:?}"
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
