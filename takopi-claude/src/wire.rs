//! The lines that Claude Code prints, and what they say.
//!
//! A line is parsed once, into types that own their text. Only a line that is not JSON is an error:
//! a field of an unexpected type is absent, an unknown line is [`Message::Other`], and an unknown block
//! or state is kept as such. The order of fields does not matter (`type` comes late in a result).

mod content;
mod result;
#[cfg(test)]
mod tests;

use serde_json::value::RawValue;
use takopi_core::jsonl::{repair, whole_members};
use takopi_core::rpc::{ErrorBody, RequestId};
use thiserror::Error;

pub(crate) use content::{Assistant, Block, Nested, Stream, StreamEvent, ToolResult, User};
pub(crate) use result::{Denial, Tokens, TurnResult};
pub(crate) use takopi_core::jsonl::{Object, value};

/// A line that is not JSON.
#[derive(Debug, Error)]
#[error("not JSON: {0}")]
pub(crate) struct ParseError(#[from] serde_json::Error);

/// One line.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum Message {
    /// A turn began.
    Init(Box<Init>),
    /// What the process does now; only if it was asked to report it.
    State(State),
    /// One block of a message of the model.
    Assistant(Box<Assistant>),
    /// Results of tools, or text that was put into the conversation.
    User(Box<User>),
    /// A turn ended.
    Result(Box<TurnResult>),
    /// A piece of a message, as it is produced.
    Stream(Stream),
    /// A model call failed and is tried again.
    ApiRetry(ApiRetry),
    /// The limits of a subscription.
    RateLimit(Box<RateLimit>),
    /// A sub-agent or a command became a task.
    TaskStarted(Task),
    /// What a task does.
    TaskProgress(Task),
    /// A task changed: it went to the background, it ended.
    TaskUpdated(Task),
    /// A task ended.
    TaskNotification(Task),
    /// All tasks that live in the background.
    BackgroundTasks(Vec<Task>),
    /// A tool still runs.
    ToolProgress(ToolProgress),
    /// A tool was refused without anybody being asked.
    PermissionDenied(Denial),
    /// Compacting, requesting, or a change of the permission mode.
    Status(Status),
    /// The conversation was compacted.
    CompactBoundary(CompactBoundary),
    /// A notice for people.
    Notice(String),
    /// How far one of the host's messages is.
    Lifecycle {
        /// The message.
        uuid: String,
        /// `queued`, `started`, `completed`, …
        state: String,
    },
    /// The process went on to another session.
    ConversationReset {
        /// The new one.
        session: Option<String>,
    },
    /// The process asks the host.
    ControlRequest {
        /// Names the request in its response.
        id: String,
        /// `can_use_tool`, `mcp_message`, …
        subtype: String,
        /// The request as it came.
        request: Box<RawValue>,
    },
    /// The process asks the host, in a way that cannot be read.
    UnreadableRequest {
        /// Names the request in its response, as it came.
        id: RequestId,
    },
    /// The response to a request of the host.
    ControlResponse {
        /// The request.
        id: String,
        /// What was responded, `{}` if nothing, or why it failed.
        outcome: Result<Box<RawValue>, String>,
    },
    /// The process no longer asks.
    ControlCancel {
        /// The request.
        id: String,
    },
    /// A sign of life.
    KeepAlive,
    /// Anything else.
    Other {
        /// Its type, and behind a slash its subtype.
        kind: String,
    },
}

/// What is known when a turn begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Init {
    pub(crate) session: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) permission_mode: Option<String>,
    /// Where the key comes from; `none` for a login.
    pub(crate) key_source: Option<String>,
    pub(crate) mcp_servers: Vec<(String, Option<String>)>,
    /// The host's messages that the turn is about; none on versions before 2.1.325.
    pub(crate) message_ids: Vec<String>,
}

/// What the process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// An approval is pending.
    RequiresAction,
    Idle,
    Other(String),
}

/// A model call is tried again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ApiRetry {
    pub(crate) attempt: Option<i64>,
    pub(crate) max: Option<i64>,
    pub(crate) delay_ms: Option<i64>,
    /// The HTTP status; none if there was no response.
    pub(crate) status: Option<i64>,
    pub(crate) error: Option<String>,
}

