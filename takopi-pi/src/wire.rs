//! The lines that pi prints, parsed once, tolerantly.
//!
//! A field of another type than expected counts as missing, and a line of an unknown type is kept by its
//! name. Only lines that are not JSON objects are errors.

use serde_json::{Map, Value};
use takopi_core::jsonl::{Object, repair, value, whole_members};
use takopi_core::rpc::{ErrorBody, RequestId};
use thiserror::Error;

/// A line.
#[derive(Debug)]
pub(crate) enum Line {
    /// The response to a command of ours; without an id if pi could not read the command.
    Response { id: Option<String>, outcome: Result<Value, String> },
    /// An extension asks, or reports something.
    Dialog(DialogLine),
    /// What happens in the session.
    Event(Event),
}

/// A request of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DialogLine {
    /// Names it in the answer, as it came.
    pub(crate) id: Option<RequestId>,
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
    /// The agent thinks, writes a call, or a tool runs: nothing that is shown.
    Progress,
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
    /// Its text, whole: credentials are to be removed before it is cut.
    pub(crate) output: String,
    pub(crate) exit_code: Option<i64>,
    pub(crate) patch: Option<String>,
    pub(crate) content_blocks: usize,
    pub(crate) has_structured: bool,
    pub(crate) is_error: bool,
}

/// A line that is no JSON object.
#[derive(Debug, Error)]
#[error("not a JSON object")]
pub(crate) struct NotAnObject;

impl Line {
    pub(crate) fn parse(line: &[u8]) -> Result<Self, NotAnObject> {
        // Lossy: a byte that is not UTF-8 spoils one character, not the line.
        let text = String::from_utf8_lossy(line);
        // Half a surrogate pair, for example: Node writes one where a text was cut.
        let repaired = || Self::of(&repair(text.as_bytes())?);
        Self::of(&text).or_else(repaired).ok_or(NotAnObject)
    }

    /// Reads the head of a line that was too long, as far as it is whole.
    pub(crate) fn parse_head(head: &[u8]) -> Option<Self> {
        Self::of(&whole_members(head)?)
    }

    fn of(text: &str) -> Option<Self> {
        let fields = Object::parse(text).ok().filter(|_| text.trim_start().starts_with('{'))?;
        let kind = fields.text("type").unwrap_or_default();
        Some(match kind.as_str() {
            "response" => Self::Response { id: fields.text("id"), outcome: outcome(&fields) },
            "extension_ui_request" => Self::Dialog(dialog(&fields)),
            _ => Self::Event(event(kind, &fields)),
        })
    }
}

fn outcome(fields: &Object<'_>) -> Result<Value, String> {
    if fields.flag("success") == Some(true) {
        return Ok(fields.raw("data").map(value).unwrap_or_default());
    }
    // An error that is no text is shown as it came.
    let error = fields.raw("error").map(|error| ErrorBody::read(error).message);
    Err(error.unwrap_or_else(|| "pi refused the command without a reason".to_owned()))
}

fn dialog(fields: &Object<'_>) -> DialogLine {
    let text = |name: &str| fields.text(name).unwrap_or_default();
    DialogLine {
        id: fields.raw("id").map(RequestId::new),
        method: text("method"),
        title: fields.text("title").or_else(|| fields.text("message")).unwrap_or_default(),
        status: fields.text("statusKey").map(|key| (key, text("statusText"))),
    }
}

fn event(kind: String, fields: &Object<'_>) -> Event {
    let text = |name: &str| fields.text(name).unwrap_or_default();
    let number = |name: &str| fields.count(name).unwrap_or_default();
    let is = |name: &str| fields.flag(name).unwrap_or_default();
    let role = |message: &Object<'_>| message.text("role").unwrap_or_default();
    match kind.as_str() {
        "agent_start" => Event::AgentStart,
        "message_start" if role(&fields.object("message")) == "assistant" => Event::MessageStart,
        "message_update" => update(&fields.object("assistantMessageEvent")),
        "message_end" => {
            let message = fields.object("message");
            match role(&message).as_str() {
                "assistant" => Event::Assistant(assistant(&message)),
                "user" => Event::User { images: blocks_of(&message, "image").count() },
                _ => Event::Quiet,
            }
        }
        "tool_execution_start" => {
            let args = fields.object("args");
            let input = args.iter().map(|(name, raw)| (name.to_owned(), value(raw))).collect();
            Event::ToolStart { id: text("toolCallId"), name: text("toolName"), input }
        }
        "tool_execution_update" => Event::Progress,
        "tool_execution_end" => Event::ToolEnd(ToolEnd {
            id: text("toolCallId"),
            name: text("toolName"),
            is_error: is("isError"),
            ..tool_result(&fields.object("result"))
        }),
        "auto_retry_start" => Event::Retry {
            attempt: number("attempt"),
            max: number("maxAttempts"),
            error: text("errorMessage"),
        },
        "auto_retry_end" => Event::RetryEnd { success: is("success") },
        "compaction_start" => Event::CompactionStart { reason: fields.text("reason") },
        "compaction_end" => {
            let aborted = is("aborted").then(|| "aborted".to_owned());
            Event::CompactionEnd { error: fields.text("errorMessage").or(aborted) }
        }
        "queue_update" => Event::Queue { waiting: fields.list("steering").len() },
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
        _ => Event::Other { kind },
    }
}

