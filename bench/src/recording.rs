//! What a long turn of codex prints, generated: commands with 200 to 2,000 bytes of output, reasoning,
//! file changes, MCP calls, a todo list, messages.
//!
//! A recording has exactly as many lines as were asked for, at least ten, and is the same every time.

use std::fmt::Write as _;

use serde_json::{Value, json};

const THREAD: &str = "01a1e21b-26e5-7eb0-9d27-459e98f10b74";
const TURN: &str = "01a1e21b-675a-7fc1-aaa3-b35585eab8c2";
/// What a turn ends with.
pub const ANSWER: &str = "All done.";

/// The line with which `codex exec --json` names the session.
pub fn thread_started(session: &str) -> String {
    format!("{}\n", json!({ "type": "thread.started", "thread_id": session }))
}

/// The output of `codex exec --json`.
pub fn exec(lines: usize) -> String {
    thread_started(THREAD) + &exec_after_start(lines - 1)
}

/// The output of `codex exec --json` behind its first line.
pub fn exec_after_start(lines: usize) -> String {
    let mut out = Lines::default();
    out.push(&json!({ "type": "turn.started" }));
    let mut number = 0;
    while out.count + 2 < lines {
        for (state, item) in exec_items(number) {
            if out.count + 2 < lines {
                out.push(&json!({ "type": format!("item.{state}"), "item": item }));
            }
        }
        number += 1;
    }
    let last = json!({ "id": "item_last", "type": "agent_message", "text": ANSWER });
    out.push(&json!({ "type": "item.completed", "item": last }));
    out.push(&json!({ "type": "turn.completed", "usage": {
        "input_tokens": 11, "cached_input_tokens": 3, "output_tokens": 7, "reasoning_output_tokens": 2
    } }));
    out.text
}

/// What `codex app-server` sends of a turn, from its start to its end.
pub fn app_server(lines: usize) -> String {
    let mut out = Lines::default();
    let turn = |status: &str| json!({ "threadId": THREAD, "turn": { "id": TURN, "items": [], "status": status } });
    out.push(&json!({ "method": "turn/started", "params": turn("inProgress") }));
    let mut number = 0;
    while out.count + 2 < lines {
        for (method, params) in app_server_messages(number) {
            if out.count + 2 < lines {
                out.push(&notification(method, params));
            }
        }
        number += 1;
    }
    let last =
        json!({ "type": "agentMessage", "id": "last", "text": ANSWER, "phase": "final_answer" });
    out.push(&notification("item/completed", json!({ "item": last })));
    out.push(&json!({ "method": "turn/completed", "params": turn("completed") }));
    out.text
}

#[derive(Default)]
struct Lines {
    text: String,
    count: usize,
}

impl Lines {
    fn push(&mut self, value: &Value) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{value}");
        self.count += 1;
    }
}

fn command(number: usize) -> String {
    format!("/bin/bash -lc 'grep -rn \"needle {number}\" src | head -20'")
}

/// 200 to 2,000 bytes, by a fixed pattern.
fn output(number: usize) -> String {
    "src/lib.rs:42: let needle = haystack.find();\n".repeat(5 + number * 7 % 40)
}

fn reasoning(number: usize) -> String {
    format!("**Weighing** the options for step {number} before going on")
}

fn message(number: usize) -> String {
    format!("Step {number} is done; the next one follows from it.")
}

fn file(number: usize) -> String {
    format!("/workspace/src/file{number}.rs")
}

