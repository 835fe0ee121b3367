//! The messages and commands in a session file.
//!
//! Older releases of codex write messages as events of their own, newer ones as completed items; each file
//! has one kind. The result of a command is an item too in newer ones; in older ones it is only what the model got to
//! read. Other lines, and lines that cannot be read, are skipped.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde_json::Value;
use takopi_core::catalog::{Role, TranscriptEntry};

/// What a call and its result have in common.
type CallId = String;

/// What comes before the exit code, and before the output, in what the model reads of a command.
const EXIT_CODE: &str = "exited with code ";
const OUTPUT: &str = "\nOutput:\n";

/// All messages and commands, in order.
pub(super) fn read(path: &Path) -> io::Result<Vec<TranscriptEntry>> {
    let mut entries: Vec<(TranscriptEntry, Option<CallId>)> = Vec::new();
    for line in BufReader::new(File::open(path)?).split(b'\n') {
        let Ok(line) = serde_json::from_slice::<Value>(&line?) else { continue };
        let call = call_id(&line);
        let earlier = entries.iter_mut().rev().find(|(_, it)| it.is_some() && *it == call);
        match (entry_of(&line), earlier) {
            // The result of a call replaces the call.
            (Some(entry), Some(earlier)) => *earlier = (entry, call),
            (Some(entry), None) => entries.push((entry, call)),
            (None, Some((command, _))) => add_result(command, &line),
            (None, None) => {}
        }
    }
    Ok(entries.into_iter().map(|(entry, _)| entry).collect())
}

/// The message or command of a line, if it has one.
pub(super) fn entry(line: &[u8]) -> Option<TranscriptEntry> {
    entry_of(&serde_json::from_slice(line).ok()?)
}

fn entry_of(line: &Value) -> Option<TranscriptEntry> {
    let payload = line.get("payload")?;
    let kind = text(payload, "type")?;
    let mut entry = match (text(line, "type")?, kind) {
        ("event_msg", "user_message") => message(Role::User, text(payload, "message")?),
        ("event_msg", "agent_message") => message(Role::Agent, text(payload, "message")?),
        ("event_msg", "turn_aborted") => message(Role::Note, "the turn was interrupted"),
        ("event_msg", "item_completed") => item(payload.get("item")?)?,
        ("response_item", "function_call") => call(payload)?,
        _ => return None,
    };
    entry.at = text(line, "timestamp").map(str::to_owned);
    Some(entry)
}

/// The call that a line is of.
fn call_id(line: &Value) -> Option<CallId> {
    let payload = line.get("payload")?;
    let is_item = |item: &&Value| text(item, "type") == Some("CommandExecution");
    let item = payload.get("item").filter(is_item);
    let id = item.map_or_else(|| text(payload, "call_id"), |item| text(item, "id"));
    id.map(str::to_owned)
}

/// Adds what the model got to read of a command, unless better is known.
fn add_result(command: &mut TranscriptEntry, line: &Value) {
    let payload = line.get("payload").filter(|it| text(it, "type") == Some("function_call_output"));
    let Some(result) = payload.and_then(|it| text(it, "output")) else { return };
    let (head, output) = result.split_once(OUTPUT).unwrap_or((result, ""));
    if command.exit_code.is_none() {
        let code = head.rsplit_once(EXIT_CODE).and_then(|(_, rest)| rest.lines().next());
        command.exit_code = code.and_then(|code| code.trim().parse().ok());
    }
    if command.output_tail.is_none() {
        command.set_output(output);
    }
}

fn message(role: Role, text: &str) -> TranscriptEntry {
    TranscriptEntry::new(role, text)
}

fn item(item: &Value) -> Option<TranscriptEntry> {
    match text(item, "type")? {
        "UserMessage" => Some(message(Role::User, &pieces(item)?)),
        "AgentMessage" => Some(message(Role::Agent, &pieces(item)?)),
        "CommandExecution" => {
            // `["/bin/bash", "-lc", "what was run"]`
            let command = item.get("command")?.as_array()?.last()?.as_str()?;
            let mut entry = TranscriptEntry::new(Role::Command, command);
            entry.exit_code = item.get("exit_code").and_then(Value::as_i64);
            entry.set_output(text(item, "aggregated_output").unwrap_or_default());
            Some(entry)
        }
        _ => None,
    }
}

fn call(payload: &Value) -> Option<TranscriptEntry> {
    let arguments: Value = serde_json::from_str(text(payload, "arguments")?).ok()?;
    let command = match arguments.get("cmd").or_else(|| arguments.get("command"))? {
        Value::String(command) => command.clone(),
        Value::Array(words) => words.last()?.as_str()?.to_owned(),
        _ => return None,
    };
    Some(TranscriptEntry::new(Role::Command, command))
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

    type Shown = (Role, String, Option<i64>);

    fn transcript(lines: &[Value]) -> Vec<Shown> {
        let entries = entries(lines);
        entries.into_iter().map(|it| (it.role, it.text, it.exit_code)).collect()
    }

    fn entries(lines: &[Value]) -> Vec<TranscriptEntry> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        read(file.path()).unwrap()
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

    /// What the model reads, as 0.166.0 stores it.
    fn result() -> Value {
        let output = "Chunk ID: 816c9f\nWall time: 0.0000 seconds\nProcess exited with code 4\n\
                      Original token count: 1\nOutput:\nhi\n";
        let payload = json!({ "type": "function_call_output", "call_id": "c1", "output": output });
        json!({ "type": "response_item", "payload": payload })
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
                "command": ["/bin/bash", "-lc", "ls"], "aggregated_output": "one\ntwo\n",
            })),
            result(),
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

    #[test]
    fn a_command_has_the_end_of_its_output() {
        let item = json!({
            "type": "CommandExecution", "id": "c1", "exit_code": 3,
            "command": ["/bin/bash", "-lc", "ls"], "aggregated_output": "one\ntwo\n",
        });
        let item = event(&json!({ "type": "item_completed", "item": item }));
        let shown = |lines: &[Value]| {
            let entries = entries(lines);
            assert_eq!(entries.len(), 1, "{entries:?}");
            (entries[0].exit_code, entries[0].output_tail.clone())
        };
        assert_eq!(shown(&[command()]), (None, None));
        let newer = [command(), item, result()];
        assert_eq!(shown(&newer), (Some(3), Some("one\ntwo".to_owned())));
        // Older releases store no item.
        assert_eq!(shown(&[command(), result()]), (Some(4), Some("hi".to_owned())));
    }
}