fn update(update: &Object<'_>) -> Event {
    match (update.text("type").as_deref(), update.text("delta")) {
        (Some("text_delta"), Some(delta)) => {
            Event::Text { block: update.count("contentIndex").unwrap_or_default(), delta }
        }
        (Some(_), _) => Event::Progress,
        _ => Event::Quiet,
    }
}

/// The blocks of a message that are of this type.
fn blocks_of<'a>(message: &Object<'a>, kind: &str) -> impl Iterator<Item = Object<'a>> {
    let blocks = message.list("content").into_iter().map(Object::of);
    blocks.filter(move |block| block.text("type").as_deref() == Some(kind))
}

fn assistant(message: &Object<'_>) -> Assistant {
    let texts = |kind: &str| -> Vec<String> {
        let texts = blocks_of(message, kind).filter_map(|block| block.text(kind));
        texts.filter(|text| !text.trim().is_empty()).collect()
    };
    let usage = message.object("usage");
    let figure = |name: &str| usage.count(name).unwrap_or_default();
    Assistant {
        texts: texts("text"),
        thoughts: texts("thinking"),
        stop_reason: message.text("stopReason").unwrap_or_default(),
        error: message.text("errorMessage"),
        tokens: Tokens {
            input: figure("input"),
            output: figure("output"),
            cache_read: figure("cacheRead"),
            cache_write: figure("cacheWrite"),
            reasoning: figure("reasoning"),
            cost_usd: usage.object("cost").number("total").unwrap_or_default(),
        },
    }
}

fn tool_result(result: &Object<'_>) -> ToolEnd {
    let blocks = result.list("content");
    let texts: Vec<String> =
        blocks.iter().filter_map(|block| Object::of(block).text("text")).collect();
    let structured = result.raw("structuredContent");
    ToolEnd {
        output: texts.join("\n"),
        exit_code: result.object("structuredContent").int("exit_code"),
        patch: result.object("details").text("patch"),
        content_blocks: blocks.len(),
        has_structured: structured.is_some_and(|raw| raw.get().starts_with('{')),
        ..ToolEnd::default()
    }
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
        let thinks =
            r#"{"type":"message_update","assistantMessageEvent":{"type":"thinking_delta"}}"#;
        assert_eq!(event(thinks), Event::Progress, "a sign of life");
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

    #[test]
    fn a_line_that_is_nested_deeply_is_read() {
        let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
        let start = format!(
            r#"{{"type":"tool_execution_start","toolCallId":"c","toolName":"bash","args":{{"command":"ls","x":{deep}}}}}"#
        );
        let Event::ToolStart { id, input, .. } = event(&start) else { panic!("{start}") };
        assert_eq!((id.as_str(), &input["command"]), ("c", &Value::from("ls")));
        let message = format!(
            r#"{{"type":"message_end","message":{{"role":"assistant","stopReason":"stop","content":[{{"type":"text","text":"hi"}},{deep}]}}}}"#
        );
        let Event::Assistant(assistant) = event(&message) else { panic!("{message}") };
        assert_eq!(assistant.texts, ["hi"]);
    }

    #[test]
    fn an_error_of_a_response_that_is_no_text_is_shown() {
        let error = |line: &str| match Line::parse(line.as_bytes()).unwrap() {
            Line::Response { outcome, .. } => outcome.unwrap_err(),
            other => panic!("{other:?}"),
        };
        assert_eq!(error(r#"{"type":"response","success":false,"error":"no"}"#), "no");
        let odd = error(r#"{"type":"response","success":false,"error":{"code":7}}"#);
        assert!(odd.contains(r#"{"code":7}"#), "{odd}");
        let none = error(r#"{"type":"response","success":false}"#);
        assert!(none.contains("without a reason"), "{none}");
    }
}