/// A limit of a subscription.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RateLimit {
    /// `allowed`, `allowed_warning`, `rejected`.
    pub(crate) status: Option<String>,
    /// In seconds since 1970.
    pub(crate) resets_at: Option<i64>,
    /// The window: `five_hour`, `seven_day`, …
    pub(crate) kind: Option<String>,
    /// How much of it is used; 1 is all.
    pub(crate) utilization: Option<f64>,
    /// All of it, for machines.
    pub(crate) info: serde_json::Map<String, serde_json::Value>,
}

/// A sub-agent or a command, as a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) id: Option<String>,
    /// The call that started it.
    pub(crate) tool_use_id: Option<String>,
    /// `local_agent`, `local_bash`, …
    pub(crate) kind: Option<String>,
    pub(crate) description: Option<String>,
    /// `completed`, `failed`, `stopped`, `killed`.
    pub(crate) status: Option<String>,
    pub(crate) summary: Option<String>,
    pub(crate) is_background: Option<bool>,
}

impl Task {
    /// Whether it is a sub-agent.
    pub(crate) fn is_agent(&self) -> bool {
        self.kind.as_deref() == Some("local_agent")
    }
}

/// A tool still runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToolProgress {
    /// The call. (The line has it as its parent, as if it came from a sub-agent.)
    pub(crate) tool_use_id: Option<String>,
    pub(crate) seconds: Option<i64>,
}

/// What the process says it does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// `compacting`, `requesting`, …
    pub(crate) label: Option<String>,
    pub(crate) compact_result: Option<String>,
    pub(crate) permission_mode: Option<String>,
}

/// The conversation was compacted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CompactBoundary {
    pub(crate) trigger: Option<String>,
    pub(crate) tokens_before: Option<i64>,
}

impl Message {
    /// Reads a line.
    pub(crate) fn parse(line: &str) -> Result<Self, ParseError> {
        match Object::parse(line) {
            Ok(object) => Ok(Self::of(&object)),
            Err(error) => match repair(line.as_bytes()) {
                Some(repaired) => match Object::parse(&repaired) {
                    Ok(object) => Ok(Self::of(&object)),
                    Err(_) => Err(error.into()),
                },
                None => Err(error.into()),
            },
        }
    }

    fn of(line: &Object<'_>) -> Self {
        let kind = line.text("type").unwrap_or_default();
        match kind.as_str() {
            "system" => Self::system(line),
            "assistant" => Self::Assistant(Box::new(Assistant::of(line))),
            "user" => Self::User(Box::new(User::of(line))),
            "result" => Self::Result(Box::new(TurnResult::of(line))),
            "stream_event" => Self::Stream(Stream::of(line)),
            "rate_limit_event" => Self::RateLimit(Box::new(RateLimit::of(line))),
            "tool_progress" => Self::ToolProgress(ToolProgress {
                tool_use_id: line.text("parent_tool_use_id").or_else(|| line.text("tool_use_id")),
                seconds: line.int("elapsed_time_seconds"),
            }),
            "command_lifecycle" => match (line.text("command_uuid"), line.text("state")) {
                (Some(uuid), Some(state)) => Self::Lifecycle { uuid, state },
                _ => Self::Other { kind },
            },
            "conversation_reset" => {
                Self::ConversationReset { session: line.text("new_conversation_id") }
            }
            "control_request" => match (line.text("request_id"), line.raw("request")) {
                (Some(id), Some(request)) => Self::ControlRequest {
                    id,
                    subtype: Object::of(request).text("subtype").unwrap_or_default(),
                    request: request.to_owned(),
                },
                _ => Self::unreadable_request(line),
            },
            "control_response" => Self::response(&line.object("response")),
            "control_cancel_request" => match line.text("request_id") {
                Some(id) => Self::ControlCancel { id },
                None => Self::Other { kind },
            },
            "keep_alive" => Self::KeepAlive,
            _ => Self::Other { kind },
        }
    }

    /// Reads the head of a line that was too long: a request is to be answered.
    pub(crate) fn parse_head(head: &[u8]) -> Option<Self> {
        let head = whole_members(head)?;
        let line = Object::parse(&head).ok()?;
        let asks = line.text("type").as_deref() == Some("control_request");
        asks.then(|| Self::unreadable_request(&line))
    }

