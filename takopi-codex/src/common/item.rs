//! The items of a turn, as both transports print them.
//!
//! exec has `command_execution` and `exit_code`, app-server `commandExecution` and `exitCode`; both
//! read into the same [`Item`]. A known item with odd fields is read as far as it goes; an item of a
//! unknown type is [`Body::Unknown`].

use std::borrow::Cow;

use serde::Serialize;
use serde::de::{IgnoredAny, MapAccess, SeqAccess};
use serde_json::value::RawValue;

use super::labels::{MessagePhase, Status, snake_case};
use super::raw::first_text;
use super::tail::Tail;
use takopi_core::tolerant::{Read, Tolerant, first, next_key, skip};

/// One thing that happens in a turn.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    /// Unique in the turn; of two the first.
    pub(crate) id: Option<Cow<'a, str>>,
    pub(crate) body: Body<'a>,
}

impl Item<'_> {
    /// Whether it is a change of files.
    pub(crate) fn is_patch(&self) -> bool {
        matches!(self.body, Body::FileChange { .. })
    }
}

/// What happens.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    /// The echo of the user's message.
    UserMessage,
    AgentMessage {
        text: Cow<'a, str>,
        phase: Option<MessagePhase>,
    },
    /// The agent's thinking: reasoning, a plan as text.
    Thought {
        text: Cow<'a, str>,
    },
    Command {
        command: Option<Cow<'a, str>>,
        status: Option<Status>,
        exit_code: Option<i64>,
        output: Option<Tail<'a>>,
    },
    FileChange {
        changes: Vec<Change<'a>>,
        status: Option<Status>,
    },
    /// A call of an MCP tool, or of a tool of the host.
    ToolCall(Box<ToolCall<'a>>),
    /// Work handed to another agent, or news of it.
    Subagent {
        tool: Option<Cow<'a, str>>,
        prompt: Option<Cow<'a, str>>,
        threads: Vec<Cow<'a, str>>,
        status: Option<Status>,
    },
    WebSearch {
        query: Option<Cow<'a, str>>,
    },
    Todo {
        steps: Vec<Step<'a>>,
    },
    Error {
        message: Option<Cow<'a, str>>,
    },
    Unknown {
        kind: Option<Cow<'a, str>>,
        status: Option<Status>,
    },
}

#[derive(Debug)]
pub(crate) struct ToolCall<'a> {
    pub(crate) server: Option<Cow<'a, str>>,
    pub(crate) tool: Option<Cow<'a, str>>,
    pub(crate) status: Option<Status>,
    pub(crate) arguments: Option<&'a RawValue>,
    pub(crate) error: Option<Message<'a>>,
    pub(crate) result: Option<ToolResult>,
}

/// One file of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change<'a> {
    pub(crate) path: Cow<'a, str>,
    /// `add`, `update`, `delete`.
    pub(crate) kind: Option<Cow<'a, str>>,
    /// On app-server: a unified diff, or the whole text of a file that is added or deleted.
    pub(crate) diff: Option<Cow<'a, str>>,
}

/// One step of a todo list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) done: bool,
}

/// What a tool gave back, in figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ToolResult {
    pub(crate) content_blocks: usize,
    pub(crate) has_structured: bool,
}

/// A text that stands alone or in an object as its `message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message<'a>(pub(crate) Cow<'a, str>);

/// The fields of all items. The `type` that distinguishes them may come last.
#[derive(Default)]
struct Fields<'a> {
    id: Option<Cow<'a, str>>,
    kind: Option<Cow<'a, str>>,
    text: Option<Cow<'a, str>>,
    summary: Option<Vec<Cow<'a, str>>>,
    phase: Option<MessagePhase>,
    command: Option<Cow<'a, str>>,
    output: Option<Tail<'a>>,
    exit_code: Option<i64>,
    status: Option<Status>,
    changes: Option<Vec<Change<'a>>>,
    server: Option<Cow<'a, str>>,
    tool: Option<Cow<'a, str>>,
    arguments: Option<&'a RawValue>,
    error: Option<Message<'a>>,
    result: Option<ToolResult>,
    prompt: Option<Cow<'a, str>>,
    threads: Option<Vec<Cow<'a, str>>>,
    activity: Option<Cow<'a, str>>,
    agent: Option<Cow<'a, str>>,
    query: Option<Cow<'a, str>>,
    steps: Option<Vec<Step<'a>>>,
    message: Option<Cow<'a, str>>,
}

