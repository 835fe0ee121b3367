//! The conversation in a session file.
//!
//! Older codex writes messages as events of their own, newer codex as completed items; each file
//! has one kind. Whatever else is in it, and whatever cannot be read, is passed over.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

/// Whose turn it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Speaker {
    User,
    Agent,
    Command,
    Note,
}

/// One thing that was said or done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    #[serde(rename = "role")]
    pub(super) speaker: Speaker,
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// What a call and its result have in common.
    #[serde(skip)]
    call: Option<String>,
}

/// The whole conversation.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut entries: Vec<Entry> = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.with_context(|| format!("cannot read {}", path.display()))?;
        let Some(entry) = entry(&line) else { continue };
        // The result of a call takes the place of the call.
        let call = entries.iter_mut().rev().find(|it| it.call.is_some() && it.call == entry.call);
        match call {
            Some(call) => *call = entry,
            None => entries.push(entry),
        }
    }
    Ok(entries)
}

/// What a line says, if it is part of the conversation.
pub(super) fn entry(line: &[u8]) -> Option<Entry> {
    let line: Value = serde_json::from_slice(line).ok()?;
    let payload = line.get("payload")?;
    let kind = text(payload, "type")?;
    let mut entry = match (text(&line, "type")?, kind) {
        ("event_msg", "user_message") => Entry::new(Speaker::User, text(payload, "message")?),
        ("event_msg", "agent_message") => Entry::new(Speaker::Agent, text(payload, "message")?),
        ("event_msg", "turn_aborted") => Entry::new(Speaker::Note, "the turn was interrupted"),
        ("event_msg", "item_completed") => item(payload.get("item")?)?,
        ("response_item", "function_call") => call(payload)?,
        _ => return None,
    };
    entry.at = text(&line, "timestamp").map(str::to_owned);
    Some(entry)
}

fn item(item: &Value) -> Option<Entry> {
    match text(item, "type")? {
        "UserMessage" => Some(Entry::new(Speaker::User, &pieces(item)?)),
        "AgentMessage" => Some(Entry::new(Speaker::Agent, &pieces(item)?)),
        "CommandExecution" => {
            // `["/bin/bash", "-lc", "what was run"]`
            let command = item.get("command")?.as_array()?.last()?.as_str()?;
            let mut entry = Entry::new(Speaker::Command, command);
            entry.exit_code = item.get("exit_code").and_then(Value::as_i64);
            entry.call = text(item, "id").map(str::to_owned);
            Some(entry)
        }
        _ => None,
    }
}

fn call(payload: &Value) -> Option<Entry> {
    let arguments: Value = serde_json::from_str(text(payload, "arguments")?).ok()?;
    let command = match arguments.get("cmd").or_else(|| arguments.get("command"))? {
        Value::String(command) => command.clone(),
        Value::Array(words) => words.last()?.as_str()?.to_owned(),
        _ => return None,
    };
    let mut entry = Entry::new(Speaker::Command, &command);
    entry.call = text(payload, "call_id").map(str::to_owned);
    Some(entry)
}

/// The text of a message that comes in pieces.
fn pieces(item: &Value) -> Option<String> {
    let pieces = item.get("content")?.as_array()?;
    let texts: Vec<&str> = pieces.iter().filter_map(|piece| text(piece, "text")).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

impl Entry {
    fn new(speaker: Speaker, text: &str) -> Self {
        Self { speaker, text: text.to_owned(), exit_code: None, at: None, call: None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn talk(lines: &[Value]) -> Vec<(Speaker, String, Option<i64>)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        let entries = read(file.path()).unwrap();
        entries.into_iter().map(|it| (it.speaker, it.text, it.exit_code)).collect()
    }

    fn event(payload: &Value) -> Value {
        json!({ "timestamp": "2026-11-16T02:45:30.463Z", "type": "event_msg", "payload": payload })
    }

    fn command() -> Value {
        let payload = json!({
            "type": "function_call", "name": "exec_command", "call_id": "c1",
            "arguments": "{\"cmd\": \"ls\"}",
        });
        json!({ "type": "response_item", "payload": payload })
    }

    #[test]
    fn the_events_of_older_releases() {
        let context = json!({
            "type": "message", "role": "user",
            "content": [{ "type": "input_text", "text": "<environment_context>" }],
        });
        let said = talk(&[
            json!({ "type": "response_item", "payload": context }),
            event(&json!({ "type": "user_message", "message": "hi" })),
            command(),
            event(&json!({ "type": "agent_message", "message": "hello" })),
            json!("junk"),
        ]);
        assert_eq!(
            said,
            [
                (Speaker::User, "hi".to_owned(), None),
                (Speaker::Command, "ls".to_owned(), None),
                (Speaker::Agent, "hello".to_owned(), None),
            ]
        );
    }

    #[test]
    fn the_items_of_newer_releases() {
        let item = |item: Value| event(&json!({ "type": "item_completed", "item": item }));
        let message = |kind: &str, text: &str| {
            item(json!({ "type": kind, "content": [{ "type": "text", "text": text }] }))
        };
        let said = talk(&[
            message("UserMessage", "hi"),
            command(),
            item(json!({
                "type": "CommandExecution", "id": "c1", "exit_code": 3,
                "command": ["/bin/bash", "-lc", "ls"],
            })),
            message("AgentMessage", "hello"),
            event(&json!({ "type": "turn_aborted", "reason": "interrupted" })),
        ]);
        assert_eq!(
            said,
            [
                (Speaker::User, "hi".to_owned(), None),
                (Speaker::Command, "ls".to_owned(), Some(3)),
                (Speaker::Agent, "hello".to_owned(), None),
                (Speaker::Note, "the turn was interrupted".to_owned(), None),
            ]
        );
    }
}
