//! A small MCP server on stdio for tests: one tool, `echo`, which returns its text and the structured content `{"a":1}`.
//!
//! It ends when its stdin does.

use std::io::{self, BufRead as _, Write as _};

use serde_json::{Value, json};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        // A notification has no id and gets no answer.
        let Some(id) = message.get("id") else {
            continue;
        };
        let mut reply = answer(&message);
        reply["jsonrpc"] = "2.0".into();
        reply["id"] = id.clone();
        writeln!(out, "{reply}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(message: &Value) -> Value {
    let params = &message["params"];
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({"result": {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "lab", "version": "1"},
        }}),
        "ping" => json!({"result": {}}),
        "tools/list" => json!({"result": {"tools": [{
            "name": "echo",
            "description": "Returns its text.",
            "inputSchema": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        }]}}),
        "tools/call" if params["name"] == "echo" => json!({"result": {
            "content": [{"type": "text", "text": params["arguments"]["text"]}],
            "structuredContent": {"a": 1},
        }}),
        method => json!({"error": {"code": -32601, "message": format!("no {method}")}}),
    }
}