impl<'de> Tolerant<'de> for Item<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let mut fields = Fields::default();
        while let Some(key) = next_key(object)? {
            match &*key {
                "id" => first(&mut fields.id, object)?,
                "type" => first(&mut fields.kind, object)?,
                "text" => first_text(&mut fields.text, object)?,
                "summary" => first(&mut fields.summary, object)?,
                "phase" => first(&mut fields.phase, object)?,
                "command" => first_text(&mut fields.command, object)?,
                "aggregated_output" | "aggregatedOutput" => {
                    let output = object.next_value()?;
                    fields.output = fields.output.or_else(|| Tail::of(output));
                }
                "exit_code" | "exitCode" => first(&mut fields.exit_code, object)?,
                "status" => first(&mut fields.status, object)?,
                "changes" => first(&mut fields.changes, object)?,
                "server" | "namespace" => first(&mut fields.server, object)?,
                "tool" => first(&mut fields.tool, object)?,
                "arguments" => {
                    let arguments = object.next_value()?;
                    fields.arguments.get_or_insert(arguments);
                }
                "error" => first(&mut fields.error, object)?,
                "result" => first(&mut fields.result, object)?,
                "prompt" => first(&mut fields.prompt, object)?,
                "receiver_thread_ids" | "receiverThreadIds" => first(&mut fields.threads, object)?,
                "kind" => first(&mut fields.activity, object)?,
                "agent_path" | "agentPath" => first(&mut fields.agent, object)?,
                "query" => first(&mut fields.query, object)?,
                "items" => first(&mut fields.steps, object)?,
                "message" => first(&mut fields.message, object)?,
                _ => skip(object)?,
            }
        }
        Ok(Some(fields.into_item()))
    }
}

impl<'a> Fields<'a> {
    fn into_item(mut self) -> Item<'a> {
        let id = self.id.take();
        let kind = self.kind.take();
        let body = match kind.as_deref() {
            Some("userMessage" | "user_message") => Body::UserMessage,
            Some("agent_message" | "agentMessage") => {
                Body::AgentMessage { text: self.text.unwrap_or_default(), phase: self.phase }
            }
            Some("reasoning" | "plan") => Body::Thought { text: self.thought() },
            Some("command_execution" | "commandExecution") => Body::Command {
                command: self.command,
                status: self.status,
                exit_code: self.exit_code,
                output: self.output,
            },
            Some("file_change" | "fileChange") => {
                Body::FileChange { changes: self.changes.unwrap_or_default(), status: self.status }
            }
            Some("mcp_tool_call" | "mcpToolCall" | "dynamicToolCall") => {
                Body::ToolCall(Box::new(ToolCall {
                    server: self.server,
                    tool: self.tool,
                    status: self.status,
                    arguments: self.arguments,
                    error: self.error,
                    result: self.result,
                }))
            }
            Some("collab_tool_call" | "collabToolCall" | "collabAgentToolCall") => Body::Subagent {
                tool: self.tool.map(snake_case),
                prompt: self.prompt,
                threads: self.threads.unwrap_or_default(),
                status: self.status,
            },
            Some("subAgentActivity" | "sub_agent_activity") => Body::Subagent {
                tool: self.activity.map(snake_case),
                prompt: self.agent,
                threads: Vec::new(),
                status: self.status,
            },
            Some("web_search" | "webSearch") => Body::WebSearch { query: self.query },
            Some("todo_list" | "todoList") => Body::Todo { steps: self.steps.unwrap_or_default() },
            Some("error") => Body::Error { message: self.message.or(self.text) },
            _ => Body::Unknown { kind, status: self.status },
        };
        Item { id, body }
    }

    /// exec joins the parts of a summary; app-server does not.
    fn thought(&mut self) -> Cow<'a, str> {
        match (self.text.take(), self.summary.take()) {
            (Some(text), _) => text,
            (None, Some(mut summary)) if summary.len() == 1 => summary.remove(0),
            (None, Some(summary)) => Cow::Owned(summary.join("\n")),
            (None, None) => Cow::Borrowed(""),
        }
    }
}

