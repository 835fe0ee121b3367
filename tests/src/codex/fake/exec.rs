//! Lines of `codex exec --json` as steps, and ready scripts made of them.

use serde_json::{Value, json};

use super::{Script, Step};

/// A run that answers every prompt with `answer`.
pub fn hello(answer: &str) -> Script {
    Script::exec(answering(answer))
}

/// A run of this session, whatever was asked for, that answers with `answer`.
pub fn session(id: &str, answer: &str) -> Script {
    let mut steps = answering(answer);
    steps[1] = thread_started_as(id);
    Script::exec(steps)
}

/// A run that answers with its own prompt.
pub fn echo() -> Script {
    hello("$PROMPT")
}

/// A run whose turn fails with `message`; exit code 1.
pub fn failed(message: &str) -> Script {
    Script::exec([
        Step::ReadStdin,
        thread_started(),
        turn_started(),
        error(message),
        turn_failed(message),
        Step::Exit(1),
    ])
}

/// A resume of a session that another codex has open: nothing on stdout, exit code 1.
pub fn busy() -> Script {
    refused("thread $THREAD already has an active writer")
}

/// A resume of a session that does not exist: nothing on stdout, exit code 1.
pub fn not_found() -> Script {
    refused("no rollout found for thread id $THREAD")
}

/// The steps of [`hello`]: read the prompt, start, answer, complete.
pub fn answering(answer: &str) -> Vec<Step> {
    vec![Step::ReadStdin, thread_started(), turn_started(), message(answer), turn_completed()]
}

/// `thread.started` of the session asked for, or of a new one.
pub fn thread_started() -> Step {
    thread_started_as("$THREAD")
}

/// `thread.started` of a certain session.
pub fn thread_started_as(id: &str) -> Step {
    Step::json(&json!({"type": "thread.started", "thread_id": id}))
}

/// `turn.started`.
pub fn turn_started() -> Step {
    Step::json(&json!({"type": "turn.started"}))
}

/// A complete agent message.
pub fn message(text: &str) -> Step {
    item_completed(&json!({"id": "item_$SEQ", "type": "agent_message", "text": text}))
}

/// A complete agent message with a phase, `commentary` or `final_answer`.
pub fn message_in_phase(text: &str, phase: &str) -> Step {
    let item = json!({"id": "item_$SEQ", "type": "agent_message", "text": text, "phase": phase});
    item_completed(&item)
}

/// `item.started` of a command.
pub fn command_started(id: &str, command: &str) -> Step {
    item_started(&command_item(id, command, "", None))
}

/// `item.completed` of a command.
pub fn command_completed(id: &str, command: &str, output: &str, exit_code: i32) -> Step {
    item_completed(&command_item(id, command, output, Some(exit_code)))
}

/// `item.started` of any item.
pub fn item_started(item: &Value) -> Step {
    Step::json(&json!({"type": "item.started", "item": item}))
}

/// `item.completed` of any item.
pub fn item_completed(item: &Value) -> Step {
    Step::json(&json!({"type": "item.completed", "item": item}))
}

/// A stream error.
pub fn error(message: &str) -> Step {
    Step::json(&json!({"type": "error", "message": message}))
}

/// A reconnect notice; without a reason as older versions print it.
pub fn reconnecting(attempt: u32, max: u32, reason: Option<&str>) -> Step {
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    error(&format!("Reconnecting... {attempt}/{max}{reason}"))
}

/// `turn.completed` with usage 11 (3 cached) in, 7 (2 reasoning) out.
pub fn turn_completed() -> Step {
    let usage = json!({
        "input_tokens": 11,
        "cached_input_tokens": 3,
        "cache_write_input_tokens": 0,
        "output_tokens": 7,
        "reasoning_output_tokens": 2,
    });
    Step::json(&json!({"type": "turn.completed", "usage": usage}))
}

/// `turn.failed`.
pub fn turn_failed(message: &str) -> Step {
    Step::json(&json!({"type": "turn.failed", "error": {"message": message}}))
}

/// A valid agent message on a line of `len` bytes.
pub fn huge_message(len: usize) -> Step {
    let head =
        r#"{"type":"item.completed","item":{"id":"item_$SEQ","type":"agent_message","text":""#;
    Step::huge(head, r#""}}"#, len)
}

/// Many reasoning items: an engine that talks, before it listens if stdin was not read yet.
pub fn flood(lines: usize) -> Step {
    let item =
        json!({"id": "item_$SEQ", "type": "reasoning", "text": "thinking aloud ".repeat(16)});
    let line = json!({"type": "item.completed", "item": item}).to_string();
    Step::FloodStdout { line, lines }
}

fn refused(message: &str) -> Script {
    Script::exec([
        Step::stderr(format!(
            "Error: thread/resume: thread/resume failed: {message} (code -32600)"
        )),
        Step::Exit(1),
    ])
}

fn command_item(id: &str, command: &str, output: &str, exit_code: Option<i32>) -> Value {
    let status = match exit_code {
        None => "in_progress",
        Some(0) => "completed",
        Some(_) => "failed",
    };
    json!({
        "id": id,
        "type": "command_execution",
        "command": format!("/bin/bash -lc '{command}'"),
        "aggregated_output": output,
        "exit_code": exit_code,
        "status": status,
    })
}
