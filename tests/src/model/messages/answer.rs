//! Answers of Claude Code's model. The events around blocks, the stop reason and the usage come by themselves.

use serde_json::{Value, json};

use crate::model::answer::{self, End};

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

/// What an answer can say.
#[derive(Clone, Debug)]
pub enum Content {
    /// A block that is sent in one piece.
    Block(Block),
    /// A piece of a text block; pieces in a row are one block.
    Delta(String),
}

/// A block of an answer.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields say what they are")]
pub enum Block {
    /// A text.
    Text(String),
    /// Thinking, signed.
    Thinking(String),
    /// A call of a tool by the client, or of one that the service runs itself.
    Tool { server: bool, name: String, input: Value },
    /// The result of the latest tool that the service has run.
    ServerResult { kind: String, content: Value },
    /// A block as it stands.
    Raw(Value),
}

impl answer::Content for Content {
    type Usage = Usage;

    fn text(text: String) -> Self {
        Self::Block(Block::Text(text))
    }

    fn delta(text: String) -> Self {
        Self::Delta(text)
    }
}

/// The answer to one request of Claude Code.
pub type Answer = answer::Answer<Content>;

impl Answer {
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
        Self::limit_reached(0).reset_in(seconds)
    }

    /// As it is when it is sent.
    pub(super) fn sent(mut self) -> Self {
        if let Some(resets) = self.take_reset() {
            self.headers.retain(|(name, _)| name != RESET);
            self = self.header(RESET, &resets.to_string());
        }
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

    /// One more text block, in one piece.
    pub fn block(self, text: impl Into<String>) -> Self {
        self.content(Content::Block(Block::Text(text.into())))
    }

    /// A thinking block, signed.
    pub fn thinking(self, text: impl Into<String>) -> Self {
        self.content(Content::Block(Block::Thinking(text.into())))
    }

    /// Calls a tool.
    pub fn tool(self, name: &str, input: Value) -> Self {
        self.content(Content::Block(Block::Tool { server: false, name: name.into(), input }))
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
        self.content(Content::Block(Block::Tool { server: true, name: name.into(), input }))
    }

    /// The result of the latest [`Answer::server_tool`], as a block of this kind.
    pub fn server_result(self, kind: &str, content: Value) -> Self {
        self.content(Content::Block(Block::ServerResult { kind: kind.into(), content }))
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
        self.content(Content::Block(Block::Raw(block)))
    }

    /// Ends with this stop reason rather than with `tool_use` or `end_turn`.
    pub fn stop(mut self, reason: &str) -> Self {
        self.finish = Some(reason.into());
        self
    }

    /// Ends with an `error` event of this type, such as `overloaded_error`.
    pub fn fails(self, kind: &str, message: &str) -> Self {
        self.end(End::Failed { kind: kind.into(), message: message.into() })
    }
}
