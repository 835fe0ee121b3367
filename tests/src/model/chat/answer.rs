//! Answers of a model that speaks Chat Completions. The role, the finish reason and the usage come by themselves.

use serde_json::{Value, json};

use crate::model::answer;

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

/// What an answer can say.
#[derive(Clone, Debug)]
pub enum Content {
    /// A piece of the text.
    Text(String),
    /// A piece of the reasoning, as `reasoning_content`.
    Reasoning(String),
    /// A call of a tool.
    Call {
        /// The tool.
        name: String,
        /// Its arguments.
        arguments: Value,
    },
}

impl answer::Content for Content {
    type Usage = Usage;

    fn text(text: String) -> Self {
        Self::Text(text)
    }

    fn delta(text: String) -> Self {
        Self::Text(text)
    }
}

/// The answer to one request.
pub type Answer = answer::Answer<Content>;

impl Answer {
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

    /// A piece of the reasoning, as `reasoning_content`.
    pub fn reasoning(self, text: impl Into<String>) -> Self {
        self.content(Content::Reasoning(text.into()))
    }

    /// Calls a tool.
    pub fn tool(self, name: &str, arguments: Value) -> Self {
        self.content(Content::Call { name: name.into(), arguments })
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
}