fn exec_items(number: usize) -> Vec<(&'static str, Value)> {
    let id = format!("item_{number}");
    match number % 10 {
        0..=4 => {
            let run = |output: String, code: Option<i32>, status: &str| {
                json!({ "id": id, "type": "command_execution", "command": command(number),
                    "aggregated_output": output, "exit_code": code, "status": status })
            };
            vec![
                ("started", run(String::new(), None, "in_progress")),
                ("completed", run(output(number), Some(0), "completed")),
            ]
        }
        5 => {
            vec![("completed", json!({ "id": id, "type": "reasoning", "text": reasoning(number) }))]
        }
        6 => {
            let change = |status: &str| {
                json!({ "id": id, "type": "file_change", "status": status,
                    "changes": [{ "path": file(number), "kind": "update" }] })
            };
            vec![("started", change("in_progress")), ("completed", change("completed"))]
        }
        7 => {
            let call = |result: Value, status: &str| {
                json!({ "id": id, "type": "mcp_tool_call", "server": "lab", "tool": "search",
                    "arguments": { "path": "src", "query": format!("symbol {number}") },
                    "result": result, "error": null, "status": status })
            };
            let result = json!({ "content": [{ "type": "text", "text": "found it" }], "structured_content": null });
            vec![
                ("started", call(Value::Null, "in_progress")),
                ("completed", call(result, "completed")),
            ]
        }
        8 => {
            let items = json!([
                { "text": "look", "completed": true },
                { "text": "change", "completed": number % 20 == 8 },
                { "text": "test", "completed": false },
            ]);
            vec![("updated", json!({ "id": "item_todo", "type": "todo_list", "items": items }))]
        }
        _ => vec![(
            "completed",
            json!({ "id": id, "type": "agent_message", "text": message(number) }),
        )],
    }
}

/// A notification of the turn.
fn notification(method: &str, mut params: Value) -> Value {
    params["threadId"] = THREAD.into();
    params["turnId"] = TURN.into();
    json!({ "method": method, "params": params, "emittedAtMs": 1_794_794_809_240_u64 })
}

fn app_server_messages(number: usize) -> Vec<(&'static str, Value)> {
    let id = format!("call_{number}");
    let started = |item: Value| ("item/started", json!({ "item": item }));
    let completed = |item: Value| ("item/completed", json!({ "item": item }));
    let delta = |text: &str| json!({ "itemId": id, "delta": text });
    match number % 10 {
        0..=4 => {
            let run = |output: Option<String>, code: Option<i32>, status: &str| {
                json!({ "type": "commandExecution", "id": id, "command": command(number),
                    "cwd": "/workspace", "processId": "61357", "status": status,
                    "commandActions": [{ "type": "search", "command": "grep", "path": "src" }],
                    "aggregatedOutput": output, "exitCode": code, "durationMs": 29 })
            };
            vec![
                started(run(None, None, "inProgress")),
                ("item/commandExecution/outputDelta", delta(&output(number))),
                completed(run(Some(output(number)), Some(0), "completed")),
            ]
        }
        5 => {
            let item = json!({ "type": "reasoning", "id": id, "summary": [reasoning(number)], "content": [] });
            vec![
                started(item.clone()),
                ("item/reasoning/summaryTextDelta", delta(&reasoning(number))),
                completed(item),
            ]
        }
        6 => {
            let change = |status: &str| {
                json!({ "type": "fileChange", "id": id, "status": status, "changes": [
                    { "path": file(number), "kind": { "type": "update" }, "diff": "-old\n+new\n" } ] })
            };
            vec![started(change("inProgress")), completed(change("completed"))]
        }
        7 => {
            let call = |result: Value, status: &str| {
                json!({ "type": "mcpToolCall", "id": id, "server": "lab", "tool": "search",
                    "arguments": { "path": "src", "query": format!("symbol {number}") },
                    "result": result, "error": null, "status": status })
            };
            let result = json!({ "content": [{ "type": "text", "text": "found it" }], "structuredContent": null });
            vec![started(call(Value::Null, "inProgress")), completed(call(result, "completed"))]
        }
        8 => {
            let figures = json!({ "totalTokens": 18, "inputTokens": 11, "cachedInputTokens": 3,
                "outputTokens": 7, "reasoningOutputTokens": 2 });
            let usage = json!({ "total": figures, "last": figures, "modelContextWindow": 258_400 });
            vec![("thread/tokenUsage/updated", json!({ "tokenUsage": usage }))]
        }
        _ => {
            let item = |text: &str| json!({ "type": "agentMessage", "id": id, "text": text, "phase": "commentary" });
            let text = message(number);
            let (head, tail) = text.split_at(text.len() / 2);
            vec![
                started(item("")),
                ("item/agentMessage/delta", delta(head)),
                ("item/agentMessage/delta", delta(tail)),
                completed(item(&text)),
            ]
        }
    }
}
