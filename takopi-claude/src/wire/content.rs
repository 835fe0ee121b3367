//! Messages of the conversation: what the model wrote, and what tools returned.

use serde_json::value::RawValue;

use takopi_core::jsonl::{Object, list, text};

/// A block of a message of the model. Every block is a line of its own; lines of one message have
/// the same `message_id`.
#[derive(Debug, Default)]
pub(crate) struct Assistant {
    pub(crate) message_id: Option<String>,
    pub(crate) blocks: Vec<Block>,
    /// Of which sub-agent it is; none for the agent itself.
    pub(crate) nested: Option<Nested>,
    /// Written by Claude Code, not by the model: an error, or the output of a local command.
    pub(crate) is_synthetic: bool,
    /// What failed: `authentication_failed`, `rate_limit`, …
    pub(crate) error: Option<String>,
    pub(crate) api_error: Option<String>,
    pub(crate) status: Option<i64>,
}

/// Which sub-agent a line is of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Nested {
    /// The call that started it.
    pub(crate) parent: String,
    pub(crate) description: Option<String>,
    pub(crate) kind: Option<String>,
}

/// One block.
#[derive(Debug)]
pub(crate) enum Block {
    Text {
        text: String,
        /// Part of a sentence that continues in the next block.
        is_cited: bool,
    },
    Thinking {
        text: String,
    },
    ToolUse {
        id: Option<String>,
        name: String,
        input: Option<Box<RawValue>>,
        /// The model's service runs it, and its result is a block of the same message.
        on_server: bool,
    },
    /// The result of a tool that the model's service ran.
    ServerResult {
        tool_use_id: Option<String>,
        error: Option<String>,
    },
    Other,
}

/// Results of tools, or text.
#[derive(Debug, Default)]
pub(crate) struct User {
    pub(crate) results: Vec<ToolResult>,
    /// Text in the user's name, such as `[Request interrupted by user]`.
    pub(crate) texts: Vec<String>,
    /// Claude Code wrote it, not the user.
    pub(crate) is_synthetic: bool,
    pub(crate) nested: Option<Nested>,
    /// The result of the tool as data, if there is one result.
    pub(crate) output: Option<Box<RawValue>>,
}

/// What a tool returned.
#[derive(Debug, Default)]
pub(crate) struct ToolResult {
    pub(crate) tool_use_id: Option<String>,
    pub(crate) text: String,
    pub(crate) blocks: usize,
    pub(crate) is_error: bool,
    /// It was refused.
    pub(crate) is_rejected: bool,
    /// It did not run, or not to its end, and why.
    pub(crate) not_executed: Option<String>,
}

/// A piece of a message.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) is_nested: bool,
    pub(crate) message_id: Option<String>,
    pub(crate) event: StreamEvent,
}

/// What is streamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamEvent {
    MessageStart,
    TextStart { is_cited: bool },
    Text(String),
    MessageStop,
    Other,
}

impl Nested {
    fn of(line: &Object<'_>) -> Option<Self> {
        Some(Self {
            parent: line.text("parent_tool_use_id")?,
            description: line.text("task_description"),
            kind: line.text("subagent_type"),
        })
    }
}

impl Assistant {
    pub(super) fn of(line: &Object<'_>) -> Self {
        let message = line.object("message");
        Self {
            message_id: message.text("id"),
            blocks: message.list("content").into_iter().map(Block::of).collect(),
            nested: Nested::of(line),
            is_synthetic: message.text("model").as_deref() == Some("<synthetic>")
                || line.flag("is_api_error_message") == Some(true),
            error: line.text("error"),
            api_error: line.text("api_error"),
            status: line.int("api_error_status"),
        }
    }

    /// Its text.
    pub(crate) fn text(&self) -> Option<&str> {
        self.blocks.iter().find_map(|block| match block {
            Block::Text { text, .. } => Some(text.as_str()),
            _ => None,
        })
    }
}

impl Block {
    fn of(raw: &RawValue) -> Self {
        let block = Object::of(raw);
        let kind = block.text("type").unwrap_or_default();
        match kind.as_str() {
            "text" => Self::Text {
                text: block.text("text").unwrap_or_default(),
                is_cited: block.has("citations"),
            },
            "thinking" => Self::Thinking { text: block.text("thinking").unwrap_or_default() },
            "tool_use" | "server_tool_use" => Self::ToolUse {
                id: block.text("id"),
                name: block.text("name").unwrap_or_default(),
                input: block.raw("input").map(ToOwned::to_owned),
                on_server: kind == "server_tool_use",
            },
            _ if kind.ends_with("_tool_result") => Self::ServerResult {
                tool_use_id: block.text("tool_use_id"),
                error: block.object("content").text("error_code"),
            },
            _ => Self::Other,
        }
    }
}

impl User {
    pub(super) fn of(line: &Object<'_>) -> Self {
        let message = line.object("message");
        let mut user = Self {
            is_synthetic: line.flag("isSynthetic") == Some(true),
            nested: Nested::of(line),
            ..Self::default()
        };
        if let Some(text) = message.text("content") {
            user.texts.push(text);
        }
        for raw in message.list("content") {
            let block = Object::of(raw);
            match block.text("type").as_deref() {
                Some("tool_result") => user.results.push(ToolResult::of(&block)),
                Some("text") => user.texts.extend(block.text("text")),
                _ => {}
            }
        }
        for raw in line.list("tool_result_meta") {
            let meta = Object::of(raw);
            let id = meta.text("id");
            for result in user.results.iter_mut().filter(|result| result.tool_use_id == id) {
                let decision = meta.object("permission_decision").text("decision");
                result.is_rejected = decision.as_deref() == Some("reject");
                result.not_executed = meta.text("non_execution_kind");
            }
        }
        if user.results.len() == 1 {
            user.output = line.raw("tool_use_result").map(ToOwned::to_owned);
        }
        user
    }
}

impl ToolResult {
    fn of(block: &Object<'_>) -> Self {
        let mut result = Self {
            tool_use_id: block.text("tool_use_id"),
            is_error: block.flag("is_error") == Some(true),
            ..Self::default()
        };
        let Some(content) = block.raw("content") else { return result };
        if let Some(text) = text(content) {
            result.text = text;
            result.blocks = 1;
        } else {
            let blocks = list(content);
            result.blocks = blocks.len();
            let texts = blocks.into_iter().filter_map(|block| Object::of(block).text("text"));
            result.text = texts.collect::<Vec<_>>().join("\n");
        }
        result
    }
}

impl Stream {
    pub(super) fn of(line: &Object<'_>) -> Self {
        let event = line.object("event");
        let message_id = line.text("api_message_id").or_else(|| event.object("message").text("id"));
        let read = match event.text("type").as_deref() {
            Some("message_start") => StreamEvent::MessageStart,
            Some("message_stop") => StreamEvent::MessageStop,
            Some("content_block_start") => {
                let block = event.object("content_block");
                match block.text("type").as_deref() {
                    Some("text") => StreamEvent::TextStart { is_cited: block.has("citations") },
                    _ => StreamEvent::Other,
                }
            }
            Some("content_block_delta") => match event.object("delta").text("text") {
                Some(text) => StreamEvent::Text(text),
                None => StreamEvent::Other,
            },
            _ => StreamEvent::Other,
        };
        Self { is_nested: line.has("parent_tool_use_id"), message_id, event: read }
    }
}
