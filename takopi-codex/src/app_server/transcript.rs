//! The messages and tool calls of a turn, as neutral chat messages.
//!
//! Pure: notifications in, messages out. For programs with an agent loop and a history of their own.
//!
//! - Messages stand in the order in which their items began.
//! - Every tool item is exactly one call, in an assistant message of its own, and one result right
//!   behind it; a tool that did not complete has the result `unfinished`.
//! - Ids of calls are made from the item's id, the tool's name and its arguments, whose keys are
//!   sorted: the same items give the same bytes.
//! - Deltas make no messages, nor do texts that were not completed.
//! - Reasoning goes with the next message of the assistant; behind the last one it is left out.
//! - The echo of the input is left out, because the host has it; steered input is included.
//! - Unknown items are a plain note.

mod item;

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use self::item::{Content, read};
use super::notification::Notification;

/// Call ids are made in here.
const CALLS: Uuid = Uuid::from_u128(0x7f0e_51c6_6a0f_5d0e_9a52_4a1f_6d1c_0b37);

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Message {
    /// Content by the user.
    User {
        /// Its text.
        content: String,
    },
    /// Content or done by the agent.
    Assistant {
        /// Its text; empty if only a tool was called.
        content: String,
        /// The reasoning before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<String>,
        /// The tool that was called, if one was.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<TranscriptCall>,
    },
    /// What came of a call.
    Tool {
        /// The call.
        tool_call_id: String,
        /// Its result.
        content: String,
    },
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TranscriptCall {
    /// Unique in the conversation.
    pub id: String,
    /// The tool: `exec_command`, `apply_patch`, `web_search`, `mcp__SERVER__TOOL`, a tool of the
    /// host by its name.
    pub name: String,
    /// Its arguments as JSON, keys sorted.
    pub arguments: String,
}

/// Gathers the messages of one turn.
///
/// ```
/// use serde_json::json;
/// use takopi_codex::app_server::{Message, Transcript};
///
/// let mut transcript = Transcript::default();
/// transcript.item_completed(&json!({ "type": "userMessage", "id": "u", "content": [] }));
/// transcript.item_completed(&json!({ "type": "agentMessage", "id": "m", "text": "Hello." }));
/// let hello = Message::Assistant {
///     content: "Hello.".to_owned(),
///     reasoning: None,
///     tool_calls: Vec::new(),
/// };
/// assert_eq!(transcript.messages(), [hello]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    /// In the order in which they began.
    items: Vec<Entry>,
    places: HashMap<String, usize>,
}

#[derive(Debug, Clone)]
struct Entry {
    id: String,
    content: Content,
    completed: bool,
}

impl Transcript {
    /// Records a notification of the server.
    pub fn record(&mut self, notification: &Notification) {
        let completed = match notification.method.as_str() {
            "item/started" => false,
            "item/completed" => true,
            _ => return,
        };
        if let Some(item) = notification.item() {
            self.item(&item, completed);
        }
    }

    /// An item began.
    pub fn item_started(&mut self, item: &Value) {
        self.item(item, false);
    }

    /// An item is complete. Later notifications about it are ignored.
    pub fn item_completed(&mut self, item: &Value) {
        self.item(item, true);
    }

    fn item(&mut self, item: &Value, completed: bool) {
        let id = item["id"].as_str().filter(|id| !id.is_empty());
        if id.is_none() && !completed {
            // Its end could not be distinguished from another item.
            return;
        }
        let id = id.map_or_else(|| format!("item_{}", self.items.len()), str::to_owned);
        let place = *self.places.entry(id.clone()).or_insert_with(|| {
            self.items.push(Entry { id, content: Content::Nothing, completed: false });
            self.items.len() - 1
        });
        let entry = &mut self.items[place];
        if !entry.completed {
            entry.content = read(item);
            entry.completed = completed;
        }
    }

    /// How many tools were called.
    pub fn tool_calls(&self) -> usize {
        self.items.iter().filter(|entry| matches!(entry.content, Content::Tool { .. })).count()
    }

    /// The messages so far.
    pub fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut thoughts: Vec<&str> = Vec::new();
        let mut echoed = false;
        for Entry { id, content, completed } in &self.items {
            let assistant =
                |content: &str, thoughts: &mut Vec<&str>, call: Option<TranscriptCall>| {
                    let reasoning = (!thoughts.is_empty()).then(|| thoughts.join("\n\n"));
                    thoughts.clear();
                    let tool_calls = call.into_iter().collect();
                    Message::Assistant { content: content.to_owned(), reasoning, tool_calls }
                };
            match content {
                Content::User(text) => {
                    if *completed && echoed {
                        messages.push(Message::User { content: text.clone() });
                    }
                    // The first is what the turn was begun with.
                    echoed = true;
                }
                Content::Thought(text) if *completed && !text.is_empty() => thoughts.push(text),
                Content::Text(text) if *completed => {
                    messages.push(assistant(text, &mut thoughts, None));
                }
                Content::Tool { name, arguments, result } => {
                    let arguments = sorted(arguments).to_string();
                    let seed = format!("{id}\n{name}\n{arguments}");
                    let call = format!("call_{}", Uuid::new_v5(&CALLS, seed.as_bytes()).simple());
                    let content = if *completed { result.clone() } else { "unfinished".to_owned() };
                    let made = TranscriptCall { id: call.clone(), name: name.clone(), arguments };
                    messages.push(assistant("", &mut thoughts, Some(made)));
                    messages.push(Message::Tool { tool_call_id: call, content });
                }
                Content::Thought(_) | Content::Text(_) | Content::Nothing => {}
            }
        }
        messages
    }
}

/// The same value with the keys of its objects in order, whatever order they came in.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let ordered: BTreeMap<&String, Value> =
                object.iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(ordered.into_iter().map(|(key, value)| (key.clone(), value)).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
