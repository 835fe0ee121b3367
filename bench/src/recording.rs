//! Generated `codex exec --json` output: the mix of a long turn.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

/// A recording of about this many lines, made once a run.
pub(crate) fn make(directory: &Path, lines: usize) -> anyhow::Result<PathBuf> {
    let path = directory.join(format!("recording-{lines}.jsonl"));
    std::fs::write(&path, text(lines))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn text(lines: usize) -> String {
    let mut text = String::new();
    let mut line = |value: serde_json::Value| {
        let _ = writeln!(text, "{value}");
    };
    // A session of its own in each recording, so that runs do not wait for each other.
    line(json!({ "type": "thread.started", "thread_id": "01a1e21b-26e5-7eb0-9d27-459e98f10b74" }));
    line(json!({ "type": "turn.started" }));
    let mut written = 2;
    let mut number = 0_usize;
    while written + 2 < lines {
        let id = format!("item_{number}");
        let mut item = |kind: &str, value: serde_json::Value| {
            line(json!({ "type": format!("item.{kind}"), "item": value }));
            written += 1;
        };
        match number % 10 {
            0..=4 => {
                let command =
                    format!("/bin/bash -lc 'grep -rn \"needle {number}\" src | head -20'");
                // 200 to 2,000 bytes, by a fixed pattern.
                let output =
                    "src/lib.rs:42: let needle = haystack.find();\n".repeat(5 + number * 7 % 40);
                item(
                    "started",
                    json!({ "id": id, "type": "command_execution", "command": command,
                    "aggregated_output": "", "exit_code": null, "status": "in_progress" }),
                );
                item(
                    "completed",
                    json!({ "id": id, "type": "command_execution", "command": command,
                    "aggregated_output": output, "exit_code": 0, "status": "completed" }),
                );
            }
            5 => item(
                "completed",
                json!({ "id": id, "type": "reasoning",
                "text": format!("**Weighing** the options for step {number} before going on") }),
            ),
            6 => {
                let changes = json!([{ "path": format!("/workspace/src/file{number}.rs"), "kind": "update" }]);
                item(
                    "started",
                    json!({ "id": id, "type": "file_change", "changes": changes, "status": "in_progress" }),
                );
                item(
                    "completed",
                    json!({ "id": id, "type": "file_change", "changes": changes, "status": "completed" }),
                );
            }
            7 => {
                let arguments = json!({ "path": "src", "query": format!("symbol {number}") });
                item(
                    "started",
                    json!({ "id": id, "type": "mcp_tool_call", "server": "lab", "tool": "search",
                    "arguments": arguments, "result": null, "error": null, "status": "in_progress" }),
                );
                item(
                    "completed",
                    json!({ "id": id, "type": "mcp_tool_call", "server": "lab", "tool": "search",
                    "arguments": arguments, "error": null, "status": "completed",
                    "result": { "content": [{ "type": "text", "text": "found it" }], "structured_content": null } }),
                );
            }
            8 => item(
                "updated",
                json!({ "id": "item_todo", "type": "todo_list", "items": [
                { "text": "look", "completed": true }, { "text": "change", "completed": number % 20 == 8 },
                { "text": "test", "completed": false } ] }),
            ),
            _ => item(
                "completed",
                json!({ "id": id, "type": "agent_message",
                "text": format!("Step {number} is done; the next one follows from it.") }),
            ),
        }
        number += 1;
    }
    line(
        json!({ "type": "item.completed", "item": { "id": "item_last", "type": "agent_message", "text": "All done." } }),
    );
    line(
        json!({ "type": "turn.completed", "usage": { "input_tokens": 11, "cached_input_tokens": 3,
        "output_tokens": 7, "reasoning_output_tokens": 2 } }),
    );
    text
}
