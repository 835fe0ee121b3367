//! The messages and commands in a session file.
//!
//! Older releases of codex write messages as events of their own, newer ones as completed items; each file
//! has one kind. Other lines, and lines that cannot be read, are skipped.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde_json::Value;
use takopi_core::catalog::{Role, TranscriptEntry};

/// What a call and its result have in common.
type CallId = String;

/// All messages and commands, in order.
pub(super) fn read(path: &Path) -> io::Result<Vec<TranscriptEntry>> {
    let mut entries: Vec<(TranscriptEntry, Option<CallId>)> = Vec::new();
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        let Some((entry, call)) = entry(&line?) else { continue };
        // The result of a call replaces the call.
        let earlier = entries.iter_mut().rev().find(|(_, it)| it.is_some() && *it == call);
        match earlier {
            Some(earlier) => *earlier = (entry, call),
            None => entries.push((entry, call)),
        }
    }
    Ok(entries.into_iter().map(|(entry, _)| entry).collect())
}

/// The message or command of a line, if it has one.
pub(super) fn entry(line: &[u8]) -> Option<(TranscriptEntry, Option<CallId>)> {
    let line: Value = serde_json::from_slice(line).ok()?;
    let payload = line.get("payload")?;
    let kind = text(payload, "type")?;
    let (mut entry, call) = match (text(&line, "type")?, kind) {
        ("event_msg", "user_message") => message(Role::User, text(payload, "message")?),
        ("event_msg", "agent_message") => message(Role::Agent, text(payload, "message")?),
        ("event_msg", "turn_aborted") => message(Role::Note, "the turn was interrupted"),
        ("event_msg", "item_completed") => item(payload.get("item")?)?,
        ("response_item", "function_call") => call(payload)?,
        _ => return None,
    };
    entry.at = text(&line, "timestamp").map(str::to_owned);
    Some((entry, call))
}

fn message(role: Role, text: &str) -> (TranscriptEntry, Option<CallId>) {
    (TranscriptEntry::new(role, text), None)
}

fn item(item: &Value) -> Option<(TranscriptEntry, Option<CallId>)> {
    match text(item, "type")? {
        "UserMessage" => Some(message(Role::User, &pieces(item)?)),
        "AgentMessage" => Some(message(Role::Agent, &pieces(item)?)),
        "CommandExecution" => {
            // `["/bin/bash", "-lc", "what was run"]`
            let command = item.get("command")?.as_array()?.last()?.as_str()?;
            let mut entry = TranscriptEntry::new(Role::Command, command);
            entry.exit_code = item.get("exit_code").and_then(Value::as_i64);
            Some((entry, text(item, "id").map(str::to_owned)))
        }
        _ => None,
    }
}

fn call(payload: &Value) -> Option<(TranscriptEntry, Option<CallId>)> {
    let arguments: Value = serde_json::from_str(text(payload, "arguments")?).ok()?;
    let command = match arguments.get("cmd").or_else(|| arguments.get("command"))? {
        Value::String(command) => command.clone(),
        Value::Array(words) => words.last()?.as_str()?.to_owned(),
        _ => return None,
    };
    let call = text(payload, "call_id").map(str::to_owned);
    Some((TranscriptEntry::new(Role::Command, command), call))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn transcript(lines: &[Value]) -> Vec<(Role, String, Option<i64>)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        let entries = read(file.path()).unwrap();
        entries.into_iter().map(|it| (it.role, it.text, it.exit_code)).collect()
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
    fn events_of_older_releases_are_read() {
        let context = json!({
            "type": "message", "role": "user",
            "content": [{ "type": "input_text", "text": "<environment_context>" }],
        });
        let entries = transcript(&[
            json!({ "type": "response_item", "payload": context }),
            event(&json!({ "type": "user_message", "message": "hi" })),
            command(),
            event(&json!({ "type": "agent_message", "message": "hello" })),
            json!("junk"),
        ]);
        assert_eq!(
            entries,
            [
                (Role::User, "hi".to_owned(), None),
                (Role::Command, "ls".to_owned(), None),
                (Role::Agent, "hello".to_owned(), None),
            ]
        );
    }

    #[test]
    fn items_of_newer_releases_are_read() {
        let item = |item: Value| event(&json!({ "type": "item_completed", "item": item }));
        let message = |kind: &str, text: &str| {
            item(json!({ "type": kind, "content": [{ "type": "text", "text": text }] }))
        };
        let entries = transcript(&[
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
            entries,
            [
                (Role::User, "hi".to_owned(), None),
                (Role::Command, "ls".to_owned(), Some(3)),
                (Role::Agent, "hello".to_owned(), None),
                (Role::Note, "the turn was interrupted".to_owned(), None),
            ]
        );
    }
}
