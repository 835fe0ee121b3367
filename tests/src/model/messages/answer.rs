//! Answers of the model, written by tests as chains of steps.
//!
//! Steps happen in the order they were written. Waits and delays before the first block hold back even the head of the HTTP
//! response. The events around blocks, the stop reason and the usage come by themselves.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::model::gate::Gate;
use crate::model::script::Scripted;

/// The header with the second at which a limit is reset.
const RESET: &str = "anthropic-ratelimit-unified-reset";

/// Token figures of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens that were in no cache.
    pub input: u64,
    /// Input tokens that were written to the cache.
    pub cache_creation: u64,
    /// Input tokens that came from the cache.
    pub cache_read: u64,
    /// Output tokens.
    pub output: u64,
}

impl Default for Usage {
    /// The figures of the recordings.
    fn default() -> Self {
        Self { input: 11, cache_creation: 5, cache_read: 3, output: 7 }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// `message_start`, for answers that need it before their first block.
    Start,
    /// A block that is sent in one piece.
    Block(Block),
    /// A piece of a text block; pieces in a row are one block.
    Delta(String),
    Wait(Gate),
    Delay(Duration),
}

#[derive(Clone, Debug)]
pub(super) enum Block {
    Text(String),
    Thinking(String),
    /// A call of a tool by the client, or of one that the service runs itself.
    Tool {
        server: bool,
        name: String,
        input: Value,
    },
    /// The result of the latest tool that the service has run.
    ServerResult {
        kind: String,
        content: Value,
    },
    /// A block as it stands.
    Raw(Value),
}

#[derive(Clone, Debug)]
pub(super) enum End {
    Completed,
    /// An `error` event in the stream.
    Error {
        kind: String,
        message: String,
    },
    /// The body ends in good order, but before `message_stop`.
    Short,
    /// The connection breaks, at the latest after this many events.
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

/// The answer to one request of Claude Code.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) steps: Vec<Step>,
    pub(super) usage: Usage,
    pub(super) stop: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    /// In how many seconds its limit is reset.
    pub(super) limited_for: Option<u64>,
    pub(super) end: End,
    retries: Vec<Answer>,
}

impl Answer {
    /// An empty answer: add its content with the methods below.
    pub fn new() -> Self {
        Self {
            steps: Vec::new(),
            usage: Usage::default(),
            stop: None,
            headers: Vec::new(),
            limited_for: None,
            end: End::Completed,
            retries: Vec::new(),
        }
    }

    /// An answer that begins with a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new().block(text)
    }

    /// An answer that begins with the call of a tool.
    pub fn call(name: &str, input: Value) -> Self {
        Self::new().tool(name, input)
    }

    /// An HTTP error. Its body is that of the API's error of this status, with `message` in it.
    pub fn status(status: u16, message: impl Into<String>) -> Self {
        let kind = match status {
            400 => "invalid_request_error",
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            529 => "overloaded_error",
            _ => "api_error",
        };
        let body = json!({"type": "error", "error": {"type": kind, "message": message.into()}});
        Self::status_with(status, body.to_string())
            .header("content-type", "application/json")
            .header("request-id", "req_scripted")
    }

    /// An HTTP error with a body as it stands.
    pub fn status_with(status: u16, body: impl Into<String>) -> Self {
        Self { end: End::Status { status, body: body.into() }, ..Self::new() }
    }

    /// The 429 with which a spent subscription is refused (no retry follows). `resets` is in seconds of the epoch.
    pub fn limit_reached(resets: u64) -> Self {
        Self::status(429, "This request would exceed your account's rate limit.")
            .header("anthropic-ratelimit-unified-status", "rejected")
            .header(RESET, &resets.to_string())
            .header("anthropic-ratelimit-unified-representative-claim", "five_hour")
            .header("retry-after", "3600")
    }

    /// The same for a limit that is reset so many seconds after the request.
    pub fn limit_reached_for(seconds: u64) -> Self {
        Self { limited_for: Some(seconds), ..Self::limit_reached(0) }
    }

