//! The lines that pi prints, parsed once, tolerantly.
//!
//! A field of another type than expected counts as missing, and a line of an unknown type is kept by its
//! name. Only lines that are not JSON objects are errors.

use serde_json::{Map, Value};
use takopi_core::jsonl::repair;
use takopi_core::model::{OUTPUT_TAIL_BYTES, tail};

/// A line.
#[derive(Debug)]
pub(crate) enum Line {
    /// The response to a command of ours.
    Response { id: String, outcome: Result<Value, String> },
    /// An extension asks, or reports something.
    Dialog(DialogLine),
    /// What happens in the session.
    Event(Event),
}

/// A request of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DialogLine {
    pub(crate) id: String,
    pub(crate) method: String,
    pub(crate) title: String,
    /// The key and the text of a status.
    pub(crate) status: Option<(String, String)>,
}

impl DialogLine {
    /// Whether pi waits for an answer.
    pub(crate) fn wants_answer(&self) -> bool {
        matches!(self.method.as_str(), "select" | "confirm" | "input" | "editor")
    }
}

/// What happens in the session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// The agent begins, also after a failure that is retried.
    AgentStart,
    /// The assistant begins to write.
    MessageStart,
    /// New text of the message that is written, and which of its blocks it is of.
    Text {
        block: u64,
        delta: String,
    },
    /// The assistant's message is complete.
    Assistant(Assistant),
    /// A message of the user reached the model, with so many images.
    User {
        images: usize,
    },
    ToolStart {
        id: String,
        name: String,
        input: Map<String, Value>,
    },
    ToolProgress,
    ToolEnd(ToolEnd),
    Retry {
        attempt: u64,
        max: u64,
        error: String,
    },
    RetryEnd {
        success: bool,
    },
    CompactionStart {
        reason: Option<String>,
    },
    CompactionEnd {
        error: Option<String>,
    },
    /// How many steering messages wait.
    Queue {
        waiting: usize,
    },
    /// An extension failed.
    ExtensionError {
        error: String,
    },
    /// Nothing more comes of the prompt.
    Settled {
        aborted: bool,
    },
    /// Known, and of no interest.
    Quiet,
    Other {
        kind: String,
    },
}

/// A message of the assistant: one call of the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Assistant {
    pub(crate) texts: Vec<String>,
    pub(crate) thoughts: Vec<String>,
    pub(crate) stop_reason: String,
    pub(crate) error: Option<String>,
    pub(crate) tokens: Tokens,
}

/// What one call of the model used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) reasoning: u64,
    pub(crate) cost_usd: f64,
}

/// How a tool call ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolEnd {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The end of its text.
    pub(crate) output: String,
    pub(crate) exit_code: Option<i64>,
    pub(crate) patch: Option<String>,
    pub(crate) content_blocks: usize,
    pub(crate) has_structured: bool,
    pub(crate) is_error: bool,
}

impl Line {
    pub(crate) fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        // Lossy: a byte that is not UTF-8 spoils one character, not the line.
        let text = String::from_utf8_lossy(line);
        let fields = serde_json::from_str(&text).or_else(|error| {
            // Half a surrogate pair, for example: Node writes one where a text was cut.
            let repaired = repair(text.as_bytes()).ok_or(error)?;
            serde_json::from_str::<Map<String, Value>>(&repaired)
        })?;
        let kind = text_of(&fields, "type").unwrap_or_default();
        Ok(match kind {
            "response" => Self::Response {
                id: text_of(&fields, "id").unwrap_or_default().to_owned(),
                outcome: outcome(&fields),
            },
            "extension_ui_request" => Self::Dialog(dialog(&fields)),
            _ => Self::Event(event(kind, &fields)),
        })
    }
}

fn outcome(fields: &Map<String, Value>) -> Result<Value, String> {
    if fields.get("success") == Some(&Value::Bool(true)) {
        return Ok(fields.get("data").cloned().unwrap_or_default());
    }
    Err(text_of(fields, "error").unwrap_or("pi refused the command without a reason").to_owned())
}

fn dialog(fields: &Map<String, Value>) -> DialogLine {
    let text = |name: &str| text_of(fields, name).unwrap_or_default().to_owned();
    let status = text_of(fields, "statusKey").map(|key| (key.to_owned(), text("statusText")));
    let title = text_of(fields, "title").or_else(|| text_of(fields, "message"));
    DialogLine {
        id: text("id"),
        method: text("method"),
        title: title.unwrap_or_default().to_owned(),
        status,
    }
}