impl<'de> Tolerant<'de> for Change<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let (mut path, mut kind, mut diff) = (None, None, None);
        while let Some(key) = next_key(object)? {
            match &*key {
                "path" => first(&mut path, object)?,
                "kind" => first(&mut kind, object)?,
                "diff" => first_text(&mut diff, object)?,
                _ => skip(object)?,
            }
        }
        Ok(path.map(|path| Self { path, kind: kind.map(|ChangeKind(kind)| kind), diff }))
    }
}

/// `"add"` on exec, `{"type":"add"}` on app-server.
struct ChangeKind<'a>(Cow<'a, str>);

impl<'de> Tolerant<'de> for ChangeKind<'de> {
    fn from_input(text: &'de str) -> Option<Self> {
        Cow::from_input(text).map(Self)
    }

    fn from_text(text: &str) -> Option<Self> {
        Cow::from_text(text).map(Self)
    }

    fn from_object<A: MapAccess<'de>>(object: A) -> Result<Option<Self>, A::Error> {
        Ok(field(object, "type")?.map(Self))
    }
}

impl<'de> Tolerant<'de> for Message<'de> {
    fn from_input(text: &'de str) -> Option<Self> {
        Cow::from_input(text).map(Self)
    }

    fn from_text(text: &str) -> Option<Self> {
        Cow::from_text(text).map(Self)
    }

    fn from_object<A: MapAccess<'de>>(object: A) -> Result<Option<Self>, A::Error> {
        Ok(field(object, "message")?.map(Self))
    }
}

/// The one field of an object that matters.
fn field<'de, T: Tolerant<'de>, A: MapAccess<'de>>(
    mut object: A,
    name: &str,
) -> Result<Option<T>, A::Error> {
    let mut value = None;
    while let Some(key) = next_key(&mut object)? {
        if key == name {
            first(&mut value, &mut object)?;
        } else {
            skip(&mut object)?;
        }
    }
    Ok(value)
}

impl<'de> Tolerant<'de> for Step<'de> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let (mut text, mut completed, mut status) = (None, None, None);
        while let Some(key) = next_key(object)? {
            match &*key {
                // exec's todo list, then app-server's plan.
                "text" | "step" => first(&mut text, object)?,
                "completed" => first(&mut completed, object)?,
                "status" => first(&mut status, object)?,
                _ => skip(object)?,
            }
        }
        let done = completed.unwrap_or(status == Some(Status::Completed));
        Ok(Some(Self { text: text.unwrap_or_default(), done }))
    }
}

impl<'de> Tolerant<'de> for ToolResult {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Option<Self>, A::Error> {
        let object = &mut object;
        let mut result = Self::default();
        while let Some(key) = next_key(object)? {
            match &*key {
                "content" => {
                    let Read(count) = object.next_value::<Read<Count>>()?;
                    result.content_blocks = count.map_or(0, |Count(count)| count);
                }
                "structured_content" | "structuredContent" => {
                    result.has_structured = object.next_value::<Option<IgnoredAny>>()?.is_some();
                }
                _ => skip(object)?,
            }
        }
        Ok(Some(result))
    }
}

/// How long a list is, whatever is in it.
struct Count(usize);

impl<'de> Tolerant<'de> for Count {
    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Option<Self>, A::Error> {
        let mut count = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(Some(Self(count)))
    }
}