    /// As it is when it is sent.
    pub(super) fn sent(mut self) -> Self {
        if let Some(seconds) = self.limited_for {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.headers.retain(|(name, _)| name != RESET);
            self = self.header(RESET, &(now.as_secs() + seconds).to_string());
        }
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds the headers of a subscription that is nearly spent.
    pub fn near_limit(self, resets: u64) -> Self {
        self.header("anthropic-ratelimit-unified-status", "allowed_warning")
            .header(RESET, &resets.to_string())
            .header("anthropic-ratelimit-unified-representative-claim", "five_hour")
            .header("anthropic-ratelimit-unified-5h-status", "allowed_warning")
            .header("anthropic-ratelimit-unified-5h-reset", &resets.to_string())
            .header("anthropic-ratelimit-unified-5h-utilization", "0.92")
            .header("anthropic-ratelimit-unified-5h-surpassed-threshold", "0.9")
    }

    /// The next try of the same request gets this one instead; further tries get the last of them.
    pub fn then(mut self, next: impl Into<Self>) -> Self {
        self.retries.push(next.into());
        self
    }

    pub(super) fn attempt(mut self, n: usize) -> Self {
        let retries = std::mem::take(&mut self.retries);
        let last = retries.len();
        std::iter::once(self).chain(retries).nth(n.min(last)).unwrap_or_default()
    }

    /// Sends `message_start` here rather than with the first block, for a wait between the two.
    pub fn started(self) -> Self {
        self.step(Step::Start)
    }

    /// One more text block, in one piece.
    pub fn block(self, text: impl Into<String>) -> Self {
        self.step(Step::Block(Block::Text(text.into())))
    }

    /// A piece of a streamed text block. Pieces with nothing but waits and delays between them make one block, which ends with
    /// the next block or the end of the answer.
    pub fn delta(self, text: impl Into<String>) -> Self {
        self.step(Step::Delta(text.into()))
    }

    /// A text block streamed in these pieces.
    pub fn deltas<T: Into<String>>(self, pieces: impl IntoIterator<Item = T>) -> Self {
        pieces.into_iter().fold(self, Self::delta)
    }

    /// A thinking block, signed.
    pub fn thinking(self, text: impl Into<String>) -> Self {
        self.step(Step::Block(Block::Thinking(text.into())))
    }

    /// Calls a tool.
    pub fn tool(self, name: &str, input: Value) -> Self {
        self.step(Step::Block(Block::Tool { server: false, name: name.into(), input }))
    }

    /// Has Claude Code run a shell command. It refuses to run `sleep` in the foreground.
    pub fn bash(self, command: &str) -> Self {
        self.tool("Bash", json!({"command": command, "description": "a scripted command"}))
    }

    /// Has Claude Code run a shell command in the background.
    pub fn bash_in_background(self, command: &str) -> Self {
        let input = json!({
            "command": command,
            "description": "a scripted command",
            "run_in_background": true,
        });
        self.tool("Bash", input)
    }

    /// Has Claude Code write a file.
    pub fn write_file(self, path: impl AsRef<std::path::Path>, content: &str) -> Self {
        self.tool("Write", json!({"file_path": path.as_ref(), "content": content}))
    }

    /// Starts a sub-agent, in the background if so wanted. Its prompt names the sub-agent's own script.
    pub fn agent(self, prompt: &str, in_background: bool) -> Self {
        let input = json!({
            "description": "a scripted agent",
            "prompt": prompt,
            "subagent_type": "general-purpose",
            "run_in_background": in_background,
        });
        self.tool("Agent", input)
    }

    /// Calls a tool of an MCP server.
    pub fn mcp(self, server: &str, tool: &str, arguments: Value) -> Self {
        self.tool(&format!("mcp__{server}__{tool}"), arguments)
    }

    /// A call of a tool that the service runs itself.
    pub fn server_tool(self, name: &str, input: Value) -> Self {
        self.step(Step::Block(Block::Tool { server: true, name: name.into(), input }))
    }

    /// The result of the latest [`Answer::server_tool`], as a block of this kind.
    pub fn server_result(self, kind: &str, content: Value) -> Self {
        self.step(Step::Block(Block::ServerResult { kind: kind.into(), content }))
    }

    /// A web search which the service has done, with one result.
    pub fn web_search(self, query: &str) -> Self {
        let result = json!({
            "type": "web_search_result",
            "title": "A page",
            "url": "https://example.com/",
            "encrypted_content": "",
            "page_age": null,
        });
        self.server_tool("web_search", json!({ "query": query }))
            .server_result("web_search_tool_result", json!([result]))
    }

    /// A block as it stands, with no deltas: for kinds of blocks that are unknown today.
    pub fn raw_block(self, block: Value) -> Self {
        self.step(Step::Block(Block::Raw(block)))
    }

    /// Ends with this stop reason rather than with `tool_use` or `end_turn`.
    pub fn stop(mut self, reason: &str) -> Self {
        self.stop = Some(reason.into());
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

    /// Ends with an `error` event of this type, such as `overloaded_error`.
    pub fn fails(self, kind: &str, message: &str) -> Self {
        self.end(End::Error { kind: kind.into(), message: message.into() })
    }

    /// Ends the body in good order but without `message_stop`: what a proxy that gives up looks like.
    pub fn ends_short(self) -> Self {
        self.end(End::Short)
    }

    /// Breaks the connection in place of `message_delta` and `message_stop`, or after `events` events at most.
    pub fn cut_after(self, events: usize) -> Self {
        self.end(End::Cut { after: events })
    }

    /// Breaks the connection in place of the end of the message.
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
            "an answer without a message has no blocks: {step:?}"
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