fn event(kind: &str, fields: &Map<String, Value>) -> Event {
    let text = |name: &str| text_of(fields, name).unwrap_or_default().to_owned();
    let number = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap_or_default();
    let is = |name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or_default();
    let message = || fields.get("message").unwrap_or(&Value::Null);
    match kind {
        "agent_start" => Event::AgentStart,
        "message_start" if message()["role"] == "assistant" => Event::MessageStart,
        "message_update" => update(fields.get("assistantMessageEvent").unwrap_or(&Value::Null)),
        "message_end" => match message()["role"].as_str() {
            Some("assistant") => Event::Assistant(assistant(message())),
            Some("user") => {
                let blocks = message()["content"].as_array().map_or(&[][..], Vec::as_slice);
                let images = blocks.iter().filter(|block| block["type"] == "image").count();
                Event::User { images }
            }
            _ => Event::Quiet,
        },
        "tool_execution_start" => Event::ToolStart {
            id: text("toolCallId"),
            name: text("toolName"),
            input: fields.get("args").and_then(Value::as_object).cloned().unwrap_or_default(),
        },
        "tool_execution_update" => Event::ToolProgress,
        "tool_execution_end" => Event::ToolEnd(ToolEnd {
            id: text("toolCallId"),
            name: text("toolName"),
            is_error: is("isError"),
            ..tool_result(fields.get("result").unwrap_or(&Value::Null))
        }),
        "auto_retry_start" => Event::Retry {
            attempt: number("attempt"),
            max: number("maxAttempts"),
            error: text("errorMessage"),
        },
        "auto_retry_end" => Event::RetryEnd { success: is("success") },
        "compaction_start" => {
            Event::CompactionStart { reason: text_of(fields, "reason").map(str::to_owned) }
        }
        "compaction_end" => {
            let aborted = is("aborted").then(|| "aborted".to_owned());
            let error = text_of(fields, "errorMessage").map(str::to_owned);
            Event::CompactionEnd { error: error.or(aborted) }
        }
        "queue_update" => {
            let waiting = fields.get("steering").and_then(Value::as_array).map_or(0, Vec::len);
            Event::Queue { waiting }
        }
        "extension_error" => Event::ExtensionError { error: text("error") },
        "agent_settled" => Event::Settled { aborted: is("aborted") },
        "message_start"
        | "turn_start"
        | "turn_end"
        | "agent_end"
        | "entry_appended"
        | "session_info_changed"
        | "thinking_level_changed"
        | "model_changed"
        | "session" => Event::Quiet,
        kind => Event::Other { kind: kind.to_owned() },
    }
}

fn update(update: &Value) -> Event {
    match (update["type"].as_str(), update["delta"].as_str()) {
        (Some("text_delta"), Some(delta)) => Event::Text {
            block: update["contentIndex"].as_u64().unwrap_or_default(),
            delta: delta.to_owned(),
        },
        _ => Event::Quiet,
    }
}

fn assistant(message: &Value) -> Assistant {
    let blocks = message["content"].as_array().map_or(&[][..], Vec::as_slice);
    let texts = |kind: &str| -> Vec<String> {
        let blocks = blocks.iter().filter(|block| block["type"] == kind);
        let texts = blocks.filter_map(|block| block[kind].as_str());
        texts.filter(|text| !text.trim().is_empty()).map(str::to_owned).collect()
    };
    let usage = &message["usage"];
    let figure = |name: &str| usage[name].as_u64().unwrap_or_default();
    Assistant {
        texts: texts("text"),
        thoughts: texts("thinking"),
        stop_reason: message["stopReason"].as_str().unwrap_or_default().to_owned(),
        error: message["errorMessage"].as_str().map(str::to_owned),
        tokens: Tokens {
            input: figure("input"),
            output: figure("output"),
            cache_read: figure("cacheRead"),
            cache_write: figure("cacheWrite"),
            reasoning: figure("reasoning"),
            cost_usd: usage["cost"]["total"].as_f64().unwrap_or_default(),
        },
    }
}

fn tool_result(result: &Value) -> ToolEnd {
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let structured = &result["structuredContent"];
    ToolEnd {
        output: tail(&texts.join("\n"), OUTPUT_TAIL_BYTES).to_owned(),
        exit_code: structured["exit_code"].as_i64(),
        patch: result["details"]["patch"].as_str().map(str::to_owned),
        content_blocks: blocks.len(),
        has_structured: structured.is_object(),
        ..ToolEnd::default()
    }
}

fn text_of<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> Event {
        match Line::parse(line.as_bytes()).unwrap() {
            Line::Event(event) => event,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fields_of_another_type_count_as_missing() {
        for line in [
            r#"{"type":"message_end","message":7}"#,
            r#"{"type":"message_end","message":{"role":"toolResult"}}"#,
            r#"{"type":"message_update","assistantMessageEvent":[1]}"#,
            r#"{"type":"message_update"}"#,
        ] {
            assert_eq!(event(line), Event::Quiet, "{line}");
        }
        let odd =
            r#"{"type":"message_end","message":{"role":"assistant","content":"x","usage":[]}}"#;
        assert_eq!(event(odd), Event::Assistant(Assistant::default()));
        assert_eq!(
            event(r#"{"type":"agent_settled","aborted":"no"}"#),
            Event::Settled { aborted: false }
        );
        assert_eq!(event("{}"), Event::Other { kind: String::new() });
        assert!(Line::parse(b"[]").is_err() && Line::parse(b"\xff").is_err());
        // Half a surrogate pair spoils a character, not the line.
        assert!(Line::parse(br#"{"type":"agent_settled","s":"\ud83d"}"#).is_ok());
    }
}