    fn unreadable_request(line: &Object<'_>) -> Self {
        match line.raw("request_id") {
            Some(id) => Self::UnreadableRequest { id: RequestId::new(id) },
            None => Self::Other { kind: "control_request".to_owned() },
        }
    }

    fn system(line: &Object<'_>) -> Self {
        let subtype = line.text("subtype").unwrap_or_default();
        match subtype.as_str() {
            "init" => Self::Init(Box::new(Init::of(line))),
            "session_state_changed" => Self::State(match line.text("state").as_deref() {
                Some("running") => State::Running,
                Some("requires_action") => State::RequiresAction,
                Some("idle") => State::Idle,
                other => State::Other(other.unwrap_or_default().to_owned()),
            }),
            "api_retry" => Self::ApiRetry(ApiRetry {
                attempt: line.int("attempt"),
                max: line.int("max_retries"),
                delay_ms: line.int("retry_delay_ms"),
                status: line.int("error_status"),
                error: line.text("error"),
            }),
            "task_started" => Self::TaskStarted(Task::of(line)),
            "task_progress" => Self::TaskProgress(Task::of(line)),
            "task_updated" => Self::TaskUpdated(Task::of(line)),
            "task_notification" => Self::TaskNotification(Task::of(line)),
            // Without its list it says nothing, least of all that there are none.
            "background_tasks_changed" if line.has("tasks") => {
                let tasks = line.list("tasks").into_iter();
                Self::BackgroundTasks(tasks.map(|task| Task::of(&Object::of(task))).collect())
            }
            "permission_denied" => Self::PermissionDenied(Denial::of(line)),
            "status" => Self::Status(Status {
                label: line.text("status"),
                compact_result: line.text("compact_result"),
                permission_mode: line.text("permissionMode"),
            }),
            "compact_boundary" => {
                let metadata = line.object("compact_metadata");
                Self::CompactBoundary(CompactBoundary {
                    trigger: metadata.text("trigger"),
                    tokens_before: metadata.int("pre_tokens"),
                })
            }
            "informational" => match line.text("content").filter(|text| !text.trim().is_empty()) {
                Some(text) => Self::Notice(text),
                None => Self::Other { kind: format!("system/{subtype}") },
            },
            _ => Self::Other { kind: format!("system/{subtype}") },
        }
    }

    fn response(response: &Object<'_>) -> Self {
        let Some(id) = response.text("request_id") else {
            return Self::Other { kind: "control_response".to_owned() };
        };
        let outcome = if response.text("subtype").as_deref() == Some("error") {
            // An error that is no text is shown as it came.
            let error = response.raw("error").map(|error| ErrorBody::read(error).message);
            Err(error.unwrap_or_else(|| "no reason given".to_owned()))
        } else {
            Ok(response.raw("response").map_or_else(empty, ToOwned::to_owned))
        };
        Self::ControlResponse { id, outcome }
    }
}

fn empty() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

impl Init {
    fn of(line: &Object<'_>) -> Self {
        let server = |server: &RawValue| {
            let server = Object::of(server);
            Some((server.text("name")?, server.text("status")))
        };
        Self {
            session: line.text("session_id"),
            cwd: line.text("cwd"),
            model: line.text("model"),
            version: line.text("claude_code_version"),
            permission_mode: line.text("permissionMode"),
            key_source: line.text("apiKeySource"),
            mcp_servers: line.list("mcp_servers").into_iter().filter_map(server).collect(),
            message_ids: line.texts("user_message_uuids"),
        }
    }
}

impl RateLimit {
    fn of(line: &Object<'_>) -> Self {
        let info = line.object("rate_limit_info");
        Self {
            status: info.text("status"),
            resets_at: info.int("resetsAt"),
            kind: info.text("rateLimitType"),
            utilization: info.number("utilization"),
            info: info.iter().map(|(name, raw)| (name.to_owned(), value(raw))).collect(),
        }
    }
}

impl Task {
    fn of(line: &Object<'_>) -> Self {
        let patch = line.object("patch");
        Self {
            id: line.text("task_id"),
            tool_use_id: line.text("tool_use_id"),
            kind: line.text("task_type"),
            description: line.text("description"),
            status: line.text("status").or_else(|| patch.text("status")),
            summary: line.text("summary"),
            is_background: line.flag("is_backgrounded").or_else(|| patch.flag("is_backgrounded")),
        }
    }
}
